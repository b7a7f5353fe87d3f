/* SPDX-License-Identifier: MIT
 * thread_cluster.c - many threads of one client over all slots of a cluster, while slots move and a
 * master fails: the map changes, channels wander from inbox to inbox, the keeper follows, every
 * thread goes on.
 */
#include <sys/wait.h>

#include "harness/cluster.h"
#include "harness/waiting.h"

enum { THREADS = 6, NAMES = 12, MOVES = 8 };

struct crowd {
    hf_client       *c;
    const char      *name[NAMES];
    atomic_int       stop, next;
    atomic_long      grants, failures;
    atomic_int       inside[NAMES];
    _Atomic uint64_t newest[NAMES];
};

/* One name after the other: all threads want all of them. */
static void *lock_on(void *arg)
{
    struct crowd *cr = arg;
    int index = atomic_fetch_add(&cr->next, 1);
    hf_lock *m[NAMES];
    for (int i = 0; i < NAMES; i++)
        m[i] = lock_with(cr->c, cr->name[i], KEPT);
    for (int k = index; !atomic_load(&cr->stop); k++) {
        int i = k % NAMES;
        uint64_t fence, last;
        if (hf_lock_acquire(m[i], 40000, &fence, &err)) {
            t_note("%s: %s", cr->name[i], err.message);
            atomic_fetch_add(&cr->failures, 1);
            continue;
        }
        if (hf_lock_is_held(m[i])) {
            CHECK_INT(atomic_fetch_add(&cr->inside[i], 1), 0);
            last = atomic_exchange(&cr->newest[i], fence);
            CHECK(fence > last);
            atomic_fetch_sub(&cr->inside[i], 1);
        }
        atomic_fetch_add(&cr->grants, 1);
        (void)!hf_lock_release(m[i], NULL);
    }
    for (int i = 0; i < NAMES; i++)
        hf_lock_free(m[i]);
    return NULL;
}

/* Half-way until somebody has met it. */
static void move(struct cluster *cl, int slot, struct server *to)
{
    long long before = cluster_halfway(cl);
    struct cluster_move mv = cluster_move_begin(cl, slot, to);
    CHECK_EVENTUALLY(cluster_halfway(cl) > before, 10000);
    cluster_move_finish(&mv);
}

/* A forked child has nothing of it, and takes nothing away. */
static void check_fork(hf_client *c, hf_lock *held)
{
    int pid = t_fork(), status;
    if (pid == 0) {
        int dead = hf_lock_try(held, NULL, NULL) == HF_EFORK;
        hf_client_free(c);
        _exit(dead ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);
}

static void go_on(struct crowd *cr)
{
    long before = atomic_load(&cr->grants);
    CHECK_EVENTUALLY(atomic_load(&cr->grants) > before + 60, 30000);
}

TEST_TIMEOUT(threads_go_on_while_slots_move_and_a_master_fails, 120)
{
    struct cluster *cl = cluster_start(NULL);
    static struct crowd cr;
    cr.c = client_at(cl->url, 0);
    for (int i = 0; i < NAMES; i++)
        cr.name[i] = cluster_name(cl, cl->node[i % 3], i / 3);
    hf_lock *held = lock_with(cr.c, cluster_name(cl, cl->node[0], 20), KEPT);
    pthread_t thread[THREADS];
    uint64_t fence = lock_now(held);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, lock_on, &cr), 0);
    go_on(&cr);
    for (int i = 0; i < MOVES; i++) { /* each to the next master, and back */
        int slot = cluster_slot_of(cl, cr.name[i % 4]), home = i % 4 % 3;
        move(cl, slot, cl->node[i < 4 ? (home + 1) % 3 : home]);
        go_on(&cr);
    }
    cluster_failover(cl, cl->node[3]);
    go_on(&cr);
    server_kill(cl->node[1]);
    cluster_wait_switch(cl, cluster_slot_of(cl, cr.name[1]), cl->node[1]);
    go_on(&cr);
    CHECK_EVENTUALLY(hf_lock_verify(held, NULL) == HF_OK, 10000);
    CHECK(hf_lock_fence(held) == fence);
    check_fork(cr.c, held);
    atomic_store(&cr.stop, 1);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(thread[i], NULL), 0);
    t_note("%ld grants", atomic_load(&cr.grants));
    CHECK_INT(atomic_load(&cr.failures), 0);
    unlock_now(held);
    hf_lock_free(held);
    hf_client_free(cr.c);
}

/* ---- closing in the midst of it ---- */

struct closing {
    hf_lock   *m;
    pthread_t  thread;
};

static void *wait_for_it(void *arg)
{
    struct closing *cg = arg;
    hf_err e = hf_lock_acquire(cg->m, 20000, NULL, &err);
    if (!e)
        (void)!hf_lock_release(cg->m, NULL);
    return NULL;
}

TEST_TIMEOUT(a_client_can_be_closed_while_slots_move, 120)
{
    struct cluster *cl = cluster_start(NULL);
    const char *name = cluster_name(cl, cl->node[0], 0);
    int slot = cluster_slot_of(cl, name);
    for (int round = 0; round < 6; round++) {
        hf_client *c = client_at(cl->url, 2000);
        hf_lock *held[3];
        struct closing w[2];
        for (int i = 0; i < 3; i++) {
            held[i] = lock_with(c, cluster_name(cl, cl->node[i], 5 + i), KEPT);
            lock_now(held[i]);
        }
        for (int i = 0; i < 2; i++) {
            w[i].m = lock_with(c, name, (hf_lock_opts){ .ttl_ms = 20000 });
            CHECK_INT(pthread_create(&w[i].thread, NULL, wait_for_it, &w[i]), 0);
        }
        struct server *to = cl->node[round % 2 ? 0 : 1];
        cluster_move_slot(cl, slot, to, NULL, NULL);
        for (int i = 0; i < 2; i++) {
            hf_lock_cancel(w[i].m);
            CHECK_INT(pthread_join(w[i].thread, NULL), 0);
            hf_lock_free(w[i].m);
        }
        for (int i = 0; i < 3; i++)
            hf_lock_free(held[i]);
        hf_client_free(c);
    }
}
