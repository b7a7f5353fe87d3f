/* SPDX-License-Identifier: MIT
 * clock.h - the clock of all deadlines here: it goes on while the machine sleeps, as leases do. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

#include <stdint.h>
#include <sys/timerfd.h>
#include <time.h>

#define NEVER INT64_MAX

static inline int64_t clock_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A timer on that clock: poll()'s own time-out would sleep through a suspend. */
static inline int clock_timer(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

static inline void clock_timer_set(int fd, int64_t at_ms)
{
    struct itimerspec it = { 0 };
    if (at_ms != NEVER) {
        if (at_ms < 1)
            at_ms = 1; /* 0 would disarm it */
        it.it_value.tv_sec = at_ms / 1000;
        it.it_value.tv_nsec = at_ms % 1000 * 1000000;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &it, NULL);
}

#endif
