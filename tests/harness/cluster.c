/* SPDX-License-Identifier: MIT
 * cluster.c - a Redis Cluster of three masters with a replica each, for tests.
 *
 * A master that starts refuses everything for two seconds, a replica does not. So the file from
 * which a node learns the others makes masters of those that are to be the replicas; as soon as the
 * nodes are connected each replica takes over, which nobody has to vote on.
 */
#include "harness/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/keep.h"
#include "harness/sockets.h"
#include "harness/t.h"

/* Ports below those that the system gives to whoever connects: a dead node finds its own free when
 * it comes back. The bus is BUS above. */
enum { PORT_FIRST = 11000, PORTS = 10000, BUS = 10000, ARGS_MAX = 128, WAIT_MS = 60000 };

/* ---- what a node sees ---- */

struct view {
    int role[CLUSTER_MAX];   /* 0: not known; 'm'; 's' */
    int master[CLUSTER_MAX]; /* of a replica: whose; -1 */
    int linked[CLUSTER_MAX];
    long long epoch[CLUSTER_MAX];
    short owner[CLUSTER_SLOTS]; /* -1: nobody, or nobody of ours */
};

static int index_of(const struct cluster *c, const char *id)
{
    for (int i = 0; i < c->nodes; i++)
        if (strncmp(c->id[i], id, 40) == 0)
            return i;
    return -1;
}

static int number_of(const struct cluster *c, const struct server *s)
{
    for (int i = 0; i < c->nodes; i++)
        if (c->node[i] == s)
            return i;
    FAIL("no node of this cluster");
}

static int can_be_asked(const struct server *s)
{
    return s && server_pid(s) && !server_is_frozen(s);
}

/* ID ADDRESS FLAGS MASTER PING PONG EPOCH LINK SLOTS... */
static void read_line(const struct cluster *c, char *line, struct view *v)
{
    char *word, *rest = line;
    int i = index_of(c, line);
    for (int n = 0; i >= 0 && (word = strsep(&rest, " ")); n++) {
        int first, last;
        if (n == 2)
            v->role[i] = strstr(word, "master") ? 'm' : 's';
        else if (n == 3)
            v->master[i] = index_of(c, word);
        else if (n == 6)
            v->epoch[i] = atoll(word);
        else if (n == 7)
            v->linked[i] = strcmp(word, "connected") == 0;
        else if (n >= 8 && *word != '[') { /* [ is one that comes or goes */
            int got = sscanf(word, "%d-%d", &first, &last);
            CHECK(got >= 1);
            for (int slot = first; slot <= (got == 2 ? last : first); slot++)
                v->owner[slot] = (short)i;
        }
    }
}

static void look(const struct cluster *c, struct server *s, struct view *v)
{
    char *line, *all = strdup(server_ask(s, "CLUSTER NODES")), *rest = all;
    memset(v, 0, sizeof *v);
    memset(v->owner, -1, sizeof v->owner);
    while ((line = strsep(&rest, "\n")))
        if (*line)
            read_line(c, line, v);
    free(all);
}

static int is_ok(struct server *s)
{
    return strstr(server_ask(s, "CLUSTER INFO"), "cluster_state:ok") != NULL;
}

/* ---- starting ---- */

/* Not t_random(): two programs that repeat a seed at the same time would want the same. */
static void pick_ports(const struct cluster *c, int *ret_port)
{
    static unsigned at;
    at += (unsigned)getpid() * 7919 + (unsigned)(t_now_ns() / 1000);
    for (int i = 0; i < c->nodes; at++) {
        int port = PORT_FIRST + (int)(at % PORTS);
        if (socket_port_is_free(port) && socket_port_is_free(port + BUS))
            ret_port[i++] = port;
    }
}

