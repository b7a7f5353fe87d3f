/* SPDX-License-Identifier: MIT
 * url.c - where the servers are and how to speak to them, from one line of text.
 *
 * A password must not show, not even that of a URL which makes no sense: `redis://u:p@ss@host`,
 * `redis//u:secret@host` and `redis://u:p?ss@host` are what people type. So no message quotes a
 * piece of the part where one may be; it quotes the whole text after hide(), which rather hides
 * too much. Pieces behind it are quoted only when no '@' comes after them.
 */
#include "net/url.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"

#define MAX_HOSTS    64
#define MAX_DB       16383
#define KNOWN_OPTIONS                                                                            \
    "prefix, timeout, connect_timeout, cacert, cert, key, sni, passfile, protocol, skew, "        \
    "replicas, fsync, repair, confirm, spin, deadlock, history, sentinel_user, "                  \
    "sentinel_passfile, quarantine, db"
#define FORMS                                                                                    \
    "embedded:[DIR], redis://host[:port][/db], rediss://..., unix:///path.sock, "                \
    "redis+sentinel://host,.../master, redis+cluster://host,..., redis+quorum://host,..."

/* What a parse works on. */
struct url_text {
    const char *all;
    int         shy; /* an '@' comes after the authority: nothing may be quoted */
    hf_error   *reterr;
};

struct span {
    const char *at;
    size_t      len;
};

static const struct scheme {
    const char       *name;
    enum url_topology topology;
    int               tls, port; /* port 0: unix socket */
} schemes[] = {
    { "redis://", URL_SINGLE, 0, 6379 },
    { "rediss://", URL_SINGLE, 1, 6379 },
    { "unix://", URL_SINGLE, 0, 0 },
    { "redis+sentinel://", URL_SENTINEL, 0, 26379 },
    { "rediss+sentinel://", URL_SENTINEL, 1, 26379 },
    { "redis+cluster://", URL_CLUSTER, 0, 6379 },
    { "rediss+cluster://", URL_CLUSTER, 1, 6379 },
    { "redis+quorum://", URL_QUORUM, 0, 6379 },
    { "rediss+quorum://", URL_QUORUM, 1, 6379 },
    { "embedded:", URL_EMBEDDED, 0, 0 },
};

enum option_kind { OPT_TEXT, OPT_EMPTY_TEXT, OPT_TLS, OPT_SENTINEL, OPT_TIME, OPT_MAYBE_TIME,
                   OPT_INT, OPT_COUNT, OPT_SWITCH };

static const struct option {
    const char      *name;
    enum option_kind kind;
    size_t           offset;
    int              max; /* OPT_INT, OPT_COUNT */
} options[] = {
    { "prefix", OPT_EMPTY_TEXT, offsetof(struct url, prefix), 0 },
    { "timeout", OPT_TIME, offsetof(struct url, timeout_ms), 0 },
    { "connect_timeout", OPT_TIME, offsetof(struct url, connect_timeout_ms), 0 },
    { "cacert", OPT_TLS, offsetof(struct url, cacert), 0 },
    { "cert", OPT_TLS, offsetof(struct url, cert), 0 },
    { "key", OPT_TLS, offsetof(struct url, key), 0 },
    { "sni", OPT_TLS, offsetof(struct url, sni), 0 },
    { "passfile", OPT_TEXT, offsetof(struct url, passfile), 0 },
    { "protocol", OPT_TEXT, offsetof(struct url, protocol), 0 },
    { "skew", OPT_TIME, offsetof(struct url, skew_ms), 0 },
    { "replicas", OPT_COUNT, offsetof(struct url, replicas), URL_REPLICAS_MAX },
    { "fsync", OPT_INT, offsetof(struct url, fsync), 1 },
    { "repair", OPT_SWITCH, offsetof(struct url, repair), 0 },
    { "confirm", OPT_INT, offsetof(struct url, confirm), 1 },
    { "spin", OPT_SWITCH, offsetof(struct url, spin), 0 },
    { "deadlock", OPT_SWITCH, offsetof(struct url, deadlock), 0 },
    { "history", OPT_INT, offsetof(struct url, history), HF_HISTORY_MAX },
    { "sentinel_user", OPT_SENTINEL, offsetof(struct url, sentinel_user), 0 },
    { "sentinel_passfile", OPT_SENTINEL, offsetof(struct url, sentinel_passfile), 0 },
    { "quarantine", OPT_MAYBE_TIME, offsetof(struct url, quarantine_ms), 0 },
    { "db", OPT_INT, offsetof(struct url, db), MAX_DB }, /* last: DB_BIT */
};

