/* SPDX-License-Identifier: MIT
 * quorum.c - the operations on several independent servers, of which a majority decides.
 *
 *  Q1  A lock is granted when a majority has it for the same token, with one agreed number and enough
 *      of the lease left by our own clock. Two majorities share a server, so nobody else has one. (P1)
 *  Q2  The agreed number is above every number agreed before: it is the largest of a majority's, and
 *      counts only when a majority has written it back. (P4)
 *  Q3  What fails is undone on all servers, also on those that did not answer. (P8)
 *  Q4  A server that is dead or slow costs nobody time while a majority answers.
 *  Q5  A server that restarted without its data does not vote until what it forgot is over. (P1)
 *
 * Every operation reaches the servers as a script, so this is the place: the same script on all of
 * them, and one answer made of theirs. Taking is in quorum_take.c, keeping in quorum_keep.c.
 */
#include "script/quorum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "script/quorum_impl.h"

#define RETRY_MIN_MS 5
#define RETRY_MAX_MS 100

/* ---- voting --------------------------------------------------------------------------------- */

static bool stopped(const struct script_call *sc)
{
    return sc->stop && atomic_load(sc->stop);
}

/* Once more those that are back; true: there were some. */
static bool ask_again(struct ballot *b)
{
    bool any = false;
    for (size_t i = 0; i < b->n; i++) {
        struct vote *v = &b->vote[i];
        bool failed = v->state == VOTE_FAILED || v->state == VOTE_LOST;
        if (!failed || v->code == HF_EAUTH || !conn_epoch(b->ask[i].conn))
            continue;
        ballot_ask(b, i);
        any = true;
    }
    return any;
}

/* A majority has answered, and nobody else will: more cannot be known now. */
static bool all_said(const struct ballot *b)
{
    return ballot_count(b, VOTE_OPEN) == 0 && ballot_count(b, VOTE_GIVEN) >= b->majority;
}

void quorum_vote(struct ballot *b)
{
    int64_t step = RETRY_MIN_MS;
    for (size_t i = 0; i < b->n; i++)
        ballot_ask(b, i);
    for (;;) {
        ballot_wait(b, b->sc->deadline_ms);
        int64_t until = clock_now_ms() + random_between(step / 2, step);
        if (b->decided(b) || all_said(b) || until >= b->sc->deadline_ms || stopped(b->sc))
            return;
        clock_sleep_until(until);
        step = ask_again(b) || 2 * step > RETRY_MAX_MS ? RETRY_MAX_MS : 2 * step;
    }
}

struct reply *quorum_steal(struct ballot *b, size_t i)
{
    struct reply *rp = b->vote[i].reply;
    b->vote[i].reply = NULL;
    return rp;
}

static int largest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x > y ? -1 : x < y;
}

int64_t quorum_kth(int64_t *number, size_t n, size_t k)
{
    qsort(number, n, sizeof *number, largest_first);
    return number[k - 1];
}

/* How many bytes of a value name its holder: a random token in front of its number, or all of
 * it. */
static size_t holder_len(const struct reply *value)
{
    bool token = value->len > 33 && value->str[32] == '.'
                 && strspn(value->str, "0123456789abcdef") == 32;
    return token ? strcspn(value->str, ":") : value->len;
}

bool quorum_same_holder(const struct reply *a, const struct reply *b)
{
    return a->str && b->str && holder_len(a) == holder_len(b)
           && memcmp(a->str, b->str, holder_len(a)) == 0;
}

long long quorum_agreement(const struct vote *v)
{
    bool sense = v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len == 2
                 && v->reply->item[1]->type == REPLY_INT;
    return sense ? v->reply->item[1]->num : 0;
}

void quorum_compare(const struct ballot *b, int64_t ttl_ms)
{
    for (size_t i = 0; i < b->n; i++) {
        const struct vote *v = &b->vote[i];
        if (v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len > 0
            && v->reply->item[0]->type == REPLY_INT)
            quorum_compare_clocks(b->q, i, v->reply->item[0]->num, b->begun_ms, ttl_ms);
    }
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Members whose answer is this integer. */
static size_t said(const struct ballot *b, long long number)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct vote *v = &b->vote[i];
        count += v->state == VOTE_GIVEN && v->reply->type == REPLY_INT && v->reply->num == number;
    }
    return count;
}

static bool released(const struct ballot *b)
{
    return said(b, 1) >= b->majority || b->n - said(b, 0) < b->majority;
}

static bool cancelled(const struct ballot *b)
{
    return ballot_count(b, VOTE_GIVEN) >= b->majority;
}

