/* SPDX-License-Identifier: MIT
 * multi.c - X1 to X5 of src/lock/multi.c: several locks at once.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_lock *numbered(hf_client *c, int i, hf_lock_opts o)
{
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    if (!o.ttl_ms)
        o.ttl_ms = 30000;
    return lock_with(c, name, o);
}

static void open_some(hf_client *c, hf_lock **m, int n, hf_lock_opts o)
{
    for (int i = 0; i < n; i++)
        m[i] = numbered(c, i, o);
}

static void free_some(hf_lock **m, int n)
{
    for (int i = 0; i < n; i++)
        hf_lock_free(m[i]);
}

static long long held_keys(struct server *s)
{
    return server_int(s, "EXISTS lock:n0 lock:n1 lock:n2 lock:n3");
}

TEST(X1_X2_all_or_none_in_one_step)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m[4], *other = numbered(d, 2, (hf_lock_opts){ 0 });
    open_some(c, m, 4, (hf_lock_opts){ 0 });
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_OK);
    uint64_t seen = 0;
    for (int i = 0; i < 4; i++) {
        CHECK_INT(hf_lock_is_held(m[i]), 1);
        CHECK(hf_lock_fence(m[i]) > seen);
        seen = hf_lock_fence(m[i]);
        CHECK_HF(hf_lock_verify(m[i], &err), HF_OK);
    }
    CHECK_HF(hf_lock_try(other, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_multi_release(m, 4, &err), HF_OK);
    CHECK(lock_now(other) > seen);

    server_monitor_start(s);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "n2");
    CHECK_INT(held_keys(s), 1); /* nothing but the other's */
    CHECK_INT(server_monitor_count(s, lua_sha[LUA_acquire_all]), 1); /* and in one request */
    for (int i = 0; i < 4; i++)
        CHECK_INT(hf_lock_is_held(m[i]), 0);
    unlock_now(other);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_OK);
    free_some(m, 4);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* Who died waiting for one of them delays no try. */
TEST(X2_a_free_lock_with_dead_waiters_is_free)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m[4];
    struct locker l = { .m = numbered(d, 2, (hf_lock_opts){ .grace_ms = HF_NO_TAKEOVER }),
                        .wait_ms = 20000 };
    open_some(c, m, 4, (hf_lock_opts){ 0 });
    for (int i = 0; i < 40; i++)
        server_ask(s, "ZADD {lock:n1}:q %d %032x.1:0:1000:00ff:", i + 1, i);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_OK);
    CHECK_INT(queue_of(s, "n1"), 0);
    locker_start(&l);
    CHECK_QUEUE(s, "n2", 1);
    server_ask(s, "DEL lock:n2"); /* free for a moment, but a living one waits: it is that one's */
    for (int i = 0; i < 4; i++)
        (void)hf_lock_release(m[i], NULL);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_EBUSY);
    locker_join(&l, HF_OK);
    free_some(m, 4);
    hf_lock_free(l.m);
    hf_client_free(c);
    hf_client_free(d);
    check_only_ttls(s);
}

