/* SPDX-License-Identifier: MIT
 * transaction.c - a lock that one holds alone, taken by WATCH, MULTI and EXEC.
 *
 * Keys and values are those of the scripts, so both kinds of clients exclude each other. What makes
 * it safe:
 *  - The lock and its tombstones are watched first, then read, and only then a fencing number is
 *    taken: no grant of this name can have come between, so the number is larger than all before.
 *    The counter itself is not watched: different locks do not disturb one another.
 *  - An answer that changes nothing needs no EXEC: it was true when it was read.
 *  - A request that is repeated finds its token in the lock, and with it its number.
 *  - Nobody is handed anything: a release deletes the key. Who waits in the queue of the scripts is
 *    served by its own looks.
 */
#include "script/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define REPAIR_MIN_MS 10000 /* the least that a lock found without a ttl is given */

int64_t transaction_repaired_ms(int64_t ttl_ms)
{
    return ttl_ms > REPAIR_MIN_MS ? ttl_ms : REPAIR_MIN_MS;
}

/* The number behind "token:". */
static long long fence_in(const struct reply *record, const char *token)
{
    return strtoll(record->str + strlen(token) + 1, NULL, 10);
}

hf_bytes arg_at(const struct tx *x, size_t i)
{
    return i < x->sc->nargs ? x->sc->args[i] : hf_str("");
}

const char *text_at(const struct tx *x, size_t i)
{
    hf_bytes b = arg_at(x, i);
    return b.len ? b.data : ""; /* numbers, tokens and words come as C strings */
}

int64_t number_at(const struct tx *x, size_t i)
{
    return strtoll(text_at(x, i), NULL, 10);
}

void tx_entomb(struct tx *x, hf_bytes tombs, const char *token, int64_t now_ms, int64_t ms,
               int64_t left_ms)
{
    tx_ask(x, S("ZADD"), tombs, N(now_ms + ms), S(token));
    tx_ask(x, S("ZREMRANGEBYSCORE"), tombs, S("-inf"), N(now_ms));
    tx_ask(x, S("PEXPIRE"), tombs, N(left_ms > ms ? left_ms : ms));
}

/* ---- acquire --------------------------------------------------------------------------------- */

struct wish { /* what acquire.lua is told */
    hf_bytes    lock, counter, tombs, own, owner;
    const char *token;
    int64_t     ttl_ms;
};

/* It is ours already: as acquire.lua, its ttl is refreshed and never shortened. */
static enum outcome granted_before(struct tx *x, const struct wish *w, long long fence,
                                   int64_t left_ms)
{
    if (left_ms < w->ttl_ms) {
        tx_multi(x);
        tx_ask(x, S("PEXPIRE"), w->lock, N(w->ttl_ms));
        if (w->owner.len)
            tx_ask(x, S("PEXPIRE"), w->own, N(w->ttl_ms));
        enum outcome o = tx_exec_extending(x);
        if (o != TX_ANSWERED)
            return o;
    }
    return answer_int(x, fence);
}

/* A lock without a ttl would block for ever. */
static enum outcome repair(struct tx *x, const struct wish *w)
{
    tx_multi(x);
    tx_ask(x, S("PEXPIRE"), w->lock, N(transaction_repaired_ms(w->ttl_ms)));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? TX_AGAIN : o;
}

static enum outcome held(struct tx *x, int64_t left_ms, const struct reply *value)
{
    struct reply *rp = reply_array(4);
    if (rp) {
        rp->item[0] = reply_int(-1);
        rp->item[1] = reply_int(left_ms);
        rp->item[2] = reply_bytes(value->str, value->len);
        rp->item[3] = reply_int(0);
    }
    return answer(x, rp);
}

void tx_put(struct tx *x, const struct place *k, hf_bytes owner, const char *token,
            long long fence, const char *grace, const char *ttl)
{
    char text[160];
    if (owner.len) {
        snprintf(text, sizeof text, "%s:%lld", token, fence);
        tx_ask(x, S("SET"), k->lock, owner, S("PX"), S(ttl));
        tx_ask(x, S("SET"), k->own, S(text), S("PX"), S(ttl));
    } else {
        snprintf(text, sizeof text, "%s:%lld:%s", token, fence, grace);
        tx_ask(x, S("SET"), k->lock, S(text), S("PX"), S(ttl));
    }
}

static enum outcome grant(struct tx *x, const struct wish *w)
{
    long long fence;
    struct place k = { .lock = w->lock, .own = w->own };
    enum outcome o = tx_number(x, w->counter, &fence);
    if (o != TX_ANSWERED)
        return o;
    if (!fence)
        return answer_ints(x, 1, (long long[]){ -4 });
    tx_multi(x);
    tx_put(x, &k, w->owner, w->token, fence, text_at(x, 2), text_at(x, 1));
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, fence) : o;
}

