/* SPDX-License-Identifier: MIT
 * ear.h - what a member of a quorum tells us without being asked: a subscription of our own there.
 */
#ifndef TOPO_EAR_H
#define TOPO_EAR_H

#include "topo/member.h"

/* All by the member's thread. */
struct ear *ear_new(struct member *m); /* NULL: no memory */
struct ear *ear_free(struct ear *e);
struct ear *ear_forget(struct ear *e); /* in a forked child */

/* Subscribe if it is not, and time to; ask for a sign of life. When to call it again. */
int64_t ear_tend(struct ear *e);
/* Hear what comes until the member's park is woken, or the time has come. False: the subscription
 * does not stand, so there is nothing to hear. */
bool ear_listen(struct ear *e, int64_t until_ms);

#endif
