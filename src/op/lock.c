/* SPDX-License-Identifier: MIT
 * lock.c - the operations on a lock: their keys and arguments, and what is answered.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "op/pack.h"

static void add_key(struct command *cmd, const struct lock_keys *keys, enum lock_key which)
{
    command_add(cmd, keys->key[which]);
}

/* The lock, the counter and the queue: for what hands on. How many. */
static size_t add_queue_keys(struct command *cmd, const struct lock_keys *keys)
{
    add_key(cmd, keys, KEY_LOCK);
    command_add_text(cmd, keys->scope->counter);
    add_key(cmd, keys, KEY_QUEUE);
    return pack_keys_end(cmd, keys->scope);
}

/* And its tombstones and own key: for what is about a token. */
static size_t add_all_keys(struct command *cmd, const struct lock_keys *keys)
{
    add_key(cmd, keys, KEY_LOCK);
    command_add_text(cmd, keys->scope->counter);
    add_key(cmd, keys, KEY_QUEUE);
    add_key(cmd, keys, KEY_TOMB);
    add_key(cmd, keys, KEY_OWN);
    return pack_keys_end(cmd, keys->scope);
}

/* The scripts that are asked most often build the names of the companions themselves where they
 * can: not in a cluster, where the names tell the server what has to be there, nor where a name is
 * escaped. And they know the counter of the prefix that is used if nobody chose one. */
static bool names_built(const struct lock_keys *keys)
{
    return keys->braced && !keys->scope->nothing;
}

static size_t add_lock_keys(struct command *cmd, const struct lock_keys *keys)
{
    add_key(cmd, keys, KEY_LOCK);
    if (strcmp(keys->scope->counter, "lock:holdfast:fence") != 0)
        command_add_text(cmd, keys->scope->counter);
    return cmd->args;
}

/* ---- taking ------------------------------------------------------------------------------- */

size_t op_member(const struct op_take *t, char ret[OP_MEMBER_MAX])
{
    char share[32] = "";
    if (t->weight)
        snprintf(share, sizeof share, "/%u.%u", t->limit, t->weight);
    int n = snprintf(ret, OP_MEMBER_MAX, "%s:%lld:%lld:%s%s:", t->token, (long long)t->grace_ms,
                     (long long)t->claim_ms, t->nonce, share);
    if (t->owner.len)
        memcpy(ret + n, t->owner.data, t->owner.len);
    return (size_t)n + t->owner.len;
}

/* What of the arguments of acquire.lua is used: the rest need not be sent. */
void pack_acquire(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_take *t = &op->take;
    int64_t ticket = t->claim_ms ? (int64_t)t->ticket : 0;
    *ret_keys = names_built(t->keys) ? add_lock_keys(cmd, t->keys) : add_all_keys(cmd, t->keys);
    command_add_text(cmd, t->token);
    command_add_int(cmd, t->ttl_ms);
    command_add_int(cmd, t->grace_ms);
    if (!t->claim_ms && !t->owner.len && !t->mend)
        return;
    command_add_int(cmd, t->claim_ms);
    command_add_text(cmd, t->claim_ms ? t->nonce : "");
    if (!ticket && !t->owner.len && t->mend == (t->claim_ms > 0))
        return;
    command_add_int(cmd, t->mend);
    if (!ticket && !t->owner.len)
        return;
    command_add_int(cmd, ticket);
    command_add(cmd, t->owner);
}

void pack_share(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_take *t = &op->take;
    add_key(cmd, t->keys, KEY_LOCK);
    command_add_text(cmd, t->keys->scope->counter);
    add_key(cmd, t->keys, KEY_QUEUE);
    add_key(cmd, t->keys, KEY_TOMB);
    *ret_keys = pack_keys_end(cmd, t->keys->scope);
    command_add_text(cmd, t->token);
    command_add_int(cmd, t->ttl_ms);
    command_add_int(cmd, t->grace_ms);
    command_add_int(cmd, t->claim_ms);
    command_add_int(cmd, t->claim_ms ? (int64_t)t->ticket : 0);
    command_add_int(cmd, t->limit);
    command_add_int(cmd, t->weight);
    command_add_text(cmd, t->nonce);
    if (t->mend)
        command_add_int(cmd, 1);
}

static bool is_refusal(long long code)
{
    return code >= ANSWER_NOT_A_TIMESTAMP && code <= ANSWER_BUSY;
}

