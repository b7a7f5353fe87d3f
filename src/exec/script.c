/* SPDX-License-Identifier: MIT
 * script.c - operations by scripts, on the server that has the key, whatever the connection does
 * meanwhile.
 *
 *      send -> wait          the command is submitted; behind a hello, the first time in a slot of
 *                            a cluster, or where a reign is to begin
 *      wait -> send          NOSCRIPT, MOVED, ASK: at once
 *      wait -> pause -> send no answer, or an error that passes
 *      wait -> parts         the slot is being moved: key by key (slot_moves.c)
 *
 * Every script can be repeated: what got no answer is sent again until the deadline.
 */
#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/err.h"
#include "exec/exec_impl.h"
#include "net/servererr.h"
#include "topo/cluster.h"

#define RETRY_MIN_MS       5
#define RETRY_MAX_MS       200
#define SERVER_PATIENCE_MS 2000 /* for one server of a cluster */
#define REDIRECTIONS_MAX   5    /* without a pause */
#define DOUBT_MS           500  /* longer than a slot is on its way, as a rule */

enum next { DONE, AGAIN, PAUSE, PARTS };

/* Another attempt, after a pause; or none, if there is no time for it. */
static enum next retry_or(struct op *op, hf_err e)
{
    op->run.resume_ms = clock_now_ms() + backoff_next(&op->run.backoff, RETRY_MIN_MS, RETRY_MAX_MS);
    if (op->run.resume_ms < op->deadline_ms && !op->once && !op_stopped(op))
        return PAUSE;
    op->result = e;
    return DONE;
}

static enum next fail(struct op *op, hf_err e)
{
    op->result = e;
    return DONE;
}

/* ---- sending ------------------------------------------------------------------------------ */

static uint64_t note_of(const struct op *op)
{
    return UINT64_C(1) << (op->id % 64);
}

static bool settles(const struct exec *x, const struct op *op)
{
    return x->cluster && op->id == OP_keep && op->keep.settles;
}

/* Where a hello goes before it; NULL: it needs none. */
static struct scope *to_greet(const struct exec *x, const struct op *op)
{
    return settles(x, op) ? op->keep.each[0].grant->keys->scope : op_scope(op);
}

/* Whether hello.lua has run for this slot on the connection as it is now; where there are no
 * slots, when that was connected to. Whoever settles greets each time: its slot may have gone and
 * come back meanwhile, which nobody but the servers need know. */
static bool greeted(struct exec *x, struct op *op)
{
    struct scope *s = to_greet(x, op);
    if (!s || op->run.asking)
        return true;
    if (!x->cluster)
        return !scope_due(s);
    if (settles(x, op) && !op->run.has_greeted)
        return false;
    unsigned epoch = conn_epoch(op->run.conn), moves = topo_moves_of(x->topo, op_route(op));
    return epoch && scope_mark(epoch, moves) == atomic_load(&s->greeted[op->lane]);
}

static struct op hello_for(const struct exec *x, const struct op *op)
{
    return (struct op){ .id = OP_hello, .hello = { .scope = to_greet(x, op), .channel = "" } };
}

/* In a cluster the server may have lost the slot, or be dead: not all the time for it. */
static void choose_limits(struct exec *x, struct op *op)
{
    struct request *r = &op->run.request;
    *r = (struct request){ .stop = op->stop, .urgent = op->urgent, .asking = op->run.asking };
    op->run.limit_ms = op->deadline_ms;
    if (x->cluster) {
        struct scope *s = to_greet(x, op);
        op->run.limit_ms = clock_earlier(op->deadline_ms, clock_now_ms() + SERVER_PATIENCE_MS);
        r->impatient = true;
        if (s && !op->run.asking && !op->run.greeting)
            r->bound = scope_epoch(atomic_load(&s->greeted[op->lane]));
    }
    r->deadline_ms = op->run.limit_ms;
}

