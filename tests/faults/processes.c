/* SPDX-License-Identifier: MIT
 * processes.c - rows about the clients' processes: nothing wrong, killed, stopped, interrupted.
 */
#include <signal.h>

#include "faults/lib/matrix.h"

/* ---- nothing is wrong ---- */

static int let_them(struct run *r)
{
    long before = atomic_load(&r->b->calls);
    crowd_go_on(r, 100);
    return atomic_load(&r->b->calls) > before;
}

/* ---- kill -9 ---- */

/* It held the lock when it died: it stood still, and its seat says so. */
static int kill_holder(struct run *r)
{
    int lock = run_any_lock(), i = crowd_hold(r, lock), held = 0;
    if (i < 0)
        return 0;
    crowd_freeze(r, i);
    held = crowd_phase(r, i) == HOLDING && crowd_lock(r, i) == lock;
    if (held)
        crowd_kill(r, i);
    else
        crowd_thaw(r, i);
    crowd_let_go(r);
    if (!held)
        return 0;
    crowd_replace(r, i);
    return until_granted(r, lock, 1, 60000);
}

/* Who waits for it, and has waited longest; -1: nobody. */
static int first_waiter(struct run *r, int lock)
{
    int first = -1;
    for (int i = 0; i < CROWD; i++)
        if (crowd_phase(r, i) == ASKING && crowd_lock(r, i) == lock
            && (first < 0 || r->b->seat[i].since_ns < r->b->seat[first].since_ns))
            first = i;
    return first;
}

/* The first in line, or all of them, while somebody holds the lock. */
static int kill_waiters(struct run *r)
{
    int lock = run_any_lock(), all = (int)t_random(2), dead[CROWD], n = 0;
    if (crowd_hold(r, lock) < 0)
        return 0;
    int64_t until = t_now_ms() + 20000;
    while (crowd_waiters(r, lock) < 2 && t_now_ms() < until)
        t_sleep_ms(2);
    for (int i; n < (all ? CROWD : 1) && (i = first_waiter(r, lock)) >= 0;) {
        crowd_freeze(r, i);
        if (crowd_phase(r, i) != ASKING || crowd_lock(r, i) != lock) {
            crowd_thaw(r, i);
            break;
        }
        crowd_kill(r, i);
        dead[n++] = i;
    }
    crowd_let_go(r);
    for (int i = 0; i < n; i++)
        crowd_replace(r, dead[i]);
    return n > 0 && until_granted(r, lock, 1, 60000);
}

/* ---- SIGSTOP ---- */

/* A holder, for twice its ttl, and until another has got the lock. */
static int stop_holder(struct run *r)
{
    int lock = run_any_lock(), i = crowd_hold(r, lock), passed_on = 0;
    if (i < 0)
        return 0;
    crowd_freeze(r, i);
    if (crowd_phase(r, i) == HOLDING && crowd_lock(r, i) == lock) {
        int64_t until = t_now_ms() + 2 * r->want.ttl_ms;
        passed_on = until_granted(r, lock, 1, 60000);
        while (t_now_ms() < until)
            t_sleep_ms(10);
    }
    crowd_thaw(r, i);
    return passed_on;
}

/* A waiter, between its request and the answer, while the lock goes from hand to hand. */
static int stop_waiter(struct run *r)
{
    int lock = run_any_lock(), i = -1, went_on = 0;
    int64_t until = t_now_ms() + 10000;
    while ((i = crowd_waiter(r, lock)) < 0 && t_now_ms() < until)
        t_sleep_ms(1);
    if (i < 0)
        return 0;
    crowd_freeze(r, i);
    if (crowd_phase(r, i) == ASKING && crowd_lock(r, i) == lock) {
        until = t_now_ms() + 2 * r->want.ttl_ms;
        went_on = until_granted(r, lock, 2, 60000);
        while (t_now_ms() < until)
            t_sleep_ms(10);
    }
    crowd_thaw(r, i);
    return went_on;
}

/* ---- signals, and a machine with too much to do ---- */

static long all_signals(const struct run *r)
{
    long n = 0;
    for (int i = 0; i < CROWD; i++)
        n += atomic_load(&r->b->seat[i].signals);
    return n;
}

/* A thousand a second to each, for a third of a second. */
static int signal_storm(struct run *r)
{
    long before = all_signals(r);
    for (int k = 0; k < 300; k++) {
        for (int i = 0; i < CROWD; i++)
            workers_signal(r->w, i, SIGUSR1);
        t_sleep_ms(1);
    }
    return all_signals(r) >= before + 300;
}

static void spin(int index, void *arg)
{
    (void)index;
    int64_t until = *(int64_t *)arg;
    while (t_now_ms() < until)
        ;
}

/* Six processes that compute for three seconds. */
static int overload(struct run *r)
{
    int64_t until = t_now_ms() + 3000;
    long before = atomic_load(&r->b->calls);
    struct workers *w = workers_start(6, spin, &until);
    workers_join(w, 120000);
    return t_now_ms() >= until && atomic_load(&r->b->calls) > before;
}

static const struct row rows[] = {
    { "none", "nothing is wrong", "SFCQ", "SFCQ", 1, 30, .inject = let_them },
    { "kill_holder", "kill -9 of a holder", "SFCQ", "S", 4, 25, .may = MAY_PASS,
      .inject = kill_holder },
    { "kill_waiters", "kill -9 of the first waiter, or of all", "SFCQ", "S", 4, 25,
      .may = MAY_PASS, .inject = kill_waiters },
    { "stop_holder", "SIGSTOP of a holder for twice its ttl", "SFCQ", "S", 3, 20,
      .may = MAY_PASS | MAY_LATE, .want = { .ttl_ms = 1000 }, .inject = stop_holder },
    { "stop_waiter", "SIGSTOP between request and answer", "SFCQ", "S", 3, 20,
      .may = MAY_PASS | MAY_LATE, .want = { .ttl_ms = 1000 }, .inject = stop_waiter },
    { "signals", "a storm of signals", "SQ", "S", 3, 30, .inject = signal_storm },
    { "overload", "six processes that compute", "SFCQ", "", 0, 20,
      .may = MAY_PASS | MAY_LATE | MAY_FAIL, .inject = overload },
};
ROWS(rows)
