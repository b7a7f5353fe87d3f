/* SPDX-License-Identifier: MIT
 * cluster_faults.c - masters of a Redis Cluster that are replaced, die, stand still or lose touch.
 */
#include "harness/cluster.h"
#include "harness/contest.h"
#include "harness/holder.h"

/* ---- one master goes ------------------------------------------------------------------------- */

static void by_kill(struct cluster *cl, struct server *master)
{
    (void)cl;
    server_kill(master);
}

static void by_freeze(struct cluster *cl, struct server *master)
{
    (void)cl;
    server_freeze(master);
}

static void by_plan(struct cluster *cl, struct server *master)
{
    cluster_failover(cl, cluster_replica(cl, master));
}

/* One holds, another process's worth of client waits; the master goes; both find themselves on the
 * new one: the same number, the same place, then the next number. */
static void hold_and_wait_through(struct cluster *cl,
                                  void (*fault)(struct cluster *cl, struct server *master))
{
    struct server *old = cl->node[0], *next = cl->node[3];
    const char *name = cluster_name(cl, old, 0);
    hf_client *c = client_at(cl->url, 0), *d = client_at(cl->url, 0);
    hf_lock_opts kept = { .ttl_ms = 120000 }; /* an election may have to be held twice */
    hf_lock *m = lock_with(c, name, kept);
    hf_lock *other = lock_of(c, cluster_name(cl, old, 1), 120000);
    hf_lock *aside = lock_with(c, cluster_name(cl, cl->node[1], 0), kept);
    struct locker w = { .m = lock_with(d, name, kept), .wait_ms = 120000 };
    uint64_t fence = lock_now(m), fence2 = lock_now(other), fence3 = lock_now(aside);
    locker_start(&w);
    CHECK_QUEUE(old, name, 1);
    server_ask(next, "READONLY"); /* what is not there yet may be lost with the master */
    CHECK_QUEUE(next, name, 1);
    fault(cl, old);
    CHECK(cluster_wait_switch(cl, cluster_slot_of(cl, name), old) == next);
    CHECK_EVENTUALLY(hf_lock_verify(m, NULL) == HF_OK && hf_lock_verify(other, NULL) == HF_OK,
                     10000);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_SAFE && hf_lock_state(other) == HF_STATE_SAFE,
                     5000);
    CHECK_HF(hf_lock_verify(aside, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence && hf_lock_fence(other) == fence2
          && hf_lock_fence(aside) == fence3);
    CHECK_QUEUE(next, name, 1);
    CHECK_INT(atomic_load(&w.done), 0);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(w.fence > fence);
    CHECK(server_ask(next, "GET lock:%s", name));
    unlock_now(w.m);
    unlock_now(other);
    unlock_now(aside);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_lock_free(aside);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(P1_P6_a_planned_failover_costs_no_lock_and_no_place)
{
    struct cluster *cl = cluster_start(NULL);
    hold_and_wait_through(cl, by_plan);
    CHECK(!cluster_is_master(cl, cl->node[0]));
}

TEST(P1_P6_a_killed_master_costs_no_lock_and_no_place)
{
    struct cluster *cl = cluster_start(NULL);
    hold_and_wait_through(cl, by_kill);
    /* It comes back with its old data, as a replica: it is not asked. */
    server_restart(cl->node[0]);
    cluster_wait(cl);
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m = lock_with(c, cluster_name(cl, cl->node[3], 0), KEPT);
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_P6_a_frozen_master_costs_no_lock_and_no_place)
{
    struct cluster *cl = cluster_start(NULL);
    struct server *old = cl->node[0];
    hold_and_wait_through(cl, by_freeze);
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m = lock_with(c, cluster_name(cl, cl->node[3], 2), KEPT);
    uint64_t last = lock_now(m);
    unlock_now(m);
    server_thaw(old); /* a master, as far as it knows at first */
    for (int i = 0; i < 50; i++) {
        uint64_t fence = lock_now(m);
        CHECK(fence > last);
        last = fence;
        unlock_now(m);
    }
    cluster_wait(cl);
    CHECK(!cluster_is_master(cl, old));
    hf_lock_free(m);
    hf_client_free(c);
}

/* Between a master's death and its replacement all others refuse what they are asked. */
TEST(requests_sit_out_the_failover_of_another_master)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 15000);
    hf_lock *there = lock_of(c, cluster_name(cl, cl->node[0], 0), 30000);
    hf_lock *m = lock_of(c, cluster_name(cl, cl->node[1], 0), 30000);
    uint64_t last = lock_now(there);
    /* What its replica has not got is lost with it, as the docs say. */
    struct server *heir = cluster_replica(cl, cl->node[0]);
    server_ask(heir, "READONLY");
    CHECK_EVENTUALLY(server_int(heir, "DBSIZE") == server_int(cl->node[0], "DBSIZE"), 5000);
    server_kill(cl->node[0]);
    while (!cluster_owner(cl, 0)) {
        uint64_t fence = 0;
        CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
        unlock_now(m);
    }
    CHECK(cluster_errors(cl, "CLUSTERDOWN") > 0);
    unlock_now(there);
    CHECK(lock_now(there) > last);
    unlock_now(there);
    hf_lock_free(there);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The new master has never seen the holder: it may live, and be about to come. */
