/* SPDX-License-Identifier: MIT
 * url.h - where the servers are and how to speak to them, from one line of text.
 */
#ifndef NET_URL_H
#define NET_URL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum url_topology { URL_EMBEDDED, URL_SINGLE, URL_SENTINEL, URL_CLUSTER, URL_QUORUM };

struct url_host {
    char *host; /* name or address; an IPv6 address without its brackets; NULL: unix socket */
    char *path; /* unix socket path, else NULL */
    int   port;
};

struct url {
    enum url_topology topology;
    int               tls;
    char             *dir;      /* embedded:DIR, or NULL for the default */
    char             *user;     /* NULL: none */
    char             *password; /* NULL: none; wiped when freed */
    int               db;
    char             *master;   /* Sentinel: name of the master */
    size_t            nhosts;
    struct url_host  *hosts;

    /* ?options; NULL or -1: not given */
    char             *prefix;   /* may be "" */
    char             *passfile;
    char             *cacert, *cert, *key, *sni;
    char             *protocol;
    int64_t           timeout_ms;
    int64_t           connect_timeout_ms;
    int64_t           skew_ms;  /* protocol timestamp: how far clocks may be apart */
    int               replicas; /* or URL_MAJORITY */
    int               fsync;
    int               repair;   /* 0: off */
    int               confirm;
    int               spin;     /* 0: off */
    int               deadlock; /* 0: off */
    int               history;  /* entries of each lock; 0: none */
    char             *sentinel_user, *sentinel_passfile;
    char             *sentinel_password; /* wiped when freed */
    int64_t           quarantine_ms; /* Sentinel, quorum */

    char              client_name[128]; /* of its connections, for CLIENT LIST; "": none */
};

#define URL_MAJORITY     HF_MAJORITY /* replicas=majority */
#define URL_REPLICAS_MAX 100

/* Parse text as docs/urls.md says; NULL is the embedded server, an empty one an error.
 * Percent-escapes are decoded in user, password, path and option values. The message of an error
 * quotes the text without the password and says what is expected instead. HF_ECONFIG, HF_ENOMEM. */
hf_err url_parse(const char *text, struct url **ret, hf_error *reterr);
struct url *url_free(struct url *u);

/* Read ?passfile= (refused when others may read it) or take fallback when the URL has no password
 * of its own. fallback may be NULL. */
hf_err url_resolve_password(struct url *u, const char *fallback, hf_error *reterr);
/* The same for the Sentinels' password, which the URL itself never has. */
hf_err url_resolve_sentinel_password(struct url *u, const char *fallback, hf_error *reterr);

/* From here on cacert=, cert= and key= are found also when the process goes to another folder, as a
 * daemon does: they are read anew for each connection. */
hf_err url_resolve_files(struct url *u, hf_error *reterr);

/* Use this password whatever the URL says; NULL in u->password afterwards: no memory. */
void url_set_password(struct url *u, const char *password);

/* Whether this can be the host of a server, as a URL has it (an IPv6 address without its brackets)
 * or as others announce it. Nothing else is connected to, nor shown. */
bool url_is_host(const char *host, size_t len);

/* The URL as it may be shown: no password, "***" in its place; a malloc'd string or NULL. */
char *url_redact(const char *text);

/* The decimal number in text, from 0 to max, read as strictly as one in a URL; -1: it is none. */
int url_number(const char *text, size_t len, int max);

#endif
