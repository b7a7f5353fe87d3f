/* SPDX-License-Identifier: MIT
 * cluster.c - the servers of a cluster, each with a part of the slots.
 *
 *  K1  A request goes to the server that the cluster last named for its slot. A server that is the
 *      wrong one refuses it (MOVED), so an old map costs a round trip and no promise.
 *  K2  ASKING is sent only to whom an ASK named, and only before the very request that got it.
 *  K3  While something is held, the cluster is asked every POLL_MS where its slots are; a server
 *      that has lost all of them is not listened to any more, whether it answers or not.
 *      A slot does not go from a server that we use because of one that has not heard of its last
 *      move: who has it is asked as well (claimants.h).
 *  K4  Who is told of a move proves anew, where the slot is now, what it holds.
 *
 * A server is known by the address under which the cluster announces it (cluster_nodes.h). There is
 * one connection to each that is in use, or one for each lane.
 */
#include "topo/cluster.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/random.h"
#include "base/thread.h"
#include "net/servererr.h"
#include "topo/claimants.h"
#include "topo/cluster_nodes.h"
#include "topo/slotmap.h"

#define POLL_MS    1000
#define ROUND_MS   500 /* one question to one server */
#define PATIENT_MS 2000 /* ... when nothing is known yet, and nobody was so quick */
#define RETRY_MS   50
#define AGAIN_MS   20  /* not more often than that is the cluster asked */

struct cluster {
    struct topo     t;
    struct mutex    mu; /* guards the nodes, and changes of the map */
    struct nodes    nodes;
    struct mutex    ask_mu; /* one asks at a time; guards the next */
    int64_t         learned_ms; /* when the last answer was asked for; 0: never yet */
    struct claimants claimants;
    unsigned        turn;
    bool            attended;
    atomic_int      stopping;
    atomic_bool     curious;
    pthread_t       lookout;
    struct alarm    alarm;
};

/* ---- the map --------------------------------------------------------------------------------- */

/* Who has the slot, with its connections. */
static struct node *node_of_slot(struct cluster *cl, unsigned slot)
{
    struct node *nd = nodes_at(&cl->nodes, slot);
    if (atomic_load(&nd->open))
        return nd;
    mutex_lock(&cl->mu);
    nd = nodes_at(&cl->nodes, slot);
    if (nodes_open(&cl->nodes, nd)) /* no memory: any other one says MOVED */
        nd = atomic_load(&cl->nodes.node[0]);
    mutex_unlock(&cl->mu);
    return nd;
}

static struct node *node_of(const struct cluster *cl, hf_bytes key)
{
    return node_of_slot((struct cluster *)cl, slot_of(key.data, key.len));
}

static void tell(struct cluster *cl)
{
    if (cl->t.events.moved)
        cl->t.events.moved(cl->t.events.arg);
}

/* What an answer says, while it is read. */
struct lesson {
    struct cluster *cl;
    const char     *teacher; /* the host that said it */
    bool            moved, any;
};

static void learn_range(void *arg, const struct slot_place *p)
{
    struct lesson *l = arg;
    l->any = true;
    struct nodes *ns = &l->cl->nodes;
    unsigned i = nodes_find(ns, *p->host ? p->host : l->teacher, p->port);
    if (i == NOWHERE)
        return; /* whoever needs it finds the old place wrong, and asks again */
    struct node *nd = atomic_load(&ns->node[i]);
    if (*p->id)
        memcpy(nd->id, p->id, sizeof nd->id);
    if (l->cl->t.url->replicas == URL_MAJORITY)
        nodes_know_replicas(nd, p->replicas);
    const struct claimants *cs = &l->cl->claimants;
    for (unsigned s = p->first; s <= p->last; s++)
        if (!cs->n || !claimants_keep(cs, nodes_owner(ns, s), s))
            l->moved |= nodes_put_slot(ns, s, i);
}

