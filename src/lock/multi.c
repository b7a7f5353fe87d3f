/* SPDX-License-Identifier: MIT
 * multi.c - several locks at once.
 *
 *  X1  All of them are held, or none: whatever fails, nothing of it stays.
 *  X2  A try takes all in one step on the server: nobody sees some of them taken.
 *  X3  Who waits for one of them holds none of the others, until it was overtaken PATIENCE times.
 *  X4  Then they are taken in one order that is the same for all: no circle, and everybody's turn comes.
 *  X5  Each has its own number, larger than all before of its name; a lost reply makes no two grants.
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
#include "lock/handle.h"

#define PATIENCE 4

struct several {
    hf_client *c;
    hf_mutex  *m[HF_MULTI_MAX]; /* by the bytes of their keys */
    size_t     n;
    int64_t    wait_ms, deadline_ms;
};

static int by_key(const void *a, const void *b)
{
    hf_bytes x = (*(hf_mutex *const *)a)->keys->key[KEY_LOCK];
    hf_bytes y = (*(hf_mutex *const *)b)->keys->key[KEY_LOCK];
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

static hf_err check(struct several *s, hf_mutex *const *m, size_t n, hf_error *reterr)
{
    char name[120];
    if (!m || n == 0 || n > HF_MULTI_MAX)
        return err_set(reterr, HF_EINVAL, "%zu locks at once: give 1 to %d", n, HF_MULTI_MAX);
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
        mutex_shown(s->m[i], name, sizeof name);
        if (i && by_key(&s->m[i - 1], &s->m[i]) == 0)
            return err_set(reterr, HF_EINVAL, "%s is among them twice", name);
        if (s->m[i]->depth)
            return err_set(reterr, HF_EINVAL, "%s is locked by this handle already: unlock it first",
                           name);
    }
    return HF_OK;
}

static bool cancelled(const struct several *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (atomic_load(&s->m[i]->cancelled))
            return true;
    return atomic_load(&s->c->stopping);
}

static void let_go(struct several *s)
{
    for (size_t i = s->n; i-- > 0;)
        if (s->m[i]->depth)
            (void)hf_mutex_unlock(s->m[i], NULL);
}

/* ---- all in one step ------------------------------------------------------------------------- */

struct step {
    hf_mutex          *m[HF_MULTI_MAX]; /* those that are not held yet */
    struct attempt     a[HF_MULTI_MAX];
    size_t             n;
    struct lease_terms terms;
    int64_t            grace_ms; /* the smallest; 0: none */
};

static hf_err send(const struct several *s, struct step *st, struct script_call *sc, hf_error *reterr)
{
    struct greeting *g = &s->m[0]->keys->home->greeting;
    hf_bytes keys[1 + 3 * HF_MULTI_MAX] = { hf_str(g->counter) }, args[6 * HF_MULTI_MAX];
    char text[HF_MULTI_MAX][4][24];
    for (size_t i = 0; i < st->n; i++) {
        const struct attempt *a = &st->a[i];
        snprintf(text[i][0], 24, "%lld", (long long)a->ttl_ms);
        snprintf(text[i][1], 24, "%lld", (long long)a->grace_ms);
        snprintf(text[i][2], 24, "%u", a->limit);
        snprintf(text[i][3], 24, "%u", a->weight);
        keys[3 * i + 1] = a->keys->key[KEY_LOCK];
        keys[3 * i + 2] = a->keys->key[KEY_QUEUE];
        keys[3 * i + 3] = a->keys->key[KEY_TOMB];
        args[6 * i] = hf_str(a->token);
        args[6 * i + 1] = hf_str(text[i][0]);
        args[6 * i + 2] = hf_str(text[i][1]);
        args[6 * i + 3] = a->owner;
        args[6 * i + 4] = hf_str(text[i][2]);
        args[6 * i + 5] = hf_str(text[i][3]);
    }
    *sc = (struct script_call){ .id = SCRIPT_acquire_all, .nkeys = 1 + 3 * st->n, .keys = keys,
                                .nargs = 6 * st->n, .args = args,
                                .deadline_ms = client_deadline(s->c),
                                .stop = st->a[0].stop, .lane = LANE_GRANT, .greeting = g };
    return script_run(s->c->topo, sc, reterr);
}

/* What the server answered. HF_EBUSY and others: *ret_which was it. */
static hf_err judge(struct step *st, const struct reply *rp, hf_mutex **ret_which,
                    hf_error *reterr)
{
    bool sense = rp->type == REPLY_ARRAY && rp->len > 0;
    for (size_t i = 0; sense && i < rp->len; i++)
        sense = rp->item[i]->type == REPLY_INT;
    if (sense && rp->item[0]->num > 0 && rp->len == st->n) {
        for (size_t i = 0; i < st->n; i++)
            st->a[i].fence = (uint64_t)rp->item[i]->num;
        return HF_OK;
    }
    long long which = sense && rp->len > 1 ? rp->item[1]->num : 0;
    if (!sense || which < 1 || (size_t)which > st->n)
        return err_set(reterr, HF_EPROTO, "the answer to an acquire makes no sense");
    *ret_which = st->m[which - 1];
    return attempt_refused(&st->a[which - 1], rp->item[0]->num, rp->len > 2 ? rp->item[2]->num : 0,
                           reterr);
}

