/* SPDX-License-Identifier: MIT
 * poller.c - one descriptor that stands for many: epoll.
 */
#include "base/poller.h"

#include <errno.h>
#include <sys/epoll.h>

#include "base/bell.h"
#include "base/forkguard.h"
#include "base/seam.h"
#include "base/timer.h"

static int control(struct poller *p, int how, int fd, bool writable, void *arg)
{
    struct epoll_event ev = { .events = writable ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.ptr = arg };
    return epoll_ctl(p->fd, how, fd, &ev);
}

#define SIMULATED (1 << 20) /* a simulation has no descriptors: who waits sleeps by the seam */

int poller_open(struct poller *p)
{
    if (seam_get()) {
        *p = (struct poller){ .fd = SIMULATED, .bell_fd = bell_open(), .timer_fd = timer_open() };
        return 0;
    }
    p->bell_fd = p->timer_fd = -1;
    p->fd = forkguard_keep(epoll_create1(EPOLL_CLOEXEC));
    if (p->fd >= 0 && (p->bell_fd = bell_open()) >= 0 && (p->timer_fd = timer_open()) >= 0
        && control(p, EPOLL_CTL_ADD, p->bell_fd, false, &p->bell_fd) == 0
        && control(p, EPOLL_CTL_ADD, p->timer_fd, false, &p->timer_fd) == 0)
        return 0;
    int saved = errno;
    poller_close(p);
    errno = saved;
    return -1;
}

void poller_close(struct poller *p)
{
    int fd[] = { p->fd, p->bell_fd, p->timer_fd };
    for (size_t i = 0; i < 3; i++)
        if (fd[i] >= 0)
            forkguard_close(fd[i]);
    p->fd = p->bell_fd = p->timer_fd = -1;
}

void poller_add(struct poller *p, int fd, bool writable, void *arg)
{
    (void)control(p, EPOLL_CTL_ADD, fd, writable, arg);
}

void poller_change(struct poller *p, int fd, bool writable, void *arg)
{
    (void)control(p, EPOLL_CTL_MOD, fd, writable, arg);
}

void poller_remove(struct poller *p, int fd)
{
    (void)control(p, EPOLL_CTL_DEL, fd, false, NULL);
}

void poller_ring(struct poller *p)
{
    bell_ring(p->bell_fd);
}

void poller_set_timer(struct poller *p, int64_t at_ms)
{
    timer_set(p->timer_fd, at_ms);
}

void poller_read(struct poller *p, struct poller_news *ret)
{
    struct epoll_event ev[POLLER_NEWS_MAX];
    bool simulated = p->fd == SIMULATED;
    int n = simulated ? 0 : epoll_wait(p->fd, ev, POLLER_NEWS_MAX, 0);
    ret->rung = ret->timed_out = false;
    ret->n = 0;
    if (simulated)
        ret->rung = bell_drain(p->bell_fd);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.ptr == &p->bell_fd) {
            ret->rung = true;
            (void)bell_drain(p->bell_fd);
        } else if (ev[i].data.ptr == &p->timer_fd) {
            ret->timed_out = true;
            timer_drain(p->timer_fd);
        } else {
            ret->arg[ret->n++] = ev[i].data.ptr;
        }
    }
}
