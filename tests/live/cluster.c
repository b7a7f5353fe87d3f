/* SPDX-License-Identifier: MIT
 * cluster.c - locks of every kind on a Redis Cluster, each where its slot is.
 */
#include <signal.h>

#include "harness/acl.h"
#include "harness/cluster.h"
#include "harness/holder.h"
#include "harness/kinds.h"
#include "harness/proc.h"
#include "harness/waiting.h"

/* Nobody was sent a request with keys of two slots, and nobody a wrong command. */
static void check_no_errors(struct cluster *cl)
{
    CHECK_INT(cluster_errors(cl, "CROSSSLOT"), 0);
    if (server_knows("ssubscribe")) /* else that is asked, once at each connection */
        CHECK_INT(cluster_errors(cl, "ERR"), 0);
}

/* P9: what stays has a ttl, but for the counters and the reigns. */
static void check_left(struct cluster *cl)
{
    for (int i = 0; i < cl->masters; i++) {
        char *all = strdup(server_keys(cl->node[i])), *save = NULL;
        for (char *k = strtok_r(all, "\n", &save); k; k = strtok_r(NULL, "\n", &save))
            if (!strstr(k, "}:fence") && !strstr(k, "}:reign")
                && server_int(cl->node[i], "PTTL %s", k) == -1)
                FAIL("%s was left behind without a ttl", k);
        free(all);
    }
}

TEST(a_lock_is_taken_at_the_master_of_its_slot)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0), *d = client_at(cl->url, 0);
    CHECK_CONTAINS(hf_client_url(c), "redis+cluster://127.0.0.1:");
    for (int i = 0; i < 3; i++) {
        const char *name = cluster_name(cl, cl->node[i], 0);
        hf_lock *m = lock_with(c, name, (hf_lock_opts){ .ttl_ms = 30000 });
        struct locker w = { .m = lock_with(d, name, KEPT), .wait_ms = 20000 };
        uint64_t fence = lock_now(m);
        CHECK_CONTAINS(server_ask(cl->node[i], "GET lock:%s", name), ":15000"); /* the grace */
        CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_EBUSY);
        locker_start(&w);
        CHECK_QUEUE(cl->node[i], name, 1);
        unlock_now(m);
        locker_join(&w, HF_OK);
        CHECK(w.fence > fence);
        unlock_now(w.m);
        CHECK(lock_now(m) > w.fence);
        unlock_now(m);
        CHECK_STR(server_ask(cl->node[i], "GET lock:%s", name), NULL);
        hf_lock_free(m);
        hf_lock_free(w.m);
    }
    hf_client_free(c);
    hf_client_free(d);
    check_no_errors(cl);
    check_left(cl);
    CHECK_INT(cluster_errors(cl, "MOVED"), 0); /* the map was asked for, not found out by errors */
}

/* How many connections over TCP a node has of this type; the harness itself comes by the socket. */
static int connections(struct server *s, const char *type)
{
    int n = 0;
    const char *p = server_ask(s, "CLIENT LIST TYPE %s", type);
    for (; (p = strstr(p, " addr=127.")); p++)
        n++;
    return n;
}

TEST(one_connection_to_each_master_and_one_to_hear_serve_all_locks)
{
    enum { EACH = 10 };
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m[3 * EACH];
    for (int i = 0; i < 3 * EACH; i++) {
        m[i] = lock_with(c, cluster_name(cl, cl->node[i % 3], i / 3), KEPT);
        lock_now(m[i]);
    }
    for (int i = 0; i < 3; i++) {
        CHECK_INT(connections(cl->node[i], "normal"), 1);
        CHECK_INT(connections(cl->node[i], "pubsub"), 1);
        CHECK_INT(connections(cl->node[3 + i], "normal"), 0);
    }
    for (int i = 0; i < 3 * EACH; i++) {
        unlock_now(m[i]);
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
    check_no_errors(cl);
}

/* ---- who is asked first ---------------------------------------------------------------------- */

TEST(one_living_node_of_the_url_is_enough_and_a_replica_will_do)
{
    struct cluster *cl = cluster_start(NULL);
    char url[256];
    server_kill(cl->node[5]);
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d,127.0.0.1:%d",
             server_port(cl->node[5]), server_port(cl->node[4]));
    hf_client *c = client_at(url, 0);
    for (int i = 0; i < 3; i++) {
        hf_lock *m = lock_with(c, cluster_name(cl, cl->node[i], 0), KEPT);
        lock_now(m);
        unlock_now(m);
        hf_lock_free(m);
    }
    hf_client_free(c);
    c = client_at(url_with(url, "replicas=1"), 0); /* a replica itself refuses to WAIT */
    hf_lock *m = lock_with(c, cluster_name(cl, cl->node[0], 0), KEPT);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(what_the_url_gets_wrong_is_said)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    struct server *alone = server_start_opts(&(struct server_opts){ .tcp = 1 });
    char url[256];
    hf_client *c = NULL;
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", server_port(alone));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG); /* a server that is in no cluster */
    t_note("%s", err.message);
    CHECK_CONTAINS(err.message, "luster");
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d/1", server_port(cl->node[0]));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "db 0 only");
    for (int i = 0; i < 3; i++)
        server_kill(cl->node[i]);
    CHECK_HF(hf_client_open(cl->url, NULL, &c, &err), HF_ECONN);
    t_note("%s", err.message);
}

