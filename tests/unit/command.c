/* SPDX-License-Identifier: MIT
 * command.c - what commands look like on the wire, and what cannot be one.
 */
#include "net/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "harness/failing.h"
#include "harness/t.h"

/* Complete it, compare, and free it. */
static void check_bytes(struct command *cmd, const char *want, size_t len)
{
    CHECK_INT(command_end(cmd), HF_OK);
    CHECK_MEM(cmd->bytes + cmd->begin, cmd->len, want, len);
    command_free(cmd);
    CHECK(!cmd->bytes);
}
#define CHECK_BYTES(cmd, literal) check_bytes(cmd, literal, sizeof(literal) - 1)

static void refused(struct command *cmd, hf_err why)
{
    CHECK_INT(command_end(cmd), why);
    CHECK(!cmd->bytes && !cmd->len && !cmd->args);
}

TEST(P10_commands_are_length_prefixed)
{
    struct command cmd;
    hf_bytes argv[40] = { hf_str("SET"), { "a\0\r\n", 4 }, { NULL, 0 } };
    CHECK_INT(command_make(&cmd, 3, argv), HF_OK);
    CHECK_MEM(cmd.bytes + cmd.begin, cmd.len, "*3\r\n$3\r\nSET\r\n$4\r\na\0\r\n\r\n$0\r\n\r\n", 29);
    command_free(&cmd);
    for (int i = 0; i < 40; i++)
        argv[i] = hf_str("ab");
    CHECK_INT(command_make(&cmd, 40, argv), HF_OK);
    CHECK_INT((long long)cmd.len, 5 + 40 * 8);
    CHECK_MEM(cmd.bytes + cmd.begin + cmd.len - 8, 8, "$2\r\nab\r\n", 8);
    command_free(&cmd);
}

TEST(numbers_are_written_as_text)
{
    struct command cmd = { 0 };
    command_add_text(&cmd, "N");
    command_add_int(&cmd, 0);
    command_add_int(&cmd, -7);
    command_add_int(&cmd, 1000);
    command_add_int(&cmd, INT64_MAX);
    command_add_int(&cmd, INT64_MIN);
    CHECK_BYTES(&cmd, "*6\r\n$1\r\nN\r\n$1\r\n0\r\n$2\r\n-7\r\n$4\r\n1000\r\n"
                      "$19\r\n9223372036854775807\r\n$20\r\n-9223372036854775808\r\n");
}

TEST(what_is_known_last_goes_before_the_rest)
{
    struct command cmd = { 0 };
    command_add_text(&cmd, "key");
    command_add(&cmd, (hf_bytes){ "", 0 });
    command_head(&cmd, (hf_bytes[]){ hf_str("EVALSHA"), hf_str("abc"), hf_str("1") }, 3);
    CHECK_BYTES(&cmd, "*5\r\n$7\r\nEVALSHA\r\n$3\r\nabc\r\n$1\r\n1\r\n$3\r\nkey\r\n$0\r\n\r\n");

    command_head(&cmd, (hf_bytes[]){ hf_str("PING") }, 1); /* and nothing behind it */
    CHECK_BYTES(&cmd, "*1\r\n$4\r\nPING\r\n");

    command_add_text(&cmd, "c");
    command_head(&cmd, (hf_bytes[]){ hf_str("b") }, 1);
    command_head(&cmd, (hf_bytes[]){ hf_str("a"), { "\0", 1 } }, 2);
    CHECK_BYTES(&cmd, "*4\r\n$1\r\na\r\n$1\r\n\0\r\n$1\r\nb\r\n$1\r\nc\r\n");
}

/* "$len\r\n", so many times c, "\r\n"; how many bytes. */
static size_t put(char *p, char c, size_t len)
{
    size_t n = (size_t)sprintf(p, "$%zu\r\n", len);
    memset(p + n, c, len);
    memcpy(p + n + len, "\r\n", 2);
    return n + len + 2;
}

