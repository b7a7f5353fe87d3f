/* SPDX-License-Identifier: MIT
 * crowd.h - many handles of one client that wait for one lock without blocking, then get it one
 * after the other.
 */
#ifndef BENCH_CROWD_H
#define BENCH_CROWD_H

#include <holdfast.h>
#include <stddef.h>

#include "harness/server.h"

struct crowd; /* the handles and who holds the lock meanwhile */

/* What was measured; bytes for each of them. */
struct crowd_result {
    double enqueue_us;    /* each */
    double idle_commands; /* a second, all of them together */
    double idle_us;       /* of the server's processor, a second, more than without them */
    double connections;   /* of the client that waits */
    double client_bytes, server_bytes;
    double handoff_us, handoff_server_us, handoff_commands; /* each, as they are served */
    size_t late;          /* how often one was served after one that had asked later */
};
struct crowd_result crowd_measure(int n, int idle_ms, int release_without_blocking);

#endif
