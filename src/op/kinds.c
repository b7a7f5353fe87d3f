/* SPDX-License-Identifier: MIT
 * kinds.c - latches, elections, sequences, values, guards: their arguments in order, their replies.
 */
#include "op/pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS_MAX 19 /* of a number that strtoull() takes for certain */

static void add_number(struct command *cmd, uint64_t n)
{
    command_add_int(cmd, (int64_t)n);
}

static void add_flag(struct command *cmd, bool on)
{
    command_add_text(cmd, on ? "1" : "0");
}

/* ---- what several of them answer ------------------------------------------------------------- */

static bool is_number(const struct reply *rp, long long n)
{
    return rp->type == REPLY_INT && rp->num == n;
}

/* {code} and nothing else. */
static bool is_code(const struct reply *rp, enum answer code)
{
    return reply_is(rp, "i") && reply_num(rp, 0) == code;
}

/* 1 or 0, or with may_be_wrong {-3}. */
static bool read_done(struct op *op, const struct reply *rp, bool may_be_wrong)
{
    op->got.done.code = is_number(rp, 1) ? ANSWER_YES
                        : is_number(rp, 0) ? ANSWER_NO : ANSWER_WRONG_TYPE;
    return op->got.done.code != ANSWER_WRONG_TYPE
           || (may_be_wrong && is_code(rp, ANSWER_WRONG_TYPE));
}

/* ---- latches --------------------------------------------------------------------------------- */

/* KEYS 1 latch  2 fencing counter  3 listeners  4 done */
static size_t add_latch_keys(struct command *cmd, const struct op_latch *l)
{
    command_add(cmd, l->keys->key[KEY_LOCK]);
    command_add_text(cmd, l->keys->scope->counter);
    command_add(cmd, l->listeners);
    command_add(cmd, l->done);
    return pack_keys_end(cmd, l->keys->scope);
}

void pack_latch_set(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_latch *l = &op->latch;
    *ret_keys = add_latch_keys(cmd, l);
    command_add_text(cmd, l->token);
    add_number(cmd, l->count);
    command_add_int(cmd, l->ttl_ms);
    command_add_int(cmd, l->remember_ms);
    add_flag(cmd, l->reset);
}

void pack_latch_down(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_latch *l = &op->latch;
    *ret_keys = add_latch_keys(cmd, l);
    command_add_text(cmd, l->token);
    add_number(cmd, l->count);
    command_add_int(cmd, l->ttl_ms);
    command_add_int(cmd, l->remember_ms);
}

void pack_latch_look(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_latch *l = &op->latch;
    *ret_keys = add_latch_keys(cmd, l);
    command_add_text(cmd, l->token);
    add_number(cmd, l->generation);
    command_add_int(cmd, l->ttl_ms);
}

/* {-3, value or nothing} */
static bool read_no_latch(struct op *op, const struct reply *rp)
{
    bool value = reply_is(rp, "ib");
    if (!(value || reply_is(rp, "i")) || reply_num(rp, 0) != ANSWER_WRONG_TYPE)
        return false;
    op->got.latched = (struct op_latched){ .code = ANSWER_WRONG_TYPE };
    if (value)
        op->got.latched.value = reply_str(rp, 1);
    return true;
}

bool read_latch_set(struct op *op, const struct reply *rp)
{
    struct op_latched *got = &op->got.latched;
    *got = (struct op_latched){ .code = ANSWER_YES };
    if (is_number(rp, 1))
        return true;
    if (reply_is(rp, "inn") && reply_num(rp, 0) == ANSWER_BUSY) {
        *got = (struct op_latched){ .code = ANSWER_BUSY, .left = (uint64_t)reply_num(rp, 1),
                                    .total = (uint64_t)reply_num(rp, 2) };
        return true;
    }
    got->code = ANSWER_BAD_COUNTER;
    return is_code(rp, ANSWER_BAD_COUNTER) || read_no_latch(op, rp);
}

