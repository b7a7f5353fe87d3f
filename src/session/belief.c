/* SPDX-License-Identifier: MIT
 * belief.c - what the holder of a lease may believe, and the watchdog that says so in time.
 *
 *      SAFE -> IN_DOUBT  [watch]               half of what it lives on is gone without an answer
 *      IN_DOUBT -> SAFE  [mark_safe]           a request or a ping was answered
 *      any -> LOST       [watch]               the lease or the grace ended by our own clock
 *                        [keeper_mark_lost]    the server says that it is not ours
 * Events are told by the watchdog alone, so they come in order and one at a time. It never talks to
 * a server: nothing can make it late.
 */
#include "base/err.h"
#include "session/keeper_impl.h"

#define PATIENCE_MS 50 /* at least, for any request of the keeper */

/* ---- planning: who has to wake up when (all hold mu) ------------------------------------- */

bool keeper_renewable(const struct lease *l)
{
    return l->renew && lease_state(l) != HF_LOST && !l->exclusive
           && lease_end(l->proven_ms, l->lease_ms) < l->hold_until_ms;
}

/* What to ask for, and to believe in. While a copy of a request for a shorter lease may still
 * arrive, no more than that: whenever it does, we have not counted on a longer one. */
int64_t keeper_ttl(const struct lease *l, int64_t now_ms)
{
    return now_ms < l->cap_until_ms ? clock_earlier(l->ttl_ms, l->cap_ms) : l->ttl_ms;
}

/* The keeper has one hand: nothing that it waits for may cost a lease its renewal. */
int64_t keeper_deadline(const struct keeper *k, int64_t now_ms, int64_t wanted_ms)
{
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t deadline = n ? clock_earlier(wanted_ms, n->due_ms) : wanted_ms;
    return deadline > now_ms + PATIENCE_MS ? deadline : now_ms + PATIENCE_MS;
}

/* Which subscription we have makes no difference to a lock that nobody takes over; on which server
 * it is does to all. */
bool keeper_unverified(const struct keeper *k, const struct lease *l)
{
    bool elsewhere = l->moves != topo_moves_of(k->c->topo, l->keys->key[KEY_LOCK]);
    bool unseen = l->grace_ms > 0 && l->epoch != l->keys->home->kept_epoch;
    return (elsewhere || unseen) && lease_state(l) != HF_LOST && !l->exclusive;
}

void keeper_wake(struct keeper *k, int64_t at_ms)
{
    if (at_ms < k->keeper_wakes_ms) {
        k->keeper_wakes_ms = at_ms;
        alarm_ring(&k->keeper_alarm);
    }
}

void keeper_plan_renewal(struct keeper *k, struct lease *l, int64_t not_before_ms)
{
    int64_t due = CLOCK_NEVER;
    if (keeper_renewable(l))
        due = l->proven_ms + l->lease_ms / 3;
    if (keeper_unverified(k, l))
        due = 0; /* only when the server has found it ours again are we back */
    if (due < not_before_ms)
        due = not_before_ms;
    if (!l->published && lease_state(l) != HF_LOST)
        due = clock_earlier(due, l->granted_ms + KEEPER_PUBLISH_AFTER_MS);
    if (due == CLOCK_NEVER) {
        heap_remove(&k->renewals, &l->renewal);
        return;
    }
    heap_put(&k->renewals, &l->renewal, due);
    keeper_wake(k, due);
}

static void plan_watch(struct keeper *k, struct lease *l, int64_t due_ms)
{
    heap_put(&k->watches, &l->watch, due_ms);
    if (due_ms < k->watch_wakes_ms) {
        k->watch_wakes_ms = due_ms;
        alarm_ring(&k->watch_alarm);
    }
}

/* When the watchdog has to look at it next: when half of what it lives on is gone, then at its end.
 * Nobody doubts a lease that is not to be renewed. */
static int64_t next_watch(const struct lease *l)
{
    int64_t due = atomic_load(&l->until_ms);
    if (lease_state(l) == HF_LOST)
        return CLOCK_NEVER;
    if (lease_state(l) != HF_SAFE)
        return due;
    if (keeper_renewable(l))
        due = clock_earlier(due, l->proven_ms + l->lease_ms / 2);
    if (l->grace_ms > 0)
        due = clock_earlier(due, l->present_ms + l->grace_ms / 2);
    return due;
}

static void count_until(struct lease *l)
{
    int64_t until = clock_earlier(lease_end(l->proven_ms, l->lease_ms), l->hold_until_ms);
    until = clock_earlier(until, l->asked_end_ms);
    if (l->grace_ms > 0)
        until = clock_earlier(until, lease_end(l->present_ms, l->grace_ms));
    atomic_store_explicit(&l->until_ms, until, memory_order_release);
}

