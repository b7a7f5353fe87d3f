/* SPDX-License-Identifier: MIT
 * mutex.c - one owner at a time, and what each call answers when nothing is broken.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include "harness/history.h"
#include "harness/live.h"
#include "harness/proc.h"
#include "harness/proxy.h"

TEST(P1_a_held_lock_is_refused_to_others_and_free_after_unlock)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c1, "a", 5000), *b = lock_of(c2, "a", 5000);
    hf_lock *same_client = lock_of(c1, "a", 5000);
    uint64_t f1 = 0, f2 = 0, untouched = 77;

    CHECK_HF(hf_lock_try(a, &f1, &err), HF_OK);
    CHECK_INT(hf_lock_is_held(a), 1);
    CHECK_INT(hf_lock_state(a), HF_STATE_SAFE);
    CHECK(hf_lock_fence(a) == f1);
    CHECK_RANGE(hf_lock_time_left_ms(a), 1, 4998);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 5000);
    CHECK_HF(hf_lock_try(b, &untouched, &err), HF_EBUSY);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK(untouched == 77);
    CHECK_HF(hf_lock_try(same_client, NULL, &err), HF_EBUSY);
    CHECK_INT(hf_lock_is_held(b), 0);
    CHECK_INT(hf_lock_state(b), HF_STATE_FREE);
    CHECK(hf_lock_fence(b) == 0);
    CHECK_STR(hf_lock_owner(b), "");
    CHECK_INT(hf_lock_time_left_ms(b), 0);

    unlock_now(a);
    CHECK_INT(hf_lock_is_held(a), 0);
    CHECK(hf_lock_fence(a) == 0);
    CHECK_STR(server_ask(s, "GET lock:a"), NULL);
    CHECK_HF(hf_lock_try(b, &f2, &err), HF_OK);
    CHECK(f2 > f1);
    CHECK_HF(hf_lock_release(a, &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_extend(a, 1000, &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_verify(a, &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_detach(a, 0, &err), HF_ENOTHELD);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(same_client);
    hf_client_free(c1);
    hf_client_free(c2);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(contract_the_value_is_token_fence_grace)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t fence = lock_now(m);
    char want[128];
    snprintf(want, sizeof want, "%s:%llu:0", hf_lock_owner(m), (unsigned long long)fence);
    CHECK_STR(server_ask(s, "GET lock:a"), want);
    CHECK_INT((long long)strcspn(want, "."), 32);
    CHECK_STR(server_ask(s, "SET lock:a x NX"), NULL); /* the common pattern is excluded */
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_reentry_is_free_after_as_many_unlocks)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t f1 = lock_now(m), f2 = lock_now(m), f3 = 0;
    CHECK_HF(hf_lock_try(m, &f3, &err), HF_OK);
    CHECK(f1 == f2 && f2 == f3);
    unlock_now(m);
    unlock_now(m);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 1);
    unlock_now(m);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
    CHECK(lock_now(m) > f1);
    hf_lock_free(m); /* releases */
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_client_free(c);
}

TEST(waiting_ends_at_its_limit_and_says_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 20000), *b = lock_of(c, "a", 20000);
    lock_now(a);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire(b, 900, NULL, &err), HF_ETIMEDOUT);
    CHECK_TOOK(t_now_ms() - start, 895, 3600);
    CHECK_CONTAINS(err.message, "900 ms");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_HF(hf_lock_acquire(b, -2, NULL, &err), HF_EINVAL);
    CHECK_INT(hf_lock_is_held(a), 1);
    hf_lock_free(b);
    hf_lock_free(a);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

struct locker {
    hf_lock *m;
    int64_t   wait_ms;
    hf_err    result;
    hf_error  error;
    uint64_t  fence;
    pthread_t thread;
    atomic_int inside;
};

static void *locker_main(void *arg)
{
    struct locker *l = arg;
    atomic_store(&l->inside, 1);
    l->result = hf_lock_acquire(l->m, l->wait_ms, &l->fence, &l->error);
    return NULL;
}

