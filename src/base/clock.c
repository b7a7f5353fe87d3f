/* SPDX-License-Identifier: MIT
 * clock.c - the only clock that the library reads.
 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

#include "base/seam.h"

int64_t clock_now_ms(void)
{
    const struct seam *seam = seam_get();
    struct timespec t;
    if (seam)
        return seam->now_ms();
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t clock_now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_add(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? CLOCK_NEVER : sum;
}

void clock_sleep_until(int64_t deadline_ms)
{
    const struct seam *seam = seam_get();
    if (seam) {
        while (seam->now_ms() < deadline_ms)
            seam->sleep_until(deadline_ms, NULL);
        return;
    }
    struct timespec t = { .tv_sec = deadline_ms / 1000, .tv_nsec = deadline_ms % 1000 * 1000000 };
    while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}
