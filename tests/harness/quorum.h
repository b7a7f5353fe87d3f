/* SPDX-License-Identifier: MIT
 * quorum.h - several independent servers, and one URL for all of them.
 *
 *     struct members q = members_start(5, (struct server_opts){ .aof = 1 });
 *     hf_client *c = client_at(q.url, 1000);
 */
#ifndef HARNESS_QUORUM_H
#define HARNESS_QUORUM_H

#include "harness/live.h"
#include "harness/proxy.h"

enum { MEMBERS_MAX = 7 };

struct members {
    int            n;
    struct server *s[MEMBERS_MAX];
    char           url[512];
};

static inline void members_url(struct members *q, const char *options)
{
    int used = snprintf(q->url, sizeof q->url, "redis+quorum://");
    for (int i = 0; i < q->n; i++)
        used += snprintf(q->url + used, sizeof q->url - (size_t)used, "%s127.0.0.1:%d",
                         i ? "," : "", server_port(q->s[i]));
    snprintf(q->url + used, sizeof q->url - (size_t)used, "%s", options);
}

/* With an append-only file they are never young. */
static inline struct members members_start(int n, struct server_opts o)
{
    struct members q = { .n = n };
    o.tcp = 1;
    for (int i = 0; i < n; i++)
        q.s[i] = server_start_opts(&o);
    members_url(&q, "");
    return q;
}

/* What they are in most tests. */
static const struct server_opts kept = { .aof = 1 };

/* Do this to each that mask names (bit i: member i): server_kill, server_thaw, ... */
static inline void members_each(struct members *q, unsigned mask, void (*fn)(struct server *s))
{
    for (int i = 0; i < q->n; i++)
        if (mask >> i & 1)
            fn(q->s[i]);
}

/* How many of these have the key. */
static inline int members_having(struct members *q, const char *key, unsigned mask)
{
    int count = 0;
    for (int i = 0; i < q->n; i++)
        count += mask >> i & 1 && server_int(q->s[i], "EXISTS %s", key) > 0;
    return count;
}

/* Nobody has taken a number: nothing was written. */
static inline int members_untouched(struct members *q)
{
    for (int i = 0; i < q->n; i++)
        if (*server_keys(q->s[i]))
            return 0;
    return 1;
}

/* P9: when all is given back, only the counter and the reign stay. */
static inline int members_idle(struct members *q)
{
    for (int i = 0; i < q->n; i++)
        if (strcmp(server_keys(q->s[i]), ONLY_OURS) != 0)
            return 0;
    return 1;
}

/* On how many of these the lock's key is this owner's. */
static inline int members_with(struct members *q, const char *key, const char *owner, unsigned mask)
{
    int count = 0;
    for (int i = 0; i < q->n; i++) {
        const char *value = mask >> i & 1 ? server_ask(q->s[i], "GET %s", key) : NULL;
        count += value && strncmp(value, owner, strlen(owner)) == 0;
    }
    return count;
}
#define ALL_MEMBERS 0xffu

/* ---- each behind a proxy ---- */

struct wires {
    struct members q; /* its URL names the proxies */
    struct proxy  *p[MEMBERS_MAX];
};

static inline struct wires wires_start(int n)
{
    struct wires w = { .q = members_start(n, kept) };
    int used = snprintf(w.q.url, sizeof w.q.url, "redis+quorum://");
    for (int i = 0; i < n; i++) {
        w.p[i] = proxy_start_tcp(w.q.s[i]);
        used += snprintf(w.q.url + used, sizeof w.q.url - (size_t)used, "%s%s", i ? "," : "",
                         strstr(proxy_url(w.p[i]), "://") + 3);
    }
    return w;
}

#endif
