/* SPDX-License-Identifier: MIT
 * validity.c - until when the holder of a lease may believe in it: what proves it, what ends it.
 *
 *      SAFE -> IN_DOUBT  [watchdog.c]               half of its time is gone without an answer
 *      IN_DOUBT -> SAFE  [mark_safe_locked]         a request or a ping was answered
 *      any -> LOST       [keeper_judge_locked]      the lease or the grace ended by our own clock
 *                        [keeper_mark_lost_locked]  the server says that it is not ours
 *      any -> IN_DOUBT   [keeper_judge_locked]      ... while this process stood still: the answer
 *                                                   may lie in the socket. Nobody believes in it
 *                                                   until it has been read
 */
#include "base/err.h"
#include "net/task.h"
#include "session/keeper_impl.h"

#define PATIENCE_MS 50 /* at least, for any request of the keeper */
#define COMPLETE_MS 20 /* until those who lost the vote have taken theirs back */
#define STOOD_MS    100 /* of no processor time: a process that has stood still */

/* ---- one lease --------------------------------------------------------------------------- */

bool lease_renewable(const struct lease *l)
{
    return l->renew && lease_state(l) != HF_STATE_LOST && !l->exclusive
           && lease_end(l->proven_ms, l->lease_ms) < l->hold_until_ms;
}

/* What to ask for, and to believe in. While a copy of a request for a shorter lease may still
 * arrive, no more than that: whenever it does, we have not counted on a longer one. */
int64_t lease_ttl(const struct lease *l, int64_t now_ms)
{
    return now_ms < l->cap_until_ms ? clock_earlier(l->ttl_ms, l->cap_ms) : l->ttl_ms;
}

static int64_t lease_length_end(const struct lease *l)
{
    int64_t end = clock_earlier(lease_end(l->proven_ms, l->lease_ms), l->hold_until_ms);
    return clock_earlier(end, l->asked_end_ms);
}

static void count_until(struct lease *l)
{
    int64_t until = lease_length_end(l);
    if (l->grant.grace_ms > 0)
        until = clock_earlier(until, lease_end(l->present_ms, l->grant.grace_ms));
    atomic_store_explicit(&l->until_ms, until, memory_order_release);
}

/* When it is not safe any more, if no answer comes. Nobody doubts a lease that is not to be
 * renewed. */
int64_t lease_safe_until(const struct lease *l)
{
    int64_t until = atomic_load(&l->until_ms);
    if (lease_renewable(l))
        until = clock_earlier(until, lease_doubt_at(l));
    if (l->grant.grace_ms > 0)
        until = clock_earlier(until, lease_absent_at(l));
    return until;
}

/* When the watchdog has to look at it next. */
int64_t lease_next_watch(const struct lease *l)
{
    if (lease_state(l) == HF_STATE_LOST)
        return CLOCK_NEVER;
    if (lease_ask_due(l))
        return 0;
    if (l->catch_up_ms)
        return l->catch_up_ms;
    return lease_state(l) == HF_STATE_SAFE ? lease_safe_until(l) : atomic_load(&l->until_ms);
}

/* Holds: the keeper's mu. The server found the lock ours after this subscription was made: its
 * proofs count from now on. */
void lease_mark_back_locked(struct lease *l, unsigned epoch, int64_t sent_ms)
{
    if (l->grant.grace_ms == 0 || epoch != keyspace_of(l->grant.keys)->kept_epoch
        || l->epoch == epoch || lease_state(l) == HF_STATE_LOST)
        return;
    l->epoch = epoch;
    l->present_ms = sent_ms;
}

/* A request for ttl_ms may be under way somewhere, and arrive when we do not expect it. */
static void beware_of(struct lease *l, int64_t ttl_ms)
{
    int64_t now = clock_now_ms();
    l->cap_ms = now < l->cap_until_ms ? clock_earlier(l->cap_ms, ttl_ms) : ttl_ms;
    l->cap_until_ms = now + CLIENT_TOMBSTONE_MS;
}

