/* SPDX-License-Identifier: MIT
 * resp.c - replies whole and in pieces, and everything that a hostile server may send.
 */
#include "net/resp.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "harness/t.h"
#include "net/servererr.h"

#define BYTES(text) text, sizeof(text) - 1

static struct reply *next(struct resp *r)
{
    struct reply *rp = NULL;
    CHECK_INT(resp_next(r, &rp), HF_OK);
    return rp;
}

/* Feed it whole into a fresh parser: the result of the first resp_next(). */
static hf_err one(const void *data, size_t len, char *ret_error, size_t size)
{
    struct resp *r = resp_new();
    struct reply *rp = NULL;
    hf_err err = resp_feed(r, data, len);
    if (err == HF_OK)
        err = resp_next(r, &rp);
    if (ret_error)
        snprintf(ret_error, size, "%s", resp_error(r));
    reply_free(rp);
    resp_free(r);
    return err;
}

static void refused(const char *data, size_t len, const char *part)
{
    char why[200];
    CHECK_INT(one(data, len, why, sizeof why), HF_EPROTO);
    CHECK_CONTAINS(why, part);
}

TEST(each_type)
{
    struct resp *r = resp_new();
    CHECK_INT(resp_feed(r, BYTES("+OK\r\n-ERR no\r\n:-42\r\n$3\r\na\0b\r\n$-1\r\n$0\r\n\r\n"
                                 "*-1\r\n*0\r\n:-9223372036854775808\r\n")), HF_OK);
    struct reply *rp = next(r);
    CHECK_INT(rp->type, REPLY_STATUS);
    CHECK_MEM(rp->str, rp->len, "OK", 2);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_ERROR);
    CHECK_STR(rp->str, "ERR no");
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_INT);
    CHECK_INT(rp->num, -42);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_BULK);
    CHECK_MEM(rp->str, rp->len + 1, "a\0b", 4);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_NIL);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_BULK);
    CHECK_INT(rp->len, 0);
    CHECK_STR(rp->str, "");
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_NIL);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->type, REPLY_ARRAY);
    CHECK_INT(rp->len, 0);
    reply_free(rp);
    rp = next(r);
    CHECK_INT(rp->num, LLONG_MIN);
    reply_free(rp);
    CHECK(next(r) == NULL);
    resp_free(r);
    resp_free(NULL);
    reply_free(NULL);
}

TEST(byte_by_byte)
{
    static const char text[] = "*3\r\n*2\r\n:1\r\n$4\r\nab\r\n\r\n+x\r\n$-1\r\n";
    struct resp *r = resp_new();
    for (size_t i = 0; i + 1 < sizeof text; i++) {
        CHECK(next(r) == NULL);
        CHECK_INT(resp_feed(r, text + i, 1), HF_OK);
    }
    struct reply *rp = next(r);
    CHECK_INT(rp->len, 3);
    CHECK_INT(rp->item[0]->len, 2);
    CHECK_INT(rp->item[0]->item[0]->num, 1);
    CHECK_MEM(rp->item[0]->item[1]->str, rp->item[0]->item[1]->len, "ab\r\n", 4);
    CHECK_STR(rp->item[1]->str, "x");
    CHECK_INT(rp->item[2]->type, REPLY_NIL);
    reply_free(rp);
    resp_free(r);
}

