/* SPDX-License-Identifier: MIT
 * sentinel.c - the master that the Sentinels name, followed through failover.
 */
#include <sys/stat.h>

#include "harness/acl.h"
#include "harness/contest.h"
#include "harness/doctor.h"
#include "harness/fleet.h"

static int is_master(struct server *s)
{
    return strncmp(server_ask(s, "ROLE"), "master", 6) == 0;
}

/* Our scripts that ran on s since its monitor was cleared. */
static int scripts_on(struct server *s)
{
    return server_monitor_count(s, "\"EVAL");
}

static void file_with(const char *name, const char *line)
{
    FILE *f = fopen(name, "w");
    CHECK(f && fchmod(fileno(f), 0600) == 0 && fputs(line, f) >= 0 && fclose(f) == 0);
}

TEST(a_lock_is_taken_at_the_master)
{
    struct fleet *f = fleet_start(NULL);
    hf_client *c = client_at(f->url, 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000 });
    lock_now(m);
    CHECK_CONTAINS(server_ask(fleet_master(f), "GET lock:a"), ":15000"); /* the default grace */
    CHECK_CONTAINS(hf_client_url(c), "redis+sentinel://127.0.0.1:");
    unlock_now(m);
    CHECK_STR(server_ask(fleet_master(f), "GET lock:a"), NULL);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the master goes ------------------------------------------------------------------------- */

/* One holds, another process's worth of client waits; the master goes; both find themselves on the
 * new one: the same number, the same place, then the next number. */
