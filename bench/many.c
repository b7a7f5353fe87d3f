/* SPDX-License-Identifier: MIT
 * many.c - one client with very many handles: what happens to all of them at once takes a time that
 * grows with their number, and not with its square.
 *
 *   MANY=100000 WAITING=20000 build/bench/many
 */
#include <holdfast.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/cluster.h"
#include "harness/server.h"
#include "harness/t.h"

static size_t number(const char *name, size_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoul(text, NULL, 10) : otherwise;
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

static hf_lock *open_lock(hf_client *c, size_t i, const char *what, int64_t ttl_ms)
{
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = ttl_ms };
    hf_lock *m = NULL;
    hf_error e;
    char name[40];
    snprintf(name, sizeof name, "%s%zu", what, i);
    if (hf_lock_open(c, hf_str(name), &o, &m, &e))
        FAIL("%s", e.message);
    return m;
}

static struct {
    size_t done, unsure;
    hf_err expected;
} got;

static void note(hf_err result, const hf_error *err, void *arg)
{
    (void)arg;
    got.done++;
    got.unsure += result == HF_EUNSURE; /* its cancellation is tried again in the background */
    if (result != got.expected && result != HF_EUNSURE)
        FAIL("%s", err && err->message[0] ? err->message : hf_err_text(result));
}

static void dispatch_until(hf_client *c, size_t n, int64_t limit_ms)
{
    int64_t until = t_now_ms() + limit_ms;
    struct pollfd p = { .events = POLLIN };
    CHECK_INT(hf_client_fd(c, &p.fd, NULL), HF_OK);
    while (got.done < n) {
        if (t_now_ms() > until)
            FAIL("%zu of %zu after %lld ms", got.done, n, (long long)limit_ms);
        poll(&p, 1, 100);
        hf_client_dispatch(c);
    }
}

static void take_all(hf_client *c, hf_lock **m, size_t n)
{
    got.done = got.unsure = 0;
    got.expected = HF_OK;
    for (size_t i = 0; i < n; i++) {
        CHECK_INT(hf_lock_acquire_async(m[i], 0, note, NULL, NULL), HF_OK);
        if (i % 1000 == 999)
            dispatch_until(c, i + 1, 30000);
    }
    dispatch_until(c, n, 30000);
}

static size_t in_state(hf_lock **m, size_t n, hf_state state)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += hf_lock_state(m[i]) == state;
    return found;
}

/* How long it takes until all are in this state. */
static double all_in(hf_lock **m, size_t n, hf_state state, int64_t limit_ms)
{
    int64_t start = t_now_ns();
    while (in_state(m, n, state) < n && seconds_since(start) * 1000 < (double)limit_ms)
        t_sleep_ms(5);
    double took = seconds_since(start);
    size_t found = in_state(m, n, state);
    if (found < n)
        printf("# only %zu of %zu are %s: %zu are safe, %zu in doubt, %zu lost\n", found, n,
               hf_state_text(state), in_state(m, n, HF_STATE_SAFE),
               in_state(m, n, HF_STATE_IN_DOUBT), in_state(m, n, HF_STATE_LOST));
    return took;
}

/* What somebody else of the same client notices of it: the longest acquire and release in ms. */
static double longest_call(hf_client *c, int64_t for_ms)
{
    hf_lock *m = open_lock(c, 0, "beside", 30000);
    double longest = 0;
    for (int64_t until = t_now_ms() + for_ms; t_now_ms() < until;) {
        int64_t start = t_now_ns();
        CHECK_INT(hf_lock_acquire(m, 30000, NULL, NULL), HF_OK);
        CHECK_INT(hf_lock_release(m, NULL), HF_OK);
        double took = seconds_since(start) * 1000;
        longest = took > longest ? took : longest;
        t_sleep_ms(1);
    }
    hf_lock_free(m);
    return longest;
}

static void free_all(hf_lock **m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hf_lock_free(m[i]);
}

