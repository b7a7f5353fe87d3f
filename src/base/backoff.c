/* SPDX-License-Identifier: MIT
 * backoff.c - how long to wait before the next try: longer each time, and never the same for all.
 */
#include "base/backoff.h"

#include "base/random.h"

int64_t backoff_next(struct backoff *b, int64_t min_ms, int64_t max_ms)
{
    int64_t step = b->step_ms > min_ms ? b->step_ms : min_ms;
    b->step_ms = step < max_ms / 2 ? 2 * step : max_ms;
    return random_between(step / 2, step);
}
