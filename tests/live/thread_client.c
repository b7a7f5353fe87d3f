/* SPDX-License-Identifier: MIT
 * thread_client.c - one client, many threads. Runs under ThreadSanitizer too.
 */
#include <stdatomic.h>
#include <poll.h>
#include <unistd.h>

#include "harness/live.h"
#include "harness/proxy.h"

#define THREADS 64

struct many {
    struct server *s;
    hf_client     *c;
    int            rounds;
    long           plain;    /* guarded by the lock alone */
    uint64_t       last;     /* the same */
    atomic_int     inside, failed;
    atomic_long    cycles;
};

struct one {
    struct many *all;
    int          index;
    pthread_t    thread;
};

static void run(struct many *all, int n, void *(*fn)(void *))
{
    static struct one t[THREADS];
    for (int i = 0; i < n; i++) {
        t[i] = (struct one){ .all = all, .index = i };
        CHECK_INT(pthread_create(&t[i].thread, NULL, fn, &t[i]), 0);
    }
    for (int i = 0; i < n; i++)
        CHECK_INT(pthread_join(t[i].thread, NULL), 0);
}

/* All want the same lock. What is counted under it is not atomic: the server's order must do. */
static void *contend(void *arg)
{
    struct one *o = arg;
    struct many *a = o->all;
    hf_lock *m = lock_of(a->c, "one", 30000);
    for (int i = 0; i < a->rounds; i++) {
        uint64_t f;
        CHECK_HF(hf_lock_acquire(m, 50000, &f, &err), HF_OK);
        CHECK_INT(atomic_fetch_add(&a->inside, 1), 0);
        atomic_fetch_add(&a->cycles, 1);
        atomic_fetch_sub(&a->inside, 1);
        unlock_now(m);
    }
    hf_lock_free(m);
    return NULL;
}

TEST(P1_64_threads_on_one_client_and_one_lock_are_never_two_inside)
{
    struct many all = { .s = server_start(NULL), .rounds = 3 };
    all.c = client_at(server_url(all.s), 0);
    run(&all, THREADS, contend);
    CHECK_INT(atomic_load(&all.cycles), THREADS * 3);
    hf_client_free(all.c);
    CHECK_STR(server_keys(all.s), ONLY_OURS);
}

static void *own_lock(void *arg)
{
    struct one *o = arg;
    struct many *a = o->all;
    char name[16];
    snprintf(name, sizeof name, "n%d", o->index);
    hf_lock *m = lock_of(a->c, name, 5000);
    uint64_t last = 0;
    for (int i = 0; i < a->rounds; i++) {
        uint64_t f = lock_now(m);
        CHECK(f > last);
        last = f;
        if (i % 8 == 0) {
            CHECK_HF(hf_lock_verify(m, &err), HF_OK);
            CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK);
        }
        CHECK_INT(hf_lock_is_held(m), 1);
        unlock_now(m);
        atomic_fetch_add(&a->cycles, 1);
    }
    hf_lock_free(m);
    return NULL;
}

TEST(P1_64_threads_on_one_client_with_a_lock_each)
{
    struct many all = { .s = server_start(NULL), .rounds = 60 };
    all.c = client_at(server_url(all.s), 0);
    run(&all, THREADS, own_lock);
    CHECK_INT(atomic_load(&all.cycles), THREADS * 60);
    hf_client_free(all.c);
    CHECK_STR(server_keys(all.s), ONLY_OURS);
    CHECK_INT(atoll(server_info(all.s, "total_connections_received")) < 8, 1); /* they share one */
}

static void *held_and_renewed(void *arg)
{
    struct one *o = arg;
    struct many *a = o->all;
    char name[16];
    snprintf(name, sizeof name, "n%d", o->index);
    hf_lock *m = lock_of(a->c, name, 4000);
    lock_now(m);
    for (int64_t until = t_now_ms() + 5000; t_now_ms() < until; t_sleep_ms(10))
        if (!hf_lock_is_held(m) || hf_lock_state(m) == HF_STATE_LOST)
            atomic_fetch_add(&a->failed, 1);
    if (hf_lock_release(m, &err))
        atomic_fetch_add(&a->failed, 1);
    hf_lock_free(m);
    return NULL;
}

TEST(P5_locks_of_64_threads_are_all_renewed)
{
    struct many all = { .s = server_start(NULL) };
    all.c = client_at(server_url(all.s), 0);
    run(&all, THREADS, held_and_renewed);
    CHECK_INT(atomic_load(&all.failed), 0);
    hf_client_free(all.c);
}

/* ---- the calls that any thread may make, while another locks and unlocks ---- */

struct watched {
    hf_lock    *m;
    atomic_int  stop;
    atomic_long looks, cancelled;
};

static void *watcher(void *arg)
{
    struct watched *w = arg;
    while (!atomic_load(&w->stop)) {
        int held = hf_lock_is_held(w->m);
        int64_t left = hf_lock_time_left_ms(w->m);
        hf_state state = hf_lock_state(w->m);
        CHECK(held == 0 || held == 1);
        CHECK(left >= 0 && left <= 4000);
        CHECK(state >= HF_STATE_FREE && state <= HF_STATE_LOST);
        atomic_fetch_add(&w->looks, 1);
        if (t_random(50) == 0)
            hf_lock_cancel(w->m);
        if (t_random(10) == 0)
            t_sleep_ms(1);
    }
    return NULL;
}

