/* SPDX-License-Identifier: MIT
 * waiter.c - waiting for one's turn.
 *
 *      join -> queued            [join]     refused, with a ticket
 *      queued -> claim           [step]     a message, a look or a repeated join says: yours
 *      claim -> granted          [claim]    confirmed; or at once, if the refusal is fresh enough
 *      claim -> join             [claim]    too late: a new ticket, a wider window
 *      queued -> join            [look]     not in the queue any more; or the inbox broke
 * Nothing here waits: an operation under way is looked at again in the next step.
 */
#include "session/waiters_impl.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "session/waiter_quorum.h"
#include "session/renew.h"

#define CLAIM_MS      1000
#define POLL_MIN_MS   10
#define POLL_MAX_MS   250
#define LOOK_MS       250
#define LOOK_PASSED_MS 50  /* what look.lua tells whose look handed it on to another */
#define LOOKS_IN_MS   4    /* of one client, at all the locks that it waits for: not more */
#define LEAVES_IN_MS  5    /* of those that leave a queue together: so many are answered, */
#define LEAVE_MOST_MS 2000 /* and so long is waited for it */
#define NUMBERS_MAX   1000000 /* that can be given in a moment, */
#define NUMBERS_MS    2000    /* and in each millisecond: more than any server can */

/* For a place in the queue. */
static bool draw_nonce(struct waiter *w)
{
    return random_nonce(w->a.nonce) == 0;
}

hf_err waiter_begin(hf_client *c, struct waiter *w, hf_error *reterr)
{
    if (!draw_nonce(w))
        return err_set(reterr, HF_ESYS, "no random numbers from the kernel");
    w->claim_ms = CLAIM_MS;
    w->a.take.mend = !c->no_repair; /* who only tries changes nothing */
    w->confirm |= c->confirm;
    return waiters_add(c->waiters, w) ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

void waiter_ask_presence(hf_client *c, struct waiter *w, int64_t grace_ms)
{
    w->present = (struct presence){ .c = c, .keyspace = keyspace_of(w->a.take.keys),
                                    .grace_ms = grace_ms, .deadline_ms = w->limit_ms,
                                    .stop = w->a.stop, .task = w->task,
                                    .op = &w->op };
}

/* Under which terms we ask: in the queue and with our grace if the server sees us, else by polling
 * and with the ttl alone. One token, one set of terms: they stay as soon as something may stand on
 * the server under them. */
static hf_err choose_terms(struct waiter *w, hf_error *reterr)
{
    bool fixed = w->a.in_doubt > 0 || w->ticket != 0 || w->a.named != 0;
    enum inbox_answer a = w->present.answer;
    w->terms.epoch = w->present.terms.epoch;
    w->terms.present_ms = w->present.terms.present_ms;
    if (fixed && w->a.take.claim_ms == 0)
        return HF_OK;
    if (fixed && a != INBOX_READY) {
        w->restart = a == INBOX_REFUSED;
        return err_set(reterr, HF_ECONN, "the session's connection cannot be made");
    }
    w->a.take.grace_ms = a == INBOX_READY ? w->wanted_grace_ms : 0;
    w->a.take.claim_ms = a == INBOX_READY ? w->claim_ms : 0;
    w->join_epoch = w->terms.epoch;
    return HF_OK;
}

/* Granted with a grace: by the server that sees us? Between the check and the request the
 * connection may have become another one; then nobody may believe in it. */
hf_err waiter_check_presence(struct waiter *w, hf_error *reterr)
{
    if (w->present.answer == INBOX_READY && w->present.terms.epoch == w->terms.epoch) {
        w->terms.present_ms = w->present.terms.present_ms;
        return HF_OK;
    }
    w->a.in_doubt++;
    w->restart = true;
    return err_set(reterr, HF_ECONN, "the server that granted the lock does not see our session");
}

/* When to look again, in pause ms or a little later. Who waits for thousands of locks looks at each
 * less often, so that the server has something else to do as well. */
static int64_t look_at(struct waiters *ws, int64_t pause)
{
    int64_t least = (int64_t)(atomic_load(&ws->groups) / LOOKS_IN_MS);
    pause = pause > least ? pause : least;
    return clock_now_ms() + random_between(pause, pause + pause / 5);
}

/* Refused. */
static void take_place(hf_client *c, struct waiter *w)
{
    if (w->a.take.claim_ms == 0)
        return;
    w->queued = w->a.ticket != 0;
    if (w->ticket != w->a.ticket)
        w->ticket_ms = w->a.sent_ms;
    w->ticket = w->a.ticket;
    /* A refusal that gave us a fresh ticket is older than every grant with a larger number.
     * With an old ticket an old grant may still be on its way to us: it must be confirmed. */
    w->refused_ms = w->had_place || w->a.named ? 0 : w->a.sent_ms;
    w->look_at_ms = look_at(c->waiters, LOOK_MS);
    keeper_announce(c->keeper);
}

/* Ask for the lock and, if it is another's, for a place in the queue. */
static bool join(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->inner_at);
    w->had_place = w->ticket != 0;
    w->retry_at_ms = clock_now_ms() + random_between(POLL_MIN_MS, POLL_MAX_MS);
    waiter_ask_presence(c, w, w->wanted_grace_ms);
    w->present.in_line = true;
    STEP_UNTIL(w->inner_at, present_step(&w->present));
    w->e = choose_terms(w, reterr);
    if (w->e)
        STEP_RETURN(w->inner_at);
    w->a.take.ticket = w->ticket;
    w->op = attempt_op(&w->a, w->limit_ms, w->task, reterr);
    exec_begin(c->exec, &w->op);
    STEP_UNTIL(w->inner_at, exec_step(c->exec, &w->op));
    w->e = attempt_taken(&w->a, &w->op, reterr);
    if (w->e == HF_EBUSY)
        take_place(c, w);
    if (w->e)
        STEP_RETURN(w->inner_at);
    w->terms.sent_ms = w->a.sent_ms;
    w->terms.ttl_ms = w->a.take.ttl_ms;
    if (w->a.take.grace_ms > 0) {
        waiter_ask_presence(c, w, w->a.take.grace_ms);
        STEP_UNTIL(w->inner_at, present_step(&w->present));
        w->e = waiter_check_presence(w, reterr);
    }
    STEP_END(w->inner_at);
}

