/* SPDX-License-Identifier: MIT
 * presence.c - P3, P5: a holder that died is replaced after its grace; one that is only paused, cut
 * off or met by a restart is not; and each knows in time what it cannot count on any more.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/acl.h"
#include "harness/history.h"
#include "harness/holder.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_lock *graced(hf_client *c, const char *name, int64_t ttl_ms, int64_t grace_ms)
{
    return lock_with(c, name, (hf_lock_opts){ .ttl_ms = ttl_ms, .grace_ms = grace_ms });
}

/* ---- what a holder was told, and when ---- */

struct events {
    atomic_llong doubt_ns, safe_ns, lost_ns;
    atomic_int   doubts;
};

static void on_event(hf_lock *m, hf_state state, void *arg)
{
    struct events *e = arg;
    (void)m;
    if (state == HF_STATE_IN_DOUBT) {
        atomic_store(&e->doubt_ns, t_now_ns());
        atomic_fetch_add(&e->doubts, 1);
    } else if (state == HF_STATE_SAFE) {
        atomic_store(&e->safe_ns, t_now_ns());
    } else if (state == HF_STATE_LOST) {
        atomic_store(&e->lost_ns, t_now_ns());
    }
}

static hf_lock *watched(hf_client *c, const char *name, int64_t ttl_ms, int64_t grace_ms,
                        struct events *e)
{
    return lock_with(c, name, (hf_lock_opts){ .ttl_ms = ttl_ms, .grace_ms = grace_ms,
                                                .on_event = on_event, .event_arg = e });
}

/* ---- kill -9 ---- */

#define AT_ONCE 5
#define ROUNDS  4
#define HOLDERS (AT_ONCE * ROUNDS)

struct killing {
    struct server  *s;
    struct history *h;
    struct bell     hold[HOLDERS], wait[AT_ONCE];
    struct {
        atomic_int   ready, holding;
        atomic_llong granted_ns[HOLDERS];
    } *mem;
};

static void name_of(char ret[16], int i)
{
    snprintf(ret, 16, "n%d", i);
}

static void holds_until_killed(struct killing *k, int index)
{
    char name[16];
    name_of(name, index % AT_ONCE);
    hf_client *c = client_at(server_url(k->s), 20000);
    hf_lock *m = graced(c, name, 60000, 1000);
    uint64_t fence;
    atomic_fetch_add(&k->mem->ready, 1);
    bell_wait(k->hold[index]);
    int64_t invoke = t_now_ns();
    CHECK_HF(hf_lock_acquire(m, 20000, &fence, &err), HF_OK);
    struct grant *g = history_grant(k->h, (uint32_t)(index % AT_ONCE), (uint32_t)index, fence,
                                    invoke, BELIEVED_UNTIL(m));
    atomic_fetch_add(&k->mem->holding, 1);
    for (;;) {
        history_deadline(g, BELIEVED_UNTIL(m));
        t_sleep_ms(1);
    }
}

