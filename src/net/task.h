/* SPDX-License-Identifier: MIT
 * task.h - something that is done in steps, none of which ever waits.
 *
 * A step does what can be done now: it submits requests, looks at what came of those that are done,
 * and says when it wants to be called again at the latest. Between two steps somebody waits: a
 * thread that has nothing else to do (task_wait(): a blocking call), or an event loop that has a
 * thousand other tasks (loop.h). The steps are the same.
 *
 * A step is left in the middle and entered again where it was left, by these. What has to
 * live until then is in a struct, never in a local variable.
 *
 *     bool greet(struct greeting *g)
 *     {
 *         STEP_BEGIN(g->at);
 *         g->op = ...;
 *         STEP_UNTIL(g->at, exec_step(&g->op));
 *         ... use g->op's answer ...
 *         STEP_END(g->at);
 *     }
 */
#ifndef NET_TASK_H
#define NET_TASK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/park.h"

typedef unsigned step_at; /* 0: at the beginning */

#define STEP_BEGIN(at)   \
    switch (at) {        \
    default:
/* Come back here until it is true. */
#define STEP_UNTIL(at, condition)        \
    do {                                 \
        (at) = __LINE__;                 \
        __attribute__((fallthrough));    \
    case __LINE__:                       \
        if (!(condition))                \
            return false;                \
    } while (0)
/* Come back here at the next step. */
#define STEP_YIELD(at)    \
    do {                  \
        (at) = __LINE__;  \
        return false;     \
    case __LINE__:;       \
    } while (0)
/* It is over; the next call begins anew. */
#define STEP_RETURN(at) \
    do {                \
        (at) = 0;       \
        return true;    \
    } while (0)
#define STEP_END(at) \
    }                \
    (at) = 0;        \
    return true

struct loop;
struct request;

struct task {
    /* True: finished. False: call again at due_ms, when one of its requests is done, or when
     * woken. */
    bool (*step)(struct task *t);
    int64_t due_ms; /* task_due(); CLOCK_NEVER at the beginning of each step */
    struct request *flight; /* requests under way, or done and not yet taken */

    struct park *park; /* of a blocking call: where its thread sleeps when no request is under
                          way */

    /* Of an event loop; see loop.h. */
    _Atomic(struct loop *) loop; /* NULL: it is a blocking call's, or not begun: then whoever wakes
                                    it has said before what for, and its first step finds that */
    void           (*finished)(struct task *t); /* Thread: the dispatcher's. Owns t */
    struct heap_node timer;    /* this and the rest under the loop's lock */
    struct task     *next;
    struct task     *prev_in_loop, *next_in_loop;
    bool             ready;    /* it stands in a row of the loop's */
    bool             stepping, woken;
};

/* From a step: it wants to be called again by then. */
static inline void task_due(struct task *t, int64_t at_ms)
{
    t->due_ms = clock_earlier(t->due_ms, at_ms);
}

/* Any thread: it has something to do. It must not have finished. */
void task_wake(struct task *t);
/* Finish a park whose owner is a task, and wake that: both may be gone when this returns. */
void task_finish(struct task *t, struct park *p);

/* Thread: whose blocking call it is. Sleep until one of its requests is done, it is woken, or the
 * time has come; may return early. While it has requests under way it reads the connections itself,
 * where nobody else does. */
void task_wait(struct task *t, int64_t until_ms);

/* A connection is there, or is gone: with the last one goes what waiting for several needs. */
void task_conn_begins(void);
void task_conn_ends(void);

#endif
