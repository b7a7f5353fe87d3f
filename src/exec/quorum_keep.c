/* SPDX-License-Identifier: MIT
 * quorum_keep.c - keeping locks on a majority of servers, and taking them again where they were
 * missed.
 *
 * A lock is proven when a majority says in one and the same vote that it is ours: then its lease
 * counts from the sending of that vote. While it is proven nobody else can have a majority, so it
 * may be taken again on members that were away, or came back without it. Without the proof nothing
 * is taken: it would hide a gap.
 */
#include "base/err.h"
#include "exec/quorum_impl.h"

/* What a member says about lock i. */
static enum verdict verdict(const struct ballot *b, size_t member, size_t i)
{
    return ballot_given(b, member) ? b->vote[member].op.keep.verdicts[i] : VERDICT_UNKNOWN;
}

static size_t count(const struct ballot *b, size_t i, enum verdict what)
{
    size_t n = 0;
    for (size_t m = 0; m < b->n; m++)
        n += verdict(b, m, i) == what;
    return n;
}

static enum verdict verdict_of_all(const struct ballot *b, size_t i)
{
    size_t released = count(b, i, VERDICT_RELEASED), broken = count(b, i, VERDICT_BROKEN);
    size_t no = count(b, i, VERDICT_NOT_OURS) + released + broken;
    if (count(b, i, VERDICT_OURS) >= b->majority)
        return VERDICT_OURS;
    if (b->n - no < b->majority)
        return broken     ? VERDICT_BROKEN
               : released ? VERDICT_RELEASED
                          : VERDICT_NOT_OURS;
    return VERDICT_UNKNOWN;
}

static bool known(const struct ballot *b)
{
    for (size_t i = 0; i < b->op->keep.n; i++)
        if (verdict_of_all(b, i) == VERDICT_UNKNOWN)
            return false;
    return true;
}

/* ---- taking again ------------------------------------------------------------------------- */

/* Take a lock where it was missed, if it was: it is proven. False: there is nothing to take. */
static bool take_again(struct quorum_op *x, size_t i)
{
    const struct op_lease *l = &x->op->keep.each[i];
    const struct grant *g = l->grant;
    const struct ballot *kept = &x->first;
    struct ballot *b = &x->second;
    bool missed = verdict_of_all(kept, i) == VERDICT_OURS && count(kept, i, VERDICT_NOT_OURS) > 0;
    if (!missed || !g->fence || l->follower.len
        || !(x->undo = quorum_undo_of(g->keys, g->token, g->owner)))
        return false;
    struct op each = { .id = OP_quorum_agree, .deadline_ms = x->op->deadline_ms,
                       .quorum_agree = { .keys = g->keys, .token = g->token, .fence = g->fence,
                                  .ttl_ms = l->ttl_ms, .owner = g->owner, .take = true } };
    ballot_begin(b, &each, NULL);
    b->undo = x->undo;
    for (size_t m = 0; m < b->n; m++)
        if (verdict(kept, m, i) == VERDICT_NOT_OURS)
            ballot_ask(b, m);
    ballot_be_patient(b);
    return true;
}

static void taken_again(struct quorum_op *x)
{
    struct ballot *b = &x->second;
    for (size_t m = 0; m < b->n; m++)
        if (ballot_given(b, m) && b->vote[m].op.got.quorum_agreed.code == ANSWER_YES)
            log_to(quorum_log(x->q), HF_LOG_INFO,
                   "a lock that was missed on %s was taken there too", quorum_shown(x->q, m));
    ballot_end(b);
    x->undo = quorum_undo_free(x->undo);
}

/* ---- the whole ---------------------------------------------------------------------------- */

/* HF_OK: it can be asked. */
static hf_err check(const struct op *op)
{
    if (op->keep.n > KEEP_MAX)
        return err_set(op->reterr, HF_EINVAL, "too many locks at once");
    for (size_t i = 0; i < op->keep.n; i++)
        if (op->keep.each[i].grant->shared)
            return err_set(op->reterr, HF_ENOTSUP, "not on a quorum: shared locks need one server");
    return HF_OK;
}

static void begin(struct quorum_op *x)
{
    struct ballot *b = &x->first;
    size_t n = x->op->keep.n;
    enum verdict *verdicts = (enum verdict *)(x->vote + 2 * b->n);
    /* Who asks about one lock waits for those who know: some that just came back say no, and may be
     * the first to answer. Of several, one about which too few know must not keep up the others. */
    ballot_begin(b, x->op, x->op->keep.mode == KEEP_RENEW ? quorum_told_by_most : known);
    for (size_t m = 0; m < b->n; m++)
        b->vote[m].op.keep.verdicts = verdicts + m * n;
}

static int64_t time_of(const struct op *op)
{
    return op->got.kept.server_ms;
}

/* All have been heard. False: too few. */
static bool counted(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    bool sets = op->keep.mode == KEEP_SET || op->keep.mode == KEEP_LEAVE;
    op->sent_ms = b->begun_ms;
    op->in_doubt = b->lost + (unsigned)(sets ? ballot_count(b, VOTE_OPEN) : 0);
    quorum_compare(b, time_of, op->keep.n ? op->keep.each[0].ttl_ms : 0);
    ballot_close(b);
    if (quorum_told_by_most(b))
        return true;
    op->result = ballot_fail(b, ballot_count(b, VOTE_GIVEN), op->reterr);
    return false;
}

static void answer(struct quorum_op *x)
{
    struct op *op = x->op;
    for (size_t i = 0; i < op->keep.n; i++)
        op->keep.verdicts[i] = verdict_of_all(&x->first, i);
    /* Each member's clock was compared here; what the keeper compares is ours with ours. */
    op->got.kept.server_ms = (x->first.begun_ms + clock_now_ms()) / 2;
}

bool quorum_keep(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    STEP_BEGIN(op->run.at);
    if ((op->result = check(op)))
        STEP_RETURN(op->run.at);
    begin(x);
    STEP_UNTIL(op->run.at, ballot_vote(b));
    if (op->keep.mode != KEEP_CHECK) { /* they may have missed it, or be those who know */
        ballot_be_patient(b);
        STEP_UNTIL(op->run.at, ballot_wait_for_stragglers(b));
    }
    if (!counted(x))
        STEP_RETURN(op->run.at);
    for (x->keep.lock = 0; x->keep.lock < op->keep.n && op->keep.mode != KEEP_CHECK;
         x->keep.lock++) {
        if (!take_again(x, x->keep.lock))
            continue;
        STEP_UNTIL(op->run.at, ballot_wait_for_stragglers(&x->second));
        taken_again(x);
    }
    answer(x);
    STEP_END(op->run.at);
}
