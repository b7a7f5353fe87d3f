/* SPDX-License-Identifier: MIT
 * cluster.c - the servers of a cluster, each with a part of the slots.
 *
 *  K1  A request goes to the server that the cluster last named for its slot. A server that is the
 *      wrong one refuses it (MOVED), so an old map costs a round trip and no promise.
 *  K2  ASKING is sent only to whom an ASK named, and only before the very request that got it.
 *  K3  While something is held, the cluster is asked every POLL_MS where its slots are; a server
 *      that has lost all of them is not listened to any more, whether it answers or not.
 *  K4  Who is told of a move proves anew, where the slot is now, what it holds.
 *
 * A server is known by the address under which the cluster announces it, and never forgotten:
 * connections point to it. There is one connection to each that is in use, or one for each lane.
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
#include "topo/slot.h"
#include "topo/slotmap.h"
#include "topo/topo_impl.h"

#define NODES_MAX  1024
#define NOWHERE    0xffffu
#define POLL_MS    1000
#define ROUND_MS   500 /* one question to one server */
#define RETRY_MS   50
#define AGAIN_MS   20  /* not more often than that is the cluster asked */

struct node {
    struct url_host host;
    struct lane     lane[LANES];
    atomic_int      replicas; /* that have to acknowledge what is written there */
    unsigned        slots;    /* how many it has; guarded by the cluster's mu */
    char            name[];
};

struct cluster {
    struct topo     t;
    struct mutex    mu; /* guards the list of nodes, and changes of the map */
    atomic_uint     n;
    struct node    *node[NODES_MAX];
    _Atomic uint32_t place[SLOT_COUNT]; /* which node, and in the upper half how often it moved */
    struct mutex    ask_mu; /* one asks at a time; guards the next */
    int64_t         learned_ms; /* when the last answer was asked for; 0: never yet */
    unsigned        turn;
    bool            attended;
    atomic_int      stopping;
    atomic_bool     curious;
    pthread_t       lookout;
    struct alarm    alarm;
};

/* ---- the nodes ------------------------------------------------------------------------------- */

static struct node *node_at(struct cluster *cl, unsigned i)
{
    return i < atomic_load(&cl->n) ? cl->node[i] : NULL;
}

static void close_node(struct node *nd, bool forked)
{
    for (int i = 0; i < LANES; i++) {
        if (forked)
            conn_forget(nd->lane[i].conn);
        else
            conn_free(nd->lane[i].conn);
    }
}

static struct node *new_node(struct cluster *cl, const char *host, int port)
{
    struct topo *t = &cl->t;
    size_t size = strlen(host) + 1;
    struct node *nd = mem_zalloc(sizeof *nd + size);
    if (!nd)
        return NULL;
    memcpy(nd->name, host, size);
    nd->host.host = nd->name;
    nd->host.port = port;
    atomic_store(&nd->replicas, atomic_load(&t->replicas));
    for (int i = 0; i < (t->acks ? LANES : 1); i++) {
        if (topo_open_lane(t, &nd->lane[i], &nd->host, i == LANE_PLAIN ? NULL : &nd->replicas,
                           NULL)) {
            close_node(nd, false);
            mem_free(nd);
            return NULL;
        }
    }
    return nd;
}

/* Its number; NOWHERE: no memory, or there are too many. */
static unsigned find_node_locked(struct cluster *cl, const char *host, int port)
{
    mutex_assert_held(&cl->mu);
    unsigned n = atomic_load(&cl->n);
    for (unsigned i = 0; i < n; i++)
        if (cl->node[i]->host.port == port && strcmp(cl->node[i]->host.host, host) == 0)
            return i;
    if (n == NODES_MAX || !(cl->node[n] = new_node(cl, host, port)))
        return NOWHERE;
    atomic_store(&cl->n, n + 1);
    return n;
}

static struct node *node_of(const struct cluster *cl, hf_bytes key)
{
    unsigned i = atomic_load(&cl->place[slot_of(key.data, key.len)]) & 0xffff;
    /* A slot that nobody has: any server says so. */
    return node_at((struct cluster *)cl, i == NOWHERE ? 0 : i);
}

