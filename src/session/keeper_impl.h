/* SPDX-License-Identifier: MIT
 * keeper_impl.h - what keeper.c, belief.c and renew.c share; nobody else includes it.
 */
#ifndef SESSION_KEEPER_IMPL_H
#define SESSION_KEEPER_IMPL_H

#include "base/alarm.h"
#include "base/forkguard.h"
#include "session/client.h"
#include "session/giveup.h"
#include "session/keeper.h"
#include "session/peer.h"

#define KEEPER_PUBLISH_AFTER_MS 150 /* shorter holds are nobody's business */

struct keeper {
    hf_client      *c;
    pthread_t       keeper_thread, watch_thread;
    struct alarm    keeper_alarm, watch_alarm;

    pthread_mutex_t mu; /* guards everything below, and every lease that is kept */
    pthread_cond_t  unused; /* some lease's in_use has ended */
    bool            stopping;
    struct heap     renewals, watches;
    size_t          reserved; /* room in both heaps */
    int64_t         min_grace_ms; /* the smallest among the leases kept; CLOCK_NEVER */
    int64_t         keeper_wakes_ms, watch_wakes_ms;
    struct giveup  *given_up;
    struct giveup  *released, **released_end; /* lately, the oldest first */
    size_t          nreleased;
    size_t          published;  /* leases kept now that the record names */
    bool            record_due; /* somebody is to be named who is not */
    int64_t         announce_at_ms; /* when waiters are to be named; CLOCK_NEVER */
    int64_t         record_fresh_until_ms; /* 0: there is no record */
    bool            record_stays; /* a lock that outlives us needs it */

    struct peers    peers; /* Thread: keeper. */
};

static inline hf_state lease_state(const struct lease *l)
{
    return (hf_state)atomic_load_explicit(&l->state, memory_order_acquire);
}

static inline struct lease *keeper_lease_of(struct heap_node *watch)
{
    return (struct lease *)((char *)watch - offsetof(struct lease, watch));
}

/* A wake-up that is planned already is kept though nothing may be due then: who locks and unlocks
 * all the time would otherwise have to ring for each lock anew. */
static inline int64_t keeper_next_wake(int64_t planned_ms, int64_t due_ms, int64_t now_ms)
{
    return planned_ms > now_ms ? clock_earlier(planned_ms, due_ms) : due_ms;
}

/* belief.c. All hold mu. */
void keeper_wake(struct keeper *k, int64_t at_ms);
bool keeper_renewable(const struct lease *l);
bool keeper_unverified(const struct keeper *k, const struct lease *l);
int64_t keeper_ttl(const struct lease *l, int64_t now_ms);
int64_t keeper_deadline(const struct keeper *k, int64_t now_ms, int64_t wanted_ms);
void keeper_plan_renewal(struct keeper *k, struct lease *l, int64_t not_before_ms);
void keeper_mark_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms);
void keeper_mark_back(struct lease *l, unsigned epoch, int64_t sent_ms);
void keeper_mark_lost(struct keeper *k, struct lease *l, hf_loss loss);
void *keeper_watchdog(void *k); /* the thread */

/* keeper.c. Holds mu. */
void keeper_repeat_releases(struct keeper *k);

/* renew.c. Holds mu, released while it talks. Renew what is due; false when nothing was. */
bool renew_due(struct keeper *k, int64_t now_ms);

#endif
