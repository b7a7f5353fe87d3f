/* SPDX-License-Identifier: MIT
 * tree.c - things in order, found by what they are: a tree of nodes that live inside their owners.
 */
#include "base/tree.h"

#include "base/random.h"

struct tree_node *tree_find(const struct tree *t, const struct tree_node *like)
{
    struct tree_node *at = t->root;
    int order;
    while (at && (order = t->compare(like, at)) != 0)
        at = order < 0 ? at->left : at->right;
    return at;
}

/* Cut what is below at in two: what comes before n, and what comes behind it. */
static void split(const struct tree *t, struct tree_node *at, struct tree_node *n)
{
    struct tree_node **before = &n->left, **behind = &n->right;
    while (at) {
        if (t->compare(at, n) < 0) {
            *before = at;
            before = &at->right;
            at = at->right;
        } else {
            *behind = at;
            behind = &at->left;
            at = at->left;
        }
    }
    *before = *behind = NULL;
}

void tree_insert(struct tree *t, struct tree_node *n)
{
    struct tree_node **p = &t->root;
    n->rank = (uint32_t)random_between(0, UINT32_MAX);
    while (*p && (*p)->rank >= n->rank)
        p = t->compare(n, *p) < 0 ? &(*p)->left : &(*p)->right;
    split(t, *p, n);
    *p = n;
}

/* One tree of two, of which all of a comes before all of b. */
static struct tree_node *join(struct tree_node *a, struct tree_node *b)
{
    struct tree_node *root, **p = &root;
    while (a && b) {
        if (a->rank > b->rank) {
            *p = a;
            p = &a->right;
            a = a->right;
        } else {
            *p = b;
            p = &b->left;
            b = b->left;
        }
    }
    *p = a ? a : b;
    return root;
}

void tree_remove(struct tree *t, struct tree_node *n)
{
    struct tree_node **p = &t->root;
    while (*p && *p != n)
        p = t->compare(n, *p) < 0 ? &(*p)->left : &(*p)->right;
    if (*p)
        *p = join(n->left, n->right);
}

struct tree_node *tree_first(const struct tree *t)
{
    struct tree_node *at = t->root;
    while (at && at->left)
        at = at->left;
    return at;
}

struct tree_node *tree_next(const struct tree *t, const struct tree_node *n)
{
    struct tree_node *at = t->root, *next = NULL;
    while (at) {
        if (t->compare(n, at) < 0) {
            next = at;
            at = at->left;
        } else {
            at = at->right;
        }
    }
    return next;
}