static void takes_over(struct killing *k, int index)
{
    char name[16];
    name_of(name, index);
    hf_client *c = client_at(server_url(k->s), 20000);
    hf_lock *m = graced(c, name, 60000, 10000); /* whose grace counts: the holder's (A1) */
    uint64_t fence, last = 0;
    atomic_fetch_add(&k->mem->ready, 1);
    for (int round = 0; round < ROUNDS; round++) {
        bell_wait(k->wait[index]);
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 30000, &fence, &err), HF_OK);
        struct grant *g = history_grant(k->h, (uint32_t)index, (uint32_t)(100 + index), fence,
                                        invoke, BELIEVED_UNTIL(m));
        CHECK(fence > last);
        last = fence;
        history_release(g);
        unlock_now(m);
        atomic_store(&k->mem->granted_ns[round * AT_ONCE + index], t_now_ns());
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static void holder_or_waiter(int index, void *arg)
{
    if (index < HOLDERS)
        holds_until_killed(arg, index);
    else
        takes_over(arg, index - HOLDERS);
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

TEST(P3_kill_9_of_the_holder_costs_the_grace_and_not_the_ttl)
{
    struct killing k = { .s = server_start(NULL), .h = history_new(2 * HOLDERS) };
    struct history_report r;
    int took[HOLDERS];
    k.mem = shared_memory(sizeof *k.mem);
    for (int i = 0; i < HOLDERS; i++)
        k.hold[i] = bell_new();
    for (int i = 0; i < AT_ONCE; i++)
        k.wait[i] = bell_new();
    struct workers *w = workers_start(HOLDERS + AT_ONCE, holder_or_waiter, &k);
    CHECK_EVENTUALLY(atomic_load(&k.mem->ready) == HOLDERS + AT_ONCE, 20000);
    for (int round = 0; round < ROUNDS; round++) {
        int64_t killed[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++)
            bell_ring(k.hold[round * AT_ONCE + i]);
        CHECK_EVENTUALLY(atomic_load(&k.mem->holding) == (round + 1) * AT_ONCE, 10000);
        for (int i = 0; i < AT_ONCE; i++) {
            char name[16];
            name_of(name, i);
            bell_ring(k.wait[i]);
            CHECK_QUEUE(k.s, name, 1);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            char name[16];
            name_of(name, i);
            CHECK(server_int(k.s, "PTTL lock:%s", name) > 30000); /* the ttl is far away */
            killed[i] = t_now_ns();
            workers_signal(w, round * AT_ONCE + i, SIGKILL);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            atomic_llong *at = &k.mem->granted_ns[round * AT_ONCE + i];
            CHECK_EVENTUALLY(atomic_load(at) != 0, 20000);
            took[round * AT_ONCE + i] = (int)((atomic_load(at) - killed[i]) / 1000000);
        }
    }
    workers_join(w, 10000);
    qsort(took, HOLDERS, sizeof *took, by_number);
    t_note("next holder after ms: least %d, median %d, worst %d of %d", took[0], took[HOLDERS / 2],
           took[HOLDERS - 1], HOLDERS);
    CHECK_TOOK(took[0], 900, 2500); /* not before the grace: it might have come back */
    CHECK_TOOK(took[HOLDERS - 1], 900, 2500);
    CHECK_INT((long long)history_check(k.h, &r), 0);
    CHECK_INT((long long)r.grants, 2 * HOLDERS);
    CHECK_INT(server_int(k.s, "EXISTS lock:n0 {lock:n0}:q {lock:n0}:absent"), 0);
    check_only_ttls(k.s);
}

/* ---- SIGSTOP ---- */

struct pausing {
    struct server  *s;
    struct history *h;
    int64_t         ttl_ms, grace_ms;
    int             survives; /* its stop */
    struct {
        atomic_int   holding, woken;
        atomic_int   held_after, verified;
        atomic_llong beat_ns;
        atomic_int   release;
    } *mem;
};

static void holds_and_is_stopped(int index, void *arg)
{
    struct pausing *p = arg;
    hf_client *c = client_at(server_url(p->s), 20000);
    hf_lock *m = graced(c, "a", p->ttl_ms, p->grace_ms);
    int64_t invoke = t_now_ns();
    uint64_t fence = lock_now(m);
    struct grant *g = history_grant(p->h, 0, (uint32_t)index, fence, invoke, BELIEVED_UNTIL(m));
    atomic_store(&p->mem->holding, 1);
    int64_t last = t_now_ms();
    while (t_now_ms() - last < 2000 && !atomic_load(&p->mem->release)) {
        last = t_now_ms();
        if (hf_lock_is_held(m))
            history_deadline(g, BELIEVED_UNTIL(m));
        t_sleep_ms(2);
    }
    /* Two seconds were missing: we were stopped. What do the first calls say? */
    atomic_store(&p->mem->held_after, hf_lock_is_held(m));
    atomic_store(&p->mem->verified, hf_lock_verify(m, &err));
    atomic_store(&p->mem->woken, 1);
    hf_err e = hf_lock_release(m, &err);
    if (!atomic_load(&p->mem->release))
        CHECK_INT(e, p->survives ? HF_OK : HF_ELOST);
    hf_lock_free(m);
    hf_client_free(c);
}

/* What it has seen of the holder outlives each of its waits. */
TEST(P3_who_waits_for_less_than_the_grace_again_and_again_takes_over_too)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                         .grace_ms = 3000 });
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 60000);
    CHECK_HF(hf_lock_acquire(m, 300, NULL, &err), HF_ETIMEDOUT);
    workers_signal(w, 0, SIGKILL);
    int64_t died = t_now_ms();
    int waits = 0;
    hf_err e;
    while ((e = hf_lock_acquire(m, 700, NULL, &err)) == HF_ETIMEDOUT && t_calm_ms(died) < 30000)
        waits++;
    CHECK_HF(e, HF_OK);
    CHECK(waits >= 2 && t_now_ms() - died >= 3000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    workers_join(w, 5000);
}

