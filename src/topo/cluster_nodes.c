/* SPDX-License-Identifier: MIT
 * cluster_nodes.c - the servers that a cluster has named; see cluster_nodes.h.
 */
#include "topo/cluster_nodes.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

#define GONE_MAX 8192 /* who makes us use so many addresses means us ill */

void nodes_init(struct nodes *ns, struct topo *t)
{
    ns->t = t;
    for (unsigned s = 0; s < SLOT_COUNT; s++)
        atomic_store(&ns->place[s], NOWHERE);
}

static void close_node(struct node *nd, bool forked)
{
    for (int i = 0; i < LANES; i++) {
        if (forked)
            conn_forget(nd->lane[i].conn);
        else
            conn_free(nd->lane[i].conn);
        nd->lane[i].conn = NULL;
    }
}

void nodes_close(struct nodes *ns, bool forked)
{
    for (unsigned i = 0; i < atomic_load(&ns->n); i++)
        close_node(atomic_load(&ns->node[i]), forked);
    for (struct node *nd = ns->gone; nd; nd = nd->next)
        close_node(nd, forked);
}

static void free_list(struct node *nd)
{
    while (nd) {
        struct node *next = nd->next;
        mem_free(nd);
        nd = next;
    }
}

void nodes_clear(struct nodes *ns)
{
    for (unsigned i = 0; i < atomic_load(&ns->n); i++)
        mem_free(atomic_load(&ns->node[i]));
    free_list(ns->gone);
    free_list(ns->spare);
}

void node_drop(struct node *nd, const char *why)
{
    for (int i = 0; i < LANES; i++)
        if (nd->lane[i].conn)
            conn_drop(nd->lane[i].conn, why);
}

hf_err nodes_open(struct nodes *ns, struct node *nd)
{
    struct topo *t = ns->t;
    if (atomic_load(&nd->open))
        return HF_OK;
    for (int i = 0; i < (t->acks ? LANES : 1); i++) {
        if (topo_open_lane(t, &nd->lane[i], &nd->host, i == LANE_PLAIN ? NULL : &nd->replicas,
                           NULL)) {
            close_node(nd, false);
            return HF_ENOMEM;
        }
    }
    atomic_store(&nd->open, true);
    return HF_OK;
}

bool nodes_put_slot(struct nodes *ns, unsigned slot, unsigned where)
{
    uint32_t was = atomic_load(&ns->place[slot]);
    unsigned before = was & 0xffff, moves = was >> 16;
    if (before == where)
        return false;
    bool moved = before != NOWHERE;
    moves += moved;
    if (moved)
        atomic_load(&ns->node[before])->slots--;
    if (where != NOWHERE)
        atomic_load(&ns->node[where])->slots++;
    atomic_store(&ns->place[slot], (uint32_t)(moves << 16) | where);
    return moved;
}

/* Who is to make room: without slots rather than with them, then who was named the longest ago.
 * Whom this very answer named stays. */
static unsigned victim(struct nodes *ns)
{
    unsigned best = NOWHERE, best_age = 0;
    bool best_idle = false;
    for (unsigned i = 0; i < NODES_MAX; i++) {
        const struct node *nd = atomic_load(&ns->node[i]);
        unsigned age = ns->answer - nd->named;
        bool idle = nd->slots == 0;
        if (nd->seed || age == 0 || idle < best_idle || (idle == best_idle && age <= best_age))
            continue;
        best = i;
        best_age = age;
        best_idle = idle;
    }
    return best;
}

/* The i-th of the table is put aside. */
static void put_aside(struct nodes *ns, unsigned i)
{
    struct node *nd = atomic_load(&ns->node[i]);
    ns->displaced |= nd->slots > 0;
    for (unsigned s = 0; nd->slots && s < SLOT_COUNT; s++)
        if ((atomic_load(&ns->place[s]) & 0xffff) == i)
            nodes_put_slot(ns, s, NOWHERE);
    bool used = atomic_load(&nd->open);
    struct node **list = used ? &ns->gone : &ns->spare;
    nd->next = *list;
    *list = nd;
    ns->ngone += used;
    node_drop(nd, "the cluster does not name it any more");
}

static struct node *new_node(struct nodes *ns, const char *host, int port)
{
    struct node *nd = ns->spare;
    if (nd)
        ns->spare = nd->next;
    else if (!(nd = mem_zalloc(sizeof *nd)))
        return NULL;
    size_t size = strlen(host) + 1;
    memcpy(nd->name, host, size < sizeof nd->name ? size : sizeof nd->name - 1);
    nd->host.host = nd->name;
    nd->host.port = port;
    nd->had = 0;
    nd->named = ns->answer;
    nd->id[0] = '\0';
    /* Where there seems to be no replica, they may all be away: a majority is never none. */
    bool majority = ns->t->url->replicas == URL_MAJORITY;
    atomic_store(&nd->replicas, majority ? 1 : atomic_load(&ns->t->replicas));
    return nd;
}

void nodes_know_replicas(struct node *nd, unsigned n)
{
    int most = (int)(n + 1) / 2; /* with the master itself more than half of all */
    if (most > atomic_load(&nd->replicas))
        atomic_store(&nd->replicas, most);
}

unsigned nodes_find(struct nodes *ns, const char *host, int port)
{
    unsigned n = atomic_load(&ns->n);
    for (unsigned i = 0; i < n; i++) {
        struct node *nd = atomic_load(&ns->node[i]);
        if (nd->host.port == port && strcmp(nd->name, host) == 0) {
            nd->named = ns->answer;
            return i;
        }
    }
    bool full = n == NODES_MAX;
    unsigned at = full ? victim(ns) : n;
    if (at == NOWHERE
        || (full && ns->ngone >= GONE_MAX && atomic_load(&atomic_load(&ns->node[at])->open)))
        return NOWHERE;
    struct node *nd = new_node(ns, host, port);
    if (!nd)
        return NOWHERE;
    if (full)
        put_aside(ns, at);
    atomic_store(&ns->node[at], nd);
    if (!full)
        atomic_store(&ns->n, n + 1);
    return at;
}

struct node *nodes_behind(struct nodes *ns, const struct conn *cn)
{
    for (unsigned i = 0; i < atomic_load(&ns->n); i++) {
        struct node *nd = atomic_load(&ns->node[i]);
        for (int k = 0; k < LANES; k++)
            if (nd->lane[k].conn == cn)
                return nd;
    }
    for (struct node *nd = ns->gone; nd; nd = nd->next)
        for (int k = 0; k < LANES; k++)
            if (nd->lane[k].conn == cn)
                return nd;
    return NULL;
}

struct node *nodes_at(struct nodes *ns, unsigned slot)
{
    unsigned i = atomic_load(&ns->place[slot]) & 0xffff;
    /* A slot that nobody has: any server says so, and the first one is of the URL. */
    return atomic_load(&ns->node[i < atomic_load(&ns->n) ? i : 0]);
}

struct node *nodes_owner(struct nodes *ns, unsigned slot)
{
    unsigned i = atomic_load(&ns->place[slot]) & 0xffff;
    return i == NOWHERE ? NULL : atomic_load(&ns->node[i]);
}

hf_err node_ask(struct node *nd, const char *what, int64_t round_ms, const struct limit *lim,
                struct exchange *call, hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("CLUSTER"), hf_str(what) };
    *call = (struct exchange){ .deadline_ms = clock_earlier(lim->at_ms, clock_now_ms() + round_ms),
                               .stop = lim->stop, .impatient = true };
    return conn_call(nd->lane[LANE_PLAIN].conn, 2, argv, call, reterr);
}
