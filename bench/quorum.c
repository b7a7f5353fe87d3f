/* SPDX-License-Identifier: MIT
 * quorum.c - what a lock on a majority of servers costs, beside one server and beside bare sockets
 * in the same run.
 */
#include <math.h>
#include <stdio.h>

#include "harness/t.h"
#include "lib/contest.h"
#include "lib/locks.h"
#include "lib/majority.h"

enum { SERVERS = 5 };

/* Figures of one way to lock, over all turns. */
struct figures {
    struct samples lock, pair;
};

/* A name of its own each time: a server that was frozen may still have an old one to get rid of. */
static void measure(const char *url, int samples, struct figures *f)
{
    static int used;
    char name[32];
    hf_lock_opts o = { .size = sizeof o, .grace_ms = HF_NO_TAKEOVER };
    hf_client *c = bench_client(url);
    snprintf(name, sizeof name, "bench-%d", used++);
    hf_lock *m = bench_lock(c, name, &o);
    for (int i = -200; i < samples; i++) {
        int64_t begun = t_now_ns();
        bench_take(m);
        int64_t locked = t_now_ns();
        bench_give(m);
        if (i >= 0) {
            samples_add(&f->lock, (double)(locked - begun) / 1000);
            samples_add(&f->pair, (double)(t_now_ns() - begun) / 1000);
        }
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static struct cost cost_of(struct samples *us)
{
    struct cost c = cost_none();
    c.is[COST_P50] = samples_at(us, 50);
    c.is[COST_P99] = samples_at(us, 99);
    c.is[COST_MAX] = samples_at(us, 100);
    return c;
}

/* ---- against the aims ---- */

struct five {
    struct server **s;
    char            url[300];
    int             samples;
};

static struct cost lock_on(const char *url, int samples)
{
    struct figures f = { 0 };
    measure(url, samples, &f);
    struct cost c = cost_of(&f.lock);
    samples_free(&f.lock);
    samples_free(&f.pair);
    return c;
}

static struct cost lock_on_five(void *arg)
{
    struct five *f = arg;
    return lock_on(f->url, f->samples);
}

static struct cost lock_on_one(void *arg)
{
    struct five *f = arg;
    return lock_on(server_tcp_url(f->s[0]), f->samples);
}

/* Five servers are never spun for: what the wake-ups cost is on both sides here. */
static struct cost lock_on_one_asleep(void *arg)
{
    struct five *f = arg;
    char url[100];
    snprintf(url, sizeof url, "%s?spin=off", server_tcp_url(f->s[0]));
    return lock_on(url, f->samples);
}

static struct cost bare_on_five(void *arg)
{
    struct five *f = arg;
    struct samples us = { 0 };
    majority_rounds(f->s, SERVERS, f->samples, &us, NULL);
    struct cost c = cost_of(&us);
    samples_free(&us);
    return c;
}

static struct cost lock_with_two_frozen(void *arg)
{
    struct five *f = arg;
    server_freeze(f->s[0]);
    server_freeze(f->s[4]);
    struct cost c = lock_on(f->url, f->samples);
    server_thaw(f->s[0]);
    server_thaw(f->s[4]);
    return c;
}

TEST_TIMEOUT(aim_quorum, 300)
{
    struct five f = { .s = majority_servers(SERVERS), .samples = 1000 };
    majority_url(f.s, SERVERS, f.url, sizeof f.url);
    struct contest one = { .work = "quorum of 5: lock", .yardstick = "one server" };
    contest_run(&one, 3, lock_on_five, lock_on_one, &f);
    contest_ratio(&one, COST_P50, "<=", 3.5);
    contest_costs(&one);
    struct contest asleep = { .work = "quorum of 5: lock, no spin", .yardstick = "one, ?spin=off" };
    contest_run(&asleep, 3, lock_on_five, lock_on_one_asleep, &f);
    contest_ratio(&asleep, COST_P50, "<=", NAN);
    contest_costs(&asleep);
    struct contest bare = { .work = "quorum of 5: lock, bare", .yardstick = "bare sockets" };
    contest_run(&bare, 3, lock_on_five, bare_on_five, &f);
    contest_ratio(&bare, COST_P50, "<=", NAN);
    contest_costs(&bare);
    struct contest frozen = { .work = "quorum of 5: two frozen", .yardstick = "all five" };
    contest_run(&frozen, 3, lock_with_two_frozen, lock_on_five, &f);
    contest_ratio(&frozen, COST_P50, "<=", 1.1);
    contest_costs(&frozen);
}

/* ---- longer: three and five, lock and pair ---- */

static void show(const char *what, struct figures *f, const struct figures *one)
{
    struct figures base = *one;
    double lock = samples_at(&f->lock, 50), pair = samples_at(&f->pair, 50);
    t_note("%-24s lock %7.1f us (%4.2fx)   lock + unlock %7.1f us (%4.2fx)", what, lock,
           lock / samples_at(&base.lock, 50), pair, pair / samples_at(&base.pair, 50));
}

TEST_TIMEOUT(long_quorum_of_three_and_five, 300)
{
    enum { TURNS = 3, SAMPLES = 2000 };
    struct figures one = { 0 }, three = { 0 }, five = { 0 }, frozen = { 0 };
    struct figures bare1 = { 0 }, bare3 = { 0 }, bare5 = { 0 };
    struct server **s = majority_servers(SERVERS);
    char url3[300], url5[300];
    majority_url(s, 3, url3, sizeof url3);
    majority_url(s, 5, url5, sizeof url5);
    for (int turn = 0; turn < TURNS; turn++) {
        measure(server_tcp_url(s[0]), SAMPLES, &one);
        measure(url3, SAMPLES, &three);
        measure(url5, SAMPLES, &five);
        majority_rounds(s, 1, SAMPLES, &bare1.lock, &bare1.pair);
        majority_rounds(s, 3, SAMPLES, &bare3.lock, &bare3.pair);
        majority_rounds(s, 5, SAMPLES, &bare5.lock, &bare5.pair);
        server_freeze(s[0]);
        server_freeze(s[4]);
        measure(url5, SAMPLES, &frozen);
        server_thaw(s[0]);
        server_thaw(s[4]);
    }
    show("one server, TCP", &one, &one);
    show("  bare sockets", &bare1, &one);
    show("three", &three, &one);
    show("  bare sockets", &bare3, &one);
    show("five", &five, &one);
    show("  bare sockets", &bare5, &one);
    show("five, two of them frozen", &frozen, &one);
}