static void send(struct exec *x, struct op *op)
{
    struct command cmd = { 0 };
    /* Nobody waits for replicas to have a reign; and what connects from now on greets by itself. */
    op->run.greeting = !x->cluster && !greeted(x, op);
    enum topo_lane lane = op->run.greeting ? LANE_PLAIN : op->lane;
    op->moves = topo_moves_of(x->topo, op_route(op)); /* or more, by the time it is there */
    if (!op->run.asking)
        op->run.conn = op->task->loop ? topo_lane_now(x->topo, op_route(op), lane)
                                      : topo_lane(x->topo, op_route(op), lane);
    /* Where replicas are waited for, NOSCRIPT costs that wait once more: then the text goes along
     * as long as the server is not known to have it. */
    op->run.text |= op->run.acks && !(atomic_load(conn_notes(op->run.conn)) & note_of(op));
    if (x->cluster)
        op->run.greeting = !greeted(x, op);
    choose_limits(x, op);
    struct op hello = hello_for(x, op);
    hf_err e = op_pack(op->run.greeting ? &hello : op, op->run.text, &cmd);
    op->run.by_ask = op->run.asking;
    op->run.asking = false;
    (void)e; /* without bytes the request fails at once */
    conn_submit(op->run.conn, &op->run.request, &cmd, op->task);
}

/* Whether there is an answer, or no more time for one. */
static bool answered(struct op *op)
{
    struct request *r = &op->run.request;
    if (!request_done(r) && (op_stopped(op) || clock_now_ms() >= op->run.limit_ms))
        conn_withdraw(r, op_stopped(op) ? HF_ECANCELED : HF_ECONN);
    task_due(op->task, op->run.limit_ms);
    return request_done(r);
}

static bool resumed(struct op *op)
{
    task_due(op->task, op->run.resume_ms);
    return clock_now_ms() >= op->run.resume_ms || op_stopped(op);
}

/* ---- what came of it ---------------------------------------------------------------------- */

/* The slot is on its way to another server. What can be done key by key is; the rest waits for the
 * end of it. The server that sends it may never hear that it has arrived: then others know. */
static enum next in_motion(struct exec *x, struct op *op, hf_err code)
{
    int64_t now = clock_now_ms();
    if (!op->run.moving_since_ms)
        op->run.moving_since_ms = op->run.doubted_ms = now;
    op->run.has_greeted = false; /* it may have been where it goes, and be back */
    if (now - op->run.doubted_ms >= DOUBT_MS) {
        op->run.doubted_ms = now;
        topo_doubt(x->topo);
    }
    return slot_moves_can_part(op, now - op->run.moving_since_ms) ? PARTS : retry_or(op, code);
}

/* MOVED and ASK: at once, unless it goes in a circle. What takes numbers, settles, or begins a
 * reign is not run in two places: it waits until the slot has arrived, and then goes there as
 * everything does, behind a greeting. */
static enum next redirected(struct exec *x, struct op *op, const struct reply *rp)
{
    struct conn *asked;
    char words[80];
    hf_err e = cluster_redirected(x->cluster, rp, op->run.conn, op->lane, &asked,
                                  op->reterr);
    if (e)
        return fail(op, e);
    err_set(op->reterr, HF_ECONN,
            "a slot is being moved, or the servers of the cluster do not agree on who has it (%s)",
            err_quote(words, sizeof words, rp->str, rp->len));
    if (asked && (to_greet(x, op) || op->id == OP_hello))
        return in_motion(x, op, HF_ECONN);
    op->run.asking = asked != NULL;
    if (asked)
        op->run.conn = asked;
    return ++op->run.redirections % REDIRECTIONS_MAX ? AGAIN : retry_or(op, HF_ECONN);
}

/* Of those that were under way when the server did not know the script, one brings the text, and
 * the others come behind it on the same connection: thousands of copies are more than anybody has
 * room for. They rely on that once; it may have been given up. */
static bool another_brings_text(struct op *op)
{
    bool relied = op->run.unknown;
    op->run.unknown = true;
    return !relied && !op->run.acks && !op->run.greeting
           && atomic_fetch_or(conn_notes(op->run.conn), note_of(op)) & note_of(op);
}

