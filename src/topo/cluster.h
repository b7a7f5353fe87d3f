/* SPDX-License-Identifier: MIT
 * cluster.h - the servers of a cluster, each with a part of the slots.
 *
 * Where a slot is, is known from what the cluster last said. Who is answered MOVED or ASK, or finds
 * a server silent, says so here, and asks again.
 */
#ifndef TOPO_CLUSTER_H
#define TOPO_CLUSTER_H

#include "topo/topo.h"

struct cluster;

/* A server sent us elsewhere (MOVED, ASK). *ret_asked: where to ask this once, behind an ASKING;
 * NULL: as topo_lane() says from now on. HF_ECONN: it makes no sense. HF_ENOMEM. */
hf_err cluster_redirected(struct cluster *cl, const struct reply *rp, struct conn *from,
                          enum topo_lane lane, struct conn **ret_asked, hf_error *reterr);

/* The connections to the servers that have slots now, at most max: how many there are. */
size_t cluster_servers(struct cluster *cl, struct conn **ret, size_t max);
/* Who has a slot: a number for each server, and where it is; -1: nobody. */
int cluster_place(struct cluster *cl, unsigned slot, const struct url_host **ret);
/* Where the i-th of them is, as it may be shown. */
const char *cluster_shown(struct cluster *cl, const struct conn *cn, char *buf, size_t size);

#endif
