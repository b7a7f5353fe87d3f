/* SPDX-License-Identifier: MIT cluster_doctor.c - hf_diagnose() and hf_repair_fence() on a Redis
 * Cluster: each thing that weakens a promise is put there, and told, and not told without it.
 */
#include <stdatomic.h>

#include "harness/cluster.h"
#include "harness/live.h"

/* Each finding is a line: [grade] where|topic|text|advice. */
static void note_finding(const hf_finding *f, void *arg)
{
    char line[1200];
    snprintf(line, sizeof line, "[%d] %s|%s|%s|%s", (int)f->grade, f->where, f->topic, f->text,
             f->advice ? f->advice : "");
    logbook_add(arg, HF_LOG_INFO, line);
}

static void diagnose(struct logbook *log, const char *url)
{
    log->len = 0;
    log->text[0] = '\0';
    CHECK_HF(hf_diagnose(url, NULL, note_finding, log, &err), HF_OK);
    CHECK(log->len < sizeof log->text);
}

/* A line "[grade] where|..." that has this in it. where NULL: the cluster as a whole. */
static int found(struct logbook *log, int grade, const struct server *where, const char *part)
{
    char begin[64];
    if (where)
        snprintf(begin, sizeof begin, "[%d] 127.0.0.1:%d|", grade, server_port(where));
    else
        snprintf(begin, sizeof begin, "[%d] cluster|", grade);
    char *all = strdup(log->text), *save = NULL;
    int has = 0;
    for (char *line = strtok_r(all, "\n", &save); line && !has; line = strtok_r(NULL, "\n", &save))
        has = strstr(line, begin) && strstr(line, part);
    free(all);
    return has;
}

#define CHECK_FOUND(log, grade, where, part)                                                         \
    do {                                                                                             \
        if (!found(log, grade, where, part))                                                         \
            FAIL("not found: [%d] %s, in\n%s", grade, part, (log)->text);                            \
    } while (0)

static void check_well(struct logbook *log)
{
    if (logbook_has(log, "[2]") || logbook_has(log, "[3]"))
        FAIL("something is told that is not there:\n%s", log->text);
}

static void diagnose_well(struct logbook *log, const char *url)
{
    diagnose(log, url);
    check_well(log);
}

/* A cluster where all is well may be a moment away: who was just restarted or moved. */
static int is_well(struct logbook *log, const char *url)
{
    diagnose(log, url);
    return !logbook_has(log, "[2]") && !logbook_has(log, "[3]");
}

TEST(every_master_is_looked_at_and_tried_with_a_lock)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char text[100];
    diagnose_well(&log, cl->url);
    for (int i = 0; i < 3; i++) {
        CHECK_FOUND(&log, 0, cl->node[i], "|role|it is a master, followed by 1 replica(s)");
        CHECK_FOUND(&log, 0, cl->node[i], "|session|a lock was taken, seen by the server, and given back");
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
    CHECK_FOUND(&log, 0, cl->node[0], "|fence|1 slot(s) have a fencing counter; the newest number is 1");
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
    CHECK_FOUND(&log, 2, cl->node[1], "|replicas|the cluster knows 1 replica(s) of it, and 0 are connected");
    CHECK_FOUND(&log, 2, cl->node[1], "|replicas|there is nobody to fail over to");
    CHECK(!found(&log, 2, cl->node[0], "|") && !found(&log, 2, cl->node[2], "|"));
    CHECK_FOUND(&log, 1, NULL, "cluster-require-full-coverage yes: when one of the 1 master(s)");
    CHECK(!logbook_has(&log, "[3]"));
    char url[256];
    snprintf(url, sizeof url, "%s?replicas=1", cl->url);
    diagnose(&log, url);
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
        CHECK_FOUND(&log, 2, cl->node[i], "|replicas|there is nobody to fail over to");
    CHECK(!logbook_has(&log, "[3]"));
    server_kill(cl->node[1]);
    CHECK_EVENTUALLY(strstr(server_ask(cl->node[0], "CLUSTER INFO"), "cluster_state:fail") != NULL
                     && strstr(server_ask(cl->node[2], "CLUSTER INFO"), "cluster_state:fail") != NULL,
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
    snprintf(text, sizeof text, "|cluster|the node 127.0.0.1:%d is suspected to have failed by 1 of 1",
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
        CHECK_STR(server_ask(cl->node[i], "CLUSTER SETSLOT 77 NODE %s", cluster_id(cl, cl->node[2])), "OK");
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
                     "|reach|3 slot(s) are nobody's: 7, 100-101. No lock")), 10000);
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
    CHECK_INT(cluster_move_keys(&m, 1), 1); /* one of two: here the counter, there the reign, or so */
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 2, NULL, "|cluster|1 slot(s) are being moved: 0.");
    CHECK(!logbook_has(&log, "[3]") && !found(&log, 2, cl->node[0], "|"));
    while (cluster_move_keys(&m, 10) > 0)
        ;
    cluster_move_end(&m);
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
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 0, cl->node[1], "|session|a lock was")), 10000);
    CHECK_FOUND(&log, 1, cl->node[1], "|clock|its clock is +3");
    snprintf(text, sizeof text, "|clock|the clock of 127.0.0.1:%d is 3", server_port(cl->node[1]));
    CHECK_FOUND(&log, 2, NULL, text);
    CHECK(!logbook_has(&log, "|fence|the numbers of"));
    /* A slot comes from there, and its numbers with it. */
    const char *name = cluster_name(cl, cl->node[1], 0);
    char key[64];
    snprintf(key, sizeof key, "lock:%s", name);
    hf_client *c = client_at(cl->url, 0);
    hf_mutex *m = mutex_of(c, name, 20000);
    uint64_t fence = lock_now(m);
    unlock_now(m);
    CHECK(cluster_move_slot(cl, cluster_slot(cl, key), cl->node[0], NULL, NULL) > 0);
    CHECK_EVENTUALLY((diagnose(&log, cl->url), found(&log, 2, cl->node[0],
                     "|fence|the numbers of 1 slot(s) are ahead of this server's clock")), 10000);
    CHECK(lock_now(m) > fence);
    unlock_now(m);
    hf_mutex_free(m);
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

