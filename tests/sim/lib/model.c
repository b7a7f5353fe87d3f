/* SPDX-License-Identifier: MIT
 * model.c - a model of a server: connections, channels and scripts.
 */
#include "sim/lib/model.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "sim/lib/commands.h"
#include "sim/lib/pool.h"
#include "sim/lib/slots.h"
#include "topo/slot.h"

#define ARGS_MAX 300

struct model model_node[MODEL_NODES], *model = model_node;
int model_nodes = 1;

#define GARBAGE_MAX (512 << 10) /* bytes: then Lua tidies up, before they leave the cache */

static lua_State *L;
static int script_ref[OP_COUNT]; /* the compiled script; LUA_NOREF: not yet */
static size_t garbage;           /* what Lua has taken since it tidied up */

static model_push push_to;

/* ---- what is answered, as on the wire -------------------------------------------------------- */

static void put(struct reply_text *t, const char *p, size_t len)
{
    if (t->len + len > t->room)
        t->p = realloc(t->p, t->room = 2 * (t->len + len) + 256);
    memcpy(t->p + t->len, p, len);
    t->len += len;
}

static void put_number(struct reply_text *t, char kind, int64_t n)
{
    char line[32];
    size_t len = put_digits(line + 1, n);
    line[0] = kind;
    memcpy(line + 1 + len, "\r\n", 2);
    put(t, line, len + 3);
}

static void put_line(struct reply_text *t, char kind, const char *p, size_t len)
{
    put(t, &kind, 1);
    put(t, p, len);
    put(t, "\r\n", 2);
}

static void put_bulk(struct reply_text *t, const char *p, size_t len)
{
    put_number(t, '$', (int64_t)len);
    put(t, p, len);
    put(t, "\r\n", 2);
}

static void put_rep(struct reply_text *t, const struct rep *r)
{
    switch (r->type) {
    case REP_NIL: put(t, "$-1\r\n", 5); break;
    case REP_INT: put_number(t, ':', r->n); break;
    case REP_BULK: put_bulk(t, r->p, r->len); break;
    case REP_STATUS: put_line(t, '+', r->p, r->len); break;
    case REP_ERROR: put_line(t, '-', r->p, r->len); break;
    case REP_ARRAY:
        put_number(t, '*', r->n);
        for (int64_t i = 0; i < r->n; i++)
            put_rep(t, &r->item[i]);
        break;
    }
}

/* ---- Lua's values ---------------------------------------------------------------------------- */

static void give_lua(const struct rep *r)
{
    switch (r->type) {
    case REP_NIL: lua_pushboolean(L, 0); break;
    case REP_INT: lua_pushnumber(L, (lua_Number)r->n); break;
    case REP_BULK: lua_pushlstring(L, r->p, r->len); break;
    case REP_STATUS:
    case REP_ERROR:
        lua_createtable(L, 0, 1);
        lua_pushlstring(L, r->p, r->len);
        lua_setfield(L, -2, r->type == REP_STATUS ? "ok" : "err");
        break;
    case REP_ARRAY:
        lua_createtable(L, (int)r->n, 0);
        for (int64_t i = 0; i < r->n; i++) {
            give_lua(&r->item[i]);
            lua_rawseti(L, -2, (int)i + 1);
        }
        break;
    }
}

/* What a script returned, or the error that ended it: on top of the stack. */
static void put_lua(struct reply_text *t);

static bool put_field(struct reply_text *t, const char *field, char kind)
{
    size_t len;
    lua_getfield(L, -1, field);
    bool found = lua_type(L, -1) == LUA_TSTRING;
    if (found) {
        const char *p = lua_tolstring(L, -1, &len);
        put_line(t, kind, p, strcspn(p, "\r\n") < len ? strcspn(p, "\r\n") : len);
    }
    lua_pop(L, 1);
    return found;
}

