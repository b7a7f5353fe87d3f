/* SPDX-License-Identifier: MIT
 * cluster_silent.c - a master that does not answer concerns the locks of its own slots, and nobody
 * else's.
 */
#include "harness/cluster.h"
#include "harness/waiting.h"

enum { LOCKS = 102, NODES = 3 };

struct crowd {
    hf_lock  *m[LOCKS];
    atomic_int doubts[NODES], losses[NODES];
};

struct seat {
    struct crowd *cr;
    int           node;
};

static void on_change(hf_lock *m, hf_state state, void *arg)
{
    struct seat *s = arg;
    (void)m;
    if (state != HF_STATE_SAFE)
        atomic_fetch_add(state == HF_STATE_LOST
                         ? &s->cr->losses[s->node] : &s->cr->doubts[s->node], 1);
}

static int all_safe(const struct crowd *cr, int node)
{
    for (int i = node; i < LOCKS; i += NODES)
        if (hf_lock_state(cr->m[i]) != HF_STATE_SAFE)
            return 0;
    return 1;
}

/* What has nothing to do with those that are silent takes as long as ever. */
static void lock_and_unlock(hf_lock *m)
{
    int64_t begun = t_now_ms();
    lock_now(m);
    unlock_now(m);
    CHECK_TOOK(t_now_ms() - begun, 0, 1000);
}

/* Each in a slot of its own, as many as that at each master; the first few masters stand still for
 * longer than any lease, and nobody takes their place. */
static void freeze(int frozen, int64_t grace_ms)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1,
                                                               .node_timeout_ms = 60000 });
    static struct crowd cr;
    static struct seat seat[NODES];
    hf_client *c = client_at(cl->url, 0);
    hf_lock *other = lock_with(c, cluster_name(cl, cl->node[NODES - 1], LOCKS),
                               (hf_lock_opts){ .ttl_ms = 6000, .grace_ms = grace_ms });
    for (int i = 0; i < LOCKS; i++) {
        int node = i % NODES;
        seat[node] = (struct seat){ &cr, node };
        cr.m[i] = lock_with(c, cluster_name(cl, cl->node[node], i / NODES),
                            (hf_lock_opts){ .ttl_ms = 6000, .grace_ms = grace_ms,
                                              .on_event = on_change, .event_arg = &seat[node] });
        lock_now(cr.m[i]);
    }
    for (int node = 0; node < frozen; node++)
        server_freeze(cl->node[node]);
    int64_t until = t_now_ms() + 10000;
    while (t_now_ms() < until) {
        for (int node = frozen; node < NODES; node++)
            if (!all_safe(&cr, node))
                FAIL("a lock at a healthy master is not safe: %lld ms before the end",
                     (long long)(until - t_now_ms()));
        lock_and_unlock(other);
        t_sleep_ms(5);
    }
    for (int node = 0; node < frozen; node++) {
        CHECK_INT(atomic_load(&cr.losses[node]), LOCKS / NODES); /* the fault was there */
        server_thaw(cl->node[node]);
    }
    for (int node = frozen; node < NODES; node++) {
        CHECK_INT(atomic_load(&cr.losses[node]), 0);
        CHECK_INT(atomic_load(&cr.doubts[node]), 0);
    }
    for (int i = 0; i < LOCKS; i++) {
        CHECK_HF(hf_lock_release(cr.m[i], &err), i % NODES < frozen ? HF_ELOST : HF_OK);
        hf_lock_free(cr.m[i]);
    }
    hf_lock_free(other);
    hf_client_free(c);
}

TEST(P5_locks_at_healthy_masters_stay_safe_while_one_stands_still)
{
    freeze(1, HF_NO_TAKEOVER);
}

TEST(P5_locks_with_a_grace_at_a_healthy_master_stay_safe_while_two_stand_still)
{
    freeze(2, 0);
}

/* The long lease of a lock at a silent master is renewed meanwhile: that server is waited for no
 * longer than the short one at a healthy master can be kept waiting. */
