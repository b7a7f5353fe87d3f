/* SPDX-License-Identifier: MIT
 * slot_claims.c - CLUSTER NODES: who claims which slots, and who knows better.
 */
#include "topo/slot_claims.h"

#include <stdio.h>
#include <string.h>

#include "harness/t.h"
#include "topo/node_lines.h"

static struct reply said(const char *text)
{
    return (struct reply){ .type = REPLY_BULK, .str = (char *)text, .len = strlen(text) };
}

/* A, with some of its slots, as itself knows it. */
#define OWN(epoch, slots) "aa 10.0.0.1:1@2,h myself,master - 0 0 " #epoch " connected " slots "\n"
/* What somebody else says. */
#define LINE(id, flags, epoch, link, slots) \
    id " 10.0.0.2:1@2 " flags " - 0 0 " #epoch " " link " " slots "\n"
#define SEEN(flags, link) \
    LINE("aa", flags, 1, link, "9") LINE("bb", "myself,master", 1, "connected", "5")

static void check_slots(const struct slot_claims *c, const char *expected)
{
    char text[200] = "";
    size_t n = 0;
    for (unsigned s = 0; s < SLOT_COUNT && n < sizeof text - 10; s++)
        if (slot_claims_has(c, s))
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%u", n ? " " : "", s);
    CHECK_STR(text, expected);
    CHECK_INT(slot_claims_any(c), *expected != '\0');
}

TEST(a_server_claims_what_its_own_line_names)
{
    static const struct {
        const char *said, *claimed;
    } t[] = {
        { OWN(3, "1 5-7 16383"), "1 5 6 7 16383" },
        { OWN(3, "1 [5->-bb] [6-<-bb]"), "1" }, /* going, and coming */
        { OWN(3, ""), "" },
        { "aa h:1@2 myself,slave bb 0 0 3 connected\n", "" },
        { "aa h:1@2 master - 0 0 3 connected 1\n", "" },
        { LINE("bb", "master", 9, "connected", "2") OWN(3, "1"), "1" },
        { "aa h:1@2 noaddr,myself,master - 0 0 3 connected 1", "1" }, /* no end of line */
        { OWN(3, "1 x 7-3 16384 5- -2 99999999999999999999 4-16384 2"), "1 2" },
        { "aa h:1@2 myself,master\n", "" },
        { "\n\n \n        \n", "" },
        { "", "" },
    };
    struct slot_claims c;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct reply rp = said(t[i].said);
        CHECK_INT(slot_claims_read(&c, &rp), HF_OK);
        check_slots(&c, t[i].claimed);
    }
    struct reply refused = { .type = REPLY_ERROR, .str = "NOPERM", .len = 6 };
    CHECK_INT(slot_claims_read(&c, &refused), HF_OK);
    check_slots(&c, "");
}

TEST(of_two_claims_the_higher_epoch_counts)
{
    static const struct {
        const char *said, *left;
    } t[] = {
        { LINE("bb", "myself,master", 2, "connected", "1 5"), "1 5 6" },
        { LINE("bb", "myself,master", 3, "connected", "1 5"), "6" }, /* they settle it soon */
        { LINE("bb", "myself,master", 4, "connected", "1 5"), "6" },
        { LINE("bb", "myself,master", 4, "connected", "1")
          LINE("cc", "master", 9, "connected", "6"), "5" },
        { LINE("bb", "myself,master", 4, "connected", "[5->-aa]"), "1 5 6" },
        { LINE("aa", "master", 9, "connected", "1 5 6"), "1 5 6" }, /* itself is not another one */
        { LINE("aa", "master,fail", 3, "disconnected", "1")
          LINE("bb", "master", 2, "connected", "5"), "1 5 6" }, /* it answers us, so it lives */
        { LINE("bb", "myself,master", 18446744073709551615, "connected", "1"), "5 6" },
        { "", "1 5 6" },
    };
    struct slot_claims c;
    struct reply own = said(OWN(3, "1 5-6"));
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct reply rp = said(t[i].said);
        CHECK_INT(slot_claims_read(&c, &own), HF_OK);
        CHECK_INT(slot_claims_settle(&c, &rp), HF_OK);
        check_slots(&c, t[i].left);
    }
    /* Who may not ask knows nothing better than what it was told. */
    struct reply refused = { .type = REPLY_ERROR, .str = "NOPERM", .len = 6 };
    CHECK_INT(slot_claims_read(&c, &own), HF_OK);
    CHECK_INT(slot_claims_settle(&c, &refused), HF_OK);
    check_slots(&c, "");
}

TEST(who_does_not_answer_keeps_its_slots_only_if_another_one_sees_it_alive)
{
    static const struct {
        const char *said;
        int         keeps;
    } t[] = {
        { SEEN("master", "connected"), 1 },
        { SEEN("master,fail", "connected"), 0 },
        { SEEN("master,fail?", "connected"), 0 },
        { SEEN("slave", "connected"), 0 },
        { SEEN("master", "disconnected"), 0 },
        { LINE("bb", "myself,master", 1, "connected", "5"), 0 },
        { "", 0 },
    };
    struct slot_claims c;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct reply rp = said(t[i].said);
        slot_claims_assume(&c, "aa");
        CHECK(slot_claims_any(&c));
        CHECK_INT(slot_claims_settle(&c, &rp), HF_OK);
        CHECK_INT(slot_claims_has(&c, 5), t[i].keeps);
        CHECK_INT(slot_claims_has(&c, 16383), t[i].keeps);
    }
}
