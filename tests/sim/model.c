/* SPDX-License-Identifier: MIT
 * model.c - the model of the server does what a server does: random commands, and random calls of
 * the scripts, on both.
 */
#include "sim/lib/model.h"

#include <ctype.h>
#include <hiredis/hiredis.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "harness/server.h"
#include "harness/t.h"

#define ARGS_MAX  40
#define TEXT_SIZE 20000
#define SLACK_MS  20000 /* the clocks of both are not the same */
#define COUNTER   1700000000000000

static redisContext *real, *subscriber;
static char listener; /* somebody who is connected to the model */

/* ---- one command on both --------------------------------------------------------------------- */

struct asked {
    int    argc;
    size_t len[ARGS_MAX];
    char   arg[ARGS_MAX][200];
    char  *text; /* of a script, in the place of arg[1]; NULL: none */
};

__attribute__((format(printf, 2, 3))) static void add(struct asked *c, const char *fmt, ...)
{
    va_list ap;
    CHECK(c->argc < ARGS_MAX);
    va_start(ap, fmt);
    c->len[c->argc] = (size_t)vsnprintf(c->arg[c->argc], sizeof c->arg[0], fmt, ap);
    va_end(ap);
    c->argc++;
}

static size_t write_reply(const redisReply *r, char *text, size_t n)
{
    switch (r->type) {
    case REDIS_REPLY_INTEGER:
        return n + (size_t)snprintf(text + n, TEXT_SIZE - n, "%lld ", r->integer);
    case REDIS_REPLY_ARRAY:
        n += (size_t)snprintf(text + n, TEXT_SIZE - n, "[ ");
        for (size_t i = 0; i < r->elements; i++)
            n = write_reply(r->element[i], text, n);
        return n + (size_t)snprintf(text + n, TEXT_SIZE - n, "] ");
    case REDIS_REPLY_ERROR: /* the rest is for people, and differs between versions */
        return n + (size_t)snprintf(text + n, TEXT_SIZE - n, "error %.*s ",
                                    (int)strcspn(r->str, " "), r->str);
    case REDIS_REPLY_NIL: return n + (size_t)snprintf(text + n, TEXT_SIZE - n, "nil ");
    default: return n + (size_t)snprintf(text + n, TEXT_SIZE - n, "'%s' ", r->str);
    }
}

static void ask_real(const struct asked *c, char *text)
{
    const char *argv[ARGS_MAX];
    size_t len[ARGS_MAX];
    for (int i = 0; i < c->argc; i++) {
        argv[i] = i == 1 && c->text ? c->text : c->arg[i];
        len[i] = strlen(argv[i]);
    }
    redisReply *r = redisCommandArgv(real, c->argc, argv, len);
    CHECK(r != NULL);
    write_reply(r, text, 0);
    freeReplyObject(r);
}

static int64_t now_us(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (int64_t)now.tv_sec * 1000000 + now.tv_usec;
}

static void ask_model(const struct asked *c, char *text)
{
    hf_bytes argv[ARGS_MAX];
    redisReader *reader = redisReaderCreate();
    void *r = NULL;
    model->now_us = now_us();
    for (int i = 0; i < c->argc; i++)
        argv[i] = hf_str(i == 1 && c->text ? c->text : c->arg[i]);
    const struct reply_text *got = model_do(NULL, NULL, c->argc, argv);
    CHECK_INT(redisReaderFeed(reader, got->p, got->len), REDIS_OK);
    CHECK_INT(redisReaderGetReply(reader, &r), REDIS_OK);
    CHECK(r != NULL);
    write_reply(r, text, 0);
    freeReplyObject(r);
    redisReaderFree(reader);
}

/* Numbers that are times may differ a little. */
static bool same_number(const char *a, size_t na, const char *b, size_t nb)
{
    long long x = strtoll(a, NULL, 10), y = strtoll(b, NULL, 10);
    bool ttl = x >= 1000 && y >= 1000 && x < 10000000 && y < 10000000;
    bool moment = na == 13 && nb == 13;
    return x == y || ((ttl || moment) && llabs(x - y) < SLACK_MS);
}