/* A head and a body of such lengths: around the sizes at which it grows. */
static void check_lengths(size_t head, size_t body)
{
    size_t most = head > body ? head : body, n;
    char *text = malloc(most + 1), *want = malloc(head + body + 100);
    struct command cmd = { 0 };
    memset(text, 'b', most);
    command_add(&cmd, (hf_bytes){ text, body });
    memset(text, 'h', most);
    command_head(&cmd, (hf_bytes[]){ { text, head } }, 1);
    n = (size_t)sprintf(want, "*2\r\n");
    n += put(want + n, 'h', head);
    n += put(want + n, 'b', body);
    check_bytes(&cmd, want, n);
    free(text);
    free(want);
}

TEST(a_command_grows_with_what_is_put_in)
{
    for (size_t body = 300; body < 600; body++)
        check_lengths(40, body);
    for (size_t head = 0; head < 200; head++)
        check_lengths(head, 1000);
    for (size_t head = 300; head < 600; head++)
        check_lengths(head, 3);
    check_lengths(60000, 100); /* the text of a script */
    check_lengths(60000, 60000);
    check_lengths(40, 1000000);
}

TEST(many_arguments_stay_in_order)
{
    struct command cmd = { 0 };
    char *want = malloc(100000), text[16];
    size_t n = (size_t)sprintf(want, "*5000\r\n");
    for (int i = 0; i < 5000; i++) {
        command_add_int(&cmd, i);
        snprintf(text, sizeof text, "%d", i);
        n += (size_t)sprintf(want + n, "$%zu\r\n%d\r\n", strlen(text), i);
    }
    check_bytes(&cmd, want, n);
    free(want);
}

static hf_err end_with(size_t args)
{
    struct command cmd = { 0 };
    while (args-- > 0)
        command_add(&cmd, (hf_bytes){ NULL, 0 });
    hf_err e = command_end(&cmd);
    command_free(&cmd);
    return e;
}

TEST(what_cannot_be_a_command_is_refused)
{
    static char some[1];
    struct command cmd = { 0 };
    refused(&cmd, HF_EINVAL); /* no argument */
    CHECK_INT(command_make(&cmd, 0, NULL), HF_EINVAL);

    CHECK_INT(end_with(COMMAND_MAX_ARGS), HF_OK);
    CHECK_INT(end_with(COMMAND_MAX_ARGS + 1), HF_EINVAL);

    /* More than there is room for is never read. */
    const size_t large[] = { (size_t)512 * 1024 * 1024, (size_t)512 * 1024 * 1024 + 1,
                             SIZE_MAX / 2 + 1, SIZE_MAX - 40, SIZE_MAX };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct command a = { 0 }, b = { 0 };
        command_add_text(&a, "SET");
        command_add(&a, (hf_bytes){ some, large[i] });
        command_add_text(&a, "and on");
        refused(&a, HF_EINVAL);
        command_add_text(&b, "SET");
        command_head(&b, (hf_bytes[]){ { some, large[i] }, { some, large[i] }, hf_str("x") }, 3);
        refused(&b, HF_EINVAL);
    }
}

TEST(each_allocation_may_fail)
{
    char text[3000];
    memset(text, 't', sizeof text);
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    for (long k = 1;; k++) {
        struct command cmd = { 0 };
        failing_arm(k, 0);
        for (int i = 0; i < 300; i++)
            command_add_text(&cmd, "argument");
        command_head(&cmd, (hf_bytes[]){ { text, sizeof text }, hf_str("2") }, 2);
        hf_err e = command_end(&cmd);
        if (!failing_count()) {
            CHECK_INT(e, HF_OK);
            CHECK_INT((long long)cmd.len, 6 + 300 * 14 + 7 + 3000 + 2 + 7);
            CHECK(k > 3);
            command_free(&cmd);
            break;
        }
        CHECK_INT(e, HF_ENOMEM);
        CHECK_INT(failing_live(), 0);
    }
    CHECK_INT(failing_live(), 0);
    failing_arm(1, 1);
    struct command cmd;
    CHECK_INT(command_make(&cmd, 1, (hf_bytes[]){ hf_str("PING") }), HF_ENOMEM);
}
