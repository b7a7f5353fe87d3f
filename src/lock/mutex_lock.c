/* SPDX-License-Identifier: MIT
 * mutex_lock.c - taking a mutex: one try, or waiting for one's turn.
 */
#include "lock/handle.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"

#define RECENTLY_MS 500

/* A grace below this is not worth the pings: the ttl is short anyway. */
#define GRACE_MIN_MS 200

int64_t take_grace(const hf_mutex *m)
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

hf_err take_hold(hf_mutex *m, const struct attempt *a, const struct lease_terms *terms,
                 hf_error *reterr)
{
    struct lease *l = &m->lease;
    if (clock_now_ms() >= lease_end(terms->sent_ms, terms->ttl_ms)) {
        mutex_give_up(m, a->ttl_ms);
        return err_set(reterr, HF_ETIMEDOUT,
                       "the grant came %lld ms after its request, when its lease of %lld ms was "
                       "over: choose a longer ttl", (long long)(clock_now_ms() - terms->sent_ms),
                       (long long)terms->ttl_ms);
    }
    l->fence = a->fence;
    l->grace_ms = a->grace_ms;
    l->owner = a->owner;
    l->renew = !m->opts.no_renew;
    l->shared = a->weight > 0;
    l->hold_until_ms = m->opts.max_hold_ms ? terms->sent_ms + m->opts.max_hold_ms : CLOCK_NEVER;
    m->in_doubt = a->in_doubt > 0;
    m->depth = 1;
    keeper_add(m->c->keeper, l, terms, a->ttl_ms);
    return HF_OK;
}

static hf_err try_once(struct taking *t, hf_error *reterr)
{
    hf_mutex *m = t->m;
    struct attempt *a = &t->w.a;
    struct lease_terms terms = { 0 };
    int64_t deadline = client_deadline(m->c), grace = take_grace(m);
    if (grace && client_present(m->c, m->keys->home, grace, deadline, a->stop, &terms) == INBOX_READY)
        a->grace_ms = grace;
    hf_err e = attempt_run(m->c, a, deadline, reterr);
    if (!e && a->grace_ms
        && !client_still_present(m->c, m->keys->home, a->grace_ms, deadline, a->stop, &terms)) {
        a->in_doubt++;
        e = err_set(reterr, HF_ECONN, "the server that granted the lock does not see our session");
    }
    if (e)
        return attempt_abandon(m->c, a, e, reterr);
    terms.sent_ms = a->sent_ms;
    terms.ttl_ms = a->ttl_ms;
    return take_hold(m, a, &terms, reterr);
}

/* Thread: any. */
static void wake(struct waiter *w)
{
    struct taking *t = (struct taking *)((char *)w - offsetof(struct taking, w));
    t->wake(t);
}

/* Thread: any. */
static void wake_thread(struct taking *t)
{
    park_wake(&t->m->turn);
}

struct attempt take_token(hf_mutex *m)
{
    m->lease.sequence = client_token(m->c, m->lease.token, sizeof m->lease.token);
    m->lease.moves = topo_moves_of(m->c->topo, m->keys->key[KEY_LOCK]);
    return (struct attempt){ .keys = m->keys, .token = m->lease.token, .owner = m->opts.owner,
                             .weight = m->weight, .limit = m->opts.slots,
                             .ttl_ms = m->opts.ttl_ms, .stop = &m->cancelled };
}

static void renew_token(struct taking *t)
{
    hf_mutex *m = t->m;
    struct attempt a = take_token(m);
    t->begun = false;
    t->w = (struct waiter){ .sequence = m->lease.sequence, .wake = wake,
                            .wanted_grace_ms = take_grace(m), .reads = t->wake == wake_thread,
                            .confirm = m->opts.whole_lease || m->opts.no_renew
                                       || m->opts.max_hold_ms
                                       || topo_replicas(m->c->topo, m->keys->key[KEY_LOCK]) >= 0 };
    t->w.a = a;
}

void take_begin(struct taking *t, hf_mutex *m, int64_t wait_ms, void (*wake_fn)(struct taking *t))
{
    *t = (struct taking){ .m = m, .wait_ms = wait_ms, .wake = wake_fn };
    t->reached_ms = clock_now_ms();
    t->deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(t->reached_ms, wait_ms);
    renew_token(t);
}

/* Is the server there, at the end of a wait whose last request failed? In a cluster one that is
 * connected may still refuse everything, because others are missing; it was asked for long enough
 * then. */
static bool reachable(const struct taking *t, int64_t begun_ms, int64_t now)
{
    struct topo *topo = t->m->c->topo;
    if (topo_cluster(topo))
        return now - begun_ms < RECENTLY_MS;
    return conn_epoch(topo_conn(topo, t->m->keys->key[KEY_LOCK])) != 0;
}