enum outcome transaction_acquire(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    struct wish w = { .lock = key[0], .counter = key[1], .tombs = key[3], .own = key[4],
                      .owner = arg_at(x, 5), .token = text_at(x, 0), .ttl_ms = number_at(x, 1) };
    tx_ask(x, S("WATCH"), w.lock, w.tombs, w.own);
    size_t tomb = tx_ask(x, S("ZSCORE"), w.tombs, S(w.token));
    size_t value = tx_ask(x, S("GETRANGE"), w.lock, S("0"), S("511"));
    size_t own = tx_ask(x, S("GETRANGE"), w.own, S("0"), S("127"));
    size_t left = tx_ask(x, S("PTTL"), w.lock);
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_error(x->r[tomb]) || is_error(x->r[value]))
        return answer_ints(x, 1, (long long[]){ -3 });
    if (x->r[tomb]->type != REPLY_NIL)
        return answer_ints(x, 1, (long long[]){ -2 });
    int64_t left_ms = number_in(x->r[left]);
    if (left_ms == -2)
        return grant(x, &w);
    const struct reply *record = x->r[value];
    if (w.owner.len)
        record = is_bytes(record, w.owner) ? x->r[own] : NULL;
    if (record && begins_with(record, w.token, ':'))
        return granted_before(x, &w, fence_in(record, w.token), left_ms);
    if (left_ms == -1)
        return repair(x, &w);
    return held(x, left_ms, x->r[value]);
}

/* ---- release, cancel ------------------------------------------------------------------------- */

enum outcome transaction_release(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    hf_bytes lock = key[0], own = key[3], value = arg_at(x, 0), record = arg_at(x, 1);
    tx_ask(x, S("WATCH"), lock, own);
    /* One byte more than the value: a longer one cannot pass for ours, nor cost much. */
    size_t v = tx_ask(x, S("GETRANGE"), lock, S("0"), N((long long)value.len));
    size_t r = tx_ask(x, S("GETRANGE"), own, S("0"), N((long long)record.len));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_bytes(x->r[v], value) || (record.len && !is_bytes(x->r[r], record)))
        return answer_int(x, 0);
    tx_multi(x);
    tx_ask(x, S("DEL"), lock);
    if (record.len)
        tx_ask(x, S("DEL"), own);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

/* What stands in the lock, for cancel and by_owner. */
struct standing {
    size_t value, own, left, tomb_left, now;
};

static struct standing ask_standing(struct tx *x, const struct place *k)
{
    struct standing st;
    tx_ask(x, S("WATCH"), k->lock, k->own, k->tombs, k->holders, k->details);
    st.value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    st.own = tx_ask(x, S("GETRANGE"), k->own, S("0"), S("127"));
    st.left = tx_ask(x, S("PTTL"), k->lock);
    st.tomb_left = tx_ask(x, S("PTTL"), k->tombs);
    st.now = tx_ask(x, S("TIME"));
    return st;
}

static enum outcome cancel(struct tx *x, const struct place *k)
{
    const char *token = text_at(x, 0);
    int64_t remember_ms = number_at(x, 1);
    hf_bytes member = arg_at(x, 2), owner = arg_at(x, 3);
    struct standing st = ask_standing(x, k);
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *record = owner.len ? x->r[st.own] : x->r[st.value];
    bool held_alone = begins_with(record, token, ':');
    bool lock_too = !owner.len || is_bytes(x->r[st.value], owner);
    int64_t tomb_left = number_in(x->r[st.tomb_left]), now_ms = time_us(x->r[st.now]) / 1000;
    struct share s;
    bool shared = parse_share(x->r[st.value], &s), held_share = false;
    if (shared) {
        enum outcome o = share_load(x, k, &s, token, now_ms);
        if (o != TX_ANSWERED)
            return o;
        held_share = s.holds;
    }
    if (!held_alone && !held_share && !remember_ms && !member.len)
        return answer_int(x, 0);
    tx_multi(x);
    if (member.len)
        tx_ask(x, S("ZREM"), k->queue, member);
    if (held_share)
        share_leave(x, k, &s, token);
    else if (held_alone)
        tx_ask(x, S("DEL"), lock_too ? k->lock : k->own, k->own);
    if (remember_ms)
        tx_entomb(x, k->tombs, token, now_ms, remember_ms, tomb_left);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, held_alone || held_share) : o;
}

enum outcome transaction_cancel(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    struct place k = { .lock = key[0], .queue = key[2], .tombs = key[3], .own = key[4] };
    AUTO(mem_freep) char *memory = place_companions(&k);
    return memory ? cancel(x, &k) : tx_fail(x, HF_ENOMEM, "out of memory");
}

/* ---- by_owner -------------------------------------------------------------------------------- */