TEST(X1_bad_handles_change_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = numbered(c, 1, (hf_lock_opts){ 0 }),
             *twin = numbered(c, 1, (hf_lock_opts){ 0 }),
             *b = numbered(c, 2, (hf_lock_opts){ 0 }),
             *foreign = numbered(d, 3, (hf_lock_opts){ 0 });
    hf_lock *twice[] = { a, b, twin }, *mixed[] = { a, foreign }, *pair[] = { a, b };
    CHECK_HF(hf_multi_acquire(twice, 3, 0, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "twice");
    CHECK_HF(hf_multi_acquire(mixed, 2, 0, &err), HF_EINVAL);
    CHECK_HF(hf_multi_acquire(pair, 0, 0, &err), HF_EINVAL);
    CHECK_HF(hf_multi_acquire(pair, 2, -7, &err), HF_EINVAL);
    lock_now(b);
    CHECK_HF(hf_multi_acquire(pair, 2, 0, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "already");
    CHECK_INT(hf_lock_is_held(b), 1);
    CHECK_INT(held_keys(s), 1);
    server_ask(s, "LPUSH lock:n1 x");
    unlock_now(b);
    CHECK_HF(hf_multi_acquire(pair, 2, 2000, &err), HF_ETYPE);
    CHECK_INT(server_int(s, "EXISTS lock:n2"), 0);
    hf_lock_free(a);
    hf_lock_free(twin);
    hf_lock_free(b);
    hf_lock_free(foreign);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(X1_alone_shared_and_permits_mixed)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m[3] = { numbered(c, 0, (hf_lock_opts){ 0 }),
                       numbered(c, 1, (hf_lock_opts){ .shared = 1 }),
                       numbered(c, 2, (hf_lock_opts){ .slots = 2 }) };
    hf_lock *o[3] = { numbered(d, 3, (hf_lock_opts){ 0 }),
                       numbered(d, 1, (hf_lock_opts){ .shared = 1 }),
                       numbered(d, 2, (hf_lock_opts){ .slots = 2 }) };
    CHECK_HF(hf_multi_acquire(m, 3, 0, &err), HF_OK);
    CHECK_HF(hf_multi_acquire(o, 3, 0, &err), HF_OK); /* they share what can be shared */
    hf_lock *third = numbered(d, 2, (hf_lock_opts){ .slots = 2 });
    CHECK_HF(hf_lock_try(third, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_multi_release(o, 3, &err), HF_OK);
    CHECK_HF(hf_lock_try(third, NULL, &err), HF_OK);
    CHECK_HF(hf_multi_acquire(o, 3, 0, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "EXISTS lock:n3"), 0);
    free_some(m, 3);
    free_some(o, 3);
    hf_lock_free(third);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

struct all {
    hf_lock   *m[4];
    int        n;
    int64_t    wait_ms;
    hf_err     result;
    hf_error   error;
    atomic_int done;
    pthread_t  thread;
};

static void *all_main(void *arg)
{
    struct all *a = arg;
    a->result = hf_multi_acquire(a->m, (size_t)a->n, a->wait_ms, &a->error);
    atomic_store(&a->done, 1);
    return NULL;
}

static void all_start(struct all *a)
{
    atomic_store(&a->done, 0);
    CHECK_INT(pthread_create(&a->thread, NULL, all_main, a), 0);
}

static void all_join(struct all *a, hf_err want)
{
    CHECK_INT(pthread_join(a->thread, NULL), 0);
    if (a->result != want)
        FAIL("got %s (%s), not %s", hf_err_name(a->result), a->error.message, hf_err_name(want));
}

TEST(X3_who_waits_for_one_holds_none_of_the_others)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *first = numbered(d, 1, (hf_lock_opts){ 0 }),
             *second = numbered(d, 3, (hf_lock_opts){ 0 });
    struct all a = { .n = 4, .wait_ms = 20000 };
    open_some(c, a.m, 4, (hf_lock_opts){ 0 });
    lock_now(first);
    lock_now(second);
    all_start(&a);
    CHECK_QUEUE(s, "n1", 1);
    CHECK_INT(held_keys(s), 2);
    unlock_now(first); /* its turn there, but the other one is still held */
    CHECK_QUEUE(s, "n3", 1);
    CHECK_EVENTUALLY(held_keys(s) == 1, 5000);
    CHECK_INT(atomic_load(&a.done), 0);
    unlock_now(second);
    all_join(&a, HF_OK);
    CHECK_INT(held_keys(s), 4);
    CHECK_HF(hf_multi_release(a.m, 4, &err), HF_OK);
    free_some(a.m, 4);
    hf_lock_free(first);
    hf_lock_free(second);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* Whenever its turn at one comes, the other is held: in the end it keeps what it has. */
TEST(X4_who_was_overtaken_often_takes_them_one_after_the_other)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *busy[2];
    struct all a = { .n = 2, .wait_ms = 20000 };
    open_some(c, a.m, 2, (hf_lock_opts){ 0 });
    open_some(d, busy, 2, (hf_lock_opts){ 0 });
    lock_now(busy[0]);
    lock_now(busy[1]);
    all_start(&a);
    for (int round = 0; round < 4; round++) {
        const char *here = round % 2 ? "n1" : "n0", *there = round % 2 ? "n0" : "n1";
        CHECK_QUEUE(s, here, 1);
        CHECK_INT(queue_of(s, there), 0);
        unlock_now(busy[round % 2]);
        if (round < 3)
            CHECK_QUEUE(s, there, 1); /* tried both, let go, waits for the other */
        lock_now(busy[round % 2]); /* at once, or after who takes them in order now */
        if (round == 3)
            break;
    }
    CHECK_QUEUE(s, "n0", 1);
    unlock_now(busy[0]);
    CHECK_QUEUE(s, "n1", 1);
    CHECK_INT(hf_lock_is_held(a.m[0]), 1); /* and holds it while it waits */
    CHECK_HF(hf_lock_try(busy[0], NULL, &err), HF_EBUSY);
    unlock_now(busy[1]);
    all_join(&a, HF_OK);
    free_some(a.m, 2);
    free_some(busy, 2);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(X1_a_deadline_and_a_cancel_leave_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *busy = numbered(d, 2, (hf_lock_opts){ 0 });
    struct all a = { .n = 4, .wait_ms = HF_WAIT_FOREVER };
    open_some(c, a.m, 4, (hf_lock_opts){ 0 });
    lock_now(busy);
    CHECK_HF(hf_multi_acquire(a.m, 4, 900, &err), HF_ETIMEDOUT);
    CHECK_CONTAINS(err.message, "n2");
    CHECK_INT(held_keys(s), 1);
    CHECK_INT(queue_of(s, "n2"), 0);
    all_start(&a);
    CHECK_QUEUE(s, "n2", 1);
    hf_multi_cancel(a.m, 4);
    all_join(&a, HF_ECANCELED);
    CHECK_INT(queue_of(s, "n2"), 0);
    unlock_now(busy);
    CHECK_HF(hf_multi_acquire(a.m, 4, 0, &err), HF_OK); /* an old cancel does not stay */
    free_some(a.m, 4);
    hf_lock_free(busy);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(X1_a_cancel_before_the_call_ends_that_one_and_no_other)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[3];
    open_some(c, m, 3, (hf_lock_opts){ 0 });
    hf_multi_cancel(m, 3);
    CHECK_HF(hf_multi_acquire(m, 3, 0, &err), HF_ECANCELED);
    CHECK_HF(hf_multi_acquire(m, 3, 0, &err), HF_OK);
    free_some(m, 3);
    hf_client_free(c);
}

/* All or none, also when the numbers end in between. */
TEST(X1_without_a_number_for_each_nothing_is_taken)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[2];
    open_some(c, m, 2, (hf_lock_opts){ 0 });
    CHECK_HF(hf_multi_acquire(m, 2, 0, &err), HF_OK); /* the reign has begun */
    CHECK_HF(hf_multi_release(m, 2, &err), HF_OK);
    server_ask(s, "SET " FENCE_KEY " 9007199254739999");
    CHECK_HF(hf_multi_acquire(m, 2, 0, &err), HF_ECOUNTER);
    CHECK_INT(held_keys(s), 0);
    free_some(m, 2);
    hf_client_free(c);
}

TEST(X5_a_lost_reply_gives_the_same_grants)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *d = client_at(server_url(s), 0);
    hf_lock *m[4], *other = numbered(d, 3, (hf_lock_opts){ 0 });
    open_some(c, m, 4, (hf_lock_opts){ .grace_ms = HF_NO_TAKEOVER });
    m[1] = (hf_lock_free(m[1]), numbered(c, 1, (hf_lock_opts){ .slots = 3, .permits = 2,
                                                                 .grace_ms = HF_NO_TAKEOVER }));
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_OK);
    CHECK_HF(hf_multi_release(m, 4, &err), HF_OK);
    for (size_t k = 0; k < 60; k += 7) {
        long cuts = proxy_cuts(p);
        long long before = atoll(server_ask(s, "GET " FENCE_KEY));
        proxy_when(p, lua_sha[LUA_acquire_all]);
        proxy_cut_after(p, k);
        CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_OK);
        CHECK_INT(proxy_cuts(p), cuts + 1);
        CHECK_INT(atoll(server_ask(s, "GET " FENCE_KEY)), before + 4);
        CHECK_CONTAINS(server_ask(s, "GET lock:n1"), "shared.3.2:");
        CHECK_HF(hf_lock_try(other, NULL, &err), HF_EBUSY);
        CHECK_HF(hf_multi_release(m, 4, &err), HF_OK);
        CHECK_INT(held_keys(s), 0);
    }
    /* Never answered: given up, and nothing stays. */
    proxy_drop_replies(p);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_EUNSURE);
    CHECK(proxy_dropped(p) > 0);
    proxy_pass(p);
    for (int i = 0; i < 4; i++)
        CHECK_INT(hf_lock_is_held(m[i]), 0);
    CHECK_EVENTUALLY(held_keys(s) == 0, 20000);
    free_some(m, 4);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
    check_only_ttls(s);
}

