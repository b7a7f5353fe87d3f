/* SPDX-License-Identifier: MIT
 * attempt.c - one attempt to take a lock.
 */
#include "session/attempt.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "session/kind.h"

static hf_err other_limit(const struct attempt *a, const char *name, long long agreed,
                          hf_error *reterr)
{
    if (!agreed)
        return err_set(reterr, HF_ELIMIT,
                       "%s is held by readers now: it is a read-write lock, not a semaphore", name);
    if (!a->take.limit)
        return err_set(reterr, HF_ELIMIT,
                       "%s is a semaphore of %lld in use, not a read-write lock", name, agreed);
    return err_set(reterr, HF_ELIMIT,
                   "%s is a semaphore of %lld, as its present users agreed, but %u was asked "
                   "for: use the same number, or resize it", name, agreed, a->take.limit);
}

static hf_err busy(const struct attempt *a, const char *name, hf_error *reterr)
{
    if (a->take.limit)
        return err_set(reterr, HF_EBUSY, "%s: fewer than %u permits are free now", name,
                       a->take.weight);
    if (a->left_ms <= 0)
        return err_set(reterr, HF_EBUSY, "%s is held by another owner, or others wait for it",
                       name);
    return err_set(reterr, HF_EBUSY,
                   "%s is held by another owner, for %lld.%03lld s more unless renewed", name,
                   (long long)(a->left_ms / 1000), (long long)(a->left_ms % 1000));
}

hf_err attempt_refused(const struct attempt *a, enum answer code, long long limit, hf_error *reterr)
{
    char name[120];
    const struct lock_keys *keys = a->take.keys;
    err_quote(name, sizeof name, keys->name.data, keys->name.len);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
    switch (code) {
    case ANSWER_BUSY: return busy(a, name, reterr);
    case ANSWER_GIVEN_UP:
        return err_set(reterr, HF_ECANCELED, "this request for %s had been given up", name);
    case ANSWER_WRONG_TYPE:
        return err_set(reterr, HF_ETYPE,
                       "%s cannot be locked: its key holds data of another type than a lock; "
                       "nothing was changed", name);
    case ANSWER_BAD_COUNTER:
        op_bad_counter(keys->scope, reterr);
        err_prefix(reterr, "%s cannot be locked", name);
        return HF_ECOUNTER;
    case ANSWER_OTHER_LIMIT: return other_limit(a, name, limit, reterr);
    case ANSWER_OVER_LIMIT:
        return err_set(reterr, HF_ELIMIT,
                       "%u permits of %s were asked for at once, and there are %lld in all",
                       a->take.weight, name, limit);
    case ANSWER_NOT_A_TIMESTAMP:
        return err_set(reterr, HF_ETYPE,
                       "%s is held by something that is not a timestamp: a program of another "
                       "protocol uses it; its value was not changed", name);
    default: return err_set(reterr, HF_EPROTO, "the answer to acquire makes no sense");
    }
#pragma GCC diagnostic pop
}

static hf_err refused(struct attempt *a, const struct op_taken *got, hf_error *reterr)
{
    char name[120];
    struct kind k;
    if (got->code == ANSWER_HANDED_OVER) {
        a->named = got->fence;
        /* Who waits claims it. Who does not meets it only here: */
        return err_set(reterr, HF_EBUSY, "%s was broken before its grant was known here",
                       err_quote(name, sizeof name, a->take.keys->name.data,
                                 a->take.keys->name.len));
    }
    if (got->code == ANSWER_BUSY) {
        a->left_ms = got->left_ms;
        a->ticket = got->ticket;
        /* What is no lock at all says so: nobody's turn will ever come. */
        if (got->value.len && kind_parse(got->value.data, &k) && !k.lock)
            return err_set(reterr, HF_ETYPE, "%s cannot be locked: it is %s; nothing was changed",
                           err_quote(name, sizeof name, a->take.keys->name.data,
                                     a->take.keys->name.len), k.text);
    }
    return attempt_refused(a, got->code, got->limit, reterr);
}

struct op attempt_op(const struct attempt *a, int64_t deadline_ms, struct task *t, hf_error *reterr)
{
    struct op op = { .id = a->take.weight ? OP_share : OP_acquire, .take = a->take,
                     .deadline_ms = deadline_ms, .stop = a->stop, .lane = LANE_GRANT, .task = t,
                     .reterr = reterr };
    op.take.nonce = a->nonce;
    return op;
}

hf_err attempt_taken(struct attempt *a, struct op *op, hf_error *reterr)
{
    const struct op_taken *got = &op->got.taken;
    hf_err e = op->result;
    a->named = 0;
    a->in_doubt += op->in_doubt;
    a->sent_ms = op->sent_ms;
    if (!e && got->code == ANSWER_YES && op_unacked(op)) {
        a->in_doubt++; /* whoever abandons it undoes it */
        e = op_too_few(op, "the grant, which is undone,", reterr);
    } else if (!e && got->code == ANSWER_YES) {
        a->fence = got->fence;
        a->partial = got->partial;
    } else if (!e) {
        e = refused(a, got, reterr);
    }
    op_clear(op);
    return e;
}

