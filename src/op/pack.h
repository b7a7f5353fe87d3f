/* SPDX-License-Identifier: MIT
 * pack.h - for each operation: its KEYS and ARGV in their order, and what its reply means.
 *
 * pack_NAME() adds the keys, then the arguments, as the head of src/lua/NAME.lua has them, and
 * tells how many of them are keys. read_NAME() makes op->got of a reply; false: it makes no sense.
 */
#ifndef OP_PACK_H
#define OP_PACK_H

#include "op/op.h"

typedef void (*op_packer)(struct command *cmd, const struct op *op, size_t *ret_keys);
typedef bool (*op_reader)(struct op *op, const struct reply *rp);

/* Behind the last key: how many there are. What takes numbers, or notes that a holder waits, also
 * names the key that keeps it from being run while its slot is being moved (scope.h); s is NULL for
 * all else. */
static inline size_t pack_keys_end(struct command *cmd, const struct scope *s)
{
    if (s && s->nothing)
        command_add_text(cmd, s->nothing);
    return cmd->args;
}

#define OP_DECLARE(name)                                                            \
    void pack_##name(struct command *cmd, const struct op *op, size_t *ret_keys);   \
    bool read_##name(struct op *op, const struct reply *rp);

/* lock.c */
OP_DECLARE(acquire)
OP_DECLARE(share)
OP_DECLARE(acquire_all)
OP_DECLARE(release)
OP_DECLARE(unshare)
OP_DECLARE(downgrade)
OP_DECLARE(cancel)
OP_DECLARE(keep)
OP_DECLARE(held)
OP_DECLARE(hold_key)
OP_DECLARE(look)
OP_DECLARE(by_owner)
OP_DECLARE(inspect)
OP_DECLARE(health)
OP_DECLARE(resize)

/* edges.c */
OP_DECLARE(edge)
OP_DECLARE(edges)
/* break.c */
OP_DECLARE(break)
OP_DECLARE(ask)

/* session.c */
OP_DECLARE(hello)
OP_DECLARE(record)
OP_DECLARE(recall)
OP_DECLARE(scan)

/* quorum.c */
OP_DECLARE(quorum_agree)
OP_DECLARE(quorum_release)
OP_DECLARE(quorum_queue)

/* kinds.c, barrier.c */
OP_DECLARE(latch_set)
OP_DECLARE(latch_down)
OP_DECLARE(latch_look)
OP_DECLARE(barrier_open)
OP_DECLARE(barrier_meet)
OP_DECLARE(barrier_judge)
OP_DECLARE(barrier_quit)
OP_DECLARE(proclaim)
OP_DECLARE(leader)
OP_DECLARE(unlisten)
OP_DECLARE(sequence)
OP_DECLARE(store)
OP_DECLARE(value)
OP_DECLARE(resolve)
OP_DECLARE(guard)
OP_DECLARE(repair)

/* note.c */
OP_DECLARE(note)
OP_DECLARE(past)
#undef OP_DECLARE

/* ---- for the readers ---------------------------------------------------------------------- */

/* A list of exactly these elements, a letter for each: i an integer, n one that is not negative,
 * b bytes. */
static inline bool reply_is(const struct reply *rp, const char *shape)
{
    if (rp->type != REPLY_ARRAY)
        return false;
    for (size_t i = 0; i < rp->len; i++, shape++) {
        const struct reply *one = rp->item[i];
        bool fits = *shape == 'b' ? one->type == REPLY_BULK
                    : *shape == 'n' ? one->type == REPLY_INT && one->num >= 0
                                    : *shape == 'i' && one->type == REPLY_INT;
        if (!fits)
            return false;
    }
    return *shape == '\0';
}
/* Of a list that has been found to be one. */
static inline long long reply_num(const struct reply *rp, size_t i)
{
    return rp->item[i]->num;
}
static inline hf_bytes reply_str(const struct reply *rp, size_t i)
{
    return (hf_bytes){ rp->item[i]->str, rp->item[i]->len };
}

static inline bool is_int(const struct reply *rp)
{
    return rp->type == REPLY_INT;
}
static inline bool is_list(const struct reply *rp, size_t len)
{
    return rp->type == REPLY_ARRAY && rp->len == len;
}
/* A list that begins with a number: *ret. */
static inline bool list_code(const struct reply *rp, long long *ret)
{
    if (rp->type != REPLY_ARRAY || rp->len == 0 || !is_int(rp->item[0]))
        return false;
    *ret = rp->item[0]->num;
    return true;
}
/* The number at a place of a list; 0 where there is none. */
static inline long long number_at(const struct reply *rp, size_t i)
{
    return rp->type == REPLY_ARRAY && i < rp->len && is_int(rp->item[i]) ? rp->item[i]->num : 0;
}
/* A fencing number, a ticket; 0 where there is none, or none that can be. */
static inline uint64_t fence_at(const struct reply *rp, size_t i)
{
    long long n = number_at(rp, i);
    return n > 0 ? (uint64_t)n : 0;
}
/* The bytes at a place of a list, with a NUL behind them; empty where there are none. */
static inline hf_bytes bytes_at(const struct reply *rp, size_t i)
{
    return op_list_at((struct op_list){ rp->type == REPLY_ARRAY ? rp : NULL }, i);
}
/* 1 or 0. */
bool read_yes_or_no(const struct reply *rp, bool *ret);

#endif
