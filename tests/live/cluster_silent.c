/* SPDX-License-Identifier: MIT
 * cluster_silent.c - a master that does not answer concerns the locks of its own slots, and nobody else's.
 */
#include <sys/resource.h>

#include "harness/cluster.h"
#include "harness/waiting.h"

enum { LOCKS = 102, NODES = 3 };

struct crowd {
    hf_mutex  *m[LOCKS];
    atomic_int doubts[NODES], losses[NODES];
};

struct seat {
    struct crowd *cr;
    int           node;
};

static void on_change(hf_mutex *m, hf_state state, void *arg)
{
    struct seat *s = arg;
    (void)m;
    if (state != HF_SAFE)
        atomic_fetch_add(state == HF_LOST ? &s->cr->losses[s->node] : &s->cr->doubts[s->node], 1);
}

static int all_safe(const struct crowd *cr, int node)
{
    for (int i = node; i < LOCKS; i += NODES)
        if (hf_mutex_state(cr->m[i]) != HF_SAFE)
            return 0;
    return 1;
}

/* Each in a slot of its own, as many as that at each master; one master stands still for longer than
 * any lease, and nobody takes its place. */
static void freeze_one(const char *option, int64_t grace_ms)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1, .node_timeout_ms = 60000 });
    char url[512];
    static struct crowd cr;
    static struct seat seat[NODES];
    snprintf(url, sizeof url, "%s%s", cl->url, option);
    hf_client *c = client_at(url, 0);
    int frozen = 0;
    for (int i = 0; i < LOCKS; i++) {
        int node = i % NODES;
        seat[node] = (struct seat){ &cr, node };
        cr.m[i] = mutex_with(c, cluster_name(cl, cl->node[node], i / NODES),
                             (hf_mutex_opts){ .ttl_ms = 6000, .grace_ms = grace_ms,
                                              .on_event = on_change, .event_arg = &seat[node] });
        lock_now(cr.m[i]);
    }
    server_freeze(cl->node[frozen]);
    int64_t until = t_now_ms() + 10000;
    while (t_now_ms() < until) {
        for (int node = 1; node < NODES; node++)
            if (!all_safe(&cr, node))
                FAIL("a lock at a healthy master is not safe: %lld ms before the end",
                     (long long)(until - t_now_ms()));
        t_sleep_ms(5);
    }
    CHECK_INT(atomic_load(&cr.losses[frozen]), LOCKS / NODES); /* the fault was there */
    server_thaw(cl->node[frozen]);
    for (int node = 1; node < NODES; node++) {
        CHECK_INT(atomic_load(&cr.losses[node]), 0);
        CHECK_INT(atomic_load(&cr.doubts[node]), 0);
    }
    for (int i = 0; i < LOCKS; i++) {
        CHECK_HF(hf_mutex_unlock(cr.m[i], &err), i % NODES == frozen ? HF_ELOST : HF_OK);
        hf_mutex_free(cr.m[i]);
    }
    hf_client_free(c);
}

TEST(P5_locks_at_healthy_masters_stay_safe_while_one_stands_still)
{
    freeze_one("", HF_NO_TAKEOVER);
}

TEST(P5_the_same_with_a_grace)
{
    freeze_one("", 0);
}

TEST(P5_a_grace_is_proved_at_every_master)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(cl->url, 0);
    static struct crowd cr;
    static struct seat seat[NODES];
    for (int i = 0; i < NODES; i++) {
        seat[i] = (struct seat){ &cr, i };
        cr.m[i] = mutex_with(c, cluster_name(cl, cl->node[i], 0),
                             (hf_mutex_opts){ .ttl_ms = 2000, .on_event = on_change,
                                              .event_arg = &seat[i] });
        lock_now(cr.m[i]);
    }
    for (int64_t until = t_now_ms() + 4000; t_now_ms() < until; t_sleep_ms(5)) /* four graces */
        for (int i = 0; i < NODES; i++)
            CHECK_INT(hf_mutex_state(cr.m[i]), HF_SAFE);
    for (int i = 0; i < NODES; i++) {
        CHECK_INT(atomic_load(&cr.doubts[i]), 0);
        unlock_now(cr.m[i]);
        hf_mutex_free(cr.m[i]);
    }
    hf_client_free(c);
}
