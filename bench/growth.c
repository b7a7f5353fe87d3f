/* SPDX-License-Identifier: MIT
 * growth.c - what must not grow: the cost of one lock, one handoff, one renewal, with few and with
 * many waiters, held locks, names, threads and clients. These are also the unit costs of
 * docs/scale.md.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "harness/proc.h"
#include "harness/t.h"
#include "lib/async.h"
#include "lib/contest.h"
#include "lib/crowd.h"
#include "lib/locks.h"
#include "lib/pairs.h"

static struct server *start(void)
{
    static const char *const many[] = { "--maxclients", "12000", NULL };
    return server_start_opts(&(struct server_opts){ .tcp = 1, .args = many });
}

/* Of the server's processor, us in a second in which we do nothing. */
static double idle_rate(const struct server *s, int64_t ms)
{
    double cpu = meter_server_us(s);
    int64_t start_ns = t_now_ns();
    t_sleep_ms(ms);
    return (meter_server_us(s) - cpu) / meter_seconds_since(start_ns);
}

/* One pair of lock and unlock more, whatever there is besides, which takes so much of the server's
 * processor in a second. */
static void one_pair(const char *what, double size, struct server *s, double idle)
{
    struct pairs p = { .s = s, .client = bench_client(server_tcp_url(s)), .threads = 1,
                       .run_ms = 500 };
    struct cost c = pairs_by_holdfast(&p);
    report_growth(what, size, "pair p50 us", c.is[COST_P50]);
    report_growth(what, size, "server us per pair", c.is[COST_SERVER] - idle / c.is[COST_RATE]);
    hf_client_free(p.client);
}

/* ---- waiters for one lock ---- */

TEST_TIMEOUT(growth_waiters, 600)
{
    static const int size[] = { 1, 10, 100, 1000, 10000 };
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        struct crowd_result r = crowd_measure(size[i], 2000, 1);
        report_growth("waiters", size[i], "enqueue us each", r.enqueue_us);
        report_growth("waiters", size[i], "handoff us", r.handoff_us);
        report_growth("waiters", size[i], "server us per handoff", r.handoff_server_us);
        report_growth("waiters", size[i], "idle commands/s, all", r.idle_commands);
        report_growth("waiters", size[i], "idle server us/s, all", r.idle_us);
        if (size[i] < 100)
            continue; /* what there is only once would be most of it */
        report_growth("waiters", size[i], "client bytes each", r.client_bytes);
        report_growth("waiters", size[i], "server bytes each", r.server_bytes);
    }
}

/* ---- locks that are held ---- */

enum { TTL_MS = 12000, ROUND_MS = TTL_MS / 3 };

/* One round of renewals, and the looks that come with it; us of the server in a second. */
static double renew(struct server *s, int n, double nobody)
{
    double sent = meter_commands(s, "eval evalsha"), idle = idle_rate(s, ROUND_MS);
    report_growth("held", n, "server us/s, all", fmax(idle - nobody, 0));
    if (n >= 100)
        report_growth("held", n, "server us/s per lock", fmax(idle - nobody, 0) / n);
    report_growth("held", n, "commands per round, all", meter_commands(s, "eval evalsha") - sent);
    return idle;
}

static void held(int n)
{
    struct server *s = start();
    hf_client *c = bench_client(server_tcp_url(s));
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = TTL_MS };
    hf_lock *first = bench_lock(c, "first", &o);
    bench_pair(first); /* the scripts are there */
    double nobody = idle_rate(s, 1000), heap = meter_heap(), memory = meter_server_memory(s);
    int64_t start_ns = t_now_ns();
    hf_lock **m = bench_hold_many(c, "held", n, &o);
    report_growth("held", n, "taken in us each", meter_seconds_since(start_ns) * 1e6 / n);
    if (n >= 100) {
        report_growth("held", n, "client bytes each", (meter_heap() - heap) / n);
        report_growth("held", n, "server bytes each", (meter_server_memory(s) - memory) / n);
    }
    t_sleep_ms(1000);
    one_pair("held", n, s, renew(s, n, nobody));
    report_growth("held", n, "lost", bench_count_lost(m, n));
    start_ns = t_now_ns();
    hf_err ignored = hf_client_release_all(c, NULL, NULL); /* of those that are not lost */
    (void)ignored;
    report_growth("held", n, "released in us each", meter_seconds_since(start_ns) * 1e6 / n);
    bench_free_many(m, n);
    hf_lock_free(first);
    hf_client_free(c);
}