/* Each is shorter than the grace, all are longer, and the same client has seen them all. */
TEST(P1_what_was_seen_of_an_absence_does_not_count_for_the_next_one)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c1 = client_at(proxy_url(p), 10000), *c2 = client_at(server_url(s), 0);
    hf_lock *m = graced(c1, "a", 60000, 5000), *o = lock_of(c2, "a", 60000);
    uint64_t fence = lock_now(m);
    for (int i = 0; i < 3; i++) {
        CHECK_EVENTUALLY(is_present(s, hf_lock_owner(m)), 5000);
        proxy_refuse(p);
        proxy_break(p);
        for (int64_t begun = t_now_ms(); t_now_ms() - begun < 2000;)
            CHECK_HF(hf_lock_acquire(o, 500, NULL, &err), HF_ETIMEDOUT);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 1); /* it was seen */
        proxy_pass(p);
        CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:absent") == 0, 5000);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(P3_a_stopped_holder_is_not_replaced_before_its_ttl_and_learns_it_first_thing)
{
    struct pausing p = { .s = server_start(NULL), .h = history_new(10), .ttl_ms = 6000,
                         .grace_ms = 2000 };
    struct history_report r;
    p.mem = shared_memory(sizeof *p.mem);
    struct workers *w = workers_start(1, holds_and_is_stopped, &p);
    CHECK_EVENTUALLY(atomic_load(&p.mem->holding), 10000);
    hf_client *c = client_at(server_url(p.s), 0);
    struct locker l = { .m = graced(c, "a", 30000, 3000), .wait_ms = 20000 };
    int64_t invoke = t_now_ns();
    locker_start(&l);
    CHECK_QUEUE(p.s, "a", 1);
    workers_signal(w, 0, SIGSTOP);
    long long left = server_int(p.s, "PTTL lock:a");
    int64_t start = t_now_ms();
    CHECK_CONTAINS(server_ask(p.s, "GET lock:a"), ":2000"); /* with a grace */
    locker_join(&l, HF_OK);
    int64_t after = t_now_ms() - start;
    struct grant *g = history_grant(p.h, 0, 7, l.fence, invoke, BELIEVED_UNTIL(l.m));
    t_note("%lld ms of its lease were left, replaced after %lld", left, (long long)after);
    CHECK(left > 3000);
    CHECK_TOOK(after, left - 20, left + 1500);
    workers_signal(w, 0, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&p.mem->woken), 10000);
    CHECK_INT(atomic_load(&p.mem->held_after), 0);
    CHECK_INT(atomic_load(&p.mem->verified), HF_ELOST);
    workers_join(w, 10000);
    CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
    history_release(g);
    CHECK_INT((long long)history_check(p.h, &r), 0);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* A short stop is survived: the connection stood, so nobody took it for dead. */
