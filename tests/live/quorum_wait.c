/* SPDX-License-Identifier: MIT
 * quorum_wait.c - waiting on a quorum: a line on each server, and a hint from whoever gives the
 * lock back.
 */
#include <signal.h>

#define LIVE_SCRIPTS
#include "harness/proc.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

/* How many stand in line for a, on the server where most do. */
static long long line_of(struct members *q)
{
    long long most = 0;
    for (int i = 0; i < q->n; i++) {
        long long n = server_int(q->s[i], "ZCARD {lock:a}:w");
        most = n > most ? n : most;
    }
    return most;
}

/* On every server so many stand in line and listen. */
static int all_stand(struct members *q, int n)
{
    for (int i = 0; i < q->n; i++) {
        const char *text = server_ask(q->s[i], "PUBSUB CHANNELS");
        int listen = *text ? 1 : 0;
        for (; *text; text++)
            listen += *text == '\n';
        if (listen < n || server_int(q->s[i], "ZCARD {lock:a}:w") != n)
            return 0;
    }
    return 1;
}

/* Requests of one script that a server got. */
static int asked(struct server *s, int script)
{
    return server_monitor_count(s, lua_sha[script]);
}

/* How often this token was told that the lock is free. */
static int told(struct server *s, const char *token)
{
    char line[160];
    snprintf(line, sizeof line, "\"PUBLISH\" \"lock:holdfast:s:%.32s\" \"free %s\"", token, token);
    return server_monitor_count(s, line);
}

struct crowd {
    hf_client    *c[8];
    struct locker l[8];
    int           n;
};

/* One after the other, each a client of its own. */
static void crowd_join(struct crowd *cr, struct members *q, int n)
{
    for (cr->n = 0; cr->n < n; cr->n++) {
        cr->c[cr->n] = client_at(q->url, 0);
        cr->l[cr->n] = (struct locker){ .m = lock_of(cr->c[cr->n], "a", 10000), .wait_ms = 60000 };
        locker_start(&cr->l[cr->n]);
        CHECK_EVENTUALLY(all_stand(q, cr->n + 1), 10000);
    }
}

static void crowd_leave(struct crowd *cr)
{
    for (int i = 0; i < cr->n; i++) {
        hf_lock_free(cr->l[i].m);
        hf_client_free(cr->c[i]);
    }
}

/* P7, and P6 as far as it goes: each release tells one, the one who has waited longest; and as long
 * as nothing happens they are quiet. */
TEST(P7_a_release_wakes_one_waiter)
{
    enum { N = 6, QUIET_MS = 2000 };
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000);
    struct crowd cr;
    lock_now(m);
    crowd_join(&cr, &q, N);
    server_monitor_start(q.s[0]);
    t_sleep_ms(QUIET_MS);
    int looks = asked(q.s[0], LUA_quorum_queue), asks = asked(q.s[0], LUA_acquire);
    t_note("%d looks and %d requests for the lock of %d waiters in %d ms", looks, asks, N,
           QUIET_MS);
    CHECK_RANGE(looks, 1, 20); /* polling every 250 ms at the latest would be 48 */
    CHECK_INT(asks, 0);
    server_monitor_clear(q.s[0]);
    hf_lock *holder = m;
    int overtaken = 0;
    for (int served = 0; served < N; served++) {
        int64_t begun = t_now_ms();
        unlock_now(holder);
        int who = -1;
        while (who < 0) {
            for (int i = 0; i < N; i++)
                if (cr.l[i].wait_ms && atomic_load(&cr.l[i].done))
                    who = i;
            if (t_calm_ms(begun) > 10000)
                FAIL("nobody was served");
            t_sleep_ms(1);
        }
        locker_join(&cr.l[who], HF_OK);
        cr.l[who].wait_ms = 0;
        holder = cr.l[who].m;
        int first = 0; /* of those who still wait */
        while (first < who && !cr.l[first].wait_ms)
            first++;
        overtaken += first < who;
    }
    /* Whose look finds it free may come in between: not often. */
    t_note("out of order %d of %d times, %d requests for the lock", overtaken, N,
           asked(q.s[0], LUA_acquire));
    CHECK_RANGE(overtaken, 0, 2);
    CHECK_RANGE(asked(q.s[0], LUA_acquire), N - 1, 2 * N);
    CHECK_RANGE(server_monitor_count(q.s[0], "\"PUBLISH\""), N - 1, 2 * N);
    unlock_now(holder);
    crowd_leave(&cr);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_EVENTUALLY(line_of(&q) == 0, 5000);
}

