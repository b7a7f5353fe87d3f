/* SPDX-License-Identifier: MIT
 * topo.c - what all topologies have in common: their connections.
 */
#include "topo/topo_impl.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/servererr.h"

#define RETRY_MS 20

/* ---- one connection -------------------------------------------------------------------------- */

static hf_err prepare(void *arg, const struct limit *lim, const struct url_host **ret,
                      hf_error *reterr)
{
    struct lane *lane = arg;
    hf_err e = lane->t->ops->locate(lane->t, hf_str(""), lim, ret, reterr);
    atomic_store(&lane->host, e ? NULL : *ret);
    return e;
}

/* Can it be asked who has what was written? Said when we connect, and not at the first grant. */
static hf_err check_acks(const struct topo *t, struct link *l, const struct limit *lim,
                         hf_error *reterr)
{
    bool fsync = t->url->fsync > 0;
    hf_bytes wait[] = { hf_str("WAIT"), hf_str("0"), hf_str("1") };
    hf_bytes waitaof[] = { hf_str("WAITAOF"), hf_str("1"), hf_str("0"), hf_str("1") };
    struct reply *rp;
    hf_err e = link_exchange(l, fsync ? 4 : 3, fsync ? waitaof : wait, lim, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR && fsync && strstr(rp->str, "unknown command"))
        e = err_set(reterr, HF_ENOTSUP,
                    "fsync=1 needs a server with WAITAOF (Redis or Valkey 7.2 and newer), which "
                    "this one is not: leave it out, and set appendfsync always there");
    else if (rp->type == REPLY_ERROR && fsync && strstr(rp->str, "appendonly"))
        e = err_set(reterr, HF_ECONFIG,
                    "fsync=1 needs a server that writes to disk, which this one does not: set "
                    "appendonly yes there, or leave fsync=1 out");
    else if (rp->type == REPLY_ERROR && !(t->cluster && strstr(rp->str, "replica instances")))
        e = server_refusal(rp, reterr); /* who has lost its slots says so to each request: MOVED */
    reply_free(rp);
    return e;
}

static hf_err greet(void *arg, struct link *l, const struct limit *lim, hf_error *reterr)
{
    struct lane *lane = arg;
    struct topo *t = lane->t;
    const struct url_host *host = atomic_load(&lane->host);
    hf_err e = t->ops->check ? t->ops->check(t, host, l, lim, reterr) : HF_OK;
    if (!e && t->acks)
        e = check_acks(t, l, lim, reterr);
    struct greeted told = { .again = lane->stood };
    if (!e)
        e = t->greet(t->arg, l, lim, &told, reterr);
    lane->stood |= !e;
    return e;
}

hf_err topo_open_lane(struct topo *t, struct lane *lane, const struct url_host *host,
                      const atomic_int *replicas, hf_error *reterr)
{
    struct conn_hooks hooks = { .prepare = host ? NULL : prepare, .greet = greet, .arg = lane };
    int64_t limit = t->url->connect_timeout_ms > 0 ? t->url->connect_timeout_ms : t->timeout_ms;
    lane->t = t;
    atomic_store(&lane->host, host);
    lane->conn = conn_new(t->url, host, limit, t->timeout_ms, &hooks, t->log);
    if (!lane->conn)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    if (replicas) {
        struct conn_ack ack = { .replicas = replicas, .fsync = t->url->fsync > 0 };
        conn_acknowledge(lane->conn, &ack);
    }
    return HF_OK;
}

/* ---- open and close -------------------------------------------------------------------------- */

