/* SPDX-License-Identifier: MIT
 * quorum_faults.c - what servers and networks do to a quorum, and that its promises hold meanwhile.
 */
#include <signal.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

/* ---- dead servers ---- */

/* Every set of dead servers: with a majority alive all works, without one nothing is taken. */
TEST(P1_every_mask_of_dead_servers)
{
    struct members q = members_start(5, kept);
    uint64_t last = 0;
    for (unsigned dead = 0; dead < 32; dead++) {
        hf_client *old = client_at(q.url, 1500), *fresh = NULL;
        hf_lock *m = lock_of(old, "a", 4000);
        unsigned alive = ~dead & 31;
        int living = __builtin_popcount(alive);
        members_each(&q, dead, server_kill);
        uint64_t fence = 0;
        hf_err want = living >= 3 ? HF_OK : HF_ENOQUORUM;
        CHECK_HF(hf_lock_try(m, &fence, &err), want);
        if (want == HF_OK) {
            CHECK(fence > last);
            last = fence;
            CHECK(members_with(&q, "lock:a", hf_lock_owner(m), alive) >= 3);
            CHECK_HF(hf_lock_verify(m, &err), HF_OK);
            unlock_now(m);
        } else {
            CHECK_CONTAINS(err.message, "of 5 servers");
        }
        CHECK_EVENTUALLY(members_having(&q, "lock:a", alive) == 0, 1000);
        hf_client_opts o = { .size = sizeof o, .timeout_ms = 1500 };
        CHECK_HF(hf_client_open(q.url, &o, &fresh, &err), want);
        if (want)
            CHECK_CONTAINS(err.message, "3 are needed");
        hf_client_free(fresh);
        hf_lock_free(m);
        hf_client_free(old);
        members_each(&q, dead, server_restart);
    }
}

TEST(P5_majority_dead_while_held)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1500);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    server_kill(q.s[1]);
    t_sleep_ms(4500); /* one dead server takes nothing from the holder */
    CHECK(hf_lock_is_held(m));
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    int64_t left = hf_lock_time_left_ms(m), begun = t_now_ms();
    server_kill(q.s[2]);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 10000);
    CHECK_TOOK(t_now_ms() - begun, 0, left + 1500);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    /* They are back, with what they had: it ends, or is cancelled. */
    server_restart(q.s[1]);
    server_restart(q.s[2]);
    lock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(waiting_outlives_a_dead_majority)
{
    struct members q = members_start(3, kept);
    hf_client *a = client_at(q.url, 1500), *b = client_at(q.url, 1500);
    hf_lock *ma = lock_of(a, "a", 4000), *mb = lock_of(b, "a", 4000);
    lock_now(ma);
    struct locker l = { .m = mb, .wait_ms = 20000 };
    locker_start(&l);
    t_sleep_ms(100);
    server_kill(q.s[0]);
    server_kill(q.s[1]);
    CHECK_EVENTUALLY(hf_lock_state(ma) == HF_STATE_LOST, 5000);
    CHECK(!l.done);
    server_restart(q.s[0]);
    server_restart(q.s[1]);
    locker_join(&l, HF_OK);
    CHECK_HF(hf_lock_verify(mb, &err), HF_OK);
    CHECK_HF(hf_lock_release(ma, &err), HF_ELOST);
    unlock_now(mb);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

/* ---- frozen servers ---- */

static int64_t rounds_ms(hf_lock *m, int rounds)
{
    int64_t begun = t_now_ms();
    for (int i = 0; i < rounds; i++) {
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        unlock_now(m);
    }
    return t_now_ms() - begun;
}

TEST(Q4_a_frozen_minority_costs_no_time)
{
    struct members q = members_start(5, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 5000);
    int64_t before = rounds_ms(m, 100);
    server_freeze(q.s[0]);
    server_freeze(q.s[3]);
    int64_t frozen = rounds_ms(m, 100);
    t_note("100 rounds: %lld ms, with two frozen %lld ms", (long long)before, (long long)frozen);
    /* Not a single time-out of a server is in it. */
    CHECK_RANGE(frozen, 0, before * 4 + 500);
    lock_now(m);
    /* A new client is not kept up either. */
    int64_t begun = t_now_ms();
    hf_client *d = client_at(q.url, 0);
    hf_lock *md = lock_of(d, "a", 5000);
    CHECK_HF(hf_lock_try(md, NULL, &err), HF_EBUSY);
    CHECK_TOOK(t_now_ms() - begun, 0, 1500);
    unlock_now(m);
    CHECK_HF(hf_lock_try(md, NULL, &err), HF_OK);
    server_thaw(q.s[0]);
    server_thaw(q.s[3]);
    unlock_now(md);
    /* What had been sent to them meanwhile leaves nothing. */
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 5000);
    t_sleep_ms(300);
    CHECK_INT(members_having(&q, "lock:a", ALL_MEMBERS), 0);
    hf_lock_free(m);
    hf_lock_free(md);
    hf_client_free(c);
    hf_client_free(d);
}

