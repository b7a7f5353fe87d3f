/* SPDX-License-Identifier: MIT
 * lease.h - one grant, and until when its holder may believe in it.
 *
 * Belief has one rule: it ends at `until`, by our own clock: the lease, counted from the sending of
 * the last request that the server answered with yes; and the grace, counted from the sending of
 * the last answered ping on the session's connection. Nothing that was or was not noticed makes it
 * longer.
 */
#ifndef SESSION_LEASE_H
#define SESSION_LEASE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/heap.h"
#include "topo/keys.h"

#define LEASE_TOKEN_SIZE 56  /* 32 digits, a dot, a sequence number */
#define LEASE_OWNER_MAX  256

struct lease {
    const struct lock_keys *keys;
    void (*changed)(struct lease *l, hf_state state); /* called by the watchdog, nothing locked */
    hf_err (*release)(struct lease *l, hf_error *reterr); /* give it back, whatever kind it is */

    /* Fixed while it is kept. */
    char     token[LEASE_TOKEN_SIZE];
    hf_bytes owner;        /* caller-chosen id, or empty; outlives the lease */
    uint64_t fence;
    uint64_t sequence;
    int64_t  grace_ms;     /* as it stands in the value; 0: nobody takes over before the ttl */
    bool     renew;        /* in the background */
    bool     shared;       /* with others; changes only under keeper_begin() */
    int64_t  granted_ms;
    int64_t  hold_until_ms; /* maximum total hold; CLOCK_NEVER */
    hf_bytes follower;      /* a key that lasts as long as the lock; see keeper_follow() */

    /* Any thread reads these; they change under the keeper's lock. */
    _Atomic int64_t until_ms; /* belief ends; 0: not held */
    atomic_int      state;    /* hf_state */
    atomic_int      loss;     /* hf_loss */

    /* The keeper's, under its lock. */
    int64_t          ttl_ms;       /* what renewals ask for */
    int64_t          proven_ms;    /* when the last request that was answered with yes was sent */
    int64_t          lease_ms;     /* what that request gave */
    int64_t          cap_ms, cap_until_ms; /* a request for so short a lease may still arrive */
    int64_t          asked_end_ms; /* of a request under way that may shorten it; CLOCK_NEVER */
    int64_t          present_ms;   /* the last proof of our presence that counts for it */
    unsigned         epoch;        /* the subscription in which the lock was last found ours */
    unsigned         moves;        /* of the topology, when it was; at first, when it was asked for */
    hf_state         told;         /* the state that changed() heard last */
    bool             published;    /* named in the session's record */
    bool             exclusive;    /* an explicit request is under way: no renewals */
    unsigned         in_use;       /* by the keeper's threads, outside the lock */
    struct heap_node renewal;      /* when the keeper has something to do for it */
    struct heap_node watch;        /* when the watchdog has; in its heap while it is kept */
};

/* Exactly what the lock key and the own key hold for it; *ret_own is empty without an owner id.
 * "shared": the token is one of several holders. text is where they are written. */
#define LEASE_TEXT_SIZE (LEASE_TOKEN_SIZE + 40)
void lease_values(const struct lease *l, char text[LEASE_TEXT_SIZE], hf_bytes *ret_value,
                  hf_bytes *ret_own);

/* What is left of a grant: how its holder has to count. */
struct lease_terms {
    int64_t  sent_ms, ttl_ms;  /* from when on, for how long */
    int64_t  present_ms;       /* proof of presence, with a grace */
    unsigned epoch;
};

/* Our own deadline: the ttl less 1 % for clocks of different speed and 2 ms for rounding. */
static inline int64_t lease_end(int64_t sent_ms, int64_t ttl_ms)
{
    return clock_add(sent_ms, ttl_ms - ttl_ms / 100 - 2);
}

/* Why a lease that is not believed in any more has ended, if the server did not say so. */
static inline hf_loss lease_why_ended(const struct lease *l, int64_t now_ms)
{
    return now_ms >= l->hold_until_ms ? HF_LOSS_MAX_HOLD : HF_LOSS_EXPIRED;
}

static inline bool lease_believed(const struct lease *l, int64_t now_ms)
{
    return now_ms < atomic_load_explicit(&l->until_ms, memory_order_acquire);
}

#endif
