/* SPDX-License-Identifier: MIT
 * transaction.c - the protocol `transaction`: WATCH, MULTI and EXEC instead of scripts.
 */
#include "harness/protocols.h"
#include "harness/waiting.h"

#include <sys/wait.h>

#define BY "transaction"

static long long counter(struct server *s)
{
    return atoll(server_ask(s, "GET " FENCE_KEY));
}

/* Not one script, whatever was done. */
static void check_no_scripts(struct server *s)
{
    CHECK_CONTAINS(server_ask(s, "INFO commandstats"), "cmdstat_exec:");
    CHECK(!strstr(server_ask(s, "INFO commandstats"), "cmdstat_eval"));
}

TEST(document_002_moto_and_nokia)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    uint64_t fence;
    CHECK_HF(hf_owner_acquire(c, hf_str("lock"), 10086000, hf_str("moto"), &fence, &err), HF_OK);
    CHECK_STR(server_ask(s, "GET lock:lock"), "moto");
    CHECK_RANGE(server_int(s, "PTTL lock:lock"), 10000000, 10086000);
    CHECK_HF(hf_owner_acquire(c, hf_str("lock"), 123000, hf_str("nokia"), NULL, &err), HF_EBUSY);
    CHECK_HF(hf_owner_release(c, hf_str("lock"), hf_str("nokia"), &err), HF_ENOTOWNER);
    CHECK_STR(server_ask(s, "GET lock:lock"), "moto");
    CHECK_HF(hf_owner_extend(c, hf_str("lock"), hf_str("nokia"), 1000, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_check(c, hf_str("lock"), hf_str("moto"), NULL, &err), HF_OK);
    CHECK_HF(hf_owner_release(c, hf_str("lock"), hf_str("moto"), &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS lock:lock"), 0);
    CHECK_HF(hf_owner_release(c, hf_str("lock"), hf_str("moto"), &err), HF_ENOTOWNER);
    hf_client_free(c);
    check_no_scripts(s);
    check_only_ttls(s);
}

TEST(values_are_those_of_the_scripts_and_both_see_each_other)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *m = lock_of(c, "a", 20000), *x = lock_of(o, "a", 20000);
    char want[120];
    uint64_t f = lock_now(m);
    snprintf(want, sizeof want, "%s:%llu:0", hf_lock_owner(m), (unsigned long long)f);
    CHECK_STR(server_ask(s, "GET lock:a"), want);
    CHECK_HF(hf_lock_try(x, NULL, &err), HF_EBUSY);
    hf_inspect_info *info, *other;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    CHECK_HF(hf_inspect_lock(o, hf_str("a"), 0, &other, &err), HF_OK);
    CHECK_STR(info->kind, "mutex");
    CHECK_STR(other->kind, "mutex");
    CHECK_STR(other->holder[0]->owner, info->holder[0]->owner);
    CHECK(info->holder[0]->fence == f && other->holder[0]->fence == f);
    hf_inspect_free(info);
    hf_inspect_free(other);
    unlock_now(m);
    CHECK_STR(server_keys_but(s, RECORD_KEYS), ONLY_OURS);
    CHECK(lock_now(x) > f);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "held by another owner");
    f = hf_lock_fence(x);
    unlock_now(x);
    CHECK(lock_now(m) > f);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(x);
    hf_client_free(c);
    hf_client_free(o);
}

TEST(P1_forty_processes_count_in_one_file)
{
    struct server *s = server_start(NULL);
    struct counting c = { .url = server_url(s), .protocol = { BY, BY, BY, BY }, .rounds = 8,
                          .ttl_ms = 30000 };
    check_counting(&c, 40);
    check_no_scripts(s);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(P1_P4_scripts_and_transactions_mixed_on_one_key)
{
    struct server *s = server_start(NULL);
    struct counting c = { .url = server_url(s), .protocol = { BY, "script", BY, "script" },
                          .rounds = 15, .ttl_ms = 30000 };
    check_counting(&c, 12);
    check_only_ttls(s);
}

TEST(P3_a_killed_holder_costs_its_ttl)
{
    check_killed_holder(BY, 4000);
}

TEST(P2_a_late_release_changes_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), BY);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 800, .no_renew = 1 });
    hf_lock *x = lock_of(o, "a", 20000);
    lock_now(m);
    uint64_t f = lock_now(x); /* as soon as the lease has ended */
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(x, &err), HF_OK);
    CHECK(hf_lock_fence(x) == f);
    unlock_now(x);
    hf_lock_free(m);
    hf_lock_free(x);
    hf_client_free(c);
    hf_client_free(o);
}

static void let_expire(struct server *s)
{
    server_ask(s, "SET lock:a gone PX 1");
}

