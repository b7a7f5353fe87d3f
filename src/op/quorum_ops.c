/* SPDX-License-Identifier: MIT
 * quorum_ops.c - the operations on one server of a quorum: their KEYS and ARGV, and their answers.
 */
#include "op/quorum_ops.h"

#include <string.h>

#include "op/pack.h"

hf_bytes op_line_key(const struct lock_keys *keys, char ret[OP_LINE_KEY_MAX])
{
    hf_bytes queue = keys->key[KEY_QUEUE]; /* the line's name has another last letter */
    size_t len = queue.len <= OP_LINE_KEY_MAX ? queue.len : OP_LINE_KEY_MAX; /* names are shorter */
    memcpy(ret, queue.data, len);
    ret[len - 1] = 'w';
    return (hf_bytes){ ret, len };
}

/* {code} alone: a key holds something else. */
static bool is_refusal(const struct reply *rp, enum answer code)
{
    return reply_is(rp, "i") && reply_num(rp, 0) == code;
}

void pack_quorum_agree(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_quorum_agree *a = &op->quorum_agree;
    command_add(cmd, a->keys->key[KEY_LOCK]);
    command_add_text(cmd, a->keys->scope->counter);
    command_add(cmd, a->keys->key[KEY_OWN]);
    command_add(cmd, a->keys->key[KEY_TOMB]);
    *ret_keys = cmd->args;
    command_add_text(cmd, a->token);
    command_add_int(cmd, (int64_t)a->fence);
    command_add_int(cmd, a->ttl_ms);
    command_add(cmd, a->owner);
    if (a->take)
        command_add_text(cmd, "take");
}

bool read_quorum_agree(struct op *op, const struct reply *rp)
{
    struct op_quorum_agreed *got = &op->got.quorum_agreed;
    if (is_refusal(rp, ANSWER_WRONG_TYPE) || is_refusal(rp, ANSWER_BAD_COUNTER)) {
        got->code = (enum answer)reply_num(rp, 0);
        return true;
    }
    if (!reply_is(rp, "in"))
        return false;
    got->server_ms = reply_num(rp, 0);
    got->before = (uint64_t)reply_num(rp, 1);
    got->code = got->before ? ANSWER_YES : ANSWER_NO;
    return true;
}

void pack_quorum_release(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_quorum_release *l = &op->quorum_release;
    char line[OP_LINE_KEY_MAX];
    command_add(cmd, l->keys->key[KEY_LOCK]);
    command_add(cmd, l->keys->key[KEY_OWN]);
    command_add(cmd, l->keys->key[KEY_TOMB]);
    if (l->tell) {
        command_add(cmd, op_line_key(l->keys, line));
        command_add_text(cmd, l->keys->scope->counter);
    }
    *ret_keys = cmd->args;
    command_add_text(cmd, l->token);
    command_add_int(cmd, l->remember_ms);
    command_add(cmd, l->owner);
}

bool read_quorum_release(struct op *op, const struct reply *rp)
{
    return read_yes_or_no(rp, &op->got.held);
}

void pack_quorum_queue(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_quorum_queue *s = &op->quorum_queue;
    char line[OP_LINE_KEY_MAX];
    command_add(cmd, s->keys->key[KEY_LOCK]);
    command_add(cmd, op_line_key(s->keys, line));
    *ret_keys = cmd->args;
    command_add_text(cmd, s->token);
    command_add_int(cmd, s->waited_ms);
}

bool read_quorum_queue(struct op *op, const struct reply *rp)
{
    struct op_quorum_queued *got = &op->got.quorum_queued;
    if (is_refusal(rp, ANSWER_WRONG_TYPE)) {
        got->code = ANSWER_WRONG_TYPE;
        return true;
    }
    if (!reply_is(rp, "inn"))
        return false;
    got->code = ANSWER_YES;
    got->server_ms = reply_num(rp, 0);
    got->left_ms = reply_num(rp, 1);
    got->before = reply_num(rp, 2);
    return true;
}
