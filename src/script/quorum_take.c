/* SPDX-License-Identifier: MIT
 * quorum_take.c - taking a lock on a majority of servers.
 *
 *   1  acquire.lua on all that may vote. With a majority's yes, the number is the largest of theirs.
 *   2  agree.lua on all: the number becomes that of the lock and of the counter, and the lease begins
 *      anew. With a majority's yes it is granted.
 *
 * A member that gave a larger number than the agreed one, which we had not heard of in time, does
 * not count in 2: so whoever counts there gives only larger ones from then on, and any later
 * majority has one of them. When a majority gave the very same number in 1, that is so already, and
 * 2 is left out: after any 2 the counters are the same everywhere, until two candidates meet. Not
 * for long, though: 2 also helps members that were away to the number, and compares clocks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "script/quorum_impl.h"

#define SPLITS_MAX   4  /* nobody got a majority: tried again at once, so often */
#define SPLIT_MS     4
#define TRY_MIN_MS   50 /* at least, for the answers of a majority */
#define VOTERS_MS    10
#define AGREE_MS     1000 /* longer ago: both phases, whatever the numbers are */

struct taking {
    struct quorum      *q;
    struct script_call *sc;
    struct claim        claim;
    int64_t             ttl_ms;
    uint64_t            number;
    bool                split; /* it failed, but nobody else has it either */
};

/* ---- who may vote ---------------------------------------------------------------------------- */

static size_t find_voters(struct taking *t, struct ballot *b, size_t *ret_up)
{
    size_t voters = 0;
    *ret_up = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct vote *v = &b->vote[i];
        int64_t young = 0;
        v->why[0] = '\0';
        if (!conn_epoch(b->ask[i].conn)) {
            quorum_why(t->q, i, v->why, sizeof v->why);
            quorum_mend(t->q, i);
            continue;
        }
        ++*ret_up;
        young = quorum_young_ms(t->q, i, t->ttl_ms);
        if (young)
            snprintf(v->why, sizeof v->why,
                     "restarted without an append-only file: no vote for %lld s more (?quarantine=)",
                     (long long)(young + 999) / 1000);
        voters += !young;
    }
    return voters;
}

/* Wait until enough may vote: nothing is taken from a minority. */
static hf_err await_voters(struct taking *t, struct ballot *b, hf_error *reterr)
{
    for (;;) {
        size_t up, voters = find_voters(t, b, &up);
        if (voters >= b->majority)
            return HF_OK;
        int64_t until = clock_now_ms() + random_between(VOTERS_MS / 2, VOTERS_MS);
        if (t->sc->stop && atomic_load(t->sc->stop))
            return err_set(reterr, HF_ECANCELED, "cancelled before the request was sent");
        /* Youth does not pass that soon. */
        if (up >= b->majority || until >= t->sc->deadline_ms)
            return ballot_fail(b, voters, reterr);
        clock_sleep_until(until);
    }
}

/* ---- the votes ------------------------------------------------------------------------------- */

static long long refusal(const struct vote *v)
{
    bool sense = v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len > 0
                 && v->reply->item[0]->type == REPLY_INT;
    return sense ? v->reply->item[0]->num : 0;
}

static size_t refusals(const struct ballot *b, long long code)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += refusal(&b->vote[i]) == code;
    return count;
}

static bool is_yes(const struct vote *v)
{
    return v->state == VOTE_GIVEN && v->reply->type == REPLY_INT && v->reply->num > 0;
}

static size_t yes(const struct ballot *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += is_yes(&b->vote[i]);
    return count;
}

/* That it failed is known early; a majority's answers are needed to say why. */
static bool taken_or_not(const struct ballot *b)
{
    size_t open = ballot_count(b, VOTE_OPEN), given = ballot_count(b, VOTE_GIVEN);
    return yes(b) >= b->majority
           || (yes(b) + open < b->majority && (given >= b->majority || open == 0));
}

/* The largest number that was given, and how many gave that one. */
static uint64_t largest(const struct ballot *b, size_t *ret_same)
{
    uint64_t number = 0;
    *ret_same = 0;
    for (size_t i = 0; i < b->n; i++) {
        uint64_t given = is_yes(&b->vote[i]) ? (uint64_t)b->vote[i].reply->num : 0;
        *ret_same = given > number ? 1 : *ret_same + (given && given == number);
        number = given > number ? given : number;
    }
    return number;
}

