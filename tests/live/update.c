/* SPDX-License-Identifier: MIT
 * update.c - optimistic updates: nothing is lost, nothing is done twice. U1 to U5 of
 * src/lock/update.c.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/live.h"
#include "harness/proc.h"
#include "harness/proxy.h"

/* ---- functions that change ---- */

struct change {
    const char    *to;       /* the new value; NULL: delete */
    int            nothing;
    int            calls;
    char           seen[64]; /* the old value, or "(none)" */
    struct server *disturb;  /* let another client write in between */
    int            disturbances;
    const char    *by;       /* its command */
};

static hf_change decide(void *arg, hf_bytes old, hf_bytes *ret)
{
    struct change *ch = arg;
    ch->calls++;
    snprintf(ch->seen, sizeof ch->seen, "%.*s", old.data ? (int)old.len : 6,
             old.data ? (const char *)old.data : "(none)");
    if (ch->disturb && ch->calls <= ch->disturbances)
        server_ask(ch->disturb, ch->by ? ch->by : "SET k disturbed");
    if (ch->nothing)
        return HF_CHANGE_NOTHING;
    if (!ch->to)
        return HF_CHANGE_DELETE;
    *ret = hf_str(ch->to);
    return HF_CHANGE_SET;
}

struct adder {
    char text[32];
    long calls;
    void (*during)(void *arg); /* while the value is being computed, the first time */
    void *arg;
};

static hf_change add_one(void *arg, hf_bytes old, hf_bytes *ret)
{
    struct adder *a = arg;
    if (a->calls++ == 0 && a->during)
        a->during(a->arg);
    char text[32] = "";
    if (old.data)
        memcpy(text, old.data, old.len < 31 ? old.len : 31);
    *ret = (hf_bytes){ a->text, (size_t)snprintf(a->text, sizeof a->text, "%ld", atol(text) + 1) };
    return HF_CHANGE_SET;
}

static hf_err add(hf_client *c, const char *key)
{
    struct adder a = { .calls = 0 };
    return hf_update_run(c, hf_str(key), NULL, add_one, &a, &err);
}

/* ---- what it does ---- */

TEST(a_string_is_made_changed_left_alone_and_deleted)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "one" };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "(none)");
    CHECK_STR(server_ask(s, "GET k"), "one");
    ch.to = "";
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "one");
    CHECK_STR(server_ask(s, "GET k"), "");
    ch.to = "x";
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, ""); /* empty is not the same as none */
    ch.nothing = 1;
    server_monitor_start(s);
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_INT(server_monitor_count(s, "\"EXEC\""), 0);
    CHECK_STR(server_ask(s, "GET k"), "x");
    /* Its watch is gone with the next: nobody is disturbed by what was only looked at. */
    ch = (struct change){ .to = "other", .disturb = s, .disturbances = 1 };
    CHECK_HF(hf_update_run(c, hf_str("k2"), NULL, decide, &ch, &err), HF_OK);
    CHECK_INT(ch.calls, 1);
    ch = (struct change){ .to = NULL };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS k"), 0);
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK); /* there was none */
    CHECK_STR(ch.seen, "(none)");
    hf_client_free(c);
}

TEST(a_field_of_a_hash_is_made_changed_and_deleted_and_the_others_stay)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_update_opts o = { .size = sizeof o, .field = hf_str("f") };
    struct change ch = { .to = "one" };
    server_ask(s, "HSET h other stays");
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "(none)");
    CHECK_STR(server_ask(s, "HGET h f"), "one");
    ch.to = "two";
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "one");
    o.field = hf_str(""); /* a name like any other */
    ch.to = "nameless";
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(server_ask(s, "HGETALL h"), "other\nstays\nf\ntwo\n\nnameless");
    o.field = hf_str("f");
    ch.to = NULL;
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(server_ask(s, "HKEYS h"), "other\n");
    hf_client_free(c);
}

static hf_change turn_round(void *arg, hf_bytes old, hf_bytes *ret)
{
    char *buf = arg;
    for (size_t i = 0; i < old.len; i++)
        buf[i] = ((const char *)old.data)[old.len - 1 - i];
    *ret = (hf_bytes){ buf, old.len };
    return HF_CHANGE_SET;
}

