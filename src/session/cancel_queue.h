/* SPDX-License-Identifier: MIT
 * cancel_queue.h - tokens that were given up and of which the server does not know yet.
 *
 *      released lately -> to be tried   [cancel_queue_repeat]  its key has moved since
 *      to be tried -> under way         [cancel_queue_take]
 *      under way -> to be tried         [cancel_queue_settle]  it failed: after a pause
 *      under way -> released lately     [cancel_queue_settle]  it was done
 *      any -> gone                      nothing can be left of it
 * Whoever uses a queue holds the keeper's lock, but for those that are under way.
 */
#ifndef SESSION_CANCEL_QUEUE_H
#define SESSION_CANCEL_QUEUE_H

#include <stdbool.h>

#include "base/heap.h"
#include "op/lock.h"
#include "topo/topo.h"

struct hf_client;

/* One that is done in the background: a copy of all that it needs. */
struct cancel_entry {
    struct heap_node     turn; /* when it is tried */
    struct cancel_entry *next; /* of those released lately */
    struct cancel_entry *older, *newer; /* of those to be tried, or under way */
    struct lock_keys    *keys;
    struct op_cancel     what;
    int64_t              until_ms; /* nothing can be left of it then */
    unsigned             moves;    /* of the key, when it was done */
    hf_err               result;   /* of the last attempt */
    char                 bytes[];
};

/* NULL: no memory. */
struct cancel_entry *cancel_entry_new(struct hf_client *c, const struct op_cancel *what,
                                      int64_t until_ms);
struct cancel_entry *cancel_entry_free(struct cancel_entry *en);
/* Blocking: several of them at once, each with its result. At most CANCELS_AT_ONCE. */
#define CANCELS_AT_ONCE 24
void cancel_entries_run(struct hf_client *c, struct cancel_entry *const *some, size_t n,
                        int64_t deadline_ms);

struct cancel_queue {
    struct heap          turns;   /* to be tried; new ones before those that have failed */
    size_t               pending; /* to be tried, or under way, */
    struct cancel_entry *newest;  /* and the last of them */
    struct cancel_entry *released, **released_end; /* lately, the oldest first */
    size_t               nreleased;
};

void cancel_queue_init(struct cancel_queue *q);
void cancel_queue_clear(struct cancel_queue *q);

/* Try it as soon as possible. Takes en over; false, and en is yours: there are too many, or memory
 * is short. */
bool cancel_queue_add(struct cancel_queue *q, struct cancel_entry *en);
/* It was released: until its time has come it may have to be repeated. The same. */
bool cancel_queue_released(struct cancel_queue *q, struct cancel_entry *en, int64_t now_ms);
/* The topology has moved: try those that were released where their key is not any more. True: there
 * are some to be tried. */
bool cancel_queue_repeat(struct cancel_queue *q, const struct topo *t, int64_t now_ms);

/* When the next one is due; CLOCK_NEVER. */
int64_t cancel_queue_due(const struct cancel_queue *q);
/* Those that are due, at most max; how many. They are under way then, each until it is settled. */
size_t cancel_queue_take(struct cancel_queue *q, int64_t now_ms, struct cancel_entry **ret,
                         size_t max);
/* It is done, or not to be tried any more. */
void cancel_queue_drop(struct cancel_queue *q, struct cancel_entry *en);
/* Try it again, or forget it, as its result says; what was done now, only at until_ms. */
void cancel_queue_settle(struct cancel_queue *q, struct cancel_entry *en, int64_t now_ms,
                         int64_t until_ms);

#endif
