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

/* On how many of those that mask names (bit i: member i) the lock's key is this owner's. */
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

#endif