/* Holds: the keeper's mu. Whether no thread of the keeper uses it; else t is woken when none does
 * any more. */
bool lease_idle_locked(struct lease *l, struct task *t)
{
    l->waits = l->in_use ? t : NULL;
    return !l->in_use;
}

/* Holds: the keeper's mu. A thread of the keeper uses it no more. Who waits for that sees it when
 * we give up mu, and may be gone then. */
void lease_unuse_locked(struct lease *l)
{
    struct task *t = l->waits;
    if (--l->in_use > 0 || !t)
        return;
    l->waits = NULL;
    task_wake(t);
}

/* ---- planning: who has to wake up when --------------------------------------------------- */

/* The keeper has one hand: nothing that it waits for may cost a lease its renewal. */
int64_t keeper_deadline_locked(const struct keeper *k, int64_t now_ms, int64_t wanted_ms)
{
    mutex_assert_held(&k->mu);
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t deadline = n ? clock_earlier(wanted_ms, n->due_ms) : wanted_ms;
    return deadline > now_ms + PATIENCE_MS ? deadline : now_ms + PATIENCE_MS;
}

/* Which subscription we have makes no difference to a lock that nobody takes over; on which server
 * it is does to all. */
bool keeper_unverified_locked(const struct keeper *k, const struct lease *l)
{
    mutex_assert_held(&k->mu);
    const struct grant *g = &l->grant;
    bool elsewhere = l->moves != topo_moves_of(k->c->topo, g->keys->key[KEY_LOCK]);
    bool unseen = g->grace_ms > 0 && l->epoch != keyspace_of(g->keys)->kept_epoch;
    return (elsewhere || unseen) && lease_state(l) != HF_STATE_LOST && !l->exclusive;
}

/* Holds: the keeper's mu. It was not as it should be when it was looked at: a renewal tells. */
bool lease_suspect_locked(const struct lease *l)
{
    return l->suspect && lease_state(l) != HF_STATE_LOST && !l->exclusive;
}

void keeper_wake_locked(struct keeper *k, int64_t at_ms)
{
    mutex_assert_held(&k->mu);
    if (at_ms < k->keeper_wakes_ms) {
        k->keeper_wakes_ms = at_ms;
        alarm_ring(&k->keeper_alarm);
    }
}

static void plan_watch_locked(struct keeper *k, struct lease *l, int64_t due_ms)
{
    mutex_assert_held(&k->mu);
    heap_put(&k->watches, &l->watch, due_ms);
    if (due_ms < k->watch_wakes_ms) {
        k->watch_wakes_ms = due_ms;
        alarm_ring(&k->watch_alarm);
    }
}

void keeper_watch_now_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    if (l->at)
        plan_watch_locked(k, l, clock_now_ms());
}

static void set_length_locked(struct keeper *k, struct lease *l, int64_t lease_ms)
{
    mutex_assert_held(&k->mu);
    l->lease_ms = lease_ms;
    heap_put(&k->lengths, &l->length, lease_ms);
}

/* The session's record is to name it, before those with a shorter ttl. */
void keeper_name_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    heap_put(&k->named, &l->naming, -l->ttl_ms);
}

/* ---- when we stood still ------------------------------------------------------------------ */

/* How much of the time is gone is known to within a ping, or a look at what is held. */
void keeper_awake_locked(struct keeper *k, int64_t now_ms)
{
    mutex_assert_held(&k->mu);
    int64_t due = clock_earlier(k->watch_sleeps_ms, k->keeper_sleeps_ms);
    if (due != CLOCK_NEVER && now_ms - due >= STOOD_MS && now_ms - k->awake_ms >= STOOD_MS) {
        k->stood_from_ms = k->awake_ms;
        k->stood_to_ms = now_ms;
    }
    k->awake_ms = now_ms;
}

/* What ended a lease that the server did not take from us. Notes how long it has been silent, and
 * how long of that we stood still: had we been there for most of the time, it was not our fault. */
