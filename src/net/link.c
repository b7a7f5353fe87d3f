/* SPDX-License-Identifier: MIT
 * link.c - a stream with a parser on it, logged in: what a connection is made of.
 */
#include "net/link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "net/command.h"
#include "net/servererr.h"

#define TLS_ALERT 0x15 /* no reply begins so */

int link_init(struct link *l)
{
    l->stream = NULL;
    l->kept = NULL;
    strcpy(l->shown, "the server"); /* until it is known */
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
    l->kept = reply_free(l->kept);
}

/* What is closed before its first word, or begins with an alert, may be a port for TLS. */
static const char *perhaps_tls(const struct link *l)
{
    return l->plain && !l->heard ? "; if it speaks TLS, use rediss://" : "";
}

static hf_err over(const struct link *l, int why, hf_error *reterr)
{
    if (why == EKEYREJECTED)
        return err_set(reterr, HF_EAUTH,
                       "the server does not accept our certificate: give ?cert= and ?key=");
    return err_set(reterr, HF_ECONN, "%s closed the connection: %s%s", l->shown, strerror(why),
                   perhaps_tls(l));
}

/* n bytes of two pieces have left: which of them is next. */
static size_t advance(struct iovec *iov, size_t first, size_t n)
{
    while (first < 2 && n >= iov[first].iov_len)
        n -= iov[first++].iov_len;
    if (first < 2)
        iov[first] = (struct iovec){ (char *)iov[first].iov_base + n, iov[first].iov_len - n };
    return first;
}

hf_err link_write(struct link *l, const char *bytes, size_t len, const struct limit *lim,
                  hf_error *reterr)
{
    struct iovec iov[] = { { l->ahead, strlen(l->ahead) }, { (char *)bytes, len } };
    size_t first = iov[0].iov_len ? 0 : 1, last = len ? 2 : 1;
    atomic_fetch_add(&l->skips, l->nahead); /* before the first reply to them can come */
    l->nahead = 0;
    while (first < last) {
        ssize_t n = l->stream->ops->writev(l->stream, iov + first, (int)(last - first));
        if (n < 0)
            return over(l, errno, reterr);
        first = advance(iov, first, (size_t)n);
        if (first < last && limit_over(lim))
            return err_set(reterr, HF_ECONN, "%s takes no more bytes", l->shown);
        if (n == 0)
            stream_wait_writable(l->stream);
    }
    l->ahead[0] = '\0';
    return HF_OK;
}

hf_err link_flush(struct link *l, const struct limit *lim, hf_error *reterr)
{
    return link_write(l, "", 0, lim, reterr);
}

static hf_err unsendable(hf_err e, hf_error *reterr)
{
    return err_set(reterr, e, "%s", hf_err_text(e));
}

hf_err link_send(struct link *l, int argc, const hf_bytes *argv, const struct limit *lim,
                 hf_error *reterr)
{
    struct command cmd;
    hf_err e = command_make(&cmd, argc, argv);
    if (e)
        return unsendable(e, reterr);
    e = link_write(l, cmd.bytes + cmd.begin, cmd.len, lim, reterr);
    command_free(&cmd);
    return e;
}

struct piece {
    char  *bytes;
    size_t len;
};

static hf_err append(struct piece *all, const struct link_command *cmd)
{
    struct command one;
    hf_err e = command_make(&one, cmd->argc, cmd->argv);
    if (e)
        return e;
    char *grown = mem_resize(all->bytes, all->len + one.len);
    if (grown) {
        memcpy(grown + all->len, one.bytes + one.begin, one.len);
        *all = (struct piece){ grown, all->len + one.len };
    }
    command_free(&one);
    return grown ? HF_OK : HF_ENOMEM;
}

hf_err link_send_many(struct link *l, const struct link_command *cmd, size_t n,
                      const struct limit *lim, hf_error *reterr)
{
    struct piece all = { NULL, 0 };
    hf_err e = HF_OK;
    for (size_t i = 0; i < n && !e; i++)
        e = append(&all, &cmd[i]);
    e = e ? unsendable(e, reterr) : link_write(l, all.bytes, all.len, lim, reterr);
    mem_free(all.bytes);
    return e;
}

hf_err link_next(struct link *l, struct reply **ret)
{
    hf_err e = resp_next(l->resp, ret);
    for (; !e && *ret && atomic_load(&l->skips); atomic_fetch_sub(&l->skips, 1)) {
        if (atomic_load(&l->skips) == 1 && l->keeps)
            l->kept = *ret;
        else
            reply_free(*ret);
        *ret = NULL;
        e = resp_next(l->resp, ret);
    }
    return e;
}

