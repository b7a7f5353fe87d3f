/* SPDX-License-Identifier: MIT
 * waiters.c - what many waiters and many held locks of one process cost: commands while nothing
 * happens, connections, memory, and the time until all have been served; and how long a lock stays
 * with a holder that was killed.
 */
#include <holdfast.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/proc.h"
#include "harness/server.h"
#include "harness/t.h"

/* ---- small tools ---------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double calls(struct server *s, const char *command)
{
    char field[40];
    snprintf(field, sizeof field, "cmdstat_%s:calls=", command);
    const char *p = strstr(server_ask(s, "INFO commandstats"), field);
    return p ? strtod(p + strlen(field), NULL) : 0;
}

/* Commands that clients sent, pings apart. INFO counts what scripts do, too: these only clients
 * use. */
static double commands(struct server *s)
{
    return calls(s, "eval") + calls(s, "evalsha") + calls(s, "subscribe");
}

static size_t memory(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

static double seconds_since(int64_t start_ns)
{
    return (double)(t_now_ns() - start_ns) / 1e9;
}

static hf_client *open_client(const struct server *s)
{
    hf_client *c = NULL;
    hf_error e;
    if (hf_client_open(server_url(s), NULL, &c, &e))
        FAIL("%s", e.message);
    return c;
}

static hf_lock *open_lock(hf_client *c, const char *name, const hf_lock_opts *o)
{
    hf_lock *m = NULL;
    hf_error e;
    if (hf_lock_open(c, hf_str(name), o, &m, &e))
        FAIL("%s", e.message);
    return m;
}

/* ---- many waiters of one process ------------------------------------------------------------- */

static struct {
    size_t   served, late; /* late: somebody who asked later came first */
    size_t   last;
    uint64_t fence;
    int      async; /* how each gives it back */
    hf_lock **m;
} crowd;

static void released(hf_err result, const hf_error *err, void *arg)
{
    (void)arg;
    if (result)
        FAIL("%s", err ? err->message : hf_err_text(result));
}

static void granted(hf_err result, const hf_error *err, void *arg)
{
    size_t index = (size_t)(intptr_t)arg;
    hf_lock *m = crowd.m[index];
    hf_error e;
    if (result)
        FAIL("after %zu: %s", crowd.served, err ? err->message : hf_err_text(result));
    CHECK(hf_lock_fence(m) > crowd.fence);
    crowd.fence = hf_lock_fence(m);
    crowd.late += index < crowd.last;
    crowd.last = index;
    crowd.served++;
    if (crowd.async ? hf_lock_release_async(m, released, NULL, &e) : hf_lock_release(m, &e))
        FAIL("%s", e.message);
}

static void dispatch_until(hf_client *c, size_t n, int64_t limit_ms)
{
    int64_t until = t_now_ms() + limit_ms;
    struct pollfd p = { .events = POLLIN };
    CHECK_INT(hf_client_fd(c, &p.fd, NULL), HF_OK);
    while (crowd.served < n) {
        if (t_now_ms() > until)
            FAIL("%zu of %zu served after %lld ms", crowd.served, n, (long long)limit_ms);
        poll(&p, 1, 100);
        hf_client_dispatch(c);
    }
}

static void many_waiters(size_t n, int async)
{
    struct server *s = server_start(NULL);
    hf_client *first = open_client(s);
    hf_lock *held = open_lock(first, "bench", NULL), **m = calloc(n, sizeof *m);
    CHECK(m);
    CHECK_INT(hf_lock_try(held, NULL, NULL), HF_OK);
    t_sleep_ms(300); /* its record is written */
    double connected = strtod(server_info(s, "connected_clients"), NULL);
    memset(&crowd, 0, sizeof crowd);
    crowd.async = async;
    crowd.m = m;

    hf_client *c = open_client(s);
    size_t empty = memory();
    for (size_t i = 0; i < n; i++)
        m[i] = open_lock(c, "bench", NULL);
    size_t opened = memory();
    int64_t start = t_now_ns();
    for (size_t i = 0; i < n; i++)
        CHECK_INT(hf_lock_acquire_async(m[i], HF_WAIT_FOREVER, granted, (void *)(intptr_t)i,
                                        NULL), HF_OK);
    CHECK_EVENTUALLY((hf_client_dispatch(c), /* they move only then */
                      server_int(s, "ZCARD {lock:bench}:q") == (long long)n), 60000);
    double enqueue = seconds_since(start);
    size_t waiting = memory();
    connected = strtod(server_info(s, "connected_clients"), NULL) - connected;

    t_sleep_ms(1000);
    double before = commands(s);
    start = t_now_ns();
    t_sleep_ms(3000);
    double idle = (commands(s) - before) / seconds_since(start);

    before = commands(s);
    start = t_now_ns();
    CHECK_INT(hf_lock_release(held, NULL), HF_OK);
    dispatch_until(c, n, 120000);
    double drain = seconds_since(start);
    printf("# %5zu waiters: enqueued in %.3f s (%.0f us each)   idle %.1f commands/s (aim <= 5)   "
           "%.0f connections (aim 2)   memory %.0f = handle %.0f + wait %.0f bytes each "
           "(aim <= 1024)\n", n, enqueue, enqueue * 1e6 / (double)n, idle, connected,
           (double)(waiting - empty) / (double)n,
           (double)(opened - empty) / (double)n, (double)(waiting - opened) / (double)n);
    printf("# %5zu waiters: drained in %.3f s (%.0f us and %.2f commands each, %s)   out of order: "
           "%zu\n", n, drain, drain * 1e6 / (double)n, (commands(s) - before) / (double)n,
           async ? "unlock_async" : "unlock", crowd.late);
    t_sleep_ms(200);
    hf_client_dispatch(c);
    for (size_t i = 0; i < n; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    hf_lock_free(held);
    hf_client_free(first);
    free(m);
}

TEST_TIMEOUT(waiters_64, 60)
{
    many_waiters(64, 0);
}

TEST_TIMEOUT(waiters_1000, 60)
{
    many_waiters(1000, 0);
}

TEST_TIMEOUT(waiters_1000_unlocking_without_blocking, 60)
{
    many_waiters(1000, 1);
}

TEST_TIMEOUT(waiters_10000, 240)
{
    many_waiters(10000, 0);
}

/* ---- a killed holder ------------------------------------------------------------------------- */

#define KILLS    10
#define GRACE_MS 1000

static const hf_lock_opts patient = { .size = sizeof patient, .ttl_ms = 60000,
                                       .grace_ms = GRACE_MS };

static void hold_for_ever(int index, void *arg)
{
    (void)index;
    hf_lock *m = open_lock(open_client(arg), "bench", &patient);
    CHECK_INT(hf_lock_acquire(m, HF_WAIT_FOREVER, NULL, NULL), HF_OK);
    for (;;)
        t_sleep_ms(1000);
}

static void killed_holder(int others)
{
    double ms[KILLS];
    struct server *s = server_start(NULL);
    for (int round = 0; round < KILLS; round++) {
        server_ask(s, "FLUSHALL");
        struct workers *w = workers_start(1, hold_for_ever, s);
        CHECK_EVENTUALLY(server_int(s, "EXISTS lock:bench") == 1, 5000);
        hf_client *c = open_client(s);
        hf_lock *m = open_lock(c, "bench", &patient);
        CHECK_INT(hf_lock_acquire_async(m, HF_WAIT_FOREVER, granted, NULL, NULL), HF_OK);
        CHECK_EVENTUALLY((hf_client_dispatch(c), server_int(s, "ZCARD {lock:bench}:q") == 1),
                         5000);
        struct workers *behind = workers_start(others, hold_for_ever, s);
        CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:bench}:q") == 1 + others, 5000);
        t_sleep_ms(500 + (int64_t)t_random(500));
        memset(&crowd, 0, sizeof crowd);
        crowd.m = &m;
        int64_t start = t_now_ns();
        workers_signal(w, 0, SIGKILL);
        dispatch_until(c, 1, 10000);
        ms[round] = seconds_since(start) * 1000;
        for (int i = 0; i < others; i++)
            workers_signal(behind, i, SIGKILL);
        workers_join(behind, 1000);
        workers_join(w, 1000);
        hf_lock_free(m);
        hf_client_free(c);
    }
    qsort(ms, KILLS, sizeof *ms, by_value);
    printf("# kill -9 of the holder, %d waiters, grace %d ms, ttl %lld s: next holder after %.0f "
           "ms (median of %d), %.0f to %.0f (aim <= grace + 600)\n", others + 1, GRACE_MS,
           (long long)patient.ttl_ms / 1000, ms[KILLS / 2], KILLS, ms[0], ms[KILLS - 1]);
}

TEST_TIMEOUT(killed_holder_one_waiter, 60)
{
    killed_holder(0);
}

TEST_TIMEOUT(killed_holder_eight_waiters, 120)
{
    killed_holder(7);
}

/* ---- many held locks ------------------------------------------------------------------------- */

TEST_TIMEOUT(ten_thousand_held_locks, 120)
{
    enum { LOCKS = 10000, TTL_MS = 9000, WATCH_MS = 9000 };
    static hf_lock *m[LOCKS];
    struct server *s = server_start(NULL);
    hf_client *c = open_client(s);
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = TTL_MS };
    size_t empty = memory();
    int64_t start = t_now_ns();
    for (int i = 0; i < LOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench%d", i);
        m[i] = open_lock(c, name, &o);
        CHECK_INT(hf_lock_try(m[i], NULL, NULL), HF_OK);
    }
    double taken = seconds_since(start), each = (double)(memory() - empty) / LOCKS;
    t_sleep_ms(1000);
    double before = commands(s);
    start = t_now_ns();
    t_sleep_ms(WATCH_MS);
    double rounds = seconds_since(start) * 1000 / (TTL_MS / 3);
    double sent = (commands(s) - before) / rounds;
    for (int i = 0; i < LOCKS; i++)
        CHECK(hf_lock_is_held(m[i]));
    printf("# %d held locks: taken in %.2f s   %.0f bytes each   %.0f commands per renewal round   "
           "%.0f times fewer than one each (aim >= 20)\n", (int)LOCKS, taken, each, sent,
           LOCKS / sent);
    size_t count;
    start = t_now_ns();
    CHECK_INT(hf_client_release_all(c, &count, NULL), HF_OK);
    CHECK_INT(count, LOCKS);
    printf("# %d held locks: unlock_all in %.2f s\n", (int)LOCKS, seconds_since(start));
    for (int i = 0; i < LOCKS; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}
