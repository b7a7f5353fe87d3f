/* SPDX-License-Identifier: MIT
 * owner.c - locks by owner id, without a handle: acquire(key, timeout, uid), release(key, uid).
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/attempt.h"
#include "session/scan.h"

static void freep(struct lock_keys **k)
{
    keys_free(*k);
}

hf_err hf_acquire(hf_client *c, hf_bytes name, int64_t ttl_ms, hf_bytes owner, uint64_t *ret_fence,
                  hf_error *reterr)
{
    CALL_GUARD;
    AUTO(freep) struct lock_keys *keys = NULL;
    char token[LEASE_TOKEN_SIZE];
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
    struct attempt a = { .keys = keys, .token = token, .owner = owner, .ttl_ms = ttl_ms };
    e = attempt_run(c, &a, client_deadline(c), reterr);
    if (!e && clock_now_ms() >= lease_end(a.sent_ms, ttl_ms)) {
        a.in_doubt = 1; /* granted, but over before we knew */
        e = err_set(reterr, HF_ETIMEDOUT,
                    "the grant came when its lease of %lld ms was over: choose a longer ttl",
                    (long long)ttl_ms);
    }
    if (e)
        return attempt_abandon(c, &a, e, reterr);
    if (ret_fence)
        *ret_fence = a.fence;
    return HF_OK;
}

/* What the server said to one by_owner call. */
struct verdict {
    bool    ours;
    int64_t left_ms;
};

static hf_err ask(hf_client *c, const struct lock_keys *k, const char *what, hf_bytes owner,
                  int64_t ttl_ms, struct verdict *ret, hf_error *reterr)
{
    char ttl[24], remember[24];
    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    snprintf(remember, sizeof remember, "%d", CLIENT_TOMBSTONE_MS);
    struct greeting *g = &k->home->greeting;
    hf_bytes keys[] = { k->key[KEY_LOCK], hf_str(g->counter), k->key[KEY_QUEUE],
                        k->key[KEY_TOMB], k->key[KEY_OWN] };
    hf_bytes args[] = { hf_str(what), owner, hf_str(ttl), hf_str(remember) };
    struct script_call sc = { .id = SCRIPT_by_owner, .nkeys = 5, .keys = keys, .nargs = 4,
                              .args = args, .deadline_ms = client_deadline(c),
                              .lane = what[0] == 'e' ? LANE_KEEP : LANE_PLAIN, .greeting = g };
    hf_err e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    const struct reply *rp = sc.reply;
    if (rp->type != REPLY_ARRAY || rp->len < 1)
        e = err_set(reterr, HF_EPROTO, "the answer makes no sense");
    ret->ours = !e && rp->item[0]->num == 1;
    ret->left_ms = ret->ours && rp->len > 1 ? rp->item[1]->num : 0;
    /* A release that got no answer may be the reason why it is not ours any more. */
    if (!ret->ours && sc.in_doubt && what[0] == 'r')
        ret->ours = true;
    reply_free(sc.reply);
    if (!e && ret->ours && script_unacked(&sc))
        e = script_too_few(&sc, "the new lease", reterr);
    return e;
}

/* Check the arguments, ask, and turn "not ours" into HF_ENOTOWNER. */
static hf_err by_owner(hf_client *c, hf_bytes name, const char *what, hf_bytes owner,
                       int64_t ttl_ms, int64_t *ret_left_ms, hf_error *reterr)
{
    AUTO(freep) struct lock_keys *keys = NULL;
    struct verdict v;
    hf_err e = client_enter(c, reterr);
    if (!e && (owner.len == 0 || owner.len > LEASE_OWNER_MAX || !owner.data))
        e = err_set(reterr, HF_EINVAL, "an owner id has 1 to %d bytes", LEASE_OWNER_MAX);
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (!e)
        e = ask(c, keys, what, owner, ttl_ms, &v, reterr);
    if (e)
        return e;
    if (!v.ours) {
        char shown[120];
        return err_set(reterr, HF_ENOTOWNER,
                       "%s is not held by this owner: it ended, was released, or is another's; "
                       "nothing was changed", err_quote(shown, sizeof shown, name.data, name.len));
    }
    if (ret_left_ms)
        *ret_left_ms = v.left_ms;
    return HF_OK;
}

hf_err hf_release(hf_client *c, hf_bytes name, hf_bytes owner, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, "release", owner, 0, NULL, reterr);
}

hf_err hf_extend(hf_client *c, hf_bytes name, hf_bytes owner, int64_t ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : by_owner(c, name, "extend", owner, ttl_ms, NULL, reterr);
}

hf_err hf_check(hf_client *c, hf_bytes name, hf_bytes owner, int64_t *ret_ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    return by_owner(c, name, "check", owner, 0, ret_ttl_ms, reterr);
}

struct release_all {
    hf_client *c;
    hf_bytes   owner;
    size_t     count;
};

static hf_err release_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct release_all *all = arg;
    hf_err e = by_owner(all->c, name, "release", all->owner, 0, NULL, reterr);
    if (!e)
        all->count++;
    return e == HF_ENOTOWNER ? HF_OK : e;
}

hf_err hf_release_all(hf_client *c, hf_bytes owner, size_t *ret_count, hf_error *reterr)
{
    CALL_GUARD;
    struct release_all all = { .c = c, .owner = owner };
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = scan_locks(c, NULL, release_one, &all, reterr);
    if (ret_count && !e)
        *ret_count = all.count;
    return e;
}