#define NOPTIONS (sizeof options / sizeof *options)
#define DB_BIT   (1u << (NOPTIONS - 1))

/* ---- showing a URL ------------------------------------------------------------------------- */

static const struct scheme *scheme_of(const char *text)
{
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        if (strncasecmp(text, schemes[i].name, strlen(schemes[i].name)) == 0)
            return &schemes[i];
    }
    return NULL;
}

/* Behind "scheme://", or behind what surely was meant to be it. */
static const char *after_scheme(const char *text)
{
    const struct scheme *sc = scheme_of(text);
    if (sc)
        return text + strlen(sc->name);
    const char *p = text + strspn(text, "abcdefghijklmnopqrstuvwxyz+");
    p += *p == ':';
    return strncmp(p, "//", 2) == 0 ? p + 2 : text;
}

/* Append len bytes of text; there is always room, since "***" is all that makes a copy longer. */
static void add(char **to, const char *text, size_t len)
{
    memcpy(*to, text, len);
    *to += len;
}

static const struct option *option_named(const char *name, size_t len)
{
    for (size_t i = 0; i < NOPTIONS; i++) {
        if (strlen(options[i].name) == len && memcmp(name, options[i].name, len) == 0)
            return &options[i];
    }
    return NULL;
}

/* How much of a text is before, or is, the word "pass"; what follows may be one, whatever is
 * between them. Only passfile= is an option. */
static size_t until_pass(const char *text, size_t len)
{
    for (size_t i = 0; i + 4 < len; i++)
        if (strncasecmp(text + i, "pass", 4) == 0
            && (len - i < 8 || strncmp(text + i, "passfile", 8) != 0))
            return i + 4;
    return len;
}

/* Hosts, path and options, without an '@'. Hidden are what follows a ':' and is no port, and the
 * values of options that are not ours (`?auth=`). A ';' or a second '?' was meant to be a '&'. */
static void hide_tail(char **to, const char *p)
{
    for (;;) {
        size_t n = strcspn(p, "[:?&;"), len, name;
        int show;
        char sep = p[n];
        add(to, p, n + (sep != '\0'));
        if (!sep)
            return;
        p += n + 1;
        switch (sep) {
        case '[': /* an IPv6 address */
            len = strspn(p, "0123456789abcdefABCDEF:.");
            show = 1;
            break;
        case ':': /* `redis://:12345` is no port */
            len = strcspn(p, ",/?;");
            show = n > 0 && len <= 5 && strspn(p, "0123456789") >= len;
            break;
        default:
            name = strcspn(p, "=&?;");
            len = strcspn(p, "&?;");
            show = name == len || option_named(p, name) != NULL;
            if (!show) {
                add(to, p, name + 1);
                p += name + 1;
                len -= name + 1;
            }
        }
        add(to, show ? p : "***", show ? len : 3);
        p += len;
    }
}

/* A copy that cannot show a password, whatever the text is. NULL: out of memory. */
static char *hide(const char *text)
{
    char *copy = mem_alloc(4 * strlen(text) + 8);
    if (!copy)
        return NULL;
    char *to = copy;
    const char *begin = after_scheme(text), *at = strrchr(begin, '@');
    add(&to, text, (size_t)(begin - text));
    if (at) {
        const char *colon = memchr(begin, ':', (size_t)(at - begin));
        if (colon) /* else it may be a password alone, which redis-cli takes */
            add(&to, begin, (size_t)(colon - begin) + 1);
        add(&to, "***@", 4);
        begin = at + 1;
    }
    hide_tail(&to, begin);
    *to = '\0';
    size_t len = until_pass(copy, (size_t)(to - copy));
    if (copy[len])
        memcpy(copy + len, "***", sizeof "***");
    return copy;
}