TEST(keys_fields_and_values_are_bytes)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    char buf[300], all[256], back[256];
    size_t len;
    for (int i = 0; i < 256; i++) {
        all[i] = (char)i;
        back[255 - i] = (char)i;
    }
    hf_bytes key = { "k\0\r\n}x", 6 };
    server_ask(s, "SET %b %b", key.data, key.len, all, sizeof all);
    CHECK_HF(hf_update_run(c, key, NULL, turn_round, buf, &err), HF_OK);
    const char *got = server_ask_bytes(s, &len, "GET %b", key.data, key.len);
    CHECK_MEM(got, len, back, sizeof back);
    hf_update_opts o = { .size = sizeof o, .field = { "\0f", 2 } };
    server_ask(s, "HSET h %b %b", o.field.data, o.field.len, all, sizeof all);
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, turn_round, buf, &err), HF_OK);
    got = server_ask_bytes(s, &len, "HGET h %b", o.field.data, o.field.len);
    CHECK_MEM(got, len, back, sizeof back);
    hf_client_free(c);
}

TEST(U4_the_ttl_is_kept_set_or_taken_away)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "x" };
    hf_update_opts o = { .size = sizeof o }, f = { .size = sizeof f, .field = hf_str("f") };
    server_ask(s, "SET k v PX 50000");
    server_ask(s, "HSET h f v");
    server_ask(s, "PEXPIRE h 50000");
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL k"), 30000, 50000);
    CHECK_HF(hf_update_run(c, hf_str("h"), &f, decide, &ch, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL h"), 30000, 50000);
    o.ttl_ms = f.ttl_ms = 900000;
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL k"), 800000, 900000);
    CHECK_HF(hf_update_run(c, hf_str("h"), &f, decide, &ch, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL h"), 800000, 900000);
    o.ttl_ms = f.ttl_ms = HF_NO_TTL;
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_OK);
    CHECK_INT(server_int(s, "PTTL k"), -1);
    CHECK_HF(hf_update_run(c, hf_str("h"), &f, decide, &ch, &err), HF_OK);
    CHECK_INT(server_int(s, "PTTL h"), -1);
    hf_client_free(c);
}

TEST(U5_other_kinds_of_data_are_refused_and_left_alone)
{
    static const char *const make[] = { "LPUSH x a", "SADD x a", "ZADD x 1 a", "HSET x f v",
                                        "XADD x 1-1 a b" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "new" };
    for (size_t i = 0; i < sizeof make / sizeof *make; i++) {
        server_ask(s, "DEL x");
        server_ask(s, make[i]);
        size_t len, len2;
        const char *before = server_ask_bytes(s, &len, "DUMP x");
        CHECK_HF(hf_update_run(c, hf_str("x"), NULL, decide, &ch, &err), HF_ETYPE);
        CHECK_CONTAINS(err.message, server_ask(s, "TYPE x"));
        CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
        const char *after = server_ask_bytes(s, &len2, "DUMP x");
        CHECK_MEM(after, len2, before, len);
    }
    hf_update_opts o = { .size = sizeof o, .field = hf_str("f") };
    server_ask(s, "SET y v");
    CHECK_HF(hf_update_run(c, hf_str("y"), &o, decide, &ch, &err), HF_ETYPE);
    CHECK_CONTAINS(err.message, "and not a hash");
    CHECK_STR(server_ask(s, "GET y"), "v");
    CHECK_INT(ch.calls, 0);
    hf_client_free(c);
}

static hf_change blow_up(void *arg, hf_bytes old, hf_bytes *ret)
{
    (void)old;
    *ret = *(hf_bytes *)arg;
    return HF_CHANGE_SET;
}

TEST(U5_values_that_are_too_large_are_refused_and_left_alone)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_bytes big = { calloc(1, HF_VALUE_MAX + 1), HF_VALUE_MAX };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, blow_up, &big, &err), HF_OK);
    CHECK_INT(server_int(s, "STRLEN k"), HF_VALUE_MAX);
    /* read and written */
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, blow_up, &big, &err), HF_OK);
    big.len++;
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, blow_up, &big, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "more than 1048576 bytes");
    CHECK_INT(server_int(s, "STRLEN k"), HF_VALUE_MAX);
    server_ask(s, "APPEND k x"); /* too large already */
    struct change ch = { .to = "small" };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_EINVAL);
    server_ask(s, "HSET h f %b", big.data, big.len);
    hf_update_opts o = { .size = sizeof o, .field = hf_str("f") };
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_EINVAL);
    CHECK_INT(ch.calls, 0);
    CHECK_INT(server_int(s, "HSTRLEN h f"), HF_VALUE_MAX + 1);
    o.max_size = 4;
    server_ask(s, "HSET h f 1234");
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_EINVAL); /* "small" is 5 */
    ch.to = "tiny";
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    free((void *)big.data);
    hf_client_free(c);
}