/* Can this be the number of a grant to our place? It is of the same counter as our ticket, and
 * later; and no more numbers have been given since than can be. */
static bool plausible(const struct waiter *w)
{
    uint64_t age_ms = (uint64_t)(clock_now_ms() - w->ticket_ms);
    return w->ticket && w->news > w->ticket
           && (w->news - w->ticket - 1) / NUMBERS_MS <= age_ms + NUMBERS_MAX / NUMBERS_MS;
}

/* May we hold at once what was handed over with this number? It was granted after our refusal was
 * sent, so it lasts at least until that plus the claim window; the keeper confirms it in time. */
static bool at_once(const struct waiter *w)
{
    return w->refused_ms && !w->confirm && plausible(w) && w->terms.epoch == w->join_epoch
           && clock_now_ms() - w->refused_ms < CLAIM_MS / 2;
}

/* We lost our turn, and get a wider window for the next one. The server has told the nonce of the
 * old place: who heard it must not be able to name the new one. */
static void too_late(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    w->confirm |= !draw_nonce(w);
    w->granted = 0;
    mutex_unlock(&ws->mu);
    w->a.named = 0;
    w->ticket = 0;
    w->retry_at_ms = w->refused_ms = 0;
    w->claim_ms = 2 * w->claim_ms < CLAIM_MAX_MS ? 2 * w->claim_ms : CLAIM_MAX_MS;
}

static void ask_to_keep(hf_client *c, struct waiter *w, hf_error *reterr)
{
    w->grant = attempt_grant(&w->a);
    w->lease = (struct op_lease){ .grant = &w->grant, .ttl_ms = w->a.take.ttl_ms };
    renew_op(&w->op, KEEP_RENEW, &w->lease, &w->verdict, w->limit_ms);
    w->note = NULL;
    w->op.keep.notes = &w->note;
    w->op.task = w->task;
    w->op.stop = w->a.stop;
    w->op.reterr = reterr;
    exec_begin(c->exec, &w->op);
}

/* What we were told is not so. Who still stands in the queue was told a lie; else it was too
 * late. */
static hf_err doubt(struct waiter *w)
{
    w->doubted = w->queued = w->called = true;
    w->look_at_ms = 0;
    return HF_EBUSY;
}

/* Before it was held: nothing of it is to stay. */
static hf_err was_broken(const char *note, hf_error *reterr)
{
    char name[300] = "somebody";
    const char *by = note ? strchr(note, ' ') : NULL;
    by = by ? strchr(by + 1, ' ') : NULL;
    if (by)
        note_shown(by + 1, name, sizeof name);
    return err_set(reterr, HF_ELOST, "the lock was handed over, and broken by %s before it was "
                   "held", name);
}

/* HF_OK: it is ours; if it has a grace, our presence is still to be checked. */
static hf_err kept(struct waiter *w, hf_error *reterr)
{
    struct renewed got;
    AUTO(mem_freep) char *note = w->note;
    w->note = NULL;
    hf_err e = renew_outcome(&w->op, w->op.result, &got, reterr);
    op_clear(&w->op);
    if (e)
        return e;
    w->terms.sent_ms = got.sent_ms;
    w->terms.ttl_ms = w->a.take.ttl_ms;
    if (got.loss == HF_LOSS_BROKEN)
        return was_broken(note, reterr);
    return got.loss == HF_LOSS_NONE ? HF_OK : doubt(w);
}