TEST(P3_a_holder_stopped_for_longer_than_the_grace_and_shorter_than_the_ttl_is_not_replaced)
{
    struct pausing p = { .s = server_start(NULL), .h = history_new(10), .ttl_ms = 20000,
                         .grace_ms = 2000, .survives = 1 };
    p.mem = shared_memory(sizeof *p.mem);
    struct workers *w = workers_start(1, holds_and_is_stopped, &p);
    CHECK_EVENTUALLY(atomic_load(&p.mem->holding), 10000);
    hf_client *c = client_at(server_url(p.s), 0);
    struct locker l = { .m = graced(c, "a", 30000, 3000), .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(p.s, "a", 1);
    char *value = strdup(server_ask(p.s, "GET lock:a"));
    workers_signal(w, 0, SIGSTOP);
    t_sleep_ms(3500);
    CHECK_STR(server_ask(p.s, "GET lock:a"), value);
    CHECK_INT(atomic_load(&l.done), 0);
    workers_signal(w, 0, SIGCONT);
    /* By A2 it does not count on it until its presence is proven again, and then it does. */
    CHECK_EVENTUALLY(atomic_load(&p.mem->woken), 10000);
    CHECK_INT(atomic_load(&p.mem->verified), HF_OK);
    workers_join(w, 10000);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    free(value);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* ---- restart of the server ---- */

TEST(P3_a_restart_of_the_server_takes_nobody_for_dead)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    struct events e = { 0 };
    hf_lock *m = watched(c1, "a", 30000, 5000, &e);
    struct locker l = { .m = graced(c2, "a", 30000, 5000), .wait_ms = 60000 };
    uint64_t f = lock_now(m);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    char *value = strdup(server_ask(s, "GET lock:a")),
         *place = strdup(server_ask(s, "ZRANGE {lock:a}:q 0 0"));
    for (int i = 0; i < 2; i++) {
        char *run = strdup(server_info(s, "run_id"));
        server_kill(s);
        server_restart(s);
        CHECK(strcmp(run, server_info(s, "run_id")) != 0);
        free(run);
        CHECK_STR(server_ask(s, "GET lock:a"), value); /* with persistence */
        CHECK_EVENTUALLY(is_present(s, hf_lock_owner(m)) && is_present(s, place), 5000);
        /* Past the grace. */
        for (int64_t until = t_now_ms() + 5600; t_now_ms() < until; t_sleep_ms(20)) {
            CHECK_INT(hf_lock_is_held(m), 1);
            CHECK_INT(atomic_load(&l.done), 0);
        }
        CHECK_STR(server_ask(s, "GET lock:a"), value);
        CHECK_INT(queue_of(s, "a"), 1);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        CHECK(hf_lock_fence(m) == f);
    }
    CHECK_INT(atomic_load(&e.lost_ns), 0);
    unlock_now(m);
    locker_join(&l, HF_OK);
    CHECK(l.fence > f);
    unlock_now(l.m);
    free(value);
    free(place);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c1);
    hf_client_free(c2);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* Absent in a reign in which it never was present: no proof of death (A4). */
TEST(P3_A4_a_holder_that_does_not_come_back_after_a_restart_keeps_its_ttl)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    struct pausing p = { .s = s, .h = history_new(10), .ttl_ms = 8000, .grace_ms = 2000 };
    p.mem = shared_memory(sizeof *p.mem);
    struct workers *w = workers_start(1, holds_and_is_stopped, &p);
    CHECK_EVENTUALLY(atomic_load(&p.mem->holding), 10000);
    workers_signal(w, 0, SIGSTOP);
    hf_client *c = client_at(server_url(s), 0);
    struct locker l = { .m = graced(c, "a", 30000, 3000), .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    server_kill(s);
    server_restart(s);
    long long left = server_int(s, "PTTL lock:a");
    int64_t start = t_now_ms();
    CHECK(left > 2500);
    CHECK_INT(is_present(s, server_ask(s, "GET lock:a")), 0); /* its subscription is gone */
    locker_join(&l, HF_OK);
    t_note("%lld ms were left, replaced after %lld", left, (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, left - 20, left + 3000);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 1000);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* ---- the session's connection breaks ---- */

TEST(P3_a_holder_whose_session_is_killed_comes_back_and_keeps_the_lock)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    struct events e = { 0 };
    hf_lock *m = watched(c1, "a", 30000, 2000, &e);
    struct locker l = { .m = graced(c2, "a", 30000, 3000), .wait_ms = 30000 };
    uint64_t f = lock_now(m);
    long long id = only_inbox(s), killed = 0;
    CHECK_CONTAINS(server_ask(s, "CLIENT LIST ID %lld", id), " sub=1 ");
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_INT(server_int(s, "CLIENT KILL ID %lld", id), 1);
    CHECK_EVENTUALLY(is_present(s, hf_lock_owner(m)), 1000);
    /* And again and again, for longer than the grace in all. */
    for (int64_t until = t_now_ms() + 4000; t_now_ms() < until; t_sleep_ms((int64_t)t_random(80))) {
        killed += kill_inboxes(s);
        CHECK_INT(hf_lock_is_held(m), 1);
        CHECK_INT(atomic_load(&l.done), 0);
    }
    t_note("%lld killed, %d times in doubt", killed, atomic_load(&e.doubts));
    CHECK(killed > 20);
    CHECK_EVENTUALLY(is_present(s, hf_lock_owner(m)), 1000);
    t_sleep_ms(2500); /* what was seen of its absence must be forgotten */
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_INT(atomic_load(&e.lost_ns), 0);
    CHECK(hf_lock_fence(m) == f);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 0);
    unlock_now(m);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(P5_P1_a_holder_whose_session_cannot_come_back_knows_it_before_the_next_one_is_granted)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    for (int i = 0; i < 3; i++) {
        hf_client *c1 = client_at(proxy_url(p), 5000), *c2 = client_at(server_url(s), 0);
        struct events e = { 0 };
        hf_lock *m = watched(c1, "a", 30000, 2000, &e);
        uint64_t f = lock_now(m);
        long long id = only_inbox(s);
        struct locker l = { .m = graced(c2, "a", 30000, 3000), .wait_ms = 30000 };
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        t_sleep_ms((int64_t)t_random(300)); /* at any moment between its pings */
        long refused = proxy_refused(p);
        proxy_refuse(p);
        int64_t cut = t_now_ns();
        CHECK_INT(server_int(s, "CLIENT KILL ID %lld", id), 1);
        locker_join(&l, HF_OK);
        CHECK(proxy_refused(p) > refused); /* it did try */
        int64_t doubt = atomic_load(&e.doubt_ns), lost = atomic_load(&e.lost_ns);
        CHECK(doubt && lost);
        t_note("in doubt after %lld ms, lost after %lld, the next holder after %lld",
               (long long)(doubt - cut) / 1000000, (long long)(lost - cut) / 1000000,
               (long long)(l.done_ns - cut) / 1000000);
        CHECK(doubt < lost && lost < l.done_ns);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(hf_lock_state(m), HF_STATE_LOST);
        CHECK(l.fence > f);
        proxy_pass(p);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
        CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
        unlock_now(l.m);
        hf_lock_free(l.m);
        hf_lock_free(m);
        hf_client_free(c1);
        hf_client_free(c2);
    }
}

/* ---- A2: belief has one rule ---- */

