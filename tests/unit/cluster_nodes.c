/* SPDX-License-Identifier: MIT
 * cluster_nodes.c - a cluster that names more servers than are remembered: who makes room.
 */
#include "topo/cluster_nodes.h"

#include <stdio.h>
#include <stdlib.h>

#include "harness/t.h"
#include "net/url.h"

static struct url url;
static struct topo topo = { .url = &url };

static unsigned find(struct nodes *ns, int port)
{
    return nodes_find(ns, "127.0.0.1", port);
}

static struct node *node_at(struct nodes *ns, unsigned i)
{
    return atomic_load(&ns->node[i]);
}

/* The first answer has named NODES_MAX of them, at the ports from 1 on; each has the slot of its
 * number, and the first one is of the URL. */
static struct nodes *full(void)
{
    struct nodes *ns = calloc(1, sizeof *ns);
    CHECK(ns);
    nodes_init(ns, &topo);
    ns->answer = 1;
    for (unsigned i = 0; i < NODES_MAX; i++) {
        CHECK_INT(find(ns, (int)i + 1), i);
        CHECK(!nodes_put_slot(ns, i, i));
    }
    node_at(ns, 0)->seed = true;
    return ns;
}

/* The next answer begins, and names these. */
static void name(struct nodes *ns, unsigned first, unsigned last)
{
    ns->answer++;
    for (unsigned i = first; i <= last; i++)
        CHECK_INT(find(ns, node_at(ns, i)->host.port), i);
}

static void nodes_end(struct nodes *ns)
{
    nodes_close(ns, false);
    nodes_clear(ns);
    free(ns);
}

TEST(who_has_no_slots_makes_room_first)
{
    struct nodes *ns = full();
    name(ns, 7, 7);
    CHECK(nodes_put_slot(ns, 7, 8)); /* the one named last has none any more */
    ns->answer++;
    CHECK_INT(find(ns, 5000), 7);
    CHECK_INT(node_at(ns, 7)->host.port, 5000);
    CHECK(!ns->displaced);
    CHECK_INT(find(ns, 5000), 7); /* known now */
    nodes_end(ns);
}

TEST(then_who_was_named_the_longest_ago)
{
    struct nodes *ns = full();
    name(ns, 0, 8);
    name(ns, 10, NODES_MAX - 1);
    name(ns, 1, 1);
    CHECK_INT(find(ns, 5000), 9);
    CHECK(ns->displaced); /* its slots are nobody's, and somebody has to be asked */
    CHECK(!nodes_owner(ns, 9));
    CHECK(nodes_owner(ns, 8) == node_at(ns, 8));
    CHECK_INT(node_at(ns, 9)->slots, 0);
    CHECK_INT(find(ns, 5001), 2); /* of the second answer; the first one is of the URL */
    nodes_end(ns);
}

TEST(whom_this_answer_names_and_whom_the_URL_names_stay)
{
    struct nodes *ns = full();
    name(ns, 1, NODES_MAX - 1);
    CHECK_INT(find(ns, 5000), NOWHERE);
    for (unsigned i = 0; i < NODES_MAX; i++)
        CHECK_INT(node_at(ns, i)->host.port, i + 1);
    ns->answer++;
    CHECK_INT(find(ns, 5000), 1);
    nodes_end(ns);
}

/* Others may use its connection: what it was is still known. */
TEST(one_that_was_used_is_kept_aside_and_one_that_was_not_is_used_again)
{
    struct nodes *ns = full();
    struct node *used = node_at(ns, 1), *unused = node_at(ns, 2);
    CHECK_INT(nodes_open(ns, used), HF_OK);
    const struct conn *cn = used->lane[LANE_PLAIN].conn;
    CHECK(nodes_behind(ns, cn) == used);
    ns->answer++;
    CHECK_INT(find(ns, 5000), 1);
    CHECK(node_at(ns, 1) != used);
    CHECK(nodes_behind(ns, cn) == used);
    CHECK_INT(used->host.port, 2);
    CHECK_INT(ns->ngone, 1);
    CHECK_INT(find(ns, 5001), 2);
    CHECK_INT(find(ns, 5002), 3);
    CHECK(node_at(ns, 3) == unused);
    CHECK_INT(unused->host.port, 5002);
    CHECK_INT(ns->ngone, 1);
    nodes_end(ns);
}

TEST(who_makes_us_use_thousands_of_addresses_gets_no_more_room)
{
    struct nodes *ns = full();
    CHECK_INT(nodes_open(ns, node_at(ns, 1)), HF_OK);
    ns->ngone = 8192;
    ns->answer++;
    CHECK_INT(find(ns, 5000), NOWHERE);
    CHECK_INT(node_at(ns, 1)->host.port, 2);
    ns->ngone--;
    CHECK_INT(find(ns, 5000), 1);
    nodes_end(ns);
}
