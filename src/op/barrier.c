/* SPDX-License-Identifier: MIT
 * barrier.c - barriers: their arguments in order, their replies.
 */
#include "op/pack.h"

#include <string.h>

static const char *const mode_names[] = {
    [BARRIER_ARRIVE] = "arrive",
    [BARRIER_TRY] = "try",
    [BARRIER_LOOK] = "look",
};

/* KEYS 1 meeting  2 fencing counter  3 parties  4 listeners  5 done  6 broken  7 absent mark
 * 8 reign  [9 the leaving  10 its parties] */
static size_t add_meeting_keys(struct command *cmd, const struct meeting_keys *at)
{
    const struct scope *s = at->keys->scope;
    command_add(cmd, at->meeting);
    command_add_text(cmd, s->counter);
    command_add(cmd, at->parties);
    command_add(cmd, at->listeners);
    command_add(cmd, at->done);
    command_add(cmd, at->broken);
    command_add(cmd, at->absent);
    command_add_text(cmd, s->reign);
    if (at->leaving.len) {
        command_add(cmd, at->leaving);
        command_add(cmd, at->leaving_parties);
    }
    return pack_keys_end(cmd, s);
}

void pack_barrier_open(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    *ret_keys = add_meeting_keys(cmd, op->barrier.at);
    command_add_int(cmd, op->barrier.parties);
    command_add_text(cmd, op->barrier.token);
}

void pack_barrier_meet(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_barrier *b = &op->barrier;
    *ret_keys = add_meeting_keys(cmd, b->at);
    command_add_int(cmd, (int64_t)b->generation);
    command_add_text(cmd, b->at->phase);
    command_add_text(cmd, b->token);
    command_add_text(cmd, b->member);
    command_add_text(cmd, mode_names[b->mode]);
    command_add_int(cmd, b->remember_ms);
    command_add_int(cmd, b->inside_ms);
}

void pack_barrier_judge(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_barrier *b = &op->barrier;
    *ret_keys = add_meeting_keys(cmd, b->at);
    command_add_int(cmd, (int64_t)b->generation);
    command_add_text(cmd, b->at->phase);
    command_add_text(cmd, b->member);
    command_add_text(cmd, b->absence);
    command_add_int(cmd, b->seen_ms);
}

void pack_barrier_quit(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_barrier *b = &op->barrier;
    *ret_keys = add_meeting_keys(cmd, b->at);
    command_add_int(cmd, (int64_t)b->generation);
    command_add_text(cmd, b->at->phase);
    command_add_text(cmd, b->token);
    command_add_text(cmd, b->member);
    command_add_text(cmd, b->why);
    command_add_int(cmd, b->remember_ms);
    command_add_text(cmd, b->inside ? "1" : "0");
}

/* ---- replies --------------------------------------------------------------------------------- */

/* What follows the code of an answer, a letter for each element: g generation, i index, a how many
 * have arrived, n of how many, t a text, m ms until it breaks. */
struct form {
    enum meet_answer code;
    const char      *rest;
};

/* False: it is not what it should be. */
static bool take(struct op_met *got, char what, const struct reply *rp)
{
    if (what == 't') {
        got->text = (hf_bytes){ rp->str, rp->len };
        return rp->type == REPLY_BULK;
    }
    if (what == 'g')
        got->generation = (uint64_t)rp->num;
    else if (what == 'm')
        got->breaks_ms = rp->num;
    else
        *(what == 'i' ? &got->index : what == 'a' ? &got->arrived : &got->total) = rp->num;
    return rp->type == REPLY_INT && rp->num >= 0;
}

static bool read_form(struct op_met *got, const struct form *f, const struct reply *rp)
{
    size_t n = strlen(f->rest);
    if (rp->type != REPLY_ARRAY || rp->len != n + 1 || rp->item[0]->type != REPLY_INT
        || rp->item[0]->num != f->code)
        return false;
    *got = (struct op_met){ .code = f->code };
    for (size_t i = 0; i < n; i++)
        if (!take(got, f->rest[i], rp->item[i + 1]))
            return false;
    return true;
}

/* One of these; or it is no barrier. */
static bool read_one_of(struct op *op, const struct form *forms, size_t n, const struct reply *rp)
{
    static const struct form wrong[] = { { MEET_WRONG_TYPE, "" }, { MEET_WRONG_TYPE, "t" } };
    for (size_t i = 0; i < n; i++)
        if (read_form(&op->got.met, &forms[i], rp))
            return true;
    return read_form(&op->got.met, &wrong[0], rp) || read_form(&op->got.met, &wrong[1], rp);
}

bool read_barrier_open(struct op *op, const struct reply *rp)
{
    static const struct form forms[] = {
        { MEET_WAIT, "ga" },
        { MEET_CLOSED, "g" },
        { MEET_BAD_COUNTER, "" },
        { MEET_OTHER_PARTIES, "na" },
    };
    return read_one_of(op, forms, sizeof forms / sizeof forms[0], rp);
}

bool read_barrier_meet(struct op *op, const struct reply *rp)
{
    static const struct form forms[] = {
        { MEET_WAIT, "ian" }, { MEET_MISSING, "iant" }, { MEET_MET, "i" },
        { MEET_BROKEN, "t" }, { MEET_OVER, "" },        { MEET_NOT_ALL, "an" },
    };
    return read_one_of(op, forms, sizeof forms / sizeof forms[0], rp);
}

bool read_barrier_judge(struct op *op, const struct reply *rp)
{
    static const struct form forms[] = {
        { MEET_WAIT, "" }, { MEET_MISSING, "tm" }, { MEET_MET, "i" }, { MEET_BROKEN, "t" },
    };
    return read_one_of(op, forms, sizeof forms / sizeof forms[0], rp);
}

bool read_barrier_quit(struct op *op, const struct reply *rp)
{
    static const struct form forms[] = {
        { MEET_CLOSED, "" }, { MEET_MET, "i" }, { MEET_BROKEN, "t" },
    };
    return read_one_of(op, forms, sizeof forms / sizeof forms[0], rp);
}
