/* SPDX-License-Identifier: MIT
 * quorum_take.c - taking a lock on a majority of servers.
 *
 *   1  acquire.lua on all that may vote. With a majority's yes, the number is the largest of
 *      theirs.
 *   2  quorum_agree.lua on all: the number becomes that of the lock and of the counter, and the
 *      lease begins anew. With a majority's yes it is granted.
 *
 * A member that gave a larger number than the agreed one, which we had not heard of in time, does
 * not count in 2: so whoever counts there gives only larger ones from then on, and any later
 * majority has one of them. When a majority gave the very same number in 1, that is so already, and
 * 2 is left out: after any 2 the counters are the same everywhere, until two candidates meet. Not
 * for long, though: 2 also helps members that were away to the number, and compares clocks.
 *
 *      vote -> agree     [take_once]  a majority said yes
 *      vote -> undo      [take_once]  it did not, nor can those who are still to answer
 *      agree -> undo     [numbered]   no majority has agreed
 *      undo -> vote      [again]      nobody has it: who asked at the same moment split the votes,
 *                                     or who could decide it was still being connected to
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "exec/quorum_impl.h"

#define SPLITS_MAX   4  /* nobody got a majority: tried again at once, so often */
#define SPLIT_MS     4  /* the first pause; each may be twice as long, */
#define PAUSES_MAX   5  /* so often */
#define TRY_MIN_MS   50 /* at least, for the answers of a majority */
#define VOTERS_MS    10
#define AGREE_MS     1000 /* longer ago: both phases, whatever the numbers are */

/* ---- who may vote ------------------------------------------------------------------------- */

/* Those who may not: because they keep nothing, or may have lost it. */
struct minors {
    size_t young, lost;
    char   who[120]; /* those who may have lost it */
};

static int64_t young_ms(struct quorum_op *x, size_t i)
{
    bool lost;
    return quorum_young_ms(x->q, i, x->op->take.ttl_ms, &lost);
}

static void add_minor(struct quorum_op *x, size_t i, int64_t left, bool lost, struct minors *ms)
{
    struct vote *v = &x->first.vote[i];
    snprintf(v->why, sizeof v->why, "it started lately %s: no vote for %lld s more",
             lost ? "without the data that others have" : "and keeps nothing on disk",
             (long long)(left + 999) / 1000);
    ms->young++;
    if (!lost)
        return;
    size_t used = strlen(ms->who);
    snprintf(ms->who + used, sizeof ms->who - used, "%s%s", ms->lost ? ", " : "",
             quorum_shown(x->q, i));
    ms->lost++;
}

static size_t find_voters(struct quorum_op *x, size_t *ret_up, struct minors *ms)
{
    struct ballot *b = &x->first;
    size_t voters = 0;
    *ret_up = 0;
    for (size_t i = 0; i < b->n; i++) {
        struct vote *v = &b->vote[i];
        v->why[0] = '\0';
        if (!conn_epoch(quorum_conn(x->q, i))) {
            quorum_why(x->q, i, v->why, sizeof v->why);
            quorum_mend(x->q, i);
            continue;
        }
        ++*ret_up;
        bool lost;
        int64_t left = quorum_young_ms(x->q, i, x->op->take.ttl_ms, &lost);
        if (left)
            add_minor(x, i, left, lost, ms);
        else
            voters++;
    }
    return voters;
}

/* For how long there are not enough: until so many more may vote. */
static int64_t until_enough(struct quorum_op *x, size_t missing)
{
    const struct ballot *b = &x->first;
    int64_t left = 0;
    for (size_t i = 0; i < b->n; i++) {
        int64_t mine = young_ms(x, i);
        size_t earlier = 0;
        for (size_t k = 0; k < b->n; k++) {
            int64_t its = young_ms(x, k);
            earlier += conn_epoch(quorum_conn(x->q, k)) && its > 0 && its < mine;
        }
        if (conn_epoch(quorum_conn(x->q, i)) && earlier < missing && mine > left)
            left = mine;
    }
    return left;
}

/* A fleet that was just started, and could have been up before; or that has lost what it had. */
static hf_err too_young(struct quorum_op *x, const struct minors *ms, size_t missing,
                        hf_error *reterr)
{
    const struct ballot *b = &x->first;
    long long s = (long long)(until_enough(x, missing) + 999) / 1000;
    bool one = ms->lost == 1;
    if (ms->lost)
        return err_set(reterr, HF_ENOQUORUM,
                       "%zu of %zu servers (%s) started lately without the data that others have, "
                       "though appendonly yes is set there, so %s: no vote for another %lld s, "
                       "until the old leases have ended; wait, and see that the data folder there "
                       "outlives a restart (docs/quorum.md)", ms->lost, b->n, ms->who,
                       one ? "it may have lost its own" : "they may have lost theirs", s);
    return err_set(reterr, HF_ENOQUORUM,
                   "%zu of %zu servers started lately and keep nothing on disk, so they may have "
                   "come back empty: they do not vote for another %lld s, until the old leases "
                   "have ended; wait, or set appendonly yes there (docs/quorum.md)", ms->young,
                   b->n, s);
}