/* ---- rights ---------------------------------------------------------------------------------- */

#define USER "reset on >pw ~lock:* ~{lock:* &lock:holdfast:{* +@all"

TEST(each_missing_right_is_told_of_the_very_master)
{
    static const struct {
        const char *without;
        int grade;
        const char *text;
    } rights[] = {
        { "-asking", 2, "|rights|ASKING is not allowed" },
        { "-spublish", 2, "|rights|SPUBLISH is not allowed" },
        { "resetchannels &lock:holdfast:s:*", 2, "|rights|SPUBLISH is not allowed" },
        { "-ssubscribe", 2, "|rights|no subscription" },
        { "-ssubscribe", 2, "|session|a lock was taken and given back, but the server does not see" },
        { "-pubsub|shardnumsub", 2, "|rights|this user may not run PUBSUB SHARDNUMSUB" },
        { "-pubsub|shardnumsub", 2, "|session|a lock was taken and given back, but" },
        { "-cluster|slots", 2, "|rights|CLUSTER SLOTS is not allowed" },
        { "-evalsha -eval", 3, "|rights|" },
        { "-info", 2, "|version|INFO is not allowed" },
        { "-getrange", 1, "|fence|the fencing counters cannot be read" },
    };
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char url[256];
    snprintf(url, sizeof url, "redis+cluster://u:pw@%s", cl->hosts);
    for (int i = 0; i < cl->nodes; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER u " USER), "OK");
    diagnose_well(&log, url);
    for (size_t i = 0; i < sizeof rights / sizeof *rights; i++) {
        char command[200];
        snprintf(command, sizeof command, "ACL SETUSER u %s", rights[i].without);
        CHECK_STR(server_ask(cl->node[1], command), "OK");
        diagnose(&log, url);
        CHECK_FOUND(&log, rights[i].grade, cl->node[1], rights[i].text);
        CHECK(!found(&log, 2, cl->node[0], "|") && !found(&log, 3, cl->node[2], "|"));
        CHECK_STR(server_ask(cl->node[1], "ACL SETUSER u " USER), "OK");
    }
    diagnose_well(&log, url);
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER u -cluster|nodes -config"), "OK");
    diagnose_well(&log, url);
    CHECK_FOUND(&log, 1, NULL, "|cluster|this user may not ask for the nodes");
    CHECK_FOUND(&log, 1, NULL, "|cluster|this user may not read cluster-node-timeout");
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER u -cluster|slots"), "OK");
    diagnose(&log, url);
    CHECK_CONTAINS(log.text, "[3] redis+cluster://");
    CHECK_CONTAINS(log.text, "|rights|the server answered");
}

/* Give s the user that the block of this name in docs/acl.md describes. */
static void add_user(struct server *s, const char *block)
{
    char line[2048] = "", begin[64];
    FILE *f = fopen("docs/acl.md", "r");
    snprintf(begin, sizeof begin, "```%s\n", block);
    CHECK(f);
    do
        CHECK(fgets(line, sizeof line, f));
    while (strcmp(line + strspn(line, " "), begin) != 0);
    CHECK(fgets(line, sizeof line, f));
    fclose(f);
    line[strcspn(line, "\n")] = '\0';
    char *command = line + strspn(line, " "), *password = strstr(command, "PASSWORD");
    if (password) {
        memmove(password + 2, password + 8, strlen(password + 8) + 1);
        memcpy(password, "pw", 2);
    }
    CHECK_STR(server_ask(s, command), "OK");
}

TEST(the_least_user_lacks_nothing_that_a_lock_needs)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char url[256];
    for (int i = 0; i < cl->nodes; i++) {
        add_user(cl->node[i], "acl");
        add_user(cl->node[i], "acl-cluster");
    }
    snprintf(url, sizeof url, "redis+cluster://holdfast:pw@%s", cl->hosts);
    diagnose_well(&log, url);
    CHECK(!logbook_has(&log, "|rights|"));
    for (int i = 0; i < 3; i++)
        CHECK_FOUND(&log, 0, cl->node[i], "|session|a lock was taken, seen by the server");
}

