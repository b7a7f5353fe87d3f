/* SPDX-License-Identifier: MIT
 * scope.h - what the locks of one place share on the server.
 *
 * Where one server has all keys, all locks of a client share one scope. In a cluster each slot is
 * one. Fencing numbers come from the scope's counter; before the first of them is taken on a
 * connection, hello.lua has to run there. Where one server has everything that is done when it is
 * connected to; in a cluster it goes along with the first request for the slot.
 *
 * A client that only looks writes nothing: as long as it has taken no number, the hello of each
 * connection only looks whether a reign is to begin (due). The first operation that takes one says
 * so (takes) and, if a reign is due, lets it begin before it goes on. Whoever connects from then
 * on lets it begin at once. Between the two: who takes says so before it looks at due; who greets
 * sets due before it looks whether anybody takes. So one of them sees the other.
 */
#ifndef TOPO_SCOPE_H
#define TOPO_SCOPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "topo/topo.h"

struct scope {
    const char *counter, *reign; /* keys */
    const char *nothing; /* in a cluster: a key of the slot that never exists. A script that names
                            it is not run while the slot is being moved. Else NULL */
    _Atomic uint64_t greeted[LANES]; /* in a cluster: scope_mark() of the last hello on each lane */
    atomic_bool takes, due;          /* elsewhere: see above */
};

/* A number is to be taken. True: a reign is to begin before that. */
static inline bool scope_due(struct scope *s)
{
    if (!atomic_load(&s->takes))
        atomic_store(&s->takes, true);
    return atomic_load(&s->due);
}

/* The connection on which hello.lua ran (conn_epoch()), and how often the keys had moved by then:
 * where they come back to, numbers may have been lost that were given elsewhere. */
static inline uint64_t scope_mark(unsigned epoch, unsigned moves)
{
    return (uint64_t)epoch << 32 | moves;
}
static inline unsigned scope_epoch(uint64_t mark)
{
    return (unsigned)(mark >> 32);
}

#endif