/* A client is there as soon as it has a majority; the others come a little later. */
static int reaches_all(struct members *q, hf_client *c)
{
    hf_lock *m = lock_of(c, "reach", 60000);
    lock_now(m);
    int all = members_having(q, "lock:reach", ALL_MEMBERS) == q->n;
    unlock_now(m);
    hf_lock_free(m);
    return all;
}

TEST(P5_P8_majority_frozen)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 500), *d = client_at(q.url, 500);
    hf_lock *m = lock_of(c, "a", 1000), *other = lock_of(d, "b", 60000);
    CHECK_EVENTUALLY(reaches_all(&q, d), 5000);
    lock_now(m);
    server_freeze(q.s[0]);
    server_freeze(q.s[1]);
    /* A try cannot succeed; what it sent stays in the servers' sockets. */
    CHECK_HF(hf_lock_try(other, NULL, &err), HF_ENOQUORUM);
    CHECK_INT(err.known, HF_KNOWN_NOTHING);
    CHECK_INT(members_having(&q, "lock:b", 4), 0);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    server_thaw(q.s[0]);
    server_thaw(q.s[1]);
    /* The late request takes nothing for long: its ttl was a minute. */
    CHECK_EVENTUALLY(members_having(&q, "lock:b", ALL_MEMBERS) == 0
                         && members_having(&q, "{lock:b}:t", 3) == 2, 8000);
    lock_now(m);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
}

/* Two gave the lock, the third was away and knows nothing of it. When one of the two does not
 * answer at the release, one server's no is no proof that the lock was lost. */