/* The lock was handed over with number w->news. Make it ours, or learn that it was too late. */
static bool claim(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->inner_at);
    w->e = HF_EBUSY;
    if (w->news < w->ticket)
        STEP_RETURN(w->inner_at); /* of an earlier place: this one stands */
    w->a.fence = w->a.named = w->news;
    w->queued = false;
    if (w->a.take.grace_ms > 0) {
        waiter_ask_presence(c, w, w->a.take.grace_ms);
        STEP_UNTIL(w->inner_at, present_step(&w->present));
        if (w->present.answer != INBOX_READY) {
            w->retry_at_ms = clock_now_ms() + POLL_MIN_MS;
            STEP_RETURN(w->inner_at); /* nobody sees us: we must not believe what others may take */
        }
        w->terms.epoch = w->present.terms.epoch;
        w->terms.present_ms = w->present.terms.present_ms;
    }
    if (at_once(w)) {
        w->terms.sent_ms = w->refused_ms;
        w->terms.ttl_ms = CLAIM_MS;
        w->e = HF_OK;
        STEP_RETURN(w->inner_at);
    }
    ask_to_keep(c, w, reterr);
    STEP_UNTIL(w->inner_at, exec_step(c->exec, &w->op));
    w->e = kept(w, reterr);
    if (!w->e && w->a.take.grace_ms > 0) {
        waiter_ask_presence(c, w, w->a.take.grace_ms);
        STEP_UNTIL(w->inner_at, present_step(&w->present));
        w->e = waiter_check_presence(w, reterr);
    }
    STEP_END(w->inner_at);
}

/* How long to the next look, with so many younger waiters of other clients behind us. */
static int64_t pause_ms(long long younger)
{
    return younger == 0 ? LOOK_MS : younger < 4 ? 2000 * younger * younger : 20000;
}

static void ask_look(hf_client *c, struct waiter *w, hf_error *reterr)
{
    int64_t now = clock_now_ms();
    waiters_take_absent(c->waiters, w);
    w->a.take.nonce = w->a.nonce;
    struct op_look look = { .keys = w->a.take.keys, .place = &w->a.take, .mend = w->a.take.mend };
    look.n = absences_list(w->absent, now, &look.absences);
    w->op = (struct op){ .id = OP_look, .look = look, .deadline_ms = w->limit_ms, .stop = w->a.stop,
                         .task = w->task, .reterr = reterr };
    w->look_at_ms = look_at(c->waiters, LOOK_MS);
    exec_begin(c->exec, &w->op);
}

/* A holder that we had been seeing absent is gone for good, and its lock was handed on: to us, or
 * to who is first. Of several holders that is not told. */
static bool took_over(const struct waiter *w, const struct op_looked *got)
{
    bool passed = got->what == LOOK_OURS
                  || (got->what == LOOK_WAIT && got->next_ms == LOOK_PASSED_MS);
    return w->absent && passed && !op_list_len(got->absences);
}

static void looked(hf_client *c, struct waiter *w)
{
    const struct op_looked *got = &w->op.got.looked;
    int64_t now = clock_now_ms();
    if (took_over(w, got)) {
        const struct op_absence *gone;
        if (absences_list(w->absent, now, &gone) == 1)
            notes_taken_over(c, w->a.take.keys, gone->id);
        metrics_add(&c->metrics.takeovers, 1);
    }
    w->called = false;
    w->look_at_ms = look_at(c->waiters, pause_ms(got->younger));
    if (got->next_ms > 0 && now + got->next_ms < w->look_at_ms)
        w->look_at_ms = now + got->next_ms;
    w->absent = absences_update(w->absent, got->absences, now);
    w->queued = got->what != LOOK_NOT_QUEUED;
    w->news = got->what == LOOK_OURS ? got->fence : 0;
    if (!w->queued && w->doubted) {
        too_late(c->waiters, w);
    } else if (!w->queued) {
        w->retry_at_ms = 0;
        waiters_rejoin_group(c->waiters, w);
    }
    w->doubted = false;
}

static bool check_queue(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->inner_at);
    ask_look(c, w, reterr);
    STEP_UNTIL(w->inner_at, exec_step(c->exec, &w->op));
    w->e = w->op.result;
    if (!w->e) {
        looked(c, w);
        w->e = HF_EBUSY;
    }
    op_clear(&w->op);
    waiters_put_absent(c->waiters, w);
    STEP_END(w->inner_at);
}