/* The first master follows the node that is to follow it: see the top. */
static const char *nodes_conf(const struct cluster *c, int self, const int *port)
{
    char *all = calloc(1, 4096);
    size_t n = 0;
    int shards = server_knows("waitaof"); /* as old as shards are */
    CHECK(all);
    keep_block(all);
    for (int i = 0; i < c->nodes; i++) {
        int share = i % c->masters, leads = c->opts.no_replicas || i >= c->masters;
        n += (size_t)snprintf(all + n, 4096 - n, "%s %s:%d@%d", c->id[i],
                              c->opts.place ? c->opts.place[i].host : "127.0.0.1", port[i],
                              port[i] + BUS);
        if (shards) /* since 7.2: a master follows who took its slots only within one shard */
            n += (size_t)snprintf(all + n, 4096 - n, ",,shard-id=%s", c->id[share]);
        n += (size_t)snprintf(all + n, 4096 - n, " %s%s %s 0 0 %d connected",
                              i == self ? "myself," : "", leads ? "master" : "slave",
                              leads ? "-" : c->id[i + c->masters], share + 1);
        if (leads)
            n += (size_t)snprintf(all + n, 4096 - n, " %d-%d", share * CLUSTER_SLOTS / c->masters,
                                  (share + 1) * CLUSTER_SLOTS / c->masters - 1);
        n += (size_t)snprintf(all + n, 4096 - n, "\n");
    }
    snprintf(all + n, 4096 - n, "vars currentEpoch %d lastVoteEpoch 0\n", c->masters);
    return all;
}

static const char *const *arguments(const struct cluster_opts *o)
{
    const char **args = keep_block(calloc(ARGS_MAX, sizeof *args));
    char *word, *rest;
    int n = 0;
    args[n++] = "--cluster-node-timeout";
    args[n++] = keep_text("%d", o->node_timeout_ms ? o->node_timeout_ms : 1500);
    if (!o->place) {
        args[n++] = "--cluster-announce-ip";
        args[n++] = "127.0.0.1";
    }
    args[n++] = "--cluster-allow-replica-migration"; /* a master without slots stays one */
    args[n++] = "no";
    args[n++] = "--cluster-replica-validity-factor"; /* an old replica is better than none */
    args[n++] = "0";
    args[n++] = "--repl-backlog-size";
    args[n++] = "1mb";
    if (o->requirepass) {
        args[n++] = "--masterauth";
        args[n++] = o->requirepass;
    }
    if (o->user) {
        args[n++] = "--user";
        for (rest = keep_text("%s", o->user); (word = strsep(&rest, " ")); args[n++] = word)
            CHECK(n < ARGS_MAX - 8);
    }
    if (o->tls) {
        args[n++] = "--tls-cluster";
        args[n++] = "yes";
        args[n++] = "--tls-replication";
        args[n++] = "yes";
    }
    for (const char *const *a = o->args; a && *a; a++)
        args[n++] = *a;
    return args;
}

/* 0, or -1 when one of them found its port taken. */
static int launch(struct cluster *c, const char *const *args)
{
    int port[CLUSTER_MAX] = { 0 }, ended = 0;
    pick_ports(c, port);
    for (int i = 0; i < c->nodes; i++) {
        struct server_opts so = { .aof = !c->opts.memory_only, .tcp = !c->opts.tls,
                                  .tls = c->opts.tls, .requirepass = c->opts.requirepass,
                                  .clockshim = c->opts.clockshim, .args = args, .port = port[i],
                                  .no_wait = 1, .cluster = nodes_conf(c, i, port),
                                  .place = c->opts.place ? &c->opts.place[i] : NULL };
        c->node[i] = server_start_opts(&so);
    }
    for (int i = 0; i < c->nodes; i++)
        ended |= server_await(c->node[i]);
    for (int i = 0; ended && i < c->nodes; i++)
        server_kill(c->node[i]);
    return ended;
}

static int all_linked(struct cluster *c, struct server *s)
{
    struct view v;
    look(c, s, &v);
    for (int i = 0; i < c->nodes; i++)
        if (!v.linked[i])
            return 0;
    return 1;
}

static long long epoch_seen(struct cluster *c, struct server *s, int of)
{
    struct view v;
    look(c, s, &v);
    return v.epoch[of];
}

