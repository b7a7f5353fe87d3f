/* SPDX-License-Identifier: MIT
 * conn.h - one connection to one server, shared by all threads and pipelined by itself.
 */
#ifndef NET_CONN_H
#define NET_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/limit.h"
#include "base/log.h"
#include "net/command.h"
#include "net/request.h"
#include "net/resp.h"
#include "net/url.h"

struct conn;
struct limit;
struct link;

struct conn_hooks {
    /* Before each attempt to connect: for a server that may have to be started or found first.
     * It may set *ret, which then must stay as long as the connection. */
    hf_err (*prepare)(void *arg, const struct limit *lim, const struct url_host **ret,
                      hf_error *reterr);
    /* On each fresh connection, after login and before anybody's requests; uses
     * link_exchange(). A failure closes the connection again. */
    hf_err (*greet)(void *arg, struct link *l, const struct limit *lim, hf_error *reterr);
    void *arg;
    const atomic_int *stop; /* when not NULL: an attempt to connect ends soon after *stop is
                               not 0 */
};

/* Who has to have what was written before a call is done. */
struct conn_ack {
    const atomic_int *replicas; /* how many are asked for; NULL: nobody is asked */
    bool              fsync;    /* and have it on disk, as the server itself must */
};
/* Nobody waits longer for them, or than half of what it has. A disk takes longer: with appendfsync
 * everysec its turn comes once in a second, and a write that finds it busy waits for the next. */
#define CONN_ACK_MS      1000
#define CONN_ACK_DISK_MS 2500

/* The URL, host and log must outlive the connection. Connects at the first call. A connection on
 * which a reply is overdue by silence_ms is given up (RST). NULL: no memory. */
struct conn *conn_new(const struct url *u, const struct url_host *host, int64_t connect_timeout_ms,
                      int64_t silence_ms, const struct conn_hooks *hooks, const struct log *log);
struct conn *conn_free(struct conn *cn); /* nobody may be in a call */
struct conn *conn_forget(struct conn *cn); /* in a forked child: frees memory, touches no socket */

/* Before the first call: each batch of requests is followed by one WAIT, and calls are done when
 * its answer is here. What has to be quick must not share a connection with it. */
void conn_acknowledge(struct conn *cn, const struct conn_ack *ack);

/* Connect now, one attempt. HF_OK also when it is connected already. HF_EBUSY: the server is there
 * but loads its data or is blocked by a script. */
hf_err conn_connect(struct conn *cn, const struct limit *lim, hf_error *reterr);

/* Submit a request: r as its owner filled it in, its command, and who waits for it (NULL: nobody;
 * it is then an orphan, on the heap). Takes over the bytes of cmd. Never waits. It is done some
 * day; at once if it cannot be: HF_ENOMEM, HF_EINVAL, or HF_ECONN with only_up. Any thread.
 *
 *   HF_OK       reply, which may be an error of the server
 *   HF_ECONN    it never left; also HF_EAUTH, HF_ECONFIG, HF_ESERVER ...: no login
 *   HF_EUNSURE  it left, and no reply came
 *   HF_ECANCELED, HF_ECONN  it was withdrawn before it left                                   */
void conn_submit(struct conn *cn, struct request *r, struct command *cmd, struct task *t);

/* Give it up: it is done when this returns. If it left, its result is HF_EUNSURE and its reply is
 * thrown away when it comes; else unsent (HF_ECONN or HF_ECANCELED). */
void conn_withdraw(struct request *r, hf_err unsent);

/* It is done: its task does not wait for it any more. Returns its result, in words. */
hf_err conn_take(struct request *r, hf_error *reterr);

/* ---- blocking -------------------------------------------------------------------------------- */

/* One command and what became of it. */
struct exchange {
    int64_t           deadline_ms;
    const atomic_int *stop;    /* when not NULL: given up soon after *stop is not 0 */
    bool              only_up, impatient; /* as in struct request */
    struct reply     *reply;   /* out: to be freed; may be an error of the server */
    int64_t           sent_ms; /* out */
};

/* Submit one command and wait for its reply; results as above. */
hf_err conn_call(struct conn *cn, int argc, const hf_bytes *argv, struct exchange *call,
                 hf_error *reterr);

/* Close the connection; the next call makes a new one. For a server that turned out to be the
 * wrong one. */
void conn_drop(struct conn *cn, const char *why);

/* What its users know about the server behind it; 0 again on each new connection. */
_Atomic uint64_t *conn_notes(struct conn *cn);

/* Which connection this is, of all that this process ever made; 0: there is none now. */
unsigned conn_epoch(struct conn *cn);

#endif
