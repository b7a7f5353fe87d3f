/* SPDX-License-Identifier: MIT
 * take.c - taking a lock: one try, or waiting for one's turn.
 */
#include "lock/handle.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

#define RECENTLY_MS 500
#define FAREWELL_MS 20

/* A grace below this is not worth the pings: the ttl is short anyway. */
#define GRACE_MIN_MS 200

int64_t take_grace(const hf_lock *m)
{
    int64_t grace = m->opts.grace_ms;
    if (grace == HF_NO_TAKEOVER || m->owner || m->opts.no_renew)
        return 0;
    if (grace == 0)
        grace = client_default_grace(m->c);
    if (grace > m->opts.ttl_ms / 2)
        grace = m->opts.ttl_ms / 2;
    return grace < GRACE_MIN_MS ? 0 : grace;
}

/* The server granted it too late: it has it for us until it is given back, or ends. */
static hf_err refuse(hf_lock *m, const struct attempt *a, hf_error *reterr)
{
    lock_give_up(m, a->take.ttl_ms);
    return err_known(reterr, HF_ETIMEDOUT, HF_KNOWN_NOT_HELD);
}

hf_err take_hold(hf_lock *m, const struct attempt *a, const struct lease_terms *terms,
                 hf_error *reterr)
{
    struct lease *l = &m->lease;
    int64_t now = clock_now_ms(), grace = a->take.grace_ms;
    if (now >= lease_end(terms->sent_ms, terms->ttl_ms)) {
        err_set(reterr, HF_ETIMEDOUT,
                "the grant came %lld ms after its request, when its lease of %lld ms was over: "
                "choose a longer ttl", (long long)(now - terms->sent_ms),
                (long long)terms->ttl_ms);
        return refuse(m, a, reterr);
    }
    if (grace > 0 && now >= lease_end(terms->present_ms, grace)) {
        err_set(reterr, HF_ETIMEDOUT,
                "the grant came when the server had not been heard of on the session's connection "
                "for %lld ms, and its grace of %lld ms was over: choose a longer grace",
                (long long)(now - terms->present_ms), (long long)grace);
        return refuse(m, a, reterr);
    }
    struct lease_terms all = *terms;
    all.partial = a->partial;
    l->grant.fence = a->fence;
    l->grant.grace_ms = a->take.grace_ms;
    l->grant.owner = a->take.owner;
    l->grant.shared = a->take.weight > 0;
    l->renew = !m->opts.no_renew;
    l->hold_until_ms = m->opts.max_hold_ms ? terms->sent_ms + m->opts.max_hold_ms : CLOCK_NEVER;
    m->in_doubt = a->in_doubt > 0;
    atomic_store(&m->fence, l->grant.fence);
    m->depth = 1;
    lock_begun(m, 0);
    keeper_add(m->c->keeper, l, &all, a->take.ttl_ms);
    return HF_OK;
}

struct attempt take_token(hf_lock *m)
{
    struct grant *g = &m->lease.grant;
    g->sequence = client_token(m->c, g->token, sizeof g->token);
    m->lease.moves = topo_moves_of(m->c->topo, m->keys->key[KEY_LOCK]);
    return (struct attempt){ .take = { .keys = m->keys, .token = g->token, .owner = m->opts.owner,
                                       .weight = m->weight, .limit = m->opts.slots,
                                       .ttl_ms = m->opts.ttl_ms },
                             .stop = &m->seat.cancelled };
}

static void renew_token(struct taking *t)
{
    hf_lock *m = t->m;
    struct attempt a = take_token(m);
    t->begun = false;
    t->w = (struct waiter){ .sequence = m->lease.grant.sequence, .task = &t->call->task,
                            .wanted_grace_ms = take_grace(m),
                            .reads = t->call->task.park != NULL,
                            .confirm = m->opts.whole_lease || m->opts.no_renew
                                       || m->opts.max_hold_ms
                                       || topo_replicas(m->c->topo, m->keys->key[KEY_LOCK]) >= 0 };
    t->w.a = a;
}