TEST(P1_document_001_an_expired_lock_seen_by_all_at_once_has_one_winner)
{
    struct server *s = server_start(NULL);
    check_race(server_url(s), BY, 2000, let_expire, s);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(extend_verify_leave_and_renewal)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    t_sleep_ms(4500); /* longer than its ttl: it was renewed */
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_HF(hf_lock_extend(m, 60000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 50000, 60000);
    CHECK_HF(hf_lock_extend(m, 5000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1000, 5000);
    CHECK_HF(hf_lock_detach(m, 9000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 5001, 9000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    server_ask(s, "DEL lock:a");
    /* Somebody else's value: lost, and not touched. */
    lock_now(m);
    server_ask(s, "SET lock:a other PX 30000");
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_STR(server_ask(s, "GET lock:a"), "other");
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(many_locks_are_renewed_together_and_a_lost_one_alone)
{
    enum { MANY = 120 };
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m[MANY];
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "m%d", i);
        m[i] = lock_of(c, name, 5000);
        lock_now(m[i]);
    }
    server_ask(s, "DEL lock:m7");
    server_ask(s, "SET lock:m8 other");
    t_sleep_ms(7000);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(hf_lock_is_held(m[i]), i != 7 && i != 8);
    for (int i = 0; i < MANY; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_STR(server_keys(s), "lock:holdfast:fence\nlock:holdfast:reign\nlock:m8");
}

TEST(owner_ids_by_handle_and_by_id)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .owner = hf_str("job 7") });
    uint64_t f = lock_now(m);
    char want[120], token[64];
    CHECK_STR(server_ask(s, "GET lock:a"), "job 7");
    snprintf(want, sizeof want, ":%llu", (unsigned long long)f);
    CHECK_CONTAINS(server_ask(s, "GET {lock:a}:own"), want);
    /* The same id is not the same hold. */
    CHECK_HF(hf_owner_acquire(o, hf_str("a"), 5000, hf_str("job 7"), NULL, &err), HF_EBUSY);
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 5000, hf_str("job 7"), NULL, &err), HF_EBUSY);
    t_sleep_ms(4500); /* both keys are renewed */
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_HF(hf_owner_release(o, hf_str("a"), hf_str("job 7"), &err), HF_OK);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 5000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_RELEASED);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    /* And the other way round, by a random owner's token. */
    hf_lock *x = lock_of(o, "b", 4000);
    lock_now(x);
    snprintf(token, sizeof token, "%s", hf_lock_owner(x));
    CHECK_HF(hf_owner_extend(c, hf_str("b"), hf_str(token), 9000, &err), HF_OK);
    CHECK_HF(hf_owner_extend(c, hf_str("b"), hf_str(token), 1000, &err), HF_EINVAL);
    CHECK_RANGE(server_int(s, "PTTL lock:b"), 5000, 9000);
    token[33] ^= 1;
    CHECK_HF(hf_owner_release(c, hf_str("b"), hf_str(token), &err), HF_ENOTOWNER);
    token[33] ^= 1;
    size_t n = 0;
    CHECK_HF(hf_owner_release_all(c, hf_str(token), &n, &err), HF_OK);
    CHECK_INT(n, 1);
    CHECK_EVENTUALLY(hf_lock_loss(x) == HF_LOSS_RELEASED, 5000);
    hf_lock_free(m);
    hf_lock_free(x);
    hf_client_free(c);
    hf_client_free(o);
    check_only_ttls(s);
}

/* ---- lost replies ---- */

TEST(P8_the_reply_of_EXEC_cut_at_every_byte)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 5000);
    hf_client *other = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 20000), *busy = lock_of(other, "a", 20000);
    lock_now(m);
    unlock_now(m);
    long cuts = proxy_cuts(p);
    int doubted = 0;
    /* "+OK\r\n+QUEUED\r\n*1\r\n+OK\r\n" has 23 bytes, and the first of them may have passed. */
    for (size_t k = 0; k <= 24; k++) {
        char token[64], value[120];
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        uint64_t f = lock_now(m);
        snprintf(token, sizeof token, "%s", hf_lock_owner(m));
        snprintf(value, sizeof value, "%s:%llu:0", token, (unsigned long long)f);
        CHECK_STR(server_ask(s, "GET lock:a"), value); /* the number is the grant's */
        CHECK_HF(hf_lock_try(busy, NULL, &err), HF_EBUSY);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        doubted += server_ask(s, "ZSCORE {lock:a}:t %s", token) != NULL; /* B1 */
    }
    CHECK(proxy_cuts(p) - cuts >= 20);
    CHECK(doubted >= 5); /* the others were cut before the server had all of it */
    /* And of a release. */
    for (size_t k = 0; k <= 22; k++) {
        lock_now(m);
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        CHECK_HF(hf_lock_release(m, &err), HF_OK);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        lock_now(busy);
        CHECK_HF(hf_lock_verify(busy, &err), HF_OK);
        unlock_now(busy);
    }
    hf_lock_free(m);
    hf_lock_free(busy);
    hf_client_free(c);
    hf_client_free(other);
}

