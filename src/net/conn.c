/* SPDX-License-Identifier: MIT
 * conn.c - one connection to one server, shared by all threads and pipelined by itself.
 *
 * There is no I/O thread. A caller puts its request into the queue; if nobody leads, it leads: it
 * writes what is queued, reads, and hands each reply to the request that it belongs to, until its
 * own has come. So a lone caller pays for one write and one read, and no thread hop. Callers that
 * come meanwhile sleep until their reply is there or until they are asked to lead.
 *
 *      DOWN -> READY   [connect_locked]   the leader connects, logs in, greets
 *      READY -> DOWN   [conn_fail_locked] stream over, silent for too long, conn_drop()
 *
 * What left and was not answered when the connection goes down is in doubt (HF_EUNSURE); what did
 * not leave stays queued for the next connection. Nobody else decides that. A caller whose own time
 * is over leaves a stand-in behind that swallows its reply; the connection stays.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/epoch.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/conn_impl.h"

#define BATCH_REQUESTS 64
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000

/* More batches under way than this, and a newcomer's bytes wait for the next reply: requests then
 * travel together instead of one by one. Two keep the server busy while we read. */
#define BATCHES_UNDER_WAY 2

/* ---- going down ------------------------------------------------------------------------ */

/* Holds: mu. Everything that left is in doubt; what left in part cannot have been executed. */
static void doubt_sent_locked(struct conn *cn)
{
    struct request *r;
    while ((r = queue_take(&cn->sent))) {
        cn->doubt = true;
        request_finish(r, HF_EUNSURE, NULL);
    }
    while ((r = queue_take(&cn->answered)))
        request_finish(r, HF_EUNSURE, NULL);
    if ((r = cn->unsent.head) && r->written) {
        cn->doubt = true;
        r->written = 0;
        if (r->orphan)
            request_finish(queue_take(&cn->unsent), HF_ECONN, NULL);
    }
    cn->batches = 0;
}

/* Holds: mu. What was to leave on a connection that does not stand any more, or not at all. */
static void fail_bound_locked(struct conn *cn)
{
    unsigned stands = cn->up && !cn->broken ? cn->epoch : 0;
    struct request *next;
    for (struct request *r = cn->unsent.head; r; r = next) {
        next = r->next;
        if (r->bound && r->bound != stands && queue_unlink(&cn->unsent, r))
            request_finish(r, HF_ECONN, NULL);
    }
}

/* Holds: mu. Caller: the leader, or anybody while nobody leads. */
void conn_fail_locked(struct conn *cn)
{
    doubt_sent_locked(cn);
    log_to(cn->log, HF_LOG_INFO, "connection closed: %s", cn->why);
    link_close(&cn->link, cn->doubt);
    cn->up = cn->broken = cn->doubt = false;
    fail_bound_locked(cn);
}

/* Holds: mu. Take the connection down as soon as nobody reads from it. */
void conn_break_locked(struct conn *cn, const char *why)
{
    if (!cn->up || cn->broken)
        return;
    snprintf(cn->why, sizeof cn->why, "%s", why);
    if (!cn->led) {
        conn_fail_locked(cn);
        return;
    }
    doubt_sent_locked(cn);
    cn->broken = true;
    stream_interrupt(cn->link.stream);
}

/* Holds: mu. Whoever waits longest shall lead, if nobody does. */
void conn_pass_lead_locked(struct conn *cn)
{
    if (cn->led)
        return;
    struct queue *all[] = { &cn->answered, &cn->sent, &cn->unsent };
    for (int i = 0; i < 3; i++) {
        for (struct request *r = all[i]->head; r; r = r->next) {
            if (!r->orphan) {
                park_wake(&r->park);
                return;
            }
        }
    }
}

void conn_drop(struct conn *cn, const char *why)
{
    pthread_mutex_lock(&cn->mu);
    conn_break_locked(cn, why);
    conn_pass_lead_locked(cn);
    pthread_mutex_unlock(&cn->mu);
}

/* ---- coming up ------------------------------------------------------------------------- */

