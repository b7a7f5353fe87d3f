/* SPDX-License-Identifier: MIT
 * scripts_parts.c - the scripts that see only a part: one server of a quorum, or one key of a slot
 * that is being moved. Called bare, as tests/live/scripts.c does.
 */
#define LIVE_SCRIPTS
#include "harness/live.h"

#define T1 "00000000000000000000000000000001.1"
#define T2 "00000000000000000000000000000002.1"

/* ---- quorum_agree ---------------------------------------------------------------------------- */

/* What it had before, which is 0 if it is not this token's. */
static long long agree(struct server *s, const char *token, long long number, const char *take)
{
    const char *all = server_ask(s, "EVAL %s 4 K F {K}:own {K}:t %s %lld 60000 %s %s",
                                 lua_text[LUA_quorum_agree], token, number, "", take);
    const char *before = strchr(all, '\n');
    if (!before)
        FAIL("%s", all);
    return atoll(before + 1);
}

TEST(P4_agreeing_lifts_the_counter_and_never_lowers_it)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET F 100");
    server_ask(s, "SET K " T1 ":100:0 PX 60000");
    CHECK_INT(agree(s, T1, 105, ""), 100);
    CHECK_STR(server_ask(s, "GET K"), T1 ":105:0");
    CHECK_STR(server_ask(s, "GET F"), "105");
    CHECK_INT(agree(s, T2, 107, ""), 0); /* another's: the counter all the same */
    CHECK_STR(server_ask(s, "GET K"), T1 ":105:0");
    CHECK_STR(server_ask(s, "GET F"), "107");
    CHECK_INT(agree(s, T1, 106, ""), 105);
    CHECK_STR(server_ask(s, "GET F"), "107");
    server_ask(s, "DEL F");
    CHECK_INT(agree(s, T1, 108, ""), 106);
    CHECK_STR(server_ask(s, "GET F"), "108");
}

TEST(P8_a_lock_is_not_taken_again_for_a_token_that_was_given_up)
{
    struct server *s = server_start(NULL);
    CHECK_INT(agree(s, T1, 5, ""), 0); /* free, and not to be taken */
    CHECK_INT(server_int(s, "EXISTS K"), 0);
    CHECK_INT(agree(s, T1, 5, "take"), 5);
    CHECK_STR(server_ask(s, "GET K"), T1 ":5:0");
    CHECK_INT(agree(s, T2, 6, "take"), 0); /* held by another */
    CHECK_STR(server_ask(s, "GET K"), T1 ":5:0");
    server_ask(s, "DEL K");
    server_ask(s, "ZADD {K}:t 99999999999999 " T1);
    CHECK_INT(agree(s, T1, 7, "take"), 0);
    CHECK_INT(server_int(s, "EXISTS K"), 0);
    CHECK_INT(agree(s, T2, 8, "take"), 8); /* others are not concerned */
}

/* ---- hold_key -------------------------------------------------------------------------------- */

/* 1: it is what it must be, and it was done. */
static long long hold(struct server *s, const char *mode, const char *what, const char *text)
{
    const char *all = server_ask(s, "EVAL %s 1 K %s %s %s 60000", lua_text[LUA_hold_key], mode,
                                 what, text);
    const char *done = strchr(all, '\n');
    if (!done)
        FAIL("%s", all);
    return atoll(done + 1);
}

TEST(P2_key_by_key_only_what_is_ours_is_renewed_or_freed)
{
    struct server *s = server_start(NULL);
    CHECK_INT(hold(s, "renew", "value", T1 ":5:0"), 0); /* nothing is created */
    CHECK_INT(server_int(s, "EXISTS K"), 0);
    server_ask(s, "SET K " T2 ":6:0 PX 5000");
    CHECK_INT(hold(s, "renew", "value", T1 ":5:0"), 0);
    CHECK_INT(hold(s, "renew", "value", T2 ":6:"), 0); /* only a beginning */
    CHECK_INT(hold(s, "free", "value", T1 ":5:0"), 0);
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_INT(hold(s, "check", "value", T2 ":6:0"), 1);
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_INT(hold(s, "renew", "value", T2 ":6:0"), 1);
    CHECK_RANGE(server_int(s, "PTTL K"), 5001, 60000);
    CHECK_INT(hold(s, "free", "value", T2 ":6:0"), 1);
    CHECK_INT(server_int(s, "EXISTS K"), 0);
}

