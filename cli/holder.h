/* SPDX-License-Identifier: MIT
 * holder.h - acquire --hold-pid: a process in the background that holds a lock for another one. */
#ifndef CLI_HOLDER_H
#define CLI_HOLDER_H

#include "options.h"

/* What the keeper tells the process that started it. */
struct holder_report {
    int      code; /* 0: held; else the exit status, after a message */
    int      held;
    uint64_t fence;
    char     owner[1024];
};

/* A descriptor of the process PID, or an exit status after a message in *ret_code. */
int holder_target(const struct cmd *cmd, const struct opts *o, int *ret_code);

/* Start it. Returns a socket on which it sends its report, and on which it then waits for one byte:
 * end of file instead means that nobody has heard the report, and it lets go. -1: an exit status,
 * after a message, in *ret_code. */
int holder_start(const struct cmd *cmd, const struct opts *o, const char *name, int target,
                 int *ret_code);

#endif
