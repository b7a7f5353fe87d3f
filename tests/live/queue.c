/* SPDX-License-Identifier: MIT
 * queue.c - P6, P7: waiters are granted in the order in which they came, one wake-up each, whatever
 * dies, stops, breaks or gives up meanwhile.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

#define PROCESSES 64

static int soak(int normal, int long_one)
{
    return getenv("HF_SOAK") ? long_one : normal;
}

/* ---- order ---- */

struct crowd {
    struct server  *s;
    struct history *h;
    int             rounds;
    struct bell     bell[PROCESSES];
    struct {
        atomic_int got;               /* grants of this round */
        atomic_int order[PROCESSES];  /* who, in order */
        atomic_int ready;
        atomic_long count[PROCESSES]; /* grants of each */
        atomic_int stop;
        atomic_llong last_ns;
        char session[PROCESSES][33];
    } *mem;
};

static void in_turn(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *m = lock_of(c, "a", 30000);
    uint64_t last = 0;
    atomic_fetch_add(&cr->mem->ready, 1);
    for (int i = 0; i < cr->rounds; i++) {
        uint64_t fence;
        bell_wait(cr->bell[index]);
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        struct grant *g = history_grant(cr->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        CHECK(fence > last);
        last = fence;
        atomic_store(&cr->mem->order[atomic_fetch_add(&cr->mem->got, 1)], index);
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static void wait_for_queue(struct server *s, int n)
{
    int64_t until = t_now_ms() + 10000;
    while (queue_of(s, "a") != n) {
        if (t_now_ms() > until)
            FAIL("%lld in the queue, not %d", queue_of(s, "a"), n);
        usleep(300);
    }
}

TEST_TIMEOUT(P6_64_processes_are_granted_in_the_order_in_which_they_queued, 300)
{
    struct crowd cr = { .s = server_start(NULL), .rounds = soak(16, 160) };
    struct history_report r;
    int seat[PROCESSES], overtaken = 0;
    cr.h = history_new((size_t)(PROCESSES * cr.rounds));
    cr.mem = shared_memory(sizeof *cr.mem);
    for (int i = 0; i < PROCESSES; i++) {
        cr.bell[i] = bell_new();
        seat[i] = i;
    }
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(PROCESSES, in_turn, &cr);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == PROCESSES, 30000);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    int64_t draining = 0;
    for (int round = 0; round < cr.rounds; round++) {
        lock_now(m);
        atomic_store(&cr.mem->got, 0);
        for (int i = PROCESSES - 1; i > 0; i--) { /* another order each time */
            int k = (int)t_random((uint64_t)i + 1), swap = seat[i];
            seat[i] = seat[k];
            seat[k] = swap;
        }
        for (int i = 0; i < PROCESSES; i++) {
            bell_ring(cr.bell[seat[i]]);
            wait_for_queue(cr.s, i + 1);
        }
        int64_t start = t_now_ms();
        unlock_now(m);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->got) == PROCESSES, 20000);
        draining += t_now_ms() - start;
        for (int i = 0; i < PROCESSES; i++)
            overtaken += atomic_load(&cr.mem->order[i]) != seat[i];
    }
    workers_join(w, 20000);
    t_note("%d grants, %d out of turn, %.2f ms each", PROCESSES * cr.rounds, overtaken,
           (double)draining / (PROCESSES * cr.rounds));
    CHECK_INT(overtaken, 0);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    CHECK_INT((long long)r.grants, PROCESSES * cr.rounds);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:q {lock:a}:t"), 0);
    check_only_ttls(cr.s);
}