/* The token stands beside the lock, under the id. */
TEST(P8_so_it_is_with_an_owner_id)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 5000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000, .owner = hf_str("job") });
    lock_now(m);
    unlock_now(m);
    long cuts = proxy_cuts(p);
    int again = 0;
    for (size_t k = 0; k <= 42; k += 2) { /* two SETs: "+OK\r\n+QUEUED\r\n+QUEUED\r\n*2..." */
        char want[120];
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        uint64_t f = lock_now(m);
        snprintf(want, sizeof want, ":%llu", (unsigned long long)f);
        CHECK_STR(server_ask(s, "GET lock:a"), "job");
        CHECK_CONTAINS(server_ask(s, "GET {lock:a}:own"), want);
        CHECK_RANGE(server_int(s, "PTTL {lock:a}:own"), 1, 20000);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
        again += proxy_cuts(p) > cuts;
    }
    CHECK(again > 5);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P8_a_given_up_EXEC_that_arrives_late_takes_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 5000);
    hf_client *other = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(other, "a", 4000);
    lock_now(m);
    unlock_now(m);
    for (int i = 0; i < 5; i++) {
        /* On a busy machine the time may be over before an EXEC leaves; or what is held is the
         * cancellation of the last round, which is tried until it was answered. */
        hf_err e = HF_ETIMEDOUT;
        for (int k = 0; k < 20 && e == HF_ETIMEDOUT; k++) {
            proxy_pass(p);
            proxy_when(p, "EXEC");
            proxy_hold(p);
            e = hf_lock_acquire(m, 150, NULL, &err);
        }
        CHECK_INT(e, HF_EUNSURE);
        CHECK_INT(err.known, HF_KNOWN_NOTHING);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK(proxy_held(p) > 0);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        proxy_pass(p);
        CHECK_EVENTUALLY(proxy_held(p) == 0, 2000);
        CHECK_HF(hf_lock_acquire(o, 5000, NULL, &err), HF_OK); /* not after 30 s */
        unlock_now(o);
        lock_now(m);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P8_a_tombstone_stops_an_EXEC_that_was_under_way)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 300);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    unlock_now(m);
    server_monitor_start(s);
    proxy_when(p, "EXEC");
    proxy_hold(p);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EUNSURE);
    /* What a cancellation by another way would have written meanwhile. */
    const char *asked = strstr(server_monitor_text(s), "ZSCORE");
    CHECK(asked);
    char token[64];
    CHECK_INT(sscanf(asked, "ZSCORE\" \"{lock:a}:t\" \"%63[^\"]", token), 1);
    server_ask(s, "ZADD {lock:a}:t 9999999999999 %s", token);
    proxy_pass(p);
    CHECK_EVENTUALLY(server_monitor_count(s, "\"EXEC\"") > 0, 5000); /* it did arrive */
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(server_monitor_count(s, "\"SET\" \"lock:a\""), 0); /* not even for a moment */
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(a_dead_server_is_told_and_a_restarted_one_is_found)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_in(server_url(s), BY, 400);
    hf_lock *m = lock_of(c, "a", 20000), *n = lock_of(c, "b", 20000);
    uint64_t f = lock_now(m);
    server_kill(s);
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_ECONN);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    server_restart(s);
    CHECK(lock_now(n) > f);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* it had been written down */
    unlock_now(m);
    unlock_now(n);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
}

struct storm {
    char           *url; /* memory that all share: written when the proxy runs */
    struct bell     begin;
    struct history *history;
    int             rounds;
};

static void lock_in_storm(int index, void *arg)
{
    struct storm *st = arg;
    bell_wait(st->begin);
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 1000,
                         .protocol = index % 3 ? BY : "script" };
    CHECK_EVENTUALLY(hf_client_open(st->url, &o, &c, &err) == HF_OK, 10000);
    hf_lock *m = lock_of(c, "a", 3000);
    for (int i = 0; i < st->rounds; i++) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        if (hf_lock_acquire(m, 20000, &fence, &err))
            continue; /* whatever the network did: nothing is held */
        struct grant *g = history_grant(st->history, 0, (uint32_t)index, fence, invoke,
                                        BELIEVED_UNTIL(m));
        t_sleep_ms((int64_t)t_random(3));
        history_release(g);
        (void)hf_lock_release(m, NULL);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_P4_P8_connections_that_break_all_the_time)
{
    enum { WORKERS = 6, ROUNDS = 60 };
    struct server *s = server_start(NULL);
    struct history_report rep;
    struct storm st = { .url = shared_memory(256), .begin = bell_new(),
                        .history = history_new(WORKERS * ROUNDS), .rounds = ROUNDS };
    /* Forked before there is a second thread: its locks would be theirs for ever. */
    struct workers *w = workers_start(WORKERS, lock_in_storm, &st);
    struct proxy *p = proxy_start(s);
    snprintf(st.url, 256, "%s", proxy_url(p));
    for (int i = 0; i < WORKERS; i++)
        bell_ring(st.begin);
    long cuts = proxy_cuts(p);
    for (int i = 0; i < 60; i++) {
        t_sleep_ms(10 + (int64_t)t_random(20));
        proxy_when(p, i % 3 ? "EXEC" : "EVALSHA");
        proxy_cut_after(p, t_random(30));
        if (i % 10 == 0)
            proxy_break(p);
    }
    proxy_pass(p);
    workers_join(w, 50000);
    CHECK(proxy_cuts(p) - cuts > 5);
    CHECK_INT(history_check(st.history, &rep), 0);
    CHECK(rep.grants > WORKERS * ROUNDS / 2);
    check_only_ttls(s);
}

