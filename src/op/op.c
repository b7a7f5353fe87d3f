/* SPDX-License-Identifier: MIT
 * op.c - one operation on the server: the table of all of them.
 */
#include "op/op.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "op/pack.h"

static const struct {
    const char *name, *sha, *text;
    op_packer   pack;
    op_reader   read;
} table[OP_COUNT] = {
#define HF_SCRIPT(name, sha, text) { #name, sha, text, pack_##name, read_##name },
#include "scripts.inc"
#undef HF_SCRIPT
};

const char *op_name(enum op_id id)
{
    return table[id].name;
}

const char *op_sha(enum op_id id)
{
    return table[id].sha;
}

const char *op_text(enum op_id id)
{
    return table[id].text;
}

/* The key by which its server is found, and whose numbers it takes. */
struct op_place {
    hf_bytes      key;
    struct scope *scope;
};

static struct op_place numbered(const struct lock_keys *keys)
{
    return (struct op_place){ keys->key[KEY_LOCK], keys->scope };
}

static struct op_place unnumbered(hf_bytes key)
{
    return (struct op_place){ key, NULL };
}

static struct op_place place_of(const struct op *op)
{
    switch (op->id) {
    case OP_acquire:
    case OP_share: return numbered(op->take.keys);
    case OP_acquire_all: return numbered(op->acquire_all.each[0].keys);
    case OP_release:
    case OP_unshare: return numbered(op->release.grant->keys);
    case OP_downgrade: return numbered(op->downgrade.grant->keys);
    case OP_cancel: return numbered(op->cancel.keys);
    case OP_look: return numbered(op->look.keys);
    case OP_by_owner: /* who only asks takes no number, whoever is next */
        return op->by_owner.act == OWNER_CHECK ? unnumbered(op->by_owner.keys->key[KEY_LOCK])
                                               : numbered(op->by_owner.keys);
    case OP_resize: return numbered(op->resize.keys);
    case OP_break: return numbered(op->breaking.keys);
    case OP_ask: return unnumbered(op->ask.keys->key[KEY_LOCK]);
    case OP_quorum_agree: return numbered(op->quorum_agree.keys);
    case OP_quorum_release: return numbered(op->quorum_release.keys);
    case OP_latch_set:
    case OP_latch_down:
    case OP_latch_look: return numbered(op->latch.keys);
    case OP_barrier_open:
    case OP_barrier_meet:
    case OP_barrier_judge:
    case OP_barrier_quit: return numbered(op->barrier.at->keys);
    case OP_proclaim: return numbered(op->proclaim.keys);
    case OP_keep: return unnumbered(op->keep.each[0].grant->keys->key[KEY_LOCK]);
    case OP_held: return unnumbered(op->held.each[0]->keys->key[KEY_LOCK]);
    case OP_hold_key: return unnumbered(op->hold_key.key);
    case OP_inspect: return unnumbered(op->inspect.keys->key[KEY_LOCK]);
    case OP_edge: return unnumbered(op->edge.keys->key[KEY_LOCK]);
    case OP_edges: return unnumbered(op->edges.keys->key[KEY_LOCK]);
    case OP_health: return unnumbered(op->health.keys->key[KEY_LOCK]);
    case OP_quorum_queue: return unnumbered(op->quorum_queue.keys->key[KEY_LOCK]);
    case OP_hello: return unnumbered(hf_str(op->hello.scope->counter));
    case OP_record: return unnumbered(op->record.key);
    case OP_recall: return unnumbered(op->recall.key);
    case OP_scan: return unnumbered(hf_str(op->scan.prefix));
    case OP_leader: return unnumbered(op->leader.keys->key[KEY_LOCK]);
    case OP_unlisten: return unnumbered(op->unlisten.listeners);
    case OP_sequence: return unnumbered(op->sequence.key);
    case OP_store: return unnumbered(op->store.keys->key[KEY_LOCK]);
    case OP_value: return unnumbered(op->value.key);
    case OP_resolve: return unnumbered(op->resolve.mark);
    case OP_guard: return unnumbered(op->guard.guard);
    case OP_repair: return unnumbered(op->repair.counter);
    case OP_note: return unnumbered(op->note.log);
    case OP_past: return unnumbered(op->past.log);
    case OP_COUNT: break;
    }
    return unnumbered(hf_str(""));
}

hf_bytes op_route(const struct op *op)
{
    return place_of(op).key;
}

struct scope *op_scope(const struct op *op)
{
    return place_of(op).scope;
}

hf_err op_pack(const struct op *op, bool text, struct command *ret)
{
    struct command cmd = { 0 };
    char count[24];
    size_t keys = 0;
    table[op->id].pack(&cmd, op, &keys);
    snprintf(count, sizeof count, "%zu", keys);
    hf_bytes head[] = { hf_str(text ? "EVAL" : "EVALSHA"),
                        hf_str(text ? table[op->id].text : table[op->id].sha), hf_str(count) };
    command_head(&cmd, head, 3);
    hf_err e = command_end(&cmd);
    if (!e)
        *ret = cmd;
    return e;
}

hf_err op_read(struct op *op, struct reply *rp, hf_error *reterr)
{
    reply_free(op->reply);
    op->reply = rp;
    memset(&op->got, 0, sizeof op->got);
    if (table[op->id].read(op, rp))
        return HF_OK;
    op->reply = reply_free(op->reply);
    memset(&op->got, 0, sizeof op->got);
    return err_set(reterr, HF_EPROTO, "the answer to %s makes no sense", table[op->id].name);
}

void op_clear(struct op *op)
{
    op->reply = reply_free(op->reply);
    memset(&op->got, 0, sizeof op->got);
}

hf_err op_too_few(const struct op *op, const char *what, hf_error *reterr)
{
    if (op->acked < 0)
        return err_set(reterr, HF_EREPLICAS, "%s is not known to be on the server's disk: is that "
                                              "slow, or appendfsync no there?", what);
    return err_set(reterr, HF_EREPLICAS,
                   "%s was acknowledged by %d of the %d replicas that were asked for", what,
                   op->acked, op->wanted);
}

hf_err op_bad_counter(const struct scope *s, hf_error *reterr)
{
    return err_set(reterr, HF_ECOUNTER,
                   "the key %s, the fencing counter, holds something else: look at it, and "
                   "delete it if nobody else needs it", s->counter);
}
