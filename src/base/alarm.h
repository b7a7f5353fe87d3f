/* SPDX-License-Identifier: MIT
 * alarm.h - a background thread's alarm clock.
 *
 * On CLOCK_BOOTTIME, which condition variables cannot wait on: after a suspend it rings at once.
 */
#ifndef BASE_ALARM_H
#define BASE_ALARM_H

#include <stdint.h>

struct alarm {
    int timer_fd, ring_fd;
};

int alarm_open(struct alarm *a); /* 0, or -1 with errno set and nothing open */
void alarm_close(struct alarm *a);

void alarm_wait(struct alarm *a, int64_t deadline_ms); /* until then, or until alarm_ring() */
void alarm_ring(struct alarm *a);                      /* not lost if nobody waits yet */

#endif