/* ---- one try ------------------------------------------------------------------------------ */

/* Without a place in the queue: so without joining the waiters. */
static bool try_once(struct taking *t)
{
    hf_client *c = t->m->c;
    struct waiter *w = &t->w;
    STEP_BEGIN(w->at);
    w->limit_ms = client_deadline(c);
    if (w->wanted_grace_ms) {
        waiter_ask_presence(c, w, w->wanted_grace_ms);
        STEP_UNTIL(w->at, present_step(&w->present));
        w->terms = w->present.terms;
        if (w->present.answer == INBOX_READY)
            w->a.take.grace_ms = w->wanted_grace_ms;
    }
    w->op = attempt_op(&w->a, w->limit_ms, &t->call->task, t->reterr);
    exec_begin(c->exec, &w->op);
    STEP_UNTIL(w->at, exec_step(c->exec, &w->op));
    t->result = attempt_taken(&w->a, &w->op, t->reterr);
    if (!t->result && w->a.take.grace_ms) {
        waiter_ask_presence(c, w, w->wanted_grace_ms);
        STEP_UNTIL(w->at, present_step(&w->present));
        t->result = waiter_check_presence(w, t->reterr);
    }
    if (!t->result) {
        w->terms.sent_ms = w->a.sent_ms;
        w->terms.ttl_ms = w->a.take.ttl_ms;
        t->result = take_hold(t->m, &w->a, &w->terms, t->reterr);
        STEP_RETURN(w->at);
    }
    if (!attempt_cancel_op(&w->a, t->result, &t->call->task, &w->op))
        STEP_RETURN(w->at);
    exec_begin(c->exec, &w->op);
    STEP_UNTIL(w->at, exec_step(c->exec, &w->op));
    t->result = attempt_cancelled(c, &w->a, &w->op, t->result, t->reterr);
    STEP_END(w->at);
}

/* ---- waiting ------------------------------------------------------------------------------ */

/* Is the server there, at the end of a wait whose last request failed? In a cluster one that is
 * connected may still refuse everything, because others are missing; it was asked for long enough
 * then. */
static bool reachable(const struct taking *t, int64_t now)
{
    struct topo *topo = t->m->c->topo;
    if (topo_cluster(topo))
        return now - t->begun_ms < RECENTLY_MS;
    return conn_epoch(topo_lane_now(topo, t->m->keys->key[KEY_LOCK], LANE_PLAIN)) != 0;
}

static hf_err timed_out(const struct taking *t)
{
    char name[120];
    if (t->unacked)
        return err_set(t->reterr, HF_EREPLICAS,
                       "%s was free, but not acknowledged as asked for in %lld ms: %s",
                       lock_shown(t->m, name, sizeof name), (long long)t->wait_ms,
                       t->why ? t->why : "");
    return err_set(t->reterr, HF_ETIMEDOUT,
                   "%s was not obtained in %lld ms: another owner holds it",
                   lock_shown(t->m, name, sizeof name), (long long)t->wait_ms);
}

