/* SPDX-License-Identifier: MIT
 * conn.c - one connection to one server, shared by all threads and pipelined by itself.
 *
 * There is no I/O thread. A request is submitted, that is, put into the queue, and written if few
 * are under way. A thread that waits for its reply leads, if nobody does: it writes what is queued,
 * reads, and hands each reply to the request that it belongs to, until its own has come. So a lone
 * caller pays for one write and one read, and no thread hop. Callers that come meanwhile sleep
 * until their reply is there or until they are asked to lead. An event loop leads for a moment,
 * whenever there is something to read (conn_serve()).
 *
 *      DOWN -> READY   [conn_up.c]        the leader connects, logs in, greets
 *      READY -> DOWN   [conn_fail_locked] stream over, silent for too long, conn_drop()
 *
 * What left and was not answered when the connection goes down is in doubt (HF_EUNSURE); what did
 * not leave stays queued for the next connection. Nobody else decides that. A request that is
 * withdrawn leaves a stand-in behind that swallows its reply; the connection stays.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/conn_impl.h"
#include "net/loop.h"

/* More under way than this, and a newcomer's bytes wait for the next reply: requests then travel
 * together instead of one by one. Two batches keep the server busy while we read; and few requests
 * gain nothing from waiting for one another. */
#define BATCHES_UNDER_WAY  2
#define REQUESTS_UNDER_WAY 8

void conn_drop(struct conn *cn, const char *why)
{
    mutex_lock(&cn->mu);
    conn_break_locked(cn, why);
    conn_pass_lead_locked(cn);
    mutex_unlock(&cn->mu);
}

/* ---- giving up ---------------------------------------------------------------------------- */

static bool stopped(const struct request *r)
{
    return r->stop && atomic_load_explicit(r->stop, memory_order_relaxed);
}

/* Holds: the connection's mu. Put a stand-in for r into the queue; its reply will be thrown
 * away. */
static bool leave_orphan_locked(struct queue *q, struct request *r)
{
    struct request *stand_in = mem_alloc(sizeof *stand_in);
    if (!stand_in)
        return false;
    *stand_in = *r;
    stand_in->orphan = true;
    stand_in->task = NULL;
    r->on_settled = NULL; /* this, and the reply of its prelude, if any, are the stand-in's */
    r->reply = NULL;
    stand_in->bytes = NULL;
    if (r->written < r->len) { /* the rest of it must still be written */
        stand_in->bytes = r->bytes;
        r->bytes = NULL;
    }
    for (struct request **p = queue_wanted(q); *p; p = &(*p)->next) {
        if (*p == r) {
            *p = stand_in;
            if (!r->next)
                q->tail = &stand_in->next;
            return true;
        }
    }
    mem_free(stand_in);
    return false;
}

/* Give up r. Others go on using the connection, unless the request was one that must get
 * through: then it needs a fresh one. */
static void withdraw_locked(struct conn *cn, struct request *r, hf_err unsent)
{
    mutex_assert_held(&cn->mu);
    if (r->written == 0) {
        queue_unlink(&cn->unsent, r);
        request_finish(r, unsent, NULL);
        return;
    }
    bool whole = r->written == r->len;
    if (queue_unlink(&cn->answered, r)) { /* done, but who has it is not known */
        request_finish(r, HF_EUNSURE, NULL);
        snprintf(cn->why, sizeof cn->why, "the replicas' acknowledgement did not come in time");
        return;
    }
    if (r->urgent || !leave_orphan_locked(whole ? &cn->sent : &cn->unsent, r)) {
        conn_break_locked(cn, "the time limit passed");
        if (!request_done(r) && queue_unlink(&cn->unsent, r)) /* not all had left: not executed */
            request_finish(r, unsent, NULL);
        return;
    }
    snprintf(cn->why, sizeof cn->why, "the time limit passed");
    request_finish(r, HF_EUNSURE, NULL);
}

static void stop_leading_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (cn->broken)
        conn_fail_locked(cn);
    cn->led = false;
    conn_pass_lead_locked(cn);
}

/* The reply may lie here, unread, because this process stood still. And an event loop
 * comes only when there is something: that there has been nothing for too long is noticed by who
 * gives up. */
static void read_what_is_there_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (cn->led || !cn->up || !cn->sent.head)
        return;
    cn->led = true;
    conn_read_now_locked(cn);
    stop_leading_locked(cn);
}

