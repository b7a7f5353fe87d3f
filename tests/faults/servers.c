/* SPDX-License-Identifier: MIT
 * servers.c - rows about servers: frozen, killed, restarted with and without their data, replaced.
 */
#include "faults/lib/matrix.h"

/* A lock that is held while it happens, mostly. */
static void mostly_held(struct run *r, int lock)
{
    if (t_random(4))
        crowd_hold(r, lock);
}

/* ---- standing still ---- */

/* 0.3 to 3 times the ttl; of a quorum up to two. */
static int freeze_server(struct run *r)
{
    int lock = run_any_lock();
    mostly_held(r, lock);
    struct server *s = run_server(r, lock), *other = r->topo == 'Q' ? run_server(r, 0) : s;
    int64_t ms = r->want.ttl_ms * (3 + (int64_t)t_random(27)) / 10;
    if (r->topo == 'F' || r->topo == 'C') /* or it is deposed */
        ms = 300 + (int64_t)t_random(1000);
    server_freeze(s);
    if (other != s)
        server_freeze(other);
    int stood = server_is_frozen(s);
    t_sleep_ms(ms);
    server_thaw(s);
    if (other != s)
        server_thaw(other);
    return stood;
}

static int debug_sleep(struct run *r)
{
    int lock = run_any_lock();
    mostly_held(r, lock);
    struct server *s = run_server(r, lock);
    int64_t ms = 200 + (int64_t)t_random(1300), begun = t_now_ms();
    CHECK_STR(server_ask(s, "DEBUG SLEEP %s", keep_text("%.3f", (double)ms / 1000)), "OK");
    return t_now_ms() - begun >= ms;
}

/* ---- replicas ---- */

/* On a busy machine the master may change while we look. */
static int two_follow(struct run *r)
{
    struct server *m = fleet_master(r->f);
    const char *n = server_pid(m) ? server_info(m, "connected_slaves") : NULL;
    return n && atoi(n) == FLEET - 1
           && atoi(server_ask(m, "WAIT %d 500", FLEET - 1)) == FLEET - 1; /* or an error */
}

static void settle(struct run *r)
{
    if (r->f)
        CHECK_EVENTUALLY(two_follow(r), 60000);
    else if (r->cl)
        cluster_wait(r->cl);
}

/* ---- killed and started again ---- */

static const char *run_id(struct server *s)
{
    return server_info(s, "run_id");
}

/* NULL: it did not happen. */
static struct server *restart_one(struct run *r)
{
    int lock = run_any_lock();
    mostly_held(r, lock);
    struct server *s = run_server(r, lock);
    const char *before = run_id(s);
    server_restart(s);
    int again = strcmp(before, run_id(s)) != 0;
    crowd_let_go(r);
    return again ? s : NULL;
}

/* On Q not before the one that was restarted last may vote again. */
static int restart(struct run *r)
{
    const struct server *s = restart_one(r);
    if (r->want.memory_only)
        t_sleep_ms(r->topo == 'S' ? 0 : 3 * r->want.ttl_ms);
    return s != NULL;
}

static int masters(const struct run *r)
{
    return r->f ? 1 : r->cl ? LOCKS : r->n;
}

static struct server *master(struct run *r, int i)
{
    return r->f || r->cl ? run_server(r, i) : r->s[i];
}

/* For each master, with a prefix of keys that lie there. */
static void on_masters(struct run *r, const char *lua)
{
    for (int i = 0; i < masters(r); i++)
        server_ask(master(r, i), "EVAL %s 0 {lock:%s}:other", lua,
                   r->name[r->f || r->cl ? i : 0]);
}

/* Ten thousand keys of others, of which each takes a while to be read: so long it is loading. */
static void fill(struct run *r)
{
    on_masters(r, "for i = 1, 10000 do redis.call('SET', ARGV[1] .. i, 'x', 'EX', 100000) end");
}

static void unfill(struct run *r)
{
    on_masters(r, "for i = 1, 10000 do redis.call('DEL', ARGV[1] .. i) end");
}

