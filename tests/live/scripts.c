/* SPDX-License-Identifier: MIT
 * scripts.c - each Lua script called bare, over the test's own connection: what it answers and
 * what it leaves on the server. Nothing of the library runs here.
 */
#define LIVE_SCRIPTS
#include "harness/keep.h"
#include "harness/live.h"

#include <hiredis/hiredis.h>

#define T1 "00000000000000000000000000000001.1"
#define T2 "00000000000000000000000000000002.1"

static const char *acquire(struct server *s, const char *token, int ttl)
{
    return server_ask(s, "EVAL %s 5 K F {K}:q {K}:t {K}:own %s %d 0", lua_text[LUA_acquire],
                      token, ttl);
}

static const char *acquire_as(struct server *s, const char *token, int ttl, const char *owner)
{
    return server_ask(s, "EVAL %s 5 K F {K}:q {K}:t {K}:own %s %d 0 0 %s 0 0 %s",
                      lua_text[LUA_acquire], token, ttl, "", owner);
}

static const char *acquire_mending(struct server *s, const char *token, int ttl)
{
    return server_ask(s, "EVAL %s 5 K F {K}:q {K}:t {K}:own %s %d 0 0 %s 1",
                      lua_text[LUA_acquire], token, ttl, "");
}

static const char *cancel(struct server *s, const char *token, const char *owner)
{
    return server_ask(s, "EVAL %s 5 K F {K}:q {K}:t {K}:own %s 60000 %s %s",
                      lua_text[LUA_cancel], token, "", owner);
}

static const char *keep(struct server *s, const char *mode, const char *token, const char *value,
                        const char *own, const char *ttl)
{
    /* Without the server's time in front. */
    const char *all = server_ask(s, "EVAL %s 4 K {K}:own {K}:t {K}:absent %s %s %s %s %s",
                                 lua_text[LUA_keep], mode, token, value, own, ttl);
    const char *verdict = strchr(all, '\n');
    CHECK(verdict);
    CHECK(strtoll(all, NULL, 10) > 1600000000000LL);
    return verdict + 1;
}

static const char *by_owner(struct server *s, const char *what, const char *id, const char *ttl)
{
    return server_ask(s, "EVAL %s 5 K F {K}:q {K}:t {K}:own %s %s %s 60000",
                      lua_text[LUA_by_owner], what, id, ttl);
}

TEST(every_script_has_the_sha1_that_the_server_computes)
{
    struct server *s = server_start(NULL);
    for (int i = 0; i < LUA_COUNT; i++) {
        CHECK_STR(server_ask(s, "SCRIPT LOAD %s", lua_text[i]), lua_sha[i]);
    }
}

TEST(acquire_grants_once_however_often_it_comes)
{
    struct server *s = server_start(NULL);
    long long f = atoll(acquire(s, T1, 5000));
    char value[100];
    CHECK(f > 1600000000000000LL);
    snprintf(value, sizeof value, T1 ":%lld:0", f);
    CHECK_STR(server_ask(s, "GET K"), value);
    CHECK_INT(atoll(acquire(s, T1, 60000)), f);          /* the same grant; */
    CHECK_RANGE(server_int(s, "PTTL K"), 50000, 60000);  /* its ttl refreshed, */
    CHECK_INT(atoll(acquire(s, T1, 1000)), f);
    CHECK_RANGE(server_int(s, "PTTL K"), 50000, 60000);  /* never shortened (B2) */
    const char *busy = acquire(s, T2, 5000);
    CHECK(strncmp(busy, "-1\n", 3) == 0);
    CHECK_CONTAINS(busy, value);
    /* A token that begins with another is not it. */
    CHECK(strncmp(acquire(s, "00000000000000000000000000000001.11", 500), "-1\n", 3) == 0);
    CHECK(strncmp(acquire(s, "00000000000000000000000000000001", 500), "-1\n", 3) == 0);
    CHECK_INT(atoll(server_ask(s, "GET F")), f); /* refusals use no numbers up */
    server_ask(s, "DEL K");
    CHECK_INT(atoll(acquire(s, T2, 5000)), f + 1);
}

TEST(acquire_and_release_know_the_names_that_are_not_sent)
{
    struct server *s = server_start(NULL);
    long long f = atoll(server_ask(s, "EVAL %s 1 lock:k %s 5000 0", lua_text[LUA_acquire], T1));
    CHECK(f > 0);
    CHECK_INT(atoll(server_ask(s, "GET lock:holdfast:fence")), f);
    /* Who waits gets a ticket of the same counter, in the queue beside the lock. */
    const char *held = server_ask(s, "EVAL %s 1 lock:k %s 5000 0 1000 0123456789abcdef",
                                  lua_text[LUA_acquire], T2);
    CHECK_CONTAINS(held, "-1\n");
    CHECK_INT(atoll(strrchr(held, '\n') + 1), f + 1);
    CHECK_STR(server_ask(s, "ZRANGE {lock:k}:q 0 -1"), T2 ":0:1000:0123456789abcdef:");
    CHECK(server_int(s, "PTTL {lock:k}:q") > 0);
    /* Who was given up is refused, whoever waits. */
    server_ask(s, "ZADD {lock:k}:t 99999999999999 00000000000000000000000000000003.1");
    CHECK_STR(server_ask(s, "EVAL %s 1 lock:k 00000000000000000000000000000003.1 5000 0 1000 01",
                         lua_text[LUA_acquire]), "-2");
    CHECK_STR(server_ask(s, "EVAL %s 1 lock:k %s:%lld:0", lua_text[LUA_release], T1, f), "1");
    CHECK_STR(server_ask(s, "EXISTS lock:k {lock:k}:q"), "0"); /* nobody listens for T2 */
    CHECK_INT(server_int(s, "EXISTS K F"), 0);
}