static void put_table(struct reply_text *t)
{
    int n = 0;
    if (put_field(t, "err", '-') || put_field(t, "ok", '+'))
        return;
    for (;; n++) {
        lua_rawgeti(L, -1, n + 1);
        bool nil = lua_isnil(L, -1);
        lua_pop(L, 1);
        if (nil)
            break;
    }
    put_number(t, '*', n);
    for (int i = 1; i <= n; i++) {
        lua_rawgeti(L, -1, i);
        put_lua(t);
        lua_pop(L, 1);
    }
}

static void put_lua(struct reply_text *t)
{
    size_t len;
    switch (lua_type(L, -1)) {
    case LUA_TSTRING: {
        const char *p = lua_tolstring(L, -1, &len);
        put_bulk(t, p, len);
        break;
    }
    case LUA_TNUMBER: put_number(t, ':', (int64_t)lua_tonumber(L, -1)); break;
    case LUA_TBOOLEAN:
        if (lua_toboolean(L, -1))
            put_number(t, ':', 1);
        else
            put(t, "$-1\r\n", 5);
        break;
    case LUA_TTABLE: put_table(t); break;
    default: put(t, "$-1\r\n", 5);
    }
}

static int64_t first_number(void)
{
    bool table = lua_type(L, -1) == LUA_TTABLE;
    if (table)
        lua_rawgeti(L, -1, 1);
    int64_t n = lua_type(L, -1) == LUA_TNUMBER ? (int64_t)lua_tonumber(L, -1) : 0;
    if (table)
        lua_pop(L, 1);
    return n;
}

/* ---- scripts --------------------------------------------------------------------------------- */

/* Numbers become text as the server does it. */
static int collect(hf_bytes *argv)
{
    int argc = lua_gettop(L);
    CHECK_RANGE(argc, 1, ARGS_MAX);
    for (int i = 1; i <= argc; i++) {
        if (lua_type(L, i) == LUA_TNUMBER) {
            char *text = arena_get(40);
            double d = (double)lua_tonumber(L, i);
            bool whole = fabs(d) < 1e15 && d == floor(d) && !(d == 0 && signbit(d));
            size_t n = whole ? put_digits(text, (int64_t)d)
                             : (size_t)snprintf(text, 40, "%.17g", d);
            argv[i - 1] = (hf_bytes){ text, n };
        } else if (lua_type(L, i) == LUA_TSTRING) {
            size_t len;
            argv[i - 1].data = lua_tolstring(L, i, &len);
            argv[i - 1].len = len;
        } else {
            FAIL("argument %d of a command in %s is no text and no number", i,
                 op_name((enum op_id)model->op));
        }
    }
    return argc;
}

static int run_command(bool raises)
{
    hf_bytes argv[ARGS_MAX];
    struct rep r;
    int argc = collect(argv);
    if (!command_do(argc, argv, &r))
        FAIL("the model does not know the command %.*s, in %s", (int)argv[0].len,
             (const char *)argv[0].data, op_name((enum op_id)model->op));
    give_lua(&r);
    if (raises && r.type == REP_ERROR)
        return lua_error(L);
    return 1;
}

static int lua_call_command(lua_State *l)
{
    (void)l;
    return run_command(true);
}

static int lua_pcall_command(lua_State *l)
{
    (void)l;
    return run_command(false);
}

/* Whatever was taken and given back, it counts: who tidies up seldom does it at once. */
static void *lua_memory(void *arg, void *p, size_t had, size_t n)
{
    (void)arg, (void)had;
    if (n == 0) {
        pool_free(p);
        return NULL;
    }
    garbage += n;
    return pool_resize(p, n);
}

static void open_lua(void)
{
    static const luaL_Reg redis[] = { { "call", lua_call_command },
                                      { "pcall", lua_pcall_command }, { NULL, NULL } };
    L = lua_newstate(lua_memory, NULL);
    CHECK(L != NULL);
    luaL_openlibs(L);
    luaL_register(L, "redis", redis);
    lua_settop(L, 0);
    lua_gc(L, LUA_GCSTOP, 0); /* there is memory, but no time: run_script() */
    for (int i = 0; i < OP_COUNT; i++)
        script_ref[i] = LUA_NOREF;
}