bool read_acquire(struct op *op, const struct reply *rp)
{
    struct op_taken *got = &op->got.taken;
    long long code;
    *got = (struct op_taken){ .code = ANSWER_YES };
    if (is_int(rp) && rp->num > 0) {
        got->fence = (uint64_t)rp->num;
        return true;
    }
    if (!list_code(rp, &code) || !is_refusal(code))
        return false;
    got->code = (enum answer)code;
    if (code == ANSWER_BUSY) {
        got->left_ms = number_at(rp, 1);
        got->value = bytes_at(rp, 2);
        got->ticket = fence_at(rp, 3);
    } else if (code == ANSWER_HANDED_OVER) {
        got->fence = fence_at(rp, 1);
    } else {
        got->limit = number_at(rp, 1);
    }
    return true;
}

bool read_share(struct op *op, const struct reply *rp)
{
    return read_acquire(op, rp);
}

void pack_acquire_all(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_acquire_all *all = &op->acquire_all;
    command_add_text(cmd, all->each[0].keys->scope->counter);
    for (size_t i = 0; i < all->n; i++) {
        add_key(cmd, all->each[i].keys, KEY_LOCK);
        add_key(cmd, all->each[i].keys, KEY_QUEUE);
        add_key(cmd, all->each[i].keys, KEY_TOMB);
    }
    *ret_keys = pack_keys_end(cmd, all->each[0].keys->scope);
    for (size_t i = 0; i < all->n; i++) {
        const struct op_take *t = &all->each[i];
        command_add_text(cmd, t->token);
        command_add_int(cmd, t->ttl_ms);
        command_add_int(cmd, t->grace_ms);
        command_add(cmd, t->owner);
        command_add_int(cmd, t->limit);
        command_add_int(cmd, t->weight);
    }
}

static bool all_ints(const struct reply *rp)
{
    for (size_t i = 0; i < rp->len; i++)
        if (!is_int(rp->item[i]))
            return false;
    return true;
}

bool read_acquire_all(struct op *op, const struct reply *rp)
{
    const struct op_acquire_all *all = &op->acquire_all;
    struct op_all_taken *got = &op->got.all_taken;
    long long code, which = number_at(rp, 1);
    if (!list_code(rp, &code) || !all_ints(rp))
        return false;
    *got = (struct op_all_taken){ .code = ANSWER_YES };
    if (code > 0) {
        bool whole = rp->len == all->n;
        for (size_t i = 0; whole && i < all->n; i++) {
            all->fences[i] = fence_at(rp, i);
            whole = all->fences[i] > 0;
        }
        return whole;
    }
    if (!is_refusal(code) || which < 1 || (size_t)which > all->n)
        return false;
    *got = (struct op_all_taken){ (enum answer)code, (size_t)which - 1, number_at(rp, 2) };
    return true;
}

/* ---- giving back -------------------------------------------------------------------------- */

bool read_yes_or_no(const struct reply *rp, bool *ret)
{
    *ret = is_int(rp) && rp->num == 1;
    return is_int(rp);
}

void pack_release(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct grant *g = op->release.grant;
    char text[GRANT_TEXT_SIZE];
    hf_bytes value, own;
    grant_values(g, text, &value, &own);
    if (names_built(g->keys)) {
        *ret_keys = add_lock_keys(cmd, g->keys);
    } else {
        add_key(cmd, g->keys, KEY_LOCK);
        command_add_text(cmd, g->keys->scope->counter);
        add_key(cmd, g->keys, KEY_QUEUE);
        add_key(cmd, g->keys, KEY_OWN);
        *ret_keys = pack_keys_end(cmd, g->keys->scope);
    }
    command_add(cmd, value);
    if (g->owner.len)
        command_add(cmd, own);
}

bool read_release(struct op *op, const struct reply *rp)
{
    return read_yes_or_no(rp, &op->got.held);
}

void pack_unshare(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct grant *g = op->release.grant;
    *ret_keys = add_queue_keys(cmd, g->keys);
    command_add_text(cmd, g->token);
}

bool read_unshare(struct op *op, const struct reply *rp)
{
    return read_yes_or_no(rp, &op->got.held);
}

