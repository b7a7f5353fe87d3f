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
#include "exec/transaction.h"

#define QUEUE_MS  60000 /* what a waiter's look gives the queue */
#define LOOKED_MS 1000  /* one that was looked after so lately has living waiters */

/* ---- share ----------------------------------------------------------------------------------- */

/* One who wants a part of a lock, or all of it (weight 0). */
struct wish {
    const struct op_take *t;
    struct queue_place k;
    long long    limit, weight;
    /* what was found */
    struct share s;
    bool         free, crowded; /* crowded: others wait for it, and look after it */
    long long    changed, named; /* a limit that was changed, and what it is called by; 0: none */
    int64_t      left_ms, now_ms;
    long long    fence;  /* it has it already */
    const struct reply *value;
};

/* Watch it and see what stands there. *ret_code: YES, or why it cannot be had whatever comes. */
static enum outcome read_lock(struct tx *x, struct wish *w, enum answer *ret_code)
{
    const struct op_take *t = w->t;
    const struct queue_place *k = &w->k;
    tx_next(x);
    tx_ask(x, S("WATCH"), k->lock, k->tombs, k->own, k->holders, k->details, k->settings);
    size_t tomb = tx_ask(x, S("ZSCORE"), k->tombs, S(t->token));
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("512"));
    size_t left = tx_ask(x, S("PTTL"), k->lock);
    size_t own = tx_ask(x, S("GETRANGE"), k->own, S("0"), S("127"));
    size_t waiting = tx_ask(x, S("ZCARD"), k->queue), fresh = tx_ask(x, S("PTTL"), k->queue);
    size_t settings = tx_ask(x, S("GETRANGE"), k->settings, S("0"), S("63"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    *ret_code = ANSWER_YES;
    if (is_error(x->r[tomb]) || is_error(x->r[value]) || is_error(x->r[waiting]))
        *ret_code = ANSWER_WRONG_TYPE;
    else if (x->r[tomb]->type != REPLY_NIL)
        *ret_code = ANSWER_GIVEN_UP;
    w->left_ms = number_in(x->r[left]);
    w->free = w->left_ms == PTTL_NO_KEY;
    w->now_ms = time_us(x->r[now]) / 1000;
    w->crowded = number_in(x->r[waiting]) > 0
                 && number_in(x->r[fresh]) > QUEUE_MS - LOOKED_MS;
    if (x->r[settings]->type == REPLY_BULK)
        (void)!sscanf(x->r[settings]->str, "%lld %lld", &w->changed, &w->named);
    const struct reply *record = t->owner.len ? x->r[own] : x->r[value];
    if (!w->free && begins_with(record, t->token, ':')
        && (!t->owner.len || is_bytes(x->r[value], t->owner)))
        w->fence = fence_behind(record, t->token);
    if (!parse_share(x->r[value], &w->s) || w->free)
        w->s = (struct share){ 0 };
    w->value = tx_keep(x, value);
    if (!w->value)
        return TX_FAILED;
    if (*ret_code != ANSWER_YES || !w->s.generation[0])
        return TX_ANSWERED;
    enum outcome o = share_load(x, k, &w->s, t->token, w->now_ms);
    if (w->s.wrong)
        *ret_code = ANSWER_WRONG_TYPE;
    return o;
}

/* May one who names this limit share in what agreed on that? */
static bool agrees(const struct wish *w, long long agreed)
{
    if (agreed == w->limit)
        return true;
    return agreed && w->limit && w->changed && (!w->named || w->named == w->limit);
}

/* A part of it: YES, it can be had; BUSY, not now; or never. */
static enum answer check_part(struct wish *w)
{
    bool shared = w->s.generation[0] != '\0';
    if (!shared && !w->free)
        return ANSWER_BUSY;
    if (!shared) {
        w->s.limit = w->limit && w->changed ? w->changed : w->limit;
        w->s.now_ms = w->now_ms;
    }
    if (!agrees(w, w->s.limit))
        return ANSWER_OTHER_LIMIT;
    if (w->s.limit && w->weight > w->s.limit)
        return ANSWER_OVER_LIMIT;
    bool fits = !w->s.limit || w->s.used + w->weight <= w->s.limit;
    return !fits || (shared && w->crowded) ? ANSWER_BUSY : ANSWER_YES;
}

/* Into a MULTI. */
static void give(struct tx *x, struct wish *w)
{
    const struct op_take *t = w->t;
    if (!w->weight) {
        tx_put(x, t, w->fence);
        return;
    }
    if (w->s.limit && w->changed)
        tx_ask(x, S("PEXPIRE"), w->k.settings, N(SHARE_SETTINGS_MS));
    share_admit(x, &w->k, &w->s, t->token, w->now_ms + t->ttl_ms, w->fence, t->grace_ms, w->weight);
}

/* It has it already: with a lease that is not shorter than what is asked for. */
static enum outcome shared_before(struct tx *x, struct wish *w)
{
    int64_t until_ms = w->now_ms + w->t->ttl_ms;
    if (w->s.until_ms < until_ms) {
        tx_multi(x);
        share_extend(x, &w->k, &w->s, w->t->token, until_ms);
        enum outcome o = tx_exec(x);
        if (o != TX_ANSWERED)
            return o;
    }
    return answer_granted(x, w->s.fence);
}

/* Without a ttl: it is to end by itself, with its last holder if it has any. */
static enum outcome repair(struct tx *x, struct wish *w)
{
    tx_multi(x);
    if (w->s.generation[0])
        share_settle(x, &w->k, &w->s);
    else
        tx_ask(x, S("PEXPIRE"), w->k.lock, N(transaction_repaired_ms(w->t->ttl_ms)));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? TX_AGAIN : o;
}

static enum outcome admit(struct tx *x, struct wish *w)
{
    enum outcome o = tx_number(x, hf_str(w->t->keys->scope->counter), &w->fence);
    if (o != TX_ANSWERED)
        return o;
    if (!w->fence)
        return answer_refused(x, ANSWER_BAD_COUNTER);
    tx_multi(x);
    give(x, w);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_granted(x, w->fence) : o;
}

static enum outcome share(struct tx *x, struct wish *w)
{
    enum answer code;
    enum outcome o = read_lock(x, w, &code);
    if (o != TX_ANSWERED)
        return o;
    if (code != ANSWER_YES)
        return answer_refused(x, code);
    if (w->left_ms == PTTL_ENDLESS && transaction_may_mend(w->t, w->value))
        return repair(x, w);
    if (w->s.fence)
        return shared_before(x, w);
    code = check_part(w);
    if (code == ANSWER_YES)
        return admit(x, w);
    if (code == ANSWER_BUSY)
        return answer_busy(x, w->left_ms, w->value);
    o = tx_confirm(x);
    if (o != TX_ANSWERED)
        return o;
    x->op->got.taken = (struct op_taken){ .code = code, .limit = w->s.limit };
    return TX_ANSWERED;
}

/* k.memory is NULL without memory. */
static struct wish wish_of(const struct op_take *t)
{
    return (struct wish){ .t = t, .k = place_of(t->keys), .limit = t->limit, .weight = t->weight };
}

enum outcome transaction_share(struct tx *x)
{
    struct wish w = wish_of(&x->op->take);
    enum outcome o = w.k.memory ? share(x, &w) : tx_no_memory(x);
    place_clear(&w.k);
    return o;
}

/* ---- several at once: acquire_all ------------------------------------------------------------ */

static enum answer check_wish(struct wish *w)
{
    if (w->fence || w->s.fence)
        return ANSWER_YES;
    return w->weight ? check_part(w) : w->free ? ANSWER_YES : ANSWER_BUSY;
}

static enum outcome refuse_all(struct tx *x, enum answer code, size_t which, long long limit)
{
    x->op->got.all_taken = (struct op_all_taken){ .code = code, .which = which, .limit = limit };
    return TX_ANSWERED;
}

/* *ret_free: all of them can be had; else one was refused. */
static enum outcome check_all(struct tx *x, struct wish *w, size_t n, bool *ret_free)
{
    enum answer code;
    *ret_free = false;
    for (size_t i = 0; i < n; i++) {
        enum outcome o = read_lock(x, &w[i], &code);
        if (o == TX_ANSWERED && code == ANSWER_YES)
            code = check_wish(&w[i]);
        if (o == TX_ANSWERED && (code == ANSWER_OTHER_LIMIT || code == ANSWER_OVER_LIMIT))
            o = tx_confirm(x);
        if (o != TX_ANSWERED)
            return o;
        if (code != ANSWER_YES)
            return refuse_all(x, code, i, w[i].s.limit);
    }
    *ret_free = true;
    return TX_ANSWERED;
}

/* Who has its lock already keeps its number. Leaves w[i].fence 0 where the counter is unusable. */
static enum outcome number_all(struct tx *x, struct wish *w, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        enum outcome o = TX_ANSWERED;
        if (w[i].s.fence)
            w[i].fence = w[i].s.fence;
        else if (!w[i].fence)
            o = tx_number(x, hf_str(w[0].t->keys->scope->counter), &w[i].fence);
        if (o != TX_ANSWERED || !w[i].fence)
            return o;
    }
    return TX_ANSWERED;
}