/* The next one does not find out by looking, which it does every 400 ms. */
TEST(P7_a_hint_comes_at_once)
{
    enum { N = 20, MS = 150 };
    struct members q = members_start(5, kept);
    hf_client *c = client_at(q.url, 0), *d = client_at(q.url, 0);
    hf_lock *m[2] = { lock_of(c, "a", 60000), lock_of(d, "a", 60000) };
    int soon = 0;
    lock_now(m[0]);
    for (int i = 0; i < N; i++) {
        struct locker l = { .m = m[(i + 1) % 2], .wait_ms = 60000 };
        locker_start(&l);
        CHECK_EVENTUALLY(all_stand(&q, 1), 10000);
        t_sleep_ms(20 + (int64_t)t_random(400)); /* at any time between two looks */
        int64_t begun = t_now_ns();
        unlock_now(m[i % 2]);
        locker_join(&l, HF_OK);
        soon += l.done_ns - begun < MS * INT64_C(1000000);
    }
    t_note("%d of %d times in less than %d ms", soon, N, MS);
    CHECK_RANGE(soon, N * 3 / 4, N);
    for (int i = 0; i < 2; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    hf_client_free(d);
}

/* Without subscriptions, whatever became of them, the looks do it. */
TEST(P3_lost_hints_only_delay)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000);
    struct crowd cr;
    lock_now(m);
    crowd_join(&cr, &q, 3);
    long long killed = 0;
    for (int i = 0; i < 3; i++)
        killed += kill_inboxes(q.s[i]);
    unlock_now(m);
    CHECK_INT(killed, 9);
    int64_t begun = t_now_ms();
    for (int served = 0; served < 3; served++) {
        CHECK_EVENTUALLY(atomic_load(&cr.l[0].done) + atomic_load(&cr.l[1].done)
                             + atomic_load(&cr.l[2].done) > served, 10000);
        for (int i = 0; i < 3; i++)
            if (cr.l[i].wait_ms && atomic_load(&cr.l[i].done)) {
                locker_join(&cr.l[i], HF_OK);
                cr.l[i].wait_ms = 0;
                unlock_now(cr.l[i].m);
            }
    }
    t_note("three served in %lld ms", (long long)(t_now_ms() - begun));
    crowd_leave(&cr);
    hf_lock_free(m);
    hf_client_free(c);
}

static void wait_for_a(int index, void *arg)
{
    (void)index;
    hf_client *c = client_at(arg, 0);
    hf_lock *m = lock_of(c, "a", 10000);
    lock_now(m);
    FAIL("it should never have got it");
}

