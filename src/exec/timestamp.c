/* SPDX-License-Identifier: MIT
 * timestamp.c - the old way: the key's value is the time at which the lock ends.
 *
 * So that we exclude, and are excluded by, programs that lock by SETNX with a time as value and
 * take over by GETSET when that time has passed. Our value is such a time as well, in whole
 * seconds, and behind the point it has digits made from the token: they say whose it is, so nothing
 * else need be kept. A renewal moves the seconds.
 *
 *  - Times are the server's. A value counts as ended when the whole seconds of the server's time
 *    (less the skew that one allows for) are above it: as those programs compare it with time().
 *  - What has ended is taken over under WATCH: nobody who was faster is overwritten, which is the
 *    flaw of the blind GETSET. A foreign GETSET that overwrites ours is a loss, and found as one.
 *  - The key has a ttl a little longer than the lease, as those programs give it. One that is found
 *    without, because somebody died between SETNX and EXPIRE, is given one by who waits for it; it
 *    is never stolen.
 *  - The lease is counted from before the server's time was asked for, less the skew.
 *  - Tombstones as in transaction.c: a copy of an EXEC that comes late does nothing.
 */
#include "exec/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARK_DIGITS 18
#define AFTER_MS    1000 /* the key outlives what its value says by so much */

/* ---- values ---------------------------------------------------------------------------------- */

/* The digits that tell whose it is: FNV-1a of the token, spread by multiplication, never all 0. */
static void mark_of(const char *token, char ret[MARK_DIGITS + 1])
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (const char *p = token; *p; p++)
        h = (h ^ (unsigned char)*p) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    h ^= h >> 32;
    snprintf(ret, MARK_DIGITS + 1, "%018llu",
             (unsigned long long)(h % UINT64_C(999999999999999999) + 1));
}

enum whose { NOBODYS, OURS, ANOTHERS, NO_TIME, NO_STRING };

struct stamp {
    enum whose whose;
    int64_t    seconds; /* before the point */
    bool       ended, ended_with_skew;
    int64_t    left_ms; /* PTTL of the key */
    int64_t    now_us;
    bool       given_up;     /* there is a tombstone of the token */
    int64_t    tomb_left_ms; /* PTTL of the tombstones */
    const struct reply *value; /* until the next question */
};

/* "SECONDS" or "SECONDS.DIGITS". */
static bool parse(const char *text, size_t len, int64_t *ret_seconds, const char **ret_fraction)
{
    size_t whole = strspn(text, "0123456789"), n = whole;
    *ret_fraction = "";
    if (whole == 0 || whole > 15)
        return false;
    if (text[n] == '.') {
        *ret_fraction = text + n + 1;
        n += 1 + strspn(text + n + 1, "0123456789");
    }
    *ret_seconds = strtoll(text, NULL, 10);
    return n == len;
}

static struct stamp read_stamp(const struct reply *value, int64_t left_ms, int64_t now_us,
                               int64_t skew_ms, const char *mark)
{
    struct stamp st = { .left_ms = left_ms, .now_us = now_us };
    const char *fraction;
    if (left_ms == PTTL_NO_KEY)
        return st;
    st.whose = is_error(value) ? NO_STRING : NO_TIME;
    if (value->type != REPLY_BULK || !parse(value->str, value->len, &st.seconds, &fraction))
        return st;
    st.whose = strcmp(fraction, mark) == 0 ? OURS : ANOTHERS;
    st.ended = st.seconds < now_us / 1000000;
    st.ended_with_skew = st.seconds < (now_us - skew_ms * 1000) / 1000000;
    return st;
}

/* Into a MULTI: ours, until ms from now. */
static void put(struct tx *x, hf_bytes lock, const char *mark, int64_t now_us, int64_t until_s)
{
    char value[64];
    snprintf(value, sizeof value, "%lld.%s", (long long)until_s, mark);
    int64_t ms = until_s * 1000 - now_us / 1000 + AFTER_MS + x->skew_ms;
    tx_ask(x, S("SET"), lock, S(value), S("PX"), N(ms > 1 ? ms : 1));
}

/* The whole second in which a lease of ttl_ms has ended. */
static int64_t end_of(int64_t now_us, int64_t ttl_ms)
{
    return (now_us + ttl_ms * 1000 + 999999) / 1000000;
}

