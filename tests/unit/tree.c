/* SPDX-License-Identifier: MIT
 * tree.c - the tree against an array that knows what is in it.
 */
#include "base/tree.h"

#include "harness/t.h"

enum { KEYS = 500, OPERATIONS = 20000 };

struct thing {
    int              key;
    struct tree_node node;
};

static struct thing *thing_at(const struct tree_node *n)
{
    return TREE_ITEM(n, struct thing, node);
}

static int by_key(const struct tree_node *a, const struct tree_node *b)
{
    int x = thing_at(a)->key, y = thing_at(b)->key;
    return x < y ? -1 : x > y;
}

static int depth(const struct tree_node *n)
{
    if (!n)
        return 0;
    int left = depth(n->left), right = depth(n->right);
    CHECK(!n->left || n->left->rank <= n->rank);
    CHECK(!n->right || n->right->rank <= n->rank);
    return 1 + (left > right ? left : right);
}

/* It has those that are marked, in order, and no others. */
static void check_all(const struct tree *t, const struct thing *all, const char *in)
{
    const struct tree_node *at = tree_first(t);
    for (int i = 0; i < KEYS; i++) {
        struct thing like = { .key = i };
        CHECK(thing_at(tree_find(t, &like.node)) == (in[i] ? &all[i] : NULL));
        if (!in[i])
            continue;
        CHECK(thing_at(at) == &all[i]);
        at = tree_next(t, at);
    }
    CHECK(!at);
}

TEST(tree_has_what_was_put_in_and_not_taken_out)
{
    struct thing all[KEYS] = { 0 };
    char in[KEYS] = { 0 };
    struct tree t = { .compare = by_key };
    for (int i = 0; i < KEYS; i++)
        all[i].key = i;
    for (int n = 0; n < OPERATIONS; n++) {
        int i = (int)t_random(KEYS);
        if (in[i])
            tree_remove(&t, &all[i].node);
        else
            tree_insert(&t, &all[i].node);
        in[i] = !in[i];
        if (n % 100 == 0)
            check_all(&t, all, in);
    }
    check_all(&t, all, in);
}

TEST(tree_is_shallow_whatever_order_things_come_in)
{
    enum { MANY = 10000 };
    static struct thing all[MANY];
    for (int way = 0; way < 3; way++) {
        struct tree t = { .compare = by_key };
        for (int i = 0; i < MANY; i++) {
            all[i].key = way == 0 ? i : way == 1 ? -i : i % 2 ? i : -i;
            tree_insert(&t, &all[i].node);
        }
        CHECK_RANGE(depth(t.root), 14, 70); /* about 30, most likely */
        for (int i = 0; i < MANY; i++)
            tree_remove(&t, &all[i].node);
        CHECK(!t.root);
    }
}

TEST(tree_walk_goes_on_when_what_it_is_at_is_taken_out)
{
    struct thing all[5];
    struct tree t = { .compare = by_key };
    for (int i = 0; i < 5; i++) {
        all[i].key = 10 * i;
        tree_insert(&t, &all[i].node);
    }
    int seen = 0;
    for (struct tree_node *n = tree_first(&t); n; n = tree_next(&t, n)) {
        CHECK_INT(thing_at(n)->key, 10 * seen++);
        tree_remove(&t, n);
    }
    CHECK_INT(seen, 5);
    CHECK(!tree_first(&t));
}

TEST(tree_that_is_empty_has_nothing)
{
    struct thing a = { .key = 1 }, b = { .key = 2 };
    struct tree t = { .compare = by_key };
    CHECK(!tree_first(&t));
    CHECK(!tree_find(&t, &a.node));
    tree_remove(&t, &a.node);
    tree_insert(&t, &b.node);
    tree_remove(&t, &a.node); /* not in it */
    CHECK(tree_first(&t) == &b.node);
    CHECK(!tree_next(&t, &b.node));
    CHECK(tree_next(&t, &a.node) == &b.node);
}