bool model_replace(enum op_id id, const char *text)
{
    if (!L)
        open_lua();
    if (luaL_loadbuffer(L, text ? text : op_text(id), strlen(text ? text : op_text(id)),
                        "@script") != 0) {
        t_note("%s: %s", op_name(id), lua_tostring(L, -1));
        lua_pop(L, 1);
        return false;
    }
    luaL_unref(L, LUA_REGISTRYINDEX, script_ref[id]);
    script_ref[id] = luaL_ref(L, LUA_REGISTRYINDEX);
    return true;
}

static void set_list(const char *name, int n, const hf_bytes *b)
{
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        lua_pushlstring(L, b[i].data, b[i].len);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setglobal(L, name);
}

static void run_script(enum op_id id, int nkeys, int argc, const hf_bytes *argv,
                       struct reply_text *ret)
{
    if (!L || script_ref[id] == LUA_NOREF)
        CHECK(model_replace(id, NULL));
    set_list("KEYS", nkeys, argv);
    set_list("ARGV", argc - nkeys, argv + nkeys);
    model->op = (int)id;
    model->key = argv;
    model->nkeys = nkeys;
    model->nargs = argc - nkeys;
    model->said = 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, script_ref[id]);
    if (lua_pcall(L, 0, 1, 0) != 0) {
        model->errors++;
        snprintf(model->error, sizeof model->error, "%s",
                 lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "an error of a command");
        if (lua_type(L, -1) == LUA_TSTRING) /* a mistake in the script itself */
            put_line(ret, '-', "ERR user_script: the script failed", 34);
        else
            put_lua(ret);
    } else {
        model->said = first_number();
        put_lua(ret);
    }
    lua_settop(L, 0);
    if (garbage > GARBAGE_MAX) {
        lua_gc(L, LUA_GCCOLLECT, 0);
        lua_gc(L, LUA_GCSTOP, 0);
        garbage = 0;
    }
}