static hf_loss why_ended_locked(const struct keeper *k, struct lease *l, int64_t now)
{
    mutex_assert_held(&k->mu);
    bool grace = l->grant.grace_ms > 0 && lease_end(l->present_ms, l->grant.grace_ms)
                                              < lease_end(l->proven_ms, l->lease_ms);
    int64_t last = grace ? l->present_ms : l->proven_ms, silent = now - last;
    int64_t from = k->stood_from_ms > last ? k->stood_from_ms : last;
    int64_t stood = k->stood_to_ms > from ? k->stood_to_ms - from : 0;
    bool ours = l->renew && stood > 0
                && silent - stood < (grace ? l->grant.grace_ms : l->lease_ms) / 2;
    if (ours && now >= lease_end(l->proven_ms, l->lease_ms))
        grace = false; /* with its grace alone it had come back */
    atomic_store(&l->silent_ms, silent);
    atomic_store(&l->stood_ms, stood);
    atomic_store(&l->grace_ended_ms, grace ? l->grant.grace_ms : 0);
    atomic_store(&l->lease_ended_ms, grace ? 0 : l->lease_ms);
    if (now >= l->hold_until_ms)
        return HF_LOSS_MAX_HOLD;
    return ours ? HF_LOSS_PAUSED : grace ? HF_LOSS_GRACE : HF_LOSS_EXPIRED;
}

/* Holds: the keeper's mu. Whether an answer that is on its way may show that it has not ended: to
 * the request that is under way, or, where only the grace is over, to a ping. */
static bool may_be_proven_locked(const struct lease *l, int64_t now)
{
    return now < l->hold_until_ms
           && (l->in_use || l->exclusive
               || (l->grant.grace_ms > 0 && now < lease_end(l->proven_ms, l->lease_ms)));
}

/* Holds: the keeper's mu. It is what it was, or lost. Whoever waited for that goes on. */
static void caught_up_locked(struct lease *l)
{
    if (!l->catch_up_ms)
        return;
    l->catch_up_ms = 0;
    lease_unuse_locked(l);
}

void keeper_judge_locked(struct keeper *k, struct lease *l, int64_t now_ms)
{
    mutex_assert_held(&k->mu);
    if (!l->at || lease_state(l) == HF_STATE_LOST || lease_believed(l, now_ms))
        return;
    keeper_awake_locked(k, now_ms);
    int64_t wait = may_be_proven_locked(l, now_ms)
                       ? lease_catch_up_ms(l, now_ms - atomic_load(&l->until_ms)) : 0;
    if (l->catch_up_ms ? now_ms >= l->catch_up_ms : !wait) {
        keeper_mark_lost_locked(k, l, why_ended_locked(k, l, now_ms));
        return;
    }
    if (l->catch_up_ms)
        return;
    l->catch_up_ms = now_ms + wait;
    l->in_use++;
    atomic_store(&l->state, HF_STATE_IN_DOUBT);
    plan_watch_locked(k, l, l->told == HF_STATE_IN_DOUBT ? l->catch_up_ms : now_ms);
}

hf_state keeper_judge(struct keeper *k, struct lease *l)
{
    keeper_lock(k);
    keeper_judge_locked(k, l, clock_now_ms());
    hf_state state = lease_state(l);
    keeper_unlock(k);
    return state;
}

/* ---- news -------------------------------------------------------------------------------- */

/* Good news: what it lives on was proven anew. It is safe if the other half of it is as well. */
static void mark_safe_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    int64_t now = clock_now_ms();
    count_until(l);
    if (!lease_believed(l, now))
        return; /* it was the other half that has ended */
    caught_up_locked(l);
    atomic_store(&l->state, now < lease_safe_until(l) ? HF_STATE_SAFE : HF_STATE_IN_DOUBT);
    plan_watch_locked(k, l, lease_state(l) == l->told ? lease_next_watch(l) : now);
}

void keeper_mark_proved_locked(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms)
{
    mutex_assert_held(&k->mu);
    if (lease_state(l) == HF_STATE_LOST)
        return; /* what was said cannot be unsaid */
    l->proven_ms = sent_ms;
    set_length_locked(k, l, clock_earlier(ttl_ms, lease_ttl(l, clock_now_ms())));
    mark_safe_locked(k, l);
    keeper_plan_renewal_locked(k, l, 0);
}

