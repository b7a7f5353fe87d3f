/* SPDX-License-Identifier: MIT
 * contended.c - what it costs to hand one lock from process to process, beside the least that this
 * server can do.
 */
#include <math.h>
#include <stdio.h>

#include "harness/t.h"
#include "lib/contest.h"
#include "lib/hand.h"

static struct cost round_ours(void *arg)
{
    return hand_round(arg, &hand_holdfast);
}

static struct cost round_bound(void *arg)
{
    return hand_round(arg, &hand_bound);
}

static struct cost drain_ours(void *arg)
{
    return hand_drain(arg, &hand_holdfast);
}

static struct cost drain_bound(void *arg)
{
    return hand_drain(arg, &hand_bound);
}

static struct board *board_of(int workers)
{
    return board_new(server_start_opts(&(struct server_opts){ .tcp = 1 }), workers);
}

static void handing_round(int workers, int64_t away_ns, int rounds)
{
    char work[40];
    snprintf(work, sizeof work, "contended, %d processes", workers);
    struct contest c = { .work = work, .yardstick = "BLPOP bound" };
    struct board *b = board_of(workers);
    b->hold_ns = 1000000;
    b->away_ns = away_ns;
    b->run_ms = 2000;
    contest_run(&c, rounds, round_ours, round_bound, b);
    contest_ratio(&c, COST_RATE, ">=", 0.92);
    contest_ratio(&c, COST_P50, "<=", 1.75);
    contest_ratio(&c, COST_P99, "<=", 1.8);
    contest_ratio(&c, COST_SERVER, "<=", 1.9);
    contest_value(&c, COST_COMMANDS, "<=", 3);
    contest_value(&c, COST_BYTES, "<=", 650);
    contest_value(&c, COST_FAIRNESS, "<=", 1.05);
    contest_costs(&c);
}

/* settle_ms: how long they have waited. Who has for more than half a second must ask once more
 * before it believes that it is the owner. */
static void drain(int hold_us, int settle_ms, double limit, int rounds)
{
    char work[60];
    snprintf(work, sizeof work, "drain of 64, waited %d ms%s", settle_ms,
             hold_us ? "" : ", no hold");
    struct contest c = { .work = work, .yardstick = "BLPOP bound" };
    struct board *b = board_of(64);
    b->hold_ns = hold_us * 1000;
    b->settle_ms = settle_ms;
    contest_run(&c, rounds, drain_ours, drain_bound, b);
    contest_ratio(&c, COST_P50, "<=", limit);
    contest_costs(&c);
}

TEST_TIMEOUT(aim_sixty_four_processes, 300)
{
    handing_round(64, 64 * 250000, 3);
}

TEST_TIMEOUT(aim_drain, 300)
{
    drain(500, 800, 1.3, 3);
}

TEST_TIMEOUT(long_sixty_four_processes, 600)
{
    handing_round(64, 64 * 250000, 9);
}

TEST_TIMEOUT(long_eight_processes, 600)
{
    handing_round(8, 8 * 250000, 9);
}

/* Each waits while the other holds: the time from release to ownership, and nothing else. */
TEST_TIMEOUT(long_from_one_process_to_the_other, 600)
{
    handing_round(2, 0, 9);
}

TEST_TIMEOUT(long_drain, 900)
{
    drain(500, 1500, 1.3, 5);
    drain(500, 300, 1.3, 5);
    drain(0, 1500, NAN, 5);
    drain(0, 300, NAN, 5);
}