/* Fail with a message that ends in the text as it may be shown. */
static hf_err bad(const struct url_text *t, const char *fmt, ...) __attribute__((format(printf, 2,
                                                                                        3)));

static hf_err bad(const struct url_text *t, const char *fmt, ...)
{
    char why[320], quoted[160];
    AUTO(mem_freep) char *shown = hide(t->all);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!shown)
        return err_set(t->reterr, HF_ENOMEM, "out of memory");
    return err_set(t->reterr, HF_ECONFIG, "bad URL %s: %s",
                   err_quote(quoted, sizeof quoted, shown, strlen(shown)), why);
}

static hf_err no_memory(const struct url_text *t)
{
    return err_set(t->reterr, HF_ENOMEM, "out of memory");
}

char *url_redact(const char *text)
{
    struct url *u = NULL;

    if (!text)
        return mem_copy("", 0);
    if (url_parse(text, &u, NULL) != HF_OK)
        return hide(text);
    /* It is what it seems, so only the one '@' in front of the first slash ends a password. */
    const char *begin = after_scheme(text), *at = memchr(begin, '@', strcspn(begin, "/?"));
    if (u->topology == URL_EMBEDDED)
        at = NULL;
    url_free(u);
    const char *colon = at ? memchr(begin, ':', (size_t)(at - begin)) : NULL;
    if (!at || at == begin || at - 1 == colon) /* none, or an empty one */
        return mem_copy(text, strlen(text));
    size_t head = (size_t)((colon ? colon + 1 : begin) - text), tail = strlen(at) + 1;
    char *copy = mem_alloc(head + 3 + tail);
    if (copy) {
        memcpy(copy, text, head);
        memcpy(copy + head, "***", 3);
        memcpy(copy + head + 3, at, tail);
    }
    return copy;
}

/* ---- pieces -------------------------------------------------------------------------------- */

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A copy of s without its percent-escapes. %00 would end the string early: refused. */
static hf_err decode(const struct url_text *t, struct span s, const char *what, char **ret)
{
    char *copy = mem_alloc(s.len + 1);
    if (!copy)
        return no_memory(t);
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        copy[n++] = s.at[i];
        if (s.at[i] != '%')
            continue;
        int high = i + 2 < s.len ? hex(s.at[i + 1]) : -1;
        int low = high >= 0 ? hex(s.at[i + 2]) : -1;
        if (low < 0 || high + low == 0) {
            explicit_bzero(copy, n);
            mem_free(copy);
            return bad(t, "the %s has a %% that is not an escape: write %%25 for it", what);
        }
        copy[n - 1] = (char)(high * 16 + low);
        i += 2;
    }
    copy[n] = '\0';
    *ret = copy;
    return HF_OK;
}

/* The decimal number in s, from 0 to max; -1: it is none. */
static int number(struct span s, int max)
{
    int n = 0;

    if (s.len == 0 || s.len > 9)
        return -1;
    for (size_t i = 0; i < s.len; i++) {
        if (s.at[i] < '0' || s.at[i] > '9')
            return -1;
        n = n * 10 + (s.at[i] - '0');
    }
    return n <= max ? n : -1;
}

/* Cut s at the first byte that is in ends; what follows that byte is left in *rest (at NULL: it is
 * not there). */
static struct span cut(struct span s, const char *ends, struct span *rest)
{
    size_t n = 0;
    while (n < s.len && !strchr(ends, s.at[n]))
        n++;
    *rest = n < s.len ? (struct span){ s.at + n + 1, s.len - n - 1 } : (struct span){ NULL, 0 };
    return (struct span){ s.at, n };
}

int url_number(const char *text, size_t len, int max)
{
    return number((struct span){ text, len }, max);
}

/* ---- hosts --------------------------------------------------------------------------------- */

static int is_host(struct span s, int v6)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.at[i];
        int plain = (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        if (!c || (!plain && !strchr(v6 ? ":.%" : "._-", c)))
            return 0;
    }
    return s.len > 0 && s.len <= 255 && (!v6 || memchr(s.at, ':', s.len));
}