/* ---- every kind ------------------------------------------------------------------------------ */

TEST(every_kind_works_in_every_slot)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0), *d = client_at(cl->url, 0);
    char name[32];
    for (int i = 0; i < 6; i++) { /* sixty names: surely at all three */
        snprintf(name, sizeof name, "some %d", i);
        kind_try_all(c, d, hf_str(name));
    }
    for (int i = 0; i < 3; i++)
        CHECK(server_int(cl->node[i], "DBSIZE") > 3);
    hf_client_free(c);
    hf_client_free(d);
    check_no_errors(cl);
}

TEST(P10_hostile_names_stay_in_one_slot)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0), *d = client_at(cl->url, 0);
    static const struct { const char *p; size_t len; } hostile[] = {
        { "{a}b", 4 },   { "a}b", 3 },      { "}", 1 },        { "}{", 2 },   { "{", 1 },
        { "{}", 2 },     { "{}x", 3 },      { "{{x}}", 5 },    { "x{}{y}", 6 }, { "a{b}c{d}", 8 },
        { "a\0b", 3 },   { "\0}", 2 },      { "{\0}", 3 },     { "\xff{\xfe}", 4 }, { "%7D", 3 },
        { "%}", 2 },     { "\r\n{*}", 5 },
    };
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++)
        kind_try_all(c, d, (hf_bytes){ hostile[i].p, hostile[i].len });
    hf_client_free(c);
    hf_client_free(d);
    check_no_errors(cl);
}

/* ---- several slots at once ------------------------------------------------------------------- */

static void three_of(struct cluster *cl, hf_client *c, hf_lock *ret[3])
{
    for (int i = 0; i < 3; i++)
        ret[i] = lock_with(c, cluster_name(cl, cl->node[i], 0), KEPT);
}

static void free_three(hf_lock *m[3])
{
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
}

TEST(several_locks_in_different_slots_are_had_together_or_not_at_all)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0), *d = client_at(cl->url, 0);
    hf_lock *m[3], *n[3];
    three_of(cl, c, m);
    three_of(cl, d, n);
    CHECK_HF(hf_multi_acquire(m, 3, 5000, &err), HF_OK);
    for (int i = 0; i < 3; i++)
        CHECK_HF(hf_lock_try(n[i], NULL, &err), HF_EBUSY);
    CHECK_HF(hf_multi_acquire(n, 3, 0, &err), HF_EBUSY);
    CHECK_HF(hf_multi_release(m, 3, &err), HF_OK);
    lock_now(m[1]);
    CHECK_HF(hf_multi_acquire(n, 3, 900, &err), HF_ETIMEDOUT);
    for (int i = 0; i < 3; i++)
        CHECK_INT(hf_lock_state(n[i]), HF_STATE_FREE);
    lock_now(m[0]);
    lock_now(m[2]);
    CHECK_HF(hf_multi_release(m, 3, &err), HF_OK);
    CHECK_HF(hf_multi_acquire(n, 3, 5000, &err), HF_OK);
    CHECK_HF(hf_multi_release(n, 3, &err), HF_OK);
    free_three(m);
    free_three(n);
    hf_client_free(c);
    hf_client_free(d);
    check_no_errors(cl);
}

struct crossing {
    struct cluster *cl;
    atomic_int inside, worst, done;
};

