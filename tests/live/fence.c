/* SPDX-License-Identifier: MIT
 * fence.c - P4: every grant's number is larger than all before it, whatever the server lost; and
 * the guard on the resource's side.
 */
#include <signal.h>

#include "harness/waiting.h"
#include "harness/proc.h"
#include "harness/history.h"

#define CAP_US 60000000LL

static long long server_time_us(struct server *s)
{
    long long sec, us;
    CHECK(sscanf(server_ask(s, "TIME"), "%lld %lld", &sec, &us) == 2);
    return sec * 1000000 + us;
}

static uint64_t cycle(hf_lock *m)
{
    uint64_t f = lock_now(m);
    unlock_now(m);
    return f;
}

TEST(P4_C1_a_missing_counter_begins_at_server_time_plus_60s)
{
    struct server *s = server_start(NULL);
    long long before = server_time_us(s);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t f = cycle(m);
    CHECK_RANGE((long long)f, before + CAP_US, server_time_us(s) + CAP_US + 1);
    CHECK(cycle(m) == f + 1); /* the hot path is one INCR */
    server_ask(s, "DEL " FENCE_KEY);
    before = server_time_us(s);
    uint64_t g = cycle(m);
    CHECK(g > f + 1);
    CHECK_RANGE((long long)g, before + CAP_US, server_time_us(s) + CAP_US);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P4_numbers_rise_after_flushall_and_the_holder_learns_of_the_loss)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 4000), *other = lock_of(c2, "a", 5000);
    for (int i = 0; i < 5; i++) {
        uint64_t f = lock_now(m);
        server_ask(s, "FLUSHALL");
        uint64_t g = lock_now(other);
        CHECK(g > f);
        CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
        CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
        CHECK_HF(hf_lock_verify(other, &err), HF_OK);
        unlock_now(other);
    }
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(c2);
}

TEST(P4_numbers_rise_after_a_restart_that_lost_everything)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t last = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t f = lock_now(m);
        CHECK(f > last);
        last = f;
        server_kill(s);
        server_restart(s);
        CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 5000);
        CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    }
    CHECK_CONTAINS(server_ask(s, "GET " REIGN_KEY), server_info(s, "run_id"));
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P4_kill_9_with_aof_keeps_held_locks_and_lifts_the_counter)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 10000), *other = lock_of(c2, "a", 10000);
    hf_lock *second = lock_of(c2, "b", 10000);
    server_ask(s, "SET " FENCE_KEY " %lld", server_time_us(s)); /* far below the cap */
    uint64_t f = lock_now(m), last = f;
    for (int i = 0; i < 3; i++) {
        server_kill(s);
        server_restart(s);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* still ours, over a new connection */
        CHECK_HF(hf_lock_try(other, NULL, &err), HF_EBUSY);
        uint64_t g = cycle(second);
        CHECK(g > last);
        /* C3: a new reign begins a minute ahead: what was given and not written down is
         * overtaken */
        CHECK_RANGE((long long)g, server_time_us(s) + CAP_US - 5000000,
                    server_time_us(s) + CAP_US + 1);
        last = g;
    }
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK(hf_lock_fence(m) == f);
    unlock_now(m);
    CHECK(lock_now(other) > last);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_lock_free(second);
    hf_client_free(c);
    hf_client_free(c2);
}

TEST(C3_a_new_connection_alone_does_not_raise_the_counter)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t f = cycle(m);
    for (int i = 0; i < 5; i++)
        hf_client_free(client_at(server_url(s), 0));
    CHECK(cycle(m) == f + 1);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Whatever is put into the counter while a client is connected. */
