/* SPDX-License-Identifier: MIT
 * noscript.c - carrying operations out without scripts: connections, attempts, conflicts.
 *
 * An operation watches what it depends on, reads it, and writes by one EXEC, which the server
 * carries out only if nothing of what was watched has been touched since. What is left of it when a
 * reply is lost is the same as with scripts: the request is repeated and finds what the first one
 * did. A copy of an EXEC that arrives late does nothing once what it watched has changed, which the
 * cancellation of its token sees to.
 */
#include "exec/noscript.h"

#include <string.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "exec/transaction.h"
#include "topo/own_conn.h"

#define RETRY_MIN_MS  5
#define RETRY_MAX_MS  200
#define CONFLICTS_MAX 64 /* then somebody else shall think about it */
#define CONFLICT_MS   32 /* the longest pause between two tries */
#define IDLE_MAX      8  /* connections kept for the next operation */

struct noscript {
    struct scope     *scope;
    struct own_conns *conns;
};

typedef enum outcome (*operation)(struct tx *x);

static const operation transaction[OP_COUNT] = {
    [OP_acquire] = transaction_acquire,     [OP_release] = transaction_release,
    [OP_cancel] = transaction_cancel,       [OP_keep] = transaction_keep,
    [OP_by_owner] = transaction_by_owner,   [OP_acquire_all] = transaction_acquire_all,
    [OP_share] = transaction_share,         [OP_unshare] = transaction_unshare,
    [OP_downgrade] = transaction_downgrade, [OP_resize] = transaction_resize,
    [OP_inspect] = transaction_inspect,     [OP_record] = transaction_record,
    [OP_recall] = transaction_recall,       [OP_scan] = transaction_scan,
    [OP_guard] = transaction_guard,         [OP_sequence] = transaction_sequence,
    [OP_store] = transaction_store,         [OP_value] = transaction_value,
    [OP_resolve] = transaction_resolve,
};

static const operation timestamp[OP_COUNT] = {
    [OP_acquire] = timestamp_acquire,     [OP_release] = timestamp_release,
    [OP_cancel] = timestamp_cancel,       [OP_keep] = timestamp_keep,
    [OP_by_owner] = timestamp_by_owner,   [OP_inspect] = transaction_inspect,
    [OP_record] = transaction_record,     [OP_recall] = transaction_recall,
    [OP_scan] = transaction_scan,         [OP_guard] = transaction_guard,
    [OP_sequence] = transaction_sequence, [OP_resolve] = transaction_resolve,
};

struct noscript *noscript_new(struct topo *t, struct scope *scope)
{
    struct noscript *n = mem_zalloc(sizeof *n);
    if (!n)
        return NULL;
    n->scope = scope;
    n->conns = own_conns_new(t, IDLE_MAX);
    return n->conns ? n : noscript_free(n);
}

