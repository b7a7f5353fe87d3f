/* SPDX-License-Identifier: MIT
 * backoff.h - how long to wait before the next try: longer each time, and never the same for all.
 */
#ifndef BASE_BACKOFF_H
#define BASE_BACKOFF_H

#include <stdint.h>

struct backoff {
    int64_t step_ms; /* 0: no try has failed yet */
};

/* The time until the next try, between half a step and a whole one; the step after it is twice as
 * long. Steps go from min_ms to max_ms. The caller sleeps. */
int64_t backoff_next(struct backoff *b, int64_t min_ms, int64_t max_ms);

#endif
