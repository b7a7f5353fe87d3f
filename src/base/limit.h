/* SPDX-License-Identifier: MIT
 * limit.h - for how long somebody waits: until a time, or until told to stop.
 *
 *     struct limit lim = { deadline_ms, &stopping };
 *     while (!limit_over(&lim)) ... poll(fd, n, limit_tick_ms(&lim)) ...
 *
 * Whatever waits on behalf of a caller has the caller's, and looks at it each time that it comes
 * back from a wait, also when there was something: a peer that sends a byte now and then must not
 * keep anybody.
 */
#ifndef BASE_LIMIT_H
#define BASE_LIMIT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/mutex.h"

#define LIMIT_TICK_MS  20   /* how often a stop is looked at */
#define LIMIT_SLEEP_MS 1000 /* a suspended machine stops poll's clock but not ours: look again */
#define LIMIT_TURN_MS  2    /* to see whether somebody has left a lock */

struct limit {
    int64_t           at_ms; /* CLOCK_NEVER: none */
    const atomic_int *stop;  /* NULL, or: given up soon after *stop is not 0 */
};

static inline bool limit_stopped(const struct limit *lim)
{
    return lim->stop && atomic_load_explicit(lim->stop, memory_order_relaxed);
}

/* The time has come, or it was stopped. */
static inline bool limit_over(const struct limit *lim)
{
    return limit_stopped(lim) || clock_now_ms() >= lim->at_ms;
}

/* The same, and not longer than until at_ms. */
static inline struct limit limit_earlier(const struct limit *lim, int64_t at_ms)
{
    return (struct limit){ clock_earlier(lim->at_ms, at_ms), lim->stop };
}

/* For how long a poll(2) may sleep now. */
static inline int limit_tick_ms(const struct limit *lim)
{
    int64_t left = lim->at_ms - clock_now_ms(), most = lim->stop ? LIMIT_TICK_MS : LIMIT_SLEEP_MS;
    return left <= 0 || limit_stopped(lim) ? 0 : left < most ? (int)left : (int)most;
}

/* Sleep for so long, or until it is over. */
static inline void limit_sleep(const struct limit *lim, int64_t ms)
{
    int64_t until = clock_earlier(lim->at_ms, clock_add(clock_now_ms(), ms));
    for (int64_t now; !limit_stopped(lim) && (now = clock_now_ms()) < until;)
        clock_sleep_until(lim->stop ? clock_earlier(until, now + LIMIT_TICK_MS) : until);
}

/* Take a lock that others keep while they wait themselves. False: it is over, and it was not
 * taken. */
static inline bool limit_lock(const struct limit *lim, struct mutex *mu)
{
    while (!mutex_trylock(mu)) {
        if (limit_over(lim))
            return false;
        limit_sleep(lim, LIMIT_TURN_MS);
    }
    return true;
}

#endif