struct noscript *noscript_free(struct noscript *n)
{
    if (n)
        own_conns_free(n->conns);
    mem_free(n);
    return NULL;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* Before the first operation that takes a number, or may hand on. */
static hf_err greet(struct noscript *n, const struct op *op, struct own_conn *oc,
                    const struct limit *lim, hf_error *reterr)
{
    enum answer code = ANSWER_NO;
    if (oc->greeted || !n->scope || !op_scope(op))
        return HF_OK;
    oc->watching = true; /* the greeting may */
    hf_err e = noscript_hello(&oc->link, n->scope, false, lim, &code, reterr);
    oc->greeted = !e;
    return !e && code == ANSWER_BAD_COUNTER ? op_bad_counter(n->scope, reterr) : e;
}

static hf_err take_conn(struct noscript *n, const struct op *op, struct own_conn **ret,
                        hf_error *reterr)
{
    struct own_conn *oc = NULL;
    struct limit lim = tx_limit(op);
    hf_err e = own_conn_take(n->conns, op_route(op), &lim, &oc, reterr);
    if (!e) {
        e = greet(n, op, oc, &lim, reterr);
        if (e)
            own_conn_close(oc, false);
    }
    if (!e)
        *ret = oc;
    /* To callers HF_EBUSY is a lock's word, not a server's. */
    return e == HF_EBUSY ? err_known(reterr, HF_ECONN, HF_KNOWN_UNCHANGED) : e;
}

/* Back into the pool, or closed when it is of no use any more. */
static void leave_conn(struct noscript *n, struct own_conn *oc, const struct tx *x, bool usable)
{
    oc->watching = x->used;
    if (usable)
        own_conn_give(n->conns, oc);
    else
        own_conn_close(oc, x->committing);
}

/* ---- attempts -------------------------------------------------------------------------------- */

/* False when there is no time left for another attempt. */
static bool back_off(const struct op *op, struct backoff *b)
{
    return tx_pause(op, backoff_next(b, RETRY_MIN_MS, RETRY_MAX_MS));
}

static hf_err cancelled(hf_error *reterr)
{
    return err_set(reterr, HF_ECANCELED, "cancelled before it was done");
}

/* Others were faster: the more often, the longer the pause. HF_OK: try again. */
static hf_err after_conflict(const struct op *op, unsigned tries, hf_error *reterr)
{
    int64_t most = tries < 5 ? INT64_C(1) << tries : CONFLICT_MS;
    if (tries < CONFLICTS_MAX && tx_pause(op, random_between(0, most)))
        return HF_OK;
    if (op_stopped(op))
        return cancelled(reterr);
    return err_set(reterr, HF_ECONFLICT, "others changed it at each of %u tries: try again later",
                   tries);
}

/* Something was put right. HF_OK: from the beginning. */
static hf_err once_more(const struct op *op, hf_error *reterr)
{
    if (op_stopped(op))
        return cancelled(reterr);
    if (clock_now_ms() >= op->deadline_ms)
        return err_set(reterr, HF_ECONN, "no time was left to put the lock right");
    return HF_OK;
}

/* An attempt has failed. HF_OK: try again. */
static hf_err after_try(struct tx *x, bool fresh, struct backoff *b)
{
    struct op *op = x->op;
    if (x->committing) {
        op->in_doubt++;
        err_prefix(x->reterr, "a request got no reply");
        bool again = (x->e == HF_ECONN || x->e == HF_EPROTO) && back_off(op, b);
        return again ? HF_OK : err_known(x->reterr, HF_EUNSURE, HF_KNOWN_NOTHING);
    }
    if (!x->answered && x->e == HF_ECONN && !fresh && clock_now_ms() < op->deadline_ms)
        return HF_OK; /* an old connection that had ended unnoticed */
    bool passes = x->answered ? x->verdict == SERVER_RETRY || x->verdict == SERVER_RECONNECT
                              : x->e == HF_ECONN;
    if (passes && back_off(op, b))
        return HF_OK;
    if (passes && op_stopped(op))
        return cancelled(x->reterr);
    if (x->answered && x->verdict == SERVER_UNKNOWN && x->exec) {
        op->in_doubt++; /* it may have done half of its work */
        return err_known(x->reterr, x->e, HF_KNOWN_NOTHING);
    }
    return x->e;
}

/* One attempt on a connection of its own. *ret_fresh: it had just been opened. */
static enum outcome attempt(struct noscript *n, operation carry_out, struct tx *x, bool *ret_fresh)
{
    struct own_conn *oc = NULL;
    *ret_fresh = true;
    x->e = take_conn(n, x->op, &oc, x->reterr);
    if (x->e || !oc)
        return TX_FAILED;
    *ret_fresh = oc->fresh;
    x->l = &oc->link;
    if (oc->watching)
        tx_ask(x, S("UNWATCH"));
    enum outcome o = carry_out(x);
    x->op->sent_ms = x->began_ms - x->skew_ms; /* our own belief ends so much earlier */
    bool well = o != TX_FAILED || (x->answered && x->verdict != SERVER_RECONNECT);
    bool idle = x->read == x->n && !x->stale && !x->out_len; /* nothing more will come on it */
    leave_conn(n, oc, x, well && idle);
    return o;
}

static hf_err run(struct noscript *n, operation carry_out, int64_t skew_ms, struct op *op,
                  hf_error *reterr)
{
    struct backoff b = { 0 };
    unsigned conflicts = 0;
    for (;;) {
        struct tx x = { .op = op, .skew_ms = skew_ms, .reterr = reterr };
        bool fresh;
        hf_err e = HF_OK;
        enum outcome o = attempt(n, carry_out, &x, &fresh);
        if (o == TX_FAILED)
            e = after_try(&x, fresh, &b);
        else if (o == TX_CONFLICT)
            e = after_conflict(op, ++conflicts, reterr);
        else if (o == TX_AGAIN)
            e = once_more(op, reterr);
        tx_end(&x);
        if (o == TX_ANSWERED || e)
            return e;
    }
}

hf_err noscript_run(struct noscript *n, enum protocol protocol, int64_t skew_ms, struct op *op,
                    hf_error *reterr)
{
    bool stamps = protocol == PROTOCOL_TIMESTAMP;
    operation carry_out = stamps ? timestamp[op->id] : transaction[op->id];
    memset(&op->got, 0, sizeof op->got);
    op->reply = NULL;
    op->in_doubt = 0;
    op->by_key = false;
    op->acked = op->wanted = 0;
    if (carry_out)
        op->result = run(n, carry_out, stamps ? skew_ms : 0, op, reterr);
    else
        op->result = err_set(reterr, HF_ENOTSUP,
                             "the protocol %s cannot do this: use %s, see docs/protocols.md",
                             stamps ? "timestamp" : "transaction",
                             stamps && transaction[op->id] ? "transaction or script" : "script");
    return op->result;
}