TEST(arguments_that_are_wrong_are_told)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "x" };
    char big[1025] = { 0 };
    CHECK_HF(hf_update_run(c, hf_str(""), NULL, decide, &ch, &err), HF_EINVAL);
    CHECK_HF(hf_update_run(c, (hf_bytes){ big, 1025 }, NULL, decide, &ch, &err), HF_EINVAL);
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, NULL, &ch, &err), HF_EINVAL);
    CHECK_HF(hf_update_run(c, hf_str("k"), &(hf_update_opts){ .size = 1 }, decide, &ch, &err),
             HF_EINVAL);
    hf_update_opts o = { .size = sizeof o, .ttl_ms = -2 };
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_EINVAL);
    o = (hf_update_opts){ .size = sizeof o, .max_size = HF_VALUE_MAX + 1 };
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_EINVAL);
    CHECK_INT(ch.calls, 0);
    CHECK_INT(server_int(s, "EXISTS k"), 0);
    hf_client_free(c);
}

/* ---- under contention ---- */

TEST(U1_what_was_written_meanwhile_is_not_overwritten)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "mine", .disturb = s, .disturbances = 3 };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_INT(ch.calls, 4);
    CHECK_STR(ch.seen, "disturbed");
    CHECK_STR(server_ask(s, "GET k"), "mine");
    /* Deleted meanwhile, made meanwhile, expired meanwhile. */
    ch = (struct change){ .to = "mine", .disturb = s, .disturbances = 1, .by = "DEL k" };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "(none)");
    hf_update_opts o = { .size = sizeof o, .field = hf_str("f") };
    ch = (struct change){ .to = "mine", .disturb = s, .disturbances = 1, .by = "HSET h f theirs" };
    CHECK_HF(hf_update_run(c, hf_str("h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "theirs");
    CHECK_INT(ch.calls, 2);
    ch = (struct change){ .to = NULL, .disturb = s, .disturbances = 1, .by = "SET k newer" };
    CHECK_HF(hf_update_run(c, hf_str("k"), NULL, decide, &ch, &err), HF_OK);
    CHECK_STR(ch.seen, "newer");
    CHECK_INT(server_int(s, "EXISTS k"), 0);
    hf_client_free(c);
}

TEST(U3_conflict_tells_the_number_of_tries_and_nothing_was_written)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct change ch = { .to = "mine", .disturb = s, .disturbances = 1000 };
    hf_update_opts o = { .size = sizeof o, .tries = 7 };
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_ECONFLICT);
    CHECK_INT(ch.calls, 7);
    CHECK_CONTAINS(err.message, "7 tries");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_STR(server_ask(s, "GET k"), "disturbed");
    o.tries = 1;
    ch.calls = 0;
    CHECK_HF(hf_update_run(c, hf_str("k"), &o, decide, &ch, &err), HF_ECONFLICT);
    CHECK_INT(ch.calls, 1);
    hf_client_free(c);
}

static void add_many(int index, void *arg)
{
    (void)index;
    hf_client *c = client_at(server_url(arg), 0);
    for (int i = 0; i < 50; i++)
        CHECK_HF(add(c, "count"), HF_OK);
    hf_client_free(c);
}

TEST(U1_processes_that_count_together_lose_nothing)
{
    struct server *s = server_start(NULL);
    workers_run(6, add_many, s, 50000);
    CHECK_STR(server_ask(s, "GET count"), "300");
}

static void *add_in_thread(void *arg)
{
    for (int i = 0; i < 40; i++)
        CHECK_HF(add(arg, "count"), HF_OK);
    return NULL;
}

