/* SPDX-License-Identifier: MIT
 * ballot.c - one operation, asked of all servers of a quorum at the same moment.
 */
#include "exec/ballot.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "topo/quorum_words.h"

#define PATIENCE_MS  5
#define BALLOT_MOST  64 /* hosts in a URL */
#define RETRY_MIN_MS 5
#define RETRY_MAX_MS 100

void ballot_init(struct ballot *b, struct quorum *q, struct op *op, struct vote *vote)
{
    b->q = q;
    b->op = op;
    b->vote = vote;
    b->n = quorum_size(q);
    b->majority = quorum_majority(q);
}

void ballot_begin(struct ballot *b, const struct op *asks, bool (*decided)(const struct ballot *b))
{
    memset(b->vote, 0, b->n * sizeof b->vote[0]);
    for (size_t i = 0; i < b->n; i++) {
        struct op *op = &b->vote[i].op;
        *op = *asks;
        memset(&op->run, 0, sizeof op->run);
        op->reply = NULL;
    }
    b->undo = NULL;
    b->decided = decided;
    b->deadline_ms = asks->deadline_ms;
    b->stop = asks->stop;
    b->begun_ms = clock_now_ms();
    b->lost = 0;
    b->at = 0;
    b->backoff = (struct backoff){ 0 };
}

/* ---- asking ------------------------------------------------------------------------------- */

/* What undoes it on this member, for good: also a copy that comes later takes nothing then. */
static struct pending_undo *undoing(const struct ballot *b, size_t i)
{
    int64_t until = clock_add(clock_now_ms(), quorum_longest_ttl_ms(b->q) + BALLOT_TOMBSTONE_MS);
    return quorum_undo_for(b->q, i, b->undo, until);
}

static void fail(struct ballot *b, size_t i, enum vote_state state, hf_err code, const char *why)
{
    struct vote *v = &b->vote[i];
    v->state = state;
    v->code = code;
    snprintf(v->why, sizeof v->why, "%.*s", (int)sizeof v->why - 1, why);
}

/* It has no connection. */
static void not_up(struct ballot *b, size_t i)
{
    char why[sizeof b->vote[i].why];
    quorum_why(b->q, i, why, sizeof why);
    quorum_mend(b->q, i);
    fail(b, i, VOTE_FAILED, HF_ECONN, why);
}

/* The command, and what undoes it where it gets no answer. */
static hf_err prepare(struct ballot *b, size_t i, struct command *ret,
                      struct pending_undo **ret_pending)
{
    struct vote *v = &b->vote[i];
    v->text = v->text || !quorum_knows(b->q, i, (unsigned)v->op.id);
    hf_err e = op_pack(&v->op, v->text, ret);
    *ret_pending = !e && b->undo ? undoing(b, i) : NULL;
    if (e || *ret_pending || !b->undo)
        return e;
    command_free(ret);
    return HF_ENOMEM;
}

/* A member that was greeted while we only looked lets its reign begin before it gives a number: the
 * hello goes before what follows, on the same connection. Nobody waits for its answer; where it
 * fails, so will the rest. */
static hf_err begin_reign(struct ballot *b, size_t i, struct scope *s, unsigned epoch)
{
    struct op hello = { .id = OP_hello, .hello = { s, "", false } };
    struct command cmd = { 0 };
    struct request *r = mem_zalloc(sizeof *r);
    if (!r || op_pack(&hello, true, &cmd)) {
        mem_free(r);
        return HF_ENOMEM;
    }
    r->bound = epoch;
    r->deadline_ms = b->deadline_ms;
    conn_submit(quorum_conn(b->q, i), r, &cmd, NULL); /* r frees itself */
    return HF_OK;
}

