/* SPDX-License-Identifier: MIT
 * attempt.h - one attempt to take a lock.
 */
#ifndef SESSION_ATTEMPT_H
#define SESSION_ATTEMPT_H

#include "session/client.h"

/* What a call may take past its own deadline to take its requests back; and who was cancelled past
 * that. A server that is far away or has a lot to do must be able to answer by then: who is told
 * HF_EUNSURE for nothing has to look after a lock that is in order. */
#define ATTEMPT_BACK_MS      500
#define ATTEMPT_CANCELLED_MS 300
/* At least so much, however late it is. */
#define ATTEMPT_LEAST_MS     50

struct attempt {
    struct op_take    take;  /* what is asked for */
    const atomic_int *stop;
    char              nonce[17]; /* where take.nonce points */

    /* out */
    uint64_t          fence;
    bool              partial;  /* granted, but not by all servers of a quorum */
    uint64_t          ticket;   /* ours, when we stand in the queue */
    int64_t           sent_ms;
    unsigned          in_doubt; /* added up: sendings that got no answer */
    int64_t           left_ms;  /* busy: what is left of the other's lease */
    uint64_t          named;    /* busy, but handed over to us: the number to claim with */
};

/* The operation that asks for it: acquire, or share. */
struct op attempt_op(const struct attempt *a, int64_t deadline_ms, struct task *t,
                     hf_error *reterr);

/* It is complete; what it means. Clears op. HF_OK: granted. HF_EBUSY: another's, left_ms says for
 * how long at most; or named. HF_EUNSURE, HF_ECONN ...: as exec_step(). HF_ETYPE, HF_ECOUNTER.
 * HF_ELIMIT: others agreed on another limit. */
hf_err attempt_taken(struct attempt *a, struct op *op, hf_error *reterr);

/* What a refusal means; limit: the agreed one. */
hf_err attempt_refused(const struct attempt *a, enum answer code, long long limit,
                       hf_error *reterr);

/* ---- without a grant ---------------------------------------------------------------------- */

/* The attempt is over with e. If it may stand in the queue, or a copy of the request can still be
 * under way, its token has to be cancelled: true, and op does that; a outlives it. */
bool attempt_cancel_op(struct attempt *a, hf_err e, struct task *t, struct op *op);
/* It was tried: the verdict instead of e. What got no answer is cancelled in the background: then
 * HF_EUNSURE. Clears op. */
hf_err attempt_cancelled(hf_client *c, const struct attempt *a, struct op *op, hf_err e,
                         hf_error *reterr);

/* A lock that was handed over to this attempt with number a->fence: what it will be ours by. */
struct grant attempt_grant(const struct attempt *a);

/* Limits that every kind of lock shares. HF_EINVAL with the reason. */
hf_err attempt_check_ttl(int64_t ttl_ms, hf_error *reterr);
hf_err attempt_check_owner(hf_bytes owner, hf_error *reterr);

#endif
