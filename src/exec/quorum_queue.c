/* SPDX-License-Identifier: MIT
 * quorum_queue.c - standing in line for a lock on several servers, of which a majority decides.
 *
 * Each server has a line of its own, a companion of the lock, and tells the first in it when the
 * lock is given back there (quorum_release.lua). That is a hint and no more: who is told asks for
 * the lock as everybody does.
 */
#include "base/mem.h"
#include "exec/quorum_exec.h"
#include "exec/quorum_impl.h"

/* What a member says about our place; NULL: nothing. */
static const struct op_quorum_queued *place(const struct ballot *b, size_t i)
{
    const struct op_quorum_queued *s = &b->vote[i].op.got.quorum_queued;
    return ballot_given(b, i) && s->code == ANSWER_YES ? s : NULL;
}

static size_t places(const struct ballot *b)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += place(b, i) != NULL;
    return count;
}

/* Of a majority that has answered some may be free and some not: then it is free, or not, by those
 * who are still to answer, and they are waited for. Decided: a majority is free; or a majority has
 * answered, and the rest cannot make one that is free. */
static bool looked(const struct ballot *b)
{
    size_t unlocked = 0;
    for (size_t i = 0; i < b->n; i++)
        unlocked += place(b, i) && place(b, i)->left_ms == 0;
    return unlocked >= b->majority
           || (places(b) >= b->majority
               && unlocked + ballot_count(b, VOTE_OPEN) < b->majority);
}

/* The k-th smallest. */
static int64_t kth_smallest(int64_t *number, size_t n, size_t k)
{
    return quorum_kth(number, n, n + 1 - k);
}

/* One answer, made of theirs. */
static void answer(const struct ballot *b, struct op_quorum_queued *ret)
{
    int64_t left[QUORUM_MAX], before[QUORUM_MAX];
    size_t n = 0;
    *ret = (struct op_quorum_queued){ .code = ANSWER_YES };
    for (size_t i = 0; i < b->n; i++) {
        if (!place(b, i))
            continue;
        left[n] = place(b, i)->left_ms;
        before[n] = place(b, i)->before;
        ret->unlocked |= (uint64_t)(left[n] == 0) << i;
        n++;
    }
    ret->left_ms = kth_smallest(left, n, b->majority);
    ret->before = kth_smallest(before, n, b->majority);
}

static int64_t time_of(const struct op *op)
{
    return op->got.quorum_queued.server_ms;
}

bool quorum_stand(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    STEP_BEGIN(op->run.at);
    ballot_begin(b, op, looked);
    STEP_UNTIL(op->run.at, ballot_vote(b));
    ballot_be_patient(b);
    STEP_UNTIL(op->run.at, ballot_wait_for_stragglers(b)); /* nobody is in a hurry */
    quorum_compare(b, time_of, 0);
    op->sent_ms = b->begun_ms;
    if (places(b) >= b->majority)
        answer(b, &op->got.quorum_queued);
    else
        op->result = ballot_fail(b, places(b), op->reterr);
    STEP_END(op->run.at);
}

/* ---- leaving ------------------------------------------------------------------------------ */

static hf_err pack_leave(struct quorum *q, size_t i, const struct op_quorum_release *what,
                         bool granted, struct command *ret)
{
    char line[OP_LINE_KEY_MAX];
    struct op op = { .id = OP_quorum_release, .quorum_release = *what };
    if (!granted)
        return op_pack(&op, !quorum_knows(q, i, OP_quorum_release), ret);
    hf_bytes zrem[] = { hf_str("ZREM"), op_line_key(what->keys, line), hf_str(what->token) };
    return command_make(ret, 3, zrem);
}

void quorum_leave_line(struct quorum *q, const struct lock_keys *keys, const char *token,
                       hf_bytes owner, bool granted)
{
    struct op_quorum_release what = { .keys = keys, .token = token, .owner = owner, .tell = true };
    for (size_t i = 0; i < quorum_size(q); i++) {
        struct command cmd = { 0 };
        struct request *r = mem_zalloc(sizeof *r);
        if (!r || pack_leave(q, i, &what, granted, &cmd)) {
            mem_free(r);
            return;
        }
        r->only_up = true;
        conn_submit(quorum_conn(q, i), r, &cmd, NULL); /* r frees itself */
    }
}
