/* SPDX-License-Identifier: MIT
 * transaction_look.c - what is no lock, by plain commands: looking, the session's record, guarded
 * writes, sequences. Each as the script of its name does it.
 */
#include "script/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MEMBER_SHOWN  511  /* bytes of one waiter */
#define DETAILS_SHOWN 99
#define FIELD_MAX     1024 /* a longer field of a record is nobody's identity */
#define ID_MAX        INT64_C(9007199254740991)

/* ---- inspect --------------------------------------------------------------------------------- */

static struct reply *copy_bytes(const struct reply *rp, size_t max)
{
    bool bytes = rp->type == REPLY_BULK || rp->type == REPLY_STATUS;
    return reply_bytes(bytes ? rp->str : "", !bytes ? 0 : rp->len < max ? rp->len : max);
}

static struct reply *copy_members(const struct reply *list)
{
    size_t n = list->type == REPLY_ARRAY ? list->len : 0;
    struct reply *rp = reply_array(n);
    for (size_t i = 0; rp && i < n; i++)
        rp->item[i] = copy_bytes(list->item[i], MEMBER_SHOWN);
    return rp;
}

/* token, details, token, details ... */
static struct reply *copy_holders(const struct reply *tokens, const struct tx *x)
{
    size_t n = tokens && tokens->type == REPLY_ARRAY ? tokens->len : 0;
    struct reply *rp = reply_array(2 * n);
    for (size_t i = 0; rp && i < n; i++) {
        rp->item[2 * i] = copy_bytes(tokens->item[i], MEMBER_SHOWN);
        rp->item[2 * i + 1] = copy_bytes(x->r[i], DETAILS_SHOWN);
    }
    return rp;
}

static enum outcome inspect(struct tx *x, const struct place *k)
{
    struct text last = text_of(number_at(x, 0) - 1);
    size_t type = tx_ask(x, S("TYPE"), k->lock);
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    size_t left = tx_ask(x, S("PTTL"), k->lock);
    size_t own = tx_ask(x, S("GETRANGE"), k->own, S("0"), S("127"));
    size_t now = tx_ask(x, S("TIME"));
    size_t waiting = tx_ask(x, S("ZCARD"), k->queue);
    size_t waiters = tx_ask(x, S("ZRANGE"), k->queue, S("0"), S(last.s));
    size_t holding = tx_ask(x, S("ZCARD"), k->holders);
    size_t holders = tx_ask(x, S("ZRANGE"), k->holders, S("0"), S(last.s));
    if (!tx_flush(x))
        return TX_FAILED;
    struct reply *rp = reply_array(9);
    if (!rp)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    rp->item[0] = copy_bytes(x->r[type], 32);
    rp->item[1] = copy_bytes(x->r[value], 512);
    rp->item[2] = reply_int(number_in(x->r[left]));
    rp->item[3] = copy_bytes(x->r[own], 128);
    rp->item[4] = reply_int(time_us(x->r[now]) / 1000);
    rp->item[5] = reply_int(number_in(x->r[waiting]));
    rp->item[6] = copy_members(x->r[waiters]);
    rp->item[7] = reply_int(number_in(x->r[holding]));
    const struct reply *tokens = tx_keep(x, holders);
    tx_next(x);
    for (size_t i = 0; tokens && tokens->type == REPLY_ARRAY && i < tokens->len; i++)
        tx_ask(x, S("HGET"), k->details, (hf_bytes){ tokens->item[i]->str, tokens->item[i]->len });
    if (!tx_flush(x)) {
        reply_free(rp);
        return TX_FAILED;
    }
    rp->item[8] = copy_holders(tokens, x);
    return answer(x, rp);
}

enum outcome transaction_inspect(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    struct place k = { .lock = key[0], .own = key[1], .queue = key[2] };
    AUTO(mem_freep) char *memory = place_companions(&k);
    return memory ? inspect(x, &k) : tx_fail(x, HF_ENOMEM, "out of memory");
}

/* ---- the session's record -------------------------------------------------------------------- */

