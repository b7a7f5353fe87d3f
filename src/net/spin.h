/* SPDX-License-Identifier: MIT
 * spin.h - a lone caller looks for its reply for a moment before it sleeps.
 *
 * A thread that sleeps in read(2) is woken by the kernel some 30 us after the reply has come; a
 * reply of a server nearby takes less than that. So who is alone on its connection reads without
 * sleeping for at most SPIN_US. It learns when that does not pay: each reply that came in time
 * counts for it, each that did not twice against it, and then it leaves off for a while. With
 * others on the connection it never spins: they need the core.
 */
#ifndef NET_SPIN_H
#define NET_SPIN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "net/stream.h"

struct spin {
    bool enabled;
    int  score;   /* 0: it does not pay */
    int  pause;   /* how many reads are left until it is tried again */
    int  crowded; /* how many reads are left until we believe to be alone again; under the
                     connection's lock, the rest is the leader's */
};

/* Not on a machine, or for a process, with one core. */
void spin_init(struct spin *sp, bool wanted);
/* Holds: the connection's lock. Somebody else uses it. */
void spin_crowded(struct spin *sp);
/* Thread: the leader. Holds: the connection's lock. May it spin now? */
bool spin_begins(struct spin *sp, bool alone);
/* Thread: the leader. As read_now() of the stream, for at most SPIN_US. */
ssize_t spin_read(struct spin *sp, struct stream *s, void *buf, size_t n);

#endif