/* The first in line is killed, or stopped: a release does not wait for it. */
static void first_is_gone(int sig)
{
    struct members q = members_start(3, kept);
    server_ask(q.s[0], "SET lock:a x PX 60000"); /* until all is set up nobody gets it */
    server_ask(q.s[1], "SET lock:a x PX 60000");
    struct workers *w = workers_start(1, wait_for_a, q.url);
    CHECK_EVENTUALLY(all_stand(&q, 1), 10000);
    hf_client *c = client_at(q.url, 0), *d = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000), *second = lock_of(d, "a", 5000);
    workers_signal(w, 0, SIGSTOP);
    server_ask(q.s[0], "DEL lock:a");
    server_ask(q.s[1], "DEL lock:a");
    lock_now(m);
    struct locker l = { .m = second, .wait_ms = 20000 };
    locker_start(&l);
    CHECK_EVENTUALLY(all_stand(&q, 2), 10000);
    if (sig == SIGKILL) {
        workers_signal(w, 0, SIGKILL);
        CHECK_EVENTUALLY(!strchr(server_ask(q.s[0], "PUBSUB CHANNELS"), '\n'), 5000);
    }
    char first[64];
    snprintf(first, sizeof first, "%s", server_ask(q.s[0], "ZRANGE {lock:a}:w 0 0"));
    server_monitor_start(q.s[0]);
    int64_t begun = t_now_ns();
    unlock_now(m);
    locker_join(&l, HF_OK);
    /* It was the first, or is known to be gone. */
    CHECK_INT(told(q.s[0], first), sig == SIGKILL ? 0 : 1);
    t_note("the second has it after %lld ms", (long long)(l.done_ns - begun) / 1000000);
    if (sig != SIGKILL)
        workers_signal(w, 0, SIGKILL);
    workers_join(w, 5000);
    unlock_now(second);
    hf_lock_free(m);
    hf_lock_free(second);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(P3_the_first_in_line_was_killed)
{
    first_is_gone(SIGKILL);
}

TEST(P3_the_first_in_line_is_stopped)
{
    first_is_gone(SIGSTOP);
}

/* Whoever gives up leaves no place in line behind. */
TEST(P9_who_gives_up_leaves_the_line)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0), *d = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 5000), *other = lock_of(d, "a", 5000);
    lock_now(m);
    CHECK_HF(hf_lock_acquire(other, 200, NULL, &err), HF_ETIMEDOUT);
    CHECK_EVENTUALLY(line_of(&q) == 0, 2000);
    struct locker l = { .m = other, .wait_ms = HF_WAIT_FOREVER };
    locker_start(&l);
    CHECK_EVENTUALLY(all_stand(&q, 1), 5000);
    hf_lock_cancel(other);
    locker_join(&l, HF_ECANCELED);
    CHECK_EVENTUALLY(line_of(&q) == 0, 2000);
    /* Nor does one who was served. */
    locker_start(&l);
    CHECK_EVENTUALLY(all_stand(&q, 1), 5000);
    unlock_now(m);
    locker_join(&l, HF_OK);
    CHECK_EVENTUALLY(line_of(&q) == 0, 2000);
    unlock_now(other);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_EVENTUALLY(members_idle(&q), 2000);
}

/* ---- what the scripts do, one by one ---- */

static const char *stand(struct server *s, const char *token, int age_ms)
{
    return server_ask(s, "EVALSHA %s 2 lock:a {lock:a}:w %s %d", lua_sha[LUA_quorum_queue], token,
                      age_ms);
}

static long long let_go(struct server *s, const char *token)
{
    return server_int(s, "EVALSHA %s 5 lock:a {lock:a}:own {lock:a}:t {lock:a}:w " FENCE_KEY
                         " %s 0 %b", lua_sha[LUA_quorum_release], token, "", (size_t)0);
}

