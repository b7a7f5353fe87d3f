/* SPDX-License-Identifier: MIT
 * thread_latch.c - latches and barriers among the threads of one client, cancelled by others.
 */
#include "harness/waiting.h"

enum { THREADS = 8 };

struct waiting {
    hf_latch   *lt;
    hf_barrier *b;
    int         rounds;
    pthread_t   thread;
};

static atomic_int entered, passed, cancelled, broken;

/* ---- a latch ---- */

static void *waits(void *arg)
{
    struct waiting *w = arg;
    hf_error error;
    atomic_fetch_add(&entered, 1);
    hf_err e = hf_latch_wait(w->lt, 30000, &error);
    if (e != HF_OK && e != HF_ECANCELED)
        FAIL("%s: %s", hf_err_name(e), error.message);
    atomic_fetch_add(e ? &cancelled : &passed, 1);
    return NULL;
}

TEST(threads_of_one_client_wait_for_a_latch_and_one_is_cancelled)
{
    enum { ROUNDS = 25 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct waiting w[THREADS] = { 0 };
    hf_latch *setter = NULL;
    CHECK_HF(hf_latch_open(c, hf_str("a"), NULL, &setter, &err), HF_OK);
    for (int i = 0; i < THREADS; i++)
        CHECK_HF(hf_latch_open(c, hf_str("a"), NULL, &w[i].lt, &err), HF_OK);
    for (int round = 0; round < ROUNDS; round++) {
        atomic_store(&entered, 0);
        CHECK_HF(hf_latch_set(setter, 2, &err), HF_OK);
        for (int i = 0; i < THREADS; i++)
            CHECK_INT(pthread_create(&w[i].thread, NULL, waits, &w[i]), 0);
        if (round % 2) /* in the middle of things, or when all wait */
            CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:l") == THREADS, 10000);
        hf_latch_cancel(w[round % THREADS].lt);
        CHECK_INT(pthread_join(w[round % THREADS].thread, NULL), 0);
        CHECK_HF(hf_latch_count_down(setter, 2, NULL, &err), HF_OK);
        for (int i = 0; i < THREADS; i++)
            if (i != round % THREADS)
                CHECK_INT(pthread_join(w[i].thread, NULL), 0);
    }
    CHECK_INT(atomic_load(&cancelled), ROUNDS);
    CHECK_INT(atomic_load(&passed), ROUNDS * (THREADS - 1));
    for (int i = 0; i < THREADS; i++)
        hf_latch_free(w[i].lt);
    hf_latch_free(setter);
    hf_client_free(c);
    check_only_ttls(s);
}

/* ---- a barrier ---- */

static void *meets(void *arg)
{
    struct waiting *w = arg;
    hf_error error;
    for (int i = 0; i < w->rounds; i++) {
        hf_err e = hf_barrier_wait(w->b, 30000, NULL, NULL, &error);
        if (e != HF_OK && e != HF_ECANCELED && e != HF_EBROKEN)
            FAIL("%s: %s", hf_err_name(e), error.message);
        atomic_fetch_add(e == HF_OK ? &passed : e == HF_EBROKEN ? &broken : &cancelled, 1);
    }
    return NULL;
}

static void meet(struct server *s, hf_client *c, int rounds)
{
    struct waiting w[THREADS] = { 0 };
    for (int i = 0; i < THREADS; i++) {
        CHECK_HF(hf_barrier_open(c, hf_str("a"), THREADS, NULL, &w[i].b, &err), HF_OK);
        w[i].rounds = rounds;
        CHECK_INT(pthread_create(&w[i].thread, NULL, meets, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(w[i].thread, NULL), 0);
    for (int i = 0; i < THREADS; i++)
        hf_barrier_free(w[i].b);
    check_only_ttls(s);
}

TEST(threads_of_one_client_meet_at_a_barrier)
{
    enum { ROUNDS = 40 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    meet(s, c, ROUNDS);
    CHECK_INT(atomic_load(&passed), THREADS * ROUNDS);
    hf_client_free(c);
}

/* Each has one call, which is cancelled: as many calls as threads, all of them end. */
TEST(a_cancelled_party_breaks_it_for_the_other_threads)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct waiting w[THREADS] = { 0 };
    for (int round = 0; round < 10; round++) {
        atomic_store(&broken, 0);
        atomic_store(&cancelled, 0);
        for (int i = 0; i < THREADS - 1; i++) { /* one never comes */
            CHECK_HF(hf_barrier_open(c, hf_str("a"), THREADS, NULL, &w[i].b, &err), HF_OK);
            w[i].rounds = 1;
            CHECK_INT(pthread_create(&w[i].thread, NULL, meets, &w[i]), 0);
        }
        CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:h") == THREADS - 1, 20000);
        hf_barrier_cancel(w[round % (THREADS - 1)].b);
        for (int i = 0; i < THREADS - 1; i++)
            CHECK_INT(pthread_join(w[i].thread, NULL), 0);
        CHECK_INT(atomic_load(&cancelled), 1);
        CHECK_INT(atomic_load(&broken), THREADS - 2);
        for (int i = 0; i < THREADS - 1; i++)
            hf_barrier_free(w[i].b);
    }
    hf_client_free(c);
    check_only_ttls(s);
}
