/* SPDX-License-Identifier: MIT
 * inbox.h - the session's subscriptions at one server: where wake-ups arrive, and the proof that
 * we live.
 *
 * One connection of its own, subscribed to our channel there, or in a cluster to our channel of
 * each slot in use. The server sees it standing; when our process dies, its kernel closes it. A
 * proof is a ping that was answered on it: at its sending the subscriptions stood that stand now.
 */
#ifndef SESSION_INBOX_H
#define SESSION_INBOX_H

#include <stdbool.h>

#include "base/park.h"
#include "net/task.h"
#include "topo/topo.h"

struct inbox;
struct keyspace;

/* One channel. Its owner fills in the first two, and keeps it until inbox_free(). */
struct subscription {
    const char            *channel;
    struct keyspace       *keyspace; /* whose it is */
    _Atomic(struct inbox *) at;    /* that has it; NULL: none */
    atomic_uint            epoch;  /* 0: it does not stand; never the same twice */
    _Atomic int64_t        asked_ms; /* then it began to stand, if it does */

    /* The inbox's, under its lock. */
    enum { SUB_WANTED, SUB_ASKED, SUB_STANDS } state;
    bool                   refused; /* by rights or configuration, the last time */
    int64_t                wanted_ms; /* since when it does not stand */
    int64_t                retry_at_ms, pause_ms; /* pause: after the last refusal */
    uint64_t               turn;   /* the number of its question, while it is SUB_ASKED */
    struct subscription   *next;
    struct subscription   *next_asked; /* while it is SUB_ASKED: who was asked for after it */
};

struct inbox_events { /* called by whoever reads, in order, one at a time, nothing locked */
    void (*up)(void *arg, struct subscription *sub, unsigned epoch);
    /* What stands at this inbox stood at sent_ms. */
    void (*proved)(void *arg, const struct inbox *in, int64_t sent_ms);
    void (*message)(void *arg, const char *text, size_t len);
    /* Its channel is at another server now. Thread: the inbox's; it is not in the inbox any
     * more. */
    void (*astray)(void *arg, struct subscription *sub);
    void *arg;
    const atomic_uint *expectant; /* how many wait for messages without being in inbox_wait() */
};

/* For the server that topo_server() tells. Starts its thread, which connects and reconnects by
 * itself as long as there is a channel. */
hf_err inbox_open(struct topo *t, const void *server, const struct inbox_events *events,
                  const struct log *log, struct inbox **ret, hf_error *reterr);
/* It has no channel, and its connection is closed: from now on it is for another server. False: it
 * is in use. */
bool inbox_turn_to(struct inbox *in, const void *server);
struct inbox *inbox_free(struct inbox *in);
void inbox_stop(struct inbox *in); /* before inbox_free(), when several are to be freed */
struct inbox *inbox_forget(struct inbox *in); /* in a forked child */
const void *inbox_server(const struct inbox *in);
/* Whether the channels are those of a cluster's slots, as far as is known. */
bool inbox_sharded(const struct inbox *in);

/* Subscribe to a channel. */
void inbox_add(struct inbox *in, struct subscription *sub);

/* The topology has moved: subscriptions may be on the wrong server. */
void inbox_moved(struct inbox *in);

/* Prove often enough for this grace from now on; CLOCK_NEVER: only now and then. */
void inbox_prove_for(struct inbox *in, int64_t grace_ms);

/* Sleep until p is woken or the time has come; may return early. A thread that is alone in this, or
 * has the lowest ticket (0: none), reads the inbox itself meanwhile: what wakes it needs no other
 * thread. */
void inbox_wait(struct inbox *in, struct park *p, uint64_t ticket, int64_t until_ms);
/* To be called when *expectant has grown. */
void inbox_expect(struct inbox *in);

enum inbox_answer { INBOX_READY, INBOX_NOT_YET, INBOX_REFUSED, INBOX_ASTRAY, INBOX_WAIT };

/* Who waits for a change at an inbox. All zero before and after. Tasks of an event loop stand in
 * line by it: who comes later waits for those before it, so that requests leave in the order in
 * which they were made. */
struct inbox_watch {
    struct inbox       *in; /* NULL: it does not */
    struct task        *task;
    struct inbox_watch *next;
};

/* Does the subscription stand, and was that proven not longer ago than age_ms? *ret_epoch is which
 * one it is, *ret_proof_ms the last proof. INBOX_WAIT: not now, but it may soon: a ping is on its
 * way, and w->task is woken at the next change. INBOX_NOT_YET: the server has been down for a
 * while. INBOX_REFUSED: the server is there and does not give it, for now: it is asked for again,
 * ever more rarely. INBOX_ASTRAY: it is to be found at another inbox, or soon will be. Never
 * waits. */
enum inbox_answer inbox_check(struct inbox *in, struct subscription *sub, int64_t age_ms,
                              struct inbox_watch *w, unsigned *ret_epoch, int64_t *ret_proof_ms);
/* The last proof that it stands, without a lock: which is of this epoch only if the subscription
 * had that before and has it after this. */
int64_t inbox_proof_ms(struct inbox *in, struct subscription *sub);
/* Does anybody stand in line? Without a lock. */
bool inbox_watched(struct inbox *in);
/* Stand in line, though there is nothing to wait for. */
void inbox_watch(struct inbox *in, struct inbox_watch *w);
/* It wants to know no more; the next in line may go on. */
void inbox_unwatch(struct inbox_watch *w);

#endif
