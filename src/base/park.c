/* SPDX-License-Identifier: MIT
 * park.c - one thread sleeps until another wakes it: a futex, without a mutex around it.
 */
#include "base/park.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/seam.h"

enum { AWAKE, ASLEEP, WOKEN, FINISHED, NUDGED, LISTENS }; /* LISTENS + n: woken by descriptor n */

/* A suspended machine stops the futex's clock but not ours: look again at least this often. */
#define LONGEST_SLEEP_MS 1000

static void futex_sleep(_Atomic uint32_t *word, int64_t ms)
{
    const struct seam *seam = seam_get();
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    if (seam) /* whoever wakes it does so while time passes */
        seam->sleep_until(seam->now_ms() + ms, word);
    else
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, ASLEEP, &t, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    const struct seam *seam = seam_get();
    if (seam)
        seam_wake(seam, word);
    else
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static bool move(struct park *p, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&p->state, &from, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

bool park_wait(struct park *p, int64_t deadline_ms)
{
    if (move(p, NUDGED, AWAKE))
        return false;
    if (!move(p, AWAKE, ASLEEP)) {
        move(p, WOKEN, AWAKE);
        return true;
    }
    while (atomic_load_explicit(&p->state, memory_order_acquire) == ASLEEP) {
        int64_t left = deadline_ms - clock_now_ms();
        if (left <= 0)
            break;
        if (left > LONGEST_SLEEP_MS)
            left = LONGEST_SLEEP_MS;
        futex_sleep(&p->state, left);
    }
    return !move(p, ASLEEP, AWAKE) && (move(p, WOKEN, AWAKE) || park_finished(p));
}

void park_nudge(struct park *p)
{
    if (move(p, ASLEEP, AWAKE))
        futex_wake(&p->state);
    else
        move(p, AWAKE, NUDGED);
}

static void rouse(struct park *p, uint32_t was)
{
    if (was == ASLEEP)
        futex_wake(&p->state); /* only the address is used: *p may be gone */
    else if (was >= LISTENS)
        bell_ring((int)(was - LISTENS));
}

void park_wake(struct park *p)
{
    uint32_t was = atomic_load_explicit(&p->state, memory_order_acquire);
    while (was != WOKEN && was != FINISHED) {
        if (atomic_compare_exchange_weak_explicit(&p->state, &was, WOKEN, memory_order_acq_rel,
                                                  memory_order_acquire)) {
            rouse(p, was);
            return;
        }
    }
}

bool park_listen(struct park *p, int bell_fd)
{
    move(p, NUDGED, AWAKE);
    if (move(p, AWAKE, LISTENS + (uint32_t)bell_fd))
        return true;
    move(p, WOKEN, AWAKE);
    return false;
}

bool park_unlisten(struct park *p)
{
    uint32_t was = atomic_load_explicit(&p->state, memory_order_acquire);
    if (was >= LISTENS && move(p, was, AWAKE))
        return true;
    move(p, WOKEN, AWAKE);
    return false;
}

void park_finish(struct park *p)
{
    rouse(p, atomic_exchange_explicit(&p->state, FINISHED, memory_order_acq_rel));
}

bool park_finished(const struct park *p)
{
    return atomic_load_explicit(&p->state, memory_order_acquire) == FINISHED;
}
