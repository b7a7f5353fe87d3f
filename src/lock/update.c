/* SPDX-License-Identifier: MIT
 * update.c - optimistic update: read, compute, write if nobody wrote meanwhile.
 *
 *  U1  What is written was computed from the value that it replaces: no update of others is lost.
 *  U2  It is written once or not at all, whatever becomes of replies; HF_EUNSURE is the answer only
 *      when the server could not be asked afterwards.
 *  U3  After any other error nothing has been written, and HF_ECONFLICT tells after how many tries.
 *  U4  A key keeps its ttl unless another one is asked for.
 *  U5  Data of another kind, and values that are too large, are refused and left alone.
 *
 * WATCH belongs to a connection, so each update under way has one of its own (own_conn.h). The mark
 * for U2 is a companion of the key, one for each such connection: {key}:ID:u. The transaction
 * watches it and writes its number there; resolve.lua asks for it when the reply of EXEC was lost.
 */
#include <stdio.h>
#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opts.h"
#include "base/random.h"
#include "net/servererr.h"
#include "session/client.h"
#include "topo/own_conn.h"

#define TRIES_DEFAULT  100
#define BACKOFF_MAX_MS 64
#define RETRY_MIN_MS   5
#define RETRY_MAX_MS   200
#define BREAKS_MAX     5     /* servers that were busy, or not the right one */
#define MARK_MS        60000 /* at least */

struct update {
    hf_client       *c;
    hf_bytes         key;
    hf_update_opts   o;
    struct own_conn *own;  /* NULL: none now */
    char            *mark; /* the key of the mark; belongs to the id of own, and outlives it */
    size_t           mark_len;
    int64_t          mark_ms;
};

/* What became of one try. BROKEN comes with an error, and with nothing written. */
enum outcome { DONE, OVERTAKEN, BROKEN };

static const char *shown(const struct update *u, char *buf, size_t size)
{
    return err_quote(buf, size, u->key.data, u->key.len);
}

/* ---- reading ------------------------------------------------------------------------------ */

/* The key's slot is elsewhere, or on its way there. */
static bool is_elsewhere(const struct update *u, const struct reply *rp)
{
    hf_err code;
    return topo_cluster(u->c->topo) && server_judge(rp, &code) == SERVER_REDIRECT;
}

/* The server's refusal of a command that changes nothing. HF_EBUSY: it will pass. */
static hf_err refused(struct update *u, const struct reply *rp, hf_error *reterr)
{
    char name[120];
    hf_err e = server_refusal(rp, reterr);
    if (is_elsewhere(u, rp))
        e = err_set(reterr, HF_EBUSY, "its slot is being moved to another server");
    err_prefix(reterr, "%s", shown(u, name, sizeof name));
    return e;
}

/* Replies may still be under way on it. */
static void drop_conn(struct update *u)
{
    if (u->own)
        own_conn_close(u->own, false);
    u->own = NULL;
}

static hf_err take_conn(struct update *u, const struct limit *lim, hf_error *reterr)
{
    if (!u->own) {
        hf_err e = own_conn_take(u->c->own_conns, u->key, lim, &u->own, reterr);
        if (e)
            return e;
        if (u->own->fresh)
            client_token(u->c, u->own->id, sizeof u->own->id);
        u->mark = (mem_free(u->mark), NULL);
    }
    if (!u->mark) {
        char tail[80];
        snprintf(tail, sizeof tail, ":%s" KEYS_UPDATED, u->own->id);
        u->mark = keys_companion(u->key, tail, &u->mark_len);
        if (!u->mark)
            return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    return HF_OK;
}

static void free_all(struct reply **rp, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rp[i] = reply_free(rp[i]);
}

/* Receive n replies; on failure there are none. */
static hf_err receive(struct update *u, struct reply **rp, size_t n, const struct limit *lim,
                      hf_error *reterr)
{
    memset(rp, 0, n * sizeof(struct reply *));
    for (size_t i = 0; i < n; i++) {
        hf_err e = link_receive(&u->own->link, lim, &rp[i], reterr);
        if (e) {
            rp[i] = NULL;
            free_all(rp, i);
            return e;
        }
    }
    return HF_OK;
}

static bool is_text(const struct reply *rp, const char *text)
{
    return (rp->type == REPLY_STATUS || rp->type == REPLY_BULK) && strcmp(rp->str, text) == 0;
}

static hf_err too_large(const struct update *u, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_EINVAL, "%s: the value has more than %zu bytes: nothing was changed",
                   shown(u, name, sizeof name), u->o.max_size);
}