/* The number of the ballot is its second argument. */
static size_t agreed(const struct ballot *b)
{
    long long number = strtoll(b->sc->args[1].data, NULL, 10);
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++) {
        long long before = quorum_agreement(&b->vote[i]);
        count += before > 0 && before <= number;
    }
    return count;
}

static bool agreed_or_not(const struct ballot *b)
{
    return agreed(b) >= b->majority || agreed(b) + ballot_count(b, VOTE_OPEN) < b->majority;
}

/* ---- undoing --------------------------------------------------------------------------------- */

static bool never(const struct ballot *b)
{
    (void)b;
    return false;
}

/* Give back what it has on all that may have it. On the same connection this comes after the
 * request, so where it is answered nothing is left; elsewhere the connection breaks some day, and a
 * chore does it. True: all have answered. */
static bool undo(struct taking *t, const struct ballot *asked)
{
    struct ballot b;
    const struct claim *cl = &t->claim;
    hf_bytes keys[] = { cl->lock, cl->own, cl->tomb };
    hf_bytes args[] = { cl->token, hf_str("0"), cl->owner };
    struct script_call sc = { .id = SCRIPT_let_go, .nkeys = 3, .keys = keys, .nargs = 3,
                              .args = args, .deadline_ms = CLOCK_NEVER };
    ballot_init(&b, t->q, &sc, cl, never);
    b.begun_ms = asked->begun_ms;
    for (size_t i = 0; i < b.n; i++)
        if (is_yes(&asked->vote[i]) || asked->vote[i].state == VOTE_OPEN)
            ballot_ask(&b, i);
    ballot_wait_for_stragglers(&b);
    size_t open = ballot_count(&b, VOTE_OPEN) + ballot_count(&b, VOTE_LOST)
                  + ballot_count(asked, VOTE_LOST);
    for (size_t i = 0; i < b.n; i++)
        if (b.vote[i].state == VOTE_FAILED) /* the connection broke between the two */
            ballot_owe(&b, i);
    open += ballot_count(&b, VOTE_FAILED);
    ballot_end(&b);
    return open == 0;
}

/* ---- what came of it ------------------------------------------------------------------------- */

/* The refusal that most members share with others, and how many do. */
static size_t strongest(const struct ballot *b, size_t *ret_which)
{
    size_t most = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct vote *v = &b->vote[i];
        size_t same = 0;
        if (refusal(v) != -1 || v->reply->len < 3)
            continue;
        for (size_t j = 0; j < b->n; j++)
            same += refusal(&b->vote[j]) == -1 && b->vote[j].reply->len >= 3
                    && quorum_same_holder(v->reply->item[2], b->vote[j].reply->item[2]);
        if (same > most) {
            most = same;
            *ret_which = i;
        }
    }
    return most;
}

static size_t any_refusal(const struct ballot *b, long long code)
{
    for (size_t i = 0; i < b->n; i++)
        if (refusal(&b->vote[i]) == code)
            return i;
    return b->n;
}

/* No majority: whose is it then, or what is in the way? */
static hf_err judge(struct taking *t, struct ballot *b, bool clean, hf_error *reterr)
{
    size_t which = b->n, busy = refusals(b, -1), ours = yes(b);
    size_t silent = b->n - ballot_count(b, VOTE_GIVEN);
    if (refusals(b, -2) && ours + refusals(b, -2) >= b->majority) {
        which = any_refusal(b, -2); /* with another token it would be ours */
    } else if (busy && ours + busy >= b->majority) {
        size_t most = strongest(b, &which);
        t->split = most + silent < b->majority;
        if (which == b->n)
            which = any_refusal(b, -1);
    } else if (b->n - refusals(b, -3) < b->majority) {
        which = any_refusal(b, -3);
    } else if (b->n - refusals(b, -4) < b->majority) {
        which = any_refusal(b, -4);
    }
    if (which < b->n) {
        t->sc->reply = quorum_steal(b, which);
        return HF_OK;
    }
    hf_err e = ballot_fail(b, ours, reterr);
    return err_known(reterr, e, clean ? HF_UNCHANGED : HF_UNKNOWN);
}

/* ---- the two phases -------------------------------------------------------------------------- */

