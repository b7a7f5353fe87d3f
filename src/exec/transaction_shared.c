/* SPDX-License-Identifier: MIT
 * transaction_shared.c - a lock that several hold, by WATCH, MULTI and EXEC.
 *
 * The layout is that of part/shared.lua, and so are the rules: a holder is one until its deadline,
 * by the server's time; the lock lives as long as the last of them. Every change rewrites the lock
 * itself, so watching it is enough to notice all others. The deadlines are computed from the time
 * that was read at the beginning, and leases counted from before that.
 */
#include "exec/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define ENDED_MAX   1000     /* taken away in one step, as in the scripts */

struct queue_place place_of(const struct lock_keys *keys)
{
    static const char suffix[] = { 'h', 'd', 's' }; /* where the queue has its q */
    hf_bytes queue = keys->key[KEY_QUEUE];
    struct queue_place k = { .lock = keys->key[KEY_LOCK], .own = keys->key[KEY_OWN],
                       .tombs = keys->key[KEY_TOMB], .queue = queue,
                       .marks = keys->key[KEY_ABSENT],
                       .memory = mem_alloc(sizeof suffix * queue.len) };
    hf_bytes *to[sizeof suffix] = { &k.holders, &k.details, &k.settings };
    for (size_t i = 0; k.memory && i < sizeof suffix; i++) {
        char *p = k.memory + i * queue.len;
        memcpy(p, queue.data, queue.len);
        p[queue.len - 1] = suffix[i];
        *to[i] = (hf_bytes){ p, queue.len };
    }
    return k;
}

void place_clear(struct queue_place *k)
{
    mem_free(k->memory);
}

/* ---- what stands there ----------------------------------------------------------------------- */

bool parse_share(const struct reply *value, struct share *ret)
{
    int end = 0;
    *ret = (struct share){ 0 };
    return value->type == REPLY_BULK
           && sscanf(value->str, "shared.%lld.%lld:%23[0-9]:0%n", &ret->limit, &ret->used,
                     ret->generation, &end) == 3
           && (size_t)end == value->len;
}

/* The weight at the end of fence:grace:weight. */
static long long weight_in(const struct reply *details)
{
    const char *at = details->type == REPLY_BULK ? strrchr(details->str, ':') : NULL;
    return at ? strtoll(at + 1, NULL, 10) : 0;
}

static bool is_token(const struct reply *rp, const char *token)
{
    return is_bytes(rp, hf_str(token));
}

/* The weights of those whose leases are over are free again. */
static enum outcome drop_ended(struct tx *x, const struct queue_place *k, struct share *s)
{
    size_t n = op_list_len(s->ended);
    AUTO(mem_freep) hf_bytes *argv = mem_alloc((n + 2) * sizeof *argv);
    if (!argv)
        return tx_no_memory(x);
    argv[0] = S("HMGET");
    argv[1] = k->details;
    for (size_t i = 0; i < n; i++)
        argv[2 + i] = op_list_at(s->ended, i);
    tx_next(x);
    size_t at = tx_send(x, (int)n + 2, argv);
    if (!tx_flush(x))
        return TX_FAILED;
    for (size_t i = 0; x->r[at]->type == REPLY_ARRAY && i < x->r[at]->len && i < n; i++)
        s->used -= weight_in(x->r[at]->item[i]);
    if (s->used < 0)
        s->used = 0;
    return TX_ANSWERED;
}

