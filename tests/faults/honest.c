/* SPDX-License-Identifier: MIT
 * honest.c - the judge of the matrix finds what it is there to find: histories with one mistake
 * each, written by hand.
 */
#include "faults/lib/matrix.h"

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

TEST(I4_free_and_not_granted)
{
    struct run r = begin(&any);
    planted(&r, 1, 10, 100, 101, 110, 2000);
    planted(&r, 2, 11, 105, 60000, 60001, 62000);
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
