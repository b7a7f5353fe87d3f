/* SPDX-License-Identifier: MIT
 * commands.c - the commands of the model server.
 */
#include "sim/lib/commands.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"

#define WRONGTYPE "WRONGTYPE Operation against a key holding the wrong kind of value"
#define NOT_WHOLE "ERR value is not an integer or out of range"
#define NOT_FLOAT "ERR value is not a valid float"
#define SYNTAX    "ERR syntax error"

/* ---- answers --------------------------------------------------------------------------------- */

static struct {
    char  *p;
    size_t used, room;
    void  *old[64]; /* full ones, until the reset */
    size_t nold;
} arena;

void *arena_get(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (arena.used + size > arena.room) {
        CHECK(arena.nold < 64);
        if (arena.p)
            arena.old[arena.nold++] = arena.p;
        arena.room = size > 65536 ? size : 65536;
        arena.p = malloc(arena.room);
        arena.used = 0;
    }
    void *p = arena.p + arena.used;
    arena.used += size;
    return p;
}

void arena_reset(void)
{
    while (arena.nold)
        free(arena.old[--arena.nold]);
    arena.used = 0;
}

struct rep rep_int(int64_t n)
{
    return (struct rep){ .type = REP_INT, .n = n };
}

struct rep rep_bulk(const void *p, size_t len)
{
    char *copy = arena_get(len + 1);
    if (len)
        memcpy(copy, p, len);
    copy[len] = '\0';
    return (struct rep){ .type = REP_BULK, .p = copy, .len = len };
}

struct rep rep_status(const char *text)
{
    return (struct rep){ .type = REP_STATUS, .p = text, .len = strlen(text) };
}

struct rep rep_error(const char *text)
{
    return (struct rep){ .type = REP_ERROR, .p = text, .len = strlen(text) };
}

struct rep rep_array(size_t n)
{
    return (struct rep){ .type = REP_ARRAY, .n = (int64_t)n,
                         .item = arena_get((n + 1) * sizeof(struct rep)) };
}

static struct rep rep_text(const struct text *t)
{
    return rep_bulk(t->p, t->len);
}

static struct rep rep_double(double d)
{
    char text[64];
    int n = d == floor(d) && fabs(d) < 9007199254740992.0
                ? snprintf(text, sizeof text, "%lld", (long long)d)
                : snprintf(text, sizeof text, "%.17g", d);
    return rep_bulk(text, (size_t)n);
}

size_t put_digits(char *ret, int64_t n)
{
    char text[24];
    size_t at = sizeof text, sign = n < 0;
    uint64_t left = sign ? 0 - (uint64_t)n : (uint64_t)n;
    do
        text[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (sign)
        text[--at] = '-';
    memcpy(ret, text + at, sizeof text - at);
    return sizeof text - at;
}

/* ---- arguments ------------------------------------------------------------------------------- */

/* As the server has it: no spaces, no plus, no zeros in front. */
bool whole_number(hf_bytes b, int64_t *ret)
{
    char text[24], *end;
    const char *p = b.data;
    size_t digits = b.len - (b.len && p[0] == '-');
    if (b.len == 0 || b.len > 20 || digits == 0)
        return false;
    memcpy(text, p, b.len);
    text[b.len] = '\0';
    const char *first = text + (text[0] == '-');
    if (strspn(first, "0123456789") != digits || (first[0] == '0' && (digits > 1 || p[0] == '-')))
        return false;
    *ret = strtoll(text, &end, 10);
    return *ret != INT64_MAX || strcmp(text, "9223372036854775807") == 0;
}

static bool real_number(hf_bytes b, double *ret)
{
    char text[64], *end;
    if (b.len == 0 || b.len >= sizeof text)
        return false;
    memcpy(text, b.data, b.len);
    text[b.len] = '\0';
    *ret = strtod(text, &end);
    return *end == '\0' && text[0] != ' ' && !isnan(*ret);
}

/* A bound of a range of scores. */
static bool bound(hf_bytes b, double *ret, bool *ret_open)
{
    *ret_open = b.len && *(const char *)b.data == '(';
    if (*ret_open)
        b = (hf_bytes){ (const char *)b.data + 1, b.len - 1 };
    return real_number(b, ret);
}

static struct entry *find(hf_bytes key)
{
    return store_find(&model->store, key, model_now_ms());
}

/* The entry, or NULL; false: it is of another kind. */
static bool find_kind(hf_bytes key, enum entry_kind kind, struct entry **ret)
{
    *ret = find(key);
    return !*ret || (*ret)->kind == kind;
}

static struct entry *find_or_new(hf_bytes key, enum entry_kind kind)
{
    struct entry *e = find(key);
    return e ? e : store_new(&model->store, key, kind);
}

static void drop_if_empty(struct entry *e)
{
    if (e->n == 0)
        store_remove(&model->store, e);
}

/* ---- keys and strings ------------------------------------------------------------------------ */

static struct rep do_get(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_STRING, &e))
        return rep_error(WRONGTYPE);
    return e ? rep_text(&e->string) : (struct rep){ .type = REP_NIL };
}

