/* SPDX-License-Identifier: MIT
 * uncontended.c - what lock and unlock cost one thread when nobody else wants the lock.
 */
#include <math.h>

#include "harness/t.h"
#include "lib/contest.h"
#include "lib/locks.h"
#include "lib/pairs.h"

static struct pairs one_thread(int run_ms)
{
    struct pairs p = { .threads = 1, .run_ms = run_ms };
    p.s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    return p;
}

static void against_hiredis(int rounds, int run_ms)
{
    struct contest c = { .work = "lock + unlock, 1 thread, TCP", .yardstick = "hiredis" };
    struct pairs p = one_thread(run_ms);
    p.client = bench_client(server_tcp_url(p.s));
    contest_run(&c, rounds, pairs_by_holdfast, pairs_by_hiredis, &p);
    contest_ratio(&c, COST_P50, "<=", 0.6);
    contest_ratio(&c, COST_P99, "<=", NAN);
    contest_value(&c, COST_BYTES, "<=", 400);
    contest_costs(&c);
    hf_client_free(p.client);
}

static void on_one_core(int rounds, int run_ms)
{
    struct contest c = { .work = "the same on one core", .yardstick = "two raw PINGs" };
    struct pairs p = one_thread(run_ms);
    meter_pin(server_pid(p.s), 0);
    meter_pin(0, 0);
    p.client = bench_client(server_tcp_url(p.s));
    contest_run(&c, rounds, pairs_by_holdfast, pairs_by_pings, &p);
    contest_ratio(&c, COST_P50, "<=", 1.4);
    contest_costs(&c);
    hf_client_free(p.client);
}

TEST_TIMEOUT(aim_one_thread, 300)
{
    against_hiredis(3, 600);
}

TEST_TIMEOUT(aim_one_core, 300)
{
    on_one_core(3, 400);
}

/* ---- longer, and how much of it is the library ---- */

static void against_the_same_commands(int core)
{
    struct contest c = { .work = core < 0 ? "unpinned" : "one core",
                         .yardstick = "the same commands, bare socket" };
    struct pairs p = one_thread(1500);
    p.replay = replay_learn(p.s);
    meter_pin(server_pid(p.s), core);
    meter_pin(0, core);
    p.client = bench_client(server_tcp_url(p.s));
    contest_run(&c, 5, pairs_by_holdfast, pairs_by_replay, &p);
    contest_ratio(&c, COST_P50, "<=", NAN);
    contest_costs(&c);
    hf_client_free(p.client);
}

TEST_TIMEOUT(long_one_thread, 300)
{
    against_hiredis(9, 2000);
}

TEST_TIMEOUT(long_one_core, 300)
{
    on_one_core(9, 2000);
}

TEST_TIMEOUT(long_same_commands_unpinned, 300)
{
    against_the_same_commands(-1);
}

TEST_TIMEOUT(long_same_commands_one_core, 300)
{
    against_the_same_commands(0);
}
