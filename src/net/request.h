/* SPDX-License-Identifier: MIT
 * request.h - one request on a shared connection, and the queues in which it stands; for conn.c.
 */
#ifndef NET_REQUEST_H
#define NET_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/park.h"
#include "net/conn.h"
#include "net/resp.h"

struct request {
    struct request *next;
    char           *bytes;
    size_t          len, written;
    int64_t         sent_ms, deadline_ms;
    unsigned        bound;  /* it may leave on this connection only; 0: on any */
    unsigned        epoch;  /* on which it left */
    unsigned        preludes; /* answers that come before its own */
    bool            ends_batch;
    bool            is_ack; /* our own question how many replicas have what came before */
    bool            orphan; /* its owner has gone: nobody reads the reply, request_finish() frees it */
    struct conn_keepsake *keepsake; /* told what became of it; may be NULL */
    int             acked;  /* how many replicas have it */
    hf_err          result; /* this and reply: valid once park_finished() */
    struct reply   *reply;
    struct park     park;
};

struct queue {
    struct request *head, **tail;
};

void queue_init(struct queue *q);
void queue_add(struct queue *q, struct request *r);
struct request *queue_take(struct queue *q);
bool queue_unlink(struct queue *q, struct request *r); /* false: it is not in it */

static inline bool request_done(const struct request *r)
{
    return park_finished(&r->park);
}

/* A server that refused what nobody waits for any more: nobody is there to see what to do about
 * it. */
static inline bool request_refused_orphan(const struct request *r, const struct reply *reply)
{
    return r->orphan && r->keepsake && reply && reply->type == REPLY_ERROR;
}

/* r, which is in no queue any more, may be gone when this returns: its owner was waiting for it. A
 * reply that it already has goes if another result than HF_OK comes instead. */
void request_finish(struct request *r, hf_err result, struct reply *reply);

/* WAIT, or with fsync WAITAOF, that nobody waits for: it frees itself. NULL: no memory. */
struct request *request_ack(int replicas, bool fsync, int64_t timeout_ms);
/* Whether a reply tells of something that the replicas have to have: not an error, nor a refusal,
 * which is a list that begins with a negative number. */
bool request_needs_ack(const struct reply *rp);
/* How many replicas its reply tells of. */
int request_acked(const struct reply *rp);

#endif