/* The part of n that is meant by first and last, which may count from the end. */
static bool part_of(int64_t n, int64_t *first, int64_t *last)
{
    if (*first < 0)
        *first = *first + n < 0 ? 0 : *first + n;
    if (*last < 0)
        *last += n;
    if (*last >= n)
        *last = n - 1;
    return *first <= *last && *first < n;
}

static struct rep do_getrange(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t first, last;
    (void)argc;
    if (!whole_number(argv[2], &first) || !whole_number(argv[3], &last))
        return rep_error(NOT_WHOLE);
    if (!find_kind(argv[1], ENTRY_STRING, &e))
        return rep_error(WRONGTYPE);
    if (!e || (first < 0 && last < 0 && first > last))
        return rep_bulk("", 0);
    if (last < 0) /* before the beginning is the beginning */
        last = last + (int64_t)e->string.len < 0 ? 0 : last + (int64_t)e->string.len;
    if (!part_of((int64_t)e->string.len, &first, &last))
        return rep_bulk("", 0);
    return rep_bulk(e->string.p + first, (size_t)(last - first) + 1);
}

static struct rep do_set(int argc, const hf_bytes *argv)
{
    int64_t ttl = 0;
    bool nx = false, xx = false;
    for (int i = 3; i < argc; i++) {
        if (same_word(argv[i], "NX")) {
            nx = true;
        } else if (same_word(argv[i], "XX")) {
            xx = true;
        } else if (same_word(argv[i], "PX") && i + 1 < argc) {
            if (!whole_number(argv[++i], &ttl))
                return rep_error(NOT_WHOLE);
            if (ttl <= 0)
                return rep_error("ERR invalid expire time in 'set' command");
        } else {
            FAIL("the model knows no SET with %.*s", (int)argv[i].len, (const char *)argv[i].data);
        }
    }
    const struct entry *old = find(argv[1]);
    if ((nx && old) || (xx && !old))
        return (struct rep){ .type = REP_NIL };
    struct entry *e = store_new(&model->store, argv[1], ENTRY_STRING);
    text_set(&e->string, argv[2].data, argv[2].len);
    e->ends_ms = ttl ? model_now_ms() + ttl : STORE_NO_TTL;
    return rep_status("OK");
}

static struct rep add(hf_bytes key, int64_t by)
{
    struct entry *e;
    int64_t n = 0;
    char text[32];
    if (!find_kind(key, ENTRY_STRING, &e))
        return rep_error(WRONGTYPE);
    if (e && !whole_number((hf_bytes){ e->string.p, e->string.len }, &n))
        return rep_error(NOT_WHOLE);
    if (__builtin_add_overflow(n, by, &n))
        return rep_error("ERR increment or decrement would overflow");
    if (!e)
        e = store_new(&model->store, key, ENTRY_STRING);
    int len = snprintf(text, sizeof text, "%lld", (long long)n);
    text_set(&e->string, text, (size_t)len);
    return rep_int(n);
}

static struct rep do_incr(int argc, const hf_bytes *argv)
{
    (void)argc;
    return add(argv[1], 1);
}

static struct rep do_decr(int argc, const hf_bytes *argv)
{
    (void)argc;
    return add(argv[1], -1);
}

static struct rep do_exists(int argc, const hf_bytes *argv)
{
    int64_t n = 0;
    for (int i = 1; i < argc; i++)
        n += find(argv[i]) != NULL;
    return rep_int(n);
}

static struct rep do_del(int argc, const hf_bytes *argv)
{
    int64_t n = 0;
    for (int i = 1; i < argc; i++) {
        struct entry *e = find(argv[i]);
        n += e != NULL;
        if (e)
            store_remove(&model->store, e);
    }
    return rep_int(n);
}

