/* SPDX-License-Identifier: MIT
 * thread_shared.c - threads that share locks, wait for them, downgrade, resize and give up, over
 * one client. Runs under ThreadSanitizer too.
 */
#include "harness/sharing.h"

struct crowd {
    hf_client  *c;
    atomic_int  stop, readers, writers, permits;
    atomic_long got, downgraded, timed_out, cancelled, unanswered, resized;
    long        plain; /* written by who has the lock alone, read by who shares it */
};

struct member {
    struct crowd *all;
    hf_lock      *m[3];
    pthread_t     thread;
};

/* 1: it was granted. */
static int taken(struct crowd *all, hf_err e)
{
    if (e == HF_OK)
        atomic_fetch_add(&all->got, 1);
    else if (e == HF_ECANCELED)
        atomic_fetch_add(&all->cancelled, 1);
    else if (e == HF_ETIMEDOUT || e == HF_EBUSY)
        atomic_fetch_add(&all->timed_out, 1);
    else if (e == HF_ECONN || e == HF_EUNSURE)
        atomic_fetch_add(&all->unanswered, 1); /* a limit of a millisecond or two */
    else
        FAIL("%s: %s", hf_err_name(e), err.message);
    return e == HF_OK;
}

static void read_it(struct crowd *all)
{
    atomic_fetch_add(&all->readers, 1);
    CHECK_INT(atomic_load(&all->writers), 0);
    CHECK(all->plain >= 0);
    atomic_fetch_sub(&all->readers, 1);
}

static void *reads_and_writes(void *arg)
{
    struct member *b = arg;
    struct crowd *all = b->all;
    while (!atomic_load(&all->stop)) {
        int64_t wait = (int64_t)t_random(60);
        if (t_random(3)) {
            if (!taken(all, hf_lock_acquire_shared(b->m[0], wait, NULL, &err)))
                continue;
            read_it(all);
        } else {
            if (!taken(all, hf_lock_acquire(b->m[0], wait, NULL, &err)))
                continue;
            CHECK_INT(atomic_fetch_add(&all->writers, 1), 0);
            CHECK_INT(atomic_load(&all->readers), 0);
            all->plain++;
            atomic_fetch_sub(&all->writers, 1);
            if (t_random(2)) {
                CHECK_HF(hf_lock_downgrade(b->m[0], &err), HF_OK);
                atomic_fetch_add(&all->downgraded, 1);
                read_it(all);
            }
        }
        unlock_now(b->m[0]);
    }
    return NULL;
}

#define SLOTS 5

static void *takes_permits(void *arg)
{
    struct member *b = arg;
    struct crowd *all = b->all;
    while (!atomic_load(&all->stop)) {
        int n = (int)t_random(3);
        if (!taken(all, hf_lock_acquire(b->m[n], (int64_t)t_random(60), NULL, &err)))
            continue;
        CHECK(atomic_fetch_add(&all->permits, n + 1) + n + 1 <= SLOTS);
        atomic_fetch_sub(&all->permits, n + 1);
        unlock_now(b->m[n]);
    }
    return NULL;
}

/* So many threads for a while; somebody gives up all the time, and every breaks_ms all sessions
 * break. */