TEST(acquire_refuses_a_token_that_was_given_up_for_as_long_as_it_is_remembered)
{
    struct server *s = server_start(NULL);
    CHECK_STR(cancel(s, T1, ""), "0");
    CHECK_STR(acquire(s, T1, 5000), "-2");
    CHECK_STR(server_ask(s, "GET K"), NULL);
    CHECK_INT(server_int(s, "EXISTS F"), 0);
    CHECK_RANGE(server_int(s, "PTTL {K}:t"), 50000, 60001);
    CHECK(atoll(acquire(s, T2, 5000)) > 0); /* others are not concerned */
    CHECK_STR(acquire(s, T1, 5000), "-2");
    CHECK_STR(cancel(s, T1, ""), "0"); /* not T2's */
    CHECK(atoll(acquire(s, T2, 5000)) > 0);
    CHECK_STR(cancel(s, T2, ""), "1");
    CHECK_STR(server_ask(s, "GET K"), NULL);
    CHECK_STR(acquire(s, T2, 5000), "-2");
    /* Old ones are forgotten, the set lives as long as its youngest. */
    server_ask(s, "ZADD {K}:t 1 old");
    CHECK_STR(cancel(s, "another.1", ""), "0");
    CHECK_STR(server_ask(s, "ZSCORE {K}:t old"), NULL);
    CHECK_INT(server_int(s, "ZCARD {K}:t"), 3);
}

TEST(P10_acquire_types_are_checked_before_anything_is_written)
{
    static const char *const wrong[] = { "LPUSH K x", "HSET K a b", "SADD K x", "ZADD K 1 x",
                                         "XADD K * a b" };
    struct server *s = server_start(NULL);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        server_ask(s, "DEL K");
        server_ask(s, wrong[i]);
        CHECK_STR(acquire(s, T1, 5000), "-3");
        CHECK_INT(server_int(s, "PTTL K"), -1); /* not even given a ttl */
        CHECK_INT(server_int(s, "EXISTS F"), 0);
        CHECK_STR(cancel(s, T1, ""), "0");
        CHECK_INT(server_int(s, "EXISTS K"), 1);
        server_ask(s, "DEL {K}:t");
        CHECK_STR(keep(s, "renew", T1, "v", "", "1000"), "0");
        CHECK_STR(by_owner(s, "release", "v", "1000"), "0");
        CHECK_INT(server_int(s, "EXISTS K"), 1);
    }
    server_ask(s, "DEL K");
    static const char *const counters[] = { "LPUSH F x", "SET F x", "SET F 9223372036854775807",
                                            "SET F 9007199254740992" };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        server_ask(s, "DEL F");
        server_ask(s, counters[i]);
        const char *before = server_ask(s, "DUMP F");
        CHECK_STR(acquire(s, T1, 5000), "-4");
        CHECK_STR(acquire_as(s, T1, 5000, "me"), "-4");
        CHECK_STR(server_ask(s, "DUMP F"), before);
        CHECK_INT(server_int(s, "EXISTS K {K}:own"), 0);
    }
    server_ask(s, "DEL F");
    server_ask(s, "SET {K}:t x"); /* the tombstones' key is hostile: refused, nothing granted */
    CHECK_STR(acquire(s, T1, 5000), "-3");
    CHECK_STR(server_ask(s, "GET K"), NULL);
}

TEST(acquire_gives_a_lock_without_ttl_one_and_steals_nothing)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET K legacy");
    CHECK_STR(acquire(s, T1, 60000), "-1\n-1\nlegacy\n0"); /* who only tries changes nothing */
    CHECK_INT(server_int(s, "PTTL K"), -1);
    CHECK_STR(acquire_mending(s, T1, 60000), "-1\n60000\nlegacy\n0");
    CHECK_RANGE(server_int(s, "PTTL K"), 50000, 60000);
    server_ask(s, "SET K legacy");
    CHECK_STR(acquire_mending(s, T1, 100), "-1\n10000\nlegacy\n0"); /* but not a short one */
    CHECK_STR(server_ask(s, "GET K"), "legacy");
    server_ask(s, "SET K legacy PX 777777");
    acquire(s, T1, 100);
    CHECK_RANGE(server_int(s, "PTTL K"), 700000, 777777); /* one that has a ttl keeps it */
    server_ask(s, "SET K %s", "");
    CHECK(strncmp(acquire(s, T1, 100), "-1\n", 3) == 0); /* an empty value is held too */
}

