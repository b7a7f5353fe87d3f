/* SPDX-License-Identifier: MIT
 * keyspace.c - what the locks of one place have in common.
 */
#include "session/keyspace.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/mutex.h"
#include "topo/keys.h"
#include "topo/slot.h"

struct keyspaces {
    char           *prefix;
    char            session[33];
    bool            slotted;
    struct mutex    mu;
    struct tree     tree; /* by slot */
};

static struct keyspace *home_at(const struct tree_node *n)
{
    return TREE_ITEM(n, struct keyspace, node);
}

static int by_slot(const struct tree_node *a, const struct tree_node *b)
{
    unsigned x = home_at(a)->slot, y = home_at(b)->slot;
    return x < y ? -1 : x > y;
}

struct keyspaces *keyspaces_new(const char *prefix, const char *session, bool slotted)
{
    struct keyspaces *hs = mem_zalloc(sizeof *hs);
    if (!hs || !(hs->prefix = mem_copy(prefix, strlen(prefix)))) {
        mem_free(hs);
        return NULL;
    }
    snprintf(hs->session, sizeof hs->session, "%s", session);
    hs->slotted = slotted;
    hs->tree.compare = by_slot;
    mutex_init(&hs->mu, MUTEX_KEYSPACES);
    return hs;
}

static void free_keyspace(struct keyspace *h)
{
    mem_free((char *)h->scope.counter);
    mem_free((char *)h->scope.reign);
    mem_free((char *)h->scope.nothing);
    mem_free((char *)h->sub.channel);
    mem_free(h);
}

struct keyspaces *keyspaces_free(struct keyspaces *hs)
{
    if (!hs)
        return NULL;
    for (struct keyspace *h; (h = home_at(tree_first(&hs->tree)));) {
        tree_remove(&hs->tree, &h->node);
        free_keyspace(h);
    }
    mem_free(hs->prefix);
    mem_free(hs);
    return NULL;
}

/* <prefix>holdfast:what, or <prefix>holdfast:{tag}:what. A prefix that has a tag of its own decides
 * the slot by that. */
static char *name(const struct keyspaces *hs, const char *tag, const char *what)
{
    char tail[96];
    snprintf(tail, sizeof tail, "%s%s%s%s", hs->slotted ? "{" : "", tag, hs->slotted ? "}:" : "",
             what);
    return keys_reserved(hs->prefix, tail);
}

static struct keyspace *new_keyspace(const struct keyspaces *hs, unsigned slot)
{
    char tag[SLOT_TEXT_SIZE] = "", channel[48];
    struct keyspace *h = mem_zalloc(sizeof *h);
    if (!h)
        return NULL;
    if (hs->slotted)
        slot_text(slot, tag);
    snprintf(channel, sizeof channel, "s:%s", hs->session);
    h->slot = slot;
    h->scope.counter = name(hs, tag, "fence");
    h->scope.reign = name(hs, tag, "reign");
    h->scope.nothing = hs->slotted ? name(hs, tag, "nothing") : NULL;
    h->sub.channel = name(hs, tag, channel);
    h->sub.keyspace = h;
    if (h->scope.counter && h->scope.reign && h->sub.channel
        && (h->scope.nothing || !hs->slotted))
        return h;
    free_keyspace(h);
    return NULL;
}

struct keyspace *keyspaces_of(struct keyspaces *hs, hf_bytes key)
{
    struct keyspace probe = { .slot = hs->slotted ? slot_of(key.data, key.len) : 0 };
    mutex_lock(&hs->mu);
    struct keyspace *h = home_at(tree_find(&hs->tree, &probe.node));
    if (!h && (h = new_keyspace(hs, probe.slot)))
        tree_insert(&hs->tree, &h->node);
    mutex_unlock(&hs->mu);
    return h;
}

void keyspaces_each(struct keyspaces *hs, void (*each)(struct keyspace *h, void *arg), void *arg)
{
    mutex_lock(&hs->mu);
    for (struct tree_node *n = tree_first(&hs->tree); n; n = tree_next(&hs->tree, n))
        each(home_at(n), arg);
    mutex_unlock(&hs->mu);
}