static void grabs(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *m = lock_of(c, "a", 30000);
    atomic_fetch_add(&cr->mem->ready, 1);
    bell_wait(cr->bell[0]);
    while (!atomic_load(&cr->mem->stop)) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        struct grant *g = history_grant(cr->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        atomic_fetch_add(&cr->mem->count[index], 1);
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static long least_of(struct crowd *cr)
{
    long least = 1000000;
    for (int i = 0; i < PROCESSES; i++) {
        long n = atomic_load(&cr->mem->count[i]);
        least = n < least ? n : least;
    }
    return least;
}

TEST_TIMEOUT(P6_64_processes_that_lock_as_fast_as_they_can_get_the_same_share, 120)
{
    struct crowd cr = { .s = server_start(NULL), .h = history_new(400000), .bell = { bell_new() } };
    struct history_report r;
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(PROCESSES, grabs, &cr);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == PROCESSES, 30000);
    for (int i = 0; i < PROCESSES; i++)
        bell_ring(cr.bell[0]);
    t_sleep_ms(soak(3000, 60000));
    CHECK_EVENTUALLY(least_of(&cr) >= 16, 60000); /* a busy machine; who started late catches up */
    atomic_store(&cr.mem->stop, 1);
    workers_join(w, 20000);
    long least = least_of(&cr), most = 0, all = 0;
    for (int i = 0; i < PROCESSES; i++) {
        long n = atomic_load(&cr.mem->count[i]);
        most = n > most ? n : most;
        all += n;
    }
    t_note("%ld grants; most %ld, least %ld by one process", all, most, least);
    CHECK(all >= 1000);
    CHECK(least > 0 && most <= 2 * least + 5);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(cr.s);
}

TEST(P6_a_newcomer_does_not_overtake_when_the_key_is_free_for_a_moment)
{
    enum { N = 3, ROUNDS = 12 };
    struct server *s = server_start(NULL);
    hf_client *c[N], *late = client_at(server_url(s), 0);
    struct locker l[N];
    hf_lock *newcomer = lock_of(late, "a", 30000);
    for (int i = 0; i < N; i++) {
        c[i] = client_at(server_url(s), 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "a", 30000), .wait_ms = 20000 };
    }
    for (int round = 0; round < ROUNDS; round++) {
        server_ask(s, "SET lock:a foreign PX 60000");
        for (int i = 0; i < N; i++) {
            locker_start(&l[i]);
            CHECK_QUEUE(s, "a", i + 1);
        }
        /* The fault and the temptation in one step: nobody can look between them. */
        server_ask(s, "DEL lock:a");
        CHECK_HF(hf_lock_try(newcomer, NULL, &err), HF_EBUSY);
        uint64_t last = 0;
        for (int i = 0; i < N; i++) {
            locker_join(&l[i], HF_OK);
            CHECK(l[i].fence > last);
            last = l[i].fence;
            for (int k = i + 1; k < N; k++)
                CHECK_INT(atomic_load(&l[k].done), 0);
            CHECK_HF(hf_lock_try(newcomer, NULL, &err), HF_EBUSY);
            unlock_now(l[i].m);
        }
        CHECK_HF(hf_lock_try(newcomer, NULL, &err), HF_OK); /* when nobody waits any more */
        unlock_now(newcomer);
    }
    for (int i = 0; i < N; i++) {
        hf_lock_free(l[i].m);
        hf_client_free(c[i]);
    }
    hf_lock_free(newcomer);
    hf_client_free(late);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* D2: after a break a waiter joins again with its old ticket. */
TEST(P6_D2_a_waiter_whose_session_breaks_keeps_its_place)
{
    enum { N = 4 };
    struct server *s = server_start(NULL);
    hf_client *c[N], *holder = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l[N];
    lock_now(m);
    for (int i = 0; i < N; i++) {
        c[i] = client_at(server_url(s), 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "a", 30000), .wait_ms = 20000 };
        locker_start(&l[i]);
        CHECK_QUEUE(s, "a", i + 1);
    }
    char *before = strdup(server_ask(s, "ZRANGE {lock:a}:q 0 -1 WITHSCORES"));
    for (int k = 0; k < 5; k++) {
        CHECK_INT(kill_inboxes(s), N + 1); /* the holder waited, too: it has one */
        CHECK_EVENTUALLY(server_int(s, "EVAL %s 0", "return #redis.call('PUBSUB', 'CHANNELS')")
                             == N + 1, 5000);
        CHECK_STR(server_ask(s, "ZRANGE {lock:a}:q 0 -1 WITHSCORES"), before);
    }
    unlock_now(m);
    for (int i = 0; i < N; i++) {
        locker_join(&l[i], HF_OK);
        for (int k = i + 1; k < N; k++)
            CHECK_INT(atomic_load(&l[k].done), 0);
        unlock_now(l[i].m);
        hf_lock_free(l[i].m);
        hf_client_free(c[i]);
    }
    free(before);
    hf_lock_free(m);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* ---- kill -9 of anybody, at random ---- */

#define GRACE_MS 400
#define STALL_MS 6000 /* claim window, look, grace, and some more; by t_calm_ms() */

static void lives_until_killed(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *own = lock_of(c, "warm", 4000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = GRACE_MS });
    uint64_t fence;
    bell_wait(cr->bell[index]);
    CHECK_HF(hf_lock_acquire(own, 20000, NULL, &err), HF_OK); /* to know our session's id */
    memcpy(cr->mem->session[index], hf_lock_owner(own), 32);
    unlock_now(own);
    while (!atomic_load(&cr->mem->stop)) {
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 40000, &fence, &err), HF_OK);
        struct grant *g = history_grant(cr->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        atomic_fetch_add(&cr->mem->got, 1);
        for (int64_t until = t_now_ms() + (int64_t)t_random(20); t_now_ms() < until; t_sleep_ms(1))
            history_deadline(g, BELIEVED_UNTIL(m));
        atomic_store(&cr->mem->last_ns, t_now_ns());
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_lock_free(own);
    hf_client_free(c);
}