/* Holds: mu, released meanwhile. Its result is there, and the leader is about to tell. */
static void await_settled_locked(struct conn *cn, struct request *r)
{
    mutex_assert_held(&cn->mu);
    mutex_unlock(&cn->mu);
    while (!request_done(r))
        park_wait(&r->park, clock_now_ms() + STREAM_TICK_MS);
    mutex_lock(&cn->mu);
}

void conn_withdraw(struct request *r, hf_err unsent)
{
    struct conn *cn = r->conn;
    mutex_lock(&cn->mu);
    if (!request_done(r))
        read_what_is_there_locked(cn);
    if (r->settled) {
        await_settled_locked(cn, r);
    } else if (!request_done(r)) {
        withdraw_locked(cn, r, unsent);
        conn_unwanted_locked(cn);
    }
    conn_pass_lead_locked(cn);
    mutex_unlock(&cn->mu);
}

static hf_err explain(struct conn *cn, hf_err e, hf_error *reterr)
{
    mutex_lock(&cn->mu);
    if (e == HF_EUNSURE)
        err_set(reterr, e, "%s did not answer a request: %s",
                cn->where[0] ? cn->where : "the server", cn->why);
    else if (e == HF_ECANCELED)
        err_set(reterr, e, "cancelled before the request was sent");
    else if (e == HF_ENOMEM || e == HF_EINVAL)
        err_set(reterr, e, "%s", hf_err_text(e));
    else
        err_set(reterr, e, "%s", cn->why[0] ? cn->why : "the request could not be sent in time");
    mutex_unlock(&cn->mu);
    return e;
}

hf_err conn_take(struct request *r, hf_error *reterr)
{
    struct conn *cn = r->conn;
    for (struct request **p = &r->task->flight; *p; p = &(*p)->next_in_flight) {
        if (*p == r) {
            *p = r->next_in_flight;
            break;
        }
    }
    if (r->leads) {
        r->leads = false;
        mutex_lock(&cn->mu);
        stop_leading_locked(cn);
        mutex_unlock(&cn->mu);
    }
    mem_free(r->bytes);
    r->bytes = NULL;
    return r->result ? explain(cn, r->result, reterr) : HF_OK;
}

/* ---- submitting --------------------------------------------------------------------------- */

/* The first task of an event loop on this connection: from now on that watches it. */
static void join_loop_locked(struct conn *cn, struct loop *lp)
{
    mutex_assert_held(&cn->mu);
    if (cn->loop)
        return;
    cn->loop = lp;
    if (cn->up && !cn->broken)
        loop_watch(lp, cn, cn->link.stream->fd, false, false);
}

/* Write what was just queued, or let it travel with others. */
static void write_or_wait_locked(struct conn *cn, struct loop *lp, bool now)
{
    mutex_assert_held(&cn->mu);
    bool was_up = cn->up;
    bool later = was_up && (cn->broken || (lp && loop_defers(lp, cn)));
    bool few = cn->batches < BATCHES_UNDER_WAY || cn->under_way < REQUESTS_UNDER_WAY;
    if (was_up && !later && (few || now))
        conn_flush_locked(cn);
    if (!cn->up && (lp || was_up)) /* perhaps since that write: others are queued as well */
        conn_pass_lead_locked(cn); /* to nobody, or to a thread that connects */
}

/* Who is done before it has left, or was never under way. */
static void fail_at_once(struct request *r, hf_err e)
{
    if (!r->task)
        r->orphan = true;
    request_finish(r, e, NULL);
}

void conn_submit(struct conn *cn, struct request *r, struct command *cmd, struct task *t)
{
    r->conn = cn;
    r->task = t;
    r->park = (struct park){ 0 };
    r->reply = NULL;
    r->written = 0;
    r->ends_batch = r->is_ack = r->leads = r->settled = false;
    r->orphan = !t;
    r->sent_ms = 0;
    r->acked = 0;
    r->preludes = r->asking; /* in one piece: nothing may come between the two */
    if (t) {
        r->next_in_flight = t->flight;
        t->flight = r;
    }
    hf_err e = cmd->bytes ? HF_OK : HF_ENOMEM;
    if (!e && r->asking)
        e = command_precede(cmd, "ASKING");
    r->bytes = cmd->bytes;
    r->begin = cmd->begin;
    r->len = cmd->len;
    *cmd = (struct command){ 0 };
    if (e) {
        fail_at_once(r, e);
        return;
    }
    struct loop *lp = t ? t->loop : NULL;
    bool now = r->only_up;
    mutex_lock(&cn->mu);
    if (lp)
        join_loop_locked(cn, lp);
    if (cn->led || cn->sent.head)
        spin_crowded(&cn->spin);
    queue_add(&cn->unsent, r);
    if (r->bound || r->only_up)
        conn_fail_unsent_locked(cn); /* r itself, perhaps: it may be gone then */
    if (cn->unsent.head)
        write_or_wait_locked(cn, lp, now);
    mutex_unlock(&cn->mu);
}

