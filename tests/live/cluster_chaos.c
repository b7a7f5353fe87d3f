/* SPDX-License-Identifier: MIT
 * cluster_chaos.c - everything that can happen to a Cluster, one thing after the other, at random.
 *
 * Processes contend for a lock at each master, every grant acknowledged by a replica, while slots
 * move, masters are replaced, killed, frozen, connections cut and scripts forgotten. HF_SOAK=1
 * makes it long.
 */
#include "harness/cluster.h"
#include "harness/history.h"
#include "harness/proc.h"
#include "harness/waiting.h"

enum { LOCKS = 3, CROWD = 8, FAULTS = 10, FAULTS_LONG = 150, STALL_MS = 30000 };

struct chaos {
    struct cluster *cl;
    const char     *url, *name[LOCKS];
    int             slot[LOCKS];
    struct history *h;
    struct {
        atomic_int  stop, failed, lost;
        atomic_long got[LOCKS];
    } *mem;
};

/* ---- who contends ---------------------------------------------------------------------------- */

static void contend(int index, void *arg)
{
    struct chaos *ch = arg;
    hf_client *c = client_at(ch->url, 0);
    hf_lock *m[LOCKS];
    for (int i = 0; i < LOCKS; i++)
        m[i] = lock_with(c, ch->name[i], KEPT);
    while (!atomic_load(&ch->mem->stop)) {
        int i = (int)t_random(LOCKS);
        uint64_t fence;
        int64_t begun = t_now_ns();
        if (hf_lock_acquire(m[i], 60000, &fence, &err)) {
            t_note("worker %d: %s", index, err.message);
            atomic_fetch_add(&ch->mem->failed, 1);
            continue;
        }
        struct grant *g = history_grant(ch->h, (uint32_t)i, (uint32_t)index, fence, begun,
                                        BELIEVED_UNTIL(m[i]));
        atomic_fetch_add(&ch->mem->got[i], 1);
        t_sleep_ms((int64_t)t_random(4));
        history_release(g);
        if (hf_lock_release(m[i], &err) == HF_ELOST)
            atomic_fetch_add(&ch->mem->lost, 1);
    }
    for (int i = 0; i < LOCKS; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

/* ---- what happens ---------------------------------------------------------------------------- */

static void move_slot(struct chaos *ch, int i, struct server *at)
{
    struct server *to = at;
    for (int k = 0; to == at || !cluster_is_master(ch->cl, to); k++)
        to = ch->cl->node[(k + (int)t_random((uint64_t)ch->cl->nodes)) % ch->cl->nodes];
    cluster_move_slot(ch->cl, ch->slot[i], to, NULL, NULL);
}

static void fail_over(struct chaos *ch, int i, struct server *at)
{
    (void)i;
    cluster_failover(ch->cl, cluster_replica(ch->cl, at));
}

static void kill_it(struct chaos *ch, int i, struct server *at)
{
    server_kill(at);
    cluster_wait_switch(ch->cl, ch->slot[i], at);
    server_restart(at);
}

/* For a moment, or for so long that it is replaced. */
static void freeze_it(struct chaos *ch, int i, struct server *at)
{
    server_freeze(at);
    if (t_random(2))
        cluster_wait_switch(ch->cl, ch->slot[i], at);
    else
        t_sleep_ms((int64_t)t_random(700));
    server_thaw(at);
}

static void cut_connections(struct chaos *ch, int i, struct server *at)
{
    (void)i;
    (void)at;
    for (int k = 0; k < ch->cl->nodes; k++) {
        server_ask(ch->cl->node[k], "CLIENT KILL TYPE pubsub");
        server_ask(ch->cl->node[k], "CLIENT KILL TYPE normal SKIPME yes");
    }
}

static void forget_scripts(struct chaos *ch, int i, struct server *at)
{
    (void)i;
    (void)at;
    for (int k = 0; k < ch->cl->nodes; k++)
        server_ask(ch->cl->node[k], "SCRIPT FLUSH");
}

static const struct {
    const char *what;
    void (*happens)(struct chaos *ch, int i, struct server *at);
} fault[] = {
    { "move", move_slot }, { "failover", fail_over }, { "kill", kill_it },
    { "freeze", freeze_it }, { "cut", cut_connections }, { "forget", forget_scripts },
};
enum { KINDS = sizeof fault / sizeof fault[0] };

/* Everybody goes on: each lock is granted again. */
static void wait_for_grants(struct chaos *ch, const char *after)
{
    int64_t begun = t_now_ms();
    for (int i = 0; i < LOCKS; i++) {
        long before = atomic_load(&ch->mem->got[i]);
        while (atomic_load(&ch->mem->got[i]) < before + 2) {
            if (t_calm_ms(begun) > STALL_MS)
                FAIL("no grant of %s for %d ms after a %s", ch->name[i], STALL_MS, after);
            t_sleep_ms(5);
        }
    }
}

TEST_TIMEOUT(P1_P4_P5_whatever_happens_to_a_cluster, 1800)
{
    struct chaos ch = { .cl = cluster_start(NULL), .h = history_new(1000000) };
    int faults = getenv("HF_SOAK") ? FAULTS_LONG : FAULTS, count[KINDS] = { 0 };
    ch.mem = shared_memory(sizeof *ch.mem);
    ch.url = url_with(ch.cl->url, "replicas=1");
    for (int i = 0; i < LOCKS; i++) {
        ch.name[i] = cluster_name(ch.cl, ch.cl->node[i], 0);
        ch.slot[i] = cluster_slot_of(ch.cl, ch.name[i]);
    }
    struct workers *w = workers_start(CROWD, contend, &ch);
    wait_for_grants(&ch, "start");
    for (int n = 0; n < faults; n++) {
        int kind = n < KINDS ? n : (int)t_random(KINDS), i = (int)t_random(LOCKS);
        cluster_wait(ch.cl); /* one thing at a time: two at once may lose what WAIT was told */
        fault[kind].happens(&ch, i, cluster_owner(ch.cl, ch.slot[i]));
        count[kind]++;
        wait_for_grants(&ch, fault[kind].what);
    }
    atomic_store(&ch.mem->stop, 1);
    workers_join(w, 90000);
    struct history_report r;
    history_check(ch.h, &r);
    for (int k = 0; k < KINDS; k++)
        t_note("%d x %s", count[k], fault[k].what);
    t_note("%zu grants, %d lost, %d failed, %zu overlaps (%lld ms)", r.grants,
           atomic_load(&ch.mem->lost), atomic_load(&ch.mem->failed), r.overlaps,
           (long long)(r.worst_ns / 1000000));
    CHECK_INT(r.duplicates, 0);
    CHECK_INT(r.disorder, 0);
    CHECK_INT(r.overlaps, 0);
    CHECK_INT(atomic_load(&ch.mem->lost), 0);
    CHECK_INT(atomic_load(&ch.mem->failed), 0);
}
