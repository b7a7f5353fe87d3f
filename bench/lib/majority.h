/* SPDX-License-Identifier: MIT
 * majority.h - several servers asked at once from bare sockets, until a majority has answered: what
 * a quorum costs on this machine.
 */
#ifndef BENCH_MAJORITY_H
#define BENCH_MAJORITY_H

#include <stddef.h>

#include "harness/server.h"
#include "lib/stats.h"

struct server **majority_servers(int n);
/* The URL of a quorum of them. */
void majority_url(struct server *const *s, int n, char *ret, size_t size);
/* Each round trip stands for a lock, and another one for its unlock: us of the first, and of both.
 * Either may be NULL. */
void majority_rounds(struct server *const *s, int n, int rounds, struct samples *lock,
                     struct samples *pair);

#endif
