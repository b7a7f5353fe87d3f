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

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/heap.h"
#include "op/grant.h"

struct task;

struct lease {
    void (*changed)(struct lease *l, hf_state state); /* called by the watchdog, nothing locked */
    void (*asked)(struct lease *l); /* the same: somebody asks its holder to let go; may be NULL */
    /* Give back these, which have the same hook, by then. The first error, or HF_OK; *ret_count
     * grows by how many were released. Changes the order of the list. */
    hf_err (*release)(struct lease **l, size_t n, int64_t deadline_ms, size_t *ret_count,
                      hf_error *reterr);

    /* Fixed while it is kept. */
    struct grant grant;    /* shared changes only under keeper_begin() */
    bool     renew;        /* in the background */
    int64_t  granted_ms;
    uint64_t thread;       /* whose it is until it is released; 0: of any */

    /* Any thread reads these; they change under the keeper's lock. */
    _Atomic int64_t hold_until_ms; /* maximum total hold; CLOCK_NEVER */
    _Atomic int64_t until_ms; /* belief ends; 0: not held */
    atomic_int      state;    /* hf_state */
    atomic_int      loss;     /* hf_loss */
    _Atomic int64_t silent_ms; /* when it was lost: how old the last answer was, */
    _Atomic int64_t stood_ms;  /* and how long this process had stood still since then; */
    _Atomic int64_t grace_ended_ms, lease_ended_ms; /* which of both had ended, and how long it
                                                       was; the other is 0 */

    /* The keeper's, under its lock. */
    int64_t          ttl_ms;       /* what renewals ask for */
    int64_t          proven_ms;    /* when the last request that was answered with yes was sent */
    int64_t          lease_ms;     /* what that request gave */
    int64_t          cap_ms, cap_until_ms; /* a request for so short a lease may still arrive */
    int64_t          asked_end_ms; /* of a request under way that may shorten it; CLOCK_NEVER */
    int64_t          present_ms;   /* the last proof of our presence that counts for it */
    int64_t          catch_up_ms;  /* it ended while we stood still: until when what has arrived
                                      meanwhile is read first; 0: no need */
    hf_bytes         follower;     /* a key that lasts as long as the lock; see keeper_follow() */
    unsigned         epoch;        /* the subscription in which the lock was last found ours */
    unsigned         moves;        /* of the topology, when it was; at first, when it was taken */
    hf_state         told;         /* the state that changed() heard last */
    char            *broken_by, *asked_by; /* "WHEN BY TEXT", or NULL; notes.c, as the next five */
    unsigned         asks;         /* how often it was asked for */
    bool             ask_due;      /* asked() has to hear of the last one */
    int64_t          hint_ms;      /* when to ask early: a message says that there is a note, or
                                      not all servers have it; 0: no reason */
    int64_t          hinted_ms;    /* when that was done last */
    bool             hinted;       /* it is under way */
    bool             suspect;      /* its key is not what it should be: to be asked about at once */
    bool             exclusive;    /* an explicit request is under way: no renewals */
    bool             leaving;      /* keeper_remove() was called: no events either */
    unsigned         in_use;       /* by the keeper's threads, outside the lock */
    struct task     *waits;        /* to be woken when it is not any more; NULL: nobody */
    struct heap_node renewal;      /* when the keeper has something to do for it */
    struct heap_node watch;        /* when the watchdog has; in its heap while it is kept */
    struct heap_node length;       /* the shortest lease first */
    struct heap_node naming;       /* in the session's record: the longest ttl first */
    size_t           at;           /* lease_set.c */
    struct lease    *next;         /* the same */
};

/* What is left of a grant: how its holder has to count. */
struct lease_terms {
    int64_t  sent_ms, ttl_ms;  /* from when on, for how long */
    int64_t  present_ms;       /* proof of presence, with a grace */
    unsigned epoch;
    bool     partial;          /* not all servers of a quorum have it: to be renewed soon */
};