static int of_session(struct crowd *cr, const char *text)
{
    for (int i = 0; text && i < PROCESSES; i++)
        if (cr->mem->session[i][0] && strncmp(cr->mem->session[i], text, 32) == 0)
            return i;
    return -1;
}

TEST_TIMEOUT(P3_P6_kill_9_of_waiters_heads_holders_and_the_whole_queue_stalls_nobody, 120)
{
    enum { ALIVE = 10 };
    struct crowd cr = { .s = server_start(NULL), .h = history_new(200000) };
    struct history_report r;
    int started = 0, dead[PROCESSES] = { 0 }, kind[4] = { 0 };
    int64_t worst = 0;
    cr.mem = shared_memory(sizeof *cr.mem);
    for (int i = 0; i < PROCESSES; i++)
        cr.bell[i] = bell_new();
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(PROCESSES, lives_until_killed, &cr);
    for (; started < ALIVE; started++)
        bell_ring(cr.bell[started]);
    CHECK_EVENTUALLY(queue_of(cr.s, "a") >= ALIVE / 2, 20000);
    atomic_store(&cr.mem->last_ns, t_now_ns());
    while (started < PROCESSES) {
        int before = atomic_load(&cr.mem->got);
        int how = (int)t_random(8), victims[PROCESSES], n = 0;
        if (how == 0) { /* the whole queue */
            char *all = strdup(server_ask(cr.s, "ZRANGE {lock:a}:q 0 -1")), *save = NULL;
            for (char *k = strtok_r(all, "\n", &save); k; k = strtok_r(NULL, "\n", &save))
                victims[n++] = of_session(&cr, k);
            free(all);
            kind[0]++;
        } else if (how < 3) {
            victims[n++] = of_session(&cr, server_ask(cr.s, "ZRANGE {lock:a}:q 0 0"));
            kind[1]++;
        } else if (how < 6) {
            victims[n++] = of_session(&cr, server_ask(cr.s, "GET lock:a"));
            kind[2]++;
        } else {
            victims[n++] = (int)t_random((uint64_t)started);
            kind[3]++;
        }
        for (int i = 0; i < n; i++) {
            int v = victims[i];
            if (v < 0 || dead[v])
                continue;
            workers_signal(w, v, SIGKILL);
            dead[v] = 1;
            if (started < PROCESSES)
                bell_ring(cr.bell[started++]);
        }
        /* Whatever was killed: another one gets it before long. */
        int64_t start = t_now_ms();
        while (atomic_load(&cr.mem->got) < before + 3) {
            if (t_calm_ms(start) > STALL_MS)
                FAIL("no grant for %d ms after a kill of kind %d", STALL_MS, how);
            t_sleep_ms(2);
        }
        if (t_now_ms() - start > worst)
            worst = t_now_ms() - start;
    }
    atomic_store(&cr.mem->stop, 1);
    workers_join(w, 20000);
    int killed = 0;
    for (int i = 0; i < PROCESSES; i++)
        killed += dead[i];
    t_note("%d killed: %d times the queue, %d the head, %d the holder, %d anybody; %d grants, "
           "worst wait for the next three %lld ms", killed, kind[0], kind[1], kind[2], kind[3],
           atomic_load(&cr.mem->got), (long long)worst);
    CHECK(killed >= PROCESSES - 2 * ALIVE && kind[2] > 0);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a"), 0);
    check_only_ttls(cr.s);
    CHECK_INT(queue_of(cr.s, "a"), 0); /* the dead ones were dropped by the releases */
}