static int is_rewritten(struct server *s)
{
    const char *busy = server_info(s, "aof_rewrite_in_progress");
    const char *due = server_info(s, "aof_rewrite_scheduled");
    return busy && due && atoi(busy) == 0 && atoi(due) == 0;
}

/* Or the file has every command since the beginning, and reading it takes longer each time. */
static void rewrite(struct server *s)
{
    server_ask(s, "BGREWRITEAOF");
    CHECK_EVENTUALLY(is_rewritten(s), 60000);
}

/* Those who asked meanwhile were told that it is loading. */
static int restart_loading(struct run *r)
{
    settle(r);
    for (int i = 0; i < masters(r); i++)
        rewrite(master(r, i));
    struct server *s = restart_one(r);
    return s && server_info(s, "errorstat_LOADING") != NULL;
}

static int tear(struct run *r)
{
    int lock = run_any_lock();
    mostly_held(r, lock);
    int torn = server_tear(run_server(r, lock), 10 + (int)t_random(60));
    crowd_let_go(r);
    if (r->topo == 'Q') /* as many as may forget at a time: one within a lease */
        t_sleep_ms(r->want.ttl_ms + 500);
    return torn;
}

/* ---- another master ---- */

static struct server *wait_for_other(struct run *r, int lock, struct server *old)
{
    return r->f ? fleet_wait_switch(r->f, old) : cluster_wait_switch(r->cl, r->slot[lock], old);
}

static int crash_master(struct run *r)
{
    int lock = run_any_lock();
    settle(r);
    mostly_held(r, lock);
    struct server *old = run_server(r, lock);
    server_kill(old);
    struct server *now = wait_for_other(r, lock, old);
    r->switches++;
    server_restart(old);
    crowd_let_go(r);
    crowd_go_on(r, 1);
    settle(r);
    return now != old;
}

/* Another Sentinel may make the replica that was just promoted a replica again, as it has not heard
 * of the failover yet. Then that is given up, and nobody repeats it. */
static int is_given_up(struct fleet *f, const struct server *old)
{
    return fleet_named_by(f, 0) == old
           && !strstr(server_ask(f->sentinel[0], "SENTINEL MASTER m"), "failover_in_progress");
}

static int agreed_failover(struct run *r)
{
    int lock = run_any_lock();
    settle(r);
    mostly_held(r, lock);
    struct server *old = run_server(r, lock);
    if (r->cl) {
        struct server *replica = cluster_replica(r->cl, old);
        cluster_failover(r->cl, replica);
        r->switches++;
        return cluster_owner(r->cl, r->slot[lock]) == replica;
    }
    if (strcmp(server_ask(r->f->sentinel[0], "SENTINEL FAILOVER m"), "OK") != 0) {
        t_sleep_ms(500); /* the last one is not over */
        return 0;
    }
    CHECK_EVENTUALLY(fleet_switched(r->f, old) || is_given_up(r->f, old), 60000);
    if (is_given_up(r->f, old)) {
        crowd_let_go(r);
        return 0;
    }
    struct server *now = fleet_wait_switch(r->f, old);
    r->switches++;
    crowd_let_go(r);
    crowd_go_on(r, 1);
    CHECK_EVENTUALLY(strncmp(server_ask(old, "ROLE"), "slave", 5) == 0, 60000);
    settle(r);
    return now != old;
}

/* The old master comes back empty, and says that it is a master, until it is told otherwise. */
static int empty_returns(struct run *r)
{
    int lock = run_any_lock();
    settle(r);
    mostly_held(r, lock);
    struct server *old = run_server(r, lock);
    server_kill(old);
    wait_for_other(r, lock, old);
    r->switches++;
    if (r->f)
        server_lead(old);
    server_empty(old); /* restarted, with nothing to load */
    int lied = strncmp(server_ask(old, "ROLE"), "master", 6) == 0;
    crowd_let_go(r);
    crowd_go_on(r, 2);
    if (r->f)
        CHECK_EVENTUALLY(strncmp(server_ask(old, "ROLE"), "slave", 5) == 0, 60000);
    settle(r);
    return r->f ? lied : 1;
}

/* ---- slots that move ---- */