TEST(P5_A2_a_frozen_server_is_doubted_at_half_of_the_grace_and_lost_before_its_end)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 10000);
    struct events e = { 0 };
    hf_lock *m = watched(c, "a", 30000, 3000, &e);
    int64_t most_lost = 0;
    for (int i = 0; i < 3; i++) {
        atomic_store(&e.doubt_ns, 0);
        atomic_store(&e.lost_ns, 0);
        lock_now(m);
        CHECK_RANGE(hf_lock_full_time_ms(m), 2900, 3000);
        /* Until what was handed over is confirmed, it has the claim window of a second. */
        CHECK_EVENTUALLY(hf_lock_time_left_ms(m) > 1500, 5000);
        t_sleep_ms((int64_t)t_random(400));
        CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
        server_freeze(s);
        int64_t frozen = t_now_ns();
        CHECK_EVENTUALLY(atomic_load(&e.lost_ns) != 0, 8000);
        int64_t doubt = (atomic_load(&e.doubt_ns) - frozen) / 1000000;
        int64_t lost = (atomic_load(&e.lost_ns) - frozen) / 1000000;
        t_note("in doubt after %lld ms, lost after %lld", (long long)doubt, (long long)lost);
        CHECK_TOOK(doubt, 0, 2000);
        CHECK_TOOK(lost, 1400, 3300); /* it was safe: the last proof was newer than half of it */
        most_lost = lost > most_lost ? lost : most_lost;
        CHECK(doubt < lost);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(hf_lock_time_left_ms(m), 0);
        CHECK_INT(hf_lock_state(m), HF_STATE_LOST);
        CHECK_INT(hf_lock_loss(m), HF_LOSS_GRACE);
        server_thaw(s);
        t_sleep_ms(300);
        CHECK_INT(hf_lock_state(m), HF_STATE_LOST); /* what was said cannot be unsaid */
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    }
    CHECK(most_lost > 2000); /* unless a ping was late, it is at most a quarter of the grace old */
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_A2_a_stall_shorter_than_the_grace_is_doubted_and_then_safe_again)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 10000);
    struct events e = { 0 };
    hf_lock *m = watched(c, "a", 30000, 3000, &e);
    uint64_t f = lock_now(m);
    server_freeze(s);
    CHECK_EVENTUALLY(atomic_load(&e.doubt_ns) != 0, 2900);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_INT(hf_lock_state(m), HF_STATE_IN_DOUBT);
    server_thaw(s);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_SAFE, 1000);
    CHECK_EVENTUALLY(atomic_load(&e.safe_ns) > atomic_load(&e.doubt_ns), 1000);
    CHECK(hf_lock_fence(m) == f);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- A3: the mark of absence ---- */

TEST(P3_A3_an_old_mark_and_a_short_blip_later_are_not_enough)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c1 = client_at(proxy_url(p), 5000), *c2 = client_at(server_url(s), 0);
    struct events e = { 0 };
    hf_lock *m = watched(c1, "a", 60000, 2500, &e);
    struct locker l = { .m = graced(c2, "a", 30000, 3000), .wait_ms = 30000 };
    uint64_t f = lock_now(m);
    long long id = only_inbox(s);
    char reign[200];
    snprintf(reign, sizeof reign, "%.*s", (int)strcspn(server_ask(s, "GET " REIGN_KEY), " "),
             server_ask(s, "GET " REIGN_KEY));
    const char *value = server_ask(s, "GET lock:a");
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    proxy_refuse(p);
    CHECK_INT(server_int(s, "CLIENT KILL ID %lld", id), 1);
    /* As if somebody had seen it absent an hour ago and nobody ever since. */
    char mark[400];
    snprintf(mark, sizeof mark, "absent %lld %s",
             atoll(server_ask(s, "TIME")) * 1000 - 3600000, reign);
    server_ask(s, "DEL {lock:a}:absent");
    CHECK_INT(server_int(s, "HSET {lock:a}:absent %s %s", value, mark), 1);
    server_ask(s, "PEXPIRE {lock:a}:absent 60000");
    int64_t start = t_now_ms();
    while (t_now_ms() - start < 900) { /* three looks, at least two of which see the old mark */
        CHECK_INT(atomic_load(&l.done), 0);
        t_sleep_ms(20);
    }
    proxy_pass(p);
    CHECK_EVENTUALLY(is_present(s, hf_lock_owner(m)), 1500);
    /* The owner is back (A3). */
    CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:absent") == 0, 2000);
    t_sleep_ms(2000);
    CHECK_INT(atomic_load(&l.done), 0);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_INT(atomic_load(&e.lost_ns), 0);
    CHECK(hf_lock_fence(m) == f);
    unlock_now(m);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c1);
    hf_client_free(c2);
}

