/* SPDX-License-Identifier: MIT
 * quorum_scan.c - listing what several servers have: one after the other, and in each as SCAN does.
 *
 * The cursor is "MEMBER.FAILED:CURSOR" between the first page and the last. A majority of them
 * knows every lock that is held.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "exec/quorum_impl.h"

static void begin(struct quorum_op *x)
{
    size_t member, failed;
    if (sscanf(x->op->scan.cursor, "%zu.%zu:%31s", &member, &failed, x->scan.cursor) == 3) {
        x->scan.member = member;
        x->scan.failed = failed;
    } else {
        snprintf(x->scan.cursor, sizeof x->scan.cursor, "0");
    }
}

/* Ask one member alone. */
static void ask_one(struct quorum_op *x)
{
    struct op each = *x->op;
    each.scan.cursor = x->scan.cursor;
    ballot_begin(&x->first, &each, quorum_told_by_most);
    ballot_ask(&x->first, x->scan.member);
}

/* It told nothing: the next one, from its beginning. False: a majority cannot be seen any more. */
static bool skip_one(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    if (b->n - ++x->scan.failed < b->majority) {
        op->result = ballot_fail(b, x->scan.member + 1 - x->scan.failed, op->reterr);
        return false;
    }
    ballot_end(b);
    x->scan.member++;
    snprintf(x->scan.cursor, sizeof x->scan.cursor, "0");
    return true;
}

/* Where the next page begins: on this member or on the next; 0: there is none. */
static void next_page(const struct quorum_op *x, char ret[64])
{
    const struct ballot *b = &x->first;
    size_t member = x->scan.member;
    snprintf(ret, 64, "0");
    if (member >= b->n)
        return;
    hf_bytes cursor = b->vote[member].op.got.page.cursor;
    bool whole = quorum_same_bytes(cursor, hf_str("0"));
    if (!whole)
        snprintf(ret, 64, "%zu.%zu:%.*s", member, x->scan.failed,
                 (int)(cursor.len < 20 ? cursor.len : 20), (const char *)cursor.data);
    else if (member + 1 < b->n)
        snprintf(ret, 64, "%zu.%zu:0", member + 1, x->scan.failed);
}

/* The keys as the member told them, behind a cursor of our own. */
static void page_answer(struct quorum_op *x)
{
    struct op *op = x->op;
    char next[64];
    next_page(x, next);
    struct reply *both = reply_array(2);
    if (!both || !(both->item[0] = reply_bytes(next, strlen(next)))) {
        reply_free(both);
        op->result = err_set(op->reterr, HF_ENOMEM, "out of memory");
        return;
    }
    op->got.page.keys.rp = NULL;
    if (x->scan.member < x->first.n)
        ballot_steal(&x->first, x->scan.member);
    both->item[1] = op->reply;
    op->reply = both;
    op->got.page.cursor = (hf_bytes){ both->item[0]->str, both->item[0]->len };
}

bool quorum_scan(struct quorum_op *x)
{
    struct op *op = x->op;
    struct ballot *b = &x->first;
    STEP_BEGIN(op->run.at);
    begin(x);
    while (x->scan.member < b->n) {
        ask_one(x);
        STEP_UNTIL(op->run.at, ballot_wait(b, b->deadline_ms));
        if (ballot_given(b, x->scan.member))
            break;
        if (!skip_one(x))
            STEP_RETURN(op->run.at);
    }
    page_answer(x);
    STEP_END(op->run.at);
}
