/* SPDX-License-Identifier: MIT
 * scan.c - all locks under a client's prefix.
 *
 * SCAN, never KEYS: it does not stop the server. It may tell a key twice, so names are collected
 * and sorted first; people like them in order anyway.
 */
#include "session/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define CURSOR_SIZE 64 /* where there are several servers it also tells which one it is at */

struct found_names {
    char  **name; /* each: its length as a size_t, then the bytes */
    size_t  n, capacity;
};

static hf_bytes name_at(const struct found_names *all, size_t i)
{
    size_t len;
    memcpy(&len, all->name[i], sizeof len);
    return (hf_bytes){ all->name[i] + sizeof len, len };
}

static void clear(struct found_names *all)
{
    for (size_t i = 0; i < all->n; i++)
        mem_free(all->name[i]);
    mem_free(all->name);
}

static int add(struct found_names *all, hf_bytes name)
{
    if (all->n == all->capacity) {
        size_t grown = all->capacity ? 2 * all->capacity : 64;
        char **p = mem_resize(all->name, grown * sizeof *p);
        if (!p)
            return -1;
        all->name = p;
        all->capacity = grown;
    }
    char *p = mem_alloc(sizeof name.len + name.len);
    if (!p)
        return -1;
    memcpy(p, &name.len, sizeof name.len);
    memcpy(p + sizeof name.len, name.data, name.len);
    all->name[all->n++] = p;
    return 0;
}

static int by_bytes(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    size_t lx, ly;
    memcpy(&lx, x, sizeof lx);
    memcpy(&ly, y, sizeof ly);
    int d = memcmp(x + sizeof lx, y + sizeof ly, lx < ly ? lx : ly);
    return d ? d : lx < ly ? -1 : lx > ly;
}

/* The prefix with its glob characters escaped, then the pattern. */
static char *make_pattern(const char *prefix, const char *pattern)
{
    size_t tail = strlen(pattern) + 1;
    char *p = mem_alloc(2 * strlen(prefix) + tail), *q = p;
    if (!p)
        return NULL;
    for (; *prefix; prefix++) {
        if (strchr("*?[]\\", *prefix))
            *q++ = '\\';
        *q++ = *prefix;
    }
    memcpy(q, pattern, tail);
    return p;
}

/* The locks among these keys. -1: no memory. */
static int add_locks(struct found_names *all, const char *prefix, struct op_list keys)
{
    size_t skip = strlen(prefix);
    for (size_t i = 0; i < op_list_len(keys); i++) {
        hf_bytes key = op_list_at(keys, i);
        if (keys_is_lock(prefix, key)
            && add(all, (hf_bytes){ (const char *)key.data + skip, key.len - skip }) < 0)
            return -1;
    }
    return 0;
}

/* One SCAN: adds the locks in it, moves the cursor. *missing: a server that was passed over; its
 * code is HF_OK if there is none. */
static hf_err scan_step(hf_client *c, const char *pattern, char cursor[CURSOR_SIZE],
                        int64_t until_ms, struct found_names *all, hf_error *missing,
                        hf_error *reterr)
{
    hf_error err = { 0 };
    AUTO(op_clear) struct op op = {
        .id = OP_scan, .deadline_ms = until_ms == CLOCK_NEVER ? client_deadline(c) : until_ms,
        .scan = { .prefix = c->prefix, .cursor = cursor, .pattern = pattern,
                  .longest = strlen(c->prefix) + KEYS_NAME_MAX },
    };
    hf_err e = exec_run(c->exec, &op, &err);
    if (e) {
        if (reterr)
            *reterr = err;
        return e;
    }
    if (op.got.page.missing && !missing->code)
        *missing = err;
    hf_bytes next = op.got.page.cursor;
    if (next.len >= CURSOR_SIZE)
        return err_set(reterr, HF_EPROTO, "the cursor of a SCAN has %zu bytes", next.len);
    memcpy(cursor, next.data, next.len);
    cursor[next.len] = '\0';
    if (add_locks(all, c->prefix, op.got.page.keys) < 0)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return HF_OK;
}

hf_err scan_locks(hf_client *c, const char *pattern, int64_t until_ms,
                  hf_err (*each)(hf_bytes name, void *arg, hf_error *reterr), void *arg,
                  hf_error *reterr)
{
    AUTO(mem_freep) char *match = make_pattern(c->prefix, pattern ? pattern : "*");
    struct found_names all = { 0 };
    char cursor[CURSOR_SIZE] = "0";
    hf_error missing = { 0 };
    hf_err e = match ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");

    while (!e) {
        e = scan_step(c, match, cursor, until_ms, &all, &missing, reterr);
        if (strcmp(cursor, "0") == 0)
            break;
    }
    if (!e && all.n)
        qsort(all.name, all.n, sizeof *all.name, by_bytes);
    for (size_t i = 0; i < all.n && !e; i++)
        if (i == 0 || by_bytes(&all.name[i - 1], &all.name[i]) != 0)
            e = each(name_at(&all, i), arg, reterr);
    clear(&all);
    if (!e && missing.code) {
        e = missing.code;
        if (reterr)
            *reterr = missing;
    }
    return e;
}
