/* SPDX-License-Identifier: MIT
 * server_health.c - what the keeper knows of each server: whether it has been silent, and how its
 * clock runs.
 */
#include "session/server_health.h"

#define SILENT_MS 250 /* after it was silent it is left alone for so long at least */

struct server_health *health_of(struct servers_health *all, const void *server)
{
    struct server_health *oldest = &all->each[0];
    for (int i = 0; i < HEALTH_SERVERS_MAX; i++) {
        struct server_health *h = &all->each[i];
        if (h->used_ms && h->server == server) {
            h->used_ms = clock_now_ms();
            return h;
        }
        if (h->used_ms < oldest->used_ms)
            oldest = h;
    }
    *oldest = (struct server_health){ .server = server, .used_ms = clock_now_ms() };
    return oldest;
}

void health_heard(struct server_health *h, bool answered, int64_t begun_ms)
{
    int64_t now = clock_now_ms(), took = now - begun_ms; /* the others get as much */
    h->silent_until_ms = answered ? 0 : now + (took > SILENT_MS ? took : SILENT_MS);
}

void health_time(struct server_health *h, int64_t server_ms, int64_t sent_ms, int64_t ttl_ms,
                 unsigned moves, const struct log *log)
{
    int64_t now = clock_now_ms();
    if (server_ms < 0 || server_ms > INT64_MAX / 4)
        return; /* no time at all */
    int64_t offset = server_ms - (sent_ms + now) / 2, moved = offset - h->offset_ms;
    int64_t unsure = (now - sent_ms) / 2 + 1;
    /* A quick answer after a slow one shows how wrong that was, not that a clock moved. */
    int64_t allowed = ttl_ms / 100 + unsure + h->unsure_ms + 10;

    if (h->offset_known && h->moves == moves && (moved > allowed || moved < -allowed))
        log_to(log, HF_LOG_WARNING,
               "the server's clock moved by %+lld ms against ours since the last renewal: leases "
               "end that much %s there", (long long)moved, moved > 0 ? "earlier" : "later");
    h->offset_ms = offset;
    h->unsure_ms = unsure;
    h->offset_known = true;
    h->moves = moves;
}