enum outcome transaction_record(struct tx *x)
{
    hf_bytes key = x->sc->keys[0];
    size_t n = x->sc->nargs, fixed = 2 + 2 * (size_t)number_at(x, 1);
    AUTO(mem_freep) hf_bytes *argv = mem_alloc((n + 2) * sizeof *argv);
    AUTO(mem_freep) char *text = mem_alloc((n + 2) * 32);
    if (!argv || !text)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    size_t now = tx_ask(x, S("TIME")), a = 2;
    if (!tx_flush(x))
        return TX_FAILED;
    int64_t now_ms = time_us(x->r[now]) / 1000;
    argv[0] = S("HSET");
    argv[1] = key;
    for (size_t i = 2; i < n && i < fixed; i++)
        argv[a++] = arg_at(x, i);
    for (size_t i = fixed; i + 1 < n; i += 2) {
        char *name = text + 32 * i, *since = text + 32 * (i + 1);
        snprintf(name, 32, "since:%.24s", text_at(x, i));
        snprintf(since, 32, "%lld", (long long)(now_ms - number_at(x, i + 1)));
        argv[a++] = S(name);
        argv[a++] = S(since);
    }
    tx_multi(x);
    tx_ask(x, S("DEL"), key);
    tx_send(x, (int)a, argv);
    tx_ask(x, S("PEXPIRE"), key, arg_at(x, 0));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

enum outcome transaction_recall(struct tx *x)
{
    size_t n = x->sc->nargs, found = 0;
    AUTO(mem_freep) hf_bytes *field = mem_alloc((n + 1) * sizeof *field);
    if (!field)
        return tx_fail(x, HF_ENOMEM, "out of memory");
    tx_next(x);
    for (size_t i = 0; i < n; i++)
        tx_ask(x, S("HSTRLEN"), x->sc->keys[0], arg_at(x, i));
    size_t first = x->n - n;
    if (!tx_flush(x))
        return TX_FAILED;
    for (size_t i = 0; i < n; i++) {
        long long len = number_in(x->r[first + i]);
        if (len > 0 && len <= FIELD_MAX)
            field[found++] = arg_at(x, i);
    }
    tx_next(x);
    for (size_t i = 0; i < found; i++)
        tx_ask(x, S("HGET"), x->sc->keys[0], field[i]);
    if (!tx_flush(x))
        return TX_FAILED;
    struct reply *rp = reply_array(2 * found);
    for (size_t i = 0; rp && i < found; i++) {
        rp->item[2 * i] = reply_bytes(field[i].data, field[i].len);
        rp->item[2 * i + 1] = copy_bytes(x->r[i], FIELD_MAX);
    }
    return answer(x, rp);
}

/* ---- scan ------------------------------------------------------------------------------------ */

enum outcome transaction_scan(struct tx *x)
{
    size_t longest = (size_t)number_at(x, 2), n = 0;
    size_t at = tx_ask(x, S("SCAN"), arg_at(x, 0), S("MATCH"), arg_at(x, 1), S("COUNT"), S("100"));
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *step = x->r[at];
    if (step->type != REPLY_ARRAY || step->len != 2 || step->item[1]->type != REPLY_ARRAY)
        return tx_fail(x, HF_EPROTO, "the answer to SCAN makes no sense");
    const struct reply *all = step->item[1];
    for (size_t i = 0; i < all->len; i++)
        n += all->item[i]->len <= longest;
    struct reply *rp = reply_array(2), *keys = reply_array(n);
    if (!rp || !keys) {
        reply_free(keys);
        return answer(x, rp);
    }
    rp->item[0] = copy_bytes(step->item[0], 32);
    rp->item[1] = keys;
    for (size_t i = 0, to = 0; i < all->len; i++)
        if (all->item[i]->len <= longest)
            keys->item[to++] = copy_bytes(all->item[i], longest);
    return answer(x, rp);
}

/* ---- a cached value beside a lock ------------------------------------------------------------ */

static bool is_type(const struct reply *rp, const char *name)
{
    return rp->type == REPLY_STATUS && strcmp(rp->str, name) == 0;
}

/* Does the grant with this owner id and number stand in the lock? */
static bool is_grant(const struct reply *lock, const struct reply *own, hf_bytes id, hf_bytes fence)
{
    if (lock->type != REPLY_BULK || lock->len < id.len || memcmp(lock->str, id.data, id.len) != 0)
        return false;
    const char *number = NULL;
    if (lock->len > id.len + fence.len + 1 && lock->str[id.len] == ':')
        number = lock->str + id.len + 1;
    else if (own->type == REPLY_BULK && strrchr(own->str, ':'))
        number = strrchr(own->str, ':') + 1;
    return number && strspn(number, "0123456789") == fence.len
           && memcmp(number, fence.data, fence.len) == 0;
}

enum outcome transaction_store(struct tx *x)
{
    const hf_bytes *key = x->sc->keys;
    hf_bytes id = arg_at(x, 0), fence = arg_at(x, 1);
    tx_ask(x, S("WATCH"), key[0], key[1], key[2]);
    size_t lock = tx_ask(x, S("GETRANGE"), key[0], S("0"), S("511"));
    size_t own = tx_ask(x, S("GETRANGE"), key[1], S("0"), S("127"));
    size_t type = tx_ask(x, S("TYPE"), key[2]), stored = tx_ask(x, S("HGET"), key[2], S("fence"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_type(x->r[type], "none") && !is_type(x->r[type], "hash"))
        return answer_ints(x, 1, (long long[]){ -3 });
    if (!is_grant(x->r[lock], x->r[own], id, fence))
        return answer_int(x, is_bytes(x->r[stored], fence)); /* stored before, by the same grant */
    int64_t now_ms = time_us(x->r[now]) / 1000;
    tx_multi(x);
    tx_ask(x, S("HSET"), key[2], S("v"), arg_at(x, 4), S("made"), N(now_ms), S("fresh"),
           N(now_ms + number_at(x, 2)), S("fence"), fence);
    tx_ask(x, S("PEXPIRE"), key[2], arg_at(x, 3));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

enum outcome transaction_value(struct tx *x)
{
    hf_bytes key = x->sc->keys[0];
    size_t type = tx_ask(x, S("TYPE"), key), size = tx_ask(x, S("HSTRLEN"), key, S("v"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_type(x->r[type], "none"))
        return answer_ints(x, 1, (long long[]){ 0 });
    if (!is_type(x->r[type], "hash") || number_in(x->r[size]) > number_at(x, 1))
        return answer_ints(x, 1, (long long[]){ -3 });
    bool drop = strcmp(text_at(x, 0), "drop") == 0;
    tx_multi(x); /* value and times of one moment */
    tx_ask(x, S("HMGET"), key, S("v"), S("made"), S("fresh"));
    tx_ask(x, S("TIME"));
    if (drop)
        tx_ask(x, S("DEL"), key);
    enum outcome o = tx_exec(x);
    if (o != TX_ANSWERED)
        return o;
    const struct reply *all = x->exec->item[0];
    if (drop)
        return answer_ints(x, 1, (long long[]){ 0 });
    if (all->type != REPLY_ARRAY || all->len != 3 || all->item[0]->type != REPLY_BULK
        || all->item[1]->type != REPLY_BULK || all->item[2]->type != REPLY_BULK)
        return answer_ints(x, 1, (long long[]){ -3 });
    int64_t now_ms = time_us(x->exec->item[1]) / 1000, age = now_ms - number_in(all->item[1]);
    struct reply *rp = reply_array(4);
    if (rp) {
        rp->item[0] = reply_int(1);
        rp->item[1] = reply_bytes(all->item[0]->str, all->item[0]->len);
        rp->item[2] = reply_int(age > 0 ? age : 0);
        rp->item[3] = reply_int(number_in(all->item[2]) - now_ms);
    }
    return answer(x, rp);
}

/* ---- updates whose answer was lost ----------------------------------------------------------- */

enum outcome transaction_settle(struct tx *x)
{
    hf_bytes mark = x->sc->keys[0], number = arg_at(x, 0);
    char refused[96];
    tx_ask(x, S("WATCH"), mark);
    size_t at = tx_ask(x, S("GETRANGE"), mark, S("0"), S("127"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_bytes(x->r[at], number))
        return answer_int(x, 1);
    snprintf(refused, sizeof refused, "void %s", text_at(x, 0));
    tx_multi(x);
    tx_ask(x, S("SET"), mark, S(refused), S("PX"), arg_at(x, 1));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 0) : o;
}

/* ---- guarded writes, sequences --------------------------------------------------------------- */

static bool all_digits(const struct reply *rp)
{
    return rp->type == REPLY_BULK && strspn(rp->str, "0123456789") == rp->len;
}

enum outcome transaction_guard(struct tx *x)
{
    hf_bytes guard = x->sc->keys[0], n = arg_at(x, 0);
    tx_ask(x, S("WATCH"), guard);
    size_t at = tx_ask(x, S("GETRANGE"), guard, S("0"), S("31"));
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *seen = x->r[at];
    if (!all_digits(seen) || seen->len > 20)
        return answer_ints(x, 1, (long long[]){ -3 });
    /* As text: exact, however many digits a caller sends. */
    if (n.len < seen->len || (n.len == seen->len && memcmp(n.data, seen->str, n.len) < 0)) {
        struct reply *rp = reply_array(2);
        if (rp) {
            rp->item[0] = reply_int(-1);
            rp->item[1] = reply_bytes(seen->str, seen->len);
        }
        return answer(x, rp);
    }
    tx_multi(x);
    tx_ask(x, S("SET"), guard, n);
    if (x->sc->nkeys > 1)
        tx_ask(x, S("SET"), x->sc->keys[1], arg_at(x, 1));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_int(x, 1) : o;
}

enum outcome transaction_sequence(struct tx *x)
{
    hf_bytes counter = x->sc->keys[0];
    tx_ask(x, S("WATCH"), counter);
    size_t at = tx_ask(x, S("GETRANGE"), counter, S("0"), S("31"));
    size_t there = tx_ask(x, S("EXISTS"), counter), now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *given = x->r[at];
    int64_t n = given->len ? number_in(given) : number_at(x, 1) - 1;
    struct text again = text_of(n);
    if (!all_digits(given) || given->len > 16 || n > ID_MAX
        || (given->len ? !is_bytes(given, S(again.s)) : number_in(x->r[there]) == 1))
        return answer_ints(x, 1, (long long[]){ -3 });
    if (n < number_at(x, 2))
        n = number_at(x, 2);
    if (number_at(x, 3) == 1 && n < time_us(x->r[now]))
        n = time_us(x->r[now]);
    int64_t last = n + number_at(x, 0);
    if (last > ID_MAX) {
        struct text t = text_of(n);
        struct reply *rp = reply_array(2);
        if (rp) {
            rp->item[0] = reply_int(-4);
            rp->item[1] = reply_bytes(t.s, strlen(t.s));
        }
        return answer(x, rp);
    }
    tx_multi(x);
    tx_ask(x, S("SET"), counter, N(last));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_ints(x, 2, (long long[]){ n + 1, last }) : o;
}