static void locker_start(struct locker *l)
{
    atomic_store(&l->inside, 0);
    CHECK_INT(pthread_create(&l->thread, NULL, locker_main, l), 0);
    CHECK_EVENTUALLY(atomic_load(&l->inside), 5000);
}

TEST(P3_a_waiter_gets_the_lock_when_it_is_released_and_when_it_expires)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 20000);
    struct locker w = { .m = lock_of(c, "a", 20000), .wait_ms = HF_WAIT_FOREVER };
    uint64_t f = lock_now(a);
    locker_start(&w);
    t_sleep_ms(100);
    unlock_now(a);
    CHECK_INT(pthread_join(w.thread, NULL), 0);
    CHECK_INT(w.result, HF_OK);
    CHECK(w.fence > f);
    unlock_now(w.m);

    /* A holder that does not renew and never unlocks costs at most its ttl. */
    hf_lock *dead = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 400, .no_renew = 1 });
    f = lock_now(dead);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire(w.m, 10000, &w.fence, &err), HF_OK);
    CHECK_TOOK(t_now_ms() - start, 300, 4000);
    CHECK(w.fence > f);
    CHECK_INT(hf_lock_is_held(dead), 0);
    CHECK_HF(hf_lock_release(dead, &err), HF_ELOST);
    CHECK_INT(hf_lock_is_held(w.m), 1);
    CHECK_HF(hf_lock_verify(w.m, &err), HF_OK);
    hf_lock_free(dead);
    hf_lock_free(w.m);
    hf_lock_free(a);
    hf_client_free(c);
}

TEST(cancel_ends_a_wait_of_another_thread_and_else_the_next_one)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 20000);
    struct locker w = { .m = lock_of(c, "a", 20000), .wait_ms = HF_WAIT_FOREVER };
    lock_now(a);
    locker_start(&w);
    t_sleep_ms(100);
    int64_t start = t_now_ms();
    hf_lock_cancel(w.m);
    CHECK_INT(pthread_join(w.thread, NULL), 0);
    CHECK_TOOK(t_now_ms() - start, 0, 2000);
    CHECK_INT(w.result, HF_ECANCELED);
    CHECK_INT(w.error.known, HF_KNOWN_UNCHANGED);

    hf_lock_cancel(w.m); /* nobody waits: the next one */
    CHECK_HF(hf_lock_acquire(w.m, 10000, NULL, &err), HF_ECANCELED);
    CHECK_CONTAINS(err.message, "the wait for \"a\" was cancelled");
    CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_EBUSY);
    unlock_now(a);
    CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_OK);
    hf_lock_free(w.m);
    hf_lock_free(a);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(cancel_ends_a_wait_while_the_server_is_frozen_and_takes_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 20000);
    struct locker w = { .m = lock_of(c, "a", 20000), .wait_ms = HF_WAIT_FOREVER };
    server_freeze(s);
    locker_start(&w);
    t_sleep_ms(200);
    int64_t start = t_now_ms();
    hf_lock_cancel(w.m);
    CHECK_INT(pthread_join(w.thread, NULL), 0);
    CHECK_TOOK(t_now_ms() - start, 0, 3000);
    /* Cancelled before its request left; or the request had left, and nobody can say. */
    CHECK(w.result == HF_ECANCELED || w.result == HF_EUNSURE);
    CHECK_INT(w.error.known, w.result == HF_EUNSURE ? HF_KNOWN_NOTHING : HF_KNOWN_UNCHANGED);
    CHECK_INT(hf_lock_is_held(w.m), 0);
    server_thaw(s);
    /* The background cancels it long before the ttl of 20 s. */
    hf_lock *other = lock_of(c, "a", 1000);
    CHECK_HF(hf_lock_acquire(other, 8000, NULL, &err), HF_OK);
    hf_lock_free(other);
    hf_lock_free(w.m);
    hf_client_free(c);
}