bool url_is_host(const char *text, size_t len)
{
    return is_host((struct span){ text, len }, memchr(text, ':', len) != NULL);
}

/* host[:port] or [v6][:port], the next of the URL's. */
static hf_err add_host(const struct url_text *t, struct url *u, struct span s, int port)
{
    int v6 = s.len > 0 && s.at[0] == '[';
    struct span tail, host;

    if (v6) {
        host = cut((struct span){ s.at + 1, s.len - 1 }, "]", &tail);
        if (!tail.at || (tail.len && tail.at[0] != ':'))
            return bad(t, "an IPv6 address is written [ADDRESS] or [ADDRESS]:PORT");
        if (tail.len) {
            tail.at++;
            tail.len--;
        } else {
            tail.at = NULL;
        }
    } else {
        host = cut(s, ":", &tail);
        if (tail.at && memchr(tail.at, ':', tail.len))
            return bad(t, "more than one ':' in a host: an IPv6 address goes in brackets");
    }
    if (!is_host(host, v6))
        return bad(t, host.len ? "a host has a character that no host has"
                               : "a host is missing (host[:port] is expected)");
    if (tail.at && (port = number(tail, 65535)) < 1)
        return bad(t, "a port is not a number from 1 to 65535");
    struct url_host *h = &u->hosts[u->nhosts];
    h->host = mem_copy(host.at, host.len);
    if (!h->host)
        return no_memory(t);
    h->port = port;
    u->nhosts++;
    return HF_OK;
}

static hf_err add_hosts(const struct url_text *t, struct url *u, struct span s, int port)
{
    size_t n = 1;
    for (size_t i = 0; i < s.len; i++)
        n += s.at[i] == ',';
    if (n > 1 && u->topology == URL_SINGLE)
        return bad(t, "several hosts: say how they belong together with redis+sentinel://, "
                      "redis+cluster:// or redis+quorum://");
    if (n > MAX_HOSTS)
        return bad(t, "more than %d hosts", MAX_HOSTS);
    u->hosts = mem_zalloc(n * sizeof *u->hosts);
    if (!u->hosts)
        return no_memory(t);
    do {
        struct span rest;
        hf_err err = add_host(t, u, cut(s, ",", &rest), port);
        if (err)
            return err;
        s = rest;
    } while (s.at);
    bool votes = u->topology == URL_QUORUM || u->topology == URL_SENTINEL;
    for (size_t i = 0; votes && i < n; i++) {
        for (size_t j = 0; j < i; j++) { /* its vote would count twice */
            if (u->hosts[i].port == u->hosts[j].port
                && strcasecmp(u->hosts[i].host, u->hosts[j].host) == 0)
                return bad(t, "a server is named twice: a majority needs different ones");
        }
    }
    return HF_OK;
}

static hf_err set_userinfo(const struct url_text *t, struct url *u, struct span s)
{
    struct span pass, user = cut(s, ":", &pass);
    hf_err err = HF_OK;

    if (memchr(s.at, '@', s.len))
        return bad(t, "more than one '@' before the host: write %%40 for one in the password");
    if (user.len)
        err = decode(t, user, "user name", &u->user);
    if (!err && pass.len)
        err = decode(t, pass, "password", &u->password);
    return err;
}

/* ---- ?options ------------------------------------------------------------------------------ */

static hf_err set_option(const struct url_text *t, struct url *u, const struct option *o,
                         struct span raw)
{
    AUTO(mem_freep) char *value = NULL;
    void *field = (char *)u + o->offset;
    hf_err err = decode(t, raw, "option", &value);

