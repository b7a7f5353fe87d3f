/* SPDX-License-Identifier: MIT
 * transaction_look.c - what is no lock, by plain commands: looking, the session's record, guarded
 * writes, sequences. Each as the script of its name does it.
 */
#include "exec/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define MEMBER_SHOWN  511  /* bytes of one waiter */
#define DETAILS_SHOWN 99
#define FIELD_MAX     1024 /* a longer field of a record is nobody's identity */
#define ID_MAX        INT64_C(9007199254740991)

/* At most so many bytes of what will be shown, and nothing of an error. */
static hf_bytes cut(struct reply *rp, size_t max)
{
    if (rp->type == REPLY_ERROR)
        max = 0;
    if (rp->str && rp->len > max) {
        rp->len = max;
        rp->str[max] = '\0';
    }
    return rp->str ? (hf_bytes){ rp->str, rp->len } : hf_str("");
}

/* ---- inspect --------------------------------------------------------------------------------- */

/* Its members, each cut; none if it is no list. */
static struct op_list cut_members(struct reply *list)
{
    if (list->type != REPLY_ARRAY)
        return (struct op_list){ NULL };
    for (size_t i = 0; i < list->len; i++)
        cut(list->item[i], MEMBER_SHOWN);
    return (struct op_list){ list };
}

/* token, details, deadline, token, details ... NULL: no memory. */
static struct reply *read_holders(struct tx *x, const struct queue_place *k, struct reply *tokens)
{
    struct op_list l = cut_members(tokens);
    size_t n = op_list_len(l);
    tx_next(x);
    for (size_t i = 0; i < n; i++) {
        tx_ask(x, S("HGET"), k->details, op_list_at(l, i));
        tx_ask(x, S("ZSCORE"), k->holders, op_list_at(l, i));
    }
    struct reply *rp = tx_flush(x) ? reply_array(3 * n) : NULL;
    for (size_t i = 0; rp && i < n; i++) {
        cut(x->r[2 * i], DETAILS_SHOWN);
        cut(x->r[2 * i + 1], DETAILS_SHOWN);
        rp->item[3 * i] = tokens->item[i];
        rp->item[3 * i + 1] = tx_take(x, 2 * i);
        rp->item[3 * i + 2] = tx_take(x, 2 * i + 1);
        tokens->item[i] = NULL;
    }
    if (!rp && !x->e)
        tx_no_memory(x);
    return rp;
}

/* The parts of the answer's reply. */
enum part { PART_TYPE, PART_VALUE, PART_OWN, PART_WAITERS, PART_HOLDERS, PART_SETTINGS, PARTS };

static enum outcome inspect(struct tx *x, const struct queue_place *k, struct reply *parts)
{
    struct tx_text last = text_of((long long)x->op->inspect.max - 1);
    size_t type = tx_ask(x, S("TYPE"), k->lock);
    size_t value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), S("511"));
    size_t left = tx_ask(x, S("PTTL"), k->lock);
    size_t own = tx_ask(x, S("GETRANGE"), k->own, S("0"), S("127"));
    size_t now = tx_ask(x, S("TIME"));
    size_t waiting = tx_ask(x, S("ZCARD"), k->queue);
    size_t waiters = tx_ask(x, S("ZRANGE"), k->queue, S("0"), S(last.s));
    size_t holding = tx_ask(x, S("ZCARD"), k->holders);
    size_t holders = tx_ask(x, S("ZRANGE"), k->holders, S("0"), S(last.s));
    size_t settings = tx_ask(x, S("GETRANGE"), k->settings, S("0"), S("31"));
    if (!tx_flush(x))
        return TX_FAILED;
    struct op_inspected got = { .type = cut(x->r[type], 32), .value = cut(x->r[value], 512),
                                .left_ms = number_in(x->r[left]), .own = cut(x->r[own], 128),
                                .server_ms = time_us(x->r[now]) / 1000,
                                .nwaiters = number_in(x->r[waiting]),
                                .waiters = cut_members(x->r[waiters]),
                                .nholders = number_in(x->r[holding]), .leader = S(""),
                                .settings = cut(x->r[settings], 32) };
    parts->item[PART_TYPE] = tx_take(x, type);
    parts->item[PART_VALUE] = tx_take(x, value);
    parts->item[PART_OWN] = tx_take(x, own);
    parts->item[PART_WAITERS] = tx_take(x, waiters);
    parts->item[PART_SETTINGS] = tx_take(x, settings);
    struct reply *tokens = tx_keep(x, holders);
    if (!tokens || !(parts->item[PART_HOLDERS] = read_holders(x, k, tokens)))
        return TX_FAILED;
    got.holders.rp = parts->item[PART_HOLDERS];
    x->op->got.inspected = got;
    return TX_ANSWERED;
}

