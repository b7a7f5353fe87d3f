/* SPDX-License-Identifier: MIT
 * honest.c - the judge of the matrix finds what it is there to find: histories with one mistake
 * each, written by hand.
 */
#include <signal.h>

#include "faults/lib/matrix.h"
#include "faults/lib/tool.h"

#define MS INT64_C(1000000)

static const struct row any = { .name = "planted", .about = "planted", .topos = "S" };

static struct run begin(const struct row *row)
{
    struct run r = { .row = row, .topo = 'S', .want = { .ttl_ms = 2000 } };
    r.b = shared_memory(sizeof *r.b);
    r.h = history_new(1000);
    return r;
}

/* All times in ms. */
static struct grant *planted(struct run *r, unsigned client, uint64_t fence, int64_t invoke,
                             int64_t returned, int64_t release, int64_t deadline)
{
    struct grant *g = history_grant(r->h, 0, client, fence, invoke * MS, deadline * MS);
    g->returned = returned * MS;
    g->release = release * MS;
    return g;
}

static struct verdict judged(struct run *r)
{
    struct verdict v = { 0 };
    judge(r, &v);
    return v;
}

TEST(a_good_history_is_good)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 2, 11, 100, 112, 120, 2100);
    struct verdict v = judged(&r);
    CHECK_INT((long long)(v.grants), 2);
    CHECK_INT((long long)(v.i1 + v.i2 + v.i3 + v.i4 + v.i5 + v.i6 + v.i7), 0);
    CHECK_INT(v.max_us, 2000);
}

TEST(I1_a_number_twice_or_out_of_order)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 2, 10, 120, 121, 130, 2100);
    planted(&r, 3, 9, 140, 141, 150, 2200);
    CHECK_INT((long long)judged(&r).i1, 2);
}

TEST(I2_two_believe_at_once)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 500, 2000);
    planted(&r, 2, 11, 100, 400, 600, 2100);
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.i2, 1);
    CHECK_INT(v.overlap_ms, 100);
}

/* Its lease was over: it overslept, and nobody broke a promise. The file cannot know that. */
TEST(I2_who_sleeps_past_its_lease_does_not_believe)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 5000, 2000);
    planted(&r, 2, 11, 100, 2100, 2200, 4000);
    r.b->witness[0].client = 2;
    r.b->witness[0].at = 2150 * MS;
    r.b->witnesses = 1;
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.i2, 0);
    CHECK_INT((long long)v.overslept, 1);
}

TEST(I2_the_witness_saw_a_holder)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 500, 2000);
    planted(&r, 2, 11, 100, 140, 500, 2000);
    r.b->witness[0].client = 2;
    r.b->witness[0].at = 150 * MS;
    r.b->witnesses = 1;
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.witness, 1);
    CHECK_INT((long long)v.i2, 2); /* and the history says so itself */
}

TEST(I3_taken_from_its_holder)
{
    struct run r = begin(&any);
    r.b->taken_early = 1;
    CHECK_INT((long long)judged(&r).i3, 1);
}

/* Who came later gets it at once, and then the first as well. */
TEST(I4_free_until_another_one_came)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 3, 11, 60000, 60001, 60002, 62000);
    planted(&r, 2, 12, 105, 60003, 60004, 62000);
    CHECK_INT((long long)judged(&r).i4, 1);
}

TEST(I4_free_and_not_granted)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 2, 11, 105, 60000, 60001, 62000);
    CHECK_INT((long long)judged(&r).i4, 1);
}

TEST(I4_a_row_may_demand_more)
{
    struct row row = any;
    row.stall_ms = 9000;
    struct run r = begin(&row);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 2, 11, 105, 10000, 10001, 12000);
    CHECK_INT((long long)judged(&r).i4, 1);
}

TEST(I5_passed_over_again_and_again)
{
    struct run r = begin(&any);
    for (int i = 0; i < 20; i++)
        planted(&r, 2, 10 + (uint64_t)i, 1000 + i * 10, 1005 + i * 10, 1009 + i * 10, 9000);
    planted(&r, 1, 40, 100, 1300, 1310, 9000);
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.passed, 20);
    CHECK_INT((long long)v.i5, 1);
}

TEST(I7_calls_that_fail_or_are_late)
{
    struct run r = begin(&any);
    r.b->failed[5] = 2;
    r.b->late = 1;
    CHECK_INT((long long)judged(&r).i7, 3);
}

