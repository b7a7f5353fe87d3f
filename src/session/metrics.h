/* SPDX-License-Identifier: MIT
 * metrics.h - what a client counts: how often, how long.
 *
 * Relaxed atomics, and no lock: a number is right by itself, and two of them may be a moment
 * apart. Who counts is named at each function; nobody decides anything by a number.
 */
#ifndef SESSION_METRICS_H
#define SESSION_METRICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "holdfast.h"

#define METRICS_LOSSES 16 /* more than hf_loss has */

struct metrics_times {
    _Atomic uint64_t bucket[HF_BUCKETS], sum_ms;
};

/* One client's. What each means is said in holdfast.h. */
struct metrics {
    _Atomic uint64_t acquires, contended, busy, failed, deadlocks, releases, renewals,
        renewals_failed, in_doubt, takeovers, connects, reconnects, notes_dropped;
    _Atomic uint64_t lost[METRICS_LOSSES]; /* by hf_loss */
    struct metrics_times wait, hold;
};

static inline void metrics_add(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static inline void metrics_lost(struct metrics *m, hf_loss loss)
{
    metrics_add(&m->lost[(unsigned)loss < METRICS_LOSSES ? (unsigned)loss : 0], 1);
}

/* How a take ended, after so long. Called once for each. */
void metrics_take(struct metrics *m, hf_err result, bool contended, int64_t waited_ms);
/* A hold is over, however it ended. */
void metrics_hold(struct metrics *m, int64_t held_ms);

#endif