static void run(struct server *s, void *(*fn)(void *), unsigned slots, int64_t breaks_ms,
                int64_t grace_ms)
{
    enum { N = 12 };
    struct crowd all = { .c = client_at(server_url(s), 0) };
    struct member b[N];
    long long killed = 0;
    int64_t next_break = t_now_ms() + breaks_ms;
    for (int i = 0; i < N; i++) {
        b[i] = (struct member){ .all = &all };
        for (unsigned k = 0; k < 3; k++)
            b[i].m[k] = lock_with(all.c, "a",
                                  (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = grace_ms,
                                                    .slots = slots,
                                                    .permits = slots ? k + 1 : 0 });
        CHECK_INT(pthread_create(&b[i].thread, NULL, fn, &b[i]), 0);
    }
    for (int64_t until = t_now_ms() + 2500; t_now_ms() < until; t_sleep_ms(1)) {
        hf_lock_cancel(b[t_random(N)].m[t_random(3)]);
        if (slots && t_random(20) == 0) { /* never more than the threads count on */
            hf_err e = hf_semaphore_resize(all.c, hf_str("a"), 3 + (unsigned)t_random(SLOTS - 2),
                                           NULL, &err);
            CHECK_INT(e, HF_OK);
            atomic_fetch_add(&all.resized, 1);
        }
        if (breaks_ms && t_now_ms() >= next_break) {
            killed += kill_inboxes(s);
            next_break = t_now_ms() + breaks_ms;
        }
    }
    atomic_store(&all.stop, 1);
    for (int i = 0; i < N; i++) {
        CHECK_INT(pthread_join(b[i].thread, NULL), 0);
        for (int k = 0; k < 3; k++)
            hf_lock_free(b[i].m[k]);
    }
    t_note("%ld granted, %ld downgraded, %ld timed out, %ld cancelled, %ld had no answer in time, "
           "%ld resizes, %lld subscriptions killed", atomic_load(&all.got),
           atomic_load(&all.downgraded), atomic_load(&all.timed_out), atomic_load(&all.cancelled),
           atomic_load(&all.unanswered),
           atomic_load(&all.resized), killed);
    CHECK(atomic_load(&all.got) > 50 && (slots || atomic_load(&all.downgraded) > 5));
    CHECK(!breaks_ms || killed > 5);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q") == 0, 5000);
    hf_client_free(all.c);
    check_only_ttls(s);
}

TEST(R1_threads_that_read_write_downgrade_and_give_up)
{
    run(server_start(NULL), reads_and_writes, 0, 0, HF_NO_TAKEOVER);
}

TEST(SEM1_threads_that_take_permits_while_others_resize_and_give_up)
{
    run(server_start(NULL), takes_permits, SLOTS, 0, HF_NO_TAKEOVER);
}

TEST(R1_R5_threads_that_read_and_write_while_the_session_breaks_all_the_time)
{
    run(server_start(NULL), reads_and_writes, 0, 40, 0);
}

TEST(SEM1_SEM5_threads_that_take_permits_while_the_session_breaks_all_the_time)
{
    run(server_start(NULL), takes_permits, SLOTS, 40, 0);
}

/* Events come from the watchdog's thread, is_held from any. */
static void on_event(hf_lock *m, hf_state state, void *arg)
{
    (void)m;
    if (state == HF_STATE_LOST)
        atomic_fetch_add((atomic_int *)arg, 1);
}

static void *watches(void *arg)
{
    struct member *b = arg;
    while (!atomic_load(&b->all->stop)) {
        CHECK_RANGE(hf_lock_state(b->m[0]), HF_STATE_FREE, HF_STATE_LOST);
        CHECK_RANGE(hf_lock_is_held(b->m[0]), 0, 1);
        CHECK_RANGE(hf_lock_time_left_ms(b->m[0]), 0, 4000);
    }
    return NULL;
}

TEST(R5_the_loss_of_a_part_is_told_while_others_look)
{
    struct server *s = server_start(NULL);
    struct crowd all = { .c = client_at(server_url(s), 0) };
    atomic_int lost = 0;
    struct member b = { .all = &all };
    b.m[0] = lock_with(all.c, "a", (hf_lock_opts){ .ttl_ms = 4000, .shared = 1,
                                                     .on_event = on_event, .event_arg = &lost });
    hf_lock *other = reader_of(all.c, 30000, HF_NO_TAKEOVER);
    CHECK_INT(pthread_create(&b.thread, NULL, watches, &b), 0);
    for (int i = 1; i <= 5; i++) {
        lock_now(b.m[0]);
        lock_now(other);
        CHECK_HF(hf_owner_release(all.c, hf_str("a"), hf_str(hf_lock_owner(b.m[0])), &err), HF_OK);
        CHECK_EVENTUALLY(atomic_load(&lost) == i, 5000); /* the next renewal finds out */
        CHECK_INT(hf_lock_loss(b.m[0]), HF_LOSS_RELEASED);
        CHECK_HF(hf_lock_release(b.m[0], &err), HF_ELOST);
        CHECK_HF(hf_lock_verify(other, &err), HF_OK);
        unlock_now(other);
    }
    atomic_store(&all.stop, 1);
    CHECK_INT(pthread_join(b.thread, NULL), 0);
    hf_lock_free(b.m[0]);
    hf_lock_free(other);
    hf_client_free(all.c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}
