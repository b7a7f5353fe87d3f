/* SPDX-License-Identifier: MIT
 * cluster_doctor.c - hf_doctor_examine() on a Redis Cluster: each thing that weakens a promise is
 * put there, and told, and not told without it.
 */
#include "harness/cluster.h"
#include "harness/doctor.h"
#include "topo/slot.h"

TEST(every_master_is_looked_at_and_tried_with_a_lock)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char text[100];
    diagnose_well(&log, cl->url);
    for (int i = 0; i < 3; i++) {
        CHECK_FOUND(&log, 0, cl->node[i], "|role|it is a master, followed by 1 replica(s)");
        CHECK_FOUND(&log, 0, cl->node[i],
                    "|session|a lock was taken, seen by the server, and given back");
        CHECK_FOUND(&log, 0, cl->node[i], " of 16384 slots");
        CHECK_FOUND(&log, 0, cl->node[i], "|fence|");
        CHECK_FOUND(&log, 0, cl->node[i], "|memory|");
        snprintf(text, sizeof text, "replica 127.0.0.1:%d|", server_port(cl->node[i + 3]));
        CHECK_CONTAINS(log.text, text);
        /* All that stays: the counter and the reign of the slot that was tried. */
        const char *keys = server_keys(cl->node[i]), *line = strchr(keys, '\n');
        CHECK(line && !strchr(line + 1, '\n') && strstr(keys, ":fence") && strstr(line, ":reign"));
    }
    CHECK_FOUND(&log, 0, NULL, "3 master(s) serve all 16384 slots");
    CHECK_FOUND(&log, 0, NULL, "cluster-node-timeout 1500");
    CHECK_FOUND(&log, 0, NULL, "the clocks of the masters are 0.");
    diagnose_well(&log, cl->url); /* the same slots again */
    CHECK_FOUND(&log, 0, cl->node[0],
                "|fence|1 slot(s) have a fencing counter; the newest number is 1");
    CHECK_INT(server_int(cl->node[0], "DBSIZE"), 2);
    CHECK_INT(cluster_errors(cl, "CROSSSLOT"), 0);
    CHECK_INT(cluster_errors(cl, "MOVED"), 0);
    char one[64];
    snprintf(one, sizeof one, "redis+cluster://127.0.0.1:%d", server_port(cl->node[1]));
    diagnose_well(&log, one);
    CHECK_FOUND(&log, 1, NULL, "the URL names one node");
}

TEST(a_prefix_with_a_tag_is_tried_where_its_slot_is)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    char url[256];
    struct server *s = cluster_owner_of(cl, "{mine}:x");
    snprintf(url, sizeof url, "%s?prefix={mine}:", cl->url);
    diagnose(&log, url);
    for (int i = 0; i < 3; i++)
        CHECK_INT(found(&log, 0, cl->node[i], "|session|a lock was taken"), cl->node[i] == s);
    CHECK_INT(cluster_errors(cl, "CROSSSLOT"), 0);
    diagnose(&log, url);
    CHECK_FOUND(&log, 0, s, "|fence|1 slot(s) have a fencing counter");
}

/* ---- settings -------------------------------------------------------------------------------- */

TEST(settings_that_weaken_a_promise_are_told_of_the_very_master)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    CHECK_STR(server_ask(cl->node[0], "CONFIG SET maxmemory 100mb"), "OK");
    CHECK_STR(server_ask(cl->node[0], "CONFIG SET maxmemory-policy volatile-lru"), "OK");
    CHECK_STR(server_ask(cl->node[1], "CONFIG SET appendonly no"), "OK");
    CHECK_STR(server_ask(cl->node[2], "CONFIG SET cluster-node-timeout 7500"), "OK");
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, cl->node[0], "|memory|maxmemory-policy volatile-lru");
    CHECK(!found(&log, 2, cl->node[1], "|memory|"));
    CHECK_FOUND(&log, 2, cl->node[1], "|persistence|nothing is written to disk");
    CHECK(!found(&log, 2, cl->node[0], "|persistence|") && !found(&log, 2, cl->node[2], "|"));
    CHECK_FOUND(&log, 2, NULL, "|cluster|cluster-node-timeout 7500");
    CHECK(!logbook_has(&log, "cluster-allow-reads-when-down"));
    CHECK(!logbook_has(&log, "[3]"));
    CHECK_STR(server_ask(cl->node[0], "CONFIG SET maxmemory-policy noeviction"), "OK");
    CHECK_STR(server_ask(cl->node[1], "CONFIG SET appendonly yes"), "OK");
    CHECK_STR(server_ask(cl->node[2], "CONFIG SET cluster-node-timeout 7000"), "OK");
    CHECK_STR(server_ask(cl->node[0], "CONFIG SET cluster-allow-reads-when-down yes"), "OK");
    CHECK_EVENTUALLY(is_well(&log, cl->url), 10000);
    CHECK_FOUND(&log, 1, NULL, "|cluster|cluster-allow-reads-when-down yes");
}

