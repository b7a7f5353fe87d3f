/* SPDX-License-Identifier: MIT
 * owner.c - locks by owner id, without a handle: acquire(key, timeout, uid), release(key, uid).
 */
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/attempt.h"
#include "session/call.h"
#include "session/scan.h"

/* One call: all that lives between its steps. */
struct owner_call {
    struct call       call;
    struct lock_keys *keys;
    hf_bytes          owner;
    char             *copy;   /* its bytes, of a call without blocking */
    int64_t           ttl_ms;
    uint64_t         *ret_fence; /* may be NULL, as the next */
    int64_t          *ret_left_ms;
    int64_t           left_ms;
    struct op         op;
    struct attempt    a;
    char              token[TOKEN_SIZE];
    enum owner_act    act;
};

static void over(struct call *call)
{
    struct owner_call *k = (struct owner_call *)call;
    if (!call->result && k->ret_fence)
        *k->ret_fence = k->a.fence;
    if (!call->result && k->ret_left_ms)
        *k->ret_left_ms = k->left_ms;
    keys_free(k->keys);
    mem_free(k->copy);
}

/* Blocking. */
static hf_err prepare(struct owner_call *k, hf_client *c, hf_bytes name, hf_bytes owner,
                      bool (*step)(struct task *t), hf_error *reterr)
{
    hf_err e = client_keys(c, name, &k->keys, reterr);
    if (e)
        return e;
    k->call = call_blocking(c, step, NULL, reterr);
    k->call.over = over;
    k->owner = owner;
    return HF_OK;
}