/* The waiter's step, begun then, has not granted the lock. HF_EBUSY: wait on. */
static hf_err judge(struct taking *t, hf_err e, int64_t begun_ms, hf_error *reterr)
{
    hf_mutex *m = t->m;
    int64_t now = clock_now_ms();
    if (e == HF_EBUSY) {
        t->reached_ms = now;
        t->answered = true;
        t->troubled = t->unacked = false;
    }
    if (atomic_load(&m->cancelled) || atomic_load(&m->c->stopping))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
    if (e == HF_EREPLICAS) { /* undone: who goes on needs another token */
        t->w.restart = t->unacked = true;
        snprintf(t->why, sizeof t->why, "%s", reterr ? reterr->message : "");
    }
    bool outage = e == HF_ECONN || e == HF_EUNSURE || e == HF_EREPLICAS || e == HF_ENOQUORUM;
    bool passes = e == HF_EBUSY || e == HF_ECONFLICT
                  || (outage && now - t->reached_ms < topo_outage_ms(m->c->topo));
    if (!passes)
        return e;
    if (now < t->deadline_ms) {
        t->troubled |= outage;
        return HF_EBUSY;
    }
    /* A last request for which there was no time left says nothing about the server. */
    bool in_time = e == HF_ECONN && !t->troubled
                   && ((t->answered && now - t->reached_ms < RECENTLY_MS)
                       || reachable(t, begun_ms, now));
    if (e != HF_EBUSY && !in_time && !t->unacked)
        return e;
    char name[120];
    if (t->unacked)
        return err_set(reterr, HF_EREPLICAS,
                       "%s was free, but not acknowledged as asked for in %lld ms: %s",
                       mutex_shown(m, name, sizeof name), (long long)t->wait_ms, t->why);
    return err_set(reterr, HF_ETIMEDOUT, "%s was not obtained in %lld ms: another owner holds it",
                   mutex_shown(m, name, sizeof name), (long long)t->wait_ms);
}

bool take_step(struct taking *t, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr)
{
    hf_client *c = t->m->c;
    if (t->wait_ms == 0) {
        *ret = try_once(t, reterr);
        return true;
    }
    hf_err e = t->begun ? HF_OK : waiter_begin(c, &t->w, reterr);
    if (!e) {
        t->begun = true;
        int64_t begun = clock_now_ms();
        e = waiter_step(c, &t->w, t->deadline_ms, ret_until_ms, reterr);
        if (e)
            e = judge(t, e, begun, reterr);
        if (e == HF_EBUSY && t->w.restart) {
            (void)waiter_end(c, &t->w, HF_ECONN, NULL);
            renew_token(t);
            *ret_until_ms = 0;
            return false;
        }
        if (e == HF_EBUSY) {
            if (*ret_until_ms > t->deadline_ms)
                *ret_until_ms = t->deadline_ms;
            return false;
        }
    }
    e = waiter_end(c, &t->w, e, reterr);
    bool granted = e == HF_OK;
    if (granted)
        e = take_hold(t->m, &t->w.a, &t->w.terms, reterr);
    *ret = e;
    if (!granted || e != HF_ETIMEDOUT || clock_now_ms() >= t->deadline_ms)
        return true;
    renew_token(t); /* its lease was over before we knew of it: once more, as somebody else */
    *ret_until_ms = 0;
    return false;
}

hf_err take_check(hf_mutex *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr)
{
    *ret_held = false;
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (m->busy)
        return err_set(reterr, HF_EINVAL, "a request without blocking is under way on this handle");
    if (wait_ms < HF_WAIT_FOREVER)
        return err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                       (long long)wait_ms);
    if (m->depth && !lease_believed(&m->lease, clock_now_ms()))
        return err_set(reterr, HF_ELOST,
                       "the lock was lost while this handle held it: unlock it before you lock it "
                       "again");
    if (m->depth && m->lease.shared && !weight)
        return err_set(reterr, HF_EDEADLK,
                       "this handle shares the lock: two readers that wait to have it alone wait for "
                       "each other; unlock it first, then lock it");
    if (m->depth) {
        m->depth++;
        *ret_held = true;
        return HF_OK;
    }
    if (atomic_exchange(&m->cancelled, 0))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
    m->weight = weight;
    return HF_OK;
}

hf_err take(hf_mutex *m, unsigned weight, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    bool held;
    hf_err e = take_check(m, weight, wait_ms, &held, reterr);
    if (!e && !held) {
        struct taking t;
        int64_t until;
        take_begin(&t, m, wait_ms, wake_thread);
        while (!take_step(&t, &e, &until, reterr))
            client_wait(m->c, m->keys->home, &m->turn, until);
        atomic_store(&m->cancelled, 0);
    }
    if (!e && ret_fence)
        *ret_fence = m->lease.fence;
    return e;
}

hf_err hf_mutex_lock(hf_mutex *m, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    return take(m, mutex_weight(m), wait_ms, ret_fence, reterr);
}

hf_err hf_mutex_trylock(hf_mutex *m, uint64_t *ret_fence, hf_error *reterr)
{
    return hf_mutex_lock(m, 0, ret_fence, reterr);
}

void hf_mutex_cancel(hf_mutex *m)
{
    atomic_store(&m->cancelled, 1);
    if (client_enter(m->c, NULL))
        return; /* in a forked child what would be woken is its parent's */
    park_wake(&m->turn);
    mutex_async_cancel(m);
}