TEST(a_connection_that_the_server_closed_meanwhile_is_not_noticed)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 20000);
    for (int i = 0; i < 5; i++) {
        lock_now(m);
        CHECK(server_int(s, "CLIENT KILL TYPE normal SKIPME yes") > 0);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        CHECK(server_int(s, "CLIENT KILL TYPE normal SKIPME yes") > 0);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:t"), 0); /* nothing was in doubt */
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the counter ---- */

TEST(P4_numbers_rise_whatever_becomes_of_the_counter)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 20000);
    uint64_t last = 0;
    const char *const harm[] = { "SET " FENCE_KEY " 5", "DEL " FENCE_KEY, "FLUSHALL",
                                 "SET " FENCE_KEY " -9", "PING" };
    for (size_t i = 0; i < 20; i++) {
        uint64_t f = lock_now(m);
        CHECK(f > last && f >= UINT64_C(1600000000000000));
        last = f;
        unlock_now(m);
        server_ask(s, harm[i % 5]);
    }
    server_ask(s, "SET " FENCE_KEY " nonsense");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECOUNTER);
    server_ask(s, "DEL " FENCE_KEY);
    server_ask(s, "LPUSH " FENCE_KEY " x");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECOUNTER);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P4_a_new_reign_lifts_the_counter_at_each_new_connection)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 20000);
    uint64_t last = lock_now(m);
    unlock_now(m);
    for (int i = 0; i < 3; i++) {
        server_kill(s);
        server_restart(s); /* without its data */
        /* Somebody restored an old counter, as a backup would. */
        server_ask(s, "SET " FENCE_KEY " 1600000000000001");
        uint64_t f = lock_now(m);
        CHECK(f > last);
        last = f;
        CHECK_CONTAINS(server_ask(s, "GET " REIGN_KEY), server_info(s, "run_id"));
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* As the script does: how old the counter is outlives a restart that keeps the data. */
TEST(P4_a_new_reign_keeps_the_age_of_the_counter)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 20000);
    char name[200];
    long long floor, first, later;
    lock_now(m);
    unlock_now(m);
    CHECK(sscanf(server_ask(s, "GET " REIGN_KEY), "%199s %lld %lld", name, &floor, &first) == 3);
    CHECK(floor == first && first > 1600000000000000);
    server_restart(s);
    lock_now(m);
    unlock_now(m);
    CHECK(sscanf(server_ask(s, "GET " REIGN_KEY), "%199s %lld %lld", name, &floor, &later) == 3);
    CHECK(floor > first && later == first);
    CHECK_CONTAINS(name, server_info(s, "run_id"));
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- foreign and hostile data ---- */

TEST(a_lock_without_a_ttl_is_given_one)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 12000), *sem = lock_with(c, "a", (hf_lock_opts){ .slots = 3 });
    server_ask(s, "SET lock:a somebody");
    CHECK_HF(hf_lock_acquire(m, 100, NULL, &err), HF_ETIMEDOUT);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 9000, 12000);
    CHECK_STR(server_ask(s, "GET lock:a"), "somebody");
    server_ask(s, "PERSIST lock:a");
    CHECK_HF(hf_lock_try(sem, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "PTTL lock:a"), -1); /* who only tries changes nothing */
    CHECK_HF(hf_lock_acquire(sem, 100, NULL, &err), HF_ETIMEDOUT);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 10000, 30000);
    hf_lock_free(m);
    hf_lock_free(sem);
    hf_client_free(c);
}

TEST(a_semaphore_without_a_ttl_ends_with_its_last_holder)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 40000, .slots = 1, .no_renew = 1 });
    hf_lock *n = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 90000, .slots = 1 });
    lock_now(m);
    CHECK_INT(server_int(s, "PERSIST lock:s"), 1);
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "PTTL lock:s"), -1); /* who only tries changes nothing */
    CHECK_HF(hf_lock_acquire(n, 1000, NULL, &err), HF_ETIMEDOUT);
    CHECK_RANGE(server_int(s, "PTTL lock:s"), 1, 40000);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    /* Nobody holds it any more: nothing of it stays. */
    server_ask(s, "SET lock:s shared.1.1:1600000000000001:0");
    CHECK_HF(hf_lock_try(n, NULL, &err), HF_EBUSY);
    lock_now(n);
    CHECK_INT(server_int(s, "ZCARD {lock:s}:h"), 1);
    unlock_now(n);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(P10_other_types_are_told_and_left_alone)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m = lock_of(c, "a", 12000), *sem = lock_with(c, "a", (hf_lock_opts){ .slots = 3 });
    server_ask(s, "LPUSH lock:a x");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_lock_try(sem, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("x"), &err), HF_ENOTOWNER);
    CHECK_INT(server_int(s, "LLEN lock:a"), 1);
    server_ask(s, "DEL lock:a");
    server_ask(s, "SET {lock:a}:t x");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ETYPE);
    server_ask(s, "DEL {lock:a}:t");
    server_ask(s, "SET lock:a shared.3.1:1600000000000001:0 PX 60000");
    server_ask(s, "SET {lock:a}:h x");
    CHECK_HF(hf_lock_try(sem, NULL, &err), HF_ETYPE);
    hf_inspect_info *info;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    hf_inspect_free(info);
    server_ask(s, "FLUSHALL");
    lock_now(m);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(sem);
    hf_client_free(c);
}

/* ---- where scripts are refused ---- */

static hf_client *open_logged(const char *url, const char *protocol, struct logbook *log)
{
    return client_with(url, (hf_client_opts){ .protocol = protocol, .log = logbook_add,
                                              .log_arg = log });
}

static void check_all_works(hf_client *c, struct server *s)
{
    hf_lock *m = lock_of(c, "w", 4000);
    uint64_t f = lock_now(m);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    t_sleep_ms(4500);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_HF(hf_guard_check(c, hf_str("disk"), f, &err), HF_OK);
    CHECK_HF(hf_guard_check(c, hf_str("disk"), f - 1, &err), HF_ESTALE);
    hf_inspect_info *info;
    CHECK_HF(hf_inspect_lock(c, hf_str("w"), 0, &info, &err), HF_OK);
    CHECK_INT(info->holder[0]->pid, getpid());
    hf_inspect_free(info);
    unlock_now(m);
    hf_lock_free(m);
    CHECK_INT(server_int(s, "EXISTS lock:w"), 0);
}

