/* SPDX-License-Identifier: MIT
 * takeover.c - how long a lock stays with a holder that was killed: kill -9, until the next one in
 * line owns it.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>

#include "harness/proc.h"
#include "harness/t.h"
#include "lib/contest.h"
#include "lib/locks.h"

enum { GRACE_MS = 1000 };

static const hf_lock_opts patient = { .size = sizeof patient, .ttl_ms = 60000,
                                      .grace_ms = GRACE_MS };

static void hold_for_ever(int index, void *arg)
{
    (void)index;
    bench_wait(bench_lock(bench_client(server_tcp_url(arg)), "bench", &patient));
    for (;;)
        t_sleep_ms(1000);
}

static void granted(hf_err result, const hf_error *err, void *arg)
{
    if (result)
        FAIL("%s", err ? err->message : hf_err_text(result));
    *(int *)arg = 1;
}

/* us from the kill; others stand in line behind the first. */
static double kill_once(struct server *s, int others)
{
    int mine = 0;
    server_ask(s, "FLUSHALL");
    struct workers *w = workers_start(1, hold_for_ever, s);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:bench") == 1, 30000);
    hf_client *c = bench_client(server_tcp_url(s));
    hf_lock *m = bench_lock(c, "bench", &patient);
    CHECK_INT(hf_lock_acquire_async(m, HF_WAIT_FOREVER, granted, &mine, NULL), HF_OK);
    while (server_int(s, "ZCARD {lock:bench}:q") != 1)
        bench_dispatch(c, 5);
    struct workers *behind = workers_start(others, hold_for_ever, s);
    while (server_int(s, "ZCARD {lock:bench}:q") != 1 + others)
        bench_dispatch(c, 5);
    int64_t until = t_now_ms() + 300 + (int64_t)t_random(500);
    while (t_now_ms() < until)
        bench_dispatch(c, 20);
    int64_t start = t_now_ns();
    workers_signal(w, 0, SIGKILL);
    while (!mine)
        bench_dispatch(c, 100);
    double us = meter_seconds_since(start) * 1e6;
    for (int i = 0; i < others; i++)
        workers_signal(behind, i, SIGKILL);
    workers_join(behind, 10000);
    workers_join(w, 10000);
    bench_give(m);
    hf_lock_free(m);
    hf_client_free(c);
    return us;
}

static void killed_holder(int others, int kills)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    struct samples us = { 0 };
    struct cost c = cost_none();
    char work[60];
    snprintf(work, sizeof work, "kill -9 of the holder, %d waiting", others + 1);
    for (int i = 0; i < kills; i++)
        samples_add(&us, kill_once(s, others));
    report_aim(work, "p50 ms", samples_at(&us, 50) / 1000, NULL, NAN, "<=", GRACE_MS + 600);
    c.is[COST_P50] = samples_at(&us, 50);
    c.is[COST_MAX] = samples_at(&us, 100);
    report_cost(work, "holdfast", &c);
    samples_free(&us);
}

TEST_TIMEOUT(aim_takeover, 300)
{
    killed_holder(0, 5);
}

TEST_TIMEOUT(long_takeover, 600)
{
    killed_holder(0, 20);
    killed_holder(7, 20);
}
