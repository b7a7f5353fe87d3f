/* SPDX-License-Identifier: MIT
 * thread_transaction.c - many threads, one client, no scripts: each operation has a connection of
 * its own, and none waits for another's.
 */
#include "harness/protocols.h"

enum { THREADS = 12, ROUNDS = 25 };

struct shared {
    hf_client *c;
    long       value[2]; /* each under a lock of its own */
};

static void *count(void *arg)
{
    struct shared *s = arg;
    hf_lock *m[2] = { lock_of(s->c, "a", 20000), lock_of(s->c, "b", 20000) };
    for (int i = 0; i < ROUNDS; i++) {
        int k = i % 2;
        CHECK_HF(hf_lock_acquire(m[k], 50000, NULL, &err), HF_OK);
        s->value[k]++;
        unlock_now(m[k]);
    }
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
    return NULL;
}

static void run(const char *protocol)
{
    struct server *server = server_start(NULL);
    struct shared s = { .c = client_by(server_url(server), protocol) };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, count, &s), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(thread[i], NULL), 0);
    CHECK_INT(s.value[0] + s.value[1], THREADS * ROUNDS);
    hf_client_free(s.c);
    CHECK_STR(server_keys(server), ONLY_OURS);
}

TEST(P1_threads_of_one_client_by_transactions)
{
    run("transaction");
}

TEST(P1_threads_of_one_client_by_timestamps)
{
    run("timestamp");
}

static void *lock_it(void *arg)
{
    return (void *)(intptr_t)hf_lock_acquire(arg, HF_WAIT_FOREVER, NULL, NULL);
}

TEST(a_wait_is_cancelled_and_a_silent_server_does_not_hold_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), "transaction"), *o = client_by(server_url(s), NULL);
    hf_lock *m = lock_of(c, "a", 20000), *held = lock_of(o, "a", 20000);
    pthread_t thread;
    void *result;
    lock_now(held);
    CHECK_INT(pthread_create(&thread, NULL, lock_it, m), 0);
    t_sleep_ms(50);
    hf_lock_cancel(m);
    CHECK_INT(pthread_join(thread, &result), 0);
    CHECK_INT((intptr_t)result, HF_ECANCELED);
    /* The server stands still: within a moment, not after the time-out of 5 s. */
    CHECK_INT(pthread_create(&thread, NULL, lock_it, m), 0);
    t_sleep_ms(50);
    server_freeze(s);
    t_sleep_ms(300);
    int64_t start = t_now_ms();
    hf_lock_cancel(m);
    CHECK_INT(pthread_join(thread, &result), 0);
    CHECK_TOOK(t_now_ms() - start, 0, 2000);
    server_thaw(s);
    unlock_now(held);
    hf_lock_free(m);
    hf_lock_free(held);
    hf_client_free(c);
    hf_client_free(o);
}