/* An answer begins: nobody has been named in it. */
static void begin_answer_locked(struct cluster *cl)
{
    mutex_assert_held(&cl->mu);
    struct nodes *ns = &cl->nodes;
    ns->answer++;
    for (unsigned i = 0; i < atomic_load(&ns->n); i++) {
        struct node *nd = atomic_load(&ns->node[i]);
        nd->had = nd->slots;
    }
}

/* K3: what still is under way there gets no answer that counts. */
static void leave_the_deposed_locked(struct cluster *cl)
{
    mutex_assert_held(&cl->mu);
    struct nodes *ns = &cl->nodes;
    for (unsigned i = 0; i < atomic_load(&ns->n); i++) {
        struct node *nd = atomic_load(&ns->node[i]);
        if (nd->had && !nd->slots)
            node_drop(nd, "it has no slots any more");
    }
}

/* Whether somebody who had slots has made room since it was last asked. */
static bool displaced_locked(struct cluster *cl)
{
    mutex_assert_held(&cl->mu);
    struct nodes *ns = &cl->nodes;
    bool was = ns->displaced;
    ns->displaced = false;
    return was;
}

/* Whoever would lose slots by this answer, and does not agree, is heard first. */
static hf_err hear_others(struct cluster *cl, struct node *from, const struct reply *rp,
                          const struct limit *lim, hf_error *reterr)
{
    mutex_lock(&cl->mu);
    claimants_find(&cl->claimants, &cl->nodes, from, rp);
    mutex_unlock(&cl->mu);
    return claimants_ask(&cl->claimants, from, ROUND_MS, lim, reterr);
}

static hf_err learn(struct cluster *cl, struct node *from, const struct reply *rp, hf_error *reterr)
{
    struct lesson l = { .cl = cl, .teacher = from->host.host };
    if (rp->type == REPLY_ERROR && strstr(rp->str, "cluster support disabled"))
        return err_set(reterr, HF_ECONFIG,
                       "%s:%d is not part of a cluster: use redis://, or turn cluster-enabled on "
                       "there", from->host.host, from->host.port);
    if (rp->type == REPLY_ERROR)
        return server_refusal(rp, reterr);
    mutex_lock(&cl->mu);
    begin_answer_locked(cl);
    bool sense = slotmap_read(rp, learn_range, &l);
    if (sense)
        leave_the_deposed_locked(cl);
    l.moved |= displaced_locked(cl);
    mutex_unlock(&cl->mu);
    if (!sense)
        return err_set(reterr, HF_EPROTO, "the answer to CLUSTER SLOTS makes no sense");
    if (rp->len == 0)
        return err_set(reterr, HF_ECONN, "the cluster of %s:%d has no slots yet: create it first",
                       from->host.host, from->host.port);
    if (!l.any)
        return err_set(reterr, HF_ECONN,
                       "the servers of the cluster of %s:%d do not know their own names: set "
                       "cluster-announce-hostname, or cluster-preferred-endpoint-type ip, on each",
                       from->host.host, from->host.port);
    if (l.moved)
        tell(cl);
    return HF_OK;
}

static hf_err ask_node(struct cluster *cl, unsigned i, int64_t round_ms, const struct limit *lim,
                       hf_error *reterr)
{
    struct exchange call = { 0 };
    mutex_lock(&cl->mu);
    struct node *nd = atomic_load(&cl->nodes.node[i]);
    hf_err e = nodes_open(&cl->nodes, nd);
    mutex_unlock(&cl->mu);
    if (e)
        return err_set(reterr, e, "out of memory");
    e = node_ask(nd, "SLOTS", round_ms, lim, &call, reterr);
    if (e)
        return e == HF_ECANCELED ? HF_ECONN : e;
    e = hear_others(cl, nd, call.reply, lim, reterr);
    if (!e)
        e = learn(cl, nd, call.reply, reterr);
    reply_free(call.reply);
    if (!e)
        cl->learned_ms = call.sent_ms;
    return e;
}

static hf_err late(hf_error *reterr)
{
    return err_set(reterr, HF_ECONN, "no server of the cluster answered in time");
}

