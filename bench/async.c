/* SPDX-License-Identifier: MIT
 * async.c - one thread that keeps many locks under way without blocking, beside a bare loop that
 * pipelines the very same commands over one connection.
 */
#include <math.h>
#include <stdio.h>

#include "harness/t.h"
#include "lib/async.h"
#include "lib/contest.h"
#include "lib/locks.h"
#include "lib/pairs.h"

struct many {
    struct server       *s;
    hf_client           *c;
    const struct replay *replay;
    int                  under_way, run_ms;
};

static struct cost by_holdfast(void *arg)
{
    const struct many *m = arg;
    return async_measure(m->s, m->c, m->under_way, m->run_ms);
}

static struct cost by_bare_loop(void *arg)
{
    const struct many *m = arg;
    return replay_loop(m->replay, m->s, m->under_way, m->run_ms);
}

static struct cost by_blocking_calls(void *arg)
{
    const struct many *m = arg;
    struct pairs p = { .s = m->s, .client = m->c, .threads = 1, .run_ms = m->run_ms };
    return pairs_by_holdfast(&p);
}

static void under_way(int n, double least, int rounds, int run_ms)
{
    char work[40];
    snprintf(work, sizeof work, "asynchronous, %d under way", n);
    struct contest c = { .work = work, .yardstick = "raw loop" };
    struct many m = { .under_way = n, .run_ms = run_ms };
    m.s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    m.replay = replay_learn(m.s);
    m.c = bench_client(server_tcp_url(m.s));
    contest_run(&c, rounds, by_holdfast, by_bare_loop, &m);
    contest_ratio(&c, COST_RATE, ">=", least);
    contest_costs(&c);
    hf_client_free(m.c);
}

static void one_at_a_time(int rounds, int run_ms)
{
    struct contest c = { .work = "asynchronous, one by one", .yardstick = "blocking call" };
    struct many m = { .under_way = 1, .run_ms = run_ms };
    m.s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    m.c = bench_client(server_tcp_url(m.s));
    contest_run(&c, rounds, by_holdfast, by_blocking_calls, &m);
    contest_ratio(&c, COST_P50, "<=", 1.1);
    contest_costs(&c);
    hf_client_free(m.c);
}

TEST_TIMEOUT(aim_async, 300)
{
    one_at_a_time(3, 400);
    under_way(1, NAN, 3, 400);
    under_way(64, 0.55, 3, 500);
    under_way(256, 0.55, 3, 500);
    under_way(1000, NAN, 3, 500);
    under_way(10000, NAN, 3, 700);
}

TEST_TIMEOUT(long_async, 900)
{
    static const int n[] = { 1, 4, 16, 64, 256, 1000, 4000, 10000 };
    one_at_a_time(5, 2000);
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++)
        under_way(n[i], NAN, 5, 2000);
}