void pack_downgrade(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct grant *g = op->downgrade.grant;
    char text[GRANT_TEXT_SIZE];
    hf_bytes value, own;
    grant_values(g, text, &value, &own);
    *ret_keys = add_queue_keys(cmd, g->keys);
    command_add_text(cmd, g->token);
    command_add(cmd, value);
    command_add_int(cmd, op->downgrade.ttl_ms);
}

bool read_downgrade(struct op *op, const struct reply *rp)
{
    char **note = op->downgrade.note;
    if (rp->type != REPLY_BULK || !op_note_is(rp->str, "break"))
        return read_yes_or_no(rp, &op->got.held);
    op->got.held = false;
    if (note && !*note)
        *note = mem_copy(rp->str, rp->len);
    return true;
}

hf_bytes op_cancel_member(const struct op_cancel *c, char text[OP_MEMBER_MAX])
{
    return c->place ? (hf_bytes){ text, op_member(c->place, text) } : c->member;
}

void pack_cancel(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_cancel *c = &op->cancel;
    char member[OP_MEMBER_MAX];
    *ret_keys = add_all_keys(cmd, c->keys);
    command_add_text(cmd, c->token);
    command_add_int(cmd, c->remember_ms);
    command_add(cmd, op_cancel_member(c, member));
    command_add(cmd, c->owner);
}

bool read_cancel(struct op *op, const struct reply *rp)
{
    return read_yes_or_no(rp, &op->got.held);
}

/* ---- keeping ------------------------------------------------------------------------------ */

/* In the place of own there may be a key that lasts as long as the lock. */
void pack_keep(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    static const char *const mode[] = { [KEEP_RENEW] = "renew", [KEEP_SET] = "set",
                                        [KEEP_LEAVE] = "leave", [KEEP_CHECK] = "check" };
    const struct op_keep *k = &op->keep;
    for (size_t i = 0; i < k->n; i++) {
        const struct op_lease *l = &k->each[i];
        add_key(cmd, l->grant->keys, KEY_LOCK);
        command_add(cmd, l->follower.len ? l->follower : l->grant->keys->key[KEY_OWN]);
        add_key(cmd, l->grant->keys, KEY_TOMB);
        add_key(cmd, l->grant->keys, KEY_ABSENT);
    }
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, mode[k->mode]);
    for (size_t i = 0; i < k->n; i++) {
        const struct op_lease *l = &k->each[i];
        char text[GRANT_TEXT_SIZE];
        hf_bytes value, own;
        grant_values(l->grant, text, &value, &own);
        if (l->grant->shared) { /* under this number and no other, which anybody may have told us */
            snprintf(text, sizeof text, "shared.%llu", (unsigned long long)l->grant->fence);
            value = hf_str(text);
        }
        command_add_text(cmd, l->grant->token);
        command_add(cmd, value);
        command_add(cmd, l->follower.len ? hf_str("+") : own);
        command_add_int(cmd, l->ttl_ms);
    }
}

bool op_note_is(const char *note, const char *kind)
{
    size_t n = strlen(kind);
    return note && strncmp(note, kind, n) == 0 && note[n] == ' ';
}

void op_keep_note(const struct op_keep *k, size_t i, hf_bytes text)
{
    if (!k->notes || op_note_is(k->notes[i], "break"))
        return;
    char *copy = mem_copy(text.data, text.len);
    if (!copy) /* without memory there is none */
        return;
    mem_free(k->notes[i]);
    k->notes[i] = copy;
}

static void read_word(const struct op_keep *k, long long which, const struct reply *text)
{
    if (which >= 1 && (size_t)which <= k->n && text->str)
        op_keep_note(k, (size_t)which - 1, (hf_bytes){ text->str, text->len });
}

bool read_keep(struct op *op, const struct reply *rp)
{
    const struct op_keep *k = &op->keep;
    if (rp->type != REPLY_ARRAY || rp->len < k->n + 1)
        return false;
    for (size_t i = 0; i <= k->n; i++)
        if (!is_int(rp->item[i]))
            return false;
    op->got.kept.server_ms = rp->item[0]->num;
    for (size_t i = 0; i < k->n; i++) {
        long long v = rp->item[i + 1]->num;
        k->verdicts[i] = v >= VERDICT_OURS && v <= VERDICT_BROKEN ? (enum verdict)v
                                                                  : VERDICT_NOT_OURS;
    }
    for (size_t i = k->n + 1; i + 1 < rp->len; i += 2)
        read_word(k, number_at(rp, i), rp->item[i + 1]);
    return true;
}

