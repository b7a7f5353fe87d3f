/* SPDX-License-Identifier: MIT
 * async.c - lock, unlock and extend without blocking: every request is answered once, in the
 * thread that dispatches, and thousands of waiting handles need no thread of their own.
 */
#include <dirent.h>

#define LIVE_SCRIPTS
#include "harness/proxy.h"
#include "harness/waiting.h"

struct answer {
    int      calls;
    hf_err   result;
    char     message[200];
    int      had_err;
    pthread_t thread;
};

static void note(hf_err result, const hf_error *e, void *arg)
{
    struct answer *a = arg;
    a->calls++;
    a->result = result;
    a->had_err = e != NULL;
    snprintf(a->message, sizeof a->message, "%s", e ? e->message : "");
    a->thread = pthread_self();
}

/* One turn of an event loop; how many were finished. */
static size_t turn(hf_client *c, int wait_ms)
{
    int fd;
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, wait_ms) == 1 ? hf_client_dispatch(c) : 0;
}

static void loop_for_ms(hf_client *c, int64_t ms)
{
    for (int64_t left, until = t_now_ms() + ms; (left = until - t_now_ms()) > 0;)
        turn(c, (int)left);
}

static void loop_until(hf_client *c, const struct answer *a, int calls)
{
    int64_t until = t_now_ms() + 20000;
    while (a->calls < calls) {
        if (t_now_ms() > until)
            FAIL("no answer within 20 s");
        turn(c, 1000);
    }
    CHECK_INT(a->calls, calls);
    CHECK(pthread_equal(a->thread, pthread_self()));
}

static void loop_for(hf_client *c, const struct answer *a, hf_err want)
{
    loop_until(c, a, a->calls + 1);
    if (a->result != want)
        FAIL("got %s (%s), want %s", hf_err_name(a->result), a->message, hf_err_name(want));
    CHECK_INT(a->had_err, want != HF_OK);
    CHECK((want == HF_OK) == !a->message[0]);
}

