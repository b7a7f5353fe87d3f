/* SPDX-License-Identifier: MIT
 * request.c - one request on a shared connection, and the queues in which it stands.
 */
#include "net/request.h"

#include <stdio.h>

#include "base/mem.h"
#include "net/command.h"

void queue_init(struct queue *q)
{
    q->head = NULL;
    q->tail = &q->head;
    q->passed = NULL;
}

void queue_add(struct queue *q, struct request *r)
{
    r->next = NULL;
    *q->tail = r;
    q->tail = &r->next;
}

struct request *queue_take(struct queue *q)
{
    struct request *r = q->head;
    if (r && !(q->head = r->next))
        q->tail = &q->head;
    if (r == q->passed)
        q->passed = NULL;
    return r;
}

void queue_move(struct queue *from, struct queue *to)
{
    *to = *from;
    queue_init(from);
}

struct request **queue_wanted(struct queue *q)
{
    struct request **p = q->passed ? &q->passed->next : &q->head;
    for (; *p && (*p)->orphan; p = &(*p)->next)
        q->passed = *p;
    return p;
}

bool queue_unlink(struct queue *q, struct request *r)
{
    for (struct request **p = r->orphan ? &q->head : queue_wanted(q); *p; p = &(*p)->next) {
        if (*p == r) {
            if (!(*p = r->next))
                q->tail = p;
            if (r->orphan)
                q->passed = NULL;
            return true;
        }
    }
    return false;
}

bool request_settle(struct request *r, hf_err result, struct reply *reply)
{
    if (r->reply && r->reply != reply)
        r->reply = reply_free(r->reply);
    if (r->on_settled)
        r->on_settled->over(r->on_settled,
                            result != HF_EUNSURE && !request_refused_orphan(r, reply));
    if (r->orphan) {
        reply_free(reply);
        mem_free(r->bytes);
        mem_free(r);
        return false;
    }
    r->result = result;
    r->reply = reply;
    return true;
}

void request_tell(struct request *r)
{
    task_finish(r->task, &r->park); /* from here on r may be gone */
}

void request_finish(struct request *r, hf_err result, struct reply *reply)
{
    if (request_settle(r, result, reply))
        request_tell(r);
}

struct request *request_ack(int replicas, bool fsync, int64_t timeout_ms)
{
    struct command cmd = { 0 };
    struct request *r = mem_zalloc(sizeof *r);
    if (!r)
        return NULL;
    command_add_text(&cmd, fsync ? "WAITAOF" : "WAIT");
    if (fsync)
        command_add_int(&cmd, 1);
    command_add_int(&cmd, replicas);
    command_add_int(&cmd, timeout_ms);
    if (command_end(&cmd)) {
        mem_free(r);
        return NULL;
    }
    r->bytes = cmd.bytes;
    r->begin = cmd.begin;
    r->len = cmd.len;
    r->is_ack = r->orphan = true;
    return r;
}

bool request_needs_ack(const struct reply *rp)
{
    if (rp->type == REPLY_ARRAY && rp->len > 0)
        rp = rp->item[0];
    return rp->type == REPLY_INT && rp->num > 0;
}

int request_acked(const struct reply *rp)
{
    if (rp->type == REPLY_INT)
        return (int)rp->num;
    /* WAITAOF: whether the server itself has it on disk, and how many replicas have. */
    bool both = rp->type == REPLY_ARRAY && rp->len == 2 && rp->item[0]->type == REPLY_INT
                && rp->item[1]->type == REPLY_INT;
    return both && rp->item[0]->num > 0 ? (int)rp->item[1]->num : -1;
}
