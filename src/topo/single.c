/* SPDX-License-Identifier: MIT
 * single.c - one server, given by its address or embedded.
 */
#include <stdio.h>

#include "base/mem.h"
#include "embedded/embedded.h"
#include "topo/topo_impl.h"

struct single {
    struct topo            t;
    struct url_host        embedded; /* the embedded server's socket */
    const struct url_host *host;
    char                  *dir;      /* its folder; NULL: an ordinary server */
    atomic_bool            prepared; /* it ran when we last looked */
};

static hf_err locate(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr)
{
    (void)key;
    struct single *s = (struct single *)t;
    hf_err e = s->dir ? embedded_ensure(s->dir, lim, t->log, reterr) : HF_OK;
    s->prepared = e == HF_OK;
    *ret = s->host;
    return e;
}

/* The embedded server may have been dying when we found it: then it is started anew. */
static bool try_again(struct topo *t, int tries)
{
    struct single *s = (struct single *)t;
    return s->dir && s->prepared && tries < 5;
}

static void clear(struct topo *t)
{
    struct single *s = (struct single *)t;
    mem_free(s->embedded.path);
    mem_free(s->dir);
}

/* The grace: a stall of the server or of the network of that length must not cost a job its
 * lock. */
static const struct topo_ops local_ops = { .locate = locate, .try_again = try_again,
                                           .clear = clear, .grace_ms = 3000, .outage_ms = 30000 };
static const struct topo_ops network_ops = { .locate = locate, .try_again = try_again,
                                             .clear = clear, .grace_ms = 5000,
                                             .outage_ms = 30000 };

static hf_err set_address(struct single *s, const struct url *u, hf_error *reterr)
{
    if (u->topology == URL_SINGLE) {
        const struct url_host *h = s->host = &u->hosts[0];
        if (h->path)
            snprintf(s->t.shown, sizeof s->t.shown, "unix://%s", h->path);
        else
            snprintf(s->t.shown, sizeof s->t.shown, "%s://%s:%d", u->tls ? "rediss" : "redis",
                     h->host, h->port);
        return HF_OK;
    }
    hf_err e = embedded_dir(u->dir, &s->dir, reterr);
    if (!e)
        e = embedded_socket(s->dir, &s->embedded.path, reterr);
    if (!e)
        snprintf(s->t.shown, sizeof s->t.shown, "embedded:%s", s->dir);
    s->host = &s->embedded;
    return e;
}

hf_err single_new(struct url *u, struct topo **ret, hf_error *reterr)
{
    if (u->replicas == URL_MAJORITY)
        return err_set(reterr, HF_ECONFIG,
                       "replicas=majority needs Sentinels, who know how many replicas there should "
                       "be: give a number");
    struct single *s = mem_zalloc(sizeof *s);
    if (!s)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    hf_err e = set_address(s, u, reterr);
    if (e) {
        clear(&s->t);
        mem_free(s);
        return e;
    }
    s->t.ops = s->host->path ? &local_ops : &network_ops;
    *ret = &s->t;
    return HF_OK;
}
