/* SPDX-License-Identifier: MIT
 * waiter_quorum.h - waiting for a lock on a quorum: in line on each server, woken by whoever gives
 * it back.
 */
#ifndef SESSION_WAITER_QUORUM_H
#define SESSION_WAITER_QUORUM_H

#include "session/waiter.h"

/* As waiter_step(), on a quorum; w->e is what came of it. */
bool waiter_quorum_step(hf_client *c, struct waiter *w, int64_t *ret_until_ms, hf_error *reterr);

/* It waits no more; granted: because it has the lock. */
void waiter_quorum_leave(hf_client *c, const struct waiter *w, bool granted);

#endif
