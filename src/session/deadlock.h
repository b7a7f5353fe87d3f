/* SPDX-License-Identifier: MIT
 * deadlock.h - a wait that would never end is found, and one of those in the circle gives up.
 *
 * Who has waited for a second, and holds something itself, says so beside each lock that it holds
 * ({KEY}:wf), for a few seconds at a time. Then it follows: who holds what I wait for, what do they
 * wait for, who holds that (waitgraph.h). All of it is read lock by lock, at different moments: so
 * what is found counts only if a second look, begun when the first was complete, finds the same
 * grants and the same waits. Neither begins twice under the same token, so in the moment between
 * the looks all of them were there at once. models/deadlock.pml.
 *
 * Nothing is sent before a second has passed, nor by who holds nothing: whoever stands before
 * others in a queue came earlier, so it never is the last.
 */
#ifndef SESSION_DEADLOCK_H
#define SESSION_DEADLOCK_H

#include "session/attempt.h"

struct deadlock;

/* Who waits, and for what. All of it outlives the watch. */
struct deadlock_of {
    hf_client            *c;
    struct task          *task; /* who steps it */
    const struct attempt *a;    /* its token may change */
    uint64_t              thread; /* whose handles count; 0: nobody's */
    hf_bytes              owner;  /* and those of this owner id; empty: none */
    int64_t               begun_ms, deadline_ms;
};

/* When it begins to be of interest; CLOCK_NEVER: it never is. Not before the lock was refused. */
int64_t deadlock_due(const struct deadlock_of *of);
struct deadlock *deadlock_new(const struct deadlock_of *of); /* NULL: no memory */

/* Do what can be done now, and see to it that the task is called again. True: it is one, and the
 * wait is to be given up; deadlock_tell() says why: HF_EDEADLK. */
bool deadlock_step(struct deadlock *d);
hf_err deadlock_tell(const struct deadlock *d, hf_error *reterr);
/* Whether requests are under way. */
bool deadlock_asks(const struct deadlock *d);

/* The wait is over: nobody shall believe in it any more, which the servers are told within so long;
 * 0: there is nobody to be told, and it goes by itself. False: that is under way. True: *d is
 * gone. */
bool deadlock_end(struct deadlock **d, int64_t within_ms);

#endif
