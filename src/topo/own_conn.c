/* SPDX-License-Identifier: MIT
 * own_conn.c - connections of one caller's own, for what the shared one cannot do: WATCH.
 */
#include "topo/own_conn.h"

#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/mutex.h"

struct own_conns {
    struct topo     *topo;
    size_t           keep;
    unsigned         generation; /* of forkguard */
    struct mutex     mu;
    struct own_conn *idle;       /* the one that was given back last is first */
};

struct own_conns *own_conns_new(struct topo *t, size_t keep)
{
    struct own_conns *p = mem_zalloc(sizeof *p);
    if (!p)
        return NULL;
    p->topo = t;
    p->keep = keep;
    p->generation = forkguard_generation();
    mutex_init(&p->mu, MUTEX_OWN_CONNS);
    return p;
}

void own_conn_close(struct own_conn *oc, bool reset)
{
    link_close(&oc->link, reset);
    link_clear(&oc->link);
    mem_free(oc);
}

static void close_all(struct own_conn *oc)
{
    while (oc) {
        struct own_conn *next = oc->next;
        own_conn_close(oc, false);
        oc = next;
    }
}

struct own_conns *own_conns_free(struct own_conns *p)
{
    if (!p)
        return NULL;
    close_all(p->idle);
    if (p->generation == forkguard_generation())
        mutex_destroy(&p->mu);
    mem_free(p);
    return NULL;
}

static hf_err open_new(struct own_conns *p, hf_bytes key, const struct limit *lim,
                       struct own_conn **ret, hf_error *reterr)
{
    struct own_conn *oc = mem_zalloc(sizeof *oc);
    if (!oc || link_init(&oc->link) < 0) {
        mem_free(oc);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    oc->fresh = true;
    oc->moves = topo_moves(p->topo); /* before: it may move meanwhile */
    oc->server = topo_server(p->topo, key);
    hf_err e = topo_link(p->topo, key, &oc->link, lim, reterr);
    if (e)
        own_conn_close(oc, false);
    else
        *ret = oc;
    return e;
}

/* Take one out that leads to this server; *ret_stale: those that were opened before the
 * topology moved. */
static struct own_conn *find_locked(struct own_conns *p, unsigned moves, const void *server,
                                    struct own_conn **ret_stale)
{
    mutex_assert_held(&p->mu);
    struct own_conn *found = NULL, **at = &p->idle, *oc;
    *ret_stale = NULL;
    while ((oc = *at)) {
        bool stale = oc->moves != moves;
        if (!stale && (found || oc->server != server)) {
            at = &oc->next;
            continue;
        }
        *at = oc->next;
        if (stale) {
            oc->next = *ret_stale;
            *ret_stale = oc;
        } else {
            found = oc;
        }
    }
    return found;
}

hf_err own_conn_take(struct own_conns *p, hf_bytes key, const struct limit *lim,
                     struct own_conn **ret, hf_error *reterr)
{
    struct own_conn *stale;
    (void)topo_conn(p->topo, key); /* notices a move */
    unsigned moves = topo_moves(p->topo);
    const void *server = topo_server(p->topo, key);
    mutex_lock(&p->mu);
    struct own_conn *oc = find_locked(p, moves, server, &stale);
    mutex_unlock(&p->mu);
    close_all(stale);
    if (!oc)
        return open_new(p, key, lim, ret, reterr);
    oc->fresh = false;
    *ret = oc;
    return HF_OK;
}

void own_conn_give(struct own_conns *p, struct own_conn *oc)
{
    struct own_conn **at = &p->idle;
    mutex_lock(&p->mu);
    oc->next = p->idle;
    p->idle = oc;
    for (size_t n = 0; n < p->keep && *at; n++)
        at = &(*at)->next;
    struct own_conn *surplus = *at; /* the oldest */
    *at = NULL;
    mutex_unlock(&p->mu);
    close_all(surplus);
}
