/* SPDX-License-Identifier: MIT
 * hiredis.c - what a C programmer would write with hiredis, a connection for each thread.
 *
 *   set     SET NX PX, a look every RETRY ms (1), compare-and-delete by EVALSHA. No fencing, no
 *           queue, no renewal: the yardstick.
 *   blpop   a list with one token: BLPOP to take it, LPUSH to give it back. No lease, no safety:
 *           the least that a server can do.
 */
#include <hiredis/hiredis.h>
#include <stdint.h>
#include <stdio.h>

#include "threads.h"

struct lock {
    redisContext *c;
    char          name[300], id[40], script[41];
};

static const char release_script[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
                                     "return redis.call('del', KEYS[1]) end return 0";

static int blpop(void)
{
    return !strcmp(arg.kind, "blpop");
}

static redisReply *reply_of(struct lock *l, void *r)
{
    redisReply *reply = r;
    if (!reply)
        die(l->c->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        die(reply->str);
    return reply;
}

static struct lock *lock_open(const char *name)
{
    static pthread_mutex_t first_mu = PTHREAD_MUTEX_INITIALIZER;
    static unsigned opened;
    static int first = 1;
    struct lock *l = calloc(1, sizeof *l);
    if (!l || !(l->c = redisConnect("127.0.0.1", atoi(arg.port))) || l->c->err)
        die(l && l->c ? l->c->errstr : "no memory");
    snprintf(l->name, sizeof l->name, "%s", name);
    pthread_mutex_lock(&first_mu);
    snprintf(l->id, sizeof l->id, "%d-%u-%lld", (int)getpid(), opened++, (long long)now_ns());
    if (blpop() && (first || strcmp(arg.mode, "contended"))) { /* nobody else brings the token */
        first = 0;
        if (strcmp(arg.mode, "idle") || opened == 1)
            freeReplyObject(reply_of(l, redisCommand(l->c, "LPUSH %s x", name)));
    }
    pthread_mutex_unlock(&first_mu);
    redisReply *r = reply_of(l, redisCommand(l->c, "SCRIPT LOAD %s", release_script));
    snprintf(l->script, sizeof l->script, "%s", r->str);
    freeReplyObject(r);
    return l;
}

static void lock_take(struct lock *l)
{
    for (;;) {
        redisReply *r = reply_of(l, blpop() ? redisCommand(l->c, "BLPOP %s 0", l->name)
                                            : redisCommand(l->c, "SET %s %s NX PX %d", l->name,
                                                           l->id, LEASE_MS));
        int ours = r->type != REDIS_REPLY_NIL;
        freeReplyObject(r);
        if (ours)
            return;
        sleep_ns((arg.retry_ms ? arg.retry_ms : 1) * INT64_C(1000000));
    }
}

static void lock_give(struct lock *l)
{
    freeReplyObject(reply_of(l, blpop() ? redisCommand(l->c, "LPUSH %s x", l->name)
                                        : redisCommand(l->c, "EVALSHA %s 1 %s %s", l->script,
                                                       l->name, l->id)));
}

/* Nobody renews it, and nobody tells. */
static void lock_watch(struct lock *l)
{
    (void)l;
    sleep(600);
}

int main(int argc, char **argv)
{
    args_read(argc, argv);
    return threads_main();
}
