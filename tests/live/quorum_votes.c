/* SPDX-License-Identifier: MIT
 * quorum_votes.c - how a majority is asked and counted: at the same moment, in time, by which
 * number, and by whose clock.
 */
#define LIVE_SCRIPTS
#include "harness/quorum.h"
#include "harness/waiting.h"

/* ---- when ---- */

/* Each way takes 200 ms to each server: one after the other, five would take two seconds for each
 * round. */
TEST(Q4_all_are_asked_at_the_same_moment)
{
    struct wires w = wires_start(5);
    hf_client *c = client_at(w.q.url, 0);
    hf_lock *m = lock_of(c, "a", 20000);
    for (int i = 0; i < 5; i++)
        proxy_delay(w.p[i], 200);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    int64_t took = t_now_ms() - begun;
    t_note("%lld ms", (long long)took);
    CHECK_TOOK(took, 400, 1600); /* two phases, the first time */
    for (int i = 0; i < 5; i++)
        CHECK(proxy_delayed(w.p[i]) > 0);
    begun = t_now_ms();
    unlock_now(m);
    CHECK_TOOK(t_now_ms() - begun, 400, 1600);
    hf_lock_free(m);
    hf_client_free(c);
}

/* A majority whose answers come when too little of the lease is left is none; nothing of it
 * stays. */
TEST(Q1_a_majority_that_comes_too_late_is_none)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 5000);
    hf_lock *m = lock_of(c, "a", 600);
    proxy_delay(w.p[0], 350);
    proxy_delay(w.p[1], 350);
    hf_err e = hf_lock_try(m, NULL, &err);
    if (e != HF_ENOQUORUM && e != HF_ETIMEDOUT)
        FAIL("a round trip of 700 ms for a lease of 600 ms: %s (%s)", hf_err_name(e), err.message);
    CHECK(!hf_lock_is_held(m));
    CHECK(proxy_delayed(w.p[0]) > 0 && proxy_delayed(w.p[1]) > 0);
    proxy_pass(w.p[0]);
    proxy_pass(w.p[1]);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    CHECK(lock_now(m) > 0);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- who decides ---- */

/* A holder that is gone; what it left ends by itself. */
static void leave_over(struct server *s, const char *key, int ms)
{
    CHECK_STR(server_ask(s, "SET %s 0123456789abcdef0123456789abcdef.1:5:0 PX %d", key, ms), "OK");
}

/* Who won against others has a bare majority; if one of those servers forgets it, there is none. So
 * it is taken on the others soon, not a third of the ttl later, here 100 s. Should that come before
 * the other one's vote is gone, which is deleted here, it is tried again. */
TEST(Q2_a_bare_majority_is_completed_soon)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 300000);
    int completed = 0;
    for (int round = 0; round < 30 && !completed; round++) {
        leave_over(q.s[2], "lock:a", 100000);
        lock_now(m);
        CHECK_INT(server_int(q.s[2], "DEL lock:a"), 1);
        for (int64_t until = t_now_ms() + 1000; !completed && t_now_ms() < until; t_sleep_ms(5))
            completed = server_int(q.s[2], "EXISTS lock:a") == 1;
        unlock_now(m);
    }
    CHECK(completed);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The nearest majority is not free: one of it has a left-over. A majority is, with the one that is
 * further away than the others. */
TEST(Q6_a_lock_is_free_when_a_majority_is)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 5000);
    hf_lock *m = lock_of(c, "a", 20000), *reach = lock_of(c, "reach", 20000);
    lock_now(reach);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:reach", ALL_MEMBERS) == 3, 2000);
    leave_over(w.q.s[0], "lock:a", 30000);
    leave_over(w.q.s[1], "lock:a", 600);
    leave_over(w.q.s[2], "lock:a", 600);
    proxy_delay(w.p[2], 30);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_acquire(m, 8000, NULL, &err), HF_OK);
    CHECK_TOOK(t_now_ms() - begun, 400, 4000);
    CHECK(proxy_delayed(w.p[2]) > 0);
    unlock_now(m);
    unlock_now(reach);
    hf_lock_free(m);
    hf_lock_free(reach);
    hf_client_free(c);
}

