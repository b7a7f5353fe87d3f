/* SPDX-License-Identifier: MIT
 * harness_cluster.c - the Cluster of the harness tested by itself: what it says has happened, has.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/cluster.h"
#include "harness/proc.h"
#include "harness/t.h"

TEST(a_cluster_is_complete_when_it_has_started)
{
    int64_t begun = t_now_ms();
    struct cluster *c = cluster_start(NULL);
    t_note("%lld ms", (long long)(t_now_ms() - begun));
    CHECK_INT(c->nodes, 6);
    for (int i = 0; i < 3; i++) {
        CHECK(cluster_owner(c, i * 5461 + 1) == c->node[i]);
        CHECK(cluster_replica(c, c->node[i]) == c->node[i + 3]);
        CHECK(cluster_is_master(c, c->node[i]) && !cluster_is_master(c, c->node[i + 3]));
        CHECK_STR(server_ask(c->node[i], "CLUSTER MYID"), cluster_id(c, c->node[i]));
    }
    char key[32];
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof key, "k%d", i);
        struct server *s = cluster_owner_of(c, key);
        CHECK_STR(server_ask(s, "SET %s 1", key), "OK");
        CHECK_INT(server_int(s, "WAIT 1 5000"), 1);
    }
    CHECK_INT(server_int(c->node[0], "DBSIZE") + server_int(c->node[1], "DBSIZE")
                  + server_int(c->node[2], "DBSIZE"), 60);
    CHECK_INT(server_int(c->node[0], "DBSIZE"), server_int(c->node[3], "DBSIZE"));
    char url[128];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
             server_port(c->node[0]), server_port(c->node[1]), server_port(c->node[2]));
    CHECK_STR(c->url, url);
}

TEST(a_cluster_sends_elsewhere_and_counts_it)
{
    struct cluster *c = cluster_start(NULL);
    struct server *has = cluster_owner_of(c, "a"), *not = c->node[has == c->node[0]];
    char moved[64];
    snprintf(moved, sizeof moved, "MOVED %d 127.0.0.1:%d", cluster_slot(c, "a"), server_port(has));
    CHECK_INT(cluster_errors(c, "MOVED"), 0);
    CHECK_STR(server_ask(not, "GET a"), moved);
    CHECK_INT(cluster_errors(c, "MOVED"), 1);
    CHECK_INT(cluster_calls(c, "get"), 0);
    CHECK_STR(server_ask(has, "GET a"), NULL);
    CHECK_INT(cluster_calls(c, "get"), 1);
}

TEST(a_cluster_of_masters_alone)
{
    struct cluster *c = cluster_start(&(struct cluster_opts){ .masters = 4, .no_replicas = 1,
                                                              .memory_only = 1 });
    CHECK_INT(c->nodes, 4);
    CHECK(cluster_owner(c, 16383) == c->node[3] && !cluster_replica(c, c->node[3]));
    CHECK_STR(server_info(c->node[0], "aof_enabled"), "0");
}

TEST(a_planned_failover_of_a_cluster_keeps_the_data)
{
    struct cluster *c = cluster_start(NULL);
    struct server *old = cluster_owner_of(c, "a"), *next = cluster_replica(c, old);
    CHECK_STR(server_ask(old, "SET a 1"), "OK");
    cluster_failover(c, next);
    CHECK(cluster_owner_of(c, "a") == next && cluster_replica(c, next) == old);
    CHECK(cluster_wait_switch(c, cluster_slot(c, "a"), old) == next);
    CHECK_STR(server_ask(next, "GET a"), "1");
    CHECK_CONTAINS(server_ask(old, "GET a"), "MOVED");
}

TEST(a_killed_master_of_a_cluster_is_replaced_and_comes_back_as_a_replica)
{
    struct cluster *c = cluster_start(NULL);
    struct server *old = cluster_owner_of(c, "a"), *next = cluster_replica(c, old);
    CHECK_STR(server_ask(old, "SET a 1"), "OK");
    CHECK_INT(server_int(old, "WAIT 1 5000"), 1);
    server_kill(old);
    CHECK(cluster_owner_of(c, "a") == NULL);
    CHECK(cluster_wait_switch(c, cluster_slot(c, "a"), old) == next);
    CHECK_STR(server_ask(next, "GET a"), "1");
    server_restart(old);
    cluster_wait(c);
    CHECK(cluster_replica(c, next) == old);
    CHECK_CONTAINS(server_ask(old, "GET a"), "MOVED");
}

TEST(a_frozen_master_of_a_cluster_is_replaced_and_thaws_as_one)
{
    struct cluster *c = cluster_start(NULL);
    struct server *old = c->node[1];
    server_freeze(old);
    CHECK(server_is_frozen(old));
    CHECK(cluster_owner(c, 8000) == NULL);
    CHECK(cluster_wait_switch(c, 8000, old) == c->node[4]);
    server_thaw(old);
    cluster_wait(c);
    CHECK(!cluster_is_master(c, old) && cluster_owner(c, 8000) == c->node[4]);
}

TEST(two_frozen_masters_of_three_stop_a_cluster)
{
    struct cluster *c = cluster_start(NULL);
    server_freeze(c->node[0]);
    server_freeze(c->node[1]);
    CHECK_EVENTUALLY(strstr(server_ask(c->node[2], "CLUSTER INFO"), "cluster_state:fail"), 10000);
    server_thaw(c->node[0]);
    server_thaw(c->node[1]);
    cluster_wait(c);
}

TEST(a_slot_moves_step_by_step)
{
    struct cluster *c = cluster_start(&(struct cluster_opts){ .requirepass = "pw" });
    int slot = cluster_slot(c, "{s}");
    struct server *from = cluster_owner(c, slot), *to = c->node[from == c->node[0]];
    CHECK_STR(server_ask(from, "MSET {s}1 a {s}2 b %b c", "{s}\0\n x", (size_t)7), "OK");
    struct cluster_move m = cluster_move_begin(c, slot, to);
    CHECK(m.from == from);
    CHECK_STR(server_ask(from, "GET {s}1"), "a");
    CHECK_CONTAINS(server_ask(from, "GET {s}none"), "ASK ");
    CHECK_INT(cluster_move_key(&m, "{s}1"), 1);
    CHECK_INT(cluster_move_key(&m, "{s}1"), 0);
    CHECK_CONTAINS(server_ask(from, "GET {s}1"), "ASK ");
    CHECK_CONTAINS(server_ask(from, "MGET {s}1 {s}2"), "TRYAGAIN ");
    CHECK_CONTAINS(server_ask(to, "GET {s}1"), "MOVED ");
    CHECK_STR(server_ask(to, "ASKING"), "OK");
    CHECK_STR(server_ask(to, "GET {s}1"), "a");
    CHECK_INT(cluster_errors(c, "ASK"), 2);
    CHECK_INT(cluster_errors(c, "TRYAGAIN"), 1);
    CHECK_INT(cluster_move_keys(&m, 1), 1);
    CHECK_INT(cluster_move_keys(&m, 10), 1);
    CHECK_INT(cluster_move_keys(&m, 10), 0);
    cluster_move_end(&m);
    CHECK_INT(m.keys, 3);
    cluster_wait(c);
    CHECK(cluster_owner(c, slot) == to);
    CHECK_STR(server_ask(to, "GET {s}1"), "a");
    CHECK_STR(server_ask(to, "GET %b", "{s}\0\n x", (size_t)7), "c");
    CHECK_CONTAINS(server_ask(from, "GET {s}1"), "MOVED ");
}

static void count_steps(struct cluster_move *m, void *arg)
{
    CHECK(strstr(server_ask(m->from, "CLUSTER NODES"), "->-")); /* still under way */
    *(int *)arg += 1;
}