/* The numbers of whom to ask, in this order: those that have slots, another one first
 * each time, and in between those of the URL, should all that was learned be false; then the
 * others. */
static unsigned ask_order_locked(struct cluster *cl, unsigned first, uint16_t *ret)
{
    mutex_assert_held(&cl->mu);
    struct nodes *ns = &cl->nodes;
    unsigned n = atomic_load(&ns->n), got = 0, seed = 0;
    for (unsigned k = 0; k <= n; k++) {
        if (k < n && !atomic_load(&ns->node[(first + k) % n])->slots)
            continue;
        if (k < n)
            ret[got++] = (uint16_t)((first + k) % n);
        for (bool one = false; seed < n && (!one || k == n); seed++) {
            const struct node *nd = atomic_load(&ns->node[(first + seed) % n]);
            one = nd->seed && !nd->slots;
            if (one)
                ret[got++] = (uint16_t)((first + seed) % n);
        }
    }
    for (unsigned i = 0; i < n; i++) {
        const struct node *nd = atomic_load(&ns->node[i]);
        if (!nd->seed && !nd->slots)
            ret[got++] = (uint16_t)i;
    }
    return got;
}

/* Holds: ask_mu. Ask one after the other, until somebody answers. ret_slow: somebody was there, and
 * did not answer in round_ms. */
static hf_err ask_each_locked(struct cluster *cl, int64_t round_ms, const struct limit *lim,
                              bool *ret_slow, hf_error *reterr)
{
    mutex_assert_held(&cl->ask_mu);
    uint16_t order[NODES_MAX];
    mutex_lock(&cl->mu);
    unsigned n = ask_order_locked(cl, cl->turn++, order);
    mutex_unlock(&cl->mu);
    hf_err worst = HF_OK;
    *ret_slow = false;
    for (unsigned k = 0; k < n; k++) {
        hf_error why = { 0 };
        if (limit_over(lim) || atomic_load(&cl->stopping))
            return worst ? worst : late(reterr);
        hf_err e = ask_node(cl, order[k], round_ms, lim, &why);
        if (!e)
            return HF_OK;
        *ret_slow |= e == HF_EUNSURE;
        e = e == HF_EUNSURE ? HF_ECONN : e;
        if (!worst || e != HF_ECONN) { /* what is more than silence tells more */
            worst = e;
            if (reterr)
                *reterr = why;
        }
    }
    return worst;
}

/* Holds: ask_mu. Of a map of many pieces, from far away or by a busy server, the answer takes its
 * time: who knows nothing yet waits for it. */
static hf_err ask_anybody_locked(struct cluster *cl, const struct limit *lim, hf_error *reterr)
{
    mutex_assert_held(&cl->ask_mu);
    bool slow;
    hf_err e = ask_each_locked(cl, ROUND_MS, lim, &slow, reterr);
    if (e == HF_ECONN && slow && !cl->learned_ms && !limit_over(lim))
        e = ask_each_locked(cl, PATIENT_MS, lim, &slow, reterr);
    return e;
}

static hf_err refresh(struct cluster *cl, int64_t since_ms, const struct limit *lim,
                      hf_error *reterr)
{
    /* Who asks keeps it while a server is silent: nobody waits for that longer than it has time. */
    if (!limit_lock(lim, &cl->ask_mu))
        return late(reterr);
    bool known = cl->learned_ms > since_ms || clock_now_ms() - cl->learned_ms < AGAIN_MS;
    hf_err e = known ? HF_OK : ask_anybody_locked(cl, lim, reterr);
    mutex_unlock(&cl->ask_mu);
    return e;
}

/* The lookout asks, and not more often than it should. */
static void doubt(struct topo *t)
{
    atomic_store(&t->cluster->curious, true);
    alarm_ring(&t->cluster->alarm);
}

