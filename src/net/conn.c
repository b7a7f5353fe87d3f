/* SPDX-License-Identifier: MIT
 * conn.c - one connection to one server, shared by all threads and pipelined by itself.
 *
 * There is no I/O thread. A caller puts its request into the queue; if nobody leads, it leads: it
 * writes what is queued, reads, and hands each reply to the request that it belongs to, until its
 * own has come. So a lone caller pays for one write and one read, and no thread hop. Callers that
 * come meanwhile sleep until their reply is there or until they are asked to lead.
 *
 *      DOWN -> READY   [connect_locked]   the leader connects, logs in, greets
 *      READY -> DOWN   [fail_locked]      stream over, reply in doubt, conn_drop()
 *
 * What left and was not answered when the connection goes down is in doubt (HF_EUNSURE); what did
 * not leave stays queued for the next connection. Nobody else decides that.
 */
#include "net/conn.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/park.h"
#include "base/random.h"
#include "net/servererr.h"
#include "net/stream.h"

#define READ_BYTES     (16 * 1024)
#define BATCH_REQUESTS 64
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000

/* More batches under way than this, and a newcomer's bytes wait for the next reply: requests then
 * travel together instead of one by one. Two keep the server busy while we read. */
#define BATCHES_UNDER_WAY 2

struct request {
    struct request *next;
    char           *bytes;
    size_t          len, written;
    int64_t         sent_ms;
    bool            ends_batch;
    hf_err          result; /* this and reply: valid once park_finished() */
    struct reply   *reply;
    struct park     park;
};

struct queue {
    struct request *head, **tail;
};

struct conn {
    const struct url      *url;
    const struct url_host *host;
    const struct log      *log;
    struct conn_hooks      hooks;
    int64_t                connect_timeout_ms;

    pthread_mutex_t mu;
    struct stream  *stream;   /* NULL: DOWN. Read only by the leader, outside mu */
    struct resp    *resp;     /* leader only */
    struct queue    unsent;   /* not a byte of them, or not all, has left */
    struct queue    sent;     /* in the order in which replies come */
    unsigned        batches;  /* written and not yet answered to the end */
    bool            led;      /* somebody leads */
    bool            broken;   /* the leader shall take the stream down when it comes back */
    char            why[256]; /* why it went down last, or did not come up */
    int64_t         retry_at_ms, backoff_ms;
    char            buffer[READ_BYTES];
};

/* ---- the two queues -------------------------------------------------------------------- */

static void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
}

static void queue_add(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
}

static struct request *queue_take(struct queue *q)
{
    struct request *r = q->head;
    if (r && !(q->head = r->next))
        q->tail = &q->head;
    return r;
}

static bool queue_unlink(struct queue *q, struct request *r)
{
    for (struct request **p = &q->head; *p; p = &(*p)->next) {
        if (*p == r) {
            if (!(*p = r->next))
                q->tail = p;
            return true;
        }
    }
    return false;
}

static bool done(const struct request *r)
{
    return park_finished(&r->park);
}

/* r, which is in no queue any more, may be gone when this returns: its owner was waiting for it. */
static void finish(struct request *r, hf_err result, struct reply *reply)
{
    r->result = result;
    r->reply = reply;
    park_finish(&r->park);
}

/* ---- going down ------------------------------------------------------------------------ */

/* Holds: mu. Everything that left is in doubt; what left in part cannot have been executed. */
static void doubt_sent_locked(struct conn *cn)
{
    struct request *r;
    while ((r = queue_take(&cn->sent)))
        finish(r, HF_EUNSURE, NULL);
    if (cn->unsent.head)
        cn->unsent.head->written = 0;
    cn->batches = 0;
}

/* Holds: mu. Caller: the leader, or anybody while nobody leads. */
static void fail_locked(struct conn *cn)
{
    bool doubt = cn->sent.head || (cn->unsent.head && cn->unsent.head->written);
    doubt_sent_locked(cn);
    cn->broken = false;
    if (!cn->stream)
        return;
    log_to(cn->log, HF_LOG_INFO, "connection closed: %s", cn->why);
    cn->stream->ops->close(cn->stream, doubt);
    cn->stream = NULL;
}