static inline hf_state lease_state(const struct lease *l)
{
    return (hf_state)atomic_load_explicit(&l->state, memory_order_acquire);
}

static inline bool lease_believed(const struct lease *l, int64_t now_ms)
{
    return now_ms < atomic_load_explicit(&l->until_ms, memory_order_acquire);
}

/* ---- the life of a lease, in parts of it ------------------------------------------------------
 *
 *      0         1/4  1/3            1/2                                     1
 *      proven     |   renew_at       doubt_at                             lease_end
 *            renew_from  |---|---|---| three waits for a server that may be silent
 */

#define LEASE_PING_LEAST_MS 50
#define LEASE_LATE_MS       25  /* later than planned: more than a busy scheduler does */
#define LEASE_CATCH_UP_MS   250 /* at most */

/* Our own deadline: the ttl less 1 % for clocks of different speed and 2 ms for rounding. */
static inline int64_t lease_end(int64_t sent_ms, int64_t ttl_ms)
{
    return clock_add(sent_ms, ttl_ms - ttl_ms / 100 - 2);
}

/* The ttl with which lease_end() is not before so many ms have passed. */
static inline int64_t lease_ttl_to_last(int64_t ms)
{
    return ms + ms / 98 + 4;
}

/* When it is renewed. */
static inline int64_t lease_renew_at(const struct lease *l)
{
    return l->proven_ms + l->lease_ms / 3;
}

/* Before that a renewal would be wasted: who is looked at then is looked at for another reason. */
static inline int64_t lease_renew_from(const struct lease *l)
{
    return l->proven_ms + l->lease_ms / 4;
}

/* It is due so much later, but may as well travel along with others. */
static inline int64_t lease_early_ms(const struct lease *l)
{
    return l->lease_ms / 12;
}

/* When half of what it lives on is gone without an answer. */
static inline int64_t lease_doubt_at(const struct lease *l)
{
    return l->proven_ms + l->lease_ms / 2;
}

/* The same of its grace. */
static inline int64_t lease_absent_at(const struct lease *l)
{
    return l->present_ms + l->grant.grace_ms / 2;
}

/* What it counts down when all is well. */
static inline int64_t lease_full_ms(const struct lease *l)
{
    int64_t grace = l->grant.grace_ms;
    return grace > 0 && grace < l->ttl_ms ? grace : l->ttl_ms;
}

/* Who finds only late_ms after its end that a lease has ended has stood still, and so have the
 * threads that read the answers. So long they may catch up before it is called lost: never longer
 * than it has been late for anyway. Nobody believes in it meanwhile. */
static inline int64_t lease_catch_up_ms(const struct lease *l, int64_t late_ms)
{
    int64_t most = clock_earlier(lease_full_ms(l) / 10, LEASE_CATCH_UP_MS);
    return late_ms < LEASE_LATE_MS ? 0 : clock_earlier(late_ms, most);
}

/* How often the session's connection is pinged for a grace: so much of it may be gone when a stall
 * begins, and what is left after that is what the holder survives (docs/guarantees.md). Very short
 * graces are not worth a ping every few ms. */
static inline int64_t lease_ping_ms(int64_t grace_ms)
{
    int64_t least = clock_earlier(grace_ms / 4, LEASE_PING_LEAST_MS);
    return grace_ms / 12 > least ? grace_ms / 12 : least;
}

/* How long the answer to a renewal may take: then a fresh connection may do better. */
static inline int64_t lease_patience_ms(const struct lease *l)
{
    return l->lease_ms / 3;
}

/* How long, of a lease this long, who asks one of several servers waits for it at most: it may be
 * silent. From when it is due to when it is in doubt there are three such waits. */
static inline int64_t lease_silence_ms(int64_t lease_ms)
{
    return lease_ms / 18;
}

/* How long after a renewal that failed the next one is tried. */
static inline int64_t lease_pause_ms(const struct lease *l)
{
    int64_t pause = l->ttl_ms / 20;
    return pause < 10 ? 10 : pause > 1000 ? 1000 : pause;
}

#endif
