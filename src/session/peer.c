/* SPDX-License-Identifier: MIT
 * peer.c - what the keeper knows of each server: whether it has been silent, and how its clock
 * runs.
 */
#include "session/peer.h"

#define SILENT_MS 250 /* after it was silent it is left alone for so long at least */

struct peer *peer_of(struct peers *ps, const void *server)
{
    struct peer *oldest = &ps->peer[0];
    for (int i = 0; i < PEERS_MAX; i++) {
        struct peer *p = &ps->peer[i];
        if (p->used_ms && p->server == server) {
            p->used_ms = clock_now_ms();
            return p;
        }
        if (p->used_ms < oldest->used_ms)
            oldest = p;
    }
    *oldest = (struct peer){ .server = server, .used_ms = clock_now_ms() };
    return oldest;
}

void peer_heard(struct peer *p, bool answered, int64_t begun_ms)
{
    int64_t now = clock_now_ms(), took = now - begun_ms; /* the others get as much */
    p->silent_until_ms = answered ? 0 : now + (took > SILENT_MS ? took : SILENT_MS);
}

void peer_time(struct peer *p, int64_t server_ms, int64_t sent_ms, int64_t ttl_ms, unsigned moves,
               const struct log *log)
{
    int64_t now = clock_now_ms();
    if (server_ms < 0 || server_ms > INT64_MAX / 4)
        return; /* no time at all */
    int64_t offset = server_ms - (sent_ms + now) / 2, moved = offset - p->offset_ms;
    int64_t allowed = ttl_ms / 100 + (now - sent_ms) + 10;

    if (p->offset_known && p->moves == moves && (moved > allowed || moved < -allowed))
        log_to(log, HF_LOG_WARNING,
               "the server's clock moved by %+lld ms against ours since the last renewal: leases "
               "end that much %s there", (long long)moved, moved > 0 ? "earlier" : "later");
    p->offset_ms = offset;
    p->offset_known = true;
    p->moves = moves;
}
