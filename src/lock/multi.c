/* SPDX-License-Identifier: MIT
 * multi.c - several locks at once.
 *
 *  X1  All of them are held, or none: whatever fails, nothing of it stays.
 *  X2  A try takes all in one step on the server: nobody sees some of them taken.
 *  X3  Who waits for one of them holds none of the others, until it was overtaken PATIENCE times.
 *  X4  Then they are taken in one order that is the same for all: no circle, and everybody's turn
 *      comes.
 *  X5  Each has its own number, larger than all before of its name; a lost reply makes no two
 *      grants.
 *
 * Waiting in all queues at once would either starve (who never has all turns at the same time) or
 * hold what it has while it waits: a circle. So we wait for the one that was busy, and try the
 * others again when its turn has come.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "lock/handle.h"

#define PATIENCE 4

struct several {
    hf_client *c;
    hf_lock   *m[HF_MULTI_MAX]; /* by the bytes of their keys */
    size_t     n;
    int64_t    wait_ms, deadline_ms, begun_ms;
};

static int by_key(const void *a, const void *b)
{
    hf_bytes x = (*(hf_lock *const *)a)->keys->key[KEY_LOCK];
    hf_bytes y = (*(hf_lock *const *)b)->keys->key[KEY_LOCK];
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

static hf_err check(struct several *s, hf_lock *const *m, size_t n, hf_error *reterr)
{
    char name[120];
    if (!m || n == 0 || n > HF_MULTI_MAX)
        return err_set(reterr, HF_EINVAL, "%zu locks at once: give 1 to %d", n, HF_MULTI_MAX);
    for (size_t i = 0; i < n; i++)
        if (!m[i])
            return err_set(reterr, HF_EINVAL, "one of the handles is NULL");
    for (size_t i = 0; i < n; i++)
        if (m[i]->c != m[0]->c)
            return err_set(reterr, HF_EINVAL, "the handles are of different clients");
    s->c = m[0]->c;
    hf_err e = n == 1 ? HF_OK
                      : client_can(s->c, CLIENT_SCRIPT | CLIENT_TRANSACTION,
                                   "taking several locks at once", reterr);
    if (e)
        return e;
    s->n = n;
    memcpy(s->m, m, n * sizeof *m);
    qsort(s->m, n, sizeof *s->m, by_key);
    for (size_t i = 0; i < n; i++) {
        lock_shown(s->m[i], name, sizeof name);
        if (i && by_key(&s->m[i - 1], &s->m[i]) == 0)
            return err_set(reterr, HF_EINVAL, "%s is among them twice", name);
        if (s->m[i]->depth)
            return err_set(reterr, HF_EINVAL,
                           "%s is held by this handle already: release it first", name);
    }
    return HF_OK;
}

static hf_err was_cancelled(hf_error *reterr)
{
    return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
}

static bool cancelled(const struct several *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (atomic_load(&s->m[i]->seat.cancelled))
            return true;
    return atomic_load(&s->c->stopping);
}

/* A limit given to the call bounds each of its requests as well. */
static int64_t limit_ms(const struct several *s)
{
    int64_t limit = client_deadline(s->c);
    return s->wait_ms == 0 ? limit : clock_earlier(limit, s->deadline_ms);
}

/* Until when what is held may be given back: past the limit no longer than any request has. */
static int64_t give_back_until(const struct several *s)
{
    int64_t now = clock_now_ms(), limit = client_deadline(s->c), least = now + ATTEMPT_LEAST_MS;
    if (cancelled(s))
        return now + ATTEMPT_CANCELLED_MS;
    if (s->wait_ms != 0)
        limit = clock_earlier(limit, clock_add(s->deadline_ms, ATTEMPT_BACK_MS));
    return limit < least ? least : limit;
}

/* ---- all in one step ------------------------------------------------------------------------- */

struct attempts {
    hf_lock           *m[HF_MULTI_MAX]; /* those that are not held yet */
    struct attempt     a[HF_MULTI_MAX];
    struct op_take     take[HF_MULTI_MAX];
    uint64_t           fence[HF_MULTI_MAX];
    size_t             n;
    struct lease_terms terms;
    int64_t            grace_ms; /* the smallest; 0: none */
    struct op          op;
    struct op          cancel[HF_MULTI_MAX];
    size_t             cancels;
};

/* One call: all that lives between its steps. */
struct multi_call {
    struct call      call;
    struct several   s;
    struct seat      own;      /* where a blocking call sleeps */
    struct attempts *at;       /* the present try */
    hf_lock         *which;    /* it was another's */
    int              round;
    size_t           next;     /* in their order */
    bool             present;
    struct presence  presence;
    struct taking    taking;
    struct giving_back_all back;
    hf_lock         *held[HF_MULTI_MAX];
    step_at          try_at, wait_at, row_at, back_at;
};

/* Give back whatever is held. */
static bool let_go(struct multi_call *mc)
{
    STEP_BEGIN(mc->back_at);
    mc->back = (struct giving_back_all){ .call = &mc->call, .m = mc->held };
    for (size_t i = mc->s.n; i-- > 0;)
        if (mc->s.m[i]->depth)
            mc->held[mc->back.n++] = mc->s.m[i];
    if (mc->back.n == 0)
        STEP_RETURN(mc->back_at);
    mc->back.deadline_ms = give_back_until(&mc->s);
    STEP_UNTIL(mc->back_at, give_back_all_step(&mc->back));
    STEP_END(mc->back_at);
}

/* What the server answered. HF_EBUSY and others: which was it. */
static hf_err read_answer(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    const struct op_all_taken *got = &at->op.got.all_taken;
    if (got->code != ANSWER_YES) {
        mc->which = at->m[got->which];
        return attempt_refused(&at->a[got->which], got->code, got->limit, mc->call.reterr);
    }
    for (size_t i = 0; i < at->n; i++)
        at->a[i].fence = at->fence[i];
    return HF_OK;
}

static void prepare(struct multi_call *mc)
{
    struct several *s = &mc->s;
    struct attempts *at = mc->at;
    for (size_t i = 0; i < s->n; i++) {
        hf_lock *m = s->m[i];
        if (m->depth)
            continue;
        m->weight = lock_weight(m);
        take_for(m, &mc->call);
        at->m[at->n] = m;
        at->a[at->n++] = take_token(m);
        int64_t grace = take_grace(m);
        if (grace && (!at->grace_ms || grace < at->grace_ms))
            at->grace_ms = grace;
    }
}

static void ask_presence(struct multi_call *mc)
{
    mc->presence = (struct presence){ .c = mc->s.c, .keyspace = keyspace_of(mc->s.m[0]->keys),
                                      .grace_ms = mc->at->grace_ms,
                                      .deadline_ms = limit_ms(&mc->s),
                                      .stop = &mc->s.m[0]->seat.cancelled,
                                      .task = &mc->call.task, .op = &mc->at->op };
}

/* They carry a grace if the server sees us. */
static void choose_grace(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    at->terms = mc->presence.terms;
    for (size_t i = 0; mc->present && i < at->n; i++)
        at->a[i].take.grace_ms = take_grace(at->m[i]);
    if (!mc->present)
        at->grace_ms = 0;
}

static void request_all(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    for (size_t i = 0; i < at->n; i++)
        at->take[i] = at->a[i].take;
    at->op = (struct op){ .id = OP_acquire_all,
                          .acquire_all = { .n = at->n, .each = at->take, .fences = at->fence },
                          .deadline_ms = limit_ms(&mc->s), .stop = at->a[0].stop,
                          .lane = LANE_GRANT, .task = &mc->call.task,
                          .reterr = mc->call.reterr };
    exec_begin(mc->s.c->exec, &at->op);
}

static hf_err asked(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    hf_err e = at->op.result;
    if (!e)
        e = read_answer(mc);
    if (!e && op_unacked(&at->op)) {
        at->op.in_doubt++; /* whoever abandons them undoes them */
        e = op_too_few(&at->op, "the grant of all, which is undone,", mc->call.reterr);
    }
    op_clear(&at->op);
    at->terms.sent_ms = at->op.sent_ms;
    for (size_t i = 0; i < at->n; i++) {
        at->a[i].in_doubt = at->op.in_doubt;
        at->a[i].sent_ms = at->op.sent_ms;
    }
    return e;
}

/* Granted with a grace: by the server that sees us? */
static hf_err check_present(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    if (mc->presence.answer == INBOX_READY && mc->presence.terms.epoch == at->terms.epoch) {
        at->terms.present_ms = mc->presence.terms.present_ms;
        return HF_OK;
    }
    for (size_t i = 0; i < at->n; i++)
        at->a[i].in_doubt++;
    return err_set(mc->call.reterr, HF_ECONN,
                   "the server that granted the locks does not see our session");
}

/* The server gave them: believe in them, if all is in time. */
static hf_err hold_all(struct attempts *at, hf_error *reterr)
{
    hf_err first = HF_OK;
    for (size_t i = 0; i < at->n; i++) {
        struct lease_terms terms = at->terms;
        terms.ttl_ms = at->a[i].take.ttl_ms;
        hf_err e = take_hold(at->m[i], &at->a[i], &terms, first ? NULL : reterr);
        if (e && !first)
            first = e;
        if (!e)
            metrics_take(&at->m[i]->c->metrics, HF_OK, false, 0);
    }
    return first;
}

/* None of them is to stay: all are cancelled at once, and together have the time of one. */
static void abandon_all(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    at->cancels = 0; /* they were asked for together: if one need not be, none has to */
    while (at->cancels < at->n
           && attempt_cancel_op(&at->a[at->cancels], mc->call.result, NULL,
                                &at->cancel[at->cancels]))
        at->cancels++;
    exec_begin_all(mc->s.c->exec, at->cancel, at->cancels, &mc->call.task);
}

/* What could not be cancelled decides. */
static hf_err abandoned_all(struct multi_call *mc)
{
    struct attempts *at = mc->at;
    hf_err e = mc->call.result;
    for (int failed = 0; failed < 2; failed++)
        for (size_t i = 0; i < at->cancels; i++)
            if ((at->cancel[i].result != HF_OK) == failed)
                e = attempt_cancelled(mc->s.c, &at->a[i], &at->cancel[i], e, mc->call.reterr);
    return e;
}

/* Take in one step all that are not held. HF_EBUSY: which is another's. */
static bool try_all(struct multi_call *mc)
{
    struct call *call = &mc->call;
    struct exec *x = mc->s.c->exec;
    STEP_BEGIN(mc->try_at);
    mc->at = mem_zalloc(sizeof *mc->at);
    if (!mc->at) {
        call->result = err_set(call->reterr, HF_ENOMEM, "out of memory");
        STEP_RETURN(mc->try_at);
    }
    prepare(mc);
    mc->present = false;
    if (mc->at->grace_ms) {
        ask_presence(mc);
        STEP_UNTIL(mc->try_at, present_step(&mc->presence));
        mc->present = mc->presence.answer == INBOX_READY;
        choose_grace(mc);
    }
    request_all(mc);
    STEP_UNTIL(mc->try_at, exec_step(x, &mc->at->op));
    call->result = asked(mc);
    if (!call->result && mc->at->grace_ms) {
        ask_presence(mc);
        STEP_UNTIL(mc->try_at, present_step(&mc->presence));
        call->result = check_present(mc);
    }
    if (call->result && cancelled(&mc->s))
        call->result = was_cancelled(call->reterr);
    if (call->result) {
        abandon_all(mc);
        STEP_UNTIL(mc->try_at, exec_step_all(x, mc->at->cancel, mc->at->cancels));
        call->result = abandoned_all(mc);
    } else {
        call->result = hold_all(mc->at, call->reterr);
    }
    mem_free(mc->at);
    STEP_END(mc->try_at);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int64_t left_ms(const struct several *s)
{
    if (s->deadline_ms == CLOCK_NEVER)
        return HF_WAIT_FOREVER;
    int64_t left = s->deadline_ms - clock_now_ms();
    /* 0 would be one try, for as long as the client has. */
    return left > 0 ? left : s->wait_ms != 0;
}

/* Out of time between two names is out of time, not a single failed try. */
static hf_err waited(const struct multi_call *mc)
{
    char name[120];
    if (mc->taking.result != HF_EBUSY || mc->s.wait_ms == 0)
        return mc->taking.result;
    return err_set(mc->call.reterr, HF_ETIMEDOUT,
                   "%s was not obtained in %lld ms: another owner holds it",
                   lock_shown(mc->taking.m, name, sizeof name), (long long)mc->s.wait_ms);
}

static bool wait_for(struct multi_call *mc, hf_lock *m)
{
    STEP_BEGIN(mc->wait_at);
    if (atomic_load(&m->seat.cancelled)) {
        mc->call.result = was_cancelled(mc->call.reterr);
        STEP_RETURN(mc->wait_at);
    }
    m->weight = lock_weight(m);
    take_begin(&mc->taking, &mc->call, m, left_ms(&mc->s), mc->call.reterr);
    STEP_UNTIL(mc->wait_at, take_step(&mc->taking));
    mc->call.result = waited(mc);
    STEP_END(mc->wait_at);
}

static bool one_after_the_other(struct multi_call *mc)
{
    STEP_BEGIN(mc->row_at);
    mc->call.result = HF_OK;
    for (mc->next = 0; mc->next < mc->s.n && !mc->call.result; mc->next++)
        if (!mc->s.m[mc->next]->depth)
            STEP_UNTIL(mc->row_at, wait_for(mc, mc->s.m[mc->next]));
    STEP_END(mc->row_at);
}

/* While we waited for the last one the first may have been lost. */
static hf_err all_held(const struct several *s, hf_error *reterr)
{
    for (size_t i = 0; i < s->n; i++)
        if (!lease_believed(&s->m[i]->lease, clock_now_ms()))
            return lock_lost(s->m[i], reterr);
    return HF_OK;
}

/* No step takes several on a majority, nor, in a cluster, in different slots. */
static bool in_one_step(const struct several *s)
{
    for (size_t i = 1; i < s->n; i++)
        if (s->m[i]->keys->scope != s->m[0]->keys->scope)
            return false;
    return exec_can(s->c->exec, EXEC_SEVERAL);
}

/* Another's: there is time to wait for it. */
static bool is_to_wait(const struct multi_call *mc)
{
    return mc->call.result == HF_EBUSY && mc->which && mc->s.wait_ms != 0;
}

static bool together(struct multi_call *mc)
{
    struct call *call = &mc->call;
    STEP_BEGIN(call->at);
    STEP_UNTIL(call->at, try_all(mc));
    for (; is_to_wait(mc); mc->round++) {
        if (cancelled(&mc->s)) {
            call->result = was_cancelled(call->reterr);
            break;
        }
        STEP_UNTIL(call->at, let_go(mc)); /* nothing is held while we wait, */
        if (mc->round == PATIENCE) { /* unless others always were faster */
            STEP_UNTIL(call->at, one_after_the_other(mc));
            break;
        }
        STEP_UNTIL(call->at, wait_for(mc, mc->which));
        if (!call->result)
            STEP_UNTIL(call->at, try_all(mc));
    }
    STEP_END(call->at);
}

static bool end_step(struct task *t)
{
    return let_go((struct multi_call *)t);
}

static bool acquire_step(struct task *t)
{
    struct multi_call *mc = (struct multi_call *)t;
    bool at_once = mc->s.n > 1 && in_one_step(&mc->s);
    if (at_once ? !together(mc) : !one_after_the_other(mc))
        return false;
    if (!mc->call.result)
        mc->call.result = all_held(&mc->s, mc->call.reterr);
    if (!mc->call.result)
        return true;
    t->step = end_step;
    return end_step(t);
}

/* ---- the calls ------------------------------------------------------------------------------- */

static void over(struct call *call)
{
    struct multi_call *mc = (struct multi_call *)call;
    int64_t waited_ms = clock_now_ms() - mc->s.begun_ms;
    for (size_t i = 0; !call->result && i < mc->s.n; i++)
        atomic_store(&mc->s.m[i]->waited_ms, waited_ms);
    for (size_t i = 0; i < mc->s.n; i++)
        seat_leave(&mc->s.m[i]->seat, call->c);
}

static hf_err check_acquire(struct several *s, hf_lock *const *m, size_t n, int64_t wait_ms,
                            hf_error *reterr)
{
    hf_err e = check(s, m, n, reterr);
    for (size_t i = 0; !e && i < s->n; i++) {
        bool held;
        e = take_check(s->m[i], lock_weight(s->m[i]), wait_ms, &held, reterr);
    }
    for (size_t i = 0; e == HF_ECANCELED && i < s->n; i++) /* one cancellation of all is used up */
        atomic_store(&s->m[i]->seat.cancelled, 0);
    s->wait_ms = wait_ms;
    s->begun_ms = clock_now_ms();
    s->deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms);
    return e;
}

static void begin(struct multi_call *mc)
{
    mc->call.over = over;
    for (size_t i = 0; i < mc->s.n; i++)
        seat_take(&mc->s.m[i]->seat, &mc->call, true);
}

hf_err hf_multi_acquire(hf_lock *const *m, size_t n, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct multi_call mc = { .round = 0 };
    hf_err e = check_acquire(&mc.s, m, n, wait_ms, reterr);
    if (e)
        return e;
    mc.call = call_blocking(mc.s.c, acquire_step, &mc.own, reterr);
    begin(&mc);
    return call_run(&mc.call);
}

hf_err hf_multi_acquire_async(hf_lock *const *m, size_t n, int64_t wait_ms, hf_done_fn done,
                              void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct several s = { .n = 0 };
    struct multi_call *mc;
    hf_err e = check_acquire(&s, m, n, wait_ms, reterr);
    if (!e)
        e = call_new(sizeof *mc, s.c, done, arg, &mc, reterr);
    if (e)
        return e;
    mc->s = s;
    begin(mc);
    return call_submit(&mc->call, acquire_step, reterr);
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* All that are to be given back are given back together. */
struct multi_release {
    struct call            call;
    struct giving_back_all back;
    size_t                 n;
    hf_lock              **held; /* behind m: those that are not only re-entries */
    hf_lock               *m[];  /* in the caller's order */
};

static void check_each(struct multi_release *r)
{
    for (size_t i = r->n; i-- > 0;) {
        bool fully;
        hf_err e = give_back_check(r->m[i], &fully, r->call.result ? NULL : r->call.reterr);
        if (!e && fully) {
            r->m[i]->depth = 0; /* should it be among them twice */
            r->held[r->back.n++] = r->m[i];
        }
        if (!r->call.result)
            r->call.result = e;
    }
}

static bool release_step(struct task *t)
{
    struct multi_release *r = (struct multi_release *)t;
    STEP_BEGIN(r->call.at);
    r->back = (struct giving_back_all){ .call = &r->call, .m = r->held };
    check_each(r);
    if (r->back.n) {
        r->back.deadline_ms = client_deadline(r->call.c);
        r->back.reterr = r->call.result ? NULL : r->call.reterr;
        STEP_UNTIL(r->call.at, give_back_all_step(&r->back));
        if (!r->call.result)
            r->call.result = r->back.first;
    }
    STEP_END(r->call.at);
}

static size_t release_size(size_t n)
{
    return sizeof(struct multi_release) + 2 * n * sizeof(hf_lock *);
}

static void release_fill(struct multi_release *r, hf_lock *const *m, size_t n)
{
    r->n = n;
    memcpy(r->m, m, n * sizeof *m);
    r->held = r->m + n;
}

static hf_err check_handles(hf_lock *const *m, size_t n, hf_error *reterr)
{
    if (!m || n == 0)
        return err_set(reterr, HF_EINVAL, "no handles were given");
    for (size_t i = 0; i < n; i++) {
        if (!m[i])
            return err_set(reterr, HF_EINVAL, "one of the handles is NULL");
        if (m[i]->c != m[0]->c)
            return err_set(reterr, HF_EINVAL, "the handles are of different clients");
    }
    hf_err e = client_enter(m[0]->c, reterr);
    for (size_t i = 0; i < n && !e; i++)
        e = seat_check(&m[i]->seat, reterr);
    return e;
}

hf_err hf_multi_release(hf_lock *const *m, size_t n, hf_error *reterr)
{
    CALL_GUARD;
    hf_err first = check_handles(m, n, reterr);
    if (first)
        return first;
    AUTO(mem_freep) struct multi_release *r = mem_zalloc(release_size(n));
    if (r) {
        release_fill(r, m, n);
        r->call = call_blocking(m[0]->c, release_step, &m[0]->seat, reterr);
        return call_run(&r->call);
    }
    for (size_t i = n; i-- > 0;) { /* one by one needs no memory */
        hf_err e = hf_lock_release(m[i], first ? NULL : reterr);
        first = first ? first : e;
    }
    return first;
}

static void release_over(struct call *call)
{
    struct multi_release *r = (struct multi_release *)call;
    for (size_t i = 0; i < r->n; i++)
        seat_leave(&r->m[i]->seat, call->c);
}

hf_err hf_multi_release_async(hf_lock *const *m, size_t n, hf_done_fn done, void *arg,
                              hf_error *reterr)
{
    CALL_GUARD;
    struct multi_release *r;
    hf_err e = check_handles(m, n, reterr);
    if (!e)
        e = call_new(release_size(n), m[0]->c, done, arg, &r, reterr);
    if (e)
        return e;
    release_fill(r, m, n);
    r->call.over = release_over;
    for (size_t i = 0; i < n; i++)
        seat_take(&m[i]->seat, &r->call, false);
    return call_submit(&r->call, release_step, reterr);
}

/* All of them before anybody is woken: who ends with the first takes back the others. */
void hf_multi_cancel(hf_lock *const *m, size_t n)
{
    for (size_t i = 0; m && i < n; i++)
        if (m[i])
            atomic_store(&m[i]->seat.cancelled, 1);
    for (size_t i = 0; m && i < n; i++)
        if (m[i])
            seat_wake(&m[i]->seat, m[i]->c);
}
