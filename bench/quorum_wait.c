/* SPDX-License-Identifier: MIT
 * quorum_wait.c - what waiting for a lock on a majority of servers costs, and how long until it is
 * handed over, beside one server in the same run.
 */
#include <holdfast.h>
#include <stdio.h>

#include "harness/t.h"
#include "harness/waiting.h"
#include "lib/majority.h"
#include "lib/meter.h"

/* What clients send, but for pings and who leaves the line. */
#define SENT "eval evalsha subscribe"

enum { SERVERS = 5, CROWD = 16, HANDOVERS = 100, IDLE_MS = 3000 };

/* So many wait for a lock that is held; then it goes through all of them. */
static void crowd(const char *url, struct server *s, int n)
{
    struct locker l[CROWD] = { 0 };
    hf_client *c[CROWD], *own = client_at(url, 0);
    hf_lock *m = lock_of(own, "crowd", 20000);
    lock_now(m);
    for (int i = 0; i < n; i++) {
        c[i] = client_at(url, 0);
        l[i] = (struct locker){ .m = lock_of(c[i], "crowd", 20000), .wait_ms = 60000 };
        locker_start(&l[i]);
    }
    t_sleep_ms(1500);
    double before = meter_commands(s, SENT);
    t_sleep_ms(IDLE_MS);
    double idle = meter_commands(s, SENT) - before;
    before = meter_commands(s, SENT);
    int64_t begun = t_now_ns(), last = begun;
    unlock_now(m);
    for (int served = 0; served < n;) {
        for (int i = 0; i < n; i++) {
            if (!l[i].m || !atomic_load(&l[i].done))
                continue;
            locker_join(&l[i], HF_OK);
            unlock_now(l[i].m);
            last = t_now_ns();
            hf_lock_free(l[i].m);
            l[i].m = NULL;
            hf_client_free(c[i]);
            served++;
        }
        usleep(100);
    }
    t_note("%2d wait: %5.2f commands/s each on each server; all served in %6.1f ms, %.1f commands "
           "each",
           n, idle / n * 1000 / IDLE_MS, (double)(last - begun) / 1e6,
           (meter_commands(s, SENT) - before) / n);
    hf_lock_free(m);
    hf_client_free(own);
}

/* From the call of the release until the next one has it. */
static void hand_over(const char *url, const char *what)
{
    struct samples us = { 0 };
    hf_client *a = client_at(url, 0), *b = client_at(url, 0);
    hf_lock *ma = lock_of(a, "over", 20000), *mb = lock_of(b, "over", 20000);
    for (int i = 0; i < HANDOVERS; i++) {
        struct locker l = { .m = mb, .wait_ms = 60000 };
        lock_now(ma);
        locker_start(&l);
        t_sleep_ms(20 + (int64_t)t_random(40));
        int64_t begun = t_now_ns();
        unlock_now(ma);
        locker_join(&l, HF_OK);
        samples_add(&us, (double)(l.done_ns - begun) / 1000);
        unlock_now(mb);
    }
    t_note("handed over, %-12s p50 %8.0f us   p90 %8.0f us", what,
           samples_at(&us, 50), samples_at(&us, 90));
    samples_free(&us);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_client_free(a);
    hf_client_free(b);
}

TEST_TIMEOUT(long_waiting, 300)
{
    struct server **s = majority_servers(SERVERS);
    char url[300];
    majority_url(s, SERVERS, url, sizeof url);
    hand_over(server_tcp_url(s[0]), "one server");
    hand_over(url, "five");
    crowd(url, s[0], 1);
    crowd(url, s[0], CROWD);
}
