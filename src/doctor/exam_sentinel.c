/* SPDX-License-Identifier: MIT
 * exam_sentinel.c - is this a place that keeps the promises? The Sentinels.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/sentinels.h"

#define GRACE_MS     15000 /* the default on Sentinel: it has to outlast a failover */
#define FAILOVER_MS  3000  /* what comes after the master was called down */

/* SENTINEL MASTER answers names and values in turn. */
static const char *value(const struct reply *rp, const char *name)
{
    for (size_t i = 0; rp && i + 1 < rp->len; i += 2)
        if (rp->item[i]->type == REPLY_BULK && rp->item[i + 1]->type == REPLY_BULK
            && strcmp(rp->item[i]->str, name) == 0)
            return rp->item[i + 1]->str;
    return "";
}

/* -1: it is no number, or one that cannot be. */
static int count(const struct reply *rp, const char *name, int max)
{
    const char *text = value(rp, name);
    return url_number(text, strlen(text), max);
}

static void report(struct exam *e, const struct reply *rp)
{
    int others = count(rp, "num-other-sentinels", 1000);
    int replicas = count(rp, "num-slaves", URL_REPLICAS_MAX);
    int down_after = count(rp, "down-after-milliseconds", 999999999);
    const char *flags = value(rp, "flags"), *ip = value(rp, "ip");
    if (others < 0 || replicas < 0 || down_after < 0 || !url_is_host(ip, strlen(ip))) {
        exam_tell(e, HF_GRADE_RISK, "sentinels", "look at SENTINEL MASTER there",
                  "its answer makes no sense");
        return;
    }
    if (replicas > e->replicas_known)
        e->replicas_known = replicas;
    if (strstr(flags, "down"))
        exam_tell(e, HF_GRADE_RISK, "sentinels", "look at the master",
                  "it calls the master %s:%s down (%s)", value(rp, "ip"), value(rp, "port"), flags);
    else
        exam_tell(e, HF_GRADE_FINE, "sentinels", NULL,
                  "it names %s:%s, and knows %d replicas and %d other Sentinels", value(rp, "ip"),
                  value(rp, "port"), replicas, others);
    if ((size_t)others + 1 > e->url->nhosts)
        exam_tell(e, HF_GRADE_NOTE, "sentinels", "name them all in the URL",
                  "the URL names %zu of %d Sentinels: a majority of those may be a minority of all",
                  e->url->nhosts, others + 1);
    if (down_after + FAILOVER_MS > GRACE_MS)
        exam_tell(e, HF_GRADE_RISK, "sentinels",
                  "set down-after-milliseconds 5000, or a longer grace and ttl",
                  "down-after-milliseconds %d: a failover takes longer than the default grace of "
                  "15 s, so locks are lost in it", down_after);
}

static void exam_one(struct exam *e, const struct url_host *host, char *ret_named, size_t size)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    struct url login = sentinels_login(e->url);
    char address[260];
    hf_error err = { 0 };
    if (!l || link_init(l) < 0)
        return;
    snprintf(e->where, sizeof e->where, "sentinel %s",
             stream_address(host, address, sizeof address));
    bool refused = false;
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms / 2 };
    hf_err code = link_open(l, &login, host, &lim, &err);
    const char *const ask[] = { "SENTINEL", "MASTER", e->url->master };
    struct reply *rp = code ? NULL : exam_ask(e, l, ask, 3, &refused);
    if (code)
        exam_tell(e, HF_GRADE_RISK, code == HF_EAUTH ? "rights" : "reach",
                  "a majority of the Sentinels must answer", "%s", err.message);
    else if (!rp || rp->type != REPLY_ARRAY)
        exam_tell(e, HF_GRADE_RISK, "sentinels", "check the master's name, and the Sentinel's user",
                  refused ? "it does not know this master, or may not tell us"
                          : "it gave no usable answer");
    else
        report(e, rp);
    if (rp && rp->type == REPLY_ARRAY)
        snprintf(ret_named, size, "%s:%s", value(rp, "ip"), value(rp, "port"));
    reply_free(rp);
    link_clear(l);
}

void exam_sentinels(struct exam *e)
{
    size_t n = e->url->nhosts;
    char first[200] = "";
    bool differ = false;
    for (size_t i = 0; i < n; i++) {
        char named[200] = "";
        exam_one(e, &e->url->hosts[i], named, sizeof named);
        differ |= *first && *named && strcmp(first, named) != 0;
        if (!*first)
            memcpy(first, named, sizeof first);
    }
    snprintf(e->where, sizeof e->where, "sentinels");
    if (differ)
        exam_tell(e, HF_GRADE_RISK, "sentinels", "wait for a failover to end; else look at each",
                  "they do not all name the same master");
    if (n < 3)
        exam_tell(e, HF_GRADE_RISK, "sentinels", "run three, on different machines",
                  "%zu Sentinel(s): when one is gone there is no majority", n);
}
