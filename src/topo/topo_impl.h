/* SPDX-License-Identifier: MIT
 * topo_impl.h - what a topology has to bring; only files of src/topo include it.
 */
#ifndef TOPO_TOPO_IMPL_H
#define TOPO_TOPO_IMPL_H

#include <stdatomic.h>

#include "topo/topo.h"

struct topo_ops {
    /* Where the server is that has the key; started, or found, if need be. *ret stays as long as
     * the topology does. */
    hf_err (*locate)(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr);
    /* Is the server behind l, at host, the right one? Before anything is written to it. May be
     * NULL, as all that follow. */
    hf_err (*check)(struct topo *t, const struct url_host *host, struct link *l,
                    const struct limit *lim, hf_error *reterr);
    /* A connection is about to be used: make sure of it; or only tell whether that is needed. */
    void (*use)(struct topo *t);
    bool (*unsure)(const struct topo *t);
    /* An attempt to connect has failed: would the next one, in a moment, fare better? */
    bool (*try_again)(struct topo *t, int tries);
    /* Connections of its own instead of lanes: opened when all else is set, connected, closed; and
     * the one for a key. */
    hf_err (*open)(struct topo *t, hf_error *reterr);
    hf_err (*connect)(struct topo *t, const struct limit *lim, hf_error *reterr);
    void (*close)(struct topo *t, bool forked);
    struct conn *(*conn)(struct topo *t, hf_bytes key, enum topo_lane lane);
    /* The keys are on several servers: as topo_server(), topo_moves_of(), topo_replicas(). */
    const void *(*server)(const struct topo *t, hf_bytes key);
    unsigned (*moves)(const struct topo *t, hf_bytes key);
    int (*replicas)(const struct topo *t, hf_bytes key);
    void (*doubt)(struct topo *t); /* as topo_doubt() */
    hf_err (*attend)(struct topo *t, hf_error *reterr);
    void (*unattend)(struct topo *t);
    void (*clear)(struct topo *t); /* the memory of what it added; in a forked child as well */
    int64_t grace_ms, outage_ms;
};

/* A connection and where it leads. */
struct lane {
    struct topo                      *t;
    struct conn                      *conn;
    _Atomic(const struct url_host *)  host;
    bool                              stood; /* it was up before; of who connects it */
};

/* The first part of every topology. */
struct topo {
    const struct topo_ops *ops;
    struct url            *url;
    const struct log      *log;
    int64_t                timeout_ms;
    topo_greet             greet;
    void                  *arg;
    struct topo_events     events;
    bool                   acks;      /* replicas, or the disk, are to be waited for */
    atomic_int             replicas;  /* how many */
    atomic_uint            moves;
    struct quorum         *quorum;    /* NULL: it is none */
    struct cluster        *cluster;   /* the same */
    struct lane            lane[LANES]; /* without acks all are the first */
    char                   shown[320];
};

/* Make one; t has its ops and what it added; u is not theirs yet. Talks to nobody. */
hf_err single_new(struct url *u, struct topo **ret, hf_error *reterr);
hf_err quorum_topo_new(struct url *u, struct topo **ret, hf_error *reterr);
hf_err cluster_new(struct url *u, struct topo **ret, hf_error *reterr);
hf_err sentinel_new(struct url *u, const struct log *log, struct topo **ret, hf_error *reterr);

/* What topo_shown() shows: "redis+kind://", or rediss, and the URL's hosts as far as there is
 * room. */
void topo_show(struct topo *t, const struct url *u, const char *kind);

/* Make the connection of a lane, to host or, if that is NULL, to where locate() says. replicas: how
 * many have to acknowledge what is written there; NULL: nobody is asked. HF_ENOMEM. */
hf_err topo_open_lane(struct topo *t, struct lane *lane, const struct url_host *host,
                      const atomic_int *replicas, hf_error *reterr);

/* Close every connection: what they lead to is not to be used any more. Tells of the move. */
void topo_moved(struct topo *t, const char *why);

#endif