enum outcome transaction_inspect(struct tx *x)
{
    AUTO(place_clear) struct queue_place k = place_of(x->op->inspect.keys);
    struct reply *parts = k.memory ? reply_array(PARTS) : NULL;
    if (!parts)
        return tx_no_memory(x);
    enum outcome o = inspect(x, &k, parts);
    x->op->reply = o == TX_ANSWERED ? parts : reply_free(parts);
    return o;
}

/* ---- the session's record -------------------------------------------------------------------- */

#define SINCE_SIZE 32 /* "since:" and a name; a time */

enum outcome transaction_record(struct tx *x)
{
    const struct op_record *op = &x->op->record;
    size_t n = 2 * op->fields + 4 * op->entries, a = 2;
    AUTO(mem_freep) hf_bytes *argv = mem_alloc((2 + n) * sizeof *argv);
    AUTO(mem_freep) char *text = mem_alloc(3 * SINCE_SIZE * (op->entries + 1));
    if (!argv || !text)
        return tx_no_memory(x);
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    int64_t now_ms = time_us(x->r[now]) / 1000;
    argv[0] = S("HSET");
    argv[1] = op->key;
    for (size_t i = 0; i < op->fields; i++) {
        argv[a++] = S(op->field[i].name);
        argv[a++] = op->field[i].value;
    }
    for (size_t i = 0; i < op->entries; i++) {
        char *name = text + 3 * SINCE_SIZE * i, *since = name + SINCE_SIZE;
        char *lease = since + SINCE_SIZE;
        snprintf(name, SINCE_SIZE, "since:%s", op->entry[i].name);
        snprintf(since, SINCE_SIZE, "%lld", (long long)(now_ms - op->entry[i].age_ms));
        argv[a++] = S(name);
        argv[a++] = S(since);
        if (!op->entry[i].lease[0])
            continue;
        snprintf(lease, SINCE_SIZE, "lease:%s", op->entry[i].name);
        argv[a++] = S(lease);
        argv[a++] = S(op->entry[i].lease);
    }
    tx_multi(x);
    tx_ask(x, S("DEL"), op->key);
    tx_send(x, (int)a, argv);
    tx_ask(x, S("PEXPIRE"), op->key, N(op->ttl_ms));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_done(x, ANSWER_YES) : o;
}

/* Those of the fields that are there and not too long, out of the replies to HSTRLEN. */
static size_t select_fields(const struct tx *x, size_t first, const char **ret)
{
    const struct op_recall *op = &x->op->recall;
    size_t found = 0;
    for (size_t i = 0; i < op->n; i++) {
        long long len = number_in(x->r[first + i]);
        if (len > 0 && len <= FIELD_MAX)
            ret[found++] = op->field[i];
    }
    return found;
}

/* name, value, name, value ... NULL: no memory. */
static struct reply *pair_fields(struct tx *x, size_t n, const char *const *field)
{
    struct reply *rp = reply_array(2 * n);
    bool whole = rp != NULL;
    for (size_t i = 0; whole && i < n; i++) {
        cut(x->r[i], FIELD_MAX);
        rp->item[2 * i] = reply_bytes(field[i], strlen(field[i]));
        rp->item[2 * i + 1] = tx_take(x, i);
        whole = rp->item[2 * i] != NULL;
    }
    return whole ? rp : reply_free(rp);
}

enum outcome transaction_recall(struct tx *x)
{
    const struct op_recall *op = &x->op->recall;
    AUTO(mem_freep) const char **field = mem_alloc((op->n + 1) * sizeof *field);
    if (!field)
        return tx_no_memory(x);
    size_t first = x->n;
    for (size_t i = 0; i < op->n; i++)
        tx_ask(x, S("HSTRLEN"), op->key, S(op->field[i]));
    if (!tx_flush(x))
        return TX_FAILED;
    size_t found = select_fields(x, first, field);
    tx_next(x);
    for (size_t i = 0; i < found; i++)
        tx_ask(x, S("HGET"), op->key, S(field[i]));
    if (!tx_flush(x))
        return TX_FAILED;
    x->op->reply = pair_fields(x, found, field);
    x->op->got.list.rp = x->op->reply;
    return x->op->reply ? TX_ANSWERED : tx_no_memory(x);
}

/* ---- scan ------------------------------------------------------------------------------------ */

