/* SPDX-License-Identifier: MIT
 * peer.h - what the keeper knows of each server: whether it has been silent, and how its clock
 * runs.
 *
 * Outside of a cluster there is one. All by the keeper's thread.
 */
#ifndef SESSION_PEER_H
#define SESSION_PEER_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/log.h"

#define PEERS_MAX 32 /* of more, those that were not heard of for longest are forgotten */

struct peer {
    const void *server; /* topo_server(); NULL: the only one */
    int64_t     used_ms;
    int64_t     silent_until_ms; /* it did not answer: not to be asked before; 0: it did */
    int64_t     offset_ms;       /* its clock less ours */
    bool        offset_known;
    unsigned    moves;           /* of the topology by then: another server has another clock */
};

struct peers {
    struct peer peer[PEERS_MAX];
};

struct peer *peer_of(struct peers *ps, const void *server);

/* A request that began at begun_ms was answered, or was not. */
void peer_heard(struct peer *p, bool answered, int64_t begun_ms);

/* It said what time it is. Reports a clock that runs or jumps against ours: expiry follows it. */
void peer_time(struct peer *p, int64_t server_ms, int64_t sent_ms, int64_t ttl_ms, unsigned moves,
               const struct log *log);

#endif
