/* SPDX-License-Identifier: MIT
 * thread_wait.c - threads that wait, cancel, and share a client while they do. Runs under
 * ThreadSanitizer too.
 */
#include <semaphore.h>

#include "harness/proxy.h"
#include "harness/waiting.h"

#if T_THREAD_SANITIZER
#define FEWER(n) ((n) / 4)
#else
#define FEWER(n) (n)
#endif

TEST(P6_threads_of_one_client_are_granted_in_order_too)
{
    enum { N = 24 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    struct locker l[N];
    lock_now(m);
    for (int i = 0; i < N; i++) {
        l[i] = (struct locker){ .m = lock_of(c, "a", 30000), .wait_ms = 30000 };
        locker_start(&l[i]);
        CHECK_QUEUE(s, "a", i + 1);
    }
    unlock_now(m);
    for (int i = 0; i < N; i++) {
        locker_join(&l[i], HF_OK);
        CHECK(i == 0 || l[i].fence > l[i - 1].fence);
        for (int k = i + 1; k < N; k++)
            CHECK_INT(atomic_load(&l[k].done), 0);
        unlock_now(l[i].m);
        hf_lock_free(l[i].m);
    }
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- giving up at the very moment of the handover ---- */

struct racer {
    hf_lock *m;
    sem_t     go, done;
    int64_t   wait_ms;
    hf_err    result;
    hf_error  error;
    int       quit;
};

static void *racer_main(void *arg)
{
    struct racer *r = arg;
    for (;;) {
        sem_wait(&r->go);
        if (r->quit)
            return NULL;
        r->result = hf_lock_acquire(r->m, r->wait_ms, NULL, &r->error);
        sem_post(&r->done);
    }
}

static void spin_us(uint64_t us)
{
    for (int64_t until = t_now_ns() + (int64_t)us * 1000; t_now_ns() < until;)
        ;
}

/* Each round: one holds, one waits, and while the first releases the second gives up. Whoever
 * comes then gets it at once: the lock is never held by nobody. */
static void race(int by_deadline, int rounds)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_client *c3 = client_at(server_url(s), 0);
    hf_lock *first = lock_of(c1, "a", 30000), *third = lock_of(c3, "a", 30000);
    struct racer r = { .m = lock_of(c2, "a", 30000) };
    pthread_t t;
    int granted = 0, gave_up = 0, later = 0, unanswered = 0;
    sem_init(&r.go, 0, 0);
    sem_init(&r.done, 0, 0);
    CHECK_INT(pthread_create(&t, NULL, racer_main, &r), 0);
    t_note("seed %llu", (unsigned long long)t_seed());
    for (int i = 0; i < rounds; i++) {
        lock_now(first);
        r.wait_ms = by_deadline ? 2 + (int64_t)t_random(3) : HF_WAIT_FOREVER;
        int64_t start = t_now_ns();
        sem_post(&r.go);
        while (queue_of(s, "a") == 0
               && t_now_ns() - start < r.wait_ms * 1000000 + (r.wait_ms < 0) * 1000000000L)
            ;
        uint64_t lead = t_random(by_deadline ? 2500 : 300);
        if (by_deadline) {
            spin_us(lead);
            unlock_now(first);
        } else if (i % 2) {
            hf_lock_cancel(r.m);
            spin_us(lead);
            unlock_now(first);
        } else {
            unlock_now(first);
            spin_us(lead);
            hf_lock_cancel(r.m);
        }
        sem_wait(&r.done);
        if (r.result == HF_OK) {
            granted++;
            unlock_now(r.m);
        } else if (r.result == HF_ECANCELED || r.result == HF_ETIMEDOUT) {
            gave_up++;
        } else if (r.result == HF_ECONN || r.result == HF_EUNSURE) {
            unanswered++; /* a busy machine: the call may not wait for long past its end */
        } else {
            FAIL("round %d: %s: %s", i, hf_err_name(r.result), r.error.message);
        }
        hf_err e = r.result == HF_EUNSURE ? hf_lock_acquire(third, 5000, NULL, &err)
                                          : hf_lock_try(third, NULL, &err);
        if (e) {
            FAIL("round %d, after %s: held by nobody: %s, %s", i, hf_err_name(r.result),
                 server_ask(s, "GET lock:a"), err.message);
        }
        unlock_now(third);
        CHECK_INT(queue_of(s, "a"), 0);
        /* A cancel that came after the grant holds for the next wait: use it up. */
        if (!by_deadline && r.result == HF_OK) {
            e = hf_lock_acquire(r.m, 5000, NULL, &err);
            CHECK(e == HF_OK || e == HF_ECANCELED);
            later += e == HF_ECANCELED;
            if (e == HF_OK)
                unlock_now(r.m);
        }
    }
    r.quit = 1;
    sem_post(&r.go);
    CHECK_INT(pthread_join(t, NULL), 0);
    t_note("%d rounds: %d granted (%d cancels came too late), %d gave up, %d had no answer in time",
           rounds, granted, later, gave_up, unanswered);
    CHECK(unanswered <= rounds / 20);
    CHECK(granted > rounds / 50 && gave_up > rounds / 50); /* both did happen */
    hf_lock_free(r.m);
    hf_lock_free(first);
    hf_lock_free(third);
    hf_client_free(c1);
    hf_client_free(c2);
    hf_client_free(c3);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(s);
}

TEST(P6_cancel_racing_with_the_handover_never_leaves_the_lock_to_nobody)
{
    race(0, getenv("HF_SOAK") ? 50000 : FEWER(3000));
}

TEST(P6_a_deadline_racing_with_the_handover_never_leaves_the_lock_to_nobody)
{
    race(1, getenv("HF_SOAK") ? 50000 : FEWER(1500));
}

/* ---- many threads that come and go ---- */

struct crowd {
    hf_client  *c;
    atomic_int  stop, inside;
    atomic_long got, timed_out, cancelled, unanswered;
    long        plain; /* guarded by the lock alone */
};

struct member {
    struct crowd *all;
    hf_lock      *m;
    pthread_t     thread;
};

static void *comes_and_goes(void *arg)
{
    struct member *b = arg;
    struct crowd *all = b->all;
    while (!atomic_load(&all->stop)) {
        hf_err e = hf_lock_acquire(b->m, (int64_t)t_random(40), NULL, &err);
        if (e == HF_OK) {
            CHECK_INT(atomic_fetch_add(&all->inside, 1), 0);
            all->plain++;
            atomic_fetch_sub(&all->inside, 1);
            atomic_fetch_add(&all->got, 1);
            unlock_now(b->m);
        } else if (e == HF_ECANCELED) {
            atomic_fetch_add(&all->cancelled, 1);
        } else if (e == HF_ETIMEDOUT || e == HF_EBUSY) {
            atomic_fetch_add(&all->timed_out, 1);
        } else if (e == HF_ECONN || e == HF_EUNSURE) {
            atomic_fetch_add(&all->unanswered, 1); /* a limit of a millisecond or two */
        } else {
            FAIL("%s: %s", hf_err_name(e), err.message);
        }
    }
    return NULL;
}

TEST(P1_threads_that_wait_time_out_and_are_cancelled_all_the_time)
{
    enum { N = 16 };
    struct server *s = server_start(NULL);
    struct crowd all = { .c = client_at(server_url(s), 0) };
    struct member b[N];
    for (int i = 0; i < N; i++) {
        b[i] = (struct member){ .all = &all, .m = lock_of(all.c, "a", 30000) };
        CHECK_INT(pthread_create(&b[i].thread, NULL, comes_and_goes, &b[i]), 0);
    }
    for (int64_t until = t_now_ms() + 3000; t_now_ms() < until; usleep(500))
        hf_lock_cancel(b[t_random(N)].m);
    atomic_store(&all.stop, 1);
    for (int i = 0; i < N; i++) {
        CHECK_INT(pthread_join(b[i].thread, NULL), 0);
        hf_lock_free(b[i].m);
    }
    t_note("%ld granted, %ld timed out, %ld cancelled, %ld had no answer in time",
           atomic_load(&all.got), atomic_load(&all.timed_out), atomic_load(&all.cancelled),
           atomic_load(&all.unanswered));
    CHECK(atomic_load(&all.got) > 50 && atomic_load(&all.cancelled) > 50);
    CHECK_INT(all.plain, atomic_load(&all.got));
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    hf_client_free(all.c);
}

/* With a grace, and with the session broken all the time. */
TEST(P1_P3_threads_wait_while_the_session_breaks_all_the_time)
{
    enum { N = 8 };
    struct server *s = server_start(NULL);
    struct crowd all = { .c = client_at(server_url(s), 0) };
    struct member b[N];
    long long killed = 0;
    for (int i = 0; i < N; i++) {
        b[i] = (struct member){ .all = &all,
                                .m = lock_with(all.c, "a", (hf_lock_opts){ .ttl_ms = 30000 }) };
        CHECK_INT(pthread_create(&b[i].thread, NULL, comes_and_goes, &b[i]), 0);
    }
    for (int64_t until = t_now_ms() + 2500; t_now_ms() < until; t_sleep_ms((int64_t)t_random(50)))
        killed += kill_inboxes(s);
    atomic_store(&all.stop, 1);
    for (int i = 0; i < N; i++) {
        CHECK_INT(pthread_join(b[i].thread, NULL), 0);
        hf_lock_free(b[i].m);
    }
    t_note("%ld granted, %ld timed out, %ld had no answer in time, %lld subscriptions killed",
           atomic_load(&all.got), atomic_load(&all.timed_out), atomic_load(&all.unanswered),
           killed);
    CHECK(killed > 10 && atomic_load(&all.got) > 20);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    hf_client_free(all.c);
}

/* ---- without blocking, from two threads ---- */

struct loops {
    hf_client  *c;
    atomic_int  stop, inside;
    atomic_long asked, answered, granted;
};

struct slot {
    struct loops *all;
    hf_lock      *m;
    atomic_int    free;
};

static void slot_released(hf_err result, const hf_error *e, void *arg)
{
    struct slot *sl = arg;
    (void)e;
    CHECK_INT(result, HF_OK);
    atomic_fetch_add(&sl->all->answered, 1);
    atomic_store(&sl->free, 1);
}

static void slot_granted(hf_err result, const hf_error *e, void *arg)
{
    struct slot *sl = arg;
    struct loops *all = sl->all;
    atomic_fetch_add(&all->answered, 1);
    if (result == HF_OK) {
        CHECK_INT(atomic_fetch_add(&all->inside, 1), 0);
        atomic_fetch_add(&all->granted, 1);
        atomic_fetch_sub(&all->inside, 1);
        atomic_fetch_add(&all->asked, 1);
        CHECK_HF(hf_lock_release_async(sl->m, slot_released, sl, &err), HF_OK);
        return;
    }
    if (result != HF_ECANCELED && result != HF_ETIMEDOUT && result != HF_EBUSY && result != HF_ECONN
        && result != HF_EUNSURE)
        FAIL("%s: %s", hf_err_name(result), e ? e->message : "");
    atomic_store(&sl->free, 1);
}

static void *dispatches(void *arg)
{
    struct loops *all = arg;
    int fd;
    CHECK_HF(hf_client_fd(all->c, &fd, &err), HF_OK);
    while (!atomic_load(&all->stop) || atomic_load(&all->answered) < atomic_load(&all->asked)) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 20) == 1)
            hf_client_dispatch(all->c);
    }
    return NULL;
}

