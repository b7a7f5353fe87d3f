/* SPDX-License-Identifier: MIT
 * request.h - one request on a shared connection: submitted, and completed by whoever reads its
 * reply.
 *
 * The owner fills in the first part, submits it (conn_submit()), and finds the last part filled in
 * once request_done(). It never waits itself; see task.h for who does. A request that was given up
 * (conn_withdraw()) is done as well: a stand-in stays on the connection and swallows the reply.
 */
#ifndef NET_REQUEST_H
#define NET_REQUEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/park.h"
#include "net/resp.h"
#include "net/task.h"

struct conn;
struct request;

/* Something that must not be forgotten when a request got no answer, though nobody may wait for it
 * any more. */
struct on_settled {
    /* Called once, before there is another connection. Not settled: it was executed, or may still
     * be, and no answer will come; or nobody was there to hear that it was refused. Thread: any.
     * The connection is locked: it must not be used. */
    void (*over)(struct on_settled *s, bool settled);
};

struct request {
    /* The owner's. */
    int64_t  deadline_ms; /* of whoever waits: to connect, and for replicas */
    const atomic_int *stop; /* not NULL: whoever waits wants no more soon after *stop is not 0 */
    unsigned bound;     /* it may leave on this connection only (conn_epoch()); 0: on any */
    bool     only_up;   /* never wait for a connection: HF_ECONN when there is none */
    bool     impatient; /* one attempt to connect, not as many as there is time for */
    bool     urgent;    /* given up: close the connection, a fresh one may do better */
    bool     asking;    /* behind an ASKING: a cluster's slot is being moved to this server */
    struct on_settled *on_settled; /* told what became of it; may be NULL */

    /* Out, once request_done(). */
    hf_err        result;  /* HF_EUNSURE: it left, and no reply came; HF_ECONN: it never left */
    struct reply *reply;   /* yours to free; may be an error of the server */
    int64_t       sent_ms; /* just before the first byte left */
    unsigned      epoch;   /* on which connection */
    int           acked;   /* how many replicas have it; with conn_acknowledge() */

    /* The connection's. */
    struct conn    *conn;
    struct task    *task;  /* who waits for it; NULL: nobody */
    struct request *next;  /* in one of its queues */
    struct request *next_in_flight; /* of the task */
    char           *bytes; /* mem_free() */
    size_t          begin, len, written; /* begin: where in bytes it begins */
    unsigned        preludes; /* answers that come before its own */
    bool            ends_batch;
    bool            is_ack; /* our own question how many replicas have what came before */
    bool            orphan; /* its owner has gone: nobody reads the reply, request_finish() frees
                               it */
    bool            settled; /* in no queue any more: its result is there, its owner is told next */
    bool            heap;   /* conn_call()'s own */
    bool            leads;  /* its task's thread leads the connection for it */
    struct park     park;
};

struct queue {
    struct request *head, **tail;
    struct request *passed; /* up to this one all are orphans; NULL: nobody has looked */
};

void queue_init(struct queue *q);
void queue_add(struct queue *q, struct request *r);
struct request *queue_take(struct queue *q);
void queue_move(struct queue *from, struct queue *to); /* all of them; to is empty */
bool queue_unlink(struct queue *q, struct request *r); /* false: it is not in it */
/* Where the first stands that is no orphan. A server that is silent has thousands of them in front:
 * each is passed once. */
struct request **queue_wanted(struct queue *q);

static inline bool request_done(const struct request *r)
{
    return park_finished(&r->park);
}

/* A server that refused what nobody waits for any more: nobody is there to see what to do about
 * it. */
static inline bool request_refused_orphan(const struct request *r, const struct reply *reply)
{
    return r->orphan && r->on_settled && reply && reply->type == REPLY_ERROR;
}

/* r, which is in no queue any more, may be gone when this returns: its owner was waiting for it. A
 * reply that it already has goes if another result than HF_OK comes instead. */
void request_finish(struct request *r, hf_err result, struct reply *reply);
/* The same in two halves. The first notes the result; false: nobody waits for it, and it is gone.
 * The second tells its owner. Between them the lock of the connection may be released: whoever is
 * woken wants it at once. */
bool request_settle(struct request *r, hf_err result, struct reply *reply);
void request_tell(struct request *r);

/* WAIT, or with fsync WAITAOF, that nobody waits for: it frees itself. NULL: no memory. */
struct request *request_ack(int replicas, bool fsync, int64_t timeout_ms);
/* Whether a reply tells of something that the replicas have to have: not an error, nor a refusal,
 * which is a list that begins with a negative number. */
bool request_needs_ack(const struct reply *rp);
/* How many replicas its reply tells of. */
int request_acked(const struct reply *rp);

#endif