    if (err)
        return err;
    if (!*value && o->kind != OPT_EMPTY_TEXT)
        return bad(t, "option %s has no value", o->name);
    switch (o->kind) {
    case OPT_TLS:
        if (!u->tls)
            return bad(t, "option %s is for TLS only: use rediss:// or rediss+...", o->name);
        /* fall through */
    case OPT_SENTINEL:
        if (o->kind == OPT_SENTINEL && u->topology != URL_SENTINEL)
            return bad(t, "option %s is for Sentinels only: use redis+sentinel://", o->name);
        /* fall through */
    case OPT_TEXT:
    case OPT_EMPTY_TEXT:
        *(char **)field = value;
        value = NULL;
        break;
    case OPT_TIME:
    case OPT_MAYBE_TIME:
        if (hf_duration_parse(value, field, NULL) != HF_OK
            || (o->kind == OPT_TIME && *(int64_t *)field == 0))
            return bad(t, "option %s is not a duration: write 500ms, 10s or 2m", o->name);
        break;
    case OPT_SWITCH:
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
            return bad(t, "option %s must be on or off", o->name);
        *(int *)field = strcmp(value, "on") == 0;
        break;
    case OPT_COUNT:
        if (strcmp(value, "majority") == 0) {
            *(int *)field = URL_MAJORITY;
            break;
        }
        /* fall through */
    case OPT_INT:
        *(int *)field = number((struct span){ value, strlen(value) }, o->max);
        if (*(int *)field < 0)
            return bad(t, "option %s must be a number from 0 to %d%s", o->name, o->max,
                       o->kind == OPT_COUNT ? ", or majority" : "");
        break;
    }
    return HF_OK;
}

static hf_err set_options(const struct url_text *t, struct url *u, struct span s, unsigned seen)
{
    while (s.at) {
        struct span rest, value, name = cut(cut(s, "&", &rest), "=", &value);
        const struct option *o = option_named(name.at, name.len);
        char quoted[40];

        if (name.len == 0 && !value.at) { /* "?" or "&" alone */
            s = rest;
            continue;
        }
        if (!o)
            return bad(t, "unknown option %s (known are " KNOWN_OPTIONS ")",
                       t->shy ? "" : err_quote(quoted, sizeof quoted, name.at,
                                               until_pass(name.at, strcspn(name.at, "=&?;:"))));
        unsigned bit = 1u << (o - options);
        if (seen & bit)
            return bad(t, "option %s is given twice", o->name);
        seen |= bit;
        if (!value.at) /* "&name": up to the next option */
            value = (struct span){ name.at + name.len, 0 };
        hf_err err = set_option(t, u, o, value);
        if (err)
            return err;
        s = rest;
    }
    return HF_OK;
}

static hf_err check(const struct url_text *t, const struct url *u)
{
    if (!u->cert != !u->key)
        return bad(t, "options cert and key must come together");
    if (u->password && u->passfile)
        return bad(t, "a password and passfile= are both given: keep one");
    if (u->protocol && strcmp(u->protocol, "script") && strcmp(u->protocol, "transaction")
        && strcmp(u->protocol, "timestamp"))
        return bad(t, "option protocol must be script, transaction or timestamp");
    if (u->skew_ms > 0 && (!u->protocol || strcmp(u->protocol, "timestamp")))
        return bad(t, "option skew is for protocol=timestamp only");
    if (u->quarantine_ms >= 0 && u->topology != URL_SENTINEL && u->topology != URL_QUORUM)
        return bad(t, "option quarantine is for redis+sentinel:// and redis+quorum:// only");
    if (u->topology == URL_CLUSTER && u->db > 0)
        return bad(t, "a cluster has db 0 only");
    return HF_OK;
}

/* ---- the whole ----------------------------------------------------------------------------- */

static hf_err set_unix(const struct url_text *t, struct url *u, struct span path)
{
    if (path.len < 2 || path.at[0] != '/')
        return bad(t, "a unix socket needs its whole path: unix:///path/to.sock");
    u->hosts = mem_zalloc(sizeof *u->hosts);
    if (!u->hosts)
        return no_memory(t);
    u->nhosts = 1;
    return decode(t, path, "path", &u->hosts[0].path);
}

