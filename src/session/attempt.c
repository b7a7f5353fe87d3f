/* SPDX-License-Identifier: MIT
 * attempt.c - one attempt to take a lock.
 */
#include "session/attempt.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "session/giveup.h"
#include "session/kind.h"
#include "session/renew.h"

#define CANCEL_ATTEMPT_MS 500 /* what a call may take past its own deadline */

static hf_err other_limit(const struct attempt *a, const char *name, long long agreed,
                          hf_error *reterr)
{
    if (!agreed)
        return err_set(reterr, HF_ELIMIT,
                       "%s is held by readers now: it is a read-write lock, not a semaphore", name);
    if (!a->limit)
        return err_set(reterr, HF_ELIMIT,
                       "%s is a semaphore of %lld in use, not a read-write lock", name, agreed);
    return err_set(reterr, HF_ELIMIT,
                   "%s is a semaphore of %lld, agreed by those who use it now, and %u was asked for: "
                   "use the same number, or resize it", name, agreed, a->limit);
}

hf_err attempt_refused(const struct attempt *a, long long code, long long limit, hf_error *reterr)
{
    char name[120];
    err_quote(name, sizeof name, a->keys->name.data, a->keys->name.len);
    switch (code) {
    case -1:
        if (a->limit)
            return err_set(reterr, HF_EBUSY, "%s: %u of its permits are not to be had now", name,
                           a->weight);
        if (a->left_ms <= 0)
            return err_set(reterr, HF_EBUSY, "%s is held by another owner, or others wait for it",
                           name);
        return err_set(reterr, HF_EBUSY,
                       "%s is held by another owner, for %lld.%03lld s more unless renewed", name,
                       (long long)(a->left_ms / 1000), (long long)(a->left_ms % 1000));
    case -2:
        return err_set(reterr, HF_ECANCELED, "this request for %s had been given up", name);
    case -3:
        return err_set(reterr, HF_ETYPE,
                       "%s cannot be locked: its key holds data of another type than a lock; "
                       "nothing was changed", name);
    case -4:
        return err_set(reterr, HF_ECOUNTER,
                       "%s cannot be locked: the key %s, the fencing counter, holds something "
                       "else; look at it, and delete it if nobody else needs it", name,
                       a->keys->home->greeting.counter);
    case -7:
        return other_limit(a, name, limit, reterr);
    case -8:
        return err_set(reterr, HF_ELIMIT,
                       "%u permits of %s were asked for at once, and there are %lld in all", a->weight,
                       name, limit);
    case -9:
        return err_set(reterr, HF_ETYPE,
                       "%s is held by something that is no timestamp: a program of another protocol "
                       "uses it; nothing of it was changed", name);
    default:
        return err_set(reterr, HF_EPROTO, "the answer to an acquire makes no sense");
    }
}

static hf_err refused(struct attempt *a, const struct reply *rp, hf_error *reterr)
{
    char name[120];
    long long number[4] = { 0 };
    for (size_t i = 0; i < rp->len && i < 4; i++)
        number[i] = rp->item[i]->type == REPLY_INT ? rp->item[i]->num : 0;
    if (number[0] == -6) {
        a->named = (uint64_t)number[1];
        return HF_EBUSY;
    }
    if (number[0] == -1) {
        a->left_ms = number[1];
        a->ticket = (uint64_t)number[3];
    }
    /* What is no lock at all says so: nobody's turn will ever come. */
    struct kind k;
    if (rp->len > 2 && number[0] == -1 && rp->item[2]->str && kind_parse(rp->item[2]->str, &k)
        && !k.lock)
        return err_set(reterr, HF_ETYPE, "%s cannot be locked: it is %s; nothing was changed",
                       err_quote(name, sizeof name, a->keys->name.data, a->keys->name.len), k.text);
    return attempt_refused(a, number[0], number[1], reterr);
}

/* Ask for it alone, or for a part of it. */
static hf_err ask(hf_client *c, const struct attempt *a, struct script_call *sc, hf_error *reterr)
{
    char ttl[24], grace[24], claim[24], ticket[24] = "0", limit[16], weight[16];
    snprintf(ttl, sizeof ttl, "%lld", (long long)a->ttl_ms);
    snprintf(grace, sizeof grace, "%lld", (long long)a->grace_ms);
    snprintf(claim, sizeof claim, "%lld", (long long)a->claim_ms);
    if (a->claim_ms)
        snprintf(ticket, sizeof ticket, "%llu", (unsigned long long)a->ticket);
    struct greeting *g = &a->keys->home->greeting;
    hf_bytes keys[] = { a->keys->key[KEY_LOCK], hf_str(g->counter), a->keys->key[KEY_QUEUE],
                        a->keys->key[KEY_TOMB], a->keys->key[KEY_OWN] };
    hf_bytes args[8] = { hf_str(a->token), hf_str(ttl), hf_str(grace), hf_str(claim),
                         hf_str(ticket), a->owner, hf_str(a->nonce) };
    sc->id = SCRIPT_acquire;
    sc->nkeys = 5;
    sc->nargs = a->claim_ms ? 7 : a->owner.len ? 6 : 3;
    if (a->weight) {
        snprintf(limit, sizeof limit, "%u", a->limit);
        snprintf(weight, sizeof weight, "%u", a->weight);
        args[5] = hf_str(limit);
        args[6] = hf_str(weight);
        args[7] = hf_str(a->nonce);
        sc->id = SCRIPT_share;
        sc->nkeys = 4;
        sc->nargs = 8;
    }
    sc->keys = keys;
    sc->args = args;
    sc->greeting = g;
    return script_run(c->topo, sc, reterr);
}