static void released_without(void (*away)(struct server *s), int noticed)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_of(c, "a", 60000);
    server_kill(q.s[2]);
    lock_now(m);
    CHECK_INT(members_having(&q, "lock:a", 3), 2);
    server_restart(q.s[2]);
    CHECK_EVENTUALLY(reaches_all(&q, c), 5000);
    /* What is held is renewed within a second on a server that is back, and may get there. */
    do {
        server_ask(q.s[2], "DEL lock:a");
        t_sleep_ms(1500);
    } while (members_having(&q, "lock:a", 4));
    away(q.s[0]);
    if (noticed) {
        CHECK_HF(hf_lock_verify(m, &err), HF_ENOQUORUM);
        t_sleep_ms(50);
    }
    unlock_now(m);
    CHECK_INT(members_having(&q, "lock:a", 6), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(Q6_lost_when_a_majority_says_so_not_when_one_is_silent)
{
    released_without(server_freeze, 0);
}

TEST(Q6_lost_when_a_majority_says_so_not_when_one_is_dead)
{
    released_without(server_kill, 1);
}

/* ---- servers that forget ---- */

/* A holds a lock on servers 0 and 1; 1 and 2 have restarted without their data. A cannot reach
 * these two any more: else it would learn within milliseconds that it has lost the lock. */
static hf_client *forgetful(struct members *q, const char *options, hf_lock **ret)
{
    struct proxy *to[] = { proxy_start_tcp(q->s[1]), proxy_start_tcp(q->s[2]) };
    char url[512];
    snprintf(url, sizeof url, "redis+quorum://127.0.0.1:%d,%s,%s%s", server_port(q->s[0]),
             strstr(proxy_url(to[0]), "://") + 3, strstr(proxy_url(to[1]), "://") + 3, options);
    members_url(q, options);
    hf_client *a = client_at(url, 500);
    hf_lock *m = lock_with(a, "a", (hf_lock_opts){ .ttl_ms = 6000, .no_renew = 1 });
    server_kill(q->s[2]);
    CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
    CHECK_INT(members_with(q, "lock:a", hf_lock_owner(m), 3), 2);
    proxy_refuse(to[0]);
    proxy_refuse(to[1]);
    server_restart(q->s[2]);
    server_kill(q->s[1]);
    server_restart(q->s[1]);
    CHECK_INT(members_having(q, "lock:a", 6), 0); /* the fault happened */
    *ret = m;
    return a;
}

TEST(Q5_a_server_that_forgot_does_not_vote)
{
    struct members q = members_start(3, (struct server_opts){ 0 });
    hf_lock *ma, *mb;
    hf_client *a = forgetful(&q, "?quarantine=6s", &ma);
    hf_client *b = client_at(q.url, 1500);
    mb = lock_of(b, "a", 3000);
    CHECK(hf_lock_is_held(ma));
    hf_err e = hf_lock_try(mb, NULL, &err);
    if (e != HF_EBUSY && e != HF_ENOQUORUM)
        FAIL("two servers that forgot the lock granted it again: %s", hf_err_name(e));
    CHECK_HF(hf_lock_acquire(mb, 1000, NULL, &err), HF_ENOQUORUM);
    CHECK_CONTAINS(err.message, "keep nothing on disk");
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

/* The same without the quarantine: so the fault is real. */
TEST(Q5_without_quarantine_two_would_hold)
{
    struct members q = members_start(3, (struct server_opts){ 0 });
    hf_lock *ma, *mb;
    hf_client *a = forgetful(&q, "?quarantine=0", &ma);
    hf_client *b = client_at(q.url, 1500);
    mb = lock_of(b, "a", 3000);
    CHECK_HF(hf_lock_try(mb, NULL, &err), HF_OK);
    CHECK(hf_lock_is_held(ma));
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

TEST(Q5_quarantine_lasts_for_the_longest_ttl)
{
    struct members q = members_start(3, (struct server_opts){ 0 });
    members_url(&q, "?quarantine=2s");
    hf_client *c = client_at(q.url, 1500);
    hf_lock *brief = lock_of(c, "a", 1000), *lengthy = lock_of(c, "b", 600000);
    CHECK_HF(hf_lock_try(brief, NULL, &err), HF_ENOQUORUM);
    CHECK_HF(hf_lock_acquire(brief, 8000, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_try(lengthy, NULL, &err), HF_ENOQUORUM);
    CHECK_CONTAINS(err.message, "do not vote for another 59");
    hf_lock_free(brief);
    hf_lock_free(lengthy);
    hf_client_free(c);
}

/* When; they call themselves a second old when this returns. */
static int64_t start_late_in_a_second(struct members *q)
{
    await_late_in_a_second();
    int64_t began = t_now_ms();
    for (int i = 0; i < q->n; i++)
        q->s[i] = server_start_opts(&(struct server_opts){ .tcp = 1, .no_wait = 1 });
    for (int i = 0; i < q->n; i++)
        CHECK_INT(server_await(q->s[i]), 0);
    for (int i = 0; i < q->n; i++)
        CHECK_EVENTUALLY(atoi(server_info(q->s[i], "uptime_in_seconds")) > 0, 2000);
    return began;
}

/* A server counts its age in whole seconds of the clock, and calls itself a second old when that
 * has just struck. */
TEST(Q5_quarantine_is_not_shorter_because_servers_were_started_late_in_a_second)
{
    struct members q = { .n = 3 };
    int64_t began = start_late_in_a_second(&q);
    for (int i = 0; i < 20 && t_now_ms() - began > 500; i++) { /* not as late as that: again */
        members_each(&q, 7, server_kill);
        began = start_late_in_a_second(&q);
    }
    members_url(&q, "?quarantine=2s");
    hf_client *c = client_at(q.url, 1500);
    hf_lock *m = lock_of(c, "a", 2000);
    CHECK_HF(hf_lock_acquire(m, 10000, NULL, &err), HF_OK);
    CHECK(t_now_ms() - began >= 2000);
    CHECK_TOOK(t_now_ms() - began, 2000, 8000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(A8_missed_servers_are_locked_at_renewal)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(5, kept);
    server_kill(q.s[0]);
    server_kill(q.s[1]);
    hf_client *c = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 4000);
    uint64_t fence = lock_now(m);
    server_restart(q.s[0]);
    server_restart(q.s[1]);
    CHECK_EVENTUALLY(members_with(&q, "lock:a", hf_lock_owner(m), ALL_MEMBERS) == 5, 5000);
    CHECK_EVENTUALLY(logbook_has(&log, "was taken there too"), 1000);
    /* So that two others may die now. */
    server_kill(q.s[3]);
    server_kill(q.s[4]);
    t_sleep_ms(4500);
    CHECK(hf_lock_is_held(m));
    CHECK_INT(hf_lock_fence(m), fence);
    unlock_now(m);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", 7) == 0, 1000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* A majority forgot it: the holder hears of it at its renewal, and takes nothing back by itself. */
TEST(P5_lost_on_a_majority)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    server_ask(q.s[0], "DEL lock:a");
    server_ask(q.s[1], "DEL lock:a");
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 2000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
    CHECK_INT(members_having(&q, "lock:a", 3), 0);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- clocks ---- */

TEST(clock_jump_of_one_server)
{
    struct logbook log = LOGBOOK;
    struct members q = members_start(3, (struct server_opts){ .aof = 1, .clockshim = 1 });
    hf_client *a = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_client *b = client_at(q.url, 0);
    hf_lock *ma = lock_of(a, "a", 4000), *mb = lock_of(b, "a", 4000);
    lock_now(ma);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 3, 1000);
    t_sleep_ms(1700); /* one renewal: both clocks are known */
    server_clock_shift(q.s[1], 3600000);
    CHECK_EVENTUALLY(server_int(q.s[1], "EXISTS lock:a") == 0, 1000); /* it expired there */
    CHECK_HF(hf_lock_try(mb, NULL, &err), HF_EBUSY);
    CHECK_EVENTUALLY(logbook_has(&log, "moved by +3"), 3000);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 3, 3000);
    CHECK(hf_lock_is_held(ma));
    unlock_now(ma);
    lock_now(mb);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

/* Clocks minutes apart, and every majority of five in turn. */
TEST(P4_numbers_rise_across_all_majorities)
{
    struct members q = members_start(5, (struct server_opts){ .aof = 1, .clockshim = 1 });
    static const int64_t shift[] = { 0, 600000, -600000, 3600000, -3600000 };
    for (int i = 0; i < 5; i++) {
        server_clock_shift(q.s[i], shift[i]);
        server_kill(q.s[i]);
        server_restart(q.s[i]);
    }
    uint64_t last = 0;
    int majorities = 0;
    for (unsigned dead = 1; dead < 31; dead++) {
        if (__builtin_popcount(dead) != 2)
            continue;
        members_each(&q, dead, server_freeze);
        hf_client *c = client_at(q.url, 1000);
        hf_lock *m = lock_of(c, "a", 5000);
        uint64_t fence = lock_now(m);
        if (fence <= last)
            FAIL("%llu after %llu, without %#x", (unsigned long long)fence,
                 (unsigned long long)last, dead);
        last = fence;
        majorities++;
        unlock_now(m);
        hf_lock_free(m);
        hf_client_free(c);
        members_each(&q, dead, server_thaw);
    }
    CHECK_INT(majorities, 10);
}

/* ---- networks ---- */

TEST(P8_lost_replies_of_a_minority)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000);
    proxy_drop_replies(w.p[1]);
    uint64_t fence = lock_now(m);
    CHECK_EVENTUALLY(proxy_dropped(w.p[1]) > 0, 1000);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    proxy_break(w.p[1]);
    proxy_pass(w.p[1]);
    unlock_now(m);
    /* Executed there, or cancelled: nothing stays. */
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    CHECK(lock_now(m) > fence);
    hf_lock_free(m);
    hf_client_free(c);
}

/* One answers that it was held there, one that it was not, and one breaks off: it is free. */
TEST(P8_a_release_that_hangs_on_a_lost_reply)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 3, 2000);
    server_ask(w.q.s[2], "DEL lock:a");
    proxy_cut_after(w.p[1], 1);
    unlock_now(m);
    CHECK(proxy_cuts(w.p[1]) > 0);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P8_lost_replies_of_a_majority)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 1000);
    hf_lock *m = lock_of(c, "a", 60000);
    proxy_drop_replies(w.p[0]);
    proxy_drop_replies(w.p[1]);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ENOQUORUM);
    CHECK_INT(err.known, HF_KNOWN_NOTHING);
    CHECK(proxy_dropped(w.p[0]) > 0 && proxy_dropped(w.p[1]) > 0);
    CHECK_INT(members_having(&w.q, "lock:a", 4), 0); /* undone where it could be */
    proxy_break(w.p[0]);
    proxy_break(w.p[1]);
    proxy_pass(w.p[0]);
    proxy_pass(w.p[1]);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    lock_now(m);

    /* A release in doubt is done for all that. */
    proxy_drop_replies(w.p[0]);
    proxy_drop_replies(w.p[1]);
    hf_err e = hf_lock_release(m, &err);
    CHECK(e == HF_ENOQUORUM && err.known == HF_KNOWN_NOT_HELD);
    CHECK(!hf_lock_is_held(m));
    proxy_break(w.p[0]);
    proxy_break(w.p[1]);
    proxy_pass(w.p[0]);
    proxy_pass(w.p[1]);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The request arrives when it had been given up: on a new connection its token is buried first. */
