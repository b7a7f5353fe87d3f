/* SPDX-License-Identifier: MIT
 * waitgraph.c - who is stuck, and who gives up: without a server.
 */
#include <stdio.h>
#include <string.h>

#include "harness/t.h"
#include "session/waitgraph.h"

/* What is told, line by line:
 *      lock LIMIT             the next lock is told of
 *      holder TOKEN WEIGHT SINCE WAITER KEY
 *      waiter TOKEN WEIGHT
 * The first lock is "0", then come those that were named, in that order. */
static struct waitgraph *told(const char *const *line, size_t n)
{
    struct waitgraph *g = waitgraph_new();
    size_t lock = SIZE_MAX;
    CHECK(g && waitgraph_lock(g, hf_str("0")) == 0);
    for (size_t i = 0; i < n; i++) {
        long long limit;
        char a[64], b[64], entry[200];
        int at = 0;
        if (sscanf(line[i], "lock %lld", &limit) == 1) {
            waitgraph_limit(g, ++lock, limit);
        } else if (sscanf(line[i], "holder %63s %63s %n", a, b, &at) == 2) {
            snprintf(entry, sizeof entry, "9 %s", line[i] + at);
            waitgraph_edge(g, lock, a, b, hf_str(entry));
        } else {
            CHECK(strncmp(line[i], "waiter ", 7) == 0);
            waitgraph_waiter(g, lock, line[i] + 7);
        }
    }
    return g;
}

static bool judge(const char *const *line, size_t n, const char *me, uint64_t *ret_signature)
{
    struct waitgraph *g = told(line, n);
    struct waitgraph_verdict v;
    bool yes = waitgraph_judge(g, me, &v);
    if (ret_signature)
        *ret_signature = v.signature;
    CHECK_INT(v.nhops > 0, yes);
    waitgraph_free(g);
    return yes;
}
#define JUDGE(me, ...) \
    judge((const char *const[]){ __VA_ARGS__ }, \
          sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), me, NULL)

