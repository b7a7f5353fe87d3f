/* SPDX-License-Identifier: MIT
 * inbox.h - the session's subscription: where wake-ups arrive, and the proof that we live.
 *
 * One connection of its own, subscribed to <prefix>holdfast:s:<session id>. The server sees it
 * standing; when our process dies, its kernel closes it. A proof is a ping that was answered on
 * it: at its sending the subscription stood.
 */
#ifndef SESSION_INBOX_H
#define SESSION_INBOX_H

#include <stdbool.h>

#include "base/park.h"
#include "topo/topo.h"

struct inbox;

struct inbox_events { /* called by whoever reads, in order, one at a time, nothing locked */
    void (*up)(void *arg, unsigned epoch);
    void (*proved)(void *arg, unsigned epoch, int64_t sent_ms);
    void (*message)(void *arg, const char *text, size_t len);
    void *arg;
    const atomic_uint *expectant; /* how many wait for messages without being in inbox_wait() */
};

/* Starts its thread, which connects and reconnects by itself. */
hf_err inbox_open(struct topo *t, const char *channel, const struct inbox_events *events,
                  const struct log *log, struct inbox **ret, hf_error *reterr);
struct inbox *inbox_free(struct inbox *in);
struct inbox *inbox_forget(struct inbox *in); /* in a forked child */

/* The topology has moved: the subscription may be on the wrong server. */
void inbox_moved(struct inbox *in);

/* Prove often enough for this grace from now on; CLOCK_NEVER: only now and then. */
void inbox_prove_for(struct inbox *in, int64_t grace_ms);

/* Sleep until p is woken or the time has come; may return early. A thread that is alone in this
 * reads the inbox itself meanwhile: what wakes it needs no other thread. */
void inbox_wait(struct inbox *in, struct park *p, int64_t until_ms);
/* To be called when *expectant has grown. */
void inbox_expect(struct inbox *in);

enum inbox_answer { INBOX_READY, INBOX_NOT_YET, INBOX_REFUSED };

/* Wait until it is up and proven not longer ago than age_ms. *ret_epoch counts the subscriptions
 * from 1, *ret_proof_ms is the last proof. INBOX_NOT_YET at the deadline, soon after *stop (may be
 * NULL) is not 0, and at once when it has been down for a while. INBOX_REFUSED: for good. */
enum inbox_answer inbox_ready(struct inbox *in, int64_t age_ms, int64_t deadline_ms,
                              const atomic_int *stop, unsigned *ret_epoch, int64_t *ret_proof_ms);

#endif
