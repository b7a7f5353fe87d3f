/* SPDX-License-Identifier: MIT
 * session.c - greeting, the session's record, listing: keys and arguments, and what is answered.
 */
#include "op/pack.h"

void pack_hello(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add_text(cmd, op->hello.scope->counter);
    command_add_text(cmd, op->hello.scope->reign);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, op->hello.channel);
    if (op->hello.look)
        command_add_text(cmd, "look");
}

bool read_hello(struct op *op, const struct reply *rp)
{
    long long code;
    if (!list_code(rp, &code)
        || (code != ANSWER_YES && code != ANSWER_NO && code != ANSWER_BAD_COUNTER
            && code != ANSWER_NO_INFO))
        return false;
    op->got.greeted = (struct op_greeted){ (enum answer)code, number_at(rp, 1), number_at(rp, 2),
                                           number_at(rp, 3) == 1 };
    return true;
}

void pack_record(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_record *r = &op->record;
    command_add(cmd, r->key);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_int(cmd, r->ttl_ms);
    command_add_int(cmd, (int64_t)r->fields);
    for (size_t i = 0; i < r->fields; i++) {
        command_add_text(cmd, r->field[i].name);
        command_add(cmd, r->field[i].value);
    }
    for (size_t i = 0; i < r->entries; i++) {
        command_add_text(cmd, r->entry[i].name);
        command_add_int(cmd, r->entry[i].age_ms);
        command_add_text(cmd, r->entry[i].lease);
    }
}

bool read_record(struct op *op, const struct reply *rp)
{
    op->got.done.code = ANSWER_YES;
    return is_int(rp);
}

void pack_recall(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    command_add(cmd, op->recall.key);
    *ret_keys = pack_keys_end(cmd, NULL);
    for (size_t i = 0; i < op->recall.n; i++)
        command_add_text(cmd, op->recall.field[i]);
}

bool read_recall(struct op *op, const struct reply *rp)
{
    op->got.list.rp = rp;
    return rp->type == REPLY_ARRAY && rp->len % 2 == 0;
}

void pack_scan(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    if (!op->scan.any_server)
        command_add_text(cmd, op->scan.prefix);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, op->scan.cursor);
    command_add_text(cmd, op->scan.pattern);
    command_add_int(cmd, (int64_t)op->scan.longest);
}

bool read_scan(struct op *op, const struct reply *rp)
{
    if (!is_list(rp, 2) || rp->item[0]->type != REPLY_BULK || rp->item[1]->type != REPLY_ARRAY)
        return false;
    op->got.page = (struct op_page){ .cursor = bytes_at(rp, 0), .keys = { rp->item[1] } };
    return true;
}