/* ---- wake-ups that never arrive ---- */

#define EACH 40

static void needs_many(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *m = lock_of(c, "a", 30000);
    for (int i = 0; i < EACH; i++) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        struct grant *g = history_grant(cr->h, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        atomic_fetch_add(&cr->mem->got, 1);
        t_sleep_ms(2);
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P6_all_subscriptions_killed_over_and_over_and_every_waiter_is_still_served)
{
    enum { N = 8 };
    struct crowd cr = { .s = server_start(NULL), .h = history_new(10000) };
    struct history_report r;
    long long killed = 0;
    int64_t start = t_now_ms();
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(N, needs_many, &cr);
    while (atomic_load(&cr.mem->got) < EACH * N) {
        killed += kill_inboxes(cr.s);
        if (t_calm_ms(start) > 50000)
            FAIL("%d of %d served", atomic_load(&cr.mem->got), EACH * N);
        t_sleep_ms((int64_t)t_random(30));
    }
    int64_t took = t_now_ms() - start;
    workers_join(w, 20000);
    t_note("%d grants while %lld subscriptions were killed: %lld ms", EACH * N, killed,
           (long long)took);
    CHECK(killed > 20);
    CHECK_INT((long long)history_check(cr.h, &r), 0);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* The message alone is lost: the subscription of the one in turn is gone when it is granted. */
TEST(P6_a_lost_wake_up_costs_at_most_a_look)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    int64_t worst = 0;
    for (int i = 0; i < 6; i++) {
        lock_now(m);
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        /* Release and break in one step, as far as the waiter can see. */
        const char *value = server_ask(s, "GET lock:a");
        server_ask(s, "MULTI");
        server_ask(s, "CLIENT PAUSE 30"); /* so that the message is still in the server when ... */
        server_ask(s, "EVAL %s 4 lock:a " FENCE_KEY " {lock:a}:q {lock:a}:own %s",
                   lua_text[LUA_release], value);
        server_ask(s, "CLIENT KILL TYPE pubsub"); /* ... its connection ends */
        CHECK_STR(server_ask(s, "EXEC"), "OK\n1\n2");
        int64_t start = t_now_ms();
        locker_join(&l, HF_OK);
        CHECK_TOOK(t_now_ms() - start, 0, 2500);
        if (t_now_ms() - start > worst)
            worst = t_now_ms() - start;
        unlock_now(l.m);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST); /* we released it behind its back */
    }
    t_note("worst %lld ms", (long long)worst);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
}

/* ---- a turn that is not taken ---- */

struct stopped {
    struct server *s;
    struct bell    go[2];
    struct {
        atomic_int   ready;
        atomic_llong granted_ns[2];
        atomic_ullong fence[2];
    } *mem;
};

static void takes_once(int index, void *arg)
{
    struct stopped *st = arg;
    hf_client *c = client_at(server_url(st->s), 20000);
    hf_lock *m = lock_of(c, "a", 20000);
    uint64_t fence;
    atomic_fetch_add(&st->mem->ready, 1);
    bell_wait(st->go[index]);
    CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    atomic_store(&st->mem->fence[index], fence);
    atomic_store(&st->mem->granted_ns[index], t_now_ns());
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P6_a_turn_that_is_not_taken_lapses_after_the_claim_window_and_comes_again)
{
    struct stopped st = { .s = server_start(NULL), .go = { bell_new(), bell_new() } };
    st.mem = shared_memory(sizeof *st.mem);
    struct workers *w = workers_start(2, takes_once, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->ready) == 2, 10000);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    for (int i = 0; i < 2; i++) {
        bell_ring(st.go[i]);
        CHECK_QUEUE(st.s, "a", i + 1);
    }
    const char *head = server_ask(st.s, "ZRANGE {lock:a}:q 0 0");
    workers_signal(w, 0, SIGSTOP);
    int64_t start = t_now_ns();
    unlock_now(m);
    CHECK(strncmp(server_ask(st.s, "GET lock:a"), head, 34) == 0); /* granted to the stopped one */
    CHECK_RANGE(server_int(st.s, "PTTL lock:a"), 1, 1000);
    CHECK_EVENTUALLY(atomic_load(&st.mem->granted_ns[1]) != 0, 10000);
    int64_t after = (atomic_load(&st.mem->granted_ns[1]) - start) / 1000000;
    t_note("the next after %lld ms", (long long)after);
    CHECK_RANGE(after, 950, 3500);
    CHECK_INT(atomic_load(&st.mem->granted_ns[0]), 0);
    workers_signal(w, 0, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&st.mem->granted_ns[0]) != 0, 10000);
    CHECK(atomic_load(&st.mem->fence[0]) > atomic_load(&st.mem->fence[1]));
    workers_join(w, 10000);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* ---- ways out ---- */

