/* SPDX-License-Identifier: MIT
 * lease_set.h - all leases that are kept: in a row, and by the sequence number of their tokens.
 */
#ifndef SESSION_LEASE_SET_H
#define SESSION_LEASE_SET_H

#include "session/lease.h"

struct lease_set {
    struct lease **row;
    size_t         n, capacity;
    struct lease **by_sequence; /* as many chains as there is room in the row: a power of two */
};

/* Make room for n of them in all, so that lease_set_add() cannot fail: 0, or -1 when memory is
 * short. */
int lease_set_reserve(struct lease_set *s, size_t n);
void lease_set_clear(struct lease_set *s);

/* It comes last in the row. */
void lease_set_add(struct lease_set *s, struct lease *l);
/* The last one of the row takes its place: whoever walks from the end to the beginning, and lets
 * others change it meanwhile, misses none of those that were there. Fine when it is not in it. */
void lease_set_remove(struct lease_set *s, struct lease *l);

struct lease *lease_set_find(const struct lease_set *s, uint64_t sequence); /* NULL: none */

#endif
