/* SPDX-License-Identifier: MIT
 * resources.c - rows about what runs out: memory, disk, descriptors.
 */
#include <sys/resource.h>

#include "faults/lib/matrix.h"

/* ---- memory of the server ---- */

static void fill(struct server *s, int keys)
{
    server_ask(s, "EVAL %s 0 %d",
               "for i = 1, tonumber(ARGV[1]) do "
               "redis.call('SET', 'fill:' .. i, string.rep('x', 100000)) end", keys);
}

static long long used(struct server *s)
{
    return atoll(server_info(s, "used_memory"));
}

/* A policy that drops what has a ttl: the locks. */
static int evict(struct run *r)
{
    struct server *s = r->s[0];
    long long before = run_info(r, "evicted_keys", NULL);
    crowd_hold(r, run_any_lock());
    server_ask(s, "CONFIG SET maxmemory-policy volatile-ttl");
    server_ask(s, "CONFIG SET maxmemory %lld", used(s) - 1000);
    t_sleep_ms(100);
    server_ask(s, "CONFIG SET maxmemory 0");
    return run_info(r, "evicted_keys", NULL) > before;
}

/* The right policy: whoever wants to write is refused. */
static int out_of_memory(struct run *r)
{
    struct server *s = r->s[0];
    long long before = run_info(r, "errorstat_OOM", "count");
    if (t_random(2))
        crowd_hold(r, run_any_lock());
    server_ask(s, "CONFIG SET maxmemory-policy noeviction");
    server_ask(s, "CONFIG SET maxmemory 1");
    t_sleep_ms(100 + (int64_t)t_random(400));
    crowd_let_go(r);
    t_sleep_ms(100);
    server_ask(s, "CONFIG SET maxmemory 0");
    return run_info(r, "errorstat_OOM", "count") > before;
}

/* ---- stalls ---- */

static int slow_disk(struct run *r)
{
    struct server *s = run_server(r, run_any_lock());
    int before = server_disk_delayed(s);
    server_disk_delay(s, 100 + (int)t_random(500));
    t_sleep_ms(1200);
    server_disk_delay(s, 0);
    return server_disk_delayed(s) > before;
}

static void fill_all(struct run *r)
{
    for (int i = 0; i < r->n; i++)
        if (strncmp(server_ask(r->s[i], "ROLE"), "master", 6) == 0)
            fill(r->s[i], 1000);
}

/* The server copies its page tables, and every page that is written to after that. */
static int fork_stall(struct run *r)
{
    struct server *s = run_server(r, run_any_lock());
    const char *before = server_info(s, "total_forks");
    if (strncmp(server_ask(s, "BGSAVE"), "Background saving started", 25) != 0) {
        t_sleep_ms(200);
        return 0;
    }
    CHECK_EVENTUALLY(strcmp(server_info(s, "rdb_bgsave_in_progress"), "0") == 0, 60000);
    return strcmp(before, server_info(s, "total_forks")) != 0;
}

/* ---- descriptors ---- */

/* The server has no room for anybody. */
static int no_room(struct run *r)
{
    struct server *s = r->s[0];
    const char *limit = server_ask(s, "CONFIG GET maxclients");
    long long before = run_info(r, "rejected_connections", NULL);
    server_ask(s, "CONFIG SET maxclients 2");
    server_ask(s, "CLIENT KILL TYPE pubsub");
    server_ask(s, "CLIENT KILL TYPE normal SKIPME yes");
    t_sleep_ms(200 + (int64_t)t_random(400));
    server_ask(s, "CONFIG SET maxclients %s", strchr(limit, '\n') + 1);
    return run_info(r, "rejected_connections", NULL) > before;
}

/* Clients can open nothing, and have to connect anew. */
static int no_descriptors(struct run *r)
{
    struct rlimit old[CROWD], none = { 0 };
    long long conns = run_info(r, "total_connections_received", NULL), now;
    for (int i = 0; i < CROWD; i++) {
        CHECK_INT(prlimit(workers_pid(r->w, i), RLIMIT_NOFILE, NULL, &old[i]), 0);
        none = (struct rlimit){ 3, old[i].rlim_max };
        CHECK_INT(prlimit(workers_pid(r->w, i), RLIMIT_NOFILE, &none, NULL), 0);
    }
    t_sleep_ms(50); /* who was connecting is done */
    server_ask(r->s[0], "CLIENT KILL TYPE pubsub");
    long long cut = server_int(r->s[0], "CLIENT KILL TYPE normal SKIPME yes");
    conns = run_info(r, "total_connections_received", NULL);
    t_sleep_ms(200 + (int64_t)t_random(400));
    now = run_info(r, "total_connections_received", NULL);
    for (int i = 0; i < CROWD; i++)
        CHECK_INT(prlimit(workers_pid(r->w, i), RLIMIT_NOFILE, &old[i], NULL), 0);
    return cut >= CROWD / 2 && now - conns < CROWD / 2;
}

static const struct row rows[] = {
    { "evict", "eviction of keys with a ttl", "S", "S", 3, 30, .out = "S",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, .inject = evict },
    { "oom", "out of memory, noeviction", "S", "S", 3, 30, .may = MAY_PASS | MAY_FAIL,
      .inject = out_of_memory },
    { "slow_disk", "fsync takes 0.1 to 0.6 s", "SFQ", "S", 2, 20, .may = MAY_PASS | MAY_FAIL,
      .want = { .diskshim = 1, .fsync_always = 1 }, .inject = slow_disk },
    { "fork_stall", "BGSAVE of a server with 100 MB", "SF", "", 0, 20, .may = MAY_PASS | MAY_FAIL,
      .prepare = fill_all, .inject = fork_stall },
    { "no_room", "maxclients is reached", "S", "S", 3, 30, .may = MAY_PASS | MAY_FAIL,
      .inject = no_room },
    { "no_descriptors", "clients have no descriptor left", "S", "S", 3, 30,
      .may = MAY_PASS | MAY_FAIL, .inject = no_descriptors },
};
ROWS(rows)
