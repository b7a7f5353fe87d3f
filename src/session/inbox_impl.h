/* SPDX-License-Identifier: MIT
 * inbox_impl.h - what inbox.c, inbox_read.c and inbox_polling.c share; nobody else includes it.
 */
#ifndef SESSION_INBOX_IMPL_H
#define SESSION_INBOX_IMPL_H

#include <pthread.h>

#include "base/alarm.h"
#include "base/mutex.h"
#include "session/inbox.h"

#define INBOX_SILENCE_MS 5000 /* a ping unanswered for longer: the connection is dead */
#define INBOX_POLLING_MS 5000 /* a channel that does not stand for longer: it is said */
#define INBOX_REFUSED_MIN_MS 1000  /* to the next question after a refusal by rights */
#define INBOX_REFUSED_MAX_MS 30000
#define INBOX_GHOSTS     64

/* A thread in inbox_wait() that sleeps until another one wakes it. */
struct sleeper {
    struct sleeper *prev, *next;
    struct park    *park;
    uint64_t        ticket; /* its place in a queue, or 0 */
};

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
    atomic_size_t        nwatches;  /* changed under mu */
    bool                 stopping;
    bool                 refused;   /* the login or the ping is, the last time */
    bool                 mute;      /* ... the ping */
    struct subscription *subs;
    struct subscription *asked, **last_asked; /* those of them that are SUB_ASKED, in turn */
    bool                 recheck;   /* some of them may be on the wrong server */
    atomic_bool          plain;     /* this server knows no sharded channels */
    bool                 up;        /* the connection stands */
    bool                 stood;     /* a subscription did, on this one */
    int64_t              down_since_ms, up_since_ms;
    uint64_t             turns;     /* the number of the last question on this connection */
    uint64_t             ping_turn; /* while ping_sent_ms is not 0 */
    uint64_t             ghosts[INBOX_GHOSTS]; /* questions for channels that have gone elsewhere:
                                                  their answers are still to come */
    size_t               nghosts;
    bool                 polling;   /* it was said that waiting is by polling */
    char                 why[300];  /* the last reason for that */
    _Atomic int64_t      proof_ms;  /* on this connection; 0: none yet */
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
    struct sleeper      *line, *last_in_line; /* those of them who do not read, by ticket */
    const struct sleeper *promised;     /* who is being woken to read; it may not be in line any
                                           more */
    int64_t              away_until_ms; /* until when the thread does not watch it; 0: it does */
};

/* inbox.c. Whoever waits for something to change shall look. */
void inbox_changed_locked(struct inbox *in);
/* It is no longer SUB_ASKED. */
void inbox_answered_locked(struct inbox *in, struct subscription *s);

/* inbox_polling.c. Say once that waiting is by polling, and once that it is over. When to look
 * again. */
int64_t inbox_tell_polling(struct inbox *in);
/* Why a channel does not stand. */
void inbox_why_locked(struct inbox *in, const char *why);
/* Whether nothing has come since it was asked for a channel: the connection may be dead, which the
 * pings of one that nobody relies on would find late. */
bool inbox_unheard_locked(const struct inbox *in, const struct subscription *sub, int64_t now);
/* INBOX_READY if it stands, else what can be hoped for; now. */
enum inbox_answer inbox_hope_locked(const struct inbox *in, const struct subscription *sub,
                                    int64_t now);
/* Whether trying again soon does not help: nobody gave us the right, or it is the wrong server. */
bool inbox_is_refusal(hf_err e);
int64_t inbox_next_pause(int64_t pause_ms, int64_t least_ms, int64_t most_ms);

/* inbox_read.c. Read what is there and hand it on. False: the connection is over. Thread: who began
 * to read. */
bool inbox_take_in(struct inbox *in);

/* inbox_guest.c. Holds mu: the guest, if there is one, shall leave. */
void inbox_evict_locked(struct inbox *in);
/* Until when the thread sleeps, and in->away_until_ms: whether it leaves the link to
 * others meanwhile. */
int64_t inbox_plan_locked(struct inbox *in, int64_t now, int64_t due_ms);
/* Thread: the inbox's. There is something to read, unless a guest does it. */
void inbox_read(struct inbox *in);
/* Sleep until then, or until there is something on the link, if that is watched, or the bell was
 * rung; which it was. */
struct inbox_news {
    bool link, bell;
};
struct inbox_news inbox_poll(struct inbox *in, bool link, int bell_fd, int64_t until_ms);

#endif