static hf_err prepare_async(hf_client *c, hf_bytes name, hf_bytes owner, hf_done_fn done, void *arg,
                            struct owner_call **ret, hf_error *reterr)
{
    struct owner_call *k;
    hf_err e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = client_keys(c, name, &k->keys, reterr);
    if (!e && !(k->copy = mem_copy(owner.data, owner.len))) {
        keys_free(k->keys);
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->call.over = over;
    k->owner = (hf_bytes){ k->copy, owner.len };
    *ret = k;
    return HF_OK;
}

/* ---- taking ------------------------------------------------------------------------------- */

static hf_err taken(struct owner_call *k)
{
    struct attempt *a = &k->a;
    hf_err e = attempt_taken(a, &k->op, k->call.reterr);
    if (!e && clock_now_ms() >= lease_end(a->sent_ms, k->ttl_ms)) {
        a->in_doubt = 1; /* granted, but over before we knew */
        e = err_set(k->call.reterr, HF_ETIMEDOUT,
                    "the grant came when its lease of %lld ms was over: choose a longer ttl",
                    (long long)k->ttl_ms);
    }
    return e;
}

static bool acquire_step(struct task *t)
{
    struct owner_call *k = (struct owner_call *)t;
    struct call *call = &k->call;
    hf_client *c = call->c;
    STEP_BEGIN(call->at);
    client_token(c, k->token, sizeof k->token);
    k->a = (struct attempt){ .take = { .keys = k->keys, .token = k->token, .owner = k->owner,
                                       .ttl_ms = k->ttl_ms } };
    k->op = attempt_op(&k->a, client_deadline(c), t, call->reterr);
    exec_begin(c->exec, &k->op);
    STEP_UNTIL(call->at, exec_step(c->exec, &k->op));
    call->result = taken(k);
    if (!call->result)
        STEP_RETURN(call->at);
    /* Nothing of it is to stay. */
    if (!attempt_cancel_op(&k->a, call->result, t, &k->op))
        STEP_RETURN(call->at);
    exec_begin(c->exec, &k->op);
    STEP_UNTIL(call->at, exec_step(c->exec, &k->op));
    call->result = attempt_cancelled(c, &k->a, &k->op, call->result, call->reterr);
    STEP_END(call->at);
}

static hf_err check_acquire(const hf_client *c, int64_t ttl_ms, hf_bytes owner, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = attempt_check_ttl(ttl_ms, reterr);
    if (!e)
        e = attempt_check_owner(owner, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a caller-chosen owner id", reterr);
    return e;
}

hf_err hf_owner_acquire(hf_client *c, hf_bytes name, int64_t ttl_ms, hf_bytes owner,
                        uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    struct owner_call k = { .ttl_ms = ttl_ms, .ret_fence = ret_fence };
    hf_err e = check_acquire(c, ttl_ms, owner, reterr);
    if (!e)
        e = prepare(&k, c, name, owner, acquire_step, reterr);
    return e ? e : call_run(&k.call);
}

hf_err hf_owner_acquire_async(hf_client *c, hf_bytes name, int64_t ttl_ms, hf_bytes owner,
                              uint64_t *ret_fence, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct owner_call *k;
    hf_err e = check_acquire(c, ttl_ms, owner, reterr);
    if (!e)
        e = prepare_async(c, name, owner, done, arg, &k, reterr);
    if (e)
        return e;
    k->ttl_ms = ttl_ms;
    k->ret_fence = ret_fence;
    return call_submit(&k->call, acquire_step, reterr);
}

/* ---- by an id that may have it ------------------------------------------------------------ */

/* It still is this owner's, but it shall let go. */
static hf_err was_broken(struct owner_call *k, const struct op_owned *got)
{
    char shown[120], who[300] = "somebody";
    hf_bytes name = k->keys->name;
    const char *by = got->why.len ? strchr(got->why.data, ' ') : NULL;
    if (by)
        note_shown(by + 1, who, sizeof who);
    return err_set(k->call.reterr, HF_ENOTOWNER, "%s was broken by %s; stop the work, and release "
                   "it", err_quote(shown, sizeof shown, name.data, name.len), who);
}

/* "not ours" is HF_ENOTOWNER. */
static hf_err answered(struct owner_call *k)
{
    char shown[120];
    struct op_owned got = k->op.got.owned;
    hf_bytes name = k->keys->name;
    if (k->op.result)
        return k->op.result;
    /* A release that got no answer may be the reason why it is not ours any more. */
    if (k->op.in_doubt && k->act == OWNER_RELEASE)
        got.ours = true;
    if (got.ours && op_unacked(&k->op))
        return op_too_few(&k->op, "the new lease", k->call.reterr);
    if (got.broken)
        return was_broken(k, &got);
    if (!got.ours)
        return err_set(k->call.reterr, HF_ENOTOWNER,
                       "%s is not held by this owner: it ended, was released, or has another "
                       "owner; nothing was changed",
                       err_quote(shown, sizeof shown, name.data, name.len));
    if (k->act == OWNER_EXTEND && got.left_ms > k->ttl_ms)
        return err_set(k->call.reterr, HF_EINVAL,
                       "the lease of %s lasts for another %lld ms, longer than the %lld ms asked "
                       "for: an owner id never shortens a lease; nothing was changed",
                       err_quote(shown, sizeof shown, name.data, name.len),
                       (long long)got.left_ms, (long long)k->ttl_ms);
    k->left_ms = got.left_ms;
    if (k->act == OWNER_RELEASE)
        notes_released_by_id(k->call.c, k->keys, k->owner, got.fence);
    return HF_OK;
}

static bool by_owner_step(struct task *t)
{
    struct owner_call *k = (struct owner_call *)t;
    hf_client *c = k->call.c;
    STEP_BEGIN(k->call.at);
    k->op = (struct op){
        .id = OP_by_owner, .deadline_ms = client_deadline(c), .task = t, .reterr = k->call.reterr,
        .lane = k->act == OWNER_EXTEND ? LANE_KEEP : LANE_PLAIN,
        .by_owner = { .keys = k->keys, .act = k->act, .id = k->owner, .ttl_ms = k->ttl_ms,
                      .remember_ms = CLIENT_TOMBSTONE_MS },
    };
    exec_begin(c->exec, &k->op);
    STEP_UNTIL(k->call.at, exec_step(c->exec, &k->op));
    k->call.result = answered(k);
    op_clear(&k->op);
    STEP_END(k->call.at);
}

static hf_err check_owner(const hf_client *c, hf_bytes owner, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && (owner.len == 0 || owner.len > OWNER_MAX || !owner.data))
        e = err_set(reterr, HF_EINVAL, "an owner id has 1 to %d bytes", OWNER_MAX);
    return e;
}

static hf_err by_owner(hf_client *c, hf_bytes name, enum owner_act act, hf_bytes owner,
                       int64_t ttl_ms, int64_t *ret_left_ms, hf_error *reterr)
{
    struct owner_call k = { .act = act, .ttl_ms = ttl_ms, .ret_left_ms = ret_left_ms };
    hf_err e = check_owner(c, owner, reterr);
    if (!e)
        e = prepare(&k, c, name, owner, by_owner_step, reterr);
    return e ? e : call_run(&k.call);
}

static hf_err by_owner_async(hf_client *c, hf_bytes name, enum owner_act act, hf_bytes owner,
                             int64_t ttl_ms, int64_t *ret_left_ms, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    struct owner_call *k;
    hf_err e = check_owner(c, owner, reterr);
    if (!e)
        e = prepare_async(c, name, owner, done, arg, &k, reterr);
    if (e)
        return e;
    k->act = act;
    k->ttl_ms = ttl_ms;
    k->ret_left_ms = ret_left_ms;
    return call_submit(&k->call, by_owner_step, reterr);
}

hf_err hf_owner_release(hf_client *c, hf_bytes name, hf_bytes owner, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, OWNER_RELEASE, owner, 0, NULL, reterr);
}