TEST(B3_acquire_with_an_owner_id_tells_repetitions_from_another_hold)
{
    struct server *s = server_start(NULL);
    long long f = atoll(acquire_as(s, T1, 5000, "me"));
    char own[100];
    snprintf(own, sizeof own, T1 ":%lld", f);
    CHECK_STR(server_ask(s, "GET K"), "me");
    CHECK_STR(server_ask(s, "GET {K}:own"), own);
    CHECK_INT(atoll(acquire_as(s, T1, 90000, "me")), f);
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 80000, 90000);
    CHECK(strncmp(acquire_as(s, T2, 5000, "me"), "-1\n", 3) == 0);
    CHECK(strncmp(acquire_as(s, T1, 5000, "you"), "-1\n", 3) == 0);
    CHECK(strncmp(acquire(s, T1, 5000), "-1\n", 3) == 0);
    CHECK_STR(cancel(s, T2, "me"), "0");
    CHECK_STR(server_ask(s, "GET K"), "me");
    CHECK_STR(cancel(s, T1, "me"), "1");
    CHECK_INT(server_int(s, "EXISTS K {K}:own"), 0);
    /* own left behind by a lock that was deleted by hand is no obstacle, of whatever type. */
    server_ask(s, "LPUSH {K}:own x");
    CHECK(atoll(acquire_as(s, "t.3", 5000, "me")) > f);
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 1, 5000);
    /* cancel: own is ours, but the lock is somebody else's by now. */
    server_ask(s, "SET K thief");
    CHECK_STR(cancel(s, "t.3", "me"), "1");
    CHECK_STR(server_ask(s, "GET K"), "thief");
}

TEST(P2_release_acts_only_on_exactly_our_value)
{
    struct server *s = server_start(NULL);
    static const char *const others[] = { "", "val", "value2", "VALUE", "xvalue" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        server_ask(s, "SET K %s", others[i]);
        CHECK_INT(server_int(s, "EVAL %s 4 K F Q O value", lua_text[LUA_release]), 0);
        CHECK_STR(server_ask(s, "GET K"), others[i]);
    }
    server_ask(s, "SET K value");
    CHECK_INT(server_int(s, "EVAL %s 4 K F Q O value", lua_text[LUA_release]), 1);
    CHECK_INT(server_int(s, "EVAL %s 4 K F Q O value", lua_text[LUA_release]), 0);
    server_ask(s, "LPUSH K value");
    CHECK_INT(server_int(s, "EVAL %s 4 K F Q O value", lua_text[LUA_release]), 0);
    CHECK_INT(server_int(s, "LLEN K"), 1);
    server_ask(s, "DEL K");
    server_ask(s, "MSET K me O t:5");
    CHECK_INT(server_int(s, "EVAL %s 4 K F Q O me t:6", lua_text[LUA_release]), 0);
    CHECK_INT(server_int(s, "EXISTS K O"), 2);
    CHECK_INT(server_int(s, "EVAL %s 4 K F Q O me t:5", lua_text[LUA_release]), 1);
    CHECK_INT(server_int(s, "EXISTS K O"), 0);
}

/* ---- the short forms ------------------------------------------------------------------------ */

/* With the lock and the counter alone; what is to be waited for joins the queue. */
static const char *acquire_short(struct server *s, const char *token, int claim)
{
    if (!claim)
        return server_ask(s, "EVAL %s 2 K F:fence %s 5000 0", lua_text[LUA_acquire], token);
    return server_ask(s, "EVAL %s 2 K F:fence %s 5000 0 %d 00000000000000ff",
                      lua_text[LUA_acquire], token, claim);
}

TEST(the_names_of_companions_are_built_where_they_are_not_given)
{
    struct server *s = server_start(NULL);
    CHECK(atoll(acquire_short(s, T1, 0)) > 0);
    CHECK_CONTAINS(acquire_short(s, T2, 700), "-1\n");
    CHECK_STR(server_ask(s, "ZRANGE {K}:q 0 -1"), T2 ":0:700:00000000000000ff:");
    CHECK_RANGE(server_int(s, "PTTL {K}:q"), 50000, 60000);
    /* Once more: the same place, the same ticket. */
    long long ticket = atoll(server_ask(s, "ZSCORE {K}:q " T2 ":0:700:00000000000000ff:"));
    char again[24];
    snprintf(again, sizeof again, "%lld", ticket);
    CHECK_CONTAINS(acquire_short(s, T2, 700), again);
    CHECK_INT(server_int(s, "ZCARD {K}:q"), 1);
    /* Nobody listens for the waiter: it is dropped, and the lock is free. */
    const char *value = server_ask(s, "GET K");
    CHECK_INT(server_int(s, "EVAL %s 2 K F:fence %s", lua_text[LUA_release], value), 1);
    CHECK_INT(server_int(s, "EXISTS K {K}:q"), 0);
    /* A token that was given up is known by its tombstone. */
    server_ask(s, "ZADD {K}:t 99999999999999 " T1);
    CHECK_STR(acquire_short(s, T1, 0), "-2");
    CHECK_STR(acquire_short(s, T1, 700), "-2");
    CHECK(atoll(acquire_short(s, T2, 0)) > 0);
    CHECK_STR(acquire_short(s, T1, 700), "-2"); /* also while another has it */
}

