/* SPDX-License-Identifier: MIT
 * hint.h - waiting for a lock on a quorum: in line on each server, woken by whoever gives it back.
 */
#ifndef SESSION_HINT_H
#define SESSION_HINT_H

#include "session/waiter.h"

/* As waiter_step(), on a quorum; w->e is what came of it. */
bool hint_step(hf_client *c, struct waiter *w, int64_t *ret_until_ms, hf_error *reterr);

/* It waits no more; granted: because it has the lock. */
void hint_leave(hf_client *c, const struct waiter *w, bool granted);

#endif
