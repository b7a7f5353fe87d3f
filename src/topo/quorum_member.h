/* SPDX-License-Identifier: MIT
 * quorum_member.h - the inside of a quorum and its members; only files of src/topo include it.
 */
#ifndef TOPO_QUORUM_MEMBER_H
#define TOPO_QUORUM_MEMBER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/mutex.h"
#include "base/park.h"
#include "topo/quorum.h"

struct quorum_sub;

struct member {
    struct quorum         *q;
    size_t                 index;
    struct conn           *conn;
    char                   shown[300];
    pthread_t              thread;
    bool                   started;
    bool                   stood; /* it was connected to before; of who connects */
    struct park            park;
    struct quorum_sub     *sub;   /* the thread's; NULL: nobody has asked for it, or no memory */
    atomic_bool            hears;
    atomic_bool            ask_time; /* its thread shall compare clocks */
    char                   run_id[64]; /* under the quorum's lock */
    _Atomic int64_t        begun_ms; /* our counter there began before; CLOCK_NEVER: not known */
    atomic_bool            reign_due; /* of its connection: we have only looked so far (scope.h) */
    _Atomic uint64_t       scripts; /* bit n: number n was sent as text on this connection */

    struct mutex           mu; /* guards the rest; no lock is taken under it */
    bool                   tried;
    hf_error               why; /* of the last failed attempt to connect */
    bool                   keeps; /* it has an append-only file, */
    bool                   fresh; /* but our counter there began in this life of it, */
    int64_t                from_ms; /* not before that, by our own clock */
    bool                   told;  /* that it has lost its data */
    int64_t                born_ms; /* at the latest, by our own clock */
    int64_t                offset_ms; /* its clock less ours, */
    int64_t                compared_ms; /* at that time, */
    int64_t                unsure_ms; /* give or take so much: it was read while the answer came */
    bool                   offset_known;
    struct pending_undo   *undos, *last_undo; /* last: if there are any */
    size_t                 nundos;
};

struct quorum {
    const struct log *log;
    const struct url *url;
    topo_greet        greet;
    void             *arg;
    int64_t           quarantine_ms;
    atomic_int        stopping;
    _Atomic int64_t   longest_ttl_ms, agreed_ms;
    quorum_heard      heard; /* this and the next two stay once listening is set */
    void             *heard_arg;
    char             *channel;
    atomic_bool       listening;
    atomic_bool       opened; /* a majority was up once */
    atomic_int        subscribed; /* how many members we hear */
    atomic_uint       ups;  /* how often one was connected to */
    struct mutex      mu;   /* guards every run_id, and quorum_listen() */
    struct park       news; /* for quorum_connect(): a member was tried */
    size_t            n;
    struct member     member[];
};

/* quorum_member.c: on a fresh connection, before anybody hears of it; arg is the member. */
hf_err member_greet(void *arg, struct link *l, const struct limit *lim, hf_error *reterr);

/* Thread: the member's. Compare clocks, if somebody wants it. */
void member_ask_time(struct member *m);

/* quorum_undo.c: do what it owes us, in order, on a connection that is being greeted, or on the one
 * that it has. What got no answer is due again. */
hf_err undos_by_link(struct member *m, struct link *l, const struct limit *lim, hf_error *reterr);
hf_err undos_by_conn(struct member *m);
void undos_clear(struct member *m);

/* Wait for 1 to QUORUM_MAX requests whose replies nobody needs, submitted for t, and give up those
 * that are late. */
void undos_wait(struct task *t, struct request *r, size_t n, int64_t deadline_ms);

#endif