/* What others told us since the last step. */
static uint64_t take_news(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    uint64_t granted = w->granted;
    w->granted = 0;
    /* Who joined after the subscription was made is not concerned by it. */
    if (w->dropped || (w->rejoin && w->join_epoch != w->new_epoch)) {
        w->queued = false;
        w->retry_at_ms = w->refused_ms = 0;
    }
    if (w->look_now) {
        w->look_at_ms = 0;
        w->called = true;
    }
    w->rejoin = w->dropped = w->look_now = false;
    mutex_unlock(&ws->mu);
    return granted;
}

/* Something came while we were busy with something else: its wake-up is used up. */
static bool has_news(struct waiters *ws, const struct waiter *w)
{
    mutex_lock(&ws->mu);
    bool news = w->granted || w->rejoin || w->dropped || w->look_now || w->told;
    mutex_unlock(&ws->mu);
    return news;
}

/* Of one client's waiters the youngest looks for all, and whoever was told to. */
static bool looks(struct waiters *ws, const struct waiter *w)
{
    return w->called || waiters_is_youngest(ws, w);
}

/* One thing at the most; HF_EBUSY when there was nothing to do, or nothing came of it. */
static bool act(hf_client *c, struct waiter *w, hf_error *reterr)
{
    STEP_BEGIN(w->at);
    w->news = take_news(c->waiters, w);
    if (w->news && w->ticket && !plausible(w)) { /* a lie, or a new counter: the server knows */
        w->news = 0;
        w->look_at_ms = 0;
        w->called = true;
    }
    if (w->news) {
        STEP_UNTIL(w->at, claim(c, w, reterr));
        STEP_RETURN(w->at);
    }
    if (!w->queued && clock_now_ms() >= w->retry_at_ms) {
        STEP_UNTIL(w->at, join(c, w, reterr));
        w->news = w->e == HF_EBUSY ? w->a.named : 0;
    } else if (w->queued && clock_now_ms() >= w->look_at_ms && looks(c->waiters, w)) {
        STEP_UNTIL(w->at, check_queue(c, w, reterr));
    } else {
        w->e = w->trouble ? w->trouble : HF_EBUSY;
        STEP_RETURN(w->at);
    }
    w->trouble = w->e == HF_EBUSY ? HF_OK : w->e;
    if (w->news)
        STEP_UNTIL(w->at, claim(c, w, reterr));
    STEP_END(w->at);
}

static int64_t next_step_ms(hf_client *c, struct waiter *w)
{
    if (w->a.take.claim_ms == 0 && !w->queued) { /* by polling */
        int64_t step = w->round < 5 ? (int64_t)POLL_MIN_MS << w->round : POLL_MAX_MS;
        w->round++;
        return w->retry_at_ms = clock_now_ms() + random_between(step / 2, step);
    }
    if (!w->queued)
        return w->retry_at_ms;
    return looks(c->waiters, w) ? w->look_at_ms : CLOCK_NEVER;
}

bool waiter_step(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_err *ret,
                 int64_t *ret_until_ms, hf_error *reterr)
{
    bool in_queue = exec_can(c->exec, EXEC_QUEUE);
    if (w->at == 0)
        w->limit_ms = clock_earlier(deadline_ms, client_deadline(c));
    if (in_queue ? !act(c, w, reterr) : !waiter_quorum_step(c, w, ret_until_ms, reterr))
        return false;
    if (in_queue)
        *ret_until_ms = next_step_ms(c, w);
    if (w->e == HF_EBUSY && has_news(c->waiters, w))
        *ret_until_ms = 0;
    *ret = w->e;
    return true;
}

/* Thousands that leave at once stand in line, and each has to wait for those before it: that is no
 * sign of a silent server. */
static void leave_with_others(hf_client *c, struct op *op)
{
    int64_t before = (int64_t)(atomic_fetch_add(&c->waiters->leaving, 1) / LEAVES_IN_MS);
    op->deadline_ms += clock_earlier(before, LEAVE_MOST_MS);
}

bool waiter_end(hf_client *c, struct waiter *w, hf_err *e, hf_error *reterr)
{
    STEP_BEGIN(w->at);
    waiters_put_absent(c->waiters, w);
    waiters_remove(c->waiters, w, *e == HF_OK);
    waiter_quorum_leave(c, w, *e == HF_OK);
    if (*e == HF_OK)
        STEP_RETURN(w->at);
    w->a.named = w->granted ? w->granted : w->a.named;
    if (w->ticket)
        w->a.ticket = w->ticket;
    if (!attempt_cancel_op(&w->a, *e, w->task, &w->op))
        STEP_RETURN(w->at);
    leave_with_others(c, &w->op);
    exec_begin(c->exec, &w->op);
    STEP_UNTIL(w->at, exec_step(c->exec, &w->op));
    atomic_fetch_sub(&c->waiters->leaving, 1);
    *e = attempt_cancelled(c, &w->a, &w->op, *e, reterr);
    STEP_END(w->at);
}