/* A request that comes when the slot has arrived: the id is the same, the grant is another. */
TEST(P2_key_by_key_a_later_grant_of_the_same_id_is_left_alone)
{
    struct server *s = server_start(NULL);
    const char *const one = "EVAL %s 1 K %s value me 60000 {K}:x 5 {K}:own " T1 ":5";
    const char *const modes[] = { "renew", "free" };
    server_ask(s, "SET K me PX 5000");
    server_ask(s, "SET {K}:own " T2 ":6 PX 5000");
    for (int i = 0; i < 2; i++) {
        const char *all = server_ask(s, one, lua_text[LUA_hold_key], modes[i]);
        CHECK_STR(strchr(all, '\n') + 1, "0");
    }
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    server_ask(s, "SET {K}:own " T1 ":5 PX 5000");
    CHECK_STR(strchr(server_ask(s, one, lua_text[LUA_hold_key], "renew"), '\n') + 1, "1");
    CHECK_RANGE(server_int(s, "PTTL K"), 5001, 60000);
    server_ask(s, "DEL {K}:own"); /* it is on the other server */
    CHECK_STR(strchr(server_ask(s, one, lua_text[LUA_hold_key], "free"), '\n') + 1, "1");
    CHECK_INT(server_int(s, "EXISTS K"), 0);
}

TEST(P2_key_by_key_a_part_that_has_ended_does_not_come_back)
{
    struct server *s = server_start(NULL);
    server_ask(s, "ZADD K 1 " T1 " 99999999999999 " T2);
    CHECK_INT(hold(s, "renew", "member", T1), 0);
    CHECK_STR(server_ask(s, "ZSCORE K " T1), "1");
    CHECK_INT(hold(s, "renew", "member", T2), 1);
    CHECK_INT(hold(s, "renew", "member", "another"), 0);
    CHECK_INT(server_int(s, "ZCARD K"), 2);
}

TEST(BR1_key_by_key_what_was_broken_is_neither_renewed_nor_unmarked)
{
    struct server *s = server_start(NULL);
    const char *const keep = "EVAL %s 1 K %s value " T1 ":5:0 60000 {K}:x %d";
    server_ask(s, "SET K " T1 ":5:0 PX 5000");
    server_ask(s, "HSET {K}:x break:5 reason");
    const char *all = server_ask(s, keep, lua_text[LUA_hold_key], "renew", 5);
    CHECK_STR(strchr(all, '\n') + 1, "3\nbreak reason");
    CHECK_RANGE(server_int(s, "PTTL K"), 1, 5000);
    CHECK_STR(server_ask(s, "HGET {K}:x told:5"), "1");
    all = server_ask(s, keep, lua_text[LUA_hold_key], "renew", 6); /* of another number */
    CHECK_STR(strchr(all, '\n') + 1, "1");
    CHECK_RANGE(server_int(s, "PTTL K"), 5001, 60000);
}

/* ---- one of several holders ------------------------------------------------------------------ */

/* T1's part has ended, T2's has not. */
static struct server *shared_by_two(void)
{
    struct server *s = server_start(NULL);
    server_ask(s, "SET K shared.0.2:7:0 PX 60000");
    server_ask(s, "ZADD {K}:h 1 " T1 " 99999999999999 " T2);
    server_ask(s, "HSET {K}:d " T1 " 7:0:1 " T2 " 8:0:1");
    return s;
}

static long long keep(struct server *s, const char *token, const char *value)
{
    const char *all = server_ask(s, "EVAL %s 4 K {K}:own {K}:t {K}:absent renew %s %s %s 30000",
                                 lua_text[LUA_keep], token, value, "");
    const char *verdict = strchr(all, '\n');
    if (!verdict)
        FAIL("%s", all);
    return atoll(verdict + 1);
}

TEST(P2_a_part_that_has_ended_is_not_renewed)
{
    struct server *s = shared_by_two();
    CHECK_INT(keep(s, T1, "shared.7"), 0);
    CHECK_STR(server_ask(s, "ZSCORE {K}:h " T1), "1");
    CHECK_INT(keep(s, T2, "shared.7"), 0); /* another's number */
    CHECK_INT(keep(s, T2, "shared.8"), 1);
}

TEST(P2_who_holds_no_part_gives_none_back)
{
    struct server *s = shared_by_two();
    const char *text = lua_text[LUA_unshare];
    CHECK_INT(server_int(s, "EVAL %s 3 K F {K}:q another.1", text), 0);
    CHECK_INT(server_int(s, "EVAL %s 3 K F {K}:q " T1, text), 0);
    CHECK_INT(server_int(s, "ZCARD {K}:h"), 2);
    CHECK_INT(server_int(s, "EVAL %s 3 K F {K}:q " T2, text), 1);
    CHECK_INT(server_int(s, "EVAL %s 3 K F {K}:q " T2, text), 0);
    CHECK_INT(server_int(s, "EXISTS K {K}:h {K}:d"), 0); /* the one that had ended went along */
}
