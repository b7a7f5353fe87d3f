/* SPDX-License-Identifier: MIT
 * thread_sequence.c - one handle of a sequence, many threads. Runs under ThreadSanitizer too.
 */
#include <stdatomic.h>

#include "harness/live.h"

enum { THREADS = 32, EACH = 2000, BLOCK = 64 };

struct all {
    hf_sequence *q;
    atomic_char  given[THREADS * EACH + 2 * BLOCK];
    atomic_int   failed;
};

static void *take(void *arg)
{
    struct all *a = arg;
    uint64_t last = 0;
    for (int i = 0; i < EACH; i++) {
        uint64_t id = 0;
        CHECK_HF(hf_sequence_next(a->q, &id, &err), HF_OK);
        CHECK(id > last && id < sizeof a->given);
        CHECK_INT(atomic_exchange(&a->given[id], 1), 0);
        last = id;
    }
    return NULL;
}

static void run(struct all *a, void *(*fn)(void *))
{
    pthread_t t[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&t[i], NULL, fn, a), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
}

TEST(SEQ1_SEQ7_threads_share_a_handle_without_a_gap_or_a_repetition)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    static struct all a;
    hf_sequence_opts o = { .size = sizeof o, .block = BLOCK };
    CHECK_HF(hf_sequence_open(c, hf_str("ids"), &o, &a.q, &err), HF_OK);
    run(&a, take);
    for (int id = 1; id <= THREADS * EACH; id++)
        CHECK_INT(atomic_load(&a.given[id]), 1);
    /* One asks, the others wait: exactly as many blocks as it takes. */
    CHECK_INT(atoll(server_ask(s, "GET lock:holdfast:seq:ids")), THREADS * EACH);
    hf_sequence_free(a.q);
    hf_client_free(c);
}

static void *fail(void *arg)
{
    struct all *a = arg;
    uint64_t id = 0;
    hf_err e = hf_sequence_next(a->q, &id, &err);
    if (e == HF_ECONN || e == HF_EUNSURE) {
        CHECK(err.message[0]);
        atomic_fetch_add(&a->failed, 1);
    }
    return NULL;
}

TEST(SEQ7_all_threads_learn_of_a_dead_server_together)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 1500);
    static struct all a;
    CHECK_HF(hf_sequence_open(c, hf_str("ids"), NULL, &a.q, &err), HF_OK);
    server_freeze(s);
    int64_t before = t_now_ms();
    run(&a, fail);
    CHECK_INT(atomic_load(&a.failed), THREADS);
    CHECK_TOOK(t_now_ms() - before, 1000, 20000); /* not 32 times one and a half seconds */
    server_thaw(s);
    uint64_t id;
    CHECK_HF(hf_sequence_next(a.q, &id, &err), HF_OK);
    hf_sequence_free(a.q);
    hf_client_free(c);
}
