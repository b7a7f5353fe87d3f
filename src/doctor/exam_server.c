/* SPDX-License-Identifier: MIT
 * exam_server.c - is this a place that keeps the promises? Each server for itself.
 */
#include "doctor/exam.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/sentinels.h"
#include "topo/keys.h"

#define REPLICAS_MAX 16

/* ---- INFO and CONFIG ------------------------------------------------------------------------- */

struct reply *exam_info(struct exam *e, struct link *l, const char *section)
{
    struct reply *rp = exam_ask(e, l, (const char *[]){ "INFO", section }, 2, NULL);
    return rp && rp->type == REPLY_BULK ? rp : reply_free(rp);
}

const char *exam_field(const struct reply *info, const char *name, char *buf, size_t size)
{
    size_t len = strlen(name);
    buf[0] = '\0';
    for (const char *p = info ? info->str : NULL; p; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, name, len) == 0 && p[len] == ':') {
            snprintf(buf, size, "%.*s", (int)strcspn(p + len + 1, "\r\n"), p + len + 1);
            break;
        }
    }
    return buf;
}

static long long number(const struct reply *info, const char *name)
{
    char text[32];
    return strtoll(exam_field(info, name, text, sizeof text), NULL, 10);
}

const char *exam_setting(struct exam *e, struct link *l, const char *name, char *buf, size_t size)
{
    struct reply *rp = exam_ask(e, l, (const char *[]){ "CONFIG", "GET", name }, 3, NULL);
    buf[0] = '\0';
    if (rp && rp->type == REPLY_ARRAY && rp->len == 2 && rp->item[1]->type == REPLY_BULK)
        snprintf(buf, size, "%s", rp->item[1]->str);
    reply_free(rp);
    return buf;
}

/* ---- one thing each -------------------------------------------------------------------------- */

/* The oldest of which docs/testing.md tells what was run. */
#define OLDEST 60200

/* What is known about versions. Distributions mend without changing the number: so they are
 * notes. */
static const struct flaw {
    const char *program;
    int         from, before; /* major * 10000 + minor * 100 + patch */
    const char *text;
} flaws[] = {
    { "redis", 0, 60220, "CVE-2025-49844 (Lua, remote code) is fixed in 6.2.20" },
    { "redis", 70000, 70211, "CVE-2025-49844 (Lua, remote code) is fixed in 7.2.11" },
    { "redis", 70400, 70406, "CVE-2025-49844 (Lua, remote code) is fixed in 7.4.6" },
    { "redis", 80000, 80004, "CVE-2025-49844 (Lua, remote code) is fixed in 8.0.4" },
    { "redis", 80200, 80202, "CVE-2025-49844 (Lua, remote code) is fixed in 8.2.2" },
    { "valkey", 70200, 70212, "CVE-2025-49844 and CVE-2025-67733 are fixed in 7.2.12" },
    { "valkey", 80000, 80007, "CVE-2025-49844 and CVE-2025-67733 are fixed in 8.0.7" },
    { "valkey", 80100, 80106, "CVE-2025-49844 and CVE-2025-67733 are fixed in 8.1.6" },
    { "valkey", 90000, 90003, "CVE-2025-67733 (forged replies) is fixed in 9.0.3" },
};

/* "redis 7.0.15", and that as one number; 0: it is not told. */
static int version_of(const struct reply *info, const char **ret_program, char *text, size_t size)
{
    char valkey[32], redis[32];
    int major = 0, minor = 0, patch = 0;
    bool is_valkey = *exam_field(info, "valkey_version", valkey, sizeof valkey) != '\0';
    const char *version = is_valkey ? valkey
                                    : exam_field(info, "redis_version", redis, sizeof redis);
    bool known = sscanf(version, "%d.%d.%d", &major, &minor, &patch) >= 2;
    *ret_program = is_valkey ? "valkey" : "redis";
    snprintf(text, size, "%s%s%s", known ? *ret_program : "", known ? " " : "",
             known ? version : "");
    return major * 10000 + minor * 100 + patch;
}

