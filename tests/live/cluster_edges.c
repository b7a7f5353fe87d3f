/* SPDX-License-Identifier: MIT
 * cluster_edges.c - a Redis Cluster in states that do not end soon, and what they cost.
 */
#include <dirent.h>

#include "harness/scene.h"
#include "harness/waiting.h"
#include "topo/slot.h"

/* Nobody who could take over. */
static struct scene scene_alone(struct cluster_opts o)
{
    o.no_replicas = 1;
    return scene_with(o);
}

static long long commands(struct server *s)
{
    if (!server_pid(s) || server_is_frozen(s))
        return 0;
    return atoll(server_info(s, "total_commands_processed"));
}

static long long all_commands(struct cluster *cl)
{
    long long n = 0;
    for (int i = 0; i < cl->nodes; i++)
        n += commands(cl->node[i]);
    return n;
}

/* Let five seconds pass: what does it cost us, and the servers that answer? */
static void check_cost(struct cluster *cl, const char *when, long long most)
{
    long long asked = all_commands(cl);
    int64_t used = t_cpu_ms();
    t_sleep_ms(5000);
    used = t_cpu_ms() - used;
    asked = all_commands(cl) - asked;
    t_note("%s: %lld ms of 5000 and %lld commands", when, (long long)used, asked);
    CHECK_RANGE(used, 0, 1000); /* under ASan */
    CHECK_RANGE(asked, 0, most);
}

/* One holds the lock of the scene, another waits for it. */
struct two {
    hf_client    *c, *d;
    hf_lock      *m;
    struct locker w;
};

static void two_begin(struct two *t, struct scene *s)
{
    t->c = client_at(s->cl->url, 0);
    t->d = client_at(s->cl->url, 1000);
    t->m = lock_with(t->c, s->name, KEPT);
    t->w = (struct locker){ .m = lock_with(t->d, s->name, KEPT), .wait_ms = 30000 };
    lock_now(t->m);
    locker_start(&t->w);
    CHECK_QUEUE(s->from, s->name, 1);
}

static void two_free(struct two *t)
{
    hf_lock_free(t->m);
    hf_lock_free(t->w.m);
    hf_client_free(t->c);
    hf_client_free(t->d);
}

/* The one has given it back: the other gets it. */
static void two_end(struct two *t)
{
    locker_join(&t->w, HF_OK);
    unlock_now(t->w.m);
    two_free(t);
}

/* ---- servers that come and go ---- */

static int inboxes(void)
{
    int n = 0;
    char path[300], name[32];
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    for (struct dirent *e; (e = readdir(tasks));) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "r");
        n += f && fgets(name, sizeof name, f) && strcmp(name, "hf-inbox\n") == 0;
        if (f)
            fclose(f);
    }
    closedir(tasks);
    return n;
}

/* In a cluster whose servers are replaced by others, a client that lives long has no thread and no
 * connection more for each that there ever was. */
TEST(P9_whoever_listens_at_a_server_that_has_no_slot_any_more_listens_at_the_next)
{
    if (!server_knows("ssubscribe"))
        SKIP("this server has no sharded channels");
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    hf_lock *m = lock_with(c, s.name, KEPT);
    lock_now(m);
    char tag[SLOT_TEXT_SIZE];
    slot_text((unsigned)s.slot, tag);
    for (int i = 1; i < 7; i++) {
        struct server *from = s.cl->node[(i - 1) % 3], *to = s.cl->node[i % 3];
        cluster_move_slot(s.cl, s.slot, to, NULL, NULL);
        CHECK_EVENTUALLY(server_int(to, "EVAL %s 0 lock:holdfast:{%s}:s:*",
                                    "return #redis.call('PUBSUB', 'SHARDCHANNELS', ARGV[1])",
                                    tag) == 1, 20000);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        CHECK_EVENTUALLY(!strstr(server_ask(from, "CLIENT LIST TYPE pubsub"), "id="), 10000);
        CHECK_RANGE(inboxes(), 1, 2); /* the one that is closed just now is the next but one */
        t_sleep_ms(200); /* since its thread has closed it */
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- a slot that stays half moved ---- */

TEST(P6_who_waits_goes_on_waiting_while_a_slot_is_half_moved_for_longer_than_the_time_out)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    struct two t;
    two_begin(&t, &s);
    struct locker late = { .m = lock_with(t.d, s.name, KEPT), .wait_ms = 30000 };
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1);
    locker_start(&late);
    check_cost(s.cl, "two wait, half moved", 500);
    CHECK(cluster_errors(s.cl, "TRYAGAIN") > 0);
    if (atomic_load(&t.w.done) || atomic_load(&late.done))
        FAIL("%s, %s", t.w.error.message, late.error.message);
    cluster_move_finish(&mv);
    unlock_now(t.m);
    locker_join(&t.w, HF_OK);
    unlock_now(t.w.m);
    locker_join(&late, HF_OK);
    unlock_now(late.m);
    hf_lock_free(late.m);
    two_free(&t);
}

