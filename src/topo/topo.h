/* SPDX-License-Identifier: MIT
 * topo.h - where a key lives.
 *
 * Everything above asks for the connection to a key's server and does not know which topology it
 * runs on: one server given by its address or embedded (single.c), the master that the Sentinels
 * name (sentinel.c), the servers of a cluster, each with a part of the keys (cluster.c), or several
 * servers of which a majority decides (quorum.c, topo_quorum()). What a topology has to bring is
 * struct topo_ops (topo_impl.h).
 */
#ifndef TOPO_TOPO_H
#define TOPO_TOPO_H

#include "base/log.h"
#include "net/conn.h"
#include "net/link.h"

struct topo;

/* How old the data there is that we know of: our fencing counter. */
struct greeted {
    int64_t age_ms; /* since it began; -1: there is none yet */
    bool    fresh;  /* that was in this life of the server */
    bool    due;    /* a reign is to begin there before the first number is taken (scope.h) */
    bool    again;  /* told by who asks: the connection had stood before */
};

/* On every fresh connection, before other requests use it (link_exchange()). *ret is set where a
 * server has one counter, and scripts. */
typedef hf_err (*topo_greet)(void *arg, struct link *l, const struct limit *lim,
                             struct greeted *ret, hf_error *reterr);

/* Takes over u. Talks to nobody yet. HF_ENOTSUP, HF_ECONFIG, HF_ENOMEM. */
hf_err topo_open(struct url *u, int64_t timeout_ms, topo_greet greet, void *arg,
                 const struct log *log, struct topo **ret, hf_error *reterr);
struct topo *topo_free(struct topo *t);
/* In a forked child: free the memory, touch no connection. */
struct topo *topo_forget(struct topo *t);

/* Connect now, one attempt. */
hf_err topo_connect(struct topo *t, const struct limit *lim, hf_error *reterr);

/* ---- what goes on while it is in use ---- */

enum topo_use { TOPO_IDLE, TOPO_WAITS, TOPO_HOLDS };

struct topo_events { /* Thread: any; nothing of the client's is locked */
    enum topo_use (*use)(void *arg); /* what is at stake now */
    /* Keys are on another server than before, or may be: what was proved counts no more. */
    void (*moved)(void *arg);
    void *arg;
};

/* From now on look after the servers in the background, where the topology needs it; and stop that:
 * then use() is not called any more, and moved() only by who still uses a connection. */
hf_err topo_attend(struct topo *t, const struct topo_events *events, hf_error *reterr);
void topo_unattend(struct topo *t);

/* Whether it ever does, and how often it has moved. */
bool topo_can_move(const struct topo *t);
unsigned topo_moves(const struct topo *t);
/* How often this key has. In a cluster keys move each for itself, and topo_moves() stays as it
 * is. */
unsigned topo_moves_of(const struct topo *t, hf_bytes key);

/* ---- connections ---- */

/* With replicas to be waited for, what has to wait must not keep up what must not. */
enum topo_lane { LANE_PLAIN, LANE_GRANT, LANE_KEEP, LANES };

/* The connection to the server that has this key. */
struct conn *topo_conn(struct topo *t, hf_bytes key);
struct conn *topo_lane(struct topo *t, hf_bytes key, enum topo_lane lane);
/* The same for a caller that must not wait: where the others would first ask whether the server
 * still is the right one, its connection is closed instead, and whoever makes the next one asks. */
struct conn *topo_lane_now(struct topo *t, hf_bytes key, enum topo_lane lane);

/* What is known of where keys are may be out of date: find out, in the background. */
void topo_doubt(struct topo *t);

/* Which server that is: the same for all keys that are on the same one. */
const void *topo_server(const struct topo *t, hf_bytes key);

/* The server behind cn turned out to be the wrong one. */
void topo_wrong(struct topo *t, struct conn *cn, const char *why);

/* Open a connection of one's own to the same server as this key's: for a subscription. */
hf_err topo_link(struct topo *t, hf_bytes key, struct link *l, const struct limit *lim,
                 hf_error *reterr);

/* How many replicas have to acknowledge what the grant and keep lanes write; -1: nobody is
 * asked. */
int topo_replicas(const struct topo *t, hf_bytes key);

/* ---- what the topology means for others ---- */

/* How long our process must be seen gone before a waiter takes over, if nobody says otherwise. */
int64_t topo_default_grace_ms(const struct topo *t);
/* How long a waiter puts up with a server that cannot be reached before it says so. */
int64_t topo_outage_ms(const struct topo *t);

/* The servers of a quorum (topo/quorum.h): every key is on all of them. NULL: it is none. */
struct quorum;
struct quorum *topo_quorum(const struct topo *t);

/* The servers of a cluster (topo/cluster.h): each slot is a place of its own. NULL: it is none. */
struct cluster;
struct cluster *topo_cluster(const struct topo *t);

/* Where it connects to, as it may be shown. */
const char *topo_shown(const struct topo *t);

#endif