TEST(U1_threads_of_one_client_lose_nothing_and_one_connection_is_kept)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    pthread_t t[6];
    long long before = atoll(server_info(s, "connected_clients"));
    for (int i = 0; i < 6; i++)
        CHECK_INT(pthread_create(&t[i], NULL, add_in_thread, c), 0);
    for (int i = 0; i < 6; i++)
        pthread_join(t[i], NULL);
    CHECK_STR(server_ask(s, "GET count"), "240");
    CHECK_EVENTUALLY(atoll(server_info(s, "connected_clients")) == before + 1, 5000);
    long long made = atoll(server_info(s, "total_connections_received"));
    for (int i = 0; i < 20; i++)
        CHECK_HF(add(c, "count"), HF_OK);
    CHECK_INT(atoll(server_info(s, "total_connections_received")), made);
    hf_client_free(c);
    CHECK_EVENTUALLY(atoll(server_info(s, "connected_clients")) == before - 1, 5000);
}

static void update_another(void *arg)
{
    CHECK_HF(add(arg, "inner"), HF_OK);
}

TEST(the_function_may_update_another_key_meanwhile)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct adder a = { .during = update_another, .arg = c };
    CHECK_HF(hf_update_run(c, hf_str("outer"), NULL, add_one, &a, &err), HF_OK);
    CHECK_INT(a.calls, 1);
    CHECK_STR(server_ask(s, "MGET outer inner"), "1\n1");
    hf_client_free(c);
}

/* ---- faults ---- */

struct cut {
    struct proxy *p;
    size_t        after; /* bytes of reply */
};

static void cut_the_reply_of_exec(void *arg)
{
    struct cut *cut = arg;
    proxy_when(cut->p, "EXEC");
    proxy_cut_after(cut->p, cut->after);
}

/* "+OK", two times "+QUEUED" and "*2 +OK +OK": 38 bytes, of which any number may come. */
TEST(U2_the_connection_cut_at_every_byte_of_the_reply_writes_once)
{
    struct server *s = server_start(NULL);
    struct cut cut = { .p = proxy_start(s) };
    hf_client *c = client_at(proxy_url(cut.p), 5000);
    int n = 0, found_written = 0;
    for (; cut.after <= 38; cut.after++) {
        struct adder a = { .during = cut_the_reply_of_exec, .arg = &cut };
        long cuts = proxy_cuts(cut.p);
        CHECK_HF(hf_update_run(c, hf_str("n"), NULL, add_one, &a, &err), HF_OK);
        if (proxy_cuts(cut.p) == cuts) { /* all of the reply was through: the next one pays */
            CHECK(cut.after > 30);
            proxy_pass(cut.p);
        }
        found_written += a.calls == 1; /* else the cut came before EXEC was read */
        CHECK_INT(server_int(s, "INCRBY n 0"), ++n);
    }
    CHECK(proxy_cuts(cut.p) >= 30);
    CHECK(found_written > 0);
    hf_client_free(c);
}

static void hold_exec(void *arg)
{
    proxy_when(arg, "EXEC");
    proxy_hold(arg);
}

static void *lose_what_is_held(void *arg)
{
    CHECK_EVENTUALLY(proxy_held(arg) > 0, 5000);
    proxy_break(arg);
    proxy_pass(arg);
    return NULL;
}

TEST(U2_an_exec_that_never_arrived_is_found_out_and_done_again)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    for (int i = 1; i <= 5; i++) {
        struct adder a = { .during = hold_exec, .arg = p };
        pthread_t t;
        CHECK_INT(pthread_create(&t, NULL, lose_what_is_held, p), 0);
        CHECK_HF(hf_update_run(c, hf_str("n"), NULL, add_one, &a, &err), HF_OK);
        pthread_join(t, NULL);
        CHECK_INT(a.calls, 2);
        CHECK_INT(server_int(s, "INCRBY n 0"), i);
    }
    hf_client_free(c);
}

TEST(U2_unsure_is_the_answer_when_nobody_can_be_asked_and_it_says_so)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1200);
    struct adder a = { .during = hold_exec, .arg = p };
    CHECK_HF(hf_update_run(c, hf_str("n"), NULL, add_one, &a, &err), HF_EUNSURE);
    CHECK(proxy_held(p) > 0);
    CHECK_INT(err.known, HF_KNOWN_NOTHING);
    CHECK_CONTAINS(err.message, "once or not at all");
    proxy_pass(p); /* it arrives late, and the question after it */
    CHECK_EVENTUALLY(server_int(s, "EXISTS n") == 1, 5000);
    CHECK_STR(server_ask(s, "GET n"), "1");
    CHECK_HF(add(c, "n"), HF_OK);
    CHECK_STR(server_ask(s, "GET n"), "2");
    hf_client_free(c);
}

