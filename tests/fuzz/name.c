/* SPDX-License-Identifier: MIT
 * name.c - fuzz: the keys of a name lie in one slot, belong to it alone, and tell it again; a name
 * of parts tells its parts. The input is a prefix and names, each on a line.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "topo/keys.h"
#include "topo/slot.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PARTS = 3 };

static void must(int holds)
{
    if (!holds)
        abort();
}

static int same(hf_bytes a, hf_bytes b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

static void check_keys(const char *prefix, hf_bytes name, const struct lock_keys *k)
{
    hf_bytes key = k->key[KEY_LOCK];
    size_t plen = strlen(prefix);
    must(key.len == plen + name.len && memcmp(key.data, prefix, plen) == 0);
    must(same(k->name, name));
    must(keys_is_lock(prefix, key));
    for (int i = KEY_LOCK + 1; i < KEY_COUNT; i++) {
        must(slot_of(k->key[i].data, k->key[i].len) == slot_of(key.data, key.len));
        must(!keys_is_lock(prefix, k->key[i]));
    }
}

/* Nobody's key is another's. */
static void check_apart(const struct lock_keys *a, const struct lock_keys *b)
{
    for (int i = 0; i < KEY_COUNT; i++)
        for (int j = 0; j < KEY_COUNT; j++)
            must(!same(a->key[i], b->key[j]));
}

static struct lock_keys *keys_of(const char *prefix, hf_bytes name)
{
    struct lock_keys *k = NULL;
    hf_error e = { 0 };
    if (keys_new(prefix, name, &k, &e) != HF_OK) {
        must(!k && e.code == HF_EINVAL && e.message[0]);
        for (const char *p = e.message; *p; p++)
            must((unsigned char)*p >= ' ' && *p != 0x7f);
        return NULL;
    }
    check_keys(prefix, name, k);
    return k;
}

/* The part at *p, its escapes undone, into ret; NULL: it was the last one. */
static const char *unescaped(const char *p, char *ret, size_t *ret_len)
{
    for (*ret_len = 0; *p && *p != '/'; p++) {
        unsigned byte = (unsigned char)*p;
        if (*p == '%') {
            char hex[3] = { p[1], p[2], '\0' };
            byte = (unsigned)strtoul(hex, NULL, 16);
            p += 2;
        }
        ret[(*ret_len)++] = (char)byte;
    }
    return *p ? p + 1 : NULL;
}

static void check_join(const hf_bytes *part, size_t n)
{
    char buf[HF_NAME_MAX + 1], told[HF_NAME_MAX + 1];
    hf_bytes name = { 0 };
    struct lock_keys *k = NULL;
    if (hf_name_join(part, n, buf, sizeof buf, &name, NULL) != HF_OK)
        return;
    must(name.data == buf && name.len <= HF_NAME_MAX);
    must(keys_new("lock:", name, &k, NULL) == HF_OK);
    keys_free(k);
    if (memchr(name.data, '\0', name.len))
        return;
    const char *p = buf;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        must(p != NULL);
        p = unescaped(p, told, &len);
        must(same((hf_bytes){ told, len }, part[i]));
    }
    must(!p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *next = text, prefix[200] = "";
    hf_bytes part[PARTS + 1] = { 0 };
    size_t n = 0;
    must(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    while (n <= PARTS && next) {
        char *end = memchr(next, '\n', (size_t)(text + size - next));
        part[n++] = (hf_bytes){ next, (size_t)((end ? end : text + size) - next) };
        next = end ? end + 1 : NULL;
    }
    size_t plen = strnlen(part[0].data, part[0].len < sizeof prefix - 1 ? part[0].len
                                                                        : sizeof prefix - 1);
    memcpy(prefix, text, plen);
    struct lock_keys *a = keys_of(prefix, part[1]), *b = keys_of(prefix, part[2]);
    if (a && b && !same(part[1], part[2]))
        check_apart(a, b);
    keys_free(a);
    keys_free(b);
    if (n > 1)
        check_join(part + 1, n - 1);
    free(text);
    return 0;
}
