/* SPDX-License-Identifier: MIT
 * server_health.h - what the keeper knows of each server: whether it has been silent, and how its
 * clock runs.
 *
 * All by the keeper's thread.
 */
#ifndef SESSION_SERVER_HEALTH_H
#define SESSION_SERVER_HEALTH_H

#include <stdbool.h>

#include "base/clock.h"
#include "base/log.h"

#define HEALTH_SERVERS_MAX 32 /* of more, those not heard of for longest are forgotten */

struct server_health {
    const void *server; /* topo_server() */
    int64_t     used_ms;
    int64_t     silent_until_ms; /* it did not answer: not to be asked before; 0: it did */
    int64_t     offset_ms;       /* its clock less ours, */
    int64_t     unsure_ms;       /* give or take this */
    bool        offset_known;
    unsigned    moves;           /* of the topology by then: another server has another clock */
};

struct servers_health {
    struct server_health each[HEALTH_SERVERS_MAX];
};

struct server_health *health_of(struct servers_health *all, const void *server);

/* A request that began at begun_ms was answered, or was not. */
void health_heard(struct server_health *h, bool answered, int64_t begun_ms);

/* It said what time it is. Reports a clock that runs or jumps against ours: expiry follows it. */
void health_time(struct server_health *h, int64_t server_ms, int64_t sent_ms, int64_t ttl_ms,
                 unsigned moves, const struct log *log);

#endif