TEST(extend_makes_the_lease_longer_and_shorter)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    CHECK_HF(hf_lock_extend(m, 60000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 50000, 60000);
    CHECK_RANGE(hf_lock_time_left_ms(m), 50000, 59398);
    CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 6000);
    CHECK_RANGE(hf_lock_time_left_ms(m), 1, 5938);
    CHECK_HF(hf_lock_extend(m, 0, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend(m, -1, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend(m, 99, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend(m, INT64_MAX, &err), HF_EINVAL);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 1); /* PEXPIRE 0 would have deleted it */
    CHECK_INT(hf_lock_is_held(m), 1);
    /* Later renewals use the new ttl. */
    CHECK_HF(hf_lock_extend(m, 4000, &err), HF_OK);
    t_sleep_ms(4500);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 4000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(leave_lets_the_lock_outlive_its_process_and_end_by_itself)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000), *n = lock_of(c, "b", 4000);
    lock_now(m);
    lock_now(n);
    char owner[64];
    snprintf(owner, sizeof owner, "%s", hf_lock_owner(m));
    CHECK_HF(hf_lock_detach(m, 60000, &err), HF_OK);
    CHECK_HF(hf_lock_detach(n, 0, &err), HF_OK);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
    CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 50000, 60000);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:b") == 0, 5000);
    c = client_at(server_url(s), 0);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str(owner), &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_client_free(c);
}

/* Nobody takes it over any more, so not the grace counts but the lease. */
TEST(leave_without_a_time_leaves_the_lease_and_not_the_grace)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = 2000 });
    lock_now(m);
    CHECK_RANGE(hf_lock_full_time_ms(m), 1, 2000); /* it has one */
    CHECK_HF(hf_lock_detach(m, 0, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 30000, 60001);
    hf_lock_free(m);
    hf_client_free(c);
}

/* It may be done, or not: then the lock is still ours, and is released as ours. */
TEST(P8_leave_without_an_answer_loses_nothing_and_leaves_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = 20000 });
    lock_now(m);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* the server knows the script */
    proxy_drop_replies(p);
    CHECK_HF(hf_lock_detach(m, 3600000, &err), HF_EUNSURE);
    CHECK(proxy_dropped(p) > 0);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 3000000, 3600000); /* it was done */
    proxy_break(p);
    proxy_pass(p);
    for (int64_t begun = t_now_ms(); t_now_ms() < begun + 4000; t_sleep_ms(10))
        CHECK(hf_lock_is_held(m)); /* it is looked at each second */
    unlock_now(m);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

/* One after the other, a hundred thousand would take as many round trips. */
TEST(many_locks_are_released_together)
{
    enum { MANY = 1000 };
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 0);
    hf_lock *m[MANY];
    size_t n = 0;
    for (int i = 0; i < MANY; i++) {
        m[i] = lock_of(c, keep_text("n%d", i), 60000);
        lock_now(m[i]);
    }
    CHECK_STR(server_ask(s, "DEL lock:n7"), "1");
    proxy_delay(p, 20); /* one by one, 40 s */
    int64_t begun = t_now_ms();
    CHECK_HF(hf_client_release_all(c, &n, &err), HF_ELOST);
    t_note("%d locks released in %lld ms", MANY, (long long)(t_now_ms() - begun));
    CHECK_TOOK(t_now_ms() - begun, 0, 15000);
    CHECK_INT((long long)n, MANY - 1);
    CHECK_CONTAINS(err.message, "n7");
    CHECK_INT(server_int(s, "EXISTS lock:n0 lock:n500 lock:n999"), 0);
    for (int i = 0; i < MANY; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

TEST(unlock_all_releases_what_this_client_holds_and_nothing_else)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *m[100], *theirs = lock_of(other, "theirs", 5000);
    char name[16];
    size_t n = 0;
    lock_now(theirs);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 5000);
        lock_now(m[i]);
    }
    lock_now(m[0]); /* re-entered: fully released all the same */
    CHECK_HF(hf_client_release_all(c, &n, &err), HF_OK);
    CHECK_INT((long long)n, 100);
    CHECK_INT(hf_lock_is_held(m[0]), 0);
    CHECK_HF(hf_lock_release(m[0], &err), HF_ENOTHELD);
    CHECK_INT(server_int(s, "EXISTS lock:n0 lock:n99"), 0);
    CHECK_HF(hf_lock_verify(theirs, &err), HF_OK);
    CHECK_HF(hf_client_release_all(c, &n, &err), HF_OK);
    CHECK_INT((long long)n, 0);
    lock_now(m[5]);
    for (int i = 0; i < 100; i++)
        hf_lock_free(m[i]);
    hf_lock_free(theirs);
    hf_client_free(c);
    hf_client_free(other);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* holdfast.h: after hf_client_free() handles may still be given to hf_lock_free(). */
