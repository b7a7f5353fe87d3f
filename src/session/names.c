/* SPDX-License-Identifier: MIT
 * names.c - the keys of each lock, once per client, however many handles it has.
 */
#include "session/client.h"

#include <pthread.h>
#include <search.h>
#include <string.h>

#include "base/mem.h"

struct names {
    hf_client      *c;
    pthread_mutex_t mu;
    void           *tree; /* tsearch(3) of struct lock_keys, by name */
};

static int compare(const void *a, const void *b)
{
    hf_bytes x = ((const struct lock_keys *)a)->name, y = ((const struct lock_keys *)b)->name;
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

struct names *names_new(hf_client *c)
{
    struct names *n = mem_zalloc(sizeof *n);
    if (n) {
        n->c = c;
        pthread_mutex_init(&n->mu, NULL);
    }
    return n;
}

struct names *names_free(struct names *n)
{
    mem_free(n);
    return NULL;
}

/* Holds: mu. */
static hf_err add(struct names *n, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    hf_err e = client_keys(n->c, name, ret, reterr);
    if (!e && !tsearch(*ret, &n->tree, compare)) {
        keys_free(*ret);
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    return e;
}

hf_err names_use(struct names *n, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    struct lock_keys probe = { .name = name };
    hf_err e = HF_OK;
    pthread_mutex_lock(&n->mu);
    struct lock_keys **found = name.data ? tfind(&probe, &n->tree, compare) : NULL;
    if (found)
        *ret = *found;
    else
        e = add(n, name, ret, reterr);
    if (!e)
        (*ret)->users++;
    pthread_mutex_unlock(&n->mu);
    return e;
}

void names_leave(struct names *n, struct lock_keys *k, int alone)
{
    if (!alone)
        pthread_mutex_lock(&n->mu);
    if (--k->users == 0) {
        tdelete(k, &n->tree, compare);
        keys_free(k);
    }
    if (!alone)
        pthread_mutex_unlock(&n->mu);
}