enum outcome share_load(struct tx *x, const struct queue_place *k, struct share *s,
                        const char *token,
                        int64_t now_ms)
{
    s->now_ms = now_ms;
    tx_next(x);
    size_t details = tx_ask(x, S("HGET"), k->details, S(token));
    size_t until = tx_ask(x, S("ZSCORE"), k->holders, S(token));
    size_t last = tx_ask(x, S("ZRANGE"), k->holders, S("-2"), S("-1"), S("WITHSCORES"));
    size_t ended = tx_ask(x, S("ZRANGEBYSCORE"), k->holders, S("-inf"), N(now_ms), S("LIMIT"),
                          S("0"), N(ENDED_MAX));
    if (!tx_flush(x))
        return TX_FAILED;
    if ((s->wrong = is_error(x->r[details]) || is_error(x->r[until])))
        return TX_ANSWERED;
    s->until_ms = number_in(x->r[until]);
    s->holds = s->until_ms > now_ms;
    s->fence = s->holds ? number_in(x->r[details]) : 0;
    s->weight = s->holds ? weight_in(x->r[details]) : 0;
    const struct reply *two = x->r[last];
    for (size_t i = 0; two->type == REPLY_ARRAY && i + 1 < two->len; i += 2) {
        int64_t ms = number_in(two->item[i + 1]);
        if (!is_token(two->item[i], token) && ms > now_ms && ms > s->others_until_ms)
            s->others_until_ms = ms;
    }
    if (x->r[ended]->type != REPLY_ARRAY || !x->r[ended]->len)
        return TX_ANSWERED;
    s->ended.rp = tx_keep(x, ended);
    return s->ended.rp ? drop_ended(x, k, s) : TX_FAILED;
}

/* ---- changes, inside a MULTI ----------------------------------------------------------------- */

/* Those whose leases are over go. */
static void remove_ended(struct tx *x, const struct queue_place *k, struct share *s)
{
    size_t n = 2;
    hf_bytes argv[2 + ENDED_MAX] = { S("ZREM"), k->holders };
    for (size_t i = 0; i < op_list_len(s->ended) && i < ENDED_MAX; i++)
        argv[n++] = op_list_at(s->ended, i);
    if (n > 2) {
        tx_send(x, (int)n, argv);
        argv[0] = S("HDEL");
        argv[1] = k->details;
        tx_send(x, (int)n, argv);
    }
    s->ended.rp = NULL; /* that is done */
}

/* Write down what became of it: it lives until then. 0: nobody is left, and nothing of it. */
static void settle(struct tx *x, const struct queue_place *k, struct share *s, int64_t until_ms)
{
    char value[96];
    if (!until_ms) {
        tx_ask(x, S("DEL"), k->lock, k->holders, k->details, k->marks);
        return;
    }
    struct tx_text left = text_of(until_ms > s->now_ms ? until_ms - s->now_ms : 1);
    snprintf(value, sizeof value, "shared.%lld.%lld:%s:0", s->limit, s->used, s->generation);
    tx_ask(x, S("SET"), k->lock, S(value), S("PX"), S(left.s));
    tx_ask(x, S("PEXPIRE"), k->holders, S(left.s));
    tx_ask(x, S("PEXPIRE"), k->details, S(left.s));
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void share_leave(struct tx *x, const struct queue_place *k, struct share *s, const char *token)
{
    remove_ended(x, k, s);
    tx_ask(x, S("ZREM"), k->holders, S(token));
    tx_ask(x, S("HDEL"), k->details, S(token));
    s->used = s->used > s->weight ? s->used - s->weight : 0;
    settle(x, k, s, s->others_until_ms);
}

void share_settle(struct tx *x, const struct queue_place *k, struct share *s)
{
    remove_ended(x, k, s);
    settle(x, k, s, s->holds ? later(s->others_until_ms, s->until_ms) : s->others_until_ms);
}

void share_extend(struct tx *x, const struct queue_place *k, struct share *s, const char *token,
                  int64_t until_ms)
{
    remove_ended(x, k, s);
    tx_ask(x, S("ZADD"), k->holders, N(until_ms), S(token));
    settle(x, k, s, later(s->others_until_ms, until_ms));
}

void share_admit(struct tx *x, const struct queue_place *k, struct share *s, const char *token,
                 int64_t until_ms, long long fence, int64_t grace_ms, long long weight)
{
    char details[96];
    remove_ended(x, k, s); /* its own old lease may be among them */
    if (!s->generation[0]) { /* what is left of an older one goes */
        tx_ask(x, S("DEL"), k->holders, k->details, k->marks);
        snprintf(s->generation, sizeof s->generation, "%lld", fence);
    }
    snprintf(details, sizeof details, "%lld:%lld:%lld", fence, (long long)grace_ms,
             weight);
    tx_ask(x, S("HSET"), k->details, S(token), S(details));
    s->used += weight;
    share_extend(x, k, s, token, until_ms);
}

/* ---- a holder's own affairs ------------------------------------------------------------------ */

struct mine { /* what a token has of a lock */
    struct share s;
    bool         shared; /* it is one of several; else it may have it alone */
    bool         alone;
    int64_t      left_ms;
};

static enum outcome look_after(struct tx *x, const struct queue_place *k, const char *token,
                               struct mine *ret)
{
    tx_next(x);
    tx_ask(x, S("WATCH"), k->lock, k->holders, k->details);
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    size_t left = tx_ask(x, S("PTTL"), k->lock), now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    ret->left_ms = number_in(x->r[left]);
    ret->alone = ret->left_ms != PTTL_NO_KEY && begins_with(x->r[value], token, ':');
    bool several = parse_share(x->r[value], &ret->s);
    enum outcome o = several ? share_load(x, k, &ret->s, token, time_us(x->r[now]) / 1000)
                             : TX_ANSWERED;
    ret->shared = several && ret->s.holds;
    return o;
}

enum outcome transaction_unshare(struct tx *x)
{
    const struct grant *g = x->op->release.grant;
    struct mine m;
    AUTO(place_clear) struct queue_place k = place_of(g->keys);
    if (!k.memory)
        return tx_no_memory(x);
    enum outcome o = look_after(x, &k, g->token, &m);
    if (o != TX_ANSWERED)
        return o;
    if (!m.shared && !m.alone)
        return answer_held(x, false);
    tx_multi(x);
    if (m.alone) /* a downgrade of which nobody heard may not have come */
        tx_ask(x, S("DEL"), k.lock);
    else
        share_leave(x, &k, &m.s, g->token);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, true) : o;
}

