/* SPDX-License-Identifier: MIT
 * edges.c - which holders wait, and for what: keys and arguments, and what is answered.
 */
#include "op/pack.h"

static void add_keys(struct command *cmd, const struct lock_keys *keys)
{
    command_add(cmd, keys->key[KEY_LOCK]);
    command_add(cmd, keys->key[KEY_QUEUE]);
    command_add(cmd, keys->key[KEY_OWN]);
}

void pack_edge(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_edge *e = &op->edge;
    add_keys(cmd, e->keys);
    *ret_keys = pack_keys_end(cmd, e->keys->scope);
    command_add_text(cmd, e->holder);
    command_add_text(cmd, e->token);
    command_add(cmd, e->key);
    command_add_int(cmd, e->valid_ms);
    command_add_int(cmd, e->waited_ms);
    if (e->since_ms)
        command_add_int(cmd, e->since_ms);
    else
        command_add_text(cmd, "");
}

bool read_edge(struct op *op, const struct reply *rp)
{
    if (!reply_is(rp, "nn"))
        return false;
    op->got.edged = (struct op_edged){ reply_num(rp, 0) == 1, reply_num(rp, 1) };
    return true;
}

void pack_edges(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_edges *e = &op->edges;
    add_keys(cmd, e->keys);
    command_add_text(cmd, e->keys->scope->counter);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_int(cmd, (int64_t)e->from);
    command_add_int(cmd, (int64_t)e->max);
}

bool read_edges(struct op *op, const struct reply *rp)
{
    if (!is_list(rp, 5) || !is_int(rp->item[0]) || !is_int(rp->item[1])
        || rp->item[2]->type != REPLY_ARRAY || rp->item[2]->len % 3 != 0 || !is_int(rp->item[3])
        || rp->item[4]->type != REPLY_ARRAY)
        return false;
    op->got.edges_found = (struct op_edges_found){
        .server_ms = number_at(rp, 0), .limit = number_at(rp, 1), .edges = { rp->item[2] },
        .nwaiters = number_at(rp, 3), .waiters = { rp->item[4] },
    };
    return true;
}
