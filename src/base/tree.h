/* SPDX-License-Identifier: MIT
 * tree.h - things in order, found by what they are: a tree of nodes that live inside their owners.
 *
 *     struct tree names = { .compare = by_name };
 *     tree_insert(&names, &k->node);
 *     struct thing *k = TREE_ITEM(tree_find(&names, &like.node), struct thing, node);
 *
 * A treap: ordered by compare() from left to right, and by a random number from top to bottom: so
 * it is about as deep as a balanced one, most likely, whatever order they come in. Nothing here
 * allocates memory, so nothing fails.
 */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include <stddef.h>
#include <stdint.h>

struct tree_node {
    struct tree_node *left, *right;
    uint32_t          rank; /* no node below has a higher one */
};

struct tree {
    struct tree_node *root;
    int (*compare)(const struct tree_node *a, const struct tree_node *b); /* < 0, 0 or > 0 */
};

/* What a node is a member of; NULL for NULL. */
#define TREE_ITEM(node, type, member)                                            \
    __extension__({                                                              \
        const struct tree_node *tree_node_ = (node);                             \
        tree_node_ ? (type *)((char *)tree_node_ - offsetof(type, member)) : NULL; \
    })

/* The one that compares equal to like, which need not be in the tree; NULL: there is none. */
struct tree_node *tree_find(const struct tree *t, const struct tree_node *like);

/* None that compares equal may be in it. */
void tree_insert(struct tree *t, struct tree_node *n);
void tree_remove(struct tree *t, struct tree_node *n); /* fine when it is not in it */

/* From the least to the greatest: NULL: there is none. What n points to need not be in the tree any
 * more. */
struct tree_node *tree_first(const struct tree *t);
struct tree_node *tree_next(const struct tree *t, const struct tree_node *n);

#endif
