/* SPDX-License-Identifier: MIT
 * store.h - a model of what a server keeps: strings, sorted sets and hashes, each with a ttl in the
 * server's own time. Small: a key is found by looking at all of them.
 */
#ifndef SIM_STORE_H
#define SIM_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holdfast.h"

#define STORE_NO_TTL (-1)

struct text {
    char  *p;
    size_t len;
};

enum entry_kind { ENTRY_STRING, ENTRY_ZSET, ENTRY_HASH };

/* Of a sorted set: member and score, in order. Of a hash: field and value. */
struct element {
    struct text name, value;
    double      score;
};

struct entry {
    uint32_t        hash;
    enum entry_kind kind;
    int64_t         ends_ms; /* in the server's time; STORE_NO_TTL */
    struct text     key, string;
    struct element *element;
    size_t          n, room;
};

struct store {
    struct entry **entry;
    size_t         n, room;
};

void store_clear(struct store *s);
/* *to, which is cleared before, becomes the same. */
void store_copy(struct store *to, const struct store *from);

/* NULL: there is none; what has ended is dropped. */
struct entry *store_find(struct store *s, hf_bytes key, int64_t now_ms);
/* A fresh one without a ttl, in the place of any other. */
struct entry *store_new(struct store *s, hf_bytes key, enum entry_kind kind);
void store_remove(struct store *s, struct entry *e);
/* It moves from one store to another, which has none of that name. */
void store_take(struct store *to, struct store *from, struct entry *e);
/* Drop all that has ended. */
void store_expire(struct store *s, int64_t now_ms);

void text_set(struct text *t, const void *p, size_t len);
static inline bool text_is(const struct text *t, const void *p, size_t len)
{
    return t->len == len && __builtin_memcmp(t->p, p, len) == 0;
}

/* The place of a member or field; e->n: it is not there. */
size_t entry_place(const struct entry *e, hf_bytes name);
/* True: it is new. A sorted set stays in order. */
bool entry_put(struct entry *e, hf_bytes name, double score, hf_bytes value);
void entry_drop(struct entry *e, size_t place);

#endif