static enum outcome take_all(struct tx *x, struct wish *w, size_t n)
{
    bool all_free;
    enum outcome o = check_all(x, w, n, &all_free);
    if (o != TX_ANSWERED || !all_free)
        return o;
    o = number_all(x, w, n);
    if (o != TX_ANSWERED)
        return o;
    for (size_t i = 0; i < n; i++)
        if (!w[i].fence)
            return refuse_all(x, ANSWER_BAD_COUNTER, 0, 0);
    tx_multi(x);
    for (size_t i = 0; i < n; i++) {
        if (w[i].s.fence) /* once more: its part is not counted twice */
            w[i].s.used -= w[i].s.weight;
        give(x, &w[i]);
    }
    o = tx_exec(x);
    if (o != TX_ANSWERED)
        return o;
    for (size_t i = 0; i < n; i++)
        x->op->acquire_all.fences[i] = (uint64_t)w[i].fence;
    x->op->got.all_taken = (struct op_all_taken){ .code = ANSWER_YES };
    return TX_ANSWERED;
}

enum outcome transaction_acquire_all(struct tx *x)
{
    const struct op_acquire_all *all = &x->op->acquire_all;
    AUTO(mem_freep) struct wish *w = mem_zalloc(all->n * sizeof *w);
    bool memory = w != NULL;
    for (size_t i = 0; memory && i < all->n; i++) {
        w[i] = wish_of(&all->each[i]);
        memory = w[i].k.memory != NULL;
    }
    enum outcome o = memory ? take_all(x, w, all->n) : tx_no_memory(x);
    for (size_t i = 0; w && i < all->n; i++)
        place_clear(&w[i].k);
    return o;
}