/* True: enough may vote, or op->result tells why nobody is asked: nothing is taken from a
 * minority. */
static bool voters_found(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    struct minors ms = { 0 };
    size_t up, voters = find_voters(x, &up, &ms);
    int64_t until = clock_now_ms() + random_between(VOTERS_MS / 2, VOTERS_MS);
    if (voters >= b->majority)
        return true;
    if (op_stopped(op))
        op->result = err_set(op->reterr, HF_ECANCELED, "cancelled before the request was sent");
    else if (up >= b->majority && ms.young)
        op->result = too_young(x, &ms, b->majority - voters, op->reterr);
    else if (up >= b->majority || until >= op->deadline_ms) /* youth does not pass that soon */
        op->result = ballot_fail(b, voters, op->reterr);
    else
        task_due(op->task, until);
    return op->result != HF_OK;
}

/* Members that were not asked, and could have been a little later: they are connected by now, or
 * are being connected to. */
static size_t latecomers(struct quorum_op *x)
{
    const struct ballot *b = &x->first;
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++) {
        if (b->vote[i].state != VOTE_NONE)
            continue;
        count += conn_epoch(quorum_conn(x->q, i))
                     ? !young_ms(x, i)
                     : quorum_connecting(x->q, i);
    }
    return count;
}

/* ---- the votes ---------------------------------------------------------------------------- */

static bool is(const struct ballot *b, size_t i, enum answer code)
{
    return ballot_given(b, i) && b->vote[i].op.got.taken.code == code;
}

static size_t count(const struct ballot *b, enum answer code)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++)
        n += is(b, i, code);
    return n;
}

/* By the votes that are still possible, not by the first ones: it is free when a majority is free,
 * so refusals decide only when those who are still to answer cannot make one. That it failed is
 * known early; a majority's answers are needed to say why. */
static bool taken_or_not(const struct ballot *b)
{
    size_t yes = count(b, ANSWER_YES), open = ballot_count(b, VOTE_OPEN);
    return yes >= b->majority
           || (yes + open < b->majority
               && (ballot_count(b, VOTE_GIVEN) >= b->majority || open == 0));
}

/* The largest number that was given, and how many gave that one. */
static uint64_t largest(const struct ballot *b, size_t *ret_same)
{
    uint64_t number = 0;
    *ret_same = 0;
    for (size_t i = 0; i < b->n; i++) {
        uint64_t given = is(b, i, ANSWER_YES) ? b->vote[i].op.got.taken.fence : 0;
        *ret_same = given > number ? 1 : *ret_same + (given && given == number);
        number = given > number ? given : number;
    }
    return number;
}

/* A member that had a larger number than the one to be agreed on does not count. */
static size_t agreed(const struct ballot *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->n; i++) {
        const struct op *op = &b->vote[i].op;
        n += ballot_given(b, i) && op->got.quorum_agreed.code == ANSWER_YES
             && op->got.quorum_agreed.before <= op->quorum_agree.fence;
    }
    return n;
}

static bool agreed_or_not(const struct ballot *b)
{
    return agreed(b) >= b->majority || agreed(b) + ballot_count(b, VOTE_OPEN) < b->majority;
}

/* ---- undoing ------------------------------------------------------------------------------ */

/* Give back what it has on all that may have it. On the same connection this comes after the
 * request, so where it is answered nothing is left; elsewhere the connection breaks some day, and a
 * pending undo does it. */
static void begin_undo(struct quorum_op *x)
{
    const struct op_take *t = &x->op->take;
    struct ballot *b = &x->second;
    struct op each = { .id = OP_quorum_release, .deadline_ms = CLOCK_NEVER,
                       .quorum_release = { .keys = t->keys, .token = t->token,
                                           .owner = t->owner } };
    ballot_close(&x->first);
    ballot_begin(b, &each, NULL);
    b->undo = x->undo;
    b->begun_ms = x->first.begun_ms;
    for (size_t i = 0; i < b->n; i++)
        if (is(&x->first, i, ANSWER_YES) || x->first.vote[i].state == VOTE_OPEN)
            ballot_ask(b, i);
    ballot_be_patient(b);
}

