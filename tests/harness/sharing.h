/* SPDX-License-Identifier: MIT
 * sharing.h - shorthands of the tests about locks that several hold: handles of lock:a, and what
 * stands on the server for them.
 */
#ifndef HARNESS_SHARING_H
#define HARNESS_SHARING_H

#include "harness/waiting.h"

static inline hf_lock *permit_of(hf_client *c, unsigned slots, unsigned permits)
{
    return lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = HF_NO_TAKEOVER,
                                               .slots = slots, .permits = permits });
}

static inline hf_lock *reader_of(hf_client *c, int64_t ttl_ms, int64_t grace_ms)
{
    return lock_with(c, "a", (hf_lock_opts){ .ttl_ms = ttl_ms, .grace_ms = grace_ms,
                                               .shared = 1 });
}

static inline long long holders_of(struct server *s)
{
    return server_int(s, "ZCARD {lock:a}:h");
}

/* How many holders' leases have ended by the server's clock, though they still stand there. */
static inline long long ended_of(struct server *s)
{
    return server_int(s, "EVAL %s 1 {lock:a}:h",
                      "local t = redis.call('TIME') return redis.call('ZCOUNT', KEYS[1], '-inf', "
                      "string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000)))");
}

/* What is used by the value is what the holders have, and the lock lasts as long as the last: not
 * shorter, and longer at the most by what a script takes. */
static inline void check_sums(struct server *s)
{
    CHECK_STR(server_ask(s, "EVAL %s 3 lock:a {lock:a}:h {lock:a}:d",
                         "local value, n = redis.call('GET', KEYS[1]), 0 "
                         "local used = string.match(value or 'shared.0.0:', "
                         "'^shared%.%d+%.(%d+):') "
                         "for _, d in ipairs(redis.call('HVALS', KEYS[3])) do "
                         "n = n + string.match(d, ':(%d+)$') end "
                         "if redis.call('ZCARD', KEYS[2]) ~= redis.call('HLEN', KEYS[3]) then "
                         "return 'holders and details differ' end "
                         "if tonumber(used or 0) ~= n then return used .. ' used, held ' .. n end "
                         "local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2] "
                         "local ttl = redis.call('PTTL', KEYS[1]) " /* before TIME: time goes on */
                         "local t = redis.call('TIME') "
                         "local left = last and last - t[1] * 1000 - math.floor(t[2] / 1000) "
                         "if last and (ttl < left - 1 or ttl > left + 1000) then "
                         "return left .. ' left, ttl ' .. ttl end "
                         "return 'even'"),
              "even");
}

#ifdef LIVE_SCRIPTS
/* A server that knows the scripts: the first request already is the one that counts. */
static inline struct server *server_prepared(void)
{
    struct server *s = server_start(NULL);
    for (int i = 0; i < LUA_COUNT; i++)
        CHECK_STR(server_ask(s, "SCRIPT LOAD %s", lua_text[i]), lua_sha[i]);
    return s;
}
#endif

#endif