/* Scores beyond what a double holds exactly are written in other ways by newer servers. */
static bool same_huge(const char **a, const char **b)
{
    char *after_a, *after_b;
    double x = strtod(*a, &after_a), y = strtod(*b, &after_b);
    bool huge = x == y && x > 9007199254740992.0;
    if (huge) {
        *a = after_a;
        *b = after_b;
    }
    return huge;
}

static bool same(const char *a, const char *b)
{
    while (*a && *b) {
        bool digits = isdigit((unsigned char)*a) && isdigit((unsigned char)*b);
        if (digits && same_huge(&a, &b))
            continue;
        if (digits) {
            size_t na = strspn(a, "0123456789"), nb = strspn(b, "0123456789");
            if (!same_number(a, na, b, nb))
                return false;
            a += na;
            b += nb;
        } else if (*a++ != *b++) {
            return false;
        }
    }
    return *a == *b;
}

static void check(const struct asked *c)
{
    static char theirs[TEXT_SIZE + 100], ours[TEXT_SIZE + 100];
    while (now_us() / 1000 <= model->now_us / 1000) /* what comes later is later on both */
        t_sleep_ms(1);
    ask_real(c, theirs);
    ask_model(c, ours);
    if (same(theirs, ours))
        return;
    for (int i = 0; i < c->argc; i++)
        t_note("  %s", i == 1 && c->text ? "(the script)" : c->arg[i]);
    FAIL("the server: %s\n#   the model: %s", theirs, ours);
}

/* ---- random commands ------------------------------------------------------------------------- */

static const char *key(void)
{
    static const char *const all[] = { "a", "b", "c", "{a}:q", "{a}:h" };
    return all[t_random(5)];
}

static const char *member(void)
{
    static const char *const all[] = { "x", "y", "z", "xx", "" };
    return all[t_random(5)];
}

static const char *number(void)
{
    static const char *const all[] = { "0", "1", "2", "-1", "-2", "7", "100", "-100", "1.5",
                                       "9007199254740991", "9223372036854775807", "01", "1e3",
                                       "no", "" };
    return all[t_random(15)];
}

static const char *bound(void)
{
    static const char *const all[] = { "-inf", "+inf", "(1", "1", "2", "(7", "100", "no" };
    return all[t_random(8)];
}

static const char *ttl(void)
{
    static const char *const all[] = { "600000", "900000", "0", "-1", "no", "1.5" };
    return all[t_random(6)];
}

static void draw_string(struct asked *c)
{
    switch (t_random(8)) {
    case 0: add(c, "GET"); add(c, "%s", key()); break;
    case 1: add(c, "GETRANGE"); add(c, "%s", key()); add(c, "%s", number());
            add(c, "%s", number()); break;
    case 2: add(c, "SET"); add(c, "%s", key()); add(c, "%s", number()); break;
    case 3: add(c, "SET"); add(c, "%s", key()); add(c, "a longer text"); add(c, "PX");
            add(c, "%s", ttl()); break;
    case 4: add(c, "INCR"); add(c, "%s", key()); break;
    case 5: add(c, "DECR"); add(c, "%s", key()); break;
    case 6: add(c, "SET"); add(c, "%s", key()); add(c, "%s", number()); add(c, "NX"); break;
    default: add(c, "TYPE"); add(c, "%s", key());
    }
}

static void draw_key(struct asked *c)
{
    switch (t_random(6)) {
    case 0: add(c, "EXISTS"); add(c, "%s", key()); add(c, "%s", key()); break;
    case 1: add(c, "DEL"); add(c, "%s", key()); if (t_random(2)) add(c, "%s", key()); break;
    case 2: add(c, "PEXPIRE"); add(c, "%s", key()); add(c, "%s", ttl()); break;
    case 3: add(c, "RENAME"); add(c, "a"); add(c, "d"); break;
    case 4: add(c, "FLUSHALL"); break;
    default: add(c, "PTTL"); add(c, "%s", key());
    }
    if (strcmp(c->arg[0], "FLUSHALL") == 0 && t_random(20)) /* not so often */
        snprintf(c->arg[0], sizeof c->arg[0], "PING");
}

