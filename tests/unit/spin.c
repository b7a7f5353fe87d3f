/* SPDX-License-Identifier: MIT
 * spin.c - when a lone caller looks for its reply before it sleeps, and when it leaves that.
 */
#include "net/spin.h"

#include "harness/t.h"

static int  looks;
static bool comes;

static ssize_t look(struct stream *s, void *buf, size_t n)
{
    (void)s, (void)n;
    looks++;
    *(char *)buf = '+';
    return comes ? 1 : 0;
}

static const struct stream_ops ops = { .read_now = look };
static struct stream stream = { .ops = &ops, .fd = -1 };

static ssize_t spin_once(struct spin *sp)
{
    char byte;
    return spin_read(sp, &stream, &byte, 1);
}

TEST(who_does_not_want_it_or_is_not_alone_never_spins)
{
    struct spin sp;
    spin_init(&sp, false);
    CHECK(!spin_begins(&sp, true));
    spin_init(&sp, true);
    sp.enabled = true; /* whatever cores this machine has */
    CHECK(!spin_begins(&sp, false));
    CHECK(spin_begins(&sp, true));
    spin_crowded(&sp);
    int reads = 0;
    while (!spin_begins(&sp, true))
        CHECK(++reads < 1000);
    CHECK(reads >= 100); /* others were there lately */
}

TEST(it_leaves_off_when_replies_do_not_come_in_time_and_tries_again_later)
{
    struct spin sp;
    spin_init(&sp, true);
    sp.enabled = true;
    comes = true;
    for (int i = 0; i < 100; i++) {
        CHECK(spin_begins(&sp, true));
        CHECK_INT(spin_once(&sp), 1);
    }
    CHECK_INT(looks, 100); /* what is there is taken at the first look */
    comes = false;
    int misses = 0;
    while (spin_begins(&sp, true)) {
        int64_t begun = t_now_ns();
        CHECK_INT(spin_once(&sp), 0);
        CHECK(t_now_ns() - begun < INT64_C(5000000000)); /* it ends by itself */
        CHECK(++misses < 10);
    }
    int pause = 0;
    while (!spin_begins(&sp, true))
        CHECK(++pause < 1000);
    CHECK(pause >= 50);
}