static bool is(hf_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

/* The sums differ in their first bytes. */
static int script_of(hf_bytes b, bool whole)
{
    for (int id = 0; id < OP_COUNT; id++) {
        enum op_id op = (enum op_id)id;
        if (whole ? is(b, op_text(op)) : b.len == 40 && memcmp(b.data, op_sha(op), 8) == 0)
            return id;
    }
    FAIL("the model does not know the script %.*s", (int)b.len, (const char *)b.data);
}

static void eval(int argc, const hf_bytes *argv, struct reply_text *ret)
{
    bool whole = same_word(argv[0], "EVAL");
    int64_t nkeys;
    CHECK(argc >= 3 && whole_number(argv[2], &nkeys) && nkeys >= 0 && nkeys <= argc - 3);
    int id = script_of(argv[1], whole);
    model->knows[id] |= whole;
    if (!model->knows[id])
        put_line(ret, '-', "NOSCRIPT No matching script. Please use EVAL.", 45);
    else
        run_script((enum op_id)id, (int)nkeys, argc - 3, argv + 3, ret);
}

/* ---- channels -------------------------------------------------------------------------------- */

void model_on_push(model_push fn)
{
    push_to = fn;
}

static unsigned listeners(const struct model *m, const char *channel, bool sharded)
{
    unsigned n = 0;
    for (size_t i = 0; i < m->nsubs; i++)
        n += m->sub[i].sharded == sharded && strcmp(m->sub[i].channel, channel) == 0;
    return n;
}

unsigned model_listeners(const char *channel)
{
    if (model_nodes == 1)
        return listeners(model, channel, false);
    return listeners(&model_node[slots_owner(slot_of(channel, strlen(channel)))], channel, true);
}

void model_disconnected(void *conn)
{
    for (int k = 0; k < model_nodes; k++) {
        struct model *m = &model_node[k];
        for (size_t i = m->nsubs; i-- > 0;)
            if (m->sub[i].conn == conn)
                m->sub[i] = m->sub[--m->nsubs];
    }
}

static int64_t subscriptions_of(const void *conn)
{
    int64_t n = 0;
    for (size_t i = 0; i < model->nsubs; i++)
        n += model->sub[i].conn == conn;
    return n;
}

static void put_news(struct reply_text *t, const char *kind, hf_bytes channel)
{
    put(t, "*3\r\n", 4);
    put_bulk(t, kind, strlen(kind));
    put_bulk(t, channel.data, channel.len);
}

static void subscribe(void *conn, hf_bytes channel, bool sharded, struct reply_text *ret)
{
    bool there = false;
    for (size_t i = 0; i < model->nsubs; i++)
        there |= model->sub[i].conn == conn && model->sub[i].sharded == sharded
                 && is(channel, model->sub[i].channel);
    if (!there) {
        CHECK(model->nsubs < MODEL_SUBS_MAX);
        struct model_sub *s = &model->sub[model->nsubs++];
        s->conn = conn;
        s->sharded = sharded;
        snprintf(s->channel, sizeof s->channel, "%.*s", (int)channel.len,
                 (const char *)channel.data);
    }
    put_news(ret, sharded ? "ssubscribe" : "subscribe", channel);
    put_number(ret, ':', subscriptions_of(conn));
}

void model_unsubscribe(unsigned slot)
{
    static struct reply_text push;
    for (size_t i = model->nsubs; i-- > 0;) {
        struct model_sub s = model->sub[i];
        if (!s.sharded || slot_of(s.channel, strlen(s.channel)) != slot)
            continue;
        model->sub[i] = model->sub[--model->nsubs];
        push.len = 0;
        put_news(&push, "sunsubscribe", hf_str(s.channel));
        put_number(&push, ':', subscriptions_of(s.conn));
        if (push_to)
            push_to(s.conn, push.p, push.len);
    }
}

struct rep command_publish(hf_bytes channel, hf_bytes text, bool sharded)
{
    static struct reply_text push;
    int64_t n = 0;
    for (size_t i = 0; i < model->nsubs; i++) {
        if (model->sub[i].sharded != sharded || !is(channel, model->sub[i].channel))
            continue;
        n++;
        push.len = 0;
        put_news(&push, sharded ? "smessage" : "message", channel);
        put_bulk(&push, text.data, text.len);
        if (push_to)
            push_to(model->sub[i].conn, push.p, push.len);
    }
    return rep_int(n);
}

struct rep command_numsub(int argc, const hf_bytes *argv, bool sharded)
{
    struct rep all = rep_array(2 * (size_t)argc);
    for (int i = 0; i < argc; i++) {
        all.item[2 * i] = rep_bulk(argv[i].data, argv[i].len);
        all.item[2 * i + 1] = rep_int(listeners(model, all.item[2 * i].p, sharded));
    }
    return all;
}

/* ---- a command ------------------------------------------------------------------------------- */

struct entry *model_find(hf_bytes key)
{
    struct entry *e = NULL;
    for (int i = 0; i < model_nodes && !e; i++)
        e = store_find(&model_node[i].store, key, model_now_ms());
    return e;
}

/* Each node has one range of slots, and perhaps single ones of the other's. */
static void put_slots(struct reply_text *t, const struct model_way *way)
{
    struct slots_range range[SLOTS_RANGES_MAX];
    size_t n = slots_ranges((int)(model - model_node), range);
    put_number(t, '*', (int64_t)n);
    for (size_t i = 0; i < n; i++) {
        put_number(t, '*', 3);
        put_number(t, ':', range[i].first);
        put_number(t, ':', range[i].last);
        put_number(t, '*', 3);
        put_bulk(t, "nowhere", 7);
        put_number(t, ':', way->port[range[i].node]);
        put_bulk(t, range[i].node ? "b" : "a", 1);
    }
}

/* CLUSTER NODES: what this node knows of itself and of the other. */
static void put_nodes(struct reply_text *t, const struct model_way *way)
{
    char text[64 * (MODEL_NODES + SLOTS_RANGES_MAX)];
    struct slots_range range[SLOTS_RANGES_MAX];
    int by = (int)(model - model_node), len = 0;
    size_t n = slots_ranges(by, range);
    for (int node = 0; node < MODEL_NODES; node++) {
        len += snprintf(text + len, sizeof text - (size_t)len,
                        "%c nowhere:%d@1 %smaster - 0 0 %d connected", 'a' + node, way->port[node],
                        node == by ? "myself," : "", slots_epoch(by, node));
        for (size_t i = 0; i < n; i++)
            if (range[i].node == node)
                len += snprintf(text + len, sizeof text - (size_t)len, " %u-%u", range[i].first,
                                range[i].last);
        len += snprintf(text + len, sizeof text - (size_t)len, "\n");
    }
    put_bulk(t, text, (size_t)len);
}

static bool refused(const struct model_way *way, int argc, const hf_bytes *argv,
                    struct reply_text *ret)
{
    char text[80];
    int to;
    unsigned slot;
    const char *word = slots_refuse((int)(model - model_node), way->asking, argc, argv, &slot, &to);
    if (!word)
        return false;
    int n = to < 0 ? snprintf(text, sizeof text, "%s the keys are in two places", word)
                   : snprintf(text, sizeof text, "%s %u nowhere:%d", word, slot, way->port[to]);
    put_line(ret, '-', text, (size_t)n);
    return true;
}

const struct reply_text *model_do(void *conn, const struct model_way *way, int argc,
                                  const hf_bytes *argv)
{
    static struct reply_text answer, *const ret = &answer;
    struct rep r;
    ret->len = 0;
    model->op = -1;
    arena_reset();
    if (model_nodes > 1 && refused(way, argc, argv, ret))
        return ret;
    if (same_word(argv[0], "EVALSHA") || same_word(argv[0], "EVAL")) {
        eval(argc, argv, ret);
    } else if (same_word(argv[0], "PING") && subscriptions_of(conn)) {
        put(ret, "*2\r\n$4\r\npong\r\n$0\r\n\r\n", 20);
    } else if (same_word(argv[0], "PING")) {
        put(ret, "+PONG\r\n", 7);
    } else if (same_word(argv[0], "CLIENT") || same_word(argv[0], "ASKING")) {
        put(ret, "+OK\r\n", 5);
    } else if (model_nodes > 1 && same_word(argv[0], "CLUSTER") && argc == 2
               && same_word(argv[1], "SLOTS")) {
        put_slots(ret, way);
    } else if (model_nodes > 1 && same_word(argv[0], "CLUSTER") && argc == 2
               && same_word(argv[1], "NODES")) {
        put_nodes(ret, way);
    } else if (same_word(argv[0], "SUBSCRIBE") && argc == 2) {
        subscribe(conn, argv[1], false, ret);
    } else if (model_nodes > 1 && same_word(argv[0], "SSUBSCRIBE") && argc == 2) {
        subscribe(conn, argv[1], true, ret);
    } else if (same_word(argv[0], "SCRIPT") && argc == 2 && same_word(argv[1], "FLUSH")) {
        memset(model->knows, 0, sizeof model->knows);
        put(ret, "+OK\r\n", 5);
    } else if (command_do(argc, argv, &r)) {
        put_rep(ret, &r);
    } else {
        FAIL("the model does not know the command %.*s", (int)argv[0].len,
             (const char *)argv[0].data);
    }
    return ret;
}

void model_restart(const char *run_id, const char *replid)
{
    memset(model->knows, 0, sizeof model->knows);
    model->nsubs = 0;
    snprintf(model->run_id, sizeof model->run_id, "%s", run_id);
    if (replid)
        snprintf(model->replid, sizeof model->replid, "%s", replid);
}

void model_reset(int nodes)
{
    model_nodes = nodes;
    for (int i = MODEL_NODES; i-- > 0;) {
        char run[8], repl[8];
        snprintf(run, sizeof run, "r0%s", i ? "b" : "");
        snprintf(repl, sizeof repl, "p0%s", i ? "b" : "");
        model = &model_node[i];
        store_clear(&model->store);
        model_restart(run, repl);
        model->now_us = 0;
        model->errors = 0;
    }
    slots_begin();
}
