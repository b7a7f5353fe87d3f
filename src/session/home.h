/* SPDX-License-Identifier: MIT
 * home.h - what the locks of one place have in common.
 *
 * Where one server has all keys, all locks of a client have one home. In a cluster each slot is
 * one: its keys, and so its fencing counter, its reign and our channel there, move together and
 * alone.
 *
 *      counter  <prefix>holdfast:fence     or  <prefix>holdfast:{tag}:fence
 *      reign    <prefix>holdfast:reign     or  <prefix>holdfast:{tag}:reign
 *      channel  <prefix>holdfast:s:<id>    or  <prefix>holdfast:{tag}:s:<id>
 * The tag is a short text that lies in the slot. Scripts know by its } that they are in a cluster.
 */
#ifndef SESSION_HOME_H
#define SESSION_HOME_H

#include <stddef.h>

#include "base/tree.h"
#include "session/inbox.h"
#include "topo/keys.h"

struct hf_client;

struct home {
    struct tree_node     node; /* of struct homes */
    unsigned             slot; /* 0 where there are none */
    struct scope         scope; /* the counter and the reign */
    struct subscription  sub;  /* to our channel */
    struct inbox        *inbox; /* at which server; NULL: not yet. Under the client's session_mu */

    /* Under the client's session_mu: the server saw our subscription. */
    unsigned             seen_conn, seen_epoch;

    unsigned             kept_epoch; /* of the subscription, as the keeper knows it; under its lock */
};

/* The home of a lock. */
static inline struct home *home_of(const struct lock_keys *keys)
{
    return (struct home *)((char *)keys->scope - offsetof(struct home, scope));
}

struct homes;

/* NULL: no memory. slotted: one for each slot. */
struct homes *homes_new(const char *prefix, const char *session, bool slotted);
struct homes *homes_free(struct homes *hs);

/* The home of a key. Stays until homes_free(). NULL: no memory. Any thread. */
struct home *homes_of(struct homes *hs, hf_bytes key);

/* Call each(h, arg) for all that there are. */
void homes_each(struct homes *hs, void (*each)(struct home *h, void *arg), void *arg);

#endif