TEST_TIMEOUT(growth_held, 600)
{
    held(1);
    held(100);
    held(1000);
    held(10000);
    held(100000);
}

/* The same with a ttl so long that nothing is renewed meanwhile: the looks at the keys alone. */
TEST_TIMEOUT(growth_looks, 600)
{
    static const int size[] = { 1, 100, 1000, 10000, 100000 };
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 600000 };
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        struct server *s = start();
        hf_client *c = bench_client(server_tcp_url(s));
        hf_lock *first = bench_lock(c, "first", &o);
        bench_pair(first);
        double nobody = idle_rate(s, 1000);
        hf_lock **m = bench_hold_many(c, "held", size[i], &o);
        t_sleep_ms(1000);
        double sent = meter_commands(s, "evalsha"), inside = meter_script_us(s);
        double looks = fmax(idle_rate(s, 3000) - nobody, 0);
        report_growth("held, not renewed", size[i], "scripts/s, all",
                      (meter_commands(s, "evalsha") - sent) / 3);
        report_growth("held, not renewed", size[i], "us/s in them, all",
                      (meter_script_us(s) - inside) / 3);
        report_growth("held, not renewed", size[i], "server us/s, all", looks);
        if (size[i] >= 100)
            report_growth("held, not renewed", size[i], "server us/s per lock", looks / size[i]);
        bench_free_many(m, size[i]);
        hf_lock_free(first);
        hf_client_free(c);
    }
}

/* ---- names that were used once ---- */

static void use_names(hf_client *c, int from, int to)
{
    while (from < to) {
        char prefix[32];
        int n = to - from < 1000 ? to - from : 1000;
        snprintf(prefix, sizeof prefix, "used%d-", from);
        hf_lock **m = bench_hold_many(c, prefix, n, NULL);
        hf_err ignored = hf_client_release_all(c, NULL, NULL);
        (void)ignored;
        bench_free_many(m, n);
        from += n;
    }
}

TEST_TIMEOUT(growth_names, 600)
{
    static const int size[] = { 1, 1000, 10000, 100000, 300000 };
    struct server *s = start();
    hf_client *c = bench_client(server_tcp_url(s));
    use_names(c, 0, 1000);
    double heap = meter_heap(), memory = meter_server_memory(s);
    int used = 0;
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        use_names(c, used, size[i]);
        used = size[i];
        one_pair("names", used, s, 0);
        report_growth("names", used, "keys left", (double)server_int(s, "DBSIZE"));
        report_growth("names", used, "client bytes left", meter_heap() - heap);
        report_growth("names", used, "server bytes left", meter_server_memory(s) - memory);
    }
    hf_client_free(c);
}

/* ---- threads of one client ---- */

TEST_TIMEOUT(growth_threads, 600)
{
    static const int size[] = { 1, 4, 16, 64, 256 };
    struct pairs p = { .run_ms = 1000, .s = start() };
    p.client = bench_client(server_tcp_url(p.s));
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        p.threads = size[i];
        struct cost c = pairs_by_holdfast(&p);
        report_growth("threads", size[i], "pairs/s", c.is[COST_RATE]);
        report_growth("threads", size[i], "server us per pair", c.is[COST_SERVER]);
        report_growth("threads", size[i], "client us per pair", c.is[COST_CLIENT]);
        report_growth("threads", size[i], "switches per pair", c.is[COST_SWITCHES]);
    }
    hf_client_free(p.client);
}

