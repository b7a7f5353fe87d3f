/* SPDX-License-Identifier: MIT
 * httpd.h - what commands that serve HTTP share: where they listen, and whom they answer.
 *
 * Without a token they listen on loopback alone. A request must name us in its Host header, so that
 * a page elsewhere cannot reach us under a name of its own (DNS rebinding). If there is a token,
 * every request needs it, but for the paths that are open to all. */
#ifndef CLI_HTTPD_H
#define CLI_HTTPD_H

#include "options.h"
#include "signals.h"

#include <stddef.h>
#include <sys/socket.h>

struct http_ask {
    const char *method; /* GET or POST; HEAD is GET */
    const char *path;   /* without what follows a ? */
    const char *body;   /* of a POST, and a NUL */
    size_t      body_len;
    int         token;  /* it carries the token; 0 also if there is none */
};

struct http_answer {
    unsigned    status; /* 200 if not set */
    const char *type;   /* of the content: text/plain if not set */
    char       *body;   /* malloc()ed: freed here */
    size_t      len;
    /* Instead of body: the next piece, malloc()ed, until it returns NULL. It may wait for a few
     * seconds: each connection has a thread. over() is called when the connection ends. */
    char     *(*next)(void *arg, size_t *ret_len);
    void      (*over)(void *arg);
    void       *arg;
};

/* Thread: of the connection. */
typedef void (*httpd_fn)(const struct http_ask *ask, struct http_answer *ret, void *arg);

struct httpd {
    struct sockaddr_storage address;
    socklen_t      address_len;
    int            loopback;
    char           token[129]; /* "": none */
    const char    *host;       /* one more name that is ours; NULL: none */
    const char *const *open;   /* paths that need no token, up to NULL; NULL: none */
    char           shown[80];  /* once it listens: "127.0.0.1:8010" */
    httpd_fn       answer;
    void          *arg;
    struct signals signals;
};

/* Read --listen, --token-file and --host, and block the signals that end us. To be called before
 * the client is opened. 0, or an exit status after a message. */
int httpd_init(struct httpd *h, const struct cmd *cmd, const struct opts *o);
/* Make a token up, if there is none. */
int httpd_make_token(struct httpd *h);

/* Listen, call ready(arg) and answer until a signal comes; then call stop(arg), which ends what
 * waits in next(). Both may be NULL. Returns the exit status. */
int httpd_run(struct httpd *h, const struct cmd *cmd, httpd_fn answer, void (*ready)(void *arg),
              void (*stop)(void *arg), void *arg);

/* ret gets text, in malloc()ed memory; for answers of a line. */
void http_text(struct http_answer *ret, unsigned status, const char *text);

#endif
