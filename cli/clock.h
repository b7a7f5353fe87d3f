/* SPDX-License-Identifier: MIT
 * clock.h - the clock of all deadlines here: it goes on while the machine sleeps, as leases do.
 * platform.c has what it is made of. */
#ifndef CLI_CLOCK_H
#define CLI_CLOCK_H

#include <stdint.h>

#define NEVER INT64_MAX

int64_t clock_now_ms(void);

/* A timer on that clock: poll()'s own time-out would sleep through a suspend. */
int clock_timer(void);
void clock_timer_set(int fd, int64_t at_ms);

#endif
