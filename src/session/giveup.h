/* SPDX-License-Identifier: MIT
 * giveup.h - tokens that were given up and of which the server does not know yet.
 */
#ifndef SESSION_GIVEUP_H
#define SESSION_GIVEUP_H

#include "script/script.h"
#include "topo/keys.h"

struct giveup {
    struct giveup    *next;
    struct lock_keys *keys;
    char             *token;
    char             *owner; /* "" without one */
    size_t            owner_len;
    int64_t           try_at_ms, until_ms;
};

/* NULL when memory is short. */
struct giveup *giveup_new(const char *prefix, hf_bytes name, const char *token, hf_bytes owner,
                          int64_t until_ms);
struct giveup *giveup_free(struct giveup *g);

/* Cancel a token: it holds nothing afterwards, and a copy of its request that arrives late takes
 * nothing. *ret_held (may be NULL): whether it held the lock. */
hf_err giveup_cancel(struct topo *t, const struct lock_keys *keys, const char *token,
                     hf_bytes owner, int64_t deadline_ms, bool *ret_held, hf_error *reterr);

#endif
