/* SPDX-License-Identifier: MIT
 * conn_impl.h - what conn.c and conn_gather.c share; nobody else includes it.
 */
#ifndef NET_CONN_IMPL_H
#define NET_CONN_IMPL_H

#include <pthread.h>

#include "net/conn.h"
#include "net/link.h"
#include "net/request.h"

struct conn {
    const struct url      *url;
    const struct url_host *host;
    const struct log      *log;
    struct conn_hooks      hooks;
    int64_t                connect_timeout_ms, silence_ms;
    struct conn_ack        ack;
    _Atomic uint64_t       notes;

    pthread_mutex_t mu;
    struct link     link;     /* the leader's alone until it is up, then written to under mu */
    bool            up;       /* READY; else only the leader may touch the link */
    unsigned        epoch;    /* which of all connections of the process it is, or was */
    struct queue    unsent;   /* not a byte of them, or not all, has left */
    struct queue    sent;     /* in the order in which replies come */
    struct queue    answered; /* with their reply, until the replicas' acknowledgement is here */
    unsigned        batches;  /* written and not yet answered to the end */
    bool            led;      /* somebody leads */
    bool            broken;   /* the leader shall take the stream down when it comes back */
    bool            doubt;    /* something that had left was given up: close by RST */
    char            why[256]; /* why it went down last, or did not come up */
    int64_t         retry_at_ms, backoff_ms;
};

/* conn.c. All hold mu. Take the stream down: the leader, or anybody while nobody leads. */
void conn_fail_locked(struct conn *cn);
/* Take it down as soon as nobody reads from it. */
void conn_break_locked(struct conn *cn, const char *why);
/* Whoever waits longest shall lead, if nobody does. */
void conn_pass_lead_locked(struct conn *cn);
/* Write what is queued; read what is there, and hand it to whom it belongs. */
void conn_flush_locked(struct conn *cn);
void conn_read_locked(struct conn *cn);

#endif
