/* SPDX-License-Identifier: MIT
 * conn.h - one connection to one server, shared by all threads and pipelined by itself.
 */
#ifndef NET_CONN_H
#define NET_CONN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/log.h"
#include "net/resp.h"
#include "net/url.h"

struct conn;
struct link;

struct conn_hooks {
    /* Before each attempt to connect: for a server that may have to be started or found first.
     * It may set *ret, which then must stay as long as the connection. */
    hf_err (*prepare)(void *arg, int64_t deadline_ms, const struct url_host **ret,
                      hf_error *reterr);
    /* On each fresh connection, after login and before anybody's requests; uses
     * link_exchange(). A failure closes the connection again. */
    hf_err (*greet)(void *arg, struct link *l, int64_t deadline_ms, hf_error *reterr);
    void *arg;
    const atomic_int *stop; /* when not NULL: an attempt to connect ends soon after *stop is not 0 */
};

/* One request and what became of it. */
struct call {
    int64_t           deadline_ms;
    const atomic_int *stop;  /* when not NULL: give up soon after *stop is not 0 */
    bool              urgent; /* no reply by the deadline: close the connection, a fresh one may
                                 do better */
    bool              impatient; /* one attempt to connect, not as many as there is time for */
    bool              asking; /* behind an ASKING: a cluster's slot is being moved to this server */
    unsigned          epoch;  /* in: only on this connection (conn_epoch()), 0: on any; out: on which
                                 it was answered */
    struct reply     *reply; /* out: to be freed; may be an error of the server */
    int64_t           sent_ms; /* out: just before the first byte left */
    int               acked;   /* out: how many replicas have it; with conn_acknowledge() */
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
hf_err conn_connect(struct conn *cn, int64_t deadline_ms, hf_error *reterr);

/* Send one command and wait for its reply. Any thread. A break before the request left is mended
 * and the request sent on the new connection, until the deadline.
 *
 *   HF_OK       call->reply is set, call->sent_ms tells when it left
 *   HF_ECONN    it never left; also HF_EAUTH, HF_ECONFIG, HF_ESERVER ...: no login
 *   HF_EUNSURE  it left, and no reply came
 *   HF_ECANCELED  *stop, and it never left
 *   HF_ENOMEM, HF_EPROTO (never left)                                                       */
hf_err conn_call(struct conn *cn, int argc, const hf_bytes *argv, struct call *call,
                 hf_error *reterr);

/* ---- the same question to several servers at once ---- */

#define CONN_ASKS_MAX 64

struct request;

/* For a request that must not be forgotten when its connection breaks, though nobody may wait for
 * it any more. */
struct conn_keepsake {
    /* Called once, before there is another connection. Not settled: it was executed, or may still
     * be, and no answer will come; or nobody was there to hear that it was refused. Thread: any.
     * The connection is locked: it must not be used. */
    void (*over)(struct conn_keepsake *k, bool settled);
};

struct conn_ask {
    struct conn    *conn;
    struct request *request; /* under way; NULL: none */
    bool            leads;   /* conn_gather()'s */
    /* out, once request is NULL again */
    hf_err          result;  /* HF_EUNSURE: it left, and no reply came; HF_ECONN: it never left */
    struct reply   *reply;   /* yours to free; may be an error of the server */
};

/* Descriptors that wake a thread in conn_gather() when another one reads its reply. They outlive
 * all calls that use them. */
#define CONN_BELLS_MAX 256
struct conn_bells {
    pthread_mutex_t mu;
    size_t          made, idle;
    int             fd[CONN_BELLS_MAX];
};
void conn_bells_init(struct conn_bells *bells);
void conn_bells_clear(struct conn_bells *bells);

/* Send one command now. Never waits and never connects: HF_ECONN when there is no connection.
 * HF_ENOMEM, HF_EINVAL. The keepsake, which may be NULL, is told in any case. */
hf_err conn_begin(struct conn *cn, int argc, const hf_bytes *argv, struct conn_keepsake *keepsake,
                  struct request **ret);

/* Wait for the replies of all that is under way. got(arg, i) is called for each that is done, by
 * reply or by failure, nothing locked; it may begin another request in ask[i], and answers true
 * when it has heard enough. Returns whether it has; false: all are done, or the deadline, or *stop.
 * What is still under way is then to be abandoned, or waited for again. */
bool conn_gather(struct conn_ask *ask, size_t n, struct conn_bells *bells, int64_t deadline_ms,
                 const atomic_int *stop, bool (*got)(void *arg, size_t i), void *arg);

/* Wait no more for a request: its reply is thrown away when it comes. */
void conn_abandon(struct conn *cn, struct request *r);

/* Close the connection; the next call makes a new one. For a server that turned out to be the
 * wrong one. */
void conn_drop(struct conn *cn, const char *why);

/* What its users know about the server behind it; 0 again on each new connection. */
_Atomic uint64_t *conn_notes(struct conn *cn);

/* Which connection this is, of all that this process ever made; 0: there is none now. */
unsigned conn_epoch(struct conn *cn);

#endif
