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
#include "session/client.h"
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
    for (size_t i = 0; list && i < n; i++)
        if (!(list[i] = mem_zalloc(sizeof *list[i])))
            return parties_free(list);
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

/* What one call has: */
struct inspection {
    hf_client *c;
    int64_t    until_ms;  /* CLOCK_NEVER: each request as long as the client allows */
    int64_t    server_ms; /* what the server's clock said */
};

static int64_t deadline(const struct inspection *in)
{
    return in->until_ms == CLOCK_NEVER ? client_deadline(in->c) : in->until_ms;
}

/* Who the session behind a token is, from its record. */
static hf_err identify(const struct inspection *in, const struct token *t, bool waits, hf_party *p,
                       hf_error *reterr)
{
    char tail[64];
    snprintf(tail, sizeof tail, "session:%s", t->session);
    AUTO(mem_freep) char *key = keys_reserved(in->c->prefix, tail);
    if (!key)
        return no_memory(reterr);
    return record_read(in->c->exec, key, t->sequence, waits, in->server_ms, p, deadline(in),
                       reterr);
}

/* Held by one: the value is what the lock holds, own what stands beside a caller-chosen id. */
static hf_err describe_holder(const struct inspection *in, const struct op_inspected *got,
                              hf_inspect_info *info, hf_error *reterr)
{
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
    return identify(in, &t, false, p, reterr);
}

/* One of several: a token, and fence:grace:weight. */
static hf_err describe_one(const struct inspection *in, const char *token, const char *details,
                           hf_party *p, hf_error *reterr)
{
    struct token t;
    unsigned long long fence = 0;
    bool known = parse_token(token, &t);
    p->age_ms = -1;
    p->owner = known ? mem_copy(token, SHOWN_DIGITS) : mem_copy("?", 1);
    if (!p->owner)
        return no_memory(reterr);
    if (sscanf(details, "%llu:%*u:%u", &fence, &p->permits) == 2)
        p->fence = fence;
    return known ? identify(in, &t, false, p, reterr) : HF_OK;
}

/* A member of the queue: token:grace:claim:nonce:owner. */
static hf_err describe_waiter(const struct inspection *in, const char *member, hf_party *p,
                              hf_error *reterr)
{
    struct token t;
    p->age_ms = -1;
    if (!parse_token(member, &t)) {
        p->owner = mem_copy("?", 1);
        return p->owner ? HF_OK : no_memory(reterr);
    }
    const char *owner = member;
    for (int colons = 0; owner && colons < 4; colons++)
        owner = strchr(owner, ':') ? strchr(owner, ':') + 1 : NULL;
    p->owner = owner && *owner ? mem_copy(owner, strlen(owner)) : mem_copy(t.session, SHOWN_DIGITS);
    if (!p->owner)
        return no_memory(reterr);
    return identify(in, &t, true, p, reterr);
}

static hf_err describe_waiters(const struct inspection *in, const struct op_inspected *got,
                               hf_inspect_info *info, hf_error *reterr)
{
    size_t n = op_list_len(got->waiters);
    if (n == 0)
        return HF_OK;
    info->waiter = parties_new(n);
    if (!info->waiter)
        return no_memory(reterr);
    info->waiters_total = got->nwaiters > 0 ? (size_t)got->nwaiters : n;
    hf_err e = HF_OK;
    for (size_t i = 0; i < n && !e; i++) {
        info->waiters = i + 1;
        e = describe_waiter(in, op_list_at(got->waiters, i).data, info->waiter[i], reterr);
    }
    return e;
}

