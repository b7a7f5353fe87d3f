/* SPDX-License-Identifier: MIT
 * replicas.c - grants and renewals that replicas have to acknowledge.
 */
#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/waiting.h"

static struct fleet *servers(void)
{
    return fleet_start(&(struct fleet_opts){ .no_sentinels = 1 });
}

static hf_client *client_of(const struct fleet *f, int replicas)
{
    return client_with(f->url, (hf_client_opts){ .replicas = replicas });
}

/* The child that rewrites its file has its connections too, and outlives it before 7.0. */
static int rewrites(struct server *s)
{
    return strcmp(server_info(s, "aof_rewrite_in_progress"), "0") != 0;
}

static void kill_replicas(struct fleet *f, int n)
{
    char want[8];
    for (int i = 0; i < n; i++) {
        CHECK_EVENTUALLY(!rewrites(f->node[FLEET - 1 - i]), 5000);
        server_kill(f->node[FLEET - 1 - i]);
    }
    snprintf(want, sizeof want, "%d", FLEET - 1 - n);
    CHECK_EVENTUALLY(strcmp(server_info(f->node[0], "connected_slaves"), want) == 0, 5000);
}

/* How often a command was called on the master. */
static long long calls(struct fleet *f, const char *command)
{
    char field[64];
    snprintf(field, sizeof field, "cmdstat_%s", command);
    const char *line = server_info(f->node[0], field);
    return line ? atoll(strstr(line, "calls=") + 6) : 0;
}

TEST(a_grant_and_its_renewals_are_acknowledged)
{
    struct fleet *f = servers();
    hf_client *c = client_of(f, 2);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    unlock_now(m); /* the server knows the scripts now */
    server_monitor_start(f->node[0]);
    lock_now(m);
    CHECK_INT(server_monitor_count(f->node[0], "\"WAIT\" \"2\""), 1);
    CHECK(server_ask(f->node[1], "GET lock:a") && server_ask(f->node[2], "GET lock:a"));
    CHECK_EVENTUALLY(server_monitor_count(f->node[0], "\"WAIT\" \"2\"") >= 3, 5000);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_replica_can_be_looked_at)
{
    struct fleet *f = servers();
    hf_client *c = client_of(f, 2), *d = client_at(server_tcp_url(f->node[1]), 0);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(d, "a", 30000);
    hf_inspect_info *info = NULL;
    lock_now(m);
    CHECK_HF(hf_inspect_lock(d, hf_str("a"), 0, &info, &err), HF_OK);
    CHECK_INT(info->holders, 1);
    CHECK(info->holder[0]->fence == hf_lock_fence(m));
    hf_inspect_free(info);
    CHECK_HF(hf_lock_try(o, NULL, &err), HF_ESERVER);
    CHECK_CONTAINS(err.message, "it is a replica: connect to the master");
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(a_grant_that_too_few_acknowledge_is_undone)
{
    struct fleet *f = servers();
    char url[200];
    snprintf(url, sizeof url, "%s?replicas=3", f->url);
    hf_client *c = client_at(url, 0), *d = client_at(f->url, 0);
    hf_lock *m = lock_of(c, "a", 30000), *several[] = { lock_of(c, "x", 30000),
                                                          lock_of(c, "y", 30000) };
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "2 of the 3 replicas");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
    CHECK_STR(server_ask(f->node[0], "GET lock:a"), NULL);
    CHECK_HF(hf_owner_acquire(c, hf_str("b"), 30000, hf_str("me"), NULL, &err), HF_EREPLICAS);
    CHECK_STR(server_ask(f->node[0], "GET lock:b"), NULL);
    CHECK_HF(hf_multi_acquire(several, 2, 0, &err), HF_EREPLICAS);
    CHECK_INT(server_int(f->node[0], "EXISTS lock:x lock:y"), 0);
    hf_lock *n = lock_of(d, "a", 4000);
    lock_now(n); /* who asks for none gets it at once */
    unlock_now(n);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_lock_free(several[0]);
    hf_lock_free(several[1]);
    hf_client_free(c);
    hf_client_free(d);
}