static void hold_and_wait_through(struct fleet *f, void (*fault)(struct server *s))
{
    /* Sentinels that vote at the same moment try again after eight seconds, and again. */
    hf_lock_opts kept = { .ttl_ms = 120000 }, no_grace = { .ttl_ms = 120000,
                                                           .grace_ms = HF_NO_TAKEOVER };
    hf_client *c = client_at(f->url, 0), *d = client_at(f->url, 0);
    hf_lock *m = lock_with(c, "a", kept), *other = lock_with(c, "b", no_grace);
    struct locker w = { .m = lock_with(d, "a", kept), .wait_ms = 120000 };
    struct server *old = fleet_master(f);
    uint64_t fence = lock_now(m), fence_b = lock_now(other);
    locker_start(&w);
    CHECK_QUEUE(old, "a", 1);
    fault(old);
    struct server *now = fleet_wait_switch(f, old);
    server_monitor_start(now);
    CHECK_EVENTUALLY(is_present(now, hf_lock_owner(m)), 5000);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_SAFE && hf_lock_state(other) == HF_STATE_SAFE,
                     5000);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_HF(hf_lock_verify(other, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence && hf_lock_fence(other) == fence_b);
    CHECK_QUEUE(now, "a", 1);
    CHECK_INT(atomic_load(&w.done), 0);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(w.fence > fence);
    CHECK(server_ask(now, "GET lock:a"));
    unlock_now(w.m);
    unlock_now(other);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(P1_P6_a_killed_master_costs_no_lock_and_no_place)
{
    hold_and_wait_through(fleet_start(NULL), server_kill);
}

TEST(P1_P6_a_frozen_master_costs_no_lock_and_no_place)
{
    struct fleet *f = fleet_start(NULL);
    struct server *old = fleet_master(f);
    hold_and_wait_through(f, server_freeze);
    /* It thaws, and says that it is a master until a Sentinel has told it otherwise. */
    server_thaw(old);
    hf_client *c = client_at(f->url, 0);
    hf_lock *m = lock_with(c, "thawed", KEPT);
    lock_now(m);
    CHECK(is_master(old) && fleet_master(f) != old);
    CHECK(server_ask(fleet_master(f), "GET lock:thawed"));
    CHECK_STR(server_ask(old, "GET lock:thawed"), NULL);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* What a lock had left at since_ms, if nobody has prolonged it since; more if somebody has. */
static long long left_then(struct server *s, const char *key, int64_t since_ms)
{
    int64_t passed = t_now_ms() - since_ms; /* before its PTTL is read: rather too little */
    return server_int(s, "PTTL %s", key) + passed;
}

TEST(P5_a_lock_that_the_new_master_does_not_have_is_lost_at_once)
{
    struct fleet *f = fleet_start(NULL);
    hf_client *c = client_at(f->url, 0);
    hf_lock *gone[] = { lock_with(c, "grace", KEPT), lock_of(c, "ttl", 20000),
                         lock_with(c, "left alone", (hf_lock_opts){ .ttl_ms = 20000,
                                                                      .no_renew = 1 }) };
    hf_lock *m = lock_with(c, "there", (hf_lock_opts){ .ttl_ms = 120000 });
    hf_lock *far = lock_of(c, "far", 3600000);
    for (int i = 0; i < 3; i++)
        lock_now(gone[i]);
    lock_now(far);
    uint64_t fence = lock_now(m);
    struct server *old = fleet_master(f);
    t_sleep_ms(1500);
    long long left = server_int(old, "PTTL lock:far");
    int64_t then = t_now_ms();
    CHECK_INT(server_int(old, "WAIT 2 5000"), 2);
    server_kill(old);
    for (int i = 0; i < FLEET; i++) { /* as if the last writes had not arrived there */
        if (f->node[i] == old)
            continue;
        server_ask(f->node[i], "CONFIG SET replica-read-only no");
        CHECK_INT(server_int(f->node[i], "DEL lock:grace lock:ttl %s", "lock:left alone"), 3);
    }
    struct server *now = fleet_wait_switch(f, old);
    /* All are asked about at once, also this one, whose renewal would be due in 20 minutes. */
    CHECK_EVENTUALLY(left_then(now, "lock:far", then) > left + 1000, 10000);
    for (int i = 0; i < 3; i++) {
        CHECK_EVENTUALLY(hf_lock_state(gone[i]) == HF_STATE_LOST, 5000);
        CHECK_INT(hf_lock_loss(gone[i]), HF_LOSS_TAKEN);
        CHECK_HF(hf_lock_release(gone[i], &err), HF_ELOST);
        hf_lock_free(gone[i]);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(hf_lock_fence(m) == fence);
    hf_lock_free(far);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- a planned failover: the old master lingers ---------------------------------------------- */

TEST(a_planned_failover_is_noticed_and_the_lingering_master_not_used)
{
    struct fleet *f = fleet_start(NULL);
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(f->url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_client *idle = client_at(f->url, 0);
    hf_lock *m = lock_with(c, "held", KEPT), *k = lock_with(c, "k", KEPT);
    hf_lock *i = lock_with(idle, "idle", KEPT);
    struct server *old = fleet_master(f);
    uint64_t fence = lock_now(m), last = fence;
    CHECK_STR(server_ask(f->sentinel[0], "SENTINEL FAILOVER m"), "OK");
    struct server *now = fleet_wait_switch(f, old);
    CHECK_EVENTUALLY(logbook_has(&log, "the Sentinels name a master"), 1500);
    CHECK_EVENTUALLY(hf_lock_verify(m, NULL) == HF_OK, 3000);
    server_monitor_start(old);
    for (int n = 0; n < 200; n++) {
        uint64_t got = lock_now(k);
        CHECK(got > last);
        last = got;
        unlock_now(k);
    }
    CHECK(lock_now(i) > last);
    CHECK(is_master(old)); /* the fault: it would have said OK to all of them */
    CHECK_STR(server_ask(old, "SET somebody else"), "OK");
    CHECK_INT(scripts_on(old), 0);
    CHECK(hf_lock_fence(m) == fence);
    CHECK_CONTAINS(server_ask(now, "GET lock:held"), hf_lock_owner(m));
    CHECK(server_ask(now, "GET lock:idle"));
    unlock_now(i);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(k);
    hf_lock_free(i);
    hf_client_free(c);
    hf_client_free(idle);
}

/* FAILOVER is between servers, and the Sentinels hear of it last: for half a minute they name the
 * one that is a replica by now. Nobody follows anybody meanwhile. */
TEST(P1_a_failover_that_the_sentinels_do_not_know_of_grants_nothing)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = 30000 });
    struct server *old = fleet_master(f), *now = f->node[1];
    hf_client *c = client_at(url_with(f->url, "replicas=2"), 500);
    hf_lock *m = lock_of(c, "a", 60000), *k = lock_of(c, "b", 60000);
    lock_now(m);
    CHECK_STR(server_ask(old, "FAILOVER TO %s %d TIMEOUT 5000", server_host(now),
                         server_port(now)), "OK");
    CHECK_EVENTUALLY(is_master(now) && !is_master(old), 10000);
    CHECK(server_ask(now, "GET lock:a")); /* it is handed over without a gap */
    CHECK(fleet_master(f) == old);
    server_monitor_start(now);
    for (int i = 0; i < 3; i++)
        CHECK(hf_lock_acquire(k, 1000, NULL, &err) != HF_OK);
    CHECK(hf_lock_verify(m, &err) != HF_OK);
    CHECK(fleet_master(f) == old); /* and so it was all the time */
    CHECK_INT(server_monitor_count(now, "lock:b"), 0);
    CHECK(hf_lock_state(m) != HF_STATE_LOST);
    hf_lock_free(m);
    hf_lock_free(k);
    hf_client_free(c);
}

TEST(a_master_made_a_replica_by_hand_is_noticed_by_its_holder)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = 30000 });
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(f->url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    struct server *old = fleet_master(f);
    /* Nothing more is to be written until the next renewal, in six seconds. */
    CHECK_EVENTUALLY(strstr(server_keys(old), "holdfast:session:"), 5000);
    CHECK_STR(server_ask(old, "REPLICAOF 127.0.0.1 %d", server_port(f->node[1])), "OK");
    CHECK(!is_master(old));
    CHECK_EVENTUALLY(logbook_has(&log, "it is a replica now"), 2000);
    CHECK(fleet_master(f) == old); /* the Sentinels still name it: only its own word tells */
    hf_lock *k = lock_of(c, "b", 5000);
    hf_client *d = NULL;
    CHECK_HF(hf_client_open(url_with(f->url, "timeout=1s"), NULL, &d, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "not a master now");
    CHECK_STR(server_ask(old, "REPLICAOF NO ONE"), "OK");
    lock_now(k);
    unlock_now(k);
    hf_lock_free(k);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the old master comes back --------------------------------------------------------------- */

TEST(P4_an_old_master_that_returns_grants_nothing)
{
    struct fleet *f = fleet_start(NULL);
    hf_client *c = client_at(f->url, 0);
    hf_lock *m = lock_with(c, "a", KEPT);
    struct server *old = fleet_master(f);
    uint64_t last = lock_now(m);
    unlock_now(m);
    server_kill(old);
    fleet_wait_switch(f, old);
    server_restart(old);
    int lingered = is_master(old); /* with its old data, until a Sentinel has seen it */
    server_monitor_start(old);
    for (int n = 0; n < 100; n++) {
        uint64_t got = lock_now(m);
        CHECK(got > last);
        last = got;
        unlock_now(m);
    }
    CHECK_INT(lingered, 1);
    if (is_master(old)) /* a replica is shown our scripts by its master */
        CHECK_INT(scripts_on(old), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_a_master_that_came_back_empty_is_not_used_until_old_leases_have_ended)
{
    /* So slow to call anybody down that it is back before they have noticed. */
    struct fleet *f = fleet_start(&(struct fleet_opts){ .memory_only = 1, .down_after_ms = 30000 });
    struct server *s = fleet_master(f);
    hf_client *none = NULL;
    do /* the last attempt before the time-out may have been cut short, and say that instead */
        CHECK_HF(hf_client_open(url_with(f->url, "timeout=300ms"), NULL, &none, &err), HF_ECONN);
    while (!strstr(err.message, "come back empty"));
    /* It lasts longer than any failover: nobody waits for it who did not ask for that. */
    int64_t began = t_now_ms();
    CHECK_HF(hf_client_open(f->url, NULL, &none, &err), HF_ECONN);
    CHECK_TOOK(t_now_ms() - began, 0, 2000);
    CHECK_CONTAINS(err.message, "wait, or set appendonly yes there");
    CHECK_EVENTUALLY(atoi(server_info(s, "uptime_in_seconds")) >= 5, 10000);
    const char *url = url_with(f->url, "quarantine=4s");
    hf_client *c = client_at(url, 0), *d = client_at(url, 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000 });
    hf_lock *o = lock_of(d, "a", 4000);
    lock_now(m);
    for (int i = 0; i < FLEET; i++) /* else nobody would give it back to it: they follow it */
        CHECK_CONTAINS(server_info(f->node[i], "aof_enabled"), "0");
    /* It counts its age in whole seconds of the clock, so it will seem a second older than it is.
     * */
    server_kill(s);
    await_late_in_a_second();
    int64_t died = t_now_ms();
    server_restart(s);
    CHECK_INT(server_int(s, "DBSIZE"), 0);
    /* ROLE and the Sentinels have nothing against it. */
    CHECK(is_master(s) && fleet_master(f) == s);
    while (hf_lock_try(o, NULL, &err) != HF_OK) {
        CHECK(t_calm_ms(died) < 15000);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    }
    CHECK(t_now_ms() - died >= 4000);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    unlock_now(o);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- Sentinels that are dead or lie ---------------------------------------------------------- */

static int is_refused(hf_lock *m)
{
    hf_err e = hf_lock_try(m, NULL, &err);
    if (!e)
        (void)!hf_lock_release(m, NULL);
    return e == HF_ECONN;
}

TEST(a_minority_of_dead_silent_or_lying_sentinels_changes_nothing)
{
    struct fleet *f = fleet_start(NULL);
    struct server_opts alone = { .tcp = 1, .aof = 1 };
    struct server *false_master = server_start_opts(&alone);
    char lie[200];
    snprintf(lie, sizeof lie, "sentinel monitor m 127.0.0.1 %d 1\n", server_port(false_master));
    server_set_sentinel(f->sentinel[0], lie);
    CHECK(fleet_named_by(f, 0) == NULL); /* the fault */
    hf_client *c = client_at(f->url, 1000);
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    CHECK(server_ask(f->node[0], "GET lock:a"));
    CHECK_INT(server_int(false_master, "DBSIZE"), 0);
    unlock_now(m);

    /* With a second one gone there is no majority: the one that is left may be the liar. */
    server_freeze(f->sentinel[1]);
    hf_client *none = NULL;
    CHECK_HF(hf_client_open(url_with(f->url, "timeout=800ms"), NULL, &none, &err), HF_ECONN);
    CHECK(strstr(err.message, "Sentinels answered"));
    CHECK_EVENTUALLY(is_refused(m), 10000);
    server_thaw(f->sentinel[1]);
    lock_now(m);
    unlock_now(m);

    server_kill(f->sentinel[0]);
    lock_now(m);
    unlock_now(m);
    hf_client_free(client_at(f->url, 0));
    CHECK_INT(server_int(false_master, "DBSIZE"), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(what_the_url_gets_wrong_is_said)
{
    struct fleet *f = fleet_start(NULL);
    char url[512];
    hf_client *c = NULL;
    snprintf(url, sizeof url, "redis+sentinel://%s/nobody", f->hosts);
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "no master named \"nobody\"");
    snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%d/m", server_port(f->node[0]));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG); /* a server is no Sentinel ... */
    CHECK_CONTAINS(err.message, "0 of 1 Sentinels answered");
    CHECK_CONTAINS(err.message, "it is not a Sentinel");
    snprintf(url, sizeof url, "redis://127.0.0.1:%d", server_port(f->sentinel[0]));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG); /* ... nor a Sentinel a server */
    CHECK_CONTAINS(err.message, "it is a Sentinel");
    server_kill(f->sentinel[0]);
    server_kill(f->sentinel[1]);
    server_kill(f->sentinel[2]);
    CHECK_HF(hf_client_open(f->url, NULL, &c, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "0 of 3 Sentinels answered");
    CHECK_CONTAINS(err.message, "onnection refused");
}

/* ---- credentials ----------------------------------------------------------------------------- */

#define TLS_FORM \
    "rediss+sentinel://:server-pw@%s/m?cacert=%s/tls/%s.crt&sentinel_passfile=%s%s"

TEST(tls_and_two_logins_through_a_failover)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .tls = 1, .requirepass = "server-pw",
                                                        .sentinel_pass = "sentinel-pw" });
    char url[1024], right[1024];
    hf_client *c = NULL;
    char *good = t_path("good"), *bad = t_path("bad");
    file_with(good, "sentinel-pw\n");
    file_with(bad, "wrong\n");
    snprintf(url, sizeof url, TLS_FORM, f->hosts, t_dir(), "ca", bad, "");
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "wrong user name or password");
    snprintf(url, sizeof url, TLS_FORM, f->hosts, t_dir(), "other", good, "");
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "certificate");
    snprintf(url, sizeof url, TLS_FORM, f->hosts, t_dir(), "ca", good, "&sni=elsewhere.example");
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    snprintf(url, sizeof url, "rediss+sentinel://%s/m?cacert=%s/tls/ca.crt&sentinel_passfile=%s",
             f->hosts, t_dir(), good);
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH); /* the server's is missing */

    snprintf(right, sizeof right, TLS_FORM, f->hosts, t_dir(), "ca", good, "&sni=localhost");
    c = client_at(right, 0);
    hf_lock *m = lock_with(c, "a", KEPT);
    uint64_t fence = lock_now(m);
    struct server *old = fleet_master(f);
    server_kill(old);
    struct server *now = fleet_wait_switch(f, old);
    CHECK_EVENTUALLY(hf_lock_verify(m, NULL) == HF_OK, 5000);
    CHECK(hf_lock_fence(m) == fence && server_ask(now, "GET lock:a"));
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);

    setenv("HOLDFAST_SENTINEL_PASSWORD", "sentinel-pw", 1);
    snprintf(url, sizeof url, "rediss+sentinel://:server-pw@%s/m?cacert=%s/tls/ca.crt", f->hosts,
             t_dir());
    hf_client_free(client_at(url, 0));
    free(good);
    free(bad);
}