/* WATCH, TYPE and how much there is (a string: it itself). */
static hf_err watch(struct update *u, struct reply *got[3], const struct limit *lim,
                    hf_error *reterr)
{
    char last[24];
    bool field = u->o.field.data != NULL;
    snprintf(last, sizeof last, "%zu", u->o.max_size);
    hf_bytes unwatch[] = { hf_str("UNWATCH") };
    hf_bytes watch[] = { hf_str("WATCH"), u->key, { u->mark, u->mark_len } };
    hf_bytes type[] = { hf_str("TYPE"), u->key };
    hf_bytes range[] = { hf_str("GETRANGE"), u->key, hf_str("0"), hf_str(last) };
    hf_bytes length[] = { hf_str("HSTRLEN"), u->key, u->o.field };
    size_t before = u->own->watching ? 1 : 0;
    struct link_command cmd[] = { { 1, unwatch }, { 3, watch }, { 2, type },
                                  { field ? 3 : 4, field ? length : range } };
    struct reply *rp[4];

    u->own->watching = true;
    hf_err e = link_send_many(&u->own->link, cmd + 1 - before, before + 3, lim, reterr);
    if (!e)
        e = receive(u, rp, before + 3, lim, reterr);
    if (e)
        return e;
    if (before)
        reply_free(rp[0]);
    memcpy(got, rp + before, 3 * sizeof *got);
    return HF_OK;
}

/* What WATCH and TYPE said. *ret_there: there is a key, of the right kind. */
static hf_err judge_kind(struct update *u, struct reply *const got[3], bool *ret_there,
                         hf_error *reterr)
{
    const char *want = u->o.field.data ? "hash" : "string";
    char name[120], kind[40];
    for (size_t i = 0; i < 2; i++)
        if (got[i]->type == REPLY_ERROR)
            return refused(u, got[i], reterr);
    *ret_there = is_text(got[1], want);
    if (*ret_there && got[2]->type == REPLY_ERROR)
        return refused(u, got[2], reterr);
    if (*ret_there || is_text(got[1], "none"))
        return HF_OK;
    if (got[1]->type != REPLY_STATUS)
        return err_set(reterr, HF_EPROTO, "the answer to TYPE makes no sense");
    return err_set(reterr, HF_ETYPE, "%s holds a %s and not a %s: nothing was changed",
                   shown(u, name, sizeof name),
                   err_quote(kind, sizeof kind, got[1]->str, got[1]->len), want);
}

/* The field of a hash that is not too long. Between HSTRLEN and HGET it may have become so: then
 * the reply is refused, and the watch has been broken anyway. */
static hf_err read_field(struct update *u, const struct limit *lim, struct reply **ret,
                         enum outcome *ret_outcome, hf_error *reterr)
{
    hf_bytes get[] = { hf_str("HGET"), u->key, u->o.field };
    hf_err e = link_exchange(&u->own->link, 3, get, lim, ret, reterr);
    if (e == HF_EPROTO) {
        drop_conn(u);
        *ret_outcome = OVERTAKEN;
        return HF_OK;
    }
    if (!e && (*ret)->type == REPLY_ERROR) {
        e = refused(u, *ret, reterr);
        *ret = reply_free(*ret);
    } else if (!e && (*ret)->len > u->o.max_size) {
        e = too_large(u, reterr);
        *ret = reply_free(*ret);
    }
    return e;
}

