/* SPDX-License-Identifier: MIT
 * bell.h - a descriptor by which one thread wakes another that sleeps in poll(2).
 */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include <stdbool.h>
#include <stdint.h>

/* Readable once it was rung. Known to forkguard, so closed by forkguard_close(). -1 with errno. */
int bell_open(void);
/* Any thread; it never waits. */
void bell_ring(int fd);
/* What a simulation (seam.h) is woken by when it is rung: it sleeps there, and not in poll(2). */
static inline const void *bell_on(int fd)
{
    return (const void *)((uintptr_t)fd + 1);
}
/* False: it was not rung since the last time. */
bool bell_drain(int fd);

#endif