/* let_go.lua on all of them; those that cannot be reached owe it. */
static hf_err let_go(struct quorum *q, struct script_call *sc, const struct claim *cl,
                     const char *remember, bool (*decided)(const struct ballot *), hf_error *reterr)
{
    struct ballot b;
    hf_bytes keys[] = { cl->lock, cl->own, cl->tomb, cl->line, cl->counter };
    hf_bytes args[] = { cl->token, hf_str(remember), cl->owner };
    struct script_call each = { .id = SCRIPT_let_go, .nkeys = 5, .keys = keys, .nargs = 3,
                                .args = args, .deadline_ms = sc->deadline_ms, .stop = sc->stop };
    ballot_init(&b, q, &each, cl, decided);
    quorum_vote(&b);
    for (size_t i = 0; i < b.n; i++)
        if (b.vote[i].state == VOTE_FAILED)
            ballot_owe(&b, i);
    hf_err e = HF_OK;
    size_t held = said(&b, 1);
    sc->in_doubt = b.lost;
    sc->sent_ms = b.begun_ms;
    /* Where a majority has answered the token holds nothing any more. Whether it did may hang on
     * one that broke off: it counts as having held there. */
    if (!b.decided(&b))
        held += b.lost;
    if (!b.decided(&b) && !cancelled(&b))
        e = ballot_fail(&b, ballot_count(&b, VOTE_GIVEN), reterr);
    for (size_t i = 0; i < b.n && !e && !sc->reply; i++)
        sc->reply = quorum_steal(&b, i);
    if (!e && sc->reply) /* always: a majority has answered */
        sc->reply->num = held >= b.majority;
    ballot_end(&b);
    return e;
}

static hf_bytes upto_colon(hf_bytes text)
{
    const char *end = text.len ? memchr(text.data, ':', text.len) : NULL;
    return (hf_bytes){ text.data, end ? (size_t)(end - (const char *)text.data) : text.len };
}

/* release.lua compares the whole value, number included; where a member missed the agreement the
 * number is another. The token is what it holds by. */
static hf_err release(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    char tomb[QUORUM_KEY_MAX], line[QUORUM_KEY_MAX];
    struct claim cl = { .lock = sc->keys[0], .own = sc->keys[3], .counter = sc->keys[1],
                        .tomb = quorum_companion(sc->keys[2], 't', tomb),
                        .line = quorum_companion(sc->keys[2], 'w', line) };
    bool owner = sc->nargs > 1;
    cl.token = upto_colon(sc->args[owner ? 1 : 0]);
    if (owner)
        cl.owner = sc->args[0];
    return let_go(q, sc, &cl, "0", released, reterr);
}

static hf_err cancel(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    char line[QUORUM_KEY_MAX];
    struct claim cl = { .lock = sc->keys[0], .counter = sc->keys[1], .tomb = sc->keys[3],
                        .own = sc->keys[4], .line = quorum_companion(sc->keys[2], 'w', line),
                        .token = sc->args[0], .owner = sc->args[3] };
    return let_go(q, sc, &cl, sc->args[1].data, cancelled, reterr);
}

/* ---- by owner id, and looking ---------------------------------------------------------------- */

/* An array whose first element is an integer; -1: none. */
static long long first(const struct vote *v)
{
    bool sense = v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len > 0
                 && v->reply->item[0]->type == REPLY_INT;
    return sense ? v->reply->item[0]->num : -1;
}

static size_t firsts(const struct ballot *b, long long number)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += first(&b->vote[i]) == number;
    return count;
}

static bool owner_known(const struct ballot *b)
{
    return firsts(b, 1) >= b->majority || b->n - firsts(b, 0) < b->majority;
}

static void owner_answer(struct ballot *b, struct script_call *sc)
{
    int64_t left[QUORUM_MAX];
    size_t yes = 0;
    bool ours = firsts(b, 1) >= b->majority;
    for (size_t i = 0; i < b->n; i++) {
        if (first(&b->vote[i]) != ours)
            continue;
        if (ours)
            left[yes++] = b->vote[i].reply->len > 1 ? b->vote[i].reply->item[1]->num : 0;
        if (!sc->reply)
            sc->reply = quorum_steal(b, i);
        b->vote[i].state = VOTE_NONE;
    }
    if (ours && sc->reply->len > 1) /* as long as a majority has it */
        sc->reply->item[1]->num = quorum_kth(left, yes, b->majority);
}

/* What inspect.lua said: 9 elements, of which the first is a type and the second a value. */
static bool is_inspection(const struct vote *v)
{
    return v->state == VOTE_GIVEN && v->reply->type == REPLY_ARRAY && v->reply->len == 9
           && v->reply->item[0]->str && v->reply->item[1]->str && v->reply->item[3]->str
           && v->reply->item[2]->type == REPLY_INT;
}

