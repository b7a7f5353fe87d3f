/* SPDX-License-Identifier: MIT
 * keys.c - which keys belong to a lock: its own slot, and nobody else's keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "topo/keys.h"

static unsigned slot_of(const char *p, size_t n)
{
    unsigned crc = 0;
    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned)(unsigned char)p[i] << 8;
        for (int b = 0; b < 8; b++)
            crc = crc & 0x8000 ? (crc << 1 ^ 0x1021) & 0xffff : crc << 1 & 0xffff;
    }
    return crc % 16384;
}

/* The slot of the Cluster specification: CRC16 of the tag, or of the whole key. */
static unsigned slot(hf_bytes k)
{
    const char *p = k.data;
    size_t n = k.len;
    const char *open = memchr(p, '{', n);
    if (open) {
        const char *close = memchr(open, '}', n - (size_t)(open - p));
        if (close && close > open + 1) {
            p = open + 1;
            n = (size_t)(close - p);
        }
    }
    return slot_of(p, n);
}

static void each_name(const char *alphabet, size_t max, void (*fn)(const char *name, void *arg),
                      void *arg)
{
    char name[8];
    size_t base = strlen(alphabet);
    for (size_t len = 1; len <= max; len++) {
        size_t total = 1;
        for (size_t i = 0; i < len; i++)
            total *= base;
        for (size_t x = 0; x < total; x++) {
            size_t y = x;
            for (size_t i = 0; i < len; i++, y /= base)
                name[i] = alphabet[y % base];
            name[len] = '\0';
            fn(name, arg);
        }
    }
}

static void check_slot(const char *name, void *arg)
{
    struct lock_keys *k;
    if (keys_new(arg, hf_str(name), &k, NULL))
        return;
    unsigned want = slot(k->key[KEY_LOCK]);
    for (int i = KEY_LOCK + 1; i < KEY_COUNT; i++)
        if (slot(k->key[i]) != want)
            FAIL("prefix \"%s\" name \"%s\": %.*s is in another slot than its lock", (char *)arg,
                 name, (int)k->key[i].len, (const char *)k->key[i].data);
    keys_free(k);
}

TEST(contract_every_companion_is_in_its_locks_slot)
{
    static char *prefixes[] = { "lock:", "", "{p}", "{", "}" };
    CHECK_INT(slot(hf_str("123456789")), 12739); /* the specification's own example */
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        each_name("{}a:t", 3, check_slot, prefixes[i]);
    for (int i = 0; i < 300; i++) { /* and longer ones */
        static const char bytes[] = "{}ab:%\n";
        char name[40];
        size_t n = 1 + t_random(sizeof name - 2);
        for (size_t j = 0; j < n; j++)
            name[j] = bytes[t_random(sizeof bytes - 1)];
        name[n] = '\0';
        check_slot(name, prefixes[t_random(sizeof prefixes / sizeof *prefixes)]);
    }
}

struct all {
    const char *prefix;
    size_t      n, capacity;
    struct used { char key[64]; char name[8]; } *used;
};

static void collect(const char *name, void *arg)
{
    struct all *a = arg;
    struct lock_keys *k;
    if (keys_new(a->prefix, hf_str(name), &k, NULL))
        return;
    for (int i = 0; i < KEY_COUNT; i++) {
        if (a->n == a->capacity) {
            a->capacity = a->capacity ? 2 * a->capacity : 1024;
            a->used = realloc(a->used, a->capacity * sizeof *a->used);
            CHECK(a->used);
        }
        struct used *u = &a->used[a->n++];
        CHECK(k->key[i].len < sizeof u->key);
        memset(u, 0, sizeof *u);
        memcpy(u->key, k->key[i].data, k->key[i].len);
        strcpy(u->name, name);
    }
    keys_free(k);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct used *)a)->key, ((const struct used *)b)->key);
}

TEST(contract_no_key_of_a_lock_is_another_locks)
{
    static const char *const prefixes[] = { "lock:", "", "{p}", "{" };
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct all a = { .prefix = prefixes[i] };
        each_name("{}a", 5, collect, &a);
        each_name("{}a:t", 3, collect, &a); /* overlaps the first: names met twice are no clash */
        CHECK(a.n > 500);
        qsort(a.used, a.n, sizeof *a.used, by_key);
        for (size_t j = 1; j < a.n; j++)
            if (strcmp(a.used[j - 1].key, a.used[j].key) == 0
                && strcmp(a.used[j - 1].name, a.used[j].name) != 0)
                FAIL("prefix \"%s\": the locks \"%s\" and \"%s\" share the key %s", prefixes[i],
                     a.used[j - 1].name, a.used[j].name, a.used[j].key);
        free(a.used);
    }
}

TEST(keys_found_on_the_server_are_told_apart)
{
    CHECK_INT(keys_is_lock("lock:", hf_str("lock:a")), 1);
    CHECK_INT(keys_is_lock("lock:", hf_str("lock:")), 0);
    CHECK_INT(keys_is_lock("lock:", hf_str("lock")), 0);
    CHECK_INT(keys_is_lock("lock:", hf_str("other:a")), 0);
    CHECK_INT(keys_is_lock("lock:", hf_str("lock:holdfast:fence")), 0);
    CHECK_INT(keys_is_lock("", hf_str("{a}:t")), 0);
    CHECK_INT(keys_is_lock("", hf_str("{a}:own")), 0);
    CHECK_INT(keys_is_lock("", hf_str("a")), 1);
}