TEST(P9_a_deadline_a_cancel_and_a_freed_client_leave_the_queue_clean)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000) };
    int stood = 0;
    lock_now(m);
    for (int i = 0; i < 10; i++) {
        l.wait_ms = 60;
        locker_start(&l);
        CHECK_EVENTUALLY(atomic_load(&l.done) || queue_of(s, "a") == 1, 10000);
        CHECK_INT(pthread_join(l.thread, NULL), 0);
        if (l.result == HF_EUNSURE) { /* not even the way back had its time on this machine */
            t_note("%s", l.error.message);
            CHECK_EVENTUALLY(queue_of(s, "a") == 0, 30000);
            server_ask(s, "DEL {lock:a}:t"); /* what it leaves to remember that */
        } else {
            CHECK_INT(l.result, HF_ETIMEDOUT);
            CHECK_INT(l.error.known, HF_KNOWN_UNCHANGED);
            CHECK_INT(server_int(s, "EXISTS {lock:a}:q {lock:a}:t"), 0);
            stood++;
        }

        l.wait_ms = HF_WAIT_FOREVER;
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        int64_t start = t_now_ms();
        hf_lock_cancel(l.m);
        int sure = locker_cancelled(&l);
        CHECK_TOOK(t_now_ms() - start, 0, 1000);
        if (sure)
            CHECK_INT(server_int(s, "EXISTS {lock:a}:q {lock:a}:t"), 0);
        CHECK_QUEUE(s, "a", 0);
        server_ask(s, "DEL {lock:a}:t");
    }
    CHECK(stood > 0);
    /* The others are served as if it had never been there. */
    hf_client *c2 = client_at(server_url(s), 0);
    struct locker next = { .m = lock_of(c2, "a", 30000), .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    locker_start(&next);
    CHECK_QUEUE(s, "a", 2);
    hf_lock_cancel(l.m);
    locker_cancelled(&l);
    unlock_now(m);
    locker_join(&next, HF_OK);
    unlock_now(next.m);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 10000);
    hf_lock_free(next.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(c2);
    hf_client_free(holder);
}

/* Taking a request back needs an answer, and that takes as long as the server is far away. */
TEST(P8_who_cancels_a_wait_at_a_server_far_away_is_sure_that_it_is_over)
{
    enum { ONE_WAY_MS = 60 };
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(proxy_url(p), 10000);
    hf_lock *m = lock_of(holder, "a", 60000);
    struct locker l = { .m = lock_of(c, "a", 60000), .wait_ms = HF_WAIT_FOREVER };
    proxy_delay(p, ONE_WAY_MS);
    lock_now(m);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    int64_t begun = t_now_ms();
    hf_lock_cancel(l.m);
    locker_join(&l, HF_ECANCELED);
    CHECK_TOOK(t_now_ms() - begun, 2 * ONE_WAY_MS, 2000);
    CHECK_INT(l.error.known, HF_KNOWN_UNCHANGED);
    CHECK_INT(queue_of(s, "a"), 0);
    CHECK(proxy_delayed(p) > 0);
    hf_lock_free(l.m);
    hf_client_free(c);
    hf_lock_free(m);
    hf_client_free(holder);
}

static void waits_for_ever(int index, void *arg)
{
    struct server *s = arg;
    (void)index;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    CHECK_HF(hf_lock_acquire(m, HF_WAIT_FOREVER, NULL, &err), HF_OK);
    t_sleep_ms(60000);
}