/* One attempt to read. *ret: the value, or NULL for none. */
static hf_err read_value(struct update *u, const struct limit *lim, struct reply **ret,
                         enum outcome *ret_outcome, hf_error *reterr)
{
    struct reply *got[3];
    bool there = false;
    *ret = NULL;
    hf_err e = watch(u, got, lim, reterr);
    if (e)
        return e;
    e = judge_kind(u, got, &there, reterr);
    size_t len = 0;
    if (!e && there)
        len = u->o.field.data ? (size_t)got[2]->num : got[2]->len;
    if (!e && len > u->o.max_size)
        e = too_large(u, reterr);
    if (!e && there && u->o.field.data)
        e = read_field(u, lim, ret, ret_outcome, reterr);
    if (!e && there && !u->o.field.data) {
        *ret = got[2];
        got[2] = NULL;
    }
    free_all(got, 3);
    return e;
}

/* Read the value, on a connection that stands. */
static hf_err begin(struct update *u, struct reply **ret, enum outcome *ret_outcome,
                    hf_error *reterr)
{
    struct limit lim = { client_deadline(u->c), NULL };
    struct backoff b = { 0 };
    for (;;) {
        hf_err e = take_conn(u, &lim, reterr);
        if (!e)
            e = read_value(u, &lim, ret, ret_outcome, reterr);
        if (!e || e == HF_ETYPE || e == HF_EINVAL)
            return e;
        drop_conn(u);
        int64_t until = clock_now_ms() + backoff_next(&b, RETRY_MIN_MS, RETRY_MAX_MS);
        if ((e != HF_ECONN && e != HF_EBUSY) || until >= lim.at_ms)
            return e == HF_EBUSY ? err_known(reterr, HF_ECONN, HF_KNOWN_UNCHANGED) : e;
        topo_doubt(u->c->topo);
        clock_sleep_until(until);
    }
}

/* ---- writing ------------------------------------------------------------------------------ */

#define COMMANDS_MAX 3 /* the change, its ttl, the mark */

struct words {
    int      argc;
    hf_bytes argv[5];
};

/* The transaction without MULTI and EXEC; how many commands. texts lives as long. */
static size_t commands(const struct update *u, hf_change change, hf_bytes value, char texts[3][24],
                       struct words *cmd)
{
    bool field = u->o.field.data != NULL, set = change == HF_CHANGE_SET;
    int64_t ttl = u->o.ttl_ms;
    size_t n = 0;
    snprintf(texts[0], 24, "%lld", (long long)ttl);
    snprintf(texts[1], 24, "%llu", (unsigned long long)u->own->writes);
    snprintf(texts[2], 24, "%lld", (long long)u->mark_ms);
    hf_bytes ms = hf_str(texts[0]);
    if (set && field)
        cmd[n++] = (struct words){ 4, { hf_str("HSET"), u->key, u->o.field, value } };
    else if (set && ttl > 0)
        cmd[n++] = (struct words){ 5, { hf_str("SET"), u->key, value, hf_str("PX"), ms } };
    else if (set)
        cmd[n++] = (struct words){ ttl == HF_KEEP_TTL ? 4 : 3,
                                     { hf_str("SET"), u->key, value, hf_str("KEEPTTL") } };
    else if (field)
        cmd[n++] = (struct words){ 3, { hf_str("HDEL"), u->key, u->o.field } };
    else
        cmd[n++] = (struct words){ 2, { hf_str("DEL"), u->key } };
    if (set && field && ttl > 0)
        cmd[n++] = (struct words){ 3, { hf_str("PEXPIRE"), u->key, ms } };
    else if (set && field && ttl == HF_NO_TTL)
        cmd[n++] = (struct words){ 2, { hf_str("PERSIST"), u->key } };
    cmd[n++] = (struct words){ 5, { hf_str("SET"), { u->mark, u->mark_len }, hf_str(texts[1]),
                                      hf_str("PX"), hf_str(texts[2]) } };
    return n;
}