static struct rep do_pexpire(int argc, const hf_bytes *argv)
{
    int64_t ms;
    (void)argc;
    if (!whole_number(argv[2], &ms))
        return rep_error(NOT_WHOLE);
    struct entry *e = find(argv[1]);
    if (!e)
        return rep_int(0);
    if (ms <= 0)
        store_remove(&model->store, e);
    else
        e->ends_ms = model_now_ms() + ms;
    return rep_int(1);
}

static struct rep do_pttl(int argc, const hf_bytes *argv)
{
    const struct entry *e = find(argv[1]);
    (void)argc;
    if (!e)
        return rep_int(-2);
    return rep_int(e->ends_ms == STORE_NO_TTL ? -1 : e->ends_ms - model_now_ms());
}

static struct rep do_type(int argc, const hf_bytes *argv)
{
    static const char *const name[] = { "string", "zset", "hash" };
    const struct entry *e = find(argv[1]);
    (void)argc;
    return rep_status(e ? name[e->kind] : "none");
}

static struct rep do_rename(int argc, const hf_bytes *argv)
{
    struct entry *e = find(argv[1]), *old;
    (void)argc;
    if (!e)
        return rep_error("ERR no such key");
    struct entry *to = store_new(&model->store, argv[2], e->kind);
    struct text key = to->key;
    uint32_t hash = to->hash;
    old = find(argv[1]);
    if (!old) /* onto itself */
        FAIL("the model does not rename a key to itself");
    *to = *old;
    to->key = key;
    to->hash = hash;
    old->element = NULL;
    old->n = 0;
    old->string = (struct text){ NULL, 0 };
    store_remove(&model->store, old);
    return rep_status("OK");
}

static struct rep do_flushall(int argc, const hf_bytes *argv)
{
    (void)argc, (void)argv;
    store_clear(&model->store);
    return rep_status("OK");
}

/* All of them in one step. */
static struct rep do_scan(int argc, const hf_bytes *argv)
{
    char pattern[512] = "*";
    for (int i = 2; i + 1 < argc; i += 2)
        if (same_word(argv[i], "MATCH"))
            snprintf(pattern, sizeof pattern, "%.*s", (int)argv[i + 1].len,
                     (const char *)argv[i + 1].data);
    store_expire(&model->store, model_now_ms());
    struct rep keys = rep_array(model->store.n), both = rep_array(2);
    keys.n = 0;
    for (size_t i = 0; i < model->store.n; i++)
        if (fnmatch(pattern, model->store.entry[i]->key.p, 0) == 0)
            keys.item[keys.n++] = rep_text(&model->store.entry[i]->key);
    both.item[0] = rep_bulk("0", 1);
    both.item[1] = keys;
    return both;
}

/* ---- sorted sets ----------------------------------------------------------------------------- */

static struct rep do_zadd(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t added = 0;
    bool nx = argc > 2 && same_word(argv[2], "NX");
    int at = nx ? 3 : 2;
    if (argc < at + 2 || (argc - at) % 2)
        return rep_error(SYNTAX);
    double score;
    for (int i = at; i < argc; i += 2)
        if (!real_number(argv[i], &score))
            return rep_error(NOT_FLOAT);
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    e = find_or_new(argv[1], ENTRY_ZSET);
    for (int i = at; i < argc; i += 2) {
        (void)real_number(argv[i], &score);
        if (!nx || entry_place(e, argv[i + 1]) == e->n)
            added += entry_put(e, argv[i + 1], score, hf_str(""));
    }
    return rep_int(added);
}

static struct rep do_zrem(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t n = 0;
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    for (int i = 2; e && i < argc; i++) {
        size_t at = entry_place(e, argv[i]);
        if (at < e->n) {
            entry_drop(e, at);
            n++;
        }
    }
    if (e)
        drop_if_empty(e);
    return rep_int(n);
}

static struct rep do_zcard(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    return rep_int(e ? (int64_t)e->n : 0);
}

static struct rep do_zscore(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    size_t at = e ? entry_place(e, argv[2]) : 0;
    return e && at < e->n ? rep_double(e->element[at].score) : (struct rep){ .type = REP_NIL };
}

static struct rep do_zrank(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    size_t at = e ? entry_place(e, argv[2]) : 0;
    if (!e || at == e->n)
        return (struct rep){ .type = REP_NIL };
    return rep_int((int64_t)(same_word(argv[0], "ZREVRANK") ? e->n - 1 - at : at));
}

static struct rep list(const struct entry *e, size_t first, size_t n, bool scores)
{
    struct rep all = rep_array(scores ? 2 * n : n);
    for (size_t i = 0; i < n; i++) {
        all.item[scores ? 2 * i : i] = rep_text(&e->element[first + i].name);
        if (scores)
            all.item[2 * i + 1] = rep_double(e->element[first + i].score);
    }
    return all;
}