/* Clean: all have answered. */
static void end_undo(struct quorum_op *x)
{
    struct ballot *b = &x->second;
    size_t failed = ballot_count(b, VOTE_FAILED);
    size_t open = ballot_count(b, VOTE_OPEN) + ballot_count(b, VOTE_LOST)
                  + ballot_count(&x->first, VOTE_LOST);
    for (size_t i = 0; i < b->n; i++)
        if (b->vote[i].state == VOTE_FAILED) /* the connection broke between the two */
            ballot_owe(b, i);
    ballot_end(b);
    x->take.clean = open + failed == 0;
}

/* ---- what came of it ---------------------------------------------------------------------- */

/* The refusal that most members share with others, and how many do. */
static size_t strongest(const struct ballot *b, size_t *ret_which)
{
    size_t most = 0;
    for (size_t i = 0; i < b->n; i++) {
        size_t same = 0;
        if (!is(b, i, ANSWER_BUSY))
            continue;
        for (size_t j = 0; j < b->n; j++)
            same += is(b, j, ANSWER_BUSY)
                    && quorum_same_holder(b->vote[i].op.got.taken.value,
                                          b->vote[j].op.got.taken.value);
        if (same > most) {
            most = same;
            *ret_which = i;
        }
    }
    return most;
}

static size_t first_of(const struct ballot *b, enum answer code)
{
    size_t i = 0;
    while (i < b->n && !is(b, i, code))
        i++;
    return i;
}

/* So many members say this that no majority is left without one of them. */
static bool most_say(const struct ballot *b, enum answer code)
{
    return b->n - count(b, code) < b->majority;
}

/* No majority: whose is it then, or what is in the way? */
static void explain_refusal(struct quorum_op *x)
{
    struct ballot *b = &x->first;
    struct op *op = x->op;
    struct quorum_taking *t = &x->take;
    size_t which = b->n, busy = count(b, ANSWER_BUSY), ours = count(b, ANSWER_YES);
    size_t gone = count(b, ANSWER_GIVEN_UP), silent = b->n - ballot_count(b, VOTE_GIVEN);
    t->late = ours + latecomers(x) >= b->majority;
    if (gone && ours + gone >= b->majority) {
        which = first_of(b, ANSWER_GIVEN_UP); /* with another token it would be ours */
        t->late = false;
    } else if (busy && ours + busy >= b->majority) {
        t->split = strongest(b, &which) + silent < b->majority;
    } else if (most_say(b, ANSWER_WRONG_TYPE)) {
        which = first_of(b, ANSWER_WRONG_TYPE);
    } else if (most_say(b, ANSWER_BAD_COUNTER)) {
        which = first_of(b, ANSWER_BAD_COUNTER);
    }
    if (which < b->n) {
        ballot_steal(b, which);
        return;
    }
    op->result = ballot_fail(b, ours, op->reterr);
    err_known(op->reterr, op->result, t->clean ? HF_KNOWN_UNCHANGED : HF_KNOWN_NOTHING);
}

/* ---- the two phases ----------------------------------------------------------------------- */

/* The first one: all that may vote. */
static void begin_votes(struct quorum_op *x)
{
    struct ballot *b = &x->first;
    int64_t ttl = x->op->take.ttl_ms;
    b->undo = x->undo;
    b->begun_ms = x->op->sent_ms = clock_now_ms();
    x->take.limit_ms = clock_earlier(b->begun_ms + (ttl / 4 > TRY_MIN_MS ? ttl / 4 : TRY_MIN_MS),
                                     x->op->deadline_ms);
    for (size_t i = 0; i < b->n; i++)
        if (!b->vote[i].why[0])
            ballot_ask(b, i);
}

/* The second one, unless a majority has the number already. */
static bool needs_agreement(struct quorum_op *x)
{
    size_t same;
    for (size_t i = 0; i < x->first.n; i++)
        if (is(&x->first, i, ANSWER_YES))
            quorum_gave_number(x->q, i);
    x->take.number = largest(&x->first, &same);
    return same < x->first.majority || clock_now_ms() - quorum_agreed_ms(x->q) > AGREE_MS;
}

static void begin_agreement(struct quorum_op *x)
{
    const struct op_take *t = &x->op->take;
    struct ballot *b = &x->second;
    int64_t limit = clock_now_ms() + TRY_MIN_MS;
    if (limit < x->op->deadline_ms)
        limit = clock_earlier(x->op->deadline_ms, x->first.begun_ms + t->ttl_ms);
    struct op each = { .id = OP_quorum_agree, .deadline_ms = limit, .stop = x->op->stop,
                       .quorum_agree = { .keys = t->keys, .token = t->token,
                                         .fence = x->take.number, .ttl_ms = t->ttl_ms,
                                         .owner = t->owner } };
    ballot_close(&x->first);
    ballot_begin(b, &each, agreed_or_not);
    b->undo = x->undo;
    for (size_t i = 0; i < b->n; i++)
        if (x->first.vote[i].state != VOTE_LOST) /* that one undoes it: it must not count */
            ballot_ask(b, i);
}