hf_err cluster_redirected(struct cluster *cl, const struct reply *rp, struct conn *from,
                          enum topo_lane lane, struct conn **ret_asked, hf_error *reterr)
{
    char words[200];
    struct slot_place p;
    struct nodes *ns = &cl->nodes;
    bool ask, moved = false;
    unsigned i = NOWHERE;
    *ret_asked = NULL;
    mutex_lock(&cl->mu);
    struct node *by = nodes_behind(ns, from), *to = NULL;
    bool sense = by && slotmap_redirection(rp, &ask, &p);
    if (sense) {
        ns->answer++;
        i = nodes_find(ns, *p.host ? p.host : by->host.host, p.port);
    }
    if (i != NOWHERE && !nodes_open(ns, atomic_load(&ns->node[i])))
        to = atomic_load(&ns->node[i]);
    if (to && ask)
        *ret_asked = to->lane[cl->t.acks ? lane : LANE_PLAIN].conn;
    else if (to)
        moved = nodes_put_slot(ns, p.first, i);
    moved |= displaced_locked(cl);
    mutex_unlock(&cl->mu);
    if (!sense) { /* it was not done, whatever that is */
        doubt(&cl->t);
        return err_set(reterr, HF_ECONN,
                       "a server of the cluster answered %s, which names no server: look at "
                       "CLUSTER SLOTS", err_quote(words, sizeof words, rp->str, rp->len));
    }
    if (moved) {
        doubt(&cl->t); /* others will have moved as well */
        tell(cl);
    }
    return to ? HF_OK : err_set(reterr, HF_ENOMEM, "no room for another server of the cluster");
}

size_t cluster_servers(struct cluster *cl, struct conn **ret, size_t max)
{
    size_t found = 0;
    mutex_lock(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->nodes.n); i++) {
        struct node *nd = atomic_load(&cl->nodes.node[i]);
        if (!nd->slots || nodes_open(&cl->nodes, nd))
            continue;
        if (found < max)
            ret[found] = nd->lane[LANE_PLAIN].conn;
        found++;
    }
    mutex_unlock(&cl->mu);
    return found;
}

int cluster_place(struct cluster *cl, unsigned slot, const struct url_host **ret)
{
    unsigned i = atomic_load(&cl->nodes.place[slot]) & 0xffff;
    if (i == NOWHERE)
        return -1;
    *ret = &node_of_slot(cl, slot)->host;
    return (int)i;
}

const char *cluster_shown(struct cluster *cl, const struct conn *cn, char *buf, size_t size)
{
    mutex_lock(&cl->mu);
    const struct node *nd = nodes_behind(&cl->nodes, cn);
    mutex_unlock(&cl->mu);
    return nd ? stream_address(&nd->host, buf, size) : "?";
}

/* ---- the topology ---------------------------------------------------------------------------- */

static hf_err locate(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr)
{
    (void)lim;
    (void)reterr;
    *ret = &node_of(t->cluster, key)->host;
    return HF_OK;
}

static struct conn *conn_of(struct topo *t, hf_bytes key, enum topo_lane lane)
{
    return node_of(t->cluster, key)->lane[t->acks ? lane : LANE_PLAIN].conn;
}

static const void *server(const struct topo *t, hf_bytes key)
{
    return node_of(t->cluster, key);
}

static unsigned moves(const struct topo *t, hf_bytes key)
{
    return atomic_load(&t->cluster->nodes.place[slot_of(key.data, key.len)]) >> 16;
}

static int replicas(const struct topo *t, hf_bytes key)
{
    return atomic_load(&node_of(t->cluster, key)->replicas);
}

static hf_err open_seeds(struct topo *t, hf_error *reterr)
{
    struct cluster *cl = t->cluster;
    hf_err e = HF_OK;
    mutex_lock(&cl->mu);
    nodes_init(&cl->nodes, t);
    for (size_t i = 0; i < t->url->nhosts && !e; i++) {
        unsigned k = nodes_find(&cl->nodes, t->url->hosts[i].host, t->url->hosts[i].port);
        struct node *nd = k == NOWHERE ? NULL : atomic_load(&cl->nodes.node[k]);
        e = nd ? nodes_open(&cl->nodes, nd) : HF_ENOMEM;
        if (nd)
            nd->seed = true;
    }
    mutex_unlock(&cl->mu);
    return e ? err_set(reterr, e, "out of memory") : HF_OK;
}

