/* SPDX-License-Identifier: MIT
 * lock.c - one owner at a time.
 *
 *  M1  While one handle holds the lock, judged by the server's clock, no other is granted it. (P1)
 *  M2  Unlock, extend and verify act only if the lock still is this grant's. (P2)
 *  M3  Each grant's number is larger than those of all earlier grants of the name. (P4)
 *  M4  is_held is false, and the loss told, before anybody else can be granted the lock. (P5)
 *  M5  A lost reply never makes two grants of one, nor a lock that nobody holds. (P8)
 *  M6  Nothing of an unlocked mutex is renewed, and no key of it stays. (P9)
 *
 * Taking it is in take.c, without blocking in lock_async.c. The same handle shares a lock
 * with others: rwlock.c, semaphore.c.
 */
#include "base/bell.h"
#include "lock/handle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/opts.h"
#include "session/cancel_queue.h"
#include "session/renew.h"

static hf_lock *of_lease(struct lease *l)
{
    return (hf_lock *)((char *)l - offsetof(hf_lock, lease));
}

const char *lock_shown(const hf_lock *m, char *buf, size_t size)
{
    return err_quote(buf, size, m->keys->name.data, m->keys->name.len);
}

/* ---- making and freeing ------------------------------------------------------------------- */

/* Thread: watchdog. */
static void changed(struct lease *l, hf_state state)
{
    hf_lock *m = of_lease(l);
    if (m->opts.on_event)
        m->opts.on_event(m, state, m->opts.event_arg);
    lock_tell(m, state);
    /* After it: who is woken may release the lock, and what the event asks for is gone. */
    int fd = atomic_load(&m->event_fd);
    if (fd >= 0)
        bell_ring(fd);
}

/* Thread: watchdog. */
static void was_asked(struct lease *l)
{
    hf_lock *m = of_lease(l);
    if (m->opts.on_ask)
        m->opts.on_ask(m, m->opts.event_arg);
    int fd = atomic_load(&m->event_fd);
    if (fd >= 0)
        bell_ring(fd);
}

static hf_err unlock_fully(struct lease *l, hf_error *reterr);
static hf_err release_leases(struct lease **l, size_t n, int64_t deadline_ms, size_t *ret_count,
                             hf_error *reterr);

static hf_err check_opts(const hf_lock_opts *opts, hf_lock_opts *ret, hf_error *reterr)
{
    hf_err e = opts_copy(ret, sizeof *ret, opts, "hf_lock_opts", reterr);
    if (e)
        return e;
    if (ret->ttl_ms == 0)
        ret->ttl_ms = HF_TTL_DEFAULT_MS;
    e = attempt_check_ttl(ret->ttl_ms, reterr);
    if (!e && (ret->grace_ms < HF_NO_TAKEOVER || ret->grace_ms > HF_TTL_MAX_MS))
        e = err_set(reterr, HF_EINVAL, "a grace of %lld ms is out of range",
                    (long long)ret->grace_ms);
    if (!e && (ret->max_hold_ms < 0 || ret->max_hold_ms > HF_TTL_MAX_MS))
        e = err_set(reterr, HF_EINVAL, "a max_hold of %lld ms is out of range",
                    (long long)ret->max_hold_ms);
    if (!e && (ret->timeout_ms < 0 || ret->timeout_ms > HF_TTL_MAX_MS))
        e = err_set(reterr, HF_EINVAL, "a timeout of %lld ms is out of range",
                    (long long)ret->timeout_ms);
    if (!e && (ret->owner.len > 0 || ret->owner.data))
        e = attempt_check_owner(ret->owner, reterr);
    if (!e && ret->owner.len && (ret->shared || ret->slots))
        e = err_set(reterr, HF_EINVAL,
                    "a caller-chosen owner id is for a lock that one holds alone: leave it out");
    if (!e)
        e = semaphore_check(ret, reterr);
    return e;
}

