/* SPDX-License-Identifier: MIT
 * exam_cluster.c - is this a place that keeps the promises? The masters of a cluster.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "net/stream.h"
#include "topo/cluster.h"
#include "topo/keys.h"

#define GRACE_MS    15000 /* the default in a cluster: it has to outlast a failover */
#define ELECTION_MS 1000  /* what comes after the master was called failed */
#define APART_MS    10000

struct master {
    const struct url_host *host;
    unsigned               slots;
};

struct survey {
    struct exam      *e;
    struct topo      *t;
    struct master     master[EXAM_NODES_MAX];
    int               place[SLOT_COUNT]; /* whose; -1: nobody's */
    unsigned char     unserved[SLOT_COUNT]; /* 1: it is nobody's */
    struct exam_nodes nodes;
    unsigned          masters, up, alone;
    long long         node_timeout_ms;   /* the longest; -1: not known */
    bool              full_coverage, reads_when_down;
    bool              clocks;            /* of one at least is known */
    int64_t           earliest_ms, latest_ms;
    char              earliest[300], latest[300]; /* who has it */
    char              version[48], other_version[48];
};

/* ---- rights ---------------------------------------------------------------------------------- */

static const struct right {
    const char *name;
    const char *words[3]; /* a word "" is our channel */
    const char *since;    /* in its place on a server that does not know it */
    const char *without;
} rights[] = {
    { "CLUSTER SLOTS", { "CLUSTER", "SLOTS" }, NULL,
      "this server cannot tell where a slot has gone when the others are silent" },
    { "ASKING", { "ASKING" }, NULL,
      "what lies in a slot that is being moved here cannot be renewed, and is lost (P5)" },
    { "SPUBLISH", { "SPUBLISH", "", "doctor" }, "PUBLISH",
      "who waits is not woken, and finds out by looking (P7)" },
};

/* Try it. NULL: allowed, or no answer; else what the server said. To be freed. */
static struct reply *try_right(struct exam *e, struct link *l, const struct right *r,
                               const char *channel, const char *instead)
{
    hf_bytes argv[3];
    int n = 0;
    struct reply *rp = NULL;
    for (; n < 3 && r->words[n]; n++)
        argv[n] = hf_str(*r->words[n] ? r->words[n] : channel);
    if (instead)
        argv[0] = hf_str(instead);
    if (!l->stream)
        return NULL;
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    if (link_exchange(l, n, argv, &lim, &rp, NULL)) {
        link_close(l, false);
        return NULL;
    }
    if (rp->type == REPLY_ERROR && r->since && !instead && strstr(rp->str, "unknown command")) {
        reply_free(rp);
        return try_right(e, l, r, channel, r->since);
    }
    return rp->type == REPLY_ERROR && strncmp(rp->str, "NOPERM", 6) == 0 ? rp : reply_free(rp);
}

/* What the lock for a try does not come across. */
static void exam_rights(struct survey *s, struct link *l, const char *tag)
{
    struct exam *e = s->e;
    char tail[48];
    hf_error why;
    snprintf(tail, sizeof tail, "{%s}:s:doctor", tag);
    AUTO(mem_freep) char *channel = keys_reserved(e->prefix, tail);
    for (size_t i = 0; channel && i < sizeof rights / sizeof rights[0]; i++) {
        struct reply *rp = try_right(e, l, &rights[i], channel, NULL);
        if (!rp)
            continue;
        server_refusal(rp, &why);
        exam_tell(e, HF_GRADE_RISK, "rights", "allow it: see docs/acl.md",
                  "%s is not allowed: %s (%s)",
                  rights[i].name, rights[i].without, why.message);
        reply_free(rp);
    }
}

/* ---- one master ------------------------------------------------------------------------------ */

/* A slot of its where a lock can be tried; -1: none. A prefix with a tag has all locks in one. */
static int slot_to_try(const struct survey *s, int number, bool *ret_tagged)
{
    size_t begin, end;
    const char *prefix = s->e->prefix;
    *ret_tagged = slot_tag(prefix, strlen(prefix), &begin, &end);
    if (*ret_tagged) {
        unsigned slot = slot_of(prefix, strlen(prefix));
        return s->place[slot] == number ? (int)slot : -1;
    }
    for (int slot = 0; slot < SLOT_COUNT; slot++)
        if (s->place[slot] == number && !s->nodes.moving[slot])
            return slot;
    return -1;
}

