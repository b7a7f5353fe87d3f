/* SPDX-License-Identifier: MIT
 * fleet.c - one master, two replicas, three Sentinels, for tests.
 */
#include "harness/fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/keep.h"
#include "harness/t.h"

#define SWITCH_MS 60000

static struct server *start_node(const struct fleet_opts *o, struct server *master, int index)
{
    const char *args[30];
    int n = 0;
    if (master) {
        args[n++] = "--replicaof";
        args[n++] = server_host(master);
        args[n++] = keep_text("%d", server_port(master));
    }
    if (o->requirepass) {
        args[n++] = "--masterauth";
        args[n++] = o->requirepass;
    }
    if (o->tls) {
        args[n++] = "--tls-replication";
        args[n++] = "yes";
    }
    args[n++] = "--repl-backlog-size";
    args[n++] = "1mb";
    for (const char *const *a = o->args; a && *a; a++)
        args[n++] = *a;
    args[n] = NULL;
    const char **all = keep_block(malloc(sizeof args)); /* a restart needs them again */
    memcpy(all, args, sizeof args);
    struct server_opts so = { .aof = !o->memory_only, .tcp = !o->tls, .tls = o->tls,
                              .diskshim = o->diskshim, .requirepass = o->requirepass,
                              .args = all,
                              .place = o->place ? &o->place[index] : NULL };
    return server_start_opts(&so);
}

static const char *conf_of(const struct fleet_opts *o, const struct fleet *f, int index)
{
    char conf[4096];
    int n = snprintf(conf, sizeof conf,
                     "sentinel myid %040d\n"
                     "sentinel monitor m %s %d 2\n"
                     "sentinel down-after-milliseconds m %d\n"
                     "sentinel failover-timeout m 4000\n"
                     "sentinel parallel-syncs m 2\n",
                     index + 1, server_host(f->node[0]), server_port(f->node[0]),
                     o->down_after_ms ? o->down_after_ms : 400);
    if (o->requirepass)
        n += snprintf(conf + n, sizeof conf - (size_t)n, "sentinel auth-pass m %s\n",
                      o->requirepass);
    if (o->sentinel_pass)
        n += snprintf(conf + n, sizeof conf - (size_t)n, "sentinel sentinel-pass %s\n",
                      o->sentinel_pass);
    if (o->tls)
        n += snprintf(conf + n, sizeof conf - (size_t)n, "tls-replication yes\n");
    for (int i = 1; i < FLEET; i++)
        n += snprintf(conf + n, sizeof conf - (size_t)n, "sentinel known-replica m %s %d\n",
                      server_host(f->node[i]), server_port(f->node[i]));
    for (int i = 0; i < FLEET; i++)
        if (i != index && f->sentinel[i])
            n += snprintf(conf + n, sizeof conf - (size_t)n,
                          "sentinel known-sentinel m %s %d %040d\n",
                          server_host(f->sentinel[i]), server_port(f->sentinel[i]), i + 1);
    return keep_text("%s", conf);
}

/* Each has to know the others' ports, which are known only when all have started once. */
static void start_sentinels(const struct fleet_opts *o, struct fleet *f)
{
    struct server_opts so = { .tcp = !o->tls, .tls = o->tls, .requirepass = o->sentinel_pass,
                              .sentinel = "" };
    for (int i = 0; i < FLEET; i++) {
        so.place = o->place ? &o->place[FLEET + i] : NULL;
        f->sentinel[i] = server_start_opts(&so);
    }
    for (int i = 0; i < FLEET; i++)
        server_set_sentinel(f->sentinel[i], conf_of(o, f, i));
}

static int number_of(struct server *sentinel, const char *field)
{
    const char *all = server_ask(sentinel, "SENTINEL MASTER m");
    char want[64];
    snprintf(want, sizeof want, "\n%s\n", field);
    const char *at = strstr(all, want);
    return at ? atoi(at + strlen(field) + 2) : -1;
}

struct fleet *fleet_start(const struct fleet_opts *opts)
{
    struct fleet_opts o = opts ? *opts : (struct fleet_opts){ 0 };
    struct fleet *f = keep_block(calloc(1, sizeof *f));
    for (int i = 0; i < FLEET; i++)
        f->node[i] = start_node(&o, i ? f->node[0] : NULL, i);
    fleet_wait_replicas(f, FLEET - 1);
    if (o.no_sentinels) {
        f->url = server_tcp_url(f->node[0]);
        return f;
    }
    start_sentinels(&o, f);
    f->hosts = keep_text("%s:%d,%s:%d,%s:%d", server_host(f->sentinel[0]),
                         server_port(f->sentinel[0]), server_host(f->sentinel[1]),
                         server_port(f->sentinel[1]), server_host(f->sentinel[2]),
                         server_port(f->sentinel[2]));
    f->url = o.tls ? keep_text("rediss+sentinel://%s/m?cacert=%s/tls/ca.crt", f->hosts, t_dir())
                   : keep_text("redis+sentinel://%s/m", f->hosts);
    for (int i = 0; i < FLEET; i++)
        CHECK_EVENTUALLY(number_of(f->sentinel[i], "num-other-sentinels") == FLEET - 1
                             && number_of(f->sentinel[i], "num-slaves") == FLEET - 1, 15000);
    return f;
}

struct server *fleet_named_by(struct fleet *f, int sentinel)
{
    const char *at = server_ask(f->sentinel[sentinel], "SENTINEL GET-MASTER-ADDR-BY-NAME m");
    const char *port = at ? strchr(at, '\n') : NULL;
    CHECK(port);
    for (int i = 0; i < FLEET; i++)
        if (server_port(f->node[i]) == atoi(port + 1))
            return f->node[i];
    return NULL; /* not one of ours: a lie */
}

struct server *fleet_master(struct fleet *f)
{
    for (int i = 0; i < FLEET; i++) {
        struct server *s = server_pid(f->sentinel[i]) ? fleet_named_by(f, i) : NULL;
        if (s)
            return s;
    }
    FAIL("no Sentinel names a master");
}

struct server *fleet_switched(struct fleet *f, struct server *old)
{
    for (int n = 0; n < FLEET; n++) {
        int votes = 0;
        for (int i = 0; i < FLEET; i++)
            votes += server_pid(f->sentinel[i]) && fleet_named_by(f, i) == f->node[n];
        if (votes >= 2 && f->node[n] != old && server_pid(f->node[n])
            && strncmp(server_ask(f->node[n], "ROLE"), "master", 6) == 0)
            return f->node[n];
    }
    return NULL;
}

struct server *fleet_wait_switch(struct fleet *f, struct server *old)
{
    int64_t begun = t_now_ms();
    while (t_calm_ms(begun) < SWITCH_MS) {
        struct server *now = fleet_switched(f, old);
        if (now)
            return now;
        t_sleep_ms(20);
    }
    FAIL("no failover within %d ms", SWITCH_MS);
}

void fleet_wait_replicas(struct fleet *f, int n)
{
    struct server *m = f->sentinel[0] ? fleet_master(f) : f->node[0];
    const char *want = keep_text("%d", n);
    CHECK_EVENTUALLY(strcmp(server_info(m, "connected_slaves"), want) == 0, 20000);
    /* "online" is said before anything is streamed: only what they have acknowledged counts. */
    server_ask(m, "SET fleet:here 1");
    server_ask(m, "DEL fleet:here");
    CHECK_INT(server_int(m, "WAIT %d 20000", n), n);
}