TEST_TIMEOUT(held, 300)
{
    size_t n = number("MANY", 100000);
    hf_lock **m = calloc(n, sizeof *m);
    CHECK(m);
    struct server *s = server_start(NULL);
    hf_client *c = open_client(s);
    int64_t start = t_now_ns();
    for (size_t i = 0; i < n; i++)
        m[i] = open_lock(c, i, "bench", 60000);
    printf("# %zu handles: opened in %.2f s\n", n, seconds_since(start));
    start = t_now_ns();
    take_all(c, m, n);
    printf("# acquired in %.2f s\n", seconds_since(start));
    printf("# beside them the longest acquire and release takes %.1f ms\n", longest_call(c, 2000));

    int64_t full = hf_lock_full_time_ms(m[0]);
    server_freeze(s);
    t_sleep_ms(full * 6 / 10);
    size_t doubted = in_state(m, n, HF_STATE_IN_DOUBT);
    server_thaw(s);
    double safe = all_in(m, n, HF_STATE_SAFE, 20000);
    printf("# server frozen for %.1f s: %zu in doubt; all safe again after %.3f s (aim <= 1)\n",
           (double)full * 0.6 / 1000, doubted, safe);

    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    server_ask(s, "CLIENT KILL TYPE pubsub");
    double longest = longest_call(c, 3000);
    printf("# connections cut: the longest acquire and release beside it takes %.1f ms; %zu "
           "lost\n", longest, in_state(m, n, HF_STATE_LOST));
    safe = all_in(m, n, HF_STATE_SAFE, 20000);
    printf("# ... all safe %.3f s after that\n", safe);

    size_t count;
    start = t_now_ns();
    hf_error err;
    hf_err e = hf_client_release_all(c, &count, &err);
    printf("# release_all in %.2f s (aim <= 3)%s%s\n", seconds_since(start), e ? ": " : "",
           e ? err.message : "");
    take_all(c, m, n);
    start = t_now_ns();
    server_ask(s, "FLUSHALL");
    double lost = all_in(m, n, HF_STATE_LOST, 30000);
    printf("# FLUSHALL: all lost after %.2f s\n", lost);
    start = t_now_ns();
    e = hf_client_release_all(c, &count, &err);
    printf("# release_all of what is lost in %.2f s: %s\n", seconds_since(start),
           hf_err_text(e));
    take_all(c, m, n);
    start = t_now_ns();
    hf_client_free(c);
    printf("# client freed while all are held: %.2f s; %lld locks left\n", seconds_since(start),
           server_int(s, "EXISTS lock:bench0 lock:bench%d", (int)n - 1));
    start = t_now_ns();
    free_all(m, n);
    printf("# handles freed in %.2f s\n", seconds_since(start));
    free(m);
}

/* How long it works in that time, in seconds. */
static double dispatch_for(hf_client *c, int64_t ms)
{
    int64_t busy = 0;
    for (int64_t until = t_now_ms() + ms; t_now_ms() < until;) {
        int64_t from = t_now_ns();
        hf_client_dispatch(c);
        busy += t_now_ns() - from;
        t_sleep_ms(1);
    }
    return (double)busy / 1e9;
}

