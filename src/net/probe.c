/* SPDX-License-Identifier: MIT
 * probe.c - is the embedded server there, and one question to it.
 */
#include "net/probe.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/forkguard.h"
#include "base/sockopt.h"
#include "net/stream.h"

#define PING_MS 200 /* then look again whether it is still there */

static hf_err check_peer(int fd, int64_t *ret_pid, hf_error *reterr)
{
    uid_t uid;
    int64_t pid;

    if (sockopt_peer(fd, &uid, &pid) < 0)
        return err_set(reterr, HF_ESYS, "the server's user cannot be found out: %s",
                       strerror(errno));
    if (uid != geteuid())
        return err_set(reterr, HF_EAUTH,
                       "the embedded server belongs to user id %lu and you are %lu: it is not "
                       "used; name a folder of your own with embedded:DIR",
                       (unsigned long)uid, (unsigned long)geteuid());
    if (ret_pid)
        *ret_pid = pid;
    return HF_OK;
}

hf_err probe_connect(const char *path, int *ret_fd, int64_t *ret_pid, hf_error *reterr)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    size_t len = strlen(path);

    if (len >= sizeof a.sun_path)
        return err_set(reterr, HF_ECONFIG, "the socket's path is too long");
    memcpy(a.sun_path, path, len);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_set(reterr, HF_ESYS, "no socket can be made: %s", strerror(errno));
    if (forkguard_add(fd) != 0) {
        close(fd);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    hf_err e = HF_OK;
    int r;
    do
        r = connect(fd, (const struct sockaddr *)&a, sizeof a);
    while (r != 0 && errno == EINTR);
    if (r == 0) {
        e = check_peer(fd, ret_pid, reterr);
        if (!e) {
            *ret_fd = fd;
            return HF_OK;
        }
    } else if (errno == ENOENT || errno == ECONNREFUSED) {
        *ret_fd = -1; /* never started, or killed and its socket left over */
    } else if (errno == EAGAIN) {
        e = err_set(reterr, HF_ECONN, "the embedded server takes no more connections at the "
                                      "moment: try again");
    } else {
        char q[160];
        e = err_set(reterr, HF_ESYS, "the embedded server's socket %s cannot be used: %s",
                    err_quote(q, sizeof q, path, len), strerror(errno));
    }
    forkguard_close(fd);
    return e;
}

static int send_all(int fd, const char *data, size_t len, const struct limit *lim)
{
    while (len > 0) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -1;
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        }
        if (len > 0 && (limit_over(lim) || !stream_poll(fd, POLLOUT, lim)))
            return -1;
    }
    return 0;
}

/* What recv(2) brought; *ret stays NULL until the reply is whole. */
static hf_err take(struct resp *parser, const char *bytes, size_t n, struct reply **ret,
                   hf_error *reterr)
{
    hf_err e = resp_feed(parser, bytes, n);
    if (!e)
        e = resp_next(parser, ret);
    if (!e)
        return HF_OK;
    return err_set(reterr, e, "the embedded server's answer cannot be read: %s",
                   e == HF_ENOMEM ? "out of memory" : resp_error(parser));
}

static hf_err read_reply(int fd, struct resp *parser, const struct limit *lim, struct reply **ret,
                         hf_error *reterr)
{
    char buf[4096];

    for (;;) {
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
            return err_set(reterr, HF_ECONN, "the embedded server has closed the connection");
        hf_err e = n > 0 ? take(parser, buf, (size_t)n, ret, reterr) : HF_OK;
        if (e || *ret)
            return e;
        if (limit_over(lim) || !stream_poll(fd, POLLIN, lim))
            return err_set(reterr, HF_ECONN, "the embedded server does not answer in time");
    }
}

hf_err probe_ask(int fd, const char *command, const struct limit *lim, struct reply **ret,
                 hf_error *reterr)
{
    struct reply *rp = NULL;

    if (send_all(fd, command, strlen(command), lim) != 0 || send_all(fd, "\r\n", 2, lim) != 0)
        return err_set(reterr, HF_ECONN, "the embedded server takes no commands");
    struct resp *parser = resp_new();
    if (!parser)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    hf_err e = read_reply(fd, parser, lim, &rp, reterr);
    resp_free(parser);
    if (!e)
        *ret = rp;
    return e;
}

hf_err probe_ping(const char *path, const struct limit *lim, enum probe_state *ret,
                  hf_error *reterr)
{
    int fd = -1;
    struct reply *rp = NULL;

    hf_err e = probe_connect(path, &fd, NULL, reterr);
    if (e == HF_ECONN) {
        *ret = PROBE_BUSY;
        return HF_OK;
    }
    if (e)
        return e;
    if (fd < 0) {
        *ret = PROBE_ABSENT;
        return HF_OK;
    }
    struct limit moment = limit_earlier(lim, clock_now_ms() + PING_MS);
    e = probe_ask(fd, "PING", &moment, &rp, reterr);
    forkguard_close(fd);
    if (e == HF_ECONN) { /* slow, or it ended just now: the next look will tell */
        *ret = PROBE_BUSY;
        return HF_OK;
    }
    if (e)
        return e;
    /* Any other answer is one of a server that works; the login will tell what is wrong. */
    int loading = rp && rp->type == REPLY_ERROR && strncmp(rp->str, "LOADING", 7) == 0;
    *ret = loading ? PROBE_LOADING : PROBE_READY;
    reply_free(rp);
    return HF_OK;
}
