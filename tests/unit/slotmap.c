/* SPDX-License-Identifier: MIT
 * slotmap.c - what a cluster says about where its slots are, in every form, true or not.
 */
#include "topo/slotmap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"

/* ---- MOVED and ASK ---- */

TEST(redirections)
{
    static const struct {
        const char *said;
        int         ok, ask;
        unsigned    slot;
        const char *host;
        int         port;
    } t[] = {
        { "MOVED 3999 127.0.0.1:6381", 1, 0, 3999, "127.0.0.1", 6381 },
        { "ASK 0 127.0.0.1:1", 1, 1, 0, "127.0.0.1", 1 },
        { "MOVED 16383 h.example.com:65535", 1, 0, 16383, "h.example.com", 65535 },
        { "MOVED 1 2001:db8::1:6381", 1, 0, 1, "2001:db8::1", 6381 },
        { "MOVED 1 :6381", 1, 0, 1, "", 6381 }, /* where we asked */
        { "MOVED 1 h:6381 and more", 1, 0, 1, "h", 6381 }, /* of a newer server, perhaps */
        { "MOVED 1 h:6381 more: or less:7", 1, 0, 1, "h", 6381 },
        { "MOVED 1 ?:6381", .ok = 0 },
        { "MOVED 1 h\x1b]0;x\x07:6381", .ok = 0 }, /* what no host has */
        { "MOVED 1 h\n:6381", .ok = 0 },
        { "MOVED 1 h\xc3\xa4:6381", .ok = 0 },
        { "MOVED 1 a b:6381", .ok = 0 },
        { "MOVED 1 [::1]:6381", .ok = 0 },
        { "MOVED 1 h/x:6381", .ok = 0 },
        { "MOVED 1 h:6381x", .ok = 0 },
        { "MOVED 1 h:+6381", .ok = 0 },
        { "MOVED +1 h:1", .ok = 0 },
        { "MOVED  1 h:1", .ok = 0 },
        { "MOVED", .ok = 0 },
        { "MOVED ", .ok = 0 },
        { "MOVED 1", .ok = 0 },
        { "MOVED 1 ", .ok = 0 },
        { "MOVED 1 h", .ok = 0 },
        { "MOVED 1 :", .ok = 0 },
        { "MOVED 1 h:", .ok = 0 },
        { "MOVED 1 h: 1", .ok = 0 },
        { "MOVED 1 h:x", .ok = 0 },
        { "MOVED 1 h:0", .ok = 0 },
        { "MOVED 1 h:-1", .ok = 0 },
        { "MOVED 1 h:65536", .ok = 0 },
        { "MOVED 1 h:4294967297", .ok = 0 },
        { "MOVED 1 h:99999999999999999999", .ok = 0 },
        { "MOVED 16384 h:1", .ok = 0 },
        { "MOVED -1 h:1", .ok = 0 },
        { "MOVED 18446744073709551617 h:1", .ok = 0 },
        { "MOVED x h:1", .ok = 0 },
        { "MOVED 1x h:1", .ok = 0 },
        { "moved 1 h:1", .ok = 0 },
        { "MOVEDx 1 h:1", .ok = 0 },
        { "ASKING 1 h:1", .ok = 0 },
        { "TRYAGAIN 1 h:1", .ok = 0 },
        { "", .ok = 0 },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct reply rp = { .type = REPLY_ERROR, .str = (char *)t[i].said,
                            .len = strlen(t[i].said) };
        struct slot_place p;
        bool ask;
        if (slotmap_redirection(&rp, &ask, &p) != (t[i].ok != 0))
            FAIL("%s: should be %s", t[i].said, t[i].ok ? "understood" : "refused");
        if (!t[i].ok)
            continue;
        CHECK_INT(ask, t[i].ask);
        CHECK_INT(p.first, t[i].slot);
        CHECK_INT(p.last, t[i].slot);
        CHECK_STR(p.host, t[i].host);
        CHECK_INT(p.port, t[i].port);
        rp.type = REPLY_STATUS; /* not an error: said by somebody else */
        CHECK(!slotmap_redirection(&rp, &ask, &p));
    }
}

