/* SPDX-License-Identifier: MIT
 * kind.c - what stands on a key, by its own words.
 */
#include "session/kind.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

bool kind_parse(const char *value, struct kind *ret)
{
    static const struct {
        const char *begins, *name, *text;
        bool        lock, total_first;
    } kinds[] = {
        { "shared.", "shared", "a lock held by readers", true, true },
        { "latch.", "latch", "a latch", false, false },
        { "barrier.", "barrier", "a barrier", false, true },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        size_t n = strlen(kinds[i].begins);
        unsigned a, b;
        if (strncmp(value, kinds[i].begins, n) != 0 || sscanf(value + n, "%u.%u:", &a, &b) != 2)
            continue;
        *ret = (struct kind){ .name = kinds[i].name, .text = kinds[i].text, .lock = kinds[i].lock,
                              .total = kinds[i].total_first ? a : b,
                              .used = kinds[i].total_first ? b : a };
        if (i == 0 && ret->total > 0) {
            ret->name = "semaphore";
            ret->text = "a semaphore in use";
        }
        return true;
    }
    return false;
}

hf_err kind_refuse(const struct lock_keys *keys, hf_bytes value, const char *wanted,
                   hf_error *reterr)
{
    char name[120];
    struct kind k;
    err_quote(name, sizeof name, keys->name.data, keys->name.len);
    if (value.data)
        return err_set(reterr, HF_ETYPE,
                       "%s is %s, not %s: nothing was changed; choose another name", name,
                       kind_parse(value.data, &k) ? k.text : "a lock that is held", wanted);
    return err_set(reterr, HF_ETYPE,
                   "%s cannot be used as %s: its key, or one beside it, holds data of another "
                   "type; nothing was changed", name, wanted);
}