TEST(P5_a_short_lease_does_not_wait_for_the_renewal_of_a_long_one)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1,
                                                               .node_timeout_ms = 60000 });
    static struct crowd cr;
    static struct seat seat[NODES];
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m[2];
    for (int i = 0; i < 2; i++) {
        seat[i] = (struct seat){ &cr, i };
        m[i] = lock_with(c, cluster_name(cl, cl->node[i], 0),
                         (hf_lock_opts){ .ttl_ms = i ? 5000 : 12000, .grace_ms = HF_NO_TAKEOVER,
                                         .on_event = on_change, .event_arg = &seat[i] });
        lock_now(m[i]);
    }
    int64_t begun = t_now_ms();
    server_freeze(cl->node[0]);
    CHECK_EVENTUALLY(hf_lock_state(m[0]) != HF_STATE_SAFE, 60000); /* it was tried to renew it */
    while (t_now_ms() < begun + 9000 && hf_lock_is_held(m[1]))
        t_sleep_ms(20);
    int64_t took = t_now_ms() - begun, calm = t_calm_ms(begun);
    t_note("%lld ms, %lld of them calm: in doubt %d times", (long long)took, (long long)calm,
           atomic_load(&cr.doubts[1]));
    if ((atomic_load(&cr.losses[1]) || atomic_load(&cr.doubts[1])) && calm <= took * 9 / 10)
        LEFT_OUT("the machine was not calm: it may be what kept the renewal waiting");
    CHECK_INT(atomic_load(&cr.losses[1]), 0);
    CHECK_INT(atomic_load(&cr.doubts[1]), 0);
    server_thaw(cl->node[0]);
    for (int i = 0; i < 2; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

/* ---- without blocking ---- */

static void count(hf_err result, const hf_error *e, void *arg)
{
    (void)e;
    if (!result)
        ++*(int *)arg;
}

TEST(who_waits_without_blocking_at_a_frozen_master_keeps_nobody_else_waiting)
{
    enum { WAITING = 5 };
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1,
                                                               .node_timeout_ms = 60000 });
    hf_client *c = client_at(cl->url, 0);
    hf_lock *there[WAITING], *here = lock_of(c, cluster_name(cl, cl->node[1], 0), 6000);
    int had = 0, late = 0;
    for (int i = 0; i < WAITING; i++)
        there[i] = lock_of(c, cluster_name(cl, cl->node[0], i), 6000);
    server_freeze(cl->node[0]);
    for (int i = 0; i < WAITING; i++)
        CHECK_HF(hf_lock_acquire_async(there[i], 30000, count, &late, &err), HF_OK);
    for (int i = 0; i < 10; i++) {
        int64_t begun = t_now_ms();
        CHECK_HF(hf_lock_acquire_async(here, 10000, count, &had, &err), HF_OK);
        CHECK_EVENTUALLY(hf_client_dispatch(c) && had == i + 1, 2000);
        CHECK_TOOK(t_now_ms() - begun, 0, 1000);
        unlock_now(here);
    }
    CHECK_INT(late, 0);
    server_thaw(cl->node[0]);
    CHECK_EVENTUALLY((hf_client_dispatch(c), late == WAITING), 20000);
    for (int i = 0; i < WAITING; i++) {
        unlock_now(there[i]);
        hf_lock_free(there[i]);
    }
    hf_lock_free(here);
    hf_client_free(c);
}

/* ---- a grace ---- */

/* Four graces long, one lock at each master. 0: one was in doubt, but the machine stood still, and
 * nothing can be said; a lock is in doubt after half a second. */
static int stay_safe(struct cluster *cl, hf_client *c, int attempt)
{
    static struct crowd cr;
    static struct seat seat[NODES];
    int unsafe = 0, before = 0;
    for (int i = 0; i < NODES; i++) {
        seat[i] = (struct seat){ &cr, i };
        cr.m[i] = lock_with(c, cluster_name(cl, cl->node[i], attempt),
                            (hf_lock_opts){ .ttl_ms = 2000, .on_event = on_change,
                                              .event_arg = &seat[i] });
        lock_now(cr.m[i]);
        before += atomic_load(&cr.doubts[i]);
    }
    int64_t begun = t_now_ms(), last = begun, gap = 0;
    while (last < begun + 4000) {
        t_sleep_ms(5);
        gap = t_now_ms() - last > gap ? t_now_ms() - last : gap;
        last = t_now_ms();
        for (int i = 0; i < NODES; i++)
            unsafe += hf_lock_state(cr.m[i]) != HF_STATE_SAFE;
    }
    int64_t took = t_now_ms() - begun, calm = t_calm_ms(begun);
    int doubts = -before;
    for (int i = 0; i < NODES; i++)
        doubts += atomic_load(&cr.doubts[i]);
    int judged = (!unsafe && !doubts) || (calm > took * 9 / 10 && gap < 200);
    t_note("%lld ms, %lld of them calm, and %lld at most without a look: %d times not safe, "
           "%d times in doubt", (long long)took, (long long)calm, (long long)gap, unsafe, doubts);
    for (int i = 0; i < NODES; i++) {
        if (judged)
            unlock_now(cr.m[i]);
        hf_lock_free(cr.m[i]);
    }
    if (judged) {
        CHECK_INT(unsafe, 0);
        CHECK_INT(doubts, 0);
    }
    return judged;
}

TEST(P5_a_grace_is_proved_at_every_master)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(cl->url, 0);
    int judged = 0;
    for (int attempt = 0; attempt < 4 && !judged; attempt++)
        judged = stay_safe(cl, c, attempt);
    if (!judged)
        LEFT_OUT("the machine was never calm: nothing can be said");
    hf_client_free(c);
}