static void draw_zset(struct asked *c)
{
    static const char *const one[] = { "ZSCORE", "ZRANK", "ZREVRANK", "ZREM" };
    switch (t_random(9)) {
    case 0: add(c, "ZADD"); add(c, "%s", key()); add(c, "%s", number()); add(c, "%s", member());
            break;
    case 1: add(c, "ZADD"); add(c, "%s", key()); add(c, "NX"); add(c, "%s", number());
            add(c, "%s", member()); break;
    case 2: add(c, "ZCARD"); add(c, "%s", key()); break;
    case 3: add(c, "ZRANGE"); add(c, "%s", key()); add(c, "%s", number()); add(c, "%s", number());
            if (t_random(2)) add(c, "WITHSCORES");
            break;
    case 4: add(c, "ZRANGEBYSCORE"); add(c, "%s", key()); add(c, "%s", bound());
            add(c, "%s", bound());
            if (t_random(2)) { add(c, "LIMIT"); add(c, "%s", number()); add(c, "2"); }
            break;
    case 5: add(c, "ZREMRANGEBYSCORE"); add(c, "%s", key()); add(c, "%s", bound());
            add(c, "%s", bound()); break;
    case 6: add(c, "ZPOPMIN"); add(c, "%s", key()); break;
    case 7: add(c, "ZREM"); add(c, "%s", key()); add(c, "%s", member()); add(c, "%s", member());
            break;
    default: add(c, "%s", one[t_random(4)]); add(c, "%s", key()); add(c, "%s", member());
    }
}

static void draw_hash(struct asked *c)
{
    switch (t_random(6)) {
    case 0: add(c, "HSET"); add(c, "%s", key()); add(c, "%s", member()); add(c, "%s", number());
            break;
    case 1: add(c, "HSET"); add(c, "%s", key()); add(c, "%s", member()); add(c, "1");
            add(c, "%s", member()); add(c, "2"); break;
    case 2: add(c, "HGET"); add(c, "%s", key()); add(c, "%s", member()); break;
    case 3: add(c, "HDEL"); add(c, "%s", key()); add(c, "%s", member()); add(c, "%s", member());
            break;
    case 4: add(c, "HLEN"); add(c, "%s", key()); break;
    default: add(c, "HSTRLEN"); add(c, "%s", key()); add(c, "%s", member());
    }
}

static void begin(void)
{
    struct server *s = server_start(NULL);
    real = redisConnectUnix(server_socket(s));
    CHECK(real && !real->err);
    model_reset(1);
    /* Marks of absence name the life of the server, and may be part of an answer. */
    snprintf(model->run_id, sizeof model->run_id, "%s", server_info(s, "run_id"));
    snprintf(model->replid, sizeof model->replid, "%s", server_info(s, "master_replid"));
}

static void end(void)
{
    redisFree(real);
    if (subscriber)
        redisFree(subscriber);
}

TEST_TIMEOUT(the_model_answers_random_commands_as_a_server_does, 600)
{
    static void (*const draw[])(struct asked *c) = { draw_string, draw_key, draw_zset,
                                                       draw_hash };
    static struct asked c;
    int rounds = getenv("HF_SOAK") ? 100000 : 4000;
    begin();
    for (int i = 0; i < rounds; i++) {
        memset(&c, 0, sizeof c);
        draw[t_random(4)](&c);
        check(&c);
    }
    end();
}

/* ---- random scripts -------------------------------------------------------------------------- */

#define SESSIONS 3

static char session[SESSIONS][33];

/* The second listens on its channel, on both. */
static void begin_sessions(void)
{
    const char *channel = "lock:holdfast:s:";
    for (int i = 0; i < SESSIONS; i++) {
        memset(session[i], "1a7"[i], 32);
        session[i][32] = '\0';
    }
    char name[100];
    snprintf(name, sizeof name, "%s%s", channel, session[1]);
    hf_bytes argv[] = { hf_str("SUBSCRIBE"), hf_str(name) };
    (void)model_do(&listener, NULL, 2, argv);
    subscriber = redisConnectUnix(real->unix_sock.path);
    CHECK(subscriber && !subscriber->err);
    freeReplyObject(redisCommand(subscriber, "SUBSCRIBE %s", name));
}