TEST(a_waiter_with_a_name_of_its_own_keeps_its_place_on_the_short_way)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET K value PX 5000");
    server_ask(s, "ZADD {K}:q 7 %s", T1 ":0:700:ff:me");
    server_ask(s, "ZADD {K}:q 8 %s", "something else");
    CHECK_INT(server_int(s, "EVAL %s 2 K F:fence value", lua_text[LUA_release]), 1);
    CHECK_INT(server_int(s, "EXISTS K"), 0); /* both were dead */
    /* A queue that is no queue is left alone, and the lock is given back. */
    server_ask(s, "SET K value PX 5000");
    server_ask(s, "LPUSH {K}:q x");
    CHECK_INT(server_int(s, "EVAL %s 2 K F:fence value", lua_text[LUA_release]), 1);
    CHECK_INT(server_int(s, "EXISTS K"), 0);
    CHECK_STR(server_ask(s, "TYPE {K}:q"), "list");
    CHECK_STR(acquire_short(s, T1, 700), "-3");
}

#define WAITER T2 ":0:1000:abc:"

static const char *look(struct server *s)
{
    return server_ask(s, "EVAL %s 6 K F {K}:q R {K}:absent {K}:own %s 0", lua_text[LUA_look],
                      WAITER);
}

TEST(P3_what_was_granted_before_a_new_reign_is_not_taken_over_unseen)
{
    struct server *s = server_start(NULL);
    server_ask(s, "EVAL %s 2 F R %s", lua_text[LUA_hello], "");
    long long first = server_int(s, "INCR F") - 1; /* the counter when the reign began */
    server_ask(s, "ZADD {K}:q %lld %s", first + 1, WAITER);
    /* With the clock set back, that may be the last number of the reign before. */
    server_ask(s, "SET K " T1 ":%lld:1000 PX 60000", first);
    CHECK(strncmp(look(s), "1\n", 2) == 0);
    CHECK_STR(server_ask(s, "EXISTS {K}:absent"), "0");
    server_ask(s, "SET K " T1 ":%lld:1000 PX 60000", first + 2);
    CHECK(strncmp(look(s), "2\n", 2) == 0);
    CHECK_STR(server_ask(s, "EXISTS {K}:absent"), "1");
}

TEST(P8_who_leaves_is_not_handed_the_lock_by_a_late_copy_of_its_request)
{
    struct server *s = server_start(NULL);
    redisContext *there = redisConnectUnix(server_socket(s));
    CHECK(there && !there->err);
    freeReplyObject(redisCommand(there, "SUBSCRIBE s:%b", T1, (size_t)32));
    CHECK(atoll(acquire(s, T1, 5000)) > 0);
    server_ask(s, "ZADD {K}:q 1 " T1 ":0:1000:abc:");
    CHECK_STR(cancel(s, T1, ""), "1");
    CHECK_STR(server_ask(s, "GET K"), NULL);
    CHECK_STR(server_ask(s, "EXISTS {K}:q"), "0");
    redisFree(there);
}

TEST(keep_renews_sets_and_checks_and_never_creates)
{
    struct server *s = server_start(NULL);
    CHECK_STR(keep(s, "renew", T1, "v", "", "5000"), "0");
    CHECK_STR(keep(s, "set", T1, "v", "", "5000"), "0");
    CHECK_INT(server_int(s, "EXISTS K"), 0);
    server_ask(s, "SET K v PX 10000");
    CHECK_STR(keep(s, "check", T1, "v", "", "0"), "1"); /* PEXPIRE 0 would delete it */
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 10000);
    CHECK_STR(keep(s, "renew", T1, "v", "", "5000"), "1");
    CHECK_RANGE(server_int(s, "PTTL K"), 5001, 10000); /* B2 */
    CHECK_STR(keep(s, "renew", T1, "v", "", "20000"), "1");
    CHECK_RANGE(server_int(s, "PTTL K"), 15000, 20000);
    CHECK_STR(keep(s, "set", T1, "v", "", "5000"), "1");
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_STR(keep(s, "set", T1, "w", "", "90000"), "0");
    CHECK_STR(keep(s, "set", T1, "vv", "", "90000"), "0");
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_STR(keep(s, "set", T1, "v", "n", "90000"), "0"); /* with an id: own must agree */
    server_ask(s, "SET {K}:own n PX 5000");
    CHECK_STR(keep(s, "set", T1, "v", "n", "90000"), "1");
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 80000, 90000);
    server_ask(s, "DEL K");
    server_ask(s, "ZADD {K}:t 9999999999999 %s", T1);
    CHECK_STR(keep(s, "renew", T1, "v", "", "5000"), "2"); /* on purpose */
    CHECK_STR(keep(s, "renew", T2, "v", "", "5000"), "0");
    server_ask(s, "SET {K}:t x");
    CHECK_STR(keep(s, "renew", T1, "v", "", "5000"), "0");

    /* Several at once: each its own verdict. */
    server_ask(s, "MSET A 1 B 2 C 3");
    const char *all = server_ask(s, "EVAL %s 12 A Ao At Aa B Bo Bt Ba C Co Ct Ca renew t 1 %s 500 "
                                 "t x %s 500 t 3 %s 500", lua_text[LUA_keep], "", "", "");
    CHECK_STR(strchr(all, '\n') + 1, "1\n0\n1");
    CHECK_INT(server_int(s, "PTTL B"), -1);
}

