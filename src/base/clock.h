/* SPDX-License-Identifier: MIT
 * clock.h - the only clock that the library reads.
 */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

#define CLOCK_NEVER INT64_MAX

/* Milliseconds since boot, suspend included (CLOCK_BOOTTIME): a machine that slept through its
 * lease finds the lease over. Nobody's wall clock matters. */
int64_t clock_now_ms(void);

/* Microseconds, for spans of less than a millisecond. Not simulated (seam.h). */
int64_t clock_now_us(void);

/* a + b that stops at CLOCK_NEVER instead of wrapping. */
int64_t clock_add(int64_t a, int64_t b);

static inline int64_t clock_earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Sleep until the deadline, through signals. */
void clock_sleep_until(int64_t deadline_ms);

#endif
