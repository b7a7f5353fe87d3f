/* SPDX-License-Identifier: MIT
 * waiters_impl.h - what waiters.c and waiter.c share; nobody else includes it.
 */
#ifndef SESSION_WAITERS_IMPL_H
#define SESSION_WAITERS_IMPL_H

#include <stdatomic.h>

#include "base/mutex.h"
#include "session/waiter.h"

#define SERVED       256
#define CLAIM_MAX_MS 10000 /* the longest that a lock is kept for who was called */

struct group { /* the waiters of one lock; in a tree by its key */
    struct tree_node by_key;
    hf_bytes         key;
    struct waiter   *youngest;
};

struct waiters {
    hf_client      *c;
    struct mutex    mu;
    struct tree     by_sequence; /* of struct waiter */
    struct tree     by_key;      /* of struct group */
    atomic_size_t   groups;      /* how many */
    atomic_size_t   leaving;     /* whose cancellation is under way */
    struct served {              /* the last that have gone: a message for them may still come */
        uint64_t sequence, number, key;
        char     nonce[17];
        bool     done;           /* given back, or never held */
    } served[SERVED];            /* by sequence */
};

/* From now on it is told what comes for it. False: no memory. */
bool waiters_add(struct waiters *ws, struct waiter *w);
void waiters_remove(struct waiters *ws, struct waiter *w, bool granted);
/* Of those of this client who wait for the same lock: it looks for all. */
bool waiters_is_youngest(struct waiters *ws, const struct waiter *w);
/* The queue has lost us: it may have lost the others of the lock as well. */
void waiters_rejoin_group(struct waiters *ws, const struct waiter *w);

#endif
