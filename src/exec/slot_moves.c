/* SPDX-License-Identifier: MIT
 * slot_moves.c - what can be done while a slot of a cluster is being moved.
 *
 * Its keys are here or there then, and a script that names several is not run (TRYAGAIN). Taking
 * and waiting have to wait for the end of that. Holding cannot: what is held is renewed, and given
 * back, key by key: a list of keys, each of which is looked at, and changed if it is what it must
 * be.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "exec/exec_impl.h"

#define FREE_AFTER_MS 100 /* the next one in the queue then has to find out by itself */
#define HOLDS_MAX     6

bool slot_moves_can_part(const struct op *op, int64_t for_ms)
{
    if (op->id == OP_keep)
        return op->keep.mode == KEEP_RENEW || op->keep.mode == KEEP_CHECK;
    return op->id == OP_release && for_ms >= FREE_AFTER_MS;
}

/* One key. */
struct hold {
    struct op_hold_key key;
    bool               must; /* else what it is does not matter */
};

struct parts {
    size_t      lock;  /* of several */
    size_t      at, n; /* of the keys of this one */
    struct hold hold[HOLDS_MAX];
    bool        held, broken;
    bool        unsure; /* what was not found was looked for where an ASK sent us */
    bool        twice;  /* this one is looked for once more */
    int         guess; /* see next_guess() */
    int64_t     sent_ms; /* of the first */
    char        text[GRANT_TEXT_SIZE];
    char       *companion[3]; /* names of :d, :h and :x */
    struct op   op;
};

/* ---- which keys --------------------------------------------------------------------------- */

static void add(struct parts *p, bool must, hf_bytes key, enum hold_mode mode, enum hold_what what,
                hf_bytes text, int64_t ttl_ms)
{
    p->hold[p->n++] = (struct hold){ { .key = key, .mode = mode, .what = what, .text = text,
                                       .ttl_ms = ttl_ms }, must };
}

/* The lock itself. A caller-chosen id is also that of a later grant, which must not be touched by a
 * request that comes late: both keys may have arrived by then. */
static void add_lock(struct parts *p, const struct grant *g, enum hold_mode mode, int64_t ttl_ms,
                     hf_bytes value, hf_bytes own)
{
    add(p, true, g->keys->key[KEY_LOCK], mode, HOLD_VALUE, value, ttl_ms);
    if (!own.len)
        return;
    p->hold[p->n - 1].key.own_key = g->keys->key[KEY_OWN];
    p->hold[p->n - 1].key.own = own;
}

/* {key}:own with another ending. */
static bool companion(struct parts *p, int i, hf_bytes own, char ending, hf_bytes *ret)
{
    size_t base = own.len - strlen("own");
    mem_free(p->companion[i]);
    p->companion[i] = mem_alloc(own.len);
    if (!p->companion[i])
        return false;
    memcpy(p->companion[i], own.data, own.len);
    p->companion[i][base] = ending;
    *ret = (hf_bytes){ p->companion[i], base + 1 };
    return true;
}

/* One of several holders. A lock that ended meanwhile, and began anew, began without us: so we look
 * at the holders once more when the lock has its time. */
static bool plan_share(struct parts *p, const struct grant *g, enum hold_mode mode, int64_t ttl_ms)
{
    hf_bytes details, holders, token = hf_str(g->token), own = g->keys->key[KEY_OWN];
    if (!companion(p, 0, own, 'd', &details) || !companion(p, 1, own, 'h', &holders))
        return false;
    add(p, false, details, mode, HOLD_ANY, hf_str(""), ttl_ms);
    add(p, true, holders, mode, HOLD_MEMBER, token, ttl_ms);
    add(p, true, g->keys->key[KEY_LOCK], mode, HOLD_KIND, hf_str("shared."), ttl_ms);
    add(p, true, holders, mode, HOLD_MEMBER, token, ttl_ms);
    /* The owner is there, as has just been found: its mark of absence goes. */
    add(p, true, g->keys->key[KEY_ABSENT], HOLD_UNMARK, HOLD_ANY, token, 0);
    return true;
}

static bool plan_keep(struct parts *p, const struct op_lease *l, enum hold_mode mode)
{
    struct grant alone = *l->grant;
    const struct grant *g = p->guess == 1 ? &alone : l->grant;
    hf_bytes value, own, breaks;
    alone.shared = false;
    /* Whether it was broken is known where the marks are, and when it has arrived, everywhere. */
    if (!companion(p, 2, g->keys->key[KEY_OWN], 'x', &breaks))
        return false;
    add(p, true, breaks, HOLD_CHECK, HOLD_ANY, hf_str(""), 0);
    if (g->shared)
        return plan_share(p, g, mode, l->ttl_ms);
    grant_values(g, p->text, &value, &own);
    if (l->follower.len)
        add(p, false, l->follower, mode, HOLD_ANY, hf_str(""), l->ttl_ms);
    else if (own.len)
        add(p, true, g->keys->key[KEY_OWN], mode, HOLD_VALUE, own, l->ttl_ms);
    add_lock(p, g, mode, l->ttl_ms, value, own);
    add(p, true, g->keys->key[KEY_ABSENT], HOLD_UNMARK, HOLD_ANY, value, 0);
    return true;
}

/* What stands beside a caller-chosen id goes last: broken off before, the release can be done
 * again. */