/* Thread: the leader. Holds: nothing. */
static hf_err bring_up(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    int64_t limit = clock_add(clock_now_ms(), cn->connect_timeout_ms);
    if (limit > deadline_ms)
        limit = deadline_ms;

    const struct url_host *host = cn->host;
    hf_err e = cn->hooks.prepare ? cn->hooks.prepare(cn->hooks.arg, limit, &host, reterr) : HF_OK;
    if (!e)
        e = link_open(&cn->link, cn->url, host, limit, reterr);
    if (!e && cn->hooks.greet) {
        e = cn->hooks.greet(cn->hooks.arg, &cn->link, limit, reterr);
        struct reply *stray = NULL;
        if (!e && (resp_next(cn->link.resp, &stray) || stray))
            e = err_set(reterr, HF_EPROTO, "the server said more than it was asked");
        reply_free(stray);
        if (e)
            link_close(&cn->link, false);
    }
    return e;
}

/* Holds: mu, released meanwhile. Caller leads. One attempt. */
static hf_err connect_locked(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    hf_error reason = { 0 };

    pthread_mutex_unlock(&cn->mu);
    hf_err e = bring_up(cn, deadline_ms, &reason);
    pthread_mutex_lock(&cn->mu);

    if (e) {
        if (reterr)
            *reterr = reason;
        snprintf(cn->why, sizeof cn->why, "%s", reason.message);
        int64_t step = cn->backoff_ms ? cn->backoff_ms : BACKOFF_MIN_MS;
        cn->retry_at_ms = clock_now_ms() + random_between(step / 2, step);
        cn->backoff_ms = 2 * step < BACKOFF_MAX_MS ? 2 * step : BACKOFF_MAX_MS;
    } else {
        cn->retry_at_ms = cn->backoff_ms = 0;
        cn->up = true;
        cn->epoch = epoch_next();
        atomic_store(&cn->notes, 0);
    }
    return e;
}

/* ---- under way ------------------------------------------------------------------------- */

/* Holds: mu. What is written next ends with the question who has it: one for all of them, since on
 * one connection a later answer covers what came before. */
static void add_ack_locked(struct conn *cn)
{
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
        conn_break_locked(cn, "out of memory");
}

/* Holds: mu. Write as much of the queue as the socket takes; never waits. */
void conn_flush_locked(struct conn *cn)
{
    add_ack_locked(cn);
    while (cn->unsent.head && cn->up && !cn->broken) {
        struct iovec iov[BATCH_REQUESTS];
        int n = 0;
        size_t want = 0;
        int64_t now = clock_now_ms();
        for (struct request *r = cn->unsent.head; r && n < BATCH_REQUESTS; r = r->next) {
            iov[n].iov_base = r->bytes + r->written;
            iov[n].iov_len = r->len - r->written;
            want += iov[n++].iov_len;
        }
        ssize_t took = cn->link.stream->ops->writev(cn->link.stream, iov, n);
        if (took < 0) {
            conn_break_locked(cn, strerror(errno));
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
        }
        if (r) {
            r->ends_batch = true;
            cn->batches++;
        }
        if ((size_t)took < want)
            return; /* the socket is full: the leader comes back to it */
    }
}