TEST(a_slot_moves_back_and_forth_at_once)
{
    struct cluster *c = cluster_start(NULL);
    int slot = cluster_slot(c, "a"), steps = 0;
    struct server *at = cluster_owner(c, slot);
    CHECK_STR(server_ask(at, "MSET {a}1 1 {a}2 1 {a}3 1"), "OK");
    for (int i = 0; i < 20; i++) {
        struct server *to = c->node[(i + 1) % 3];
        if (to != at)
            CHECK_INT(cluster_move_slot(c, slot, to, i ? NULL : count_steps, &steps), 3);
        CHECK_STR(server_ask(to, "GET {a}3"), "1");
        at = to;
    }
    CHECK(steps == 0 || steps == 4);
    cluster_wait(c);
    CHECK(cluster_owner(c, slot) == at);
}

TEST(a_cluster_of_nothing_but_tls_with_a_user)
{
    struct cluster *c = cluster_start(&(struct cluster_opts){ .tls = 1, .requirepass = "pw",
                                          .user = "some on >thing ~lock:* +get +set" });
    CHECK_CONTAINS(c->url, "rediss+cluster://127.0.0.1:");
    CHECK_CONTAINS(c->url, "/tls/ca.crt");
    CHECK_STR(server_ask(c->node[0], "CONFIG GET port"), "port\n0");
    CHECK_CONTAINS(server_ask(c->node[5], "ACL LIST"), "user some on ");
    struct server *old = c->node[0];
    int slot = cluster_slot(c, "b");
    CHECK(cluster_owner(c, slot) == old);
    CHECK_STR(server_ask(old, "SET b 1"), "OK");
    CHECK_INT(cluster_move_slot(c, slot, c->node[1], NULL, NULL), 1);
    CHECK_STR(server_ask(c->node[1], "GET b"), "1");
    server_kill(old);
    CHECK(cluster_wait_switch(c, 10, old) == c->node[3]);
    server_restart(old);
    cluster_wait(c);
    CHECK_CONTAINS(server_ask(old, "ACL LIST"), "user some on ");
}

