/* SPDX-License-Identifier: MIT
 * search.c - schedules, seed after seed, until the time is over or one is wrong.
 *
 * SIM_SECONDS=n: for so long. SIM_SCHEDULES=n: so many, if there is time. SEED=n: from that one on.
 * SIM_TELL=1: only that one, in words.
 */
#include <stdlib.h>

#include "harness/t.h"
#include "sim/lib/find.h"
#include "sim/lib/judge.h"

#ifdef __SANITIZE_ADDRESS__
#define SECONDS 5
#else
#define SECONDS 15
#endif

static void fail(struct finding *f)
{
    find_smallest(f);
    find_tell(f);
    FAIL("SEED=%llu: %s", (unsigned long long)f->seed, f->text);
}

TEST_TIMEOUT(I1_to_I8_hold_in_every_schedule, 1000000)
{
    struct play_counts counts = { 0 };
    struct finding f = { .seed = t_seed() };
    const char *seconds = getenv("SIM_SECONDS");
    int64_t begun = t_now_ms();
    if (getenv("SIM_TELL")) {
        if (play(f.seed, NULL, &counts))
            find_tell(&f);
        else
            fail(&(struct finding){ .seed = f.seed, .rule = judge_verdict.rule });
        return;
    }
    int64_t ms = (seconds ? atoll(seconds) : SECONDS) * 1000;
    const char *schedules = getenv("SIM_SCHEDULES");
    uint64_t most = schedules ? strtoull(schedules, NULL, 10) : UINT64_MAX;
    bool wrong = find_wrong(f.seed, most, ms, &counts, &f);
    t_note("from seed %llu on", (unsigned long long)t_seed());
    find_counts(&counts, t_now_ms() - begun);
    if (wrong)
        fail(&f);
}

TEST(the_same_seed_gives_the_same_schedule)
{
    struct play_counts counts = { 0 };
    for (uint64_t seed = t_seed(); seed < t_seed() + 20; seed++) {
        play(seed, NULL, &counts);
        uint64_t trace = play_trace();
        play(seed, NULL, &counts);
        CHECK(play_trace() == trace);
        play(seed + 1000, NULL, &counts);
        CHECK(play_trace() != trace);
    }
}