TEST(the_line_of_one_server)
{
    struct members q = members_start(3, kept); /* clients, so that somebody listens */
    struct server *s = q.s[0];
    hf_client *c = client_at(q.url, 0), *d = client_at(q.url, 0), *e = client_at(q.url, 0);
    hf_client *all[] = { c, d, e };
    char token[3][64];
    server_ask(s, "SCRIPT LOAD %s", lua_text[LUA_quorum_queue]);
    server_ask(s, "SCRIPT LOAD %s", lua_text[LUA_quorum_release]);
    /* Each client waits for another lock once: then it listens, and we know its session. */
    hf_client *h = client_at(q.url, 0);
    hf_lock *held = lock_of(h, "b", 60000);
    lock_now(held);
    for (int i = 0; i < 3; i++) {
        hf_lock *m = lock_of(all[i], "b", 5000);
        struct locker l = { .m = m, .wait_ms = HF_WAIT_FOREVER };
        locker_start(&l);
        CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:b}:w") == 1, 5000);
        snprintf(token[i], sizeof token[i], "%.32s.77", server_ask(s, "ZRANGE {lock:b}:w 0 0"));
        CHECK_EVENTUALLY(is_present(s, token[i]), 5000);
        hf_lock_cancel(m);
        locker_join(&l, HF_ECANCELED);
        CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:b}:w") == 0, 5000);
        hf_lock_free(m);
    }
    static const char dead[] = "00000000000000000000000000000000.1";
    server_monitor_start(s);
    server_ask(s, "SET lock:a holder.1:5:0 PX 50000");
    /* By how long they have waited, not by who was heard of first; who stands again stays. */
    stand(s, token[2], 100);
    stand(s, token[0], 3000);
    stand(s, token[1], 2000);
    stand(s, dead, 9000);
    stand(s, token[2], 150);
    char order[200];
    snprintf(order, sizeof order, "%s\n%s\n%s\n%s", dead, token[0], token[1], token[2]);
    CHECK_STR(server_ask(s, "ZRANGE {lock:a}:w 0 -1"), order);
    CHECK(strstr(stand(s, token[1], 2000), "\n2"));
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:w"), 50000, 60000);
    /* One who gives up while it is held: nobody is told. */
    CHECK_INT(let_go(s, token[2]), 0);
    CHECK_INT(told(s, token[0]) + told(s, token[1]) + told(s, token[2]), 0);
    stand(s, token[2], 100);
    /* A release tells the first who listens, and nobody else. */
    CHECK_INT(let_go(s, "holder.1"), 1);
    CHECK_INT(told(s, dead), 0);
    CHECK_INT(told(s, token[0]), 1);
    CHECK_INT(told(s, token[1]) + told(s, token[2]), 0);
    CHECK_INT(server_int(s, "ZCARD {lock:a}:w"), 2);
    /* The told one gives up: the next is told. */
    CHECK_INT(let_go(s, token[0]), 0);
    CHECK_INT(told(s, token[1]), 1);
    CHECK_INT(told(s, token[2]), 0);
    /* A free lock is said to be free. */
    CHECK(strstr(stand(s, token[1], 2000), "\n0\n0"));
    server_ask(s, "DEL {lock:a}:w");
    server_ask(s, "SET {lock:a}:w x");
    CHECK_STR(stand(s, token[1], 0), "-3");
    CHECK_INT(let_go(s, token[1]), 0);
    server_ask(s, "DEL {lock:a}:w");
    hf_lock_free(held);
    hf_client_free(h);
    for (int i = 0; i < 3; i++)
        hf_client_free(all[i]);
}

TEST(V1_hints_that_are_forbidden_and_allowed_again_are_heard)
{
    struct members q = members_start(3, kept);
    struct logbook log = LOGBOOK;
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(q.s[i], "ACL SETUSER default -subscribe"), "OK");
    hf_client *c = client_at(q.url, 0);
    hf_client *d = client_with(q.url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 60000);
    struct locker l = { .m = lock_of(d, "a", 60000), .wait_ms = 50000 };
    lock_now(m);
    locker_start(&l);
    /* By each of them: one that tries for the first time when it may has nothing to say. */
    for (int i = 0; i < 3; i++) {
        const char *none = keep_text("no hints from 127.0.0.1:%d", server_port(q.s[i]));
        CHECK_EVENTUALLY(logbook_has(&log, none), 10000);
    }
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(q.s[i], "ACL SETUSER default +subscribe"), "OK");
    for (int i = 0; i < 3; i++) {
        const char *again = keep_text("hints from 127.0.0.1:%d again", server_port(q.s[i]));
        CHECK_EVENTUALLY(logbook_has(&log, again), 15000);
    }
    unlock_now(m);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(d);
}
