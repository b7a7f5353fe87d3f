/* SPDX-License-Identifier: MIT
 * quorum.c - Redlock over independent servers: what a majority promises, and what each fault costs.
 */
#include <signal.h>

#include "harness/history.h"
#include "harness/holder.h"
#include "harness/proc.h"
#include "harness/quorum.h"
#include "harness/waiting.h"

/* Nothing of the lock a, nor of others, is left on any of those in mask. */
static int all_clean(struct members *q, unsigned mask)
{
    for (int i = 0; i < q->n; i++)
        if (mask >> i & 1 && server_int(q->s[i], "EXISTS lock:a {lock:a}:own") > 0)
            return 0;
    return 1;
}

/* ---- taking and giving back ---- */

TEST(P1_a_majority_decides)
{
    struct members q = members_start(5, kept);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    hf_lock *ma = lock_of(a, "a", 5000), *mb = lock_of(b, "a", 5000);
    uint64_t first = lock_now(ma), second = 0;
    CHECK(hf_lock_is_held(ma));
    CHECK_EVENTUALLY(members_with(&q, "lock:a", hf_lock_owner(ma), ALL_MEMBERS) == 5, 1000);
    CHECK_HF(hf_lock_try(mb, NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "held by another owner");
    CHECK_HF(hf_lock_verify(ma, &err), HF_OK);
    CHECK_HF(hf_lock_extend(ma, 8000, &err), HF_OK);
    CHECK_RANGE(hf_lock_time_left_ms(ma), 7000, 8000);
    unlock_now(ma);
    CHECK_EVENTUALLY(all_clean(&q, ALL_MEMBERS), 1000);
    second = lock_now(mb);
    CHECK(second > first);
    hf_lock_free(mb);
    hf_lock_free(ma);
    hf_client_free(a);
    hf_client_free(b);
    CHECK_EVENTUALLY(members_idle(&q), 1000);
}

TEST(P2_owner_ids_by_majority)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    uint64_t one, two;
    int64_t left = 0;
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 5000, hf_str("job-7"), &one, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 5000, hf_str("job-8"), NULL, &err), HF_EBUSY);
    CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("job-7"), &left, &err), HF_OK);
    CHECK_RANGE(left, 4000, 5000);
    CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("job-8"), NULL, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_extend(c, hf_str("a"), hf_str("job-7"), 9000, &err), HF_OK);
    CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("job-7"), &left, &err), HF_OK);
    CHECK_RANGE(left, 8000, 9000);
    CHECK_HF(hf_owner_extend(c, hf_str("a"), hf_str("job-7"), 5000, &err), HF_EINVAL);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("job-8"), &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("job-7"), &err), HF_OK);
    CHECK_EVENTUALLY(all_clean(&q, ALL_MEMBERS), 1000);
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 30000, hf_str("job-8"), &two, &err), HF_OK);
    CHECK(two > one);

    /* Who releases by an id touches no lock of an id that only begins like it. */
    CHECK_HF(hf_owner_acquire(c, hf_str("d"), 5000, hf_str("job:7"), NULL, &err), HF_OK);
    CHECK_EVENTUALLY(members_having(&q, "lock:d", ALL_MEMBERS) == 3, 1000);
    CHECK_HF(hf_owner_release(c, hf_str("d"), hf_str("job"), &err), HF_ENOTOWNER);
    t_sleep_ms(100);
    CHECK_INT(members_having(&q, "lock:d", ALL_MEMBERS), 3);
    CHECK_HF(hf_owner_release(c, hf_str("d"), hf_str("job:7"), &err), HF_OK);

    /* A handle with an owner id is renewed, and told when its lock is released by the id. */
    hf_lock *m = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 4000, .owner = hf_str("job-9") });
    lock_now(m);
    t_sleep_ms(4500);
    CHECK(hf_lock_is_held(m));
    hf_client *other = client_at(q.url, 0);
    CHECK_HF(hf_owner_release(other, hf_str("b"), hf_str("job-9"), &err), HF_OK);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 2000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_RELEASED);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    size_t count = 0;
    CHECK_HF(hf_owner_release_all(other, hf_str("job-8"), &count, &err), HF_OK);
    CHECK_INT(count, 1);
    hf_lock_free(m);
    hf_client_free(other);
    hf_client_free(c);
}

