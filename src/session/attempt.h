/* SPDX-License-Identifier: MIT
 * attempt.h - one attempt to take a lock.
 */
#ifndef SESSION_ATTEMPT_H
#define SESSION_ATTEMPT_H

#include "session/client.h"

struct attempt {
    const struct lock_keys *keys;
    const char       *token;   /* the same in every repetition: it is the attempt's identity */
    hf_bytes          owner;   /* caller-chosen id, or empty */
    unsigned          weight;  /* 0: for oneself alone. Else so many parts of a shared lock, of */
    unsigned          limit;   /* at most so many; 0: as many as may come */
    int64_t           ttl_ms;
    int64_t           grace_ms; /* written into the value; 0: never taken over */
    const atomic_int *stop;
    int64_t           claim_ms; /* 0: do not join the queue */
    char              nonce[17]; /* of the place in the queue: whoever hands over repeats it */
    uint64_t          ticket;   /* in: an old one, or 0; out: ours, when we stand in the queue */

    /* out */
    uint64_t          fence;
    int64_t           sent_ms;
    unsigned          in_doubt; /* added up: sendings that got no answer */
    int64_t           left_ms;  /* busy: what is left of the other's lease */
    uint64_t          named;    /* busy, but handed over to us: the number to claim with */
};

/* HF_OK: granted. HF_EBUSY: another's, left_ms says for how long at most; or named. HF_EUNSURE,
 * HF_ECONN ...: as script_run(). HF_ETYPE, HF_ECOUNTER. HF_ELIMIT: others agreed on another
 * limit. */
hf_err attempt_run(hf_client *c, struct attempt *a, int64_t deadline_ms, hf_error *reterr);

/* What a refusal of the scripts means: code -1 busy, -2 given up ...; limit: the agreed one. */
hf_err attempt_refused(const struct attempt *a, long long code, long long limit, hf_error *reterr);

/* The attempt is over without a grant. If it may stand in the queue, or a copy of the request can
 * still be under way, cancel the token: at once, or in the background and answer HF_EUNSURE instead
 * of e. */
hf_err attempt_abandon(hf_client *c, const struct attempt *a, hf_err e, hf_error *reterr);
/* The same with so much time for the cancellation: several that are abandoned together have
 * together what one has. */
int64_t attempt_cancel_until(const struct attempt *a, hf_err e);
hf_err attempt_abandon_by(hf_client *c, const struct attempt *a, int64_t until_ms, hf_err e,
                          hf_error *reterr);

/* Our member of the queue: token:grace:claim:nonce:owner, or token:grace:claim:nonce/limit.weight:
 * of a shared lock. Returns its length. */
#define ATTEMPT_MEMBER_MAX (LEASE_TOKEN_SIZE + 96 + LEASE_OWNER_MAX)
size_t attempt_member(const struct attempt *a, char ret[ATTEMPT_MEMBER_MAX]);

/* A lock that was handed over to this attempt with number a->fence: extend it to the full ttl. */
struct renew_answer;
hf_err attempt_claim(hf_client *c, const struct attempt *a, struct renew_answer *ret,
                     hf_error *reterr);

/* Limits that every kind of lock shares. HF_EINVAL with the reason. */
hf_err attempt_check_ttl(int64_t ttl_ms, hf_error *reterr);
hf_err attempt_check_owner(hf_bytes owner, hf_error *reterr);

#endif
