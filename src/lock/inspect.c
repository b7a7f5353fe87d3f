/* SPDX-License-Identifier: MIT
 * inspect.c - who holds what, for people and programs that look.
 *
 * What a looker gets never lets it release a lock: of a random owner id only the beginning is
 * shown.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"
#include "session/kind.h"
#include "session/scan.h"

#define SESSION_DIGITS 32
#define SHOWN_DIGITS   8
#define PARTIES_MAX    100 /* holders, and waiters, described one by one; the others are counted */

/* A token and a number behind it: "<32 digits>.<sequence>:<fence>" */
struct token {
    char     session[SESSION_DIGITS + 1];
    uint64_t sequence, fence;
};

static bool parse_token(const char *text, struct token *ret)
{
    if (strspn(text, "0123456789abcdef") != SESSION_DIGITS || text[SESSION_DIGITS] != '.')
        return false;
    memcpy(ret->session, text, SESSION_DIGITS);
    ret->session[SESSION_DIGITS] = '\0';
    char *end;
    ret->sequence = strtoull(text + SESSION_DIGITS + 1, &end, 10);
    ret->fence = *end == ':' ? strtoull(end + 1, &end, 10) : 0;
    return *end == ':' || *end == '\0';
}

/* A time in seconds, as the protocol timestamp and programs like it keep in the lock. */
static bool is_timestamp(const char *value)
{
    size_t n = strspn(value, "0123456789");
    if (n < 9 || n > 12)
        return false;
    if (value[n] == '.')
        n += 1 + strspn(value + n + 1, "0123456789");
    return value[n] == '\0';
}

static hf_party **parties_free(hf_party **list)
{
    for (size_t i = 0; list && list[i]; i++)
        record_party_free(list[i]);
    mem_free(list);
    return NULL;
}

/* n parties, zeroed; in a list that ends with NULL. */
static hf_party **parties_new(size_t n)
{
    hf_party **list = mem_zalloc((n + 1) * sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        if (!(list[i] = mem_zalloc(sizeof *list[i])))
            return parties_free(list);
        list[i]->lease_ms = list[i]->renewed_ms = list[i]->since_unix_ms = -1;
        list[i]->present = -1;
    }
    return list;
}

hf_inspect_info *hf_inspect_free(hf_inspect_info *info)
{
    if (!info)
        return NULL;
    parties_free(info->holder);
    parties_free(info->waiter);
    mem_free(info->name);
    mem_free(info->kind);
    mem_free(info);
    return NULL;
}

