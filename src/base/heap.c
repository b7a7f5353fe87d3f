/* SPDX-License-Identifier: MIT
 * heap.c - what is due first: a binary heap of nodes that live inside their owners.
 */
#include "base/heap.h"

#include "base/mem.h"

static void place(struct heap *h, size_t i, struct heap_node *n)
{
    h->node[i] = n;
    n->at = i + 1;
}

static void sift_up(struct heap *h, size_t i)
{
    struct heap_node *n = h->node[i];
    while (i > 0 && h->node[(i - 1) / 2]->due_ms > n->due_ms) {
        place(h, i, h->node[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    place(h, i, n);
}

static void sift_down(struct heap *h, size_t i)
{
    struct heap_node *n = h->node[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->len)
            break;
        if (child + 1 < h->len && h->node[child + 1]->due_ms < h->node[child]->due_ms)
            child++;
        if (h->node[child]->due_ms >= n->due_ms)
            break;
        place(h, i, h->node[child]);
        i = child;
    }
    place(h, i, n);
}

int heap_reserve(struct heap *h, size_t n)
{
    if (n <= h->capacity)
        return 0;
    size_t grown = h->capacity ? 2 * h->capacity : 16;
    if (grown < n)
        grown = n;
    struct heap_node **p = mem_resize(h->node, grown * sizeof *p);
    if (!p)
        return -1;
    h->node = p;
    h->capacity = grown;
    return 0;
}

void heap_put(struct heap *h, struct heap_node *n, int64_t due_ms)
{
    n->due_ms = due_ms;
    if (!n->at)
        place(h, h->len++, n);
    size_t i = n->at - 1;
    sift_up(h, i);
    sift_down(h, n->at - 1);
}

void heap_remove(struct heap *h, struct heap_node *n)
{
    if (!n->at)
        return;
    size_t i = n->at - 1;
    struct heap_node *last = h->node[--h->len];
    n->at = 0;
    if (last == n)
        return;
    place(h, i, last);
    sift_up(h, i);
    sift_down(h, last->at - 1);
}

struct heap_node *heap_first(const struct heap *h)
{
    return h->len ? h->node[0] : NULL;
}

void heap_clear(struct heap *h)
{
    mem_free(h->node);
    *h = (struct heap){ 0 };
}