static hf_err make(struct url *u, const struct log *log, struct topo **ret, hf_error *reterr)
{
    if (u->topology == URL_EMBEDDED && u->fsync > 0)
        return err_set(reterr, HF_ENOTSUP,
                       "fsync=1 is not for the embedded server, which leaves the disk to the "
                       "system: a power cut would end every holder with it; leave it out");
    switch (u->topology) {
    case URL_SINGLE:
    case URL_EMBEDDED: return single_new(u, ret, reterr);
    case URL_SENTINEL: return sentinel_new(u, log, ret, reterr);
    case URL_QUORUM: return quorum_topo_new(u, ret, reterr);
    case URL_CLUSTER: return cluster_new(u, ret, reterr);
    }
    return err_set(reterr, HF_ENOTSUP, "this version does not know such a URL");
}

hf_err topo_open(struct url *u, int64_t timeout_ms, topo_greet greet_fn, void *arg,
                 const struct log *log, struct topo **ret, hf_error *reterr)
{
    struct topo *t = NULL;
    hf_err e = make(u, log, &t, reterr);
    if (e) {
        url_free(u);
        return e;
    }
    t->url = u;
    t->log = log;
    t->timeout_ms = timeout_ms;
    t->greet = greet_fn;
    t->arg = arg;
    t->acks = u->replicas > 0 || u->replicas == URL_MAJORITY || u->fsync > 0;
    atomic_store(&t->replicas, u->replicas > 0 ? u->replicas : 0);
    if (t->ops->open)
        e = t->ops->open(t, reterr);
    for (int i = 0; !t->ops->open && i < (t->acks ? LANES : 1) && !e; i++)
        e = topo_open_lane(t, &t->lane[i], NULL, i == LANE_PLAIN ? NULL : &t->replicas, reterr);
    if (e) {
        topo_free(t);
        return e;
    }
    *ret = t;
    return HF_OK;
}

static struct topo *clear(struct topo *t)
{
    t->ops->clear(t);
    url_free(t->url);
    mem_free(t);
    return NULL;
}

struct topo *topo_forget(struct topo *t)
{
    if (!t)
        return NULL;
    for (int i = 0; i < LANES; i++)
        conn_forget(t->lane[i].conn);
    if (t->ops->close)
        t->ops->close(t, true);
    return clear(t);
}

struct topo *topo_free(struct topo *t)
{
    if (!t)
        return NULL;
    topo_unattend(t);
    for (int i = 0; i < LANES; i++)
        conn_free(t->lane[i].conn);
    if (t->ops->close)
        t->ops->close(t, false);
    return clear(t);
}

hf_err topo_connect(struct topo *t, const struct limit *lim, hf_error *reterr)
{
    if (t->ops->connect)
        return t->ops->connect(t, lim, reterr);
    for (int tries = 0;; tries++) {
        hf_error reason = { 0 };
        hf_err e = conn_connect(t->lane[LANE_PLAIN].conn, lim, &reason);
        /* Loading may take long: whoever wants to wait for it says so. The embedded one is ours. */
        bool loading = e == HF_EBUSY && t->url->topology != URL_EMBEDDED
                       && server_is_loading(&reason);
        bool again = (e == HF_EBUSY && !loading)
                     || (e == HF_ECONN && t->ops->try_again && t->ops->try_again(t, tries));
        /* An attempt that our own time cut short says less than the one before it. */
        bool cut = e == HF_ECONN && tries > 0 && limit_over(lim);
        if (reterr && !cut)
            *reterr = reason;
        if (loading)
            return err_known(reterr, HF_ECONN, HF_KNOWN_UNCHANGED);
        if (!again)
            return e;
        if (limit_stopped(lim) || clock_now_ms() + RETRY_MS >= lim->at_ms)
            return err_known(reterr, HF_ECONN, HF_KNOWN_UNCHANGED);
        limit_sleep(lim, RETRY_MS);
    }
}

/* ---- in use ---------------------------------------------------------------------------------- */

hf_err topo_attend(struct topo *t, const struct topo_events *events, hf_error *reterr)
{
    t->events = *events;
    return t->ops->attend ? t->ops->attend(t, reterr) : HF_OK;
}

void topo_unattend(struct topo *t)
{
    if (t->ops->unattend)
        t->ops->unattend(t);
}