TEST(the_least_users_are_enough_through_a_failover)
{
    struct fleet *f = fleet_start(NULL);
    struct logbook log = LOGBOOK;
    char url[512], *file = t_path("sentinel.pass");
    file_with(file, "pw\n");
    for (int i = 0; i < FLEET; i++) { /* they are not replicated */
        acl_user(f->node[i], "acl");
        acl_user(f->node[i], "acl-more");
        acl_user(f->sentinel[i], "acl-sentinel");
        CHECK_STR(server_ask(f->sentinel[i], "ACL SETUSER default -sentinel"), "OK");
    }
    snprintf(url, sizeof url, "redis+sentinel://holdfast:pw@%s/m?replicas=majority"
             "&sentinel_user=holdfast&sentinel_passfile=%s", f->hosts, file);
    hf_client *c = client_with(url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_with(c, "a", KEPT);
    uint64_t fence = lock_now(m);
    for (int i = 0; i < FLEET; i++)
        CHECK_STR(server_ask(f->sentinel[i], "ACL SETUSER default +sentinel"), "OK");
    struct server *old = fleet_master(f);
    server_kill(old);
    fleet_wait_switch(f, old);
    CHECK_EVENTUALLY(hf_lock_verify(m, NULL) == HF_OK, 5000);
    CHECK(hf_lock_fence(m) == fence);
    unlock_now(m);
    CHECK(!logbook_has(&log, "may not"));
    hf_lock_free(m);
    hf_client_free(c);
    free(file);
}

/* SEN3 rests on INFO. Who may not run it is told so, once, and takes the master as it is. */
TEST(SEN3_a_user_that_may_not_run_INFO_is_told_what_that_means)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .memory_only = 1, .down_after_ms = 30000 });
    struct logbook log = LOGBOOK;
    const char *url = keep_text("redis+sentinel://holdfast:pw@%s/m", f->hosts), *first;
    hf_client *c = NULL;
    for (int i = 0; i < FLEET; i++) {
        acl_user(f->node[i], "acl");
        acl_user(f->node[i], "acl-more");
    }
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "it may have come back empty");
    CHECK_STR(server_ask(f->node[0], "ACL SETUSER holdfast -info"), "OK");
    c = client_with(url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    CHECK(server_int(f->node[0], "CLIENT KILL USER holdfast") > 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* by another connection */
    CHECK_LOGGED(&log, "a master that came back empty cannot be told from another");
    first = strstr(log.text, "cannot be told from another");
    CHECK(!strstr(first + 1, "cannot be told from another"));
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the doctor ------------------------------------------------------------------------------ */

TEST(the_doctor_sees_sentinels_replicas_and_what_is_missing)
{
    struct fleet *f = fleet_start(NULL);
    struct logbook log = LOGBOOK;
    char text[300];
    diagnose(&log, f->url);
    snprintf(text, sizeof text,
             "[0] sentinel 127.0.0.1:%d|sentinels|it names 127.0.0.1:%d, and knows 2 replicas and "
             "2 other Sentinels", server_port(f->sentinel[1]), server_port(f->node[0]));
    CHECK_CONTAINS(log.text, text);
    CHECK_CONTAINS(log.text, "|role|it is a master, followed by 2 replica(s)");
    CHECK_CONTAINS(log.text, "|replicas|min-replicas-to-write 0: a master that is cut off");
    snprintf(text, sizeof text, "|replicas|the replica 127.0.0.1:%d is in step",
             server_port(f->node[2]));
    CHECK_CONTAINS(log.text, text);
    CHECK_CONTAINS(log.text, "|session|a lock was taken, seen by the server, and given back");
    CHECK(!logbook_has(&log, "[3]"));
    server_ask(f->node[0], "CONFIG SET min-replicas-to-write 1");
    diagnose(&log, f->url);
    CHECK(!logbook_has(&log, "[2]") && !logbook_has(&log, "[3]"));

    snprintf(text, sizeof text, "redis://127.0.0.1:%d", server_port(f->sentinel[0]));
    diagnose(&log, text);
    CHECK_CONTAINS(log.text, "|url|it is a Sentinel: no lock can be taken");
    CHECK(!logbook_has(&log, "replica"));
    snprintf(text, sizeof text, "redis+sentinel://%s/nobody", f->hosts);
    diagnose(&log, text);
    CHECK_CONTAINS(log.text, "|url|the Sentinels know no master named \"nobody\"");

    server_kill(f->node[2]);
    server_kill(f->sentinel[0]);
    CHECK_EVENTUALLY(strcmp(server_info(f->node[0], "connected_slaves"), "1") == 0, 5000);
    diagnose(&log, url_with(f->url, "replicas=2"));
    snprintf(text, sizeof text, "[2] sentinel 127.0.0.1:%d|reach|", server_port(f->sentinel[0]));
    CHECK_CONTAINS(log.text, text);
    CHECK_CONTAINS(log.text, "|replicas|the Sentinels know 2 replicas, and 1 are connected");
    CHECK_CONTAINS(log.text, "|replicas|replicas=2 is asked for, and 1 are there");
    CHECK_CONTAINS(log.text, "1 of the 2 replicas"); /* the lock for a try says so, too */

    server_kill(f->sentinel[1]);
    diagnose(&log, url_with(f->url, "timeout=1s"));
    CHECK_CONTAINS(log.text, "[3] redis+sentinel://");
    CHECK_CONTAINS(log.text, "1 of 3 Sentinels answered");
}

/* Nobody is left who could follow it. */
TEST(the_doctor_tells_that_the_Sentinels_call_the_master_down)
{
    struct fleet *f = fleet_start(NULL);
    struct logbook log = LOGBOOK;
    const char *url = url_with(f->url, "timeout=2s");
    const char *text = keep_text("|sentinels|it calls the master 127.0.0.1:%d down (",
                                 server_port(f->node[0]));
    for (int i = FLEET - 1; i >= 0; i--)
        server_kill(f->node[i]);
    CHECK_EVENTUALLY((diagnose(&log, url), has_line(&log, "[2] sentinel ", text)
                      && !logbook_has(&log, "it names ")), 20000);
}

TEST(the_doctor_tells_of_Sentinels_that_are_not_named_or_wait_for_too_long)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = 12001 });
    struct logbook log = LOGBOOK;
    diagnose(&log, f->url);
    CHECK(has_line(&log, "[2] sentinel ", "|down-after-milliseconds 12001: a failover takes"));
    CHECK(!logbook_has(&log, "the URL names "));
    for (int i = 0; i < FLEET; i++)
        CHECK_STR(server_ask(f->sentinel[i], "SENTINEL SET m down-after-milliseconds 12000"), "OK");
    diagnose(&log, keep_text("redis+sentinel://127.0.0.1:%d,127.0.0.1:%d/m",
                             server_port(f->sentinel[0]), server_port(f->sentinel[1])));
    CHECK(!logbook_has(&log, "down-after-milliseconds"));
    CHECK(has_line(&log, "[1] sentinel ", "|the URL names 2 of 3 Sentinels"));
    CHECK(has_line(&log, "[2] sentinels|", "|2 Sentinel(s): when one is gone"));
}

