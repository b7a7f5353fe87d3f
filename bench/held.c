/* SPDX-License-Identifier: MIT
 * held.c - what locks cost that are only held: their renewal. What the looks at their keys cost,
 * and how that grows with their number, is in growth.c.
 */
#include <holdfast.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/server.h"
#include "harness/t.h"
#include "lib/contest.h"
#include "lib/locks.h"

/* ---- renewal ---- */

enum { TTL_MS = 9000 };

/* How old the newest proof of any of them became, in ms. 64 of them are looked at, all the time. */
static double oldest_proof(hf_lock **m, int n, int64_t watch_ms)
{
    int64_t until = t_now_ms() + watch_ms, oldest = 0;
    int step = n > 64 ? n / 64 : 1;
    while (t_now_ms() < until) {
        for (int i = 0; i < n; i += step) {
            int64_t age = hf_lock_full_time_ms(m[i]) - hf_lock_time_left_ms(m[i]);
            oldest = age > oldest ? age : oldest;
        }
        t_sleep_ms(1);
    }
    return (double)oldest;
}

/* Commands in one round of renewals, which is a third of the ttl; the server's time for them. */
static double hold_and_renew(int n, int64_t watch_ms, double *ret_proof, double *ret_server_us)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    hf_client *c = bench_client(server_tcp_url(s));
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = TTL_MS };
    hf_lock **m = bench_hold_many(c, "bench", n, &o);
    t_sleep_ms(1000);
    double before = meter_commands(s, "eval evalsha"), cpu = meter_server_us(s);
    int64_t start = t_now_ns();
    *ret_proof = oldest_proof(m, n, watch_ms);
    double rounds = meter_seconds_since(start) * 1000 / (TTL_MS / 3);
    double sent = (meter_commands(s, "eval evalsha") - before) / rounds;
    *ret_server_us = (meter_server_us(s) - cpu) / rounds / n;
    int lost = bench_count_lost(m, n);
    if (lost)
        t_note("%d of %d locks were lost: this machine was too slow for a ttl of %d ms", lost, n,
               (int)TTL_MS);
    bench_free_many(m, n);
    hf_client_free(c);
    return sent;
}

static void renewal(int64_t watch_ms)
{
    enum { LOCKS = 10000 };
    double alone, proof, cpu;
    hold_and_renew(1, TTL_MS / 3, &alone, &cpu);
    double sent = hold_and_renew(LOCKS, watch_ms, &proof, &cpu);
    report_aim("renewal of 10000 held locks", "locks/command", LOCKS / sent, NULL, NAN, ">=", 20);
    report_aim("renewal of 10000 held locks", "proof ms older than of 1", fmax(proof - alone, 0),
               NULL, NAN, "<=", 100);
    struct cost c = cost_none();
    c.is[COST_COMMANDS] = sent / LOCKS;
    c.is[COST_SERVER] = cpu;
    report_cost("renewal of 10000 held locks", "holdfast", &c);
}

TEST_TIMEOUT(aim_renewal, 300)
{
    renewal(TTL_MS / 3 * 2);
}

TEST_TIMEOUT(long_renewal, 600)
{
    renewal(TTL_MS * 5);
}