static void exam_version(struct exam *e, const struct reply *info)
{
    const char *program;
    int n = version_of(info, &program, e->version, sizeof e->version);
    e->version_number = n;
    if (!*e->version) {
        exam_tell(e, HF_GRADE_RISK, "version", "allow INFO: see docs/acl.md",
                  "INFO is not allowed to this user: most of what follows cannot be told, and a "
                  "new life of the server cannot be noticed (P3, P4)");
        return;
    }
    if (n < OLDEST) {
        exam_tell(e, HF_GRADE_RISK, "version", "use 6.2 or newer",
                  "%s is older than 6.2, the oldest that is tested: what it does is not known",
                  e->version);
        return;
    }
    for (size_t i = 0; i < sizeof flaws / sizeof flaws[0]; i++) {
        if (strcmp(flaws[i].program, program) == 0 && n >= flaws[i].from && n < flaws[i].before) {
            exam_tell(e, HF_GRADE_NOTE, "version", "see whether your distribution has fixed it",
                      "%s: %s", e->version, flaws[i].text);
            return;
        }
    }
    exam_tell(e, HF_GRADE_FINE, "version", NULL, "%s", e->version);
}

/* Of a replica: only whether it is another one. */
static void note_version(struct exam *e, struct link *l)
{
    const char *program;
    char text[sizeof e->version];
    struct reply *info = exam_info(e, l, "server");
    version_of(info, &program, text, sizeof text);
    if (*text && *e->version && strcmp(text, e->version) != 0)
        memcpy(e->other_version, text, sizeof text);
    reply_free(info);
}

static void exam_persistence(struct exam *e, struct link *l)
{
    char fsync[32], status[16];
    struct reply *info = exam_info(e, l, "persistence");
    if (!info)
        return;
    exam_setting(e, l, "appendfsync", fsync, sizeof fsync);
    bool aof = number(info, "aof_enabled") == 1;
    if (!aof && e->url->topology == URL_QUORUM && e->url->quarantine_ms != 0)
        exam_tell(e, HF_GRADE_NOTE, "persistence", "set appendonly yes",
                  "nothing is written to disk as it happens (appendonly no): after a restart it "
                  "does not vote before the quarantine is over");
    else if (!aof)
        exam_tell(e, HF_GRADE_RISK, "persistence", "set appendonly yes",
                  "nothing is written to disk as it happens (appendonly no): a restart forgets "
                  "locks that are held (P1), and numbers rest on its clock alone (P4)");
    else if (strcmp(exam_field(info, "aof_last_write_status", status, sizeof status), "ok") != 0)
        exam_tell(e, HF_GRADE_FAULT, "persistence", "look at its log and its disk",
                  "the last write to the append-only file failed");
    else if (e->url->fsync > 0 && strcmp(fsync, "no") == 0)
        exam_tell(e, HF_GRADE_FAULT, "persistence", "set appendfsync always",
                  "appendfsync no: it never knows what is on disk, so with fsync=1 no lock is "
                  "granted");
    else if (e->url->fsync > 0 && strcmp(fsync, "everysec") == 0)
        exam_tell(e, HF_GRADE_RISK, "persistence", "set appendfsync always",
                  "appendfsync everysec: with fsync=1 a grant takes up to a second, and Redis 7.4 "
                  "and Valkey 8 say too early that it is on disk");
    else if (strcmp(fsync, "no") == 0 && e->url->topology != URL_EMBEDDED)
        exam_tell(e, HF_GRADE_NOTE, "persistence", "set appendfsync everysec, or always",
                  "appendonly yes, appendfsync no: a power cut can cost the last half minute (P1, "
                  "P4)");
    else if (strcmp(fsync, "everysec") == 0)
        exam_tell(e, HF_GRADE_NOTE, "persistence", "appendfsync always, if that matters",
                  "appendonly yes, appendfsync everysec: a power cut, or a slow disk and kill -9, "
                  "can cost the last two seconds");
    else
        exam_tell(e, HF_GRADE_FINE, "persistence", NULL, "appendonly yes%s%s",
                  *fsync ? ", appendfsync " : "", fsync);
    reply_free(info);
}

