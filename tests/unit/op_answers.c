/* SPDX-License-Identifier: MIT
 * op_answers.c - P10: an answer to an operation of which any one part is wrong is refused, or is
 * within its bounds. fuzz/answer goes further; this goes through every part of every answer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/asked.h"
#include "harness/t.h"

enum { PARTS_MAX = 16 };

/* One answer of each kind, as the scripts give it: numbers, 'text, () for a list, - for nothing. */
static const struct {
    enum op_id  id;
    const char *parts;
} right[] = {
    { OP_acquire, "-1 2500 'value 99" }, { OP_acquire, "-7 5" }, { OP_share, "-7 5" },
    { OP_acquire_all, "7 8 9" }, { OP_acquire_all, "-1 2" }, { OP_acquire_all, "-7 3 5" },
    { OP_keep, "1700000000000 1 0 3 3 'break" }, { OP_keep, "1700000000000 1 1 1" },
    { OP_keep, "1700000000000 1 1 1 9 'ask" },
    { OP_held, "1 3" }, { OP_hold_key, "1 5" }, { OP_hold_key, "1 3 'break" },
    { OP_hello, "1 1 -1 0" }, { OP_hello, "-4" },
    { OP_look, "1 250 0 () 3" }, { OP_look, "2 0 1 () 0" }, { OP_by_owner, "1 5000 17 '" },
    { OP_break, "1 2500 17 1 1 () 'token" }, { OP_break, "4 0 0 0 0 () '" }, { OP_ask, "1 2 1" },
    { OP_edge, "1700000000000 250" }, { OP_edges, "1700000000000 -1 () 1 ()" },
    { OP_inspect, "'string 'value 2500 ' 1700000000000 1 () 0 () () () ' '" },
    { OP_health, "0 0 0 0" }, { OP_resize, "1 5" }, { OP_resize, "-1" },
    { OP_latch_set, "-1 2 17" }, { OP_latch_look, "2 3 17" }, { OP_latch_look, "-2 4" },
    { OP_barrier_meet, "2 0 1 3 '" },
    { OP_leader, "1 'value 100 1700000000000 1 'v" }, { OP_leader, "0" },
    { OP_sequence, "11 15" }, { OP_sequence, "-4 '9007199254740991" }, { OP_value, "1 'v 5 7" },
    { OP_guard, "-1 '17" }, { OP_quorum_agree, "1700000000000 5" },
    { OP_quorum_queue, "1700000000000 0 2" }, { OP_recall, "'host 'h 'pid '1" },
    { OP_scan, "'0 ()" },
};

/* What stands in the place of a part. */
static const char *const wrong[] = { "-9", "0", "99", "-9223372036854775808", "9223372036854775807",
                                     "'", "'words", "'12345678901234567890123", "()", "-", "+OK" };

/* A part as it is sent. Returns its length. */
static size_t put(char *at, size_t size, const char *part)
{
    if (*part == '\'')
        return (size_t)snprintf(at, size, "$%zu\r\n%s\r\n", strlen(part + 1), part + 1);
    if (*part == '(')
        return (size_t)snprintf(at, size, "*0\r\n");
    if (strcmp(part, "-") == 0)
        return (size_t)snprintf(at, size, "$-1\r\n");
    return (size_t)snprintf(at, size, *part == '+' ? "%s\r\n" : ":%s\r\n", part);
}

static struct reply *parse(const char *text)
{
    struct reply *rp = NULL;
    struct resp *r = resp_new();
    CHECK_INT(resp_feed(r, text, strlen(text)), HF_OK);
    CHECK_INT(resp_next(r, &rp), HF_OK);
    resp_free(r);
    CHECK(rp != NULL);
    return rp;
}

/* True: it is an answer. */
static bool read_it(enum op_id id, const char *text)
{
    struct op op = asked_op(id);
    hf_error err = { 0 };
    hf_err e = op_read(&op, parse(text), &err);
    if (e && (e != HF_EPROTO || !err.message[0] || op.reply))
        FAIL("%s: %s: %s", op_name(id), hf_err_name(e), err.message);
    if (!e && id == OP_keep)
        for (int i = 0; i < ASKED; i++)
            CHECK_RANGE(asked.verdicts[i], VERDICT_NOT_OURS, VERDICT_BROKEN);
    if (!e && id == OP_acquire_all && op.got.all_taken.code == ANSWER_YES)
        for (int i = 0; i < ASKED; i++)
            CHECK_RANGE((long long)asked.fences[i], 1, INT64_MAX);
    if (!e && id == OP_look)
        CHECK_RANGE(op.got.looked.what, LOOK_WAIT, LOOK_OURS);
    if (!e && (id == OP_acquire || id == OP_share) && op.got.taken.code == ANSWER_YES)
        CHECK_RANGE((long long)op.got.taken.fence, 1, INT64_MAX);
    asked_clear(&op);
    return !e;
}

static bool read_parts(enum op_id id, char *const *part, size_t n)
{
    char text[2000];
    size_t used = (size_t)snprintf(text, sizeof text, "*%zu\r\n", n);
    for (size_t i = 0; i < n; i++)
        used += put(text + used, sizeof text - used, part[i]);
    CHECK(used < sizeof text);
    return read_it(id, text);
}

TEST(P10_every_part_of_every_answer_may_be_wrong)
{
    long refused = 0, all = 0;
    asked_begin();
    for (size_t k = 0; k < sizeof right / sizeof *right; k++) {
        char copy[300], *part[PARTS_MAX + 1], *save = NULL;
        size_t n = 0;
        snprintf(copy, sizeof copy, "%s", right[k].parts);
        for (char *p = copy; n < PARTS_MAX && (p = strtok_r(p, " ", &save)); p = NULL)
            part[n++] = p;
        if (!read_parts(right[k].id, part, n))
            FAIL("%s: %s is refused", op_name(right[k].id), right[k].parts);
        for (size_t less = 0; less < n; less++, all++) /* too few, and one too many */
            refused += !read_parts(right[k].id, part, less);
        part[n] = part[n - 1];
        (void)read_parts(right[k].id, part, n + 1);
        for (size_t i = 0; i < n; i++) {
            char *was = part[i];
            for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++, all++) {
                part[i] = (char *)(uintptr_t)wrong[w];
                refused += !read_parts(right[k].id, part, n);
            }
            part[i] = was;
        }
    }
    for (int id = 0; id < OP_COUNT; id++) { /* and no list at all */
        static const char *const alone[] = { ":-9\r\n", ":5\r\n", "$-1\r\n", "$2\r\nok\r\n",
                                             "+OK\r\n", "*-1\r\n", "*0\r\n",
                                             "*2\r\n*1\r\n:1\r\n*2\r\n$-1\r\n:3\r\n" };
        for (size_t i = 0; i < sizeof alone / sizeof *alone; i++)
            (void)read_it((enum op_id)id, alone[i]);
    }
    keys_free(asked.keys);
    t_note("%ld of %ld answers were refused", refused, all);
    CHECK(refused > all / 4);
}