void keeper_mark_lost_locked(struct keeper *k, struct lease *l, hf_loss loss)
{
    mutex_assert_held(&k->mu);
    int64_t now = clock_now_ms();
    if (lease_state(l) == HF_STATE_LOST)
        return;
    /* Others could have it only because it ended. The word of the server may be read before
     * anybody has looked at the clock. */
    if (loss == HF_LOSS_TAKEN && (l->catch_up_ms || !lease_believed(l, now))) {
        keeper_awake_locked(k, now);
        loss = why_ended_locked(k, l, now);
    }
    caught_up_locked(l);
    metrics_lost(&k->c->metrics, loss);
    atomic_store(&l->loss, loss);
    atomic_store_explicit(&l->until_ms, 0, memory_order_release);
    atomic_store(&l->state, HF_STATE_LOST);
    heap_remove(&k->renewals, &l->renewal);
    heap_remove(&k->lengths, &l->length);
    plan_watch_locked(k, l, now);
}

/* Holds: mu, released in between. Call each() for every lease that is kept. Others are let in
 * between. That is safe: each lease is judged by itself, as it is when its turn comes; one that
 * goes is out of the row, and nobody else is skipped for it (lease_set_remove()); one that comes is
 * not met, nor need it be, since keeper_add() and whoever took it looked at what each() looks
 * at. */
static void each_lease_locked(struct keeper *k,
                              void (*each)(struct keeper *k, struct lease *l, void *arg), void *arg)
{
    mutex_assert_held(&k->mu);
    size_t met = 0;
    for (size_t left = k->leases.n; left > 0;) {
        each(k, k->leases.row[--left], arg);
        if (++met % KEEPER_SLICE == 0) {
            keeper_pause_locked(k);
            if (left > k->leases.n)
                left = k->leases.n;
        }
    }
}

static void verify_one_locked(struct keeper *k, struct lease *l, void *arg)
{
    mutex_assert_held(&k->mu);
    (void)arg;
    if (keeper_unverified_locked(k, l))
        keeper_plan_renewal_locked(k, l, 0);
}

/* Thread: keeper. */
void keeper_verify_moved_locked(struct keeper *k)
{
    mutex_assert_held(&k->mu);
    unsigned moves = k->c->keyspace ? topo_moves_of(k->c->topo, hf_str("")) : 0;
    if (moves != k->moves)
        k->verify_due = true;
    k->moves = moves;
}

/* Thread: keeper. Holds: mu, released in between. Nothing is under way then that would be asked
 * twice. */
void keeper_verify_locked(struct keeper *k)
{
    mutex_assert_held(&k->mu);
    if (!k->verify_due)
        return;
    k->verify_due = false;
    each_lease_locked(k, verify_one_locked, NULL);
}

/* In a cluster thousands of subscriptions may be made anew, or slots move, one after the
 * other: the keeper looks at all leases once for many of them. */
static void verify_soon_locked(struct keeper *k)
{
    mutex_assert_held(&k->mu);
    k->verify_due = true;
    keeper_wake_locked(k, 0);
}

void keeper_subscribed(struct keeper *k, struct keyspace *h, unsigned epoch)
{
    keeper_lock(k);
    h->kept_epoch = epoch;
    verify_soon_locked(k);
    keeper_unlock(k);
}

void keeper_moved(struct keeper *k)
{
    int64_t now = clock_now_ms();
    keeper_lock(k);
    verify_soon_locked(k);
    if (cancel_queue_repeat(&k->cancels, k->c->topo, now))
        keeper_wake_locked(k, now);
    keeper_unlock(k);
}

/* A ping that was answered. */
struct proof {
    const struct inbox *in;
    int64_t             sent_ms;
    bool                any; /* lease has a grace */
};

