/* SPDX-License-Identifier: MIT
 * keeping.h - a client that never talks to anybody: for tests of what it keeps while it holds
 * locks.
 */
#ifndef HARNESS_KEEPING_H
#define HARNESS_KEEPING_H

#include <stdlib.h>

#include "base/forkguard.h"
#include "harness/t.h"
#include "session/client.h"
#include "session/keeper_impl.h"
#include "topo/topo_impl.h"

struct scene {
    hf_client        client;
    struct topo_ops  ops;
    struct topo      topo;
    struct keyspace  keyspace;
    struct keeper   *k;
    char             inbox; /* only its address counts */
    struct lock_keys keys;  /* the last: it has room for its names behind it */
};

static inline struct inbox *scene_inbox(struct scene *s)
{
    return (struct inbox *)&s->inbox;
}

static inline struct scene *open_scene(void)
{
    struct scene *s = calloc(1, sizeof *s);
    s->topo.ops = &s->ops;
    s->client.topo = &s->topo;
    s->client.keyspace = &s->keyspace;
    s->client.timeout_ms = 1000;
    s->client.generation = forkguard_generation();
    mutex_init(&s->client.session_mu, MUTEX_SESSION);
    s->keys.scope = &s->keyspace.scope;
    atomic_store(&s->keyspace.sub.at, scene_inbox(s));
    atomic_store(&s->keyspace.sub.epoch, 1);
    s->keyspace.kept_epoch = 1;
    s->client.exec = exec_new(&s->topo, &s->keyspace.scope, 0);
    CHECK(s->client.exec);
    exec_choose(s->client.exec, PROTOCOL_TRANSACTION); /* which does not look at what is held */
    notes_init(&s->client.notes);
    CHECK_INT(keeper_open(&s->client, &s->k, NULL), HF_OK);
    return s;
}

static inline void close_scene(struct scene *s)
{
    keeper_free(s->k, 0);
    exec_free(s->client.exec);
    free(s);
}

/* A ping was answered that was sent now. */
static inline void prove(struct scene *s)
{
    keeper_present(s->k, scene_inbox(s), clock_now_ms());
}

#endif
