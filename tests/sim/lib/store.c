/* SPDX-License-Identifier: MIT
 * store.c - a model of what a server keeps.
 */
#include "sim/lib/store.h"

#include <string.h>

#include "sim/lib/pool.h"

static uint32_t hash_of(hf_bytes key)
{
    uint32_t h = 2166136261u;
    const unsigned char *p = key.data;
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ p[i]) * 16777619u;
    return h;
}

/* Always followed by a NUL, which does not count. */
void text_set(struct text *t, const void *p, size_t len)
{
    char *grown = pool_resize(t->p, len + 1);
    if (len)
        memcpy(grown, p, len);
    grown[len] = '\0';
    *t = (struct text){ grown, len };
}

static void free_element(struct element *el)
{
    pool_free(el->name.p);
    pool_free(el->value.p);
}

static void free_entry(struct entry *e)
{
    for (size_t i = 0; i < e->n; i++)
        free_element(&e->element[i]);
    pool_free(e->element);
    pool_free(e->key.p);
    pool_free(e->string.p);
    pool_free(e);
}

void store_clear(struct store *s)
{
    while (s->n)
        free_entry(s->entry[--s->n]);
}

static void append(struct store *s, struct entry *e)
{
    if (s->n == s->room)
        s->entry = pool_resize(s->entry, (s->room = 2 * s->room + 16) * sizeof(struct entry *));
    s->entry[s->n++] = e;
}

static struct entry *copy_of(const struct entry *from)
{
    struct entry *e = pool_zero(sizeof *e);
    *e = *from;
    e->key = e->string = (struct text){ NULL, 0 };
    text_set(&e->key, from->key.p, from->key.len);
    text_set(&e->string, from->string.p, from->string.len);
    e->room = from->n;
    e->element = pool_zero((from->n + 1) * sizeof *e->element);
    for (size_t i = 0; i < from->n; i++) {
        text_set(&e->element[i].name, from->element[i].name.p, from->element[i].name.len);
        text_set(&e->element[i].value, from->element[i].value.p, from->element[i].value.len);
        e->element[i].score = from->element[i].score;
    }
    return e;
}

void store_copy(struct store *to, const struct store *from)
{
    store_clear(to);
    for (size_t i = 0; i < from->n; i++)
        append(to, copy_of(from->entry[i]));
}

static void remove_at(struct store *s, size_t i)
{
    free_entry(s->entry[i]);
    s->entry[i] = s->entry[--s->n];
}

static bool ended(const struct entry *e, int64_t now_ms)
{
    return e->ends_ms != STORE_NO_TTL && e->ends_ms <= now_ms;
}

struct entry *store_find(struct store *s, hf_bytes key, int64_t now_ms)
{
    uint32_t h = hash_of(key);
    for (size_t i = 0; i < s->n; i++) {
        struct entry *e = s->entry[i];
        if (e->hash != h || !text_is(&e->key, key.data, key.len))
            continue;
        if (!ended(e, now_ms))
            return e;
        remove_at(s, i);
        return NULL;
    }
    return NULL;
}

void store_remove(struct store *s, struct entry *e)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->entry[i] == e) {
            remove_at(s, i);
            return;
        }
}

void store_take(struct store *to, struct store *from, struct entry *e)
{
    for (size_t i = 0; i < from->n; i++)
        if (from->entry[i] == e)
            from->entry[i] = from->entry[--from->n];
    append(to, e);
}

struct entry *store_new(struct store *s, hf_bytes key, enum entry_kind kind)
{
    struct entry *old = store_find(s, key, INT64_MIN), *e = pool_zero(sizeof *e);
    e->hash = hash_of(key);
    e->kind = kind;
    e->ends_ms = STORE_NO_TTL;
    text_set(&e->key, key.data, key.len);
    if (old)
        store_remove(s, old);
    append(s, e);
    return e;
}

void store_expire(struct store *s, int64_t now_ms)
{
    for (size_t i = s->n; i-- > 0;)
        if (ended(s->entry[i], now_ms))
            remove_at(s, i);
}

/* ---- elements -------------------------------------------------------------------------------- */

size_t entry_place(const struct entry *e, hf_bytes name)
{
    size_t i = 0;
    while (i < e->n && !text_is(&e->element[i].name, name.data, name.len))
        i++;
    return i;
}

static int compare(const struct element *el, double score, hf_bytes name)
{
    if (el->score != score)
        return el->score < score ? -1 : 1;
    size_t least = el->name.len < name.len ? el->name.len : name.len;
    int c = memcmp(el->name.p, name.data, least);
    return c ? c : el->name.len < name.len ? -1 : el->name.len > name.len;
}

void entry_drop(struct entry *e, size_t place)
{
    free_element(&e->element[place]);
    e->n--;
    memmove(&e->element[place], &e->element[place + 1], (e->n - place) * sizeof *e->element);
}

bool entry_put(struct entry *e, hf_bytes name, double score, hf_bytes value)
{
    size_t at = entry_place(e, name);
    bool fresh = at == e->n;
    if (!fresh && e->kind == ENTRY_HASH) {
        text_set(&e->element[at].value, value.data, value.len);
        return false;
    }
    struct element el = { .score = score };
    text_set(&el.name, name.data, name.len);
    text_set(&el.value, value.data, value.len);
    if (!fresh)
        entry_drop(e, at);
    if (e->n == e->room)
        e->element = pool_resize(e->element, (e->room = 2 * e->room + 4) * sizeof *e->element);
    at = e->n;
    if (e->kind == ENTRY_ZSET)
        for (at = 0; at < e->n && compare(&e->element[at], score, name) < 0;)
            at++;
    memmove(&e->element[at + 1], &e->element[at], (e->n - at) * sizeof *e->element);
    e->element[at] = el;
    e->n++;
    return fresh;
}
