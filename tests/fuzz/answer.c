/* SPDX-License-Identifier: MIT
 * answer.c - fuzz: any reply is an answer to the operation whose parts are in their bounds, or is
 * refused. The first line of the input names the operation, replies follow.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "harness/asked.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds)
{
    if (!holds)
        abort();
}

static volatile size_t seen; /* every byte that is handed on is read */

static void touch(hf_bytes b)
{
    must(!b.len || b.data);
    for (size_t i = 0; i < b.len; i++)
        seen += ((const unsigned char *)b.data)[i];
    if (b.data)
        must(((const char *)b.data)[b.len] == '\0');
}

static void touch_list(struct op_list l)
{
    for (size_t i = 0; i < op_list_len(l) + 2; i++) {
        touch(op_list_at(l, i));
        seen += (size_t)op_list_number(l, i, -1);
    }
}

/* A number that a lock is granted under. */
static bool is_fence(uint64_t n)
{
    return n > 0 && n <= INT64_MAX;
}

static void check_taken(const struct op_taken *t)
{
    must(t->code == ANSWER_YES || (t->code >= ANSWER_NOT_A_TIMESTAMP && t->code <= ANSWER_BUSY));
    must(t->code != ANSWER_YES || is_fence(t->fence));
    must(t->fence <= INT64_MAX && t->ticket <= INT64_MAX);
    touch(t->value);
}

static void check_lock(const struct op *op)
{
    switch ((int)op->id) {
    case OP_acquire:
    case OP_share: check_taken(&op->got.taken); break;
    case OP_acquire_all:
        for (int i = 0; op->got.all_taken.code == ANSWER_YES && i < ASKED; i++)
            must(is_fence(asked.fences[i]));
        must(op->got.all_taken.which < ASKED);
        break;
    case OP_keep:
        for (int i = 0; i < ASKED; i++)
            must(asked.verdicts[i] >= VERDICT_NOT_OURS && asked.verdicts[i] <= VERDICT_BROKEN);
        break;
    case OP_look:
        must(op->got.looked.what >= LOOK_WAIT && op->got.looked.what <= LOOK_OURS);
        must(op->got.looked.fence <= INT64_MAX);
        touch_list(op->got.looked.absences);
        break;
    case OP_by_owner:
        must(op->got.owned.fence <= INT64_MAX);
        touch(op->got.owned.why);
        break;
    case OP_break:
        must(op->got.broken.fence <= INT64_MAX);
        must(op->got.broken.present >= -1 && op->got.broken.present <= 1);
        touch(op->got.broken.token);
        touch_list(op->got.broken.absences);
        break;
    case OP_edges:
        touch_list(op->got.edges_found.edges);
        touch_list(op->got.edges_found.waiters);
        break;
    case OP_quorum_agree: must(op->got.quorum_agreed.before <= INT64_MAX); break;
    default: break;
    }
}

static void check_rest(const struct op *op)
{
    switch ((int)op->id) {
    case OP_recall: touch_list(op->got.list); break;
    case OP_scan:
        touch(op->got.page.cursor);
        touch_list(op->got.page.keys);
        break;
    case OP_latch_set:
    case OP_latch_down:
    case OP_latch_look: touch(op->got.latched.value); break;
    case OP_barrier_open:
    case OP_barrier_meet:
    case OP_barrier_judge:
    case OP_barrier_quit: touch(op->got.met.text); break;
    case OP_leader:
        touch(op->got.led.lock);
        touch(op->got.led.value);
        break;
    case OP_sequence: /* a block of what was asked for, above what was seen */
        must(op->got.numbers.code != ANSWER_YES
             || (op->got.numbers.first > 10
                 && op->got.numbers.last - op->got.numbers.first == 4));
        break;
    case OP_value: touch(op->got.found.value); break;
    case OP_guard: touch(op->got.guarded.newest); break;
    default: break;
    }
}

static enum op_id named(const uint8_t *name, size_t len)
{
    size_t sum = 0;
    for (int id = 0; id < OP_COUNT; id++) {
        const char *its = op_name((enum op_id)id);
        if (strlen(its) == len && memcmp(its, name, len) == 0)
            return (enum op_id)id;
    }
    for (size_t i = 0; i < len; i++)
        sum += name[i];
    return (enum op_id)(sum % OP_COUNT);
}

static void answer(enum op_id id, struct reply *rp)
{
    struct op op = asked_op(id);
    hf_error err = { 0 };
    if (op_read(&op, rp, &err) == HF_OK) {
        check_lock(&op);
        check_rest(&op);
    } else {
        must(err.code == HF_EPROTO && err.message[0] && !op.reply);
    }
    asked_clear(&op);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    struct resp *r = resp_new();
    struct reply *rp = NULL;
    size_t len = end ? (size_t)(end - data) : 0;
    must(r != NULL);
    if (!asked.keys)
        asked_begin();
    if (end && !resp_feed(r, end + 1, size - len - 1))
        while (!resp_next(r, &rp) && rp)
            answer(named(data, len), rp);
    resp_free(r);
    return 0;
}