/* ---- without a grant ---------------------------------------------------------------------- */

/* Who waited for replicas or a disk in vain used half of its time for that at most, so it has as
 * much again for undoing: with appendfsync always that has to get to the disk as well. */
static int64_t cancel_until(const struct attempt *a, hf_err e)
{
    int64_t now = clock_now_ms(), took = e == HF_EREPLICAS ? now - a->sent_ms : 0;
    if (e == HF_ECANCELED)
        return now + ATTEMPT_CANCELLED_MS;
    return now + (took > ATTEMPT_BACK_MS ? took : ATTEMPT_BACK_MS);
}

bool attempt_cancel_op(struct attempt *a, hf_err e, struct task *t, struct op *op)
{
    bool remember = a->in_doubt > 0 || e == HF_EPROTO;
    struct op_cancel what = { .keys = a->take.keys, .token = a->take.token, .owner = a->take.owner,
                              .remember_ms = remember ? CLIENT_TOMBSTONE_MS : 0 };
    a->take.nonce = a->nonce;
    if (a->take.claim_ms)
        what.place = &a->take;
    *op = (struct op){ .id = OP_cancel, .cancel = what, .deadline_ms = cancel_until(a, e),
                       .task = t };
    return a->ticket || a->named || remember;
}

hf_err attempt_cancelled(hf_client *c, const struct attempt *a, struct op *op, hf_err e,
                         hf_error *reterr)
{
    bool done = op->result == HF_OK;
    unsigned moves = op->moves;
    hf_bytes name = a->take.keys->name;
    char shown[120];
    err_quote(shown, sizeof shown, name.data, name.len);
    op_clear(op);
    if (done) {
        struct op_cancel what = op->cancel;
        bool granted = what.remember_ms || a->named; /* perhaps; the next master may know that */
        what.remember_ms = CLIENT_TOMBSTONE_MS;
        if (granted)
            keeper_released(c->keeper, &what, moves);
        if (e == HF_EUNSURE)
            e = err_set(reterr, HF_ETIMEDOUT,
                        "the server did not answer in time; the request for %s was cancelled",
                        shown);
        return err_known(reterr, e, HF_KNOWN_UNCHANGED);
    }
    keeper_give_up(c->keeper, &op->cancel, a->take.ttl_ms);
    if (e == HF_EUNSURE)
        return e;
    return err_set(reterr, HF_EUNSURE,
                   "no reply came to the request for %s, nor to its cancellation, which is tried "
                   "again: the lock may be taken without a holder for up to %lld ms", shown,
                   (long long)a->take.ttl_ms);
}

struct grant attempt_grant(const struct attempt *a)
{
    struct grant g = { .keys = a->take.keys, .fence = a->fence, .grace_ms = a->take.grace_ms,
                       .owner = a->take.owner, .shared = a->take.weight > 0 };
    snprintf(g.token, sizeof g.token, "%s", a->take.token);
    return g;
}

hf_err attempt_check_ttl(int64_t ttl_ms, hf_error *reterr)
{
    if (ttl_ms >= HF_TTL_MIN_MS && ttl_ms <= HF_TTL_MAX_MS)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "a ttl of %lld ms: give %d ms to 365 days",
                   (long long)ttl_ms, HF_TTL_MIN_MS);
}

/* Would others take it for a value of ours? 32 hex digits and a dot begin that of a random owner,
 * a word and a dot that of a lock of another kind. */
static bool like_a_value(hf_bytes owner)
{
    static const char *const kind[] = { "shared.", "latch.", "barrier." };
    const char *p = owner.data;
    for (size_t i = 0; i < sizeof kind / sizeof kind[0]; i++)
        if (owner.len >= strlen(kind[i]) && memcmp(p, kind[i], strlen(kind[i])) == 0)
            return true;
    size_t digits = 0;
    while (digits < 32 && digits < owner.len && p[digits] && strchr("0123456789abcdef", p[digits]))
        digits++;
    return digits == 32 && owner.len > 32 && p[32] == '.';
}

hf_err attempt_check_owner(hf_bytes owner, hf_error *reterr)
{
    if (owner.len == 0 || !owner.data)
        return err_set(reterr, HF_EINVAL, "the owner id is empty: give 1 to %d bytes",
                       OWNER_MAX);
    if (owner.len > OWNER_MAX)
        return err_set(reterr, HF_EINVAL, "the owner id has %zu bytes: at most %d are allowed",
                       owner.len, OWNER_MAX);
    if (like_a_value(owner))
        return err_set(reterr, HF_EINVAL,
                       "the owner id looks like what Holdfast itself writes: choose another");
    return HF_OK;
}
