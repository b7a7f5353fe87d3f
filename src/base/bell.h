/* SPDX-License-Identifier: MIT
 * bell.h - a descriptor by which one thread wakes another that sleeps in poll(2).
 */
#ifndef BASE_BELL_H
#define BASE_BELL_H

#include <stdbool.h>

/* Readable once it was rung. Known to forkguard, so closed by forkguard_close(). -1 with errno. */
int bell_open(void);
/* Any thread; it never waits. */
void bell_ring(int fd);
/* False: it was not rung since the last time. */
bool bell_drain(int fd);

#endif