TEST(lock_extend_and_unlock_by_callback)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    struct answer a = { 0 };
    CHECK_INT((long long)hf_client_dispatch(c), 0); /* nothing asked, nothing there */
    uint64_t last = 0;
    for (int i = 0; i < 20; i++) {
        CHECK_HF(hf_lock_acquire_async(m, i % 2 ? 5000 : 0, note, &a, &err), HF_OK);
        loop_for(c, &a, HF_OK);
        CHECK(hf_lock_fence(m) > last);
        last = hf_lock_fence(m);
        CHECK_INT(hf_lock_is_held(m), 1);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 1);
        CHECK_HF(hf_lock_extend_async(m, 50000, note, &a, &err), HF_OK);
        loop_for(c, &a, HF_OK);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 40000, 50000);
        /* Once more on the same handle. */
        CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
        loop_for(c, &a, HF_OK);
        CHECK(hf_lock_fence(m) == last);
        CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_OK);
        loop_for(c, &a, HF_OK);
        CHECK_INT(hf_lock_is_held(m), 1);
        CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_OK);
        loop_for(c, &a, HF_OK);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    }
    CHECK_INT((long long)turn(c, 0), 0);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(errors_come_by_callback_or_at_once_never_both)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000), *o = lock_of(other, "a", 60000);
    struct answer a = { 0 };
    /* At once: the caller's own mistakes. */
    CHECK_HF(hf_lock_acquire_async(m, 0, NULL, &a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_acquire_async(m, -2, note, &a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend_async(m, 0, note, &a, &err), HF_EINVAL);
    CHECK_INT((long long)turn(c, 50), 0);
    CHECK_INT(a.calls, 0);
    /* By callback: what the server or the lock's state says. */
    CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_ENOTHELD);
    CHECK_HF(hf_lock_extend_async(m, 1000, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_ENOTHELD);
    lock_now(o);
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_EBUSY);
    /* While one is under way the handle takes no other. */
    CHECK_HF(hf_lock_acquire_async(m, 20000, note, &a, &err), HF_OK);
    LOOP_QUEUE(c, s, "a", 1);
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_extend_async(m, 1000, note, &a, &err), HF_EINVAL);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EINVAL);
    unlock_now(o);
    loop_for(c, &a, HF_OK);
    server_ask(s, "DEL lock:a");
    CHECK_HF(hf_lock_extend_async(m, 1000, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_ELOST);
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_ELOST);
    server_ask(s, "LPUSH lock:a x");
    CHECK_HF(hf_lock_acquire_async(m, 5000, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_ETYPE);
    server_ask(s, "DEL lock:a");
    int calls = a.calls;
    CHECK_INT((long long)turn(c, 50), 0);
    CHECK_INT(a.calls, calls);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(a_wait_limit_and_a_cancel_end_a_request_and_leave_the_queue_clean)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000), *o = lock_of(other, "a", 60000);
    struct answer a = { 0 };
    lock_now(o);
    for (int i = 0; i < 5; i++) {
        int64_t start = t_now_ms();
        CHECK_HF(hf_lock_acquire_async(m, 150, note, &a, &err), HF_OK);
        LOOP_QUEUE(c, s, "a", 1);
        loop_for(c, &a, HF_ETIMEDOUT);
        CHECK_TOOK(t_now_ms() - start, 140, 2000);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:q"), 0);

        CHECK_HF(hf_lock_acquire_async(m, HF_WAIT_FOREVER, note, &a, &err), HF_OK);
        LOOP_QUEUE(c, s, "a", 1);
        hf_lock_cancel(m);
        loop_for(c, &a, HF_ECANCELED);
        /* It may have been cancelled before we read that we are queued: then it has a tombstone. */
        CHECK_INT(server_int(s, "EXISTS {lock:a}:q"), 0);
    }
    check_only_ttls(s);
    unlock_now(o);
    /* No cancel is left over. */
    CHECK_HF(hf_lock_acquire_async(m, 5000, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_OK);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

/* ---- thousands ---- */

struct many {
    hf_client *c;
    int        got, released, disorder, failed;
    uint64_t   last;
    int        last_index;
};

struct one {
    struct many *all;
    hf_lock     *m;
    int          index;
};

static void released(hf_err result, const hf_error *e, void *arg)
{
    struct one *o = arg;
    (void)e;
    o->all->failed += result != HF_OK;
    o->all->released++;
    if (o->index % 2)
        o->m = hf_lock_free(o->m); /* allowed from here on */
}

static void granted(hf_err result, const hf_error *e, void *arg)
{
    struct one *o = arg;
    hf_lock *m = o->m;
    struct many *all = o->all;
    if (result) {
        all->failed++;
        t_note("%d: %s: %s", o->index, hf_err_name(result), e ? e->message : "");
        return;
    }
    all->disorder += o->index != all->last_index + 1 || hf_lock_fence(m) <= all->last;
    all->last_index = o->index;
    all->last = hf_lock_fence(m);
    all->got++;
    CHECK_HF(hf_lock_release_async(m, released, o, &err), HF_OK);
}

TEST(P6_P7_2000_waiting_handles_in_one_process_drain_in_order)
{
    enum { N = 2000 };
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0);
    struct many all = { .c = client_at(server_url(s), 20000), .last_index = -1 };
    hf_lock *m = lock_of(holder, "a", 60000);
    struct one *o = calloc(N, sizeof *o);
    lock_now(m);
    int64_t start = t_now_ms();
    for (int i = 0; i < N; i++) {
        o[i] = (struct one){ .all = &all, .m = lock_of(all.c, "a", 60000), .index = i };
        CHECK_HF(hf_lock_acquire_async(o[i].m, 60000, granted, &o[i], &err), HF_OK);
        LOOP_QUEUE(all.c, s, "a", i + 1);
    }
    CHECK_INT(queue_of(s, "a"), N);
    int64_t queued = t_now_ms() - start;
    CHECK_INT(server_int(s, "EVAL %s 0", "return #redis.call('PUBSUB', 'CHANNELS')"), 2);
    loop_for_ms(all.c, 700);
    server_monitor_start(s);
    loop_for_ms(all.c, 2000);
    int idle = server_monitor_count(s, "\"EVALSHA\"");
    CHECK_RANGE(idle, 1, 12); /* in 2 s: one looks for all */
    start = t_now_ms();
    unlock_now(m);
    while (all.released < N && t_now_ms() - start < 40000)
        turn(all.c, 1000);
    t_note("%d queued in %lld ms, %.1f commands a second while waiting, drained in %lld ms", N,
           (long long)queued, idle / 2.0, (long long)(t_now_ms() - start));
    CHECK_INT(all.failed, 0);
    CHECK_INT(all.got, N);
    CHECK_INT(all.released, N);
    CHECK_INT(all.disorder, 0);
    for (int i = 0; i < N; i++)
        hf_lock_free(o[i].m);
    free(o);
    hf_lock_free(m);
    hf_client_free(all.c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q {lock:a}:t"), 0);
    check_only_ttls(s);
}

/* Nobody waits until the first of them stands in the queue: the calls alone make the order.
 * between: somebody reads what the server has said to the first half. */
static void make_many_requests(int between)
{
    enum { N = 200 };
    struct server *s = server_start(NULL);
    struct many all = { .c = client_at(server_url(s), 20000), .last_index = -1 };
    static struct one o[N];
    for (int i = 0; i < N; i++)
        o[i] = (struct one){ .all = &all, .m = lock_with(all.c, "a", KEPT), .index = i };
    for (int i = 0; i < N; i++) {
        if (i == N / 2 && between)
            lock_now(lock_with(all.c, "b", KEPT));
        CHECK_HF(hf_lock_acquire_async(o[i].m, 30000, granted, &o[i], &err), HF_OK);
    }
    for (int64_t until = t_now_ms() + 20000; all.released < N && t_now_ms() < until;)
        turn(all.c, 1000);
    CHECK_INT(all.released, N);
    CHECK_INT(all.failed, 0);
    CHECK_INT(all.disorder, 0);
    for (int i = 0; i < N; i++)
        hf_lock_free(o[i].m);
    hf_client_free(all.c);
}

TEST(P6_requests_come_to_the_server_in_the_order_in_which_they_were_made)
{
    make_many_requests(0);
}

TEST(P6_and_do_not_overtake_those_that_have_been_answered)
{
    make_many_requests(1);
}

/* The first one has to hear from the server once more before it asks for its short grace; for the
 * second one what the client has heard is new enough. */
TEST(P6_and_do_not_overtake_one_that_has_to_prove_more)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0);
    struct many all = { .c = client_at(server_url(s), 20000), .last_index = -1 };
    hf_lock *m = lock_of(holder, "a", 60000), *known = lock_of(all.c, "b", 60000);
    hf_lock_opts opts[2] = { { .ttl_ms = 60000, .grace_ms = 2000 }, { .ttl_ms = 60000 } };
    struct one o[2];
    lock_now(m);
    lock_now(known);
    unlock_now(known);
    t_sleep_ms(750); /* longer than a third of the short grace */
    for (int i = 0; i < 2; i++) {
        o[i] = (struct one){ .all = &all, .m = lock_with(all.c, "a", opts[i]), .index = i };
        CHECK_HF(hf_lock_acquire_async(o[i].m, 60000, granted, &o[i], &err), HF_OK);
    }
    LOOP_QUEUE(all.c, s, "a", 2);
    unlock_now(m);
    for (int64_t until = t_now_ms() + 20000; all.released < 2 && t_now_ms() < until;)
        turn(all.c, 1000);
    CHECK_INT(all.released, 2);
    CHECK_INT(all.failed, 0);
    CHECK_INT(all.disorder, 0);
    hf_lock_free(o[0].m);
    hf_lock_free(o[1].m);
    hf_lock_free(m);
    hf_lock_free(known);
    hf_client_free(all.c);
    hf_client_free(holder);
}

