/* SPDX-License-Identifier: MIT
 * quorum_impl.h - one operation under way on a quorum; only the quorum's own files include it.
 */
#ifndef EXEC_QUORUM_IMPL_H
#define EXEC_QUORUM_IMPL_H

#include "exec/ballot.h"

/* quorum_take.c */
struct quorum_taking {
    step_at  at, phase; /* of one round, and of what is under way in it */
    unsigned round;
    uint64_t number;    /* the largest that was given */
    int64_t  limit_ms;  /* for the first votes */
    bool     split;     /* it failed, but nobody else has it either */
    bool     late;      /* it failed, and who was still being connected to could have decided it */
    bool     clean;     /* what failed is undone everywhere */
};

/* One operation on all of them: op->run.more. Its steps are entered again by op->run.at. */
struct quorum_op {
    struct op     *op;
    struct quorum *q;
    struct ballot  first, second; /* the second when the first has been counted */
    struct undo   *undo;          /* what gives back what it may take; NULL: it takes nothing */
    int64_t        resume_ms;     /* of a pause */
    union {
        struct quorum_taking take;
        struct {
            size_t lock; /* the one that is taken again */
        } keep;
        struct {
            size_t member, failed;
            char   cursor[32];
        } scan;
    };
    struct vote    vote[]; /* of both ballots; behind them, what each member says of each lock */
};

/* Each of them as struct executor's step(). */
bool quorum_acquire(struct quorum_op *x); /* quorum_take.c */
bool quorum_keep(struct quorum_op *x);    /* quorum_keep.c */
bool quorum_stand(struct quorum_op *x);   /* quorum_queue.c */
bool quorum_scan(struct quorum_op *x);    /* quorum_scan.c */

/* quorum_release.lua for a token, ready to be owed by each member where a request gets no answer.
 * NULL: no memory. */
struct undo *quorum_undo_of(const struct lock_keys *keys, const char *token, hf_bytes owner);

/* The k-th largest of n numbers, k from 1. */
int64_t quorum_kth(int64_t *number, size_t n, size_t k);

/* Whether two values of a lock are of the same holder: its number may differ while it is being
 * agreed. */
bool quorum_same_holder(hf_bytes a, hf_bytes b);

bool quorum_same_bytes(hf_bytes a, hf_bytes b);

/* A majority has answered, whatever. */
bool quorum_told_by_most(const struct ballot *b);

/* Each member told its time with the answer: compare its clock with ours. */
void quorum_compare(const struct ballot *b, int64_t (*time_of)(const struct op *op),
                    int64_t ttl_ms);

#endif