/* What the client's protocol cannot promise is refused, not faked. */
static hf_err check_protocol(const hf_client *c, const hf_lock_opts *o, hf_error *reterr)
{
    const unsigned both = CLIENT_SCRIPT | CLIENT_TRANSACTION;
    int64_t skew = exec_skew_ms(c->exec);
    hf_err e = HF_OK;
    if (o->grace_ms > 0)
        e = client_can(c, CLIENT_SCRIPT, "a grace, and with it takeover,", reterr);
    if (!e && o->owner.len)
        e = client_can(c, both, "a caller-chosen owner id", reterr);
    if (!e && (o->shared || o->slots))
        e = client_can(c, both, "a shared lock or a semaphore", reterr);
    if (!e && o->ttl_ms <= 2 * skew)
        e = err_set(reterr, HF_EINVAL,
                    "a ttl of %lld ms with a skew of %lld ms: give more than twice as much",
                    (long long)o->ttl_ms, (long long)skew);
    return e;
}

hf_err hf_lock_open(hf_client *c, hf_bytes name, const hf_lock_opts *opts, hf_lock **ret,
                    hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_lock_opts o;
    struct lock_keys *keys;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = check_opts(opts, &o, reterr);
    if (!e)
        e = check_protocol(c, &o, reterr);
    if (!e)
        e = names_use(c->names, name, &keys, reterr);
    if (e)
        return e;

    hf_lock *m = mem_zalloc(sizeof *m + (c->history ? LOCK_NOTE_SIZE : 0));
    char *owner = o.owner.len ? mem_copy(o.owner.data, o.owner.len) : NULL;
    if (!m || (o.owner.len && !owner))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    else
        e = keeper_reserve(c->keeper, reterr);
    if (e) {
        names_leave(c->names, keys, 0);
        mem_free(owner);
        mem_free(m);
        return e;
    }
    client_use(c);
    m->c = c;
    m->opts = o;
    m->opts.owner.data = m->owner = owner;
    m->keys = keys;
    m->lease.grant.keys = keys;
    m->lease.changed = changed;
    m->lease.asked = was_asked;
    m->lease.release = release_leases;
    atomic_init(&m->event_fd, -1);
    *ret = m;
    return HF_OK;
}

hf_lock *hf_lock_free(hf_lock *m)
{
    CALL_GUARD;
    if (!m)
        return NULL;
    if (handle_enter(m, NULL) == HF_OK) {
        if (m->depth)
            (void)unlock_fully(&m->lease, NULL);
        keeper_unreserve(m->c->keeper);
    }
    if (atomic_load(&m->event_fd) >= 0)
        forkguard_close(atomic_load(&m->event_fd)); /* in a forked child it does nothing */
    names_leave(m->c->names, m->keys, m->c->generation != forkguard_generation());
    client_leave(m->c);
    keeper_forget_notes(&m->lease);
    mem_free(m->owner);
    mem_free(m);
    return NULL;
}

struct op_cancel lock_cancel_of(const hf_lock *m)
{
    return (struct op_cancel){ .keys = m->keys, .token = m->lease.grant.token,
                               .owner = m->opts.owner, .remember_ms = CLIENT_TOMBSTONE_MS };
}

void lock_give_up(hf_lock *m, int64_t ttl_ms)
{
    struct op_cancel what = lock_cancel_of(m);
    keeper_give_up(m->c->keeper, &what, ttl_ms);
}

/* ---- unlock ------------------------------------------------------------------------------- */

/* Milliseconds as seconds, for the format "%lld.%lld s". */
#define SECONDS(ms) (long long)(((ms) + 50) / 1000), (long long)(((ms) + 50) % 1000 / 100)

/* What ended, and who was silent; or that it was ourselves. */
static void tell_ended(const hf_lock *m, hf_loss loss, char *buf, size_t size)
{
    const struct lease *l = &m->lease;
    int64_t grace = atomic_load(&l->grace_ended_ms), silent = atomic_load(&l->silent_ms);
    int64_t of = grace ? grace : atomic_load(&l->lease_ended_ms);
    const char *what = grace ? "grace" : "lease";
    if (loss == HF_LOSS_PAUSED)
        snprintf(buf, size, "this process stood still for %lld.%lld s, too long for its %s of "
                 "%lld.%lld s", SECONDS(atomic_load(&l->stood_ms)), what, SECONDS(of));
    else if (m->opts.no_renew && !grace) /* nobody was asked */
        snprintf(buf, size, "its lease of %lld.%lld s ended, and it is not renewed (no_renew)",
                 SECONDS(of));
    else
        snprintf(buf, size, "its %s of %lld.%lld s ended: %s%s has not %s for %lld.%lld s", what,
                 SECONDS(of), topo_quorum(m->c->topo) ? "a majority of " : "",
                 topo_shown(m->c->topo), grace ? "answered" : "renewed it", SECONDS(silent));
}