TEST(a_circle_of_two)
{
    /* x waits for 0, which y holds; y waits for 1, which x holds */
    CHECK(JUDGE("x", "lock -1", "holder y1 0 5 y 1", "waiter x 0",
                "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
    /* it is the other who came last */
    CHECK(!JUDGE("x", "lock -1", "holder y1 0 7 y 1", "waiter x 0",
                 "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
    /* at the same time: the larger token */
    CHECK(!JUDGE("x", "lock -1", "holder y1 0 6 y 1", "waiter x 0",
                 "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
}

TEST(a_waiter_that_has_left)
{
    CHECK(!JUDGE("x", "lock -1", "holder y1 0 5 y 1", "waiter x 0",
                 "lock -1", "holder x1 0 6 x 0"));
    CHECK(!JUDGE("x", "lock -1", "holder y1 0 5 y 1",
                 "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
}

TEST(a_holder_that_waits_for_what_will_be_free)
{
    CHECK(!JUDGE("x", "lock -1", "holder y1 0 5 y 1", "waiter x 0",
                 "lock -1", "waiter y 0"));
}

TEST(who_stands_before_others)
{
    /* a reader behind a writer, which waits for the same reader */
    CHECK(JUDGE("x", "lock 0", "holder x1 1 6 x 0", "waiter w 0", "waiter x 1"));
    CHECK(!JUDGE("x", "lock 0", "holder x1 1 6 x 0", "waiter x 1"));
    /* the writer is behind it */
    CHECK(!JUDGE("x", "lock 0", "holder x1 1 6 x 0", "waiter x 1", "waiter w 0"));
}

TEST(permits)
{
    static const char *const limits[] = { "lock 1", "lock 2", "lock 3" };
    /* y has one of them, and waits for x; x wants two */
    for (int i = 0; i < 3; i++)
        CHECK_INT(JUDGE("x", limits[i], "holder y1 1 5 y 1", "waiter x 2",
                        "lock -1", "holder x1 0 6 x 0", "waiter y 0"), i < 2);
    /* who wants it alone needs all of them to go */
    CHECK(JUDGE("x", "lock 3", "holder y1 1 5 y 1", "waiter x 0",
                "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
    /* somebody else, who wants too much, is before it */
    CHECK(JUDGE("x", "lock 3", "holder y1 1 5 y 1", "waiter w 3", "waiter x 1",
                "lock -1", "holder x1 0 6 x 0", "waiter y 0"));
}

/* The one before it in the circle waits for a permit: it gets one from a holder that waits for
 * nobody, if there are two, and then all go on. */
TEST(a_wait_in_the_middle_that_will_end)
{
    static const char *const limits[] = { "lock 1", "lock 2" };
    for (int i = 0; i < 2; i++)
        CHECK_INT(JUDGE("x", "lock -1", "holder y1 0 5 y 1", "waiter x 0",
                        limits[i], "holder x1 1 9 x 0", "waiter y 1"), i == 0);
}

/* Both permits are out, to y and to z; z is in a circle of its own, and goes on when that has
 * ended. So x is not to give up. */
TEST(what_others_will_resolve)
{
    const char *const all[] = {
        "lock 2", "holder y1 1 5 y 1", "holder z1 1 3 z 2", "waiter x 1",
        "lock -1", "holder x1 0 9 x 0", "waiter y 0",
        "lock -1", "holder v1 0 4 v 3", "waiter z 0",
        "lock -1", "holder z2 0 3 z 2", "waiter v 0",
    };
    CHECK(!judge(all, sizeof all / sizeof *all, "x", NULL));
    const char *const inner[] = {
        "lock -1", "holder z2 0 3 z 1", "waiter v 0",
        "lock -1", "holder v1 0 4 v 0", "waiter z 0",
    };
    CHECK(judge(inner, sizeof inner / sizeof *inner, "v", NULL));
}

/* Two circles with one in common: one gives up at a time. */
TEST(two_circles)
{
    const char *const x[] = {
        "lock -1", "holder y1 0 5 y 1", "waiter x 0", "waiter v 0",
        "lock 0", "holder x1 1 9 x 0", "holder v1 1 8 v 0", "waiter y 0",
    };
    CHECK(judge(x, sizeof x / sizeof *x, "x", NULL));
    CHECK(!judge(x, sizeof x / sizeof *x, "v", NULL));
}

TEST(the_same_is_signed_the_same)
{
    const char *const one[] = {
        "lock -1", "holder y1 0 5 y 1", "waiter x 0",
        "lock 0", "holder x1 1 9 x 0", "holder u1 1 3 u 9", "waiter y 0",
    };
    const char *const two[] = {
        "lock -1", "holder y1 0 5 y 1", "waiter x 0",
        "lock 0", "holder u1 1 3 u 9", "holder x1 1 9 x 0", "waiter y 0",
    };
    const char *const other[] = {
        "lock -1", "holder y2 0 5 y 1", "waiter x 0",
        "lock 0", "holder x1 1 9 x 0", "holder u1 1 3 u 9", "waiter y 0",
    };
    uint64_t a, b, c;
    CHECK(judge(one, 7, "x", &a) && judge(two, 7, "x", &b) && judge(other, 7, "x", &c));
    CHECK(a == b);
    CHECK(a != c);
}

TEST(what_makes_no_sense)
{
    static const char *const bad[] = { "", " ", "1", "1 2", "1 2 ", "1 2 t", "1 2 t ", "x y z w" };
    struct waitgraph *g = waitgraph_new();
    struct waitgraph_verdict v;
    char text[40];
    CHECK(!waitgraph_judge(g, "x", &v));
    CHECK_INT(waitgraph_lock(g, hf_str("0")), 0);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        waitgraph_edge(g, 0, "h", "w", hf_str(bad[i]));
    CHECK_INT(waitgraph_locks(g), 1);
    CHECK(!waitgraph_judge(g, "x", &v));
    for (int i = 0; i < 3000; i++) { /* more than there is room for */
        snprintf(text, sizeof text, "1 2 t%d k%d", i, i);
        waitgraph_edge(g, 0, "h", "1", hf_str(text));
    }
    for (int i = 0; i < 30000; i++) {
        snprintf(text, sizeof text, "t%d 1", i);
        waitgraph_waiter(g, 0, text);
    }
    CHECK_INT(waitgraph_locks(g), WAITGRAPH_LOCKS_MAX);
    CHECK(!waitgraph_judge(g, "x", &v));
    waitgraph_free(g);
}
