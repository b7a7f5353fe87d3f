/* SPDX-License-Identifier: MIT
 * cluster_nodes.h - the servers that a cluster has named, and which slots each of them has.
 *
 * There is room for NODES_MAX of them at a time. When that is used up, who has no slots makes room,
 * then who was not named for longest: so neither years of changing addresses nor a server that lies
 * shut out the true ones. A node that was ever used is never freed before the end: connections, and
 * other threads, point to it. One that was only named costs little, and is used again.
 */
#ifndef TOPO_CLUSTER_NODES_H
#define TOPO_CLUSTER_NODES_H

#include "topo/slot.h"
#include "topo/slotmap.h"
#include "topo/topo_impl.h"

#define NODES_MAX 1024
#define NOWHERE   0xffffu

struct node {
    struct url_host host;
    struct lane     lane[LANES];
    atomic_bool     open;     /* it has its connections, and is what it is for ever */
    atomic_int      replicas; /* that have to acknowledge what is written there */
    bool            seed;     /* of the URL: it stays */
    unsigned        slots;    /* how many it has */
    unsigned        had;      /* the same, when the present answer began */
    unsigned        named;    /* in which answer, the last time */
    char            id[SLOTMAP_ID_SIZE]; /* as the cluster knows it; "": not told yet */
    int64_t         silent_ms; /* since when it has not said what it claims; 0: it was not asked */
    int64_t         unanswered_ms; /* when that was asked in vain for the last time */
    struct node    *next;     /* of those that are not in the table */
    char            name[256];
};

/* All but what is atomic is guarded by the cluster's mu, which who calls holds. */
struct nodes {
    struct topo            *t;
    atomic_uint             n;
    _Atomic(struct node *)  node[NODES_MAX];
    _Atomic uint32_t        place[SLOT_COUNT]; /* which node, and above it how often it moved */
    unsigned                answer;            /* counts answers */
    bool                    displaced;         /* somebody made room who had slots */
    struct node            *gone, *spare;      /* were used; never were */
    unsigned                ngone;
};

void nodes_init(struct nodes *ns, struct topo *t);
void nodes_close(struct nodes *ns, bool forked); /* the connections */
void nodes_clear(struct nodes *ns);              /* the memory */

/* The number of the node at that address, which is added if need be; NOWHERE: no memory, or no
 * room, because this answer alone names too many. */
unsigned nodes_find(struct nodes *ns, const char *host, int port);
/* Make its connections, if that was not done yet. HF_ENOMEM. */
hf_err nodes_open(struct nodes *ns, struct node *nd);
/* The cluster names so many replicas of it: a majority has to acknowledge what is written there. It
 * names only those that live: fewer than before are not enough. */
void nodes_know_replicas(struct node *nd, unsigned n);
/* True: the slot was somewhere else before. */
bool nodes_put_slot(struct nodes *ns, unsigned slot, unsigned where);
/* Whose connection it is; NULL: nobody's. */
struct node *nodes_behind(struct nodes *ns, const struct conn *cn);
/* Who has the slot, or is thought to; one who has none if nobody does. Not to be used without
 * mu before it is open. Thread: any, without mu as well. */
struct node *nodes_at(struct nodes *ns, unsigned slot);
/* Who has the slot, or is thought to; NULL: nobody. */
struct node *nodes_owner(struct nodes *ns, unsigned slot);
void node_drop(struct node *nd, const char *why);

/* CLUSTER what, with one attempt to connect. The node is open. As conn_call(). Thread: any, without
 * mu. */
hf_err node_ask(struct node *nd, const char *what, int64_t round_ms, const struct limit *lim,
                struct exchange *call, hf_error *reterr);

#endif
