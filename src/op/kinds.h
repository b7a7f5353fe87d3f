/* SPDX-License-Identifier: MIT
 * kinds.h - the operations of what is made of locks: latches, barriers, elections, sequences,
 * values, guards.
 */
#ifndef OP_KINDS_H
#define OP_KINDS_H

#include "op/answer.h"
#include "topo/keys.h"

/* ---- latches --------------------------------------------------------------------------------- */

/* latch_set.lua, latch_down.lua, latch_look.lua; each uses what it needs. */
struct op_latch {
    const struct lock_keys *keys;
    hf_bytes    listeners, done; /* companions */
    const char *token;           /* of the request; latch_look: of a waiter, or "" */
    uint64_t    count;           /* to be set to; or to count down by */
    uint64_t    generation;      /* waited for; 0: any */
    int64_t     ttl_ms, remember_ms;
    bool        reset;           /* latch_set: even if it counts down */
};
struct op_latched {
    enum answer code;        /* YES; BUSY: still counting down, or there is none; GIVEN_UP: the one
                                waited for ended without reaching zero; WRONG_TYPE; BAD_COUNTER */
    uint64_t    left, total; /* YES, of latch_down only left; BUSY of latch_set */
    uint64_t    generation;  /* latch_look: YES; GIVEN_UP: the one that is there now, or 0 */
    hf_bytes    value;       /* WRONG_TYPE: what stands there; data is NULL: data of another type */
};

/* ---- barriers -------------------------------------------------------------------------------- */

/* The keys of a meeting, as part/meeting.lua has them. */
struct meeting_keys {
    const struct lock_keys *keys; /* whose counter and reign it uses */
    hf_bytes    meeting, parties, listeners, done, broken, absent;
    hf_bytes    leaving, leaving_parties; /* empty: who has met does not leave together */
    const char *phase;
};
enum barrier_mode { BARRIER_ARRIVE, BARRIER_TRY, BARRIER_LOOK };

/* barrier_open.lua, barrier_meet.lua, barrier_judge.lua, barrier_quit.lua; each uses what it
 * needs. */
struct op_barrier {
    const struct meeting_keys *at;
    unsigned          parties;    /* open */
    uint64_t          generation; /* meet, judge, quit */
    const char       *token;      /* open: of the listener; meet, quit; "": an onlooker */
    const char       *member;     /* meet, quit: ours of the parties; judge: the missing one's */
    enum barrier_mode mode;       /* meet */
    int64_t           remember_ms, inside_ms;
    const char       *absence;    /* judge: the one that we saw, or "" */
    int64_t           seen_ms;    /* judge: for how long, by our own clock */
    const char       *why;        /* quit */
    bool              inside;     /* quit: it counts though it has not arrived */
};
enum meet_answer {
    MEET_OTHER_PARTIES = -5,
    MEET_BAD_COUNTER = -4,
    MEET_WRONG_TYPE = -3,
    MEET_CLOSED = 0,   /* open: the last one is still closing; quit: it had not arrived */
    MEET_WAIT = 1,     /* open: this generation can be arrived at; judge: nobody is missing */
    MEET_MISSING = 2,  /* wait, and this one is missing */
    MEET_MET = 3,
    MEET_BROKEN = 4,
    MEET_OVER = 5,     /* this generation is over, or full: not counted */
    MEET_NOT_ALL = 6   /* tried: not counted */
};
struct op_met {
    enum meet_answer code;
    uint64_t    generation;     /* open: WAIT, or CLOSED: of those who still have to leave, or 0 */
    long long   index;          /* WAIT, MISSING, MET */
    long long   arrived, total; /* WAIT, MISSING, NOT_ALL, OTHER_PARTIES */
    hf_bytes    text;           /* MISSING: the member, judge: the absence; BROKEN: why; WRONG_TYPE:
                                   what stands there, or data is NULL: data of another type. A NUL
                                   follows */
    int64_t     breaks_ms;      /* judge, MISSING: until it breaks */
};

/* ---- elections ------------------------------------------------------------------------------- */

/* proclaim.lua: done: YES, NO, WRONG_TYPE */
struct op_proclaim {
    const struct lock_keys *keys;
    hf_bytes        value_key, listeners;
    const char     *token;  /* of the leader: the lock begins with "token:term:" */
    uint64_t        term;   /* its fencing number */
    uint64_t        nth;    /* value of this term; a later one is not overwritten */
    const hf_bytes *value;  /* NULL: take it away */
};

/* leader.lua */
struct op_leader {
    const struct lock_keys *keys;
    hf_bytes    value_key, listeners;
    size_t      longest;  /* value */
    const char *token;    /* of a listener; NULL: nobody listens */
};
struct op_led {
    enum answer code;     /* YES; NO: nobody leads; WRONG_TYPE */
    hf_bytes    lock;     /* the first bytes of its value */
    int64_t     left_ms, server_ms;
    bool        has_value;
    hf_bytes    value;
};

/* unlisten.lua: done */
struct op_unlisten {
    hf_bytes    listeners;
    const char *token;
};

/* ---- numbers and values ---------------------------------------------------------------------- */

/* sequence.lua */
struct op_sequence {
    hf_bytes key;
    uint64_t count, first, seen;
    bool     timed; /* no id below the server's time in microseconds */
};
struct op_numbers {
    enum answer code; /* YES, WRONG_TYPE, USED_UP */
    uint64_t    first, last;
    uint64_t    largest; /* USED_UP */
};

/* store.lua: done: YES, NO, WRONG_TYPE */
struct op_store {
    const struct lock_keys *keys;
    hf_bytes value_key, id;
    uint64_t fence;
    int64_t  fresh_ms, keep_ms;
    hf_bytes value;
};

/* value.lua */
struct op_value {
    hf_bytes key;
    bool     drop; /* forget it */
    size_t   longest;
};
struct op_found {
    enum answer code; /* YES, NO, WRONG_TYPE */
    hf_bytes    value;
    int64_t     age_ms, fresh_ms;
};

/* resolve.lua: done: YES it took place, NO it never will */
struct op_resolve {
    hf_bytes mark;
    uint64_t number;
    int64_t  remember_ms;
};

/* guard.lua */
struct op_guard {
    hf_bytes        guard;
    const char     *fence;  /* as text: exact, however many digits */
    hf_bytes        key;    /* to write; empty: only the check */
    const hf_bytes *value;  /* NULL: only the check */
};
struct op_guarded {
    enum answer code;   /* YES; BUSY: refused; WRONG_TYPE */
    hf_bytes    newest; /* BUSY */
};

/* repair.lua: done: YES repaired, NO it was usable */
struct op_repair {
    hf_bytes counter, reign, aside;
};

#endif
