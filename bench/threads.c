/* SPDX-License-Identifier: MIT
 * threads.c - many threads on one client, each with a lock of its own, beside as many threads with
 * a connection each and what a C programmer would write instead.
 */
#include <math.h>
#include <stdio.h>

#include "harness/t.h"
#include "lib/contest.h"
#include "lib/locks.h"
#include "lib/pairs.h"

static void threads(int n, double least, double p99, int rounds, int run_ms)
{
    char work[40], yardstick[40];
    snprintf(work, sizeof work, "%d threads, one client", n);
    snprintf(yardstick, sizeof yardstick, "hiredis x%d", n);
    struct contest c = { .work = work, .yardstick = yardstick };
    struct pairs p = { .threads = n, .run_ms = run_ms };
    p.s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    p.client = bench_client(server_tcp_url(p.s));
    contest_run(&c, rounds, pairs_by_holdfast, pairs_by_hiredis, &p);
    contest_ratio(&c, COST_RATE, ">=", least);
    contest_ratio(&c, COST_P99, "<=", p99);
    contest_costs(&c);
    hf_client_free(p.client);
}

TEST_TIMEOUT(aim_threads, 300)
{
    threads(4, 0.9, 2, 3, 500);
    threads(16, 1.0, NAN, 3, 500);
    threads(64, 1.0, NAN, 3, 500);
    threads(256, 1.5, NAN, 3, 500);
}

TEST_TIMEOUT(long_threads, 900)
{
    static const int n[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256 };
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++)
        threads(n[i], NAN, NAN, 5, 2000);
}
