/* SPDX-License-Identifier: MIT
 * cluster_stale.c - a server of a cluster that has not heard that its slot has gone.
 *
 * Real servers that cannot hear one another: what one of them knows of the others is what the test
 * tells it. Those that have nothing to do with the slot have not heard either.
 */
#include "harness/keep.h"
#include "harness/live.h"
#include "harness/sockets.h"
#include "harness/waiting.h"
#include "topo/slot.h"

#define NAME  "a"
#define KEY   "lock:" NAME
#define NODES 7 /* asked one after the other, so a client is wrong for longer than its grace */
#define SHARE(i) ((i) * SLOT_COUNT / NODES)

/* Nobody listens at the bus ports that they know of each other. */
struct deaf {
    struct server *node[NODES], *from, *to;
    char           id[NODES][41];
    int            slot;
    const char    *url;
};

static const char *conf(const struct deaf *d, int self, const int *port, const int *bus)
{
    char *text = calloc(1, 2048);
    size_t n = 0;
    CHECK(text);
    keep_block(text);
    for (int i = 0; i < NODES; i++) {
        n += (size_t)snprintf(text + n, 2048 - n, "%s 127.0.0.1:%d@%d", d->id[i], port[i], bus[i]);
        if (server_knows("waitaof")) /* as old as shards are */
            n += (size_t)snprintf(text + n, 2048 - n, ",,shard-id=%s", d->id[i]);
        n += (size_t)snprintf(text + n, 2048 - n, " %smaster - 0 0 %d connected %d-%d\n",
                              i == self ? "myself," : "", i + 1, SHARE(i), SHARE(i + 1) - 1);
    }
    snprintf(text + n, 2048 - n, "vars currentEpoch %d lastVoteEpoch 0\n", NODES);
    return text;
}

static const char *const quiet[] = { "--cluster-node-timeout", "3600000",
                                     "--cluster-announce-ip", "127.0.0.1", NULL };

/* 0, or -1 when one of them found its port taken. */
static int launch(struct deaf *d, const int *bus)
{
    int port[NODES], ended = 0;
    for (int i = 0; i < NODES; i++) {
        do
            port[i] = socket_free_port();
        while (port[i] > 50000 || !socket_port_is_free(port[i] + 10000));
    }
    for (int i = 0; i < NODES; i++)
        d->node[i] = server_start_opts(&(struct server_opts){
            .tcp = 1, .port = port[i], .no_wait = 1, .args = quiet,
            .cluster = conf(d, i, port, bus) });
    for (int i = 0; i < NODES; i++)
        ended |= server_await(d->node[i]);
    for (int i = 0; ended && i < NODES; i++)
        server_kill(d->node[i]);
    return ended;
}

static struct deaf deaf_start(void)
{
    struct deaf d = { .slot = (int)slot_of(KEY, strlen(KEY)) };
    int bus[NODES] = { 0 };
    for (int i = 0; i < NODES; i++) {
        snprintf(d.id[i], sizeof d.id[i], "%040x", 0xa + i);
        CHECK(socket_bind(&bus[i]) >= 0); /* and it stays closed */
    }
    while (launch(&d, bus))
        ;
    for (int i = 0; i < NODES; i++)
        CHECK_EVENTUALLY(strstr(server_ask(d.node[i], "CLUSTER INFO"), "cluster_state:ok"), 20000);
    int owner = 0;
    while (d.slot >= SHARE(owner + 1))
        owner++;
    d.from = d.node[owner];
    d.to = d.node[(owner + 1) % NODES];
    d.url = keep_text("redis+cluster://127.0.0.1:%d", server_port(d.from));
    return d;
}

static const char *id_of(struct server *s)
{
    return keep_text("%s", server_ask(s, "CLUSTER MYID"));
}

static void tell(const struct deaf *d, struct server *s, struct server *owner)
{
    CHECK_STR(server_ask(s, "CLUSTER SETSLOT %d NODE %s", d->slot, id_of(owner)), "OK");
}

/* It goes, and the one that sent it does not hear that it has arrived. */
static void move_unheard(const struct deaf *d, struct server *from, struct server *to)
{
    size_t len = 0;
    const char *key;
    CHECK_STR(server_ask(to, "CLUSTER SETSLOT %d IMPORTING %s", d->slot, id_of(from)), "OK");
    CHECK_STR(server_ask(from, "CLUSTER SETSLOT %d MIGRATING %s", d->slot, id_of(to)), "OK");
    while ((key = server_ask_bytes(from, &len, "CLUSTER GETKEYSINSLOT %d 1", d->slot)) && len)
        server_ask(from, "MIGRATE 127.0.0.1 %d %b 0 5000", server_port(to), key, len);
    tell(d, to, to);
}

static long long calls(struct server *s, const char *command)
{
    const char *stat = server_info(s, command);
    const char *n = stat ? strstr(stat, "calls=") : NULL;
    return n ? atoll(n + strlen("calls=")) : 0;
}

static long long map_asked(struct server *s)
{
    return calls(s, "cmdstat_cluster|slots");
}

/* How many sessions the server sees in the slot. */
static int sessions(const struct deaf *d, struct server *s)
{
    char tag[SLOT_TEXT_SIZE];
    slot_text((unsigned)d->slot, tag);
    return (int)server_int(s, "EVAL %s 0 lock:holdfast:{%s}:s:*",
                           "return #redis.call('PUBSUB', 'SHARDCHANNELS', ARGV[1])", tag);
}

/* A holder is where the slot is now, and asks the other one. It must not go back there: it would be
 * renewed where the lock is, and not be seen there. */