hf_err hf_owner_release_async(hf_client *c, hf_bytes name, hf_bytes owner, hf_done_fn done,
                              void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner_async(c, name, OWNER_RELEASE, owner, 0, NULL, done, arg, reterr);
}

hf_err hf_owner_extend(hf_client *c, hf_bytes name, hf_bytes owner, int64_t ttl_ms,
                       hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : by_owner(c, name, OWNER_EXTEND, owner, ttl_ms, NULL, reterr);
}

hf_err hf_owner_extend_async(hf_client *c, hf_bytes name, hf_bytes owner, int64_t ttl_ms,
                             hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : by_owner_async(c, name, OWNER_EXTEND, owner, ttl_ms, NULL, done, arg, reterr);
}

hf_err hf_owner_check(hf_client *c, hf_bytes name, hf_bytes owner, int64_t *ret_ttl_ms,
                      hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, OWNER_CHECK, owner, 0, ret_ttl_ms, reterr);
}

hf_err hf_owner_check_async(hf_client *c, hf_bytes name, hf_bytes owner, int64_t *ret_ttl_ms,
                            hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner_async(c, name, OWNER_CHECK, owner, 0, ret_ttl_ms, done, arg, reterr);
}

/* ---- all of an id ------------------------------------------------------------------------- */

struct release_all {
    hf_client *c;
    hf_bytes   owner;
    size_t     count;
};

static hf_err release_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct release_all *all = arg;
    hf_err e = by_owner(all->c, name, OWNER_RELEASE, all->owner, 0, NULL, reterr);
    if (!e)
        all->count++;
    return e == HF_ENOTOWNER ? HF_OK : e;
}

hf_err hf_owner_release_all(hf_client *c, hf_bytes owner, size_t *ret_count, hf_error *reterr)
{
    CALL_GUARD;
    struct release_all all = { .c = c, .owner = owner };
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = scan_locks(c, NULL, CLOCK_NEVER, release_one, &all, reterr);
    if (ret_count && !e)
        *ret_count = all.count;
    return e;
}