static struct node *node_behind(struct cluster *cl, const struct conn *cn)
{
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        for (int k = 0; k < LANES; k++)
            if (cl->node[i]->lane[k].conn == cn)
                return cl->node[i];
    return NULL;
}

static void drop_node(struct node *nd, const char *why)
{
    for (int i = 0; i < LANES; i++)
        if (nd->lane[i].conn)
            conn_drop(nd->lane[i].conn, why);
}

/* ---- the map --------------------------------------------------------------------------------- */

/* True: it was somewhere else before. */
static bool put_slot_locked(struct cluster *cl, unsigned slot, unsigned where)
{
    mutex_assert_held(&cl->mu);
    uint32_t was = atomic_load(&cl->place[slot]);
    unsigned before = was & 0xffff, moves = was >> 16;
    if (before == where)
        return false;
    bool moved = before != NOWHERE;
    moves += moved;
    if (moved)
        cl->node[before]->slots--;
    if (where != NOWHERE)
        cl->node[where]->slots++;
    atomic_store(&cl->place[slot], (uint32_t)(moves << 16) | where);
    return moved;
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

static void learn_range_locked(void *arg, const struct slot_place *p)
{
    struct lesson *l = arg;
    mutex_assert_held(&l->cl->mu);
    l->any = true;
    unsigned i = find_node_locked(l->cl, *p->host ? p->host : l->teacher, p->port);
    if (i == NOWHERE)
        return; /* whoever needs it finds the old place wrong, and asks again */
    if (l->cl->t.url->replicas == URL_MAJORITY) /* with the master itself more than half of all */
        atomic_store(&l->cl->node[i]->replicas, (int)(p->replicas + 1) / 2);
    for (unsigned s = p->first; s <= p->last; s++)
        l->moved |= put_slot_locked(l->cl, s, i);
}

/* K3: what still is under way there gets no answer that counts. */
static void leave_the_deposed_locked(struct cluster *cl, const unsigned *had)
{
    mutex_assert_held(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        if (had[i] && !cl->node[i]->slots)
            drop_node(cl->node[i], "it has no slots any more");
}

static hf_err learn(struct cluster *cl, struct node *from, const struct reply *rp, hf_error *reterr)
{
    struct lesson l = { .cl = cl, .teacher = from->host.host };
    unsigned had[NODES_MAX] = { 0 };
    if (rp->type == REPLY_ERROR && strstr(rp->str, "cluster support disabled"))
        return err_set(reterr, HF_ECONFIG,
                       "%s:%d is no part of a cluster: use redis://, or turn cluster-enabled on "
                       "there", from->host.host, from->host.port);
    if (rp->type == REPLY_ERROR)
        return server_refusal(rp, reterr);
    mutex_lock(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        had[i] = cl->node[i]->slots;
    bool sense = slotmap_read(rp, learn_range_locked, &l);
    if (sense)
        leave_the_deposed_locked(cl, had);
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

/* Holds: ask_mu. */
static hf_err ask_node_locked(struct cluster *cl, struct node *nd, const struct limit *lim,
                              hf_error *reterr)
{
    mutex_assert_held(&cl->ask_mu);
    hf_bytes argv[] = { hf_str("CLUSTER"), hf_str("SLOTS") };
    struct exchange call = { .deadline_ms = clock_earlier(lim->at_ms, clock_now_ms() + ROUND_MS),
                         .stop = lim->stop, .impatient = true };
    hf_err e = conn_call(nd->lane[LANE_PLAIN].conn, 2, argv, &call, reterr);
    if (e)
        return e == HF_EUNSURE || e == HF_ECANCELED ? HF_ECONN : e;
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

/* Holds: ask_mu. Ask one after the other, until somebody answers: another one first each time, and
 * those that have slots before the others. */
static hf_err ask_anybody_locked(struct cluster *cl, const struct limit *lim, hf_error *reterr)
{
    mutex_assert_held(&cl->ask_mu);
    unsigned n = atomic_load(&cl->n), first = cl->turn++;
    hf_err e = HF_ECONN, worst = HF_OK;
    hf_error why = { 0 };
    for (int idle = 0; idle < 2; idle++) {
        for (unsigned k = 0; k < n; k++) {
            struct node *nd = cl->node[(first + k) % n];
            mutex_lock(&cl->mu);
            bool has_none = nd->slots == 0;
            mutex_unlock(&cl->mu);
            if (has_none != idle)
                continue;
            if (limit_over(lim) || atomic_load(&cl->stopping))
                return worst ? worst : late(reterr);
            e = ask_node_locked(cl, nd, lim, &why);
            if (!e)
                return HF_OK;
            if (!worst || e != HF_ECONN) { /* what is more than silence tells more */
                worst = e;
                if (reterr)
                    *reterr = why;
            }
        }
    }
    return worst;
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
    bool ask, moved = false;
    struct node *by = node_behind(cl, from);
    *ret_asked = NULL;
    if (!by || !slotmap_redirection(rp, &ask, &p)) { /* it was not done, whatever that is */
        doubt(&cl->t);
        return err_set(reterr, HF_ECONN,
                       "a server of the cluster answered %s, which names no server: look at "
                       "CLUSTER SLOTS", err_quote(words, sizeof words, rp->str, rp->len));
    }
    mutex_lock(&cl->mu);
    unsigned i = find_node_locked(cl, *p.host ? p.host : by->host.host, p.port);
    if (i != NOWHERE && ask)
        *ret_asked = cl->node[i]->lane[cl->t.acks ? lane : LANE_PLAIN].conn;
    else if (i != NOWHERE)
        moved = put_slot_locked(cl, p.first, i);
    mutex_unlock(&cl->mu);
    if (i == NOWHERE)
        return err_set(reterr, HF_ENOMEM, "no room for another server of the cluster");
    if (moved) {
        doubt(&cl->t); /* others will have moved as well */
        tell(cl);
    }
    return HF_OK;
}

size_t cluster_servers(struct cluster *cl, struct conn **ret, size_t max)
{
    size_t found = 0;
    mutex_lock(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->n); i++) {
        if (!cl->node[i]->slots)
            continue;
        if (found < max)
            ret[found] = cl->node[i]->lane[LANE_PLAIN].conn;
        found++;
    }
    mutex_unlock(&cl->mu);
    return found;
}

int cluster_place(struct cluster *cl, unsigned slot, const struct url_host **ret)
{
    unsigned i = atomic_load(&cl->place[slot]) & 0xffff;
    struct node *nd = node_at(cl, i); /* never forgotten */
    if (!nd)
        return -1;
    *ret = &nd->host;
    return (int)i;
}

const char *cluster_shown(struct cluster *cl, const struct conn *cn, char *buf, size_t size)
{
    const struct node *nd = node_behind(cl, cn);
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
    return atomic_load(&t->cluster->place[slot_of(key.data, key.len)]) >> 16;
}

static int replicas(const struct topo *t, hf_bytes key)
{
    return atomic_load(&node_of(t->cluster, key)->replicas);
}

static hf_err open_seeds(struct topo *t, hf_error *reterr)
{
    struct cluster *cl = t->cluster;
    for (unsigned s = 0; s < SLOT_COUNT; s++)
        atomic_store(&cl->place[s], NOWHERE);
    mutex_lock(&cl->mu);
    bool room = true;
    for (size_t i = 0; i < t->url->nhosts && room; i++)
        room = find_node_locked(cl, t->url->hosts[i].host, t->url->hosts[i].port) != NOWHERE;
    mutex_unlock(&cl->mu);
    return room ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

/* Those of the URL may be known to the cluster under other names. */
static void leave_seeds(struct cluster *cl)
{
    mutex_lock(&cl->mu);
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        if (!cl->node[i]->slots)
            drop_node(cl->node[i], "it has no slots");
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
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        close_node(cl->node[i], forked);
    if (!forked)
        alarm_close(&cl->alarm);
}

static void clear(struct topo *t)
{
    struct cluster *cl = t->cluster;
    for (unsigned i = 0; i < atomic_load(&cl->n); i++)
        mem_free(cl->node[i]);
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
