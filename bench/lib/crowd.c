/* SPDX-License-Identifier: MIT
 * crowd.c - many waiters of one client; see crowd.h.
 */
#include "lib/crowd.h"

#include <math.h>
#include <stdlib.h>

#include "harness/t.h"
#include "lib/locks.h"
#include "lib/meter.h"

/* What they send because they wait; pings are everybody's. */
#define SENT "eval evalsha subscribe"

struct crowd {
    hf_lock **m, *held; /* held: it has the lock while they wait */
    int       n, async, served, released;
    size_t    late, last;
    uint64_t  fence;
};

struct one {
    struct crowd *crowd;
    size_t        index;
};

static void released(hf_err result, const hf_error *err, void *arg)
{
    struct one *o = arg;
    if (result)
        FAIL("%s", err ? err->message : hf_err_text(result));
    o->crowd->released++;
}

static void granted(hf_err result, const hf_error *err, void *arg)
{
    struct one *o = arg;
    struct crowd *w = o->crowd;
    hf_lock *m = w->m[o->index];
    if (result)
        FAIL("after %d: %s", w->served, err ? err->message : hf_err_text(result));
    CHECK(hf_lock_fence(m) > w->fence);
    w->fence = hf_lock_fence(m);
    w->late += o->index < w->last;
    w->last = o->index;
    w->served++;
    if (w->async) {
        CHECK_INT(hf_lock_release_async(m, released, o, NULL), HF_OK);
    } else {
        bench_give(m);
        w->released++;
    }
}

static void enqueue(struct crowd *w, struct one *o, hf_client *c, struct server *s)
{
    for (int i = 0; i < w->n; i++) {
        o[i] = (struct one){ .crowd = w, .index = (size_t)i };
        CHECK_INT(hf_lock_acquire_async(w->m[i], HF_WAIT_FOREVER, granted, &o[i], NULL), HF_OK);
    }
    while (server_int(s, "ZCARD {lock:bench}:q") != w->n) /* they move only when dispatched */
        bench_dispatch(c, 5);
}

/* They are served, one after the other; adds up what that costs. */
static void serve(struct crowd *w, hf_client *c, struct server *s, struct crowd_result *r)
{
    double before = meter_commands(s, SENT), cpu = meter_server_us(s);
    int64_t start = t_now_ns();
    w->released = w->served = 0;
    bench_give(w->held);
    while (w->released < w->n)
        bench_dispatch(c, 100);
    r->handoff_us += meter_seconds_since(start) * 1e6;
    r->handoff_server_us += meter_server_us(s) - cpu;
    r->handoff_commands += meter_commands(s, SENT) - before;
}

/* What they cost while nothing happens, and nobody dispatches. */
static void idle(struct server *s, int ms, struct crowd_result *r)
{
    if (ms == 0)
        return;
    t_sleep_ms(500);
    double before = meter_commands(s, SENT), cpu = meter_server_us(s);
    int64_t start = t_now_ns();
    t_sleep_ms(ms);
    r->idle_us = (meter_server_us(s) - cpu) / meter_seconds_since(start);
    r->idle_commands = (meter_commands(s, SENT) - before) / meter_seconds_since(start);
}

static void noted(hf_err result, const hf_error *err, void *arg)
{
    if (result)
        FAIL("%s", err ? err->message : hf_err_text(result));
    *(int *)arg = 1;
}

/* Hand another lock over once, so that what is made only once is there: scripts, a subscription. */
static void warm_up(hf_client *first, hf_client *c)
{
    int mine = 0;
    hf_lock *a = bench_lock(first, "warm", NULL), *b = bench_lock(c, "warm", NULL);
    bench_take(a);
    CHECK_INT(hf_lock_acquire_async(b, HF_WAIT_FOREVER, noted, &mine, NULL), HF_OK);
    for (int i = 0; i < 100; i++)
        bench_dispatch(c, 1);
    bench_give(a);
    while (!mine)
        bench_dispatch(c, 100);
    bench_give(b);
    hf_lock_free(a);
    hf_lock_free(b);
}

/* Once more, and few of them often, without a long wait before it: who has waited for more than
 * half a second must ask once more before it believes in a hand-over. */
static void serve_often(struct crowd *w, struct one *o, hf_client *c, struct server *s,
                        struct crowd_result *r)
{
    int times = 0;
    r->enqueue_us = r->handoff_us = r->handoff_server_us = r->handoff_commands = 0;
    while (times++ * w->n < 200) {
        bench_wait(w->held);
        w->last = 0;
        int64_t start = t_now_ns();
        enqueue(w, o, c, s);
        r->enqueue_us += meter_seconds_since(start) * 1e6;
        serve(w, c, s, r);
    }
    times--;
    double releases = times * (w->n + 1); /* the first holder's, too */
    r->enqueue_us /= times * w->n;
    r->handoff_us /= releases;
    r->handoff_server_us /= releases;
    r->handoff_commands /= releases;
    r->late = w->late;
}

struct crowd_result crowd_measure(int n, int idle_ms, int release_without_blocking)
{
    struct crowd_result r = { 0 }, without = { 0 };
    struct crowd w = { .n = n, .async = release_without_blocking };
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    hf_client *first = bench_client(server_tcp_url(s));
    struct one *o = calloc((size_t)n, sizeof *o);
    w.m = calloc((size_t)n, sizeof(*w.m));
    CHECK(o && w.m);
    w.held = bench_lock(first, "bench", NULL);
    bench_take(w.held);
    t_sleep_ms(300); /* its record is written, its connections are made */
    double connected = strtod(server_info(s, "connected_clients"), NULL);
    hf_client *c = bench_client(server_tcp_url(s));
    warm_up(first, c);
    idle(s, idle_ms, &without);
    double heap = meter_heap(), memory = meter_server_memory(s);
    for (int i = 0; i < n; i++)
        w.m[i] = bench_lock(c, "bench", NULL);
    enqueue(&w, o, c, s);
    r.client_bytes = (meter_heap() - heap) / n;
    r.server_bytes = (meter_server_memory(s) - memory) / n;
    r.connections = strtod(server_info(s, "connected_clients"), NULL) - connected;
    idle(s, idle_ms, &r);
    r.idle_us = fmax(r.idle_us - without.idle_us, 0);
    serve(&w, c, s, &r);
    serve_often(&w, o, c, s, &r);
    bench_free_many(w.m, n);
    free(o);
    hf_lock_free(w.held);
    hf_client_free(c);
    hf_client_free(first);
    return r;
}
