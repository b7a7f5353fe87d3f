/* SPDX-License-Identifier: MIT
 * opts.h - options of a caller that may know fewer of them, or more.
 */
#ifndef BASE_OPTS_H
#define BASE_OPTS_H

#include "base/err.h"

/* Copy opts, which may be NULL, into the size bytes of *ret: as many as the caller knows, and zeros
 * for the rest. The first member of each options struct is its size. HF_EINVAL: that cannot be the
 * size of a type, or a wish among those that are not known here. */
hf_err opts_copy(void *ret, size_t size, const void *opts, const char *type, hf_error *reterr);

#endif
