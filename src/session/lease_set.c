/* SPDX-License-Identifier: MIT
 * lease_set.c - all leases that are kept: in a row, and by the sequence number of their tokens.
 */
#include "session/lease_set.h"

#include "base/mem.h"

/* Sequence numbers are given one after the other: their last bits spread them evenly. */
static struct lease **chain_of(const struct lease_set *s, uint64_t sequence)
{
    return &s->by_sequence[sequence & (s->capacity - 1)];
}

static void link_in(struct lease_set *s, struct lease *l)
{
    struct lease **chain = chain_of(s, l->grant.sequence);
    l->next = *chain;
    *chain = l;
}

int lease_set_reserve(struct lease_set *s, size_t n)
{
    if (n <= s->capacity)
        return 0;
    size_t grown = s->capacity ? s->capacity : 16;
    while (grown < n)
        grown *= 2;
    struct lease **chains = mem_zalloc(grown * sizeof *chains);
    struct lease **row = chains ? mem_resize(s->row, grown * sizeof *row) : NULL;
    if (!row) {
        mem_free(chains);
        return -1;
    }
    mem_free(s->by_sequence);
    s->row = row;
    s->by_sequence = chains;
    s->capacity = grown;
    for (size_t i = 0; i < s->n; i++)
        link_in(s, row[i]);
    return 0;
}

void lease_set_clear(struct lease_set *s)
{
    mem_free(s->row);
    mem_free(s->by_sequence);
    *s = (struct lease_set){ 0 };
}

void lease_set_add(struct lease_set *s, struct lease *l)
{
    s->row[s->n++] = l;
    l->at = s->n;
    link_in(s, l);
}

void lease_set_remove(struct lease_set *s, struct lease *l)
{
    if (!l->at)
        return;
    struct lease **p = chain_of(s, l->grant.sequence);
    while (*p != l)
        p = &(*p)->next;
    *p = l->next;
    struct lease *last = s->row[--s->n];
    s->row[l->at - 1] = last;
    last->at = l->at;
    l->at = 0;
}

struct lease *lease_set_find(const struct lease_set *s, uint64_t sequence)
{
    if (!s->n)
        return NULL;
    struct lease *l = *chain_of(s, sequence);
    while (l && l->grant.sequence != sequence)
        l = l->next;
    return l;
}
