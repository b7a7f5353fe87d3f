/* SPDX-License-Identifier: MIT
 * link.h - a stream with a parser on it, logged in: what a connection is made of.
 *
 * Used by one thread at a time until it is handed to something that shares it (conn.c).
 */
#ifndef NET_LINK_H
#define NET_LINK_H

#include <stdatomic.h>
#include <stdbool.h>

#include "net/resp.h"
#include "net/stream.h"

struct link {
    struct stream *stream; /* NULL: not open */
    struct resp   *resp;
    char           buffer[16 * 1024];
    char           shown[160]; /* where it leads */
    bool           plain;      /* no TLS, over a network */
    bool           heard;      /* something has come from there */
    char           ahead[256]; /* commands that leave in front of the next one; "": none */
    unsigned       nahead;     /* how many these are */
    atomic_uint    skips;      /* replies to such that have not come yet; nobody waits for them. One
                                  thread may write while another one reads */
    bool           keeps;      /* the last of these replies is wanted */
    struct reply  *kept;       /* here it is; NULL: it has not come yet */
};

int link_init(struct link *l); /* 0, or -1: no memory */
void link_clear(struct link *l); /* closes it; in a forked child it touches no socket */

/* Connect and log in: AUTH, SELECT. As stream_open(), and HF_EAUTH, HF_ESERVER, HF_EPROTO. The
 * connection's name goes with what is sent first: it costs no round trip, and it does not matter
 * whether the server allows it. */
hf_err link_open(struct link *l, const struct url *u, const struct url_host *host,
                 const struct limit *lim, hf_error *reterr);
void link_close(struct link *l, bool reset);

/* One command and its reply, which may be an error of the server; nothing else is under way. */
hf_err link_exchange(struct link *l, int argc, const hf_bytes *argv, const struct limit *lim,
                     struct reply **ret, hf_error *reterr);
/* Its two halves, for who reads what nobody asked for: write all of it; wait for what comes
 * next. */
hf_err link_send(struct link *l, int argc, const hf_bytes *argv, const struct limit *lim,
                 hf_error *reterr);
/* Several commands in one piece; each gets its reply. */
struct link_command {
    int             argc;
    const hf_bytes *argv;
};
hf_err link_send_many(struct link *l, const struct link_command *cmd, size_t n,
                      const struct limit *lim, hf_error *reterr);
/* Bytes that are commands already (command.h). */
hf_err link_write(struct link *l, const char *bytes, size_t len, const struct limit *lim,
                  hf_error *reterr);
/* A question that leaves in front of the next command, together with it, and costs no round trip.
 * link_answer(): what came, after the reply to that command; NULL: nothing. reply_free(). False:
 * there is no room for it. */
bool link_ask_ahead(struct link *l, const char *bytes);
struct reply *link_answer(struct link *l);
/* What has not left yet, for who goes on without this file. */
hf_err link_flush(struct link *l, const struct limit *lim, hf_error *reterr);
/* resp_next(), for who feeds the parser himself. */
hf_err link_next(struct link *l, struct reply **ret);
/* HF_ECONN: the connection has ended, or no whole reply came before the limit was over. */
hf_err link_receive(struct link *l, const struct limit *lim, struct reply **ret, hf_error *reterr);

#endif