TEST(a_host_fits_or_is_refused)
{
    for (size_t len = SLOTMAP_HOST_MAX - 2; len <= SLOTMAP_HOST_MAX + 1; len++) {
        char said[SLOTMAP_HOST_MAX + 40], host[SLOTMAP_HOST_MAX + 8];
        memset(host, 'h', len);
        host[len] = '\0';
        snprintf(said, sizeof said, "MOVED 1 %s:1", host);
        struct reply rp = { .type = REPLY_ERROR, .str = said, .len = strlen(said) };
        struct slot_place p;
        bool ask;
        CHECK_INT(slotmap_redirection(&rp, &ask, &p), len < SLOTMAP_HOST_MAX);
        if (len < SLOTMAP_HOST_MAX)
            CHECK_STR(p.host, host);
    }
}

TEST(S4_what_cannot_be_a_host_is_refused)
{
    static const char *const bad[] = { "\x1b]0;x\a", "a b", "a\nb", "a\r", "\xff", "a/b", "$(id)",
                                       "a;b", "[::1]", "'a'" };
    static const char *const good[] = { "a", "10.0.0.1", "a-b_c.example", "::1", "fe80::1%eth0" };
    struct slot_place p;
    bool ask;
    for (size_t i = 0; i < sizeof bad / sizeof *bad + sizeof good / sizeof *good; i++) {
        size_t nbad = sizeof bad / sizeof *bad;
        const char *host = i < nbad ? bad[i] : good[i - nbad];
        char said[80];
        snprintf(said, sizeof said, "MOVED 1 %s:6379", host);
        struct reply rp = { .type = REPLY_ERROR, .str = said, .len = strlen(said) };
        if (slotmap_redirection(&rp, &ask, &p) != (i >= nbad))
            FAIL("%s: should be %s", host, i < nbad ? "refused" : "understood");
    }
}

/* ---- CLUSTER SLOTS ---- */

#define RANGE(first, last, node) "*3\r\n:" #first "\r\n:" #last "\r\n" node
#define NODE(host, port)         "*3\r\n" host "\r\n:" #port "\r\n$1\r\nx\r\n"
#define HOST_A                   "$1\r\na"

struct seen {
    char text[512];
};

static void note(void *arg, const struct slot_place *p)
{
    struct seen *s = arg;
    size_t n = strlen(s->text);
    snprintf(s->text + n, sizeof s->text - n, "%s%u-%u %s:%d %u", n ? ", " : "", p->first, p->last,
             p->host, p->port, p->replicas);
}

static struct reply *parse(const char *data, size_t len)
{
    struct resp *r = resp_new();
    struct reply *rp = NULL;
    CHECK_INT(resp_feed(r, data, len), HF_OK);
    CHECK_INT(resp_next(r, &rp), HF_OK);
    CHECK(rp);
    resp_free(r);
    return rp;
}