static void take_over(struct cluster *c)
{
    for (int i = 0; i < c->nodes; i++)
        CHECK_EVENTUALLY(all_linked(c, c->node[i]), WAIT_MS);
    for (int i = 0; i < c->masters; i++) { /* two with one epoch would fight about a moving slot;
                                              one that was deposed meanwhile has a higher one */
        CHECK_EVENTUALLY(is_ok(c->node[i]), WAIT_MS);
        CHECK_STR(server_ask(c->node[i], "CLUSTER FAILOVER TAKEOVER"), "OK");
        for (int k = 0; k < c->nodes; k++)
            CHECK_EVENTUALLY(epoch_seen(c, c->node[k], i) >= c->masters + i + 1, WAIT_MS);
    }
    for (int i = 0; i < c->masters; i++)
        CHECK_EVENTUALLY(cluster_replica(c, c->node[i]) == c->node[i + c->masters], WAIT_MS);
}

struct cluster *cluster_start(const struct cluster_opts *opts)
{
    struct cluster *c = keep_block(calloc(1, sizeof *c));
    const char *hosts = "";
    if (opts)
        c->opts = *opts;
    c->masters = c->opts.masters ? c->opts.masters : 3;
    c->nodes = c->masters * (c->opts.no_replicas ? 1 : 2);
    CHECK_RANGE(c->nodes, 1, CLUSTER_MAX);
    for (int i = 0; i < c->nodes; i++) /* nobody of an earlier cluster is taken for one of ours */
        snprintf(c->id[i], sizeof c->id[i], "%08x%016llx%016x", (unsigned)getpid(),
                 (unsigned long long)t_now_ns(), (unsigned)i + 1);
    const char *const *args = arguments(&c->opts);
    for (int try = 0; launch(c, args) != 0; try++)
        if (try == 5)
            FAIL("no free ports, or the servers end at once: see their logs");
    for (int i = 0; i < c->masters; i++)
        hosts = keep_text("%s%s%s:%d", hosts, i ? "," : "", server_host(c->node[i]),
                          server_port(c->node[i]));
    c->hosts = hosts;
    c->url = c->opts.tls ? keep_text("rediss+cluster://%s?cacert=%s/tls/ca.crt", hosts, t_dir())
                         : keep_text("redis+cluster://%s", hosts);
    if (!c->opts.no_replicas)
        take_over(c);
    cluster_wait(c);
    return c;
}

/* ---- who has what ---- */

int cluster_slot(struct cluster *c, const char *key)
{
    for (int i = 0; i < c->nodes; i++)
        if (can_be_asked(c->node[i]))
            return (int)server_int(c->node[i], "CLUSTER KEYSLOT %s", key);
    FAIL("no node can be asked");
}

int cluster_slot_of(struct cluster *c, const char *name)
{
    char key[64];
    CHECK((size_t)snprintf(key, sizeof key, "lock:%s", name) < sizeof key);
    return cluster_slot(c, key);
}

const char *cluster_id(const struct cluster *c, const struct server *s)
{
    return c->id[number_of(c, s)];
}

struct server *cluster_owner(struct cluster *c, int slot)
{
    struct server *best = NULL;
    long long epoch = -1;
    for (int i = 0; i < c->nodes; i++) {
        struct view v;
        if (!can_be_asked(c->node[i]))
            continue;
        look(c, c->node[i], &v);
        if (v.role[i] == 'm' && v.owner[slot] == i && v.epoch[i] > epoch) {
            best = c->node[i];
            epoch = v.epoch[i];
        }
    }
    return best;
}

struct server *cluster_owner_of(struct cluster *c, const char *key)
{
    return cluster_owner(c, cluster_slot(c, key));
}

const char *cluster_name(struct cluster *c, struct server *s, int n)
{
    struct view v;
    look(c, s, &v);
    for (int i = 0;; i++) {
        char *name = keep_text("n%d", i);
        if (v.owner[server_int(s, "CLUSTER KEYSLOT lock:%s", name)] == number_of(c, s) && n-- == 0)
            return name;
    }
}

struct server *cluster_replica(struct cluster *c, struct server *master)
{
    int of = number_of(c, master);
    for (int i = 0; i < c->nodes; i++) {
        struct view v;
        if (!can_be_asked(c->node[i]))
            continue;
        look(c, c->node[i], &v);
        if (v.role[i] == 's' && v.master[i] == of)
            return c->node[i];
    }
    return NULL;
}

