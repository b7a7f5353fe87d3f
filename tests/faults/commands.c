/* SPDX-License-Identifier: MIT
 * commands.c - rows about what operators and other programs do to a server that works.
 */
#include <hiredis/hiredis.h>

#include "faults/lib/matrix.h"

static void on_all(struct run *r, const char *command)
{
    for (int i = 0; i < r->n; i++)
        server_ask(r->s[i], command);
}

/* Ten times a second; the servers count who had to send a script again. */
static int flush_scripts(struct run *r)
{
    long long before = run_info(r, "errorstat_NOSCRIPT", "count");
    for (int i = 0; i < 5; i++) {
        on_all(r, "SCRIPT FLUSH");
        t_sleep_ms(100);
    }
    return run_info(r, "errorstat_NOSCRIPT", "count") > before;
}

static const char busy_lua[] =
    "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end "
    "local till = now() + tonumber(ARGV[1]) while now() < till do end return 'done'";

/* Somebody's script does not end for a while. */
static int busy(struct run *r)
{
    struct server *s = run_server(r, run_any_lock());
    long long before = run_info(r, "errorstat_BUSY", "count");
    server_ask(s, "CONFIG SET busy-reply-threshold 20");
    server_ask(s, "EVAL %s 0 %d", busy_lua, 100 + (int)t_random(500));
    return run_info(r, "errorstat_BUSY", "count") > before;
}

/* The same, without an end: somebody has to kill it. */
static int kill_script(struct run *r)
{
    struct server *s = run_server(r, run_any_lock());
    long long before = run_info(r, "errorstat_BUSY", "count");
    redisContext *c = redisConnectUnix(server_socket(s));
    CHECK(c && !c->err);
    server_ask(s, "CONFIG SET busy-reply-threshold 20");
    CHECK_INT(redisAppendCommand(c, "EVAL %s 0", "while true do end"), REDIS_OK);
    for (int done = 0; !done;)
        CHECK_INT(redisBufferWrite(c, &done), REDIS_OK);
    t_sleep_ms(100 + (int64_t)t_random(500));
    int killed = strcmp(server_ask(s, "SCRIPT KILL"), "OK") == 0;
    redisFree(c);
    return killed && run_info(r, "errorstat_BUSY", "count") > before;
}

static long long kill_clients(struct run *r, int subscribers_only)
{
    long long n = 0;
    for (int i = 0; i < r->n; i++) {
        n += server_int(r->s[i], "CLIENT KILL TYPE pubsub");
        if (!subscribers_only)
            n += server_int(r->s[i], "CLIENT KILL TYPE normal SKIPME yes");
    }
    return n;
}

static int kill_all(struct run *r)
{
    if (t_random(2))
        crowd_hold(r, run_any_lock());
    return kill_clients(r, 0) >= CROWD;
}

/* Nobody hears a message for a second: every subscription ends as soon as it is there. */
static int no_wakeups(struct run *r)
{
    long long n = 0;
    for (int i = 0; i < 40; i++) {
        n += kill_clients(r, 1);
        t_sleep_ms(25);
    }
    return n >= CROWD;
}

static void limit_buffers(struct run *r)
{
    for (int i = 0; i < r->n; i++)
        CHECK_STR(server_ask(r->s[i], "CONFIG SET client-output-buffer-limit %s",
                             "pubsub 64kb 64kb 1"), "OK");
}

/* A message that is longer than a subscriber may be behind: the server closes its connection. */
static void flood(struct run *r, int i, const char *text)
{
    char *all = strdup(server_ask(r->s[i], "PUBSUB %s", r->cl ? "SHARDCHANNELS" : "CHANNELS"));
    char *rest = all, *channel;
    while ((channel = strsep(&rest, "\n")))
        if (strstr(channel, "lock:")) /* and not those of the Sentinels */
            server_ask(r->s[i], "%s %s %s", r->cl ? "SPUBLISH" : "PUBLISH", channel, text);
    free(all);
}

static int overflow(struct run *r)
{
    static char text[100000];
    memset(text, 'x', sizeof text - 1);
    int before = run_logged(r, "overcoming of output buffer limits");
    for (int k = 0; k < 20; k++) {
        for (int i = 0; i < r->n; i++)
            flood(r, i, text);
        t_sleep_ms(25);
    }
    return run_logged(r, "overcoming of output buffer limits") >= before + CROWD;
}

/* A write of our own shows how long nothing was done. Sentinels wait for three seconds. */
static int pause_clients(struct run *r)
{
    int lock = run_any_lock(), ms = 100 + (int)t_random(r->f ? 1900 : 2900);
    if (t_random(2))
        crowd_hold(r, lock);
    struct server *s = run_server(r, lock);
    CHECK_STR(server_ask(s, "CLIENT PAUSE %d %s", ms, t_random(2) ? "ALL" : "WRITE"), "OK");
    int64_t begun = t_now_ms();
    server_ask(s, "PUBLISH pause over");
    return t_now_ms() - begun >= ms / 2;
}

/* Somebody deletes everything; on Q, on one of them. */
static int flush_all(struct run *r)
{
    int lock = run_any_lock();
    crowd_hold(r, lock);
    struct server *s = run_server(r, lock);
    long long before = run_info(r, "cmdstat_flushall", "calls");
    CHECK_STR(server_ask(s, "FLUSHALL"), "OK");
    crowd_let_go(r);
    if (r->topo == 'Q')
        t_sleep_ms(r->want.ttl_ms + 500);
    return run_info(r, "cmdstat_flushall", "calls") > before;
}

static const struct row rows[] = {
    { "script_flush", "SCRIPT FLUSH, ten times a second", "SFCQ", "SC", 3, 30, .may = MAY_PASS,
      .inject = flush_scripts },
    { "busy", "a script of others that does not end", "SFCQ", "S", 3, 30, .may = MAY_PASS,
      .inject = busy },
    { "script_kill", "a script of others that ends by SCRIPT KILL", "SFCQ", "", 3, 30,
      .may = MAY_PASS, .inject = kill_script },
    { "client_kill", "CLIENT KILL of everybody", "SFCQ", "SQ", 4, 40, .may = MAY_PASS,
      .inject = kill_all },
    { "client_pause", "CLIENT PAUSE, all or writes, 0.1 to 3 s; F: 2 s", "SFCQ", "F", 3, 20,
      .may = MAY_PASS, .inject = pause_clients },
    { "no_wakeups", "no message arrives", "SFCQ", "SC", 2, 20, .may = MAY_PASS,
      .inject = no_wakeups },
    { "pubsub_limit", "client-output-buffer-limit ends subscriptions", "SFCQ", "", 2, 20,
      .may = MAY_PASS, .prepare = limit_buffers, .inject = overflow },
    { "flushall", "FLUSHALL; on Q of one", "SQ", "", 0, 20, .out = "SQ",
      .may = MAY_PASS | MAY_LOSE | MAY_FAIL, .inject = flush_all },
};
ROWS(rows)
