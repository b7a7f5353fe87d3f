/* SPDX-License-Identifier: MIT
 * link.c - a stream with a parser on it, logged in: what a connection is made of.
 */
#include "net/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/servererr.h"

int link_init(struct link *l)
{
    l->stream = NULL;
    l->stop = NULL;
    l->resp = resp_new();
    return l->resp ? 0 : -1;
}

void link_clear(struct link *l)
{
    link_close(l, false);
    l->resp = resp_free(l->resp);
}

void link_close(struct link *l, bool reset)
{
    if (l->stream)
        l->stream->ops->close(l->stream, reset);
    l->stream = NULL;
}

static hf_err over(int why, hf_error *reterr)
{
    if (why == EKEYREJECTED)
        return err_set(reterr, HF_EAUTH,
                       "the server does not accept our certificate: give ?cert= and ?key=");
    return err_set(reterr, HF_ECONN, "the server closed the connection: %s", strerror(why));
}

hf_err link_write(struct link *l, const char *bytes, size_t len, int64_t deadline_ms,
                  hf_error *reterr)
{
    size_t written = 0;
    hf_err e = HF_OK;
    while (written < len && !e) {
        struct iovec iov = { .iov_base = (char *)bytes + written, .iov_len = len - written };
        ssize_t n = l->stream->ops->writev(l->stream, &iov, 1);
        if (n < 0)
            e = over(errno, reterr);
        else if (n == 0 && clock_now_ms() >= deadline_ms)
            e = err_set(reterr, HF_ECONN, "the server takes no more bytes");
        else if (n == 0)
            stream_wait_writable(l->stream);
        else
            written += (size_t)n;
    }
    return e;
}

hf_err link_send(struct link *l, int argc, const hf_bytes *argv, int64_t deadline_ms,
                 hf_error *reterr)
{
    char *bytes;
    size_t len;
    hf_err e = resp_format(argc, argv, &bytes, &len);
    if (e)
        return err_set(reterr, e, "%s", hf_err_text(e));
    e = link_write(l, bytes, len, deadline_ms, reterr);
    resp_format_free(bytes);
    return e;
}

hf_err link_send_many(struct link *l, const struct link_command *cmd, size_t n, int64_t deadline_ms,
                      hf_error *reterr)
{
    AUTO(mem_freep) char *all = NULL;
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        char *bytes, *grown = NULL;
        size_t len;
        hf_err e = resp_format(cmd[i].argc, cmd[i].argv, &bytes, &len);
        if (e)
            return err_set(reterr, e, "%s", hf_err_text(e));
        grown = mem_resize(all, total + len);
        if (grown) {
            memcpy(grown + total, bytes, len);
            all = grown;
            total += len;
        }
        resp_format_free(bytes);
        if (!grown)
            return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    return link_write(l, all, total, deadline_ms, reterr);
}

hf_err link_receive(struct link *l, int64_t deadline_ms, struct reply **ret, hf_error *reterr)
{
    for (;;) {
        hf_err e = resp_next(l->resp, ret);
        if (!e && *ret)
            return HF_OK;
        if (e == HF_EPROTO)
            return err_set(reterr, e, "this is no Redis or Valkey server: %s", resp_error(l->resp));
        if (e)
            return err_set(reterr, e, "%s", hf_err_text(e));
        ssize_t n = l->stream->ops->read(l->stream, l->buffer, sizeof l->buffer);
        if (n < 0)
            return over(errno, reterr);
        if (n > 0) {
            e = resp_feed(l->resp, l->buffer, (size_t)n);
            if (e)
                return err_set(reterr, e, "the server's answer is too large");
        } else if (clock_now_ms() >= deadline_ms || (l->stop && atomic_load(l->stop))) {
            return err_set(reterr, HF_ECONN, "the server accepted the connection but does not answer");
        }
    }
}

hf_err link_exchange(struct link *l, int argc, const hf_bytes *argv, int64_t deadline_ms,
                     struct reply **ret, hf_error *reterr)
{
    hf_err e = link_send(l, argc, argv, deadline_ms, reterr);
    return e ? e : link_receive(l, deadline_ms, ret, reterr);
}

/* One command of the login whose reply must be no error. */
static hf_err login_step(struct link *l, int argc, const hf_bytes *argv, int64_t deadline_ms,
                         hf_error *reterr)
{
    struct reply *rp;
    hf_err e = link_exchange(l, argc, argv, deadline_ms, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR)
        e = server_refusal(rp, reterr);
    reply_free(rp);
    return e;
}

static hf_err login(struct link *l, const struct url *u, int64_t deadline_ms, hf_error *reterr)
{
    hf_err e = HF_OK;
    if (u->user && *u->user) /* one without a password logs in with an empty one */
        e = login_step(l, 3,
                       (hf_bytes[]){ hf_str("AUTH"), hf_str(u->user),
                                     hf_str(u->password ? u->password : "") },
                       deadline_ms, reterr);
    else if (u->password)
        e = login_step(l, 2, (hf_bytes[]){ hf_str("AUTH"), hf_str(u->password) }, deadline_ms,
                       reterr);
    if (!e && u->db > 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", u->db);
        e = login_step(l, 2, (hf_bytes[]){ hf_str("SELECT"), hf_str(db) }, deadline_ms, reterr);
    }
    return e;
}

hf_err link_open(struct link *l, const struct url *u, const struct url_host *host,
                 int64_t deadline_ms, hf_error *reterr)
{
    hf_err e = stream_open(u, host, deadline_ms, &l->stream, reterr);
    if (e)
        return e;
    resp_reset(l->resp);
    e = login(l, u, deadline_ms, reterr);
    if (e)
        link_close(l, false);
    return e;
}
