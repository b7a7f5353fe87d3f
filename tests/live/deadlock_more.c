/* SPDX-License-Identifier: MIT
 * deadlock_more.c - circles of several locks at once, of elections, behind a long queue; and often.
 */
#include "harness/circle.h"

TEST(who_waits_behind_others_and_holds_several)
{
    const struct party p[] = {
        { .wants = { .name = "b" } },
        { .has = { { .name = "a" }, { .name = "d" }, { .name = "e" } }, .wants = { .name = "b" } },
        { .wants = { .name = "a" } },
        { .has = { { .name = "b" }, { .name = "f" } }, .wants = { .name = "e" } },
    };
    play_here(p, 4);
}

/* ---- several at once, elections, owner ids ------------------------------------------------- */

struct both {
    const char *url;
    struct {
        atomic_int ready, victims, went_on;
    } *mem;
};

static void note_result(struct both *b, hf_err e)
{
    if (e == HF_EDEADLK)
        atomic_fetch_add(&b->mem->victims, 1);
    else
        CHECK_HF(e, HF_OK);
    atomic_fetch_add(&b->mem->went_on, e == HF_OK);
}

static void several(int index, void *arg)
{
    struct both *b = arg;
    hf_client *c = client_at(b->url, 20000);
    hf_lock *has = lock_of(c, index ? "b" : "a", 30000);
    hf_lock *wants[] = { lock_of(c, index ? "a" : "b", 30000), lock_of(c, "c", 30000),
                         lock_of(c, "d", 30000) };
    lock_now(has);
    atomic_fetch_add(&b->mem->ready, 1);
    await(&b->mem->ready, 2);
    usleep((unsigned)index * 50000);
    hf_err e = hf_multi_acquire(wants, 3, WAIT_MS, &err);
    if (e)
        for (int i = 0; i < 3; i++)
            CHECK_INT(hf_lock_state(wants[i]), HF_STATE_FREE);
    note_result(b, e);
    for (int i = 0; i < 3; i++)
        hf_lock_free(wants[i]);
    hf_lock_free(has);
    hf_client_free(c);
}

static void candidate(int index, void *arg)
{
    struct both *b = arg;
    hf_client *c = client_at(b->url, 20000);
    hf_election *has, *wants;
    CHECK_HF(hf_election_open(c, hf_str(index ? "b" : "a"), NULL, &has, &err), HF_OK);
    CHECK_HF(hf_election_open(c, hf_str(index ? "a" : "b"), NULL, &wants, &err), HF_OK);
    CHECK_HF(hf_election_campaign(has, hf_str("me"), 10000, NULL, &err), HF_OK);
    atomic_fetch_add(&b->mem->ready, 1);
    await(&b->mem->ready, 2);
    usleep((unsigned)index * 50000);
    note_result(b, hf_election_campaign(wants, hf_str("me too"), WAIT_MS, NULL, &err));
    hf_election_free(wants);
    hf_election_free(has);
    hf_client_free(c);
}

static void run_both(void (*fn)(int index, void *arg))
{
    struct server *s = server_start(NULL);
    struct both b = { .url = server_url(s), .mem = shared_memory(sizeof *b.mem) };
    workers_run(2, fn, &b, 60000);
    CHECK_INT(atomic_load(&b.mem->victims), 1);
    CHECK_INT(atomic_load(&b.mem->went_on), 1);
}

TEST(who_wants_several_at_once_and_holds_one)
{
    run_both(several);
}

TEST(leaders)
{
    run_both(candidate);
}

/* More than one answer of the server has room for. */
enum { AHEAD = 620 };

static void never_mind(hf_err result, const hf_error *e, void *arg)
{
    (void)result;
    (void)e;
    atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(behind_a_long_queue)
{
    struct server *s = server_start(NULL);
    const struct party p[] = { { .has = { { .name = "a" } }, .wants = { .name = "b" } },
                               { .has = { { .name = "b" } }, .wants = { .name = "a" } } };
    struct scene sc = { .url = server_url(s), .n = 3, .party = p };
    sc.mem = shared_memory(sizeof *sc.mem);
    struct workers *w = workers_start(2, take_part, &sc);
    CHECK_EVENTUALLY(atomic_load(&sc.mem->ready) == 2, 20000);
    hf_client *c = client_at(server_url(s), 20000);
    hf_lock *m[AHEAD];
    atomic_int ended = 0;
    for (int i = 0; i < AHEAD; i++) {
        m[i] = lock_of(c, "b", 30000);
        CHECK_HF(hf_lock_acquire_async(m[i], HF_WAIT_FOREVER, never_mind, &ended, &err), HF_OK);
    }
    LOOP_QUEUE(c, s, "b", AHEAD);
    atomic_fetch_add(&sc.mem->ready, 1); /* the two begin to wait */
    LOOP_EVENTUALLY(c, atomic_load(&sc.mem->victims) == 1, 20000);
    t_note("%s", sc.mem->words);
    CHECK_CONTAINS(sc.mem->words, "waits for \"b\" behind others");
    hf_client_free(c); /* they all leave */
    CHECK_INT(atomic_load(&ended), AHEAD);
    workers_join(w, 30000);
    CHECK_INT(atomic_load(&sc.mem->went_on), 1);
    for (int i = 0; i < AHEAD; i++)
        hf_lock_free(m[i]);
}

TEST_TIMEOUT(all_at_once, 600)
{
    struct server *s = server_start(NULL);
    struct party p[CIRCLE_MAX];
    for (int i = 0; i < CIRCLE_MAX; i++)
        p[i] = (struct party){ .has = { { .name = keep_text("n%d", i) } },
                               .wants = { .name = keep_text("n%d", (i + 1) % CIRCLE_MAX) } };
    struct scene sc = { .url = server_url(s), .n = CIRCLE_MAX, .party = p, .at_once = 1 };
    for (int i = 0; i < (getenv("HF_SOAK") ? 50 : 1); i++)
        play_scene(&sc);
}

/* ---- often ---------------------------------------------------------------------------------- */

TEST_TIMEOUT(again_and_again, 3600)
{
    struct server *s = server_start(NULL);
    const struct party p[] = {
        { .has = { { .name = "a", .slots = 2 } }, .wants = { .name = "b", .shared = 1 } },
        { .has = { { .name = "a", .slots = 2 } }, .wants = { .name = "c" } },
        { .has = { { .name = "b" } }, .wants = { .name = "d" } },
        { .has = { { .name = "c" }, { .name = "d", .shared = 1 } },
          .wants = { .name = "a", .slots = 2 } },
    };
    for (int i = 0; i < (getenv("HF_SOAK") ? 100 : 1); i++)
        play(server_url(s), p, 4);
}