/* Nobody knows whether the downgrade came. While the slot is on its way, the lock is kept key by
 * key, whichever it is. */
TEST(P5_a_lock_whose_downgrade_did_not_come_is_kept_key_by_key)
{
    struct scene s = scene_alone((struct cluster_opts){ .node_timeout_ms = 60000 });
    hf_client *c = client_at(s.cl->url, 1500);
    hf_lock *m = lock_with(c, s.name, (hf_lock_opts){ .ttl_ms = 6000, .grace_ms = -1 });
    lock_now(m);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1);
    server_freeze(s.from);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_EUNSURE);
    server_thaw(s.from);
    long long asked = cluster_calls(s.cl, "asking");
    for (int64_t begun = t_now_ms(); t_now_ms() < begun + 7000; t_sleep_ms(20))
        CHECK(hf_lock_is_held(m)); /* for longer than the ttl */
    CHECK(cluster_calls(s.cl, "asking") > asked);
    cluster_move_finish(&mv);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* EL4: the value lives as long as the lock. */
TEST(the_value_of_a_leader_is_kept_key_by_key)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    hf_election_opts o = { .size = sizeof o, .ttl_ms = 6000, .grace_ms = HF_NO_TAKEOVER };
    hf_election *el = NULL;
    hf_leader *l = NULL;
    CHECK_HF(hf_election_open(c, hf_str(s.name), &o, &el, &err), HF_OK);
    CHECK_HF(hf_election_campaign(el, hf_str("here"), 20000, NULL, &err), HF_OK);
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1);
    CHECK_INT(server_int(s.from, "PERSIST {%s}:v", s.key), 1);
    CHECK_EVENTUALLY(server_int(s.from, "PTTL {%s}:v", s.key) > 0, 10000);
    CHECK(cluster_errors(s.cl, "ASK") > 0 && cluster_errors(s.cl, "TRYAGAIN") > 0);
    CHECK(hf_election_is_leader(el));
    cluster_move_finish(&mv);
    CHECK_HF(hf_election_leader(c, hf_str(s.name), &l, &err), HF_OK);
    CHECK_STR(l->value, "here");
    hf_leader_free(l);
    CHECK_HF(hf_election_resign(el, &err), HF_OK);
    hf_election_free(el);
    hf_client_free(c);
}

/* Half moved, with a mark of its holder and one of another; 0: it has been looked at meanwhile, as
 * after a connection that broke. With all keys in one place that takes all marks away. */
static int half_move_marked(struct scene *s, const char *value, struct cluster_move *ret)
{
    server_ask(s->from, "HSET {%s}:absent %s x other y", s->key, value);
    *ret = cluster_move_begin(s->cl, s->slot, s->to);
    CHECK_INT(cluster_move_key(ret, s->key), 1);
    const char *mark = server_ask(s->from, "HGET {%s}:absent %s", s->key, value);
    if (mark && strcmp(mark, "x") == 0)
        return 1;
    t_note("looked at meanwhile: %s", mark ? mark : "no mark");
    cluster_move_finish(ret);
    return 0;
}

/* A3: whatever finds the lock the owner's own takes the mark of absence away. The first renewal is
 * far away. */