TEST(C6_an_unusable_counter_is_an_error_that_names_it_and_nothing_is_written)
{
    static const char *const bad[] = { "SET %s garbage", "SET %s 1.5", "LPUSH %s x", "HSET %s a b",
                                       "SET %s 9223372036854775807", "SET %s 9007199254740993",
                                       "SADD %s x" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t f = cycle(m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        server_ask(s, "DEL " FENCE_KEY);
        server_ask(s, bad[i], FENCE_KEY);
        const char *before = server_ask(s, "DUMP " FENCE_KEY);
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECOUNTER);
        CHECK_CONTAINS(err.message, FENCE_KEY);
        CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        CHECK_STR(server_ask(s, "DUMP " FENCE_KEY), before);
        CHECK_HF(hf_owner_acquire(c, hf_str("a"), 1000, hf_str("id"), NULL, &err), HF_ECOUNTER);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        /* A newcomer on an unknown reign learns it at once. */
        server_ask(s, "DEL " REIGN_KEY);
        hf_client *late = NULL;
        CHECK_HF(hf_client_open(server_url(s), NULL, &late, &err), HF_ECOUNTER);
        CHECK_CONTAINS(err.message, FENCE_KEY);
    }
    server_ask(s, "DEL " FENCE_KEY);
    CHECK(cycle(m) > f);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(C1_a_counter_that_is_too_small_is_repaired)
{
    static const char *const small[] = { "0", "-5", "1", "1599999999999998",
                                         "-9223372036854775808" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t last = cycle(m);
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        server_ask(s, "SET " FENCE_KEY " %s", small[i]);
        uint64_t f = cycle(m);
        CHECK(f > last);
        CHECK(f > 1600000000000000ULL && f < 9007199254740000ULL);
        last = f;
        server_ask(s, "SET " FENCE_KEY " %s", small[i]);
        server_ask(s, "DEL " REIGN_KEY);
        hf_client *fresh = client_at(server_url(s), 0); /* the same by the greeting */
        hf_lock *first = lock_of(fresh, "a", 5000);
        f = cycle(first);
        CHECK(f > last);
        last = f;
        hf_lock_free(first);
        hf_client_free(fresh);
        f = cycle(m);
        CHECK(f > last);
        last = f;
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P10_a_hostile_reign_key_is_replaced_and_hurts_nobody)
{
    static const char *const bad[] = { "SET %s x", "LPUSH %s x", "SET %s \xff", "SET %s %%s%%n",
                                       "SET %s x.y" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t last = cycle(m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        server_ask(s, "DEL " REIGN_KEY);
        server_ask(s, bad[i], REIGN_KEY);
        hf_client *fresh = client_at(server_url(s), 0);
        hf_lock *first = lock_of(fresh, "b", 5000);
        (void)cycle(first);
        hf_lock_free(first);
        hf_client_free(fresh);
        CHECK_CONTAINS(server_ask(s, "GET " REIGN_KEY), server_info(s, "run_id"));
        uint64_t f = cycle(m);
        CHECK(f > last);
        last = f;
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the same at random, by many processes ---- */

enum { INJECTIONS = 10, GRANTS = 100 }; /* at least */

struct chaos {
    struct server  *s;
    struct history *h;
    struct {
        atomic_int stop, grants;
    } *mem;
};

static void chaotic(int index, void *arg)
{
    struct chaos *ch = arg;
    hf_client *c = client_at(server_url(ch->s), 2000);
    hf_lock *m = lock_of(c, "a", 1000);
    while (!atomic_load(&ch->mem->stop)) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        if (hf_lock_acquire(m, 1000, &fence, &err))
            continue;
        /* FLUSHALL breaks exclusion (documented), never the order of numbers. */
        struct grant *g = history_grant(ch->h, 0, (uint32_t)index, fence, invoke, t_now_ns());
        t_sleep_ms((int64_t)t_random(3));
        history_release(g);
        atomic_fetch_add(&ch->mem->grants, 1);
        (void)hf_lock_release(m, &err);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P4_flushall_kill_and_restart_at_random_never_turn_numbers_back)
{
    struct chaos ch = { .s = server_start(NULL), .h = history_new(100000) };
    struct history_report r;
    int injected = 0;
    t_note("seed %llu", (unsigned long long)t_seed());
    ch.mem = shared_memory(sizeof *ch.mem);
    struct workers *w = workers_start(4, chaotic, &ch);
    for (int64_t until = t_now_ms() + 3500; t_now_ms() < until || injected < INJECTIONS
                                            || atomic_load(&ch.mem->grants) <= GRANTS; injected++) {
        t_sleep_ms(50 + (int64_t)t_random(150));
        if (t_random(3)) {
            server_ask(ch.s, t_random(2) ? "FLUSHALL" : "DEL " FENCE_KEY);
        } else {
            server_kill(ch.s);
            server_restart(ch.s);
        }
    }
    atomic_store(&ch.mem->stop, 1);
    workers_join(w, 20000);
    history_check(ch.h, &r);
    t_note("%d faults", injected);
    CHECK_INT((long long)r.duplicates, 0);
    CHECK_INT((long long)r.disorder, 0);
    CHECK(injected >= INJECTIONS && r.grants > GRANTS);
}

/* ---- the guard ---- */

TEST(G1_G3_the_guard_refuses_stale_numbers_and_takes_the_same_one_again)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_bytes r = hf_str("resource");
    CHECK_HF(hf_guard_check(c, r, 100, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, r, 100, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, r, 99, &err), HF_ESTALE);
    CHECK_CONTAINS(err.message, "100");
    CHECK_CONTAINS(err.message, "99");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_HF(hf_guard_check(c, r, 9, &err), HF_ESTALE); /* not compared as words */
    CHECK_HF(hf_guard_check(c, r, 1000, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, r, UINT64_MAX, &err), HF_OK); /* exact beyond 2^53 */
    CHECK_HF(hf_guard_check(c, r, UINT64_MAX - 1, &err), HF_ESTALE);
    CHECK_HF(hf_guard_check(c, r, UINT64_MAX, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, hf_str("another"), 1, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, r, 0, &err), HF_EINVAL);
    CHECK_HF(hf_guard_check(c, hf_str(""), 1, &err), HF_EINVAL);
    char big[1025];
    memset(big, 'x', sizeof big);
    CHECK_HF(hf_guard_check(c, (hf_bytes){ big, 1025 }, 1, &err), HF_EINVAL);
    CHECK_HF(hf_guard_check(c, (hf_bytes){ big, 1024 }, 1, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, (hf_bytes){ "a\0\r\n", 4 }, 5, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, (hf_bytes){ "a\0\r\n", 4 }, 4, &err), HF_ESTALE);
    hf_client_free(c);
}

TEST(G2_a_refused_write_changes_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_bytes k = hf_str("data:key");
    CHECK_HF(hf_guard_set(c, k, hf_str("one"), 10, &err), HF_OK);
    CHECK_STR(server_ask(s, "GET data:key"), "one");
    CHECK_HF(hf_guard_set(c, k, hf_str("two"), 10, &err), HF_OK);
    CHECK_HF(hf_guard_set(c, k, hf_str("old"), 9, &err), HF_ESTALE);
    CHECK_STR(server_ask(s, "GET data:key"), "two");
    CHECK_HF(hf_guard_set(c, k, (hf_bytes){ "\0\r\n", 3 }, 11, &err), HF_OK);
    CHECK_INT(server_int(s, "STRLEN data:key"), 3);
    CHECK_HF(hf_guard_set(c, k, hf_str(""), 12, &err), HF_OK);
    CHECK_INT(server_int(s, "STRLEN data:key"), 0);

    /* The guard's own key is hostile: refused, and the data stays. */
    CHECK_STR(server_ask(s, "GET {data:key}:guard"), "12");
    static const char *const bad[] = { "SET %s -1", "SET %s x", "LPUSH %s x", "SET %s 1e3" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        server_ask(s, "DEL {data:key}:guard");
        server_ask(s, bad[i], "{data:key}:guard");
        CHECK_HF(hf_guard_set(c, k, hf_str("bad"), 99, &err), HF_ETYPE);
        CHECK_INT(server_int(s, "STRLEN data:key"), 0);
    }
    hf_client_free(c);
}

/* The story of docs/fencing.md: a holder that slept through its lease writes too late. */
TEST(P4_G1_a_stale_holder_is_refused_by_the_resource)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *slow = lock_with(c1, "a", (hf_lock_opts){ .ttl_ms = 800, .no_renew = 1 });
    hf_lock *next = lock_of(c2, "a", 5000);
    uint64_t old = lock_now(slow), new = lock_now(next);
    CHECK_HF(hf_guard_set(c2, hf_str("d"), hf_str("new"), new, &err), HF_OK);
    CHECK_HF(hf_guard_set(c1, hf_str("d"), hf_str("old"), old, &err), HF_ESTALE);
    CHECK_STR(server_ask(s, "GET d"), "new");
    hf_lock_free(slow);
    hf_lock_free(next);
    hf_client_free(c1);
    hf_client_free(c2);
}
