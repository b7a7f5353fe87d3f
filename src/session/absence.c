/* SPDX-License-Identifier: MIT
 * absence.c - the holders of a lock that have been seen absent, and for how long by our own clock.
 */
#include "session/absence.h"

#include <string.h>

#include "base/mem.h"

struct absences {
    size_t            n;
    struct op_absence one[ABSENCES_MAX];
    int64_t           since_ms[ABSENCES_MAX];
    char              bytes[];
};

static int64_t since(const struct absences *a, hf_bytes id, int64_t now_ms)
{
    for (size_t i = 0; a && i < a->n; i++)
        if (a->one[i].id.len == id.len && memcmp(a->one[i].id.data, id.data, id.len) == 0)
            return a->since_ms[i];
    return now_ms;
}

struct absences *absences_update(struct absences *old, struct op_list seen, int64_t now_ms)
{
    size_t n = op_list_len(seen) < ABSENCES_MAX ? op_list_len(seen) : ABSENCES_MAX, bytes = 0;
    struct absences *a = NULL;
    for (size_t i = 0; i < n; i++)
        bytes += op_list_at(seen, i).len;
    if (n && (a = mem_alloc(sizeof *a + bytes))) {
        char *p = a->bytes;
        a->n = 0;
        for (size_t i = 0; i < n; i++) {
            hf_bytes id = op_list_at(seen, i);
            if (!id.len)
                continue;
            memcpy(p, id.data, id.len);
            a->since_ms[a->n] = since(old, id, now_ms);
            a->one[a->n++].id = (hf_bytes){ p, id.len };
            p += id.len;
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

struct absences *absences_longer(struct absences *a, struct absences *b)
{
    if (!a || (b && b->n && (!a->n || b->since_ms[0] < a->since_ms[0]))) {
        absences_free(a);
        return b;
    }
    absences_free(b);
    return a;
}

size_t absences_list(struct absences *a, int64_t now_ms, const struct op_absence **ret)
{
    size_t n = a ? a->n : 0;
    for (size_t i = 0; i < n; i++)
        a->one[i].seen_ms = now_ms - a->since_ms[i];
    *ret = n ? a->one : NULL;
    return n;
}
