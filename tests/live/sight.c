/* SPDX-License-Identifier: MIT
 * sight.c - what hf_inspect_lock() tells of holders and waiters: leases, renewals, sessions, what
 * they wait for; elections and semaphores; on a replica, too.
 */
#include <signal.h>

#include "harness/acl.h"
#include "harness/holder.h"
#include "harness/sharing.h"

static hf_inspect_info *look(hf_client *c, const char *name)
{
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str(name), 0, &info, &err), HF_OK);
    CHECK(info);
    return info;
}

/* A look in which the holder has said who it is, and how long its lease is (-1: whatever). */
static int is_known(hf_client *c, const char *name, int64_t lease_ms, hf_inspect_info **ret)
{
    hf_inspect_info *i = look(c, name);
    int64_t told = i->holders > 0 ? i->holder[0]->lease_ms : -1;
    int known = told >= 0 && (lease_ms < 0 || told == lease_ms);
    *ret = known ? i : hf_inspect_free(i);
    return known;
}

static hf_inspect_info *look_known(hf_client *c, const char *name)
{
    hf_inspect_info *i = NULL;
    CHECK_EVENTUALLY(is_known(c, name, -1, &i), 10000);
    return i;
}

/* It is there, and has not renewed it for longer than it should. */
static int is_silent(hf_client *c)
{
    hf_inspect_info *i = look(c, "a");
    int silent = i->holders == 1 && i->holder[0]->present == 1
                 && i->holder[0]->renewed_ms > i->holder[0]->lease_ms / 2;
    hf_inspect_free(i);
    return silent;
}

TEST(a_holder_tells_its_lease_its_last_renewal_and_that_it_is_there)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 6000,
                                                                         .grace_ms = 2000 });
    hf_client *eye = client_at(server_url(s), 0);
    hf_inspect_info *i = look_known(eye, "a");
    const hf_party *p = i->holder[0];
    CHECK_STR(p->mode, "exclusive");
    CHECK_INT((long long)strlen(p->session), 16);
    CHECK(strncmp(p->session, p->owner, 8) == 0);
    CHECK_INT(p->lease_ms, 6000);
    CHECK_RANGE(p->renewed_ms, 0, 6000);
    CHECK_RANGE(p->ttl_ms, 0, 6000);
    CHECK_INT(p->grace_ms, 2000);
    CHECK_INT(p->present, 1);
    CHECK_INT(p->renews, 1);
    CHECK_INT(p->claiming, 0);
    CHECK(!p->waits_for && p->waits_ms == -1);
    CHECK(i->now_unix_ms > 1600000000000LL);
    CHECK_INT(p->since_unix_ms, i->now_unix_ms - p->age_ms);
    CHECK_INT(i->absent_ms, -1);
    CHECK(!i->election && !i->value);
    hf_inspect_free(i);
    /* It stands still: its session stands, and nobody renews. */
    workers_signal(w, 0, SIGSTOP);
    CHECK_EVENTUALLY(is_silent(eye), 6000);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 5000);
    hf_client_free(eye);
}

static int is_absent(hf_client *c)
{
    hf_inspect_info *i = look(c, "a");
    int absent = i->holders && i->holder[0]->present == 0;
    hf_inspect_free(i);
    return absent;
}

static int is_marked(hf_client *c)
{
    hf_inspect_info *i = look(c, "a");
    int marked = i->absent_ms >= 0 && i->waiters == 1;
    hf_inspect_free(i);
    return marked;
}

TEST(a_holder_that_is_gone_is_seen_to_be)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 20000,
                                                                         .grace_ms = 4000 });
    hf_client *eye = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_inspect_free(look_known(eye, "a"));
    workers_signal(w, 0, SIGKILL);
    CHECK_EVENTUALLY(is_absent(eye), 5000);
    hf_inspect_info *i = look(eye, "a");
    CHECK_INT(i->absent_ms, -1); /* nobody has looked for it yet */
    hf_inspect_free(i);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 }),
                        .wait_ms = 30000 };
    locker_start(&l);
    CHECK_EVENTUALLY(is_marked(eye), 5000);
    i = look(eye, "a");
    CHECK_STR(i->waiter[0]->mode, "exclusive");
    CHECK_INT(i->waiter[0]->present, 1);
    CHECK_INT(i->waiter[0]->lease_ms, -1);
    hf_inspect_free(i);
    locker_join(&l, HF_OK);
    i = look(eye, "a");
    CHECK_INT(i->absent_ms, -1);
    CHECK_INT(i->holder[0]->claiming, 0);
    hf_inspect_free(i);
    hf_lock_free(l.m);
    hf_client_free(c);
    hf_client_free(eye);
    workers_join(w, 5000);
}

