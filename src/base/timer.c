/* SPDX-License-Identifier: MIT
 * timer.c - a descriptor that is readable from a moment on: a timerfd, which a suspended machine
 * does not stop.
 */
#include "base/timer.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forkguard.h"
#include "base/seam.h"

#define SIMULATED (1 << 20) /* a simulation has no descriptors: who waits sleeps by the seam */

int timer_open(void)
{
    if (seam_get())
        return SIMULATED;
    return forkguard_keep(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
}

void timer_set(int fd, int64_t at_ms)
{
    struct itimerspec t = { 0 }; /* all zero: the timer is off */
    if (fd == SIMULATED)
        return;
    if (at_ms != CLOCK_NEVER) {
        int64_t at = at_ms > 0 ? at_ms : 1;
        t.it_value.tv_sec = at / 1000;
        t.it_value.tv_nsec = at % 1000 * 1000000;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &t, NULL);
}

void timer_drain(int fd)
{
    uint64_t expired;
    (void)!read(fd, &expired, sizeof expired);
}
