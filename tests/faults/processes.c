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

static const struct row rows[] = {
    { "none", "nothing is wrong", "SFCQ", "SFCQ", 1, 30, .inject = let_them },
    { "kill_holder", "kill -9 of a holder", "SFCQ", "S", 4, 25, .may = MAY_PASS,
      .inject = kill_holder },
};
ROWS(rows)
