/* SPDX-License-Identifier: MIT
 * stream.c - connecting in time, and the plain byte stream over tcp and unix sockets.
 *
 * A socket is born non-blocking, for a connect that can be given up. A plain stream is then made
 * blocking with a receive timeout of one tick: when the answer comes in time, a read is exactly
 * one recv(2), with no poll(2) before it. This is the path of every lock and unlock.
 */
#include "net/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/sockopt.h"
#include "net/resolve.h"

#define BACKLOG_MS 2 /* until a server may have taken a connection from its queue */

/* ---- the plain stream ---------------------------------------------------------------------- */

static ssize_t receive(struct stream *s, void *buf, size_t n, int flags)
{
    ssize_t got = recv(s->fd, buf, n, flags);
    if (got > 0)
        return got;
    if (got == 0) {
        errno = ECONNRESET;
        return -1;
    }
    /* A signal ends the wait as the tick does: under a storm of them the caller's deadline still
     * counts. */
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

static ssize_t plain_read(struct stream *s, void *buf, size_t n)
{
    return receive(s, buf, n, 0);
}

static ssize_t plain_read_now(struct stream *s, void *buf, size_t n)
{
    return receive(s, buf, n, MSG_DONTWAIT);
}

static ssize_t plain_writev(struct stream *s, const struct iovec *iov, int n)
{
    struct msghdr m = { .msg_iov = (struct iovec *)iov,
                        .msg_iovlen = (size_t)(n < IOV_MAX ? n : IOV_MAX) };
    ssize_t sent;

    do
        sent = sendmsg(s->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : sent;
}

static void plain_close(struct stream *s, int reset)
{
    stream_close_fd(s, reset);
    mem_free(s);
}

static const struct stream_ops plain_ops = {
    .read = plain_read, .read_now = plain_read_now, .writev = plain_writev, .close = plain_close,
};

/* Takes over fd. */
static hf_err plain_start(int fd, struct stream **ret, hf_error *reterr)
{
    struct timeval tick = { .tv_usec = STREAM_TICK_MS * 1000 };
    struct stream *s = mem_alloc(sizeof *s);

    if (!s) {
        forkguard_close(fd);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    *s = (struct stream){ &plain_ops, fd, forkguard_generation() };
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) < 0
        || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick) < 0) {
        err_set(reterr, HF_ESYS, "cannot set up a socket: %s", strerror(errno));
        plain_close(s, 0);
        return HF_ESYS;
    }
    *ret = s;
    return HF_OK;
}

/* ---- both kinds ---------------------------------------------------------------------------- */

void stream_close_fd(struct stream *s, int reset)
{
    /* In a forked child the number may by now be that of a file of the child's. */
    if (s->generation != forkguard_generation())
        return;
    if (reset) /* unix sockets accept it without effect: they keep nothing unsent */
        setsockopt(s->fd, SOL_SOCKET, SO_LINGER, &(struct linger){ 1, 0 }, sizeof(struct linger));
    forkguard_close(s->fd);
}

void stream_interrupt(struct stream *s)
{
    if (s->generation == forkguard_generation())
        shutdown(s->fd, SHUT_RD);
}

int stream_poll(int fd, short events, const struct limit *lim)
{
    struct pollfd p = { .fd = fd, .events = events };

    for (;;) {
        int n = poll(&p, 1, limit_tick_ms(lim));
        if (n > 0)
            return 1;
        if (limit_over(lim) || (n < 0 && errno != EINTR))
            return 0;
    }
}

void stream_wait_writable(struct stream *s)
{
    struct limit tick = { .at_ms = clock_add(clock_now_ms(), STREAM_TICK_MS) };
    if (s->fd >= 0)
        stream_poll(s->fd, POLLIN | POLLOUT, &tick);
    else
        clock_sleep_until(tick.at_ms);
}

const char *stream_address(const struct url_host *host, char *buf, size_t size)
{
    if (host->path)
        err_quote(buf, size, host->path, strlen(host->path));
    else
        snprintf(buf, size, strchr(host->host, ':') ? "[%s]:%d" : "%s:%d", host->host, host->port);
    return buf;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static const char *hint(int why)
{
    switch (why) {
    case ECONNREFUSED: return ": is redis-server running there?";
    case ENOENT: return ": is redis-server running with this path as its unixsocket?";
    case EACCES: return ": may this user open the socket (unixsocketperm)?";
    case ETIMEDOUT: return ": check the address and what may block the way (firewall)";
    case ENETUNREACH:
    case EHOSTUNREACH: return ": check the address and this machine's network";
    default: return "";
    }
}

/* tried: the address of the host that was tried last, or "". */
static hf_err connect_failed(hf_error *reterr, const struct url_host *host, const char *tried,
                             int why)
{
    char address[300];
    /* What this process lacks is not the server's fault, and trying again there is no help. */
    hf_err code = why == ENOMEM ? HF_ENOMEM
                  : why == EMFILE || why == ENFILE || why == ENOBUFS ? HF_ESYS : HF_ECONN;

    stream_address(host, address, sizeof address);
    if (*tried && strcmp(tried, host->host) != 0)
        return err_set(reterr, code, "cannot connect to %s (%s): %s%s", address, tried,
                       strerror(why), hint(why));
    return err_set(reterr, code, "cannot connect to %s: %s%s", address, strerror(why), hint(why));
}

/* A socket that forkguard knows; -1 with errno. */
static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && forkguard_add(fd) < 0) {
        close(fd);
        errno = ENOMEM;
        return -1;
    }
    return fd;
}