static struct rep do_zrange(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t first, last;
    bool scores = argc == 5 && same_word(argv[4], "WITHSCORES");
    if (!whole_number(argv[2], &first) || !whole_number(argv[3], &last))
        return rep_error(NOT_WHOLE);
    if (argc > 4 && !scores)
        FAIL("the model knows no ZRANGE with that");
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    if (!e || !part_of((int64_t)e->n, &first, &last))
        return rep_array(0);
    return list(e, (size_t)first, (size_t)(last - first) + 1, scores);
}

/* Which elements of e have a score between; *ret_n. */
static size_t between(const struct entry *e, hf_bytes low, hf_bytes high, size_t *ret_n, bool *ok)
{
    double min, max;
    bool above, below;
    *ret_n = 0;
    *ok = bound(low, &min, &above) && bound(high, &max, &below);
    if (!*ok || !e)
        return 0;
    size_t first = 0;
    while (first < e->n
           && (e->element[first].score < min || (above && e->element[first].score == min)))
        first++;
    size_t end = first;
    while (end < e->n && (e->element[end].score < max || (!below && e->element[end].score == max)))
        end++;
    *ret_n = end - first;
    return first;
}

static struct rep do_zrangebyscore(int argc, const hf_bytes *argv)
{
    struct entry *e;
    size_t n;
    bool ok;
    int64_t offset = 0, count = -1;
    if (argc == 7 && same_word(argv[4], "LIMIT")) {
        if (!whole_number(argv[5], &offset) || !whole_number(argv[6], &count))
            return rep_error(NOT_WHOLE);
    } else if (argc != 4) {
        FAIL("the model knows no ZRANGEBYSCORE with that");
    }
    bool kind = find_kind(argv[1], ENTRY_ZSET, &e);
    size_t first = between(kind ? e : NULL, argv[2], argv[3], &n, &ok);
    if (!ok)
        return rep_error("ERR min or max is not a float");
    if (!kind)
        return rep_error(WRONGTYPE);
    if (!e || offset < 0 || (size_t)offset >= n)
        return rep_array(0);
    n -= (size_t)offset;
    return list(e, first + (size_t)offset, count >= 0 && (size_t)count < n ? (size_t)count : n,
                false);
}

static struct rep do_zremrangebyscore(int argc, const hf_bytes *argv)
{
    struct entry *e;
    size_t n;
    bool ok, kind = find_kind(argv[1], ENTRY_ZSET, &e);
    (void)argc;
    size_t first = between(kind ? e : NULL, argv[2], argv[3], &n, &ok);
    if (!ok)
        return rep_error("ERR min or max is not a float");
    if (!kind)
        return rep_error(WRONGTYPE);
    for (size_t i = 0; i < n; i++)
        entry_drop(e, first);
    if (e)
        drop_if_empty(e);
    return rep_int((int64_t)n);
}

static struct rep do_zpopmin(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_ZSET, &e))
        return rep_error(WRONGTYPE);
    if (!e)
        return rep_array(0);
    struct rep one = list(e, 0, 1, true);
    entry_drop(e, 0);
    drop_if_empty(e);
    return one;
}

/* ---- hashes ---------------------------------------------------------------------------------- */

static struct rep do_hset(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t added = 0;
    if (argc < 4 || argc % 2)
        return rep_error("ERR wrong number of arguments for 'hset' command");
    if (!find_kind(argv[1], ENTRY_HASH, &e))
        return rep_error(WRONGTYPE);
    e = find_or_new(argv[1], ENTRY_HASH);
    for (int i = 2; i < argc; i += 2)
        added += entry_put(e, argv[i], 0, argv[i + 1]);
    return rep_int(added);
}

static struct rep do_hget(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_HASH, &e))
        return rep_error(WRONGTYPE);
    size_t at = e ? entry_place(e, argv[2]) : 0;
    return e && at < e->n ? rep_text(&e->element[at].value) : (struct rep){ .type = REP_NIL };
}

static struct rep do_hstrlen(int argc, const hf_bytes *argv)
{
    struct rep found = do_hget(argc, argv);
    return found.type == REP_ERROR ? found
                                   : rep_int(found.type == REP_BULK ? (int64_t)found.len : 0);
}