/* Does it live on the subscription that stands at this inbox now? */
static bool proven_by(const struct lease *l, const struct inbox *in)
{
    const struct subscription *sub = &keyspace_of(l->grant.keys)->sub;
    return atomic_load(&sub->at) == in && atomic_load(&sub->epoch) == l->epoch;
}

static void prove_one_locked(struct keeper *k, struct lease *l, void *arg)
{
    mutex_assert_held(&k->mu);
    struct proof *p = arg;
    if (l->grant.grace_ms == 0 || lease_state(l) == HF_STATE_LOST)
        return;
    p->any = true;
    int64_t now = clock_now_ms();
    keeper_judge_locked(k, l, now);
    if (!proven_by(l, p->in) || lease_state(l) == HF_STATE_LOST)
        return; /* what has ended has ended */
    if (l->catch_up_ms && keeper_unverified_locked(k, l))
        return; /* the server that saw us all the time is not the one that counts */
    if (p->sent_ms > l->present_ms) /* a late answer proves less than what was found since */
        l->present_ms = p->sent_ms;
    count_until(l);
    if (lease_state(l) == HF_STATE_IN_DOUBT && lease_believed(l, now))
        mark_safe_locked(k, l);
}

void keeper_present(struct keeper *k, const struct inbox *in, int64_t proof_ms)
{
    struct proof p = { .in = in, .sent_ms = proof_ms };
    keeper_lock(k);
    keeper_awake_locked(k, clock_now_ms());
    uint64_t graces = k->graces;
    each_lease_locked(k, prove_one_locked, &p);
    if (!p.any && graces == k->graces && k->min_grace_ms != CLOCK_NEVER) {
        k->min_grace_ms = CLOCK_NEVER;
        client_prove_for(k->c, CLOCK_NEVER);
    }
    keeper_unlock(k);
}

/* ---- a lease comes, is asked about, goes --------------------------------------------------- */

void keeper_add(struct keeper *k, struct lease *l, const struct lease_terms *terms,
                int64_t ttl_ms)
{
    keeper_lock(k);
    l->ttl_ms = ttl_ms;
    l->granted_ms = terms->sent_ms;
    l->present_ms = terms->present_ms;
    l->epoch = terms->epoch;
    atomic_store(&l->loss, HF_LOSS_NONE);
    l->told = HF_STATE_SAFE;
    l->exclusive = l->leaving = l->suspect = false;
    lease_forget_notes_locked(l);
    l->hint_ms = terms->partial ? clock_now_ms() + COMPLETE_MS : 0;
    l->catch_up_ms = 0;
    l->follower = (hf_bytes){ 0 };
    l->cap_until_ms = 0;
    l->asked_end_ms = CLOCK_NEVER;
    atomic_store(&l->state, HF_STATE_SAFE);
    lease_set_add(&k->leases, l);
    keeper_mark_proved_locked(k, l, terms->sent_ms, terms->ttl_ms);
    if (!lease_believed(l, clock_now_ms())) /* it has ended already: that is to be told, too */
        plan_watch_locked(k, l, clock_now_ms());
    if (l->grant.grace_ms > 0)
        k->graces++;
    if (l->grant.grace_ms > 0 && l->grant.grace_ms < k->min_grace_ms) {
        k->min_grace_ms = l->grant.grace_ms;
        client_prove_for(k->c, l->grant.grace_ms);
    }
    keeper_unlock(k);
}

/* Returns the state that it was in. */
static hf_state take_out_locked(struct keeper *k, struct lease *l)
{
    mutex_assert_held(&k->mu);
    hf_state was = lease_state(l);
    int64_t now = clock_now_ms();
    if (was != HF_STATE_LOST && !lease_believed(l, now)) {
        was = HF_STATE_LOST;
        atomic_store(&l->loss, why_ended_locked(k, l, now));
        metrics_lost(&k->c->metrics, (hf_loss)atomic_load(&l->loss));
    }
    heap_remove(&k->renewals, &l->renewal);
    heap_remove(&k->watches, &l->watch);
    heap_remove(&k->lengths, &l->length);
    heap_remove(&k->named, &l->naming);
    lease_set_remove(&k->leases, l);
    l->follower = (hf_bytes){ 0 };
    atomic_store(&l->until_ms, 0);
    atomic_store(&l->state, HF_STATE_FREE);
    return was;
}

