/* SPDX-License-Identifier: MIT
 * conn_io.c - the bytes of a connection: what is written, what is read, whose reply it is, and what
 * becomes of everything under way when it goes down.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "net/conn_impl.h"
#include "net/loop.h"

#define BATCH_REQUESTS 64

/* ---- going down ------------------------------------------------------------------------ */

/* Everything that left is in doubt; what left in part cannot have been executed. */
void conn_doubt_sent_locked(struct conn *cn)
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
void conn_fail_unsent_locked(struct conn *cn)
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
    conn_doubt_sent_locked(cn);
    log_to(cn->log, HF_LOG_INFO, "connection closed: %s", cn->why);
    if (cn->loop)
        loop_unwatch(cn->loop, cn, cn->link.stream->fd);
    link_close(&cn->link, cn->doubt);
    cn->up = cn->broken = cn->doubt = false;
    atomic_store(&cn->stands, 0);
    conn_fail_unsent_locked(cn);
}

/* Take the connection down as soon as nobody reads from it. */
void conn_break_locked(struct conn *cn, const char *why)
{
    mutex_assert_held(&cn->mu);
    if (!cn->up || cn->broken)
        return;
    snprintf(cn->why, sizeof cn->why, "%s", why);
    if (!cn->led) {
        conn_fail_locked(cn);
        return;
    }
    conn_doubt_sent_locked(cn);
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
        for (struct request *r = *queue_wanted(all[i]); r; r = r->next) {
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
        conn_break_locked(cn, "out of memory");
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
            conn_break_locked(cn, "the server sent something that it was not asked for");
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
                conn_break_locked(cn, "it refused a request that no caller waited for");
                return;
            }
        }
    }
}

/* What a read has brought: n bytes, or none yet, or the end. */
void conn_take_in_locked(struct conn *cn, ssize_t n, int why)
{
    mutex_assert_held(&cn->mu);
    if (cn->broken)
        return;
    if (n < 0) {
        conn_break_locked(cn, why == ECONNRESET || why == 0 ? "the server hung up" : strerror(why));
        return;
    }
    const struct request *head = cn->sent.head;
    if (n > 0) {
        if (resp_feed(cn->link.resp, cn->link.buffer, (size_t)n))
            conn_break_locked(cn, "a reply is larger than anything a lock server says");
        else
            deliver_locked(cn);
    }
    /* Also while bytes come: a reply that comes drop by drop is overdue as well. But what has come
     * is read first: it may have lain here while this process stood still. */
    if (head && head == cn->sent.head && clock_now_ms() - head->sent_ms > cn->silence_ms)
        conn_break_locked(cn, "the server does not answer");
}

/* Thread: the leader. Holds: mu, released while it sleeps. One round of reading. */
void conn_read_locked(struct conn *cn)
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
    conn_take_in_locked(cn, n, saved);
    tell_settled_locked(cn);
}

/* Thread: the leader. All that is there; never waits. */
void conn_read_now_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    struct stream *s = cn->link.stream;
    ssize_t n;
    do {
        n = s->ops->read_now(s, cn->link.buffer, sizeof cn->link.buffer);
        conn_take_in_locked(cn, n, errno);
        /* Of an encrypted stream there may be more inside, of which no descriptor tells. */
    } while (!cn->broken && (n == (ssize_t)sizeof cn->link.buffer || (n > 0 && cn->url->tls)));
    tell_settled_locked(cn);
}