void conn_flush(struct conn *cn)
{
    mutex_lock(&cn->mu);
    if (cn->up && !cn->broken)
        conn_flush_locked(cn);
    if (!cn->up)
        conn_pass_lead_locked(cn);
    mutex_unlock(&cn->mu);
}

/* ---- waiting ------------------------------------------------------------------------------ */

static bool waited_enough(const struct request *r, int64_t until_ms)
{
    return clock_now_ms() >= until_ms || stopped(r);
}

/* Lead until r is done, or its task has something else to do. */
static void lead_locked(struct conn *cn, struct request *r, int64_t until_ms)
{
    mutex_assert_held(&cn->mu);
    struct limit lim = { .at_ms = r->deadline_ms, .stop = r->stop };
    cn->led = true;
    while (!request_done(r)) {
        if (cn->broken)
            conn_fail_locked(cn);
        if (waited_enough(r, until_ms))
            break;
        if (!cn->up) {
            conn_come_up_locked(cn, r, &lim);
        } else {
            conn_flush_locked(cn);
            if (!cn->broken)
                conn_read_locked(cn);
        }
    }
    if (cn->broken)
        conn_fail_locked(cn);
    cn->led = false;
}

/* Holds: mu, released while it sleeps. Somebody else leads: wait for the reply or the lead. True
 * when the reply came; mu is not held then: a caller that was served has no business with it. */
static bool follow_locked(struct conn *cn, struct request *r, int64_t until_ms)
{
    mutex_assert_held(&cn->mu);
    if (r->stop)
        until_ms = clock_earlier(until_ms, clock_now_ms() + STREAM_TICK_MS);
    mutex_unlock(&cn->mu);
    park_wait(&r->park, until_ms);
    if (request_done(r))
        return true;
    mutex_lock(&cn->mu);
    return false;
}

void conn_wait(struct request *r, int64_t until_ms)
{
    struct conn *cn = r->conn;
    mutex_lock(&cn->mu);
    while (!request_done(r) && !waited_enough(r, until_ms)) {
        if (!cn->led)
            lead_locked(cn, r, until_ms);
        else if (follow_locked(cn, r, until_ms))
            return;
    }
    conn_pass_lead_locked(cn);
    mutex_unlock(&cn->mu);
}

/* ---- several connections at once, and event loops ----------------------------------------- */

/* Connecting would keep us from reading the others: a thread does it. */
bool conn_try_lead(struct request *r, struct pollfd *ret)
{
    struct conn *cn = r->conn;
    mutex_lock(&cn->mu);
    if (!cn->up && !cn->led)
        conn_connect_in_background_locked(cn);
    if (!r->leads && cn->up)
        r->leads = !cn->led;
    cn->led |= r->leads;
    if (r->leads)
        *ret = (struct pollfd){ cn->link.stream->fd, cn->unsent.head ? POLLIN | POLLOUT : POLLIN,
                                0 };
    mutex_unlock(&cn->mu);
    return r->leads;
}

/* Caller leads. */
static void attend_locked(struct conn *cn, bool readable)
{
    mutex_assert_held(&cn->mu);
    if (cn->broken)
        conn_fail_locked(cn);
    if (cn->up) {
        conn_flush_locked(cn);
        if (readable && !cn->broken)
            conn_read_now_locked(cn);
        else
            conn_take_in_locked(cn, 0, 0); /* has it been silent for too long? */
    }
    if (cn->broken)
        conn_fail_locked(cn);
}

void conn_lead_once(struct request *r, bool readable)
{
    struct conn *cn = r->conn;
    mutex_lock(&cn->mu);
    attend_locked(cn, readable);
    if (!cn->up) {
        r->leads = false;
        stop_leading_locked(cn);
    }
    mutex_unlock(&cn->mu);
}