TEST(P3_a_lock_ends_with_its_ttl)
{
    struct members q = members_start(3, kept);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    hf_lock *ma = lock_with(a, "a", (hf_lock_opts){ .ttl_ms = 1500, .no_renew = 1 });
    hf_lock *mb = lock_of(b, "a", 4000);
    lock_now(ma);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_try(mb, NULL, &err), HF_EBUSY);
    lock_now(mb);
    CHECK_TOOK(t_now_ms() - begun, 500, 3000);
    CHECK(!hf_lock_is_held(ma));
    CHECK_HF(hf_lock_release(ma, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(mb, &err), HF_OK);

    /* One that is left behind, too. */
    CHECK_HF(hf_lock_detach(mb, 2000, &err), HF_OK);
    CHECK_HF(hf_lock_try(ma, NULL, &err), HF_EBUSY);
    lock_now(ma);
    hf_client_free(a);
    hf_client_free(b);
    hf_lock_free(ma);
    hf_lock_free(mb);
}

TEST(P3_a_killed_holder_costs_its_ttl)
{
    struct members q = members_start(3, kept);
    /* Before there are threads. */
    hf_lock_opts o = { .ttl_ms = 4000, .grace_ms = HF_NO_TAKEOVER };
    struct workers *w = holder_start(q.url, "a", o);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 1000, .grace_ms = 300 });
    CHECK_EVENTUALLY(server_int(q.s[0], "EXISTS lock:a") == 1, 5000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    workers_signal(w, 0, SIGKILL);
    int64_t begun = t_now_ms();
    lock_now(m);
    CHECK_TOOK(t_now_ms() - begun, 1500, 5500);
    workers_join(w, 1000);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(waits_end_by_deadline_and_cancel)
{
    struct members q = members_start(3, kept);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    hf_lock *ma = lock_of(a, "a", 5000), *mb = lock_of(b, "a", 5000);
    lock_now(ma);
    int64_t begun = t_now_ms();
    CHECK_HF(hf_lock_acquire(mb, 900, NULL, &err), HF_ETIMEDOUT);
    CHECK_TOOK(t_now_ms() - begun, 890, 2100);
    struct locker l = { .m = mb, .wait_ms = HF_WAIT_FOREVER };
    locker_start(&l);
    t_sleep_ms(50);
    hf_lock_cancel(mb);
    locker_join(&l, HF_ECANCELED);
    locker_start(&l);
    t_sleep_ms(50);
    unlock_now(ma);
    locker_join(&l, HF_OK);
    CHECK_EVENTUALLY(members_with(&q, "lock:a", hf_lock_owner(mb), ALL_MEMBERS) == 3, 1000);
    hf_client_free(b);
    hf_client_free(a);
    hf_lock_free(ma);
    hf_lock_free(mb);
}

struct finished { hf_err result; int calls; };

static void on_done(hf_err result, const hf_error *e, void *arg)
{
    struct finished *f = arg;
    (void)e;
    f->result = result;
    f->calls++;
}

static void dispatch_until(hf_client *c, struct finished *f, int calls)
{
    struct pollfd p = { .events = POLLIN };
    CHECK_HF(hf_client_fd(c, &p.fd, &err), HF_OK);
    int64_t until = t_now_ms() + 10000;
    while (f->calls < calls && t_now_ms() < until) {
        poll(&p, 1, 100);
        hf_client_dispatch(c);
    }
    CHECK_INT(f->calls, calls);
}

TEST(async_calls_and_max_hold)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .max_hold_ms = 2000 });
    struct finished f = { 0 };
    CHECK_HF(hf_lock_acquire_async(m, 1000, on_done, &f, &err), HF_OK);
    dispatch_until(c, &f, 1);
    CHECK_INT(f.result, HF_OK);
    CHECK(hf_lock_is_held(m));
    CHECK_HF(hf_lock_extend_async(m, 5000, on_done, &f, &err), HF_OK);
    dispatch_until(c, &f, 2);
    CHECK_INT(f.result, HF_OK);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
    CHECK_EVENTUALLY(hf_lock_loss(m) == HF_LOSS_MAX_HOLD, 1000); /* the watchdog says why */
    CHECK_HF(hf_lock_release_async(m, on_done, &f, &err), HF_OK);
    dispatch_until(c, &f, 3);
    CHECK_INT(f.result, HF_ELOST);
    CHECK_EVENTUALLY(all_clean(&q, ALL_MEMBERS), 1000);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(several_locks_all_or_none)
{
    struct members q = members_start(3, kept);
    hf_client *a = client_at(q.url, 0), *b = client_at(q.url, 0);
    hf_lock *m[3] = { lock_of(a, "x", 4000), lock_of(a, "y", 4000), lock_of(a, "z", 4000) };
    hf_lock *other = lock_of(b, "z", 4000);
    lock_now(other);
    CHECK_HF(hf_multi_acquire(m, 3, 0, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "\"z\"");
    CHECK(!hf_lock_is_held(m[0]) && !hf_lock_is_held(m[1]));
    CHECK_EVENTUALLY(server_int(q.s[1], "EXISTS lock:x lock:y") == 0, 1000);
    CHECK_HF(hf_multi_acquire(m, 3, 1000, &err), HF_ETIMEDOUT);
    unlock_now(other);
    CHECK_HF(hf_multi_acquire(m, 3, 0, &err), HF_OK);
    CHECK(hf_lock_is_held(m[0]) && hf_lock_is_held(m[1]) && hf_lock_is_held(m[2]));
    CHECK_HF(hf_multi_release(m, 3, &err), HF_OK);
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_lock_free(other);
    hf_client_free(a);
    hf_client_free(b);
}

static int collect_names(const hf_inspect_info *info, void *arg)
{
    char *names = arg;
    strcat(names, info->name);
    strcat(names, " ");
    return 0;
}

TEST(looking_shows_what_a_majority_says)
{
    struct members q = members_start(5, kept);
    hf_client_opts o = { .program = "nightly", .timeout_ms = 1500 };
    hf_client *a = client_with(q.url, o), *b = client_at(q.url, 1500);
    hf_lock *m = lock_of(a, "a", 6000);
    hf_inspect_info *info = NULL;
    char names[200] = "";
    uint64_t fence = lock_now(m);
    /* A candidate that has not a majority holds nothing. */
    for (int i = 0; i < 2; i++)
        server_ask(q.s[i], "SET lock:b 0123456789abcdef0123456789abcdef.1:%d:0 PX 60000", i + 1);
    char record[80];
    snprintf(record, sizeof record, "lock:holdfast:session:%.32s", hf_lock_owner(m));
    CHECK_EVENTUALLY(server_int(q.s[2], "EXISTS %s", record) == 1, 2000);
    server_kill(q.s[0]);
    server_kill(q.s[4]);
    CHECK_HF(hf_inspect_lock(b, hf_str("a"), 0, &info, &err), HF_OK);
    CHECK_INT(info->holders, 1);
    CHECK_INT(info->holder[0]->fence, fence);
    CHECK_STR(info->holder[0]->program, "nightly");
    CHECK_RANGE(info->ttl_ms, 2000, 6000);
    hf_inspect_free(info);
    CHECK_HF(hf_inspect_lock(b, hf_str("b"), 0, &info, &err), HF_OK);
    CHECK_INT(info->holders, 0);
    hf_inspect_free(info);
    CHECK_HF(hf_inspect_list(b, NULL, 0, collect_names, names, &err), HF_OK);
    CHECK_STR(names, "a ");
    server_kill(q.s[2]);
    CHECK_HF(hf_inspect_lock(b, hf_str("a"), 0, &info, &err), HF_ENOQUORUM);
    CHECK_HF(hf_inspect_list(b, NULL, 0, collect_names, names, &err), HF_ENOQUORUM);
    hf_lock_free(m);
    hf_client_free(a);
    hf_client_free(b);
}

/* The number of who holds lock:a, as far as can be seen; 0: nobody. */
static uint64_t seen_number(hf_client *c)
{
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &info, &err), HF_OK);
    uint64_t fence = info->holders ? info->holder[0]->fence : 0;
    hf_inspect_free(info);
    return fence;
}

