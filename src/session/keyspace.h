/* SPDX-License-Identifier: MIT
 * keyspace.h - what the locks of one place have in common.
 *
 * Where one server has all keys, all locks of a client have one keyspace. In a cluster each slot is
 * one: its keys, and so its fencing counter, its reign and our channel there, move together and
 * alone.
 *
 *      counter  <prefix>holdfast:fence     or  <prefix>holdfast:{tag}:fence
 *      reign    <prefix>holdfast:reign     or  <prefix>holdfast:{tag}:reign
 *      channel  <prefix>holdfast:s:<id>    or  <prefix>holdfast:{tag}:s:<id>
 * The tag is a short text that lies in the slot. Scripts know by its } that they are in a cluster.
 */
#ifndef SESSION_KEYSPACE_H
#define SESSION_KEYSPACE_H

#include <stddef.h>

#include "base/tree.h"
#include "session/inbox.h"
#include "topo/keys.h"

struct hf_client;

struct keyspace {
    struct tree_node     node; /* of struct keyspaces */
    unsigned             slot; /* 0 where there are none */
    struct scope         scope; /* the counter and the reign */
    struct subscription  sub;  /* to our channel */
    struct inbox        *inbox; /* at which server; NULL: not yet. Under the client's session_mu */

    /* The server saw our subscription: keyspace_seen(), or 0. */
    _Atomic uint64_t     seen;
    /* Under the client's session_mu. It may not say whether it does: when it is asked again, and
     * how long that was put off. */
    int64_t              ask_at_ms, ask_pause_ms;

    unsigned             kept_epoch; /* of the subscription, as the keeper knows it; under its
                                        lock */
};

/* Which subscription it saw, and over which connection it said so. */
static inline uint64_t keyspace_seen(unsigned conn, unsigned epoch)
{
    return (uint64_t)conn << 32 | epoch;
}

/* The keyspace of a lock. */
static inline struct keyspace *keyspace_of(const struct lock_keys *keys)
{
    return (struct keyspace *)((char *)keys->scope - offsetof(struct keyspace, scope));
}

struct keyspaces;

/* NULL: no memory. slotted: one for each slot. */
struct keyspaces *keyspaces_new(const char *prefix, const char *session, bool slotted);
struct keyspaces *keyspaces_free(struct keyspaces *hs);

/* The keyspace of a key. Stays until keyspaces_free(). NULL: no memory. Any thread. */
struct keyspace *keyspaces_of(struct keyspaces *hs, hf_bytes key);

/* Call each(h, arg) for all that there are. */
void keyspaces_each(struct keyspaces *hs, void (*each)(struct keyspace *h, void *arg), void *arg);

#endif