/* A lock of a kind that says what it is. */
static hf_err describe_kind(const struct inspection *in, const struct op_inspected *got,
                            const struct kind *k, hf_inspect_info *info, hf_error *reterr)
{
    size_t n = op_list_len(got->holders) / 2;
    info->slots = k->total;
    info->used = k->used;
    info->kind = mem_copy(k->name, strlen(k->name));
    info->holder = parties_new(n);
    if (!info->kind || !info->holder)
        return no_memory(reterr);
    info->holders_total = got->nholders > 0 ? (size_t)got->nholders : n;
    hf_err e = HF_OK;
    for (size_t i = 0; i < n && !e; i++) {
        info->holders = i + 1;
        e = describe_one(in, op_list_at(got->holders, 2 * i).data,
                         op_list_at(got->holders, 2 * i + 1).data, info->holder[i], reterr);
    }
    return e;
}

static hf_err describe(const struct inspection *in, const struct op_inspected *got,
                       hf_inspect_info *info, hf_error *reterr)
{
    struct kind k;
    const char *type = got->type.data;
    bool none = strcmp(type, "none") == 0, held = strcmp(type, "string") == 0;
    info->ttl_ms = none ? 0 : got->left_ms;
    hf_err e = HF_OK;
    if (!held) {
        info->kind = none ? mem_copy("mutex", 5) : mem_copy("wrong type", 10);
        e = info->kind ? HF_OK : no_memory(reterr);
    } else if (kind_parse(got->value.data, &k)) {
        e = describe_kind(in, got, &k, info, reterr);
    } else {
        e = describe_holder(in, got, info, reterr);
    }
    return e ? e : describe_waiters(in, got, info, reterr);
}

static hf_err inspect(struct inspection *in, hf_bytes name, hf_inspect_info **ret,
                      hf_error *reterr)
{
    struct lock_keys *k;
    hf_err e = client_keys(in->c, name, &k, reterr);
    if (e)
        return e;
    AUTO(op_clear) struct op op = { .id = OP_inspect, .deadline_ms = deadline(in),
                                    .inspect = { .keys = k, .max = PARTIES_MAX } };
    e = exec_run(in->c->exec, &op, reterr);
    keys_free(k);
    if (e)
        return e;
    in->server_ms = op.got.inspected.server_ms;
    hf_inspect_info *info = mem_zalloc(sizeof *info);
    if (info)
        info->name = mem_copy(name.data, name.len);
    if (!info || !info->name) {
        e = no_memory(reterr);
    } else {
        info->name_len = name.len;
        e = describe(in, &op.got.inspected, info, reterr);
    }
    if (e)
        hf_inspect_free(info);
    else
        *ret = info;
    return e;
}

/* For every public call here. */
static hf_err begin(struct inspection *in, hf_client *c, int64_t timeout_ms, bool complete,
                    hf_error *reterr)
{
    *in = (struct inspection){ .c = c, .until_ms = CLOCK_NEVER };
    if (timeout_ms > 0)
        in->until_ms = clock_add(clock_now_ms(), timeout_ms);
    hf_err e = client_enter(c, reterr);
    if (!e && timeout_ms < 0)
        e = err_set(reterr, HF_EINVAL, "a negative time limit: give 0 for the client's own");
    if (!e && !complete)
        e = err_set(reterr, HF_EINVAL, "no place for the result was given");
    return e;
}

hf_err hf_inspect_lock(hf_client *c, hf_bytes name, int64_t timeout_ms, hf_inspect_info **ret,
                       hf_error *reterr)
{
    CALL_GUARD;
    struct inspection in;
    hf_err e = begin(&in, c, timeout_ms, ret, reterr);
    return e ? e : inspect(&in, name, ret, reterr);
}

struct listing {
    struct inspection in;
    hf_inspect_fn     each;
    void             *arg;
    bool              ended;
};

static hf_err list_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct listing *l = arg;
    hf_inspect_info *info;
    if (l->ended)
        return HF_OK;
    hf_err e = inspect(&l->in, name, &info, reterr);
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
    struct listing l = { .each = each, .arg = arg };
    hf_err e = begin(&l.in, c, timeout_ms, each, reterr);
    return e ? e : scan_locks(c, pattern, l.in.until_ms, list_one, &l, reterr);
}
