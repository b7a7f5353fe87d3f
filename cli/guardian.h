/* SPDX-License-Identifier: MIT
 * guardian.h - a small process that ends the child's group when we cannot. */
#ifndef CLI_GUARDIAN_H
#define CLI_GUARDIAN_H

#include <stdint.h>
#include <sys/types.h>

struct giveback;
struct guardian_page;

struct guardian {
    pid_t                 pid;
    int                   fd;   /* our end of the pipe */
    struct guardian_page *page; /* in the memory of both, while it lives */
    int                   killed;
};

/* Start it; -1 and errno. deadline_ms: as of guardian_deadline(). back: what it does when we died
 * and the group is gone, or when we left before the locks were released; may be NULL. */
int guardian_start(struct guardian *g, int64_t deadline_ms, const struct giveback *back);

/* The process group that it guards: said once, before the group does anything.
 * Async-signal-safe. */
void guardian_group(struct guardian *g, pid_t pgid);

/* It kills the group at this moment, unless it is a later one by then. NEVER: only if we die. */
void guardian_deadline(struct guardian *g, int64_t deadline_ms);

/* We stop ourselves, and the group is stopped: as long as nothing of it runs, this later deadline
 * counts. 0: not any more. */
void guardian_suspended(struct guardian *g, int64_t until_ms);

/* Has it killed the group because its deadline had passed? Also after guardian_wait(). */
int guardian_killed(const struct guardian *g);

/* The child is gone: nobody is to be killed any more, also not what it left behind in its group. If
 * we end before guardian_dismiss(), it gives the locks back. */
void guardian_child_gone(struct guardian *g);

/* The locks are released. It ends, for which guardian_wait() waits. Before that, or before
 * guardian_child_gone(), the child may not be reaped. */
void guardian_dismiss(struct guardian *g);
void guardian_wait(struct guardian *g);

#endif
