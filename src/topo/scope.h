/* SPDX-License-Identifier: MIT
 * scope.h - what the locks of one place share on the server.
 *
 * Where one server has all keys, all locks of a client share one scope. In a cluster each slot is
 * one. Fencing numbers come from the scope's counter; before the first of them is taken on a
 * connection, hello.lua has to run there. Where one server has everything that is done when it is
 * connected to; in a cluster it goes along with the first request for the slot.
 */
#ifndef TOPO_SCOPE_H
#define TOPO_SCOPE_H

#include <stdatomic.h>
#include <stdint.h>

#include "topo/topo.h"

struct scope {
    const char *counter, *reign; /* keys */
    const char *nothing; /* in a cluster: a key of the slot that never exists. A script that names
                            it is not run while the slot is being moved. Else NULL */
    _Atomic uint64_t greeted[LANES]; /* scope_mark() of the last hello on each lane */
};

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