TEST(keep_refuses_the_number_that_was_broken_and_tells)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET K %s PX 50000", T1 ":1600000000000001:0");
    CHECK_STR(keep(s, "renew", T1, T1 ":1600000000000001:0", "", "60000"), "1");
    server_ask(s, "HSET {K}:x break:1600000000000002 other");
    CHECK_STR(keep(s, "renew", T1, T1 ":1600000000000001:0", "", "70000"), "1");
    server_ask(s, "HSET {K}:x ask:1600000000000001 please");
    CHECK_STR(keep(s, "renew", T1, T1 ":1600000000000001:0", "", "60000"), "1\n1\nask please");
    server_ask(s, "HSET {K}:x break:1600000000000001 why");
    CHECK_INT(server_int(s, "PEXPIRE K 5000"), 1);
    static const char *const modes[] = { "renew", "set", "leave", "check" };
    for (int i = 0; i < 4; i++)
        CHECK_STR(keep(s, modes[i], T1, T1 ":1600000000000001:0", "", "60000"),
                  "3\n1\nbreak why");
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_INT(server_int(s, "HEXISTS {K}:x told:1600000000000001"), 1);
    /* With an owner id the number is in own; of a shared lock it is named. */
    CHECK_STR(keep(s, "renew", T1, "id", T1 ":1600000000000001", "60000"), "3\n1\nbreak why");
    CHECK_STR(keep(s, "renew", T1, "shared.1600000000000001", "", "60000"), "3\n1\nbreak why");
    /* What is in the place of the marks is no reason to lose a lock. */
    server_ask(s, "DEL {K}:x");
    server_ask(s, "SET {K}:x string");
    CHECK_STR(keep(s, "renew", T1, T1 ":1600000000000001:0", "", "60000"), "1");
}

TEST(by_owner_knows_random_and_chosen_ids_and_remembers_releases)
{
    struct server *s = server_start(NULL);
    long long f = atoll(acquire(s, T1, 5000));
    char want[64];
    CHECK_STR(by_owner(s, "check", T2, "0"), "0");
    CHECK_STR(by_owner(s, "check", "0000", "0"), "0");
    const char *got = by_owner(s, "check", T1, "0");
    snprintf(want, sizeof want, "\n%lld", f);
    CHECK(got[0] == '1');
    CHECK_CONTAINS(got, want);
    CHECK(by_owner(s, "extend", T1, "70000")[0] == '1');
    CHECK_RANGE(server_int(s, "PTTL K"), 60000, 70000);
    CHECK(by_owner(s, "release", T1, "0")[0] == '1');
    CHECK_STR(acquire(s, T1, 5000), "-2"); /* a late copy of its acquire takes nothing */
    CHECK_RANGE(server_int(s, "PTTL {K}:t"), 60000, 70001); /* as long as it could have held */

    acquire_as(s, T2, 5000, "me");
    CHECK(by_owner(s, "check", "me", "0")[0] == '1');
    CHECK_STR(by_owner(s, "check", T2, "0"), "0");
    CHECK(by_owner(s, "extend", "me", "70000")[0] == '1');
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 60000, 70000);
    CHECK(by_owner(s, "release", "me", "0")[0] == '1');
    CHECK_INT(server_int(s, "EXISTS K {K}:own"), 0);
    CHECK_STR(acquire_as(s, T2, 5000, "me"), "-2");
    server_ask(s, "SET K foreign"); /* SETNX by a legacy client: its value is its id */
    CHECK(by_owner(s, "release", "foreign", "0")[0] == '1');
    CHECK_STR(by_owner(s, "release", "foreign", "0"), "0");
}

/* What begins with a new reign, and who listens. */
static const char *hello(struct server *s)
{
    const char *all = server_ask(s, "EVAL %s 2 F R channel", lua_text[LUA_hello]);
    const char *second = strchr(all, '\n');
    size_t len = second ? (size_t)(second + 1 - all) + strcspn(second + 1, "\n") : strlen(all);
    return keep_text("%.*s", (int)len, all);
}