/* ---- rights and counters --------------------------------------------------------------------- */

static void set_counter(struct server *s, unsigned slot, const char *value)
{
    char tag[SLOT_TEXT_SIZE];
    slot_text(slot, tag);
    CHECK_STR(server_ask(s, "SET lock:holdfast:{%s}:fence %s", tag, value), "OK");
}

TEST(what_a_user_may_not_read_or_where_it_may_not_log_in_is_told)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){
        .no_replicas = 1, .user = "u on >pw ~* &* +@all -config -getrange" });
    struct logbook log = LOGBOOK;
    const char *url = keep_text("redis+cluster://u:pw@%s", cl->hosts);
    set_counter(cl->node[2], 16383, "1600000000000000");
    diagnose(&log, url);
    CHECK_FOUND(&log, 1, NULL, "|cluster|this user may not read cluster-node-timeout");
    CHECK_FOUND(&log, 1, cl->node[2], "|fence|the fencing counters cannot be read by this user");
    CHECK(!found(&log, 1, cl->node[0], "|fence|"));
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER u +getrange"), "OK");
    CHECK_STR(server_ask(cl->node[1], "ACL SETUSER u resetpass >other"), "OK");
    diagnose(&log, url);
    CHECK_FOUND(&log, 3, cl->node[1], "|rights|");
    CHECK_FOUND(&log, 3, cl->node[1], "no lock of its 5461 slots can be reached");
    CHECK(!found(&log, 3, cl->node[0], "|") && !found(&log, 3, cl->node[2], "|"));
}

/* The first five by name. */
TEST(many_broken_counters_are_counted)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    for (unsigned slot = 1; slot <= 5; slot++)
        set_counter(cl->node[0], slot, "words");
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 3, cl->node[0], "of slot 1 holds something else");
    CHECK_FOUND(&log, 3, cl->node[0], "of slot 5 holds something else");
    CHECK(!logbook_has(&log, "more fencing counters"));
    for (unsigned slot = 6; slot <= 8; slot++)
        set_counter(cl->node[0], slot, "words");
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 3, cl->node[0], "|fence|3 more fencing counters hold something else");
    CHECK(!logbook_has(&log, "of slot 6 holds"));
    CHECK(!found(&log, 3, cl->node[1], "|fence|"));
}

/* Not that of the last slot. */
TEST(of_numbers_that_are_ahead_of_the_clock_the_furthest_is_told)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    const long long ahead[] = { 0, 7200, 3600 };
    for (unsigned slot = 0; slot < 3; slot++)
        set_counter(cl->node[0], 1 + slot,
                    keep_text("%lld000000", atoll(server_ask(cl->node[0], "TIME")) + ahead[slot]));
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, cl->node[0], "|fence|the numbers of 2 slot(s) are ahead of this server's");
    CHECK(has_line(&log, "|fence|", "by up to 7"));
    CHECK(!found(&log, 2, cl->node[1], "|fence|"));
}

/* ---- nodes that are missing ------------------------------------------------------------------ */

TEST(a_dead_replica_is_told_of_its_master_and_of_the_cluster)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char text[100];
    server_kill(cl->node[4]);
    CHECK_EVENTUALLY(strcmp(server_info(cl->node[1], "connected_slaves"), "0") == 0, 5000);
    snprintf(text, sizeof text, "|cluster|the node 127.0.0.1:%d is called failed by 3 of 3 masters",
             server_port(cl->node[4]));
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 2, NULL, text)), 15000);
    CHECK_FOUND(&log, 2, cl->node[1],
                "|replicas|the cluster knows 1 replica(s) of it, and 0 are connected");
    CHECK_FOUND(&log, 2, cl->node[1], "|replicas|there is no replica to fail over to");
    CHECK(!found(&log, 2, cl->node[0], "|") && !found(&log, 2, cl->node[2], "|"));
    CHECK_FOUND(&log, 1, NULL, "cluster-require-full-coverage yes: when one of the 1 master(s)");
    CHECK(!logbook_has(&log, "[3]"));
    diagnose(&log, url_with(cl->url, "replicas=1"));
    CHECK_FOUND(&log, 3, cl->node[1], "|replicas|replicas=1 is asked for, and 0 are there");
    CHECK_FOUND(&log, 3, cl->node[1], "0 of the 1 replicas"); /* the lock for a try */
    CHECK(!found(&log, 3, cl->node[0], "|"));
    server_restart(cl->node[4]);
    cluster_wait(cl);
    CHECK_EVENTUALLY(is_well(&log, cl->url), 10000);
}

