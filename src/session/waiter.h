/* SPDX-License-Identifier: MIT
 * waiter.h - waiting for one's turn.
 *
 * A waiter stands in the lock's queue on the server. Whoever releases the lock makes the first
 * living waiter its owner and tells it through its inbox; nobody polls. One waiter, the youngest,
 * looks a few times a second whether all is well, for all of them; the others back it up ever more
 * rarely. Of the waiters of one client only the youngest of each lock looks at all.
 */
#ifndef SESSION_WAITER_H
#define SESSION_WAITER_H

#include "base/tree.h"
#include "session/absence.h"
#include "session/attempt.h"

struct waiters; /* all waiters of a client */
struct waiter;

struct waiters *waiters_new(hf_client *c);
struct waiters *waiters_free(struct waiters *ws);
/* Thread: inbox. The subscription was made anew: nobody knows what was missed. */
void waiters_rejoin(struct waiters *ws, struct keyspace *h, unsigned epoch);
void waiters_message(struct waiters *ws, const char *text, size_t len);
/* A lock that was waited for has been given back, and the server has answered or was given up: from
 * now on, and not before, a grant of it is nobody's. */
void waiters_done(struct waiters *ws, uint64_t sequence);
/* A lock that was waited for is left to itself: nothing that is heard of it matters any more. */
void waiters_forget(struct waiters *ws, uint64_t sequence);

/* Thread: a quorum's member's. It told that a lock is free; who waits under this number heeds
 * it. */
void waiters_told(struct waiters *ws, uint64_t sequence, size_t member);
/* Which members did, since the last call. */
uint64_t waiters_take_told(struct waiters *ws, struct waiter *w);

/* Those who have waited for at least age_ms, for the session's record: how many. *ret_young: how
 * many have not. */
size_t waiters_list(struct waiters *ws, int64_t age_ms, struct record_entry *ret, size_t max,
                    size_t *ret_young);
bool waiters_any(struct waiters *ws);

/* Its place in line on a quorum (waiter_quorum.c). */
struct waiter_line {
    int64_t  ask_at_ms, look_at_ms;
    uint64_t told, unlocked; /* members that told that it is free since the last look; where it was
                                then */
    unsigned vain;           /* how often it seemed free and was not */
    bool     stands, hears;
};

struct waiter {
    struct attempt     a;
    struct lease_terms terms;    /* of the grant, once there is one */
    uint64_t           sequence; /* of the token */
    struct task       *task;     /* who steps it; woken when something came */
    int64_t            wanted_grace_ms;
    bool               reads;    /* whoever waits with it does so in client_wait() */
    bool               confirm;  /* never hold at once: nobody would confirm it later */

    /* Thread: whoever steps. */
    bool               queued;
    bool               called;     /* somebody told us to look */
    bool               restart;    /* this token is of no use any more: end it, begin with
                                      another */
    unsigned           join_epoch; /* the subscription in which we got our place */
    unsigned           round;
    hf_err             trouble;    /* why the last thing we tried had no answer; HF_OK */
    int64_t            claim_ms;
    uint64_t           ticket;
    int64_t            ticket_ms;  /* when the request that was given it was sent */
    bool               doubted;    /* a claim found that the lock is not ours: too late, or a lie */
    int64_t            refused_ms; /* when the request that gave us our ticket was sent */
    int64_t            look_at_ms, retry_at_ms;
    struct absences   *absent;     /* during a look: the holders that are seen absent */
    struct waiter_line line;

    /* What is under way. */
    step_at            at, inner_at;
    hf_err             e;          /* what came of it */
    int64_t            limit_ms;
    uint64_t           news;       /* the number with which the lock was handed over to us;
                                      0: none */
    bool               had_place;
    struct op          op;
    union { /* the one or the other is under way */
        struct presence present;
        struct {
            struct grant    grant; /* to be claimed */
            struct op_lease lease;
        };
    };
    enum verdict       verdict;
    char             *note;        /* of the claim: what others wrote for us */

    /* Under the registry's lock. */
    uint64_t           granted;  /* the number that a message told; 0: none */
    bool               rejoin, dropped, look_now;
    unsigned           new_epoch; /* with rejoin: of the subscription that was made anew */
    uint64_t           told;     /* members of a quorum that told us that the lock is free */
    int64_t            since_ms;
    struct waiter     *older, *younger; /* of the same lock */
    struct tree_node   by_sequence;
    bool               registered;
};

/* Join the client's waiters; HF_ENOMEM. */
hf_err waiter_begin(hf_client *c, struct waiter *w, hf_error *reterr);

/* Do what is to be done now, within the deadline. False: something is under way. True: *ret is
 * HF_OK: granted, with terms; HF_EBUSY: nothing more to do before *ret_until_ms, or before the task
 * is woken; others: it failed, and waiter_end() is still to be called. With w->restart the token
 * cannot be used on, though a fresh one may succeed. */
bool waiter_step(hf_client *c, struct waiter *w, int64_t deadline_ms, hf_err *ret,
                 int64_t *ret_until_ms, hf_error *reterr);

/* Leave, with the verdict *e. Without a grant the token is cancelled, as attempt_cancelled() says.
 * False: that is under way. */
bool waiter_end(hf_client *c, struct waiter *w, hf_err *e, hf_error *reterr);

/* For whoever asks without waiting for a turn, too. Ask whether the server sees us: w->present is
 * to be stepped. And after a grant: HF_ECONN if it is not the server that saw us. */
void waiter_ask_presence(hf_client *c, struct waiter *w, int64_t grace_ms);
hf_err waiter_check_presence(struct waiter *w, hf_error *reterr);

/* Whether it stands in line and has nothing under way: it sleeps until it is told. */
static inline bool waiter_idle(const struct waiter *w)
{
    return w->queued && w->at == 0;
}

#endif