/* The same without threads. */
TEST_TIMEOUT(growth_under_way, 600)
{
    static const int size[] = { 1, 64, 256, 1000, 10000 };
    struct server *s = start();
    hf_client *c = bench_client(server_tcp_url(s));
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        struct cost cost = async_measure(s, c, size[i], 1000);
        report_growth("under way", size[i], "pairs/s", cost.is[COST_RATE]);
        report_growth("under way", size[i], "server us per pair", cost.is[COST_SERVER]);
        report_growth("under way", size[i], "client us per pair", cost.is[COST_CLIENT]);
    }
    hf_client_free(c);
}

/* ---- clients of one server ---- */

enum { EACH = 250 }; /* clients of one process */

struct clients {
    const char    *what;
    struct server *s;
    int            connections; /* two for each client */
    int            waiting;     /* all for one lock; else each holds one */
};

static void *wait_for_ever(void *lock)
{
    bench_wait(lock);
    return NULL;
}

static void be_clients(int index, void *arg)
{
    struct clients *cl = arg;
    int n = cl->connections / 2 - index * EACH;
    for (int i = 0; i < n && i < EACH; i++) {
        char name[32];
        pthread_t thread;
        snprintf(name, sizeof name, "client%d-%d", index, i);
        hf_client *c = bench_client(server_tcp_url(cl->s));
        hf_lock *m = bench_lock(c, cl->waiting ? "first" : name, NULL);
        if (cl->waiting)
            CHECK_INT(pthread_create(&thread, NULL, wait_for_ever, m), 0);
        else
            bench_take(m);
    }
    for (;;)
        t_sleep_ms(1000);
}

static long long ready(const struct clients *cl)
{
    return cl->waiting
               ? server_int(cl->s, "ZCARD {lock:first}:q")
               : server_int(cl->s, "EVAL %s 0", "return #redis.call('KEYS', 'lock:client*')");
}

static void measure_clients(struct clients *cl)
{
    int processes = (cl->connections / 2 + EACH - 1) / EACH;
    double each = cl->connections / 2;
    cl->s = start();
    hf_client *first = bench_client(server_tcp_url(cl->s));
    hf_lock *m = bench_lock(first, "first", NULL);
    bench_take(m); /* the scripts are there */
    double nobody = idle_rate(cl->s, 1000), memory = meter_server_memory(cl->s);
    struct workers *w = workers_start(processes, be_clients, cl);
    while (ready(cl) < each)
        t_sleep_ms(100);
    t_sleep_ms(1500);
    report_growth(cl->what, cl->connections, "server bytes per client",
                  (meter_server_memory(cl->s) - memory) / each);
    double idle = idle_rate(cl->s, 3000);
    report_growth(cl->what, cl->connections, "idle server us/s per client",
                  fmax(idle - nobody, 0) / each);
    one_pair(cl->what, cl->connections, cl->s, idle);
    for (int i = 0; i < processes; i++)
        workers_signal(w, i, SIGKILL);
    workers_join(w, 60000);
    hf_lock_free(m);
    hf_client_free(first);
}

/* So many connections of clients that hold a lock each, or wait for one, and do nothing else. */
static void clients(const char *what, int waiting)
{
    static const int size[] = { 2, 20, 200, 1000, 5000 };
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files); /* the server's too */
    for (size_t i = 0; i < sizeof size / sizeof size[0]; i++) {
        struct clients cl = { .what = what, .connections = size[i], .waiting = waiting };
        if (files.rlim_cur < (rlim_t)size[i] + 100)
            t_note("%s %d: left out, as only %llu files may be open (ulimit -n)", what, size[i],
                   (unsigned long long)files.rlim_cur);
        else
            measure_clients(&cl);
    }
}

TEST_TIMEOUT(growth_clients, 600)
{
    clients("connections, holding", 0);
}

TEST_TIMEOUT(growth_waiting_clients, 600)
{
    clients("connections, waiting", 1);
}
