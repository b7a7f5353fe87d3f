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

#define BATCH_REQUESTS 64

/* More under way than this, and a newcomer's bytes wait for the next reply: requests then travel
 * together instead of one by one. Two batches keep the server busy while we read; and few requests
 * gain nothing from waiting for one another. */
#define BATCHES_UNDER_WAY  2
#define REQUESTS_UNDER_WAY 8

/* ---- going down ------------------------------------------------------------------------ */

/* Everything that left is in doubt; what left in part cannot have been executed. */
static void doubt_sent_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    struct request *r;
    while ((r = queue_take(&cn->sent))) {
        cn->doubt = true;
        request_finish(r, HF_EUNSURE, NULL);
    }
    while ((r = queue_take(&cn->answered)))
        request_finish(r, HF_EUNSURE, NULL);
    cn->under_way = 0;
    if ((r = cn->unsent.head) && r->written) {
        cn->doubt = true;
        r->written = 0;
        if (r->orphan)
            request_finish(queue_take(&cn->unsent), HF_ECONN, NULL);
    }
    cn->batches = 0;
}

/* What was to leave on a connection that does not stand any more, or not at all. */
static void fail_unsent_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    unsigned stands = conn_epoch(cn);
    struct request *next;
    for (struct request *r = cn->unsent.head; r; r = next) {
        next = r->next;
        bool late = (r->bound && r->bound != stands) || (r->only_up && !stands);
        if (late && queue_unlink(&cn->unsent, r))
            request_finish(r, HF_ECONN, NULL);
    }
}

/* Caller: the leader, or anybody while nobody leads. */
void conn_fail_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    doubt_sent_locked(cn);
    log_to(cn->log, HF_LOG_INFO, "connection closed: %s", cn->why);
    if (cn->loop)
        loop_unwatch(cn->loop, cn, cn->link.stream->fd);
    link_close(&cn->link, cn->doubt);
    cn->up = cn->broken = cn->doubt = false;
    atomic_store(&cn->stands, 0);
    fail_unsent_locked(cn);
}

/* Take the connection down as soon as nobody reads from it. */
static void break_locked(struct conn *cn, const char *why)
{
    mutex_assert_held(&cn->mu);
    if (!cn->up || cn->broken)
        return;
    snprintf(cn->why, sizeof cn->why, "%s", why);
    if (!cn->led) {
        conn_fail_locked(cn);
        return;
    }
    doubt_sent_locked(cn);
    cn->broken = true;
    atomic_store(&cn->stands, 0);
    stream_interrupt(cn->link.stream);
}

/* Whoever waits longest shall lead, if nobody does. */
void conn_pass_lead_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (cn->led)
        return;
    struct queue *all[] = { &cn->answered, &cn->sent, &cn->unsent };
    for (int i = 0; i < 3; i++) {
        for (struct request *r = all[i]->head; r; r = r->next) {
            if (!r->orphan && !r->task->loop) {
                park_wake(&r->park);
                return;
            }
        }
    }
    /* An event loop reads what comes. But it does not write what was left to the leader, nor can it
     * connect. */
    if (cn->up && cn->unsent.head)
        conn_flush_locked(cn);
    if (!cn->up)
        conn_connect_in_background_locked(cn);
}

void conn_drop(struct conn *cn, const char *why)
{
    mutex_lock(&cn->mu);
    break_locked(cn, why);
    conn_pass_lead_locked(cn);
    mutex_unlock(&cn->mu);
}

/* ---- under way ------------------------------------------------------------------------- */

/* What is written next ends with the question who has it: one for all of them, since on
 * one connection a later answer covers what came before. */
