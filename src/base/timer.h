/* SPDX-License-Identifier: MIT
 * timer.h - a descriptor that is readable from a moment on, by the clock of clock.h.
 */
#ifndef BASE_TIMER_H
#define BASE_TIMER_H

#include <stdint.h>

/* Off. Known to forkguard, so closed by forkguard_close(). -1 with errno. */
int timer_open(void);
/* CLOCK_NEVER turns it off. What it has told before is forgotten. */
void timer_set(int fd, int64_t at_ms);
void timer_drain(int fd);

#endif
