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
    int64_t    wait_ms, deadline_ms;
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
                           "%s is locked by this handle already: unlock it first", name);
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
        if (atomic_load(&s->m[i]->cancelled))
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
    int64_t limit = client_deadline(s->c), least = clock_now_ms() + ATTEMPT_CANCELLED_MS;
    if (s->wait_ms != 0)
        limit = clock_earlier(limit, clock_add(s->deadline_ms, ATTEMPT_BACK_MS));
    return cancelled(s) || limit < least ? least : limit;
}

static void let_go(struct several *s)
{
    hf_lock *held[HF_MULTI_MAX];
    size_t n = 0;
    for (size_t i = s->n; i-- > 0;)
        if (s->m[i]->depth)
            held[n++] = s->m[i];
    if (n)
        (void)give_back_all(held, n, give_back_until(s), NULL, NULL);
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
};

/* What the server answered. HF_EBUSY and others: *ret_which was it. */
static hf_err judge(struct attempts *at, hf_lock **ret_which, hf_error *reterr)
{
    const struct op_all_taken *got = &at->op.got.all_taken;
    if (got->code != ANSWER_YES) {
        *ret_which = at->m[got->which];
        return attempt_refused(&at->a[got->which], got->code, got->limit, reterr);
    }
    for (size_t i = 0; i < at->n; i++)
        at->a[i].fence = at->fence[i];
    return HF_OK;
}

static void prepare(struct several *s, struct attempts *at)
{
    at->n = 0;
    at->grace_ms = 0;
    for (size_t i = 0; i < s->n; i++) {
        hf_lock *m = s->m[i];
        if (m->depth)
            continue;
        m->weight = lock_weight(m);
        at->m[at->n] = m;
        at->a[at->n++] = take_token(m);
        int64_t grace = take_grace(m);
        if (grace && (!at->grace_ms || grace < at->grace_ms))
            at->grace_ms = grace;
    }
    bool present = at->grace_ms
                   && client_present(s->c, keyspace_of(s->m[0]->keys), at->grace_ms, limit_ms(s),
                                     &s->m[0]->cancelled, &at->terms)
                          == INBOX_READY;
    for (size_t i = 0; present && i < at->n; i++)
        at->a[i].take.grace_ms = take_grace(at->m[i]);
    if (!present)
        at->grace_ms = 0;
}