TEST(P3_a_holder_killed_as_its_master_is_replaced_costs_its_ttl)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 15000);
    const char *name = cluster_name(cl, cl->node[0], 0);
    hf_lock_opts o = { .ttl_ms = 12000, .grace_ms = 2000 };
    struct workers *w = holder_start(cl->url, name, o);
    struct locker l = { .m = lock_with(c, name, KEPT), .wait_ms = 40000 };
    locker_start(&l);
    CHECK_QUEUE(cl->node[0], name, 1);
    struct server *heir = cluster_replica(cl, cl->node[0]);
    server_ask(heir, "READONLY");
    CHECK_EVENTUALLY(server_int(heir, "DBSIZE") == server_int(cl->node[0], "DBSIZE"), 5000);
    server_freeze(cl->node[0]);
    workers_signal(w, 0, SIGKILL);
    CHECK(cluster_wait_switch(cl, cluster_slot_of(cl, name), cl->node[0]) == heir);
    int64_t left = server_int(heir, "PTTL lock:%s", name), at = t_now_ms();
    CHECK(left > 1000); /* else this shows nothing */
    locker_join(&l, HF_OK);
    int64_t took = t_now_ms() - at;
    if (took < left - 100 || took > left + 10000)
        FAIL("after %lld ms, and the ttl ended after %lld", (long long)took, (long long)left);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
    workers_join(w, 1000);
    server_thaw(cl->node[0]);
}

