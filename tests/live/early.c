/* SPDX-License-Identifier: MIT
 * early.c - P5: a key that goes before its time is missed within a second or so, not only at the
 * next renewal; and a server that comes back is told of what is held at once.
 */
#include "harness/acl.h"
#include "harness/cluster.h"
#include "harness/kinds.h"
#include "harness/live.h"
#include "harness/quorum.h"

#define TTL_MS  30000 /* a renewal every 10 s */
#define SOON_MS 3000

struct held {
    struct server *s;
    hf_client     *c;
    hf_lock       *m;
};

static struct held hold(struct server *s, int64_t grace_ms)
{
    struct held h = { .s = s, .c = client_at(server_url(s), 0) };
    h.m = lock_with(h.c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS, .grace_ms = grace_ms });
    lock_now(h.m);
    return h;
}

/* Lost soon, because the server says so. */
static void lost_soon(hf_lock *m)
{
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, SOON_MS);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
    CHECK_INT(hf_lock_is_held(m), 0);
}

static void done(struct held *h)
{
    hf_lock_free(h->m);
    hf_client_free(h->c);
}

TEST(P5_a_deleted_key_is_missed_at_once)
{
    struct held h = hold(server_start(NULL), 0);
    CHECK_INT(server_int(h.s, "DEL lock:a"), 1);
    lost_soon(h.m);
    done(&h);
}

TEST(P5_so_it_is_without_a_grace)
{
    struct held h = hold(server_start(NULL), HF_NO_TAKEOVER);
    CHECK_INT(server_int(h.s, "DEL lock:a"), 1);
    lost_soon(h.m);
    done(&h);
}

TEST(P5_an_overwritten_key_is_missed_at_once)
{
    struct held h = hold(server_start(NULL), 0);
    CHECK_STR(server_ask(h.s, "SET lock:a another"), "OK");
    lost_soon(h.m);
    CHECK_STR(server_ask(h.s, "GET lock:a"), "another"); /* P2 */
    done(&h);
}

TEST(P5_a_key_that_is_a_list_now_is_missed_at_once)
{
    struct held h = hold(server_start(NULL), 0);
    CHECK_INT(server_int(h.s, "DEL lock:a"), 1);
    CHECK_INT(server_int(h.s, "RPUSH lock:a x"), 1);
    lost_soon(h.m);
    done(&h);
}

TEST(P5_a_lock_that_is_not_renewed_is_missed_as_well)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS, .no_renew = 1 });
    lock_now(m);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    lost_soon(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_of_those_who_share_it_all_miss_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS, .shared = 1 });
    hf_lock *b = lock_with(d, "a", (hf_lock_opts){ .ttl_ms = TTL_MS, .shared = 1 });
    lock_now(a);
    lock_now(b);
    t_sleep_ms(2500); /* seen well, more than once */
    CHECK_INT(hf_lock_state(a), HF_STATE_SAFE);
    CHECK_INT(server_int(s, "ZREM {lock:a}:h %s", hf_lock_owner(a)), 1);
    lost_soon(a);
    CHECK_INT(hf_lock_state(b), HF_STATE_SAFE);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    lost_soon(b);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(d);
}

/* FLUSHALL takes all of many; one of many goes alone. */
TEST(P5_of_many_locks_none_is_forgotten)
{
    enum { N = 3000 };
    static hf_lock *m[N];
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    char name[32];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "many-%d", i);
        m[i] = lock_of(c, name, 60000); /* a busy machine must not cost one its grace */
        lock_now(m[i]);
    }
    CHECK_INT(server_int(s, "DEL lock:many-1234"), 1);
    lost_soon(m[1234]);
    for (int i = 0; i < N; i++)
        CHECK_INT(hf_lock_state(m[i]) == HF_STATE_LOST, i == 1234);
    CHECK_STR(server_ask(s, "FLUSHALL"), "OK");
    for (int i = 0; i < N; i++)
        lost_soon(m[i]);
    for (int i = 0; i < N; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

TEST(P5_in_a_cluster_too)
{
    enum { N = 9 };
    struct cluster *cl = cluster_start(NULL);
    hf_client *c = client_at(cl->url, 0);
    hf_lock *m[N];
    for (int i = 0; i < N; i++) {
        m[i] = lock_with(c, cluster_name(cl, cl->node[i % 3], i / 3),
                         (hf_lock_opts){ .ttl_ms = TTL_MS });
        lock_now(m[i]);
    }
    CHECK_INT(server_int(cl->node[0], "DEL lock:%s", cluster_name(cl, cl->node[0], 1)), 1);
    lost_soon(m[3]);
    CHECK_STR(server_ask(cl->node[1], "SET lock:%s x", cluster_name(cl, cl->node[1], 2)), "OK");
    lost_soon(m[7]);
    CHECK_STR(server_ask(cl->node[2], "FLUSHALL"), "OK");
    for (int i = 2; i < N; i += 3)
        lost_soon(m[i]);
    for (int i = 0; i < N; i++) {
        int lost = i == 3 || i == 7 || i % 3 == 2;
        CHECK_INT(hf_lock_state(m[i]), lost ? HF_STATE_LOST : HF_STATE_SAFE);
        hf_lock_free(m[i]);
    }
    CHECK_INT(cluster_errors(cl, "CROSSSLOT"), 0);
    CHECK_INT(cluster_errors(cl, "ERR"), 0);
    hf_client_free(c);
}

TEST(the_user_of_the_manual_may_look)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    acl_user(s, "acl");
    const char *url = keep_text("unix://holdfast:pw@%s", server_url(s) + strlen("unix://"));
    hf_client *c = client_with(url, (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    lock_now(m);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    lost_soon(m);
    CHECK(!logbook_has(&log, "cannot be looked at"));
    hf_lock_free(m);
    hf_client_free(c);
}

/* A look is no proof: when the server says no more, belief ends as ever. And it costs one short
 * script a second, for one lock. */
TEST(P5_a_look_lengthens_nothing_and_costs_little)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = HF_NO_TAKEOVER });
    lock_now(m);
    t_sleep_ms(1000);
    CHECK_STR(server_ask(s, "CONFIG RESETSTAT"), "OK");
    int64_t before = hf_lock_time_left_ms(m), since = t_now_ms();
    t_sleep_ms(4000);
    const char *stats = server_ask(s, "INFO commandstats");
    const char *sha = strstr(stats, "cmdstat_evalsha:calls=");
    CHECK(sha);
    CHECK_RANGE(atoi(sha + strlen("cmdstat_evalsha:calls=")), 2, 7);
    CHECK(before - hf_lock_time_left_ms(m) >= t_now_ms() - since - 100);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- a server that comes back ---- */

TEST(a_server_that_comes_back_is_renewed_at_once)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_at(server_url(s), 1000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 12000, .grace_ms = HF_NO_TAKEOVER });
    lock_now(m);
    server_kill(s);
    t_sleep_ms(5000); /* the renewal of the fourth second fails */
    CHECK_INT(hf_lock_is_held(m), 1);
    server_restart(s);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") > 10000, SOON_MS);
    CHECK_INT(hf_lock_is_held(m), 1);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* One of several was away, and comes back without the lock: it has it again long before the next
 * third. */
TEST(a_member_that_comes_back_gets_the_lock_at_once)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = TTL_MS });
    lock_now(m);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 3, 1000);
    CHECK_INT(server_int(q.s[2], "DEL lock:a"), 1);
    server_kill(q.s[2]);
    t_sleep_ms(500);
    server_restart(q.s[2]);
    CHECK_INT(members_having(&q, "lock:a", 4), 0);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", 4) == 1, SOON_MS + 1000);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
