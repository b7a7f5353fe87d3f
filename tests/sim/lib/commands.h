/* SPDX-License-Identifier: MIT
 * commands.h - the commands of the model server, and what they answer.
 */
#ifndef SIM_COMMANDS_H
#define SIM_COMMANDS_H

#include "sim/lib/model.h"

enum rep_type { REP_NIL, REP_INT, REP_BULK, REP_STATUS, REP_ERROR, REP_ARRAY };

/* An answer. Its memory is that of the arena: it lasts until arena_reset(). */
struct rep {
    enum rep_type type;
    int64_t       n; /* the number; of an array, how many */
    const char   *p;
    size_t        len;
    struct rep   *item;
};

void *arena_get(size_t size);
void arena_reset(void);

struct rep rep_int(int64_t n);
struct rep rep_bulk(const void *p, size_t len);
struct rep rep_status(const char *text);
struct rep rep_error(const char *text);
struct rep rep_array(size_t n);

/* Execute one that needs no connection. False: there is no such command. */
bool command_do(int argc, const hf_bytes *argv, struct rep *ret);
/* The same for PUBLISH and PUBSUB: model.c. */
struct rep command_publish(hf_bytes channel, hf_bytes text, bool sharded);
struct rep command_numsub(int argc, const hf_bytes *argv, bool sharded);

static inline bool same_word(hf_bytes b, const char *word)
{
    size_t i = 0;
    const char *p = b.data;
    for (; i < b.len && word[i]; i++)
        if ((p[i] >= 'a' && p[i] <= 'z' ? p[i] - 32 : p[i]) != word[i])
            return false;
    return i == b.len && !word[i];
}
bool whole_number(hf_bytes b, int64_t *ret);
/* Its digits, without a NUL: at most 20. How many. */
size_t put_digits(char *ret, int64_t n);

#endif
