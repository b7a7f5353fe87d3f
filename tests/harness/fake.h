/* SPDX-License-Identifier: MIT
 * fake.h - a server that is none: it says what the test wants it to say.
 */
#ifndef HARNESS_FAKE_H
#define HARNESS_FAKE_H

#include <stdatomic.h>
#include <stddef.h>

/* What came on a connection, as it arrived; it may be written to. 0: go on; -1: hang up.
 * Thread: the fake's. */
typedef int fake_answer(void *arg, int fd, char *buf, size_t n);

/* Accept on this socket and answer, in a thread of its own, until the test ends. Connections are
 * counted. */
void fake_serve(int listener, fake_answer *answer, void *arg, atomic_long *connections);

#endif
