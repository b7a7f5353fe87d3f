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
    if (given < sizeof given || given > SIZE_MOST)
        return err_set(reterr, HF_EINVAL, "%s.size is %zu: set it to sizeof(%s)", type, given,
                       type);
    memcpy(ret, opts, given < size ? given : size);
    return HF_OK;
}