static void plan_free(struct parts *p, const struct grant *g)
{
    hf_bytes value, own;
    grant_values(g, p->text, &value, &own);
    if (own.len)
        add(p, true, g->keys->key[KEY_OWN], HOLD_CHECK, HOLD_VALUE, own, 0);
    add_lock(p, g, HOLD_FREE, 0, value, own);
    if (own.len)
        add(p, false, g->keys->key[KEY_OWN], HOLD_FREE, HOLD_VALUE, own, 0);
}

/* Nobody heard of a downgrade, and it may not have come: then the token still has the lock alone.
 * Should it come just then, it is one of several. So what is not found is looked for in this order:
 * among several, alone, among several. */
static bool next_guess(struct parts *p, const struct op *op)
{
    return op->id == OP_keep && !p->held && !p->broken && op->keep.each[p->lock].grant->shared
           && p->guess++ < 2;
}

/* An ASK that comes late may come when the slot has been back, and is on its way once more: who
 * imports it then does not have the key yet. So one answer is no proof that it is not there. */
static bool look_again(struct parts *p)
{
    bool again = p->unsure && !p->twice;
    p->twice = again;
    return again;
}

static size_t locks(const struct op *op)
{
    return op->id == OP_keep ? op->keep.n : 1;
}

/* The keys of the next lock; false: no memory. */
static bool plan(struct parts *p, const struct op *op)
{
    p->at = p->n = 0;
    p->held = true;
    p->broken = p->unsure = false;
    if (op->id != OP_keep) {
        plan_free(p, op->release.grant);
        return true;
    }
    const struct op_lease *l = &op->keep.each[p->lock];
    if (!plan_keep(p, l, op->keep.mode == KEEP_RENEW ? HOLD_RENEW : HOLD_CHECK))
        return false;
    for (size_t i = 0; i < p->n; i++) {
        p->hold[i].key.breaks = p->hold[0].key.key;
        p->hold[i].key.fence = l->grant->fence;
    }
    return true;
}

/* ---- step by step ------------------------------------------------------------------------- */

static void submit_parts(struct exec *x, const struct op *op, struct parts *p)
{
    p->op = (struct op){ .id = OP_hold_key, .hold_key = p->hold[p->at].key,
                         .deadline_ms = op->deadline_ms, .stop = op->stop, .urgent = op->urgent,
                         .lane = op->lane, .task = op->task, .reterr = op->reterr };
    exec_begin(x, &p->op);
}

/* What one key came to; false: it is the end. */
static bool take(struct op *op, struct parts *p)
{
    const struct op *one = &p->op;
    op->in_doubt += one->in_doubt;
    op->result = one->result;
    if (one->result)
        return false;
    if (!p->sent_ms)
        op->sent_ms = p->sent_ms = one->sent_ms;
    if (op->id == OP_keep)
        op->got.kept.server_ms = one->got.key_held.server_ms;
    bool held = one->got.key_held.held;
    p->broken = one->got.key_held.broken.len > 0;
    if (p->broken && op->id == OP_keep)
        op_keep_note(&op->keep, p->lock, one->got.key_held.broken);
    op_clear(&p->op);
    if (held && one->wanted && one->acked - one->wanted < op->acked - op->wanted) {
        op->acked = one->acked;
        op->wanted = one->wanted;
    }
    if (p->broken || (!held && p->hold[p->at].must)) {
        p->held = false;
        p->unsure = !p->broken && one->run.by_ask;
        p->at = p->n; /* the others of this lock do not matter any more */
    } else {
        p->at++;
    }
    return true;
}

static void tell(struct op *op, const struct parts *p)
{
    if (op->id == OP_keep)
        op->keep.verdicts[p->lock] = p->broken ? VERDICT_BROKEN
                                     : p->held ? VERDICT_OURS
                                               : VERDICT_NOT_OURS;
    else
        op->got.held = p->held;
}

static struct parts *begin(struct op *op)
{
    op_clear(op);
    op->by_key = true;
    op->acked = op->wanted = 0;
    op->result = HF_OK;
    return op->run.more = mem_zalloc(sizeof(struct parts));
}

static void end(struct op *op)
{
    struct parts *p = op->run.more;
    for (size_t i = 0; i < sizeof p->companion / sizeof p->companion[0]; i++)
        mem_free(p->companion[i]);
    mem_free(p);
    op->run.more = NULL;
}

bool slot_moves_step(struct exec *x, struct op *op)
{
    struct parts *p = op->run.more;
    if (!p) {
        p = begin(op);
        if (!p || !plan(p, op))
            op->result = err_set(op->reterr, HF_ENOMEM, "out of memory");
        else
            submit_parts(x, op, p);
    }
    while (!op->result && exec_step(x, &p->op)) {
        if (!take(op, p))
            break;
        if (p->at == p->n) {
            if (!look_again(p) && !next_guess(p, op)) {
                tell(op, p);
                p->guess = 0;
                if (++p->lock == locks(op))
                    break;
            }
            if (!plan(p, op)) {
                op->result = err_set(op->reterr, HF_ENOMEM, "out of memory");
                break;
            }
        }
        submit_parts(x, op, p);
    }
    if (!op->result && p->lock < locks(op))
        return false;
    if (p)
        end(op);
    return true;
}