#define HOLDER "00000000000000000000000000000001.1"
#define WAITER "00000000000000000000000000000002.1:0:1000::"

static const char *look(struct server *s, const char *absence, int seen)
{
    return server_ask(s, "EVAL %s 6 K p:fence {K}:q R {K}:absent {K}:own %s 1 %s %d",
                      lua_text[LUA_look], WAITER, absence, seen);
}

/* The first line of an answer is what happened, the second when to look again. */
static long long line(const char *text, int n)
{
    while (n--)
        text = strchr(text, '\n') + 1;
    return atoll(text);
}

/* The script alone: when is an absence long enough? The waiter is dead, too, so that a takeover
 * shows as a free lock. */
TEST(A3_A6_absence_must_last_by_the_mark_and_by_the_lookers_own_clock)
{
    struct server *s = server_start(NULL);
    server_ask(s, "EVAL %s 2 p:fence R ch", lua_text[LUA_hello]);
    long long fence = server_int(s, "INCR p:fence");
    char value[100], absence[200], reign[200], mark[500];
    snprintf(value, sizeof value, HOLDER ":%lld:1000", fence);
char name[120];
    unsigned long long floor;
    CHECK_INT(sscanf(server_ask(s, "GET R"), "%119s %llu", name, &floor), 2);
    snprintf(reign, sizeof reign, "%s:%llu", name, floor);
    long long now = atoll(server_ask(s, "TIME")) * 1000;

    /* Never seen before: the mark is made now, the looker's clock starts at 0 whatever it
     * claims. */
    server_ask(s, "SET K %s PX 60000", value);
    server_ask(s, "ZADD {K}:q 1 %s", WAITER);
    const char *got = look(s, "lies", 99999);
    CHECK_INT(line(got, 0), 2);
    CHECK_RANGE(line(got, 1), 1000, 1001);
    CHECK_RANGE(server_int(s, "PTTL {K}:absent"), 1, 2000); /* the mark ends by itself */
    CHECK_CONTAINS(server_ask(s, "HGET {K}:absent %s", value), reign);

    /* An old mark alone, or an old looker alone, is not enough; both together are. */
    snprintf(mark, sizeof mark, "absent %lld %s", now - 60000, reign);
    snprintf(absence, sizeof absence, "%lld %s", now - 60000, value);
    server_ask(s, "HSET {K}:absent %s %s", value, mark);
    CHECK_INT(line(look(s, "", 0), 0), 2);
    CHECK_INT(line(look(s, absence, 300), 0), 2);
    CHECK_RANGE(line(look(s, absence, 300), 1), 699, 702);
    CHECK_INT(line(look(s, "1 something else", 5000), 0), 2);
    CHECK_STR(server_ask(s, "GET K"), value);
    look(s, absence, 1000);
    CHECK_STR(server_ask(s, "GET K"), NULL);
    CHECK_INT(server_int(s, "EXISTS {K}:absent"), 0);

    /* The mark of another token, of another reign, or of no sense at all, is void. */
    const struct { const char *value, *reign; } voids[] = {
        { "00000000000000000000000000000009.1:5:1000", reign }, { value, "another.reign" },
        { value, keep_text("%s:%llu", name, floor - 1) }, /* the slot has been away since */
        { value, "" }, { "", reign }, { "", "" },
    };
    for (size_t i = 0; i < sizeof voids / sizeof *voids; i++) {
        server_ask(s, "SET K %s PX 60000", value);
        server_ask(s, "ZADD {K}:q 1 %s", WAITER);
        snprintf(mark, sizeof mark, "absent %lld %s", now - 60000, voids[i].reign);
        server_ask(s, "DEL {K}:absent");
        server_ask(s, "HSET {K}:absent %s %s", voids[i].value, mark);
        got = look(s, absence, 5000);
        CHECK_INT(line(got, 0), 2);
        CHECK_STR(server_ask(s, "GET K"), value);
    }
    server_ask(s, "DEL {K}:absent");
    server_ask(s, "LPUSH {K}:absent x"); /* hostile: nobody is taken for dead by it */
    look(s, absence, 5000);
    CHECK_STR(server_ask(s, "GET K"), value);
    server_ask(s, "DEL {K}:absent");

    /* Grace 0, a foreign value, a caller's own id: never absent. */
    const char *const never[] = { HOLDER ":1900000000000000:0", "foreign", "me", "x:1:1000",
                                  "00000000000000000000000000000001.1:5:1000:1" };
    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        server_ask(s, "SET K %s PX 60000", never[i]);
        snprintf(mark, sizeof mark, "absent %lld %s", now - 60000, reign);
        server_ask(s, "HSET {K}:absent %s %s", never[i], mark);
        snprintf(absence, sizeof absence, "%lld %s", now - 60000, never[i]);
        CHECK_INT(line(look(s, absence, 5000), 0), 1);
        CHECK_STR(server_ask(s, "GET K"), never[i]);
        server_ask(s, "DEL {K}:absent");
    }

    /* Granted before this reign began, and not seen in it: no absence counts. */
    snprintf(value, sizeof value, HOLDER ":%lld:1000",
             line(strchr(server_ask(s, "GET R"), ' '), 0) - 1);
    server_ask(s, "SET K %s PX 60000", value);
    CHECK_INT(line(look(s, "", 0), 0), 1);
    server_ask(s, "SET R %s", "another.reign 5"); /* a life that nobody has greeted yet */
    CHECK_INT(line(look(s, "", 0), 0), 1);
    CHECK_STR(server_ask(s, "GET K"), value);
}

