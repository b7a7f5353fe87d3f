/* SPDX-License-Identifier: MIT
 * alarm.c - a background thread's alarm clock.
 */
#include "base/alarm.h"

#include <errno.h>
#include <poll.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/forkguard.h"
#include "base/seam.h"
#include "base/timer.h"

int alarm_open(struct alarm *a)
{
    a->timer_fd = timer_open();
    a->ring_fd = bell_open();
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

void alarm_wait(struct alarm *a, int64_t deadline_ms)
{
    const struct seam *seam = seam_get();
    if (seam) {
        while (!bell_drain(a->ring_fd) && seam->now_ms() < deadline_ms)
            seam->sleep_until(deadline_ms, a);
        return;
    }
    timer_set(a->timer_fd, deadline_ms);
    struct pollfd p[2] = { { .fd = a->timer_fd, .events = POLLIN },
                           { .fd = a->ring_fd, .events = POLLIN } };
    while (poll(p, 2, -1) < 0 && errno == EINTR)
        ;
    if (p[1].revents)
        (void)bell_drain(a->ring_fd);
}

void alarm_ring(struct alarm *a)
{
    const struct seam *seam = seam_get();
    bell_ring(a->ring_fd);
    if (seam)
        seam_wake(seam, a);
}