/* ---- many processes ---- */

#define NAMES   6
#define WORKERS 32

struct crowd {
    struct server  *s;
    struct history *h;
    int             rounds, kills;
    struct { atomic_int done[WORKERS]; } *mem;
};

/* Each takes two to four of six names, in any order. */
static void some_of_them(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    for (int r = 0; r < cr->rounds; r++) {
        int first = (int)t_random(NAMES), n = 2 + (int)t_random(3),
            step = t_random(2) ? 1 : NAMES - 1;
        hf_lock *m[4];
        struct grant *g[4] = { 0 };
        int64_t invoke = t_now_ns();
        for (int i = 0; i < n; i++)
            m[i] = numbered(c, (first + i * step) % NAMES, (hf_lock_opts){ .grace_ms = 3000 });
        CHECK_HF(hf_multi_acquire(m, (size_t)n, 60000, &err), HF_OK);
        for (int i = 0; i < n; i++)
            g[i] = history_grant(cr->h, (uint32_t)((first + i * step) % NAMES), (uint32_t)index,
                                 hf_lock_fence(m[i]), invoke, BELIEVED_UNTIL(m[i]));
        if (t_random(4) == 0)
            t_sleep_ms(1);
        for (int i = 0; i < n; i++)
            history_release(g[i]);
        CHECK_HF(hf_multi_release(m, (size_t)n, &err), HF_OK);
        free_some(m, n);
        atomic_fetch_add(&cr->mem->done[index], 1);
    }
    hf_client_free(c);
}