/* Many locks, each with a few that want it, in one loop. */
TEST(P1_many_locks_and_many_handles_in_one_loop)
{
    enum { LOCKS = 50, EACH = 6 };
    struct server *s = server_start(NULL);
    struct many all[LOCKS];
    static struct one o[LOCKS * EACH];
    hf_client *c = client_at(server_url(s), 20000);
    int got = 0;
    for (int i = 0; i < LOCKS * EACH; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i % LOCKS);
        if (i < LOCKS)
            all[i] = (struct many){ .c = c, .last_index = -1 };
        o[i] = (struct one){ .all = &all[i % LOCKS], .m = lock_of(c, name, 30000),
                             .index = i / LOCKS };
        CHECK_HF(hf_lock_acquire_async(o[i].m, 30000, granted, &o[i], &err), HF_OK);
    }
    for (int64_t until = t_now_ms() + 30000; got < LOCKS * EACH && t_now_ms() < until;) {
        turn(c, 1000);
        got = 0;
        for (int i = 0; i < LOCKS; i++)
            got += all[i].released;
    }
    CHECK_INT(got, LOCKS * EACH);
    for (int i = 0; i < LOCKS; i++)
        CHECK_INT(all[i].failed, 0);
    for (int i = 0; i < LOCKS * EACH; i++)
        hf_lock_free(o[i].m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- without a thread ---- */

/* How often the other threads of this process have gone to sleep by themselves so far: once for
 * each time that they were woken. And how many there are. */
static long naps_of_others(int *ret_threads)
{
    long all = 0, n;
    char path[300], line[100];
    DIR *d = opendir("/proc/self/task");
    CHECK(d);
    *ret_threads = 0;
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/status", e->d_name);
        FILE *f = atoi(e->d_name) > 0 && atoi(e->d_name) != gettid() ? fopen(path, "r") : NULL;
        if (!f)
            continue;
        while (fgets(line, sizeof line, f))
            all += sscanf(line, "voluntary_ctxt_switches: %ld", &n) == 1 ? n : 0;
        fclose(f);
        ++*ret_threads;
    }
    closedir(d);
    return all;
}

