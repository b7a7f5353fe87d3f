/* SPDX-License-Identifier: MIT
 * park.h - one thread sleeps until another wakes it: a futex, without a mutex around it.
 */
#ifndef BASE_PARK_H
#define BASE_PARK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised. A wake that comes before the wait is not lost. */
struct park {
    _Atomic uint32_t state;
};

/* Sleep until park_wake(), park_finish() or the deadline. May return early: callers look at what
 * they wait for in a loop. False: neither of the two came. */
bool park_wait(struct park *p, int64_t deadline_ms);
void park_wake(struct park *p);
/* Let park_wait(), or the next one, return early, and say false: it is no wake-up. */
void park_nudge(struct park *p);

/* For a thread that sleeps in poll(2) rather than in park_wait(). From park_listen() to
 * park_unlisten() a wake writes to bell_fd (bell.h), which may still ring afterwards. Both
 * answer false when a wake came before them; it is used up then. */
bool park_listen(struct park *p, int bell_fd);
bool park_unlisten(struct park *p);

/* The last wake-up: park_finished() is true from now on. The sleeper may free *p as soon as it
 * sees that, so this touches it once and never again. What was written before it is visible to
 * whoever saw park_finished(). */
void park_finish(struct park *p);
bool park_finished(const struct park *p);

#endif
