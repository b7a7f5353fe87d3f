/* SPDX-License-Identifier: MIT
 * stream.h - a connected byte stream: tcp, unix, or tls on top of tcp.
 *
 * One thread may read while another writes; two readers or two writers at once may not.
 */
#ifndef NET_STREAM_H
#define NET_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "base/err.h"
#include "base/limit.h"
#include "net/url.h"

/* How long a read sleeps before it returns to let its caller look at its deadlines. */
#define STREAM_TICK_MS LIMIT_TICK_MS

/* TCP_USER_TIMEOUT: about how long TCP goes on sending what the other side has not acknowledged.
 * It is looked at when a retransmission is due, so the end can come somewhat later; and it says
 * nothing about bytes that a stopped server's kernel has acknowledged and keeps. */
#define STREAM_USER_TIMEOUT_MS 30000

struct stream;

struct stream_ops {
    /* Up to n bytes; waits about STREAM_TICK_MS for the first one. > 0 bytes read, 0 none yet,
     * -1 the stream is over (errno; ECONNRESET also for a clean end; EKEYREJECTED: TLS, the server
     * does not accept our certificate, or wants one). */
    ssize_t (*read)(struct stream *s, void *buf, size_t n);
    /* The same, and never waits: 0 at once when nothing is there. With TLS, bytes that are here may
     * wait inside OpenSSL, where poll(2) does not see them: read until it says 0 before polling. */
    ssize_t (*read_now)(struct stream *s, void *buf, size_t n);
    /* Never waits. >= 0 bytes taken (0: the socket is full), -1 the stream is broken. */
    ssize_t (*writev)(struct stream *s, const struct iovec *iov, int n);
    /* close(2) only: no shutdown, no TLS farewell. With reset, unsent and unread bytes are
     * thrown away and the peer sees RST (SO_LINGER 0). Frees s. In a forked child the descriptor
     * is closed already, and only the memory is freed. */
    void (*close)(struct stream *s, int reset);
};

struct stream {
    const struct stream_ops *ops;
    int                      fd;         /* registered with forkguard while open; -1: there is none,
                                            whoever made it simulates one */
    unsigned                 generation; /* of forkguard, when it was made */
};

/* Connect to one address of the URL, with TLS if the URL asks for it (certificate and name
 * verified), before the limit. Close-on-exec, no SIGPIPE, TCP_NODELAY, keep-alive and
 * TCP_USER_TIMEOUT set.
 *
 *   HF_ECONN   refused, unreachable, unknown host, timed out: *reterr says which, with the address
 *   HF_ECONFIG a certificate file cannot be used; the path of a unix socket is too long
 *   HF_EAUTH   the server's certificate is not to be trusted
 *   HF_ENOMEM, HF_ESYS                                                                       */
hf_err stream_open(const struct url *u, const struct url_host *host, const struct limit *lim,
                   struct stream **ret, hf_error *reterr);

/* For tests: from now on stream_open() is this one; NULL: the system's sockets again. Its streams
 * have their own ops, and no descriptor. Before anything else of the library is used. */
typedef hf_err (*stream_opener)(const struct url *u, const struct url_host *host,
                                const struct limit *lim, struct stream **ret, hf_error *reterr);
void stream_set_opener(stream_opener opener);
/* The same for who waits for a stream that has no descriptor to poll: until it can be read, until
 * somebody wakes it on `on` (seam.h), or until then. Whether it can be read. NULL: any stream of
 * the process. Without one, sessions have no inbox: it would sleep in poll(2). */
typedef bool (*stream_waiter)(struct stream *s, int64_t until_ms, const void *on);
void stream_set_waiter(stream_waiter waiter);
stream_waiter stream_simulated_waiter(void);
/* There is such an opener: no descriptor is to be polled, time passes as the seam (seam.h) says. */
bool stream_simulated(void);

/* Wake a read that another thread is in: it returns -1 soon. The stream stays to be closed. */
void stream_interrupt(struct stream *s);

/* Wait up to STREAM_TICK_MS until it can be read or written again: for a full socket. */
void stream_wait_writable(struct stream *s);

/* The address as messages show it: "host:6379", "[::1]:6379", or the quoted path.
 * Returns buf. */
const char *stream_address(const struct url_host *host, char *buf, size_t size);

/* Wait for poll(2) events on fd, through signals. 1 ready, 0 the limit is over. */
int stream_poll(int fd, short events, const struct limit *lim);

/* What both kinds of stream do first and last: close fd and free nothing. */
void stream_close_fd(struct stream *s, int reset);

/* Implementation of stream_open()'s upper half: takes over fd (non-blocking). */
hf_err stream_tls_start(int fd, const struct url *u, const struct url_host *host,
                        const struct limit *lim, struct stream **ret, hf_error *reterr);
/* Before that: whether OpenSSL is there. HF_ESYS. */
hf_err stream_tls_ready(hf_error *reterr);

#endif