TEST(a_user_without_scripting_gets_transactions_and_is_told_so)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    char url[256];
    CHECK_STR(server_ask(s, "ACL SETUSER nos on >pw ~* &* +@all -@scripting"), "OK");
    snprintf(url, sizeof url, "unix://nos:pw@%s", server_socket(s));
    hf_client *c = open_logged(url, NULL, &log);
    CHECK_LOGGED(&log, "the server runs no scripts for us");
    CHECK_LOGGED(&log, "1 the server runs"); /* a warning */
    check_all_works(c, s);
    hf_client_free(c);
    /* Who asked for scripts is not given something else. */
    hf_client_opts o = { .size = sizeof o, .protocol = "script" };
    CHECK_HF(hf_client_open(url, &o, &c, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "NOPERM");
    snprintf(url, sizeof url, "unix://nos:pw@%s?protocol=script", server_socket(s));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
    /* Who chose it is not warned. */
    struct logbook quiet = LOGBOOK;
    snprintf(url, sizeof url, "unix://nos:pw@%s?protocol=transaction", server_socket(s));
    c = open_logged(url, NULL, &quiet);
    CHECK(!logbook_has(&quiet, "scripts"));
    hf_client_free(c);
    /* A right that transactions need as well is no reason to fall back. */
    CHECK_STR(server_ask(s, "ACL SETUSER nokeys on >pw ~other:* &* +@all"), "OK");
    snprintf(url, sizeof url, "unix://nokeys:pw@%s", server_socket(s));
    CHECK_HF(hf_client_open(url, NULL, &c, &err), HF_EAUTH);
}

TEST(a_server_without_EVAL_gets_transactions)
{
    const char *const args[] = { "--rename-command", "EVAL", "", "--rename-command", "EVALSHA", "",
                                 NULL };
    struct server *s = server_start(args);
    struct logbook log = LOGBOOK;
    CHECK_CONTAINS(server_ask(s, "EVAL x 0"), "unknown command");
    hf_client *c = open_logged(server_url(s), NULL, &log);
    CHECK_LOGGED(&log, "the server runs no scripts for us");
    check_all_works(c, s);
    hf_client_free(c);
    hf_client_opts o = { .size = sizeof o, .protocol = "script" };
    CHECK_HF(hf_client_open(server_url(s), &o, &c, &err), HF_ESERVER);
    struct counting n = { .url = server_url(s), .rounds = 5, .ttl_ms = 30000 };
    check_counting(&n, 8); /* each finds out by itself */
}

TEST(what_it_cannot_promise_is_refused)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m;
    hf_lock_opts o = { .size = sizeof o, .grace_ms = 2000 };
    CHECK_HF(hf_lock_open(c, hf_str("a"), &o, &m, &err), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "grace");
    CHECK_CONTAINS(err.message, "transaction");
    o.grace_ms = HF_NO_TAKEOVER;
    CHECK_HF(hf_lock_open(c, hf_str("a"), &o, &m, &err), HF_OK);
    hf_lock_free(m);
    hf_election *el;
    CHECK_HF(hf_election_open(c, hf_str("a"), NULL, &el, &err), HF_ENOTSUP);
    hf_leader *l;
    CHECK_HF(hf_election_leader(c, hf_str("a"), &l, &err), HF_ENOTSUP);
    hf_client_free(c);
    hf_client_opts bad = { .size = sizeof bad, .protocol = "magic" };
    CHECK_HF(hf_client_open(server_url(s), &bad, &c, &err), HF_ECONFIG);
    CHECK_CONTAINS(err.message, "magic");
}

/* ---- beside scripts ---- */

TEST(a_script_client_that_waits_is_served_after_our_release)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *m = lock_of(c, "a", 20000);
    for (int i = 0; i < 3; i++) {
        struct locker w = { .m = lock_of(o, "a", 20000), .wait_ms = 10000 };
        uint64_t f = lock_now(m);
        locker_start(&w);
        CHECK_QUEUE(s, "a", 1);
        int64_t start = t_now_ms();
        unlock_now(m);
        locker_join(&w, HF_OK);
        CHECK_TOOK(t_now_ms() - start, 0, 3000); /* its own look, not the ttl */
        CHECK(w.fence > f);
        unlock_now(w.m);
        hf_lock_free(w.m);
    }
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(o);
    check_only_ttls(s);
}

/* ---- semaphores and readers ---- */

struct permits {
    const char *url;
    int         slots, rounds;
    atomic_int *out, *most;
};