/* It holds nothing. */
static enum outcome why_not_held(struct tx *x, const struct queue_place *k, const char *token,
                                 enum verdict *ret)
{
    tx_next(x);
    size_t tomb = tx_ask(x, S("ZSCORE"), k->tombs, S(token));
    if (!tx_flush(x))
        return TX_FAILED;
    *ret = x->r[tomb]->type == REPLY_BULK ? VERDICT_RELEASED : VERDICT_NOT_OURS;
    return TX_ANSWERED;
}

enum outcome share_keep(struct tx *x, const struct op_lease *l, int64_t now_ms,
                        enum verdict *ret_verdict)
{
    const char *token = l->grant->token;
    enum keep_mode mode = x->op->keep.mode;
    struct mine m;
    AUTO(place_clear) struct queue_place k = place_of(l->grant->keys);
    if (!k.memory)
        return tx_no_memory(x);
    enum outcome o = look_after(x, &k, token, &m);
    if (o != TX_ANSWERED)
        return o;
    if (!m.shared && !m.alone)
        return why_not_held(x, &k, token, ret_verdict);
    *ret_verdict = VERDICT_OURS;
    int64_t left = m.alone ? m.left_ms : m.s.until_ms - m.s.now_ms;
    if (mode == KEEP_CHECK || (mode == KEEP_RENEW && left >= l->ttl_ms))
        return TX_ANSWERED;
    tx_multi(x);
    if (m.alone)
        tx_ask(x, S("PEXPIRE"), k.lock, N(l->ttl_ms));
    else
        share_extend(x, &k, &m.s, token, now_ms + l->ttl_ms);
    return tx_exec(x);
}

/* ---- downgrade ------------------------------------------------------------------------------- */