static void prepare(struct several *s, struct step *st)
{
    st->n = 0;
    st->grace_ms = 0;
    for (size_t i = 0; i < s->n; i++) {
        hf_mutex *m = s->m[i];
        if (m->depth)
            continue;
        m->weight = mutex_weight(m);
        st->m[st->n] = m;
        st->a[st->n++] = take_token(m);
        int64_t grace = take_grace(m);
        if (grace && (!st->grace_ms || grace < st->grace_ms))
            st->grace_ms = grace;
    }
    const atomic_int *stop = &s->m[0]->cancelled;
    bool present = st->grace_ms
                   && client_present(s->c, s->m[0]->keys->home, st->grace_ms, client_deadline(s->c),
                                     stop, &st->terms)
                          == INBOX_READY;
    for (size_t i = 0; present && i < st->n; i++)
        st->a[i].grace_ms = take_grace(st->m[i]);
    if (!present)
        st->grace_ms = 0;
}

/* The server gave them: believe in them, if all is in time. */
static hf_err hold_all(struct step *st, hf_error *reterr)
{
    hf_err first = HF_OK;
    for (size_t i = 0; i < st->n; i++) {
        struct lease_terms terms = st->terms;
        terms.ttl_ms = st->a[i].ttl_ms;
        hf_err e = take_hold(st->m[i], &st->a[i], &terms, first ? NULL : reterr);
        if (e && !first)
            first = e;
    }
    return first;
}

/* Take in one step all that are not held. HF_EBUSY: *ret_which is another's. */
static hf_err try_all(struct several *s, hf_mutex **ret_which, hf_error *reterr)
{
    struct step st;
    struct script_call sc;
    prepare(s, &st);
    hf_err e = send(s, &st, &sc, reterr);
    if (!e) {
        st.terms.sent_ms = sc.sent_ms;
        e = judge(&st, sc.reply, ret_which, reterr);
        reply_free(sc.reply);
        if (!e && script_unacked(&sc)) {
            sc.in_doubt++; /* whoever abandons them undoes them */
            e = script_too_few(&sc, "the grant of all, which is undone,", reterr);
        }
    }
    for (size_t i = 0; i < st.n; i++)
        st.a[i].in_doubt = sc.in_doubt;
    if (!e && st.grace_ms
        && !client_still_present(s->c, s->m[0]->keys->home, st.grace_ms, client_deadline(s->c),
                                 st.a[0].stop, &st.terms)) {
        for (size_t i = 0; i < st.n; i++)
            st.a[i].in_doubt++;
        e = err_set(reterr, HF_ECONN, "the server that granted the locks does not see our session");
    }
    if (!e)
        return hold_all(&st, reterr);
    hf_err verdict = e;
    st.a[0].sent_ms = sc.sent_ms;
    int64_t until = attempt_cancel_until(&st.a[0], e);
    for (size_t i = 0; i < st.n; i++)
        verdict = attempt_abandon_by(s->c, &st.a[i], until, verdict, reterr);
    return verdict;
}

/* ---- waiting --------------------------------------------------------------------------------- */

static int64_t left_ms(const struct several *s)
{
    if (s->deadline_ms == CLOCK_NEVER)
        return HF_WAIT_FOREVER;
    int64_t left = s->deadline_ms - clock_now_ms();
    return left > 0 ? left : 0;
}

/* Out of time between two names is out of time, not a single failed try. */
static hf_err wait_for(struct several *s, hf_mutex *m, hf_error *reterr)
{
    char name[120];
    hf_err e = take(m, mutex_weight(m), left_ms(s), NULL, reterr);
    if (e != HF_EBUSY || s->wait_ms == 0)
        return e;
    return err_set(reterr, HF_ETIMEDOUT, "%s was not obtained in %lld ms: another owner holds it",
                   mutex_shown(m, name, sizeof name), (long long)s->wait_ms);
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
            return mutex_lost(s->m[i], reterr);
    return HF_OK;
}

/* No step takes several on a majority, nor, in a cluster, in different slots. */
static bool in_one_step(const struct several *s)
{
    for (size_t i = 1; i < s->n; i++)
        if (s->m[i]->keys->home != s->m[0]->keys->home)
            return false;
    return !topo_quorum(s->c->topo);
}

static hf_err take_all(struct several *s, hf_error *reterr)
{
    hf_mutex *which = NULL;
    if (s->n == 1)
        return take(s->m[0], mutex_weight(s->m[0]), s->wait_ms, NULL, reterr);
    if (!in_one_step(s))
        return one_after_the_other(s, reterr);
    hf_err e = try_all(s, &which, reterr);
    for (int round = 0; e == HF_EBUSY && which && s->wait_ms != 0; round++) {
        if (cancelled(s))
            return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
        let_go(s); /* nothing is held while we wait, */
        if (round == PATIENCE)
            return one_after_the_other(s, reterr); /* unless others always were faster */
        e = wait_for(s, which, reterr);
        if (!e)
            e = try_all(s, &which, reterr);
    }
    return e;
}

hf_err hf_multi_lock(hf_mutex *const *m, size_t n, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct several s = { .wait_ms = wait_ms };
    hf_err e = check(&s, m, n, reterr);
    for (size_t i = 0; i < s.n && !e; i++) {
        bool held;
        e = take_check(s.m[i], mutex_weight(s.m[i]), wait_ms, &held, reterr);
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

hf_err hf_multi_unlock(hf_mutex *const *m, size_t n, hf_error *reterr)
{
    hf_err first = HF_OK;
    for (size_t i = n; i-- > 0;) {
        hf_err e = hf_mutex_unlock(m[i], first ? NULL : reterr);
        if (e && !first)
            first = e;
    }
    return first;
}

void hf_multi_cancel(hf_mutex *const *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hf_mutex_cancel(m[i]);
}
