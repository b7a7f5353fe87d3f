/* SPDX-License-Identifier: MIT
 * giveup.h - tokens that were given up and of which the server does not know yet.
 */
#ifndef SESSION_GIVEUP_H
#define SESSION_GIVEUP_H

#include <stdbool.h>

#include "topo/keys.h"

/* What to give up. */
struct cancel {
    const struct lock_keys *keys;
    const char             *token;
    hf_bytes                owner;  /* caller-chosen id, or empty */
    hf_bytes                member; /* of the queue, or empty */
    bool                    remember; /* a copy of the request may be under way: leave a tombstone */
};

/* The token holds nothing and stands in no queue afterwards. *ret_held (may be NULL): whether it
 * held the lock, which has passed to the next. */
hf_err giveup_cancel(hf_client *c, const struct cancel *what, int64_t deadline_ms, bool *ret_held,
                     hf_error *reterr);

/* One that is done in the background: a copy of all that it needs. */
struct giveup {
    struct giveup    *next;
    struct lock_keys *keys;
    struct cancel     what;
    int64_t           try_at_ms, until_ms;
    unsigned          moves; /* of the key, by then */
    char              bytes[];
};

struct giveup *giveup_new(hf_client *c, const struct cancel *what, int64_t until_ms);
struct giveup *giveup_free(struct giveup *g);

#endif