TEST(P9_client_free_releases_and_handles_may_be_freed_after_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000), *idle = lock_of(c, "b", 5000);
    lock_now(m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
    hf_lock_free(m);
    hf_lock_free(idle);
}

TEST(free_of_NULL_is_fine_and_returns_NULL)
{
    CHECK(hf_client_free(NULL) == NULL);
    CHECK(hf_lock_free(NULL) == NULL);
    CHECK(hf_inspect_free(NULL) == NULL);
}

TEST(options_of_a_wrong_size_or_range_are_refused_by_name)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *none = NULL;
    hf_lock *m = NULL;
    struct {
        hf_lock_opts o;
        const char   *says;
    } bad[] = {
        { { .size = 0, .ttl_ms = 1000 }, "size" },
        { { .size = 1 << 20 }, "size" },
        { { .size = sizeof(hf_lock_opts), .ttl_ms = 99 }, "99 ms" },
        { { .size = sizeof(hf_lock_opts), .ttl_ms = -1 }, "-1 ms" },
        { { .size = sizeof(hf_lock_opts), .ttl_ms = INT64_MIN }, "ttl" },
        { { .size = sizeof(hf_lock_opts), .ttl_ms = INT64_MAX }, "ttl" },
        { { .size = sizeof(hf_lock_opts), .ttl_ms = HF_TTL_MAX_MS + 1 }, "ttl" },
        { { .size = sizeof(hf_lock_opts), .grace_ms = -2 }, "grace" },
        { { .size = sizeof(hf_lock_opts), .grace_ms = INT64_MAX }, "grace" },
        { { .size = sizeof(hf_lock_opts), .max_hold_ms = -1 }, "max_hold" },
        { { .size = sizeof(hf_lock_opts), .owner = { "", 0 } }, "owner" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_HF(hf_lock_open(c, hf_str("a"), &bad[i].o, &m, &err), HF_EINVAL);
        CHECK_CONTAINS(err.message, bad[i].says);
        CHECK(!m);
    }
    /* A caller that was built against an older, shorter struct. */
    hf_lock_opts old = { .size = offsetof(hf_lock_opts, grace_ms), .ttl_ms = 1000,
                          .grace_ms = -77 };
    CHECK_HF(hf_lock_open(c, hf_str("a"), &old, &m, &err), HF_OK);
    hf_lock_free(m);
    CHECK_HF(hf_lock_open(c, hf_str("a"), NULL, &m, &err), HF_OK);
    lock_now(m);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 25000, HF_TTL_DEFAULT_MS);
    hf_lock_free(m);

    hf_client_opts o = { .size = 3 };
    CHECK_HF(hf_client_open(server_url(s), &o, &none, &err), HF_EINVAL);
    o = (hf_client_opts){ .size = sizeof o, .timeout_ms = 1 };
    CHECK_HF(hf_client_open(server_url(s), &o, &none, &err), HF_ECONFIG);
    CHECK_HF(hf_client_open(server_url(s), NULL, NULL, &err), HF_EINVAL);
    CHECK(!none);
    /* Every last argument may be NULL. */
    CHECK_INT(hf_client_open("nonsense:", NULL, &none, NULL), HF_ECONFIG);
    hf_client_free(c);
}