/* One cannot vote, one is far: a client that has just begun, and tries once, waits for it. */
TEST(Q6_who_is_still_connected_to_may_decide)
{
    struct wires w = wires_start(3);
    proxy_delay(w.p[2], 120);
    server_ask(w.q.s[0], "RPUSH lock:list x");
    leave_over(w.q.s[0], "lock:left", 30000);
    const char *names[] = { "list", "left" };
    for (int i = 0; i < 2; i++) {
        hf_client *c = client_at(w.q.url, 5000);
        hf_lock *m = lock_of(c, names[i], 20000);
        int64_t begun = t_now_ms();
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        t_note("%s: %lld ms", names[i], (long long)(t_now_ms() - begun));
        unlock_now(m);
        hf_lock_free(m);
        hf_client_free(c);
    }
}

/* It was greeted before anybody took a number, and is connected to only after that: its first
 * number comes after its reign all the same. Else nobody knows since when it has its counter, and
 * the others count as servers that have lost theirs. */
TEST(Q7_who_is_connected_to_late_lets_its_reign_begin)
{
    struct wires w = wires_start(3);
    proxy_delay(w.p[2], 300);
    server_ask(w.q.s[0], "RPUSH lock:list x");
    server_monitor_start(w.q.s[2]);
    hf_client *c = client_at(w.q.url, 20000);
    hf_lock *m = lock_of(c, "list", 20000);
    CHECK_EVENTUALLY(server_monitor_count(w.q.s[2], "\"persistence\"") > 0, 10000);
    CHECK_INT(server_int(w.q.s[2], "EXISTS " REIGN_KEY), 0); /* it was only looked at */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    CHECK_INT(server_int(w.q.s[2], "EXISTS " REIGN_KEY " lock:list"), 2);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    proxy_delay(w.p[2], 0);
    c = client_at(w.q.url, 20000);
    m = lock_of(c, "a", 20000);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* One breaks off, and what the try may have there is buried when it is back. One is still connected
 * to, and could decide, so there is another round; but it has a left-over. With another token it is
 * granted: nobody has cancelled anything. */
TEST(P8_a_try_that_was_buried_on_a_server_is_made_with_another_token)
{
    struct wires w = wires_start(3);
    leave_over(w.q.s[2], "lock:a", 60000);
    proxy_delay(w.p[2], 120);
    for (int i = 0; i < 5; i++) {
        hf_client *c = client_at(w.q.url, 5000);
        hf_lock *m = lock_of(c, "a", 60000);
        long before = proxy_cuts(w.p[0]);
        proxy_cut_after(w.p[0], 1);
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        CHECK_INT(proxy_cuts(w.p[0]) - before, 1);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        unlock_now(m);
        hf_lock_free(m);
        hf_client_free(c);
    }
}

/* ---- by which number ---- */

/* Where a majority has the same number already, it need not be told; else it is, and once a
 * second. */
TEST(Q2_one_round_trip_when_the_counters_agree)
{
    struct members q = members_start(5, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 20000);
    uint64_t last = lock_now(m);
    unlock_now(m);
    server_monitor_start(q.s[0]);
    int64_t begun = t_now_ms();
    for (int i = 0; i < 20; i++) {
        uint64_t fence = lock_now(m);
        CHECK(fence > last);
        last = fence;
        unlock_now(m);
    }
    int64_t seconds = (t_now_ms() - begun) / 1000 + 1;
    CHECK_INT(server_monitor_count(q.s[0], lua_sha[LUA_acquire]), 20);
    /* One that connected a little later than the others has a counter of its own at first. */
    CHECK_RANGE(server_monitor_count(q.s[0], lua_sha[LUA_quorum_agree]), 0, seconds + 4);
    server_monitor_clear(q.s[0]);
    /* No majority has the same one any more. */
    for (int i = 0; i < 5; i++)
        server_ask(q.s[i], "INCRBY " FENCE_KEY " %d", 100 * i);
    uint64_t fence = lock_now(m);
    CHECK(fence > last);
    CHECK_INT(server_monitor_count(q.s[0], lua_sha[LUA_quorum_agree]), 1);
    for (int i = 0; i < 5; i++)
        CHECK_EVENTUALLY(strtoull(server_ask(q.s[i], "GET " FENCE_KEY), NULL, 10) >= fence, 1000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The same client, now with these servers, now with those, their counters driven apart
 * meanwhile. */
TEST(P4_numbers_rise_across_majorities_of_one_client)
{
    struct members q = members_start(5, kept);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t last = 0;
    for (int round = 0; round < 60; round++) {
        unsigned dead = 0;
        while (__builtin_popcount(dead) < 2)
            dead |= 1u << t_random(5);
        members_each(&q, dead, server_freeze);
        for (int i = 0; i < 5; i++)
            if (!(dead >> i & 1) && t_random(3) == 0)
                server_ask(q.s[i], "INCRBY " FENCE_KEY " %d", (int)t_random(4));
        uint64_t fence = lock_now(m);
        if (fence <= last)
            FAIL("%llu after %llu, without %#x in round %d", (unsigned long long)fence,
                 (unsigned long long)last, dead, round);
        last = fence;
        unlock_now(m);
        members_each(&q, dead, server_thaw);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- by whose clock ---- */

/* It holds nothing when the clock jumps; the next locks tell of it. */
TEST(a_clock_that_jumps_between_locks_is_reported)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(5, (struct server_opts){ .aof = 1, .clockshim = 1 });
    hf_client *c = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    unlock_now(m);
    server_clock_shift(q.s[3], 3600000);
    int64_t until = t_now_ms() + 10000;
    while (!logbook_has(&log, "moved by +3") && t_now_ms() < until) {
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        unlock_now(m);
        t_sleep_ms(20);
    }
    CHECK_LOGGED(&log, "moved by +3");
    char member[40];
    snprintf(member, sizeof member, "the clock of 127.0.0.1:%d moved", server_port(q.s[3]));
    CHECK_LOGGED(&log, member);
    hf_lock_free(m);
    hf_client_free(c);
}

/* It only waits, and never has anything. */
TEST(a_clock_that_jumps_while_waiting_is_reported)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(3, (struct server_opts){ .aof = 1, .clockshim = 1 });
    hf_client *a = client_at(q.url, 0);
    hf_client *b = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *ma = lock_of(a, "a", 4000), *mb = lock_of(b, "a", 4000);
    lock_now(ma);
    struct locker l = { .m = mb, .wait_ms = 60000 };
    locker_start(&l);
    CHECK_EVENTUALLY(server_int(q.s[1], "ZCARD {lock:a}:w") == 1, 5000);
    server_clock_shift(q.s[1], -3600000);
    CHECK_EVENTUALLY(logbook_has(&log, "moved by -3"), 10000);
    CHECK(!atomic_load(&l.done));
    CHECK(hf_lock_is_held(ma)); /* one of three does no harm */
    unlock_now(ma);
    locker_join(&l, HF_OK);
    unlock_now(mb);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

static void *thaw_later(void *arg)
{
    t_sleep_ms(300);
    members_each(arg, 7, server_thaw);
    return NULL;
}

/* Each tells its time at the end of the 300 ms, and not in the middle of them. */
TEST(a_quick_answer_after_a_slow_one_is_no_clock_that_moved)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(3, (struct server_opts){ .aof = 1 });
    hf_client *c = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 6000);
    pthread_t thread;
    lock_now(m);
    members_each(&q, 7, server_freeze);
    int64_t begun = t_now_ms();
    CHECK(pthread_create(&thread, NULL, thaw_later, &q) == 0);
    CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK);
    CHECK(t_now_ms() - begun >= 300);
    pthread_join(thread, NULL);
    for (int i = 0; i < 10; i++)
        CHECK_HF(hf_lock_extend(m, 6000, &err), HF_OK);
    CHECK(!logbook_has(&log, "moved by"));
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Clocks that stand apart, but go as ours, are nothing to report. */
TEST(clocks_minutes_apart_are_not_reported)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(3, (struct server_opts){ .aof = 1, .clockshim = 1 });
    server_clock_shift(q.s[0], 300000);
    server_clock_shift(q.s[1], -300000);
    hf_client *c = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 4000);
    int64_t until = t_now_ms() + 2500;
    while (t_now_ms() < until) {
        lock_now(m);
        t_sleep_ms(100);
        unlock_now(m);
    }
    lock_now(m);
    t_sleep_ms(3000); /* two renewals */
    CHECK(hf_lock_is_held(m));
    CHECK(!logbook_has(&log, "moved by"));
    hf_lock_free(m);
    hf_client_free(c);
}