/* Is id the owner of what stands there alone? Its token and number, as far as they are known. */
static bool owns(const struct reply *value, const struct reply *own, hf_bytes id, char token[64],
                 long long *ret_fence)
{
    const struct reply *record = value;
    token[0] = '\0';
    *ret_fence = 0;
    if (is_bytes(value, id)) {
        record = own;
    } else if (value->type != REPLY_BULK || value->len <= id.len || id.len < 34
               || memcmp(value->str, id.data, id.len) != 0 || value->str[id.len] != ':') {
        return false;
    }
    if (record->type == REPLY_BULK
        && sscanf(record->str, "%63[0-9a-f.]:%lld", token, ret_fence) != 2)
        token[0] = '\0';
    return record == own || (strspn(value->str, "0123456789abcdef") == 32 && token[0]);
}

static enum outcome by_owner_share(struct tx *x, const struct place *k, struct share *s,
                                   const char *token, int64_t now_ms, int64_t tomb_left)
{
    const char *what = text_at(x, 0);
    int64_t ttl_ms = number_at(x, 2), remember_ms = number_at(x, 3);
    enum outcome o = share_load(x, k, s, token, now_ms);
    if (o != TX_ANSWERED)
        return o;
    int64_t left = s->until_ms - now_ms;
    if (!s->holds)
        return answer_ints(x, 1, (long long[]){ 0 });
    if (strcmp(what, "release") == 0) {
        tx_multi(x);
        share_leave(x, k, s, token);
        tx_entomb(x, k->tombs, token, now_ms, left > remember_ms ? left : remember_ms, tomb_left);
        o = tx_exec(x);
    } else if (strcmp(what, "extend") == 0 && left < ttl_ms) {
        tx_multi(x);
        share_extend(x, k, s, token, now_ms + ttl_ms);
        o = tx_exec(x);
    }
    return o == TX_ANSWERED ? answer_ints(x, 3, (long long[]){ 1, left, s->fence }) : o;
}

static enum outcome by_owner(struct tx *x, const struct place *k)
{
    const char *what = text_at(x, 0);
    hf_bytes id = arg_at(x, 1);
    int64_t ttl_ms = number_at(x, 2), remember_ms = number_at(x, 3);
    struct standing st = ask_standing(x, k);
    if (!tx_flush(x))
        return TX_FAILED;
    int64_t now_ms = time_us(x->r[st.now]) / 1000, tomb_left = number_in(x->r[st.tomb_left]);
    int64_t left = number_in(x->r[st.left]);
    char token[64], share_token[64];
    long long fence;
    struct share s;
    if (parse_share(x->r[st.value], &s) && id.len < sizeof share_token) {
        memcpy(share_token, id.data, id.len);
        share_token[id.len] = '\0';
        return by_owner_share(x, k, &s, share_token, now_ms, tomb_left);
    }
    bool chosen = is_bytes(x->r[st.value], id);
    if (left == -2 || !owns(x->r[st.value], x->r[st.own], id, token, &fence))
        return answer_ints(x, 1, (long long[]){ 0 });
    enum outcome o = TX_ANSWERED;
    if (strcmp(what, "extend") == 0 && left < ttl_ms) {
        tx_multi(x);
        tx_ask(x, S("PEXPIRE"), k->lock, N(ttl_ms));
        if (chosen && token[0])
            tx_ask(x, S("PEXPIRE"), k->own, N(ttl_ms));
        o = tx_exec_extending(x);
    } else if (strcmp(what, "release") == 0) {
        tx_multi(x);
        tx_ask(x, S("DEL"), k->lock, k->own);
        if (token[0])
            tx_entomb(x, k->tombs, token, now_ms, left > remember_ms ? left : remember_ms,
                      tomb_left);
        o = tx_exec(x);
    }
    return o == TX_ANSWERED ? answer_ints(x, 3, (long long[]){ 1, left, fence }) : o;
}

enum outcome transaction_by_owner(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    struct place k = { .lock = key[0], .queue = key[2], .tombs = key[3], .own = key[4] };
    AUTO(mem_freep) char *memory = place_companions(&k);
    return memory ? by_owner(x, &k) : tx_fail(x, HF_ENOMEM, "out of memory");
}

/* ---- keep ------------------------------------------------------------------------------------ */

/* One of the leases of a call, as keep.lua is told it. */
struct kept {
    hf_bytes    lock, own, tombs, value, record; /* record: of own, "" or "+" */
    const char *token;
    int64_t     ttl_ms;
    bool        shared;
    size_t      at_value, at_own, at_left, at_own_left, at_tomb; /* among the replies */
};