static bool is_free(const struct reply *rp)
{
    return strcmp(rp->item[0]->str, "none") == 0;
}

/* How many say the same as member i. */
static size_t same_as(const struct ballot *b, size_t i)
{
    const struct reply *one = b->vote[i].reply;
    size_t count = 0;
    for (size_t j = 0; j < b->n; j++) {
        if (!is_inspection(&b->vote[j]))
            continue;
        const struct reply *other = b->vote[j].reply;
        count += strcmp(one->item[0]->str, other->item[0]->str) == 0
                 && quorum_same_holder(one->item[1], other->item[1]);
    }
    return count;
}

/* A majority says the same; or the lock is free on so many that nobody can have one; or that is all
 * that can be seen. */
static bool looked(const struct ballot *b)
{
    if (all_said(b))
        return true;
    size_t nobody = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (!is_inspection(&b->vote[i]))
            continue;
        nobody += is_free(b->vote[i].reply);
        if (same_as(b, i) >= b->majority)
            return true;
    }
    return b->n - nobody < b->majority;
}

static void look_answer(struct ballot *b, struct script_call *sc)
{
    int64_t left[QUORUM_MAX];
    size_t held = 0, best = b->n;
    for (size_t i = 0; i < b->n; i++) {
        if (!is_inspection(&b->vote[i]))
            continue;
        if (best == b->n || same_as(b, i) > same_as(b, best))
            best = i;
    }
    struct reply *rp = b->vote[best].reply;
    for (size_t i = 0; i < b->n; i++)
        if (is_inspection(&b->vote[i])
            && quorum_same_holder(rp->item[1], b->vote[i].reply->item[1]))
            left[held++] = b->vote[i].reply->item[2]->num;
    if (held >= b->majority) {
        rp->item[2]->num = quorum_kth(left, held, b->majority);
    } else if (held + b->n - ballot_count(b, VOTE_GIVEN) < b->majority) {
        /* a candidate that cannot have a majority holds nothing */
        snprintf(rp->item[0]->str, rp->item[0]->len + 1, "none");
        rp->item[0]->len = strlen(rp->item[0]->str);
        rp->item[1]->str[0] = '\0';
        rp->item[1]->len = 0;
        rp->item[2]->num = -2;
    }
    sc->reply = quorum_steal(b, best);
}

static bool told_by_most(const struct ballot *b)
{
    return ballot_count(b, VOTE_GIVEN) >= b->majority;
}

static bool told_by_one(const struct ballot *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->vote[i].state == VOTE_GIVEN && b->vote[i].reply->len > 0)
            return true;
    return told_by_most(b);
}

/* The longest: a member that was away may know nothing. */
static void any_answer(struct ballot *b, struct script_call *sc)
{
    size_t best = b->n;
    for (size_t i = 0; i < b->n; i++)
        if (b->vote[i].state == VOTE_GIVEN
            && (best == b->n || b->vote[i].reply->len > b->vote[best].reply->len))
            best = i;
    sc->reply = quorum_steal(b, best);
}

/* One script as it is, on all of them, and one answer. */
static hf_err simple(struct quorum *q, struct script_call *sc,
                     bool (*decided)(const struct ballot *b),
                     void (*answer)(struct ballot *b, struct script_call *sc), hf_error *reterr)
{
    struct ballot b;
    ballot_init(&b, q, sc, NULL, decided);
    quorum_vote(&b);
    sc->in_doubt = b.lost;
    sc->sent_ms = b.begun_ms;
    hf_err e = HF_OK;
    if (decided(&b))
        answer(&b, sc);
    else if (stopped(sc))
        e = err_set(reterr, HF_ECANCELED, "cancelled");
    else
        e = ballot_fail(&b, ballot_count(&b, VOTE_GIVEN), reterr);
    ballot_end(&b);
    return e;
}

/* After a release the first in line is told. */
static hf_err by_owner(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    hf_err e = simple(q, sc, owner_known, owner_answer, reterr);
    struct line_place p = { .lock = sc->keys[0], .counter = sc->keys[1], .queue = sc->keys[2],
                            .tomb = sc->keys[3], .own = sc->keys[4], .token = sc->args[1] };
    if (!e && *(const char *)sc->args[0].data == 'r')
        quorum_leave_line(q, &p);
    return e;
}

/* Ask one member alone. */
static struct reply *ask_one(struct quorum *q, struct script_call *sc, size_t i, size_t scanned,
                             hf_error *reterr)
{
    struct ballot b;
    ballot_init(&b, q, sc, NULL, told_by_one);
    ballot_ask(&b, i);
    ballot_wait(&b, sc->deadline_ms);
    struct reply *rp = quorum_steal(&b, i);
    if (!rp)
        (void)ballot_fail(&b, scanned, reterr);
    ballot_end(&b);
    return rp;
}