bool read_latch_down(struct op *op, const struct reply *rp)
{
    struct op_latched *got = &op->got.latched;
    *got = (struct op_latched){ .code = ANSWER_BUSY };
    if (rp->type == REPLY_INT && rp->num >= 0) {
        *got = (struct op_latched){ .code = ANSWER_YES, .left = (uint64_t)rp->num };
        return true;
    }
    return is_code(rp, ANSWER_BUSY) || read_no_latch(op, rp);
}

bool read_latch_look(struct op *op, const struct reply *rp)
{
    struct op_latched *got = &op->got.latched;
    *got = (struct op_latched){ .code = ANSWER_BUSY };
    if (reply_is(rp, "nnn")) {
        *got = (struct op_latched){ .code = ANSWER_YES, .left = (uint64_t)reply_num(rp, 0),
                                    .total = (uint64_t)reply_num(rp, 1),
                                    .generation = (uint64_t)reply_num(rp, 2) };
        return true;
    }
    if (reply_is(rp, "in") && reply_num(rp, 0) == ANSWER_GIVEN_UP) {
        *got = (struct op_latched){ .code = ANSWER_GIVEN_UP,
                                    .generation = (uint64_t)reply_num(rp, 1) };
        return true;
    }
    return is_code(rp, ANSWER_BUSY) || read_no_latch(op, rp);
}

/* ---- elections ------------------------------------------------------------------------------- */

void pack_proclaim(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_proclaim *p = &op->proclaim;
    char begins[GRANT_TEXT_SIZE];
    command_add(cmd, p->keys->key[KEY_LOCK]);
    command_add(cmd, p->value_key);
    command_add_text(cmd, p->keys->scope->counter);
    command_add(cmd, p->listeners);
    *ret_keys = pack_keys_end(cmd, p->keys->scope);
    snprintf(begins, sizeof begins, "%s:%llu:", p->token, (unsigned long long)p->term);
    command_add_text(cmd, begins);
    add_number(cmd, p->term);
    if (!p->value)
        return;
    add_number(cmd, p->nth);
    command_add(cmd, *p->value);
}

bool read_proclaim(struct op *op, const struct reply *rp)
{
    return read_done(op, rp, true);
}

void pack_leader(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_leader *l = &op->leader;
    command_add(cmd, l->keys->key[KEY_LOCK]);
    command_add(cmd, l->value_key);
    command_add(cmd, l->listeners);
    *ret_keys = pack_keys_end(cmd, NULL);
    add_number(cmd, l->longest);
    if (l->token)
        command_add_text(cmd, l->token);
}

bool read_leader(struct op *op, const struct reply *rp)
{
    struct op_led *got = &op->got.led;
    bool nobody = is_code(rp, ANSWER_NO);
    *got = (struct op_led){ .code = nobody ? ANSWER_NO : ANSWER_WRONG_TYPE };
    if (nobody || is_code(rp, ANSWER_WRONG_TYPE))
        return true;
    if (!reply_is(rp, "ibinnb") || reply_num(rp, 0) != ANSWER_YES)
        return false;
    *got = (struct op_led){ .code = ANSWER_YES, .lock = reply_str(rp, 1),
                            .left_ms = reply_num(rp, 2), .server_ms = reply_num(rp, 3),
                            .has_value = reply_num(rp, 4) == 1, .value = reply_str(rp, 5) };
    return true;
}

void pack_unlisten(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->unlisten.listeners);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, op->unlisten.token);
}

bool read_unlisten(struct op *op, const struct reply *rp)
{
    return read_done(op, rp, false);
}

/* ---- sequences ------------------------------------------------------------------------------- */

void pack_sequence(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_sequence *s = &op->sequence;
    command_add(cmd, s->key);
    *ret_keys = pack_keys_end(cmd, NULL);
    add_number(cmd, s->count);
    add_number(cmd, s->first);
    add_number(cmd, s->seen);
    add_flag(cmd, s->timed);
}

/* A block of the size that was asked for, above all that was seen. */
static bool is_block(const struct op_sequence *s, const struct reply *rp)
{
    if (!reply_is(rp, "nn"))
        return false;
    uint64_t first = (uint64_t)reply_num(rp, 0), last = (uint64_t)reply_num(rp, 1);
    return first > s->seen && last == first + s->count - 1;
}