/* The waiter's step has not granted the lock. HF_EBUSY: wait on. */
static hf_err describe_failure(struct taking *t, hf_err e)
{
    hf_lock *m = t->m;
    hf_error *reterr = t->reterr;
    int64_t now = clock_now_ms();
    if (e == HF_EBUSY) {
        t->contended = true;
        t->reached_ms = now;
        t->answered = true;
        t->troubled = t->unacked = false;
    }
    if (atomic_load(&m->seat.cancelled) || atomic_load(&m->c->stopping))
        return lock_cancelled(m, reterr);
    if (e == HF_EREPLICAS) { /* undone: who goes on needs another token */
        t->w.restart = t->unacked = true;
        mem_free(t->why);
        t->why = reterr ? mem_copy(reterr->message, strlen(reterr->message)) : NULL;
    }
    bool outage = e == HF_ECONN || e == HF_EUNSURE || e == HF_EREPLICAS || e == HF_ENOQUORUM;
    bool passes = e == HF_EBUSY || e == HF_ECONFLICT
                  || (outage && now - t->reached_ms < topo_outage_ms(m->c->topo));
    if (!passes)
        return e;
    if (now < t->deadline_ms) {
        /* Nobody holds it, and still it is not to be had: said once, or the wait is a riddle. */
        if (e == HF_ENOQUORUM && !t->told && reterr)
            log_to(&m->c->log, HF_LOG_WARNING, "%s (trying again)", reterr->message);
        t->told |= e == HF_ENOQUORUM;
        t->troubled |= outage;
        return t->stuck ? deadlock_tell(t->watch, reterr) : HF_EBUSY;
    }
    /* A last request for which there was no time left says nothing about the server. */
    bool cut_short = (e == HF_ECONN || e == HF_EUNSURE) && !t->troubled;
    bool in_time = cut_short
                   && ((t->answered && now - t->reached_ms < RECENTLY_MS)
                       || (e == HF_ECONN && reachable(t, now)));
    if (e != HF_EBUSY && !in_time && !t->unacked)
        return e;
    return timed_out(t);
}

/* A token was ended, and another one would come too late: to undo that would take time again. */
static bool too_late(struct taking *t)
{
    if (clock_now_ms() < t->deadline_ms)
        return false;
    if (t->result == HF_EUNSURE) /* nobody knows whether it is ended */
        return true;
    bool cancelled = atomic_load(&t->m->seat.cancelled) || atomic_load(&t->m->c->stopping);
    t->result = cancelled ? lock_cancelled(t->m, t->reterr) : timed_out(t);
    return true;
}

/* It is granted; once more, as somebody else, if its lease was over before we knew of it. */
static bool hold(struct taking *t)
{
    t->result = take_hold(t->m, &t->w.a, &t->w.terms, t->reterr);
    if (t->result)
        waiters_done(t->m->c->waiters, t->w.sequence);
    return t->result != HF_ETIMEDOUT || clock_now_ms() >= t->deadline_ms;
}

/* It begins anew with another token. What becomes of this one is seen to in the background, if it
 * could not be cancelled, or was granted too late. */
static void begin_anew(struct taking *t)
{
    if (!t->left)
        t->left = t->m->lease.grant.sequence;
    renew_token(t);
}

/* The caller has cancelled nothing: a server of a quorum had to undo an earlier round of this token
 * for good. */
static bool was_buried(const struct taking *t)
{
    return t->result == HF_ECANCELED && !atomic_load(t->w.a.stop)
           && clock_now_ms() < t->started_ms + t->m->c->timeout_ms;
}

/* It has ended without the lock. "Unchanged" is true only when nothing is left of its earlier
 * tokens either. */
static void tell_left(struct taking *t)
{
    hf_lock *m = t->m;
    char name[120];
    if (!t->left || t->result == HF_OK || t->result == HF_EUNSURE
        || !keeper_gives_up(m->c->keeper, m->keys->name, t->left))
        return;
    bool plain = t->result == HF_ETIMEDOUT || t->result == HF_ECANCELED || t->result == HF_ECONN
                 || t->result == HF_EREPLICAS || t->result == HF_ENOQUORUM;
    if (!plain) { /* what it says is worth more */
        err_known(t->reterr, t->result, HF_KNOWN_NOT_HELD);
        return;
    }
    t->result = err_set(t->reterr, HF_EUNSURE,
                        "no reply came to the cancellation of a request for %s, which is tried "
                        "again: the lock may be taken without a holder for up to %lld ms",
                        lock_shown(m, name, sizeof name), (long long)m->opts.ttl_ms);
}

/* Come back when there is something to do. */
static void sleep_until(struct taking *t, int64_t until_ms)
{
    task_due(&t->call->task, clock_earlier(until_ms, t->deadline_ms));
}

