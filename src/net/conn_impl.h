/* SPDX-License-Identifier: MIT
 * conn_impl.h - the inside of a connection: for conn.c, conn_up.c, task.c and loop.c.
 */
#ifndef NET_CONN_IMPL_H
#define NET_CONN_IMPL_H

#include <poll.h>
#include <pthread.h>

#include "base/limit.h"
#include "base/mutex.h"
#include "net/conn.h"
#include "net/link.h"
#include "net/spin.h"

struct conn {
    const struct url      *url;
    const struct url_host *host;
    const struct log      *log;
    struct conn_hooks      hooks;
    int64_t                connect_timeout_ms, silence_ms;
    struct conn_ack        ack;
    _Atomic uint64_t       notes;

    struct mutex    mu;
    struct link     link;     /* the leader's alone until it is up, then written to under mu */
    bool            up;       /* READY; else only the leader may touch the link */
    unsigned        epoch;    /* which of all connections of the process it is, or was */
    struct queue    unsent;   /* not a byte of them, or not all, has left */
    struct queue    sent;     /* in the order in which replies come */
    struct queue    answered; /* with their reply, until the replicas' acknowledgement is here */
    struct queue    settled;  /* with their result: the leader tells their owners, */
    struct queue    telling;  /* and these it is telling; the leader's alone */
    size_t          under_way; /* how many are in sent */
    unsigned        batches;  /* written and not yet answered to the end */
    struct spin     spin;     /* the leader's */
    bool            led;      /* somebody leads */
    _Atomic unsigned stands;  /* epoch while it is up and not broken, else 0 */
    bool            broken;   /* the leader shall take the stream down when it comes back */
    bool            doubt;    /* something that had left was given up: close by RST */
    char            why[512]; /* why it went down last, or did not come up */
    char            where[160]; /* the server it was up to last; "": none yet */
    int64_t         retry_at_ms, backoff_ms;

    /* For tasks of an event loop. */
    struct loop    *loop;     /* that watches it; NULL: none has used it */
    bool            watches_out; /* for room to write, too */
    bool            connecting;  /* connector_main() runs, */
    bool            connector_started; /* or has, and is to be joined */
    pthread_t       connector;
    atomic_int      closing;
    atomic_int      unwanted; /* nobody waits for the attempt to connect that is under way */
    bool            unflushed;   /* this and the next are the dispatcher's */
    struct conn    *next_unflushed;
    struct conn    *next_simulated; /* the loop's */
};

/* conn.c. Thread: r's task's. Lead or follow until r is done or the time has come. */
void conn_wait(struct request *r, int64_t until_ms);
/* Lead r's connection from now on, if it is up and nobody else does, until r is taken; *ret is what
 * to poll for. */
bool conn_try_lead(struct request *r, struct pollfd *ret);
/* Thread: the leader. One round: write what is queued, read if there is something. */
void conn_lead_once(struct request *r, bool readable);
/* Thread: the dispatcher's. There may be something to read; nothing waits. */
void conn_serve(struct conn *cn);
/* Write what was submitted. */
void conn_flush(struct conn *cn);

/* conn_io.c. Take the stream down: the leader, or anybody while nobody leads. */
void conn_fail_locked(struct conn *cn);
/* The same as soon as nobody reads from it. */
void conn_break_locked(struct conn *cn, const char *why);
/* All that left is in doubt. */
void conn_doubt_sent_locked(struct conn *cn);
/* What was to leave on a connection that does not stand any more fails. */
void conn_fail_unsent_locked(struct conn *cn);
/* Whoever waits longest shall lead, if nobody does. */
void conn_pass_lead_locked(struct conn *cn);
/* Write what is queued. */
void conn_flush_locked(struct conn *cn);
/* Thread: the leader. What a read has brought: n bytes, none (0), or the end, and why. */
void conn_take_in_locked(struct conn *cn, ssize_t n, int why);
/* Thread: the leader. Holds: mu, released while it sleeps. One round of reading; or all that is
 * there, without waiting. */
void conn_read_locked(struct conn *cn);
void conn_read_now_locked(struct conn *cn);

/* conn_up.c. Holds: mu, released meanwhile. Caller leads, for r or for others (NULL). One attempt,
 * not before the back-off is over; or wait for a tick of that. */
void conn_come_up_locked(struct conn *cn, const struct request *r, const struct limit *lim);
/* Requests of an event loop wait, and nobody leads: a thread connects for them. */
void conn_connect_in_background_locked(struct conn *cn);
/* Whoever waited may have gone: an attempt that nobody waits for ends, so that the next
 * one who comes makes its own. */
void conn_unwanted_locked(struct conn *cn);
void conn_stop_connecting(struct conn *cn);

#endif
