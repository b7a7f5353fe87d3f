/* SPDX-License-Identifier: MIT
 * ballot.h - one operation, asked of all servers of a quorum at the same moment.
 *
 * Nothing here waits: what is under way is taken in by ballot_wait() and its like, which are
 * conditions of a step (task.h). They say themselves when to be called again.
 */
#ifndef EXEC_BALLOT_H
#define EXEC_BALLOT_H

#include "op/op.h"
#include "topo/quorum.h"

/* For how long a token that was undone is remembered: longer than any copy of a request can
 * linger. */
#define BALLOT_TOMBSTONE_MS 60000

enum vote_state {
    VOTE_NONE,   /* not asked */
    VOTE_OPEN,   /* asked, no answer yet */
    VOTE_GIVEN,  /* op.got is there */
    VOTE_FAILED, /* no connection, or refused: not executed */
    VOTE_LOST    /* sent, and no answer will come, or none that makes sense */
};

struct vote {
    enum vote_state state;
    bool            under_way; /* op.run.request is; an open vote may have been given up */
    bool            text;      /* it may not know the script */
    hf_err          code;      /* of a refusal */
    char            why[120];  /* FAILED, LOST, and NONE when it may not vote */
    struct op       op;        /* what it is asked, and what it answered */
};

struct ballot {
    struct quorum    *q;
    struct vote      *vote;
    size_t            n, majority;
    struct op        *op;       /* for which it is: whose task steps it */
    struct undo      *undo;     /* where no answer comes; NULL: nothing has to be undone */
    bool            (*decided)(const struct ballot *b); /* nothing more can change it */
    int64_t           deadline_ms;
    const atomic_int *stop;     /* NULL: it does not end by it */
    int64_t           begun_ms; /* before the first byte left */
    int64_t           until_ms; /* for how long stragglers are waited for */
    unsigned          lost;     /* sendings that no answer will come to */
    step_at           at;       /* ballot_vote()'s, and its pauses */
    struct backoff    backoff;
    int64_t           resume_ms;
};

/* For an operation; vote has room for one of each server. */
void ballot_init(struct ballot *b, struct quorum *q, struct op *op, struct vote *vote);
/* A question to all of them, by the deadline and the stop that it has; nobody is asked yet. */
void ballot_begin(struct ballot *b, const struct op *asks, bool (*decided)(const struct ballot *b));
/* Send it to one that has not been asked, or whose last sending failed. */
void ballot_ask(struct ballot *b, size_t i);

/* The whole, as a step: ask all; ask those again whose sending failed, once they are back; until it
 * is decided, or the deadline. */
bool ballot_vote(struct ballot *b);

/* True: it is decided, or the time has come, or all have answered. */
bool ballot_wait(struct ballot *b, int64_t until_ms);
/* For those that are just a little later than the deciding one: all, if that takes no longer than
 * twice what there was to wait anyway. First from when on, then the condition. */
void ballot_be_patient(struct ballot *b);
bool ballot_wait_for_stragglers(struct ballot *b);

/* Who has not answered by now need not: its vote stays open. */
void ballot_close(struct ballot *b);
/* The same, and nothing is left of it. */
void ballot_end(struct ballot *b);

/* A pause of the operation, as a condition: the time has come, or *stop, which may be NULL. */
bool ballot_over(const struct op *op, int64_t until_ms, const atomic_int *stop);

/* Take over the answer of a member, and what its bytes lie in. */
void ballot_steal(struct ballot *b, size_t i);

/* A member cannot be reached: what it may have of the request goes when it can. */
void ballot_owe(const struct ballot *b, size_t i);

size_t ballot_count(const struct ballot *b, enum vote_state state);
/* Has it answered? */
static inline bool ballot_given(const struct ballot *b, size_t i)
{
    return b->vote[i].state == VOTE_GIVEN;
}
/* A majority has answered, and nobody else will: more cannot be known now. */
bool ballot_all_said(const struct ballot *b);

/* HF_ENOQUORUM, or what all who refused agree on: how many said what is asked for, and what the
 * others said. yes: how many agreed. */
hf_err ballot_fail(const struct ballot *b, size_t yes, hf_error *reterr);

#endif