/* Holds: mu. Take the connection down as soon as nobody reads from it. */
static void break_locked(struct conn *cn, const char *why)
{
    if (!cn->stream)
        return;
    snprintf(cn->why, sizeof cn->why, "%s", why);
    if (!cn->led) {
        fail_locked(cn);
        return;
    }
    doubt_sent_locked(cn);
    cn->broken = true;
    stream_interrupt(cn->stream);
}

void conn_drop(struct conn *cn, const char *why)
{
    pthread_mutex_lock(&cn->mu);
    break_locked(cn, why);
    pthread_mutex_unlock(&cn->mu);
}

/* ---- coming up ------------------------------------------------------------------------- */

/* Thread: the leader. Holds: nothing; the stream is not shared yet. */
hf_err conn_exchange(struct conn *cn, int argc, const hf_bytes *argv, int64_t deadline_ms,
                     struct reply **ret, hf_error *reterr)
{
    char *bytes;
    size_t len, written = 0;
    hf_err e = resp_format(argc, argv, &bytes, &len);
    if (e)
        return err_set(reterr, e, "%s", hf_err_text(e));

    struct reply *reply = NULL;
    while (!e && !reply) {
        if (written < len) {
            struct iovec iov = { .iov_base = bytes + written, .iov_len = len - written };
            ssize_t n = cn->stream->ops->writev(cn->stream, &iov, 1);
            if (n == 0)
                stream_wait_writable(cn->stream);
            if (n >= 0) {
                written += (size_t)n;
                continue;
            }
        }
        ssize_t n = cn->stream->ops->read(cn->stream, cn->buffer, sizeof cn->buffer);
        if (n < 0 && errno == EKEYREJECTED)
            e = err_set(reterr, HF_EAUTH,
                        "the server does not accept our certificate: give ?cert= and ?key=");
        else if (n < 0)
            e = err_set(reterr, HF_ECONN, "the server closed the connection during login: %s",
                        strerror(errno));
        else if (n > 0 && (e = resp_feed(cn->resp, cn->buffer, (size_t)n)) == HF_OK)
            e = resp_next(cn->resp, &reply);
        else if (clock_now_ms() >= deadline_ms)
            e = err_set(reterr, HF_ECONN, "the server accepted the connection but does not answer");
        if (e == HF_EPROTO)
            err_set(reterr, HF_EPROTO, "this is no Redis or Valkey server: %s",
                    resp_error(cn->resp));
    }
    resp_format_free(bytes);
    *ret = reply;
    return e;
}

/* One command of the login whose reply must be no error. */
static hf_err login_step(struct conn *cn, int argc, const hf_bytes *argv, int64_t deadline_ms,
                         hf_error *reterr)
{
    struct reply *rp;
    hf_err e = conn_exchange(cn, argc, argv, deadline_ms, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR) {
        server_judge(rp, &e);
        server_error(rp, e, reterr);
    }
    reply_free(rp);
    return e;
}

static hf_err login(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    const struct url *u = cn->url;
    hf_err e = HF_OK;

    if (u->user && *u->user) /* one without a password logs in with an empty one */
        e = login_step(cn, 3,
                       (hf_bytes[]){ hf_str("AUTH"), hf_str(u->user),
                                     hf_str(u->password ? u->password : "") },
                       deadline_ms, reterr);
    else if (u->password)
        e = login_step(cn, 2, (hf_bytes[]){ hf_str("AUTH"), hf_str(u->password) }, deadline_ms,
                       reterr);
    if (!e && u->db > 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", u->db);
        e = login_step(cn, 2, (hf_bytes[]){ hf_str("SELECT"), hf_str(db) }, deadline_ms, reterr);
    }
    if (!e && cn->hooks.greet)
        e = cn->hooks.greet(cn->hooks.arg, cn, deadline_ms, reterr);
    return e;
}

/* Thread: the leader. Holds: nothing. */
static hf_err bring_up(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    int64_t limit = clock_add(clock_now_ms(), cn->connect_timeout_ms);
    if (limit > deadline_ms)
        limit = deadline_ms;

    hf_err e = cn->hooks.prepare ? cn->hooks.prepare(cn->hooks.arg, limit, reterr) : HF_OK;
    if (!e)
        e = stream_open(cn->url, cn->host, limit, &cn->stream, reterr);
    if (e)
        return e;
    resp_reset(cn->resp);
    e = login(cn, limit, reterr);
    if (e) {
        cn->stream->ops->close(cn->stream, 0);
        cn->stream = NULL;
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
        cn->broken = false;
    }
    return e;
}