/* The reply of EXEC was lost: ask what became of it, and see to it that it stays that. */
static hf_err settle(struct update *u, uint64_t number, int64_t sent_ms, enum outcome *ret,
                     hf_error *reterr)
{
    char name[120];
    struct op op = { .id = OP_resolve, .deadline_ms = client_deadline(u->c),
                     .resolve = { .mark = { u->mark, u->mark_len }, .number = number,
                                 .remember_ms = u->mark_ms } };
    hf_error why = { .message = "" };
    hf_err e = exec_run(u->c->exec, &op, &why);
    bool written = !e && op.got.done.code == ANSWER_YES;
    op_clear(&op);
    /* A mark that had the time to expire says nothing. */
    if (!e && !written && clock_now_ms() >= sent_ms + u->mark_ms - u->mark_ms / 100)
        e = HF_EUNSURE;
    if (e)
        return err_set(reterr, HF_EUNSURE,
                       "%s: the update was sent, no answer came and none could be had (%.200s): "
                       "it was written once or not at all; read the key before you try again",
                       shown(u, name, sizeof name), why.message[0] ? why.message : "too late");
    *ret = written ? DONE : OVERTAKEN;
    return HF_OK;
}

/* All replies have come: those of MULTI and of the commands, and at the end that of EXEC. */
static hf_err judge_replies(const struct update *u, struct reply **rp, size_t n, enum outcome *ret,
                            hf_error *reterr)
{
    const struct reply *exec = rp[n - 1];
    hf_err code;
    if (exec->type == REPLY_NIL) {
        *ret = OVERTAKEN;
        return HF_OK;
    }
    if (exec->type == REPLY_ARRAY) {
        for (size_t i = 0; i < exec->len; i++) {
            if (exec->item[i]->type != REPLY_ERROR)
                continue; /* as always: the watch stood */
            server_error(exec->item[i], HF_ESERVER, reterr);
            return err_known(reterr, HF_ESERVER, HF_KNOWN_NOTHING);
        }
        *ret = DONE;
        return HF_OK;
    }
    for (size_t i = 0; i < n; i++) {
        if (rp[i]->type != REPLY_ERROR)
            continue;
        enum server_verdict v = server_judge(rp[i], &code);
        server_error(rp[i], code, reterr);
        bool elsewhere = is_elsewhere(u, rp[i]);
        if (elsewhere)
            code = HF_ECONN;
        if (v == SERVER_RETRY || v == SERVER_RECONNECT || elsewhere)
            *ret = BROKEN; /* the right server, or one that is not busy, may be found anew */
        return err_known(reterr, code, HF_KNOWN_UNCHANGED);
    }
    return err_set(reterr, HF_EPROTO, "the answer to EXEC makes no sense");
}

static hf_err commit(struct update *u, hf_change change, hf_bytes value, enum outcome *ret,
                     hf_error *reterr)
{
    hf_bytes multi[] = { hf_str("MULTI") }, exec[] = { hf_str("EXEC") };
    struct words cmd[COMMANDS_MAX];
    struct link_command all[COMMANDS_MAX + 2];
    struct reply *rp[COMMANDS_MAX + 2];
    char texts[3][24];
    u->own->writes++; /* NOLINT(clang-analyzer-core.NullDereference): begin() has set it */
    size_t n = commands(u, change, value, texts, cmd), k = 0;
    all[k++] = (struct link_command){ 1, multi };
    for (size_t i = 0; i < n; i++)
        all[k++] = (struct link_command){ cmd[i].argc, cmd[i].argv };
    all[k++] = (struct link_command){ 1, exec };

    int64_t sent_ms = clock_now_ms();
    struct limit lim = { client_deadline(u->c), NULL };
    hf_err e = link_send_many(&u->own->link, all, k, &lim, reterr);
    if (e == HF_ENOMEM || e == HF_EINVAL)
        return e; /* nothing was sent */
    if (!e)
        e = receive(u, rp, k, &lim, reterr);
    if (e) {
        uint64_t number = u->own->writes;
        drop_conn(u);
        return settle(u, number, sent_ms, ret, reterr);
    }
    u->own->watching = false;
    e = judge_replies(u, rp, k, ret, reterr);
    free_all(rp, k);
    if (e)
        drop_conn(u);
    return e;
}

/* ---- the call ----------------------------------------------------------------------------- */