/* Thread: any. In a forked child nobody knows who it was. */
static void tell_broken(const hf_lock *m, char *buf, size_t size)
{
    char who[300] = "";
    if (handle_enter(m, NULL) == HF_OK)
        keeper_told(m->c->keeper, &m->lease, NOTE_BREAK, who, sizeof who, NULL);
    if (who[0])
        snprintf(buf, size, "broken by %s", who);
    else
        snprintf(buf, size, "%s", hf_loss_text(HF_LOSS_BROKEN));
}

/* Thread: any. */
static const char *lock_loss_words(const hf_lock *m, char *buf, size_t size)
{
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    if (loss == HF_LOSS_TAKEN)
        snprintf(buf, size, "%s says that it is gone or has another owner",
                 topo_shown(m->c->topo));
    else if (loss == HF_LOSS_BROKEN)
        tell_broken(m, buf, size);
    else if (loss == HF_LOSS_MAX_HOLD || loss == HF_LOSS_RELEASED || !loss)
        snprintf(buf, size, "%s", hf_loss_text(loss ? loss : HF_LOSS_EXPIRED));
    else
        tell_ended(m, loss, buf, size);
    return buf;
}

hf_err lock_lost(const hf_lock *m, hf_error *reterr)
{
    char name[120], why[360];
    return err_set(reterr, HF_ELOST, "the lock %s was lost: %s", lock_shown(m, name, sizeof name),
                   lock_loss_words(m, why, sizeof why));
}

hf_err lock_cancelled(const hf_lock *m, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ECANCELED, "the wait for %s was cancelled",
                   lock_shown(m, name, sizeof name));
}

/* It was lost before: nothing of the present owner's is touched. */
static hf_err was_lost(hf_lock *m, hf_error *reterr)
{
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    char why[300];
    lock_ended(m, "lost", lock_loss_words(m, why, sizeof why));
    waiters_done(m->c->waiters, m->lease.grant.sequence);
    if ((loss != HF_LOSS_TAKEN && loss != HF_LOSS_RELEASED) || m->in_doubt)
        lock_give_up(m, m->lease.ttl_ms);
    return lock_lost(m, reterr);
}

/* Where copies of the acquire may still be under way, the token is cancelled for good. */
static struct op release_op(const hf_lock *m, int64_t deadline_ms)
{
    const struct grant *grant = &m->lease.grant;
    struct op op = { .deadline_ms = deadline_ms };
    if (m->in_doubt) {
        op.id = OP_cancel;
        op.cancel = lock_cancel_of(m);
    } else {
        op.id = grant->shared ? OP_unshare : OP_release;
        op.release = (struct op_release){ grant };
    }
    return op;
}

static void ask_release(struct giving_back *g)
{
    g->op = release_op(g->m, g->limit_ms);
    g->op.task = &g->call->task;
    g->op.reterr = g->reterr;
    exec_begin(g->m->c->exec, &g->op);
}

static hf_err released(hf_lock *m, struct op *op, hf_error *reterr)
{
    struct lease *l = &m->lease;
    /* An earlier sending that got no answer may have been the one that released it. */
    bool held = op->in_doubt > 0 || op->got.held;
    hf_err e = op->result;
    op_clear(op);
    waiters_done(m->c->waiters, l->grant.sequence);
    if (e) {
        char shown[120];
        lock_give_up(m, l->ttl_ms);
        err_prefix(reterr, "the release of %s was not confirmed, and it is free in %lld.%03lld s "
                   "at the latest", lock_shown(m, shown, sizeof shown),
                   (long long)(l->ttl_ms / 1000), (long long)(l->ttl_ms % 1000));
        lock_ended(m, "unsure", "its release was not confirmed");
        return err_known(reterr, e, HF_KNOWN_NOT_HELD);
    }
    struct op_cancel what = lock_cancel_of(m);
    keeper_released(m->c->keeper, &what, op->moves);
    if (held) {
        metrics_add(&m->c->metrics.releases, 1);
        lock_ended(m, "released", "");
        return HF_OK;
    }
    atomic_store(&l->loss, HF_LOSS_TAKEN);
    metrics_lost(&m->c->metrics, HF_LOSS_TAKEN);
    lock_ended(m, "lost", hf_loss_text(HF_LOSS_TAKEN));
    return lock_lost(m, reterr);
}