void ballot_ask(struct ballot *b, size_t i)
{
    struct vote *v = &b->vote[i];
    struct request *r = &v->op.run.request;
    struct command cmd = { 0 };
    struct pending_undo *ch;
    struct scope *s = op_scope(&v->op);
    unsigned epoch = conn_epoch(quorum_conn(b->q, i));
    if (!epoch) { /* how the next one will have been greeted nobody knows yet */
        not_up(b, i);
        return;
    }
    bool due = s && quorum_reign_due(b->q, i);
    hf_err e = due ? begin_reign(b, i, s, epoch) : HF_OK;
    if (!e)
        e = prepare(b, i, &cmd, &ch);
    if (e) {
        fail(b, i, VOTE_FAILED, e, hf_err_text(e));
        return;
    }
    v->state = VOTE_OPEN;
    v->under_way = true;
    *r = (struct request){ .deadline_ms = b->deadline_ms, .only_up = true,
                           .bound = due ? epoch : 0,
                           .on_settled = ch ? &ch->on_settled : NULL };
    conn_submit(quorum_conn(b->q, i), r, &cmd, b->op->task);
    if (due && !(request_done(r) && r->result == HF_ECONN))
        quorum_reign_begins(b->q, i);
    if (request_done(r) && r->result == HF_ECONN) {
        v->under_way = false;
        (void)conn_take(r, NULL);
        not_up(b, i);
    }
}

/* ---- what they say ------------------------------------------------------------------------ */

/* It may have been executed, and what came of it is not known. */
static void in_doubt(struct ballot *b, size_t i, hf_err code, const char *why)
{
    fail(b, i, VOTE_LOST, code, why);
    if (!b->undo)
        return;
    b->lost++;
    quorum_undo_owe(undoing(b, i)); /* done before anything else on the next connection */
}

/* The server refused to run it, or failed in the middle of it. */
static void refused(struct ballot *b, size_t i, const struct reply *rp)
{
    hf_error err;
    hf_err code;
    enum server_verdict verdict = server_judge(rp, &code);
    server_error(rp, code, &err);
    if (verdict == SERVER_NOSCRIPT && !b->vote[i].text) { /* SCRIPT FLUSH */
        b->vote[i].text = true;
        ballot_ask(b, i);
        return;
    }
    if (verdict == SERVER_UNKNOWN)
        in_doubt(b, i, code, err.message);
    else
        fail(b, i, VOTE_FAILED, code, err.message);
    if (verdict == SERVER_UNKNOWN || verdict == SERVER_RECONNECT)
        conn_drop(quorum_conn(b->q, i), "its answer cannot be counted on");
}

static void answered(struct ballot *b, size_t i, struct reply *rp)
{
    hf_error err;
    struct vote *v = &b->vote[i];
    hf_err e = op_read(&v->op, rp, &err);
    if (e)
        in_doubt(b, i, e, err.message);
    else
        v->state = VOTE_GIVEN;
}

/* Its request is done. */
static void take_in(struct ballot *b, size_t i)
{
    struct vote *v = &b->vote[i];
    struct request *r = &v->op.run.request;
    hf_err e = conn_take(r, NULL);
    struct reply *rp = r->reply;
    r->reply = NULL;
    v->under_way = false;
    if (e == HF_EUNSURE) {
        b->lost++;
        fail(b, i, VOTE_LOST, HF_EUNSURE, "the connection broke before it answered");
        quorum_mend(b->q, i);
    } else if (e) {
        fail(b, i, VOTE_FAILED, e, "the connection broke");
        quorum_mend(b->q, i);
    } else if (rp->type == REPLY_ERROR) {
        refused(b, i, rp);
        reply_free(rp);
    } else {
        answered(b, i, rp);
    }
}

static void take_all_in(struct ballot *b)
{
    for (size_t i = 0; i < b->n; i++)
        while (b->vote[i].under_way && request_done(&b->vote[i].op.run.request))
            take_in(b, i);
}

/* ---- waiting ------------------------------------------------------------------------------ */

bool ballot_over(const struct op *op, int64_t until_ms, const atomic_int *stop)
{
    struct limit lim = { until_ms, stop };
    if (limit_over(&lim))
        return true;
    task_due(op->task, until_ms);
    if (stop) /* nobody tells of it: it is looked at */
        task_due(op->task, clock_now_ms() + LIMIT_TICK_MS);
    return false;
}

static bool none_open(const struct ballot *b)
{
    return ballot_count(b, VOTE_OPEN) == 0;
}

bool ballot_wait(struct ballot *b, int64_t until_ms)
{
    take_all_in(b);
    return b->decided(b) || none_open(b) || ballot_over(b->op, until_ms, b->stop);
}

void ballot_be_patient(struct ballot *b)
{
    int64_t now = clock_now_ms();
    b->until_ms = clock_earlier(now + 2 * (now - b->begun_ms) + PATIENCE_MS, b->deadline_ms);
}