TEST(a_dead_master_without_a_replica_is_a_fault)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    diagnose(&log, cl->url);
    for (int i = 0; i < 3; i++)
        CHECK_FOUND(&log, 2, cl->node[i], "|replicas|there is no replica to fail over to");
    CHECK(!logbook_has(&log, "[3]"));
    server_kill(cl->node[1]);
    for (int i = 0; i < 3; i += 2)
        CHECK_EVENTUALLY(strstr(server_ask(cl->node[i], "CLUSTER INFO"), "cluster_state:fail"),
                         15000);
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 3, cl->node[1], "|reach|");
    CHECK_FOUND(&log, 3, cl->node[1], "no lock of its 5461 slots can be reached");
    CHECK_FOUND(&log, 3, cl->node[0], "|reach|it says that the cluster is down");
    CHECK_FOUND(&log, 3, cl->node[2], "|reach|it says that the cluster is down");
    CHECK_FOUND(&log, 2, NULL, "is called failed by 2 of 2 masters");
    CHECK(!found(&log, 0, NULL, "serve all"));
}

TEST(without_a_majority_nodes_are_only_suspected)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    char text[100];
    server_kill(cl->node[0]);
    server_kill(cl->node[1]);
    snprintf(text, sizeof text,
             "|cluster|the node 127.0.0.1:%d is suspected to have failed by 1 of 1",
             server_port(cl->node[0]));
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 2, NULL, text)), 15000);
    CHECK_FOUND(&log, 3, cl->node[0], "|reach|");
    CHECK_FOUND(&log, 3, cl->node[1], "|reach|");
}

TEST(masters_that_disagree_about_a_slot_are_told)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    /* Two are told that the third has it, whose word for it counts more; it says nothing of
     * that. */
    for (int i = 0; i < 2; i++)
        CHECK_STR(server_ask(cl->node[i], "CLUSTER SETSLOT 77 NODE %s",
                             cluster_id(cl, cl->node[2])), "OK");
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, NULL, "|cluster|the masters do not all name the same owners");
}

TEST(slots_of_nobody_are_a_fault)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    for (int i = 0; i < cl->nodes; i++) {
        CHECK_STR(server_ask(cl->node[i], "CONFIG SET cluster-require-full-coverage no"), "OK");
        if (i < 3)
            CHECK_STR(server_ask(cl->node[i], "CLUSTER DELSLOTS 7 100 101"), "OK");
    }
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 3, NULL,
                     "|reach|3 slot(s) belong to no server: 7, 100-101. Their")), 10000);
    for (int i = 0; i < 3; i++) /* the others are served */
        CHECK_FOUND(&log, 0, cl->node[i], "|session|a lock was taken");
    CHECK(!found(&log, 0, NULL, "serve all"));
    for (int i = 0; i < 3; i++) { /* which they think of when a slot goes */
        CHECK_STR(server_ask(cl->node[i], "CONFIG SET cluster-require-full-coverage yes"), "OK");
        CHECK_STR(server_ask(cl->node[i], "CLUSTER DELSLOTS 8"), "OK");
    }
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 3, cl->node[2],
                     "|reach|it says that the cluster is down")), 10000);
}

TEST(two_masters_cannot_elect_anybody)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .masters = 2 });
    struct logbook log = LOGBOOK;
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, NULL, "|cluster|2 master(s): when one is gone there is no majority");
}

/* ---- moves ----------------------------------------------------------------------------------- */

TEST(a_slot_that_is_half_moved_is_told)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    diagnose_well(&log, cl->url); /* slot 0, where the lock is tried, has keys now */
    struct cluster_move m = cluster_move_begin(cl, 0, cl->node[1]);
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, NULL, "|cluster|1 slot(s) are being moved: 0. Until they have arrived");
    CHECK_FOUND(&log, 0, cl->node[0], "|session|a lock was taken"); /* in another slot */
    /* One of two: here the counter, there the reign, or so. */
    CHECK_INT(cluster_move_keys(&m, 1), 1);
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, NULL, "|cluster|1 slot(s) are being moved: 0.");
    CHECK(!logbook_has(&log, "[3]") && !found(&log, 2, cl->node[0], "|"));
    cluster_move_finish(&m);
    CHECK_EVENTUALLY(is_well(&log, cl->url), 10000);
    CHECK_FOUND(&log, 0, cl->node[1], "|fence|2 slot(s) have a fencing counter");
}

/* ---- clocks and versions --------------------------------------------------------------------- */

