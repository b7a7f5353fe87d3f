/* SPDX-License-Identifier: MIT
 * deadlock_one.c - who waits for itself: two handles of one thread, or of one owner id. And whose a
 * lock is not.
 */
#include "harness/waiting.h"

enum { WAIT_MS = 60000, FOUND_MS = 8000 /* on a machine with a lot to do */ };

/* ---- in one process ------------------------------------------------------------------------- */

TEST(two_handles_of_one_thread)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, 700, NULL, &err), HF_ETIMEDOUT);
    int64_t begin = t_now_ms();
    CHECK_HF(hf_lock_acquire(again, WAIT_MS, NULL, &err), HF_EDEADLK);
    CHECK_TOOK(t_now_ms() - begin, 900, FOUND_MS);
    CHECK_STR(err.message, "a deadlock: this process waits for \"a\", held by this process; this "
                           "wait began last, and is given up");
    unlock_now(a);
    lock_now(again);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

/* It ends by itself. */
TEST(a_lock_that_nobody_renews_is_waited_for)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .no_renew = 1 });
    hf_lock *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, WAIT_MS, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    unlock_now(again);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

struct helper {
    hf_lock *m;
    uint64_t acts_for;
    hf_err   e;
};

static void *wait_in_its_place(void *arg)
{
    struct helper *h = arg;
    CHECK(hf_thread_number() != h->acts_for);
    hf_thread_act_for(h->acts_for);
    h->e = hf_lock_acquire(h->m, WAIT_MS, NULL, NULL);
    CHECK(hf_thread_number() == h->acts_for);
    hf_thread_act_for(0);
    CHECK(hf_thread_number() != h->acts_for);
    return NULL;
}

/* Bindings do that where a thread cannot wait in a call of C. */
TEST(a_thread_that_waits_in_the_place_of_another_one)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000);
    struct helper h = { .m = lock_of(c, "a", 30000), .acts_for = hf_thread_number() };
    pthread_t thread;
    lock_now(a);
    CHECK_INT(pthread_create(&thread, NULL, wait_in_its_place, &h), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_HF(h.e, HF_EDEADLK);
    unlock_now(a);
    hf_lock_free(h.m);
    hf_lock_free(a);
    hf_client_free(c);
}

TEST(two_threads_of_one_client)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *b = lock_of(c, "b", 30000);
    struct locker l = { .m = b, .wait_ms = WAIT_MS };
    locker_start(&l); /* it has b, in a thread that is gone */
    locker_join(&l, HF_OK);
    hf_lock *b2 = lock_of(c, "b", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(b2, 1500, NULL, &err), HF_ETIMEDOUT);
    hf_lock_free(b2);
    hf_lock_free(b);
    hf_lock_free(a);
    hf_client_free(c);
}

/* Handles of a thread that is not the one that will release them. */
TEST(a_lock_for_any_thread_is_nobody_s)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000, .any_thread = 1 });
    hf_lock *again = lock_of(c, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_lock_acquire(again, 1500, NULL, &err), HF_ETIMEDOUT);
    hf_lock_free(again);
    hf_lock_free(a);
    hf_client_free(c);
}

struct done {
    atomic_int n;
    hf_err     result;
};

static void note_done(hf_err result, const hf_error *e, void *arg)
{
    struct done *d = arg;
    (void)e;
    d->result = result;
    atomic_store(&d->n, 1);
}

/* Without blocking only an owner id says whose it is. */
TEST(without_blocking)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (int named = 0; named < 2; named++) {
        struct done d = { 0 };
        hf_lock_opts o = { .ttl_ms = 30000 };
        if (named)
            o.owner = hf_str("me");
        hf_lock *a = lock_with(c, "a", o), *b = lock_with(c, "a", o);
        lock_now(a);
        CHECK_HF(hf_lock_acquire_async(b, named ? WAIT_MS : 1500, note_done, &d, &err), HF_OK);
        LOOP_EVENTUALLY(c, atomic_load(&d.n), 20000);
        CHECK_INT(d.result, named ? HF_EDEADLK : HF_ETIMEDOUT);
        hf_lock_free(b);
        hf_lock_free(a);
    }
    hf_client_free(c);
}

struct waiting_holder {
    hf_lock  *has, *wants;
    hf_err    result;
    pthread_t thread;
};

static void *wait_as_holder(void *arg)
{
    struct waiting_holder *w = arg;
    hf_error e;
    CHECK_INT(hf_lock_acquire(w->has, 10000, NULL, &e), HF_OK);
    w->result = hf_lock_acquire(w->wants, WAIT_MS, NULL, &e);
    hf_lock_release(w->has, &e);
    return NULL;
}

TEST(a_cancel_ends_the_wait_in_the_middle_of_a_look)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *b = lock_of(other, "b", 30000);
    struct waiting_holder w = { .has = lock_of(c, "a", 30000), .wants = lock_of(c, "b", 30000) };
    lock_now(b);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(pthread_create(&w.thread, NULL, wait_as_holder, &w), 0);
        CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:wf") == 1, 10000);
        hf_lock_cancel(w.wants);
        CHECK_INT(pthread_join(w.thread, NULL), 0);
        CHECK_INT(w.result, HF_ECANCELED);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:wf"), 0);
    }
    hf_lock_free(w.wants);
    hf_lock_free(w.has);
    hf_lock_free(b);
    hf_client_free(other);
    hf_client_free(c);
}
