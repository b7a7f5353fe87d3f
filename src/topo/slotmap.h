/* SPDX-License-Identifier: MIT
 * slotmap.h - what a cluster says about where its slots are: CLUSTER SLOTS, MOVED and ASK.
 */
#ifndef TOPO_SLOTMAP_H
#define TOPO_SLOTMAP_H

#include <stdbool.h>
#include <stddef.h>

#include "net/resp.h"

#define SLOTMAP_HOST_MAX 256
#define SLOTMAP_ID_SIZE  48

struct slot_place {
    unsigned first, last;            /* slots; of MOVED and ASK both are the same */
    char     host[SLOTMAP_HOST_MAX]; /* as url_is_host(); "": the server that said it */
    int      port;
    char     id[SLOTMAP_ID_SIZE];    /* "": not said */
    unsigned replicas;               /* how many of those it has live; of MOVED and ASK 0 */
};

/* Call each(arg, place) for all ranges in the answer to CLUSTER SLOTS whose server can be found:
 * one that does not know its own name, though it should, says "?". False: it makes no sense, and
 * nothing was called. */
bool slotmap_read(const struct reply *rp, void (*each)(void *arg, const struct slot_place *place),
                  void *arg);

/* "MOVED 3999 127.0.0.1:6381" and "ASK ...". False: it is neither, or names no server. */
bool slotmap_redirection(const struct reply *rp, bool *ret_ask, struct slot_place *ret);

#endif