TEST(clocks_that_differ_are_told)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1, .clockshim = 1 });
    struct logbook log = LOGBOOK;
    char text[100];
    diagnose(&log, cl->url);
    CHECK(!logbook_has(&log, "|clock|its clock is +3") && !found(&log, 2, NULL, "|clock|"));
    server_clock_shift(cl->node[1], 3600 * 1000);
    cluster_wait(cl);
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 0, cl->node[1],
                     "|session|a lock was")), 10000);
    CHECK_FOUND(&log, 1, cl->node[1], "|clock|its clock is +3");
    snprintf(text, sizeof text, "|clock|the clock of 127.0.0.1:%d is 3", server_port(cl->node[1]));
    CHECK_FOUND(&log, 2, NULL, text);
    CHECK(!logbook_has(&log, "|fence|the numbers of"));
    /* A slot comes from there, and its numbers with it. */
    const char *name = cluster_name(cl, cl->node[1], 0);
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m = lock_of(c, name, 20000);
    uint64_t fence = lock_now(m);
    unlock_now(m);
    CHECK(cluster_move_slot(cl, cluster_slot_of(cl, name), cl->node[0], NULL, NULL) > 0);
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 2, cl->node[0],
                     "|fence|the numbers of 1 slot(s) are ahead of this server's clock")), 10000);
    CHECK(lock_now(m) > fence);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* A copy of the server that says another version of itself; NULL: it cannot be made. */
static const char *other_version(void)
{
    static char path[300];
    char command[1500];
    const char *env = getenv("HF_TEST_SERVER");
    snprintf(path, sizeof path, "%s/mixed", t_dir());
    snprintf(command, sizeof command,
             "set -e; cd '%s'; p=$(command -v \"%s\" || command -v valkey-server)\n"
             "v=$(\"$p\" --version | sed 's/.* v=\\([0-9.]*\\).*/\\1/'); w=6.${v#*.}\n"
             "LC_ALL=C sed \"s/$(echo \"$v\" | sed 's/[.]/[.]/g')/$w/g\" \"$p\" > other\n"
             "chmod +x other; ./other --version | grep -q \"v=$w \"\n"
             /* the first node that starts is the other one */
             "printf '#!/bin/sh\\ncase \"$*\" in *cluster-enabled*) mkdir %s/first 2>/dev/null && "
             "exec %s/other \"$@\" ;; esac; exec %%s \"$@\"\\n' \"$p\" > mixed; chmod +x mixed",
             t_dir(), env ? env : "redis-server", t_dir(), t_dir());
    return system(command) == 0 ? path : NULL;
}

TEST(servers_of_different_versions_are_told)
{
    const char *mixed = other_version();
    if (!mixed)
        SKIP("no copy of this server with another version could be made");
    struct logbook log = LOGBOOK;
    setenv("HF_TEST_SERVER", mixed, 1);
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    diagnose(&log, cl->url);
    int old = 0;
    for (int i = 0; i < 3; i++)
        old += found(&log, 1, cl->node[i], "has no sharded channels");
    CHECK_INT(old, 1);
    CHECK_FOUND(&log, 1, NULL, "|version|the servers are not all the same");
    struct cluster *same = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    diagnose(&log, same->url); /* the first has started already */
    CHECK(!logbook_has(&log, "not all the same") && !logbook_has(&log, "sharded"));
}

TEST(a_server_older_than_those_that_are_tested_is_told)
{
    if (!other_version())
        SKIP("no copy of this server with another version could be made");
    static char other[300];
    snprintf(other, sizeof other, "%s/other", t_dir());
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1, .program = other });
    const char *version = server_info(s, "valkey_version");
    if (!version)
        version = server_info(s, "redis_version");
    if (strncmp(version, "6.0", 3) != 0 && strncmp(version, "6.1", 3) != 0)
        LEFT_OUT("a server whose version can be changed to 6.0 or 6.1");
    struct logbook log = LOGBOOK;
    diagnose(&log, server_url(s));
    CHECK_CONTAINS(log.text, "is older than 6.2");
    CHECK_CONTAINS(log.text, "use 6.2 or newer");
}

/* ---- the wrong kind of URL ------------------------------------------------------------------- */

TEST(a_url_of_the_wrong_kind_is_told_both_ways)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct server *alone = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct logbook log = LOGBOOK;
    char url[64];
    diagnose(&log, server_tcp_url(cl->node[0]));
    CHECK_CONTAINS(log.text, "|cluster|it is part of a cluster");
    CHECK_CONTAINS(log.text, "|use redis+cluster://");
    CHECK(!logbook_has(&log, "|session|"));
    CHECK(!logbook_has(&log, "|fence|"));
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", server_port(alone));
    diagnose(&log, url);
    CHECK_CONTAINS(log.text, "|cluster|127.0.0.1:");
    CHECK_CONTAINS(log.text, "is not part of a cluster: use redis://");
    diagnose_well(&log, server_tcp_url(alone));
    server_kill(alone);
    diagnose(&log, url);
    CHECK_CONTAINS(log.text, "|reach|");
}
