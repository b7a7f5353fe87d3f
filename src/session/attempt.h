/* SPDX-License-Identifier: MIT
 * attempt.h - one attempt to take a lock, and what waiting for the next one means.
 */
#ifndef SESSION_ATTEMPT_H
#define SESSION_ATTEMPT_H

#include "base/park.h"
#include "session/client.h"

struct attempt {
    const struct lock_keys *keys;
    const char       *token;   /* the same in every repetition: it is the attempt's identity */
    hf_bytes          owner;   /* caller-chosen id, or empty */
    int64_t           ttl_ms;
    int64_t           grace_ms; /* written into the value; 0: never taken over */
    const atomic_int *stop;

    /* out */
    uint64_t          fence;
    int64_t           sent_ms;
    unsigned          in_doubt; /* added up: sendings that got no answer */
    int64_t           left_ms;  /* busy: what is left of the other's lease */
};

/* HF_OK: granted. HF_EBUSY: another's, left_ms says for how long at most. HF_EUNSURE, HF_ECONN ...:
 * as script_run(). HF_ETYPE, HF_ECOUNTER. */
hf_err attempt_run(hf_client *c, struct attempt *a, int64_t deadline_ms, hf_error *reterr);

/* The attempt is over without a grant. If a copy of the request can still be under way, cancel the
 * token: at once, or in the background and answer HF_EUNSURE instead of e. */
hf_err attempt_abandon(hf_client *c, const struct attempt *a, hf_err e, hf_error *reterr);

/* Sleep until it is worth trying again, for at most the time until deadline_ms; park_wake() ends
 * it. The one place that knows how waiting works: so far by asking again, with jitter. round counts
 * from 0. */
void attempt_wait_turn(const struct attempt *a, struct park *p, unsigned round,
                       int64_t deadline_ms);

/* Limits that every kind of lock shares. HF_EINVAL with the reason. */
hf_err attempt_check_ttl(int64_t ttl_ms, hf_error *reterr);
hf_err attempt_check_owner(hf_bytes owner, hf_error *reterr);

#endif