static void note_clock(struct survey *s)
{
    const struct exam *e = s->e;
    if (!e->clock_known)
        return;
    if (!s->clocks || e->clock_ms < s->earliest_ms) {
        s->earliest_ms = e->clock_ms;
        memcpy(s->earliest, e->where, sizeof s->earliest);
    }
    if (!s->clocks || e->clock_ms > s->latest_ms) {
        s->latest_ms = e->clock_ms;
        memcpy(s->latest, e->where, sizeof s->latest);
    }
    s->clocks = true;
}

static void note_version(struct survey *s)
{
    struct exam *e = s->e;
    if (e->version_number && e->version_number < 70000)
        exam_tell(e, HF_GRADE_NOTE, "version", "use 7.0 or newer",
                  "%s has no sharded channels: each wake-up goes through all servers of the "
                  "cluster", e->version);
    if (!*s->version)
        memcpy(s->version, e->version, sizeof s->version);
    const char *other = *e->version && strcmp(e->version, s->version) != 0 ? e->version
                        : e->other_version;
    if (*other)
        snprintf(s->other_version, sizeof s->other_version, "%s", other);
}

static void note_settings(struct survey *s, struct link *l)
{
    char text[32];
    if (*exam_setting(s->e, l, "cluster-node-timeout", text, sizeof text)) {
        long long ms = strtoll(text, NULL, 10);
        s->node_timeout_ms = ms > s->node_timeout_ms ? ms : s->node_timeout_ms;
    }
    exam_setting(s->e, l, "cluster-require-full-coverage", text, sizeof text);
    s->full_coverage |= strcmp(text, "yes") == 0;
    exam_setting(s->e, l, "cluster-allow-reads-when-down", text, sizeof text);
    s->reads_when_down |= strcmp(text, "yes") == 0;
    s->alone += s->e->replicas_now == 0;
}

static hf_err exam_node(struct survey *s, int number, struct link *l)
{
    struct exam *e = s->e;
    bool down, tagged;
    char tag[SLOT_TEXT_SIZE];
    exam_tell(e, HF_GRADE_FINE, "cluster", NULL, "it has %u of %d slots", s->master[number].slots,
              SLOT_COUNT);
    exam_nodes(e, l, &s->nodes, &down);
    exam_server(e, l);
    note_clock(s);
    note_version(s);
    note_settings(s, l);
    hf_err code = exam_counters(e, s->t, number, l);
    int slot = slot_to_try(s, number, &tagged);
    if (slot < 0 || code)
        return code;
    slot_text((unsigned)slot, tag);
    exam_rights(s, l, tag);
    if (down)
        exam_tell(e, HF_GRADE_FAULT, "reach", "bring its nodes back; redis-cli --cluster check",
                  "it says that the cluster is down: nothing is granted");
    else
        exam_try(e, tagged ? NULL : tag);
    return HF_OK;
}

static hf_err exam_place(struct survey *s, int number)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    struct exam *e = s->e;
    const struct master *m = &s->master[number];
    hf_error err = { 0 };
    if (!l || link_init(l) < 0)
        return HF_ENOMEM;
    stream_address(m->host, e->where, sizeof e->where);
    int64_t begun = clock_now_ms();
    struct limit lim = { .at_ms = begun + e->timeout_ms };
    hf_err code = link_open(l, e->url, m->host, &lim, &err);
    if (!code)
        code = exam_ping(e, l, &err);
    s->masters++;
    if (!code) {
        s->up++;
        exam_tell(e, HF_GRADE_FINE, "reach", NULL, "connected and logged in within %lld ms",
                  (long long)(clock_now_ms() - begun));
        code = exam_node(s, number, l);
    } else if (code != HF_ENOMEM) {
        exam_tell(e, HF_GRADE_FAULT, code == HF_EAUTH ? "rights" : "reach",
                  "bring it back, or let a replica take its place",
                  "%s: no lock of its %u slots can be reached", err.message, m->slots);
    }
    link_clear(l);
    return code;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void tell_slots(struct survey *s)
{
    char list[200];
    unsigned n;
    for (unsigned slot = 0; slot < SLOT_COUNT; slot++)
        s->unserved[slot] = s->place[slot] < 0;
    exam_slots(s->unserved, 1, list, sizeof list, &n);
    if (n)
        exam_tell(s->e, HF_GRADE_FAULT, "reach",
                  "redis-cli --cluster fix, or CLUSTER ADDSLOTSRANGE",
                  "%u slot(s) belong to no server: %s. Their locks cannot be taken", n, list);
    else if (s->up == s->masters)
        exam_tell(s->e, HF_GRADE_FINE, "cluster", NULL, "%u master(s) serve all %d slots",
                  s->masters,
                  SLOT_COUNT);
    if (s->masters < 3)
        exam_tell(s->e, HF_GRADE_RISK, "cluster", "run three masters, on different machines",
                  "%u master(s): when one is gone there is no majority to elect its replica",
                  s->masters);
}

