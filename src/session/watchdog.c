/* SPDX-License-Identifier: MIT
 * watchdog.c - the thread that says "in doubt", "safe again" and "lost", in time.
 *
 * It alone tells events, so they come in order and one at a time. It never talks to a server, and
 * nobody keeps the lock from it: nothing can make it late.
 */
#include "session/keeper_impl.h"

/* Holds: mu, released while the event is told. */
static void tell_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    l->told = lease_state(l);
    if (l->told == HF_STATE_IN_DOUBT)
        metrics_add(&k->c->metrics.in_doubt, 1);
    l->in_use++;
    keeper_unlock(k);
    l->changed(l, l->told);
    keeper_lock(k);
    lease_unuse_locked(l);
}

/* Holds: mu, released while it is told. Somebody asks for it. */
static void tell_asked_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    l->ask_due = false;
    if (!l->asked)
        return;
    l->in_use++;
    keeper_unlock(k);
    l->asked(l);
    keeper_lock(k);
    lease_unuse_locked(l);
}

/* A lease is due: say what is to be said, plan the next look. */
static void watch_locked(struct keeper *k, struct lease *l, int64_t now)
{
    mutex_assert_held(&k->mu);
    keeper_judge_locked(k, l, now);
    if (lease_state(l) == HF_STATE_SAFE && now >= lease_safe_until(l))
        atomic_store(&l->state, HF_STATE_IN_DOUBT);
    heap_put(&k->watches, &l->watch, lease_next_watch(l));
    if (lease_ask_due(l)) /* then it is due again at once */
        tell_asked_locked(k, l);
    else if (lease_state(l) != l->told && !l->leaving)
        tell_locked(k, l);
}

static struct lease *of_watch(struct heap_node *n)
{
    return (struct lease *)((char *)n - offsetof(struct lease, watch));
}

void *keeper_watchdog(void *arg)
{
    struct keeper *k = arg;
    size_t looks = 0;
    keeper_lock(k);
    while (!k->stopping) {
        struct heap_node *n = heap_first(&k->watches);
        int64_t now = clock_now_ms();
        keeper_awake_locked(k, now);
        if (n && n->due_ms <= now) {
            watch_locked(k, of_watch(n), now);
            if (++looks % KEEPER_SLICE == 0)
                keeper_pause_locked(k);
            continue;
        }
        int64_t due = n ? n->due_ms : CLOCK_NEVER;
        int64_t until = k->watch_wakes_ms = keeper_next_wake(k->watch_wakes_ms, due, now);
        k->watch_sleeps_ms = until;
        keeper_unlock(k);
        alarm_wait(&k->watch_alarm, until);
        keeper_lock(k);
        keeper_awake_locked(k, clock_now_ms());
        k->watch_sleeps_ms = CLOCK_NEVER;
    }
    keeper_unlock(k);
    return NULL;
}
