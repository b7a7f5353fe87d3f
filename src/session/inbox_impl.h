/* SPDX-License-Identifier: MIT
 * inbox_impl.h - what inbox.c and inbox_read.c share; nobody else includes it.
 */
#ifndef SESSION_INBOX_IMPL_H
#define SESSION_INBOX_IMPL_H

#include <pthread.h>

#include "base/alarm.h"
#include "base/mutex.h"
#include "session/inbox.h"

#define INBOX_SILENCE_MS 5000 /* a ping unanswered for longer: the connection is dead */

struct inbox {
    struct topo        *topo;
    const void         *server;
    struct inbox_events events;
    const struct log   *log;
    pthread_t           thread;
    struct alarm        alarm;
    int                 bell_fd; /* wakes the guest */
    struct link         link;    /* read by whoever has set reading; the rest is the thread's
                                    alone */
    unsigned            moves;   /* of the topology, when the connection was made */
    atomic_int          hurried; /* 1: who is being connected to is not waited for. Set under mu */

    struct mutex         mu;
    pthread_cond_t       changed;   /* inbox_changed_locked() */
    struct inbox_watch  *watches, **last_watch; /* who is woken then, too */
    bool                 stopping, refused;
    struct subscription *subs;
    bool                 recheck;   /* some of them may be on the wrong server */
    bool                 plain;     /* this server knows no sharded channels */
    bool                 up;        /* the connection stands */
    bool                 stood;     /* a subscription did, on this one */
    int64_t              down_since_ms;
    uint64_t             turns;
    int64_t              proof_ms;  /* on this connection; 0: none yet */
    int64_t              interval_ms;
    bool                 ping_wanted;
    int64_t              ping_sent_ms;  /* 0: all were answered */
    bool                 listening;     /* the link stands, and may be read */
    bool                 over;          /* whoever read it found that it has ended */
    bool                 reading;       /* somebody reads it and hands on what came */
    bool                 guest;         /* a waiting thread watches it */
    bool                 evicted;       /* ... and shall leave */
    int64_t              guest_ms;      /* when the last one came or left */
    unsigned             sleepers;      /* threads in inbox_wait() */
    int64_t              away_until_ms; /* until when the thread does not watch it; 0: it does */
};

/* inbox.c. Whoever waits for something to change shall look. */
void inbox_changed_locked(struct inbox *in);
/* Whether the channels are those of a cluster's slots. */
bool inbox_sharded(const struct inbox *in);

/* inbox_read.c. The guest, if there is one, shall leave. */
void inbox_evict_locked(struct inbox *in);
/* Until when the thread sleeps, and in->away_until_ms: whether it leaves the link to
 * others meanwhile. */
int64_t inbox_plan_locked(struct inbox *in, int64_t now, int64_t due_ms);
/* Thread: the inbox's. There is something to read, unless a guest does it. */
void inbox_read(struct inbox *in);
/* In milliseconds, for poll(2). */
int inbox_poll_ms(int64_t until_ms);

#endif
