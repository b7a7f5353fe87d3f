/* SPDX-License-Identifier: MIT
 * kind.c - what stands on a key, when it is not what the caller expected.
 */
#include "session/kind.h"

#include <string.h>

#include "base/err.h"

/* The value of every kind but the mutex begins with its name and a dot. */
static const char *kind_of(const char *value)
{
    static const struct {
        const char *begins, *text;
    } kinds[] = {
        { "latch.", "a latch" },
        { "barrier.", "a barrier" },
        { "semaphore.", "a semaphore" },
        { "shared.", "a lock held by readers" },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strncmp(value, kinds[i].begins, strlen(kinds[i].begins)) == 0)
            return kinds[i].text;
    return "a lock that is held";
}

hf_err kind_refuse(const struct lock_keys *keys, const struct reply *rp, const char *wanted,
                   hf_error *reterr)
{
    char name[120];
    err_quote(name, sizeof name, keys->name.data, keys->name.len);
    if (rp->len > 1 && rp->item[1]->str)
        return err_set(reterr, HF_ETYPE,
                       "%s is %s, not %s: nothing was changed; choose another name", name,
                       kind_of(rp->item[1]->str), wanted);
    return err_set(reterr, HF_ETYPE,
                   "%s cannot be used as %s: its key, or one beside it, holds data of another "
                   "type; nothing was changed", name, wanted);
}