static void add_ack_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    int64_t now = clock_now_ms(), limit = cn->ack.fsync ? CONN_ACK_DISK_MS : CONN_ACK_MS;
    if (!cn->ack.replicas || !cn->unsent.head)
        return;
    for (struct request *r = cn->unsent.head; r; r = r->next) {
        if (!r->next && r->is_ack)
            return; /* it has its question already */
        if (!r->is_ack && (r->deadline_ms - now) / 2 < limit)
            limit = (r->deadline_ms - now) / 2;
    }
    struct request *ask = request_ack(atomic_load(cn->ack.replicas), cn->ack.fsync,
                                      limit > 1 ? limit : 1);
    if (ask)
        queue_add(&cn->unsent, ask);
    else
        break_locked(cn, "out of memory");
}

/* An event loop has to know when there is room again for what is left. */
static void watch_out_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    bool wanted = cn->unsent.head != NULL;
    if (!cn->loop || !cn->up || cn->broken || wanted == cn->watches_out)
        return;
    cn->watches_out = wanted;
    loop_watch(cn->loop, cn, cn->link.stream->fd, wanted, true);
}

/* Write as much of the queue as the socket takes; never waits. */
void conn_flush_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    add_ack_locked(cn);
    while (cn->unsent.head && cn->up && !cn->broken) {
        struct iovec iov[BATCH_REQUESTS];
        int n = 0;
        size_t want = 0;
        int64_t now = clock_now_ms();
        for (struct request *r = cn->unsent.head; r && n < BATCH_REQUESTS; r = r->next) {
            iov[n].iov_base = r->bytes + r->begin + r->written;
            iov[n].iov_len = r->len - r->written;
            want += iov[n++].iov_len;
        }
        ssize_t took = cn->link.stream->ops->writev(cn->link.stream, iov, n);
        if (took < 0) {
            break_locked(cn, strerror(errno));
            return;
        }
        size_t left = (size_t)took;
        struct request *r = NULL, *head;
        while (left > 0 && (head = cn->unsent.head)) {
            size_t rest = head->len - head->written;
            if (head->written == 0) {
                head->sent_ms = now;
                head->epoch = cn->epoch;
            }
            if (left < rest) {
                head->written += left;
                break;
            }
            left -= rest;
            head->written = head->len;
            r = queue_take(&cn->unsent);
            queue_add(&cn->sent, r);
            cn->under_way++;
        }
        if (r) {
            r->ends_batch = true;
            cn->batches++;
        }
        if ((size_t)took < want)
            break; /* the socket is full: the leader comes back to it */
    }
    watch_out_locked(cn);
}

static void settle_locked(struct conn *cn, struct request *r, struct reply *rp)
{
    mutex_assert_held(&cn->mu);
    if (!request_settle(r, HF_OK, rp))
        return;
    r->settled = true;
    queue_add(&cn->settled, r);
}

/* Thread: the leader. Holds: mu, released meanwhile. Whoever is woken submits its next request at
 * once: woken under the lock, it would find that taken and sleep again. */
static void tell_settled_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (!cn->settled.head)
        return;
    struct request *r;
    queue_move(&cn->settled, &cn->telling);
    mutex_unlock(&cn->mu);
    while ((r = queue_take(&cn->telling)))
        request_tell(r);
    mutex_lock(&cn->mu);
}

/* The replicas have, or have not, what was answered until now. */
static void acknowledge_locked(struct conn *cn, const struct reply *rp)
{
    mutex_assert_held(&cn->mu);
    struct request *r;
    while ((r = queue_take(&cn->answered))) {
        r->acked = request_acked(rp);
        settle_locked(cn, r, r->reply);
    }
}

/* Not its own answer, which is still to come. An error says more than that one can. */
static void take_prelude(struct request *r, struct reply *rp)
{
    r->preludes--;
    if (rp->type == REPLY_ERROR)
        r->reply = rp;
    else
        reply_free(rp);
}