/* With appendfsync always that waits for the disk too. */
TEST(a_slow_disk_leaves_the_time_to_undo_it)
{
    struct server *s = server_start_opts(&(struct server_opts){
        .aof = 1, .diskshim = 1,
        .args = (const char *const[]){ "--appendfsync", "always", NULL } });
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .replicas = 1 });
    hf_lock *m = lock_of(c, "a", 30000);
    server_disk_delay(s, 150);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK(server_disk_delayed(s) >= 2); /* the grant, and its end */
    CHECK_STR(server_ask(s, "GET lock:a"), NULL);
    server_disk_delay(s, 0);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_a_renewal_that_too_few_acknowledge_lengthens_nothing)
{
    struct fleet *f = servers();
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(f->url, (hf_client_opts){ .replicas = 2, .log = logbook_add,
                                                         .log_arg = &log });
    /* Long enough for several renewals, even if a server waits for its disk for a second. */
    hf_lock *m = lock_of(c, "a", 5000), *e = lock_of(c, "b", 60000);
    lock_now(m);
    lock_now(e);
    kill_replicas(f, 1);
    int64_t left = hf_lock_time_left_ms(m);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, left + 500);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    CHECK_LOGGED(&log, "1 of the 2 replicas");
    CHECK(server_int(f->node[0], "PTTL lock:a") > 0); /* the master itself had renewed it */
    left = hf_lock_time_left_ms(e);
    CHECK_HF(hf_lock_extend(e, 120000, &err), HF_EREPLICAS);
    CHECK(hf_lock_is_held(e) && hf_lock_time_left_ms(e) <= left);
    CHECK_HF(hf_lock_verify(e, &err), HF_OK); /* a question writes nothing */
    CHECK_HF(hf_owner_extend(c, hf_str("b"), hf_str(hf_lock_owner(e)), 90000, &err), HF_EREPLICAS);
    hf_lock_free(m);
    hf_lock_free(e);
    hf_client_free(c);
}

TEST(P3_who_waits_for_replicas_keeps_up_nobody_else)
{
    struct fleet *f = servers();
    hf_client *c = client_of(f, 2);
    hf_lock *held = lock_of(c, "held", 30000);
    struct locker w = { .m = lock_of(c, "slow", 30000), .wait_ms = 0 };
    lock_now(held);
    server_freeze(f->node[2]); /* connected, and silent */
    locker_start(&w);
    CHECK_EVENTUALLY(server_ask(f->node[0], "GET lock:slow"), 5000);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);
    unlock_now(held);
    int64_t took = t_now_ms() - begun;
    CHECK_INT(atomic_load(&w.done), 0); /* the fault: it still waits for the silent one */
    t_note("a release took %lld ms meanwhile", (long long)took);
    locker_join(&w, HF_EREPLICAS);
    CHECK_STR(server_ask(f->node[0], "GET lock:slow"), NULL);
    server_thaw(f->node[2]);
    hf_lock_free(held);
    hf_lock_free(w.m);
    hf_client_free(c);
}

TEST(P1_a_lock_that_is_handed_over_is_acknowledged_too)
{
    struct fleet *f = servers();
    hf_client *c = client_of(f, 1), *d = client_at(f->url, 0);
    hf_lock *m = lock_with(d, "a", (hf_lock_opts){ .ttl_ms = 30000 });
    struct locker w = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000 }),
                        .wait_ms = 3000 };
    lock_now(m);
    kill_replicas(f, 2);
    locker_start(&w);
    CHECK_QUEUE(f->node[0], "a", 1);
    unlock_now(m);
    locker_join(&w, HF_EREPLICAS);
    CHECK_CONTAINS(w.error.message, "replicas");
    CHECK_STR(server_ask(f->node[0], "GET lock:a"), NULL);
    CHECK_INT(queue_of(f->node[0], "a"), 0);
    /* Who has the time gets it when a replica is back. */
    w.wait_ms = 30000;
    locker_start(&w);
    server_restart(f->node[1]);
    locker_join(&w, HF_OK);
    CHECK_EVENTUALLY(server_ask(f->node[1], "GET lock:a"), 5000);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- one question for many ------------------------------------------------------------------- */