/* Whoever asks first decides: after the question was answered with no, a late EXEC is refused. */
TEST(U2_an_exec_that_arrives_after_the_question_writes_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1200);
    server_monitor_start(s);
    struct adder a = { .during = hold_exec, .arg = p };
    CHECK_HF(hf_update_run(c, hf_str("n"), NULL, add_one, &a, &err), HF_EUNSURE);
    char mark[128] = "";
    const char *at = strstr(server_monitor_text(s), "\"{n}:");
    CHECK(at && sscanf(at, "\"%127[^\"]\"", mark) == 1);
    CHECK_CONTAINS(mark, ":u");
    for (int i = 0; i < 3; i++) /* the same answer every time */
        CHECK_INT(server_int(s, "EVAL %s 1 %s 1 60000", lua_text[LUA_resolve], mark), 0);
    CHECK(proxy_held(p) > 0);
    proxy_pass(p);
    CHECK_EVENTUALLY(server_monitor_count(s, "\"EXEC\"") == 1, 5000);
    CHECK_INT(server_int(s, "EXISTS n"), 0);
    CHECK_HF(add(c, "n"), HF_OK);
    CHECK_STR(server_ask(s, "GET n"), "1");
    hf_client_free(c);
}

TEST(U2_a_mark_of_another_kind_hurts_nobody)
{
    struct server *s = server_start(NULL);
    server_ask(s, "LPUSH mark x");
    CHECK_INT(server_int(s, "EVAL %s 1 mark 1 60000", lua_text[LUA_resolve]), 0);
    server_ask(s, "SET mark 1");
    CHECK_INT(server_int(s, "EVAL %s 1 mark 1 60000", lua_text[LUA_resolve]), 1);
    CHECK_INT(server_int(s, "EVAL %s 1 mark 1 60000", lua_text[LUA_resolve]), 1);
}

TEST(what_stays_beside_the_key_ends_by_itself)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    for (int i = 0; i < 10; i++)
        CHECK_HF(add(c, "n"), HF_OK);
    hf_client_free(c);
    CHECK_INT(server_int(s, "DBSIZE"), 2); /* n and its mark: no number was taken */
    CHECK_RANGE(server_int(s, "EVAL %s 0",
                           "return redis.call('PTTL', redis.call('KEYS', '{n}:*:u')[1])"),
                1, 10 * 60000);
}

static void restart(void *arg)
{
    server_kill(arg);
    server_restart(arg);
}

TEST(U3_a_server_that_restarts_meanwhile_costs_a_try_and_no_update)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_at(server_url(s), 10000);
    CHECK_HF(add(c, "n"), HF_OK);
    restart(s); /* the kept connection is dead */
    CHECK_HF(add(c, "n"), HF_OK);
    CHECK_STR(server_ask(s, "GET n"), "2");
    struct adder a = { .during = restart, .arg = s };
    CHECK_HF(hf_update_run(c, hf_str("n"), NULL, add_one, &a, &err), HF_OK);
    CHECK_INT(a.calls, 2);
    CHECK_STR(server_ask(s, "GET n"), "3");
    hf_client_free(c);
}

TEST(U3_a_server_that_is_gone_or_full_or_a_replica_is_told_and_nothing_is_written)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 1500);
    server_ask(s, "CONFIG SET maxmemory 1");
    CHECK_HF(add(c, "n"), HF_ESERVER);
    CHECK_CONTAINS(err.message, "maxmemory");
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    server_ask(s, "CONFIG SET maxmemory 0");
    CHECK_INT(server_int(s, "EXISTS n"), 0);
    server_ask(s, "REPLICAOF 127.0.0.1 1");
    CHECK_HF(add(c, "n"), HF_ESERVER);
    CHECK_CONTAINS(err.message, "replica");
    server_ask(s, "REPLICAOF NO ONE");
    CHECK_INT(server_int(s, "EXISTS n"), 0);
    server_ask(s, "ACL SETUSER default -watch");
    CHECK_HF(add(c, "n"), HF_EAUTH);
    CHECK_CONTAINS(err.message, "docs/acl.md");
    server_ask(s, "ACL SETUSER default +watch -set");
    CHECK_HF(add(c, "n"), HF_EAUTH);
    server_ask(s, "ACL SETUSER default +set");
    CHECK_HF(add(c, "n"), HF_OK);
    server_kill(s);
    CHECK_HF(add(c, "n"), HF_ECONN);
    hf_client_free(c);
}