/* Holds: mu. The replicas have, or have not, what was answered until now. */
static void acknowledge_locked(struct conn *cn, const struct reply *rp)
{
    struct request *r;
    while ((r = queue_take(&cn->answered))) {
        r->acked = request_acked(rp);
        request_finish(r, HF_OK, r->reply);
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

/* Thread: the leader. Holds: mu. Hand the replies in the parser to their requests. */
static void deliver_locked(struct conn *cn)
{
    for (;;) {
        struct reply *rp;
        hf_err e = resp_next(cn->link.resp, &rp);
        if (e) {
            conn_break_locked(cn, e == HF_ENOMEM ? "out of memory" : resp_error(cn->link.resp));
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
            conn_break_locked(cn, "the server sent something that nobody asked for");
            return;
        }
        if (r->ends_batch)
            cn->batches--;
        if (r->is_ack) {
            acknowledge_locked(cn, rp);
            request_finish(r, HF_OK, rp);
        } else if (cn->ack.replicas && request_needs_ack(rp)) {
            r->reply = rp;
            queue_add(&cn->answered, r);
        } else {
            bool refused = request_refused_orphan(r, rp);
            request_finish(r, HF_OK, rp);
            if (refused) { /* its keepsake is settled before there is another connection */
                conn_break_locked(cn, "it refused a request that nobody waited for any more");
                return;
            }
        }
    }
}

/* Thread: the leader. Holds: mu, released while it sleeps. One round of reading. */
void conn_read_locked(struct conn *cn)
{
    struct stream *s = cn->link.stream;
    bool full = cn->unsent.head && !cn->sent.head;

    pthread_mutex_unlock(&cn->mu);
    if (full)
        stream_wait_writable(s);
    ssize_t n = s->ops->read(s, cn->link.buffer, sizeof cn->link.buffer);
    int saved = errno;
    pthread_mutex_lock(&cn->mu);

    if (cn->broken)
        return;
    if (n < 0) {
        conn_break_locked(cn, saved == ECONNRESET || saved == 0 ? "the server closed it"
                                                           : strerror(saved));
        return;
    }
    if (n == 0 && cn->sent.head && clock_now_ms() - cn->sent.head->sent_ms > cn->silence_ms)
        conn_break_locked(cn, "the server does not answer");
    if (n > 0) {
        if (resp_feed(cn->link.resp, cn->link.buffer, (size_t)n))
            conn_break_locked(cn, "a reply is larger than anything a lock server says");
        else
            deliver_locked(cn);
    }
}

static bool stopped(const struct call *call)
{
    return call->stop && atomic_load_explicit(call->stop, memory_order_relaxed);
}

/* Holds: mu. Put a stand-in for r into the queue; its reply will be thrown away. */
static bool leave_orphan_locked(struct queue *q, struct request *r)
{
    struct request *stand_in = mem_alloc(sizeof *stand_in);
    if (!stand_in)
        return false;
    *stand_in = *r;
    stand_in->orphan = true;
    stand_in->keepsake = NULL;
    r->reply = NULL; /* that of its prelude, if any, is the stand-in's */
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

/* Holds: mu. Give up r, whose time is over or whose owner wants no more. Others go on using the
 * connection, unless the request was one that must get through: then it needs a fresh one. */
static void withdraw_locked(struct conn *cn, struct request *r, const struct call *call)
{
    hf_err unsent = stopped(call) ? HF_ECANCELED : HF_ECONN;

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
    if (call->urgent || !leave_orphan_locked(whole ? &cn->sent : &cn->unsent, r)) {
        conn_break_locked(cn, "no reply in time");
        if (!request_done(r) && queue_unlink(&cn->unsent, r))
            request_finish(r, unsent, NULL); /* not all of it had left: it cannot have been executed */
        return;
    }
    snprintf(cn->why, sizeof cn->why, "no reply in time");
    request_finish(r, HF_EUNSURE, NULL);
}

/* Holds: mu, released meanwhile. Caller leads. Connect, not before the back-off is over. */
static void come_up_locked(struct conn *cn, struct request *r, const struct call *call,
                           hf_error *reason)
{
    int64_t now = clock_now_ms();
    if (now < cn->retry_at_ms && call->impatient) {
        if (queue_unlink(&cn->unsent, r))
            request_finish(r, HF_ECONN, NULL);
        return;
    }
    if (now < cn->retry_at_ms) {
        int64_t until = now + STREAM_TICK_MS < cn->retry_at_ms ? now + STREAM_TICK_MS
                                                               : cn->retry_at_ms;
        pthread_mutex_unlock(&cn->mu);
        clock_sleep_until(until);
        pthread_mutex_lock(&cn->mu);
        return;
    }
    hf_err e = connect_locked(cn, call->deadline_ms, reason);
    bool final = e != HF_ECONN && e != HF_EBUSY;
    if (e && (final || call->impatient) && queue_unlink(&cn->unsent, r))
        request_finish(r, e, NULL); /* trying again would not help */
}

/* Holds: mu. Lead until r is done. */
static void lead_locked(struct conn *cn, struct request *r, const struct call *call,
                        hf_error *reason)
{
    cn->led = true;
    while (!request_done(r)) {
        if (cn->broken)
            conn_fail_locked(cn);
        if (clock_now_ms() >= call->deadline_ms || stopped(call)) {
            withdraw_locked(cn, r, call);
        } else if (!cn->up) {
            come_up_locked(cn, r, call, reason);
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
static bool follow_locked(struct conn *cn, struct request *r, const struct call *call)
{
    if (cn->up && cn->batches < BATCHES_UNDER_WAY)
        conn_flush_locked(cn);
    int64_t until = call->deadline_ms;
    if (call->stop && until > clock_now_ms() + STREAM_TICK_MS)
        until = clock_now_ms() + STREAM_TICK_MS;
    pthread_mutex_unlock(&cn->mu);
    park_wait(&r->park, until);
    if (request_done(r))
        return true;
    pthread_mutex_lock(&cn->mu);
    if (!request_done(r) && (clock_now_ms() >= call->deadline_ms || stopped(call)))
        withdraw_locked(cn, r, call);
    return false;
}

static hf_err explain(struct conn *cn, hf_err e, const hf_error *reason, hf_error *reterr)
{
    pthread_mutex_lock(&cn->mu);
    if (e == HF_EUNSURE)
        err_set(reterr, e, "a request was sent and no reply came: %s", cn->why);
    else if (e == HF_ECANCELED)
        err_set(reterr, e, "cancelled before the request was sent");
    else if (reason->message[0] || cn->why[0])
        err_set(reterr, e, "%s", reason->message[0] ? reason->message : cn->why);
    else
        err_set(reterr, e, "the request could not be sent in time");
    pthread_mutex_unlock(&cn->mu);
    return e;
}

hf_err conn_call(struct conn *cn, int argc, const hf_bytes *argv, struct call *call,
                 hf_error *reterr)
{
    struct request r = { .deadline_ms = call->deadline_ms, .bound = call->epoch };
    hf_error reason = { 0 }; /* why we could not connect, if we were the one who tried */
    hf_err e = resp_format(argc, argv, &r.bytes, &r.len);
    if (!e && call->asking) { /* in one piece: nothing may come between the two */
        e = resp_precede("ASKING", &r.bytes, &r.len);
        r.preludes = 1;
    }
    if (e) {
        resp_format_free(r.bytes);
        return err_set(reterr, e, "%s", hf_err_text(e));
    }

    pthread_mutex_lock(&cn->mu);
    queue_add(&cn->unsent, &r);
    if (r.bound)
        fail_bound_locked(cn);
    bool served = false;
    while (!served && !request_done(&r)) {
        if (cn->led)
            served = follow_locked(cn, &r, call);
        else
            lead_locked(cn, &r, call, &reason);
    }
    if (!served) {
        conn_pass_lead_locked(cn);
        pthread_mutex_unlock(&cn->mu);
    }

    resp_format_free(r.bytes);
    call->reply = r.reply;
    call->sent_ms = r.sent_ms;
    call->acked = r.acked;
    call->epoch = r.epoch;
    return r.result ? explain(cn, r.result, &reason, reterr) : HF_OK;
}

/* ---- making, connecting, freeing ------------------------------------------------------------ */

hf_err conn_connect(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    hf_err e = HF_OK;
    pthread_mutex_lock(&cn->mu);
    if (!cn->up && !cn->led) {
        cn->led = true;
        e = connect_locked(cn, deadline_ms, reterr);
        cn->led = false;
    }
    pthread_mutex_unlock(&cn->mu);
    return e;
}

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
    cn->link.stop = hooks->stop;
    pthread_mutex_init(&cn->mu, NULL);
    queue_init(&cn->unsent);
    queue_init(&cn->sent);
    queue_init(&cn->answered);
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
    doubt_sent_locked(cn);
    while ((r = queue_take(&cn->unsent)))
        request_finish(r, HF_ECONN, NULL);
}

struct conn *conn_free(struct conn *cn)
{
    if (!cn)
        return NULL;
    drop_all(cn);
    link_clear(&cn->link);
    pthread_mutex_destroy(&cn->mu);
    mem_free(cn);
    return NULL;
}

struct conn *conn_forget(struct conn *cn)
{
    if (!cn)
        return NULL;
    drop_all(cn);
    link_clear(&cn->link);
    mem_free(cn);
    return NULL;
}

_Atomic uint64_t *conn_notes(struct conn *cn)
{
    return &cn->notes;
}

unsigned conn_epoch(struct conn *cn)
{
    pthread_mutex_lock(&cn->mu);
    unsigned epoch = cn->up && !cn->broken ? cn->epoch : 0;
    pthread_mutex_unlock(&cn->mu);
    return epoch;
}