/* ---- under way ------------------------------------------------------------------------- */

/* Holds: mu. Write as much of the queue as the socket takes; never waits. */
static void flush_locked(struct conn *cn)
{
    while (cn->unsent.head && cn->stream && !cn->broken) {
        struct iovec iov[BATCH_REQUESTS];
        int n = 0;
        size_t want = 0;
        int64_t now = clock_now_ms();
        for (struct request *r = cn->unsent.head; r && n < BATCH_REQUESTS; r = r->next) {
            iov[n].iov_base = r->bytes + r->written;
            iov[n].iov_len = r->len - r->written;
            want += iov[n++].iov_len;
        }
        ssize_t took = cn->stream->ops->writev(cn->stream, iov, n);
        if (took < 0) {
            break_locked(cn, strerror(errno));
            return;
        }
        size_t left = (size_t)took;
        struct request *r = NULL, *head;
        while (left > 0 && (head = cn->unsent.head)) {
            size_t rest = head->len - head->written;
            if (head->written == 0)
                head->sent_ms = now;
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

/* Thread: the leader. Holds: mu. Hand the replies in the parser to their requests. */
static void deliver_locked(struct conn *cn)
{
    for (;;) {
        struct reply *rp;
        hf_err e = resp_next(cn->resp, &rp);
        if (e) {
            break_locked(cn, e == HF_ENOMEM ? "out of memory" : resp_error(cn->resp));
            return;
        }
        if (!rp)
            return;
        struct request *r = queue_take(&cn->sent);
        if (!r) {
            reply_free(rp);
            break_locked(cn, "the server sent something that nobody asked for");
            return;
        }
        if (r->ends_batch)
            cn->batches--;
        finish(r, HF_OK, rp);
    }
}

/* Thread: the leader. Holds: mu, released while it sleeps. One round of reading. */
static void read_locked(struct conn *cn)
{
    struct stream *s = cn->stream;
    bool full = cn->unsent.head && !cn->sent.head;

    pthread_mutex_unlock(&cn->mu);
    if (full)
        stream_wait_writable(s);
    ssize_t n = s->ops->read(s, cn->buffer, sizeof cn->buffer);
    int saved = errno;
    pthread_mutex_lock(&cn->mu);

    if (cn->broken)
        return;
    if (n < 0) {
        break_locked(cn, saved == ECONNRESET || saved == 0 ? "the server closed it"
                                                           : strerror(saved));
        return;
    }
    if (n > 0) {
        if (resp_feed(cn->resp, cn->buffer, (size_t)n))
            break_locked(cn, "a reply is larger than anything a lock server says");
        else
            deliver_locked(cn);
    }
}

static bool stopped(const struct call *call)
{
    return call->stop && atomic_load_explicit(call->stop, memory_order_relaxed);
}

/* Holds: mu. Give up r, whose time is over or whose owner wants no more. */
static void withdraw_locked(struct conn *cn, struct request *r, const struct call *call)
{
    hf_err unsent = stopped(call) ? HF_ECANCELED : HF_ECONN;

    if (r->written > 0)
        break_locked(cn, "no reply in time"); /* the server must not find it in our socket later */
    if (!done(r) && queue_unlink(&cn->unsent, r))
        finish(r, unsent, NULL); /* not all of it had left: it cannot have been executed */
}

/* Holds: mu, released meanwhile. Caller leads. Connect, not before the back-off is over. */
static void come_up_locked(struct conn *cn, struct request *r, const struct call *call,
                           hf_error *reason)
{
    int64_t now = clock_now_ms();
    if (now < cn->retry_at_ms) {
        int64_t until = now + STREAM_TICK_MS < cn->retry_at_ms ? now + STREAM_TICK_MS
                                                               : cn->retry_at_ms;
        pthread_mutex_unlock(&cn->mu);
        clock_sleep_until(until);
        pthread_mutex_lock(&cn->mu);
        return;
    }
    hf_err e = connect_locked(cn, call->deadline_ms, reason);
    if (e && e != HF_ECONN && queue_unlink(&cn->unsent, r))
        finish(r, e, NULL); /* trying again would not help */
}

/* Holds: mu. Whoever waits longest shall lead, if nobody does. */
static void pass_lead_locked(struct conn *cn)
{
    struct request *next = cn->sent.head ? cn->sent.head : cn->unsent.head;
    if (next && !cn->led)
        park_wake(&next->park);
}

/* Holds: mu. Lead until r is done. */
static void lead_locked(struct conn *cn, struct request *r, const struct call *call,
                        hf_error *reason)
{
    cn->led = true;
    while (!done(r)) {
        if (cn->broken)
            fail_locked(cn);
        if (clock_now_ms() >= call->deadline_ms || stopped(call)) {
            withdraw_locked(cn, r, call);
        } else if (!cn->stream) {
            come_up_locked(cn, r, call, reason);
        } else {
            flush_locked(cn);
            if (cn->stream && !cn->broken)
                read_locked(cn);
        }
    }
    if (cn->broken)
        fail_locked(cn);
    cn->led = false;
}

/* Holds: mu, released while it sleeps. Somebody else leads: wait for the reply or the lead. True
 * when the reply came; mu is not held then: a caller that was served has no business with it. */
static bool follow_locked(struct conn *cn, struct request *r, const struct call *call)
{
    if (cn->stream && cn->batches < BATCHES_UNDER_WAY)
        flush_locked(cn);
    int64_t until = call->deadline_ms;
    if (call->stop && until > clock_now_ms() + STREAM_TICK_MS)
        until = clock_now_ms() + STREAM_TICK_MS;
    pthread_mutex_unlock(&cn->mu);
    park_wait(&r->park, until);
    if (done(r))
        return true;
    pthread_mutex_lock(&cn->mu);
    if (!done(r) && (clock_now_ms() >= call->deadline_ms || stopped(call)))
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
    struct request r = { 0 };
    hf_error reason = { 0 }; /* why we could not connect, if we were the one who tried */
    hf_err e = resp_format(argc, argv, &r.bytes, &r.len);
    if (e)
        return err_set(reterr, e, "%s", hf_err_text(e));

    pthread_mutex_lock(&cn->mu);
    queue_add(&cn->unsent, &r);
    bool served = false;
    while (!served && !done(&r)) {
        if (cn->led)
            served = follow_locked(cn, &r, call);
        else
            lead_locked(cn, &r, call, &reason);
    }
    if (!served) {
        pass_lead_locked(cn);
        pthread_mutex_unlock(&cn->mu);
    }

    resp_format_free(r.bytes);
    call->reply = r.reply;
    call->sent_ms = r.sent_ms;
    return r.result ? explain(cn, r.result, &reason, reterr) : HF_OK;
}

hf_err conn_connect(struct conn *cn, int64_t deadline_ms, hf_error *reterr)
{
    hf_err e = HF_OK;
    pthread_mutex_lock(&cn->mu);
    if (!cn->stream && !cn->led) {
        cn->led = true;
        e = connect_locked(cn, deadline_ms, reterr);
        cn->led = false;
    }
    pthread_mutex_unlock(&cn->mu);
    return e;
}

struct conn *conn_new(const struct url *u, const struct url_host *host, int64_t connect_timeout_ms,
                      const struct conn_hooks *hooks, const struct log *log)
{
    struct conn *cn = mem_zalloc(sizeof *cn);
    if (!cn)
        return NULL;
    cn->resp = resp_new();
    if (!cn->resp) {
        mem_free(cn);
        return NULL;
    }
    cn->url = u;
    cn->host = host;
    cn->log = log;
    cn->hooks = *hooks;
    cn->connect_timeout_ms = connect_timeout_ms;
    pthread_mutex_init(&cn->mu, NULL);
    queue_init(&cn->unsent);
    queue_init(&cn->sent);
    return cn;
}

struct conn *conn_free(struct conn *cn)
{
    if (!cn)
        return NULL;
    if (cn->stream)
        cn->stream->ops->close(cn->stream, 0);
    resp_free(cn->resp);
    pthread_mutex_destroy(&cn->mu);
    mem_free(cn);
    return NULL;
}

struct conn *conn_forget(struct conn *cn)
{
    if (!cn)
        return NULL;
    resp_free(cn->resp);
    mem_free(cn); /* the stream is left: its descriptor is closed already, its lock may be taken */
    return NULL;
}