/* Without keys that are too long to be a lock's. */
static void drop_longer(struct reply *keys, size_t longest)
{
    size_t n = 0;
    for (size_t i = 0; i < keys->len; i++) {
        if (keys->item[i]->len > longest)
            reply_free(keys->item[i]);
        else
            keys->item[n++] = keys->item[i];
    }
    keys->len = n;
}

enum outcome transaction_scan(struct tx *x)
{
    const struct op_scan *op = &x->op->scan;
    size_t at = tx_ask(x, S("SCAN"), S(op->cursor), S("MATCH"), S(op->pattern), S("COUNT"),
                       S("100"));
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *step = x->r[at];
    if (step->type != REPLY_ARRAY || step->len != 2 || step->item[1]->type != REPLY_ARRAY)
        return tx_fail(x, HF_EPROTO, "the answer to SCAN makes no sense");
    drop_longer(step->item[1], op->longest);
    x->op->got.page = (struct op_page){ .cursor = cut(step->item[0], 32),
                                        .keys = { step->item[1] } };
    x->op->reply = tx_take(x, at);
    return TX_ANSWERED;
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
    const struct op_store *op = &x->op->store;
    hf_bytes lock_key = op->keys->key[KEY_LOCK], own_key = op->keys->key[KEY_OWN];
    struct tx_text number = text_of((long long)op->fence);
    hf_bytes key = op->value_key, fence = S(number.s);
    tx_ask(x, S("WATCH"), lock_key, own_key, key);
    size_t lock = tx_ask(x, S("GETRANGE"), lock_key, S("0"), S("511"));
    size_t own = tx_ask(x, S("GETRANGE"), own_key, S("0"), S("127"));
    size_t type = tx_ask(x, S("TYPE"), key), stored = tx_ask(x, S("HGET"), key, S("fence"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_type(x->r[type], "none") && !is_type(x->r[type], "hash"))
        return answer_done(x, ANSWER_WRONG_TYPE);
    if (!is_grant(x->r[lock], x->r[own], op->id, fence)) /* or stored before, by the same grant */
        return answer_done(x, is_bytes(x->r[stored], fence) ? ANSWER_YES : ANSWER_NO);
    int64_t now_ms = time_us(x->r[now]) / 1000;
    tx_multi(x);
    tx_ask(x, S("HSET"), key, S("v"), op->value, S("made"), N(now_ms), S("fresh"),
           N(now_ms + op->fresh_ms), S("fence"), fence);
    tx_ask(x, S("PEXPIRE"), key, N(op->keep_ms));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_done(x, ANSWER_YES) : o;
}

static enum outcome answer_not_found(struct tx *x, enum answer code)
{
    x->op->got.found = (struct op_found){ .code = code };
    return TX_ANSWERED;
}

/* Out of the reply of EXEC: the value and its times, and the server's. */
static enum outcome answer_found(struct tx *x, const struct reply *all, const struct reply *now)
{
    if (all->type != REPLY_ARRAY || all->len != 3 || all->item[0]->type != REPLY_BULK
        || all->item[1]->type != REPLY_BULK || all->item[2]->type != REPLY_BULK)
        return answer_not_found(x, ANSWER_WRONG_TYPE);
    const struct reply *value = all->item[0];
    int64_t now_ms = time_us(now) / 1000, age = now_ms - number_in(all->item[1]);
    x->op->got.found = (struct op_found){ .code = ANSWER_YES, .value = { value->str, value->len },
                                          .age_ms = age > 0 ? age : 0,
                                          .fresh_ms = number_in(all->item[2]) - now_ms };
    x->op->reply = tx_take(x, x->n - 1);
    return TX_ANSWERED;
}

enum outcome transaction_value(struct tx *x)
{
    const struct op_value *op = &x->op->value;
    size_t type = tx_ask(x, S("TYPE"), op->key), size = tx_ask(x, S("HSTRLEN"), op->key, S("v"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_type(x->r[type], "none"))
        return answer_not_found(x, ANSWER_NO);
    if (!is_type(x->r[type], "hash") || number_in(x->r[size]) > (long long)op->longest)
        return answer_not_found(x, ANSWER_WRONG_TYPE);
    tx_multi(x); /* value and times of one moment */
    tx_ask(x, S("HMGET"), op->key, S("v"), S("made"), S("fresh"));
    tx_ask(x, S("TIME"));
    if (op->drop)
        tx_ask(x, S("DEL"), op->key);
    enum outcome o = tx_exec(x);
    if (o != TX_ANSWERED)
        return o;
    if (op->drop)
        return answer_not_found(x, ANSWER_NO);
    if (x->exec->len != 2)
        return tx_fail(x, HF_EPROTO, "the answer to EXEC makes no sense");
    return answer_found(x, x->exec->item[0], x->exec->item[1]);
}

/* ---- updates whose answer was lost ----------------------------------------------------------- */

enum outcome transaction_resolve(struct tx *x)
{
    const struct op_resolve *op = &x->op->resolve;
    struct tx_text number = text_of((long long)op->number);
    char refused[sizeof number.s + 8];
    tx_ask(x, S("WATCH"), op->mark);
    size_t at = tx_ask(x, S("GETRANGE"), op->mark, S("0"), S("127"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_bytes(x->r[at], S(number.s)))
        return answer_done(x, ANSWER_YES);
    snprintf(refused, sizeof refused, "void %s", number.s);
    tx_multi(x);
    tx_ask(x, S("SET"), op->mark, S(refused), S("PX"), N(op->remember_ms));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_done(x, ANSWER_NO) : o;
}

/* ---- guarded writes -------------------------------------------------------------------------- */

static bool all_digits(const struct reply *rp)
{
    return rp->type == REPLY_BULK && strspn(rp->str, "0123456789") == rp->len;
}

static enum outcome answer_guarded(struct tx *x, enum answer code)
{
    x->op->got.guarded = (struct op_guarded){ .code = code };
    return TX_ANSWERED;
}

enum outcome transaction_guard(struct tx *x)
{
    const struct op_guard *op = &x->op->guard;
    hf_bytes n = S(op->fence);
    tx_ask(x, S("WATCH"), op->guard);
    size_t at = tx_ask(x, S("GETRANGE"), op->guard, S("0"), S("31"));
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *seen = x->r[at];
    if (!all_digits(seen) || seen->len > 20)
        return answer_guarded(x, ANSWER_WRONG_TYPE);
    /* As text: exact, however many digits a caller sends. */
    if (n.len < seen->len || (n.len == seen->len && memcmp(n.data, seen->str, n.len) < 0)) {
        x->op->got.guarded = (struct op_guarded){ .code = ANSWER_BUSY,
                                                  .newest = { seen->str, seen->len } };
        x->op->reply = tx_take(x, at);
        return TX_ANSWERED;
    }
    tx_multi(x);
    tx_ask(x, S("SET"), op->guard, n);
    if (op->key.len && op->value)
        tx_ask(x, S("SET"), op->key, *op->value);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_guarded(x, ANSWER_YES) : o;
}

/* ---- sequences ------------------------------------------------------------------------------- */

/* The largest id given so far, or what stands before the first one. False: it is no counter. */
static bool given_so_far(const struct reply *given, bool there, const struct op_sequence *op,
                         int64_t *ret)
{
    int64_t n = given->len ? number_in(given) : (int64_t)op->first - 1;
    struct tx_text again = text_of(n);
    *ret = n;
    if (!all_digits(given) || given->len > 16 || n > ID_MAX)
        return false;
    return given->len ? is_bytes(given, S(again.s)) : !there;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

enum outcome transaction_sequence(struct tx *x)
{
    const struct op_sequence *op = &x->op->sequence;
    struct op_numbers *got = &x->op->got.numbers;
    int64_t n;
    tx_ask(x, S("WATCH"), op->key);
    size_t at = tx_ask(x, S("GETRANGE"), op->key, S("0"), S("31"));
    size_t there = tx_ask(x, S("EXISTS"), op->key), now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!given_so_far(x->r[at], number_in(x->r[there]) == 1, op, &n)) {
        *got = (struct op_numbers){ .code = ANSWER_WRONG_TYPE };
        return TX_ANSWERED;
    }
    n = larger(n, (int64_t)op->seen);
    if (op->timed)
        n = larger(n, time_us(x->r[now]));
    if (op->count > (uint64_t)ID_MAX || n > ID_MAX - (int64_t)op->count) {
        *got = (struct op_numbers){ .code = ANSWER_USED_UP, .largest = (uint64_t)n };
        return TX_ANSWERED;
    }
    int64_t last = n + (int64_t)op->count;
    tx_multi(x);
    tx_ask(x, S("SET"), op->key, N(last));
    enum outcome o = tx_exec(x);
    if (o == TX_ANSWERED)
        *got = (struct op_numbers){ .code = ANSWER_YES, .first = (uint64_t)(n + 1),
                                    .last = (uint64_t)last };
    return o;
}