/* It has the lock alone: all of it becomes a part, if the value is exactly ours. */
static enum outcome downgrade(struct tx *x, const struct op_downgrade *d,
                              const struct queue_place *k,
                              int64_t left_ms)
{
    struct grant alone = *d->grant;
    char text[GRANT_TEXT_SIZE];
    hf_bytes value, own;
    alone.shared = false;
    grant_values(&alone, text, &value, &own);
    tx_next(x);
    size_t v = tx_ask(x, S("GETRANGE"), k->lock, S("0"), N((long long)value.len));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_bytes(x->r[v], value))
        return answer_held(x, false);
    struct share s = { .now_ms = time_us(x->r[now]) / 1000 };
    int64_t until_ms = s.now_ms + later(d->ttl_ms, left_ms);
    tx_multi(x);
    share_admit(x, k, &s, alone.token, until_ms, (long long)alone.fence, 0, 1);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, true) : o;
}

enum outcome transaction_downgrade(struct tx *x)
{
    const struct op_downgrade *d = &x->op->downgrade;
    struct mine m;
    AUTO(place_clear) struct queue_place k = place_of(d->grant->keys);
    if (!k.memory)
        return tx_no_memory(x);
    enum outcome o = look_after(x, &k, d->grant->token, &m);
    if (o != TX_ANSWERED)
        return o;
    if (m.shared || !m.alone)
        return answer_held(x, m.shared);
    return downgrade(x, d, &k, m.left_ms);
}

/* ---- resize ---------------------------------------------------------------------------------- */

/* What was agreed on before, and what callers call it by; 0: nothing, nobody. */
struct agreement {
    bool         shared; /* it is in use: s */
    struct share s;
    long long    limit, named;
};

static enum answer agreed_before(const struct reply *value, const struct reply *settings,
                                 struct agreement *ret)
{
    long long changed = 0, named = 0;
    if (is_error(value) || is_error(settings))
        return ANSWER_WRONG_TYPE;
    ret->shared = parse_share(value, &ret->s);
    if (ret->shared ? ret->s.limit == 0 : value->len > 0)
        return ANSWER_BUSY;
    bool known = settings->type == REPLY_BULK
                 && sscanf(settings->str, "%lld %lld", &changed, &named) == 2;
    ret->limit = ret->shared ? ret->s.limit : known ? changed : 0;
    ret->named = known ? named : ret->shared ? ret->s.limit : 0;
    return ANSWER_YES;
}

static enum outcome answer_resized(struct tx *x, enum answer code, long long old)
{
    x->op->got.resized = (struct op_resized){ .code = code, .old = (unsigned)old };
    return TX_ANSWERED;
}

static enum outcome set_limit(struct tx *x, const struct queue_place *k, struct agreement *a)
{
    long long limit = x->op->resize.limit, old = a->limit;
    char value[64];
    tx_multi(x);
    snprintf(value, sizeof value, "%lld %lld", limit, a->named);
    if (limit == a->named)
        tx_ask(x, S("DEL"), k->settings);
    else
        tx_ask(x, S("SET"), k->settings, S(value), S("PX"), N(SHARE_SETTINGS_MS));
    if (a->shared) {
        a->s.limit = limit;
        share_settle(x, k, &a->s);
    }
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_resized(x, ANSWER_YES, old) : o;
}

enum outcome transaction_resize(struct tx *x)
{
    struct agreement a;
    AUTO(place_clear) struct queue_place k = place_of(x->op->resize.keys);
    if (!k.memory)
        return tx_no_memory(x);
    tx_ask(x, S("WATCH"), k.lock, k.holders, k.details, k.settings);
    size_t value = tx_ask(x, S("GETRANGE"), k.lock, S("0"), S("511"));
    size_t settings = tx_ask(x, S("GETRANGE"), k.settings, S("0"), S("63"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    enum answer code = agreed_before(x->r[value], x->r[settings], &a);
    if (code != ANSWER_YES)
        return answer_resized(x, code, 0);
    if (a.shared) {
        enum outcome o = share_load(x, &k, &a.s, "", time_us(x->r[now]) / 1000);
        if (o != TX_ANSWERED)
            return o;
        if (a.s.wrong)
            return answer_resized(x, ANSWER_WRONG_TYPE, 0);
    }
    return set_limit(x, &k, &a);
}
