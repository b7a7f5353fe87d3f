/* SPDX-License-Identifier: MIT
 * cluster.c - what a lock in a Cluster costs, as ratios to one server in the same run.
 */
#include <holdfast.h>
#include <stdio.h>

#include "harness/cluster.h"
#include "harness/t.h"
#include "lib/locks.h"
#include "lib/stats.h"

enum { NAMES = 300, ROUNDS = 20, TURNS = 3 };

/* Lock and unlock names one after the other, each by a handle of its own: all of them, or one. The
 * first round, in which a slot is subscribed to and greeted, counts for itself. */
static void measure(const char *url, int names, struct samples *first, struct samples *f)
{
    static hf_lock *m[NAMES];
    hf_client *c = bench_client(url);
    for (int i = 0; i < names; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-%d", i);
        m[i] = bench_lock(c, name, NULL);
    }
    for (int k = 0; k < NAMES * (ROUNDS + 1); k++) {
        hf_lock *one = m[k % names];
        int64_t begun = t_now_ns();
        bench_take(one);
        bench_give(one);
        struct samples *to = k < names ? first : k >= NAMES ? f : NULL;
        if (to)
            samples_add(to, (double)(t_now_ns() - begun) / 1000);
    }
    for (int i = 0; i < names; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

static void show(const char *what, double us, double one_us)
{
    t_note("%-38s %7.1f us (%4.2fx)", what, us, us / one_us);
}

TEST_TIMEOUT(long_lock_and_unlock_in_a_cluster, 300)
{
    struct samples one = { 0 }, one_first = { 0 }, same = { 0 }, same_first = { 0 }, many = { 0 },
                   many_first = { 0 };
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .tcp = 1 });
    /* No replicas, as the other has none. */
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    for (int turn = 0; turn < TURNS; turn++) {
        measure(server_tcp_url(s), NAMES, &one_first, &one);
        measure(cl->url, 1, &same_first, &same);
        measure(cl->url, NAMES, &many_first, &many);
    }
    double one_us = samples_at(&one, 50);
    show("one server, TCP", one_us, one_us);
    show("a cluster, one name", samples_at(&same, 50), one_us);
    show("a cluster, names in 300 slots", samples_at(&many, 50), one_us);
    show("one server, first use of a name", samples_at(&one_first, 50), one_us);
    show("a cluster, first use of a slot", samples_at(&many_first, 50), one_us);
}
