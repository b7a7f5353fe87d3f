/* SPDX-License-Identifier: MIT
 * scene.h - a cluster, and a lock whose slot may go from the first master to the second.
 */
#ifndef HARNESS_SCENE_H
#define HARNESS_SCENE_H

#include <stdio.h>

#include "harness/cluster.h"

struct scene {
    struct cluster *cl;
    struct server *from, *to;
    const char *name;
    char key[64];
    int slot;
};

static inline struct scene scene_with(struct cluster_opts o)
{
    struct scene s = { .cl = cluster_start(&o) };
    s.from = s.cl->node[0];
    s.to = s.cl->node[1];
    s.name = cluster_name(s.cl, s.from, 0);
    s.slot = cluster_slot_of(s.cl, s.name);
    snprintf(s.key, sizeof s.key, "lock:%s", s.name);
    return s;
}

#endif
