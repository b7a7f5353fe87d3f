/* SPDX-License-Identifier: MIT
 * inspect_words.c - what one look at a lock found, in words.
 *
 * Everything here was written by others: nothing is believed but its form.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "lock/inspect.h"
#include "session/kind.h"
#include "session/record.h"

#define OWNER_DIGITS   8  /* what is shown of a random owner id */
#define SESSION_SHOWN  16 /* and of a session: enough to tell one from another */
#define CLAIM_MAX_MS   10000 /* the longest that a lock is kept for who was called */
#define TIME_MAX       INT64_C(9007199254740991) /* ms, of whatever clock */

/* A token, and what may stand behind it: "<32 digits>.<sequence>:<fence>:<grace>" */
struct token {
    char     session[SIGHT_SESSION_DIGITS + 1];
    uint64_t sequence, fence;
    int64_t  grace_ms; /* -1: it does not say */
};

static bool parse_token(const char *text, struct token *ret)
{
    *ret = (struct token){ .grace_ms = -1 };
    if (strspn(text, "0123456789abcdef") != SIGHT_SESSION_DIGITS
        || text[SIGHT_SESSION_DIGITS] != '.')
        return false;
    memcpy(ret->session, text, SIGHT_SESSION_DIGITS);
    char *end;
    ret->sequence = strtoull(text + SIGHT_SESSION_DIGITS + 1, &end, 10);
    if (*end == ':')
        ret->fence = strtoull(end + 1, &end, 10);
    if (*end == ':') {
        long long ms = strtoll(end + 1, NULL, 10);
        ret->grace_ms = ms >= 0 && ms < TIME_MAX ? ms : -1;
    }
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

/* ---- lists ---------------------------------------------------------------------------------- */

static hf_party **parties_free(hf_party **list)
{
    for (size_t i = 0; list && list[i]; i++)
        record_party_free(list[i]);
    mem_free(list);
    return NULL;
}

/* n parties of which nothing is known; in a list that ends with NULL. */
static hf_party **parties_new(size_t n)
{
    hf_party **list = mem_zalloc((n + 1) * sizeof *list);
    for (size_t i = 0; list && i < n; i++)
        if (!(list[i] = record_party_new()))
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
    mem_free(info->value);
    mem_free(info);
    return NULL;
}

void sights_clear(struct sights *s)
{
    hf_inspect_free(s->info);
    mem_free(s->sight);
    *s = (struct sights){ 0 };
}

/* ---- one party ------------------------------------------------------------------------------ */

/* What is being described, and where. */
struct reading {
    struct sights             *to;
    hf_inspect_info           *info;
    const struct op_inspected *got;
    const char                *prefix;
    bool                       presence;
};

static bool set_text(char **slot, const char *text, size_t len)
{
    *slot = mem_copy(text, len);
    return *slot != NULL;
}

static bool set_word(char **slot, const char *word)
{
    return set_text(slot, word, strlen(word));
}

/* Who the session behind a token is will be asked, when all are there. */
static bool identify(struct reading *r, const struct token *t, bool waits, hf_party *p)
{
    struct sight *s = &r->to->sight[r->to->n++];
    *s = (struct sight){ .sequence = t->sequence, .waits = waits, .party = p };
    memcpy(s->session, t->session, sizeof s->session);
    return set_text(&p->session, t->session, SESSION_SHOWN);
}

/* at: its place among all that were looked for. Of a holder without a grace only that it is there
 * says something: it needs no session. */
static int presence_of(const struct reading *r, size_t at, bool needed)
{
    long long seen = op_list_number(r->got->seen, at, -1);
    return !r->presence || (seen != 1 && (seen != 0 || !needed)) ? -1 : (int)seen;
}

/* "UNTIL SINCE TOKEN KEY": a lock that it waits for. */
static bool set_wait(const struct reading *r, const char *text, hf_party *p)
{
    long long until, since;
    int at = 0;
    size_t skip = strlen(r->prefix);
    if (sscanf(text, "%lld %lld %*[0-9a-f.] %n", &until, &since, &at) != 2 || !at || !text[at]
        || until <= r->got->server_ms)
        return true;
    const char *key = text + at;
    if (strncmp(key, r->prefix, skip) == 0)
        key += skip;
    p->waits_ms = since > 0 && since < r->got->server_ms ? r->got->server_ms - since : 0;
    return set_word(&p->waits_for, key);
}

/* "absent SINCE REIGN" */
static void set_absence(const struct reading *r, const char *mark)
{
    long long since;
    if (sscanf(mark, "absent %lld ", &since) != 1 || since <= 0 || since > r->got->server_ms)
        return;
    int64_t ms = r->got->server_ms - since;
    if (ms > r->info->absent_ms)
        r->info->absent_ms = ms;
}

/* The i-th holder: what stands beside the lock about it. */
static bool complete_holder(struct reading *r, size_t i, const struct token *t, hf_party *p)
{
    p->present = presence_of(r, i, p->grace_ms > 0);
    set_absence(r, op_list_at(r->got->notes, 2 * i).data);
    return identify(r, t, false, p)
           && set_wait(r, op_list_at(r->got->notes, 2 * i + 1).data, p);
}

/* ---- holders -------------------------------------------------------------------------------- */

/* "term:n:value", if that is the term of the holder. */
static bool set_leader(struct reading *r, uint64_t term)
{
    hf_bytes v = r->got->leader;
    char *end;
    if (!v.len || strtoull(v.data, &end, 10) != term || *end != ':')
        return true;
    size_t n = strspn(end + 1, "0123456789");
    if (n == 0 || end[1 + n] != ':')
        return true;
    const char *said = end + 2 + n;
    size_t len = v.len - (size_t)(said - (const char *)v.data);
    r->info->election = 1;
    r->info->value_len = len < 1024 ? len : 1024;
    return set_text(&r->info->value, said, r->info->value_len);
}

/* Held by one: the value is what the lock holds, own what stands beside a caller-chosen id. */
static bool set_holder(struct reading *r)
{
    hf_inspect_info *info = r->info;
    struct token t;
    const char *value = r->got->value.len ? r->got->value.data : "";
    const char *own = r->got->own.len ? r->got->own.data : "";
    if (!(info->holder = parties_new(1)))
        return false;
    hf_party *p = info->holder[0];
    info->holders = info->holders_total = 1;
    p->ttl_ms = info->ttl_ms;
    bool random = parse_token(value, &t) && t.fence;
    bool known = random || (parse_token(own, &t) && t.fence);
    if (!set_text(&p->owner, value, random ? OWNER_DIGITS : r->got->value.len))
        return false;
    if (!known)
        return set_word(&info->kind, is_timestamp(value) ? "timestamp" : "foreign");
    p->fence = t.fence;
    p->grace_ms = random ? t.grace_ms : 0; /* an owner id leaves no room for one */
    return set_leader(r, random ? t.fence : 0)
           && set_word(&info->kind, info->election ? "election" : "mutex")
           && set_word(&p->mode, "exclusive") && complete_holder(r, 0, &t, p);
}

/* One of several: a token, fence:grace:weight, and its deadline. */
static bool set_sharer(struct reading *r, size_t i, const char *mode, hf_party *p)
{
    struct token t;
    unsigned long long fence = 0;
    long long grace = 0;
    const char *token = op_list_at(r->got->holders, 3 * i).data;
    double ends = strtod(op_list_at(r->got->holders, 3 * i + 2).data, NULL);
    bool known = parse_token(token, &t);
    if (!(known ? set_text(&p->owner, token, OWNER_DIGITS) : set_word(&p->owner, "?")))
        return false;
    if (sscanf(op_list_at(r->got->holders, 3 * i + 1).data, "%llu:%lld:%u", &fence, &grace,
               &p->permits) == 3) {
        p->fence = fence;
        p->grace_ms = grace >= 0 && grace < TIME_MAX ? grace : -1;
    }
    if (ends > 0 && ends < (double)TIME_MAX)
        p->ttl_ms = (int64_t)ends > r->got->server_ms ? (int64_t)ends - r->got->server_ms : 0;
    return set_word(&p->mode, mode) && (!known || complete_holder(r, i, &t, p));
}

/* A lock of a kind that says what it is. */
static bool set_kind(struct reading *r, const struct kind *kind)
{
    hf_inspect_info *info = r->info;
    size_t n = op_list_len(r->got->holders) / 3;
    info->slots = kind->total;
    info->used = kind->used;
    info->holder = parties_new(n);
    if (!info->holder || !set_word(&info->kind, kind->name))
        return false;
    info->holders_total = r->got->nholders > 0 ? (size_t)r->got->nholders : n;
    const char *mode = kind->lock && kind->total ? "permits" : "shared";
    bool whole = true;
    for (size_t i = 0; i < n && whole; i++) {
        info->holders = i + 1;
        whole = set_sharer(r, i, mode, info->holder[i]);
    }
    return whole;
}

/* ---- waiters -------------------------------------------------------------------------------- */

/* Behind the nonce: "/limit.weight" of who wants a part of it. */
static const char *mode_of(const char *nonce, hf_party *p)
{
    unsigned limit, weight;
    size_t n = strspn(nonce, "0123456789abcdef");
    if (sscanf(nonce + n, "/%u.%u:", &limit, &weight) != 2)
        return "exclusive";
    p->permits = weight;
    return limit ? "permits" : "shared";
}

/* A member of the queue: token:grace:claim:nonce:owner. */
static bool set_waiter(struct reading *r, const char *member, size_t at, hf_party *p)
{
    struct token t;
    if (!parse_token(member, &t))
        return set_word(&p->owner, "?");
    const char *part[5] = { member };
    for (int i = 1; i < 5; i++) {
        const char *colon = part[i - 1] ? strchr(part[i - 1], ':') : NULL;
        part[i] = colon ? colon + 1 : NULL;
    }
    const char *owner = part[4];
    p->present = presence_of(r, at, true);
    return set_word(&p->mode, part[3] ? mode_of(part[3], p) : "exclusive")
           && (owner && *owner ? set_word(&p->owner, owner)
                               : set_text(&p->owner, t.session, OWNER_DIGITS))
           && identify(r, &t, true, p);
}

static bool set_waiters(struct reading *r, size_t before)
{
    hf_inspect_info *info = r->info;
    size_t n = op_list_len(r->got->waiters);
    if (n == 0)
        return true;
    if (!(info->waiter = parties_new(n)))
        return false;
    info->waiters_total = r->got->nwaiters > 0 ? (size_t)r->got->nwaiters : n;
    bool whole = true;
    for (size_t i = 0; i < n && whole; i++) {
        info->waiters = i + 1;
        whole = set_waiter(r, op_list_at(r->got->waiters, i).data, before + i, info->waiter[i]);
    }
    return whole;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void set_settings(hf_inspect_info *info, hf_bytes text)
{
    unsigned limit, named;
    if (text.len && sscanf(text.data, "%u %u", &limit, &named) == 2) {
        info->resized = limit;
        info->named = named;
    }
}

static bool set_all(struct reading *r)
{
    struct kind kind;
    hf_inspect_info *info = r->info;
    const char *type = r->got->type.data;
    bool none = strcmp(type, "none") == 0, held = strcmp(type, "string") == 0;
    size_t shared = op_list_len(r->got->holders) / 3;
    info->ttl_ms = none ? 0 : r->got->left_ms;
    info->now_unix_ms = r->got->server_ms;
    set_settings(info, r->got->settings);
    bool whole = !held ? set_word(&info->kind, none ? SIGHT_FREE : "wrong type")
                 : kind_parse(r->got->value.data, &kind) ? set_kind(r, &kind)
                                                         : set_holder(r);
    return whole && set_waiters(r, shared ? shared : 1);
}

static bool begin(struct sights *ret, hf_bytes name, size_t most)
{
    *ret = (struct sights){ .info = mem_zalloc(sizeof *ret->info),
                            .sight = mem_alloc(most * sizeof *ret->sight) };
    if (!ret->info || !ret->sight || !set_text(&ret->info->name, name.data, name.len))
        return false;
    ret->info->name_len = name.len;
    ret->info->absent_ms = -1;
    return true;
}

bool sights_name(struct sights *ret, hf_bytes name)
{
    if (!begin(ret, name, 1))
        return false;
    ret->info->ttl_ms = ret->info->now_unix_ms = -1;
    return set_word(&ret->info->kind, "unknown");
}

bool sights_fill(struct sights *ret, const char *prefix, hf_bytes name,
                 const struct op_inspected *got, bool presence)
{
    if (!begin(ret, name, op_list_len(got->holders) / 3 + op_list_len(got->waiters) + 1))
        return false;
    struct reading r = { ret, ret->info, got, prefix, presence };
    return set_all(&r);
}

void sight_complete(const struct sight *s)
{
    hf_party *p = s->party;
    if (s->waits) {
        p->claiming = 0;
        p->lease_ms = p->renews = -1;
        return;
    }
    if (p->lease_ms >= 0 && p->ttl_ms >= 0 && p->ttl_ms <= p->lease_ms)
        p->renewed_ms = p->lease_ms - p->ttl_ms;
    if (p->ttl_ms < 0 || p->ttl_ms > CLAIM_MAX_MS) /* it has the whole lease, and is about to say */
        p->claiming = 0;
}
