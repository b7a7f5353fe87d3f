/* SPDX-License-Identifier: MIT
 * thread_deadlock.c - threads of one client in circles, while others use it: for the thread
 * sanitizer.
 */
#include "harness/waiting.h"

enum { THREADS = 4, ROUNDS = 2 };

struct ring {
    hf_client        *c;
    pthread_barrier_t begin;
    atomic_int        victims, went_on, stop;
};
struct member {
    struct ring *r;
    int          index;
    pthread_t    thread;
};

static void *in_ring(void *arg)
{
    struct member *me = arg;
    struct ring *r = me->r;
    hf_lock *has = lock_of(r->c, keep_text("n%d", me->index), 30000);
    hf_lock *wants = lock_of(r->c, keep_text("n%d", (me->index + 1) % THREADS), 30000);
    for (int i = 0; i < ROUNDS; i++) {
        lock_now(has);
        pthread_barrier_wait(&r->begin);
        hf_err e = hf_lock_acquire(wants, 60000, NULL, &err);
        if (e == HF_EDEADLK)
            atomic_fetch_add(&r->victims, 1);
        else
            CHECK_HF(e, HF_OK);
        atomic_fetch_add(&r->went_on, e == HF_OK);
        if (!e)
            unlock_now(wants);
        unlock_now(has);
        pthread_barrier_wait(&r->begin);
    }
    hf_lock_free(wants);
    hf_lock_free(has);
    return NULL;
}

/* Takes, shares and gives back what nobody else wants, and asks for what is held. */
static void *beside(void *arg)
{
    struct member *me = arg;
    char text[8192];
    hf_lock *m = lock_of(me->r->c, "beside", 30000);
    while (!atomic_load(&me->r->stop)) {
        lock_now(m);
        CHECK_HF(hf_client_held(me->r->c, text, sizeof text, &err), HF_OK);
        CHECK_CONTAINS(text, "/lock:beside");
        CHECK_HF(hf_lock_downgrade(m, &err), HF_OK);
        unlock_now(m);
        usleep(2000);
    }
    hf_lock_free(m);
    return NULL;
}

TEST(circles_of_threads)
{
    struct server *s = server_start(NULL);
    struct ring r = { .c = client_at(server_url(s), 0) };
    struct member m[THREADS], other = { &r, 0, 0 };
    CHECK_INT(pthread_barrier_init(&r.begin, NULL, THREADS), 0);
    CHECK_INT(pthread_create(&other.thread, NULL, beside, &other), 0);
    for (int i = 0; i < THREADS; i++) {
        m[i] = (struct member){ &r, i, 0 };
        CHECK_INT(pthread_create(&m[i].thread, NULL, in_ring, &m[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(m[i].thread, NULL), 0);
    atomic_store(&r.stop, 1);
    CHECK_INT(pthread_join(other.thread, NULL), 0);
    CHECK_INT(atomic_load(&r.victims), ROUNDS);
    CHECK_INT(atomic_load(&r.went_on), ROUNDS * (THREADS - 1));
    hf_client_free(r.c);
}
