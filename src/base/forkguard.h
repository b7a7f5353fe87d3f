/* SPDX-License-Identifier: MIT
 * forkguard.h - a forked child must not touch its parent's connections.
 *
 * Every descriptor of the library is registered here. In the child of a fork() all of them are
 * closed (close, never shutdown: the connection itself is the parent's) and the generation is
 * raised, by which every handle made before the fork knows that it is dead.
 */
#ifndef BASE_FORKGUARD_H
#define BASE_FORKGUARD_H

/* The present generation; remember it when a handle is made. */
unsigned forkguard_generation(void);

/* 0, or -1 when memory is short (the descriptor is then not registered). */
int forkguard_add(int fd);
/* A descriptor that was just made, or -1: registered; or closed, and -1 with errno. */
int forkguard_keep(int fd);
/* Unregister and close, in one step with respect to fork(). Does nothing with a number that is not
 * registered: in a forked child it may be another file by now. */
void forkguard_close(int fd);

#endif
