/* SPDX-License-Identifier: MIT
 * quorum_impl.h - what quorum.c, quorum_take.c and quorum_keep.c share; nobody else includes it.
 */
#ifndef SCRIPT_QUORUM_IMPL_H
#define SCRIPT_QUORUM_IMPL_H

#include "script/ballot.h"

/* Ask all; ask those again whose sending failed, once they are back; until it is decided, or the
 * deadline. */
void quorum_vote(struct ballot *b);

/* Take a reply out of the ballot. */
struct reply *quorum_steal(struct ballot *b, size_t i);

/* The k-th largest of n numbers, k from 1. */
int64_t quorum_kth(int64_t *number, size_t n, size_t k);

/* Whether two values of a lock are of the same holder: its number may differ while it is being
 * agreed. */
bool quorum_same_holder(const struct reply *a, const struct reply *b);

/* What agree.lua said: the number that the token had there; 0: none, or it said something else. */
long long quorum_agreement(const struct vote *v);

/* A script whose reply begins with the server's time: compare each member's clock with ours. */
void quorum_compare(const struct ballot *b, int64_t ttl_ms);

/* A companion of a lock: as its queue, {key}:q, with another ending. */
#define QUORUM_KEY_MAX 4096
hf_bytes quorum_companion(hf_bytes queue, char ending, char ret[QUORUM_KEY_MAX]);

hf_err quorum_acquire(struct quorum *q, struct script_call *sc, hf_error *reterr);
hf_err quorum_keep(struct quorum *q, struct script_call *sc, hf_error *reterr);

hf_err quorum_stand(struct quorum *q, struct script_call *sc, hf_error *reterr);

#endif
