/* SPDX-License-Identifier: MIT
 * quorum_keep.c - keeping locks on a majority of servers, and taking them again where they were
 * missed.
 *
 * A lock is proven when a majority says in one and the same vote that it is ours: then its lease
 * counts from the sending of that vote. While it is proven nobody else can have a majority, so it
 * may be taken again on members that were away, or came back without it. Without the proof nothing
 * is taken: it would hide a gap.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "script/quorum_impl.h"

enum { NOT_OURS = 0, OURS = 1, RELEASED = 2, UNKNOWN = -1 }; /* keep.lua's answers, and ours */

static size_t locks(const struct script_call *sc)
{
    return sc->nkeys / 4;
}

/* What a member says about lock i. */
static long long verdict(const struct ballot *b, size_t member, size_t i)
{
    const struct vote *v = &b->vote[member];
    bool sense = v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY
                 && v->reply->len == locks(b->sc) + 1 && v->reply->item[0]->type == REPLY_INT
                 && v->reply->item[i + 1]->type == REPLY_INT;
    return sense ? v->reply->item[i + 1]->num : UNKNOWN;
}

static size_t count(const struct ballot *b, size_t i, long long what)
{
    size_t n = 0;
    for (size_t m = 0; m < b->n; m++)
        n += verdict(b, m, i) == what;
    return n;
}

static long long verdict_of_all(const struct ballot *b, size_t i)
{
    size_t released = count(b, i, RELEASED), no = count(b, i, NOT_OURS) + released;
    if (count(b, i, OURS) >= b->majority)
        return OURS;
    if (b->n - no < b->majority)
        return released ? RELEASED : NOT_OURS;
    return UNKNOWN;
}

static bool known(const struct ballot *b)
{
    for (size_t i = 0; i < locks(b->sc); i++)
        if (verdict_of_all(b, i) == UNKNOWN)
            return false;
    return true;
}

/* One lock about which too few know must not keep up the others. */
static bool answered(const struct ballot *b)
{
    return ballot_count(b, VOTE_GIVEN) >= b->majority;
}

/* The number of lock i: token:number:0, or token:number beside a caller-chosen id. */
static bool number_of(const struct script_call *sc, size_t i, char ret[24])
{
    hf_bytes own = sc->args[4 * i + 3], text = own.len ? own : sc->args[4 * i + 2];
    size_t token = sc->args[4 * i + 1].len;
    if (text.len <= token + 1 || (own.len == 1 && *(const char *)own.data == '+'))
        return false;
    snprintf(ret, 24, "%.20s", (const char *)text.data + token + 1);
    ret[strspn(ret, "0123456789")] = '\0';
    return ret[0] != '\0';
}

static bool taken_again(const struct ballot *b)
{
    return ballot_count(b, VOTE_OPEN) == 0;
}

/* Take lock i where it was missed: it is proven. */
static void take_again(struct quorum *q, const struct ballot *asked, size_t i)
{
    const struct script_call *kept = asked->sc;
    const hf_bytes *keys = kept->keys + 4 * i, *args = kept->args + 1 + 4 * i;
    const char *fence_key = quorum_fence_key(q);
    struct claim cl = { .lock = keys[0], .own = keys[1], .tomb = keys[2], .token = args[0],
                        .owner = args[2].len ? args[1] : hf_str("") };
    char number[24];
    struct ballot b;
    if (!fence_key || !number_of(kept, i, number))
        return;
    hf_bytes all_keys[] = { keys[0], hf_str(fence_key), keys[1], keys[2] };
    hf_bytes all_args[] = { args[0], hf_str(number), args[3], cl.owner, hf_str("take") };
    struct script_call sc = { .id = SCRIPT_agree, .nkeys = 4, .keys = all_keys, .nargs = 5,
                              .args = all_args, .deadline_ms = kept->deadline_ms };
    ballot_init(&b, q, &sc, &cl, taken_again);
    for (size_t m = 0; m < b.n; m++)
        if (verdict(asked, m, i) == NOT_OURS)
            ballot_ask(&b, m);
    ballot_wait_for_stragglers(&b);
    for (size_t m = 0; m < b.n; m++) {
        if (quorum_agreement(&b.vote[m]) > 0)
            log_to(quorum_log(q), HF_LOG_INFO, "a lock that was missed on %s was taken there too",
                   quorum_shown(q, m));
    }
    ballot_end(&b);
}

/* One answer, made of a member's. */
static struct reply *answer(struct ballot *b)
{
    struct reply *rp = NULL;
    long long all[256];
    size_t n = locks(b->sc);
    for (size_t i = 0; i < n; i++)
        all[i] = verdict_of_all(b, i);
    for (size_t m = 0; m < b->n && !rp; m++)
        if (verdict(b, m, 0) != UNKNOWN)
            rp = quorum_steal(b, m);
    if (!rp)
        return NULL; /* never: a majority's answers make sense */
    /* Each member's clock was compared here; what the keeper compares is ours with ours. */
    rp->item[0]->num = (b->begun_ms + clock_now_ms()) / 2;
    for (size_t i = 0; i < n; i++)
        rp->item[i + 1]->num = all[i];
    return rp;
}

hf_err quorum_keep(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    struct ballot b;
    size_t n = locks(sc), sense = 0;
    if (n > 256)
        return err_set(reterr, HF_EINVAL, "too many locks at once");
    for (size_t i = 0; i < n; i++)
        if (sc->args[4 * i + 2].len == 6 && memcmp(sc->args[4 * i + 2].data, "shared", 6) == 0
            && !sc->args[4 * i + 3].len)
            return err_set(reterr, HF_ENOTSUP, "not on a quorum: shared locks need one server");
    bool renews = *(const char *)sc->args[0].data == 'r';
    bool checks = *(const char *)sc->args[0].data == 'c';
    /* Who asks about one lock waits for those who know: some that just came back say no, and may be
     * the first to answer. */
    ballot_init(&b, q, sc, NULL, renews ? answered : known);
    quorum_vote(&b);
    if (!checks)
        ballot_wait_for_stragglers(&b); /* they may have missed it, or be those who know */
    sc->sent_ms = b.begun_ms;
    sc->in_doubt = b.lost + (unsigned)(renews || checks ? 0 : ballot_count(&b, VOTE_OPEN));
    quorum_compare(&b, strtoll(sc->args[4].data, NULL, 10));
    for (size_t m = 0; m < b.n; m++)
        sense += verdict(&b, m, 0) != UNKNOWN;
    hf_err e = HF_OK;
    if (sense < b.majority) {
        e = ballot_fail(&b, sense, reterr);
    } else {
        for (size_t i = 0; i < n && !checks; i++)
            if (verdict_of_all(&b, i) == OURS && count(&b, i, NOT_OURS) > 0)
                take_again(q, &b, i);
        sc->reply = answer(&b);
    }
    ballot_end(&b);
    return e;
}