static hf_err try_once(struct update *u, hf_update_fn change, void *arg, enum outcome *ret,
                       hf_error *reterr)
{
    struct reply *old = NULL;
    *ret = DONE;
    hf_err e = begin(u, &old, ret, reterr);
    if (e)
        *ret = DONE;
    if (*ret != DONE || e)
        return e;
    hf_bytes before = { 0 }, value = { "", 0 };
    if (old && old->type == REPLY_BULK)
        before = (hf_bytes){ old->str, old->len };
    hf_change what = change(arg, before, &value);
    if (what == HF_CHANGE_SET && value.len > u->o.max_size)
        e = too_large(u, reterr);
    else if (what == HF_CHANGE_SET || (what == HF_CHANGE_DELETE && before.data))
        e = commit(u, what, value, ret, reterr);
    else if (what != HF_CHANGE_NOTHING && what != HF_CHANGE_DELETE)
        e = err_set(reterr, HF_EINVAL, "the function answered %d, which is not an hf_change",
                    (int)what);
    reply_free(old);
    return e;
}

static hf_err run(struct update *u, hf_update_fn change, void *arg, hf_error *reterr)
{
    int64_t step = 1;
    unsigned tries = 0, breaks = 0;
    char name[120];
    for (;;) {
        enum outcome what;
        hf_err e = try_once(u, change, arg, &what, reterr);
        if (what == DONE || (what == OVERTAKEN && e) || (what == BROKEN && ++breaks >= BREAKS_MAX))
            return e;
        if (what == OVERTAKEN && ++tries >= u->o.tries)
            return err_set(reterr, HF_ECONFLICT,
                           "%s was changed by others at each of %u tries: nothing was changed. Use "
                           "a lock where so many write", shown(u, name, sizeof name), tries);
        clock_sleep_until(clock_now_ms() + random_between(0, step));
        step = clock_earlier(2 * step, BACKOFF_MAX_MS);
    }
}

static hf_err check(const hf_client *c, hf_bytes key, const hf_update_opts *opts,
                    hf_update_opts *ret, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (e)
        return e;
    e = opts_copy(ret, sizeof *ret, opts, "hf_update_opts", reterr);
    if (e)
        return e;
    if (!key.data || key.len == 0 || key.len > HF_NAME_MAX || ret->field.len > HF_NAME_MAX)
        return err_set(reterr, HF_EINVAL, "a key has 1 to %d bytes, and a field at most %d",
                       HF_NAME_MAX, HF_NAME_MAX);
    if (ret->ttl_ms < HF_NO_TTL || ret->ttl_ms > HF_TTL_MAX_MS)
        return err_set(reterr, HF_EINVAL, "a ttl of %lld ms is out of range",
                       (long long)ret->ttl_ms);
    if (ret->max_size > HF_VALUE_MAX)
        return err_set(reterr, HF_EINVAL, "a max_size of %zu bytes: at most %d are allowed",
                       ret->max_size, HF_VALUE_MAX);
    ret->max_size = ret->max_size ? ret->max_size : HF_VALUE_MAX;
    ret->tries = ret->tries ? ret->tries : TRIES_DEFAULT;
    return HF_OK;
}

hf_err hf_update_run(hf_client *c, hf_bytes key, const hf_update_opts *opts, hf_update_fn change,
                     void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct update u = { .c = c, .key = key };
    if (!c || !change)
        return err_set(reterr, HF_EINVAL, "no client, or no function, was given");
    hf_err e = check(c, key, opts, &u.o, reterr);
    if (e)
        return e;
    if (topo_quorum(c->topo))
        return err_set(reterr, HF_ENOTSUP,
                       "not on a quorum: a value kept by majorities can be changed twice: updates "
                       "need one server");
    /* Longer than we wait for the reply and for what became of it. */
    u.mark_ms = MARK_MS + 2 * c->timeout_ms;
    e = run(&u, change, arg, reterr);
    mem_free(u.mark);
    if (u.own)
        own_conn_give(c->own_conns, u.own);
    return e;
}