static void begin_script(struct asked *c, enum op_id id, int nkeys)
{
    memset(c, 0, sizeof *c);
    add(c, "EVAL");
    add(c, "text");
    c->text = (char *)op_text(id);
    add(c, "%d", nkeys);
}

static int drawn_name;
static const char *lock_key(void)
{
    return drawn_name ? "lock:b" : "lock:a";
}

static void add_lock_keys(struct asked *c, const char *companions)
{
    add(c, "%s", lock_key());
    add(c, "lock:holdfast:fence");
    for (const char *p = companions; *p; p++) {
        const char *ending = *p == 'q' ? "q" : *p == 't' ? "t" : *p == 'o' ? "own" : "absent";
        if (*p == 'r')
            add(c, "lock:holdfast:reign");
        else
            add(c, "{%s}:%s", lock_key(), ending);
    }
}

/* With the counter, or without: both mean the same. */
static void add_lock_alone(struct asked *c, enum op_id id)
{
    bool counter = t_random(2);
    begin_script(c, id, 1 + counter);
    if (counter)
        add_lock_keys(c, "");
    else
        add(c, "%s", lock_key());
}

static const char *token(void)
{
    static char text[60];
    snprintf(text, sizeof text, "%s.%d", session[t_random(SESSIONS)], (int)t_random(4));
    return text;
}

/* What the model has for this key now: so that releases hit. */
static const char *value_of(const char *name)
{
    const struct entry *e = store_find(&model->store, hf_str(name), model_now_ms());
    return e && e->kind == ENTRY_STRING ? e->string.p : "nothing";
}

static void draw_take(struct asked *c)
{
    if (t_random(2)) {
        add_lock_alone(c, OP_acquire);
        add(c, "%s", token()); add(c, "600000"); add(c, "60000");
        if (t_random(2)) { add(c, "300000"); add(c, "abc%d", (int)t_random(3)); }
        return;
    }
    begin_script(c, OP_share, 4);
    add_lock_keys(c, "qt");
    add(c, "%s", token()); add(c, "600000"); add(c, "60000");
    add(c, "%s", t_random(2) ? "0" : "300000"); add(c, "0");
    add(c, "%d", drawn_name ? 3 : 0); add(c, "%d", (int)t_random(2) + 1);
    add(c, "abc%d", (int)t_random(3)); add(c, "1");
}

static void draw_give_back(struct asked *c)
{
    switch (t_random(4)) {
    case 0:
        add_lock_alone(c, OP_release);
        add(c, "%s", value_of(lock_key()));
        break;
    case 1:
        begin_script(c, OP_unshare, 3);
        add_lock_keys(c, "q");
        add(c, "%s", token());
        break;
    case 2:
        begin_script(c, OP_cancel, 5);
        add_lock_keys(c, "qto");
        add(c, "%s", token()); add(c, "%s", t_random(2) ? "0" : "600000"); add(c, "%s", "");
        add(c, "%s", "");
        break;
    default:
        begin_script(c, OP_downgrade, 3);
        add_lock_keys(c, "q");
        add(c, "%.*s", (int)strcspn(value_of(lock_key()), ":"), value_of(lock_key()));
        add(c, "%s", value_of(lock_key())); add(c, "600000");
    }
}

static void draw_look(struct asked *c)
{
    static const char *const mode[] = { "renew", "set", "check", "leave" };
    switch (t_random(4)) {
    case 0:
        begin_script(c, OP_look, 6);
        add_lock_keys(c, "qrao");
        add(c, "%s:60000:300000:abc%d:", token(), (int)t_random(3)); add(c, "1");
        break;
    case 1:
        begin_script(c, OP_keep, 4);
        add(c, "%s", lock_key()); add(c, "{%s}:own", lock_key()); add(c, "{%s}:t", lock_key());
        add(c, "{%s}:absent", lock_key());
        add(c, "%s", mode[t_random(4)]);
        add(c, "%.*s", (int)strcspn(value_of(lock_key()), ":"), value_of(lock_key()));
        add(c, "%s", strncmp(value_of(lock_key()), "shared", 6) == 0 ? "shared.1"
                     : strchr(value_of(lock_key()), ':') ? value_of(lock_key()) : "x:1:0");
        add(c, "%s", ""); add(c, "600000");
        break;
    case 2:
        begin_script(c, OP_held, 1);
        add(c, "%s", lock_key()); add(c, "%s", value_of(lock_key()));
        break;
    default:
        begin_script(c, OP_inspect, 3);
        add(c, "%s", lock_key()); add(c, "{%s}:own", lock_key()); add(c, "{%s}:q", lock_key());
        add(c, "10");
    }
}

