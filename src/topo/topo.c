/* SPDX-License-Identifier: MIT
 * topo.c - one server, given by its address or embedded.
 */
#include "topo/topo.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/embedded.h"

#define RETRY_MS 20

struct topo {
    struct url      *url;
    struct url_host  embedded; /* the embedded server's socket */
    const struct url_host *host;
    char            *dir;      /* its folder; NULL: an ordinary server */
    atomic_bool      prepared; /* it ran when we last looked */
    const struct log *log;
    topo_greet       greet;
    void            *arg;
    struct conn     *conn;
    void            *attached;
    char             shown[320];
};

static hf_err prepare(void *arg, int64_t deadline_ms, hf_error *reterr)
{
    struct topo *t = arg;
    hf_err e = t->dir ? embedded_ensure(t->dir, deadline_ms, t->log, reterr) : HF_OK;
    t->prepared = e == HF_OK;
    return e;
}

static hf_err greet(void *arg, struct link *l, int64_t deadline_ms, hf_error *reterr)
{
    struct topo *t = arg;
    return t->greet(t->arg, l, deadline_ms, reterr);
}

static hf_err set_address(struct topo *t, const struct url_host **ret, hf_error *reterr)
{
    if (t->url->topology == URL_SINGLE) {
        const struct url_host *h = &t->url->hosts[0];
        *ret = h;
        if (h->path)
            snprintf(t->shown, sizeof t->shown, "unix://%s", h->path);
        else
            snprintf(t->shown, sizeof t->shown, "%s://%s:%d", t->url->tls ? "rediss" : "redis",
                     h->host, h->port);
        return HF_OK;
    }
    hf_err e = embedded_dir(t->url->dir, &t->dir, reterr);
    if (!e)
        e = embedded_socket(t->dir, &t->embedded.path, reterr);
    if (!e)
        snprintf(t->shown, sizeof t->shown, "embedded:%s", t->dir);
    *ret = &t->embedded;
    return e;
}

hf_err topo_open(struct url *u, int64_t timeout_ms, topo_greet greet_fn, void *arg,
                 const struct log *log, struct topo **ret, hf_error *reterr)
{
    struct topo *t = mem_zalloc(sizeof *t);
    if (!t) {
        url_free(u);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    t->url = u;
    t->log = log;
    t->greet = greet_fn;
    t->arg = arg;

    const struct url_host *host = NULL;
    hf_err e = HF_OK;
    if (u->topology != URL_SINGLE && u->topology != URL_EMBEDDED)
        e = err_set(reterr, HF_ENOTSUP,
                    "this version knows one server and the embedded one, not yet Sentinel, Cluster "
                    "or quorum: use redis://, rediss://, unix:// or embedded:");
    if (!e)
        e = set_address(t, &host, reterr);
    t->host = host;
    if (!e) {
        struct conn_hooks hooks = { .prepare = prepare, .greet = greet, .arg = t };
        int64_t limit = u->connect_timeout_ms > 0 ? u->connect_timeout_ms : timeout_ms;
        t->conn = conn_new(u, host, limit, timeout_ms, &hooks, log);
        if (!t->conn)
            e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (e) {
        topo_free(t);
        return e;
    }
    *ret = t;
    return HF_OK;
}

struct topo *topo_forget(struct topo *t)
{
    if (t)
        conn_forget(t->conn);
    if (t)
        t->conn = NULL;
    return topo_free(t);
}

struct topo *topo_free(struct topo *t)
{
    if (!t)
        return NULL;
    conn_free(t->conn);
    mem_free(t->embedded.path);
    mem_free(t->dir);
    url_free(t->url);
    mem_free(t);
    return NULL;
}

hf_err topo_connect(struct topo *t, int64_t deadline_ms, hf_error *reterr)
{
    for (int tries = 0;; tries++) {
        hf_err e = conn_connect(t->conn, deadline_ms, reterr);
        /* The embedded server may have been dying when we found it: then it is started anew. */
        bool dying = e == HF_ECONN && t->dir && t->prepared && tries < 5;
        if (e != HF_EBUSY && !dying)
            return e;
        if (clock_now_ms() + RETRY_MS >= deadline_ms)
            return err_known(reterr, HF_ECONN, HF_UNCHANGED);
        clock_sleep_until(clock_now_ms() + RETRY_MS);
    }
}

struct conn *topo_conn(struct topo *t, hf_bytes key)
{
    (void)key; /* one server has them all */
    return t->conn;
}

void topo_attach(struct topo *t, void *what)
{
    t->attached = what;
}

void *topo_attached(const struct topo *t)
{
    return t->attached;
}

const char *topo_shown(const struct topo *t)
{
    return t->shown;
}

hf_err topo_link(struct topo *t, hf_bytes key, struct link *l, int64_t deadline_ms,
                 hf_error *reterr)
{
    (void)key;
    hf_err e = prepare(t, deadline_ms, reterr);
    return e ? e : link_open(l, t->url, t->host, deadline_ms, reterr);
}

bool topo_is_local(const struct topo *t)
{
    return t->host->path != NULL;
}