/* The reply that is here; *ret NULL: it is not whole yet. */
static hf_err take(struct link *l, struct reply **ret, hf_error *reterr)
{
    hf_err e = link_next(l, ret);
    if (e == HF_EPROTO)
        return err_set(reterr, e, "%s is not a Redis or Valkey server: %s%s", l->shown,
                       resp_error(l->resp), perhaps_tls(l));
    return e ? err_set(reterr, e, "%s", hf_err_text(e)) : HF_OK;
}

/* Wait a tick for more of it. */
static hf_err read_on(struct link *l, hf_error *reterr)
{
    ssize_t n = l->stream->ops->read(l->stream, l->buffer, sizeof l->buffer);
    if (n < 0)
        return over(l, errno, reterr);
    l->heard |= n > 0 && l->buffer[0] != TLS_ALERT;
    hf_err e = n > 0 ? resp_feed(l->resp, l->buffer, (size_t)n) : HF_OK;
    if (e == HF_EPROTO)
        return err_set(reterr, e, "the server's answer is too large");
    return e ? err_set(reterr, e, "%s", hf_err_text(e)) : HF_OK;
}

hf_err link_receive(struct link *l, const struct limit *lim, struct reply **ret, hf_error *reterr)
{
    hf_err e = take(l, ret, reterr);
    while (!e && !*ret) {
        e = read_on(l, reterr);
        if (!e)
            e = take(l, ret, reterr);
        if (!e && !*ret && limit_over(lim))
            e = err_set(reterr, HF_ECONN, "%s accepted the connection but does not answer",
                        l->shown);
    }
    return e;
}

hf_err link_exchange(struct link *l, int argc, const hf_bytes *argv, const struct limit *lim,
                     struct reply **ret, hf_error *reterr)
{
    hf_err e = link_send(l, argc, argv, lim, reterr);
    return e ? e : link_receive(l, lim, ret, reterr);
}

/* One command of the login whose reply must be no error. */
static hf_err login_step(struct link *l, int argc, const hf_bytes *argv, const struct limit *lim,
                         hf_error *reterr)
{
    struct reply *rp;
    hf_err e = link_exchange(l, argc, argv, lim, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR)
        e = server_refusal(rp, reterr);
    reply_free(rp);
    return e;
}

static hf_err login(struct link *l, const struct url *u, const struct limit *lim, hf_error *reterr)
{
    hf_err e = HF_OK;
    if (u->user && *u->user) /* one without a password logs in with an empty one */
        e = login_step(l, 3,
                       (hf_bytes[]){ hf_str("AUTH"), hf_str(u->user),
                                     hf_str(u->password ? u->password : "") },
                       lim, reterr);
    else if (u->password)
        e = login_step(l, 2, (hf_bytes[]){ hf_str("AUTH"), hf_str(u->password) }, lim, reterr);
    if (!e && u->db > 0) {
        char db[16];
        snprintf(db, sizeof db, "%d", u->db);
        e = login_step(l, 2, (hf_bytes[]){ hf_str("SELECT"), hf_str(db) }, lim, reterr);
    }
    return e;
}

static bool go_ahead(struct link *l, const char *bytes)
{
    size_t used = strlen(l->ahead), len = strlen(bytes);
    if (used + len >= sizeof l->ahead)
        return false;
    memcpy(l->ahead + used, bytes, len + 1);
    l->nahead++;
    return true;
}

bool link_ask_ahead(struct link *l, const char *bytes)
{
    return l->keeps = go_ahead(l, bytes);
}

struct reply *link_answer(struct link *l)
{
    struct reply *rp = l->kept;
    l->kept = NULL;
    l->keeps = false;
    return rp;
}

static void set_naming(struct link *l, const char *name)
{
    char bytes[192];
    snprintf(bytes, sizeof bytes, "*3\r\n$6\r\nCLIENT\r\n$7\r\nSETNAME\r\n$%zu\r\n%s\r\n",
             strlen(name), name);
    if (*name)
        (void)go_ahead(l, bytes);
}

hf_err link_open(struct link *l, const struct url *u, const struct url_host *host,
                 const struct limit *lim, hf_error *reterr)
{
    hf_err e = stream_open(u, host, lim, &l->stream, reterr);
    if (e)
        return e;
    resp_reset(l->resp);
    stream_address(host, l->shown, sizeof l->shown);
    l->plain = !u->tls && !host->path;
    l->heard = l->keeps = false;
    l->nahead = 0;
    atomic_store(&l->skips, 0);
    l->ahead[0] = '\0';
    e = login(l, u, lim, reterr);
    if (e)
        link_close(l, false);
    else
        set_naming(l, u->client_name);
    return e;
}
