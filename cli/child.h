/* SPDX-License-Identifier: MIT
 * child.h - CMD: started in a process group of its own, watched, stopped as a whole. */
#ifndef CLI_CHILD_H
#define CLI_CHILD_H

#include "guardian.h"
#include "signals.h"
#include "terminal.h"

#include <sys/types.h>

enum child_state { CHILD_RUNS, CHILD_STOPPED, CHILD_GONE };

struct child {
    pid_t            pid; /* also its process group */
    enum child_state state;
    int              stop_signal; /* CHILD_STOPPED: by which */
    int              status;      /* CHILD_GONE: its exit status, or 128 + signal */
    int              killed_by;   /* CHILD_GONE: the signal, or 0 */
    int              exec_error;  /* CHILD_GONE: why it never ran, or 0 */
    int              lost;        /* CHILD_GONE: it was ended because the lock was lost */
    int              left_alive;  /* KILL did not end it, or not all of its group */
    int              told_to_end; /* a signal that asks for the end was passed on to it */
    int              out_fd; /* becomes its stdout; 0: it has ours */
    int              reaped;
    int              had_terminal; /* CHILD_GONE: to its end */
    struct guardian  guardian;
    struct giveback *back; /* for the guardian; NULL: nothing */
    struct terminal  tty;
};

/* Start argv with the environment env; until the first guardian_deadline() this one counts. 0, or
 * -1 and errno. That CMD cannot be run shows later, as exec_error. */
int child_start(struct child *c, char **argv, char **env, const struct signals *s,
                int64_t deadline_ms);

/* After SIGCHLD. Fills in state; 1 when it has changed. */
int child_look(struct child *c);

/* Send sig to the whole group. -1 and errno when it reaches nobody. */
int child_signal(struct child *c, int sig);

/* CHILD_GONE: is anything of its group left? */
int child_group_left(struct child *c);

/* The job is suspended: the terminal is ours again, and we stop as the child did. Returns 1 when
 * we have been continued, 0 when stopping had no effect. */
int child_suspend(struct child *c);

/* Let a stopped group go on, with the terminal if it is ours to give. */
void child_resume(struct child *c);

/* CHILD_GONE: nobody is to be killed any more; take the terminal back. With left_alive the
 * guardian is sent away, too. */
void child_finish(struct child *c);
/* After that: reap the child. The locks are released first: they are what others wait for, and
 * should that take too long the guardian does it. released: they are, and it is sent away; else it
 * gives them back when we have left. Nothing is to be done if there was no child. */
void child_reap(struct child *c, int released);

/* Ctrl-C in the terminal that the child had reached the child alone. Whoever started us and would
 * have got it without us, a script or a pipeline, gets it now, and we end by it as well: a shell
 * ends a loop only if the command in it died of the signal. Comes back when we
 * live through it. */
void child_pass_interrupt(const struct child *c, const struct signals *s);

#endif
