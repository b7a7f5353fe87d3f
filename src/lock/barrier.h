/* SPDX-License-Identifier: MIT
 * barrier.h - what the files of the barrier share; nobody else includes it.
 */
#ifndef LOCK_BARRIER_H
#define LOCK_BARRIER_H

#include "session/call.h"
#include "session/listener.h"

/* token:grace:pid:host */
#define MEMBER_SIZE (TOKEN_SIZE + 24 + 24 + 256)

/* The arriving, and the leaving. */
enum { ENTER, LEAVE, MEETINGS };
enum { BESIDE = 8 };

struct hf_barrier {
    hf_client        *c;
    struct lock_keys *keys;
    uint32_t          parties;
    int64_t           grace_ms;    /* 0: never */
    bool              together;
    struct meeting_keys at[MEETINGS];
    char             *beside[BESIDE]; /* the bytes of the companions */
    struct seat       seat;

    /* Who we are inside, with `together`. */
    uint64_t          inside;      /* the generation; 0: not inside */
    char              member[MEMBER_SIZE];

    /* Where we gave up, and nobody has heard of it: as member. */
    struct {
        uint64_t generation; /* 0: nowhere */
        int      which;      /* ENTER or LEAVE */
        bool     inside;     /* with those who leave together */
        char     token[TOKEN_SIZE];
    } unheard;
};

/* One party of one meeting: all that lives between the steps of its call. */
struct party {
    struct listener ln;
    hf_barrier     *b;
    const struct meeting_keys *at;
    bool      inside;
    bool      once;         /* only if that makes it complete */
    int64_t   wait_ms;
    uint64_t  generation;   /* 0: not known yet */
    uint64_t  leaving;      /* of those who still have to leave; 0: none */
    bool      sent;         /* an arrival may be counted */
    bool      counted;      /* it is */
    char      member[MEMBER_SIZE];
    long long index, arrived, total;
    char     *absence;      /* the one absence that we have been seeing, or NULL */
    int64_t   absent_since_ms; /* by our own clock */
    int64_t   next_ms;      /* how long to the next question at the most */

    hf_err    e;            /* the verdict, so far */
    hf_error *reterr;       /* may be NULL */
    struct op op, judging;  /* the question under way, and the one that it led to */
    step_at   step_at, round_at, find_at, ask_at, look_at, judge_at;
};

/* Begin to meet the others there. inside: as one who arrived with them before. */
void party_begin(struct party *p, struct call *call, hf_barrier *b, const struct meeting_keys *at,
                 bool inside, int64_t wait_ms);
/* True: e. On HF_OK index, generation, and b->member is who we were. */
bool party_step(struct party *p);

/* Blocking. We are inside and will not leave with the others, or gave up unheard: tell them. */
void barrier_desert(hf_barrier *b);

#endif