static void cross(int index, void *arg)
{
    struct crossing *x = arg;
    hf_client *c = client_at(x->cl->url, 0);
    hf_lock *m[3], *turned[3];
    three_of(x->cl, c, m);
    for (int i = 0; i < 3; i++)
        turned[i] = m[(i + index) % 3];
    for (int i = 0; i < 15; i++) {
        CHECK_HF(hf_multi_acquire(turned, 3, 30000, &err), HF_OK);
        int n = atomic_fetch_add(&x->inside, 1) + 1;
        if (n > atomic_load(&x->worst))
            atomic_store(&x->worst, n);
        atomic_fetch_add(&x->inside, -1);
        CHECK_HF(hf_multi_release(turned, 3, &err), HF_OK);
    }
    atomic_fetch_add(&x->done, 1);
    free_three(m);
    hf_client_free(c);
}

TEST(processes_that_want_the_same_slots_in_another_order_do_not_block_one_another)
{
    struct crossing *x = shared_memory(sizeof *x);
    x->cl = cluster_start(NULL);
    workers_run(4, cross, x, 40000);
    CHECK_INT(atomic_load(&x->done), 4);
    CHECK_INT(atomic_load(&x->worst), 1);
}

static int count_it(const hf_inspect_info *info, void *arg)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

TEST(lists_and_releases_by_owner_reach_all_masters)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0);
    int seen = 0;
    size_t released = 0;
    for (int i = 0; i < 9; i++)
        CHECK_HF(hf_owner_acquire(c, hf_str(cluster_name(cl, cl->node[i % 3], i)), 20000,
                                  hf_str("me"),
                                  NULL, &err), HF_OK);
    CHECK_HF(hf_inspect_list(c, NULL, 0, count_it, &seen, &err), HF_OK);
    CHECK_INT(seen, 9);
    CHECK_HF(hf_owner_release_all(c, hf_str("me"), &released, &err), HF_OK);
    CHECK_INT(released, 9);
    seen = 0;
    CHECK_HF(hf_inspect_list(c, NULL, 0, count_it, &seen, &err), HF_OK);
    CHECK_INT(seen, 0);
    hf_client_free(c);
}

/* ---- presence -------------------------------------------------------------------------------- */

/* The ttl is two minutes; the test's own limit is one. A master that is replaced meanwhile, as one
 * is that a busy machine stops for two seconds, would cost the ttl: see cluster_faults.c. */
TEST(P3_a_killed_holder_costs_its_grace_at_every_master)
{
    struct cluster *cl = cluster_start(NULL);
    for (int i = cl->masters; i < cl->nodes; i++)
        server_ask(cl->node[i], "CONFIG SET cluster-replica-no-failover yes");
    hf_client *d = client_at(cl->url, 0);
    for (int i = 0; i < 3; i++) {
        const char *name = cluster_name(cl, cl->node[i], 0);
        hf_lock_opts o = { .ttl_ms = 120000, .grace_ms = 2000 };
        struct workers *w = holder_start(cl->url, name, o);
        struct locker l = { .m = lock_with(d, name, KEPT), .wait_ms = 30000 };
        locker_start(&l);
        CHECK_QUEUE(cl->node[i], name, 1);
        workers_signal(w, 0, SIGKILL);
        locker_join(&l, HF_OK);
        CHECK(server_int(cl->node[i], "PTTL lock:%s", name) <= 20000);
        unlock_now(l.m);
        hf_lock_free(l.m);
        workers_join(w, 1000);
    }
    hf_client_free(d);
}

/* ---- credentials ----------------------------------------------------------------------------- */

#define TLS_FORM "rediss+cluster://:server-pw@%s?cacert=%s/tls/%s.crt%s"

TEST(tls_is_verified_at_every_node_also_after_a_failover_and_a_move)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .tls = 1,
                                                               .requirepass = "server-pw" });
    char url[1024];
    hf_client *c = NULL;
    CHECK_HF(hf_client_open(cl->url, NULL, &c, &err), HF_EAUTH); /* the password is missing */
    snprintf(url, sizeof url, TLS_FORM, cl->hosts, t_dir(), "other", "");
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "certificate");
    snprintf(url, sizeof url, TLS_FORM, cl->hosts, t_dir(), "ca", "&sni=elsewhere.example");
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    snprintf(url, sizeof url, TLS_FORM, cl->hosts, t_dir(), "ca", "&sni=localhost");
    c = client_at(url, 0);
    struct server *old = cl->node[0], *next = cl->node[3];
    const char *name = cluster_name(cl, old, 0), *name2 = cluster_name(cl, cl->node[1], 0);
    hf_lock *m = lock_with(c, name, KEPT), *n = lock_with(c, name2, KEPT);
    uint64_t fence = lock_now(m), fence2 = lock_now(n);
    cluster_failover(cl, next);
    CHECK_EVENTUALLY(hf_lock_verify(m, NULL) == HF_OK, 5000);
    CHECK(hf_lock_fence(m) == fence && server_ask(next, "GET lock:%s", name));
    char key[64];
    snprintf(key, sizeof key, "lock:%s", name2);
    cluster_move_slot(cl, cluster_slot(cl, key), cl->node[2], NULL, NULL);
    CHECK_HF(hf_lock_verify(n, &err), HF_OK);
    CHECK(hf_lock_fence(n) == fence2 && server_ask(cl->node[2], "GET %s", key));
    unlock_now(m);
    unlock_now(n);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
}