static void exam_memory(struct exam *e, struct link *l)
{
    char policy[40];
    struct reply *info = exam_info(e, l, "memory");
    if (!info)
        return;
    long long limit = number(info, "maxmemory"), used = number(info, "used_memory");
    exam_field(info, "maxmemory_policy", policy, sizeof policy);
    bool evicts = strcmp(policy, "noeviction") != 0;
    if (evicts && limit > 0)
        exam_tell(e, HF_GRADE_RISK, "memory", "set maxmemory-policy noeviction",
                  "maxmemory-policy %s: when memory is full, locks are what it throws away first "
                  "(P1)", policy);
    else if (evicts)
        exam_tell(e, HF_GRADE_NOTE, "memory", "set maxmemory-policy noeviction",
                  "maxmemory-policy %s would throw locks away if maxmemory were set", policy);
    else if (limit > 0 && used > limit / 10 * 9)
        exam_tell(e, HF_GRADE_RISK, "memory", "raise maxmemory, or find out what fills it",
                  "more than 90 %% of maxmemory are used: when it is full no lock is granted");
    else
        exam_tell(e, HF_GRADE_FINE, "memory", NULL, "maxmemory-policy noeviction");
    reply_free(info);
}

static int64_t wall_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The server's wall clock less ours. */
static bool clock_of(struct exam *e, struct link *l, int64_t *ret_ms)
{
    int64_t before = wall_ms();
    struct reply *rp = exam_ask(e, l, (const char *[]){ "TIME" }, 1, NULL);
    int64_t after = wall_ms();
    bool ok = rp && rp->type == REPLY_ARRAY && rp->len == 2 && rp->item[0]->type == REPLY_BULK
              && rp->item[1]->type == REPLY_BULK;
    if (ok)
        *ret_ms = strtoll(rp->item[0]->str, NULL, 10) * 1000
                  + strtoll(rp->item[1]->str, NULL, 10) / 1000
                  - (before + after) / 2;
    reply_free(rp);
    return ok;
}

static void exam_clock(struct exam *e, struct link *l)
{
    e->clock_known = clock_of(e, l, &e->clock_ms);
    if (!e->clock_known)
        return;
    bool far = e->clock_ms > 5000 || e->clock_ms < -5000;
    exam_tell(e, far ? HF_GRADE_NOTE : HF_GRADE_FINE, "clock", far ? "let NTP keep them" : NULL,
              "its clock is %+.3f s from ours%s", (double)e->clock_ms / 1000,
              far ? ": no lease depends on that, but numbers after a loss of data rest on it" : "");
}

bool exam_is_counter(const char *text)
{
    const char *digits = text + (*text == '-');
    return *digits && strspn(digits, "0123456789") == strlen(digits)
           && strtod(text, NULL) < 9007199254740000.0;
}

int64_t exam_ahead_ms(const struct exam *e, const char *text)
{
    return strtoll(text, NULL, 10) / 1000 - (wall_ms() + e->clock_ms);
}

/* C6: the type and the range of the counter. */
static void exam_fence(struct exam *e, struct link *l)
{
    AUTO(mem_freep) char *key = keys_reserved(e->prefix, "fence");
    if (!key)
        return;
    bool refused;
    struct reply *type = exam_ask(e, l, (const char *[]){ "TYPE", key }, 2, NULL);
    bool wrong = type && type->type == REPLY_STATUS && strcmp(type->str, "string") != 0
                 && strcmp(type->str, "none") != 0;
    bool there = type && type->type == REPLY_STATUS && strcmp(type->str, "none") != 0;
    reply_free(type);
    struct reply *rp = wrong ? NULL : exam_ask(e, l, (const char *[]){ "GETRANGE", key, "0", "31" },
                                               4, &refused);
    bool number_ok = rp && rp->type == REPLY_BULK
        && (rp->len == 0 ? !there : exam_is_counter(rp->str));
    int64_t ahead = number_ok && rp->len ? exam_ahead_ms(e, rp->str) : 0;
    if (wrong || (rp && !number_ok))
        exam_tell(e, HF_GRADE_FAULT, "fence", "holdfast doctor --repair-fence puts it aside",
                  "the fencing counter %s holds something else: no lock can be granted", key);
    else if (!rp)
        exam_tell(e, HF_GRADE_NOTE, "fence", NULL,
                  "the fencing counter cannot be read by this user");
    else if (rp->len == 0)
        exam_tell(e, HF_GRADE_FINE, "fence", NULL, "no number was given under this prefix yet");
    else if (ahead > 120000)
        exam_tell(e, HF_GRADE_RISK, "fence", "do not lose the data; let NTP keep the clock",
                  "the newest fencing number, %s, is %lld s ahead of the server's clock, which was "
                  "set back: should the counter be lost, numbers would repeat (P4)", rp->str,
                  (long long)(ahead / 1000));
    else
        exam_tell(e, HF_GRADE_FINE, "fence", NULL, "the newest fencing number is %s", rp->str);
    reply_free(rp);
}

