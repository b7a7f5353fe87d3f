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
#include "session/scan.h"

#define SESSION_DIGITS 32
#define SHOWN_DIGITS   8

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
    if (*end != ':')
        return false;
    ret->fence = strtoull(end + 1, &end, 10);
    return *end == ':' || *end == '\0';
}

static void party_clear(hf_party *p)
{
    mem_free(p->owner);
    mem_free(p->host);
    mem_free(p->user);
    mem_free(p->program);
    mem_free(p->info);
}

hf_lock_info *hf_lock_info_free(hf_lock_info *info)
{
    if (!info)
        return NULL;
    for (size_t i = 0; i < info->holders; i++)
        party_clear(&info->holder[i]);
    for (size_t i = 0; i < info->waiters; i++)
        party_clear(&info->waiter[i]);
    mem_free(info->holder);
    mem_free(info->waiter);
    mem_free(info->name);
    mem_free(info->kind);
    mem_free(info);
    return NULL;
}

static hf_err no_memory(hf_error *reterr)
{
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

/* value is what the lock holds, own what stands beside a caller-chosen id. */
static hf_err describe_holder(hf_client *c, const struct reply *value, const struct reply *own,
                              int64_t now_ms, hf_lock_info *info, hf_error *reterr)
{
    struct token t;
    hf_party *p = info->holder;
    bool random = parse_token(value->str, &t);
    bool known = random || parse_token(own->str, &t);

    p->age_ms = -1;
    p->owner = random ? mem_copy(value->str, SHOWN_DIGITS) : mem_copy(value->str, value->len);
    info->kind = known ? mem_copy("mutex", 5) : mem_copy("foreign", 7);
    if (!p->owner || !info->kind)
        return no_memory(reterr);
    if (!known)
        return HF_OK;
    p->fence = t.fence;
    char tail[64];
    snprintf(tail, sizeof tail, "session:%s", t.session);
    AUTO(mem_freep) char *key = keys_reserved(c->prefix, tail);
    if (!key)
        return no_memory(reterr);
    return record_read(c->topo, key, t.sequence, now_ms, p, client_deadline(c), reterr);
}

static hf_err describe(hf_client *c, const struct reply *rp, hf_lock_info *info, hf_error *reterr)
{
    if (rp->type != REPLY_ARRAY || rp->len != 5 || !rp->item[0]->str || !rp->item[1]->str
        || !rp->item[3]->str)
        return err_set(reterr, HF_EPROTO, "the answer to an inspection makes no sense");
    info->ttl_ms = rp->item[2]->num;
    if (strcmp(rp->item[0]->str, "none") == 0) {
        info->ttl_ms = 0;
        info->kind = mem_copy("mutex", 5);
        return info->kind ? HF_OK : no_memory(reterr);
    }
    if (strcmp(rp->item[0]->str, "string") != 0) {
        info->kind = mem_copy("wrong type", 10);
        return info->kind ? HF_OK : no_memory(reterr);
    }
    info->holder = mem_zalloc(sizeof *info->holder);
    if (!info->holder)
        return no_memory(reterr);
    info->holders = 1;
    return describe_holder(c, rp->item[1], rp->item[3], rp->item[4]->num, info, reterr);
}

hf_err hf_inspect(hf_client *c, hf_bytes name, hf_lock_info **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct lock_keys *k;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = keys_new(c->prefix, name, &k, reterr);
    if (e)
        return e;
    hf_bytes keys[] = { k->key[KEY_LOCK], k->key[KEY_OWN] };
    struct script_call sc = { .id = SCRIPT_inspect, .nkeys = 2, .keys = keys,
                              .deadline_ms = client_deadline(c) };
    e = script_run(c->topo, &sc, reterr);
    keys_free(k);
    if (e)
        return e;
    hf_lock_info *info = mem_zalloc(sizeof *info);
    if (info)
        info->name = mem_copy(name.data, name.len);
    if (!info || !info->name) {
        e = no_memory(reterr);
    } else {
        info->name_len = name.len;
        e = describe(c, sc.reply, info, reterr);
    }
    reply_free(sc.reply);
    if (e)
        hf_lock_info_free(info);
    else
        *ret = info;
    return e;
}

struct listing {
    hf_client *c;
    hf_list_fn each;
    void      *arg;
    bool       ended;
};

static hf_err list_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct listing *l = arg;
    hf_lock_info *info;
    if (l->ended)
        return HF_OK;
    hf_err e = hf_inspect(l->c, name, &info, reterr);
    if (e)
        return e;
    /* It may have ended since the scan: then it is not there to be listed. */
    if (info->holders || strcmp(info->kind, "wrong type") == 0)
        l->ended = l->each(info, l->arg) != 0;
    hf_lock_info_free(info);
    return HF_OK;
}

hf_err hf_list(hf_client *c, const char *pattern, hf_list_fn each, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct listing l = { .c = c, .each = each, .arg = arg };
    hf_err e = client_enter(c, reterr);
    return e ? e : scan_locks(c, pattern, list_one, &l, reterr);
}
