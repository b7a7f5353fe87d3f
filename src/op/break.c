/* SPDX-License-Identifier: MIT
 * break.c - telling a holder to let go, and asking it to: keys and arguments, and what is answered.
 */
#include "op/pack.h"

void pack_break(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    static const char *const mode[] = { [BREAK_MARK] = "mark", [BREAK_LOOK] = "look",
                                        [BREAK_NOW] = "now" };
    const struct op_break *b = &op->breaking;
    command_add(cmd, b->keys->key[KEY_LOCK]);
    command_add_text(cmd, b->keys->scope->counter);
    command_add(cmd, b->keys->key[KEY_QUEUE]);
    command_add_text(cmd, b->keys->scope->reign);
    command_add(cmd, b->keys->key[KEY_ABSENT]);
    command_add(cmd, b->keys->key[KEY_OWN]);
    command_add(cmd, b->keys->key[KEY_TOMB]);
    *ret_keys = pack_keys_end(cmd, b->keys->scope);
    command_add_text(cmd, mode[b->mode]);
    command_add_int(cmd, (int64_t)b->fence);
    command_add_text(cmd, b->by);
    command_add_text(cmd, b->why);
    command_add(cmd, b->value);
    command_add_int(cmd, b->remember_ms);
    command_add_text(cmd, b->token);
    for (size_t i = 0; i < b->n; i++) {
        command_add(cmd, b->absences[i].id);
        command_add_int(cmd, b->absences[i].seen_ms);
    }
}

static bool is_answer(long long what)
{
    return what == BREAK_NOT_A_LOCK || (what >= BREAK_FREE && what <= BREAK_GONE);
}

bool read_break(struct op *op, const struct reply *rp)
{
    long long what, present = number_at(rp, 3);
    if (!is_list(rp, 7) || !list_code(rp, &what) || !is_answer(what)
        || rp->item[5]->type != REPLY_ARRAY)
        return false;
    op->got.broken = (struct op_broken){
        .what = (enum break_answer)what, .left_ms = number_at(rp, 1),
        .fence = fence_at(rp, 2), .present = present == 0 || present == 1 ? (int)present : -1,
        .told = number_at(rp, 4) == 1, .absences = { rp->item[5] }, .token = bytes_at(rp, 6),
    };
    return true;
}

void pack_ask(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_ask *a = &op->ask;
    command_add(cmd, a->keys->key[KEY_LOCK]);
    command_add_text(cmd, a->keys->scope->counter);
    command_add(cmd, a->keys->key[KEY_QUEUE]);
    command_add(cmd, a->keys->key[KEY_OWN]);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_int(cmd, (int64_t)a->fence);
    command_add_text(cmd, a->by);
    command_add_text(cmd, a->text);
}

bool read_ask(struct op *op, const struct reply *rp)
{
    long long what;
    if (!is_list(rp, 3) || !list_code(rp, &what) || !is_answer(what))
        return false;
    op->got.asked = (struct op_asked){ (enum break_answer)what, number_at(rp, 1),
                                       number_at(rp, 2) };
    return true;
}