TEST(what_is_left_behind_is_renewed_by_nobody)
{
    struct server *s = server_start(NULL);
    hf_client *eye = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "left", (hf_lock_opts){ .ttl_ms = 20000 });
    lock_now(m);
    CHECK_HF(hf_lock_detach(m, 15000, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(c, hf_str("bare"), 20000, hf_str("me"), NULL, &err), HF_OK);
    hf_inspect_info *i = NULL;
    CHECK_EVENTUALLY(is_known(eye, "left", 15000, &i), 10000);
    CHECK_INT(i->holder[0]->renews, 0);
    CHECK_INT(i->holder[0]->grace_ms, 0);
    CHECK_INT(i->holder[0]->claiming, 0);
    hf_inspect_free(i);
    /* Who names another one says nothing more about what it left behind. */
    hf_lock *hand = lock_with(c, "hand", (hf_lock_opts){ .ttl_ms = 20000, .no_renew = 1 });
    lock_now(hand);
    i = look_known(eye, "hand");
    CHECK_INT(i->holder[0]->renews, 0);
    hf_inspect_free(i);
    i = look(eye, "bare");
    CHECK_INT(i->holder[0]->renews, -1); /* nobody has said anything of it */
    CHECK_STR(i->holder[0]->mode, "exclusive");
    hf_inspect_free(i);
    hf_lock_free(m);
    hf_lock_free(hand);
    hf_client_free(c);
    hf_client_free(eye);
}

/* Whoever changes the length of its lease is not taken for silent. */
TEST(a_lease_that_is_made_shorter_is_told)
{
    struct server *s = server_start(NULL);
    hf_client *eye = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    hf_inspect_free(look_known(eye, "a"));
    CHECK_HF(hf_lock_extend(m, 1500, &err), HF_OK);
    for (int told = 0; !told;) {
        hf_inspect_info *i = look(eye, "a");
        CHECK_INT((long long)i->holders, 1);
        told = i->holder[0]->lease_ms == 1500;
        hf_inspect_free(i);
        t_sleep_ms(20);
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(eye);
}

TEST(readers_permits_and_what_their_waiters_want)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock_opts five = hf_semaphore(5);
    five.ttl_ms = 20000;
    five.permits = 3;
    hf_lock *m = lock_with(c, "a", five);
    lock_now(m);
    struct locker l = { .m = lock_with(d, "a", five), .wait_ms = 30000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    hf_inspect_info *i = look_known(c, "a");
    CHECK_STR(i->kind, "semaphore");
    CHECK_STR(i->holder[0]->mode, "permits");
    CHECK_INT(i->holder[0]->permits, 3);
    CHECK_INT(i->holder[0]->lease_ms, 20000);
    CHECK_RANGE(i->holder[0]->ttl_ms, 1, 20000);
    CHECK_INT(i->holder[0]->present, 1);
    CHECK_STR(i->waiter[0]->mode, "permits");
    CHECK_INT(i->waiter[0]->permits, 3);
    CHECK_INT(i->resized, 0);
    hf_inspect_free(i);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 6, NULL, &err), HF_OK);
    locker_join(&l, HF_OK);
    unlock_now(m);
    unlock_now(l.m);
    i = look(c, "a");
    CHECK_INT((long long)i->holders, 0);
    CHECK_INT(i->resized, 6); /* also while nobody uses it */
    CHECK_INT(i->named, 5);
    hf_inspect_free(i);
    hf_lock_free(m);
    hf_lock_free(l.m);

    hf_lock *r = lock_with(c, "r", (hf_lock_opts){ .ttl_ms = 20000, .shared = 1 });
    lock_now(r);
    hf_lock *w = lock_with(d, "r", (hf_lock_opts){ .ttl_ms = 20000 });
    struct locker lw = { .m = w, .wait_ms = 30000 };
    locker_start(&lw);
    CHECK_QUEUE(s, "r", 1);
    i = look_known(c, "r");
    CHECK_STR(i->holder[0]->mode, "shared");
    CHECK_STR(i->waiter[0]->mode, "exclusive");
    hf_inspect_free(i);
    unlock_now(r);
    locker_join(&lw, HF_OK);
    struct locker lr = { .m = r, .wait_ms = 30000 };
    locker_start(&lr);
    CHECK_QUEUE(s, "r", 1);
    i = look(c, "r");
    CHECK_STR(i->waiter[0]->mode, "shared");
    hf_inspect_free(i);
    unlock_now(w);
    locker_join(&lr, HF_OK);
    hf_lock_free(r);
    hf_lock_free(w);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(an_election_is_told_with_its_value)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_election *el;
    hf_leader *l;
    CHECK_HF(hf_election_open(c, hf_str("e"), NULL, &el, &err), HF_OK);
    CHECK_HF(hf_election_campaign(el, (hf_bytes){ "v\0:1:x", 6 }, 10000, NULL, &err), HF_OK);
    CHECK_HF(hf_election_observe(c, hf_str("e"), NULL, 0, &l, &err), HF_OK);
    hf_inspect_info *i = look(c, "e");
    CHECK_STR(i->kind, "election");
    CHECK_INT(i->election, 1);
    CHECK_INT((long long)i->value_len, 6);
    CHECK(memcmp(i->value, "v\0:1:x", 7) == 0);
    CHECK(i->holder[0]->fence == l->term);
    hf_inspect_free(i);
    /* The value of another term is nobody's. */
    server_ask(s, "SET {lock:e}:v 5:1:old");
    i = look(c, "e");
    CHECK_STR(i->kind, "mutex");
    CHECK(!i->value);
    hf_inspect_free(i);
    hf_leader_free(l);
    hf_election_free(el);
    hf_client_free(c);
}