static void tell_settings(struct survey *s)
{
    struct exam *e = s->e;
    if (s->up && s->node_timeout_ms < 0)
        exam_tell(e, HF_GRADE_NOTE, "cluster", NULL,
                  "this user may not read cluster-node-timeout (CONFIG GET)");
    else if (s->up && 2 * s->node_timeout_ms + ELECTION_MS > GRACE_MS)
        exam_tell(e, HF_GRADE_RISK, "cluster",
                  "set cluster-node-timeout 5000, or a longer grace and ttl",
                  "cluster-node-timeout %lld: a failover can take twice as long, which is more "
                  "than the default grace of 15 s, so locks are lost in it", s->node_timeout_ms);
    else if (s->up)
        exam_tell(e, HF_GRADE_FINE, "cluster", NULL,
                  "cluster-node-timeout %lld: a failover is over within the default grace of 15 s",
                  s->node_timeout_ms);
    if (s->alone && s->full_coverage)
        exam_tell(e, HF_GRADE_NOTE, "cluster",
                  "add replicas, or set cluster-require-full-coverage no",
                  "cluster-require-full-coverage yes: when one of the %u master(s) without a "
                  "replica is gone, the others grant nothing either", s->alone);
    if (s->reads_when_down)
        exam_tell(e, HF_GRADE_NOTE, "cluster", "set cluster-allow-reads-when-down no",
                  "cluster-allow-reads-when-down yes: while the cluster is down, waiters are told "
                  "an error rather than made to wait on");
    if (e->url->nhosts == 1)
        exam_tell(e, HF_GRADE_NOTE, "cluster", "name several",
                  "the URL names one node: while that one is gone, no client can start");
}

static void tell_differences(struct survey *s)
{
    struct exam *e = s->e;
    int64_t apart = s->clocks ? s->latest_ms - s->earliest_ms : 0;
    if (apart > APART_MS)
        exam_tell(e, HF_GRADE_RISK, "clock", "let NTP keep them",
                  "the clock of %s is %.1f s ahead of that of %s: when a slot moves from one to "
                  "the other, shared locks end that much earlier or later, and numbers rest on the "
                  "counter alone (P4)", s->latest, (double)apart / 1000, s->earliest);
    else if (s->clocks)
        exam_tell(e, HF_GRADE_FINE, "clock", NULL, "the clocks of the masters are %.3f s apart",
                  (double)apart / 1000);
    if (*s->other_version)
        exam_tell(e, HF_GRADE_NOTE, "version", "end the upgrade",
                  "the servers are not all the same: %s, and %s", s->version, s->other_version);
}

static void find_masters(struct survey *s)
{
    for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
        const struct url_host *host = NULL;
        int number = cluster_place(topo_cluster(s->t), slot, &host);
        s->place[slot] = number < EXAM_NODES_MAX ? number : -1;
        if (s->place[slot] < 0)
            continue;
        s->master[number].host = host;
        s->master[number].slots++;
    }
}

hf_err exam_cluster(struct exam *e, struct topo *t, hf_error *reterr)
{
    AUTO(mem_freep) struct survey *s = mem_zalloc(sizeof *s);
    hf_error err = { 0 };
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    hf_err code = s ? topo_connect(t, &lim, &err) : HF_ENOMEM;
    if (code && code != HF_ENOMEM) {
        exam_tell(e, HF_GRADE_FAULT,
                  code == HF_EAUTH ? "rights" : code == HF_ECONFIG ? "cluster" : "reach", NULL,
                  "%s", err.message);
        return code;
    }
    if (s && !code) {
        s->e = e;
        s->t = t;
        s->node_timeout_ms = -1;
        find_masters(s);
    }
    for (int i = 0; i < EXAM_NODES_MAX && code != HF_ENOMEM; i++)
        if (s->master[i].slots)
            code = exam_place(s, i);
    if (code == HF_ENOMEM)
        return err_set(reterr, code, "out of memory");
    snprintf(e->where, sizeof e->where, "cluster");
    tell_slots(s);
    exam_nodes_tell(e, &s->nodes);
    tell_settings(s);
    tell_differences(s);
    return HF_OK;
}