/* ---- replicas -------------------------------------------------------------------------------- */

static void exam_replica(struct exam *e, const char *host, int port)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    char saved[sizeof e->where];
    struct url_host at = { .host = (char *)host, .port = port };
    hf_error err = { 0 };
    int64_t clock;
    if (!l || link_init(l) < 0)
        return;
    memcpy(saved, e->where, sizeof saved);
    snprintf(e->where, sizeof e->where, "replica %s:%d", host, port);
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    if (link_open(l, e->url, &at, &lim, &err)) {
        exam_tell(e, HF_GRADE_RISK, "reach", "a client must be able to reach it after a failover",
                  "%s", err.message);
    } else {
        note_version(e, l);
        exam_persistence(e, l);
        exam_memory(e, l);
        int64_t off = clock_of(e, l, &clock) && e->clock_known ? clock - e->clock_ms : 0;
        if (off > 10000 || off < -10000)
            exam_tell(e, HF_GRADE_RISK, "clock", "let NTP keep them",
                      "its clock is %+.1f s from the master's: leases would end that much %s after "
                      "a failover", (double)off / 1000, off > 0 ? "earlier" : "later");
    }
    link_clear(l);
    memcpy(e->where, saved, sizeof saved);
}

/* "ip=...,port=...,state=online,offset=...,lag=0" */
static void exam_line(struct exam *e, const char *line)
{
    char host[200] = "", state[32] = "";
    int port = 0;
    long long lag = -1;
    const char *p;
    sscanf(line, "ip=%199[^,],port=%d,state=%31[^,]", host, &port, state);
    if (!url_is_host(host, strlen(host)))
        snprintf(host, sizeof host, "?"); /* whatever it is, it is not shown */
    if ((p = strstr(line, "lag=")))
        lag = strtoll(p + 4, NULL, 10);
    if (strcmp(state, "online") != 0)
        exam_tell(e, HF_GRADE_RISK, "replicas", "wait, or look at its log",
                  "the replica %s:%d is not in step (%s)", host, port, state);
    else if (lag > 2)
        exam_tell(e, HF_GRADE_RISK, "replicas", "look at it and at the way to it",
                  "the replica %s:%d was last heard %lld s ago", host, port, lag);
    else
        exam_tell(e, HF_GRADE_FINE, "replicas", NULL, "the replica %s:%d is in step", host, port);
    if (*host != '?' && port > 0)
        exam_replica(e, host, port);
}

/* What an old master may go on doing that nobody follows any more. */
static void exam_min_replicas(struct exam *e, struct link *l, long long replicas)
{
    char least[16], lag[16];
    bool sentinel = e->url->topology == URL_SENTINEL, cluster = e->url->topology == URL_CLUSTER;
    exam_setting(e, l, "min-replicas-to-write", least, sizeof least);
    exam_setting(e, l, "min-replicas-max-lag", lag, sizeof lag);
    if (!sentinel && replicas == 0)
        return;
    if (!*least)
        exam_tell(e, HF_GRADE_NOTE, "replicas", NULL,
                  "this user may not read min-replicas-to-write (CONFIG GET)");
    else if (atoi(least) == 0 && replicas >= 2)
        exam_tell(e, HF_GRADE_RISK, "replicas",
                  "set min-replicas-to-write 1 and min-replicas-max-lag 1",
                  cluster ? "min-replicas-to-write 0: a master that is cut off from the others "
                            "goes on granting locks for cluster-node-timeout, which the new one "
                            "does not know (P1)"
                          : "min-replicas-to-write 0: a master that is cut off from the others "
                            "goes on granting locks while a new one does, too (P1)");
    else if (atoi(least) == 0)
        exam_tell(e, HF_GRADE_NOTE, "replicas",
                  "add a second replica, then set min-replicas-to-write 1",
                  "min-replicas-to-write 0: a master that is cut off goes on granting; with a "
                  "single replica the setting would stop the new master as well");
    else
        exam_tell(e, HF_GRADE_FINE, "replicas", NULL,
                  "min-replicas-to-write %s, min-replicas-max-lag %s",
                  least, lag);
}

