/* SPDX-License-Identifier: MIT
 * waiters_impl.h - what waiters.c and waiter.c share; nobody else includes it.
 */
#ifndef SESSION_WAITERS_IMPL_H
#define SESSION_WAITERS_IMPL_H

#include <stdatomic.h>

#include "base/mutex.h"
#include "session/waiter.h"

#define SERVED       256
#define LEFT         32    /* locks */
#define LEFT_MS      20000 /* as between two looks of one waiter: nothing is kept for longer */
#define CLAIM_MAX_MS 10000 /* the longest that a lock is kept for who was called */

struct group { /* the waiters of one lock; in a tree by its key */
    struct tree_node by_key;
    hf_bytes         key;
    struct waiter   *youngest;
    struct absences *absent; /* of the lock's holders; NULL while somebody looks */
};

/* What the last waiter for a lock had seen. Who waits for less than a grace, again and again, has
 * its lock taken over all the same: an absence has a name of its own, so it is known again. */
struct left {
    char            *key;
    size_t           len;
    struct absences *absent;
    int64_t          at_ms;
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
    struct left     left[LEFT];
};

/* From now on it is told what comes for it. False: no memory. */
bool waiters_add(struct waiters *ws, struct waiter *w);
void waiters_remove(struct waiters *ws, struct waiter *w, bool granted);
/* Of those of this client who wait for the same lock: it looks for all. */
bool waiters_is_youngest(struct waiters *ws, const struct waiter *w);
/* For a look: w->absent is what the waiters of its lock have seen of holders; and back again. */
void waiters_take_absent(struct waiters *ws, struct waiter *w);
void waiters_put_absent(struct waiters *ws, struct waiter *w);
/* The queue has lost us: it may have lost the others of the lock as well. */
void waiters_rejoin_group(struct waiters *ws, const struct waiter *w);

#endif