TEST(a_look_key_by_key_takes_the_mark_of_absence_away)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    hf_lock *m = lock_with(c, s.name, (hf_lock_opts){ .ttl_ms = 120000 });
    lock_now(m);
    const char *value = keep_text("%s", server_ask(s.from, "GET %s", s.key));
    struct cluster_move mv;
    while (!half_move_marked(&s, value, &mv)) {
        struct server *to = s.from; /* and back again */
        s.from = s.to;
        s.to = to;
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_STR(server_ask(s.from, "HGET {%s}:absent %s", s.key, value), NULL);
    CHECK(cluster_errors(s.cl, "ASK") > 0 && cluster_errors(s.cl, "TRYAGAIN") > 0);
    CHECK_STR(server_ask(s.from, "HGET {%s}:absent other", s.key), "y");
    cluster_move_finish(&mv);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* It has no session, so it learns that from its next renewal; the mark lies where the lock's key
 * was, or moves with it. */
static void break_half_moved(int with_mark, int shared)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0);
    hf_lock *m = lock_with(c, s.name, (hf_lock_opts){ .ttl_ms = 6000, .grace_ms = HF_NO_TAKEOVER,
                                                      .slots = shared ? 2 : 0 });
    char breaks[200];
    lock_now(m);
    snprintf(breaks, sizeof breaks, "{%s}:x", s.key);
    CHECK_INT(server_int(s.from, "HSET %s break:1 of_another", breaks), 1); /* so it is there */
    struct cluster_move mv = cluster_move_begin(s.cl, s.slot, s.to);
    CHECK_INT(cluster_move_key(&mv, s.key), 1);
    CHECK_INT(server_int(s.from, "HSET %s break:%llu 1_ann@web1_stuck", breaks,
                         (unsigned long long)hf_lock_fence(m)), 1);
    if (with_mark)
        CHECK_INT(cluster_move_key(&mv, breaks), 1);
    CHECK_EVENTUALLY(!hf_lock_is_held(m), 5000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_BROKEN);
    CHECK(cluster_errors(s.cl, "ASK") > 0 && cluster_errors(s.cl, "TRYAGAIN") > 0);
    cluster_move_finish(&mv);
    CHECK_STR(server_ask(s.to, "HGET %s told:%llu", breaks, (unsigned long long)hf_lock_fence(m)),
              "1");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(BR1_a_broken_lock_is_not_renewed_key_by_key)
{
    break_half_moved(0, 0);
}

TEST(BR1_a_broken_lock_is_not_renewed_key_by_key_when_its_mark_has_moved)
{
    break_half_moved(1, 0);
}

TEST(BR1_a_broken_share_is_not_renewed_key_by_key)
{
    break_half_moved(0, 1);
}

/* ---- a slot that was elsewhere for a while ---- */

/* The other master has lost its newest numbers in a failover, and its slot comes back before
 * anybody has asked it for one. Whoever noticed that the slot was away must not go on where it
 * was. */
TEST(P4_a_slot_that_was_away_is_greeted_anew)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    hf_client *c = client_at(s.cl->url, 0), *d = client_at(s.cl->url, 0);
    hf_lock *m = lock_of(c, s.name, 20000), *n = lock_of(d, s.name, 20000);
    uint64_t fence;
    /* Without a session: nothing else asks there. */
    CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
    unlock_now(m);
    cluster_move_slot(s.cl, s.slot, s.to, NULL, NULL);
    uint64_t newest = 0;
    for (int i = 0; i < 10; i++) {
        newest = lock_now(n);
        unlock_now(n);
    }
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str(s.name), 0, &info, &err), HF_OK); /* MOVED: it knows */
    hf_inspect_free(info);
    char counter[128] = "";
    const char *keys = server_keys(s.to);
    for (const char *at = keys; (at = strstr(at, "lock:holdfast:{")); at++)
        if (strstr(at, ":fence") && strcspn(at, "\n") < sizeof counter) {
            snprintf(counter, sizeof counter, "%.*s", (int)strcspn(at, "\n"), at);
            if (cluster_slot(s.cl, counter) == s.slot && strstr(counter, ":fence"))
                break;
        }
    CHECK_INT(cluster_slot(s.cl, counter), s.slot);
    CHECK_STR(server_ask(s.to, "SET %s %llu", counter, (unsigned long long)newest - 5), "OK");
    cluster_move_slot(s.cl, s.slot, s.from, NULL, NULL);
    CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
    CHECK(fence > newest);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- servers that do not answer ---- */

TEST(waiting_at_a_frozen_master_costs_nothing)
{
    struct scene s = scene_alone((struct cluster_opts){ .node_timeout_ms = 60000 });
    struct two t;
    two_begin(&t, &s);
    server_freeze(s.from);
    check_cost(s.cl, "one holds and one waits, frozen", 500);
    CHECK_INT(atomic_load(&t.w.done), 0);
    server_thaw(s.from);
    unlock_now(t.m);
    two_end(&t);
}

TEST(waiting_while_the_cluster_is_down_costs_nothing)
{
    struct scene s = scene_alone((struct cluster_opts){ 0 });
    struct two t;
    two_begin(&t, &s);
    server_kill(s.cl->node[2]);
    CHECK_EVENTUALLY(strstr(server_ask(s.from, "CLUSTER INFO"), "cluster_state:fail"), 15000);
    long long before = cluster_errors(s.cl, "CLUSTERDOWN");
    kill_inboxes(s.from);
    check_cost(s.cl, "down", 600);
    CHECK(cluster_errors(s.cl, "CLUSTERDOWN") > before);
    CHECK_INT(atomic_load(&t.w.done), 0);
    server_restart(s.cl->node[2]);
    cluster_wait(s.cl);
    CHECK_EVENTUALLY(hf_lock_release(t.m, NULL) == HF_OK || hf_lock_state(t.m) == HF_STATE_FREE,
                     10000);
    two_end(&t);
}