/* An error of the server. */
static enum next refused(struct exec *x, struct op *op, const struct reply *rp)
{
    hf_err code;
    enum server_verdict v = server_judge(rp, &code);
    server_error(rp, code, op->reterr);
    switch (v) {
    case SERVER_NOSCRIPT:
        op->run.text = !another_brings_text(op);
        return AGAIN;
    case SERVER_RECONNECT:
        topo_wrong(x->topo, op->run.conn, "it answered READONLY");
        return retry_or(op, code);
    case SERVER_RETRY:
        if (x->cluster && strncmp(rp->str, "TRYAGAIN", 8) == 0)
            return in_motion(x, op, code);
        topo_doubt(x->topo); /* in a cluster another server may have it by now */
        return retry_or(op, code);
    case SERVER_REDIRECT:
        return x->cluster ? redirected(x, op, rp) : fail(op, code);
    case SERVER_UNKNOWN:
        op->in_doubt++; /* it may have done half of its work */
        return fail(op, err_known(op->reterr, code, HF_KNOWN_NOTHING));
    case SERVER_REFUSED:
        break;
    }
    return fail(op, code);
}

/* No reply. */
static enum next unanswered(struct exec *x, struct op *op, hf_err e)
{
    bool cluster = x->cluster != NULL;
    if (e == HF_EUNSURE && !op->run.greeting)
        op->in_doubt++;
    if (e != HF_EUNSURE && !(cluster && (e == HF_ECONN || e == HF_EBUSY)))
        return fail(op, e);
    topo_doubt(x->topo); /* in a cluster another server may have it by now */
    return retry_or(op, e == HF_EBUSY ? HF_ECONN : e);
}

/* The hello that had to go before it was answered. */
static enum next take_hello(struct exec *x, struct op *op, struct reply *rp)
{
    struct op hello = hello_for(x, op);
    struct scope *s = to_greet(x, op);
    hf_err e = op_read(&hello, rp, op->reterr);
    enum answer code = hello.got.greeted.code;
    op_clear(&hello);
    if (!e && code == ANSWER_BAD_COUNTER && op->id != OP_keep) /* it takes no number */
        e = op_bad_counter(s, op->reterr);
    if (e)
        return fail(op, e);
    op->run.has_greeted = true;
    atomic_store(&s->greeted[op->lane], scope_mark(op->run.request.epoch, op->moves));
    atomic_store(&s->due, false);
    return AGAIN;
}

static enum next take_answer(struct exec *x, struct op *op, struct reply *rp)
{
    const struct request *r = &op->run.request;
    op->sent_ms = r->sent_ms;
    op->epoch = r->epoch;
    op->acked = r->acked;
    if (op->run.acks) {
        op->wanted = topo_replicas(x->topo, op_route(op));
        atomic_fetch_or(conn_notes(op->run.conn), note_of(op));
    }
    return fail(op, op_read(op, rp, op->reterr));
}

static enum next choose_next(struct exec *x, struct op *op)
{
    struct request *r = &op->run.request;
    hf_err e = conn_take(r, op->reterr);
    if (e)
        return unanswered(x, op, e);
    struct reply *rp = r->reply;
    r->reply = NULL;
    if (rp->type != REPLY_ERROR)
        return op->run.greeting ? take_hello(x, op, rp) : take_answer(x, op, rp);
    enum next next = refused(x, op, rp);
    reply_free(rp);
    return next;
}

static hf_err cancelled(struct op *op)
{
    return err_set(op->reterr, HF_ECANCELED, "cancelled before the request was sent");
}

/* ---- step by step ------------------------------------------------------------------------- */

static bool step(struct exec *x, struct op *op)
{
    if (op->id == OP_scan && x->cluster)
        return cluster_scan_step(x, op);
    STEP_BEGIN(op->run.at);
    op->run.acks = op->lane != LANE_PLAIN && topo_replicas(x->topo, op_route(op)) >= 0;
    do {
        if (op_stopped(op))
            return exec_done(op, cancelled(op));
        send(x, op);
        STEP_UNTIL(op->run.at, answered(op));
        op->run.next = choose_next(x, op);
        if (op->run.next == PAUSE) {
            STEP_UNTIL(op->run.at, resumed(op));
            op->run.next = AGAIN;
        }
        if (op->run.next == PARTS)
            STEP_UNTIL(op->run.at, slot_moves_step(x, op));
    } while (op->run.next == AGAIN);
    STEP_END(op->run.at);
}

const struct executor exec_script = {
    .step = step,
    .abilities = EXEC_BIT(EXEC_PRESENCE) | EXEC_BIT(EXEC_QUEUE) | EXEC_BIT(EXEC_SEVERAL)
                 | EXEC_BIT(EXEC_EDGES) | EXEC_BIT(EXEC_HELD) | EXEC_BIT(EXEC_NOTES),
};