TEST_TIMEOUT(X1_X4_32_processes_that_take_overlapping_names_never_overlap_nor_stall, 180)
{
    struct crowd cr = { .s = server_start(NULL), .rounds = getenv("HF_SOAK") ? 200 : 12 };
    struct history_report r;
    cr.h = history_new((size_t)(4 * WORKERS * cr.rounds));
    cr.mem = shared_memory(sizeof *cr.mem);
    workers_run(WORKERS, some_of_them, &cr, 150000);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    t_note("%zu grants", r.grants);
    CHECK(r.grants >= (size_t)(2 * WORKERS * cr.rounds));
    CHECK_EVENTUALLY(!strstr(server_keys(cr.s), ":q"), 5000);
    check_only_ttls(cr.s);
}

TEST_TIMEOUT(X1_X4_kill_9_of_holders_and_waiters_stalls_nobody, 180)
{
    enum { N = 12 };
    struct crowd cr = { .s = server_start(NULL), .rounds = 8 };
    struct history_report r;
    cr.h = history_new(4 * N * 8 + 16);
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(N, some_of_them, &cr);
    for (int i = 0; i < N / 2; i++) { /* each after it has done something */
        CHECK_EVENTUALLY(atomic_load(&cr.mem->done[i]) >= 1, 60000);
        workers_signal(w, i, SIGKILL);
        cr.kills++;
    }
    workers_join(w, 120000);
    CHECK_INT(cr.kills, N / 2);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_lock *m[NAMES];
    open_some(c, m, NAMES, (hf_lock_opts){ 0 });
    CHECK_HF(hf_multi_acquire(m, NAMES, 20000, &err), HF_OK);
    free_some(m, NAMES);
    hf_client_free(c);
    check_only_ttls(cr.s);
}