bool ballot_wait_for_stragglers(struct ballot *b)
{
    take_all_in(b);
    return none_open(b) || ballot_over(b->op, b->until_ms, NULL);
}

/* Once more those that are back; true: there were some. */
static bool ask_again(struct ballot *b)
{
    bool any = false;
    for (size_t i = 0; i < b->n; i++) {
        struct vote *v = &b->vote[i];
        bool failed = v->state == VOTE_FAILED || v->state == VOTE_LOST;
        if (!failed || v->code == HF_EAUTH || !conn_epoch(quorum_conn(b->q, i)))
            continue;
        ballot_ask(b, i);
        any = true;
    }
    return any;
}

bool ballot_vote(struct ballot *b)
{
    STEP_BEGIN(b->at);
    for (size_t i = 0; i < b->n; i++)
        ballot_ask(b, i);
    for (;;) {
        STEP_UNTIL(b->at, ballot_wait(b, b->deadline_ms));
        b->resume_ms = clock_now_ms() + backoff_next(&b->backoff, RETRY_MIN_MS, RETRY_MAX_MS);
        if (b->decided(b) || ballot_all_said(b) || b->resume_ms >= b->deadline_ms
            || op_stopped(b->op))
            break;
        STEP_UNTIL(b->at, ballot_over(b->op, b->resume_ms, b->stop));
        if (ask_again(b))
            b->backoff.step_ms = RETRY_MAX_MS;
    }
    STEP_END(b->at);
}

/* ---- the end ------------------------------------------------------------------------------ */

/* Nobody asks any more what came of it: is it to be undone, or asked for again, all the same? Of
 * those that got no answer the connection tells (struct on_settled). */
static bool is_owed(const struct vote *v, hf_err result)
{
    const struct reply *rp = v->op.run.request.reply;
    if (result)
        return result != HF_EUNSURE && v->op.id == OP_quorum_release;
    return rp && rp->type == REPLY_ERROR;
}

void ballot_close(struct ballot *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct vote *v = &b->vote[i];
        struct request *r = &v->op.run.request;
        if (!v->under_way)
            continue;
        if (!request_done(r))
            conn_withdraw(r, HF_ECONN);
        bool owed = is_owed(v, conn_take(r, NULL));
        r->reply = reply_free(r->reply);
        v->under_way = false;
        if (owed && b->undo)
            ballot_owe(b, i);
    }
}

void ballot_end(struct ballot *b)
{
    ballot_close(b);
    for (size_t i = 0; i < b->n; i++)
        op_clear(&b->vote[i].op);
}

void ballot_steal(struct ballot *b, size_t i)
{
    struct op *from = &b->vote[i].op;
    b->op->got = from->got;
    b->op->reply = from->reply;
    from->reply = NULL;
}

void ballot_owe(const struct ballot *b, size_t i)
{
    quorum_undo_owe(undoing(b, i));
}

size_t ballot_count(const struct ballot *b, enum vote_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += b->vote[i].state == state;
    return count;
}

bool ballot_all_said(const struct ballot *b)
{
    return none_open(b) && ballot_count(b, VOTE_GIVEN) >= b->majority;
}

/* "host: why", as it is known now. */
static const char *said(const struct vote *v)
{
    if (v->state == VOTE_OPEN)
        return "no answer yet";
    if (v->state == VOTE_GIVEN)
        return NULL;
    return v->why[0] ? v->why : "not asked";
}

hf_err ballot_fail(const struct ballot *b, size_t yes, hf_error *reterr)
{
    struct quorum_reason r[BALLOT_MOST] = { { 0 } };
    char text[400];
    hf_err code = HF_OK;
    for (size_t i = 0; i < b->n && i < BALLOT_MOST; i++) {
        const char *why = said(&b->vote[i]);
        if (!why)
            continue;
        hf_err own = b->vote[i].code ? b->vote[i].code : HF_ENOQUORUM;
        code = !code || code == own ? own : HF_ENOQUORUM;
        r[i] = (struct quorum_reason){ quorum_shown(b->q, i), why };
    }
    /* What no waiting mends keeps its own code. */
    if (code != HF_EAUTH && code != HF_ECONFIG && code != HF_ENOMEM)
        code = HF_ENOQUORUM;
    return err_set(reterr, code, "%zu of %zu servers agreed, %zu are needed%s", yes, b->n,
                   b->majority, quorum_words(r, b->n, text, sizeof text));
}
