/* SPDX-License-Identifier: MIT
 * op_kinds.c - latches, barriers, elections and so on: arguments in the order in which the scripts
 * want them, and replies that are what the scripts say, or are refused.
 */
#include <stdio.h>
#include <string.h>

#include "harness/t.h"
#include "op/pack.h"

static struct scope here = { .counter = "fence", .reign = "reign" };
static struct scope in_cluster = { .counter = "fence", .reign = "reign", .nothing = "nothing" };
static struct lock_keys keys = { .scope = &here };

static struct lock_keys *keys_in(struct scope *s)
{
    keys.key[KEY_LOCK] = hf_str("lock");
    keys.key[KEY_OWN] = hf_str("own");
    keys.scope = s;
    return &keys;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* "key key | argument argument" */
static const char *packed(op_packer pack, const struct op *op)
{
    static char text[500];
    struct command cmd = { 0 };
    size_t nkeys = 0, used = 0;
    struct reply *rp = NULL;
    pack(&cmd, op, &nkeys);
    CHECK_INT(command_end(&cmd), HF_OK);
    struct resp *r = resp_new();
    CHECK_INT(resp_feed(r, cmd.bytes + cmd.begin, cmd.len), HF_OK);
    CHECK_INT(resp_next(r, &rp), HF_OK);
    for (size_t i = 0; i < rp->len; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s%s", i ? " " : "",
                                 i == nkeys ? "| " : "", rp->item[i]->str);
    reply_free(rp);
    resp_free(r);
    command_free(&cmd);
    return text;
}

TEST(latches_are_asked_as_their_scripts_want_it)
{
    struct op op = { .latch = { .keys = keys_in(&here), .listeners = hf_str("list"),
                                .done = hf_str("done"), .token = "t", .count = 3, .generation = 7,
                                .ttl_ms = 1000, .remember_ms = 60, .reset = true } };
    CHECK_STR(packed(pack_latch_set, &op), "lock fence list done | t 3 1000 60 1");
    CHECK_STR(packed(pack_latch_down, &op), "lock fence list done | t 3 1000 60");
    CHECK_STR(packed(pack_latch_look, &op), "lock fence list done | t 7 1000");
    op.latch.keys = keys_in(&in_cluster);
    op.latch.reset = false;
    CHECK_STR(packed(pack_latch_set, &op), "lock fence list done nothing | t 3 1000 60 0");
}

TEST(barriers_are_asked_as_their_scripts_want_it)
{
    struct meeting_keys at = { .keys = keys_in(&here), .meeting = hf_str("m"),
                               .parties = hf_str("p"), .listeners = hf_str("l"),
                               .done = hf_str("d"), .broken = hf_str("b"), .absent = hf_str("a"),
                               .phase = "full:" };
    struct op op = { .barrier = { .at = &at, .parties = 4, .generation = 9, .token = "t",
                                  .member = "t:1:2:h", .mode = BARRIER_TRY, .remember_ms = 60,
                                  .inside_ms = 70, .absence = "seen", .seen_ms = 80,
                                  .why = "cancel", .inside = true } };
    CHECK_STR(packed(pack_barrier_open, &op), "m fence p l d b a reign | 4 t");
    CHECK_STR(packed(pack_barrier_meet, &op),
              "m fence p l d b a reign | 9 full: t t:1:2:h try 60 70");
    CHECK_STR(packed(pack_barrier_judge, &op), "m fence p l d b a reign | 9 full: t:1:2:h seen 80");
    CHECK_STR(packed(pack_barrier_quit, &op),
              "m fence p l d b a reign | 9 full: t t:1:2:h cancel 60 1");
    at.keys = keys_in(&in_cluster);
    CHECK_STR(packed(pack_barrier_open, &op), "m fence p l d b a reign nothing | 4 t");
    at.leaving = hf_str("o");
    at.leaving_parties = hf_str("op");
    CHECK_STR(packed(pack_barrier_open, &op), "m fence p l d b a reign o op nothing | 4 t");
}

TEST(elections_are_asked_as_their_scripts_want_it)
{
    hf_bytes value = hf_str("me");
    struct op op = { .proclaim = { .keys = keys_in(&in_cluster), .value_key = hf_str("v"),
                                   .listeners = hf_str("l"), .token = "t.1", .term = 12, .nth = 2,
                                   .value = &value } };
    CHECK_STR(packed(pack_proclaim, &op), "lock v fence l nothing | t.1:12: 12 2 me");
    op.proclaim.value = NULL;
    CHECK_STR(packed(pack_proclaim, &op), "lock v fence l nothing | t.1:12: 12");
    op = (struct op){ .leader = { .keys = keys_in(&in_cluster), .value_key = hf_str("v"),
                                  .listeners = hf_str("l"), .longest = 64, .token = "t" } };
    CHECK_STR(packed(pack_leader, &op), "lock v l | 64 t");
    op.leader.token = NULL;
    CHECK_STR(packed(pack_leader, &op), "lock v l | 64");
    op = (struct op){ .unlisten = { hf_str("l"), "t" } };
    CHECK_STR(packed(pack_unlisten, &op), "l | t");
}

TEST(numbers_and_values_are_asked_as_their_scripts_want_it)
{
    hf_bytes value = hf_str("x");
    struct op op = { .sequence = { hf_str("s"), 10, 1, 5, true } };
    CHECK_STR(packed(pack_sequence, &op), "s | 10 1 5 1");
    op = (struct op){ .store = { .keys = keys_in(&here), .value_key = hf_str("v"),
                                 .id = hf_str("t.1"), .fence = 12, .fresh_ms = 100,
                                 .keep_ms = 300, .value = value } };
    CHECK_STR(packed(pack_store, &op), "lock own v | t.1 12 100 300 x");
    op = (struct op){ .value = { hf_str("v"), false, 64 } };
    CHECK_STR(packed(pack_value, &op), "v | get 64");
    op.value.drop = true;
    CHECK_STR(packed(pack_value, &op), "v | drop 64");
    op = (struct op){ .resolve = { hf_str("m"), 3, 60 } };
    CHECK_STR(packed(pack_resolve, &op), "m | 3 60");
    op = (struct op){ .guard = { .guard = hf_str("g"), .fence = "18446744073709551615" } };
    CHECK_STR(packed(pack_guard, &op), "g | 18446744073709551615");
    op.guard.key = hf_str("k");
    op.guard.value = &value;
    CHECK_STR(packed(pack_guard, &op), "g k | 18446744073709551615 x");
    op = (struct op){ .repair = { hf_str("fence"), hf_str("reign"), hf_str("aside") } };
    CHECK_STR(packed(pack_repair, &op), "fence reign aside");
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Does a reader make sense of these bytes? op->reply keeps them, and has to be freed. */
static bool reads(op_reader read_it, struct op *op, const char *bytes)
{
    struct resp *r = resp_new();
    reply_free(op->reply);
    op->reply = NULL;
    CHECK_INT(resp_feed(r, bytes, strlen(bytes)), HF_OK);
    CHECK_INT(resp_next(r, &op->reply), HF_OK);
    resp_free(r);
    memset(&op->got, 0x55, sizeof op->got); /* nothing may be left as it was */
    return read_it(op, op->reply);
}

TEST(answers_about_latches_are_told_apart)
{
    struct op op = { 0 };
    const struct op_latched *got = &op.got.latched;
    CHECK(reads(read_latch_set, &op, ":1\r\n") && got->code == ANSWER_YES);
    CHECK(reads(read_latch_set, &op, "*3\r\n:-1\r\n:2\r\n:5\r\n") && got->code == ANSWER_BUSY);
    CHECK(got->left == 2 && got->total == 5);
    CHECK(reads(read_latch_set, &op, "*1\r\n:-4\r\n") && got->code == ANSWER_BAD_COUNTER);
    CHECK(reads(read_latch_set, &op, "*1\r\n:-3\r\n") && got->code == ANSWER_WRONG_TYPE);
    CHECK(!got->value.data);
    CHECK(reads(read_latch_set, &op, "*2\r\n:-3\r\n$0\r\n\r\n") && got->code == ANSWER_WRONG_TYPE);
    CHECK(got->value.data && got->value.len == 0);
    CHECK(reads(read_latch_down, &op, ":0\r\n") && got->code == ANSWER_YES && got->left == 0);
    CHECK(reads(read_latch_down, &op, "*1\r\n:-1\r\n") && got->code == ANSWER_BUSY);
    CHECK(reads(read_latch_look, &op, "*3\r\n:1\r\n:2\r\n:9\r\n") && got->code == ANSWER_YES);
    CHECK(got->left == 1 && got->total == 2 && got->generation == 9);
    CHECK(reads(read_latch_look, &op, "*2\r\n:-2\r\n:0\r\n") && got->code == ANSWER_GIVEN_UP);
    CHECK_INT(got->generation, 0);
    CHECK(reads(read_latch_look, &op, "*1\r\n:-1\r\n") && got->code == ANSWER_BUSY);
    reply_free(op.reply);
}

TEST(answers_about_barriers_are_told_apart)
{
    struct op op = { 0 };
    const struct op_met *got = &op.got.met;
    CHECK(reads(read_barrier_open, &op, "*3\r\n:1\r\n:9\r\n:2\r\n") && got->code == MEET_WAIT);
    CHECK(got->generation == 9 && got->arrived == 2);
    CHECK(reads(read_barrier_open, &op, "*2\r\n:0\r\n:8\r\n") && got->code == MEET_CLOSED);
    CHECK_INT(got->generation, 8);
    CHECK(reads(read_barrier_open, &op, "*3\r\n:-5\r\n:4\r\n:1\r\n"));
    CHECK(got->code == MEET_OTHER_PARTIES && got->total == 4 && got->arrived == 1);
    CHECK(reads(read_barrier_meet, &op, "*5\r\n:2\r\n:0\r\n:1\r\n:3\r\n$1\r\nm\r\n"));
    CHECK(got->code == MEET_MISSING && got->index == 0 && got->arrived == 1 && got->total == 3);
    CHECK_STR(got->text.data, "m");
    CHECK(reads(read_barrier_meet, &op, "*3\r\n:6\r\n:1\r\n:3\r\n") && got->code == MEET_NOT_ALL);
    CHECK(reads(read_barrier_judge, &op, "*3\r\n:2\r\n$1\r\na\r\n:50\r\n"));
    CHECK(got->code == MEET_MISSING && got->breaks_ms == 50);
    CHECK(reads(read_barrier_judge, &op, "*1\r\n:1\r\n") && got->code == MEET_WAIT);
    CHECK(reads(read_barrier_quit, &op, "*2\r\n:4\r\n$4\r\ngone\r\n") && got->code == MEET_BROKEN);
    CHECK_STR(got->text.data, "gone");
    CHECK(reads(read_barrier_quit, &op, "*1\r\n:0\r\n") && got->code == MEET_CLOSED);
    CHECK(reads(read_barrier_quit, &op, "*1\r\n:-3\r\n") && got->code == MEET_WRONG_TYPE);
    CHECK(!got->text.data);
    reply_free(op.reply);
}

TEST(answers_about_leaders_numbers_and_values_are_told_apart)
{
    struct op op = { .sequence = { .count = 10, .seen = 4 } };
    CHECK(reads(read_sequence, &op, "*2\r\n:5\r\n:14\r\n"));
    CHECK(op.got.numbers.code == ANSWER_YES && op.got.numbers.last == 14);
    CHECK(reads(read_sequence, &op, "*2\r\n:-4\r\n$16\r\n9007199254740990\r\n"));
    CHECK_INT(op.got.numbers.code, ANSWER_USED_UP);
    CHECK_INT(op.got.numbers.largest, 9007199254740990);
    CHECK(!reads(read_sequence, &op, "*2\r\n:4\r\n:13\r\n"));  /* seen before */
    CHECK(!reads(read_sequence, &op, "*2\r\n:5\r\n:13\r\n"));  /* too short */
    CHECK(!reads(read_sequence, &op, "*2\r\n:-4\r\n$1\r\n?\r\n"));
    CHECK(reads(read_leader, &op, "*1\r\n:0\r\n") && op.got.led.code == ANSWER_NO);
    CHECK(reads(read_leader, &op, "*6\r\n:1\r\n$1\r\nx\r\n:-1\r\n:77\r\n:1\r\n$0\r\n\r\n"));
    CHECK(op.got.led.code == ANSWER_YES && op.got.led.left_ms == -1 && op.got.led.has_value);
    CHECK(reads(read_value, &op, "*4\r\n:1\r\n$1\r\nv\r\n:3\r\n:-2\r\n"));
    CHECK(op.got.found.code == ANSWER_YES && op.got.found.fresh_ms == -2);
    CHECK(reads(read_value, &op, "*1\r\n:0\r\n") && op.got.found.code == ANSWER_NO);
    CHECK(reads(read_guard, &op, "*2\r\n:-1\r\n$2\r\n12\r\n"));
    CHECK(op.got.guarded.code == ANSWER_BUSY);
    CHECK_STR(op.got.guarded.newest.data, "12");
    CHECK(reads(read_store, &op, "*1\r\n:-3\r\n") && op.got.done.code == ANSWER_WRONG_TYPE);
    CHECK(reads(read_resolve, &op, ":0\r\n") && op.got.done.code == ANSWER_NO);
    CHECK(!reads(read_resolve, &op, "*1\r\n:-3\r\n")); /* its script never says so */
    reply_free(op.reply);
}

TEST(replies_that_make_no_sense_are_refused)
{
    static const op_reader all[] = {
        read_latch_set, read_latch_down, read_latch_look, read_barrier_open, read_barrier_meet,
        read_barrier_judge, read_barrier_quit, read_proclaim, read_leader, read_unlisten,
        read_sequence, read_store, read_value, read_resolve, read_guard, read_repair,
    };
    static const char *const senseless[] = {
        "+OK\r\n", "$-1\r\n", "$1\r\n1\r\n", ":-1\r\n", ":-9223372036854775808\r\n", "*0\r\n",
        "*-1\r\n", "*1\r\n$1\r\n1\r\n", "*1\r\n:99\r\n", "*2\r\n:-3\r\n:-3\r\n",
        "*1\r\n*1\r\n:1\r\n", "*3\r\n:-1\r\n:-2\r\n:5\r\n", "*4\r\n:1\r\n:0\r\n:1\r\n$1\r\n3\r\n",
        "*7\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n",
    };
    struct op op = { .sequence = { .count = 10 } };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (size_t j = 0; j < sizeof senseless / sizeof senseless[0]; j++)
            if (reads(all[i], &op, senseless[j]))
                FAIL("reader %zu takes %s", i, senseless[j]);
    reply_free(op.reply);
}