/* The age of the counter in ms, -1: there is none; and whether it began in this reign. */
static long long age(struct server *s, const char *look, int fresh)
{
    const char *all = *look ? server_ask(s, "EVAL %s 2 F R channel %s", lua_text[LUA_hello], look)
                            : server_ask(s, "EVAL %s 2 F R channel", lua_text[LUA_hello]);
    long long code, listeners, ms, here;
    CHECK_INT(sscanf(all, "%lld %lld %lld %lld", &code, &listeners, &ms, &here), 4);
    CHECK_INT(here, fresh);
    return ms;
}

TEST(hello_seeds_raises_and_leaves_alone)
{
    struct server *s = server_start(NULL);
    CHECK_STR(hello(s), "1\n0"); /* a new reign; nobody listens on the channel */
    long long n = atoll(server_ask(s, "GET F")), big;
    CHECK(n > 1600000000000000LL);
    for (int i = 0; i < 3; i++)
        CHECK_STR(hello(s), "0\n0");
    CHECK_INT(atoll(server_ask(s, "GET F")), n); /* not once per connection */
    server_ask(s, "SET R another.reign");
    server_ask(s, "SET F 1600000000000000"); /* the last one that was written down, long ago */
    CHECK_STR(hello(s), "1\n0");
    big = atoll(server_ask(s, "GET F"));
    CHECK_RANGE(big, n, n + 60000000);
    /* The floor of the reign is the counter at its beginning. */
    CHECK_INT(atoll(strchr(server_ask(s, "GET R"), ' ')), big);
    /* Above the cap: left where it is, never set back. */
    server_ask(s, "SET F 9007199254739999");
    server_ask(s, "DEL R");
    CHECK_STR(hello(s), "1\n0");
    CHECK_STR(server_ask(s, "GET F"), "9007199254739999");
    static const char *const bad[] = { "SET F x", "LPUSH F x", "SET F 1e5",
                                       "SET F 9007199254740993" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        server_ask(s, "DEL F R");
        server_ask(s, bad[i]);
        CHECK_STR(hello(s), "-4");
        CHECK_INT(server_int(s, "EXISTS R"), 0);
    }
}

/* A server whose data is gone is known by that: the counter is younger than others, and began in
 * this life of it. What keeps its data knows how old that is, however often it is started. */
TEST(hello_knows_when_the_counter_began)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    CHECK_INT(age(s, "look", 1), -1);
    CHECK_STR(server_keys(s), "");
    CHECK_RANGE(age(s, "", 1), 0, 5000);
    CHECK_RANGE(age(s, "look", 1), 0, 5000);
    const char *first = keep_text("%s", strrchr(server_ask(s, "GET R"), ' '));
    CHECK_INT(atoll(first), atoll(server_ask(s, "GET F")));
    t_sleep_ms(20);
    for (int i = 0; i < 2; i++) {
        server_restart(s);
        CHECK_RANGE(age(s, "look", 0), 20, 20000); /* the reign is still the old one */
        CHECK_RANGE(age(s, "", 0), 20, 20000);
        CHECK_RANGE(age(s, "", 0), 20, 20000);
        CHECK_STR(strrchr(server_ask(s, "GET R"), ' '), first);
    }
    server_empty(s);
    CHECK_INT(age(s, "look", 1), -1);
    CHECK_RANGE(age(s, "", 1), 0, 5000);
    CHECK(atoll(strrchr(server_ask(s, "GET R"), ' ')) > atoll(first));

    /* A reign without that number, or with nonsense: it began at some time, not here. */
    static const char *const odd[] = { "", " 99999999999999999999", " x", "  ", " -5" };
    const char *now = keep_text("%.*s", (int)strcspn(server_ask(s, "GET R"), " "),
                                server_ask(s, "GET R"));
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        server_ask(s, "SET R %s", keep_text("%s %s%s", now, server_ask(s, "GET F"), odd[i]));
        CHECK(age(s, "", 0) > 1000000000000);
    }
    server_ask(s, "SET R %s", "another.reign 5 1700000060000000");
    CHECK(age(s, "", 0) > 1000000000);
    CHECK_STR(strrchr(server_ask(s, "GET R"), ' '), " 1700000060000000");
    server_ask(s, "DEL F"); /* only the counter is gone: noticed in the next life */
    server_restart(s);
    CHECK_RANGE(age(s, "", 1), 0, 5000);
}

TEST(inspect_and_record_change_nothing_but_the_record)
{
    struct server *s = server_start(NULL);
    CHECK(strncmp(server_ask(s, "EVAL %s 3 K O {K}:q 9", lua_text[LUA_inspect]), "none\n\n-2\n\n",
                  10) == 0);
    server_ask(s, "LPUSH K x");
    CHECK(strncmp(server_ask(s, "EVAL %s 3 K O {K}:q 9", lua_text[LUA_inspect]), "list\n\n-1\n\n",
                  10) == 0);
    server_ask(s, "DEL K");
    server_ask(s, "MSET K v O o");
    CHECK(strncmp(server_ask(s, "EVAL %s 3 K O {K}:q 9", lua_text[LUA_inspect]),
                  "string\nv\n-1\no\n", 14) == 0);
    CHECK_INT(server_int(s, "PTTL K"), -1);
    CHECK_INT(server_int(s, "EVAL %s 1 REC 60000 1 host box 7 1000 9000", lua_text[LUA_record]), 1);
    CHECK_STR(server_ask(s, "HGET REC host"), "box");
    CHECK(atoll(server_ask(s, "HGET REC since:7")) > 1600000000000LL);
    CHECK_STR(server_ask(s, "HGET REC lease:7"), "9000");
    CHECK_RANGE(server_int(s, "PTTL REC"), 50000, 60000);
    CHECK_INT(server_int(s, "EVAL %s 1 REC 60000 1 host box", lua_text[LUA_record]), 1);
    CHECK_STR(server_ask(s, "HGET REC since:7"), NULL); /* written anew */
}