bool topo_can_move(const struct topo *t)
{
    return t->ops->attend != NULL;
}

unsigned topo_moves(const struct topo *t)
{
    return atomic_load(&t->moves);
}

unsigned topo_moves_of(const struct topo *t, hf_bytes key)
{
    return t->ops->moves ? t->ops->moves(t, key) : topo_moves(t);
}

void topo_doubt(struct topo *t)
{
    if (t->ops->doubt)
        t->ops->doubt(t);
}

const void *topo_server(const struct topo *t, hf_bytes key)
{
    return t->ops->server ? t->ops->server(t, key) : t;
}

void topo_moved(struct topo *t, const char *why)
{
    atomic_fetch_add(&t->moves, 1);
    for (int i = 0; i < LANES; i++)
        if (t->lane[i].conn)
            conn_drop(t->lane[i].conn, why);
    if (t->events.moved)
        t->events.moved(t->events.arg);
}

void topo_wrong(struct topo *t, struct conn *cn, const char *why)
{
    if (topo_can_move(t) && !t->cluster) /* there is a right one, somewhere else */
        topo_moved(t, why);
    else
        conn_drop(cn, why);
}

struct conn *topo_lane(struct topo *t, hf_bytes key, enum topo_lane lane)
{
    if (t->ops->conn)
        return t->ops->conn(t, key, lane);
    if (t->ops->use)
        t->ops->use(t);
    return t->lane[t->acks ? lane : LANE_PLAIN].conn;
}

struct conn *topo_lane_now(struct topo *t, hf_bytes key, enum topo_lane lane)
{
    if (t->ops->conn)
        return t->ops->conn(t, key, lane);
    if (t->ops->unsure && t->ops->unsure(t))
        for (int i = 0; i < LANES; i++)
            if (t->lane[i].conn)
                conn_drop(t->lane[i].conn, "nobody has confirmed it for a while");
    return t->lane[t->acks ? lane : LANE_PLAIN].conn;
}

struct conn *topo_conn(struct topo *t, hf_bytes key)
{
    return topo_lane(t, key, LANE_PLAIN);
}

hf_err topo_link(struct topo *t, hf_bytes key, struct link *l, const struct limit *lim,
                 hf_error *reterr)
{
    const struct url_host *host = NULL;
    hf_err e = t->ops->locate(t, key, lim, &host, reterr);
    if (!e)
        e = link_open(l, t->url, host, lim, reterr);
    if (!e && t->ops->check) {
        e = t->ops->check(t, host, l, lim, reterr);
        if (e)
            link_close(l, false);
    }
    return e;
}

int topo_replicas(const struct topo *t, hf_bytes key)
{
    if (!t->acks)
        return -1;
    return t->ops->replicas ? t->ops->replicas(t, key) : atomic_load(&t->replicas);
}

int64_t topo_default_grace_ms(const struct topo *t)
{
    return t->ops->grace_ms;
}

int64_t topo_outage_ms(const struct topo *t)
{
    return t->ops->outage_ms;
}

struct quorum *topo_quorum(const struct topo *t)
{
    return t->quorum;
}

struct cluster *topo_cluster(const struct topo *t)
{
    return t->cluster;
}

void topo_show(struct topo *t, const struct url *u, const char *kind)
{
    char one[300];
    size_t size = sizeof t->shown;
    size_t used = (size_t)snprintf(t->shown, size, "redis%s+%s://", u->tls ? "s" : "", kind);
    for (size_t i = 0; i < u->nhosts && used < size; i++)
        used += (size_t)snprintf(t->shown + used, size - used, "%s%s", i ? "," : "",
                                 stream_address(&u->hosts[i], one, sizeof one));
    if (u->master && used < size)
        snprintf(t->shown + used, size - used, "/%s", u->master);
}

const char *topo_shown(const struct topo *t)
{
    return t->shown;
}