TEST(a_master_that_no_url_names_is_found_when_the_only_one_in_it_dies)
{
    struct cluster *cl = cluster_start(NULL);
    char url[128];
    snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%d", server_port(cl->node[0]));
    hf_client *c = client_at(url, 0);
    const char *name = cluster_name(cl, cl->node[0], 0);
    hf_lock *m = lock_with(c, name, KEPT);
    lock_now(m);
    unlock_now(m);
    server_kill(cl->node[0]);
    cluster_wait_switch(cl, cluster_slot_of(cl, name), cl->node[0]);
    lock_now(m);
    CHECK(server_ask(cl->node[3], "GET lock:%s", name));
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* The replica has the wrong password and so knows nothing of what happens after this. */
static void cut_off(struct server *master, struct server *replica)
{
    CHECK_STR(server_ask(replica, "CONFIG SET masterauth wrong"), "OK");
    CHECK_INT(server_int(master, "CLIENT KILL TYPE replica"), 1);
    CHECK_EVENTUALLY(strcmp(server_info(master, "connected_slaves"), "0") == 0, 5000);
}

TEST(P4_P5_a_lock_that_the_new_master_does_not_have_is_lost_and_its_number_not_given_again)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .requirepass = "pw" });
    struct server *old = cl->node[0], *next = cl->node[3];
    char url[256];
    snprintf(url, sizeof url, "redis+cluster://:pw@%s", cl->hosts);
    hf_client *c = client_at(url, 0);
    const char *there = cluster_name(cl, old, 0);
    hf_lock *m = lock_with(c, there, KEPT);
    hf_lock *gone[] = { lock_with(c, cluster_name(cl, old, 1), KEPT),
                         lock_of(c, cluster_name(cl, old, 2), 20000),
                         lock_with(c, cluster_name(cl, old, 3),
                                   (hf_lock_opts){ .ttl_ms = 20000, .no_renew = 1 }) };
    hf_lock *often = lock_of(c, cluster_name(cl, old, 4), 20000); /* by requests alone */
    uint64_t fence = lock_now(m), last = 0, got = 0;
    CHECK_HF(hf_lock_try(often, &last, &err), HF_OK);
    unlock_now(often);
    server_ask(next, "READONLY");
    CHECK_EVENTUALLY(server_ask(next, "GET lock:%s", there), 5000);
    cut_off(old, next);
    for (int i = 0; i < 3; i++)
        lock_now(gone[i]);
    for (int i = 0; i < 5; i++) { /* numbers that the replica does not know of */
        CHECK_HF(hf_lock_try(often, &got, &err), HF_OK);
        CHECK(got > last);
        last = got;
        unlock_now(often);
    }
    server_kill(old);
    cluster_wait_switch(cl, cluster_slot_of(cl, there), old);
    for (int i = 0; i < 3; i++) {
        CHECK_EVENTUALLY(hf_lock_state(gone[i]) == HF_STATE_LOST, 5000);
        CHECK_INT(hf_lock_loss(gone[i]), HF_LOSS_TAKEN);
        CHECK_HF(hf_lock_release(gone[i], &err), HF_ELOST);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    CHECK_HF(hf_lock_try(often, &got, &err), HF_OK);
    CHECK(got > last);
    unlock_now(often);
    hf_lock_free(often);
    for (int i = 0; i < 3; i++)
        hf_lock_free(gone[i]);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- no majority ----------------------------------------------------------------------------- */

TEST(P5_without_a_majority_holders_are_told_and_nothing_is_granted)
{
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 1000), *d = client_at(cl->url, 1000);
    hf_lock *held[2] = { lock_of(c, cluster_name(cl, cl->node[2], 0), 4000),  /* where it lives */
                          lock_of(c, cluster_name(cl, cl->node[0], 0), 4000) }; /* and where not */
    hf_lock *m = lock_with(d, cluster_name(cl, cl->node[2], 1), KEPT);
    hf_lock *long_held = lock_of(d, cluster_name(cl, cl->node[2], 2), 60000);
    lock_now(held[0]);
    lock_now(held[1]);
    uint64_t fence = lock_now(long_held);
    server_freeze(cl->node[0]);
    server_freeze(cl->node[1]);
    int doubted = 0;
    int64_t frozen = t_now_ms();
    while (hf_lock_state(held[0]) != HF_STATE_LOST || hf_lock_state(held[1]) != HF_STATE_LOST) {
        CHECK(t_calm_ms(frozen) < 10000);
        doubted |= hf_lock_state(held[1]) == HF_STATE_IN_DOUBT;
        t_sleep_ms(5);
    }
    CHECK_INT(doubted, 1);
    CHECK_INT(hf_lock_loss(held[0]), HF_LOSS_EXPIRED);
    CHECK_INT(hf_lock_loss(held[1]), HF_LOSS_EXPIRED);
    CHECK_CONTAINS(server_ask(cl->node[2], "CLUSTER INFO"), "cluster_state:fail");
    CHECK(cluster_errors(cl, "CLUSTERDOWN") > 0);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "luster");
    /* Its last request may have been under way when the time was over. */
    hf_err e = hf_lock_acquire(m, 1500, NULL, &err);
    CHECK(e == HF_ECONN || e == HF_EUNSURE);
    CHECK_TOOK(t_now_ms() - begun, 0, 6000);
    CHECK(hf_lock_is_held(long_held)); /* nobody can have it: its lease has not ended */
    struct locker w = { .m = m, .wait_ms = 30000 };
    locker_start(&w);
    server_thaw(cl->node[0]);
    server_thaw(cl->node[1]);
    locker_join(&w, HF_OK);
    cluster_wait(cl);
    CHECK_EVENTUALLY(hf_lock_verify(long_held, NULL) == HF_OK, 10000);
    CHECK(hf_lock_fence(long_held) == fence);
    for (int i = 0; i < 2; i++) {
        CHECK_HF(hf_lock_release(held[i], &err), HF_ELOST);
        lock_now(held[i]);
        unlock_now(held[i]);
        hf_lock_free(held[i]);
    }
    unlock_now(m);
    unlock_now(long_held);
    hf_lock_free(m);
    hf_lock_free(long_held);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- many, through a failover ---------------------------------------------------------------- */

/* How often the slot has changed its master. */
static int switches(struct cluster *cl)
{
    int n = 0;
    for (int i = 0; i < cl->nodes; i += cl->masters)
        for (const char *p = server_log(cl->node[i]); (p = strstr(p, "Failover election won")); p++)
            n++;
    return n;
}

static struct contest *contest(const char *url_option,
                               void (*fault)(struct cluster *cl, struct server *master))
{
    struct cluster *cl = cluster_start(NULL);
    struct server *old = cl->node[0];
    const char *url = *url_option ? url_with(cl->url, url_option) : cl->url;
    struct contest *ct = contest_start(16, url, cluster_name(cl, old, 0));
    contest_go_on(ct, 200);
    fault(cl, old);
    cluster_wait_switch(cl, cluster_slot_of(cl, ct->name), old);
    if (!server_pid(old))
        server_restart(old); /* as the replica without which nothing may be granted */
    contest_go_on(ct, 300);
    contest_end(ct);
    contest_switched(ct, switches(cl));
    CHECK_INT(atomic_load(&ct->failed), 0);
    return ct;
}

TEST(P4_sixteen_contend_while_the_master_is_killed)
{
    struct contest *ct = contest("", by_kill);
    if (ct->switches == 1)
        CHECK_INT(ct->rep.disorder, 0);
}

TEST(P1_with_a_replica_sixteen_contend_while_the_master_is_killed)
{
    struct contest *ct = contest("replicas=1", by_kill);
    if (ct->switches == 1)
        contest_check_clean(ct);
}

TEST(P1_sixteen_contend_through_a_planned_failover)
{
    struct contest *ct = contest("", by_plan);
    if (ct->switches == 1)
        contest_check_clean(ct);
}