int cluster_is_master(struct cluster *c, struct server *s)
{
    struct view v;
    look(c, s, &v);
    return v.role[number_of(c, s)] == 'm';
}

static long long sum_of(struct cluster *c, const char *field, const char *what)
{
    long long sum = 0;
    for (int i = 0; i < c->nodes; i++) {
        if (!can_be_asked(c->node[i]))
            continue;
        const char *line = server_info(c->node[i], field), *at = line ? strstr(line, what) : NULL;
        sum += at ? atoll(at + strlen(what)) : 0;
    }
    return sum;
}

long long cluster_errors(struct cluster *c, const char *code)
{
    return sum_of(c, keep_text("errorstat_%s", code), "count=");
}

long long cluster_halfway(struct cluster *c)
{
    return cluster_errors(c, "ASK") + cluster_errors(c, "TRYAGAIN");
}

long long cluster_calls(struct cluster *c, const char *command)
{
    return sum_of(c, keep_text("cmdstat_%s", command), "calls=");
}

/* ---- changes ---- */

static int same(const struct cluster *c, const struct view *a, const struct view *b)
{
    if (memcmp(a->owner, b->owner, sizeof a->owner) != 0)
        return 0;
    for (int i = 0; i < c->nodes; i++)
        if (can_be_asked(c->node[i]) && (a->role[i] != b->role[i] || a->master[i] != b->master[i]))
            return 0;
    return 1;
}

/* Whether all name the same living owners, and who follows whom; ret_v is what they name. */
static int agree(struct cluster *c, struct view *ret_v)
{
    int asked = 0;
    for (int i = 0; i < c->nodes; i++) {
        struct view v;
        if (!can_be_asked(c->node[i]))
            continue;
        if (!is_ok(c->node[i]))
            return 0;
        look(c, c->node[i], &v);
        if (asked++ && !same(c, &v, ret_v))
            return 0;
        *ret_v = v;
    }
    for (int slot = 0; asked && slot < CLUSTER_SLOTS; slot++) {
        int i = ret_v->owner[slot];
        if (i < 0 || !can_be_asked(c->node[i]) || ret_v->role[i] != 'm')
            return 0;
    }
    return asked > 0;
}

/* A replica says that it is connected, and its master that it is in line for what is written. */
static int in_step(struct cluster *c, const struct view *v)
{
    for (int i = 0; i < c->nodes; i++) {
        if (!can_be_asked(c->node[i]) || v->role[i] != 's')
            continue;
        struct server *master = v->master[i] < 0 ? NULL : c->node[v->master[i]];
        if (!can_be_asked(master) || !strstr(server_ask(c->node[i], "ROLE"), "\nconnected\n"))
            return 0;
        const char *line = server_info(master, "slave0");
        if (!line || !strstr(line, "state=online"))
            return 0;
    }
    return 1;
}

void cluster_wait(struct cluster *c)
{
    struct view v;
    CHECK_EVENTUALLY(agree(c, &v) && in_step(c, &v), WAIT_MS);
}

struct server *cluster_wait_switch(struct cluster *c, int slot, struct server *old)
{
    struct view v;
    CHECK_EVENTUALLY(agree(c, &v) && c->node[v.owner[slot]] != old, WAIT_MS);
    return c->node[v.owner[slot]];
}

void cluster_failover(struct cluster *c, struct server *replica)
{
    struct view v;
    int i = number_of(c, replica);
    int64_t begun = t_now_ms();
    int leads = 0;
    while (!leads && t_calm_ms(begun) < 2 * WAIT_MS) {
        /* Where the two do not come together the master gives up, after five seconds. */
        int64_t again = t_now_ms() + 6000;
        CHECK_STR(server_ask(replica, "CLUSTER FAILOVER"), "OK");
        while (!(leads = agree(c, &v) && v.role[i] == 'm') && t_now_ms() < again)
            t_sleep_ms(20);
    }
    CHECK(leads);
    cluster_wait(c);
}

