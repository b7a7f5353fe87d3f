/* SPDX-License-Identifier: MIT
 * own_conn.h - connections of one caller's own, for what the shared one cannot do: WATCH.
 *
 * A pool keeps idle ones for the next callers. Whoever comes while all are in use gets a new one,
 * however long the others take.
 */
#ifndef TOPO_OWN_CONN_H
#define TOPO_OWN_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "topo/topo.h"

struct own_conn {
    struct link      link;
    bool             fresh;    /* nobody has had it before */
    bool             watching; /* a WATCH of an earlier try may stand */
    bool             greeted;  /* its server was, so that numbers may be taken */

    /* For hf_update_run(). */
    char             id[56];   /* session, a dot, a number: no two connections ever have the same */
    uint64_t         writes;   /* sent under this id */

    /* The pool's. */
    struct own_conn *next;
    unsigned         moves;    /* of the topology, when it was opened */
    const void      *server;   /* as topo_server() */
};

struct own_conns;

/* keep: so many idle ones at most. NULL: no memory. */
struct own_conns *own_conns_new(struct topo *t, size_t keep);
/* Nobody has one of them now. In a forked child too: touches no socket there. */
struct own_conns *own_conns_free(struct own_conns *p);

/* An idle one that leads to where the key is now, or a new one. As topo_link(), and HF_ENOMEM. Any
 * thread. */
hf_err own_conn_take(struct own_conns *p, hf_bytes key, const struct limit *lim,
                     struct own_conn **ret, hf_error *reterr);
/* Give it back: no reply is under way on it. */
void own_conn_give(struct own_conns *p, struct own_conn *oc);
/* It is of no more use. reset: what has not left yet shall not. */
void own_conn_close(struct own_conn *oc, bool reset);

#endif
