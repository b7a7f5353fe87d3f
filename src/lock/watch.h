/* SPDX-License-Identifier: MIT
 * watch.h - what watch.c and watch_look.c share: one lock that is watched, as it was last seen.
 */
#ifndef LOCK_WATCH_H
#define LOCK_WATCH_H

#include "session/client.h"

/* Which of its keys have changed. */
enum { WATCH_LOCK = 1, WATCH_QUEUE = 2, WATCH_ABSENT = 4, WATCH_MARKS = 8 };

/* Somebody who holds it, or waits for it. */
struct watch_party {
    char    *id;       /* the token; of a foreign holder the value */
    hf_party party;    /* what is known of it so far */
    int64_t  since_ms; /* by the server's clock; -1: before we looked */
    char    *asked;    /* the mark of the last ask for it that was told; NULL: none */
};

struct watch_parties {
    size_t              n;
    struct watch_party *one;
};

/* A lock at one moment. */
struct watch_state {
    int64_t              server_ms, left_ms;
    bool                 absent; /* a holder is marked so */
    struct watch_parties holder, waiter;
};

struct watched {
    struct watched     *next;  /* of the same row of the table */
    struct watched     *later; /* in the line of those to be looked at */
    struct watched     *again; /* in the line of those to be looked at once more, to learn who */
    bool                in_line, in_again;
    int64_t             again_at_ms;
    struct lock_keys   *keys;
    unsigned            changed; /* bits, since the last look */
    unsigned            merged;  /* how often */
    bool                marked;  /* somebody wrote something for a holder, some time */
    int64_t             look_at_ms;
    struct watch_state *was;     /* NULL: it was never looked at */
};

/* Who wants to know. */
struct watch_teller {
    hf_client  *c;
    hf_watch_fn each;
    void       *arg;
    bool        over; /* it does not want to know any more */
};

/* Look at a lock now, and tell what has become of it since the last look; the first look tells
 * nothing but to remember it. */
hf_err watch_look(struct watch_teller *t, struct watched *w, hf_error *reterr);
/* Nobody holds it, nobody waits: nothing has to be remembered. */
bool watch_idle(const struct watched *w);
/* It was granted lately, and it is not known yet to whom: sessions say who they are a moment
 * later. */
bool watch_nameless(const struct watched *w);
struct watch_state *watch_state_free(struct watch_state *s);

#endif
