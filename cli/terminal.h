/* SPDX-License-Identifier: MIT
 * terminal.h - who has the terminal: we, or the child's process group. */
#ifndef CLI_TERMINAL_H
#define CLI_TERMINAL_H

#include <sys/types.h>

struct terminal {
    int   fd;    /* -1: no controlling terminal */
    int   eager; /* give it to the child at once, not only when it asks */
    pid_t ours;  /* our process group */
    int   given; /* the child's group has it */
};

void terminal_open(struct terminal *t);
void terminal_close(struct terminal *t);

/* Is it ours to give? */
int terminal_foreground(const struct terminal *t);

/* Give it to group pgid, if it is ours; 1 when that group has it now. Blocks nothing: SIGTTOU must
 * be blocked by the caller. Async-signal-safe. */
int terminal_give(struct terminal *t, pid_t pgid);

/* Take it back if group pgid has it. */
void terminal_take(struct terminal *t, pid_t pgid);

#endif