static void take_permits(int index, void *arg)
{
    struct permits *p = arg;
    hf_client *c = client_by(p->url, index % 2 ? "script" : BY);
    unsigned n = 1 + (unsigned)index % 2;
    hf_lock *m = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = (unsigned)p->slots,
                                                      .permits = n });
    for (int i = 0; i < p->rounds; i++) {
        CHECK_HF(hf_lock_acquire(m, 50000, NULL, &err), HF_OK);
        int now = atomic_fetch_add(p->out, (int)n) + (int)n, most = atomic_load(p->most);
        CHECK_RANGE(now, 1, p->slots);
        while (now > most && !atomic_compare_exchange_weak(p->most, &most, now))
            ;
        t_sleep_ms((int64_t)t_random(4));
        atomic_fetch_sub(p->out, (int)n);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(SEM1_semaphores_with_both_protocols)
{
    struct server *s = server_start(NULL);
    atomic_int *shared = shared_memory(2 * sizeof *shared);
    struct permits p = { .url = server_url(s), .slots = 4, .rounds = 12, .out = shared,
                         .most = shared + 1 };
    workers_run(8, take_permits, &p, 55000);
    CHECK_INT(atomic_load(p.out), 0);
    CHECK(atomic_load(p.most) > 1); /* they did share it */
    check_only_ttls(s);
    CHECK_INT(server_int(s, "EXISTS lock:s {lock:s}:h {lock:s}:d"), 0);
}

TEST(semaphore_limits_permits_and_leases)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *a = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 4000, .slots = 3, .permits = 2 });
    hf_lock *b = lock_with(o, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
    hf_lock *d = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
    hf_lock *other = lock_with(c, "s", (hf_lock_opts){ .slots = 5 });
    hf_lock *alone = lock_of(c, "s", 20000);
    uint64_t f = lock_now(a);
    CHECK(lock_now(b) > f);
    CHECK_HF(hf_lock_try(d, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_lock_try(other, NULL, &err), HF_ELIMIT);
    CHECK_HF(hf_lock_try(alone, NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.3.3:");
    t_sleep_ms(4500); /* renewed */
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    hf_inspect_info *info;
    CHECK_HF(hf_inspect_lock(c, hf_str("s"), 0, &info, &err), HF_OK);
    CHECK_STR(info->kind, "semaphore");
    CHECK_INT(info->slots, 3);
    CHECK_INT(info->used, 3);
    CHECK_INT(info->holders, 2);
    hf_inspect_free(info);
    unsigned old;
    CHECK_HF(hf_semaphore_resize(c, hf_str("s"), 5, &old, &err), HF_OK);
    CHECK_INT(old, 3);
    lock_now(d); /* who names the old number takes part in the new one */
    unlock_now(a);
    CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.5.2:");
    unlock_now(b);
    unlock_now(d);
    CHECK_INT(server_int(s, "EXISTS lock:s {lock:s}:h {lock:s}:d"), 0);
    CHECK_HF(hf_semaphore_resize(c, hf_str("s"), 3, &old, &err), HF_OK);
    /* A holder whose lease has ended makes room, without anybody's doing. */
    hf_lock *short_one = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 800, .slots = 3,
                                                              .permits = 3, .no_renew = 1 });
    lock_now(short_one);
    CHECK_HF(hf_lock_acquire(d, 5000, NULL, &err), HF_OK);
    CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.3.1:");
    CHECK_HF(hf_lock_release(short_one, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(d, &err), HF_OK);
    /* By its owner id. */
    CHECK_HF(hf_owner_extend(c, hf_str("s"), hf_str(hf_lock_owner(d)), 90000, &err), HF_OK);
    CHECK_HF(hf_owner_extend(c, hf_str("s"), hf_str(hf_lock_owner(d)), 1000, &err), HF_EINVAL);
    CHECK_RANGE(server_int(s, "PTTL lock:s"), 60000, 90000);
    CHECK_HF(hf_owner_release(c, hf_str("s"), hf_str(hf_lock_owner(d)), &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS lock:s {lock:s}:h {lock:s}:d"), 0);
    hf_lock *all[] = { a, b, d, other, alone, short_one };
    for (size_t i = 0; i < 6; i++)
        hf_lock_free(all[i]);
    hf_client_free(c);
    hf_client_free(o);
}

/* Nothing that may be released makes room for so many. */
TEST(SEM4_who_asks_for_more_than_a_resize_left_is_told_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *one = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
    hf_lock *m[] = { lock_of(c, "a", 20000),
                     lock_with(c, "s", (hf_lock_opts){ .slots = 3, .permits = 3 }) };
    CHECK_HF(hf_semaphore_resize(c, hf_str("s"), 2, NULL, &err), HF_OK);
    for (int i = 0; i < 2; i++) { /* while it is free, and while it is used */
        CHECK_HF(hf_lock_acquire(m[1], 10000, NULL, &err), HF_ELIMIT);
        CHECK_CONTAINS(err.message, "3 permits of");
        CHECK_CONTAINS(err.message, "2 in all");
        CHECK_HF(hf_multi_acquire(m, 2, 10000, &err), HF_ELIMIT);
        CHECK_CONTAINS(err.message, "2 in all");
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        if (i == 0)
            lock_now(one);
    }
    CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.2.1:");
    CHECK_HF(hf_semaphore_resize(c, hf_str("s"), 3, NULL, &err), HF_OK);
    unlock_now(one);
    CHECK_HF(hf_multi_acquire(m, 2, 10000, &err), HF_OK);
    CHECK_HF(hf_multi_release(m, 2, &err), HF_OK);
    hf_lock_free(one);
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
    hf_client_free(c);
    CHECK_INT(server_int(s, "DEL {lock:s}:s"), 1);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(P8_the_reply_of_a_share_is_lost)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 5000);
    hf_lock *m = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3, .permits = 2 });
    lock_now(m);
    unlock_now(m);
    long cuts = proxy_cuts(p);
    for (size_t k = 0; k <= 90; k += 3) {
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        lock_now(m);
        CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.3.2:"); /* counted once */
        CHECK_INT(server_int(s, "ZCARD {lock:s}:h"), 1);
        proxy_when(p, "EXEC");
        proxy_cut_after(p, k);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:s {lock:s}:h {lock:s}:d"), 0);
    }
    CHECK(proxy_cuts(p) - cuts > 30);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_a_share_that_others_deleted_or_gave_back_is_noticed)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *m = lock_with(c, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
    lock_now(m);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(server_int(s, "DEL lock:s {lock:s}:h {lock:s}:d") >= 1);
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    lock_now(m);
    char token[64];
    snprintf(token, sizeof token, "%s", hf_lock_owner(m));
    CHECK_HF(hf_owner_release(o, hf_str("s"), hf_str(token), &err), HF_OK);
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_RELEASED);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(o);
    check_only_ttls(s);
}

