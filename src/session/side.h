/* SPDX-License-Identifier: MIT
 * side.h - a connection of one caller's own, for what the shared one cannot do: WATCH.
 *
 * A client keeps one of them for the next caller. Who comes while it is in use opens another: the
 * user's function runs meanwhile, takes as long as it likes and may come here again.
 */
#ifndef SESSION_SIDE_H
#define SESSION_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/link.h"

struct hf_client;

struct side {
    struct link link;
    char        id[56];   /* session, a dot, a number: no two connections ever have the same */
    uint64_t    writes;   /* sent under this id */
    bool        open;
    bool        watching; /* a WATCH of an earlier try stands */
    unsigned    moves;    /* of the topology, when it was opened */
    const void *server;   /* as topo_server() */
};

/* The kept one, if it leads to where the key is, or a new one, which is not open yet. NULL: no
 * memory. */
struct side *side_take(struct hf_client *c, hf_bytes key);
/* Give it back: kept if it is open and none is kept, else closed. */
void side_give(struct hf_client *c, struct side *s);

/* Connect, under a new id. */
hf_err side_open(struct hf_client *c, struct side *s, hf_bytes key, int64_t deadline_ms,
                 hf_error *reterr);
void side_close(struct side *s);

struct side *side_free(struct side *s); /* in a forked child too: touches no socket there */

#endif