/* One turn: as long as this is HF_EBUSY, it is to be waited on, and begun anew with w.restart. */
static bool wait_turn(struct taking *t, int64_t *ret_until_ms)
{
    hf_client *c = t->m->c;
    hf_err e;
    if (!t->begun) {
        t->result = waiter_begin(c, &t->w, t->reterr);
        t->begun = true;
        if (t->result)
            return true;
    }
    if (t->w.at == 0)
        t->begun_ms = clock_now_ms();
    if (!waiter_step(c, &t->w, t->deadline_ms, &e, ret_until_ms, t->reterr))
        return false;
    t->result = e ? describe_failure(t, e) : HF_OK;
    return true;
}

static bool step(struct taking *t)
{
    hf_client *c = t->m->c;
    int64_t until = CLOCK_NEVER;
    STEP_BEGIN(t->at);
    while (t->wait_ms == 0) {
        STEP_UNTIL(t->at, try_once(t));
        if (was_buried(t)) {
            begin_anew(t);
            continue;
        }
        tell_left(t);
        STEP_RETURN(t->at);
    }
    for (;;) {
        STEP_UNTIL(t->at, wait_turn(t, &until));
        if (t->result == HF_EBUSY && !t->w.restart) {
            sleep_until(t, until);
            STEP_YIELD(t->at);
            continue;
        }
        if (t->result == HF_EBUSY) {
            t->result = HF_ECONN;
            t->ended_ms = clock_now_ms();
            STEP_UNTIL(t->at, waiter_end(c, &t->w, &t->result, t->reterr));
            if (too_late(t))
                break;
            begin_anew(t);
            continue;
        }
        t->granted = t->result == HF_OK;
        t->ended_ms = clock_now_ms();
        STEP_UNTIL(t->at, waiter_end(c, &t->w, &t->result, t->reterr));
        if (!t->granted || hold(t))
            break;
        begin_anew(t);
    }
    tell_left(t);
    STEP_END(t->at);
}

/* Once it was refused, and has waited for a while: will it ever end? */
static void watch(struct taking *t)
{
    struct task *task = &t->call->task;
    if (!t->watch && t->answered && clock_now_ms() >= t->watch_at_ms) {
        t->watch = deadlock_new(&t->of);
        t->watch_at_ms = t->watch ? CLOCK_NEVER : clock_now_ms() + RECENTLY_MS;
    }
    if (!t->watch)
        task_due(task, t->answered ? t->watch_at_ms : CLOCK_NEVER);
    else if (!t->stuck && (t->stuck = deadlock_step(t->watch)))
        task_due(task, 0);
}

/* A server that has not answered is not asked for more. Who has got the lock does not wait for
 * long: what it said of a wait that is over counts for nothing, and ends by itself. Who has not has
 * what the cancellation of its request has left. */
static int64_t farewell_ms(const struct taking *t)
{
    int64_t left = t->ended_ms + ATTEMPT_BACK_MS - clock_now_ms(), most = 0;
    if (t->result == HF_OK)
        return FAREWELL_MS;
    if (t->result == HF_EDEADLK || t->result == HF_ETIMEDOUT)
        most = ATTEMPT_BACK_MS / 2;
    else if (t->result == HF_ECANCELED)
        most = ATTEMPT_CANCELLED_MS / 2;
    return left < 0 ? 0 : clock_earlier(left, most);
}

/* It has ended, one way or the other. */
static void count(struct taking *t)
{
    hf_lock *m = t->m;
    int64_t waited = clock_now_ms() - t->started_ms;
    metrics_take(&m->c->metrics, t->result, t->contended || t->result == HF_EBUSY, waited);
    if (t->result == HF_OK)
        atomic_store(&m->waited_ms, waited);
    else if (t->result == HF_EDEADLK)
        lock_tell_deadlock(m, t->reterr);
}