TEST(any_thread_may_look_and_cancel)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct watched w = { .m = lock_of(c, "a", 4000) };
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&t[i], NULL, watcher, &w), 0);
    long got = 0;
    for (int64_t until = t_now_ms() + 1500; t_now_ms() < until;) {
        hf_err e = hf_lock_acquire(w.m, 1000, NULL, &err);
        CHECK(e == HF_OK || e == HF_ECANCELED || e == HF_EUNSURE || e == HF_ETIMEDOUT);
        if (e)
            continue;
        got++;
        if (t_random(20) == 0)
            t_sleep_ms(150);
        CHECK_HF(hf_lock_release(w.m, &err), HF_OK);
    }
    atomic_store(&w.stop, 1);
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    CHECK(got > 5 && atomic_load(&w.looks) > 100);
    hf_lock_cancel(w.m); /* may be left over, or not */
    hf_lock_free(w.m);
    hf_client_free(c);
}

/* ---- events, from the library's threads ---- */

static void on_event(hf_lock *m, hf_state state, void *arg)
{
    if (state == HF_STATE_LOST && !hf_lock_is_held(m) && hf_lock_time_left_ms(m) == 0)
        atomic_fetch_add((atomic_int *)arg, 1);
}

TEST(P5_events_and_descriptors_of_many_locks_all_fire_once)
{
    enum { N = 64 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    atomic_int lost = 0;
    hf_lock *m[N];
    int fd[N];
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_with(c, name, (hf_lock_opts){ .ttl_ms = 1500, .on_event = on_event,
                                                    .event_arg = &lost });
        CHECK_HF(hf_lock_fd(m[i], &fd[i], &err), HF_OK);
        lock_now(m[i]);
    }
    server_ask(s, "FLUSHALL");
    CHECK_EVENTUALLY(atomic_load(&lost) == N, 10000);
    t_sleep_ms(100);
    CHECK_INT(atomic_load(&lost), N);
    for (int i = 0; i < N; i++) {
        struct pollfd p = { .fd = fd[i], .events = POLLIN };
        CHECK_INT(poll(&p, 1, 0), 1);
        CHECK_INT(hf_lock_poll(m[i]), HF_STATE_LOST);
        CHECK_HF(hf_lock_release(m[i], &err), HF_ELOST);
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
}

/* ---- with a connection that breaks all the time ---- */

static void *through_breaks(void *arg)
{
    struct one *o = arg;
    struct many *a = o->all;
    char name[16];
    snprintf(name, sizeof name, "n%d", o->index % 4);
    hf_lock *m = lock_of(a->c, name, 3000);
    for (int64_t until = t_now_ms() + 2500; t_now_ms() < until;) {
        hf_err e = hf_lock_acquire(m, 500, NULL, &err);
        if (e == HF_OK) {
            atomic_fetch_add(&a->cycles, 1);
            e = hf_lock_release(m, &err);
            CHECK(e == HF_OK || e == HF_EUNSURE || e == HF_ECONN || e == HF_ELOST);
        } else if (e != HF_ETIMEDOUT && e != HF_EUNSURE && e != HF_ECONN) {
            FAIL("%s: %s", hf_err_name(e), err.message);
        }
    }
    hf_lock_free(m);
    return NULL;
}

static void *breaker(void *arg)
{
    struct proxy *p = arg;
    for (int64_t until = t_now_ms() + 2500; t_now_ms() < until; t_sleep_ms((int64_t)t_random(40)))
        if (t_random(2))
            proxy_break(p);
        else
            proxy_cut_after(p, t_random(100));
    proxy_pass(p);
    return NULL;
}

TEST(P8_threads_share_a_connection_that_breaks_all_the_time)
{
    struct many all = { .s = server_start(NULL) };
    struct proxy *p = proxy_start(all.s);
    pthread_t t;
    all.c = client_at(proxy_url(p), 2000);
    CHECK_INT(pthread_create(&t, NULL, breaker, p), 0);
    run(&all, 16, through_breaks);
    CHECK_INT(pthread_join(t, NULL), 0);
    CHECK(proxy_connections(p) > 10); /* they did break */
    CHECK(atomic_load(&all.cycles) > 20);
    hf_client_free(all.c);
}

/* Clients come and go beside each other. */
static void *open_and_free(void *arg)
{
    struct one *o = arg;
    for (int i = 0; i < 10; i++) {
        hf_client *c = client_at(server_url(o->all->s), 0);
        hf_lock *m = lock_of(c, "a", 5000);
        lock_now(m);
        hf_lock_free(m);
        hf_client_free(c);
    }
    return NULL;
}

TEST(clients_are_opened_and_freed_in_many_threads_at_once)
{
    struct many all = { .s = server_start(NULL) };
    run(&all, 12, open_and_free);
    CHECK_STR(server_keys(all.s), ONLY_OURS);
}