/* Handles that lock and unlock as fast as they can, until so many pairs were begun. */
struct mill {
    int64_t wait_ms;
    int     left, under_way, pairs, failed;
};

struct grinder {
    struct mill *mill;
    hf_lock     *m;
};

static void locked(hf_err result, const hf_error *e, void *arg);

static void grind(struct grinder *g)
{
    struct mill *mill = g->mill;
    if (mill->left == 0)
        return;
    mill->left--;
    mill->under_way++;
    CHECK_HF(hf_lock_acquire_async(g->m, mill->wait_ms, locked, g, &err), HF_OK);
}

static void unlocked(hf_err result, const hf_error *e, void *arg)
{
    struct grinder *g = arg;
    struct mill *mill = g->mill;
    (void)e;
    mill->failed += result != HF_OK;
    mill->pairs += result == HF_OK;
    mill->under_way--;
    grind(g);
}

static void locked(hf_err result, const hf_error *e, void *arg)
{
    struct grinder *g = arg;
    if (result) {
        t_note("%s: %s", hf_err_name(result), e ? e->message : "");
        g->mill->failed++;
        g->mill->under_way--;
        return;
    }
    CHECK_HF(hf_lock_release_async(g->m, unlocked, g, &err), HF_OK);
}

static void run_mill(hf_client *c, hf_lock *const *m, int n, int64_t wait_ms, int pairs)
{
    struct mill mill = { .wait_ms = wait_ms, .left = pairs };
    struct grinder *g = calloc((size_t)n, sizeof *g);
    for (int i = 0; i < n; i++) {
        g[i] = (struct grinder){ &mill, m[i] };
        grind(&g[i]);
    }
    for (int64_t until = t_now_ms() + 30000; mill.under_way && t_now_ms() < until;)
        turn(c, 1000);
    CHECK_INT(mill.failed, 0);
    CHECK_INT(mill.pairs, pairs);
    free(g);
}