/* Whatever runs for the owner deletes the mark. */
TEST(A3_renewal_extension_and_verification_delete_the_mark)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = graced(c, "a", 4000, 2000);
    lock_now(m);
    server_ask(s, "SET {lock:a}:absent x PX 60000");
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 0);
    server_ask(s, "SET {lock:a}:absent x PX 60000");
    CHECK_HF(hf_lock_extend(m, 4000, &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 0);
    server_ask(s, "SET {lock:a}:absent x PX 60000");
    CHECK_EVENTUALLY(server_int(s, "EXISTS {lock:a}:absent") == 0, 2000); /* the renewal */
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- grace 0 ---- */

struct leavers {
    struct server *s;
    struct { atomic_int holding; } *mem;
};

static void takes_for_the_ttl_alone(int index, void *arg)
{
    struct leavers *lv = arg;
    hf_client *c = client_at(server_url(lv->s), 20000);
    char name[16];
    name_of(name, index);
    hf_lock_opts o = { .ttl_ms = 6000, .grace_ms = 1000 };
    if (index == 0)
        o.grace_ms = HF_NO_TAKEOVER;
    if (index == 1)
        o.owner = hf_str("me");
    hf_lock *m = lock_with(c, name, o);
    if (index == 2)
        server_ask(lv->s, "SET lock:%s foreign PX 6000", name);
    else
        lock_now(m);
    if (index == 3)
        CHECK_HF(hf_lock_detach(m, 6000, &err), HF_OK);
    atomic_fetch_add(&lv->mem->holding, 1);
    t_sleep_ms(60000);
}

TEST(P3_grace_0_owner_ids_foreign_values_and_locks_left_behind_keep_their_ttl)
{
    enum { N = 4 };
    static const char *const kind[N] = { "no takeover", "owner id", "foreign", "left behind" };
    struct leavers lv = { .s = server_start(NULL) };
    lv.mem = shared_memory(sizeof *lv.mem);
    struct workers *w = workers_start(N, takes_for_the_ttl_alone, &lv);
    CHECK_EVENTUALLY(atomic_load(&lv.mem->holding) == N, 20000);
    hf_client *c = client_at(server_url(lv.s), 0);
    struct locker l[N];
    long long left[N];
    for (int i = 0; i < N; i++) {
        char name[16];
        name_of(name, i);
        l[i] = (struct locker){ .m = graced(c, name, 30000, 3000), .wait_ms = 20000 };
        locker_start(&l[i]);
        CHECK_QUEUE(lv.s, name, 1);
    }
    for (int i = 0; i < N; i++)
        workers_signal(w, i, SIGKILL);
    int64_t start = t_now_ns();
    for (int i = 0; i < N; i++) {
        char name[16];
        name_of(name, i);
        left[i] = server_int(lv.s, "PTTL lock:%s", name);
        CHECK(left[i] > 2000);
    }
    for (int i = 0; i < N; i++) {
        locker_join(&l[i], HF_OK);
        int64_t after = (l[i].done_ns - start) / 1000000;
        t_note("%s: %lld ms were left, taken after %lld", kind[i], left[i], (long long)after);
        CHECK_TOOK(after, left[i] - 10, left[i] + 1500);
        unlock_now(l[i].m);
        hf_lock_free(l[i].m);
    }
    workers_join(w, 1000);
    hf_client_free(c);
    check_only_ttls(lv.s);
}

/* A holder of the kind that others may take over says so in its value; the rest say 0. */
TEST(P3_the_value_carries_the_holders_own_grace)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    const struct {
        int64_t     ttl_ms, grace_ms;
        int         tcp, no_renew;
        const char *ends;
    } t[] = {
        { 30000, 1234, 0, 0, ":1234" }, { 30000, 0, 0, 0, ":3000" }, { 30000, 0, 1, 0, ":5000" },
        { 4000, 0, 0, 0, ":2000" }, { 4000, 3000, 0, 0, ":2000" },
        { 30000, HF_NO_TAKEOVER, 0, 0, ":0" }, { 30000, 1000, 0, 1, ":0" }, { 300, 0, 0, 0, ":0" },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        hf_client *c = client_at(t[i].tcp ? server_tcp_url(s) : server_url(s), 0);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = t[i].ttl_ms,
                                                          .grace_ms = t[i].grace_ms,
                                                          .no_renew = t[i].no_renew });
        for (int waited = 0; waited < 2; waited++) {
            CHECK_HF(hf_lock_acquire(m, waited ? 1000 : 0, NULL, &err), HF_OK);
            const char *value = server_ask(s, "GET lock:a");
            CHECK_STR(strrchr(value, ':'), t[i].ends);
            unlock_now(m);
        }
        hf_lock_free(m);
        hf_client_free(c);
    }
}

