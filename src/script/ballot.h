/* SPDX-License-Identifier: MIT
 * ballot.h - one script, asked of all servers of a quorum at the same moment.
 */
#ifndef SCRIPT_BALLOT_H
#define SCRIPT_BALLOT_H

#include "script/quorum.h"

/* Which lock and token a request may take or free: what undoes it when no answer comes. */
struct claim {
    hf_bytes lock, own, tomb; /* its keys */
    hf_bytes token, owner;    /* owner: empty without a caller-chosen id */
    hf_bytes line, counter;   /* whoever is first in line is to be told; empty: nobody is */
};

enum vote_state {
    VOTE_NONE,   /* not asked */
    VOTE_OPEN,   /* asked, no answer yet */
    VOTE_GIVEN,  /* reply is there */
    VOTE_FAILED, /* no connection, or refused: not executed */
    VOTE_LOST    /* sent, and no answer will come */
};

struct vote {
    enum vote_state state;
    struct reply   *reply; /* never an error of the server */
    bool            text;  /* it may not know the script */
    char            why[120]; /* FAILED, LOST, and NONE when it may not vote */
    hf_err          code;  /* of a refusal */
};

struct ballot {
    struct quorum            *q;
    size_t                    n, majority;
    const struct script_call *sc;
    const struct claim       *claim; /* NULL: nothing of it has to be undone */
    bool                    (*decided)(const struct ballot *b); /* nothing more can change it */
    hf_bytes                 *argv;
    int                       argc;
    int64_t                   begun_ms; /* before the first byte left */
    unsigned                  lost;     /* sendings that no answer will come to */
    struct conn_ask           ask[QUORUM_MAX];
    struct vote               vote[QUORUM_MAX];
};

/* A script for all of them; nobody is asked yet. */
void ballot_init(struct ballot *b, struct quorum *q, const struct script_call *sc,
                 const struct claim *claim, bool (*decided)(const struct ballot *b));
/* Send it to one that has not been asked, or whose last sending failed. */
void ballot_ask(struct ballot *b, size_t i);
/* Wait until it is decided, or the deadline, or all have answered. */
void ballot_wait(struct ballot *b, int64_t deadline_ms);
/* For those that are just a little later than the deciding one: all, if that takes no longer than
 * twice what there was to wait anyway. */
void ballot_wait_for_stragglers(struct ballot *b);
/* Who has not answered by now need not. */
void ballot_end(struct ballot *b);

/* A member cannot be reached: what the claim has there goes when it can. */
void ballot_owe(const struct ballot *b, size_t i);

size_t ballot_count(const struct ballot *b, enum vote_state state);

/* HF_ENOQUORUM, or what all who refused agree on: how many said what is asked for, and what the
 * others said. yes: how many agreed. */
hf_err ballot_fail(const struct ballot *b, size_t yes, hf_error *reterr);

#endif