/* Nobody else wants them: the calling thread alone has something to do. */
TEST(uncontended_requests_wake_no_thread)
{
    enum { HANDLES = 64, PAIRS = 5000 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 20000);
    hf_lock *m[HANDLES];
    for (int i = 0; i < HANDLES; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 60000);
    }
    for (int waits = 0; waits < 2; waits++) { /* a try, and a request that would wait */
        int64_t wait_ms = waits ? 20000 : 0;
        int before, threads;
        run_mill(c, m, HANDLES, wait_ms, 4 * HANDLES);
        long naps = naps_of_others(&before);
        int64_t begun = t_now_ms();
        run_mill(c, m, HANDLES, wait_ms, PAIRS);
        int64_t took = t_now_ms() - begun;
        naps = naps_of_others(&threads) - naps;
        t_note("%d pairs in %lld ms, wait %lld: %d other threads woke %ld times", PAIRS,
               (long long)took, (long long)wait_ms, threads, naps);
        CHECK_INT(threads, before);
        CHECK(threads >= 2); /* keeper and watchdog: there is somebody who could be woken */
        CHECK_RANGE(naps, 0, 20 + 2 * (took / 1000 + 1) * threads);
    }
    for (int i = 0; i < HANDLES; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* What this process needs, in KiB: "VmRSS:" now, "VmHWM:" at its peak. */
static long memory(const char *field)
{
    char line[200];
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f);
    do
        CHECK(fgets(line, sizeof line, f));
    while (strncmp(line, field, strlen(field)) != 0);
    fclose(f);
    return atol(line + strlen(field));
}

/* F3: each leaves a place behind that somebody has to take away: what is left stands in the way of
 * those who come later, for a second each. */
TEST(F3_thousands_that_are_cancelled_at_once_leave_nothing_behind)
{
    enum { N = 8000 };
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 30000);
    hf_lock *h = lock_of(holder, "a", 60000), **m = calloc(N, sizeof *m);
    struct answer *a = calloc(N, sizeof *a);
    lock_now(h);
    for (int i = 0; i < N; i++) {
        m[i] = lock_of(c, "a", 60000);
        CHECK_HF(hf_lock_acquire_async(m[i], HF_WAIT_FOREVER, note, &a[i], &err), HF_OK);
    }
    LOOP_EVENTUALLY(c, queue_of(s, "a") == N, 60000);
    int64_t begun = t_now_ms();
    long finished = 0, unsure = 0;
    for (int i = 0; i < N; i++)
        hf_lock_cancel(m[i]);
    for (int64_t until = t_now_ms() + 20000; finished < N && t_now_ms() < until;)
        finished += (long)turn(c, 100);
    int64_t told = t_now_ms() - begun;
    CHECK_INT(finished, N);
    for (int i = 0; i < N; i++) {
        unsure += a[i].result == HF_EUNSURE;
        CHECK(a[i].result == HF_ECANCELED || a[i].result == HF_EUNSURE);
    }
    CHECK_EVENTUALLY(queue_of(s, "a") == 0, 10000);
    t_note("%d cancelled in %lld ms, %ld of them unsure; none left after %lld ms", (int)N,
           (long long)told, unsure, (long long)(t_now_ms() - begun));
    unlock_now(h);
    for (int i = 0; i < N; i++)
        hf_lock_free(m[i]);
    free(m);
    free(a);
    hf_lock_free(h);
    hf_client_free(c);
    hf_client_free(holder);
}