/* ---- and it fails when it should ---- */

TEST(victim)
{
    const char *fault = getenv("HARNESS_FAULT");
    if (!fault)
        return;
    struct cluster *c = cluster_start(NULL);
    int slot = cluster_slot(c, "a");
    struct server *at = cluster_owner(c, slot);
    CHECK_STR(server_ask(at, "SET a 1"), "OK");
    if (strcmp(fault, "left") == 0) {
        struct cluster_move m = cluster_move_begin(c, slot, c->node[at == c->node[0]]);
        cluster_move_end(&m);
    }
    if (strcmp(fault, "itself") == 0)
        cluster_move_begin(c, slot, at);
    if (strcmp(fault, "master") == 0)
        cluster_failover(c, at);
    if (strcmp(fault, "replica") == 0)
        cluster_move_begin(c, slot, cluster_replica(c, at));
}

static void expect_failure(const char *fault, const char *words)
{
    char env[64], self[4200];
    snprintf(env, sizeof env, "HARNESS_FAULT=%s", fault);
    snprintf(self, sizeof self, "%s/harness_cluster", t_program_dir());
    const char *argv[] = { self, "victim", NULL }, *envs[] = { env, NULL };
    struct proc *p = proc_spawn(argv, &(struct proc_opts){ .env = envs });
    CHECK_INT(proc_wait(p, 30000), 1);
    CHECK_CONTAINS(proc_out(p), words);
    CHECK_CONTAINS(proc_out(p), "not ok 1 - victim");
}

TEST(what_cannot_be_done_fails)
{
    expect_failure("left", "COUNTKEYSINSLOT %d\", m->slot): got 1, want 0");
    expect_failure("itself", "CHECK(m.from != to)");
    expect_failure("master", "ou should send CLUSTER FAILOVER to a replica");
    expect_failure("replica", "SETSLOT only with masters");
}
