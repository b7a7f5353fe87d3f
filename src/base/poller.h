/* SPDX-License-Identifier: MIT
 * poller.h - one descriptor that stands for many: it is readable when one of them, a bell or a
 * timer has something to say.
 */
#ifndef BASE_POLLER_H
#define BASE_POLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POLLER_NEWS_MAX 64

struct poller {
    int fd; /* for others to poll */
    int bell_fd, timer_fd;
};

/* Those that have something to say, by the arg that they were added with. More may be left. */
struct poller_news {
    bool   rung, timed_out;
    size_t n;
    void  *arg[POLLER_NEWS_MAX];
};

/* 0, or -1 with errno and nothing open. */
int poller_open(struct poller *p);
void poller_close(struct poller *p);

/* Any thread. What is added is readable, or also writable. */
void poller_add(struct poller *p, int fd, bool writable, void *arg);
void poller_change(struct poller *p, int fd, bool writable, void *arg);
void poller_remove(struct poller *p, int fd);
void poller_ring(struct poller *p);
void poller_set_timer(struct poller *p, int64_t at_ms); /* as timer_set() */

/* Never waits. The bell and the timer are drained. */
void poller_read(struct poller *p, struct poller_news *ret);

#endif