/* "[/master][/db]"; *ret_seen: the db's bit when it is there. */
static hf_err set_path(const struct url_text *t, struct url *u, struct span path,
                       unsigned *ret_seen)
{
    struct span rest = { path.at + 1, path.len ? path.len - 1 : 0 };

    if (u->topology == URL_SENTINEL) {
        struct span master = cut(rest, "/", &rest);
        if (!master.len)
            return bad(t, "the master's name is missing: redis+sentinel://host,host/NAME");
        hf_err err = decode(t, master, "master's name", &u->master);
        if (err)
            return err;
    }
    if (!rest.at || !rest.len)
        return HF_OK;
    u->db = number(rest, MAX_DB);
    if (u->db < 0)
        return bad(t, "the db must be a number from 0 to %d", MAX_DB);
    *ret_seen = DB_BIT;
    return HF_OK;
}

static hf_err set_embedded(const struct url_text *t, struct url *u, struct span dir)
{
    if (dir.len >= 2 && memcmp(dir.at, "//", 2) == 0 && (dir.len == 2 || dir.at[2] != '/'))
        return bad(t, "write embedded: or embedded:DIR, without slashes before it");
    return dir.len ? decode(t, dir, "folder", &u->dir) : HF_OK;
}

static hf_err parse(struct url_text *t, struct url *u)
{
    const struct scheme *sc = scheme_of(t->all);
    unsigned seen = 0;
    hf_err err;

    if (!sc)
        return bad(t, "it must be one of " FORMS);
    u->topology = sc->topology;
    u->tls = sc->tls;
    const char *begin = t->all + strlen(sc->name), *path = begin + strcspn(begin, "/?");
    struct span query, all = { begin, strlen(begin) }, body = cut(all, "?", &query);
    struct span rest = { path, body.len - (size_t)(path - begin) };
    t->shy = strchr(path, '@') != NULL;
    if (sc->topology == URL_EMBEDDED) {
        err = set_embedded(t, u, body);
    } else {
        struct span hosts = { begin, (size_t)(path - begin) };
        const char *at = memrchr(begin, '@', hosts.len);
        err = HF_OK;
        if (at) {
            err = set_userinfo(t, u, (struct span){ begin, (size_t)(at - begin) });
            hosts = (struct span){ at + 1, (size_t)(path - at - 1) };
        }
        if (!err && sc->port)
            err = add_hosts(t, u, hosts, sc->port);
        else if (!err && hosts.len)
            err = bad(t, "a unix socket has no host: write unix:///path/to.sock");
        if (!err)
            err = sc->port ? set_path(t, u, rest, &seen) : set_unix(t, u, rest);
    }
    if (!err)
        err = set_options(t, u, query, seen);
    return err ? err : check(t, u);
}

hf_err url_parse(const char *text, struct url **ret, hf_error *reterr)
{
    struct url_text t = { text ? text : "embedded:", 0, reterr };
    /* A variable that somebody forgot to set must not turn a fleet's lock into this machine's. */
    if (!*t.all)
        return err_set(reterr, HF_ECONFIG, "the URL is empty: name the server, or say embedded: "
                       "for locks of this machine alone");
    struct url *u = mem_zalloc(sizeof *u);
    if (!u)
        return no_memory(&t);
    u->timeout_ms = u->connect_timeout_ms = u->skew_ms = u->quarantine_ms = -1;
    u->replicas = u->fsync = u->repair = u->confirm = u->spin = u->deadlock = u->history = -1;
    hf_err err = parse(&t, u);
    if (err)
        url_free(u);
    else
        *ret = u;
    return err;
}

struct url *url_free(struct url *u)
{
    if (!u)
        return NULL;
    if (u->password)
        explicit_bzero(u->password, strlen(u->password));
    if (u->sentinel_password)
        explicit_bzero(u->sentinel_password, strlen(u->sentinel_password));
    for (size_t i = 0; i < u->nhosts; i++) {
        mem_free(u->hosts[i].host);
        mem_free(u->hosts[i].path);
    }
    char *texts[] = { u->dir,    u->user, u->password, u->master, u->prefix,   u->passfile,
                      u->cacert, u->cert, u->key,      u->sni,    u->protocol, (char *)u->hosts,
                      u->sentinel_user, u->sentinel_passfile, u->sentinel_password };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mem_free(texts[i]);
    mem_free(u);
    return NULL;
}
