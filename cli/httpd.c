/* SPDX-License-Identifier: MIT
 * httpd.c - what commands that serve HTTP share. libmicrohttpd speaks it.
 *
 * The library is loaded when it is needed: it brings TLS along, which takes longer to load than
 * everything else that the other commands do. */
#include "httpd.h"

#include "exitcode.h"
#include "httpd_gate.h"
#include "late.h"
#include "message.h"
#include "platform.h"

#include <errno.h>
#include <fcntl.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libmicrohttpd.so.12"
enum { BODY_MAX = 8192, CONNECTIONS = 64, IDLE_SECONDS = 40, CHUNK = 4096 };

#define FUNCTIONS(X)                                                                               \
    X(MHD_start_daemon) X(MHD_stop_daemon) X(MHD_queue_response) X(MHD_lookup_connection_value)    \
    X(MHD_create_response_from_buffer) X(MHD_create_response_from_callback)                        \
    X(MHD_add_response_header) X(MHD_destroy_response)

static struct {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTIONS(MEMBER)
#undef MEMBER
} mhd;

static const struct late functions[] = {
#define ROW(name) { #name, (void (**)(void))&mhd.name },
    FUNCTIONS(ROW)
#undef ROW
};

/* ---- one answer --------------------------------------------------------------------------- */

void http_text(struct http_answer *ret, unsigned status, const char *text)
{
    size_t n = strlen(text);
    ret->status = status;
    ret->type = "text/plain; charset=utf-8";
    free(ret->body);
    ret->body = malloc(n + 2);
    ret->len = ret->body ? n + 1 : 0;
    if (ret->body) {
        memcpy(ret->body, text, n);
        memcpy(ret->body + n, "\n", 2);
    }
}