/* {KEY}:wf, as a holder that waits for another lock writes it. */
TEST(what_a_holder_waits_for_is_told)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    const char *token = keep_text("%s", hf_lock_owner(m));
    static const char *const odd[] = {
        "", "x", "9999999999999", "9999999999999 1", "1 1 a.1 lock:b", "9999999999999 1 a.1 ",
        "-1 -1 a.1 lock:b", "99999999999999999999999999 1 a.1", "9999999999999 1 lock:b",
    };
    for (size_t k = 0; k < sizeof odd / sizeof *odd; k++) {
        server_ask(s, "HSET {lock:a}:wf %s %s", token, odd[k]);
        hf_inspect_info *i = look(c, "a");
        CHECK(!i->holder[0]->waits_for);
        hf_inspect_free(i);
    }
    long long now = atoll(server_ask(s, "TIME"));
    server_ask(s, "HSET {lock:a}:wf %s %s", token,
               keep_text("%lld %lld %s lock:b c:d", (now + 60) * 1000, (now - 7) * 1000, token));
    hf_inspect_info *i = look(c, "a");
    CHECK_STR(i->holder[0]->waits_for, "b c:d");
    CHECK_RANGE(i->holder[0]->waits_ms, 6000, 60000);
    hf_inspect_free(i);
    server_ask(s, "HSET {lock:a}:wf %s %s", token,
               keep_text("%lld 1 %s lock:%02000d", (now + 60) * 1000, token, 0)); /* no name */
    i = look(c, "a");
    CHECK(!i->holder[0]->waits_for);
    hf_inspect_free(i);
    server_ask(s, "DEL {lock:a}:wf");
    server_ask(s, "SET {lock:a}:wf x");
    server_ask(s, "SET {lock:a}:absent x");
    server_ask(s, "RPUSH {lock:a}:v x");
    server_ask(s, "RPUSH {lock:a}:s x");
    i = look(c, "a");
    CHECK(!i->holder[0]->waits_for && i->absent_ms == -1 && !i->resized && !i->election);
    hf_inspect_free(i);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

static int is_there(hf_client *c)
{
    hf_inspect_info *i = NULL;
    if (hf_inspect_lock(c, hf_str("a"), 0, &i, NULL) != HF_OK)
        return 0;
    int there = i->holders == 1 && i->holder[0]->pid != 0;
    hf_inspect_free(i);
    return there;
}

static int count_one(const hf_inspect_info *info, void *arg)
{
    (void)info;
    ++*(int *)arg;
    return 0;
}

TEST(one_can_look_at_a_replica)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    const char *args[] = { "--replicaof", "127.0.0.1", keep_text("%d", server_port(s)), NULL };
    server_ask(s, "CONFIG SET repl-diskless-sync-delay 0");
    struct server *r = server_start(args);
    hf_client *c = client_at(server_url(s), 0), *eye = client_at(server_url(r), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000, .grace_ms = 5000 });
    lock_now(m);
    CHECK_EVENTUALLY(is_there(eye), 20000);
    hf_inspect_info *i = look(eye, "a");
    CHECK_INT(i->holder[0]->present, -1); /* its subscribers are the master's to tell */
    CHECK_INT(i->holder[0]->lease_ms, 20000);
    CHECK_RANGE(i->ttl_ms, 1, 20000);
    hf_inspect_free(i);
    i = look_known(c, "a");
    CHECK_INT(i->holder[0]->present, 1);
    hf_inspect_free(i);
    int n = 0;
    CHECK_HF(hf_inspect_list(eye, NULL, 0, count_one, &n, &err), HF_OK);
    CHECK_INT(n, 1);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(eye);
}

/* The read-only user of docs/acl.md; without PUBSUB nothing is said of sessions. */
TEST(who_may_not_ask_for_sessions_is_told_the_rest)
{
    struct server *s = server_start_opts(&(struct server_opts){ .tcp = 1 });
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000, .grace_ms = 5000 });
    lock_now(m);
    acl_user(s, "acl-look");
    for (int may = 1; may >= 0; may--) {
        if (!may)
            CHECK_STR(server_ask(s, "ACL SETUSER holdfast-look -pubsub -pubsub|numsub"), "OK");
        hf_client *eye = client_with(keep_text("redis://holdfast-look:pw@127.0.0.1:%d",
                                               server_port(s)), (hf_client_opts){ 0 });
        hf_inspect_info *i = look_known(eye, "a");
        CHECK_INT(i->holder[0]->present, may ? 1 : -1);
        CHECK_INT(i->holder[0]->renews, 1);
        hf_inspect_free(i);
        hf_client_free(eye);
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