TEST(P8_late_requests_take_nothing)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 1000);
    hf_lock *m = lock_of(c, "a", 60000);
    proxy_hold(w.p[0]);
    proxy_hold(w.p[1]);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ENOQUORUM);
    CHECK(proxy_held(w.p[0]) > 0 && proxy_held(w.p[1]) > 0);
    CHECK_INT(members_having(&w.q, "lock:a", ALL_MEMBERS), 0);
    /* The old connections are given up by then; what they held is delivered all the same. */
    t_sleep_ms(1500);
    proxy_pass(w.p[0]);
    proxy_pass(w.p[1]);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    uint64_t fence = 0;
    CHECK_HF(hf_lock_acquire(m, 5000, &fence, &err), HF_OK);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 5000);
    hf_lock_free(m);
    hf_client_free(c);
}

static int is_busy(struct server *s)
{
    const char *answer = server_ask(s, "GET x");
    return answer && strstr(answer, "BUSY");
}

static void begin_a_script_without_end(struct server *s)
{
    CHECK_STR(server_ask(s, "CONFIG SET busy-reply-threshold 1"), "OK");
    if (t_fork_among_threads() == 0) {
        server_ask(s, "EVAL %s 0", "while true do end");
        _exit(0);
    }
    CHECK_EVENTUALLY(is_busy(s), 10000);
}

