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
#include "exec/transaction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define REPAIR_MIN_MS 10000 /* the least that a lock found without a ttl is given */
#define LOCK_MAX      512   /* a longer value is no lock's */

int64_t transaction_repaired_ms(int64_t ttl_ms)
{
    return ttl_ms > REPAIR_MIN_MS ? ttl_ms : REPAIR_MIN_MS;
}

long long fence_behind(const struct reply *record, const char *token)
{
    return strtoll(record->str + strlen(token) + 1, NULL, 10);
}

void tx_entomb(struct tx *x, hf_bytes tombs, const char *token, int64_t now_ms, int64_t ms,
               int64_t left_ms)
{
    tx_ask(x, S("ZADD"), tombs, N(now_ms + ms), S(token));
    tx_ask(x, S("ZREMRANGEBYSCORE"), tombs, S("-inf"), N(now_ms));
    tx_ask(x, S("PEXPIRE"), tombs, N(left_ms > ms ? left_ms : ms));
}

/* ---- acquire --------------------------------------------------------------------------------- */

/* It is ours already: as acquire.lua, its ttl is refreshed and never shortened. */
static enum outcome granted_before(struct tx *x, const struct op_take *t, long long fence,
                                   int64_t left_ms)
{
    if (left_ms < t->ttl_ms) {
        tx_multi(x);
        tx_ask(x, S("PEXPIRE"), t->keys->key[KEY_LOCK], N(t->ttl_ms));
        if (t->owner.len)
            tx_ask(x, S("PEXPIRE"), t->keys->key[KEY_OWN], N(t->ttl_ms));
        enum outcome o = tx_exec_extending(x);
        if (o != TX_ANSWERED)
            return o;
    }
    return answer_granted(x, fence);
}

bool transaction_may_mend(const struct op_take *t, const struct reply *value)
{
    hf_bytes lock = t->keys->key[KEY_LOCK];
    return t->mend && value->type == REPLY_BULK && value->len <= LOCK_MAX
           && strncmp(value->str, "latch.", 6) != 0 && strncmp(value->str, "barrier.", 8) != 0
           && !memmem(lock.data, lock.len, "holdfast:", 9);
}

/* A lock without a ttl would block for ever. */
static enum outcome repair(struct tx *x, const struct op_take *t)
{
    tx_multi(x);
    tx_ask(x, S("PEXPIRE"), t->keys->key[KEY_LOCK], N(transaction_repaired_ms(t->ttl_ms)));
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? TX_AGAIN : o;
}

void tx_put(struct tx *x, const struct op_take *t, long long fence)
{
    char text[GRANT_TEXT_SIZE];
    hf_bytes value, own;
    struct grant g = { .fence = (uint64_t)fence, .grace_ms = t->grace_ms, .owner = t->owner };
    snprintf(g.token, sizeof g.token, "%s", t->token);
    grant_values(&g, text, &value, &own);
    tx_ask(x, S("SET"), t->keys->key[KEY_LOCK], value, S("PX"), N(t->ttl_ms));
    if (own.len)
        tx_ask(x, S("SET"), t->keys->key[KEY_OWN], own, S("PX"), N(t->ttl_ms));
}

static enum outcome grant(struct tx *x, const struct op_take *t)
{
    long long fence;
    enum outcome o = tx_number(x, hf_str(t->keys->scope->counter), &fence);
    if (o != TX_ANSWERED)
        return o;
    if (!fence)
        return answer_refused(x, ANSWER_BAD_COUNTER);
    tx_multi(x);
    tx_put(x, t, fence);
    o = tx_exec(x);
    return o == TX_ANSWERED ? answer_granted(x, fence) : o;
}

