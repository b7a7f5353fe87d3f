/* SPDX-License-Identifier: MIT
 * barrier.h - what the files of the barrier share; nobody else includes it.
 */
#ifndef LOCK_BARRIER_H
#define LOCK_BARRIER_H

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
    atomic_int        cancelled;
    struct park       seat;        /* where the calls sleep */

    /* Who we are inside, with `together`. */
    uint64_t          inside;      /* the generation; 0: not inside */
    char              member[MEMBER_SIZE];
};

/* Meet the others there. inside: as one who arrived with them before. On HF_OK *ret_index,
 * *ret_generation, and b->member is who we were. */
hf_err barrier_meet(hf_barrier *b, const struct meeting_keys *at, bool inside, int64_t wait_ms,
                    uint32_t *ret_index, uint64_t *ret_generation, hf_error *reterr);

/* We are inside and will not leave with the others: tell them. */
void barrier_desert(hf_barrier *b);

#endif
