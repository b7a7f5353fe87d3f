/* SPDX-License-Identifier: MIT
 * cluster_repair.c - hf_doctor_examine() and hf_doctor_repair_fence() on a Redis Cluster: rights
 * that are missing, fencing counters that are broken, memory that runs out.
 */
#include "harness/acl.h"
#include "harness/cluster.h"
#include "harness/doctor.h"
#include "harness/failing.h"

/* ---- rights ---------------------------------------------------------------------------------- */

#define USER "reset on >pw ~lock:* ~{lock:* resetchannels &lock:holdfast:{* +@all"

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
        { "-ssubscribe", 2,
          "|session|a lock was taken and given back, but the server does not see" },
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

TEST(the_least_user_lacks_nothing_that_a_lock_needs)
{
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char url[256];
    for (int i = 0; i < cl->nodes; i++) {
        acl_user(cl->node[i], "acl");
        acl_user(cl->node[i], "acl-cluster");
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
    hf_lock *m = lock_of(c, name, 20000);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    int slot = cluster_slot_of(cl, name);
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
    CHECK_HF(hf_doctor_repair_fence(cl->url, NULL, &repaired, &err), HF_OK); /* there is none yet */
    CHECK_INT(repaired, 0);
    const char *list = counter_of(cl, c, cl->node[0], 0);
    const char *words = counter_of(cl, c, cl->node[0], 1);
    const char *empty = counter_of(cl, c, cl->node[2], 0);
    const char *fine = counter_of(cl, c, cl->node[2], 1);
    hf_client_free(c);
    diagnose(&log, cl->url);
    CHECK(!logbook_has(&log, "[3]"));
    CHECK_HF(hf_doctor_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
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
    CHECK_HF(hf_doctor_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
    CHECK_INT(repaired, 3);
    CHECK_STR(server_ask(cl->node[0], "LRANGE %s:broken 0 -1", list), "what\nis\nthis");
    CHECK_STR(server_ask(cl->node[0], "GET %s:broken", words), "words");
    CHECK_STR(server_ask(cl->node[2], "GET %s", fine), before);
    CHECK(atoll(server_ask(cl->node[2], "GET %s", empty)) > 1600000000000000);
    diagnose(&log, cl->url);
    CHECK(!logbook_has(&log, "[3]"));
    CHECK_HF(hf_doctor_repair_fence(cl->url, NULL, &repaired, &err), HF_OK);
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
    CHECK_HF(hf_doctor_repair_fence(url, NULL, &repaired, &err), HF_EAUTH);
    CHECK_STR(server_ask(cl->node[2], "GET %s", broken), "words");
    CHECK_STR(server_ask(cl->node[0], "ACL SETUSER u -type -getrange"), "OK");
    CHECK_STR(server_ask(cl->node[2], "ACL SETUSER u +rename"), "OK");
    /* the others were looked at */
    CHECK_HF(hf_doctor_repair_fence(url, NULL, &repaired, &err), HF_EAUTH);
    CHECK(atoll(server_ask(cl->node[2], "GET %s", broken)) > 1600000000000000);
    CHECK_INT(repaired, 77);
    server_kill(cl->node[0]);
    CHECK_HF(hf_doctor_repair_fence(cl->url, NULL, &repaired, &err), HF_ECONN);
    CHECK_INT(repaired, 77);
}

/* ---- without memory -------------------------------------------------------------------------- */

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
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    for (k = 1;; k += 1 + (long)t_random(getenv("HF_SOAK") ? 1 : 12)) {
        failing_arm(k, 0);
        hf_err d = hf_doctor_examine(url, &o, ignore_finding, NULL, &err);
        hf_err r = hf_doctor_repair_fence(url, &o, NULL, &err);
        if (!bears(d) || !bears(r))
            FAIL("allocation %ld failed: %s, %s: %s", k, hf_err_name(d), hf_err_name(r),
                 err.message);
        failed += d == HF_ENOMEM || r == HF_ENOMEM;
        if (failing_live())
            FAIL("allocation %ld failed: %ld blocks leaked", k, failing_live());
        if (!failing_count())
            break;
        CHECK(k < 20000);
    }
    t_note("of %ld allocations some failed, and %ld times that was said", k, failed);
    CHECK(failed > 0);
}