enum outcome transaction_acquire(struct tx *x)
{
    const struct op_take *t = &x->op->take;
    hf_bytes lock = t->keys->key[KEY_LOCK], own = t->keys->key[KEY_OWN];
    hf_bytes tombs = t->keys->key[KEY_TOMB];
    tx_ask(x, S("WATCH"), lock, tombs, own);
    size_t tomb = tx_ask(x, S("ZSCORE"), tombs, S(t->token));
    size_t value = tx_ask(x, S("GETRANGE"), lock, S("0"), N(LOCK_MAX));
    size_t record = tx_ask(x, S("GETRANGE"), own, S("0"), S("127"));
    size_t left = tx_ask(x, S("PTTL"), lock);
    if (!tx_flush(x))
        return TX_FAILED;
    if (is_error(x->r[tomb]) || is_error(x->r[value]))
        return answer_refused(x, ANSWER_WRONG_TYPE);
    if (x->r[tomb]->type != REPLY_NIL)
        return answer_refused(x, ANSWER_GIVEN_UP);
    int64_t left_ms = number_in(x->r[left]);
    if (left_ms == PTTL_NO_KEY)
        return grant(x, t);
    const struct reply *ours = x->r[value]; /* where our token would stand */
    if (t->owner.len)
        ours = is_bytes(ours, t->owner) ? x->r[record] : NULL;
    if (ours && begins_with(ours, t->token, ':'))
        return granted_before(x, t, fence_behind(ours, t->token), left_ms);
    if (left_ms == PTTL_ENDLESS && transaction_may_mend(t, x->r[value]))
        return repair(x, t);
    return answer_busy(x, left_ms, x->r[value]);
}

/* ---- release, cancel ------------------------------------------------------------------------- */

enum outcome transaction_release(struct tx *x)
{
    const struct grant *g = x->op->release.grant;
    hf_bytes lock = g->keys->key[KEY_LOCK], own = g->keys->key[KEY_OWN], value, record;
    char text[GRANT_TEXT_SIZE];
    grant_values(g, text, &value, &record);
    tx_ask(x, S("WATCH"), lock, own);
    /* One byte more than the value: a longer one cannot pass for ours, nor cost much. */
    size_t v = tx_ask(x, S("GETRANGE"), lock, S("0"), N((long long)value.len));
    size_t r = tx_ask(x, S("GETRANGE"), own, S("0"), N((long long)record.len));
    if (!tx_flush(x))
        return TX_FAILED;
    if (!is_bytes(x->r[v], value) || (record.len && !is_bytes(x->r[r], record)))
        return answer_held(x, false);
    tx_multi(x);
    tx_ask(x, S("DEL"), lock);
    if (record.len)
        tx_ask(x, S("DEL"), own);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, true) : o;
}

/* What stands in the lock, for cancel and by_owner. */
struct standing {
    size_t value, own, left, tomb_left, now;
};

static struct standing ask_standing(struct tx *x, const struct queue_place *k)
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

static enum outcome cancel(struct tx *x, const struct op_cancel *c, const struct queue_place *k)
{
    struct standing st = ask_standing(x, k);
    if (!tx_flush(x))
        return TX_FAILED;
    const struct reply *record = c->owner.len ? x->r[st.own] : x->r[st.value];
    bool held_alone = begins_with(record, c->token, ':');
    bool lock_too = !c->owner.len || is_bytes(x->r[st.value], c->owner);
    int64_t tomb_left = number_in(x->r[st.tomb_left]), now_ms = time_us(x->r[st.now]) / 1000;
    struct share s;
    bool shared = parse_share(x->r[st.value], &s), held_share = false;
    if (shared) {
        enum outcome o = share_load(x, k, &s, c->token, now_ms);
        if (o != TX_ANSWERED)
            return o;
        held_share = s.holds;
    }
    char text[OP_MEMBER_MAX];
    hf_bytes member = op_cancel_member(c, text);
    if (!held_alone && !held_share && !c->remember_ms && !member.len)
        return answer_held(x, false);
    tx_multi(x);
    if (member.len)
        tx_ask(x, S("ZREM"), k->queue, member);
    if (held_share)
        share_leave(x, k, &s, c->token);
    else if (held_alone)
        tx_ask(x, S("DEL"), lock_too ? k->lock : k->own, k->own);
    if (c->remember_ms)
        tx_entomb(x, k->tombs, c->token, now_ms, c->remember_ms, tomb_left);
    enum outcome o = tx_exec(x);
    return o == TX_ANSWERED ? answer_held(x, held_alone || held_share) : o;
}