/* What a browser may do with a page of ours: use what comes from here, and nothing else. */
static void add_headers(struct MHD_Response *r, const struct http_answer *a)
{
    static const char *const headers[][2] = {
        { "Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
          "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'" },
        { "X-Content-Type-Options", "nosniff" },
        { "X-Frame-Options", "DENY" },
        { "Referrer-Policy", "no-referrer" },
        { "Cross-Origin-Resource-Policy", "same-origin" },
        { "Cross-Origin-Opener-Policy", "same-origin" },
        { "Cache-Control", "no-store" },
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        mhd.MHD_add_response_header(r, headers[i][0], headers[i][1]);
    mhd.MHD_add_response_header(r, "Content-Type", a->type ? a->type : "text/plain");
    if (a->status == MHD_HTTP_UNAUTHORIZED)
        mhd.MHD_add_response_header(r, "WWW-Authenticate", "Bearer realm=\"holdfast\"");
    if (a->status == MHD_HTTP_METHOD_NOT_ALLOWED)
        mhd.MHD_add_response_header(r, "Allow", "GET, HEAD, POST");
}

/* An answer that goes on: the piece that is being sent. */
struct stream {
    struct http_answer answer;
    char  *piece;
    size_t len, at;
};

/* Thread: of the connection. */
static ssize_t stream_read(void *cls, uint64_t pos, char *buf, size_t max)
{
    struct stream *s = cls;
    (void)pos;
    if (s->at == s->len) {
        free(s->piece);
        s->at = s->len = 0;
        s->piece = s->answer.next(s->answer.arg, &s->len);
        if (!s->piece)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    size_t n = s->len - s->at < max ? s->len - s->at : max;
    memcpy(buf, s->piece + s->at, n);
    s->at += n;
    return (ssize_t)n;
}

/* Thread: of the connection. */
static void stream_over(void *cls)
{
    struct stream *s = cls;
    if (s->answer.over)
        s->answer.over(s->answer.arg);
    free(s->piece);
    free(s);
}

static struct MHD_Response *stream_begin(const struct http_answer *a)
{
    struct stream *s = calloc(1, sizeof *s);
    if (!s) {
        if (a->over)
            a->over(a->arg);
        return NULL;
    }
    s->answer = *a;
    struct MHD_Response *r = mhd.MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, CHUNK,
                                                                   stream_read, s, stream_over);
    if (!r)
        stream_over(s);
    return r;
}

static enum MHD_Result send_answer(struct MHD_Connection *conn, struct http_answer *a)
{
    struct MHD_Response *r = a->next ? stream_begin(a)
                                     : mhd.MHD_create_response_from_buffer(
                                           a->len, a->body ? a->body : "",
                                           a->body ? MHD_RESPMEM_MUST_FREE
                                                   : MHD_RESPMEM_PERSISTENT);
    if (!r) {
        if (!a->next)
            free(a->body);
        return MHD_NO;
    }
    add_headers(r, a);
    enum MHD_Result done = mhd.MHD_queue_response(conn, a->status ? a->status : MHD_HTTP_OK, r);
    mhd.MHD_destroy_response(r);
    return done;
}

/* ---- one request --------------------------------------------------------------------------- */

/* What has arrived of its body. */
struct asked {
    size_t len;
    int    too_long;
    char   body[BODY_MAX + 1];
};

static const char *header(struct MHD_Connection *conn, const char *name)
{
    return mhd.MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

static int is_open(const struct httpd *h, const char *path)
{
    for (const char *const *p = h->open; p && *p; p++)
        if (strcmp(*p, path) == 0)
            return 1;
    return 0;
}

/* Why it is not answered, as a status, and in words; 0: it is. */
static unsigned refuse(const struct httpd *h, struct MHD_Connection *conn,
                       const struct http_ask *ask, const struct asked *got, const char **ret_why)
{
    const char *host = header(conn, "Host"), *origin = header(conn, "Origin");
    if (!gate_host(h, host)) {
        *ret_why = "The Host header names somebody else. Use the address, or name it with --host.";
        return MHD_HTTP_FORBIDDEN;
    }
    if (origin && !gate_origin(origin, host)) {
        *ret_why = "The request comes from a page of another server.";
        return MHD_HTTP_FORBIDDEN;
    }
    if (strcmp(ask->method, "GET") != 0 && strcmp(ask->method, "POST") != 0) {
        *ret_why = "Only GET and POST are answered.";
        return MHD_HTTP_METHOD_NOT_ALLOWED;
    }
    if (got->too_long) {
        *ret_why = "The request is too long.";
        return MHD_HTTP_BAD_REQUEST;
    }
    if (h->token[0] && !ask->token && !is_open(h, ask->path)) {
        *ret_why = "A token is needed: Authorization: Bearer TOKEN.";
        return MHD_HTTP_UNAUTHORIZED;
    }
    return 0;
}

/* Thread: of the connection. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *conn, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **con_cls)
{
    const struct httpd *h = cls;
    struct asked *got = *con_cls;
    struct http_answer answer = { 0 };
    const char *why = NULL;
    (void)version;
    if (!got) {
        *con_cls = calloc(1, sizeof *got);
        return *con_cls ? MHD_YES : MHD_NO;
    }
    if (*upload_size) {
        size_t room = BODY_MAX - got->len, n = *upload_size < room ? *upload_size : room;
        memcpy(got->body + got->len, upload, n);
        got->len += n;
        got->too_long |= n < *upload_size;
        *upload_size = 0;
        return MHD_YES;
    }
    got->body[got->len] = '\0';
    struct http_ask ask = { .method = strcmp(method, "HEAD") == 0 ? "GET" : method, .path = url,
                            .body = got->body, .body_len = got->len,
                            .token = gate_bearer(h, header(conn, "Authorization")) };
    unsigned status = refuse(h, conn, &ask, got, &why);
    if (status)
        http_text(&answer, status, why);
    else
        h->answer(&ask, &answer, h->arg);
    return send_answer(conn, &answer);
}

/* Thread: of the connection. */
static void on_over(void *cls, struct MHD_Connection *conn, void **con_cls,
                    enum MHD_RequestTerminationCode how)
{
    (void)cls;
    (void)conn;
    (void)how;
    free(*con_cls);
    *con_cls = NULL;
}

/* ---- the server ---------------------------------------------------------------------------- */

int httpd_init(struct httpd *h, const struct cmd *cmd, const struct opts *o)
{
    *h = (struct httpd){ .host = o->host };
    if (!o->listen)
        return usage_error(cmd, "where to listen is missing: --listen 127.0.0.1:PORT");
    if (gate_address(h, o->listen) != 0)
        return usage_error(cmd, "--listen: '%s' is not an address and a port (such as "
                                "127.0.0.1:8010, [::1]:8010; a port alone is on 127.0.0.1)",
                           o->listen);
    int code = o->token_file ? gate_token(h, o->token_file) : 0;
    if (code)
        return code;
    if (!h->loopback && !h->token[0])
        return usage_error(cmd, "--listen %s can be reached from other machines: that needs "
                                "--token-file FILE", o->listen);
    code = late_load(cmd->name, LIBRARY, "libmicrohttpd12", functions,
                     sizeof functions / sizeof functions[0]);
    if (!code)
        signals_block(&h->signals);
    return code;
}

/* A descriptor that listens, and h->shown; -1 after a message. */
static int listen_at(struct httpd *h)
{
    int one = 1, fd = socket(h->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr *a = (const struct sockaddr *)&h->address;
    gate_show(h, h->shown, sizeof h->shown);
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (fd < 0 || bind(fd, a, h->address_len) != 0 || listen(fd, 64) != 0
        || getsockname(fd, (struct sockaddr *)&h->address, &h->address_len) != 0) {
        msg_error("cannot listen on %s: %s", h->shown, strerror(errno));
        if (fd >= 0)
            close(fd);
        return -1;
    }
    gate_show(h, h->shown, sizeof h->shown);
    return fd;
}

/* Until one of those that end us comes; 0, or -1 and errno. */
static int await_signal(const struct httpd *h)
{
    static const int ends[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, 0 };
    struct pollfd p = { .fd = signals_fd(&h->signals, ends), .events = POLLIN };
    if (p.fd < 0)
        return -1;
    while (platform_signal_read(p.fd) == 0)
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            break;
    close(p.fd);
    return 0;
}

int httpd_run(struct httpd *h, const struct cmd *cmd, httpd_fn answer, void (*ready)(void *arg),
              void (*stop)(void *arg), void *arg)
{
    int fd = listen_at(h);
    if (fd < 0)
        return EX_SYSTEM;
    h->answer = answer;
    h->arg = arg;
    struct MHD_Daemon *d = mhd.MHD_start_daemon(
        MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_ITC, 0, NULL, NULL,
        on_request, h, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
        MHD_OPTION_NOTIFY_COMPLETED, on_over, NULL, MHD_OPTION_END);
    if (!d) {
        close(fd);
        msg_error("%s: the HTTP server cannot be started", cmd->name);
        return EX_SYSTEM;
    }
    if (ready)
        ready(arg);
    int waited = await_signal(h);
    if (stop)
        stop(arg);
    mhd.MHD_stop_daemon(d);
    if (waited == 0)
        return EX_OKAY;
    msg_error("%s: signals cannot be read: %s", cmd->name, strerror(errno));
    return EX_SYSTEM;
}