/* A refusal is no answer: what one server owes is asked for again. The ttl is a minute, and the two
 * others have released the lock. What it answers is read as the connection is used again. */
TEST(P9_a_server_that_was_busy_at_the_release)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 10000);
    hf_lock *m = lock_of(c, "a", 60000), *other = lock_of(c, "b", 60000);
    lock_now(m);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 3, 1000);
    begin_a_script_without_end(q.s[2]);
    unlock_now(m);
    CHECK(is_busy(q.s[2]));
    int64_t until = t_now_ms() + 3000;
    while (t_now_ms() < until) { /* what is tried once more in the background is refused, too */
        lock_now(other);
        unlock_now(other);
        t_sleep_ms(100);
    }
    CHECK(is_busy(q.s[2]));
    server_ask(q.s[2], "SCRIPT KILL");
    CHECK_EVENTUALLY(!is_busy(q.s[2]), 10000);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 10000);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
}

/* A release reaches those that were away, when they are back: the ttl is a minute. */
TEST(P9_a_server_that_was_away_at_the_release)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1500);
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 3, 1000);
    server_kill(q.s[1]);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* so its connection is known to be gone */
    t_sleep_ms(50);
    unlock_now(m);
    server_restart(q.s[1]);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 5000);
    /* It was told, and did not just forget. */
    CHECK_INT(server_int(q.s[1], "EXISTS {lock:a}:t"), 1);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- programs and scripts ---- */

struct stopped {
    char         url[512];
    struct bell  held;
    atomic_int  *verdict; /* what the holder said when it ran again */
};

