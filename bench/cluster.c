/* SPDX-License-Identifier: MIT
 * cluster.c - what a lock in a Cluster costs, as ratios to one server in the same run.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/cluster.h"
#include "harness/t.h"

enum { NAMES = 300, ROUNDS = 20, TURNS = 3, SAMPLES = NAMES * ROUNDS * TURNS };

struct figures {
    int64_t ns[SAMPLES];
    size_t  n;
};

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static double p50_us(struct figures *f)
{
    qsort(f->ns, f->n, sizeof *f->ns, by_value);
    return (double)f->ns[f->n / 2] / 1000.0;
}

/* Lock and unlock names one after the other, each by a handle of its own: all of them, or one. The
 * first round, in which a slot is subscribed to and greeted, counts for itself. */
static void measure(const char *url, int names, struct figures *first, struct figures *f)
{
    static hf_lock *m[NAMES];
    hf_client *c = NULL;
    hf_error e;
    hf_lock_opts o = { .size = sizeof o };
    if (hf_client_open(url, NULL, &c, &e))
        FAIL("%s", e.message);
    for (int i = 0; i < names; i++) {
        char name[32];
        snprintf(name, sizeof name, "bench-%d", i);
        CHECK_INT(hf_lock_open(c, hf_str(name), &o, &m[i], NULL), HF_OK);
    }
    for (int k = 0; k < NAMES * (ROUNDS + 1); k++) {
        hf_lock *one = m[k % names];
        int64_t begun = t_now_ns();
        CHECK_INT(hf_lock_try(one, NULL, NULL), HF_OK);
        CHECK_INT(hf_lock_release(one, NULL), HF_OK);
        struct figures *to = k < names ? first : k >= NAMES ? f : NULL;
        if (to)
            to->ns[to->n++] = t_now_ns() - begun;
    }
    for (int i = 0; i < names; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

static void show(const char *what, double us, double one_us)
{
    t_note("%-38s %7.1f us (%4.2fx)", what, us, us / one_us);
}

TEST(lock_and_unlock_in_a_cluster)
{
    static struct figures one, one_first, same, same_first, many, many_first;
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .tcp = 1 });
    /* No replicas, as the other has none. */
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    for (int turn = 0; turn < TURNS; turn++) {
        measure(server_tcp_url(s), NAMES, &one_first, &one);
        measure(cl->url, 1, &same_first, &same);
        measure(cl->url, NAMES, &many_first, &many);
    }
    double one_us = p50_us(&one);
    show("one server, TCP", one_us, one_us);
    show("a cluster, one name", p50_us(&same), one_us);
    show("a cluster, names in 300 slots", p50_us(&many), one_us);
    show("one server, first use of a name", p50_us(&one_first), one_us);
    show("a cluster, first use of a slot", p50_us(&many_first), one_us);
}
