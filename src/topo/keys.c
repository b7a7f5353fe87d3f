/* SPDX-License-Identifier: MIT
 * keys.c - which keys on the server belong to a lock.
 */
#include "topo/keys.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/slot.h"

#define RESERVED "holdfast:"

static const char *const suffix[KEY_COUNT] = {
    [KEY_LOCK] = "",
    [KEY_OWN] = ":own",
    [KEY_TOMB] = ":t",
    [KEY_QUEUE] = ":q",
    [KEY_ABSENT] = ":absent",
};

/* All suffixes that any kind of lock uses: no name may end like one, in whatever version. */
static const char *const reserved_suffix[] = {
    ":own", ":t", ":q", ":absent", ":h", ":d", ":s", ":e", ":l", ":v", ":c", ":u", ":b", ":o",
    ":oh", ":oa", ":w", ":guard", ":wf", ":x", ":log",
};
static const char reserved_infix[] = ":r:"; /* {key}:r:<generation> */

/* Could this key be a companion of some other lock, or be taken for one? */
static int collides(const char *key, size_t len)
{
    size_t begin, end;
    if (!slot_tag(key, len, &begin, &end))
        return 0;
    size_t behind = end + 1;
    if (begin == 1 && behind == len)
        return 1; /* {x}: its companions would be those of x */
    for (size_t i = 0; i < sizeof reserved_suffix / sizeof reserved_suffix[0]; i++) {
        size_t n = strlen(reserved_suffix[i]);
        if (len - behind >= n && memcmp(key + len - n, reserved_suffix[i], n) == 0)
            return 1;
    }
    return memmem(key + behind, len - behind, reserved_infix, sizeof reserved_infix - 1) != NULL;
}

static hf_err check_name(const char *prefix, hf_bytes name, hf_error *reterr)
{
    char shown[120];
    size_t plen = strlen(prefix);

    if (name.len == 0 || !name.data)
        return err_set(reterr, HF_EINVAL, "the name is empty: give 1 to %d bytes",
                       KEYS_NAME_MAX);
    if (name.len > KEYS_NAME_MAX)
        return err_set(reterr, HF_EINVAL,
                       "the name has %zu bytes: at most %d are allowed", name.len,
                       KEYS_NAME_MAX);
    err_quote(shown, sizeof shown, name.data, name.len);
    if (name.len >= sizeof RESERVED - 1 && memcmp(name.data, RESERVED, sizeof RESERVED - 1) == 0)
        return err_set(reterr, HF_EINVAL,
                       "the name %s is reserved: choose one that does not begin with \"" RESERVED
                       "\"", shown);

    AUTO(mem_freep) char *key = mem_alloc(plen + name.len);
    if (!key)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    memcpy(key, prefix, plen);
    memcpy(key + plen, name.data, name.len);
    if (collides(key, plen + name.len))
        return err_set(reterr, HF_EINVAL,
                       "the name %s could be taken for another lock's own key: choose one without "
                       "a {tag}, or with another ending", shown);
    return HF_OK;
}

/* A key with a } but no tag cannot stand between braces: "a}b" would share companions with
 * "{a}b}", and lie in another slot. It goes behind a short tag of its own slot, its braces escaped,
 * and an :e tells it from every key that looks like that anyway. */
static size_t write_escaped(char *p, hf_bytes key)
{
    const char *k = key.data;
    char tag[SLOT_TEXT_SIZE];
    slot_text(slot_of(key.data, key.len), tag);
    size_t n = (size_t)sprintf(p, "{%s}", tag);
    for (size_t i = 0; i < key.len; i++) {
        if (k[i] == '{' || k[i] == '}' || k[i] == '%')
            n += (size_t)sprintf(p + n, "%%%02X", (unsigned char)k[i]);
        else
            p[n++] = k[i];
    }
    memcpy(p + n, ":e", 2);
    return n + 2;
}

/* Room for a companion; what of it is written is returned. */
#define COMPANION_MAX(key_len, tail) (3 * (key_len) + SLOT_TEXT_SIZE + 5 + strlen(tail))
static size_t write_companion(char *p, hf_bytes key, const char *tail)
{
    size_t begin, end, n = 0, tlen = strlen(tail);
    int tagged = slot_tag(key.data, key.len, &begin, &end);
    if (!tagged && memchr(key.data, '}', key.len)) {
        n = write_escaped(p, key);
    } else {
        if (!tagged)
            p[n++] = '{';
        memcpy(p + n, key.data, key.len);
        n += key.len;
        if (!tagged)
            p[n++] = '}';
    }
    memcpy(p + n, tail, tlen);
    return n + tlen;
}

char *keys_companion(hf_bytes key, const char *tail, size_t *ret_len)
{
    char *p = mem_alloc(COMPANION_MAX(key.len, tail));
    if (p)
        *ret_len = write_companion(p, key, tail);
    return p;
}

hf_err keys_new(const char *prefix, hf_bytes name, struct lock_keys **ret, hf_error *reterr)
{
    hf_err e = check_name(prefix, name, reterr);
    if (e)
        return e;

    size_t plen = strlen(prefix), len = plen + name.len, total = len;
    int plain = !memchr(name.data, '}', name.len) && !strchr(prefix, '}');
    for (int i = KEY_LOCK + 1; i < KEY_COUNT; i++)
        total += plain ? len + 2 + strlen(suffix[i]) : COMPANION_MAX(len, suffix[i]);
    struct lock_keys *k = mem_alloc(sizeof *k + total);
    if (!k)
        return err_set(reterr, HF_ENOMEM, "out of memory");

    k->users = 0;
    k->braced = plain;
    k->scope = NULL;
    char *p = k->bytes;
    memcpy(p, prefix, plen);
    memcpy(p + plen, name.data, name.len);
    k->key[KEY_LOCK] = (hf_bytes){ p, len };
    k->name = (hf_bytes){ p + plen, name.len };
    p += len;
    for (int i = KEY_LOCK + 1; i < KEY_COUNT; i++) {
        size_t n = write_companion(p, k->key[KEY_LOCK], suffix[i]);
        k->key[i] = (hf_bytes){ p, n };
        p += n;
    }
    *ret = k;
    return HF_OK;
}

struct lock_keys *keys_free(struct lock_keys *k)
{
    mem_free(k);
    return NULL;
}

char *keys_reserved(const char *prefix, const char *tail)
{
    size_t plen = strlen(prefix), tlen = strlen(tail);
    char *p = mem_alloc(plen + sizeof RESERVED + tlen);
    if (p) {
        memcpy(p, prefix, plen);
        memcpy(p + plen, RESERVED, sizeof RESERVED - 1);
        memcpy(p + plen + sizeof RESERVED - 1, tail, tlen + 1);
    }
    return p;
}

int keys_is_lock(const char *prefix, hf_bytes key)
{
    size_t plen = strlen(prefix);
    if (key.len <= plen || memcmp(key.data, prefix, plen) != 0)
        return 0;
    hf_bytes name = { (const char *)key.data + plen, key.len - plen };
    return check_name(prefix, name, NULL) == HF_OK;
}