/* The number of who holds it alone, as the model has it. */
static const char *number_of_holder(void)
{
    static char text[30];
    const char *p = strchr(value_of(lock_key()), ':');
    snprintf(text, sizeof text, "%.*s", p ? (int)strspn(p + 1, "0123456789") : 1, p ? p + 1 : "7");
    return text;
}

static void draw_operator(struct asked *c)
{
    static const char *const mode[] = { "mark", "look", "now" };
    switch (t_random(4)) {
    case 0:
        begin_script(c, OP_break, 7);
        add_lock_keys(c, "qraot");
        add(c, "%s", mode[t_random(3)]); add(c, "%s", number_of_holder());
        add(c, "ann@web"); add(c, "the disk is full"); add(c, "%s", ""); add(c, "600000");
        add(c, "%s", t_random(2) ? "" : token());
        break;
    case 1:
        begin_script(c, OP_ask, 4);
        add_lock_keys(c, "qo");
        add(c, "%s", t_random(2) ? "0" : number_of_holder());
        add(c, "ann@web"); add(c, "please");
        break;
    case 2:
        begin_script(c, OP_edge, 3);
        add(c, "%s", lock_key()); add(c, "{%s}:q", lock_key()); add(c, "{%s}:own", lock_key());
        if (t_random(2))
            add(c, "#%s", number_of_holder());
        else
            add(c, "%.*s", (int)strcspn(value_of(lock_key()), ":"), value_of(lock_key()));
        add(c, "%s", token()); add(c, "lock:b"); add(c, "%s", t_random(4) ? "600000" : "0");
        add(c, "1000"); add(c, "%s", t_random(2) ? "" : "1700000000000");
        break;
    default:
        begin_script(c, OP_edges, 4);
        add(c, "%s", lock_key()); add(c, "{%s}:q", lock_key()); add(c, "{%s}:own", lock_key());
        add(c, "lock:holdfast:fence");
        add(c, "0"); add(c, "100");
    }
}

/* All that both have. */
static void compare_data(void)
{
    struct asked c;
    for (size_t i = 0; i < model->store.n; i++) {
        const struct entry *e = model->store.entry[i];
        memset(&c, 0, sizeof c);
        add(&c, "%s", e->kind == ENTRY_STRING ? "GET" : e->kind == ENTRY_ZSET ? "ZRANGE" : "HLEN");
        add(&c, "%s", e->key.p);
        if (e->kind == ENTRY_ZSET) {
            add(&c, "0"); add(&c, "-1"); add(&c, "WITHSCORES");
        }
        check(&c);
        memset(&c, 0, sizeof c);
        add(&c, "PTTL"); add(&c, "%s", e->key.p);
        check(&c);
    }
    redisReply *r = redisCommand(real, "DBSIZE");
    CHECK_INT(r->integer, (long long)model->store.n);
    freeReplyObject(r);
}

TEST_TIMEOUT(the_model_runs_the_scripts_as_a_server_does, 600)
{
    static void (*const draw[])(struct asked *c) = { draw_take, draw_take, draw_give_back,
                                                       draw_look, draw_operator };
    static struct asked c;
    int rounds = getenv("HF_SOAK") ? 50000 : 2000;
    begin();
    begin_sessions();
    for (int i = 0; i < rounds; i++) {
        if (i % 300 == 0) {
            memset(&c, 0, sizeof c);
            add(&c, "FLUSHALL");
            check(&c);
            memset(&c, 0, sizeof c);
            add(&c, "SET"); add(&c, "lock:holdfast:fence"); add(&c, "%lld", (long long)COUNTER);
            check(&c);
        }
        drawn_name = (int)t_random(2);
        draw[t_random(5)](&c);
        check(&c);
        if (i % 20 == 0)
            compare_data();
    }
    end();
}