static bool stop_keeping(hf_lock *m, struct task *t, int64_t limit_ms, hf_state *ret_was)
{
    bool stopped = keeper_remove(m->c->keeper, &m->lease, t, ret_was);
    if (!stopped)
        keeper_limit(m->c->keeper, t, limit_ms);
    return stopped;
}

bool give_back_step(struct giving_back *g)
{
    hf_lock *m = g->m;
    STEP_BEGIN(g->at);
    m->depth = 0;
    STEP_UNTIL(g->at, stop_keeping(m, &g->call->task, g->limit_ms, &g->was));
    if (g->was == HF_STATE_LOST) {
        g->result = was_lost(m, g->reterr);
        STEP_RETURN(g->at);
    }
    ask_release(g);
    STEP_UNTIL(g->at, exec_step(m->c->exec, &g->op));
    g->result = released(m, &g->op, g->reterr);
    STEP_END(g->at);
}

void give_back_begin(struct giving_back *g, struct call *call, hf_lock *m, hf_error *reterr)
{
    *g = (struct giving_back){ .call = call, .m = m, .limit_ms = lock_deadline(m),
                               .reterr = reterr };
}

bool give_back_call(struct task *t)
{
    struct lock_call *lc = (struct lock_call *)t;
    if (!give_back_step(&lc->giving_back))
        return false;
    lc->call.result = lc->giving_back.result;
    return true;
}

static hf_err unlock_fully(struct lease *l, hf_error *reterr)
{
    hf_lock *m = of_lease(l);
    struct lock_call lc;
    lc.call = call_blocking(m->c, give_back_call, &m->seat, reterr);
    give_back_begin(&lc.giving_back, &lc.call, m, reterr);
    return call_run(&lc.call);
}

/* The result of one of them: the first error counts. */
static void note_one(struct giving_back_all *g, hf_err e, const hf_error *err)
{
    g->released += !e;
    if (!e || g->first)
        return;
    g->first = e;
    if (g->reterr)
        *g->reterr = *err;
}

/* It is not kept any more. */
static void ask_for_one(struct giving_back_all *g)
{
    hf_lock *m = g->m[g->i];
    hf_error err;
    if (g->was == HF_STATE_LOST) {
        hf_err e = was_lost(m, &err);
        note_one(g, e, &err);
    } else if (!g->op) {
        waiters_done(m->c->waiters, m->lease.grant.sequence);
        lock_give_up(m, m->lease.ttl_ms);
        hf_err e = err_set(&err, HF_ENOMEM, "out of memory");
        note_one(g, e, &err);
    } else {
        g->op[g->asked] = release_op(m, g->deadline_ms);
        g->op[g->asked].reterr = &g->err[g->asked];
        g->m[g->asked++] = m;
    }
}

static void get_room(struct giving_back_all *g)
{
    g->op = mem_alloc(g->n * sizeof *g->op);
    g->err = mem_zalloc(g->n * sizeof *g->err);
    if (!g->err) {
        mem_free(g->op);
        g->op = NULL;
    }
}

bool give_back_all_step(struct giving_back_all *g)
{
    hf_client *c = g->call->c;
    STEP_BEGIN(g->at);
    get_room(g);
    for (g->i = 0; g->i < g->n; g->i++) {
        g->m[g->i]->depth = 0;
        STEP_UNTIL(g->at, stop_keeping(g->m[g->i], &g->call->task, g->deadline_ms, &g->was));
        ask_for_one(g);
    }
    exec_begin_all(c->exec, g->op, g->asked, &g->call->task);
    STEP_UNTIL(g->at, exec_step_all(c->exec, g->op, g->asked));
    for (size_t i = 0; g->op && i < g->asked; i++) { /* without memory nobody was asked */
        hf_err e = released(g->m[i], &g->op[i], &g->err[i]);
        note_one(g, e, &g->err[i]);
    }
    mem_free(g->op);
    mem_free(g->err);
    STEP_END(g->at);
}

struct release_all_call {
    struct call            call;
    struct giving_back_all back;
};

static bool release_all_step(struct task *t)
{
    struct release_all_call *rc = (struct release_all_call *)t;
    if (!give_back_all_step(&rc->back))
        return false;
    rc->call.result = rc->back.first;
    return true;
}