/* A connect to a free port of this machine can meet itself half way, when the kernel picks that
 * very port for our end: we would then read back what we write. */
static int met_itself(int fd)
{
    struct sockaddr_storage us = { 0 }, them = { 0 };
    socklen_t us_len = sizeof us, them_len = sizeof them;

    return getsockname(fd, (struct sockaddr *)&us, &us_len) == 0
           && getpeername(fd, (struct sockaddr *)&them, &them_len) == 0 && us_len == them_len
           && memcmp(&us, &them, us_len) == 0;
}

/* An errno for having waited long enough. */
static int given_up(const struct limit *lim)
{
    return limit_stopped(lim) ? ECANCELED : ETIMEDOUT;
}

/* 0, or an errno. */
static int finish_connect(int fd, const struct limit *lim)
{
    int why;
    socklen_t len = sizeof why;

    if (!stream_poll(fd, POLLOUT, lim))
        return given_up(lim);
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) < 0 ? errno : why;
}

/* 0 with *ret set, or an errno. */
static int connect_tcp(const struct addrinfo *a, const struct limit *lim, int *ret)
{
    int fd = new_socket(a->ai_family), why = 0;

    if (fd < 0)
        return errno;
    if (sockopt_tcp(fd, STREAM_USER_TIMEOUT_MS) < 0)
        why = errno;
    else if (connect(fd, a->ai_addr, a->ai_addrlen) < 0)
        why = errno == EINPROGRESS || errno == EINTR ? finish_connect(fd, lim) : errno;
    if (!why && met_itself(fd))
        why = ECONNREFUSED;
    if (why)
        forkguard_close(fd);
    else
        *ret = fd;
    return why;
}

/* Every address of the name, in the resolver's order. */
static hf_err connect_host(const struct url_host *host, const struct limit *lim, int *ret,
                           hf_error *reterr)
{
    struct addrinfo *list;
    char tried[NI_MAXHOST] = "";
    int why = ETIMEDOUT, left = 0;
    hf_err e = resolve_host(host, lim, &list, reterr);
    if (e)
        return e;
    for (struct addrinfo *a = list; a; a = a->ai_next)
        left++;
    for (struct addrinfo *a = list; a; a = a->ai_next, left--) {
        int64_t now = clock_now_ms();
        if (a != list && limit_over(lim))
            break;
        getnameinfo(a->ai_addr, a->ai_addrlen, tried, sizeof tried, NULL, 0, NI_NUMERICHOST);
        /* An equal share each, so that one that swallows packets leaves time for the next. */
        struct limit share = limit_earlier(lim, now + (lim->at_ms - now) / left);
        why = connect_tcp(a, &share, ret);
        if (!why)
            break;
    }
    freeaddrinfo(list);
    return why ? connect_failed(reterr, host, tried, why) : HF_OK;
}

static hf_err connect_unix(const struct url_host *host, const struct limit *lim, int *ret,
                           hf_error *reterr)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t len = strlen(host->path);
    char shown[200];

    if (len >= sizeof a.sun_path)
        return err_set(reterr, HF_ECONFIG,
                       "the socket path %s is too long: %zu bytes, the system takes %zu",
                       stream_address(host, shown, sizeof shown), len, sizeof a.sun_path - 1);
    memcpy(a.sun_path, host->path, len + 1);
    int fd = new_socket(AF_UNIX), why = 0;
    if (fd < 0)
        return connect_failed(reterr, host, "", errno);
    while (connect(fd, (struct sockaddr *)&a, sizeof a) < 0) {
        why = errno == EINTR ? EAGAIN : errno;
        /* EAGAIN: the server's backlog is full. No event tells when it no longer is. */
        if (why != EAGAIN || limit_over(lim))
            break;
        limit_sleep(lim, BACKLOG_MS);
        why = 0;
    }
    if (why) {
        forkguard_close(fd);
        return connect_failed(reterr, host, "", why == EAGAIN ? given_up(lim) : why);
    }
    *ret = fd;
    return HF_OK;
}

static stream_opener simulated; /* NULL: the system's sockets */

void stream_set_opener(stream_opener opener)
{
    simulated = opener;
}

static stream_waiter simulated_waiter;

void stream_set_waiter(stream_waiter waiter)
{
    simulated_waiter = waiter;
}

stream_waiter stream_simulated_waiter(void)
{
    return simulated_waiter;
}

bool stream_simulated(void)
{
    return __builtin_expect(simulated != NULL, 0);
}

hf_err stream_open(const struct url *u, const struct url_host *host, const struct limit *lim,
                   struct stream **ret, hf_error *reterr)
{
    int fd = -1;
    if (limit_stopped(lim)) /* who is only late still tries once: it may be quick */
        return connect_failed(reterr, host, "", ECANCELED);
    if (simulated)
        return simulated(u, host, lim, ret, reterr);
    hf_err err = u->tls ? stream_tls_ready(reterr) : HF_OK;
    if (!err)
        err = host->path ? connect_unix(host, lim, &fd, reterr)
                         : connect_host(host, lim, &fd, reterr);
    if (err)
        return err;
    if (u->tls)
        return stream_tls_start(fd, u, host, lim, ret, reterr);
    return plain_start(fd, ret, reterr);
}