/* The second one. */
static hf_err agree(struct taking *t, struct ballot *first, hf_error *reterr)
{
    struct ballot b;
    const struct claim *cl = &t->claim;
    char number[24], ttl[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)t->number);
    snprintf(ttl, sizeof ttl, "%lld", (long long)t->ttl_ms);
    hf_bytes keys[] = { cl->lock, t->sc->keys[1], cl->own, cl->tomb };
    hf_bytes args[] = { cl->token, hf_str(number), hf_str(ttl), cl->owner };
    int64_t limit = clock_now_ms() + TRY_MIN_MS;
    if (limit < t->sc->deadline_ms)
        limit = clock_earlier(t->sc->deadline_ms, first->begun_ms + t->ttl_ms);
    struct script_call sc = { .id = SCRIPT_agree, .nkeys = 4, .keys = keys, .nargs = 4, .args = args,
                              .deadline_ms = limit, .stop = t->sc->stop };
    ballot_init(&b, t->q, &sc, cl, agreed_or_not);
    for (size_t i = 0; i < b.n; i++)
        if (first->vote[i].state != VOTE_LOST) /* that one undoes it: it must not count */
            ballot_ask(&b, i);
    ballot_wait(&b, sc.deadline_ms);
    quorum_compare(&b, t->ttl_ms);
    for (size_t i = 0; i < b.n; i++)
        if (b.vote[i].state == VOTE_OPEN)
            quorum_want_time(t->q, i);
    hf_err e = HF_OK;
    if (agreed(&b) >= b.majority) {
        t->sc->sent_ms = b.begun_ms; /* the lease began anew there */
        quorum_set_agreed(t->q);
    } else {
        e = ballot_fail(&b, agreed(&b), reterr);
    }
    ballot_end(&b);
    return e;
}

/* A majority said yes. */
static hf_err number(struct taking *t, struct ballot *b, hf_error *reterr)
{
    size_t same, some = 0;
    t->number = largest(b, &same);
    if (same < b->majority || clock_now_ms() - quorum_agreed_ms(t->q) > AGREE_MS) {
        hf_err e = agree(t, b, reterr);
        if (e)
            return err_known(reterr, e, undo(t, b) ? HF_UNCHANGED : HF_UNKNOWN);
    }
    while (!is_yes(&b->vote[some]))
        some++;
    t->sc->reply = quorum_steal(b, some);
    t->sc->reply->num = (long long)t->number;
    return HF_OK;
}

static hf_err take_once(struct taking *t, hf_error *reterr)
{
    struct ballot b;
    t->split = false;
    ballot_init(&b, t->q, t->sc, &t->claim, taken_or_not);
    hf_err e = await_voters(t, &b, reterr);
    if (e) {
        ballot_end(&b);
        return e;
    }
    b.begun_ms = t->sc->sent_ms = clock_now_ms();
    int64_t limit = b.begun_ms + (t->ttl_ms / 4 > TRY_MIN_MS ? t->ttl_ms / 4 : TRY_MIN_MS);
    for (size_t i = 0; i < b.n; i++)
        if (!b.vote[i].why[0])
            ballot_ask(&b, i);
    ballot_wait(&b, clock_earlier(limit, t->sc->deadline_ms));
    if (yes(&b) >= b.majority) {
        e = number(t, &b, reterr);
    } else {
        ballot_wait_for_stragglers(&b); /* whose it is they may know */
        e = judge(t, &b, undo(t, &b), reterr);
    }
    ballot_end(&b);
    return e;
}

hf_err quorum_acquire(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    struct taking t = { .q = q, .sc = sc, .ttl_ms = strtoll(sc->args[1].data, NULL, 10) };
    t.claim.lock = sc->keys[0];
    t.claim.tomb = sc->keys[3];
    t.claim.own = sc->keys[4];
    t.claim.token = sc->args[0];
    t.claim.owner = sc->nargs > 5 ? sc->args[5] : hf_str("");
    quorum_used(q, t.ttl_ms, sc->keys[1]);
    for (int round = 0;; round++) {
        hf_err e = take_once(&t, reterr);
        int64_t until = clock_now_ms() + random_between(1, SPLIT_MS << round);
        if (!t.split || round == SPLITS_MAX || until >= sc->deadline_ms
            || (sc->stop && atomic_load(sc->stop)))
            return e;
        sc->reply = reply_free(sc->reply);
        clock_sleep_until(until);
    }
}