TEST(the_doctor_tells_of_Sentinels_that_name_different_masters)
{
    struct fleet *f = fleet_start(&(struct fleet_opts){ .down_after_ms = 10000 });
    struct server *other = server_start_opts(&(struct server_opts){ .tcp = 1, .aof = 1 });
    struct logbook log = LOGBOOK;
    const char *text = "they do not all name the same master";
    diagnose(&log, f->url);
    CHECK(!logbook_has(&log, text));
    server_set_sentinel(f->sentinel[2],
                        keep_text("sentinel monitor m 127.0.0.1 %d 1\n", server_port(other)));
    diagnose(&log, f->url);
    CHECK(has_line(&log, "[2] sentinels|", text));
}

/* ---- many, through a failover ---------------------------------------------------------------- */

/* How often the master has changed, as the Sentinel knows that has seen most of it. */
static int switches(struct fleet *f)
{
    int most = 0;
    for (size_t i = 0; i < 3; i++) {
        int n = 0;
        for (const char *p = server_log(f->sentinel[i]); (p = strstr(p, "+switch-master")); p++)
            n++;
        most = n > most ? n : most;
    }
    return most;
}

/* Until it is noticed, a living master that was deposed may give numbers below the new one's: the
 * resource has refused them all. */
static struct contest *contest(const char *url_option,
                               void (*fault)(struct fleet *f, struct server *old))
{
    struct fleet *f = fleet_start(NULL);
    const char *url = *url_option ? url_with(f->url, url_option) : f->url;
    struct contest *ct = contest_start(16, url, "r");
    contest_go_on(ct, 200);
    struct server *old = fleet_master(f);
    fault(f, old);
    fleet_wait_switch(f, old);
    contest_go_on(ct, 300);
    contest_end(ct);
    contest_switched(ct, switches(f));
    return ct;
}

static void kill_it(struct fleet *f, struct server *old)
{
    (void)f;
    server_kill(old);
}

static void plan_it(struct fleet *f, struct server *old)
{
    (void)old;
    CHECK_STR(server_ask(f->sentinel[1], "SENTINEL FAILOVER m"), "OK");
}

TEST(P4_sixteen_contend_while_the_master_is_killed)
{
    struct contest *ct = contest("", kill_it);
    if (ct->switches == 1)
        CHECK_INT(ct->rep.disorder, 0);
}

TEST(P1_with_replicas_sixteen_contend_while_the_master_is_killed)
{
    struct contest *ct = contest("replicas=1", kill_it);
    /* docs/topologies.md: a replica less than all of them may not have the last grants. */
    if (ct->switches == 1)
        contest_check_clean(ct);
}

TEST(P4_sixteen_contend_through_a_planned_failover)
{
    contest("", plan_it);
}
