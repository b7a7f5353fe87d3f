/* SPDX-License-Identifier: MIT
 * opts.c - options of a caller that may know fewer of them, or more.
 */
#include "base/opts.h"

#include <string.h>

#define SIZE_MOST 4096 /* more is no options struct: somebody forgot to set the size */

hf_err opts_copy(void *ret, size_t size, const void *opts, const char *type, hf_error *reterr)
{
    size_t given = 0;
    memset(ret, 0, size);
    if (!opts)
        return HF_OK;
    memcpy(&given, opts, sizeof given);
    /* The size of a type is a multiple of its alignment: others end within a field. */
    if (given < sizeof given || given > SIZE_MOST || given % _Alignof(size_t) != 0)
        return err_set(reterr, HF_EINVAL, "%s.size is %zu: set it to sizeof(%s)", type, given,
                       type);
    for (size_t i = size; i < given; i++)
        if (((const char *)opts)[i] != 0)
            return err_set(reterr, HF_EINVAL,
                           "%s.size is %zu and byte %zu is not 0: this library knows only the "
                           "first %zu. Set all of it to 0 before its fields, or use a newer "
                           "library",
                           type, given, i, size);
    memcpy(ret, opts, given < size ? given : size);
    return HF_OK;
}
