/* SPDX-License-Identifier: MIT
 * quorum_sub.h - what a member of a quorum tells us without being asked: a subscription of our own
 * there.
 */
#ifndef TOPO_QUORUM_SUB_H
#define TOPO_QUORUM_SUB_H

#include "topo/quorum_member.h"

/* All by the member's thread. */
struct quorum_sub *quorum_sub_new(struct member *m); /* NULL: no memory */
struct quorum_sub *quorum_sub_free(struct quorum_sub *e);
struct quorum_sub *quorum_sub_forget(struct quorum_sub *e); /* in a forked child */

/* Subscribe if it is not, and time to; ask for a sign of life. When to call it again. */
int64_t quorum_sub_tend(struct quorum_sub *e);
/* Hear what comes until the member's park is woken, or the time has come. False: the subscription
 * does not stand, so there is nothing to hear. */
bool quorum_sub_listen(struct quorum_sub *e, int64_t until_ms);

#endif