/* A simple model: who holds each name. Every answer is known beforehand. */
TEST(X1_thousands_of_tries_answer_as_the_model_does)
{
    enum { CLIENTS = 3 };
    struct server *s = server_start(NULL);
    hf_client *c[CLIENTS];
    hf_lock *m[CLIENTS][NAMES];
    int holder[NAMES]; /* -1: free */
    uint64_t last[NAMES] = { 0 };
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = client_at(server_url(s), 0);
        open_some(c[i], m[i], NAMES, (hf_lock_opts){ .grace_ms = HF_NO_TAKEOVER });
    }
    for (int i = 0; i < NAMES; i++)
        holder[i] = -1;
    int granted = 0, refused = 0;
    for (int step = 0; step < 3000; step++) {
        int who = (int)t_random(CLIENTS), n = 0, busy = 0, mine = 0, pick[NAMES];
        hf_lock *set[NAMES];
        for (int i = 0; i < NAMES; i++) {
            if (t_random(3) != 0)
                continue;
            pick[n] = i;
            set[n++] = m[who][i];
            busy |= holder[i] >= 0 && holder[i] != who;
            mine |= holder[i] == who;
        }
        if (n == 0)
            continue;
        hf_err want = mine ? HF_EINVAL : busy ? HF_EBUSY : HF_OK;
        CHECK_HF(hf_multi_acquire(set, (size_t)n, 0, &err), want);
        for (int i = 0; i < n && want == HF_OK; i++) {
            holder[pick[i]] = who;
            CHECK(hf_lock_fence(set[i]) > last[pick[i]]);
            last[pick[i]] = hf_lock_fence(set[i]);
        }
        granted += want == HF_OK;
        refused += want == HF_EBUSY;
        int release = (int)t_random(NAMES); /* somebody's whole lot goes now and then */
        if (holder[release] >= 0) {
            int of = holder[release];
            for (int i = 0; i < NAMES; i++) {
                if (holder[i] != of)
                    continue;
                unlock_now(m[of][i]);
                holder[i] = -1;
            }
        }
    }
    t_note("%d granted, %d refused", granted, refused);
    CHECK(granted > 100 && refused > 100);
    for (int i = 0; i < CLIENTS; i++) {
        free_some(m[i], NAMES);
        hf_client_free(c[i]);
    }
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- a server that stands still -------------------------------------------------------------- */

TEST(many_that_are_given_up_together_cost_the_time_of_one)
{
    enum { MANY = 40 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 300);
    hf_lock *m[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 20000);
    }
    server_freeze(s);
    int64_t begun = t_now_ms();
    hf_err e = hf_multi_acquire(m, MANY, 0, &err);
    CHECK(e == HF_EUNSURE || e == HF_ETIMEDOUT);
    CHECK_TOOK(t_now_ms() - begun, 0, 8000); /* half a second for each would be twenty */
    server_thaw(s);
    CHECK_EVENTUALLY(hf_multi_acquire(m, MANY, 0, &err) == HF_OK, 20000); /* and all are undone */
    CHECK_HF(hf_multi_release(m, MANY, &err), HF_OK);
    for (int i = 0; i < MANY; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}