hf_err give_back_all(hf_lock **m, size_t n, int64_t deadline_ms, size_t *ret_count,
                     hf_error *reterr)
{
    struct release_all_call rc = { .back = { .m = m, .n = n, .deadline_ms = deadline_ms,
                                             .reterr = reterr } };
    rc.call = call_blocking(m[0]->c, release_all_step, &m[0]->seat, reterr);
    rc.back.call = &rc.call;
    hf_err e = call_run(&rc.call);
    if (ret_count)
        *ret_count += rc.back.released;
    return e;
}

/* Thread: whose blocking call it is. For hf_client_release_all(). */
static hf_err release_leases(struct lease **l, size_t n, int64_t deadline_ms, size_t *ret_count,
                             hf_error *reterr)
{
    AUTO(mem_freep) hf_lock **m = mem_alloc(n * sizeof *m);
    hf_err first = HF_OK;
    for (size_t i = 0; !m && i < n; i++) { /* one by one needs no memory */
        hf_err e = unlock_fully(l[i], first ? NULL : reterr);
        *ret_count += !e;
        first = first ? first : e;
    }
    if (!m)
        return first;
    for (size_t i = 0; i < n; i++)
        m[i] = of_lease(l[i]);
    return give_back_all(m, n, deadline_ms, ret_count, reterr);
}

hf_err lock_not_held(const hf_lock *m, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTHELD, "%s is not held by this handle",
                   lock_shown(m, name, sizeof name));
}

hf_err give_back_check(hf_lock *m, bool *ret_fully, hf_error *reterr)
{
    *ret_fully = m->depth == 1;
    if (m->depth == 0)
        return lock_not_held(m, reterr);
    if (m->depth == 1)
        return HF_OK;
    m->depth--;
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, reterr);
}

hf_err hf_lock_release(hf_lock *m, hf_error *reterr)
{
    CALL_GUARD;
    bool fully = false;
    hf_err e = lock_enter(m, reterr);
    if (!e)
        e = give_back_check(m, &fully, reterr);
    return e || !fully ? e : unlock_fully(&m->lease, reterr);
}

/* ---- while it is held --------------------------------------------------------------------- */

static void ask_server(struct asking *a)
{
    hf_lock *m = a->m;
    a->lease = (struct op_lease){ .grant = &m->lease.grant, .follower = m->lease.follower,
                                  .ttl_ms = a->ttl_ms };
    renew_op(&a->op, a->mode, &a->lease, &a->verdict, a->limit_ms);
    a->op.keep.notes = &a->note;
    a->op.task = &a->call->task;
    a->op.reterr = a->reterr;
    exec_begin(m->c->exec, &a->op);
}

static hf_err asked(struct asking *a)
{
    hf_lock *m = a->m;
    struct keeper *k = m->c->keeper;
    struct renewed got;
    hf_err e = renew_outcome(&a->op, a->op.result, &got, a->reterr);
    op_clear(&a->op);
    keeper_note(k, &m->lease, a->note, !e && got.loss == HF_LOSS_BROKEN);
    a->note = NULL;
    if (e) {
        keeper_unsure(k, &m->lease, a->ttl_ms, got.in_doubt);
        m->in_doubt |= a->mode == KEEP_LEAVE && got.in_doubt; /* it may have another value now */
        return e;
    }
    if (got.loss == HF_LOSS_NONE && a->mode == KEEP_LEAVE)
        return HF_OK; /* its value is another now: it stays so until it is not kept */
    if (got.loss == HF_LOSS_NONE) {
        keeper_proved(k, &m->lease, got.sent_ms, a->ttl_ms, got.in_doubt);
        return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, a->reterr);
    }
    keeper_denied(k, &m->lease, got.loss);
    return lock_lost(m, a->reterr);
}

bool lock_turn(hf_lock *m, int64_t ttl_ms, struct task *t, int64_t limit_ms, enum keeper_turn *ret)
{
    *ret = keeper_begin(m->c->keeper, &m->lease, ttl_ms, t);
    if (*ret == TURN_WAIT)
        keeper_limit(m->c->keeper, t, limit_ms);
    return *ret != TURN_WAIT;
}