/* ---- forged replies ---- */

#define EVIL "EVIL\r\n+OK\r\n:1\r\n"

/* Put something of this kind, with line ends wherever it can hold any, under keys 1 to 8. */
static void plant(struct server *s, int kind)
{
    static const char *const how[] = { "DEL %s", "SET %s %s", "RPUSH %s %s", "SADD %s %s",
                                       ("HSET %s %s " EVIL), "ZADD %s 1 %s", "SET %s %s:7:0" };
    char key[40];
    for (int k = 1; k <= 8; k++) {
        snprintf(key, sizeof key, EVIL "%d", k);
        server_ask(s, "DEL %s", key);
        server_ask(s, how[kind], key, EVIL);
    }
}

/* Valkey 8.0.1 writes an error's bytes as they are (CVE-2025-67733): what is between its line ends
 * would be taken for the replies to what follows. */
TEST(P10_no_script_puts_user_bytes_into_an_error)
{
    static const char *const args[] = { EVIL, "1", "-1", "", "renew" };
    struct server *s = server_start(NULL);
    int errors = 0;
    for (int kind = 0; kind < 7; kind++)
        for (int n = 0; n < LUA_COUNT * 5 * 8; n++) {
            const char *a = args[n / 8 % 5];
            char sum[16];
            snprintf(sum, sizeof sum, "%d", n);
            if (n % 40 == 0)
                plant(s, kind);
            const char *text = server_ask(
                s, "EVAL %s %d " EVIL "1 " EVIL "2 " EVIL "3 " EVIL "4 " EVIL "5 " EVIL "6 " EVIL
                   "7 " EVIL "8 %s %s " EVIL " %s %s %s %s %s", lua_text[n / 40], n % 8 + 1, a, a,
                a, a, a, a, a);
            errors += text && strstr(text, "user_script");
            if (text && (strncmp(text, "ERR", 3) == 0 || strstr(text, "user_script")))
                CHECK(!strstr(text, "EVIL"));
            CHECK_STR(server_ask(s, "ECHO %s", sum), sum); /* the stream is still in step */
        }
    t_note("%d errors in %d calls", errors, 7 * LUA_COUNT * 40);
    CHECK(errors > 100);
    server_ask(s, "EVAL error(KEYS[1]) 1 " EVIL); /* the control, and the end of this connection */
    if (strcmp(server_ask(s, "ECHO here"), "here") != 0)
        t_note("this server forges replies out of errors");
}

/* ---- elections and sequences ---- */

TEST(keep_prolongs_a_key_that_follows_and_does_not_look_into_it)
{
    struct server *s = server_start(NULL);
    long long f = atoll(acquire(s, T1, 5000));
    char value[100];
    snprintf(value, sizeof value, T1 ":%lld:0", f);
    CHECK_STR(keep(s, "renew", T1, value, "+", "9000"), "1"); /* it need not be there */
    CHECK_INT(server_int(s, "EXISTS {K}:own"), 0);
    server_ask(s, "SET {K}:own anything PX 1000");
    CHECK_STR(keep(s, "renew", T1, value, "+", "8000"), "1"); /* each to its own */
    CHECK_RANGE(server_int(s, "PTTL K"), 8001, 9000);
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 7000, 8000);
    CHECK_STR(keep(s, "check", T1, value, "+", "0"), "1");
    CHECK_STR(keep(s, "set", T1, value, "+", "3000"), "1");
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 2000, 3000);
    CHECK_STR(keep(s, "renew", T2, T2 ":1:0", "+", "60000"), "0"); /* not ours: nothing follows */
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 1000, 3000);
    CHECK_STR(keep(s, "leave", T1, value, "+", "4000"), "1");
    CHECK_RANGE(server_int(s, "PTTL {K}:own"), 3000, 4000);
    CHECK_STR(server_ask(s, "GET {K}:own"), "anything");
}

/* nth NULL: take away */
static const char *proclaim(struct server *s, const char *grant, const char *term, const char *nth,
                            const char *value)
{
    if (!nth)
        return server_ask(s, "EVAL %s 4 K {K}:v pre:fence {K}:l %s %s", lua_text[LUA_proclaim],
                          grant, term);
    return server_ask(s, "EVAL %s 4 K {K}:v pre:fence {K}:l %s %s %s %s", lua_text[LUA_proclaim],
                      grant, term, nth, value);
}

