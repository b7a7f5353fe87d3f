/* SPDX-License-Identifier: MIT
 * alarm.c - a background thread's alarm clock.
 */
#include "base/alarm.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forkguard.h"
#include "base/seam.h"

int alarm_open(struct alarm *a)
{
    a->timer_fd = forkguard_keep(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    a->ring_fd = forkguard_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (a->timer_fd >= 0 && a->ring_fd >= 0)
        return 0;
    int saved = errno;
    alarm_close(a);
    errno = saved;
    return -1;
}

void alarm_close(struct alarm *a)
{
    if (a->timer_fd >= 0)
        forkguard_close(a->timer_fd);
    if (a->ring_fd >= 0)
        forkguard_close(a->ring_fd);
    a->timer_fd = a->ring_fd = -1;
}

static bool was_rung(struct alarm *a)
{
    uint64_t drained;
    return read(a->ring_fd, &drained, sizeof drained) > 0;
}

void alarm_wait(struct alarm *a, int64_t deadline_ms)
{
    const struct seam *seam = seam_get();
    if (seam) {
        while (!was_rung(a) && seam->now_ms() < deadline_ms)
            seam->sleep_until(deadline_ms, a);
        return;
    }
    struct itimerspec t = { 0 }; /* all zero: the timer is off */
    if (deadline_ms != CLOCK_NEVER) {
        int64_t at = deadline_ms > 0 ? deadline_ms : 1;
        t.it_value.tv_sec = at / 1000;
        t.it_value.tv_nsec = at % 1000 * 1000000;
    }
    timerfd_settime(a->timer_fd, TFD_TIMER_ABSTIME, &t, NULL);

    struct pollfd p[2] = { { .fd = a->timer_fd, .events = POLLIN },
                           { .fd = a->ring_fd, .events = POLLIN } };
    while (poll(p, 2, -1) < 0 && errno == EINTR)
        ;
    if (p[1].revents)
        (void)was_rung(a);
}

void alarm_ring(struct alarm *a)
{
    const struct seam *seam = seam_get();
    uint64_t one = 1;
    (void)!write(a->ring_fd, &one, sizeof one);
    if (seam)
        seam_wake(seam, a);
}