TEST(P6_dead_waiters_in_front_delay_nobody)
{
    enum { N = 12 };
    struct server *s = server_start(NULL);
    server_ask(s, "SET lock:a x PX 60000"); /* until our own client holds it */
    struct workers *w = workers_start(N, waits_for_ever, s);
    CHECK_QUEUE(s, "a", N);
    hf_client *c = client_at(server_url(s), 0);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", N + 1);
    for (int i = 0; i < N; i++)
        workers_signal(w, i, SIGKILL);
    workers_join(w, 1000);
    CHECK_INT(queue_of(s, "a"), N + 1); /* dead, but nobody has looked yet */
    int64_t start = t_now_ms();
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("x"), &err), HF_OK);
    locker_join(&l, HF_OK);
    t_note("past %d dead ones in %lld ms", N, (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 0, 1000);
    CHECK_INT(queue_of(s, "a"), 0);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* More dead ones than one script drops, lest it keeps the server: the looks do the rest, in
 * time. */
TEST(D9_a_hundred_thousand_dead_waiters_are_dropped_in_bulk)
{
    enum { N = 100000 };
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 10000 };
    lock_now(m);
    server_ask(s, "EVAL %s 1 {lock:a}:q %d", "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], i, "
               "string.format('%032x.1:0:1000::', i)) end", N);
    locker_start(&l);
    CHECK_QUEUE(s, "a", N + 1);
    int64_t start = t_now_ms();
    unlock_now(m);
    CHECK_RANGE(queue_of(s, "a"), N / 2, N - 1000); /* some of them, in one script or a few more */
    locker_join(&l, HF_OK);
    t_note("past %d in %lld ms", N, (long long)(t_now_ms() - start));
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* Its inbox is gone and cannot come back until it gives up: its place must not stay behind. */
TEST(P9_a_waiter_that_lost_its_inbox_leaves_no_place_behind)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *holder = client_with(server_url(s), (hf_client_opts){ 0 });
    hf_client *c = client_at(proxy_url(p), 4000);
    hf_lock *m = lock_of(holder, "a", 30000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK); /* a try needs no inbox */
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 9000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    proxy_refuse(p);
    server_ask(s, "CLIENT KILL ID %lld", only_inbox(s));
    CHECK_EVENTUALLY(proxy_refused(p) > 0, 5000);
    locker_join(&l, HF_ETIMEDOUT);
    CHECK_INT(queue_of(s, "a"), 0);
    proxy_pass(p);
    unlock_now(m);
    int64_t start = t_now_ms(); /* and the next one gets it at once */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    CHECK_TOOK(t_now_ms() - start, 0, 500);
    unlock_now(m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
}

/* The member of the queue of a waiter of m's client, which then has its turn and gives it back. Its
 * window is ten seconds: who passes it on does so for other reasons. */
static void spend_turn(struct server *s, hf_lock *m, hf_lock *waits, char *ret, size_t size)
{
    struct locker l = { .m = waits, .wait_ms = 20000 };
    char token[64], nonce[32];
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_INT(sscanf(server_ask(s, "ZRANGE {lock:a}:q 0 0"), "%63[^:]:%*d:%*d:%31[^:]", token,
                     nonce), 2);
    snprintf(ret, size, "%s:0:10000:%s:", token, nonce);
    unlock_now(m);
    locker_join(&l, HF_OK);
    unlock_now(waits);
    lock_now(m);
}

/* B1 */
TEST(P8_a_grant_that_nobody_waits_for_is_passed_on_at_once)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    hf_lock *spent = lock_of(holder, "a", 30000);
    int64_t least = 10000;
    lock_now(m);
    for (int i = 0; i < 5; i++) {
        /* In front of the queue: a spent token of the holder's own, living session, as after a
         * failover to a server that does not know that it was served. */
        char member[120];
        spend_turn(s, m, spent, member, sizeof member);
        server_ask(s, "ZADD {lock:a}:q 1 %s", member);
        locker_start(&l);
        CHECK_QUEUE(s, "a", 2);
        int64_t start = t_now_ms();
        unlock_now(m);
        locker_join(&l, HF_OK);
        if (t_now_ms() - start < least)
            least = t_now_ms() - start;
        CHECK_TOOK(t_now_ms() - start, 0, 2500); /* its window would have been 10 s */
        struct locker back = { .m = m, .wait_ms = 20000 };
        locker_start(&back);
        CHECK_QUEUE(s, "a", 1);
        unlock_now(l.m);
        locker_join(&back, HF_OK);
    }
    t_note("passed on after %lld ms", (long long)least);
    CHECK_RANGE(least, 0, 200); /* the cancel itself did it (D3), no look, which comes after 250 */
    unlock_now(m);
    hf_lock_free(l.m);
    hf_lock_free(spent);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* ---- late copies of a request ---- */

static const char *late_acquire(struct server *s, const char *token)
{
    return server_ask(s, "EVAL %s 5 lock:a " FENCE_KEY " {lock:a}:q {lock:a}:t {lock:a}:own %s "
                      "30000 0 1000 0", lua_text[LUA_acquire], token);
}

TEST(P8_a_late_copy_of_a_waiters_request_takes_nothing_and_does_not_queue)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    char token[64];
    lock_now(l.m);
    unlock_now(l.m); /* the scripts are known, the inbox is open */
    for (int i = 0; i < 10; i++) {
        lock_now(m);
        long cuts = proxy_cuts(p);
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_cut_after(p, 0); /* its reply is lost, so it is sent again */
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        CHECK_EVENTUALLY(proxy_cuts(p) == cuts + 1, 5000);
        snprintf(token, sizeof token, "%.*s",
                 (int)strcspn(server_ask(s, "ZRANGE {lock:a}:q 0 0"), ":"),
                 server_ask(s, "ZRANGE {lock:a}:q 0 0"));
        CHECK_INT(queue_of(s, "a"), 1); /* twice the same place */
        if (i % 2) {
            hf_lock_cancel(l.m);
            locker_join(&l, HF_ECANCELED);
            CHECK_INT(queue_of(s, "a"), 0);
            CHECK_STR(late_acquire(s, token), "-2");
            unlock_now(m);
        } else {
            unlock_now(m);
            locker_join(&l, HF_OK);
            CHECK_STR(hf_lock_owner(l.m), token);
            unlock_now(l.m);
            CHECK_STR(late_acquire(s, token), "-2");
        }
        CHECK_STR(late_acquire(s, token), "-2");
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    }
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    check_only_ttls(s);
}