/* Good news: what it lives on was proven anew. */
static void mark_safe(struct keeper *k, struct lease *l)
{
    count_until(l);
    atomic_store(&l->state, HF_SAFE);
    if (clock_now_ms() >= next_watch(l)) /* the other half of it still is in doubt */
        atomic_store(&l->state, HF_IN_DOUBT);
    plan_watch(k, l, lease_state(l) == l->told ? next_watch(l) : clock_now_ms());
}

void keeper_mark_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms)
{
    if (lease_state(l) == HF_LOST)
        return; /* what was said cannot be unsaid */
    l->proven_ms = sent_ms;
    l->lease_ms = clock_earlier(ttl_ms, keeper_ttl(l, clock_now_ms()));
    mark_safe(k, l);
    keeper_plan_renewal(k, l, 0);
}

/* The server found the lock ours after this subscription was made: its proofs count from now on. */
void keeper_mark_back(struct lease *l, unsigned epoch, int64_t sent_ms)
{
    if (l->grace_ms == 0 || epoch != l->keys->home->kept_epoch || l->epoch == epoch
        || lease_state(l) == HF_LOST)
        return;
    l->epoch = epoch;
    l->present_ms = sent_ms;
}

/* Holds: mu. Whatever is not verified has to be, at once. */
static void verify_all(struct keeper *k)
{
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = keeper_lease_of(k->watches.node[i]);
        if (keeper_unverified(k, l) && !l->in_use)
            keeper_plan_renewal(k, l, 0);
    }
}

void keeper_subscribed(struct keeper *k, struct home *h, unsigned epoch)
{
    pthread_mutex_lock(&k->mu);
    h->kept_epoch = epoch;
    verify_all(k);
    pthread_mutex_unlock(&k->mu);
}

void keeper_moved(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    verify_all(k);
    keeper_repeat_releases(k);
    pthread_mutex_unlock(&k->mu);
}

/* Holds: mu. Does it live on the subscription that stands at this inbox now? */
static bool proven_by(const struct lease *l, const struct inbox *in)
{
    const struct subscription *sub = &l->keys->home->sub;
    return atomic_load(&sub->at) == in && atomic_load(&sub->epoch) == l->epoch;
}

void keeper_present(struct keeper *k, const struct inbox *in, int64_t proof_ms)
{
    bool any = false;
    pthread_mutex_lock(&k->mu);
    int64_t now = clock_now_ms();
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = keeper_lease_of(k->watches.node[i]);
        if (l->grace_ms == 0 || lease_state(l) == HF_LOST)
            continue;
        any = true;
        if (!proven_by(l, in) || !lease_believed(l, now))
            continue; /* what has ended has ended, though the watchdog may not have said so yet */
        l->present_ms = proof_ms;
        count_until(l);
    }
    for (size_t i = 0; i < k->watches.len; i++) {
        struct lease *l = keeper_lease_of(k->watches.node[i]);
        if (lease_state(l) != HF_IN_DOUBT || !lease_believed(l, now))
            continue;
        mark_safe(k, l);
        if (lease_state(l) == HF_SAFE)
            i = (size_t)-1; /* the heap was rearranged: once more from the beginning */
    }
    if (!any && k->min_grace_ms != CLOCK_NEVER) {
        k->min_grace_ms = CLOCK_NEVER;
        client_prove_for(k->c, CLOCK_NEVER);
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_mark_lost(struct keeper *k, struct lease *l, hf_loss loss)
{
    if (lease_state(l) == HF_LOST)
        return;
    atomic_store(&l->loss, loss);
    atomic_store_explicit(&l->until_ms, 0, memory_order_release);
    atomic_store(&l->state, HF_LOST);
    heap_remove(&k->renewals, &l->renewal);
    plan_watch(k, l, clock_now_ms());
}

/* ---- the watchdog ------------------------------------------------------------------------ */

/* Holds: mu, released while the event is told. */
static void tell(struct keeper *k, struct lease *l)
{
    l->told = lease_state(l);
    l->in_use++;
    pthread_mutex_unlock(&k->mu);
    l->changed(l, l->told);
    pthread_mutex_lock(&k->mu);
    l->in_use--;
    pthread_cond_broadcast(&k->unused);
}

/* Holds: mu. A lease is due: say what is to be said, plan the next look. */
static void watch(struct keeper *k, struct lease *l, int64_t now)
{
    if (lease_state(l) != HF_LOST && !lease_believed(l, now))
        keeper_mark_lost(k, l, lease_why_ended(l, now));
    else if (lease_state(l) == HF_SAFE && now >= next_watch(l))
        atomic_store(&l->state, HF_IN_DOUBT);
    heap_put(&k->watches, &l->watch, next_watch(l));
    if (lease_state(l) != l->told)
        tell(k, l);
}

void *keeper_watchdog(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->mu);
    while (!k->stopping) {
        struct heap_node *n = heap_first(&k->watches);
        int64_t now = clock_now_ms();
        if (n && n->due_ms <= now) {
            watch(k, keeper_lease_of(n), now);
            continue;
        }
        int64_t due = n ? n->due_ms : CLOCK_NEVER;
        int64_t until = k->watch_wakes_ms = keeper_next_wake(k->watch_wakes_ms, due, now);
        pthread_mutex_unlock(&k->mu);
        alarm_wait(&k->watch_alarm, until);
        pthread_mutex_lock(&k->mu);
    }
    pthread_mutex_unlock(&k->mu);
    return NULL;
}

