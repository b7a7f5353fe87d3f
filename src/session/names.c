/* SPDX-License-Identifier: MIT
 * names.c - the keys of each lock, once per client, however many handles it has.
 */
#include "base/mutex.h"
#include "session/client.h"

#include <string.h>

#include "base/mem.h"

struct names {
    hf_client      *c;
    struct mutex    mu;
    struct tree     tree; /* of struct lock_keys, by name */
};

static struct lock_keys *keys_at(const struct tree_node *n)
{
    return TREE_ITEM(n, struct lock_keys, node);
}

static int by_name(const struct tree_node *a, const struct tree_node *b)
{
    hf_bytes x = keys_at(a)->name, y = keys_at(b)->name;
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

struct names *names_new(hf_client *c)
{
    struct names *n = mem_zalloc(sizeof *n);
    if (n) {
        n->c = c;
        n->tree.compare = by_name;
        mutex_init(&n->mu, MUTEX_NAMES);
    }
    return n;
}

struct names *names_free(struct names *n)
{
    mem_free(n);
    return NULL;
}

static hf_err add_locked(struct names *n, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    mutex_assert_held(&n->mu);
    hf_err e = client_keys(n->c, name, ret, reterr);
    if (!e)
        tree_insert(&n->tree, &(*ret)->node);
    return e;
}

hf_err names_use(struct names *n, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    struct lock_keys probe = { .name = name };
    hf_err e = HF_OK;
    mutex_lock(&n->mu);
    struct lock_keys *found = name.data ? keys_at(tree_find(&n->tree, &probe.node)) : NULL;
    if (found)
        *ret = found;
    else
        e = add_locked(n, name, ret, reterr);
    if (!e)
        (*ret)->users++;
    mutex_unlock(&n->mu);
    return e;
}

void names_leave(struct names *n, struct lock_keys *k, int alone)
{
    if (!alone)
        mutex_lock(&n->mu);
    if (--k->users == 0) {
        tree_remove(&n->tree, &k->node);
        keys_free(k);
    }
    if (!alone)
        mutex_unlock(&n->mu);
}