TEST(a_client_is_closed_in_time_though_a_master_is_frozen)
{
    struct scene s = scene_alone((struct cluster_opts){ .requirepass = "pw",
                                                        .node_timeout_ms = 60000 });
    char url[256];
    snprintf(url, sizeof url, "redis+cluster://:pw@%s", s.cl->hosts);
    hf_client *c = client_at(url, 1000);
    hf_lock *m = lock_with(c, s.name, KEPT);
    lock_now(m);
    CHECK_INT(kill_inboxes(s.from), 1);
    server_freeze(s.from); /* its kernel takes connections; nobody answers the login */
    t_sleep_ms(100);
    int64_t begun = t_now_ms();
    hf_lock_free(m);
    hf_client_free(c);
    int64_t took = t_now_ms() - begun;
    t_note("%lld ms", (long long)took);
    CHECK_TOOK(took, 0, 2500);
    server_thaw(s.from);
}

/* ---- servers that come back, or never could ---- */

TEST(P4_P5_a_master_that_comes_back_empty_is_noticed_and_gives_larger_numbers)
{
    struct scene s = scene_alone((struct cluster_opts){ .memory_only = 1 });
    hf_client *c = client_at(s.cl->url, 0), *d = client_at(s.cl->url, 0);
    hf_lock *m = lock_with(c, s.name, (hf_lock_opts){ .ttl_ms = 60000 });
    hf_lock *n = lock_with(d, s.name, KEPT);
    uint64_t fence = lock_now(m);
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_EBUSY);
    server_kill(s.from);
    server_restart(s.from);
    cluster_wait(s.cl);
    CHECK_STR(server_ask(s.from, "GET %s", s.key), NULL); /* it knows nothing */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 10000); /* long before the next renewal */
    CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
    uint64_t next = lock_now(n);
    CHECK(next > fence);
    unlock_now(n);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK(lock_now(m) > next);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    hf_client_free(d);
}

/* As far as a server that has them can be made to have no sharded channels. */
TEST(without_sharded_channels_waiting_is_by_polling)
{
    struct scene s = scene_alone((struct cluster_opts){
        .user = "u on nopass ~* &* +@all --rename-command SSUBSCRIBE gone1 "
                "--rename-command SPUBLISH gone2" });
    CHECK_CONTAINS(server_ask(s.from, "SSUBSCRIBE x"), "unknown command");
    hf_client *c = client_at(s.cl->url, 0), *d = client_at(s.cl->url, 0);
    hf_lock *m = lock_with(c, s.name, KEPT);
    struct locker w = { .m = lock_with(d, s.name, KEPT), .wait_ms = 20000 };
    uint64_t fence = lock_now(m);
    locker_start(&w);
    check_cost(s.cl, "one holds and one polls", 500);
    CHECK_INT(atomic_load(&w.done), 0);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(w.fence > fence);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
    hf_client_free(c);
    hf_client_free(d);
}

/* The first script in a slot meets it before any number is taken. */
TEST(P4_P10_a_counter_of_a_slot_that_is_none_gives_no_number)
{
    struct cluster *cl = cluster_start(&(struct cluster_opts){ .no_replicas = 1 });
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m = lock_of(c, "a", 20000);
    struct server *s = cluster_owner_of(cl, "lock:a");
    uint64_t before = lock_now(m);
    unlock_now(m);
    const char *counter = server_ask(s, "KEYS *}:fence");
    CHECK_CONTAINS(counter, "fence");
    CHECK_STR(server_ask(s, "DEL %s", server_ask(s, "KEYS *}:reign")), "1");
    CHECK_STR(server_ask(s, "SET %s words", counter), "OK");

    hf_client *d = client_at(cl->url, 0);
    hf_lock *n = lock_of(d, "a", 20000);
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_ECOUNTER);
    CHECK_CONTAINS(err.message, counter);
    CHECK_INT(hf_lock_is_held(n), 0);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    CHECK_STR(server_ask(s, "GET %s", counter), "words");
    server_ask(s, "DEL %s", counter);
    CHECK(lock_now(n) > before);
    unlock_now(n);
    hf_lock_free(n);
    hf_client_free(d);
    hf_lock_free(m);
    hf_client_free(c);
}