TEST(the_least_user_is_enough_for_every_kind_a_failover_and_a_move)
{
    server_needs(700, "rights for subcommands");
    struct cluster *cl = cluster_start(NULL);
    struct logbook log = LOGBOOK;
    char url[512];
    for (int i = 0; i < cl->nodes; i++) { /* they are not replicated */
        acl_user(cl->node[i], "acl");
        acl_user(cl->node[i], "acl-cluster");
        /* for hf_update_run() and hf_guard_set() on keys of one's own, as that page says */
        CHECK_STR(server_ask(cl->node[i], "ACL SETUSER holdfast ~own* ~{own* +watch +unwatch "
                                          "+multi +exec +hdel +persist"), "OK");
    }
    snprintf(url, sizeof url, "redis+cluster://holdfast:pw@%s", cl->hosts);
    hf_client *c = client_with(url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_client *d = client_at(url, 0);
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof name, "own %d", i);
        kind_try_all(c, d, hf_str(name));
    }
    hf_lock *m[3];
    three_of(cl, c, m);
    CHECK_HF(hf_multi_acquire(m, 3, 5000, &err), HF_OK);
    uint64_t fence = hf_lock_fence(m[0]);
    cluster_failover(cl, cl->node[3]);
    CHECK_EVENTUALLY(hf_lock_verify(m[0], NULL) == HF_OK, 5000);
    CHECK(hf_lock_fence(m[0]) == fence);
    char key[64];
    snprintf(key, sizeof key, "lock:%s", cluster_name(cl, cl->node[1], 0));
    struct cluster_move mv = cluster_move_begin(cl, cluster_slot(cl, key), cl->node[2]);
    CHECK_INT(cluster_move_key(&mv, key), 1);
    CHECK_HF(hf_lock_verify(m[1], &err), HF_OK); /* by ASKING */
    cluster_move_finish(&mv);
    CHECK_HF(hf_lock_verify(m[1], &err), HF_OK);
    CHECK_HF(hf_multi_release(m, 3, &err), HF_OK);
    int seen = 0;
    CHECK_HF(hf_inspect_list(c, NULL, 0, count_it, &seen, &err), HF_OK);
    CHECK(!logbook_has(&log, "may not"));
    CHECK(cluster_calls(cl, "asking") > 0);
    CHECK_INT(cluster_errors(cl, "NOPERM"), 0);
    for (int i = 0; i < cl->nodes; i++)
        CHECK_STR(server_ask(cl->node[i], "ACL LOG"), ""); /* inside of scripts, too */
    free_three(m);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- replicas that have to acknowledge ------------------------------------------------------- */

TEST(a_grant_that_too_few_replicas_acknowledge_is_undone)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(url_with(cl->url, "replicas=1"), 0), *d = client_at(cl->url, 0);
    const char *name = cluster_name(cl, cl->node[0], 0);
    hf_lock *m = lock_with(c, name, KEPT), *n = lock_with(d, name, KEPT);
    hf_lock *elsewhere = lock_with(c, cluster_name(cl, cl->node[1], 0), KEPT);
    lock_now(m);
    CHECK(server_int(cl->node[3], "DBSIZE") > 0); /* it is there already */
    unlock_now(m);
    server_kill(cl->node[3]);
    CHECK_EVENTUALLY(strcmp(server_info(cl->node[0], "connected_slaves"), "0") == 0, 5000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "0 of the 1 replicas");
    CHECK_STR(server_ask(cl->node[0], "GET lock:%s", name), NULL);
    lock_now(n); /* who asks for none gets it */
    unlock_now(n);
    lock_now(elsewhere); /* the others have theirs */
    unlock_now(elsewhere);
    struct locker w = { .m = m, .wait_ms = 30000 };
    locker_start(&w);
    server_restart(cl->node[3]);
    locker_join(&w, HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_lock_free(elsewhere);
    hf_client_free(c);
    hf_client_free(d);
}