/* ---- a right that is taken away and given back ---- */

static hf_client *as_holdfast(struct server *s, struct logbook *log)
{
    return client_with(keep_text("unix://holdfast:pw@%s", server_socket(s)),
                       (hf_client_opts){ .log = logbook_add, .log_arg = log });
}

/* While right is missing, who waits polls; when it is back, it stands in the queue by itself, and
 * takes over from a holder that dies. */
static void loses_and_regains(const char *without, const char *with, const char *warning,
                              const char *info)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    acl_user(s, "acl");
    struct workers *ws = holder_start(server_url(s), "a",
                                      (hf_lock_opts){ .ttl_ms = 120000, .grace_ms = 2000 });
    hf_client *c = as_holdfast(s, &log);
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast %s", without), "OK");
    struct locker l = { .m = graced(c, "a", 60000, 2000), .wait_ms = 50000 };
    hf_lock *b = graced(c, "b", 60000, 2000);
    lock_now(b);
    CHECK(strcmp(strrchr(server_ask(s, "GET lock:b"), ':'), ":0") == 0); /* with the ttl alone */
    unlock_now(b);
    CHECK_EVENTUALLY(logbook_has(&log, warning), 5000); /* by the thread that was refused */
    locker_start(&l);
    for (int64_t begun = t_now_ms(); t_now_ms() - begun < 1500; t_sleep_ms(50))
        CHECK_INT(queue_of(s, "a"), 0);
    int64_t back = t_now_ms();
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast %s", with), "OK");
    CHECK_EVENTUALLY(queue_of(s, "a") == 1, 15000);
    t_note("in the queue %lld ms after the right was back", (long long)(t_now_ms() - back));
    CHECK_EVENTUALLY(logbook_has(&log, info), 5000);
    char *first = strstr(log.text, warning);
    CHECK(!strstr(first + 1, warning));
    int64_t killed = t_now_ms();
    workers_signal(ws, 0, SIGKILL);
    locker_join(&l, HF_OK);
    CHECK_TOOK(t_now_ms() - killed, 1900, 10000);
    CHECK(strcmp(strrchr(server_ask(s, "GET lock:a"), ':'), ":2000") == 0);
    unlock_now(l.m);
    workers_join(ws, 1000);
    hf_lock_free(l.m);
    hf_lock_free(b);
    hf_client_free(c);
}

TEST(V1_a_channel_that_is_forbidden_and_allowed_again_is_subscribed_to)
{
    loses_and_regains("resetchannels", "&lock:holdfast:s:*", "no subscription",
                      "the subscription stands again");
}

TEST(V1_subscribing_that_is_forbidden_and_allowed_again_is_done)
{
    loses_and_regains("-subscribe", "+subscribe", "no subscription",
                      "the subscription stands again");
}

TEST(V1_counting_subscribers_that_is_forbidden_and_allowed_again_is_done)
{
    loses_and_regains("-pubsub", "+pubsub|numsub", "may not run PUBSUB NUMSUB",
                      "may run PUBSUB NUMSUB again");
}

/* Without it nobody would see in time that a holder is cut off. */
TEST(V1_a_ping_that_is_forbidden_and_allowed_again_is_sent)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    acl_user(s, "acl");
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast -ping"), "OK");
    hf_client *c = as_holdfast(s, &log);
    hf_lock *m = graced(c, "a", 6000, 2000);
    CHECK_HF(hf_lock_acquire(m, 5000, NULL, &err), HF_OK);
    CHECK_EVENTUALLY(logbook_has(&log, "no subscription"), 10000);
    (void)hf_lock_release(m, &err);
    lock_now(m);
    CHECK(strcmp(strrchr(server_ask(s, "GET lock:a"), ':'), ":0") == 0);
    unlock_now(m);
    CHECK_STR(server_ask(s, "ACL SETUSER holdfast +ping"), "OK");
    CHECK_EVENTUALLY(logbook_has(&log, "the subscription stands again"), 15000);
    lock_now(m);
    CHECK(strcmp(strrchr(server_ask(s, "GET lock:a"), ':'), ":2000") == 0);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