static const char *leader(struct server *s)
{
    return server_ask(s, "EVAL %s 3 K {K}:v {K}:l 100", lua_text[LUA_leader]);
}

TEST(proclaim_writes_under_its_own_lock_alone_and_takes_only_its_own_away)
{
    struct server *s = server_start(NULL);
    CHECK_STR(proclaim(s, T1 ":5:", "5", "1", "v"), "0");
    server_ask(s, "SET K " T1 ":5:3000 PX 7000");
    CHECK_STR(proclaim(s, T1 ":5:", "5", "1", "v"), "1");
    CHECK_STR(proclaim(s, T1 ":5:", "5", "1", "v"), "1"); /* however often it comes */
    CHECK_STR(server_ask(s, "GET {K}:v"), "5:1:v");
    CHECK_RANGE(server_int(s, "PTTL {K}:v"), 6000, 7000);
    CHECK_STR(proclaim(s, T1 ":4:", "4", "9", "old"), "0");
    CHECK_STR(proclaim(s, T2 ":5:", "5", "9", "other"), "0");
    CHECK_STR(proclaim(s, T1 ":4:", "4", NULL, NULL), "1"); /* nothing of it is there */
    CHECK_STR(server_ask(s, "GET {K}:v"), "5:1:v");
    /* A late copy of an earlier value of the term brings it not back. */
    CHECK_STR(proclaim(s, T1 ":5:", "5", "10", "tenth"), "1");
    CHECK_STR(proclaim(s, T1 ":5:", "5", "9", "ninth"), "1");
    CHECK_STR(server_ask(s, "GET {K}:v"), "5:10:tenth");
    server_ask(s, "DEL K"); /* and without the lock its own can still be taken away */
    CHECK_STR(proclaim(s, T1 ":5:", "5", NULL, NULL), "1");
    CHECK_INT(server_int(s, "EXISTS {K}:v"), 0);
    server_ask(s, "LPUSH {K}:v x");
    server_ask(s, "SET K " T1 ":5:3000 PX 7000");
    CHECK_STR(proclaim(s, T1 ":5:", "5", "1", "v"), "-3");
    CHECK_STR(proclaim(s, T1 ":5:", "5", NULL, NULL), "-3");
    CHECK_STR(server_ask(s, "LRANGE {K}:v 0 -1"), "x");
}

TEST(leader_shows_a_value_with_its_lock_alone)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET {K}:v 5:1:v");
    CHECK_STR(leader(s), "0");
    server_ask(s, "SET K " T1 ":5:3000 PX 7000");
    CHECK_CONTAINS(leader(s), "\n1\nv");
    server_ask(s, "SET K " T1 ":55:3000 PX 7000"); /* of which 5 is only the beginning */
    CHECK_CONTAINS(leader(s), "\n0\n");
    server_ask(s, "SET K foreign");
    CHECK_CONTAINS(leader(s), "1\nforeign\n-1\n");
    CHECK_INT(server_int(s, "EXISTS {K}:l"), 0); /* who only looks leaves nothing */
    server_ask(s, "EVAL %s 3 K {K}:v {K}:l 100 " T2, lua_text[LUA_leader]);
    CHECK_STR(server_ask(s, "ZRANGE {K}:l 0 -1"), T2);
    server_ask(s, "DEL {K}:l");
    server_ask(s, "SET {K}:l x"); /* no list: then nobody is told, and all works */
    CHECK_CONTAINS(server_ask(s, "EVAL %s 3 K {K}:v {K}:l 100 " T2, lua_text[LUA_leader]),
                   "foreign");
    server_ask(s, "DEL K");
    server_ask(s, "LPUSH K x");
    CHECK_STR(leader(s), "-3");
}

TEST(sequence_takes_blocks_and_never_goes_back)
{
    struct server *s = server_start(NULL);
    const char *lua = lua_text[LUA_sequence];
    CHECK_STR(server_ask(s, "EVAL %s 1 S 10 5 0 0", lua), "5\n14");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 1 5 0 0", lua), "15\n15");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 10 5 100 0", lua), "101\n110"); /* somebody has seen 100 */
    CHECK_STR(server_ask(s, "EVAL %s 1 S 10 5 7 0", lua), "111\n120");
    CHECK(strtoll(server_ask(s, "EVAL %s 1 S 2 1 0 1", lua), NULL, 10) > 1600000000000000LL);
    CHECK_STR(server_ask(s, "SET S 9007199254740990"), "OK");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 2 1 0 0", lua), "-4\n9007199254740990");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 1 1 0 0", lua), "9007199254740991\n9007199254740991");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 1 1 0 0", lua), "-4\n9007199254740991");
    CHECK_STR(server_ask(s, "SET S 12x"), "OK");
    CHECK_STR(server_ask(s, "EVAL %s 1 S 1 1 0 0", lua), "-3");
    CHECK_STR(server_ask(s, "GET S"), "12x");
}