/* Each is asked for before the first one is answered. */
TEST(ten_thousand_requests_under_way_are_all_answered)
{
    enum { N = 10000 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 30000);
    hf_lock **m = calloc(N, sizeof *m);
    struct answer *a = calloc(N, sizeof *a);
    memset(a, 0, N * sizeof *a); /* ours is not counted */
    long before = memory("VmRSS:");
    for (int i = 0; i < N; i++) {
        char name[16];
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 60000);
    }
    long handles = memory("VmRSS:");
    int64_t begun = t_now_ms();
    for (int round = 0; round < 2; round++) {
        long finished = 0;
        for (int i = 0; i < N; i++)
            CHECK_HF(round ? hf_lock_release_async(m[i], note, &a[i], &err)
                           : hf_lock_acquire_async(m[i], 30000, note, &a[i], &err), HF_OK);
        for (int i = 0; i < N; i++)
            CHECK_INT(a[i].calls, round);
        for (int64_t until = t_now_ms() + 25000; finished < N && t_now_ms() < until;)
            finished += (long)turn(c, 1000);
        CHECK_INT(finished, N);
        for (int i = 0; i < N; i++)
            if (a[i].calls != round + 1 || a[i].result != HF_OK)
                FAIL("%d: %d calls, %s: %s", i, a[i].calls, hf_err_name(a[i].result), a[i].message);
        CHECK_INT(server_int(s, "EVAL %s 0", "return #redis.call('KEYS', 'lock:n*')"),
                  round ? 0 : N);
    }
    long grown = memory("VmHWM:") - before;
    int texts = atoi(strstr(server_info(s, "cmdstat_eval"), "calls=") + 6);
    t_note("%d locked and unlocked in %lld ms; %ld KiB for the handles, %ld KiB at the peak; "
           "%d texts "
           "of scripts", N, (long long)(t_now_ms() - begun), handles - before, grown, texts);
    CHECK_RANGE(texts, 1, 20); /* the server knew none of them: one brings it for all */
#if !T_ADDRESS_SANITIZER
    CHECK_RANGE(grown, 0, 80 * 1024);
#endif
    for (int i = 0; i < N; i++)
        hf_lock_free(m[i]);
    free(m);
    free(a);
    hf_client_free(c);
}

/* ---- the end of handles and clients ---- */

static int freed;

static void frees_itself(hf_err result, const hf_error *e, void *arg)
{
    (void)result;
    (void)e;
    hf_lock_free(arg);
    freed++;
}

