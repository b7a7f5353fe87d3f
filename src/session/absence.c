/* SPDX-License-Identifier: MIT
 * absence.c - the holders that a waiter has been seeing absent, and for how long by its own clock.
 */
#include "session/absence.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct absences {
    size_t n;
    struct {
        hf_bytes id;
        int64_t  since_ms;
    } one[];
};

static int64_t since(const struct absences *a, const struct reply *id, int64_t now_ms)
{
    for (size_t i = 0; a && i < a->n; i++)
        if (a->one[i].id.len == id->len && memcmp(a->one[i].id.data, id->str, id->len) == 0)
            return a->one[i].since_ms;
    return now_ms;
}

struct absences *absences_update(struct absences *old, const struct reply *seen, int64_t now_ms)
{
    size_t n = seen->len < ABSENCES_MAX ? seen->len : ABSENCES_MAX, bytes = 0;
    struct absences *a = NULL;
    for (size_t i = 0; i < n; i++)
        bytes += seen->item[i]->str ? seen->item[i]->len : 0;
    if (n && (a = mem_alloc(sizeof *a + n * sizeof a->one[0] + bytes))) {
        char *p = (char *)&a->one[n];
        a->n = 0;
        for (size_t i = 0; i < n; i++) {
            const struct reply *id = seen->item[i];
            if (!id->str)
                continue;
            memcpy(p, id->str, id->len);
            a->one[a->n].since_ms = since(old, id, now_ms);
            a->one[a->n++].id = (hf_bytes){ p, id->len };
            p += id->len;
        }
    }
    absences_free(old);
    return a;
}

struct absences *absences_free(struct absences *a)
{
    mem_free(a);
    return NULL;
}

size_t absences_args(const struct absences *a, int64_t now_ms, hf_bytes args[ABSENCES_ARGS_MAX],
                     char text[ABSENCES_MAX][24])
{
    size_t n = a ? a->n : 0;
    for (size_t i = 0; i < n; i++) {
        snprintf(text[i], 24, "%lld", (long long)(now_ms - a->one[i].since_ms));
        args[2 * i] = a->one[i].id;
        args[2 * i + 1] = hf_str(text[i]);
    }
    return 2 * n;
}