/* Those that are shared come behind the others. */
void pack_held(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_held *h = &op->held;
    for (int shared = 0; shared < 2; shared++) {
        for (size_t i = 0; i < h->n; i++) {
            if (h->each[i]->shared != shared)
                continue;
            add_key(cmd, h->each[i]->keys, KEY_LOCK);
            if (shared)
                add_key(cmd, h->each[i]->keys, KEY_OWN);
        }
    }
    *ret_keys = pack_keys_end(cmd, NULL);
    for (int shared = 0; shared < 2; shared++) {
        for (size_t i = 0; i < h->n; i++) {
            char text[GRANT_TEXT_SIZE];
            hf_bytes value, own;
            if (h->each[i]->shared != shared)
                continue;
            grant_values(h->each[i], text, &value, &own);
            command_add(cmd, shared ? hf_str(h->each[i]->token) : value);
        }
    }
}

bool read_held(struct op *op, const struct reply *rp)
{
    const struct op_held *h = &op->held;
    long long place = 0;
    size_t next = 0;
    if (rp->type != REPLY_ARRAY || !all_ints(rp))
        return false;
    for (int shared = 0; shared < 2; shared++) {
        for (size_t i = 0; i < h->n; i++) {
            if (h->each[i]->shared != shared)
                continue;
            place++;
            h->odd[i] = next < rp->len && rp->item[next]->num == place;
            next += h->odd[i];
        }
    }
    op->got.done.code = ANSWER_YES;
    return next == rp->len;
}

void pack_hold_key(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    static const char *const mode[] = { [HOLD_RENEW] = "renew", [HOLD_CHECK] = "check",
                                        [HOLD_FREE] = "free", [HOLD_UNMARK] = "unmark" };
    static const char *const what[] = { [HOLD_VALUE] = "value", [HOLD_KIND] = "kind",
                                        [HOLD_MEMBER] = "member", [HOLD_ANY] = "any" };
    const struct op_hold_key *h = &op->hold_key;
    command_add(cmd, h->key);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_text(cmd, mode[h->mode]);
    command_add_text(cmd, what[h->what]);
    command_add(cmd, h->text);
    command_add_int(cmd, h->ttl_ms);
    if (h->breaks.len || h->own_key.len) {
        command_add(cmd, h->breaks);
        command_add_int(cmd, (int64_t)h->fence);
    }
    if (h->own_key.len) {
        command_add(cmd, h->own_key);
        command_add(cmd, h->own);
    }
}

bool read_hold_key(struct op *op, const struct reply *rp)
{
    if (rp->type != REPLY_ARRAY || rp->len < 2 || !is_int(rp->item[0]) || !is_int(rp->item[1]))
        return false;
    bool broken = rp->item[1]->num == VERDICT_BROKEN;
    if (rp->len != (broken ? 3 : 2) || (broken && (!rp->item[2]->str || !rp->item[2]->len)))
        return false;
    op->got.key_held = (struct op_key_held){ .server_ms = rp->item[0]->num,
                                             .held = rp->item[1]->num == 1 };
    if (broken)
        op->got.key_held.broken = bytes_at(rp, 2);
    return true;
}

/* ---- waiting and looking ------------------------------------------------------------------ */

void pack_look(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    const struct op_look *l = &op->look;
    char member[OP_MEMBER_MAX];
    add_key(cmd, l->keys, KEY_LOCK);
    command_add_text(cmd, l->keys->scope->counter);
    add_key(cmd, l->keys, KEY_QUEUE);
    command_add_text(cmd, l->keys->scope->reign);
    add_key(cmd, l->keys, KEY_ABSENT);
    add_key(cmd, l->keys, KEY_OWN);
    *ret_keys = pack_keys_end(cmd, l->keys->scope);
    command_add(cmd, (hf_bytes){ member, op_member(l->place, member) });
    command_add_int(cmd, l->mend);
    for (size_t i = 0; i < l->n; i++) {
        command_add(cmd, l->absences[i].id);
        command_add_int(cmd, l->absences[i].seen_ms);
    }
}

