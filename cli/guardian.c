/* SPDX-License-Identifier: MIT
 * guardian.c - a small process that ends the child's group when we cannot.
 *
 * PR_SET_PDEATHSIG reaches the direct child alone, and nothing of ours runs when we are killed
 * with -9 or stopped. So the guardian, in a session of its own, holds one end of a pipe:
 *   end of file without good-bye   we died: the whole group is killed
 *   the deadline passes            we are stopped or stuck, nobody renews, the lease ends:
 *                                  the whole group is killed
 *   good-bye                       it ends */
#include "guardian.h"

#include "clock.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct word {
    int64_t deadline_ms;
    int64_t goodbye;
};

/* Keep nothing of the caller's open: who reads our stdout waits for its end of file. Only
 * async-signal-safe calls, here and below: other threads were running when we were forked. */
static int detach(int fd)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    int null = open("/dev/null", O_RDWR);
    for (int i = 0; i <= 2; i++)
        if (dup2(null, i) < 0)
            close(i);
    if (dup2(fd, 3) < 0)
        _exit(1);
    if (platform_close_range(4, ~0u) != 0)
        for (int i = 4; i < 1024; i++)
            close(i);
    if (chdir("/") != 0)
        _exit(1);
    platform_name("holdfast-guard");
    return 3;
}

static void guard(int fd, pid_t pgid)
{
    int timer;
    fd = detach(fd);
    timer = clock_timer();
    struct pollfd p[] = { { .fd = fd, .events = POLLIN }, { .fd = timer, .events = POLLIN } };
    for (;;) {
        struct word w;
        if (poll(p, 2, -1) < 0)
            continue;
        /* The pipe first: a later deadline may be waiting in it. */
        if (p[0].revents) {
            ssize_t n = read(fd, &w, sizeof w);
            if (n == (ssize_t)sizeof w) {
                if (w.goodbye)
                    _exit(0);
                clock_timer_set(timer, w.deadline_ms);
                continue;
            }
            if (n < 0 && (errno == EINTR || errno == EAGAIN))
                continue;
        }
        kill(-pgid, SIGKILL);
        if (p[0].revents)
            _exit(0);
        clock_timer_set(timer, NEVER);
    }
}

int guardian_start(struct guardian *g, pid_t pgid)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return -1;
    g->deadline_ms = NEVER;
    g->pid = fork();
    if (g->pid == 0) {
        close(fds[1]);
        guard(fds[0], pgid);
    }
    int saved = errno;
    close(fds[0]);
    g->fd = fds[1];
    if (g->pid > 0) {
        fcntl(g->fd, F_SETFL, O_NONBLOCK);
        return 0;
    }
    close(g->fd);
    g->fd = -1;
    errno = saved;
    return -1;
}

static void tell(struct guardian *g, int64_t deadline_ms, int64_t goodbye)
{
    struct word w = { deadline_ms, goodbye };
    ssize_t n = write(g->fd, &w, sizeof w);
    (void)n; /* should somebody have killed it, there is nobody to tell */
}

void guardian_deadline(struct guardian *g, int64_t deadline_ms)
{
    if (deadline_ms == g->deadline_ms)
        return;
    g->deadline_ms = deadline_ms;
    tell(g, deadline_ms, 0);
}

void guardian_dismiss(struct guardian *g)
{
    if (g->pid <= 0)
        return;
    tell(g, NEVER, 1);
    close(g->fd);
    while (waitpid(g->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    g->pid = 0;
}