TEST(a_loss_is_spurious_if_nobody_gained)
{
    struct run r = begin(&any);
    struct grant *a = planted(&r, 1, 10, 100, 101, 300, 2000);
    a->lost_at = 290 * MS;
    struct grant *b = planted(&r, 2, 11, 100, 310, 400, 2000);
    b->lost_at = 390 * MS;
    planted(&r, 3, 12, 100, 350, 400, 2000);
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.lost, 2);
    CHECK_INT((long long)v.spurious, 1);
}

/* ---- the tool ---- */

static void no_turn(struct run *r, int index)
{
    (void)r;
    (void)index;
}

/* Nobody knows when a command died that was killed; whoever finds its file locked knows enough. */
TEST(I2_a_command_that_runs_relies_on_its_lock)
{
    struct row row = any;
    row.turn = no_turn;
    struct run r = begin(&row);
    planted(&r, 1, 10, 100, 101, 148, 9000);
    planted(&r, 2, 11, 100, 150, 500, 9000);
    r.b->witness[0].client = 2;
    r.b->witness[0].at = 150 * MS;
    r.b->witnesses = 1;
    struct verdict v = judged(&r);
    CHECK_INT((long long)v.i2, 1);
    CHECK_INT((long long)v.overslept, 0);
}

TEST(I7_a_tool_that_ended_wrongly)
{
    struct run r = begin(&any);
    r.b->wrong = 2;
    CHECK_INT((long long)judged(&r).i7, 2);
}

static void right(struct outcome o)
{
    if (tool_judge(&o))
        FAIL("status %d: %s", o.status, tool_judge(&o));
}

static void wrong(struct outcome o)
{
    if (!tool_judge(&o))
        FAIL("status %d is right", o.status);
}

#define RAN .exited = 1, .began = 1, .was_ready = 1, .stage = RUNS

TEST(the_status_of_a_tool_whose_command_ends)
{
    right((struct outcome){ RAN, .ended = 1, .code = 7, .status = 7 });
    wrong((struct outcome){ RAN, .ended = 1, .code = 7, .status = 0 });
    wrong((struct outcome){ RAN, .ended = 1, .code = 7, .status = 143, .sig = SIGTERM });
    right((struct outcome){ RAN, .ended = 1, .code = 35, .status = 35, .sig = SIGTERM,
                            .got = SIGTERM, .manner = HANDLES });
    wrong((struct outcome){ RAN, .ended = 1, .code = 22, .status = 22, .sig = SIGTERM,
                            .got = SIGINT, .manner = HANDLES });
    right((struct outcome){ RAN, .status = 130, .sig = SIGINT });
    wrong((struct outcome){ RAN, .status = 0, .sig = SIGINT });
    wrong((struct outcome){ RAN, .status = 130, .sig = SIGINT, .manner = IGNORES });
    wrong((struct outcome){ RAN, .status = 137 });
    wrong((struct outcome){ .began = 1, .stage = RUNS, .status = SIGTERM, .sig = SIGTERM });
}

TEST(the_status_of_a_tool_without_a_command)
{
    right((struct outcome){ .exited = 1, .status = 129, .sig = SIGHUP, .stage = WAITS });
    wrong((struct outcome){ .exited = 1, .status = 0, .sig = SIGHUP, .stage = WAITS });
    wrong((struct outcome){ .status = SIGHUP, .sig = SIGHUP, .stage = WAITS });
    right((struct outcome){ .status = SIGHUP, .sig = SIGHUP, .stage = STARTS });
    right((struct outcome){ .exited = 1, .status = 75, .limited = 1 });
    wrong((struct outcome){ .exited = 1, .status = 75 });
    wrong((struct outcome){ .exited = 1, .status = 69, .limited = 1 });
    right((struct outcome){ .exited = 1, .status = 69, .limited = 1, .told_silent = 1 });
    right((struct outcome){ .status = SIGKILL, .sig = SIGKILL, .stage = TAKEN });
    wrong((struct outcome){ .status = SIGSEGV });
}

TEST(the_status_of_a_tool_that_lost_its_lock)
{
    right((struct outcome){ RAN, .status = 79, .taken_away = 1, .told_lost = 1 });
    wrong((struct outcome){ RAN, .status = 79, .taken_away = 1 });
    wrong((struct outcome){ RAN, .ended = 1, .code = 7, .status = 7, .taken_away = 1 });
    wrong((struct outcome){ RAN, .status = 143, .taken_away = 1, .told_lost = 1 });
}
