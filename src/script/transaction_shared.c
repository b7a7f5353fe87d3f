/* SPDX-License-Identifier: MIT
 * transaction_shared.c - a lock that several hold, by WATCH, MULTI and EXEC.
 *
 * The layout is that of part/shared.lua, and so are the rules: a holder is one until its deadline,
 * by the server's time; the lock lives as long as the last of them. Every change rewrites the lock
 * itself, so watching it is enough to notice all others. The deadlines are computed from the time
 * that was read at the beginning, and leases counted from before that.
 */
#include "script/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define ENDED_MAX   1000     /* taken away in one step, as in the scripts */

char *place_companions(struct place *k)
{
    static const char *const suffix[] = { "own", "h", "d", "absent", "s" };
    hf_bytes *to[] = { &k->own, &k->holders, &k->details, &k->marks, &k->settings };
    hf_bytes of = k->queue.len ? k->queue : k->own;
    size_t base = of.len - (k->queue.len ? 1 : 3), each = base + 8;
    char *memory = of.data ? mem_alloc(5 * each) : NULL, *p = memory;
    for (size_t i = 0; memory && i < 5; i++, p += each) {
        size_t n = strlen(suffix[i]);
        if (to[i]->len)
            continue;
        memcpy(p, of.data, base);
        memcpy(p + base, suffix[i], n);
        *to[i] = (hf_bytes){ p, base + n };
    }
    return memory;
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
static enum outcome drop_ended(struct tx *x, const struct place *k, struct share *s)
{
    size_t n = s->ended->len;
    AUTO(mem_freep) hf_bytes *argv = mem_alloc((n + 2) * sizeof *argv);
    if (!argv)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    argv[0] = S("HMGET");
    argv[1] = k->details;
    for (size_t i = 0; i < n; i++)
        argv[2 + i] = (hf_bytes){ s->ended->item[i]->str, s->ended->item[i]->len };
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

enum outcome share_load(struct tx *x, const struct place *k, struct share *s, const char *token,
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
    s->ended = tx_keep(x, ended);
    return s->ended ? drop_ended(x, k, s) : TX_FAILED;
}

/* ---- changes, inside a MULTI ----------------------------------------------------------------- */

/* Those whose leases are over go. */
static void remove_ended(struct tx *x, const struct place *k, struct share *s)
{
    size_t n = 2;
    hf_bytes argv[2 + ENDED_MAX] = { S("ZREM"), k->holders };
    for (size_t i = 0; s->ended && i < s->ended->len && i < ENDED_MAX; i++)
        argv[n++] = (hf_bytes){ s->ended->item[i]->str, s->ended->item[i]->len };
    if (n > 2) {
        tx_send(x, (int)n, argv);
        argv[0] = S("HDEL");
        argv[1] = k->details;
        tx_send(x, (int)n, argv);
    }
    s->ended = NULL; /* that is done */
}

/* Write down what became of it: it lives until then. 0: nobody is left, and nothing of it. */
static void settle(struct tx *x, const struct place *k, struct share *s, int64_t until_ms)
{
    char value[96];
    if (!until_ms) {
        tx_ask(x, S("DEL"), k->lock, k->holders, k->details, k->marks);
        return;
    }
    struct text left = text_of(until_ms > s->now_ms ? until_ms - s->now_ms : 1);
    snprintf(value, sizeof value, "shared.%lld.%lld:%s:0", s->limit, s->used, s->generation);
    tx_ask(x, S("SET"), k->lock, S(value), S("PX"), S(left.s));
    tx_ask(x, S("PEXPIRE"), k->holders, S(left.s));
    tx_ask(x, S("PEXPIRE"), k->details, S(left.s));
}

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void share_leave(struct tx *x, const struct place *k, struct share *s, const char *token)
{
    remove_ended(x, k, s);
    tx_ask(x, S("ZREM"), k->holders, S(token));
    tx_ask(x, S("HDEL"), k->details, S(token));
    s->used = s->used > s->weight ? s->used - s->weight : 0;
    settle(x, k, s, s->others_until_ms);
}

void share_settle(struct tx *x, const struct place *k, struct share *s)
{
    remove_ended(x, k, s);
    settle(x, k, s, s->holds ? later(s->others_until_ms, s->until_ms) : s->others_until_ms);
}

void share_extend(struct tx *x, const struct place *k, struct share *s, const char *token,
                  int64_t until_ms)
{
    remove_ended(x, k, s);
    tx_ask(x, S("ZADD"), k->holders, N(until_ms), S(token));
    settle(x, k, s, later(s->others_until_ms, until_ms));
}

void share_admit(struct tx *x, const struct place *k, struct share *s, const char *token,
                 int64_t until_ms, long long fence, const char *grace, long long weight)
{
    char details[96];
    remove_ended(x, k, s); /* its own old lease may be among them */
    if (!s->generation[0]) { /* what is left of an older one goes */
        tx_ask(x, S("DEL"), k->holders, k->details, k->marks);
        snprintf(s->generation, sizeof s->generation, "%lld", fence);
    }
    snprintf(details, sizeof details, "%lld:%s:%lld", fence, grace, weight);
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

static enum outcome look_after(struct tx *x, const struct place *k, const char *token,
                               struct mine *ret)
{
    tx_next(x);
    tx_ask(x, S("WATCH"), k->lock, k->holders, k->details);
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    size_t left = tx_ask(x, S("PTTL"), k->lock), now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    ret->left_ms = number_in(x->r[left]);
    ret->alone = ret->left_ms != -2 && begins_with(x->r[value], token, ':');
    bool several = parse_share(x->r[value], &ret->s);
    enum outcome o = several ? share_load(x, k, &ret->s, token, time_us(x->r[now]) / 1000)
                             : TX_ANSWERED;
    ret->shared = several && ret->s.holds;
    return o;
}

enum outcome transaction_unshare(struct tx *x)
{
    const char *token = text_at(x, 0);
    struct place k = { .lock = x->sc->keys[0], .queue = x->sc->keys[2] };
    struct mine m;
    AUTO(mem_freep) char *memory = place_companions(&k);
    if (!memory)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    enum outcome o = look_after(x, &k, token, &m);
    if (o != TX_ANSWERED)
        return o;
    if (!m.shared && !m.alone)
        return answer_int(x, 0);
    tx_multi(x);
    if (m.alone) /* a downgrade of which nobody heard may not have come */
        tx_ask(x, S("DEL"), k.lock);
    else
        share_leave(x, &k, &m.s, token);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

enum outcome share_keep(struct tx *x, struct place *k, const char *token, int64_t ttl_ms,
                        int64_t now_ms, long long *ret_verdict)
{
    const char *mode = text_at(x, 0);
    bool renew = strcmp(mode, "renew") == 0, check = strcmp(mode, "check") == 0;
    struct mine m;
    AUTO(mem_freep) char *memory = place_companions(k);
    if (!memory)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    enum outcome o = look_after(x, k, token, &m);
    if (o != TX_ANSWERED)
        return o;
    *ret_verdict = 1;
    if (!m.shared && !m.alone) {
        tx_next(x);
        size_t tomb = tx_ask(x, S("ZSCORE"), k->tombs, S(token));
        if (!tx_flush(x))
            return TX_FAILED;
        *ret_verdict = x->r[tomb]->type == REPLY_BULK ? 2 : 0;
        return TX_ANSWERED;
    }
    int64_t left = m.alone ? m.left_ms : m.s.until_ms - m.s.now_ms;
    if (check || (renew && left >= ttl_ms))
        return TX_ANSWERED;
    tx_multi(x);
    if (m.alone)
        tx_ask(x, S("PEXPIRE"), k->lock, N(ttl_ms));
    else
        share_extend(x, k, &m.s, token, now_ms + ttl_ms);
    return tx_exec(x);
}

enum outcome transaction_downgrade(struct tx *x)
{
    const char *token = text_at(x, 0);
    hf_bytes value = arg_at(x, 1);
    struct place k = { .lock = x->sc->keys[0], .queue = x->sc->keys[2] };
    AUTO(mem_freep) char *memory = place_companions(&k);
    if (!memory)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    struct mine m;
    enum outcome o = look_after(x, &k, token, &m);
    if (o != TX_ANSWERED)
        return o;
    if (m.shared || !m.alone)
        return answer_int(x, m.shared);
    tx_next(x);
    size_t v = tx_ask(x, S("GETRANGE"), k.lock, S("0"), N((long long)value.len));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_bytes(x->r[v], value))
        return answer_int(x, 0);
    long long fence = strtoll(x->r[v]->str + strlen(token) + 1, NULL, 10);
    struct share s = { .now_ms = time_us(x->r[now]) / 1000 };
    int64_t ms = later(number_at(x, 2), m.left_ms);
    tx_multi(x);
    share_admit(x, &k, &s, token, s.now_ms + ms, fence, "0", 1);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

/* ---- resize ---------------------------------------------------------------------------------- */

enum outcome transaction_resize(struct tx *x)
{
    long long new = number_at(x, 0), was = 0, named = 0, old = 0;
    char value[64];
    struct place k = { .lock = x->sc->keys[0], .queue = x->sc->keys[2] };
    struct share s;
    AUTO(mem_freep) char *memory = place_companions(&k);
    if (!memory)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    tx_ask(x, S("WATCH"), k.lock, k.holders, k.details, k.settings);
    size_t v = tx_ask(x, S("GETRANGE"), k.lock, S("0"), S("511"));
    size_t changed = tx_ask(x, S("GETRANGE"), k.settings, S("0"), S("63"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_error(x->r[v]) || is_error(x->r[changed]))
        return answer_ints(x, 1, (long long[]){ -3 });
    bool shared = parse_share(x->r[v], &s);
    if (shared ? s.limit == 0 : x->r[v]->len > 0)
        return answer_ints(x, 1, (long long[]){ -1 });
    bool known = sscanf(x->r[changed]->str, "%lld %lld", &was, &old) == 2;
    was = shared ? s.limit : known ? was : 0;
    named = known ? old : shared ? s.limit : 0;
    enum outcome o = shared ? share_load(x, &k, &s, "", time_us(x->r[now]) / 1000) : TX_ANSWERED;
    if (o != TX_ANSWERED)
        return o;
    if (shared && s.wrong)
        return answer_ints(x, 1, (long long[]){ -3 });
    tx_multi(x);
    snprintf(value, sizeof value, "%lld %lld", new, named);
    if (new == named)
        tx_ask(x, S("DEL"), k.settings);
    else
        tx_ask(x, S("SET"), k.settings, S(value), S("PX"), N(SHARE_SETTINGS_MS));
    if (shared) {
        s.limit = new;
        share_settle(x, &k, &s);
    }
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_ints(x, 2, (long long[]){ 1, was }) : o;
}