bool read_sequence(struct op *op, const struct reply *rp)
{
    struct op_numbers *got = &op->got.numbers;
    *got = (struct op_numbers){ .code = ANSWER_WRONG_TYPE };
    if (is_block(&op->sequence, rp)) {
        *got = (struct op_numbers){ .code = ANSWER_YES, .first = (uint64_t)reply_num(rp, 0),
                                    .last = (uint64_t)reply_num(rp, 1) };
        return true;
    }
    if (reply_is(rp, "ib") && reply_num(rp, 0) == ANSWER_USED_UP) {
        const char *largest = reply_str(rp, 1).data;
        size_t digits = strspn(largest, "0123456789");
        *got = (struct op_numbers){ .code = ANSWER_USED_UP,
                                    .largest = strtoull(largest, NULL, 10) };
        return digits > 0 && digits <= DIGITS_MAX && digits == reply_str(rp, 1).len;
    }
    return is_code(rp, ANSWER_WRONG_TYPE);
}

/* ---- values ---------------------------------------------------------------------------------- */

void pack_store(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_store *s = &op->store;
    command_add(cmd, s->keys->key[KEY_LOCK]);
    command_add(cmd, s->keys->key[KEY_OWN]);
    command_add(cmd, s->value_key);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add(cmd, s->id);
    add_number(cmd, s->fence);
    command_add_int(cmd, s->fresh_ms);
    command_add_int(cmd, s->keep_ms);
    command_add(cmd, s->value);
}

bool read_store(struct op *op, const struct reply *rp)
{
    return read_done(op, rp, true);
}

void pack_value(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->value.key);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, op->value.drop ? "drop" : "get");
    add_number(cmd, op->value.longest);
}

bool read_value(struct op *op, const struct reply *rp)
{
    struct op_found *got = &op->got.found;
    bool nothing = is_code(rp, ANSWER_NO);
    *got = (struct op_found){ .code = nothing ? ANSWER_NO : ANSWER_WRONG_TYPE };
    if (nothing || is_code(rp, ANSWER_WRONG_TYPE))
        return true;
    if (!reply_is(rp, "ibni") || reply_num(rp, 0) != ANSWER_YES)
        return false;
    *got = (struct op_found){ .code = ANSWER_YES, .value = reply_str(rp, 1),
                              .age_ms = reply_num(rp, 2), .fresh_ms = reply_num(rp, 3) };
    return true;
}

void pack_resolve(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->resolve.mark);
    *ret_keys = pack_keys_end(cmd, NULL);
    add_number(cmd, op->resolve.number);
    command_add_int(cmd, op->resolve.remember_ms);
}

bool read_resolve(struct op *op, const struct reply *rp)
{
    return read_done(op, rp, false);
}

/* ---- guards and counters --------------------------------------------------------------------- */

void pack_guard(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_guard *g = &op->guard;
    command_add(cmd, g->guard);
    if (g->value)
        command_add(cmd, g->key);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, g->fence);
    if (g->value)
        command_add(cmd, *g->value);
}

bool read_guard(struct op *op, const struct reply *rp)
{
    struct op_guarded *got = &op->got.guarded;
    bool accepted = is_number(rp, 1);
    *got = (struct op_guarded){ .code = accepted ? ANSWER_YES : ANSWER_WRONG_TYPE };
    if (accepted || is_code(rp, ANSWER_WRONG_TYPE))
        return true;
    if (!reply_is(rp, "ib") || reply_num(rp, 0) != ANSWER_BUSY)
        return false;
    *got = (struct op_guarded){ .code = ANSWER_BUSY, .newest = reply_str(rp, 1) };
    return true;
}

void pack_repair(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->repair.counter);
    command_add(cmd, op->repair.reign);
    command_add(cmd, op->repair.aside);
    *ret_keys = pack_keys_end(cmd, NULL);
}

bool read_repair(struct op *op, const struct reply *rp)
{
    return read_done(op, rp, false);
}