static void hold_and_stop(int index, void *arg)
{
    struct stopped *st = arg;
    (void)index;
    hf_client *c = client_at(st->url, 0);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    int64_t now = t_now_ms(), last;
    bell_ring(st->held);
    do { /* a gap in our own time: we were stopped */
        last = now;
        t_sleep_ms(1);
        now = t_now_ms();
    } while (now - last < 3000);
    int held = hf_lock_is_held(m);
    hf_err e = hf_lock_release(m, NULL);
    atomic_store(st->verdict, held ? 1 : e == HF_ELOST ? 2 : 3);
    hf_lock_free(m);
    hf_client_free(c);
}

/* A holder that stood still for longer than its ttl believes nothing when it runs again. */
TEST(P5_a_stopped_holder)
{
    struct members q = members_start(5, kept);
    struct stopped st = { .held = bell_new(), .verdict = shared_memory(sizeof *st.verdict) };
    snprintf(st.url, sizeof st.url, "%s", q.url);
    struct workers *w = workers_start(1, hold_and_stop, &st);
    bell_wait(st.held);
    workers_signal(w, 0, SIGSTOP);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    t_sleep_ms(1200);
    workers_signal(w, 0, SIGCONT);
    workers_join(w, 10000);
    CHECK_INT(atomic_load(st.verdict), 2);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* nor did it take anything from us */
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P8_scripts_that_are_forgotten)
{
    struct members q = members_start(5, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 5000);
    uint64_t last = 0;
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 5; i++)
            if (t_random(2))
                CHECK_STR(server_ask(q.s[i], "SCRIPT FLUSH"), "OK");
        uint64_t fence = lock_now(m);
        CHECK(fence > last);
        last = fence;
        if (t_random(2))
            CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        unlock_now(m);
    }
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 5000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- many at once ---- */

struct contest {
    struct history *h;
    char            url[512];
    int64_t         until_ms;
};

static void contend(int index, void *arg)
{
    struct contest *ct = arg;
    hf_client *c = client_at(ct->url, 1000);
    hf_lock *m = lock_of(c, "a", 1000);
    while (t_now_ms() < ct->until_ms) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        hf_err e = hf_lock_acquire(m, 300, &fence, &err);
        if (e)
            continue;
        struct grant *g = history_grant(ct->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        t_sleep_ms((int64_t)t_random(4));
        history_release(g);
        (void)hf_lock_release(m, NULL);
        t_sleep_ms((int64_t)t_random(3));
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* n servers, so many workers; meanwhile one server after the other is frozen, killed, restarted. */
static size_t contest(int n, int workers, int64_t ms, int chaos)
{
    struct members q = members_start(n, kept);
    struct contest ct = { .h = history_new(200000), .until_ms = t_now_ms() + ms };
    snprintf(ct.url, sizeof ct.url, "%s", q.url);
    struct workers *w = workers_start(workers, contend, &ct);
    int faults = 0;
    while (t_now_ms() < ct.until_ms) {
        int i = (int)t_random((uint64_t)n);
        t_sleep_ms(50 + (int64_t)t_random(100));
        if (!chaos)
            continue;
        if (t_random(2)) {
            server_freeze(q.s[i]);
            t_sleep_ms((int64_t)t_random(300));
            server_thaw(q.s[i]);
        } else {
            server_kill(q.s[i]);
            t_sleep_ms((int64_t)t_random(100));
            server_restart(q.s[i]);
        }
        faults++;
    }
    workers_join(w, 20000);
    struct history_report r;
    size_t violations = history_check(ct.h, &r);
    t_note("%d servers, %d workers, %d faults: %zu grants, %zu violations", n, workers, faults,
           r.grants, violations);
    CHECK_INT(violations, 0);
    CHECK(!chaos || faults >= 5);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 5000);
    return r.grants;
}

TEST(P1_P4_sixteen_processes)
{
    CHECK(contest(3, 16, 3000, 0) > 50);
}

TEST(P1_P4_sixteen_processes_and_chaos)
{
    CHECK(contest(5, 16, 6000, 1) > 50);
}

/* With an even number two candidates can have half each: both let go, and somebody wins. */
TEST(P1_P4_an_even_number)
{
    CHECK(contest(4, 6, 3000, 0) > 50);
}