TEST(readers_and_a_writer_with_both_protocols)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *a = lock_of(c, "r", 20000), *b = lock_of(o, "r", 20000),
             *w = lock_of(c, "r", 20000);
    CHECK_HF(hf_lock_acquire_shared(a, 0, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_acquire_shared(b, 0, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_try(w, NULL, &err), HF_EBUSY);
    unlock_now(a);
    CHECK_HF(hf_lock_try(w, NULL, &err), HF_EBUSY);
    unlock_now(b);
    uint64_t f = lock_now(w);
    CHECK_HF(hf_lock_acquire_shared(a, 0, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_lock_downgrade(w, &err), HF_OK);
    CHECK(hf_lock_fence(w) == f);
    CHECK_HF(hf_lock_acquire_shared(b, 0, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_verify(w, &err), HF_OK);
    /* A script client's writer that waits stops our readers as it stops others (R3). */
    struct locker writer = { .m = lock_of(o, "r", 20000), .wait_ms = 10000 };
    locker_start(&writer);
    CHECK_QUEUE(s, "r", 1);
    CHECK_HF(hf_lock_acquire_shared(a, 0, NULL, &err), HF_EBUSY);
    unlock_now(w);
    unlock_now(b);
    locker_join(&writer, HF_OK);
    unlock_now(writer.m);
    hf_lock_free(writer.m);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(w);
    hf_client_free(c);
    hf_client_free(o);
    CHECK_INT(server_int(s, "EXISTS lock:r {lock:r}:h {lock:r}:d {lock:r}:q"), 0);
}

/* ---- several at once ---- */

TEST(X1_several_locks_all_or_none)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *m[] = { lock_of(c, "a", 20000), lock_of(c, "b", 20000),
                      lock_with(c, "s", (hf_lock_opts){ .slots = 2 }),
                      lock_with(c, "id", (hf_lock_opts){ .owner = hf_str("me") }) };
    hf_lock *b = lock_of(o, "b", 20000);
    lock_now(b);
    CHECK_HF(hf_multi_acquire(m, 4, 0, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "EXISTS lock:a lock:s lock:id"), 0);
    unlock_now(b);
    CHECK_HF(hf_multi_acquire(m, 4, 5000, &err), HF_OK);
    for (int i = 0; i < 4; i++) {
        CHECK_HF(hf_lock_verify(m[i], &err), HF_OK);
        for (int k = 0; k < i; k++)
            CHECK(hf_lock_fence(m[i]) != hf_lock_fence(m[k]));
    }
    CHECK_STR(server_ask(s, "GET lock:id"), "me");
    CHECK_HF(hf_lock_try(b, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_multi_release(m, 4, &err), HF_OK);
    CHECK_STR(server_keys_but(s, RECORD_KEYS), ONLY_OURS);
    for (int i = 0; i < 4; i++)
        hf_lock_free(m[i]);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(o);
}

TEST(X1_another_limit_among_several_is_told_and_nothing_is_taken)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_lock *three = lock_with(o, "s", (hf_lock_opts){ .ttl_ms = 20000, .slots = 3 });
    hf_lock *m[] = { lock_of(c, "a", 20000), lock_with(c, "s", (hf_lock_opts){ .slots = 5 }) };
    lock_now(three);
    CHECK_HF(hf_multi_acquire(m, 2, 10000, &err), HF_ELIMIT);
    CHECK_CONTAINS(err.message, "is a semaphore of 3");
    CHECK_CONTAINS(err.message, "5 was asked for");
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    CHECK_INT(server_int(s, "ZCARD {lock:s}:h"), 1);
    unlock_now(three);
    CHECK_HF(hf_multi_acquire(m, 2, 10000, &err), HF_OK);
    CHECK_CONTAINS(server_ask(s, "GET lock:s"), "shared.5.1:");
    CHECK_HF(hf_multi_release(m, 2, &err), HF_OK);
    hf_lock_free(three);
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
    hf_client_free(c);
    hf_client_free(o);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(guards_and_sequences_work_too)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY), *o = client_by(server_url(s), "script");
    hf_sequence *q, *r;
    uint64_t id, other;
    hf_sequence_opts one = { .size = sizeof one, .block = 1 };
    CHECK_HF(hf_sequence_open(c, hf_str("n"), &one, &q, &err), HF_OK);
    CHECK_HF(hf_sequence_open(o, hf_str("n"), &one, &r, &err), HF_OK);
    for (uint64_t i = 1; i < 20; i += 2) {
        CHECK_HF(hf_sequence_next(q, &id, &err), HF_OK);
        CHECK_HF(hf_sequence_next(r, &other, &err), HF_OK);
        CHECK(id == i && other == i + 1);
    }
    CHECK_HF(hf_guard_set(c, hf_str("report"), hf_str("new"), 100, &err), HF_OK);
    CHECK_HF(hf_guard_set(o, hf_str("report"), hf_str("old"), 99, &err), HF_ESTALE);
    CHECK_HF(hf_guard_set(c, hf_str("report"), hf_str("old"), 99, &err), HF_ESTALE);
    CHECK_STR(server_ask(s, "GET report"), "new");
    CHECK_HF(hf_guard_set(c, hf_str("report"), hf_str("newer"), 1000, &err), HF_OK);
    CHECK_STR(server_ask(s, "GET report"), "newer");
    hf_sequence_free(q);
    hf_sequence_free(r);
    hf_client_free(c);
    hf_client_free(o);
}

TEST(a_sequence_ends_before_its_numbers_would_repeat)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    const char *last = "9007199254740991"; /* the largest id there is */
    hf_sequence *two, *one;
    uint64_t id;
    CHECK_STR(server_ask(s, "SET lock:holdfast:seq:n 9007199254740990"), "OK");
    hf_sequence_opts opts = { .size = sizeof opts, .block = 2 };
    CHECK_HF(hf_sequence_open(c, hf_str("n"), &opts, &two, &err), HF_OK);
    CHECK_HF(hf_sequence_next(two, &id, &err), HF_ECOUNTER);
    CHECK_CONTAINS(err.message, "stands at 9007199254740990");
    CHECK_STR(server_ask(s, "GET lock:holdfast:seq:n"), "9007199254740990");
    opts.block = 1;
    CHECK_HF(hf_sequence_open(c, hf_str("n"), &opts, &one, &err), HF_OK);
    CHECK_HF(hf_sequence_next(one, &id, &err), HF_OK); /* exactly one was left */
    CHECK(id == strtoull(last, NULL, 10));
    CHECK_HF(hf_sequence_next(one, &id, &err), HF_ECOUNTER);
    CHECK_STR(server_ask(s, "GET lock:holdfast:seq:n"), last);
    hf_sequence_free(one);
    hf_sequence_free(two);
    hf_client_free(c);
    check_no_scripts(s);
}