static hf_err no_memory(hf_error *reterr)
{
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

/* One call: all that lives between its steps. */
struct inspection {
    struct call       call;
    struct lock_keys *keys;
    hf_inspect_info **ret;
    hf_inspect_info  *info;
    int64_t           until_ms; /* CLOCK_NEVER: each request as long as the client allows */
    struct op         op;
    struct record_reading record;
    size_t            unknown, next; /* whose sessions are to be asked about */
    struct unknown {
        struct token token;
        bool         waits;
        hf_party    *party;
    } *who;
};

/* Who the session behind a token is will be asked, when all are there. */
static void identify(struct inspection *k, const struct token *t, bool waits, hf_party *p)
{
    if (k->unknown < (size_t)2 * PARTIES_MAX)
        k->who[k->unknown++] = (struct unknown){ *t, waits, p };
}

/* Held by one: the value is what the lock holds, own what stands beside a caller-chosen id. */
static hf_err describe_holder(struct inspection *k, const struct op_inspected *got)
{
    hf_inspect_info *info = k->info;
    hf_error *reterr = k->call.reterr;
    struct token t;
    const char *value = got->value.len ? got->value.data : "";
    const char *own = got->own.len ? got->own.data : "";
    info->holder = parties_new(1);
    if (!info->holder)
        return no_memory(reterr);
    hf_party *p = info->holder[0];
    info->holders = info->holders_total = 1;
    bool random = parse_token(value, &t) && t.fence;
    bool known = random || (parse_token(own, &t) && t.fence);

    p->age_ms = -1;
    p->owner = mem_copy(value, random ? SHOWN_DIGITS : got->value.len);
    const char *kind = known ? "mutex" : is_timestamp(value) ? "timestamp" : "foreign";
    info->kind = mem_copy(kind, strlen(kind));
    if (!p->owner || !info->kind)
        return no_memory(reterr);
    if (!known)
        return HF_OK;
    p->fence = t.fence;
    identify(k, &t, false, p);
    return HF_OK;
}

/* One of several: a token, and fence:grace:weight. */
static hf_err describe_one(struct inspection *k, const char *token, const char *details,
                           hf_party *p)
{
    struct token t;
    unsigned long long fence = 0;
    bool known = parse_token(token, &t);
    p->age_ms = -1;
    p->owner = known ? mem_copy(token, SHOWN_DIGITS) : mem_copy("?", 1);
    if (!p->owner)
        return no_memory(k->call.reterr);
    if (sscanf(details, "%llu:%*u:%u", &fence, &p->permits) == 2)
        p->fence = fence;
    if (known)
        identify(k, &t, false, p);
    return HF_OK;
}

/* A member of the queue: token:grace:claim:nonce:owner. */
static hf_err describe_waiter(struct inspection *k, const char *member, hf_party *p)
{
    struct token t;
    p->age_ms = -1;
    if (!parse_token(member, &t)) {
        p->owner = mem_copy("?", 1);
        return p->owner ? HF_OK : no_memory(k->call.reterr);
    }
    const char *owner = member;
    for (int colons = 0; owner && colons < 4; colons++)
        owner = strchr(owner, ':') ? strchr(owner, ':') + 1 : NULL;
    p->owner = owner && *owner ? mem_copy(owner, strlen(owner)) : mem_copy(t.session, SHOWN_DIGITS);
    if (!p->owner)
        return no_memory(k->call.reterr);
    identify(k, &t, true, p);
    return HF_OK;
}

static hf_err describe_waiters(struct inspection *k, const struct op_inspected *got)
{
    hf_inspect_info *info = k->info;
    size_t n = op_list_len(got->waiters);
    if (n == 0)
        return HF_OK;
    info->waiter = parties_new(n);
    if (!info->waiter)
        return no_memory(k->call.reterr);
    info->waiters_total = got->nwaiters > 0 ? (size_t)got->nwaiters : n;
    hf_err e = HF_OK;
    for (size_t i = 0; i < n && !e; i++) {
        info->waiters = i + 1;
        e = describe_waiter(k, op_list_at(got->waiters, i).data, info->waiter[i]);
    }
    return e;
}

/* A lock of a kind that says what it is. */
static hf_err describe_kind(struct inspection *k, const struct op_inspected *got,
                            const struct kind *kind)
{
    hf_inspect_info *info = k->info;
    size_t n = op_list_len(got->holders) / 2;
    info->slots = kind->total;
    info->used = kind->used;
    info->kind = mem_copy(kind->name, strlen(kind->name));
    info->holder = parties_new(n);
    if (!info->kind || !info->holder)
        return no_memory(k->call.reterr);
    info->holders_total = got->nholders > 0 ? (size_t)got->nholders : n;
    hf_err e = HF_OK;
    for (size_t i = 0; i < n && !e; i++) {
        info->holders = i + 1;
        e = describe_one(k, op_list_at(got->holders, 2 * i).data,
                         op_list_at(got->holders, 2 * i + 1).data, info->holder[i]);
    }
    return e;
}

static hf_err describe_all(struct inspection *k, const struct op_inspected *got)
{
    struct kind kind;
    hf_inspect_info *info = k->info;
    const char *type = got->type.data;
    bool none = strcmp(type, "none") == 0, held = strcmp(type, "string") == 0;
    info->ttl_ms = none ? 0 : got->left_ms;
    hf_err e = HF_OK;
    if (!held) {
        info->kind = none ? mem_copy("mutex", 5) : mem_copy("wrong type", 10);
        e = info->kind ? HF_OK : no_memory(k->call.reterr);
    } else if (kind_parse(got->value.data, &kind)) {
        e = describe_kind(k, got, &kind);
    } else {
        e = describe_holder(k, got);
    }
    return e ? e : describe_waiters(k, got);
}

static hf_err describe(struct inspection *k)
{
    hf_bytes name = k->keys->name;
    if (k->op.result)
        return k->op.result;
    k->info = mem_zalloc(sizeof *k->info);
    k->who = mem_alloc((size_t)2 * PARTIES_MAX * sizeof *k->who);
    if (k->info)
        k->info->name = mem_copy(name.data, name.len);
    if (!k->info || !k->info->name || !k->who)
        return no_memory(k->call.reterr);
    k->info->name_len = name.len;
    k->info->now_unix_ms = k->info->absent_ms = -1;
    return describe_all(k, &k->op.got.inspected);
}

static int64_t deadline(const struct inspection *k)
{
    return k->until_ms == CLOCK_NEVER ? client_deadline(k->call.c) : k->until_ms;
}

/* The record of the next session. */
static hf_err ask_record(struct inspection *k)
{
    const struct unknown *u = &k->who[k->next];
    hf_client *c = k->call.c;
    hf_err e = record_read_begin(&k->record, c->prefix, u->token.session, u->token.sequence,
                                 u->waits, k->op.got.inspected.server_ms, u->party,
                                 deadline(k), k->call.reterr);
    if (!e) {
        k->record.op.task = &k->call.task;
        exec_begin(c->exec, &k->record.op);
    }
    return e;
}

static bool inspect_step(struct task *t)
{
    struct inspection *k = (struct inspection *)t;
    struct call *call = &k->call;
    struct exec *x = call->c->exec;
    STEP_BEGIN(call->at);
    k->op = (struct op){ .id = OP_inspect, .deadline_ms = deadline(k), .task = t,
                         .reterr = call->reterr,
                         .inspect = { .keys = k->keys, .max = PARTIES_MAX } };
    exec_begin(x, &k->op);
    STEP_UNTIL(call->at, exec_step(x, &k->op));
    call->result = describe(k);
    for (; !call->result && k->next < k->unknown; k->next++) {
        call->result = ask_record(k);
        if (call->result)
            break;
        STEP_UNTIL(call->at, exec_step(x, &k->record.op));
        call->result = record_read_end(&k->record);
    }
    op_clear(&k->op);
    STEP_END(call->at);
}

static void over(struct call *call)
{
    struct inspection *k = (struct inspection *)call;
    if (call->result)
        hf_inspect_free(k->info);
    else
        *k->ret = k->info;
    mem_free(k->who);
    keys_free(k->keys);
}

static int64_t until_of(int64_t timeout_ms)
{
    return timeout_ms > 0 ? clock_add(clock_now_ms(), timeout_ms) : CLOCK_NEVER;
}

/* For every public call here. */
static hf_err check(hf_client *c, int64_t timeout_ms, bool complete, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && timeout_ms < 0)
        e = err_set(reterr, HF_EINVAL, "a negative time limit: give 0 for the client's own");
    if (!e && !complete)
        e = err_set(reterr, HF_EINVAL, "no place for the result was given");
    return e;
}