bool ask_step(struct asking *a)
{
    hf_lock *m = a->m;
    STEP_BEGIN(a->at);
    if (m->depth == 0) {
        a->result = lock_not_held(m, a->reterr);
        STEP_RETURN(a->at);
    }
    STEP_UNTIL(a->at, lock_turn(m, a->ttl_ms, &a->call->task, a->limit_ms, &a->turn));
    if (a->turn == TURN_LOST) {
        a->result = lock_lost(m, a->reterr);
        STEP_RETURN(a->at);
    }
    ask_server(a);
    STEP_UNTIL(a->at, exec_step(m->c->exec, &a->op));
    a->result = asked(a);
    STEP_END(a->at);
}

void ask_begin(struct asking *a, struct call *call, hf_lock *m, enum keep_mode mode,
               int64_t ttl_ms, hf_error *reterr)
{
    *a = (struct asking){ .call = call, .m = m, .mode = mode, .ttl_ms = ttl_ms,
                          .limit_ms = lock_deadline(m), .reterr = reterr };
}

bool ask_call(struct task *t)
{
    struct lock_call *lc = (struct lock_call *)t;
    if (!ask_step(&lc->asking))
        return false;
    lc->call.result = lc->asking.result;
    return true;
}

static hf_err run_keep(hf_lock *m, enum keep_mode mode, int64_t ttl_ms, hf_error *reterr)
{
    struct lock_call lc;
    hf_err e = lock_enter(m, reterr);
    if (e)
        return e;
    lc.call = call_blocking(m->c, ask_call, &m->seat, reterr);
    ask_begin(&lc.asking, &lc.call, m, mode, ttl_ms, reterr);
    return call_run(&lc.call);
}

hf_err hf_lock_extend(hf_lock *m, int64_t ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : run_keep(m, KEEP_SET, ttl_ms, reterr);
}

hf_err hf_lock_verify(hf_lock *m, hf_error *reterr)
{
    CALL_GUARD;
    return run_keep(m, KEEP_CHECK, 0, reterr);
}

/* ---- leaving it behind -------------------------------------------------------------------- */

hf_err detach_check(const hf_lock *m, int64_t ttl_ms, hf_error *reterr)
{
    hf_err e = ttl_ms ? attempt_check_ttl(ttl_ms, reterr) : HF_OK;
    return e ? e : handle_enter(m, reterr);
}

void detach_begin(struct lock_call *lc, int64_t ttl_ms)
{
    struct detaching *d = &lc->detaching;
    hf_lock *m = lc->m;
    *d = (struct detaching){ .ttl_ms = ttl_ms };
    ask_begin(&d->asking, &lc->call, m, KEEP_LEAVE,
              ttl_ms ? ttl_ms : keeper_lease_left(lc->call.c->keeper, &m->lease) + 1,
              lc->call.reterr);
}

static void make_known(struct lock_call *lc)
{
    struct detaching *d = &lc->detaching;
    const struct lease *l = &lc->m->lease;
    d->record = keeper_publish(lc->call.c->keeper, l, d->ttl_ms ? d->ttl_ms : l->ttl_ms,
                               &lc->call.task);
}

/* Its value has changed: a renewal would not find it. */
bool detach_call(struct task *t)
{
    struct lock_call *lc = (struct lock_call *)t;
    struct detaching *d = &lc->detaching;
    hf_lock *m = lc->m;
    STEP_BEGIN(d->at);
    STEP_UNTIL(d->at, ask_step(&d->asking));
    lc->call.result = d->asking.result;
    if (lc->call.result)
        STEP_RETURN(d->at);
    STEP_UNTIL(d->at, keeper_remove(m->c->keeper, &m->lease, t, &d->was));
    m->depth = 0;
    lock_ended(m, "left", "it was left behind, and ends by itself");
    waiters_forget(m->c->waiters, m->lease.grant.sequence);
    make_known(lc);
    STEP_UNTIL(d->at, !d->record || exec_step(m->c->exec, &d->record->op));
    if (!d->record || d->record->op.result)
        log_to(&m->c->log, HF_LOG_INFO, "a lock is left behind without a record of who held it");
    record_writing_free(d->record);
    STEP_END(d->at);
}

hf_err hf_lock_detach(hf_lock *m, int64_t ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct lock_call lc;
    hf_err e = lock_enter(m, reterr);
    if (!e)
        e = detach_check(m, ttl_ms, reterr);
    if (e)
        return e;
    lc.m = m;
    lc.call = call_blocking(m->c, detach_call, &m->seat, reterr);
    detach_begin(&lc, ttl_ms);
    return call_run(&lc.call);
}

/* ---- what is known of it ------------------------------------------------------------------ */

