/* SPDX-License-Identifier: MIT
 * note.c - telling what has happened: keys and arguments, and what is answered.
 */
#include "op/pack.h"

void pack_note(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_note *n = &op->note;
    command_add(cmd, n->log);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_int(cmd, n->keep);
    command_add_int(cmd, n->ttl_ms);
    command_add_text(cmd, n->channel);
    command_add(cmd, n->message);
    for (size_t i = 0; i < n->fields; i++) {
        command_add_text(cmd, n->field[i].name);
        command_add(cmd, n->field[i].value);
    }
}

bool read_note(struct op *op, const struct reply *rp)
{
    bool done = false;
    if (!read_yes_or_no(rp, &done))
        return false;
    op->got.done.code = done ? ANSWER_YES : ANSWER_NO;
    return true;
}

void pack_past(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->past.log);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, op->past.from);
    command_add_int(cmd, op->past.most);
}

/* {ID, {name, value, ...}}, all of them bytes. */
static bool is_entry(const struct reply *rp)
{
    if (!is_list(rp, 2) || rp->item[0]->type != REPLY_BULK || rp->item[1]->type != REPLY_ARRAY
        || rp->item[1]->len % 2)
        return false;
    for (size_t i = 0; i < rp->item[1]->len; i++)
        if (rp->item[1]->item[i]->type != REPLY_BULK)
            return false;
    return true;
}

bool read_past(struct op *op, const struct reply *rp)
{
    long long first;
    if (!list_code(rp, &first))
        return false;
    if (first == ANSWER_WRONG_TYPE) {
        op->got.entries.code = ANSWER_WRONG_TYPE;
        return rp->len == 1;
    }
    for (size_t i = 1; i < rp->len; i++)
        if (!is_entry(rp->item[i]))
            return false;
    op->got.entries = (struct op_entries){ ANSWER_YES, first, rp };
    return first >= 0;
}