static hf_err ask(struct several *s, struct attempts *at, hf_lock **ret_which, hf_error *reterr)
{
    for (size_t i = 0; i < at->n; i++)
        at->take[i] = at->a[i].take;
    at->op = (struct op){ .id = OP_acquire_all,
                          .acquire_all = { .n = at->n, .each = at->take, .fences = at->fence },
                          .deadline_ms = limit_ms(s), .stop = at->a[0].stop, .lane = LANE_GRANT };
    hf_err e = exec_run(s->c->exec, &at->op, reterr);
    if (!e)
        e = judge(at, ret_which, reterr);
    if (!e && op_unacked(&at->op)) {
        at->op.in_doubt++; /* whoever abandons them undoes them */
        e = op_too_few(&at->op, "the grant of all, which is undone,", reterr);
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
static hf_err check_present(struct several *s, struct attempts *at, hf_error *reterr)
{
    struct lease_terms now;
    if (!at->grace_ms)
        return HF_OK;
    if (client_present(s->c, keyspace_of(s->m[0]->keys), at->grace_ms, limit_ms(s), at->a[0].stop,
                       &now) == INBOX_READY
        && now.epoch == at->terms.epoch) {
        at->terms.present_ms = now.present_ms;
        return HF_OK;
    }
    for (size_t i = 0; i < at->n; i++)
        at->a[i].in_doubt++;
    return err_set(reterr, HF_ECONN, "the server that granted the locks does not see our session");
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
    }
    return first;
}

/* None of them is to stay: all are cancelled at once, and together have the time of one. What could
 * not be cancelled decides. */
static hf_err abandon_all(struct several *s, struct attempts *at, hf_err e, hf_error *reterr)
{
    struct op *op = at->cancel;
    size_t n = 0;
    char member[OP_MEMBER_MAX]; /* none of them stood in a queue */
    while (n < at->n && attempt_cancel_op(&at->a[n], e, member, NULL, &op[n]))
        n++; /* they were asked for together: if one need not be, none has to */
    exec_run_all(s->c->exec, op, n);
    for (int failed = 0; failed < 2; failed++)
        for (size_t i = 0; i < n; i++)
            if ((op[i].result != HF_OK) == failed)
                e = attempt_cancelled(s->c, &at->a[i], &op[i], e, reterr);
    return e;
}

/* Take in one step all that are not held. HF_EBUSY: *ret_which is another's. */
static hf_err try_all(struct several *s, hf_lock **ret_which, hf_error *reterr)
{
    struct attempts *at = mem_zalloc(sizeof *at);
    if (!at)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    prepare(s, at);
    hf_err e = ask(s, at, ret_which, reterr);
    if (!e)
        e = check_present(s, at, reterr);
    if (e && cancelled(s))
        e = was_cancelled(reterr);
    e = e ? abandon_all(s, at, e, reterr) : hold_all(at, reterr);
    mem_free(at);
    return e;
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
static hf_err wait_for(struct several *s, hf_lock *m, hf_error *reterr)
{
    char name[120];
    hf_err e = take(m, lock_weight(m), left_ms(s), NULL, reterr);
    if (e != HF_EBUSY || s->wait_ms == 0)
        return e;
    return err_set(reterr, HF_ETIMEDOUT, "%s was not obtained in %lld ms: another owner holds it",
                   lock_shown(m, name, sizeof name), (long long)s->wait_ms);
}

static hf_err one_after_the_other(struct several *s, hf_error *reterr)
{
    for (size_t i = 0; i < s->n; i++) {
        hf_err e = s->m[i]->depth ? HF_OK : wait_for(s, s->m[i], reterr);
        if (e)
            return e;
    }
    return HF_OK;
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

static hf_err take_all(struct several *s, hf_error *reterr)
{
    hf_lock *which = NULL;
    if (s->n == 1)
        return take(s->m[0], lock_weight(s->m[0]), s->wait_ms, NULL, reterr);
    if (!in_one_step(s))
        return one_after_the_other(s, reterr);
    hf_err e = try_all(s, &which, reterr);
    for (int round = 0; e == HF_EBUSY && which && s->wait_ms != 0; round++) {
        if (cancelled(s))
            return was_cancelled(reterr);
        let_go(s); /* nothing is held while we wait, */
        if (round == PATIENCE)
            return one_after_the_other(s, reterr); /* unless others always were faster */
        e = wait_for(s, which, reterr);
        if (!e)
            e = try_all(s, &which, reterr);
    }
    return e;
}

hf_err hf_multi_acquire(hf_lock *const *m, size_t n, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct several s = { .wait_ms = wait_ms };
    hf_err e = check(&s, m, n, reterr);
    for (size_t i = 0; i < s.n && !e; i++) {
        bool held;
        e = take_check(s.m[i], lock_weight(s.m[i]), wait_ms, &held, reterr);
    }
    if (e)
        return e;
    s.deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms);
    e = take_all(&s, reterr);
    if (!e)
        e = all_held(&s, reterr);
    if (e)
        let_go(&s);
    for (size_t i = 0; i < s.n; i++)
        atomic_store(&s.m[i]->cancelled, 0);
    return e;
}

hf_err hf_multi_release(hf_lock *const *m, size_t n, hf_error *reterr)
{
    hf_err first = m ? HF_OK : err_set(reterr, HF_EINVAL, "no handles were given");
    for (size_t i = m ? n : 0; i-- > 0;) {
        hf_err e = hf_lock_release(m[i], first ? NULL : reterr);
        if (e && !first)
            first = e;
    }
    return first;
}

/* All of them before anybody is woken: who ends with the first takes back the others. */
void hf_multi_cancel(hf_lock *const *m, size_t n)
{
    for (size_t i = 0; m && i < n; i++)
        if (m[i])
            atomic_store(&m[i]->cancelled, 1);
    for (size_t i = 0; m && i < n; i++)
        if (m[i])
            lock_wake(m[i]);
}