static void exam_replicas(struct exam *e, struct link *l)
{
    struct reply *info = exam_info(e, l, "replication");
    e->replicas_now = info ? number(info, "connected_slaves") : -1;
    if (!info)
        return;
    char role[16], name[16], line[300];
    long long n = e->replicas_now;
    int wanted = e->url->replicas;
    if (strcmp(exam_field(info, "role", role, sizeof role), "master") != 0)
        exam_tell(e, HF_GRADE_FAULT, "role", "connect to its master",
                  "it is a replica: no lock can be taken");
    else
        exam_tell(e, HF_GRADE_FINE, "role", NULL, "it is a master, followed by %lld replica(s)", n);
    bool cluster = e->url->topology == URL_CLUSTER;
    if (e->replicas_known > n)
        exam_tell(e, HF_GRADE_RISK, "replicas", "bring them back",
                  cluster ? "the cluster knows %d replica(s) of it, and %lld are connected"
                          : "the Sentinels know %d replicas, and %lld are connected",
                  e->replicas_known, n);
    if ((e->url->topology == URL_SENTINEL || cluster) && n == 0)
        exam_tell(e, HF_GRADE_RISK, "replicas", "add replicas",
                  "there is no replica to fail over to");
    if (wanted > 0 && wanted > n)
        exam_tell(e, HF_GRADE_FAULT, "replicas", "bring them back, or ask for fewer",
                  "replicas=%d is asked for, and %lld are there: no lock can be granted",
                  wanted, n);
    exam_min_replicas(e, l, n);
    for (int i = 0; i < n && i < REPLICAS_MAX; i++) {
        snprintf(name, sizeof name, "slave%d", i);
        if (*exam_field(info, name, line, sizeof line))
            exam_line(e, line);
    }
    reply_free(info);
}

/* A Sentinel calls itself nobody's master, and keeps nothing. */
static bool exam_sentinel(struct exam *e, const struct reply *info)
{
    char redis[16] = "", valkey[16] = "";
    if (!info
        || (strcmp(exam_field(info, "redis_mode", redis, sizeof redis), "sentinel") != 0
            && strcmp(exam_field(info, "server_mode", valkey, sizeof valkey), "sentinel") != 0))
        return false;
    e->misplaced = true;
    exam_tell(e, HF_GRADE_FAULT, "url", "use redis+sentinel://HOST,HOST,.../MASTER",
              "it is a Sentinel: no lock can be taken");
    return true;
}

/* What belongs to a cluster sends all but its own keys elsewhere. */
static bool exam_kind(struct exam *e, struct link *l)
{
    struct reply *info = exam_info(e, l, "cluster");
    bool cluster = info && number(info, "cluster_enabled") == 1;
    reply_free(info);
    bool fits = !cluster || e->url->topology == URL_CLUSTER;
    e->misplaced |= !fits;
    if (!fits)
        exam_tell(e, HF_GRADE_FAULT, "cluster",
                  "use redis+cluster://, or rediss+cluster:// with TLS",
                  "it is part of a cluster, which this kind of URL does not reach: no lock can be "
                  "taken");
    return fits;
}

void exam_server(struct exam *e, struct link *l)
{
    struct reply *info = exam_info(e, l, "server");
    exam_version(e, info);
    bool sentinel = exam_sentinel(e, info);
    reply_free(info);
    e->other_version[0] = '\0';
    if (sentinel)
        return;
    bool fits = exam_kind(e, l);
    exam_persistence(e, l);
    exam_memory(e, l);
    exam_clock(e, l);
    if (fits && e->url->topology != URL_CLUSTER) /* there each slot has one */
        exam_fence(e, l);
    exam_users(e, l);
    exam_replicas(e, l);
}