/* All wait for one lock, or each for one of its own, which another client holds. */
static void waiting(int one)
{
    size_t n = number("WAITING", 20000), locks = one ? 1 : n;
    hf_lock **m = calloc(n, sizeof *m), **h = calloc(locks, sizeof *h);
    CHECK(m && h);
    struct server *s = server_start(NULL);
    hf_client *holder = open_client(s), *c = open_client(s);
    for (size_t i = 0; i < locks; i++)
        h[i] = open_lock(holder, i, "bench", 600000);
    take_all(holder, h, locks);
    for (size_t i = 0; i < n; i++)
        m[i] = open_lock(c, one ? 0 : i, "bench", 60000);
    for (int closes = 0; closes < 2; closes++) {
        int64_t start = t_now_ns();
        got.done = got.unsure = 0;
        got.expected = HF_ECANCELED;
        for (size_t i = 0; i < n; i++)
            CHECK_INT(hf_lock_acquire_async(m[i], HF_WAIT_FOREVER, note, NULL, NULL), HF_OK);
        CHECK_EVENTUALLY((hf_client_dispatch(c),
                          server_int(s, "ZCARD {lock:bench0}:q") == (one ? (long long)n : 1)
                          && server_int(s, "ZCARD {lock:bench%d}:q", (int)locks - 1) > 0), 60000);
        printf("# %zu wait for %zu lock(s) after %.2f s\n", n, locks, seconds_since(start));
        dispatch_for(c, 1000);
        if (closes)
            break;
        server_ask(s, "CLIENT KILL TYPE pubsub");
        double busy = dispatch_for(c, 5000);
        printf("# session's connection cut: %.2f s of work in dispatch in 5 s, %.2f in the next "
               "5\n", busy, dispatch_for(c, 5000));
        start = t_now_ns();
        for (size_t i = 0; i < n; i++)
            hf_lock_cancel(m[i]);
        dispatch_until(c, n, 60000);
        printf("# all cancelled in %.2f s, %zu of them unsure\n", seconds_since(start), got.unsure);
        start = t_now_ns();
        CHECK_EVENTUALLY((hf_client_dispatch(c), server_int(s, "ZCARD {lock:bench0}:q") == 0
                          && server_int(s, "ZCARD {lock:bench%d}:q", (int)locks - 1) == 0),
                         60000);
        printf("# ... nothing of them left on the server %.2f s after that\n",
               seconds_since(start));
    }
    int64_t start = t_now_ns();
    hf_client_free(c);
    printf("# client freed while all wait: %.2f s\n", seconds_since(start));
    CHECK_INT(got.done, n);
    free_all(m, n);
    free_all(h, locks);
    hf_client_free(holder);
    free(m);
    free(h);
}

TEST_TIMEOUT(waiting_for_one, 300)
{
    waiting(1);
}

TEST_TIMEOUT(waiting_for_many, 300)
{
    waiting(0);
}

/* Processor time of this process within so many ms, in seconds. */
static double processor_in(int64_t ms)
{
    clock_t from = clock();
    t_sleep_ms(ms);
    return (double)(clock() - from) / CLOCKS_PER_SEC;
}

/* How many channels the session's connection has. */
static long channels(struct server *s)
{
    const char *p = strstr(server_ask(s, "CLIENT LIST TYPE pubsub"), " ssub=");
    return p ? strtol(p + 6, NULL, 10) : 0;
}

/* In a cluster each slot in use is a channel of its own. */
TEST_TIMEOUT(slots_of_a_cluster, 300)
{
    size_t n = number("SLOTS", 20000);
    hf_lock **m = calloc(n, sizeof *m);
    CHECK(m);
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .masters = 3, .no_replicas = 1 });
    struct server *s = cl->node[0];
    hf_client *c = NULL;
    hf_error e;
    if (hf_client_open(cl->url, NULL, &c, &e))
        FAIL("%s", e.message);
    for (size_t i = 0; i < n; i++)
        m[i] = open_lock(c, i, "bench", 120000);
    int64_t start = t_now_ns();
    take_all(c, m, n);
    long before = channels(s);
    printf("# %zu locks in a cluster: acquired in %.2f s, %ld channels at one server\n", n,
           seconds_since(start), before);
    t_sleep_ms(1000);
    double idle = processor_in(2000);
    start = t_now_ns();
    server_ask(s, "CLIENT KILL TYPE pubsub");
    CHECK_EVENTUALLY(channels(s) == before, 60000);
    double again = seconds_since(start);
    printf("# its session's connection cut: all channels again after %.3f s; processor time in the "
           "next 2 s %.3f s, without that %.3f\n", again, processor_in(2000), idle);
    printf("# ... all safe %.3f s after that, %zu lost\n",
           all_in(m, n, HF_STATE_SAFE, 20000), in_state(m, n, HF_STATE_LOST));
    hf_client_free(c);
    free_all(m, n);
    free(m);
}
