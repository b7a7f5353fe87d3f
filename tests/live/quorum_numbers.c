/* SPDX-License-Identifier: MIT
 * quorum_numbers.c - P4 on a majority of servers, when a lock is lost between the two phases of
 * taking it.
 */
#define LIVE_SCRIPTS
#include "harness/quorum.h"
#include "harness/waiting.h"

static unsigned long long counter_of(struct server *s)
{
    return strtoull(server_ask(s, "GET " FENCE_KEY), NULL, 10);
}

/* Whether a lock that is taken now is taken on all servers. */
static int reaches_all(struct members *q, hf_lock *m)
{
    lock_now(m);
    int n = members_having(q, "lock:reach", ALL_MEMBERS);
    unlock_now(m);
    return n == q->n;
}

/* The first client has the yes of two servers, and is about to agree with them on its number, when
 * one of them loses its lock. A second one takes it, there and on the third server, and gives it
 * back. Only then the first one's request arrives at the third server, which says yes, under a
 * number that is larger than both: it cannot help the old number to a majority. */
TEST(P4_a_server_that_gave_a_larger_number_does_not_count)
{
    struct wires w = wires_start(3);
    struct members direct = w.q;
    members_url(&direct, "");
    hf_client *a = client_at(w.q.url, 30000), *b = client_at(direct.url, 30000);
    hf_lock *ma = lock_of(a, "a", 120000), *mb = lock_of(b, "a", 120000);
    hf_lock *reach = lock_of(a, "reach", 120000);
    CHECK_EVENTUALLY(reaches_all(&w.q, reach), 20000);
    for (int i = 0; i < 3; i++) /* they have to agree */
        server_ask(w.q.s[i], "INCRBY " FENCE_KEY " %d", 100 * i);

    proxy_hold(w.p[2]);
    proxy_when(w.p[1], lua_sha[LUA_quorum_agree]);
    proxy_hold(w.p[1]);
    struct locker l = { .m = ma, .wait_ms = 0 };
    locker_start(&l);
    CHECK_EVENTUALLY(proxy_held(w.p[1]) > 0 && proxy_held(w.p[2]) > 0, 20000);
    CHECK_INT(server_int(w.q.s[1], "DEL lock:a"), 1);
    uint64_t later = lock_now(mb);
    unlock_now(mb);
    proxy_pass(w.p[2]);
    CHECK_EVENTUALLY(counter_of(w.q.s[2]) > later, 20000); /* it said yes */
    CHECK_EVENTUALLY(proxy_held(w.p[2]) == 0, 20000);
    t_sleep_ms(50); /* to be believed, if it were */
    proxy_pass(w.p[1]);
    CHECK_INT(pthread_join(l.thread, NULL), 0);
    t_note("%s: %s", hf_err_name(l.result), l.result ? l.error.message : "");
    CHECK(l.result != HF_OK || l.fence > later);
    hf_lock_free(ma);
    hf_lock_free(mb);
    hf_lock_free(reach);
    hf_client_free(a);
    hf_client_free(b);
}

/* Two of three have said yes, and then nobody hears what they say to the number: it is not held,
 * and they give it up as soon as they can be reached. */
TEST_TIMEOUT(P8_a_number_that_no_majority_confirms_is_taken_back, 120)
{
    struct wires w = wires_start(3);
    hf_client *c = client_at(w.q.url, 30000);
    hf_lock *reach = lock_of(c, "reach", 120000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 120000, .timeout_ms = 1500,
                                                   .grace_ms = HF_NO_TAKEOVER });
    CHECK_EVENTUALLY(reaches_all(&w.q, reach), 20000);
    for (int i = 0; i < 3; i++) /* they have to agree */
        server_ask(w.q.s[i], "INCRBY " FENCE_KEY " %d", 100 * i);
    for (int i = 0; i < 2; i++) {
        proxy_when(w.p[i], lua_sha[LUA_quorum_agree]);
        proxy_drop_replies(w.p[i]);
    }
    int tries = 0; /* a slow machine may not get that far in time */
    do {
        hf_err e = hf_lock_try(m, NULL, &err);
        t_note("%s: %s", hf_err_name(e), err.message);
        CHECK(e != HF_OK && !hf_lock_is_held(m));
        CHECK(++tries < 20);
    } while (!proxy_dropped(w.p[0]) || !proxy_dropped(w.p[1]));
    for (int i = 0; i < 2; i++) {
        proxy_break(w.p[i]);
        proxy_pass(w.p[i]);
    }
    CHECK_EVENTUALLY(members_having(&w.q, "lock:a", ALL_MEMBERS) == 0, 20000);
    hf_lock *again = lock_of(c, "a", 120000);
    lock_now(again);
    unlock_now(again);
    hf_lock_free(again);
    hf_lock_free(m);
    hf_lock_free(reach);
    hf_client_free(c);
}

TEST(P4_P10_counters_of_a_majority_that_are_none_give_no_number)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 5000);
    hf_lock *m = lock_of(c, "a", 20000);
    uint64_t before = lock_now(m);
    unlock_now(m);
    for (int i = 0; i < 2; i++)
        CHECK_STR(server_ask(q.s[i], "SET " FENCE_KEY " words"), "OK");
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_ECOUNTER);
    CHECK_CONTAINS(err.message, "fence");
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_EVENTUALLY(members_having(&q, "lock:a", ALL_MEMBERS) == 0, 20000);
    for (int i = 0; i < 2; i++) {
        CHECK_STR(server_ask(q.s[i], "GET " FENCE_KEY), "words");
        server_ask(q.s[i], "DEL " FENCE_KEY);
    }
    CHECK(lock_now(m) > before);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
