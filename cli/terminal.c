/* SPDX-License-Identifier: MIT
 * terminal.c - who has the terminal: we, or the child's process group.
 *
 * The child runs in a process group of its own, so that it can be stopped as a whole. A group that
 * is not in the foreground may not read the terminal and gets no Ctrl-C. So the terminal is given
 * to it before it runs, as a shell does for its jobs.
 *
 * The exception is a pipeline, `holdfast run x -- make | less`: there the others in our group,
 * like less, want the terminal. When stdout is a pipe it is given only when the child asks for it
 * (the kernel then stops it with SIGTTIN or SIGTTOU); until then Ctrl-C reaches us and is
 * forwarded. */
#include "terminal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

void terminal_open(struct terminal *t)
{
    struct stat st;
    t->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    t->ours = getpgrp();
    t->given = 0;
    t->eager = fstat(STDOUT_FILENO, &st) != 0 || !S_ISFIFO(st.st_mode);
}

void terminal_close(struct terminal *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

int terminal_foreground(const struct terminal *t)
{
    return t->fd >= 0 && tcgetpgrp(t->fd) == t->ours;
}

int terminal_give(struct terminal *t, pid_t pgid)
{
    if (terminal_foreground(t) && tcsetpgrp(t->fd, pgid) == 0)
        t->given = 1;
    return t->given;
}

void terminal_take(struct terminal *t, pid_t pgid)
{
    if (t->fd >= 0 && tcgetpgrp(t->fd) == pgid)
        tcsetpgrp(t->fd, t->ours);
    t->given = 0;
}
