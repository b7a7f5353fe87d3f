/* SPDX-License-Identifier: MIT
 * kind.h - what stands on a key, when it is not what the caller expected.
 */
#ifndef SESSION_KIND_H
#define SESSION_KIND_H

#include "net/resp.h"
#include "topo/keys.h"

/* HF_ETYPE with a message from a script's refusal {-3, value} or {-3}: "NAME is a barrier, not a
 * latch ...". wanted: "a latch". */
hf_err kind_refuse(const struct lock_keys *keys, const struct reply *rp, const char *wanted,
                   hf_error *reterr);

#endif