int hf_lock_is_held(const hf_lock *m)
{
    return handle_enter(m, NULL) == HF_OK && lease_believed(&m->lease, clock_now_ms());
}

int64_t hf_lock_time_left_ms(const hf_lock *m)
{
    if (!hf_lock_is_held(m))
        return 0;
    int64_t left = atomic_load(&m->lease.until_ms) - clock_now_ms();
    return left > 0 ? left : 0;
}

int64_t hf_lock_full_time_ms(const hf_lock *m)
{
    if (!m || !m->depth)
        return 0;
    return lease_full_ms(&m->lease);
}

/* Our clock may say so before the watchdog does. */
hf_state hf_lock_state(const hf_lock *m)
{
    hf_state s = m ? (hf_state)atomic_load(&m->lease.state) : HF_STATE_FREE;
    if (s == HF_STATE_FREE || s == HF_STATE_LOST || hf_lock_is_held(m))
        return s;
    if (handle_enter(m, NULL))
        return HF_STATE_LOST;
    return keeper_judge(m->c->keeper, (struct lease *)&m->lease);
}

hf_loss hf_lock_loss(const hf_lock *m)
{
    if (hf_lock_state(m) != HF_STATE_LOST)
        return HF_LOSS_NONE;
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    return loss ? loss : HF_LOSS_EXPIRED; /* in a forked child */
}

const char *hf_lock_loss_text(const hf_lock *m, char *buf, size_t size)
{
    if (!buf || !size)
        return "";
    buf[0] = '\0';
    return hf_lock_loss(m) ? lock_loss_words(m, buf, size) : buf;
}

unsigned hf_lock_asked(const hf_lock *m, char *buf, size_t size)
{
    char who[300] = "";
    unsigned asks = 0;
    if (buf && size)
        buf[0] = '\0';
    if (handle_enter(m, NULL) || !m->depth)
        return 0;
    keeper_told(m->c->keeper, &m->lease, NOTE_ASK, who, sizeof who, &asks);
    if (buf && size)
        snprintf(buf, size, "%s", who);
    return asks;
}

const char *hf_state_text(hf_state state)
{
    switch (state) {
    case HF_STATE_FREE: return "not held";
    case HF_STATE_SAFE: return "safe";
    case HF_STATE_IN_DOUBT: return "in doubt";
    case HF_STATE_LOST: return "lost";
    }
    return "unknown";
}

const char *hf_loss_text(hf_loss loss)
{
    switch (loss) {
    case HF_LOSS_NONE: return "not lost";
    case HF_LOSS_TAKEN: return "the server says that it is gone or has another owner";
    case HF_LOSS_EXPIRED: return "its lease ended without an answer from the server";
    case HF_LOSS_MAX_HOLD: return "its maximum hold time has passed";
    case HF_LOSS_RELEASED: return "it was released on purpose, by its owner id, elsewhere";
    case HF_LOSS_GRACE: return "its grace ended without an answer from the server";
    case HF_LOSS_PAUSED: return "this process stood still for too long";
    case HF_LOSS_BROKEN: return "it was broken: its holder was told to let go";
    }
    return "unknown";
}

uint64_t hf_lock_fence(const hf_lock *m)
{
    return m && m->depth ? atomic_load(&m->fence) : 0;
}

const char *hf_lock_owner(const hf_lock *m)
{
    return !m || !m->depth ? "" : m->owner ? m->owner : m->lease.grant.token;
}

hf_err hf_lock_fd(hf_lock *m, int *ret_fd, hf_error *reterr)
{
    hf_err e = handle_enter(m, reterr);
    if (!e && !ret_fd)
        e = err_set(reterr, HF_EINVAL, "no place for the descriptor was given");
    if (e)
        return e;
    int fd = atomic_load(&m->event_fd);
    if (fd < 0) {
        fd = bell_open();
        if (fd < 0)
            return err_set(reterr, errno == ENOMEM ? HF_ENOMEM : HF_ESYS,
                           "no descriptor for events: %s", strerror(errno));
        atomic_store(&m->event_fd, fd);
    }
    *ret_fd = fd;
    return HF_OK;
}

hf_state hf_lock_poll(hf_lock *m)
{
    int fd = m ? atomic_load(&m->event_fd) : -1;
    if (fd >= 0 && m->c->generation == forkguard_generation())
        (void)bell_drain(fd);
    return hf_lock_state(m);
}
