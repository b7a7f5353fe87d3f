/* SPDX-License-Identifier: MIT
 * asked.h - an operation of each kind that was sent and waits for its answer: for tests that make
 * the answers up.
 */
#ifndef HARNESS_ASKED_H
#define HARNESS_ASKED_H

#include <stdlib.h>

#include "base/mem.h"
#include "op/op.h"

enum { ASKED = 3 /* where an operation is about several locks */ };

static struct {
    struct lock_keys   *keys;
    struct scope        scope;
    struct grant        grant[ASKED];
    const struct grant *each[ASKED];
    struct op_lease     lease[ASKED];
    struct op_take      take[ASKED];
    uint64_t            fences[ASKED];
    enum verdict        verdicts[ASKED];
    char               *notes[ASKED];
    bool                odd[ASKED];
} asked;

/* Once, before the first of them. */
static inline void asked_begin(void)
{
    if (keys_new("lock:", hf_str("a"), &asked.keys, NULL) != HF_OK)
        abort();
    asked.keys->scope = &asked.scope;
    for (int i = 0; i < ASKED; i++) {
        asked.grant[i] = (struct grant){ .keys = asked.keys, .fence = 7, .shared = i == 1 };
        asked.each[i] = &asked.grant[i];
        asked.lease[i] = (struct op_lease){ .grant = &asked.grant[i], .ttl_ms = 1000 };
        asked.take[i] = (struct op_take){ .keys = asked.keys, .token = "t" };
    }
}

static inline struct op asked_op(enum op_id id)
{
    struct op op = { .id = id };
    if (id == OP_acquire_all)
        op.acquire_all = (struct op_acquire_all){ ASKED, asked.take, asked.fences };
    else if (id == OP_keep)
        op.keep = (struct op_keep){ .n = ASKED, .each = asked.lease, .verdicts = asked.verdicts,
                                    .notes = asked.notes };
    else if (id == OP_held)
        op.held = (struct op_held){ ASKED, asked.each, asked.odd };
    else if (id == OP_sequence)
        op.sequence = (struct op_sequence){ .count = 5, .first = 1, .seen = 10 };
    return op;
}

/* It was answered, and looked at. */
static inline void asked_clear(struct op *op)
{
    op_clear(op);
    for (int i = 0; i < ASKED; i++) {
        mem_free(asked.notes[i]);
        asked.notes[i] = NULL;
    }
}

#endif