static struct kept kept_at(const struct tx *x, size_t i)
{
    const hf_bytes *key = x->sc->keys + 4 * i;
    struct kept l = { .lock = key[0], .own = key[1], .tombs = key[2],
                      .token = text_at(x, 4 * i + 1), .value = arg_at(x, 4 * i + 2),
                      .record = arg_at(x, 4 * i + 3), .ttl_ms = number_at(x, 4 * i + 4) };
    l.shared = !l.record.len && l.value.len == 6 && memcmp(l.value.data, "shared", 6) == 0;
    return l;
}

static void ask_kept(struct tx *x, struct kept *l)
{
    tx_ask(x, S("WATCH"), l->lock, l->own);
    l->at_value = tx_ask(x, S("GETRANGE"), l->lock, S("0"), N((long long)l->value.len));
    l->at_own = tx_ask(x, S("GETRANGE"), l->own, S("0"), N((long long)l->record.len));
    l->at_left = tx_ask(x, S("PTTL"), l->lock);
    l->at_own_left = tx_ask(x, S("PTTL"), l->own);
    l->at_tomb = tx_ask(x, S("ZSCORE"), l->tombs, S(l->token));
}

/* Between ask_kept() and the EXEC: 1 ours, 0 not, 2 released on purpose. */
static long long verdict_on(const struct tx *x, const struct kept *l)
{
    bool follower = l->record.len == 1 && memcmp(l->record.data, "+", 1) == 0;
    bool ours = is_bytes(x->r[l->at_value], l->value)
                && (!l->record.len || follower || is_bytes(x->r[l->at_own], l->record));
    return ours ? 1 : x->r[l->at_tomb]->type == REPLY_BULK ? 2 : 0;
}

/* Leases first to first + n, in one EXEC. */
static enum outcome keep_some(struct tx *x, size_t first, size_t n, long long *verdict)
{
    const char *mode = text_at(x, 0);
    bool never_less = strcmp(mode, "renew") == 0;
    struct kept l[TRANSACTION_KEEP_MAX];
    bool lengthen[TRANSACTION_KEEP_MAX][2];
    size_t due = 0;
    tx_next(x);
    for (size_t i = 0; i < n; i++) {
        l[i] = kept_at(x, first + i);
        ask_kept(x, &l[i]);
    }
    if (!tx_flush(x))
        return TX_FAILED;
    for (size_t i = 0; i < n; i++) {
        verdict[i] = verdict_on(x, &l[i]);
        bool ours = verdict[i] == 1 && strcmp(mode, "check") != 0;
        lengthen[i][0] = ours && (!never_less || number_in(x->r[l[i].at_left]) < l[i].ttl_ms);
        int64_t own_left = number_in(x->r[l[i].at_own_left]);
        lengthen[i][1] = ours && l[i].record.len && own_left != -2
                         && (!never_less || own_left < l[i].ttl_ms);
        due += lengthen[i][0] || lengthen[i][1];
    }
    if (!due)
        return TX_ANSWERED;
    tx_multi(x);
    for (size_t i = 0; i < n; i++) {
        if (lengthen[i][0])
            tx_ask(x, S("PEXPIRE"), l[i].lock, N(l[i].ttl_ms));
        if (lengthen[i][1])
            tx_ask(x, S("PEXPIRE"), l[i].own, N(l[i].ttl_ms));
    }
    return tx_exec_extending(x);
}

/* As many at once as others let us: a lock that somebody else touches shall not cost all their
 * renewal. */
static enum outcome keep_range(struct tx *x, size_t first, size_t n, long long *verdict)
{
    enum outcome o = keep_some(x, first, n, verdict);
    if (o != TX_CONFLICT || n == 1)
        return o;
    o = keep_range(x, first, n / 2, verdict);
    return o == TX_ANSWERED ? keep_range(x, first + n / 2, n - n / 2, verdict + n / 2) : o;
}

/* Runs of locks that one holds alone go together, each share by itself. */
enum outcome transaction_keep(struct tx *x)
{
    size_t n = x->sc->nkeys / 4;
    AUTO(mem_freep) long long *result = mem_zalloc((n + 1) * sizeof *result);
    if (!result)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    result[0] = time_us(x->r[now]) / 1000;
    enum outcome o = TX_ANSWERED;
    for (size_t i = 0, run; i < n && o == TX_ANSWERED; i += run) {
        for (run = 0; i + run < n && run < TRANSACTION_KEEP_MAX && !kept_at(x, i + run).shared;)
            run++;
        if (run) {
            o = keep_range(x, i, run, result + 1 + i);
        } else {
            struct kept l = kept_at(x, i);
            struct place k = { .lock = l.lock, .own = l.own, .tombs = l.tombs };
            o = share_keep(x, &k, l.token, l.ttl_ms, result[0], &result[1 + i]);
            run = 1;
        }
    }
    return o == TX_ANSWERED ? answer_ints(x, n + 1, result) : o;
}
