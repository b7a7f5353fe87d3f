/* SPDX-License-Identifier: MIT
 * barrier.h - what the files of the barrier share; nobody else includes it.
 */
#ifndef LOCK_BARRIER_H
#define LOCK_BARRIER_H

#include "session/listener.h"

/* token:grace:pid:host */
#define MEMBER_SIZE (LEASE_TOKEN_SIZE + 24 + 24 + 256)

/* The arriving, or the leaving. */
struct meeting {
    hf_bytes    key[10]; /* as part/meeting.lua wants them */
    size_t      nkeys;   /* 10: who has met leaves together */
    const char *phase;   /* tells its generations from the other's */
};

enum { ENTER, LEAVE, MEETINGS };
enum { BESIDE = 9 };

struct hf_barrier {
    hf_client        *c;
    struct lock_keys *keys;
    uint32_t          parties;
    int64_t           grace_ms;    /* 0: never */
    bool              together;
    struct meeting    at[MEETINGS];
    char             *beside[BESIDE]; /* the bytes of the companions */
    atomic_int        cancelled;
    struct park       seat;        /* where the calls sleep */

    /* Who we are inside, with `together`. */
    uint64_t          inside;      /* the generation; 0: not inside */
    char              member[MEMBER_SIZE];
};

/* Meet the others there. inside: as one who arrived with them before. On HF_OK *ret_index,
 * *ret_generation, and b->member is who we were. */
hf_err barrier_meet(hf_barrier *b, const struct meeting *at, bool inside, int64_t wait_ms,
                    uint32_t *ret_index, uint64_t *ret_generation, hf_error *reterr);

/* We are inside and will not leave with the others: tell them. */
void barrier_desert(hf_barrier *b);

#endif