static void pause_between(struct cluster_move *m, void *arg)
{
    (void)m, (void)arg;
    t_sleep_ms((int64_t)t_random(15));
}

static int move_slot(struct run *r)
{
    int lock = run_any_lock();
    mostly_held(r, lock);
    struct server *from = run_server(r, lock), *to = from;
    for (int k = 0; to == from || !cluster_is_master(r->cl, to); k++)
        to = r->cl->node[(k + (int)t_random((uint64_t)r->cl->nodes)) % r->cl->nodes];
    cluster_move_slot(r->cl, r->slot[lock], to, pause_between, NULL);
    return cluster_owner(r->cl, r->slot[lock]) == to;
}

#define REPLACED .stall_ms = REPLACED_MS
#define KEPT_LONG .ttl_ms = 20000, .grace_ms = 10000, .down_after_ms = 1000, .node_timeout_ms = 2000

static const char *const load_slowly[] = { "--appendfsync", "always", "--key-load-delay", "100",
                                           NULL };

static const struct row rows[] = {
    { "freeze_server", "SIGSTOP of a server for 0.3 to 3 ttl", "SFCQ", "SQ", 2, 20,
      .may = MAY_PASS, .want = { .ttl_ms = 1000 }, .inject = freeze_server },
    { "debug_sleep", "DEBUG SLEEP of a server", "SFCQ", "", 2, 20, .may = MAY_PASS,
      .want = { .ttl_ms = 1000 }, .inject = debug_sleep },
    { "restart_empty", "kill -9 of a server that keeps nothing", "SFCQ", "S", 3, 20, .out = "SC",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL,
      .want = { .memory_only = 1, .ttl_ms = 1000, .quarantine = "quarantine=2s" },
      .prepare = run_outlast_quarantine, .inject = restart },
    { "restart_aof", "kill -9 of a server, appendfsync always", "SQ", "SQ", 3, 25,
      .may = MAY_PASS, .want = { .fsync_always = 1 }, .inject = restart },
    { "loading", "the same, and reading the file takes a second", "SFCQ", "", 3, 20,
      .may = MAY_PASS, .stall_ms = 20000,
      .want = { .args = load_slowly, .ttl_ms = 20000, .grace_ms = 10000,
                .down_after_ms = 20000, .node_timeout_ms = 20000 },
      .prepare = fill, .inject = restart_loading, .finish = unfill },
    { "versions", "the same, of Redis and Valkey in one quorum", "Q", "", 3, 20,
      .may = MAY_PASS, .want = { .fsync_always = 1, .mixed = 1 }, .inject = restart },
    { "torn_aof", "kill -9, and the last bytes lost", "SQ", "S", 3, 20, .out = "SQ",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, .inject = tear },
    { "crash_master", "kill -9 of a master, replicas=1", "FC", "F", 1, 20,
      .may = MAY_PASS, REPLACED, .want = { KEPT_LONG }, .inject = crash_master },
    { "crash_master_nowait", "kill -9 of a master, replicas=0", "FC", "", 0, 20, .out = "FC",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, REPLACED, .want = { .options = "", KEPT_LONG },
      .inject = crash_master },
    { "failover", "CLUSTER FAILOVER", "C", "C", 2, 20, .may = MAY_PASS | MAY_FAIL,
      REPLACED, .want = { KEPT_LONG }, .inject = agreed_failover },
    { "failover_sentinel", "SENTINEL FAILOVER, replicas=2", "F", "", 0, 20,
      .may = MAY_PASS | MAY_FAIL, REPLACED, .want = { .options = "replicas=2", KEPT_LONG },
      .inject = agreed_failover },
    { "empty_returns", "the old master comes back, empty", "FC", "", 0, 20,
      .may = MAY_PASS | MAY_FAIL, REPLACED, .want = { .memory_only = 1, KEPT_LONG },
      .inject = empty_returns },
    { "reshard", "the lock's slot moves", "C", "C", 4, 40, .may = MAY_PASS,
      .want = { .ttl_ms = 5000 }, .inject = move_slot },
};
ROWS(rows)
