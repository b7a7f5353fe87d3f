/* SPDX-License-Identifier: MIT
 * scripts_rights.c - what the scripts conclude when their caller may not ask who is there: nothing.
 * Called bare, as tests/live/scripts.c does.
 */
#define LIVE_SCRIPTS
#include "harness/live.h"

#include <hiredis/hiredis.h>

#define HOLDER "00000000000000000000000000000001.1"
#define WAITER "00000000000000000000000000000002.1"
#define KEYS4  "lock:a " FENCE_KEY " {lock:a}:q " REIGN_KEY
#define MEMBER WAITER ":1000:1000:ab:"

/* A connection as a user who may do all but count subscribers; its first answer as text. */
static redisContext *as_limited(struct server *s)
{
    CHECK_STR(server_ask(s, "ACL SETUSER limited on >pw allkeys allchannels +@all -pubsub"), "OK");
    redisContext *r = redisConnectUnix(server_socket(s));
    CHECK(r && !r->err);
    redisReply *answer = redisCommand(r, "AUTH limited pw");
    CHECK(answer && answer->type == REDIS_REPLY_STATUS);
    freeReplyObject(answer);
    answer = redisCommand(r, "PUBSUB NUMSUB x");
    CHECK(answer && answer->type == REDIS_REPLY_ERROR);
    freeReplyObject(answer);
    return r;
}

static long long number_from(redisReply *r)
{
    CHECK(r);
    if (r->type == REDIS_REPLY_ERROR)
        FAIL("%s", r->str);
    long long n = r->type == REDIS_REPLY_ARRAY ? r->element[0]->integer : r->integer;
    freeReplyObject(r);
    return n;
}

/* Held with a grace by somebody who is not there, and somebody waits. */
static struct server *held_by_an_absent_one(char *ret_value, size_t size)
{
    struct server *s = server_start(NULL);
    server_ask(s, "EVAL %s 2 " FENCE_KEY " " REIGN_KEY " %s", lua_text[LUA_hello], "");
    long long n = server_int(s, "EVAL %s 2 lock:a " FENCE_KEY " " HOLDER " 60000 1000",
                             lua_text[LUA_acquire]);
    snprintf(ret_value, size, HOLDER ":%lld:1000", n);
    CHECK_STR(server_ask(s, "GET lock:a"), ret_value);
    CHECK_INT(server_int(s, "ZADD {lock:a}:q %lld " MEMBER, n + 1), 1);
    return s;
}

TEST(P3_who_may_not_be_asked_for_is_not_absent)
{
    char value[100];
    struct server *s = held_by_an_absent_one(value, sizeof value);
    redisContext *r = as_limited(s);
    for (int i = 0; i < 2; i++) { /* look: 1 wait  2 wait, the holder is absent */
        CHECK_INT(number_from(redisCommand(r, "EVAL %s 6 " KEYS4 " {lock:a}:absent {lock:a}:own "
                                           MEMBER " 0", lua_text[LUA_look])), 1);
        CHECK_INT(server_int(s, "HEXISTS {lock:a}:absent %s", value), 0);
    }
    CHECK_INT(atoll(server_ask(s, "EVAL %s 6 " KEYS4 " {lock:a}:absent {lock:a}:own " MEMBER " 0",
                               lua_text[LUA_look])), 2); /* who may ask sees it */
    CHECK_STR(server_ask(s, "GET lock:a"), value);
    redisFree(r);
}

TEST(P6_a_waiter_who_may_not_be_asked_for_keeps_its_place)
{
    char value[100];
    struct server *s = held_by_an_absent_one(value, sizeof value);
    redisContext *r = as_limited(s);
    CHECK_INT(number_from(redisCommand(r, "EVAL %s 2 lock:a " FENCE_KEY " %s",
                                       lua_text[LUA_release], value)), 1);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    CHECK(server_ask(s, "ZSCORE {lock:a}:q " MEMBER) != NULL);
    redisFree(r);
}
