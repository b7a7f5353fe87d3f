/* SPDX-License-Identifier: MIT
 * guardian.h - a small process that ends the child's group when we cannot. */
#ifndef CLI_GUARDIAN_H
#define CLI_GUARDIAN_H

#include <stdint.h>
#include <sys/types.h>

struct guardian {
    pid_t   pid;
    int     fd;          /* our end of the pipe */
    int64_t deadline_ms; /* what it was told last */
};

/* Start it for process group pgid; -1 and errno. */
int guardian_start(struct guardian *g, pid_t pgid);

/* It kills the group at this moment, unless told a later one before. NEVER: only if we die. */
void guardian_deadline(struct guardian *g, int64_t deadline_ms);

/* The child is gone and was not reaped yet: no more guarding. Waits until it has ended. */
void guardian_dismiss(struct guardian *g);

#endif