/* Watch and read. */
static enum outcome read_lock(struct tx *x, const struct lock_keys *keys, const char *token,
                              struct stamp *ret)
{
    hf_bytes lock = keys->key[KEY_LOCK], tombs = keys->key[KEY_TOMB];
    char mark[MARK_DIGITS + 1];
    mark_of(token, mark);
    tx_next(x);
    tx_ask(x, S("WATCH"), lock, tombs);
    size_t now = tx_ask(x, S("TIME"));
    size_t tomb = tx_ask(x, S("ZSCORE"), tombs, S(token));
    size_t tomb_left = tx_ask(x, S("PTTL"), tombs);
    size_t value = tx_ask(x, S("GETRANGE"), lock, S("0"), S("512"));
    size_t left = tx_ask(x, S("PTTL"), lock);
    if (!tx_flush(x))
        return TX_FAILED;
    *ret = read_stamp(x->r[value], number_in(x->r[left]), time_us(x->r[now]), x->skew_ms, mark);
    ret->value = x->r[value];
    ret->given_up = x->r[tomb]->type == REPLY_BULK;
    ret->tomb_left_ms = number_in(x->r[tomb_left]);
    return TX_ANSWERED;
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* A key without a ttl, of somebody who may still live: it is to end by itself, but not before its
 * own time. */
static enum outcome repair(struct tx *x, hf_bytes lock, const struct stamp *st, int64_t ttl_ms)
{
    int64_t ms = transaction_repaired_ms(ttl_ms);
    if (st->whose == ANOTHERS) {
        int64_t rest = st->seconds * 1000 - st->now_us / 1000 + AFTER_MS + x->skew_ms;
        if (st->seconds < INT64_C(1000000000000) && rest > ms)
            ms = rest < HF_TTL_MAX_MS ? rest : HF_TTL_MAX_MS;
    }
    tx_multi(x);
    tx_ask(x, S("PEXPIRE"), lock, N(ms));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? TX_AGAIN : o;
}

/* How long it is another's: until the key or its time has ended, whichever is first. */
static enum outcome held(struct tx *x, const struct stamp *st)
{
    int64_t left = st->left_ms, rest = (st->seconds + 1) * 1000 - st->now_us / 1000 + x->skew_ms;
    if (rest > 0 && (left == PTTL_ENDLESS || rest < left))
        left = rest;
    return answer_busy(x, left, NULL);
}

/* Free, ended, or ours already. A repeated request gets another number: nobody heard the first. */
static enum outcome grant(struct tx *x, const struct op_take *t, const struct stamp *st)
{
    char mark[MARK_DIGITS + 1];
    long long fence;
    enum outcome o = tx_number(x, hf_str(t->keys->scope->counter), &fence);
    if (o != TX_ANSWERED)
        return o;
    if (!fence)
        return answer_refused(x, ANSWER_BAD_COUNTER);
    int64_t until = end_of(st->now_us, t->ttl_ms);
    if (st->whose == OURS && st->seconds > until)
        until = st->seconds; /* never shortened */
    mark_of(t->token, mark);
    tx_multi(x);
    put(x, t->keys->key[KEY_LOCK], mark, st->now_us, until);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_granted(x, fence) : o;
}

enum outcome timestamp_acquire(struct tx *x)
{
    const struct op_take *t = &x->op->take;
    struct stamp st;
    enum outcome o = read_lock(x, t->keys, t->token, &st);
    if (o != TX_ANSWERED)
        return o;
    if (st.given_up)
        return answer_refused(x, ANSWER_GIVEN_UP);
    bool ended = st.whose == ANOTHERS && st.ended_with_skew;
    if (st.whose == NOBODYS || st.whose == OURS || ended)
        return grant(x, t, &st);
    if (st.whose == NO_STRING) /* somebody's data */
        return answer_refused(x, ANSWER_WRONG_TYPE);
    if (st.left_ms == PTTL_ENDLESS && transaction_may_mend(t, st.value))
        return repair(x, t->keys->key[KEY_LOCK], &st, t->ttl_ms);
    if (st.whose == ANOTHERS)
        return held(x, &st);
    o = tx_confirm(x); /* a key that came or went between two reads looks like one without a time */
    return o == TX_ANSWERED ? answer_refused(x, ANSWER_NOT_A_TIMESTAMP) : o;
}

/* ---- whoever holds it ------------------------------------------------------------------------ */

static bool still_ours(const struct stamp *st)
{
    return st->whose == OURS && !st->ended;
}

enum outcome timestamp_release(struct tx *x)
{
    const struct grant *g = x->op->release.grant;
    struct stamp st;
    enum outcome o = read_lock(x, g->keys, g->token, &st);
    if (o != TX_ANSWERED)
        return o;
    if (!still_ours(&st))
        return answer_held(x, false);
    tx_multi(x);
    tx_ask(x, S("DEL"), g->keys->key[KEY_LOCK]);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, true) : o;
}