static hf_err inspect(hf_client *c, hf_bytes name, int64_t until_ms, hf_inspect_info **ret,
                      hf_error *reterr)
{
    struct inspection k = { .ret = ret, .until_ms = until_ms };
    hf_err e = client_keys(c, name, &k.keys, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, inspect_step, NULL, reterr);
    k.call.over = over;
    return call_run(&k.call);
}

hf_err hf_inspect_lock(hf_client *c, hf_bytes name, int64_t timeout_ms, hf_inspect_info **ret,
                       hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check(c, timeout_ms, ret, reterr);
    return e ? e : inspect(c, name, until_of(timeout_ms), ret, reterr);
}

hf_err hf_inspect_lock_async(hf_client *c, hf_bytes name, int64_t timeout_ms,
                             hf_inspect_info **ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct inspection *k;
    hf_err e = check(c, timeout_ms, ret, reterr);
    if (!e)
        e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = client_keys(c, name, &k->keys, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->ret = ret;
    k->until_ms = until_of(timeout_ms);
    k->call.over = over;
    return call_submit(&k->call, inspect_step, reterr);
}

struct listing {
    hf_client    *c;
    int64_t       until_ms;
    hf_inspect_fn each;
    void         *arg;
    bool          ended;
};

static hf_err list_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct listing *l = arg;
    hf_inspect_info *info;
    if (l->ended)
        return HF_OK;
    hf_err e = inspect(l->c, name, l->until_ms, &info, reterr);
    if (e)
        return e;
    /* It may have ended since the scan: then it is not there to be listed. */
    if (info->holders || strcmp(info->kind, "mutex") != 0)
        l->ended = l->each(info, l->arg) != 0;
    hf_inspect_free(info);
    return HF_OK;
}

hf_err hf_inspect_list(hf_client *c, const char *pattern, int64_t timeout_ms, hf_inspect_fn each,
                       void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct listing l = { .c = c, .until_ms = until_of(timeout_ms), .each = each, .arg = arg };
    hf_err e = check(c, timeout_ms, each, reterr);
    return e ? e : scan_locks(c, pattern, l.until_ms, list_one, &l, reterr);
}