TEST(done_may_free_the_handle)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *o = lock_of(other, "busy", 60000);
    lock_now(o);
    freed = 0;
    for (int i = 0; i < 40; i++) {
        hf_lock *m = lock_of(c, i % 2 ? "busy" : "free", 60000);
        CHECK_HF(hf_lock_acquire_async(m, i % 4 < 2 ? 0 : 60, frees_itself, m, &err), HF_OK);
    }
    for (int64_t until = t_now_ms() + 10000; freed < 40 && t_now_ms() < until;)
        turn(c, 1000);
    CHECK_INT(freed, 40);
    CHECK_INT(server_int(s, "EXISTS lock:free {lock:busy}:q {lock:free}:q"), 0);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P9_freeing_the_client_ends_what_is_under_way_as_cancelled_and_leaves_nothing)
{
    enum { N = 50 };
    struct server *s = server_start(NULL);
    hf_client *other = client_at(server_url(s), 0);
    hf_lock *o = lock_of(other, "a", 60000);
    lock_now(o);
    for (int round = 0; round < 4; round++) {
        hf_client *c = client_at(server_url(s), 5000);
        hf_lock *m[N], *held = lock_of(c, "held", 60000);
        struct answer a[N] = { 0 }, h = { 0 };
        lock_now(held);
        for (int i = 0; i < N; i++) {
            m[i] = lock_of(c, "a", 60000);
            CHECK_HF(hf_lock_acquire_async(m[i], HF_WAIT_FOREVER, note, &a[i], &err), HF_OK);
        }
        if (round == 1)
            CHECK_HF(hf_lock_release_async(held, note, &h, &err), HF_OK);
        if (round != 2)
            LOOP_QUEUE(c, s, "a", N);
        int64_t start = t_now_ms();
        hf_client_free(c);
        CHECK_TOOK(t_now_ms() - start, 0, 6000);
        for (int i = 0; i < N; i++) {
            CHECK_INT(a[i].calls, 1);
            if (a[i].result != HF_ECANCELED)
                FAIL("%d: %s: %s", i, hf_err_name(a[i].result), a[i].message);
            hf_lock_free(m[i]);
        }
        if (round == 1) {
            CHECK_INT(h.calls, 1);
            CHECK_INT(h.result, HF_OK);
        }
        hf_lock_free(held);
        CHECK_INT(queue_of(s, "a"), 0);
        CHECK_INT(server_int(s, "EXISTS lock:held"), 0);
        CHECK_HF(hf_lock_verify(o, &err), HF_OK);
    }
    unlock_now(o);
    hf_lock_free(o);
    hf_client_free(other);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* A handle that was freed while its request is under way: it must not be used, nor stall others. */
TEST(freeing_the_client_while_the_lock_is_handed_over_does_not_stall_the_next)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *next = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 60000);
    int64_t worst = 0;
    for (int round = 0; round < 25; round++) {
        hf_client *c = client_at(server_url(s), 5000);
        hf_lock *w[5];
        struct answer a[5] = { 0 };
        lock_now(m);
        for (int i = 0; i < 5; i++) {
            w[i] = lock_of(c, "a", 60000);
            CHECK_HF(hf_lock_acquire_async(w[i], HF_WAIT_FOREVER, note, &a[i], &err), HF_OK);
        }
        LOOP_QUEUE(c, s, "a", 5);
        unlock_now(m); /* to the first of them */
        usleep((useconds_t)t_random(600));
        hf_client_free(c);
        struct locker l = { .m = lock_of(next, "a", 60000), .wait_ms = 20000 };
        int64_t start = t_now_ms();
        locker_start(&l);
        locker_join(&l, HF_OK);
        CHECK_TOOK(t_now_ms() - start, 0, 500);
        if (t_now_ms() - start > worst)
            worst = t_now_ms() - start;
        unlock_now(l.m);
        for (int i = 0; i < 5; i++) {
            CHECK_INT(a[i].calls, 1);
            CHECK(a[i].result == HF_ECANCELED || a[i].result == HF_OK);
            hf_lock_free(w[i]);
        }
        hf_lock_free(l.m);
    }
    t_note("the next one waited at most %lld ms", (long long)worst);
    hf_lock_free(m);
    hf_client_free(holder);
    hf_client_free(next);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* ---- trouble ---- */

TEST(P8_requests_without_blocking_survive_a_connection_that_breaks_all_the_time)
{
    enum { N = 12 };
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 3000);
    hf_lock *m[N];
    struct answer a[N] = { 0 };
    int held[N] = { 0 }, pending[N] = { 0 }, ok = 0;
    for (int i = 0; i < N; i++)
        m[i] = lock_of(c, "a", 30000);
    for (int64_t until = t_now_ms() + 4000, broke = 0; t_now_ms() < until;) {
        for (int i = 0; i < N; i++) {
            if (pending[i] == a[i].calls) {
                if (pending[i] && a[i].result == HF_OK && !held[i]) {
                    held[i] = 1;
                    ok++;
                } else {
                    held[i] = 0;
                }
                pending[i]++;
                hf_err e = held[i] ? hf_lock_release_async(m[i], note, &a[i], &err)
                                   : hf_lock_acquire_async(m[i], 2000, note, &a[i], &err);
                CHECK_INT(e, HF_OK);
            }
        }
        turn(c, 5);
        if (t_now_ms() - broke > 40) {
            proxy_break(p);
            broke = t_now_ms();
        }
    }
    t_note("%d grants over %ld connections", ok, proxy_connections(p));
    CHECK(proxy_connections(p) > 20);
    CHECK(ok > 20);
    hf_client_free(c);
    for (int i = 0; i < N; i++) {
        CHECK_INT(a[i].calls, pending[i]);
        hf_lock_free(m[i]);
    }
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 3000);
    check_only_ttls(s);
}