static int64_t time_of(const struct op *op)
{
    return op->got.quorum_agreed.server_ms;
}

static void end_agreement(struct quorum_op *x)
{
    struct ballot *b = &x->second;
    struct op *op = x->op;
    quorum_compare(b, time_of, op->take.ttl_ms);
    for (size_t i = 0; i < b->n; i++)
        if (b->vote[i].state == VOTE_OPEN)
            quorum_want_time(x->q, i);
    if (agreed(b) >= b->majority) {
        op->sent_ms = b->begun_ms; /* the lease began anew there */
        quorum_set_agreed(x->q);
    } else {
        op->result = ballot_fail(b, agreed(b), op->reterr);
    }
    ballot_end(b);
}

/* A step: a majority said yes. */
static bool numbered(struct quorum_op *x)
{
    struct quorum_taking *t = &x->take;
    struct op *op = x->op;
    STEP_BEGIN(t->phase);
    if (needs_agreement(x)) {
        begin_agreement(x);
        STEP_UNTIL(t->phase, ballot_wait(&x->second, x->second.deadline_ms));
        end_agreement(x);
        if (op->result) {
            begin_undo(x);
            STEP_UNTIL(t->phase, ballot_wait_for_stragglers(&x->second));
            end_undo(x);
            err_known(op->reterr, op->result, t->clean ? HF_KNOWN_UNCHANGED : HF_KNOWN_NOTHING);
            STEP_RETURN(t->phase);
        }
    }
    op->got.taken = (struct op_taken){ .code = ANSWER_YES, .fence = t->number,
                                       .partial = count(&x->first, ANSWER_YES) < x->first.n };
    STEP_END(t->phase);
}

/* A step: no majority said yes. */
static bool refused(struct quorum_op *x)
{
    struct quorum_taking *t = &x->take;
    STEP_BEGIN(t->phase);
    ballot_be_patient(&x->first);
    STEP_UNTIL(t->phase, ballot_wait_for_stragglers(&x->first)); /* whose it is they may know */
    begin_undo(x);
    STEP_UNTIL(t->phase, ballot_wait_for_stragglers(&x->second));
    end_undo(x);
    explain_refusal(x);
    STEP_END(t->phase);
}

/* A step: one round. */
static bool take_once(struct quorum_op *x)
{
    struct quorum_taking *t = &x->take;
    struct ballot *b = &x->first;
    STEP_BEGIN(t->at);
    t->split = t->late = false;
    ballot_begin(b, x->op, taken_or_not);
    STEP_UNTIL(t->at, voters_found(x));
    if (!x->op->result) {
        begin_votes(x);
        STEP_UNTIL(t->at, ballot_wait(b, t->limit_ms));
        if (count(b, ANSWER_YES) >= b->majority)
            STEP_UNTIL(t->at, numbered(x));
        else
            STEP_UNTIL(t->at, refused(x));
    }
    ballot_end(b);
    STEP_END(t->at);
}

/* ---- again -------------------------------------------------------------------------------- */

/* Whether another round may fare better, and when. A server that is still being connected to has
 * said neither yes nor no: while it could decide, the lock is neither busy nor are there too few
 * servers, and it is asked for again, within the time that the caller has. */
static bool again(struct quorum_op *x)
{
    struct quorum_taking *t = &x->take;
    x->resume_ms = clock_now_ms() + random_between(1, SPLIT_MS << t->round);
    bool more = (t->split && t->round < SPLITS_MAX) || t->late;
    t->round += t->round < PAUSES_MAX;
    return more && x->resume_ms < x->op->deadline_ms && !op_stopped(x->op);
}

bool quorum_acquire(struct quorum_op *x)
{
    struct op *op = x->op;
    STEP_BEGIN(op->run.at);
    quorum_used(x->q, op->take.ttl_ms);
    x->undo = quorum_undo_of(op->take.keys, op->take.token, op->take.owner);
    if (!x->undo) {
        op->result = err_set(op->reterr, HF_ENOMEM, "out of memory");
        STEP_RETURN(op->run.at);
    }
    for (;;) {
        STEP_UNTIL(op->run.at, take_once(x));
        if (!again(x))
            break;
        STEP_UNTIL(op->run.at, ballot_over(op, x->resume_ms, op->stop));
        if (clock_now_ms() >= op->deadline_ms || op_stopped(op))
            break; /* what came of the last round stands */
        op->reply = reply_free(op->reply);
        op->result = HF_OK;
    }
    STEP_END(op->run.at);
}
