/* SPDX-License-Identifier: MIT
 * waitgraph.h - who waits for whom: is it a circle that nobody will leave?
 *
 * It is filled with what servers told, lock by lock, and judged then. It knows no server and no
 * time. What it was not told counts as somebody who will go on.
 *
 * A node is a wait: a token in the queue of a lock. It goes on when everybody before it in the
 * queue does and the holders make room: all of them for who wants the lock alone, as many permits
 * as are needed otherwise. A holder makes room unless it waits itself, and that wait does not go
 * on. What is left when everybody has gone on who can is stuck.
 *
 * Of the stuck, those count among which there is a way from each to each, and which would be stuck
 * without all others as well. The one of them who began to wait last closed the circle, and is to
 * give up. The others see the same, so nobody else does.
 */
#ifndef SESSION_WAITGRAPH_H
#define SESSION_WAITGRAPH_H

#include "op/lock.h"

#define WAITGRAPH_LOCKS_MAX   1000
#define WAITGRAPH_EDGES_MAX   2000
#define WAITGRAPH_WAITERS_MAX 20000
#define WAITGRAPH_NONE        SIZE_MAX

struct waitgraph;

struct waitgraph *waitgraph_new(void); /* NULL: no memory */
struct waitgraph *waitgraph_free(struct waitgraph *g); /* NULL is fine */

/* The place of a lock, which is made if need be; the first one is 0. NONE: no room. */
size_t waitgraph_lock(struct waitgraph *g, hf_bytes key);
size_t waitgraph_locks(const struct waitgraph *g);
hf_bytes waitgraph_key(const struct waitgraph *g, size_t lock);

/* What is told of a lock, one lock after the other: its limit (EDGES_*); a holder that waits, as
 * "UNTIL SINCE TOKEN KEY" says; who stands in its queue, in order, as "TOKEN WEIGHT". What makes no
 * sense, or finds no room, is left out. */
void waitgraph_limit(struct waitgraph *g, size_t lock, long long limit);
void waitgraph_edge(struct waitgraph *g, size_t lock, const char *holder, const char *weight,
                    hf_bytes entry);
void waitgraph_waiter(struct waitgraph *g, size_t lock, const char *text);

/* Of a circle: who waits for a lock, and why it does not go on. */
struct waitgraph_hop {
    size_t      lock;   /* that it waits for */
    const char *holder; /* token of who holds it, and waits; NULL: of nobody: */
    const char *waiter; /* token of who it is that waits next: that holder, or one before it in the
                           queue */
    bool        behind; /* the holder alone would not keep it: others wait before it */
};

struct waitgraph_verdict {
    uint64_t              signature; /* two that are the same are of the same grants and waits */
    size_t                nhops;     /* from the token to the token */
    struct waitgraph_hop *hop;       /* in the graph's memory */
};

/* Is the wait of this token for lock 0 the one that has to be given up? */
bool waitgraph_judge(struct waitgraph *g, const char *token, struct waitgraph_verdict *ret);

#endif