bool take_step(struct taking *t)
{
    t->over = t->over || step(t);
    if (!t->over)
        watch(t);
    bool finished = t->over && deadlock_end(&t->watch, farewell_ms(t));
    bool asks = t->over || (t->watch && deadlock_asks(t->watch));
    t->call->waiter = asks ? NULL : &t->w;
    if (finished) {
        count(t);
        mem_free(t->why);
        t->why = NULL;
    }
    return finished;
}

void take_begin(struct taking *t, struct call *call, hf_lock *m, int64_t wait_ms, hf_error *reterr)
{
    *t = (struct taking){ .call = call, .m = m, .wait_ms = wait_ms, .reterr = reterr };
    t->started_ms = t->reached_ms = clock_now_ms();
    t->deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(t->reached_ms, wait_ms);
    take_for(m, call);
    renew_token(t);
    t->of = (struct deadlock_of){ .c = m->c, .task = &call->task, .a = &t->w.a,
                                  .thread = take_thread(call), .owner = m->opts.owner,
                                  .begun_ms = t->reached_ms, .deadline_ms = t->deadline_ms };
    t->watch_at_ms = wait_ms == 0 ? CLOCK_NEVER : deadlock_due(&t->of);
}

hf_err take_admit(hf_lock *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr)
{
    *ret_held = false;
    if (wait_ms < HF_WAIT_FOREVER)
        return err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                       (long long)wait_ms);
    if (m->depth && !lease_believed(&m->lease, clock_now_ms()))
        return err_set(reterr, HF_ELOST,
                       "the lock was lost while this handle held it: release it before you acquire "
                       "it again");
    if (m->depth && m->lease.grant.shared && !weight)
        return err_set(reterr, HF_EDEADLK,
                       "this handle shares the lock: two readers that wait to have it alone wait "
                       "for each other; release it first, then acquire it");
    if (m->depth) {
        m->depth++;
        *ret_held = true;
        return HF_OK;
    }
    if (atomic_exchange(&m->seat.cancelled, 0))
        return lock_cancelled(m, reterr);
    m->weight = weight;
    return HF_OK;
}

hf_err take_check(hf_lock *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr)
{
    hf_err e = handle_enter(m, reterr);
    if (!e)
        e = seat_check(&m->seat, reterr);
    return e ? e : take_admit(m, weight, wait_ms, ret_held, reterr);
}

/* It stands in line, and has nothing under way, nor anything to say of what was. */
static bool sleeps(const struct taking *t)
{
    return t->call->waiter && waiter_idle(&t->w) && !t->w.trouble && !t->watch;
}

bool take_call(struct task *t)
{
    struct lock_call *lc = (struct lock_call *)t;
    lc->taking.reterr = call_wakes(&lc->call);
    if (!take_step(&lc->taking)) {
        if (sleeps(&lc->taking))
            call_sleeps(&lc->call);
        return false;
    }
    lc->call.result = lc->taking.result;
    return true;
}

hf_err take(hf_lock *m, unsigned weight, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    bool held;
    hf_err e = take_check(m, weight, wait_ms, &held, reterr);
    if (!e && !held) {
        struct lock_call lc;
        lc.call = call_blocking(m->c, take_call, &m->seat, reterr);
        take_begin(&lc.taking, &lc.call, m, wait_ms, reterr);
        e = call_run(&lc.call);
        atomic_store(&m->seat.cancelled, 0);
    }
    if (!e && ret_fence)
        *ret_fence = m->lease.grant.fence;
    return e;
}

hf_err hf_lock_acquire(hf_lock *m, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    return take(m, m ? lock_weight(m) : 0, wait_ms, ret_fence, reterr);
}

hf_err hf_lock_try(hf_lock *m, uint64_t *ret_fence, hf_error *reterr)
{
    return hf_lock_acquire(m, 0, ret_fence, reterr);
}

void hf_lock_cancel(hf_lock *m)
{
    if (m)
        seat_cancel(&m->seat, m->c);
}
