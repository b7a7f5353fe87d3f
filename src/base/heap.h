/* SPDX-License-Identifier: MIT
 * heap.h - what is due first: a binary heap of nodes that live inside their owners.
 */
#ifndef BASE_HEAP_H
#define BASE_HEAP_H

#include <stddef.h>
#include <stdint.h>

struct heap_node {
    int64_t due_ms;
    size_t  at; /* position + 1; 0: in no heap */
};

struct heap {
    struct heap_node **node;
    size_t             len, capacity;
};

/* Make room for n nodes in all, so that heap_put() cannot fail: 0, or -1 when memory is short. */
int heap_reserve(struct heap *h, size_t n);

/* Insert n, or move it if it is in the heap already. */
void heap_put(struct heap *h, struct heap_node *n, int64_t due_ms);
void heap_remove(struct heap *h, struct heap_node *n); /* fine when it is in no heap */
struct heap_node *heap_first(const struct heap *h);    /* NULL: empty */
void heap_clear(struct heap *h);

#endif
