/* SPDX-License-Identifier: MIT
 * deadlock_agree.c - a circle that is another one when it is looked at again is no deadlock; nor is
 * one of waits that nobody confirms any more.
 */
#define LIVE_SCRIPTS
#include "harness/proxy.h"
#include "harness/waiting.h"

#include <hiredis/hiredis.h>

#define SESSION "00000000000000000000000000000002"
#define HOLDER  SESSION ".1" /* of lock:b */
#define WAITER  SESSION ".2" /* for lock:a */
#define LATER   "99999999999999"

/* Somebody else, written by hand: it holds lock:b and says that it waits for lock:a, since the n-th
 * millisecond. */
static void say_since(struct server *s, int n)
{
    CHECK(server_int(s, "HSET {lock:b}:wf " HOLDER " %s", keep_text(LATER " %d " WAITER " lock:a",
                                                                    n)) >= 0);
}

/* Its session listens until the connection is closed. */
static redisContext *somebody_else(struct server *s)
{
    redisContext *r = redisConnectUnix(server_socket(s));
    CHECK(r && !r->err);
    redisReply *answer = redisCommand(r, "SUBSCRIBE lock:holdfast:s:" SESSION);
    CHECK(answer && answer->type == REDIS_REPLY_ARRAY);
    freeReplyObject(answer);
    CHECK_STR(server_ask(s, "SET lock:b " HOLDER ":5:0 PX 120000"), "OK");
    CHECK_INT(server_int(s, "ZADD {lock:a}:q 5 " WAITER ":0:1000:ab:"), 1);
    say_since(s, 1);
    return r;
}

struct changer {
    struct server *s;
    struct proxy  *p;
    atomic_int     stop;
    int            changes;
};
enum { CHANGES = 24 };

/* Each question about waits is held until the circle is another one; after so many the lock is
 * free. */
static void *change_always(void *arg)
{
    struct changer *ch = arg;
    while (!atomic_load(&ch->stop) && ch->changes < CHANGES) {
        if (proxy_held(ch->p) > 0) {
            say_since(ch->s, ++ch->changes + 1);
            proxy_let_go(ch->p);
        }
        t_sleep_ms(2);
    }
    proxy_pass(ch->p);
    server_ask(ch->s, "DEL lock:b {lock:b}:wf");
    return NULL;
}

TEST_TIMEOUT(a_circle_that_is_another_one_each_time_is_no_deadlock, 120)
{
    struct server *s = server_start(NULL);
    struct changer ch = { .s = s, .p = proxy_start(s) };
    hf_client *c = client_at(proxy_url(ch.p), 20000);
    hf_lock *a = lock_of(c, "a", 120000), *b = lock_of(c, "b", 120000);
    pthread_t thread;
    lock_now(a);
    redisContext *r = somebody_else(s);
    CHECK_HF(hf_lock_acquire(b, 30000, NULL, &err), HF_EDEADLK); /* the same each time: it is one */

    proxy_when(ch.p, lua_sha[LUA_edges]);
    proxy_hold(ch.p);
    CHECK_INT(pthread_create(&thread, NULL, change_always, &ch), 0);
    hf_err e = hf_lock_acquire(b, 100000, NULL, &err);
    atomic_store(&ch.stop, 1);
    CHECK_INT(pthread_join(thread, NULL), 0);
    if (e)
        FAIL("after %d changes: %s", ch.changes, err.message);
    CHECK_INT(ch.changes, CHANGES);
    redisFree(r);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
}

/* Whether edges.lua tells of it. */
static int edges_of_b(struct server *s)
{
    const char *all = server_ask(s, "EVAL %s 4 lock:b {lock:b}:q {lock:b}:own " FENCE_KEY " 0 100",
                                 lua_text[LUA_edges]);
    return strstr(all, " " WAITER " lock:a") != NULL;
}

TEST(what_a_waiter_said_counts_until_it_ought_to_be_said_again)
{
    struct server *s = server_start(NULL);
    redisContext *r = somebody_else(s);
    CHECK_INT(edges_of_b(s), 1);
    server_ask(s, "HSET {lock:b}:wf " HOLDER " %s", "1600000000000 1 " WAITER " lock:a");
    CHECK_INT(edges_of_b(s), 0);
    say_since(s, 1);
    CHECK_INT(edges_of_b(s), 1);
    server_ask(s, "SET lock:b another.1:6:0"); /* who said so holds it no more */
    CHECK_INT(edges_of_b(s), 0);
    redisFree(r);
}