/* One member after the other, and in each as SCAN does: the cursor is "MEMBER.FAILED:CURSOR"
 * between the first page and the last. A majority of them knows every lock that is held. */
static hf_err scan(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    char cursor[32] = "0", next[64] = "0";
    size_t at = 0, failed = 0, n = quorum_size(q);
    struct reply *page = NULL;
    hf_bytes args[3] = { hf_str(""), sc->args[1], sc->args[2] };
    struct script_call one = *sc;
    one.args = args;
    if (sscanf(sc->args[0].data, "%zu.%zu:%31s", &at, &failed, cursor) != 3)
        snprintf(cursor, sizeof cursor, "0");
    for (; at < n && !page; at += !page) {
        args[0] = hf_str(cursor);
        page = ask_one(q, &one, at, at - failed, reterr);
        if (page && (page->type != REPLY_ARRAY || page->len != 2 || !page->item[0]->str))
            page = reply_free(page);
        if (!page && n - ++failed < quorum_majority(q))
            return HF_ENOQUORUM;
        if (!page)
            snprintf(cursor, sizeof cursor, "0");
    }
    bool whole = !page || strcmp(page->item[0]->str, "0") == 0;
    if (page && !(whole && at + 1 == n))
        snprintf(next, sizeof next, "%zu.%zu:%.20s", whole ? at + 1 : at, failed,
                 whole ? "0" : page->item[0]->str);
    struct reply *rp = reply_array(2), *text = reply_bytes(next, strlen(next));
    struct reply *keys = page ? page->item[1] : reply_array(0);
    if (!rp || !text || !keys) {
        reply_free(page ? NULL : keys);
        reply_free(page);
        reply_free(text);
        mem_free(rp);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (page) {
        reply_free(page->item[0]);
        mem_free(page);
    }
    rp->item[0] = text;
    rp->item[1] = keys;
    sc->reply = rp;
    return HF_OK;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Why a majority of servers cannot do it. */
static const char *unsound(enum script_id id)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
    switch (id) {
    case SCRIPT_share:
    case SCRIPT_unshare:
    case SCRIPT_downgrade:
    case SCRIPT_resize:
        return "permits counted by majorities can be given out twice: shared locks and semaphores need "
               "one server, Sentinel or Cluster";
    case SCRIPT_latch_set:
    case SCRIPT_latch_down:
    case SCRIPT_latch_look:
    case SCRIPT_barrier_open:
    case SCRIPT_barrier_meet:
    case SCRIPT_barrier_judge:
    case SCRIPT_barrier_quit:
        return "a count kept by majorities can be counted twice: latches and barriers need "
               "one server, Sentinel or Cluster";
    case SCRIPT_leader:
    case SCRIPT_proclaim:
        return "the value of a leader has no single place: elections need one server, "
               "Sentinel or Cluster";
    case SCRIPT_sequence:
        return "numbers given by majorities can repeat: sequences need one server, "
               "Sentinel or Cluster";
    case SCRIPT_store:
    case SCRIPT_value:
        return "a value has no single place: once needs one server, Sentinel or Cluster";
    case SCRIPT_repair:
        return "each server has a fencing counter of its own: repair it there, with the URL of that "
               "server alone";
    case SCRIPT_guard:
        return "a guard belongs to the resource: use a client of the resource's own server";
    default:
        return "it needs one server";
    }
#pragma GCC diagnostic pop
}

hf_err quorum_run(struct quorum *q, struct script_call *sc, hf_error *reterr)
{
    sc->reply = NULL;
    sc->in_doubt = 0;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wswitch-enum"
    switch (sc->id) {
    case SCRIPT_acquire: return quorum_acquire(q, sc, reterr);
    case SCRIPT_keep: return quorum_keep(q, sc, reterr);
    case SCRIPT_release: return release(q, sc, reterr);
    case SCRIPT_cancel: return cancel(q, sc, reterr);
    case SCRIPT_stand: return quorum_stand(q, sc, reterr);
    case SCRIPT_by_owner: return by_owner(q, sc, reterr);
    case SCRIPT_inspect: return simple(q, sc, looked, look_answer, reterr);
    case SCRIPT_record: return simple(q, sc, told_by_most, any_answer, reterr);
    case SCRIPT_recall: return simple(q, sc, told_by_one, any_answer, reterr);
    case SCRIPT_scan: return scan(q, sc, reterr);
    default: return err_set(reterr, HF_ENOTSUP, "not on a quorum: %s", unsound(sc->id));
    }
#pragma GCC diagnostic pop
}
