/* SPDX-License-Identifier: MIT
 * quorum.c - the topology of a quorum: its servers (quorum_members.c) behind a struct topo.
 */

#include "base/mem.h"
#include "topo/quorum.h"
#include "topo/topo_impl.h"

static hf_err locate(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr)
{
    (void)key;
    (void)t;
    (void)lim;
    (void)ret;
    return err_set(reterr, HF_ENOTSUP, "not on a quorum: it needs one server");
}

static hf_err open_all(struct topo *t, hf_error *reterr)
{
    return quorum_open(t->url, t->timeout_ms, t->greet, t->arg, t->log, &t->quorum, reterr);
}

static hf_err connect_all(struct topo *t, const struct limit *lim, hf_error *reterr)
{
    return quorum_connect(t->quorum, lim, reterr);
}

static void close_all(struct topo *t, bool forked)
{
    t->quorum = forked ? quorum_forget(t->quorum) : quorum_free(t->quorum);
}

/* Every key is on all of them: any one. */
static struct conn *conn_of(struct topo *t, hf_bytes key, enum topo_lane lane)
{
    (void)key;
    (void)lane;
    return quorum_conn(t->quorum, 0);
}

/* A server that has come back may not have what was renewed, or taken, without it. */
static unsigned moves(const struct topo *t, hf_bytes key)
{
    (void)key;
    return t->quorum ? quorum_ups(t->quorum) : 0;
}

static void clear(struct topo *t)
{
    (void)t;
}

/* Nobody is seen gone on a quorum: the grace plays no part. */
static const struct topo_ops ops = { .locate = locate, .open = open_all, .connect = connect_all,
                                     .close = close_all, .conn = conn_of, .moves = moves,
                                     .clear = clear,
                                     .grace_ms = 5000, .outage_ms = 30000 };

hf_err quorum_topo_new(struct url *u, struct topo **ret, hf_error *reterr)
{
    if (u->replicas > 0 || u->replicas == URL_MAJORITY || u->fsync > 0)
        return err_set(reterr, HF_ENOTSUP,
                       "replicas= and fsync= are not for a quorum, whose servers have none of each "
                       "other's: leave them out");
    struct topo *t = mem_zalloc(sizeof *t);
    if (!t)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    t->ops = &ops;
    topo_show(t, u, "quorum");
    *ret = t;
    return HF_OK;
}
