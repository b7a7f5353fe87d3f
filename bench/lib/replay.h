/* SPDX-License-Identifier: MIT
 * replay.h - the very commands that the library sends, sent without it.
 *
 * They are read from MONITOR while the library takes and releases one lock, so this follows the
 * protocol by itself. Where they have the lock's name, the token or the fencing number, each copy
 * has its own.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include "harness/server.h"
#include "lib/meter.h"

struct replay; /* what to send: lasts until the test ends */

/* Starts the server anew, as MONITOR would cost, and has it learn the scripts. */
struct replay *replay_learn(struct server *s);

/* One lock: take and release it over this socket, one round trip each. */
struct replay_lock;
struct replay_lock *replay_lock_new(const struct replay *r, int index);
void replay_pair(struct replay_lock *l, int fd);
void replay_lock_free(struct replay_lock *l);

/* One thread, one connection, so many locks under way all the time: each is taken, then released,
 * and so on; what is to be sent goes out in one write. For run_ms, after a while to warm up. */
struct cost replay_loop(const struct replay *r, struct server *s, int under_way, int run_ms);

#endif