TEST(P10_deep_reply_refused)
{
    CHECK_INT(one(BYTES("*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), NULL, 0), HF_OK);
    refused(BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n"), "deep");
    refused(BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*0\r\n"), "deep");
    refused(BYTES("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"), "deep");
}

TEST(P10_bad_numbers_refused)
{
    refused(BYTES("*-2\r\n"), "out of range");
    refused(BYTES("$-2\r\n"), "out of range");
    refused(BYTES("*4294967295\r\n"), "elements");
    refused(BYTES("*2147483647\r\n"), "elements");
    refused(BYTES("*16385\r\n"), "elements");
    refused(BYTES("*99999999999999999999\r\n"), "elements");
    refused(BYTES("*-0x1\r\n"), "elements");
    refused(BYTES("$9223372036854775807\r\n"), "bulk");
    refused(BYTES("$9223372036854775807\r\nabc\r\n"), "bulk");
    refused(BYTES("$18446744073709551615\r\n"), "bulk");
    refused(BYTES("$1114113\r\n"), "bulk");
    refused(BYTES("$1114113\r"), "bulk");
    refused(BYTES("$abc\r\n"), "bulk");
    refused(BYTES("$\r\n"), "bulk");
    refused(BYTES("$ 1\r\na\r\n"), "bulk");
    refused(BYTES(":abc\r\n"), "integer");
    refused(BYTES(":\r\n"), "integer");
    refused(BYTES(":1 \r\n"), "integer");
    refused(BYTES(":-\r\n"), "integer");
    refused(BYTES(":+1\r\n"), "integer");
    refused(BYTES(":-9223372036854775809\r\n"), "integer");
    refused(BYTES(":1\r:"), "CR");
    refused(BYTES("+a\rb\r\n"), "CR");
    refused(BYTES(":9223372036854775808\r\n"), "integer");
    CHECK_INT(one(BYTES("*16384\r\n"), NULL, 0), HF_OK);
    CHECK_INT(one(BYTES("$1048000\r\nabc"), NULL, 0), HF_OK);
}

TEST(P10_garbage_refused)
{
    for (int c = 0; c < 256; c++) {
        char text[] = { (char)c, '1', '\r', '\n' };
        hf_err want = c && strchr("+-:$*", c) ? HF_OK : HF_EPROTO;
        CHECK_INT(one(text, 4, NULL, 0), want);
        CHECK_INT(one(text, 1, NULL, 0), want);
    }
    refused(BYTES("HTTP/1.1 400 Bad Request\r\n"), "\"H\"");
    refused(BYTES("\x15\x03\x03"), "\\x15");
    refused(BYTES("$3\r\nabcXY"), "line end");
    refused(BYTES("*2\r\n$1\r\nabcde\r\n"), "line end");
}

TEST(P10_endless_line_refused)
{
    char *line = malloc(2 * RESP_MAX_LINE);
    memset(line, 'x', 2 * RESP_MAX_LINE);
    line[0] = '-';
    memcpy(line + 1 + RESP_MAX_LINE, "\r\n", 2);
    CHECK_INT(one(line, RESP_MAX_LINE + 3, NULL, 0), HF_OK);
    CHECK_INT(one(line, RESP_MAX_LINE + 2, NULL, 0), HF_OK); /* CR, and the LF still to come */
    memcpy(line + 1 + RESP_MAX_LINE, "x\r\n", 3);
    refused(line, RESP_MAX_LINE + 4, "line");
    refused(line, RESP_MAX_LINE + 3, "line");
    line[0] = ':';
    memset(line + 1, '1', RESP_MAX_LINE);
    refused(line, 40, "line");
    line[0] = '$';
    refused(line, 40, "line");
    free(line);
}

/* Elements that are small each, in an array that is not. */
TEST(P10_large_reply_refused)
{
    enum { PART = 1000 };
    char part[PART + 20];
    struct resp *r = resp_new();
    struct reply *rp;
    size_t fed = 7, n = (size_t)sprintf(part, "$%d\r\n", PART);
    memset(part + n, 'x', PART);
    memcpy(part + n + PART, "\r\n", 2);
    n += PART + 2;
    CHECK_INT(resp_feed(r, BYTES("*4096\r\n")), HF_OK);
    hf_err err = HF_OK;
    while (err == HF_OK && fed < 2 * RESP_MAX_BYTES) {
        CHECK_INT(resp_feed(r, part, n), HF_OK);
        fed += n;
        err = resp_next(r, &rp);
        CHECK(rp == NULL);
    }
    CHECK_INT(err, HF_EPROTO);
    CHECK_RANGE(fed, RESP_MAX_BYTES + 1, RESP_MAX_BYTES + n);
    CHECK_CONTAINS(resp_error(r), "1114112 bytes");
    CHECK_INT(resp_next(r, &rp), HF_EPROTO); /* it stays so */
    CHECK_INT(resp_feed(r, "+", 1), HF_EPROTO);

    resp_reset(r);
    CHECK_INT(resp_feed(r, BYTES("+PONG\r\n")), HF_OK);
    rp = next(r);
    CHECK_STR(rp->str, "PONG");
    reply_free(rp);
    resp_free(r);
}

/* A bulk that makes n bytes on the wire. */
static hf_err bulk_of(size_t n)
{
    char *all = malloc(n + 32);
    CHECK(all != NULL);
    int head = sprintf(all, "$%zu\r\n", n - 12);
    CHECK_INT(head, 10);
    memset(all + head, 'x', n - 12);
    memcpy(all + n - 2, "\r\n", 2);
    hf_err err = one(all, n, NULL, 0);
    free(all);
    return err;
}

TEST(largest_reply_taken)
{
    CHECK_INT(bulk_of(RESP_MAX_BYTES), HF_OK);
    CHECK_INT(bulk_of(RESP_MAX_BYTES + 1), HF_EPROTO);
}

/* The limit is of one reply, not of what one feed may bring. */
TEST(many_replies_in_one_feed)
{
    enum { N = 400000 };
    char *all = malloc(N * 4);
    for (int i = 0; i < N; i++)
        memcpy(all + i * 4, ":7\r\n", 4);
    struct resp *r = resp_new();
    CHECK_INT(resp_feed(r, all, N * 4), HF_OK);
    CHECK_INT(resp_feed(r, all, 4), HF_EPROTO); /* not taken in between */
    resp_reset(r);
    CHECK_INT(resp_feed(r, all, N * 4), HF_OK);
    for (int i = 0; i < 1000; i++)
        reply_free(next(r));
    resp_free(r);
    free(all);
}

TEST(reset_forgets_half_a_reply)
{
    struct resp *r = resp_new();
    CHECK_INT(resp_feed(r, BYTES("*2\r\n$3\r\nabc\r\n$5\r\nab")), HF_OK);
    CHECK(next(r) == NULL);
    resp_reset(r);
    CHECK(next(r) == NULL);
    CHECK_INT(resp_feed(r, BYTES(":5\r\n")), HF_OK);
    struct reply *rp = next(r);
    CHECK_INT(rp->num, 5);
    reply_free(rp);
    CHECK_INT(resp_feed(r, BYTES("*2\r\n:1\r\n")), HF_OK);
    CHECK(next(r) == NULL);
    resp_free(r); /* with a reply half built */
}

static long allocations_left, allocations;

static void *counted_alloc(size_t n)
{
    allocations++;
    return allocations_left-- > 0 ? malloc(n) : NULL;
}

TEST(out_of_memory_at_every_step)
{
    int failures = 0;
    hf_allocator_set(counted_alloc, realloc, free);
    for (long n = 0;; n++, failures++) {
        allocations_left = n;
        struct resp *r = resp_new();
        if (!r)
            continue;
        struct reply *rp;
        CHECK_INT(resp_feed(r, BYTES("*4\r\n+a\r\n*2\r\n:1\r\n$-1\r\n$1\r\nx\r\n*-1\r\n")), HF_OK);
        hf_err err = resp_next(r, &rp);
        if (err != HF_OK) {
            CHECK_INT(err, HF_ENOMEM);
            CHECK_STR(resp_error(r), "out of memory");
            CHECK_INT(resp_next(r, &rp), HF_ENOMEM);
            allocations_left = 100;
            resp_reset(r); /* and the parser is as new */
            CHECK_INT(resp_feed(r, BYTES(":1\r\n")), HF_OK);
            CHECK_INT(resp_next(r, &rp), HF_OK);
        }
        CHECK(rp != NULL);
        reply_free(rp);
        resp_free(r);
        if (err == HF_OK)
            break;
    }
    CHECK_INT(failures, 8); /* the parser and seven items */
}

TEST(one_allocation_per_item)
{
    struct resp *r = resp_new();
    hf_allocator_set(counted_alloc, realloc, free);
    allocations_left = 1000;
    CHECK_INT(resp_feed(r, BYTES("$5\r\nhello\r\n*3\r\n:1\r\n:2\r\n:3\r\n")), HF_OK);
    reply_free(next(r));
    CHECK_INT(allocations, 1);
    reply_free(next(r));
    CHECK_INT(allocations, 5);
    resp_free(r);
}

/* Servers before 7.0 put words of their own before the error of a command in a script. */
TEST(errors_in_scripts_of_old_servers_mean_the_same)
{
    static const struct {
        const char          *text;
        enum server_verdict  verdict;
        hf_err               code;
    } each[] = {
        { "OOM command not allowed", SERVER_REFUSED, HF_ESERVER },
        { "@user_script: 48: -OOM command not allowed", SERVER_REFUSED, HF_ESERVER },
        { "ERR Error running script (call to f_08): @user_script:1: @user_script: 1: -READONLY You",
          SERVER_RECONNECT, HF_ESERVER },
        { "ERR Error running script (call to f_08): @user_script:1: attempt to", SERVER_UNKNOWN,
          HF_ESERVER },
        { "ERR other words: -OOM command", SERVER_UNKNOWN, HF_ESERVER },
    };
    for (size_t i = 0; i < sizeof each / sizeof each[0]; i++) {
        struct resp *r = resp_new();
        char line[200];
        int n = snprintf(line, sizeof line, "-%s\r\n", each[i].text);
        CHECK_INT(resp_feed(r, line, (size_t)n), HF_OK);
        struct reply *rp = next(r);
        hf_err code;
        CHECK_INT(server_judge(rp, &code), each[i].verdict);
        CHECK_INT(code, each[i].code);
        reply_free(rp);
        resp_free(r);
    }
}
