/* SPDX-License-Identifier: MIT
 * scan.c - all locks under a client's prefix.
 *
 * SCAN, never KEYS: it does not stop the server. It may tell a key twice, so names are collected
 * and sorted first; people like them in order anyway.
 */
#include "session/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct names {
    char  **name; /* each: its length as a size_t, then the bytes */
    size_t  n, capacity;
};

static hf_bytes name_at(const struct names *all, size_t i)
{
    size_t len;
    memcpy(&len, all->name[i], sizeof len);
    return (hf_bytes){ all->name[i] + sizeof len, len };
}

static void clear(struct names *all)
{
    for (size_t i = 0; i < all->n; i++)
        mem_free(all->name[i]);
    mem_free(all->name);
}

static int add(struct names *all, hf_bytes name)
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

/* One SCAN: adds the locks in it, moves the cursor. */
static hf_err scan_step(hf_client *c, const char *pattern, char cursor[32], struct names *all,
                        hf_error *reterr)
{
    char longest[24];
    snprintf(longest, sizeof longest, "%zu", strlen(c->prefix) + KEYS_NAME_MAX);
    hf_bytes keys[] = { hf_str(c->prefix) }; /* any one */
    hf_bytes args[] = { hf_str(cursor), hf_str(pattern), hf_str(longest) };
    struct script_call sc = { .id = SCRIPT_scan, .nkeys = 1, .keys = keys, .nargs = 3,
                              .args = args, .deadline_ms = client_deadline(c) };
    hf_err e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    struct reply *rp = sc.reply;
    if (rp->type != REPLY_ARRAY || rp->len != 2 || rp->item[0]->len >= 32
               || rp->item[0]->type != REPLY_BULK || rp->item[1]->type != REPLY_ARRAY) {
        e = err_set(reterr, HF_EPROTO, "the answer to SCAN makes no sense");
    } else {
        memcpy(cursor, rp->item[0]->str, rp->item[0]->len + 1);
        size_t skip = strlen(c->prefix);
        for (size_t i = 0; i < rp->item[1]->len && !e; i++) {
            const struct reply *key = rp->item[1]->item[i];
            if (key->type == REPLY_BULK && keys_is_lock(c->prefix, (hf_bytes){ key->str, key->len })
                && add(all, (hf_bytes){ key->str + skip, key->len - skip }) < 0)
                e = err_set(reterr, HF_ENOMEM, "out of memory");
        }
    }
    reply_free(rp);
    return e;
}

hf_err scan_locks(hf_client *c, const char *pattern,
                  hf_err (*each)(hf_bytes name, void *arg, hf_error *reterr), void *arg,
                  hf_error *reterr)
{
    AUTO(mem_freep) char *match = make_pattern(c->prefix, pattern ? pattern : "*");
    struct names all = { 0 };
    char cursor[32] = "0";
    hf_err e = match ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");

    while (!e) {
        e = scan_step(c, match, cursor, &all, reterr);
        if (strcmp(cursor, "0") == 0)
            break;
    }
    if (!e && all.n)
        qsort(all.name, all.n, sizeof *all.name, by_bytes);
    for (size_t i = 0; i < all.n && !e; i++)
        if (i == 0 || by_bytes(&all.name[i - 1], &all.name[i]) != 0)
            e = each(name_at(&all, i), arg, reterr);
    clear(&all);
    return e;
}
