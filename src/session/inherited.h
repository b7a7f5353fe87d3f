/* SPDX-License-Identifier: MIT
 * inherited.h - the locks under which this process runs, held by its ancestors until it ends.
 *
 * Whoever runs a program while it holds locks tells it so in $HOLDFAST_HELD: "NUMBER/KEY" for each
 * of them, with a space between two. A key's bytes that could be mistaken are written %2F and so
 * on. Nothing in it lets anybody release a lock, and nothing of it is believed: the server says
 * whether a key still is held under that number.
 */
#ifndef SESSION_INHERITED_H
#define SESSION_INHERITED_H

#include <stdbool.h>

#include "base/err.h"

#define INHERITED_MAX      32   /* locks */
#define INHERITED_TEXT_MAX 8192 /* of the environment */

struct inherited {
    size_t n;
    struct inherited_lock {
        uint64_t fence;
        hf_bytes key; /* in bytes */
    } lock[INHERITED_MAX];
    char bytes[];
};

/* NULL: nothing, or no memory. What makes no sense is left out. text may be NULL. */
struct inherited *inherited_parse(const char *text);
void inherited_free(struct inherited *in); /* NULL is fine */
bool inherited_has(const struct inherited *in, hf_bytes key); /* in may be NULL */

/* One more behind what is in buf. False: it does not fit, and nothing was added. */
bool inherited_add(char *buf, size_t size, uint64_t fence, hf_bytes prefix, hf_bytes name);

#endif