/* ---- counters -------------------------------------------------------------------------------- */

/* The counter of the slot that this name lies in, made by a lock there. */
static const char *counter_of(struct cluster *cl, hf_client *c, struct server *s, int n)
{
    const char *name = cluster_name(cl, s, n);
    static char key[8][64];
    static int turn;
    hf_mutex *m = mutex_of(c, name, 20000);
    lock_now(m);
    unlock_now(m);
    hf_mutex_free(m);
    char lock[64];
    snprintf(lock, sizeof lock, "lock:%s", name);
    int slot = cluster_slot(cl, lock);
    char *all = strdup(server_keys(s)), *save = NULL, *ret = key[turn++ % 8];
    *ret = '\0';
    for (char *k = strtok_r(all, "\n", &save); k; k = strtok_r(NULL, "\n", &save))
        if (strstr(k, "}:fence") && !strstr(k, "broken") && cluster_slot(cl, k) == slot)
            snprintf(ret, 64, "%s", k);
    free(all);
    CHECK(*ret);
    return ret;
}

TEST(broken_counters_of_all_slots_are_told_and_repaired)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct logbook log = LOGBOOK;
    hf_client *c = client_at(cl->url, 0);
    size_t repaired = 77;
    CHECK_HF(hf_repair_fence(cl->url, NULL, &repaired, &err), HF_OK); /* there is none yet */
    CHECK_INT(repaired, 0);
    const char *list = counter_of(cl, c, cl->node[0], 0), *words = counter_of(cl, c, cl->node[0], 1);
    const char *empty = counter_of(cl, c, cl->node[2], 0), *fine = counter_of(cl, c, cl->node[2], 1);
    hf_client_free(c);
    diagnose(&log, cl->url);
    CHECK(!logbook_has(&log, "[3]"));
    CHECK_HF(hf_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
    CHECK_INT(repaired, 0);
    server_ask(cl->node[0], "DEL %s", list);
    CHECK_INT(server_int(cl->node[0], "RPUSH %s what is this", list), 3);
    CHECK_STR(server_ask(cl->node[0], "SET %s words", words), "OK");
    CHECK_STR(server_ask(cl->node[2], "SET %s %s", empty, ""), "OK");
    const char *before = server_ask(cl->node[2], "GET %s", fine);
    diagnose(&log, cl->url);
    CHECK_FOUND(&log, 3, cl->node[0], list);
    CHECK_FOUND(&log, 3, cl->node[0], words);
    CHECK_FOUND(&log, 3, cl->node[2], empty);
    CHECK(!logbook_has(&log, fine) && !found(&log, 3, cl->node[1], "|"));
    CHECK_HF(hf_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
    CHECK_INT(repaired, 3);
    CHECK_STR(server_ask(cl->node[0], "LRANGE %s:broken 0 -1", list), "what\nis\nthis");
    CHECK_STR(server_ask(cl->node[0], "GET %s:broken", words), "words");
    CHECK_STR(server_ask(cl->node[2], "GET %s", fine), before);
    CHECK(atoll(server_ask(cl->node[2], "GET %s", empty)) > 1600000000000000);
    diagnose(&log, cl->url);
    CHECK(!logbook_has(&log, "[3]"));
    CHECK_HF(hf_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
    CHECK_INT(repaired, 0);
    c = client_at(cl->url, 0);
    CHECK_STR(counter_of(cl, c, cl->node[0], 0), list); /* granted again */
    hf_client_free(c);
}

TEST(a_repair_says_what_keeps_it_from_its_work)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(cl->url, 0);
    const char *broken = counter_of(cl, c, cl->node[2], 0);
    char url[256];
    size_t repaired = 77;
    hf_client_free(c);
    CHECK_STR(server_ask(cl->node[2], "SET %s words", broken), "OK");
    for (int i = 0; i < 3; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER u " USER " -rename"), "OK");
    snprintf(url, sizeof url, "redis+cluster://u:pw@%s", cl->hosts);
    CHECK_HF(hf_repair_fence(url, NULL, &repaired, &err), HF_EAUTH);
    CHECK_STR(server_ask(cl->node[2], "GET %s", broken), "words");
    CHECK_STR(server_ask(cl->node[0], "ACL SETUSER u -type -getrange"), "OK");
    CHECK_STR(server_ask(cl->node[2], "ACL SETUSER u +rename"), "OK");
    CHECK_HF(hf_repair_fence(url, NULL, &repaired, &err), HF_EAUTH); /* the others were looked at */
    CHECK(atoll(server_ask(cl->node[2], "GET %s", broken)) > 1600000000000000);
    CHECK_INT(repaired, 77);
    server_kill(cl->node[0]);
    CHECK_HF(hf_repair_fence(cl->url, NULL, &repaired, &err), HF_ECONN);
    CHECK_INT(repaired, 77);
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
    CHECK_CONTAINS(log.text, "is no part of a cluster: use redis://");
    diagnose_well(&log, server_tcp_url(alone));
    server_kill(alone);
    diagnose(&log, url);
    CHECK_CONTAINS(log.text, "|reach|");
}

/* ---- without memory -------------------------------------------------------------------------- */

static atomic_long allocations, alive, fail_at;

static void *test_resize(void *old, size_t n)
{
    if (atomic_fetch_add(&allocations, 1) + 1 == atomic_load(&fail_at))
        return NULL;
    void *p = realloc(old, n);
    atomic_fetch_add(&alive, p && !old);
    return p;
}

static void *test_alloc(size_t n)
{
    return test_resize(NULL, n);
}

static void test_free(void *p)
{
    atomic_fetch_sub(&alive, p != NULL);
    free(p);
}

static void ignore(const hf_finding *f, void *arg)
{
    (void)f;
    (void)arg;
}

static int bears(hf_err e)
{
    return e == HF_OK || e == HF_ENOMEM || e == HF_ECONN || e == HF_EUNSURE || e == HF_ESYS;
}

/* All counters of a prefix with a tag are in one slot: else there would be thousands to try. */
TEST_TIMEOUT(allocations_fail_in_turn, 180)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    char url[256];
    long k, failed = 0;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 500 };
    snprintf(url, sizeof url, "%s?prefix={mine}:", cl->url);
    server_ask(cluster_owner_of(cl, "{mine}:x"), "SET {mine}:holdfast:{x}:fence 1");
    hf_set_allocator(test_alloc, test_resize, test_free);
    for (k = 1;; k += 1 + (long)t_random(getenv("HF_SOAK") ? 1 : 12)) {
        atomic_store(&allocations, 0);
        atomic_store(&fail_at, k);
        hf_err d = hf_diagnose(url, &o, ignore, NULL, &err);
        hf_err r = hf_repair_fence(url, &o, NULL, &err);
        if (!bears(d) || !bears(r))
            FAIL("allocation %ld failed: %s, %s: %s", k, hf_err_name(d), hf_err_name(r), err.message);
        failed += d == HF_ENOMEM || r == HF_ENOMEM;
        if (atomic_load(&alive))
            FAIL("allocation %ld failed: %ld blocks leaked", k, atomic_load(&alive));
        if (atomic_load(&allocations) < k)
            break;
        CHECK(k < 20000);
    }
    t_note("of %ld allocations some failed, and %ld times that was said", k, failed);
    CHECK(failed > 0);
}