hf_err attempt_run(hf_client *c, struct attempt *a, int64_t deadline_ms, hf_error *reterr)
{
    struct script_call sc = { .deadline_ms = deadline_ms, .stop = a->stop, .lane = LANE_GRANT };
    a->named = 0;
    hf_err e = ask(c, a, &sc, reterr);
    a->in_doubt += sc.in_doubt;
    if (e)
        return e;
    a->sent_ms = sc.sent_ms;
    if (sc.reply->type == REPLY_INT && sc.reply->num > 0 && script_unacked(&sc)) {
        a->in_doubt++; /* whoever abandons it undoes it */
        e = script_too_few(&sc, "the grant, which is undone,", reterr);
    } else if (sc.reply->type == REPLY_INT && sc.reply->num > 0)
        a->fence = (uint64_t)sc.reply->num;
    else if (sc.reply->type == REPLY_ARRAY)
        e = refused(a, sc.reply, reterr);
    else
        e = err_set(reterr, HF_EPROTO, "the answer to an acquire makes no sense");
    reply_free(sc.reply);
    return e;
}

/* Who waited for replicas or a disk in vain used half of its time for that at most, so it has as
 * much again for undoing: with appendfsync always that has to get to the disk as well. */
int64_t attempt_cancel_until(const struct attempt *a, hf_err e)
{
    int64_t now = clock_now_ms(), took = e == HF_EREPLICAS ? now - a->sent_ms : 0;
    return now + (took > CANCEL_ATTEMPT_MS ? took : CANCEL_ATTEMPT_MS);
}

hf_err attempt_abandon(hf_client *c, const struct attempt *a, hf_err e, hf_error *reterr)
{
    return attempt_abandon_by(c, a, attempt_cancel_until(a, e), e, reterr);
}

hf_err attempt_abandon_by(hf_client *c, const struct attempt *a, int64_t until_ms, hf_err e,
                          hf_error *reterr)
{
    char member[ATTEMPT_MEMBER_MAX];
    struct cancel what = { .keys = a->keys, .token = a->token, .owner = a->owner,
                           .remember = a->in_doubt > 0 || e == HF_EPROTO };
    if (a->claim_ms)
        what.member = (hf_bytes){ member, attempt_member(a, member) };
    if (!a->ticket && !a->named && !what.remember)
        return e;
    if (!giveup_cancel(c, &what, until_ms, NULL, NULL)) {
        if (e == HF_EUNSURE)
            e = err_set(reterr, HF_ETIMEDOUT,
                        "the server did not answer in time; the request was cancelled");
        return err_known(reterr, e, HF_UNCHANGED);
    }
    what.remember = true;
    keeper_give_up(c->keeper, &what, a->ttl_ms);
    if (e == HF_EUNSURE)
        return e;
    return err_set(reterr, HF_EUNSURE,
                   "a request was sent and no reply came, nor to its cancellation, which is tried "
                   "again: the lock may be taken for nobody for up to %lld ms",
                   (long long)a->ttl_ms);
}

size_t attempt_member(const struct attempt *a, char ret[ATTEMPT_MEMBER_MAX])
{
    char share[32] = "";
    if (a->weight)
        snprintf(share, sizeof share, "/%u.%u", a->limit, a->weight);
    int n = snprintf(ret, ATTEMPT_MEMBER_MAX, "%s:%lld:%lld:%s%s:", a->token,
                     (long long)a->grace_ms, (long long)a->claim_ms, a->nonce, share);
    if (a->owner.len)
        memcpy(ret + n, a->owner.data, a->owner.len);
    return (size_t)n + a->owner.len;
}

hf_err attempt_claim(hf_client *c, const struct attempt *a, struct renew_answer *ret,
                     hf_error *reterr)
{
    struct lease l = { .keys = a->keys, .fence = a->fence, .grace_ms = a->grace_ms,
                       .owner = a->owner, .shared = a->weight > 0 };
    snprintf(l.token, sizeof l.token, "%s", a->token);
    return renew_ask(c, &l, "renew", a->ttl_ms, ret, reterr);
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
                       LEASE_OWNER_MAX);
    if (owner.len > LEASE_OWNER_MAX)
        return err_set(reterr, HF_EINVAL, "the owner id has %zu bytes: at most %d are allowed",
                       owner.len, LEASE_OWNER_MAX);
    if (like_a_value(owner))
        return err_set(reterr, HF_EINVAL,
                       "the owner id looks like what Holdfast itself writes: choose another");
    return HF_OK;
}
