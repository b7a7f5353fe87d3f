/* SPDX-License-Identifier: MIT
 * by_hand.c - the embedded server by hand: start, stop, status.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "net/probe.h"
#include "embedded/ensure.h"
#include "embedded/folder.h"
#include "embedded/launch.h"

#define CALL_MS 10000 /* each call at the most */
#define LOOK_MS 5

struct server_place {
    char        *dir, *socket;
    pid_t        elsewhere; /* it runs where its folder is hidden from us: this process */
    int          there;  /* the folder exists */
    int          cancel; /* the caller's, to be put back */
    struct limit lim;
};

/* Where it is, from here on without cancellation points; close_place() whatever the result. */
static hf_err open_place(struct server_place *p, const char *dir, hf_error *reterr)
{
    *p = (struct server_place){ .lim.at_ms = clock_now_ms() + CALL_MS };
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &p->cancel);
    hf_err e = embedded_dir(dir, &p->dir, reterr);
    if (!e)
        e = folder_check(p->dir, &p->there, reterr);
    if (!e)
        e = embedded_find(p->dir, &p->socket, &p->elsewhere, reterr);
    return e;
}

static void close_place(struct server_place *p)
{
    mem_free(p->dir);
    mem_free(p->socket);
    pthread_setcancelstate(p->cancel, NULL);
}

/* ---- status ---- */

/* A field of INFO as text; 0 when there is none. */
static int field(const char *info, const char *name, char *buf, size_t size)
{
    size_t len = strlen(name);
    for (const char *at = info; (at = strstr(at, name)); at += len) {
        if ((at == info || at[-1] == '\n') && at[len] == ':') {
            at += len + 1;
            snprintf(buf, size, "%.*s", (int)strcspn(at, "\r\n"), at);
            return 1;
        }
    }
    return 0;
}

static int64_t number(const char *info, const char *name, int64_t otherwise)
{
    char text[32];
    return field(info, name, text, sizeof text) ? strtoll(text, NULL, 10) : otherwise;
}

static void read_info(const char *info, hf_server_info *ret)
{
    char version[32];

    if (ret->pid == 0)
        ret->pid = number(info, "process_id", 0);
    ret->uptime_s = number(info, "uptime_in_seconds", 0);
    /* Valkey names a redis_version as well, for old clients. */
    if (field(info, "valkey_version", version, sizeof version))
        snprintf(ret->version, sizeof ret->version, "valkey %s", version);
    else if (field(info, "redis_version", version, sizeof version))
        snprintf(ret->version, sizeof ret->version, "redis %s", version);
}

static hf_err look_once(const struct server_place *p, hf_server_info *ret, hf_error *reterr)
{
    int fd = -1;
    struct reply *rp = NULL;

    ret->pid = 0;
    hf_err e = probe_connect(p->socket, &fd, &ret->pid, reterr);
    if (e || fd < 0)
        return e;
    e = probe_ask(fd, "INFO server", &p->lim, &rp, reterr);
    forkguard_close(fd);
    if (e) {
        err_prefix(reterr, "process %lld", (long long)ret->pid);
        return e;
    }
    ret->running = 1;
    if (rp->type == REPLY_BULK)
        read_info(rp->str, ret);
    reply_free(rp);
    return HF_OK;
}

/* A server that is about to end closes the connection: then look again. */
static hf_err read_status(const struct server_place *p, hf_server_info *ret, hf_error *reterr)
{
    if (p->elsewhere)
        claim_path(p->elsewhere, "", ret->dir);
    else
        snprintf(ret->dir, sizeof ret->dir, "%s", p->dir);
    snprintf(ret->socket, sizeof ret->socket, "%s", p->socket);
    if (!p->there && !p->elsewhere)
        return HF_OK;
    for (;;) {
        hf_err e = look_once(p, ret, reterr);
        if (e != HF_ECONN || limit_over(&p->lim))
            return e;
        limit_sleep(&p->lim, LOOK_MS);
    }
}

static hf_err give(const hf_server_info *found, hf_server_info *ret)
{
    size_t size = ret->size, known = sizeof *ret;
    memcpy(ret, found, size < known ? size : known);
    ret->size = size;
    return HF_OK;
}

static hf_err bad_size(hf_error *reterr)
{
    return err_set(reterr, HF_EINVAL,
                   "set the size field of hf_server_info to sizeof(hf_server_info) first");
}

hf_err hf_server_status(const char *dir, hf_server_info *ret, hf_error *reterr)
{
    struct server_place p;
    hf_server_info found = { .size = sizeof found };

    if (!ret || ret->size < sizeof ret->size)
        return bad_size(reterr);
    hf_err e = open_place(&p, dir, reterr);
    if (!e)
        e = read_status(&p, &found, reterr);
    close_place(&p);
    return e ? e : give(&found, ret);
}