static void add_until_killed(int index, void *arg)
{
    (void)index;
    hf_client *c = client_at(server_url(arg), 0);
    for (;;)
        (void)!add(c, "n");
}

TEST(U1_killed_updaters_leave_nothing_that_blocks)
{
    struct server *s = server_start(NULL);
    struct workers *w = workers_start(3, add_until_killed, s);
    CHECK_EVENTUALLY(server_int(s, "INCRBY n 0") > 50, 20000);
    for (int i = 0; i < 3; i++)
        workers_signal(w, i, SIGKILL);
    workers_join(w, 10000);
    hf_client *c = client_at(server_url(s), 0);
    long long before = server_int(s, "INCRBY n 0");
    CHECK_HF(add(c, "n"), HF_OK);
    CHECK_INT(server_int(s, "INCRBY n 0"), before + 1);
    hf_client_free(c);
}

/* docs/acl.md: what a user needs beside the rights for locks. */
TEST(the_rights_that_the_page_names_are_enough)
{
    struct server *s = server_start(NULL);
    CHECK_STR(server_ask(s, "ACL SETUSER app reset on >secret ~lock:* ~{lock:* "
                            "resetchannels &lock:holdfast:s:* "
                            "+eval +evalsha +info +time +get +set +getrange +exists +incr +decr "
                            "+del +type +pttl +pexpire +hset +hget +hstrlen +pubsub|numsub ~my:* "
                            "~{my:* +watch +unwatch +multi +exec +hdel +persist +client|setname"),
              "OK");
    char with_user[256];
    snprintf(with_user, sizeof with_user, "unix://app:secret@%s", server_socket(s));
    hf_client *c = client_at(with_user, 0);
    hf_update_opts o = { .size = sizeof o, .ttl_ms = HF_NO_TTL };
    struct change ch = { .to = "x" };
    CHECK_HF(hf_update_run(c, hf_str("my:k"), &o, decide, &ch, &err), HF_OK);
    ch.nothing = 1;
    CHECK_HF(hf_update_run(c, hf_str("my:k"), &o, decide, &ch, &err), HF_OK);
    ch = (struct change){ .to = NULL };
    CHECK_HF(hf_update_run(c, hf_str("my:k"), &o, decide, &ch, &err), HF_OK);
    o.field = hf_str("f");
    ch.to = "x";
    CHECK_HF(hf_update_run(c, hf_str("my:h"), &o, decide, &ch, &err), HF_OK);
    o.ttl_ms = 60000;
    CHECK_HF(hf_update_run(c, hf_str("my:h"), &o, decide, &ch, &err), HF_OK);
    ch.to = NULL;
    CHECK_HF(hf_update_run(c, hf_str("my:h"), &o, decide, &ch, &err), HF_OK);
    CHECK_STR(server_ask(s, "ACL LOG"), "");
    CHECK_HF(hf_update_run(c, hf_str("other"), NULL, decide, &ch, &err), HF_EAUTH);
    CHECK_CONTAINS(err.message, "docs/acl.md");
    hf_client_free(c);
}

static void in_child(int index, void *arg)
{
    (void)index;
    CHECK_HF(add(arg, "n"), HF_EFORK);
    hf_value *v = NULL;
    CHECK_HF(hf_once_get(arg, hf_str("v"), &v, &err), HF_EFORK);
    hf_client_free(arg); /* the kept connection is the parent's */
}

TEST(a_forked_child_touches_nothing_of_its_parents)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    CHECK_HF(add(c, "n"), HF_OK);
    long long made = atoll(server_info(s, "total_connections_received"));
    workers_run(2, in_child, c, 10000);
    CHECK_HF(add(c, "n"), HF_OK);
    CHECK_INT(atoll(server_info(s, "total_connections_received")), made);
    CHECK_STR(server_ask(s, "GET n"), "2");
    hf_client_free(c);
}