TEST(maps)
{
#define META(key, value) "*4\r\n$1\r\n?\r\n:7\r\n$1\r\nx\r\n*2\r\n" key "\r\n" value "\r\n"
    static const struct {
        const char *data;
        const char *seen; /* NULL: makes no sense */
    } t[] = {
        { "*0\r\n", "" },
        { "*1\r\n" RANGE(0, 16383, NODE(HOST_A, 7)), "0-16383 a:7 0" },
        { "*2\r\n" RANGE(0, 5, NODE(HOST_A, 7)) "*5\r\n:6\r\n:6\r\n" NODE("$0\r\n", 8)
          NODE(HOST_A, 9) NODE(HOST_A, 10), "0-5 a:7 0, 6-6 :8 2" },
        { "*1\r\n" RANGE(0, 1, NODE("$-1", 7)), "0-1 :7 0" },
        { "*1\r\n" RANGE(0, 1, "*2\r\n$1\r\na\r\n:7\r\n"), "0-1 a:7 0" },
        { "*2\r\n" RANGE(0, 9, NODE(HOST_A, 7)) RANGE(3, 4, NODE(HOST_A, 8)),
          "0-9 a:7 0, 3-4 a:8 0" },
        { "*2\r\n" RANGE(0, 9, NODE("$1\r\n?", 7)) RANGE(3, 4, NODE(HOST_A, 8)), "3-4 a:8 0" },
        { "*1\r\n" RANGE(0, 1, META("$2\r\nip", "$3\r\n::1")), "0-1 ::1:7 0" },
        { "*1\r\n" RANGE(0, 1, META("$2\r\nip", "$0\r\n")), "0-1 :7 0" },
        { "*1\r\n" RANGE(0, 1, META("$2\r\nip", "$1\r\n?")), "" },
        { "*1\r\n" RANGE(0, 1, META("$8\r\nhostname", "$1\r\nb")), "" },
        { "*1\r\n" RANGE(0, 1, META("$2\r\nip", ":5")), "" },
        { "*1\r\n" RANGE(0, 1, META(":5", "$1\r\nb")), "" },
        { "*1\r\n" RANGE(0, 1, "*4\r\n$1\r\n?\r\n:7\r\n$1\r\nx\r\n*1\r\n$2\r\nip\r\n"), "" },
        { "*1\r\n" RANGE(0, 1, "*4\r\n$1\r\n?\r\n:7\r\n$1\r\nx\r\n$2\r\nip\r\n"), "" },
        { "*1\r\n" RANGE(0, 1, "*4\r\n$1\r\n?\r\n:7\r\n$1\r\nx\r\n*-1\r\n"), "" },
        { "+OK\r\n", NULL },
        { ":0\r\n", NULL },
        { "$-1\r\n", NULL },
        { "*1\r\n:0\r\n", NULL },
        { "*1\r\n*0\r\n", NULL },
        { "*1\r\n*2\r\n:0\r\n:1\r\n", NULL },
        { "*1\r\n" RANGE(-1, 1, NODE(HOST_A, 7)), NULL },
        { "*1\r\n" RANGE(2, 1, NODE(HOST_A, 7)), NULL },
        { "*1\r\n" RANGE(0, 16384, NODE(HOST_A, 7)), NULL },
        { "*1\r\n" RANGE(0, 9223372036854775807, NODE(HOST_A, 7)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE(HOST_A, 0)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE(HOST_A, -7)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE(HOST_A, 65536)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE(HOST_A, 4294967303)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE(":1", 7)), NULL },
        { "*1\r\n" RANGE(0, 1, NODE("*0", 7)), NULL },
        { "*1\r\n" RANGE(0, 1, "*2\r\n$1\r\na\r\n$1\r\n7\r\n"), NULL },
        { "*1\r\n" RANGE(0, 1, "*1\r\n$1\r\na\r\n"), NULL },
        { "*1\r\n" RANGE(0, 1, "*0\r\n"), NULL },
        { "*1\r\n" RANGE(0, 1, "$1\r\na\r\n"), NULL },
        { "*1\r\n*3\r\n$1\r\n0\r\n:1\r\n" NODE(HOST_A, 7), NULL },
        { "*1\r\n" RANGE(0, 1, NODE("$3\r\na\x1b[", 7)), NULL }, /* what no host has */
        { "*1\r\n" RANGE(0, 1, NODE("$3\r\na b", 7)), NULL },
        { "*1\r\n" RANGE(0, 1, META("$2\r\nip", "$2\r\n\x07" "a")), NULL },
        /* and nothing of it */
        { "*2\r\n" RANGE(0, 1, NODE(HOST_A, 7)) RANGE(0, 1, NODE(HOST_A, 0)), NULL },
    };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct seen s = { "" };
        struct reply *rp = parse(t[i].data, strlen(t[i].data));
        if (slotmap_read(rp, note, &s) != (t[i].seen != NULL))
            FAIL("%zu: %s should be %s", i, t[i].data, t[i].seen ? "understood" : "refused");
        CHECK_STR(s.text, t[i].seen ? t[i].seen : "");
        reply_free(rp);
    }
}

TEST(a_host_with_a_nul_is_refused)
{
    static const char data[] = "*1\r\n*3\r\n:0\r\n:1\r\n*2\r\n$3\r\na\0b\r\n:7\r\n";
    struct seen s = { "" };
    struct reply *rp = parse(data, sizeof data - 1);
    CHECK(!slotmap_read(rp, note, &s));
    reply_free(rp);
}