enum { THREADS = 16, ROUNDS = 25 };

struct loop {
    hf_client *c;
    int        index;
};

static void *lock_often(void *arg)
{
    struct loop *l = arg;
    char name[16];
    snprintf(name, sizeof name, "n%d", l->index);
    hf_lock *m = lock_of(l->c, name, 30000);
    for (int i = 0; i < ROUNDS; i++) {
        lock_now(m);
        unlock_now(m);
    }
    hf_lock_free(m);
    return NULL;
}

TEST(many_grants_share_one_question)
{
    struct fleet *f = servers();
    pthread_t thread[THREADS];
    struct loop loop[THREADS];
    hf_client *c = client_of(f, 2);
    long long before = calls(f, "wait");
    for (int i = 0; i < THREADS; i++) {
        loop[i] = (struct loop){ c, i };
        CHECK_INT(pthread_create(&thread[i], NULL, lock_often, &loop[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(thread[i], NULL), 0);
    long long waits = calls(f, "wait") - before;
    t_note("%lld WAITs for %d grants", waits, THREADS * ROUNDS);
    CHECK_RANGE(waits, 1, THREADS * ROUNDS - 1);
    hf_client_free(c);
}

/* ---- how many -------------------------------------------------------------------------------- */

TEST(a_majority_is_counted_by_what_the_sentinels_know)
{
    struct fleet *f = fleet_start(NULL);
    hf_client *c = client_of(f, HF_MAJORITY);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    kill_replicas(f, 2); /* one that only counted the living would ask for none now */
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "0 of the 1 replicas");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(what_cannot_be_is_refused)
{
    struct server *s = server_start(NULL);
    hf_client *c = NULL;
    char url[200];
    snprintf(url, sizeof url, "%s?replicas=majority", server_url(s));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "give a number");
    hf_client_opts o = { .size = sizeof o, .replicas = -7 };
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_EINVAL);
    server_ask(s, "ACL SETUSER u on >pw ~* &* +@all -wait");
    snprintf(url, sizeof url, "unix://u:pw@%s?replicas=1", server_socket(s));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "'wait'");
}

/* Does the master name it in CLUSTER SLOTS? Those that have failed, or are new, are left out. */
static int named(struct server *master, struct server *replica)
{
    char port[16];
    snprintf(port, sizeof port, "%d", server_port(replica));
    return strstr(server_ask(master, "CLUSTER SLOTS"), port) != NULL;
}

static hf_client *client_of_cluster(struct cluster *cl)
{
    return client_with(cl->url, (hf_client_opts){ .replicas = HF_MAJORITY });
}

/* Each master has its own replicas: of one, one is the majority, and so it is when it is away. */
TEST_TIMEOUT(P1_a_majority_in_a_cluster_is_not_only_of_the_living, 120)
{
    struct cluster *cl = cluster_start(NULL);
    const char *name = cluster_name(cl, cl->node[0], 0);
    hf_client *c = client_of_cluster(cl);
    hf_lock *m = lock_of(c, name, 20000);
    server_monitor_start(cl->node[0]);
    lock_now(m);
    CHECK(server_monitor_count(cl->node[0], "\"WAIT\" \"1\"") >= 1);
    unlock_now(m);
    CHECK_EVENTUALLY(!rewrites(cl->node[3]), 5000);
    CHECK_EVENTUALLY(named(cl->node[0], cl->node[3]), 20000);
    server_kill(cl->node[3]);
    CHECK_EVENTUALLY(!named(cl->node[0], cl->node[3]), 30000);
    hf_client *later = client_of_cluster(cl);
    hf_lock *n = lock_of(later, name, 20000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EREPLICAS);
    CHECK_CONTAINS(err.message, "0 of the 1 replicas");
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_EREPLICAS);
    CHECK_STR(server_ask(cl->node[0], "GET lock:%s", name), NULL);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    hf_client_free(later);
}