TEST(a_server_that_is_gone_is_reported_by_callback_within_the_limit)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 300);
    hf_lock *m = lock_of(c, "a", 5000), *h = lock_of(c, "h", 60000);
    struct answer a = { 0 };
    lock_now(h);
    server_kill(s);
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_until(c, &a, 1);
    CHECK(a.result == HF_ECONN || a.result == HF_EUNSURE);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire_async(m, 800, note, &a, &err), HF_OK);
    loop_until(c, &a, 2);
    CHECK(a.result == HF_ECONN || a.result == HF_EUNSURE);
    CHECK_TOOK(t_now_ms() - start, 500, 4000);
    CHECK_HF(hf_lock_release_async(h, note, &a, &err), HF_OK);
    loop_until(c, &a, 3);
    CHECK(a.result == HF_ECONN || a.result == HF_EUNSURE);
    hf_lock_free(m);
    hf_lock_free(h);
    hf_client_free(c);
}

static void *try_it(void *m)
{
    (void)!hf_lock_try(m, NULL, NULL);
    return NULL;
}

TEST(P8_what_a_blocking_caller_left_unwritten_is_written)
{
    struct server *s = server_start(NULL);
    hf_client *other = client_at(server_url(s), 0), *c = client_at(server_url(s), 4000);
    hf_lock *held = lock_of(other, "a", 60000), *m[4];
    struct answer a[4] = { 0 };
    pthread_t thread;
    lock_now(held);
    for (int i = 0; i < 4; i++) {
        m[i] = lock_of(c, "a", 60000);
        CHECK_HF(hf_lock_try(m[i], NULL, &err), HF_EBUSY);
    }
    server_freeze(s);
    for (int i = 0; i < 2; i++)
        CHECK_HF(hf_lock_acquire_async(m[i], 0, note, &a[i], &err), HF_OK);
    CHECK_INT(pthread_create(&thread, NULL, try_it, m[2]), 0);
    t_sleep_ms(100); /* it reads, and the server has enough to do: what comes now waits for it */
    CHECK_HF(hf_lock_acquire_async(m[3], 0, note, &a[3], &err), HF_OK);
    int64_t start = t_now_ms();
    server_thaw(s);
    CHECK_INT(pthread_join(thread, NULL), 0);
    for (int i = 0; i < 4; i += i ? 2 : 1) {
        loop_until(c, &a[i], 1);
        CHECK_INT(a[i].result, HF_EBUSY);
    }
    CHECK_TOOK(t_now_ms() - start, 0, 2000);
    for (int i = 0; i < 4; i++)
        hf_lock_free(m[i]);
    hf_lock_free(held);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P8_a_write_that_finds_the_connection_closed_makes_another)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 4000);
    hf_lock *m = lock_of(c, "a", 60000);
    struct answer a = { 0 };
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_until(c, &a, 1);
    CHECK_HF(hf_lock_release_async(m, note, &a, &err), HF_OK);
    loop_until(c, &a, 2);
    proxy_break(p);
    t_sleep_ms(100);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_until(c, &a, 3);
    CHECK_INT(a.result, HF_OK);
    CHECK_TOOK(t_now_ms() - start, 0, 2000);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P8_a_connection_that_fell_silent_is_replaced_also_without_blocking)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_with(proxy_url(p), (hf_client_opts){ .timeout_ms = 1500, .replicas = 1 });
    hf_lock *m = lock_of(c, "a", 60000);
    struct answer a = { 0 };
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_for(c, &a, HF_EREPLICAS); /* there are none: but it was answered */
    proxy_drop_replies(p);
    CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
    loop_until(c, &a, 2);
    CHECK(a.result != HF_EREPLICAS);
    CHECK(proxy_dropped(p) > 0);
    proxy_pass(p); /* what lost a reply stays silent */
    for (int i = 0; i < 4 && a.result != HF_EREPLICAS; i++) {
        CHECK_HF(hf_lock_acquire_async(m, 0, note, &a, &err), HF_OK);
        loop_until(c, &a, a.calls + 1);
    }
    CHECK_INT(a.result, HF_EREPLICAS);
    hf_lock_free(m);
    hf_client_free(c);
}
