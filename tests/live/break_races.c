/* SPDX-License-Identifier: MIT
 * break_races.c - BR1 and BR2 while everything moves: breaks meet releases, renewals, hand-overs
 * and one another. HF_SOAK=1: for a minute.
 */
#include "harness/believer.h"
#include "harness/history.h"

enum { WORKERS = 5 };

struct race {
    const char     *url;
    int             shared;
    struct history *h;
    atomic_int      stop, broken, lost_otherwise, failed, released;
};

/* Some let go soon; some stay until somebody breaks the lock. */
static void hold(struct race *r, hf_lock *m, struct grant *g, int stay)
{
    int64_t until = t_now_ms() + (stay ? 3000 : rand() % 10);
    while (t_now_ms() < until && hf_lock_state(m) != HF_STATE_LOST && !atomic_load(&r->stop)) {
        if (hf_lock_is_held(m))
            history_deadline(g, BELIEVED_UNTIL(m));
        t_sleep_ms(1);
    }
    history_release(g);
    hf_loss loss = hf_lock_loss(m);
    hf_err e = hf_lock_release(m, &err);
    if (loss == HF_LOSS_BROKEN)
        atomic_fetch_add(&r->broken, 1);
    else if (e == HF_ELOST && !strstr(err.message, "broken by"))
        atomic_fetch_add(&r->lost_otherwise, 1);
    else
        atomic_fetch_add(&r->released, 1);
}

static void work(int index, void *arg)
{
    struct race *r = arg;
    hf_client *c = client_at(r->url, 0);
    srand((unsigned)index + 1);
    hf_lock_opts o = { .ttl_ms = 20000, .shared = r->shared && index % 2 };
    hf_lock *m = lock_with(c, "a", o);
    while (!atomic_load(&r->stop)) {
        uint64_t fence;
        int64_t begun = t_now_ns();
        hf_err e = hf_lock_acquire(m, 30000, &fence, &err);
        if (e) {
            if (e != HF_ELOST) /* broken between hand-over and claim */
                atomic_fetch_add(&r->failed, 1);
            continue;
        }
        struct grant *g = o.shared ? history_share(r->h, 0, (uint32_t)index, fence, begun,
                                                   BELIEVED_UNTIL(m), 1)
                                   : history_grant(r->h, 0, (uint32_t)index, fence, begun,
                                                   BELIEVED_UNTIL(m));
        hold(r, m, g, rand() % 4 == 0);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* Break whoever has it, now and then with an old number; how often it passed by that. */
static int break_for(hf_client *c, int64_t ms)
{
    int passed = 0;
    uint64_t old = 1;
    for (int64_t until = t_now_ms() + ms; t_now_ms() < until; t_sleep_ms(rand() % 5)) {
        hf_inspect_info *info;
        hf_break_info got;
        hf_break_opts o = { .size = sizeof o, .reason = "race", .wait_ms = rand() % 40 };
        CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
        size_t n = info->holders;
        uint64_t fence = n ? info->holder[(size_t)rand() % n]->fence : 0;
        hf_inspect_free(info);
        if (!fence)
            continue;
        hf_err e = hf_break(c, hf_str("a"), rand() % 5 ? fence : old, &o, &got, &err);
        CHECK(e == HF_OK || e == HF_ENOTOWNER || e == HF_ETIMEDOUT);
        passed += e == HF_OK && got.how == HF_BROKEN_RELEASED;
        old = fence;
    }
    return passed;
}

static void race(int shared)
{
    struct server *s = server_start(NULL);
    struct race *r = shared_memory(sizeof *r);
    struct history_report rep;
    int64_t ms = getenv("HF_SOAK") ? 60000 : 2500;
    r->url = server_url(s);
    r->shared = shared;
    r->h = history_new(200000);
    struct workers *w = workers_start(WORKERS, work, r);
    hf_client *c = client_at(r->url, 0);
    int passed = break_for(c, ms);
    atomic_store(&r->stop, 1);
    workers_join(w, 60000);
    size_t wrong = shared ? history_check_shared(r->h, 1000, &rep) : history_check(r->h, &rep);
    t_note("%zu grants, %d broken, %d released, %d lost otherwise, %d failed; %d passed by a break",
           rep.grants, atomic_load(&r->broken), atomic_load(&r->released),
           atomic_load(&r->lost_otherwise), atomic_load(&r->failed), passed);
    CHECK_INT((int)wrong, 0);
    CHECK_INT(atomic_load(&r->failed), 0);
    CHECK_INT(atomic_load(&r->lost_otherwise), 0);
    CHECK(atomic_load(&r->broken) > 5); /* the faults were there */
    CHECK(atomic_load(&r->released) > 5);
    check_only_ttls(s);
    hf_client_free(c);
}

TEST_TIMEOUT(BR1_breaks_race_with_releases_renewals_and_hand_overs, 180)
{
    race(0);
}

TEST_TIMEOUT(BR1_the_same_among_readers_and_writers, 180)
{
    race(1);
}