/* ---- start ---- */

hf_err hf_server_start(const char *dir, hf_server_info *ret, hf_error *reterr)
{
    struct server_place p;
    hf_server_info found = { .size = sizeof found };

    if (ret && ret->size < sizeof ret->size)
        return bad_size(reterr);
    hf_err e = open_place(&p, dir, reterr);
    char *socket = NULL;
    if (!e)
        e = embedded_ensure(p.dir, &p.lim, NULL, &socket, reterr);
    mem_free(socket);
    mem_free(p.socket);
    p.socket = NULL;
    if (!e)
        e = embedded_find(p.dir, &p.socket, &p.elsewhere, reterr);
    p.there = 1;
    if (!e)
        e = read_status(&p, &found, reterr);
    if (!e && !found.running)
        e = err_set(reterr, HF_ECONN, "the embedded server ended as soon as it ran: see "
                                      "server.log in its folder");
    close_place(&p);
    return e || !ret ? e : give(&found, ret);
}

/* ---- stop ---- */

/* Ask it to end. *ret_gone is 1 when there was nobody to ask. */
static hf_err ask_to_end(const struct server_place *p, int *ret_gone, int64_t *ret_pid,
                         hf_error *reterr)
{
    int fd = -1;
    struct reply *rp = NULL;

    hf_err e = probe_connect(p->socket, &fd, ret_pid, reterr);
    *ret_gone = !e && fd < 0;
    if (e || fd < 0)
        return e == HF_ECONN ? HF_OK : e; /* too many connections: we come again */
    e = probe_ask(fd, "SHUTDOWN", &p->lim, &rp, reterr);
    forkguard_close(fd);
    if (e) /* it has closed the connection, as it should; else waiting will tell */
        return e == HF_ECONN ? HF_OK : e;
    char q[200];
    e = err_set(reterr, HF_ESERVER, "the embedded server (process %lld) refuses to stop: %s",
                (long long)*ret_pid, err_quote(q, sizeof q, rp->str ? rp->str : "", rp->len));
    reply_free(rp);
    return e;
}

/* 1: it is gone. One that runs elsewhere has another folder's lock. */
static hf_err is_gone(const struct server_place *p, int *ret, hf_error *reterr)
{
    int life = -1;
    if (p->elsewhere) {
        *ret = embedded_holder(p->dir) != p->elsewhere;
        return HF_OK;
    }
    hf_err e = folder_try_life(p->dir, &life, reterr);
    *ret = life >= 0;
    if (life >= 0)
        forkguard_close(life);
    return e;
}

/* Gone is gone: nobody listens, and nobody has the folder's lock. Holds: DIR/lock. */
static hf_err end_server(const struct server_place *p, hf_error *reterr)
{
    int64_t pid = 0;

    for (;;) {
        int unheard = 0, gone = 0;
        hf_err e = ask_to_end(p, &unheard, &pid, reterr);
        if (!e && unheard)
            e = is_gone(p, &gone, reterr);
        if (e || gone)
            return e;
        if (limit_over(&p->lim))
            return err_set(reterr, HF_ECONN,
                           "the embedded server (process %lld) was told to stop and still runs: "
                           "kill it, no lock is lost by that",
                           (long long)(pid ? pid : launch_pid_in(p->dir)));
        limit_sleep(&p->lim, LOOK_MS);
    }
}

static hf_err stop_under_lock(const struct server_place *p, hf_error *reterr)
{
    int fd = -1, got;
    hf_err e = p->there ? HF_OK : folder_make(p->dir, reterr); /* for its lock */
    if (!e)
        e = folder_open_lock(p->dir, &fd, reterr);
    if (e)
        return e;
    while ((got = folder_try_lock(fd)) == 0 && !limit_over(&p->lim))
        limit_sleep(&p->lim, LOOK_MS);
    if (got == 1)
        e = end_server(p, reterr);
    else if (got == 0)
        e = err_set(reterr, HF_ECONN, "another process is starting or stopping the embedded "
                                      "server and has not finished: try again");
    else
        e = err_set(reterr, HF_ESYS, "the embedded server's folder cannot be locked: %s",
                    strerror(errno));
    folder_unlock(fd);
    return e;
}

hf_err hf_server_stop(const char *dir, hf_error *reterr)
{
    struct server_place p;
    hf_err e = open_place(&p, dir, reterr);
    if (!e && (p.there || p.elsewhere))
        e = stop_under_lock(&p, reterr);
    close_place(&p);
    return e;
}