/* Thread: the leader. Hand the replies in the parser to their requests. */
static void deliver_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    for (;;) {
        struct reply *rp;
        hf_err e = link_next(&cn->link, &rp);
        if (e) {
            break_locked(cn, e == HF_ENOMEM ? "out of memory" : resp_error(cn->link.resp));
            return;
        }
        if (!rp)
            return;
        if (cn->sent.head && cn->sent.head->preludes) {
            take_prelude(cn->sent.head, rp);
            continue;
        }
        struct request *r = queue_take(&cn->sent);
        if (r && r->reply) { /* what came before it was refused: that is the answer */
            reply_free(rp);
            rp = r->reply;
        }
        if (!r) {
            reply_free(rp);
            break_locked(cn, "the server sent something that it was not asked for");
            return;
        }
        cn->under_way--;
        if (r->ends_batch)
            cn->batches--;
        if (r->is_ack) {
            acknowledge_locked(cn, rp);
            settle_locked(cn, r, rp);
        } else if (cn->ack.replicas && request_needs_ack(rp)) {
            r->reply = rp;
            queue_add(&cn->answered, r);
        } else {
            bool refused = request_refused_orphan(r, rp);
            settle_locked(cn, r, rp);
            if (refused) { /* what undoes it comes before there is another connection */
                break_locked(cn, "it refused a request that no caller waited for");
                return;
            }
        }
    }
}

/* What a read has brought: n bytes, or none yet, or the end. */
static void take_in_locked(struct conn *cn, ssize_t n, int why)
{
    mutex_assert_held(&cn->mu);
    if (cn->broken)
        return;
    if (n < 0) {
        break_locked(cn, why == ECONNRESET || why == 0 ? "the server hung up" : strerror(why));
        return;
    }
    const struct request *head = cn->sent.head;
    if (n > 0) {
        if (resp_feed(cn->link.resp, cn->link.buffer, (size_t)n))
            break_locked(cn, "a reply is larger than anything a lock server says");
        else
            deliver_locked(cn);
    }
    /* Also while bytes come: a reply that comes drop by drop is overdue as well. But what has come
     * is read first: it may have lain here while this process stood still. */
    if (head && head == cn->sent.head && clock_now_ms() - head->sent_ms > cn->silence_ms)
        break_locked(cn, "the server does not answer");
}

/* Thread: the leader. Holds: mu, released while it sleeps. One round of reading. */
static void read_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    struct stream *s = cn->link.stream;
    bool full = cn->unsent.head && !cn->sent.head;
    bool spins = spin_begins(&cn->spin, cn->under_way == 1 && !cn->unsent.head);

    mutex_unlock(&cn->mu);
    if (full)
        stream_wait_writable(s);
    ssize_t n = spins ? spin_read(&cn->spin, s, cn->link.buffer, sizeof cn->link.buffer) : 0;
    if (n == 0)
        n = s->ops->read(s, cn->link.buffer, sizeof cn->link.buffer);
    int saved = errno;
    mutex_lock(&cn->mu);
    take_in_locked(cn, n, saved);
    tell_settled_locked(cn);
}

/* Thread: the leader. All that is there; never waits. */
static void read_now_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    struct stream *s = cn->link.stream;
    ssize_t n;
    do {
        n = s->ops->read_now(s, cn->link.buffer, sizeof cn->link.buffer);
        take_in_locked(cn, n, errno);
        /* Of an encrypted stream there may be more inside, of which no descriptor tells. */
    } while (!cn->broken && (n == (ssize_t)sizeof cn->link.buffer || (n > 0 && cn->url->tls)));
    tell_settled_locked(cn);
}

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
    for (struct request **p = &q->head; *p; p = &(*p)->next) {
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
        break_locked(cn, "the time limit passed");
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
    read_now_locked(cn);
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
        fail_unsent_locked(cn); /* r itself, perhaps: it may be gone then */
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
                read_locked(cn);
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
            read_now_locked(cn);
        else
            take_in_locked(cn, 0, 0); /* has it been silent for too long? */
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
    doubt_sent_locked(cn);
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