enum outcome timestamp_cancel(struct tx *x)
{
    const struct op_cancel *c = &x->op->cancel;
    struct stamp st;
    enum outcome o = read_lock(x, c->keys, c->token, &st);
    if (o != TX_ANSWERED)
        return o;
    if (st.whose != OURS && !c->remember_ms)
        return answer_held(x, false);
    tx_multi(x);
    if (st.whose == OURS)
        tx_ask(x, S("DEL"), c->keys->key[KEY_LOCK]);
    if (c->remember_ms)
        tx_entomb(x, c->keys->key[KEY_TOMB], c->token, st.now_us / 1000, c->remember_ms,
                  st.tomb_left_ms);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, st.whose == OURS) : o;
}

/* One lease: renewed, set, left or checked. */
static enum outcome keep_one(struct tx *x, const struct op_lease *l, int64_t *ret_now_ms,
                             enum verdict *ret_verdict)
{
    enum keep_mode mode = x->op->keep.mode;
    const struct grant *g = l->grant;
    char mark[MARK_DIGITS + 1];
    struct stamp st;
    enum outcome o = read_lock(x, g->keys, g->token, &st);
    if (o != TX_ANSWERED)
        return o;
    *ret_now_ms = st.now_us / 1000;
    *ret_verdict = still_ours(&st) ? VERDICT_OURS
                   : st.given_up   ? VERDICT_RELEASED
                                   : VERDICT_NOT_OURS;
    int64_t until = end_of(st.now_us, l->ttl_ms);
    bool less = mode == KEEP_RENEW && until <= st.seconds;
    if (*ret_verdict != VERDICT_OURS || less || mode == KEEP_CHECK)
        return TX_ANSWERED;
    mark_of(g->token, mark);
    tx_multi(x);
    put(x, g->keys->key[KEY_LOCK], mark, st.now_us, until);
    return tx_exec(x);
}

enum outcome timestamp_keep(struct tx *x)
{
    const struct op_keep *op = &x->op->keep;
    int64_t now_ms = 0;
    enum outcome o = TX_ANSWERED;
    for (size_t i = 0; i < op->n && o == TX_ANSWERED; i++)
        o = keep_one(x, &op->each[i], &now_ms, &op->verdicts[i]);
    x->op->got.kept.server_ms = now_ms;
    return o;
}

/* Who knows the token, as of a lock taken by a handle, may release, extend or check it. */
enum outcome timestamp_by_owner(struct tx *x)
{
    const struct op_by_owner *b = &x->op->by_owner;
    hf_bytes lock = b->keys->key[KEY_LOCK], tombs = b->keys->key[KEY_TOMB];
    char token[64] = "", mark[MARK_DIGITS + 1];
    struct stamp st;
    if (b->id.len < sizeof token)
        memcpy(token, b->id.data, b->id.len);
    enum outcome o = read_lock(x, b->keys, token, &st);
    if (o != TX_ANSWERED)
        return o;
    if (!token[0] || !still_ours(&st)) {
        x->op->got.owned = (struct op_owned){ .ours = false };
        return TX_ANSWERED;
    }
    int64_t left = st.seconds * 1000 - st.now_us / 1000, until = end_of(st.now_us, b->ttl_ms);
    mark_of(token, mark);
    if (b->act == OWNER_RELEASE) {
        tx_multi(x);
        tx_ask(x, S("DEL"), lock);
        tx_entomb(x, tombs, token, st.now_us / 1000, left > b->remember_ms ? left : b->remember_ms,
                  st.tomb_left_ms);
        o = tx_exec(x);
    } else if (b->act == OWNER_EXTEND && until > st.seconds) {
        tx_multi(x);
        put(x, lock, mark, st.now_us, until);
        o = tx_exec(x);
    }
    if (b->act == OWNER_EXTEND && until >= st.seconds && left > b->ttl_ms)
        left = b->ttl_ms; /* more only because leases end with a second */
    x->op->got.owned = (struct op_owned){ .ours = true, .left_ms = left > 0 ? left : 0 };
    return o;
}
