/* SPDX-License-Identifier: MIT
 * owner.c - locks by owner id, without a handle: acquire(key, timeout, uid), release(key, uid).
 */
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/attempt.h"
#include "session/scan.h"

static void freep(struct lock_keys **k)
{
    keys_free(*k);
}

/* Nothing of it is to stay. */
static hf_err abandon(hf_client *c, const struct attempt *a, hf_err e, hf_error *reterr)
{
    char member[OP_MEMBER_MAX];
    struct op op;
    if (!attempt_cancel_op(a, e, member, NULL, &op))
        return e;
    (void)!exec_run(c->exec, &op, NULL);
    return attempt_cancelled(c, a, &op, e, reterr);
}

hf_err hf_owner_acquire(hf_client *c, hf_bytes name, int64_t ttl_ms, hf_bytes owner,
                        uint64_t *ret_fence,
                        hf_error *reterr)
{
    CALL_GUARD;
    AUTO(freep) struct lock_keys *keys = NULL;
    char token[TOKEN_SIZE];
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = attempt_check_ttl(ttl_ms, reterr);
    if (!e)
        e = attempt_check_owner(owner, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a caller-chosen owner id", reterr);
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (e)
        return e;

    client_token(c, token, sizeof token);
    struct attempt a = { .take = { .keys = keys, .token = token, .owner = owner,
                                   .ttl_ms = ttl_ms } };
    struct op op = attempt_op(&a, client_deadline(c), NULL, NULL);
    (void)!exec_run(c->exec, &op, reterr);
    e = attempt_taken(&a, &op, reterr);
    if (!e && clock_now_ms() >= lease_end(a.sent_ms, ttl_ms)) {
        a.in_doubt = 1; /* granted, but over before we knew */
        e = err_set(reterr, HF_ETIMEDOUT,
                    "the grant came when its lease of %lld ms was over: choose a longer ttl",
                    (long long)ttl_ms);
    }
    if (e)
        return abandon(c, &a, e, reterr);
    if (ret_fence)
        *ret_fence = a.fence;
    return HF_OK;
}

static hf_err ask(hf_client *c, const struct lock_keys *k, enum owner_act act, hf_bytes owner,
                  int64_t ttl_ms, struct op_owned *ret, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_by_owner, .deadline_ms = client_deadline(c),
        .lane = act == OWNER_EXTEND ? LANE_KEEP : LANE_PLAIN,
        .by_owner = { .keys = k, .act = act, .id = owner, .ttl_ms = ttl_ms,
                      .remember_ms = CLIENT_TOMBSTONE_MS },
    };
    hf_err e = exec_run(c->exec, &op, reterr);
    if (e)
        return e;
    *ret = op.got.owned;
    /* A release that got no answer may be the reason why it is not ours any more. */
    if (op.in_doubt && act == OWNER_RELEASE)
        ret->ours = true;
    return ret->ours && op_unacked(&op) ? op_too_few(&op, "the new lease", reterr) : HF_OK;
}

/* Check the arguments, ask, and turn "not ours" into HF_ENOTOWNER. */
static hf_err by_owner(hf_client *c, hf_bytes name, enum owner_act act, hf_bytes owner,
                       int64_t ttl_ms, int64_t *ret_left_ms, hf_error *reterr)
{
    AUTO(freep) struct lock_keys *keys = NULL;
    struct op_owned got;
    hf_err e = client_enter(c, reterr);
    if (!e && (owner.len == 0 || owner.len > OWNER_MAX || !owner.data))
        e = err_set(reterr, HF_EINVAL, "an owner id has 1 to %d bytes", OWNER_MAX);
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (!e)
        e = ask(c, keys, act, owner, ttl_ms, &got, reterr);
    if (e)
        return e;
    if (!got.ours) {
        char shown[120];
        return err_set(reterr, HF_ENOTOWNER,
                       "%s is not held by this owner: it ended, was released, or is another's; "
                       "nothing was changed", err_quote(shown, sizeof shown, name.data, name.len));
    }
    if (ret_left_ms)
        *ret_left_ms = got.left_ms;
    return HF_OK;
}

hf_err hf_owner_release(hf_client *c, hf_bytes name, hf_bytes owner, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, OWNER_RELEASE, owner, 0, NULL, reterr);
}

hf_err hf_owner_extend(hf_client *c, hf_bytes name, hf_bytes owner, int64_t ttl_ms,
                       hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : by_owner(c, name, OWNER_EXTEND, owner, ttl_ms, NULL, reterr);
}

hf_err hf_owner_check(hf_client *c, hf_bytes name, hf_bytes owner, int64_t *ret_ttl_ms,
                      hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, OWNER_CHECK, owner, 0, ret_ttl_ms, reterr);
}

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