TEST(P8_a_waiters_request_that_is_held_up_until_it_was_cancelled_leaves_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(proxy_url(p), 3000);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    lock_now(l.m);
    unlock_now(l.m);
    lock_now(m);
    for (int i = 0; i < 5; i++) {
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_hold(p);
        locker_start(&l);
        CHECK_EVENTUALLY(proxy_held(p) > 0, 5000); /* on the wire */
        hf_lock_cancel(l.m);
        CHECK_INT(pthread_join(l.thread, NULL), 0);
        CHECK(l.result == HF_EUNSURE || l.result == HF_ECANCELED);
        proxy_pass(p);
        CHECK_EVENTUALLY(proxy_held(p) == 0, 5000);
        CHECK_EVENTUALLY(queue_of(s, "a") == 0 && server_int(s, "EXISTS {lock:a}:t") == 1, 5000);
        t_sleep_ms(50); /* nothing comes after it */
        CHECK_INT(queue_of(s, "a"), 0);
    }
    unlock_now(m);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* ---- foreign holders, and what waiting costs ---- */

TEST(P3_a_foreign_holder_is_waited_for_by_one_who_polls_gently)
{
    enum { N = 8 };
    struct server *s = server_start(NULL);
    hf_client *c[N];
    struct locker l[N];
    for (int i = 0; i < N; i++) {
        c[i] = client_at(server_url(s), 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "a", 30000), .wait_ms = 30000 };
    }
    for (int round = 0; round < 3; round++) {
        /* 0: deleted by its owner, as the common clients do; 1: expires; 2: has no ttl at all */
        CHECK_STR(server_ask(s, round == 2 ? "SET lock:a foreign NX"
                                           : "SET lock:a foreign NX PX 60000"), "OK");
        for (int i = 0; i < N; i++) {
            locker_start(&l[i]);
            CHECK_QUEUE(s, "a", i + 1);
        }
        if (round == 2)
            CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 30000); /* it was given one */
        if (round == 0) {
            t_sleep_ms(700); /* the first looks are over */
            server_monitor_start(s);
            t_sleep_ms(2000);
            int polls = server_monitor_count(s, lua_sha[LUA_look]);
            int all = server_monitor_count(s, "\"EVALSHA\"");
            t_note("%d looks, %d scripts in 2 s of 8 waiters", polls, all);
            CHECK_RANGE(polls, 2, 12);
        }
        CHECK_INT(queue_of(s, "a"), N);
        CHECK_STR(server_ask(s, "GET lock:a"), "foreign"); /* nothing was stolen */
        if (round == 0)
            CHECK_INT(server_int(s, "DEL lock:a"), 1);
        else
            server_ask(s, "PEXPIRE lock:a 300");
        int64_t start = t_now_ms();
        for (int i = 0; i < N; i++) {
            locker_join(&l[i], HF_OK);
            for (int k = i + 1; k < N; k++)
                CHECK_INT(atomic_load(&l[k].done), 0);
            unlock_now(l[i].m);
        }
        CHECK_TOOK(t_now_ms() - start, 0, 3000);
    }
    for (int i = 0; i < N; i++) {
        hf_lock_free(l[i].m);
        hf_client_free(c[i]);
    }
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

