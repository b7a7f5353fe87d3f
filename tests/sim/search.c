/* SPDX-License-Identifier: MIT
 * search.c - schedules, seed after seed, until the time is over or one is wrong.
 *
 * SIM_SECONDS=n: for so long. SIM_SCHEDULES=n: so many, if there is time. SEED=n: from that one on.
 * SIM_KIND=cluster, nested: only schedules of that kind. SIM_TELL=1: only that one, in words.
 * Without all of these the same schedules each time, so that a change is judged by what it changes;
 * `make sim` goes on to others.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "sim/lib/find.h"
#include "sim/lib/judge.h"

#if T_ADDRESS_SANITIZER
#define SCHEDULES 1000
#else
#define SCHEDULES 12000
#endif
#define SECONDS 60
#define AT_MOST 900 /* for those that are always the same, on a slow machine */

static void fail(struct finding *f)
{
    find_smallest(f);
    find_tell(f);
    FAIL("SEED=%llu: %s", (unsigned long long)f->seed, f->text);
}

/* One that was wrong once. */
static void check_schedule(uint64_t seed)
{
    struct play_counts counts = { 0 };
    struct search s = { .next = seed, .most = 1 };
    struct finding f;
    if (find_wrong(&s, 60000, &counts, &f))
        fail(&f);
}

static unsigned kinds(void)
{
    const char *kind = getenv("SIM_KIND");
    if (!kind || !*kind)
        return 0;
    CHECK(strcmp(kind, "cluster") == 0 || strcmp(kind, "nested") == 0);
    return *kind == 'c' ? PLAY_CLUSTER : PLAY_NESTED;
}

TEST_TIMEOUT(I1_to_I8_hold_in_every_schedule, 1000000)
{
    struct play_counts counts = { 0 };
    const char *seconds = getenv("SIM_SECONDS"), *schedules = getenv("SIM_SCHEDULES");
    bool same = !seconds && !schedules && !getenv("SEED");
    struct finding f = { .seed = same ? 1 : t_seed() };
    int64_t begun = t_now_ms();
    if (getenv("SIM_TELL")) {
        if (play(f.seed, NULL, &counts))
            find_tell(&f);
        else
            fail(&(struct finding){ .seed = f.seed, .rule = judge_verdict.rule });
        return;
    }
    int64_t ms = (seconds ? atoll(seconds) : same ? AT_MOST : SECONDS) * 1000;
    struct search s = { .next = f.seed, .kinds = kinds(),
                        .most = schedules ? strtoull(schedules, NULL, 10)
                                : same    ? SCHEDULES
                                          : UINT64_MAX };
    t_note("from seed %llu on", (unsigned long long)f.seed);
    bool wrong = find_wrong(&s, ms, &counts, &f);
    find_counts(&counts, t_now_ms() - begun);
    CHECK(wrong || counts.clusters < 1000 || counts.could_be_handed > 0);
    CHECK(wrong || counts.late_deaths < 100 || counts.late_takeovers > 0);
    CHECK(wrong || !same || s.most == 0); /* all of them were played */
    if (wrong)
        fail(&f);
}

/* What whoever got a lock still had to say of its wait kept it from returning; by then the lock,
 * which has a short grace, was lost. */
TEST(P5_a_grant_is_told_at_once)
{
    check_schedule(3185192223);
}

/* After its cancellation, which was answered late, it took as long again to take back what it had
 * said to find deadlocks. */
TEST(P5_a_wait_ends_in_time_when_its_cancellation_was_slow)
{
    check_schedule(6000337512);
}

/* It was handed a lock with its grace, lost its session's connection before it could claim it, and
 * asked again without a grace: it believed in a lock that others could have taken, and it could
 * neither renew nor release it. */
TEST(P1_a_token_keeps_its_terms)
{
    check_schedule(6000557810);
}

/* The server that had the slot last had not heard that it was gone. A holder believed it, moved its
 * session back to it, and went on to renew where the lock is; there it was taken for dead. */
TEST(P1_a_holder_does_not_follow_a_server_that_has_not_heard_of_a_move)
{
    check_schedule(900436);
}

/* A slot came back to the server that had granted its lock, before anybody had greeted the other
 * one: so the holder, which was there, counted as absent at once. */
TEST(P1_a_holder_is_not_presumed_dead_where_its_slot_has_come_back_to)
{
    check_schedule(6503863);
}

/* A downgrade of which nobody heard had not come, and while the slot moved the lock was looked for
 * among several only. */
TEST(P5_a_lock_whose_downgrade_did_not_come_is_kept_key_by_key)
{
    check_schedule(20026220);
}

/* All waited for less than the grace, again and again, and each began anew to see that the holder
 * was gone. */
TEST(P3_who_waits_for_less_than_the_grace_takes_over_too)
{
    check_schedule(21700000136217);
}

/* The connection was dead on which the server had been asked for a channel; as nobody relied on it,
 * it was not noticed: who waited went on to poll, and stood in no queue. */
TEST(P6_an_unheard_channel_is_a_dead_connection)
{
    check_schedule(41700000066754);
}

/* While a slot moved it was written down on both servers that a holder waits. */
TEST(P1_a_wait_is_written_down_on_one_server)
{
    check_schedule(31700000443655);
}

TEST(the_same_seed_gives_the_same_schedule)
{
    struct play_counts counts = { 0 };
    for (uint64_t seed = t_seed(); seed < t_seed() + 20; seed++) {
        CHECK(play(seed, NULL, &counts));
        uint64_t trace = play_trace();
        CHECK(play(seed, NULL, &counts));
        CHECK(play_trace() == trace);
        CHECK(play(seed + 1000, NULL, &counts));
        CHECK(play_trace() != trace);
    }
}
