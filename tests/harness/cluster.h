/* SPDX-License-Identifier: MIT
 * cluster.h - a Redis Cluster of three masters with a replica each, for tests.
 *
 *     struct cluster *c = cluster_start(NULL);
 *     hf_client *cl = client_at(c->url, 0);
 *     struct server *old = cluster_owner_of(c, "lock:a");
 *     server_kill(old);
 *     struct server *now = cluster_wait_switch(c, cluster_slot(c, "lock:a"), old);
 *
 * All on 127.0.0.1, ports picked free; they know one another from the beginning, and it is complete
 * after about a second. A node is killed, frozen and started again by server.h. Nodes that are
 * dead or frozen are not asked anything here. Nothing moves by itself but a killed master's slots.
 */
#ifndef HARNESS_CLUSTER_H
#define HARNESS_CLUSTER_H

#include "harness/server.h"

enum { CLUSTER_MAX = 12, CLUSTER_SLOTS = 16384 };

struct cluster_opts {
    int masters;             /* 0: three */
    int no_replicas;         /* then two seconds: a master that starts waits so long */
    int tls;                 /* clients, replication and bus, and nothing but TLS */
    int memory_only;         /* no append-only file */
    int clockshim;           /* server_clock_shift() works */
    int node_timeout_ms;     /* 0: 1500; a failover takes twice as long */
    const struct place *place; /* not NULL: where each of them is */
    const char *requirepass; /* of all of them */
    const char *user;        /* one more: "name on >password ~* +@all" */
    const char *const *args; /* more arguments, NULL at the end; NULL: none */
};

struct cluster {
    struct cluster_opts opts;
    int nodes, masters;
    struct server *node[CLUSTER_MAX]; /* the masters at first, in the order of their slots, then the
                                         replica of each */
    char id[CLUSTER_MAX][41];
    const char *hosts;                /* 127.0.0.1:P1,127.0.0.1:P2,...: the first masters */
    const char *url;                  /* redis+cluster://HOSTS, or rediss+ and ?cacert= */
};

struct cluster *cluster_start(const struct cluster_opts *opts); /* opts may be NULL */

/* ---- who has what ---- */
int cluster_slot(struct cluster *c, const char *key);
int cluster_slot_of(struct cluster *c, const char *name); /* the key with the prefix "lock:" */
const char *cluster_id(const struct cluster *c, const struct server *s);
/* Who calls the slot its own, with the highest epoch of those who do; NULL: nobody who answers. */
struct server *cluster_owner(struct cluster *c, int slot);
struct server *cluster_owner_of(struct cluster *c, const char *key);
/* The n-th name whose key, with the prefix "lock:", lies at s. */
const char *cluster_name(struct cluster *c, struct server *s, int n);
/* The one that follows this master, by its own word; NULL: none does. */
struct server *cluster_replica(struct cluster *c, struct server *master);
int cluster_is_master(struct cluster *c, struct server *s);
/* How often this error was answered, "MOVED" say, by all who can be asked, since they started. */
long long cluster_errors(struct cluster *c, const char *code);
long long cluster_halfway(struct cluster *c); /* ASK and TRYAGAIN: of a slot on its way */
/* The same for a command, "asking", "eval", "cluster|slots": how often it was called. */
long long cluster_calls(struct cluster *c, const char *command);

/* ---- changes ---- */
/* Wait until all say that the state is ok and name the same owners, who live, and replicas are in
 * step. */
void cluster_wait(struct cluster *c);
/* The same but for replicas, and somebody else than old has the slot; returns it. */
struct server *cluster_wait_switch(struct cluster *c, int slot, struct server *old);
/* Make a replica the master, in agreement with its master, and wait until all know. */
void cluster_failover(struct cluster *c, struct server *replica);

/* ---- a slot goes to another master ----
 *
 *     struct cluster_move m = cluster_move_begin(c, slot, to);
 *     cluster_move_key(&m, "lock:a");           // half of it is there: TRYAGAIN
 *     cluster_move_finish(&m);                  // MOVED rather than ASK from now on            */
struct cluster_move {
    struct cluster *c;
    struct server *from, *to;
    int slot;
    long keys;  /* moved so far */
};

struct cluster_move cluster_move_begin(struct cluster *c, int slot, struct server *to);
/* 1, or 0 when it was not there (any more). */
int cluster_move_key(struct cluster_move *m, const char *key);
/* Up to max of what is left; how many. */
int cluster_move_keys(struct cluster_move *m, int max);
/* Tell the masters; nothing may be left at the old one. */
void cluster_move_end(struct cluster_move *m);
/* All that is left, and the end. */
void cluster_move_finish(struct cluster_move *m);
/* All of it, one key after the other; between (may be NULL) is called after the beginning and after
 * each key. Returns how many keys there were. */
long cluster_move_slot(struct cluster *c, int slot, struct server *to,
                       void (*between)(struct cluster_move *m, void *arg), void *arg);

#endif