/* ---- many processes ---- */

struct shared {
    struct server  *s;
    struct history *h;
    const char     *path;
    int             rounds;
    atomic_int     *holder; /* the pid of the last that came back with the lock */
};

/* Read, wait a little, write back plus one: any overlap loses counts. */
static void increment(const char *path)
{
    char text[32] = "0";
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(pread(fd, text, sizeof text - 1, 0) >= 0);
    long n = strtol(text, NULL, 10);
    if (t_random(8) == 0)
        t_sleep_ms(1);
    int len = snprintf(text, sizeof text, "%ld\n", n + 1);
    CHECK(pwrite(fd, text, (size_t)len, 0) == len);
    close(fd);
}

static void incrementer(int index, void *arg)
{
    struct shared *sh = arg;
    hf_client *c = client_at(server_url(sh->s), 0);
    hf_lock *m = lock_of(c, "counter", 30000);
    uint64_t last = 0, fence;
    for (int i = 0; i < sh->rounds; i++) {
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        CHECK(fence > last);
        last = fence;
        struct grant *g = history_grant(sh->h, 0, (uint32_t)index, fence, invoke,
                                        t_now_ns() + hf_lock_time_left_ms(m) * 1000000);
        increment(sh->path);
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_P4_forty_processes_lose_no_increment_and_see_rising_numbers)
{
    enum { WORKERS = 40, ROUNDS = 8 };
    struct history_report r;
    struct shared sh = { .s = server_start(NULL), .h = history_new(WORKERS * ROUNDS),
                         .path = t_path("counter"), .rounds = ROUNDS };
    workers_run(WORKERS, incrementer, &sh, 50000);
    CHECK_INT((long long)history_check(sh.h, &r), 0);
    CHECK_INT((long long)r.grants, WORKERS * ROUNDS);
    char text[32] = "";
    int fd = open(sh.path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0 && read(fd, text, sizeof text - 1) > 0);
    close(fd);
    CHECK_INT(atol(text), WORKERS * ROUNDS);
    CHECK_STR(server_keys(sh.s), ONLY_OURS);
    free((char *)sh.path);
}

/* Each takes the lock for good and waits to be killed. */
static void taker(int index, void *arg)
{
    struct shared *sh = arg;
    hf_client *c = client_at(server_url(sh->s), 0);
    hf_lock *m = lock_of(c, "a", 4000); /* whoever loses it does not come back */
    int64_t invoke = t_now_ns();
    uint64_t fence;
    CHECK_HF(hf_lock_acquire(m, HF_WAIT_FOREVER, &fence, &err), HF_OK);
    struct grant *g = history_grant(sh->h, 0, (uint32_t)index, fence, invoke,
                                    t_now_ns() + hf_lock_time_left_ms(m) * 1000000);
    atomic_store(sh->holder, getpid());
    for (;;) {
        history_deadline(g, t_now_ns() + hf_lock_time_left_ms(m) * 1000000);
        t_sleep_ms(1);
    }
}

/* The holder's pid as the session record tells it; 0: nobody's yet. */
static int holder_pid(hf_client *c)
{
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    int pid = info->holders ? (int)info->holder[0]->pid : 0;
    hf_inspect_free(info);
    return pid;
}

TEST(P3_P1_holders_killed_with_9_one_after_the_other_are_succeeded_after_the_ttl)
{
    enum { N = 4 };
    struct history_report r;
    struct shared sh = { .s = server_start(NULL), .h = history_new(N) };
    sh.holder = mmap(NULL, sizeof *sh.holder, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0);
    CHECK(sh.holder != MAP_FAILED);
    struct workers *w = workers_start(N, taker, &sh);
    hf_client *c = client_at(server_url(sh.s), 0);
    for (int i = 0, pid = 0, dead = 0; i < N; i++, dead = pid) {
        CHECK_EVENTUALLY((pid = holder_pid(c)) != 0 && pid != dead
                         && pid == atomic_load(sh.holder), 10000);
        int index = 0;
        while (index < N && workers_pid(w, index) != pid)
            index++;
        CHECK(index < N);
        workers_signal(w, index, SIGKILL);
    }
    workers_join(w, 5000);
    CHECK_INT((long long)history_check(sh.h, &r), 0);
    CHECK_INT((long long)r.grants, N);
    CHECK_EVENTUALLY(server_int(sh.s, "EXISTS lock:a") == 0, 6000); /* nobody waits for it */
    hf_client_free(c);
}

/* ---- threads and signals ---- */

static void *lock_for_ever(void *arg)
{
    hf_lock *m = arg;
    for (;;) {
        if (hf_lock_acquire(m, HF_WAIT_FOREVER, NULL, NULL) == HF_OK)
            hf_lock_release(m, NULL);
        pthread_testcancel();
    }
    return NULL;
}

TEST(pthread_cancel_inside_a_call_waits_for_its_end_and_breaks_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (int i = 0; i < 40; i++) {
        hf_lock *m = lock_of(c, "a", 5000);
        pthread_t t;
        void *how;
        CHECK_INT(pthread_create(&t, NULL, lock_for_ever, m), 0);
        t_sleep_ms((int64_t)t_random(12));
        CHECK_INT(pthread_cancel(t), 0);
        CHECK_INT(pthread_join(t, &how), 0);
        CHECK(how == PTHREAD_CANCELED);
        CHECK_INT(hf_lock_is_held(m), 0); /* between the calls, never inside one */
        lock_now(m);
        unlock_now(m);
        hf_lock_free(m);
    }
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

static atomic_int ticks;
static void on_tick(int sig)
{
    (void)sig;
    atomic_fetch_add(&ticks, 1);
}

TEST(a_storm_of_signals_changes_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 4000, .any_thread = 1 }; /* else its own wait is a deadlock */
    hf_lock *m = lock_with(c, "a", o), *other = lock_with(c, "a", o);
    struct sigaction sa = { .sa_handler = on_tick }; /* no SA_RESTART */
    struct itimerval every = { { 0, 1000 }, { 0, 1000 } }, never = { { 0, 0 }, { 0, 0 } };
    CHECK_INT(sigaction(SIGALRM, &sa, NULL), 0);
    CHECK_INT(setitimer(ITIMER_REAL, &every, NULL), 0);
    uint64_t last = 0;
    for (int64_t until = t_now_ms() + 1500; t_now_ms() < until;) {
        uint64_t fence = lock_now(m);
        CHECK(fence > last);
        last = fence;
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        unlock_now(m);
    }
    lock_now(m);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire(other, 4500, NULL, &err), HF_ETIMEDOUT);
    CHECK_TOOK(t_now_ms() - start, 4490, 8000);
    CHECK_INT(hf_lock_is_held(m), 1); /* renewed through it all */
    hf_client *late = client_at(server_url(s), 0);
    hf_client_free(late);
    CHECK_INT(setitimer(ITIMER_REAL, &never, NULL), 0);
    CHECK(atomic_load(&ticks) > 100);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
}

TEST(P9_thousands_of_cycles_leave_no_key_and_no_descriptor)
{
    struct server *s = server_start(NULL);
    int before = dup(0);
    close(before);
    for (int round = 0; round < 20; round++) {
        hf_client *c = client_at(server_url(s), 0);
        for (int i = 0; i < 50; i++) {
            int fd;
            hf_lock *m = lock_of(c, "a", 5000);
            CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
            lock_now(m);
            if (i % 2)
                unlock_now(m);
            hf_lock_free(m);
        }
        hf_client_free(c);
    }
    int after = dup(0);
    close(after);
    CHECK_INT(after, before);
    CHECK_STR(server_keys(s), ONLY_OURS);
}