TEST(Q6_where_no_two_servers_say_the_same_nobody_holds_it)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    for (int i = 0; i < 3; i++)
        server_ask(q.s[i], "SET lock:a 0123456789abcdef0123456789abcde%d.1:%d:0 PX 60000", i,
                   i + 1);
    CHECK_INT(seen_number(c), 0);
    /* Who is away may say what one of the others says. */
    server_kill(q.s[2]);
    CHECK_INT(seen_number(c), 1);
    server_ask(q.s[0], "DEL lock:a");
    CHECK_INT(seen_number(c), 2);
    server_ask(q.s[1], "DEL lock:a");
    CHECK_INT(seen_number(c), 0);
    hf_client_free(c);
}

/* ---- who is asked ---- */

TEST(one_server_under_two_names_votes_once)
{
    struct logbook log = LOGBOOK;
    struct server_opts o = { .aof = 1, .tcp = 1 };
    struct server *s = server_start_opts(&o), *other = server_start_opts(&o);
    char url[200];
    hf_client *c = NULL;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 1500, .log = logbook_add,
                          .log_arg = &log };
    snprintf(url, sizeof url, "redis+quorum://127.0.0.1:%d,localhost:%d,127.0.0.1:%d",
             server_port(s), server_port(s), server_port(other));
    server_kill(other);
    CHECK_HF(hf_client_open(url, &co, &c, &err), HF_ENOQUORUM);
    CHECK_CONTAINS(err.message, "1 of 3 servers answer");
    CHECK_CONTAINS(err.message, "it is the same server as");
    CHECK_LOGGED(&log, "does not vote: it is the same server as");
}