enum outcome transaction_cancel(struct tx *x)
{
    const struct op_cancel *c = &x->op->cancel;
    AUTO(place_clear) struct queue_place k = place_of(c->keys);
    return k.memory ? cancel(x, c, &k) : tx_no_memory(x);
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

static enum outcome answer_owned(struct tx *x, int64_t left_ms, long long fence)
{
    x->op->got.owned = (struct op_owned){ .ours = true, .left_ms = left_ms,
                                          .fence = (uint64_t)fence };
    return TX_ANSWERED;
}

static enum outcome answer_not_owned(struct tx *x)
{
    x->op->got.owned = (struct op_owned){ .ours = false };
    return TX_ANSWERED;
}

/* How long a release is remembered: as long as a keeper elsewhere may count on the lease. */
static int64_t remembered_ms(const struct op_by_owner *b, int64_t left_ms)
{
    return left_ms > b->remember_ms ? left_ms : b->remember_ms;
}

static enum outcome by_owner_share(struct tx *x, const struct op_by_owner *b,
                                   const struct queue_place *k,
                                   struct share *s, int64_t now_ms, int64_t tomb_left)
{
    char token[64];
    snprintf(token, sizeof token, "%.*s", (int)b->id.len, (const char *)b->id.data);
    enum outcome o = share_load(x, k, s, token, now_ms);
    if (o != TX_ANSWERED)
        return o;
    int64_t left = s->until_ms - now_ms;
    if (!s->holds)
        return answer_not_owned(x);
    if (b->act == OWNER_RELEASE) {
        tx_multi(x);
        share_leave(x, k, s, token);
        tx_entomb(x, k->tombs, token, now_ms, remembered_ms(b, left), tomb_left);
        o = tx_exec(x);
    } else if (b->act == OWNER_EXTEND && left < b->ttl_ms) {
        tx_multi(x);
        share_extend(x, k, s, token, now_ms + b->ttl_ms);
        o = tx_exec(x);
    }
    return o == TX_ANSWERED ? answer_owned(x, left, s->fence) : o;
}

static enum outcome by_owner(struct tx *x, const struct op_by_owner *b, const struct queue_place *k)
{
    struct standing st = ask_standing(x, k);
    if (!tx_flush(x))
        return TX_FAILED;
    int64_t now_ms = time_us(x->r[st.now]) / 1000, tomb_left = number_in(x->r[st.tomb_left]);
    int64_t left = number_in(x->r[st.left]);
    char token[64];
    long long fence;
    struct share s;
    if (parse_share(x->r[st.value], &s) && b->id.len < sizeof token)
        return by_owner_share(x, b, k, &s, now_ms, tomb_left);
    bool chosen = is_bytes(x->r[st.value], b->id);
    if (left == PTTL_NO_KEY || !owns(x->r[st.value], x->r[st.own], b->id, token, &fence))
        return answer_not_owned(x);
    enum outcome o = TX_ANSWERED;
    if (b->act == OWNER_EXTEND && left < b->ttl_ms) {
        tx_multi(x);
        tx_ask(x, S("PEXPIRE"), k->lock, N(b->ttl_ms));
        if (chosen && token[0])
            tx_ask(x, S("PEXPIRE"), k->own, N(b->ttl_ms));
        o = tx_exec_extending(x);
    } else if (b->act == OWNER_RELEASE) {
        tx_multi(x);
        tx_ask(x, S("DEL"), k->lock, k->own);
        if (token[0])
            tx_entomb(x, k->tombs, token, now_ms, remembered_ms(b, left), tomb_left);
        o = tx_exec(x);
    }
    return o == TX_ANSWERED ? answer_owned(x, left, fence) : o;
}

enum outcome transaction_by_owner(struct tx *x)
{
    const struct op_by_owner *b = &x->op->by_owner;
    AUTO(place_clear) struct queue_place k = place_of(b->keys);
    return k.memory ? by_owner(x, b, &k) : tx_no_memory(x);
}

/* ---- keep ------------------------------------------------------------------------------------ */

/* One of the leases of an operation, held alone. */
struct kept {
    const struct op_lease *l;
    hf_bytes lock, beside; /* beside: a key that lasts as long: own, or the follower */
    hf_bytes value, record; /* what they hold if it is ours; a follower's is nobody's business */
    bool     has_beside;
    char     text[GRANT_TEXT_SIZE];
    size_t   at_value, at_record, at_left, at_beside_left, at_tomb; /* among the replies */
};

static void kept_init(struct kept *k, const struct op_lease *l)
{
    const struct grant *g = l->grant;
    k->l = l;
    k->lock = g->keys->key[KEY_LOCK];
    k->beside = g->keys->key[KEY_OWN];
    grant_values(g, k->text, &k->value, &k->record);
    k->has_beside = k->record.len > 0;
    if (l->follower.len) {
        k->beside = l->follower;
        k->record = hf_str("");
        k->has_beside = true;
    }
}

static void ask_kept(struct tx *x, struct kept *k)
{
    tx_ask(x, S("WATCH"), k->lock, k->beside);
    k->at_value = tx_ask(x, S("GETRANGE"), k->lock, S("0"), N((long long)k->value.len));
    k->at_record = tx_ask(x, S("GETRANGE"), k->beside, S("0"), N((long long)k->record.len));
    k->at_left = tx_ask(x, S("PTTL"), k->lock);
    k->at_beside_left = tx_ask(x, S("PTTL"), k->beside);
    k->at_tomb = tx_ask(x, S("ZSCORE"), k->l->grant->keys->key[KEY_TOMB], S(k->l->grant->token));
}

/* Between ask_kept() and the EXEC. */
static enum verdict verdict_on(const struct tx *x, const struct kept *k)
{
    if (is_bytes(x->r[k->at_value], k->value)
        && (!k->record.len || is_bytes(x->r[k->at_record], k->record)))
        return VERDICT_OURS;
    return x->r[k->at_tomb]->type == REPLY_BULK ? VERDICT_RELEASED : VERDICT_NOT_OURS;
}

/* Is a key with this PTTL to be given the lease's ttl? */
static bool is_due(const struct tx *x, const struct kept *k, const struct reply *left)
{
    return x->op->keep.mode != KEEP_RENEW || number_in(left) < k->l->ttl_ms;
}

/* Leases first to first + n, in one EXEC. */
static enum outcome keep_some(struct tx *x, size_t first, size_t n)
{
    const struct op_keep *op = &x->op->keep;
    struct kept k[TRANSACTION_KEEP_MAX];
    bool lengthen[TRANSACTION_KEEP_MAX][2];
    size_t due = 0;
    tx_next(x);
    for (size_t i = 0; i < n; i++) {
        kept_init(&k[i], &op->each[first + i]);
        ask_kept(x, &k[i]);
    }
    if (!tx_flush(x))
        return TX_FAILED;
    for (size_t i = 0; i < n; i++) {
        op->verdicts[first + i] = verdict_on(x, &k[i]);
        bool ours = op->verdicts[first + i] == VERDICT_OURS && op->mode != KEEP_CHECK;
        const struct reply *beside = x->r[k[i].at_beside_left];
        lengthen[i][0] = ours && is_due(x, &k[i], x->r[k[i].at_left]);
        lengthen[i][1] = ours && k[i].has_beside && number_in(beside) != PTTL_NO_KEY
                         && is_due(x, &k[i], beside);
        due += lengthen[i][0] || lengthen[i][1];
    }
    if (!due)
        return TX_ANSWERED;
    tx_multi(x);
    for (size_t i = 0; i < n; i++) {
        if (lengthen[i][0])
            tx_ask(x, S("PEXPIRE"), k[i].lock, N(k[i].l->ttl_ms));
        if (lengthen[i][1])
            tx_ask(x, S("PEXPIRE"), k[i].beside, N(k[i].l->ttl_ms));
    }
    return tx_exec_extending(x);
}

/* As many at once as others let us: a lock that somebody else touches shall not cost all their
 * renewal. */
static enum outcome keep_range(struct tx *x, size_t first, size_t n)
{
    enum outcome o = keep_some(x, first, n);
    if (o != TX_CONFLICT || n == 1)
        return o;
    o = keep_range(x, first, n / 2);
    return o == TX_ANSWERED ? keep_range(x, first + n / 2, n - n / 2) : o;
}

/* How many from the i-th on are held alone, and go into one EXEC. */
static size_t alone_from(const struct op_keep *op, size_t i)
{
    size_t n = 0;
    while (i + n < op->n && n < TRANSACTION_KEEP_MAX && !op->each[i + n].grant->shared)
        n++;
    return n;
}

/* Runs of locks that one holds alone go together, each share by itself. */
enum outcome transaction_keep(struct tx *x)
{
    const struct op_keep *op = &x->op->keep;
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    int64_t now_ms = time_us(x->r[now]) / 1000;
    enum outcome o = TX_ANSWERED;
    for (size_t i = 0, run; i < op->n && o == TX_ANSWERED; i += run) {
        run = alone_from(op, i);
        if (run) {
            o = keep_range(x, i, run);
        } else {
            o = share_keep(x, &op->each[i], now_ms, &op->verdicts[i]);
            run = 1;
        }
    }
    x->op->got.kept.server_ms = now_ms;
    return o;
}
