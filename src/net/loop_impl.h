/* SPDX-License-Identifier: MIT
 * loop_impl.h - what task.c needs of an event loop; nobody else includes it.
 */
#ifndef NET_LOOP_IMPL_H
#define NET_LOOP_IMPL_H

#include "net/loop.h"

/* A task of a loop has something to do. p, when not NULL, is finished in the same moment: whoever
 * sees that finds the task woken. */
void loop_wake(struct task *t, struct park *p);

#endif
