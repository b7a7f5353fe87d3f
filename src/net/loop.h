/* SPDX-License-Identifier: MIT
 * loop.h - many tasks in somebody else's event loop, without a thread of ours.
 *
 * A task is stepped in the thread that adds it, and from then on by loop_dispatch(), in the thread
 * of whoever calls it. Its requests go over the same connections as everybody's; their replies are
 * read by loop_dispatch(), or by a blocking caller that happens to read the connection. loop_fd()
 * is readable when there is something to do: a reply, a timer, a task that was woken, one that has
 * finished.
 *
 *      idle -> ready      [task_wake, task_finish, a timer]
 *      ready -> stepping  [loop_dispatch]
 *      stepping -> idle   the step has to wait; or back to ready, if it was woken meanwhile
 *      stepping -> done   finished() is called by loop_dispatch(), and owns the task
 */
#ifndef NET_LOOP_H
#define NET_LOOP_H

#include <stddef.h>

#include "base/err.h"
#include "net/task.h"

struct conn;

hf_err loop_open(struct loop **ret, hf_error *reterr);
/* Every task has finished, and no connection uses it any more. */
struct loop *loop_free(struct loop *lp);
struct loop *loop_forget(struct loop *lp); /* in a forked child */

/* Take the first step of t, whose step and finished are set. finished() is called once, by
 * loop_dispatch(). HF_ENOMEM, HF_ECANCELED (closed): nothing was done. */
hf_err loop_add(struct loop *lp, struct task *t, hf_error *reterr);

int loop_fd(const struct loop *lp);
/* Do what there is to do now, never wait. How many have finished. */
size_t loop_dispatch(struct loop *lp);
/* When there is something to do at the latest, replies aside; CLOCK_NEVER. For who simulates them:
 * there is no descriptor that says so. */
int64_t loop_next_due(struct loop *lp);
/* No more is added, and all that are there have something to do: to end. */
void loop_close(struct loop *lp);
/* Wait and dispatch until all have finished: they were told to end. */
void loop_drain(struct loop *lp);

/* ---- for the connections (conn.c) --------------------------------------------------------- */

/* Watch a connection's socket: conn_serve() is called when something can be read, and with
 * writable when something can be written. Without a descriptor (-1) each loop_dispatch() does. */
void loop_watch(struct loop *lp, struct conn *cn, int fd, bool writable, bool again);
void loop_unwatch(struct loop *lp, struct conn *cn, int fd);
/* Whether the caller is in loop_dispatch(): what it submits is then written at its end, all at
 * once: conn_flush() is called. */
bool loop_defers(struct loop *lp, struct conn *cn);

#endif