/* Those of the URL may be known to the cluster under other names. */
static void leave_seeds(struct cluster *cl)
{
    mutex_lock(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->nodes.n); i++) {
        struct node *nd = atomic_load(&cl->nodes.node[i]);
        if (!nd->slots)
            node_drop(nd, "it has no slots");
    }
    mutex_unlock(&cl->mu);
}

static hf_err connect_any(struct topo *t, const struct limit *lim, hf_error *reterr)
{
    struct cluster *cl = t->cluster;
    for (;;) {
        hf_err e = refresh(cl, 0, lim, reterr);
        if (!e) {
            leave_seeds(cl);
            return HF_OK;
        }
        if (e != HF_EBUSY)
            return e;
        if (limit_stopped(lim) || clock_now_ms() + RETRY_MS >= lim->at_ms)
            return err_known(reterr, HF_ECONN, HF_KNOWN_UNCHANGED);
        limit_sleep(lim, RETRY_MS);
    }
}

static void close_all(struct topo *t, bool forked)
{
    struct cluster *cl = t->cluster;
    nodes_close(&cl->nodes, forked);
    if (!forked)
        alarm_close(&cl->alarm);
}

static void clear(struct topo *t)
{
    nodes_clear(&t->cluster->nodes);
}

static void *lookout_main(void *arg)
{
    struct cluster *cl = arg;
    while (!atomic_load(&cl->stopping)) {
        int64_t now = clock_now_ms();
        bool asked = atomic_exchange(&cl->curious, false);
        struct limit lim = { now + POLL_MS, &cl->stopping };
        if (asked || cl->t.events.use(cl->t.events.arg) == TOPO_HOLDS)
            (void)!refresh(cl, now, &lim, NULL);
        alarm_wait(&cl->alarm, clock_now_ms() + random_between(POLL_MS / 2, POLL_MS));
    }
    return NULL;
}

static hf_err attend(struct topo *t, hf_error *reterr)
{
    struct cluster *cl = t->cluster;
    int e = thread_start(&cl->lookout, "hf-cluster", lookout_main, cl);
    cl->attended = !e;
    return e ? err_set(reterr, HF_ESYS, "cannot start the thread that watches the cluster: %s",
                       strerror(e))
             : HF_OK;
}

static void unattend(struct topo *t)
{
    struct cluster *cl = t->cluster;
    if (!cl->attended)
        return;
    atomic_store(&cl->stopping, 1);
    alarm_ring(&cl->alarm);
    thread_join(cl->lookout);
    cl->attended = false;
    atomic_store(&cl->stopping, 0); /* who closes still talks to it */
}

/* The grace must outlast a failover, else locks are lost in one. */
static const struct topo_ops ops = {
    .locate = locate, .open = open_seeds, .connect = connect_any, .close = close_all,
    .conn = conn_of, .server = server, .moves = moves, .replicas = replicas, .doubt = doubt,
    .attend = attend, .unattend = unattend,
    .clear = clear, .grace_ms = 15000, .outage_ms = 90000,
};

hf_err cluster_new(struct url *u, struct topo **ret, hf_error *reterr)
{
    struct cluster *cl = mem_zalloc(sizeof *cl);
    if (!cl)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    if (alarm_open(&cl->alarm) < 0) {
        mem_free(cl);
        return err_set(reterr, HF_ESYS, "no descriptor for the thread that watches the cluster: %s",
                       strerror(errno));
    }
    mutex_init(&cl->mu, MUTEX_CLUSTER);
    mutex_init(&cl->ask_mu, MUTEX_CLUSTER_ASK);
    cl->t.ops = &ops;
    cl->t.cluster = cl;
    topo_show(&cl->t, u, "cluster");
    *ret = &cl->t;
    return HF_OK;
}
