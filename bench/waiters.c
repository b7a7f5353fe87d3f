/* SPDX-License-Identifier: MIT
 * waiters.c - what many waiters of one process cost: commands while nothing happens, connections,
 * memory, and the time until all have been served.
 */
#include <math.h>
#include <stdio.h>

#include "harness/t.h"
#include "lib/contest.h"
#include "lib/crowd.h"

static void waiters(int n, int idle_ms, int without_blocking)
{
    char work[40];
    snprintf(work, sizeof work, "%d waiters of one client", n);
    struct crowd_result r = crowd_measure(n, idle_ms, without_blocking);
    report_aim(work, "idle commands/s, all", r.idle_commands, NULL, NAN, "<=", 5);
    report_aim(work, "client bytes each", r.client_bytes, NULL, NAN, "<=", 1024);
    report_aim(work, "connections", r.connections, NULL, NAN, "<=", 2);
    struct cost c = cost_none();
    c.is[COST_RATE] = 1e6 / r.handoff_us;
    c.is[COST_SERVER] = r.handoff_server_us;
    c.is[COST_COMMANDS] = r.handoff_commands;
    report_cost(work, "served", &c);
    t_note("enqueued in %.1f us each; the server keeps %.0f bytes for each; out of order: %zu",
           r.enqueue_us, r.server_bytes, r.late);
}

TEST_TIMEOUT(aim_waiters, 300)
{
    waiters(64, 1500, 0);
    waiters(1000, 1500, 0);
    waiters(10000, 2000, 1);
}

TEST_TIMEOUT(long_waiters, 600)
{
    waiters(64, 5000, 0);
    waiters(1000, 5000, 0);
    waiters(1000, 5000, 1);
    waiters(10000, 5000, 0);
    waiters(10000, 5000, 1);
}