TEST(P1_a_holder_does_not_follow_a_server_that_has_not_heard_of_a_move)
{
    if (!server_knows("ssubscribe"))
        SKIP("this server has no sharded channels");
    struct deaf d = deaf_start();
    hf_client *c = client_at(d.url, 0), *other = client_at(d.url, 0);
    hf_lock_opts o = { .ttl_ms = 20000, .grace_ms = 2000 };
    hf_lock *m = lock_with(c, NAME, o);
    lock_now(m);
    move_unheard(&d, d.from, d.to);
    CHECK_EVENTUALLY(sessions(&d, d.to) > 0, 20000); /* the holder has found the way */
    struct locker w = { .m = lock_with(other, NAME, o), .wait_ms = 60000 };
    locker_start(&w);
    CHECK_QUEUE(d.to, NAME, 1);
    /* The one that has not heard says that the slot is its own, whenever it is asked. */
    CHECK_EVENTUALLY(sessions(&d, d.to) == 2, 20000);
    CHECK_CONTAINS(server_ask(d.from, "CLUSTER NODES"), keep_text("[%d->-", d.slot));
    long long asked = map_asked(d.from), explained = calls(d.from, "cmdstat_cluster|nodes");
    int64_t begun = t_now_ms(), heard = 0; /* when it heard of that, about */
    while (!heard || t_now_ms() < heard + 1500) {
        if (!heard && map_asked(d.from) > asked)
            heard = t_now_ms();
        CHECK_INT(sessions(&d, d.from), 0);
        CHECK_INT(sessions(&d, d.to), 2);
        CHECK(hf_lock_is_held(m));
        CHECK_INT(atomic_load(&w.done), 0);
        CHECK(t_now_ms() < begun + 60000);
        t_sleep_ms(10);
    }
    CHECK_EVENTUALLY(calls(d.from, "cmdstat_cluster|nodes") > explained, 5000);
    CHECK(calls(d.to, "cmdstat_cluster|nodes") > 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    tell(&d, d.from, d.to);
    unlock_now(m);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(m);
    hf_client_free(other);
    hf_client_free(c);
}

/* It waits where it came, and nobody tells it that the slot has gone: it holds nothing, so it does
 * not ask. By ASK it is sent to where it may not queue; then it asks the others. */
TEST(P3_who_waits_finds_the_way_from_a_server_that_has_not_heard_of_a_move)
{
    if (!server_knows("ssubscribe"))
        SKIP("this server has no sharded channels");
    struct deaf d = deaf_start();
    hf_client *c = client_at(d.url, 0), *other = client_at(d.url, 0);
    hf_lock_opts o = { .ttl_ms = 60000, .grace_ms = 3000 };
    hf_lock *m = lock_with(c, NAME, o);
    lock_now(m);
    struct locker w = { .m = lock_with(other, NAME, o), .wait_ms = 80000 };
    locker_start(&w);
    CHECK_QUEUE(d.from, NAME, 1);
    move_unheard(&d, d.from, d.to);
    CHECK_EVENTUALLY(sessions(&d, d.to) == 2, 30000);
    CHECK_QUEUE(d.to, NAME, 1);
    unlock_now(m);
    locker_join(&w, HF_OK);
    tell(&d, d.from, d.to);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(m);
    hf_client_free(other);
    hf_client_free(c);
}

/* The slot comes back to the server that has granted the lock, and the holder, which went along
 * with it, does not hear of that. Where it was granted it is not there: but nobody has seen it
 * there since the slot is back, so it is not taken for dead. */
TEST(P1_a_holder_is_not_presumed_dead_where_its_slot_has_come_back_to)
{
    if (!server_knows("ssubscribe"))
        SKIP("this server has no sharded channels");
    struct deaf d = deaf_start();
    hf_client *c = client_at(d.url, 0), *other;
    hf_lock_opts o = { .ttl_ms = 60000, .grace_ms = 2000 };
    hf_lock *m = lock_with(c, NAME, o);
    lock_now(m);
    move_unheard(&d, d.from, d.to);
    for (int i = 0; i < NODES; i++)
        tell(&d, d.node[i], d.to);
    CHECK_EVENTUALLY(sessions(&d, d.to) == 1 && sessions(&d, d.from) == 0, 20000);
    for (int64_t begun = t_now_ms(); t_now_ms() < begun + 2 * o.grace_ms; t_sleep_ms(10))
        CHECK(hf_lock_is_held(m)); /* for longer than the grace: so it has settled there */
    /* The others are asked next: from them it does not hear of the second move. */
    long long asked = map_asked(d.from);
    CHECK_EVENTUALLY(map_asked(d.from) > asked, 20000);
    move_unheard(&d, d.to, d.from);
    CHECK_INT(sessions(&d, d.to), 1);
    other = client_at(d.url, 0);
    struct locker w = { .m = lock_with(other, NAME, o), .wait_ms = 60000 };
    locker_start(&w);
    CHECK_QUEUE(d.from, NAME, 1);
    for (int64_t begun = t_now_ms(); t_now_ms() < begun + 3 * o.grace_ms; t_sleep_ms(10))
        CHECK(!(atomic_load(&w.done) && hf_lock_is_held(m)));
    CHECK(hf_lock_is_held(m)); /* it has found the way back */
    CHECK_EVENTUALLY(sessions(&d, d.from) == 2, 20000);
    tell(&d, d.to, d.from);
    unlock_now(m);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(m);
    hf_client_free(other);
    hf_client_free(c);
}