/* ---- a lease comes, is asked about, goes --------------------------------------------------- */

void keeper_add(struct keeper *k, struct lease *l, const struct lease_terms *terms,
                int64_t ttl_ms)
{
    pthread_mutex_lock(&k->mu);
    l->ttl_ms = ttl_ms;
    l->granted_ms = terms->sent_ms;
    l->present_ms = terms->present_ms;
    l->epoch = terms->epoch;
    atomic_store(&l->loss, HF_LOSS_NONE);
    l->told = HF_SAFE;
    l->published = l->exclusive = false;
    l->follower = (hf_bytes){ 0 };
    l->cap_until_ms = 0;
    l->asked_end_ms = CLOCK_NEVER;
    atomic_store(&l->state, HF_SAFE);
    keeper_mark_proved(k, l, terms->sent_ms, terms->ttl_ms);
    if (l->grace_ms > 0 && l->grace_ms < k->min_grace_ms) {
        k->min_grace_ms = l->grace_ms;
        client_prove_for(k->c, l->grace_ms);
    }
    pthread_mutex_unlock(&k->mu);
}

hf_state keeper_remove(struct keeper *k, struct lease *l)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = true; /* nothing new begins */
    while (l->in_use)
        pthread_cond_wait(&k->unused, &k->mu);
    hf_state was = lease_state(l);
    int64_t now = clock_now_ms();
    if (was != HF_LOST && !lease_believed(l, now)) {
        was = HF_LOST;
        atomic_store(&l->loss, lease_why_ended(l, now));
    }
    heap_remove(&k->renewals, &l->renewal);
    heap_remove(&k->watches, &l->watch);
    if (l->published)
        k->published--;
    l->published = false;
    l->follower = (hf_bytes){ 0 };
    atomic_store(&l->until_ms, 0);
    atomic_store(&l->state, HF_FREE);
    pthread_mutex_unlock(&k->mu);
    return was;
}

bool keeper_begin(struct keeper *k, struct lease *l, int64_t ttl_ms)
{
    pthread_mutex_lock(&k->mu);
    while (l->in_use)
        pthread_cond_wait(&k->unused, &k->mu);
    int64_t now = clock_now_ms();
    bool held = lease_believed(l, now);
    if (held) {
        l->exclusive = true;
        if (ttl_ms) { /* until we know better, the shorter of both counts */
            l->asked_end_ms = lease_end(now, ttl_ms);
            count_until(l);
            plan_watch(k, l, next_watch(l));
        }
        keeper_plan_renewal(k, l, 0);
    }
    pthread_mutex_unlock(&k->mu);
    return held;
}

/* Holds: mu. A request for ttl_ms may be under way somewhere, and arrive when we do not expect
 * it. */
static void beware_of(struct lease *l, int64_t ttl_ms)
{
    int64_t now = clock_now_ms();
    l->cap_ms = now < l->cap_until_ms ? clock_earlier(l->cap_ms, ttl_ms) : ttl_ms;
    l->cap_until_ms = now + CLIENT_TOMBSTONE_MS;
}

void keeper_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms,
                   bool in_doubt)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    if (ttl_ms) {
        l->ttl_ms = ttl_ms;
        if (in_doubt)
            beware_of(l, ttl_ms);
        keeper_mark_proved(k, l, sent_ms, ttl_ms);
    } else {
        keeper_plan_renewal(k, l, 0);
    }
    pthread_mutex_unlock(&k->mu);
}

void keeper_denied(struct keeper *k, struct lease *l, hf_loss loss)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    keeper_mark_lost(k, l, loss);
    pthread_mutex_unlock(&k->mu);
}

void keeper_unsure(struct keeper *k, struct lease *l, int64_t ttl_ms, bool in_doubt)
{
    pthread_mutex_lock(&k->mu);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    if (lease_state(l) != HF_LOST && lease_believed(l, clock_now_ms())) {
        if (ttl_ms && in_doubt) {
            int64_t shortest = clock_now_ms() - l->proven_ms + ttl_ms;
            beware_of(l, ttl_ms);
            l->lease_ms = clock_earlier(l->lease_ms, shortest);
        }
        count_until(l); /* what never left has changed nothing */
        plan_watch(k, l, next_watch(l));
        keeper_plan_renewal(k, l, 0);
        if (in_doubt && keeper_renewable(l)) {
            heap_put(&k->renewals, &l->renewal, 0); /* an answer, soon: the short lease counts */
            keeper_wake(k, 0);
        }
    }
    pthread_mutex_unlock(&k->mu);
}
