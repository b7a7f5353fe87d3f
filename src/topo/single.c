/* SPDX-License-Identifier: MIT
 * single.c - one server, given by its address or embedded.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/mutex.h"
#include "embedded/ensure.h"
#include "topo/topo_impl.h"

/* A socket of the embedded server; never many, and never forgotten: connections point to them. */
struct socket_address {
    struct socket_address   *next;
    struct url_host host;
};

struct single {
    struct topo            t;
    const struct url_host *host;     /* of an ordinary server */
    char                  *dir;      /* the folder of an embedded one; NULL: an ordinary server */
    struct mutex           mu;       /* guards the next */
    struct socket_address          *places;
    atomic_bool            prepared; /* it ran when we last looked */
};

/* The socket with this path, which becomes ours. NULL: no memory. */
static const struct url_host *place_locked(struct single *s, char *path)
{
    mutex_assert_held(&s->mu);
    for (struct socket_address *p = s->places; p; p = p->next) {
        if (strcmp(p->host.path, path) == 0) {
            mem_free(path);
            return &p->host;
        }
    }
    struct socket_address *p = mem_zalloc(sizeof *p);
    if (!p) {
        mem_free(path);
        return NULL;
    }
    p->host.path = path;
    p->next = s->places;
    s->places = p;
    return &p->host;
}

static hf_err locate_embedded(struct single *s, const struct limit *lim,
                              const struct url_host **ret, hf_error *reterr)
{
    char *path;
    hf_err e = embedded_ensure(s->dir, lim, s->t.log, &path, reterr);
    if (e)
        return e;
    mutex_lock(&s->mu);
    *ret = place_locked(s, path);
    mutex_unlock(&s->mu);
    return *ret ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static hf_err locate(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr)
{
    (void)key;
    struct single *s = (struct single *)t;
    *ret = s->host;
    hf_err e = s->dir ? locate_embedded(s, lim, ret, reterr) : HF_OK;
    s->prepared = e == HF_OK;
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
    while (s->places) {
        struct socket_address *p = s->places;
        s->places = p->next;
        mem_free(p->host.path);
        mem_free(p);
    }
    mem_free(s->dir);
    mutex_destroy(&s->mu);
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
    AUTO(mem_freep) char *socket = NULL;
    if (!e)
        e = embedded_socket(s->dir, &socket, reterr); /* a path that is too long is said now */
    if (!e)
        snprintf(s->t.shown, sizeof s->t.shown, "embedded:%s", s->dir);
    return e;
}

hf_err single_new(struct url *u, struct topo **ret, hf_error *reterr)
{
    if (u->replicas == URL_MAJORITY)
        return err_set(reterr, HF_ECONFIG,
                       "replicas=majority needs Sentinels, which know how many replicas there "
                       "should be: give a number");
    struct single *s = mem_zalloc(sizeof *s);
    if (!s)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    mutex_init(&s->mu, MUTEX_SINGLE);
    hf_err e = set_address(s, u, reterr);
    if (e) {
        clear(&s->t);
        mem_free(s);
        return e;
    }
    s->t.ops = s->dir || s->host->path ? &local_ops : &network_ops;
    *ret = &s->t;
    return HF_OK;
}