void keeper_limit(struct keeper *k, struct task *t, int64_t limit_ms)
{
    if (clock_now_ms() < limit_ms) {
        task_due(t, limit_ms);
        return;
    }
    keeper_lock(k);
    atomic_store(&k->hurry, 1);
    keeper_unlock(k);
}

bool keeper_remove(struct keeper *k, struct lease *l, struct task *t, hf_state *ret_was)
{
    keeper_lock(k);
    keeper_judge_locked(k, l, clock_now_ms());
    l->exclusive = l->leaving = true; /* nothing new begins */
    bool idle = lease_idle_locked(l, t);
    if (idle)
        *ret_was = take_out_locked(k, l);
    keeper_unlock(k);
    return idle;
}

static void begin_locked(struct keeper *k, struct lease *l, int64_t ttl_ms, int64_t now)
{
    mutex_assert_held(&k->mu);
    l->exclusive = true;
    if (ttl_ms) { /* until we know better, the shorter of both counts */
        l->asked_end_ms = lease_end(now, ttl_ms);
        count_until(l);
        plan_watch_locked(k, l, lease_next_watch(l));
    }
    keeper_plan_renewal_locked(k, l, 0);
}

enum keeper_turn keeper_begin(struct keeper *k, struct lease *l, int64_t ttl_ms, struct task *t)
{
    enum keeper_turn turn = TURN_WAIT;
    keeper_lock(k);
    int64_t now = clock_now_ms();
    keeper_judge_locked(k, l, now);
    if (lease_idle_locked(l, t))
        turn = lease_believed(l, now) ? TURN_HELD : TURN_LOST;
    if (turn == TURN_HELD)
        begin_locked(k, l, ttl_ms, now);
    keeper_unlock(k);
    return turn;
}

void keeper_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms,
                   bool in_doubt)
{
    keeper_lock(k);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    if (ttl_ms) {
        k->record_due |= l->naming.at && l->ttl_ms != ttl_ms;
        l->ttl_ms = ttl_ms;
        if (l->naming.at)
            keeper_name_locked(k, l);
        if (in_doubt)
            beware_of(l, ttl_ms);
        keeper_mark_proved_locked(k, l, sent_ms, ttl_ms);
    } else {
        keeper_plan_renewal_locked(k, l, 0);
    }
    keeper_unlock(k);
}

void keeper_denied(struct keeper *k, struct lease *l, hf_loss loss)
{
    keeper_lock(k);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    keeper_mark_lost_locked(k, l, loss);
    keeper_unlock(k);
}

int64_t keeper_lease_left(struct keeper *k, const struct lease *l)
{
    keeper_lock(k);
    int64_t left = lease_length_end(l) - clock_now_ms();
    keeper_unlock(k);
    return left > 0 ? left : 0;
}

void keeper_unsure(struct keeper *k, struct lease *l, int64_t ttl_ms, bool in_doubt)
{
    keeper_lock(k);
    l->exclusive = false;
    l->asked_end_ms = CLOCK_NEVER;
    if (lease_state(l) != HF_STATE_LOST && lease_believed(l, clock_now_ms())) {
        if (ttl_ms && in_doubt) {
            int64_t shortest = clock_now_ms() - l->proven_ms + ttl_ms;
            beware_of(l, ttl_ms);
            set_length_locked(k, l, clock_earlier(l->lease_ms, shortest));
        }
        count_until(l); /* what never left has changed nothing */
        plan_watch_locked(k, l, lease_next_watch(l));
        keeper_plan_renewal_locked(k, l, 0);
        if (in_doubt && lease_renewable(l)) {
            heap_put(&k->renewals, &l->renewal, 0); /* an answer, soon: the short lease counts */
            keeper_wake_locked(k, 0);
        }
    }
    keeper_unlock(k);
}
