/* SPDX-License-Identifier: MIT
 * transaction_take.c - a part of a lock, or several locks at once, by WATCH, MULTI and EXEC.
 *
 * Everything is watched and read before the first number is taken, and given by one EXEC. Who waits
 * in the queue of the scripts is let in first while others share the lock, if anybody looks after
 * that queue; a lock that is free is taken by whoever comes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "script/transaction.h"

#define QUEUE_MS  60000 /* what a waiter's look gives the queue */
#define LOOKED_MS 1000  /* one that was looked after so lately has living waiters */

/* ---- share ----------------------------------------------------------------------------------- */

/* One who wants a part of a lock, or all of it (weight 0). */
struct wish {
    struct place k;
    char        *memory; /* of k */
    const char  *token, *ttl, *grace;
    hf_bytes     owner;
    long long    limit, weight;
    /* what was found */
    struct share s;
    bool         free, crowded; /* crowded: others wait for it, and look after it */
    long long    changed, named; /* a limit that was changed, and what it is called by; 0: none */
    int64_t      left_ms, now_ms;
    long long    fence;  /* it has it already */
    const struct reply *value;
};

/* Watch it and see what stands there. *ret_code: 0, or why it cannot be had whatever comes. */
static enum outcome look(struct tx *x, struct wish *w, long long *ret_code)
{
    struct place *k = &w->k;
    tx_next(x);
    tx_ask(x, S("WATCH"), k->lock, k->tombs, k->own, k->holders, k->details, k->settings);
    size_t tomb = tx_ask(x, S("ZSCORE"), k->tombs, S(w->token));
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    size_t left = tx_ask(x, S("PTTL"), k->lock);
    size_t own = tx_ask(x, S("GETRANGE"), k->own, S("0"), S("127"));
    size_t waiting = tx_ask(x, S("ZCARD"), k->queue), fresh = tx_ask(x, S("PTTL"), k->queue);
    size_t settings = tx_ask(x, S("GETRANGE"), k->settings, S("0"), S("63"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    *ret_code = is_error(x->r[tomb]) || is_error(x->r[value]) || is_error(x->r[waiting]) ? -3
                : x->r[tomb]->type != REPLY_NIL                                          ? -2
                                                                                         : 0;
    w->left_ms = number_in(x->r[left]);
    w->free = w->left_ms == -2;
    w->now_ms = time_us(x->r[now]) / 1000;
    w->crowded = number_in(x->r[waiting]) > 0
                 && number_in(x->r[fresh]) > QUEUE_MS - LOOKED_MS;
    if (x->r[settings]->type == REPLY_BULK)
        (void)!sscanf(x->r[settings]->str, "%lld %lld", &w->changed, &w->named);
    const struct reply *record = w->owner.len ? x->r[own] : x->r[value];
    if (!w->free && begins_with(record, w->token, ':')
        && (!w->owner.len || is_bytes(x->r[value], w->owner)))
        w->fence = strtoll(record->str + strlen(w->token) + 1, NULL, 10);
    if (!parse_share(x->r[value], &w->s) || w->free)
        w->s = (struct share){ 0 };
    w->value = tx_keep(x, value);
    if (!w->value)
        return TX_FAILED;
    if (*ret_code || !w->s.generation[0])
        return TX_ANSWERED;
    enum outcome o = share_load(x, k, &w->s, w->token, w->now_ms);
    if (w->s.wrong)
        *ret_code = -3;
    return o;
}

/* May one who names this limit share in what agreed on that? */
static bool agrees(const struct wish *w, long long agreed)
{
    if (agreed == w->limit)
        return true;
    return agreed && w->limit && w->changed && (!w->named || w->named == w->limit);
}

/* A part of it: 0 it can be had, -1 not now, -7, -8 never. */
static long long check_part(struct wish *w)
{
    bool shared = w->s.generation[0] != '\0';
    if (!shared && !w->free)
        return -1;
    if (!shared) {
        w->s.limit = w->limit && w->changed ? w->changed : w->limit;
        w->s.now_ms = w->now_ms;
    }
    if (!agrees(w, w->s.limit))
        return -7;
    if (w->s.limit && w->weight > w->s.limit)
        return -8;
    bool fits = !w->s.limit || w->s.used + w->weight <= w->s.limit;
    return !fits || (shared && w->crowded) ? -1 : 0;
}

static enum outcome not_now(struct tx *x, const struct wish *w)
{
    struct reply *rp = reply_array(4);
    if (rp) {
        rp->item[0] = reply_int(-1);
        rp->item[1] = reply_int(w->left_ms);
        rp->item[2] = reply_bytes(w->value->str, w->value->len);
        rp->item[3] = reply_int(0);
    }
    return answer(x, rp);
}

/* Into a MULTI. */
static void give(struct tx *x, struct wish *w)
{
    int64_t ttl_ms = strtoll(w->ttl, NULL, 10);
    if (!w->weight) {
        tx_put(x, &w->k, w->owner, w->token, w->fence, w->grace, w->ttl);
        return;
    }
    if (w->s.limit && w->changed)
        tx_ask(x, S("PEXPIRE"), w->k.settings, N(SHARE_SETTINGS_MS));
    share_admit(x, &w->k, &w->s, w->token, w->now_ms + ttl_ms, w->fence, w->grace, w->weight);
}

/* It has it already: with a lease that is not shorter than what is asked for. */
static enum outcome shared_before(struct tx *x, struct wish *w)
{
    int64_t until_ms = w->now_ms + strtoll(w->ttl, NULL, 10);
    if (w->s.until_ms < until_ms) {
        tx_multi(x);
        share_extend(x, &w->k, &w->s, w->token, until_ms);
        enum outcome o = tx_exec(x);
        if (o != TX_ANSWERED)
            return o;
    }
    return answer_int(x, w->s.fence);
}

static enum outcome share(struct tx *x, struct wish *w)
{
    long long code;
    enum outcome o = look(x, w, &code);
    if (o != TX_ANSWERED)
        return o;
    if (code)
        return answer_ints(x, 1, &code);
    if (w->left_ms == -1) { /* it is to end by itself, with its last holder if it has any */
        tx_multi(x);
        if (w->s.generation[0])
            share_settle(x, &w->k, &w->s);
        else
            tx_ask(x, S("PEXPIRE"), w->k.lock,
                   N(transaction_repaired_ms(strtoll(w->ttl, NULL, 10))));
        o = tx_exec(x);
        return o == TX_ANSWERED ? TX_AGAIN : o;
    }
    if (w->s.fence)
        return shared_before(x, w);
    code = check_part(w);
    if (code == -1)
        return not_now(x, w);
    if (code) {
        o = tx_confirm(x);
        return o == TX_ANSWERED ? answer_ints(x, 2, (long long[]){ code, w->s.limit }) : o;
    }
    o = tx_number(x, w->k.counter, &w->fence);
    if (o != TX_ANSWERED)
        return o;
    if (!w->fence)
        return answer_ints(x, 1, (long long[]){ -4 });
    tx_multi(x);
    give(x, w);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, w->fence) : o;
}

enum outcome transaction_share(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    struct wish w = { .k = { .lock = key[0], .counter = key[1], .queue = key[2], .tombs = key[3] },
                      .token = text_at(x, 0), .ttl = text_at(x, 1), .grace = text_at(x, 2),
                      .limit = number_at(x, 5), .weight = number_at(x, 6) };
    AUTO(mem_freep) char *memory = place_companions(&w.k);
    return memory ? share(x, &w) : tx_fail(x, HF_ENOMEM, "out of memory");
}

/* ---- several at once: acquire_all ------------------------------------------------------------ */

static long long check_wish(struct wish *w)
{
    if (w->fence || w->s.fence)
        return 0;
    return w->weight ? check_part(w) : w->free ? 0 : -1;
}

static enum outcome take_all(struct tx *x, struct wish *w, size_t n, long long *number)
{
    enum outcome o = TX_ANSWERED;
    long long code = 0;
    for (size_t i = 0; i < n; i++) {
        o = look(x, &w[i], &code);
        if (o != TX_ANSWERED)
            return o;
        if (!code)
            code = check_wish(&w[i]);
        if (code) {
            o = code < -3 ? tx_confirm(x) : TX_ANSWERED;
            return o == TX_ANSWERED
                       ? answer_ints(x, 3, (long long[]){ code, (long long)i + 1, w[i].s.limit })
                       : o;
        }
    }
    for (size_t i = 0; i < n && o == TX_ANSWERED; i++) {
        if (w[i].s.fence)
            w[i].fence = w[i].s.fence;
        else if (!w[i].fence)
            o = tx_number(x, w[0].k.counter, &w[i].fence);
        if (o == TX_ANSWERED && !w[i].fence)
            return answer_ints(x, 2, (long long[]){ -4, 1 });
        number[i] = w[i].fence;
    }
    if (o != TX_ANSWERED)
        return o;
    tx_multi(x);
    for (size_t i = 0; i < n; i++) {
        if (w[i].s.fence) /* once more: its part is not counted twice */
            w[i].s.used -= w[i].s.weight;
        give(x, &w[i]);
    }
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_ints(x, n, number) : o;
}

enum outcome transaction_acquire_all(struct tx *x)
{
    size_t n = (x->sc->nkeys - 1) / 3;
    AUTO(mem_freep) struct wish *w = mem_zalloc(n * sizeof *w);
    AUTO(mem_freep) long long *number = mem_zalloc(n * sizeof *number);
    bool memory = w && number;
    for (size_t i = 0; memory && i < n; i++) {
        const hf_bytes *key = x->sc->keys + 1 + 3 * i;
        w[i] = (struct wish){ .k = { .lock = key[0], .counter = x->sc->keys[0], .queue = key[1],
                                     .tombs = key[2] },
                              .token = text_at(x, 6 * i), .ttl = text_at(x, 6 * i + 1),
                              .grace = text_at(x, 6 * i + 2), .owner = arg_at(x, 6 * i + 3),
                              .limit = number_at(x, 6 * i + 4), .weight = number_at(x, 6 * i + 5) };
        w[i].memory = place_companions(&w[i].k);
        memory = w[i].memory != NULL;
    }
    enum outcome o = memory ? take_all(x, w, n, number) : tx_fail(x, HF_ENOMEM, "out of memory");
    for (size_t i = 0; w && i < n; i++)
        mem_free(w[i].memory);
    return o;
}