bool read_look(struct op *op, const struct reply *rp)
{
    long long what;
    if (!is_list(rp, 5) || !list_code(rp, &what) || what < LOOK_WAIT || what > LOOK_OURS
        || !is_int(rp->item[1]) || rp->item[3]->type != REPLY_ARRAY)
        return false;
    bool ours = what == LOOK_OURS;
    op->got.looked = (struct op_looked){ .what = (enum look_answer)what,
                                         .next_ms = ours ? 0 : number_at(rp, 1),
                                         .fence = ours ? fence_at(rp, 1) : 0,
                                         .younger = number_at(rp, 2),
                                         .absences = { rp->item[3] },
                                         .place = number_at(rp, 4) };
    return true;
}

void pack_by_owner(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    static const char *const act[] = { [OWNER_RELEASE] = "release", [OWNER_EXTEND] = "extend",
                                       [OWNER_CHECK] = "check" };
    const struct op_by_owner *o = &op->by_owner;
    *ret_keys = add_all_keys(cmd, o->keys);
    command_add_text(cmd, act[o->act]);
    command_add(cmd, o->id);
    command_add_int(cmd, o->ttl_ms);
    command_add_int(cmd, o->remember_ms);
}

bool read_by_owner(struct op *op, const struct reply *rp)
{
    long long code;
    if (!list_code(rp, &code))
        return false;
    op->got.owned = (struct op_owned){ .ours = code == 1, .broken = code == 2,
                                       .left_ms = number_at(rp, 1),
                                       .fence = fence_at(rp, 2),
                                       .why = bytes_at(rp, 3) };
    return true;
}

void pack_inspect(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    add_key(cmd, op->inspect.keys, KEY_LOCK);
    add_key(cmd, op->inspect.keys, KEY_OWN);
    add_key(cmd, op->inspect.keys, KEY_QUEUE);
    *ret_keys = pack_keys_end(cmd, NULL);
    command_add_int(cmd, (int64_t)op->inspect.max);
    if (op->inspect.keys->scope)
        command_add_text(cmd, op->inspect.keys->scope->counter);
}

bool read_inspect(struct op *op, const struct reply *rp)
{
    if (!is_list(rp, 13) || !rp->item[0]->str || !rp->item[1]->str || !is_int(rp->item[2])
        || rp->item[2]->num < -2 || !rp->item[3]->str || !is_int(rp->item[4])
        || rp->item[4]->num < 0 || !is_int(rp->item[5])
        || rp->item[6]->type != REPLY_ARRAY || !is_int(rp->item[7])
        || rp->item[8]->type != REPLY_ARRAY || rp->item[9]->type != REPLY_ARRAY
        || rp->item[10]->type != REPLY_ARRAY || !rp->item[11]->str || !rp->item[12]->str)
        return false;
    op->got.inspected = (struct op_inspected){
        .type = bytes_at(rp, 0), .value = bytes_at(rp, 1), .left_ms = number_at(rp, 2),
        .own = bytes_at(rp, 3), .server_ms = number_at(rp, 4), .nwaiters = number_at(rp, 5),
        .waiters = { rp->item[6] }, .nholders = number_at(rp, 7), .holders = { rp->item[8] },
        .seen = { rp->item[9] }, .notes = { rp->item[10] }, .leader = bytes_at(rp, 11),
        .settings = bytes_at(rp, 12),
    };
    return true;
}

void pack_health(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    add_key(cmd, op->health.keys, KEY_LOCK);
    *ret_keys = pack_keys_end(cmd, op->health.keys->scope);
}

bool read_health(struct op *op, const struct reply *rp)
{
    if (!reply_is(rp, "iiii"))
        return false;
    op->got.state = (struct op_state){ .replica = number_at(rp, 0) == 1,
                                       .full = number_at(rp, 1) == 1,
                                       .no_disk = number_at(rp, 2) == 1,
                                       .few_replicas = number_at(rp, 3) == 1 };
    return true;
}

void pack_resize(struct command *cmd, const struct op *op, size_t *ret_keys)
{
    *ret_keys = add_queue_keys(cmd, op->resize.keys);
    command_add_int(cmd, op->resize.limit);
}

bool read_resize(struct op *op, const struct reply *rp)
{
    long long code;
    if (!list_code(rp, &code)
        || (code != ANSWER_YES && code != ANSWER_BUSY && code != ANSWER_WRONG_TYPE))
        return false;
    op->got.resized = (struct op_resized){ (enum answer)code, (unsigned)number_at(rp, 1) };
    return true;
}