static hf_change one_more(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    static char text[32];
    (void)arg;
    snprintf(text, sizeof text, "%d", old.data ? atoi(old.data) + 1 : 1);
    *ret_new = hf_str(text);
    return HF_CHANGE_SET;
}

static hf_err compute(void *arg, hf_lock *m, hf_bytes *ret_value, hf_error *reterr)
{
    (void)m, (void)reterr;
    ++*(int *)arg;
    *ret_value = hf_str("expensive");
    return HF_OK;
}

TEST(updates_and_cached_values_work_too)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_in(proxy_url(p), BY, 5000);
    /* Once each, also when the answer was lost and has to be asked for. */
    long cuts = proxy_cuts(p);
    for (int i = 1; i <= 20; i++) {
        proxy_when(p, "EXEC");
        proxy_cut_after(p, (size_t)i);
        CHECK_HF(hf_update_run(c, hf_str("n"), NULL, one_more, NULL, &err), HF_OK);
        CHECK_INT(atoi(server_ask(s, "GET n")), i);
    }
    CHECK(proxy_cuts(p) - cuts > 10);
    proxy_pass(p);
    int computed = 0;
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 20000 };
    for (int i = 0; i < 3; i++) {
        hf_value *v = NULL;
        CHECK_HF(hf_once_compute(c, hf_str("page"), &o, 5000, compute, &computed, &v, &err), HF_OK);
        CHECK_MEM(v->data, v->len, "expensive", 9);
        CHECK_INT(v->computed, i == 0);
        CHECK_INT(v->cached, 1);
        hf_value_free(v);
    }
    CHECK_INT(computed, 1);
    CHECK_HF(hf_once_drop(c, hf_str("page"), &err), HF_OK);
    hf_value *v = NULL;
    CHECK_HF(hf_once_get(c, hf_str("page"), &v, &err), HF_OK);
    CHECK(!v);
    /* Who lost its lock caches nothing. */
    hf_lock *m = lock_of(c, "page", 20000);
    lock_now(m);
    CHECK_HF(hf_once_put(c, hf_str("page"), m, hf_str("mine"), 9000, 0, &err), HF_OK);
    server_ask(s, "SET lock:page other");
    /* Repeated. */
    CHECK_HF(hf_once_put(c, hf_str("page"), m, hf_str("late"), 9000, 0, &err), HF_OK);
    server_ask(s, "DEL {lock:page}:c");
    CHECK_HF(hf_once_put(c, hf_str("page"), m, hf_str("late"), 9000, 0, &err), HF_ELOST);
    CHECK_INT(server_int(s, "EXISTS {lock:page}:c"), 0);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK(!strstr(server_ask(s, "INFO commandstats"), "cmdstat_eval"));
}

TEST(latches_and_barriers_are_refused)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_latch *l;
    hf_barrier *b;
    CHECK_HF(hf_latch_open(c, hf_str("a"), NULL, &l, &err), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "transaction");
    CHECK_HF(hf_barrier_open(c, hf_str("a"), 2, NULL, &b, &err), HF_ENOTSUP);
    CHECK_CONTAINS(err.message, "transaction");
    hf_client_free(c);
    CHECK_STR(server_keys(s), ""); /* who only tries to open writes nothing */
}

static int count_one(const hf_inspect_info *info, void *arg)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

TEST(listing_and_a_forked_child)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_by(server_url(s), BY);
    hf_lock *m[20];
    int n = 0;
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        m[i] = lock_of(c, name, 20000);
        lock_now(m[i]);
    }
    CHECK_HF(hf_inspect_list(c, "x*", 0, count_one, &n, &err), HF_OK);
    CHECK_INT(n, 20);
    int pid = t_fork_among_threads();
    if (pid == 0) {
        CHECK_HF(hf_lock_verify(m[0], &err), HF_EFORK);
        for (int i = 0; i < 20; i++)
            hf_lock_free(m[i]);
        hf_client_free(c);
        _exit(0);
    }
    int status;
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    size_t count;
    CHECK_HF(hf_client_release_all(c, &count, &err), HF_OK); /* the parent's are untouched */
    CHECK_INT(count, 20);
    for (int i = 0; i < 20; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_INT(counter(s) > 0, 1);
}