static struct rep do_hdel(int argc, const hf_bytes *argv)
{
    struct entry *e;
    int64_t n = 0;
    if (!find_kind(argv[1], ENTRY_HASH, &e))
        return rep_error(WRONGTYPE);
    for (int i = 2; e && i < argc; i++) {
        size_t at = entry_place(e, argv[i]);
        if (at < e->n) {
            entry_drop(e, at);
            n++;
        }
    }
    if (e)
        drop_if_empty(e);
    return rep_int(n);
}

static struct rep do_hlen(int argc, const hf_bytes *argv)
{
    struct entry *e;
    (void)argc;
    if (!find_kind(argv[1], ENTRY_HASH, &e))
        return rep_error(WRONGTYPE);
    return rep_int(e ? (int64_t)e->n : 0);
}

/* ---- the server itself ----------------------------------------------------------------------- */

static struct rep do_time(int argc, const hf_bytes *argv)
{
    char text[32];
    struct rep both = rep_array(2);
    (void)argc, (void)argv;
    int n = snprintf(text, sizeof text, "%lld", (long long)(model->now_us / 1000000));
    both.item[0] = rep_bulk(text, (size_t)n);
    n = snprintf(text, sizeof text, "%lld", (long long)(model->now_us % 1000000));
    both.item[1] = rep_bulk(text, (size_t)n);
    return both;
}

static struct rep do_info(int argc, const hf_bytes *argv)
{
    char text[300];
    int n = -1;
    if (argc == 2 && same_word(argv[1], "SERVER"))
        n = snprintf(text, sizeof text, "# Server\r\nredis_version:7.0.15\r\nrun_id:%s\r\n",
                     model->run_id);
    else if (argc == 2 && same_word(argv[1], "REPLICATION"))
        n = snprintf(text, sizeof text, "# Replication\r\nrole:master\r\nmaster_replid:%s\r\n",
                     model->replid);
    else if (argc == 2 && same_word(argv[1], "MEMORY"))
        n = snprintf(text, sizeof text,
                     "# Memory\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n");
    else
        FAIL("the model knows no such INFO");
    return rep_bulk(text, (size_t)n);
}

static struct rep do_publish(int argc, const hf_bytes *argv)
{
    (void)argc;
    return command_publish(argv[1], argv[2], same_word(argv[0], "SPUBLISH"));
}

static struct rep do_pubsub(int argc, const hf_bytes *argv)
{
    bool sharded = same_word(argv[1], "SHARDNUMSUB");
    if (!sharded && !same_word(argv[1], "NUMSUB"))
        FAIL("the model knows no PUBSUB %.*s", (int)argv[1].len, (const char *)argv[1].data);
    return command_numsub(argc - 2, argv + 2, sharded);
}

static const struct {
    const char *name;
    int         least;
    struct rep (*fn)(int argc, const hf_bytes *argv);
} all[] = {
    { "GETRANGE", 4, do_getrange }, { "SET", 3, do_set }, { "PTTL", 2, do_pttl },
    { "EXISTS", 2, do_exists }, { "ZSCORE", 3, do_zscore }, { "ZCARD", 2, do_zcard },
    { "INCR", 2, do_incr }, { "TIME", 1, do_time }, { "PUBSUB", 2, do_pubsub },
    { "DEL", 2, do_del }, { "PEXPIRE", 3, do_pexpire }, { "ZADD", 4, do_zadd },
    { "ZRANGE", 4, do_zrange }, { "ZREM", 3, do_zrem }, { "HGET", 3, do_hget },
    { "HSET", 4, do_hset }, { "HDEL", 3, do_hdel }, { "HLEN", 2, do_hlen },
    { "GET", 2, do_get }, { "INFO", 2, do_info }, { "PUBLISH", 3, do_publish },
    { "TYPE", 2, do_type }, { "ZRANK", 3, do_zrank }, { "ZREVRANK", 3, do_zrank },
    { "ZPOPMIN", 2, do_zpopmin }, { "ZRANGEBYSCORE", 4, do_zrangebyscore },
    { "ZREMRANGEBYSCORE", 4, do_zremrangebyscore }, { "HSTRLEN", 3, do_hstrlen },
    { "DECR", 2, do_decr }, { "RENAME", 3, do_rename }, { "SCAN", 2, do_scan },
    { "FLUSHALL", 1, do_flushall }, { "SPUBLISH", 3, do_publish },
};

bool command_do(int argc, const hf_bytes *argv, struct rep *ret)
{
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!same_word(argv[0], all[i].name))
            continue;
        CHECK(argc >= all[i].least);
        *ret = all[i].fn(argc, argv);
        return true;
    }
    return false;
}