TEST(P7_64_processes_that_wait_cost_the_server_a_few_commands_a_second)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET lock:a held PX 60000");
    struct workers *w = workers_start(PROCESSES, waits_for_ever, s);
    CHECK_EVENTUALLY(queue_of(s, "a") == PROCESSES, 30000);
    t_sleep_ms(3000); /* the first looks and the records are written */
    server_monitor_start(s);
    int64_t start = t_now_ms();
    t_sleep_ms(soak(5000, 60000));
    double seconds = (double)(t_now_ms() - start) / 1000;
    int looks = server_monitor_count(s, lua_sha[LUA_look]);
    int records = server_monitor_count(s, lua_sha[LUA_record]);
    int scripts = server_monitor_count(s, "\"EVALSHA\""),
        pings = server_monitor_count(s, "\"PING\"");
    t_note("per second: %.1f scripts, of them %.1f looks and %.1f records; %.1f pings",
           scripts / seconds, looks / seconds, records / seconds, pings / seconds);
    CHECK_INT(queue_of(s, "a"), PROCESSES);
    CHECK(looks > 0);
    CHECK(looks / seconds <= 8);
    CHECK(scripts / seconds <= 12);
    for (int i = 0; i < PROCESSES; i++)
        workers_signal(w, i, SIGKILL);
    workers_join(w, 1000);
    check_only_ttls(s);
}

/* A release wakes one: a hundred waiters, and the commands of one handoff. */
TEST(P7_a_handoff_among_many_waiters_takes_a_handful_of_commands)
{
    enum { N = 16 };
    struct server *s = server_start(NULL);
    hf_client *c[N], *holder = client_at(server_url(s), 0);
    struct locker l[N];
    hf_lock *m = lock_of(holder, "a", 30000);
    lock_now(m);
    for (int i = 0; i < N; i++) {
        c[i] = client_at(server_url(s), 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "a", 30000), .wait_ms = 30000 };
        locker_start(&l[i]);
        CHECK_QUEUE(s, "a", i + 1);
    }
    t_sleep_ms(700);
    server_monitor_start(s);
    int64_t start = t_now_ms();
    unlock_now(m);
    for (int i = 0; i < N; i++) {
        locker_join(&l[i], HF_OK);
        unlock_now(l[i].m);
    }
    int scripts = server_monitor_count(s, "\"EVALSHA\"");
    int acquires = server_monitor_count(s, lua_sha[LUA_acquire]);
    t_note("%d handoffs: %d scripts in %lld ms", N, scripts, (long long)(t_now_ms() - start));
    CHECK_INT(acquires, 0); /* nobody else was woken to try */
    CHECK_RANGE(scripts, N, 4 * N + 10);
    for (int i = 0; i < N; i++) {
        hf_lock_free(l[i].m);
        hf_client_free(c[i]);
    }
    hf_lock_free(m);
    hf_client_free(holder);
}