void conn_serve(struct conn *cn)
{
    mutex_lock(&cn->mu);
    if (!cn->led && cn->up) {
        cn->led = true;
        attend_locked(cn, true);
        cn->led = false;
        conn_pass_lead_locked(cn);
    } else if (cn->up && !cn->broken && cn->watches_out) {
        conn_flush_locked(cn); /* whoever leads reads it; but may sleep until there is something */
    }
    mutex_unlock(&cn->mu);
}

/* ---- one blocking call -------------------------------------------------------------------- */

/* On the heap: in a forked child, whose copy of this thread is gone, the connection still knows
 * it. */
hf_err conn_call(struct conn *cn, int argc, const hf_bytes *argv, struct exchange *call,
                 hf_error *reterr)
{
    struct task t = { .due_ms = CLOCK_NEVER };
    struct command cmd;
    struct request *r = mem_zalloc(sizeof *r);
    hf_err e = r ? command_make(&cmd, argc, argv) : HF_ENOMEM;
    if (e) {
        mem_free(r);
        return err_set(reterr, e, "%s", hf_err_text(e));
    }
    r->deadline_ms = call->deadline_ms;
    r->stop = call->stop;
    r->only_up = call->only_up;
    r->impatient = call->impatient;
    r->heap = true;
    conn_submit(cn, r, &cmd, &t);
    while (!request_done(r) && !waited_enough(r, call->deadline_ms))
        task_wait(&t, call->deadline_ms);
    if (!request_done(r))
        conn_withdraw(r, stopped(r) ? HF_ECANCELED : HF_ECONN);
    call->reply = r->reply;
    call->sent_ms = r->sent_ms;
    e = conn_take(r, reterr);
    mem_free(r);
    return e;
}

/* ---- making and freeing ------------------------------------------------------------------- */

struct conn *conn_new(const struct url *u, const struct url_host *host, int64_t connect_timeout_ms,
                      int64_t silence_ms, const struct conn_hooks *hooks, const struct log *log)
{
    struct conn *cn = mem_zalloc(sizeof *cn);
    if (!cn)
        return NULL;
    if (link_init(&cn->link) < 0) {
        mem_free(cn);
        return NULL;
    }
    cn->url = u;
    cn->host = host;
    cn->log = log;
    cn->hooks = *hooks;
    cn->connect_timeout_ms = connect_timeout_ms;
    cn->silence_ms = silence_ms;
    mutex_init(&cn->mu, MUTEX_CONN);
    queue_init(&cn->unsent);
    queue_init(&cn->sent);
    queue_init(&cn->answered);
    queue_init(&cn->settled);
    queue_init(&cn->telling);
    spin_init(&cn->spin, u->spin);
    task_conn_begins();
    return cn;
}

void conn_acknowledge(struct conn *cn, const struct conn_ack *ack)
{
    cn->ack = *ack;
}

/* Orphans only: nobody is in a call. */
static void drop_all(struct conn *cn)
{
    struct request *r;
    mutex_lock(&cn->mu);
    conn_doubt_sent_locked(cn);
    while ((r = queue_take(&cn->unsent)))
        request_finish(r, HF_ECONN, NULL);
    mutex_unlock(&cn->mu);
}

struct conn *conn_free(struct conn *cn)
{
    if (!cn)
        return NULL;
    conn_stop_connecting(cn);
    drop_all(cn);
    if (cn->loop && cn->up)
        loop_unwatch(cn->loop, cn, cn->link.stream->fd);
    link_clear(&cn->link);
    mutex_destroy(&cn->mu);
    mem_free(cn);
    task_conn_ends();
    return NULL;
}

/* Whoever waited for it is gone with its thread: only memory is left. */
static void forget_all(struct queue *q)
{
    struct request *r;
    while ((r = queue_take(q))) {
        reply_free(r->reply);
        mem_free(r->bytes);
        if (r->orphan || r->heap)
            mem_free(r);
    }
}

struct conn *conn_forget(struct conn *cn)
{
    if (!cn)
        return NULL;
    forget_all(&cn->unsent);
    forget_all(&cn->sent);
    forget_all(&cn->answered);
    forget_all(&cn->settled);
    forget_all(&cn->telling);
    link_clear(&cn->link);
    mem_free(cn);
    task_conn_ends();
    return NULL;
}

_Atomic uint64_t *conn_notes(struct conn *cn)
{
    return &cn->notes;
}

unsigned conn_epoch(struct conn *cn)
{
    return atomic_load(&cn->stands);
}