/* ---- a slot goes to another master ---- */

static void setslot(struct server *s, int slot, const char *how, const char *id)
{
    CHECK_STR(server_ask(s, "CLUSTER SETSLOT %d %s %s", slot, how, id), "OK");
}

/* The master that all masters name, in its newest epoch; NULL: they do not agree (yet). Who does
 * not know of the last move would take the number of the next one from an old epoch. */
static struct server *agreed_owner(struct cluster *c, int slot)
{
    long long epoch = -1;
    int owner = -1;
    for (int i = 0; i < c->nodes; i++) {
        struct view v;
        if (!can_be_asked(c->node[i]))
            continue;
        look(c, c->node[i], &v);
        if (v.role[i] != 'm')
            continue;
        if (v.owner[slot] < 0 || (owner >= 0 && v.owner[slot] != owner)
            || (owner >= 0 && v.epoch[owner] != epoch))
            return NULL;
        owner = v.owner[slot];
        epoch = v.epoch[owner];
    }
    return owner < 0 ? NULL : c->node[owner];
}

struct cluster_move cluster_move_begin(struct cluster *c, int slot, struct server *to)
{
    struct cluster_move m = { .c = c, .to = to, .slot = slot };
    CHECK_EVENTUALLY((m.from = agreed_owner(c, slot)) != NULL, WAIT_MS);
    CHECK(m.from != to);
    setslot(to, slot, "IMPORTING", cluster_id(c, m.from)); /* before anybody is sent there */
    setslot(m.from, slot, "MIGRATING", cluster_id(c, to));
    return m;
}

/* How many went; a key that has expired meanwhile is no error. */
static int migrate(struct cluster *c, struct server *from, struct server *to, const char *key,
                   size_t len)
{
    const char *pass = c->opts.requirepass, *said;
    if (pass)
        said = server_ask(from, "MIGRATE %s %d %b 0 5000 AUTH %s", server_host(to), server_port(to),
                          key, len, pass);
    else
        said = server_ask(from, "MIGRATE %s %d %b 0 5000", server_host(to), server_port(to), key,
                          len);
    if (strcmp(said, "NOKEY") == 0)
        return 0;
    CHECK_STR(said, "OK");
    return 1;
}

int cluster_move_key(struct cluster_move *m, const char *key)
{
    int n = migrate(m->c, m->from, m->to, key, strlen(key));
    m->keys += n;
    return n;
}

/* One at a time: names have any bytes, a list of them could not be taken apart. */
int cluster_move_keys(struct cluster_move *m, int max)
{
    int n = 0;
    while (n < max) {
        size_t len = 0;
        const char *key = server_ask_bytes(m->from, &len, "CLUSTER GETKEYSINSLOT %d 1", m->slot);
        if (!len)
            break;
        n += migrate(m->c, m->from, m->to, key, len);
    }
    m->keys += n;
    return n;
}

/* Its old master drops what is left as soon as it hears of it: no test is to rely on that. */
void cluster_move_end(struct cluster_move *m)
{
    const char *id = cluster_id(m->c, m->to);
    CHECK_INT(server_int(m->from, "CLUSTER COUNTKEYSINSLOT %d", m->slot), 0);
    setslot(m->to, m->slot, "NODE", id);
    setslot(m->from, m->slot, "NODE", id);
    for (int i = 0; i < m->c->nodes; i++) {
        struct server *s = m->c->node[i];
        if (s != m->to && s != m->from && can_be_asked(s) && cluster_is_master(m->c, s))
            setslot(s, m->slot, "NODE", id);
    }
}

void cluster_move_finish(struct cluster_move *m)
{
    while (cluster_move_keys(m, 100) > 0)
        ;
    cluster_move_end(m);
}

long cluster_move_slot(struct cluster *c, int slot, struct server *to,
                       void (*between)(struct cluster_move *m, void *arg), void *arg)
{
    struct cluster_move m = cluster_move_begin(c, slot, to);
    do {
        if (between)
            between(&m, arg);
    } while (cluster_move_keys(&m, 1) > 0);
    cluster_move_end(&m);
    return m.keys;
}