TEST(a_wrong_password_is_no_missing_quorum)
{
    struct members q = members_start(3, (struct server_opts){ .aof = 1, .requirepass = "right" });
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 1500, .password = "wrong" };
    CHECK_HF(hf_client_open(q.url, &o, &c, &err), HF_EAUTH);
    o.password = "right";
    CHECK_HF(hf_client_open(q.url, &o, &c, &err), HF_OK);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(wrong_data_on_a_majority)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1500);
    hf_lock *m = lock_of(c, "a", 4000);
    server_ask(q.s[0], "RPUSH lock:a x");
    lock_now(m); /* one of three is a refusal like another */
    unlock_now(m);
    server_ask(q.s[1], "RPUSH lock:a x");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ETYPE);
    CHECK_EVENTUALLY(server_int(q.s[2], "EXISTS lock:a") == 0, 1000);
    CHECK_STR(server_ask(q.s[0], "LRANGE lock:a 0 -1"), "x");
    hf_lock_free(m);
    hf_client_free(c);
}

/* How many; one that is about to connect again has none. */
static long long kill_connections(struct members *q)
{
    long long killed = 0;
    for (int i = 0; i < q->n; i++)
        killed += server_int(q->s[i], "CLIENT KILL TYPE normal SKIPME yes");
    return killed;
}

TEST(idle_connections_that_were_closed)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 60000);
    for (int round = 0; round < 5; round++) {
        CHECK(kill_connections(&q) >= 2);
        lock_now(m);
        CHECK(kill_connections(&q) >= 2);
        unlock_now(m);
        CHECK_EVENTUALLY(all_clean(&q, ALL_MEMBERS), 2000);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static void in_child(int index, void *arg)
{
    (void)index;
    hf_lock *m = arg;
    CHECK_HF(hf_lock_verify(m, &err), HF_EFORK);
    hf_lock_free(m);
}

TEST(a_forked_child_touches_nothing)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    workers_run(1, in_child, m, 5000);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Who looks writes nothing; the first lock lets the reign begin on each server. */
TEST(S5_who_only_looks_at_a_quorum_writes_nothing)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_inspect_info *i = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &i, &err), HF_OK);
    hf_inspect_free(i);
    for (int k = 0; k < 3; k++)
        CHECK_STR(server_keys(q.s[k]), "");
    hf_lock *m = lock_of(c, "a", 5000);
    lock_now(m);
    for (int k = 0; k < 3; k++) {
        CHECK_EVENTUALLY(server_int(q.s[k], "EXISTS " REIGN_KEY) == 1, 5000);
        CHECK_CONTAINS(server_ask(q.s[k], "GET " REIGN_KEY), server_info(q.s[k], "run_id"));
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