TEST(requests_asked_in_one_thread_cancelled_in_another_and_dispatched_in_two)
{
    enum { N = 10 };
    struct server *s = server_start(NULL);
    struct loops all = { .c = client_at(server_url(s), 0) };
    struct slot slot[N];
    pthread_t t[2];
    for (int i = 0; i < N; i++)
        slot[i] = (struct slot){ .all = &all, .m = lock_of(all.c, "a", 30000), .free = 1 };
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&t[i], NULL, dispatches, &all), 0);
    for (int64_t until = t_now_ms() + 2500; t_now_ms() < until;) {
        int i = (int)t_random(N), yes = 1;
        if (atomic_compare_exchange_strong(&slot[i].free, &yes, 0)) {
            atomic_fetch_add(&all.asked, 1);
            hf_err e = hf_lock_acquire_async(slot[i].m, (int64_t)t_random(30), slot_granted,
                                             &slot[i],
                                             &err);
            if (e) { /* a cancel was left over */
                CHECK_INT(e, HF_ECANCELED);
                atomic_fetch_add(&all.answered, 1);
                atomic_store(&slot[i].free, 1);
            }
        } else if (t_random(4) == 0) {
            hf_lock_cancel(slot[t_random(N)].m);
        }
    }
    atomic_store(&all.stop, 1);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    t_note("%ld asked, %ld granted", atomic_load(&all.asked), atomic_load(&all.granted));
    CHECK(atomic_load(&all.granted) > 20);
    CHECK_INT(atomic_load(&all.asked), atomic_load(&all.answered));
    for (int i = 0; i < N; i++)
        hf_lock_free(slot[i].m);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    hf_client_free(all.c);
}
