/* SPDX-License-Identifier: MIT
 * inherited.c - the locks under which this process runs, held by its ancestors until it ends.
 */
#include "session/inherited.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "session/client.h"

#define KEY_MAX 2048

static int digit(char c)
{
    const char *digits = "0123456789ABCDEF", *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* The bytes of a key, up to a space or the end. How many; 0: it makes no sense. */
static size_t unescape(const char *text, size_t len, char *ret)
{
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] != '%') {
            ret[n++] = text[i];
            continue;
        }
        int high = i + 2 < len ? digit(text[i + 1]) : -1;
        int low = i + 2 < len ? digit(text[i + 2]) : -1;
        if (high < 0 || low < 0)
            return 0;
        ret[n++] = (char)(high * 16 + low);
        i += 2;
    }
    return n;
}

struct inherited *inherited_parse(const char *text)
{
    size_t len = text ? strlen(text) : 0;
    if (len == 0 || len > INHERITED_TEXT_MAX)
        return NULL;
    struct inherited *in = mem_zalloc(sizeof *in + len);
    char *bytes = in ? in->bytes : NULL;
    while (in && *text && in->n < INHERITED_MAX) {
        char *slash;
        size_t word = strcspn(text, " ");
        uint64_t fence = strtoull(text, &slash, 10);
        size_t before = (size_t)(slash - text) + 1;
        size_t n = fence && *slash == '/' && before < word && word - before <= 3 * KEY_MAX
                       ? unescape(text + before, word - before, bytes) : 0;
        if (n)
            in->lock[in->n++] = (struct inherited_lock){ fence, { bytes, n } };
        bytes += n;
        text += word + (text[word] == ' ');
    }
    if (in && in->n)
        return in;
    mem_free(in);
    return NULL;
}

void inherited_free(struct inherited *in)
{
    mem_free(in);
}

bool inherited_has(const struct inherited *in, hf_bytes key)
{
    for (size_t i = 0; in && i < in->n; i++)
        if (in->lock[i].key.len == key.len
            && memcmp(in->lock[i].key.data, key.data, key.len) == 0)
            return true;
    return false;
}

/* ---- for those whom we start -------------------------------------------------------------- */

static bool is_plain(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')
           || (c && strchr("_-.:{}/", c));
}

/* Where the next byte goes; NULL: there is no room. */
static char *escape(char *at, const char *end, hf_bytes b)
{
    const unsigned char *p = b.data;
    for (size_t i = 0; at && i < b.len; i++) {
        if (end - at < 4)
            return NULL;
        if (is_plain(p[i]))
            *at++ = (char)p[i];
        else
            at += sprintf(at, "%%%02X", p[i]);
    }
    return at;
}

bool inherited_add(char *buf, size_t size, uint64_t fence, hf_bytes prefix, hf_bytes name)
{
    size_t used = strlen(buf);
    int n = snprintf(buf + used, size - used, "%s%llu/", used ? " " : "",
                     (unsigned long long)fence);
    char *at = n > 0 && (size_t)n < size - used ? buf + used + n : NULL;
    at = escape(at, buf + size, prefix);
    at = escape(at, buf + size, name);
    if (at)
        *at = '\0';
    else
        buf[used] = '\0';
    return at != NULL;
}

/* Our own come first: they are the nearest, should there be no room for all. */
hf_err hf_client_held(hf_client *c, char *buf, size_t size, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(c, reterr);
    if (!e && (!buf || size == 0))
        e = err_set(reterr, HF_EINVAL, "no place for the text was given");
    if (e)
        return e;
    struct keeper_holding held[INHERITED_MAX];
    size_t n = keeper_held(c->keeper, 0, hf_str(""), true, held, INHERITED_MAX);
    const struct inherited *in = c->inherited;
    size_t most = size < INHERITED_TEXT_MAX ? size : INHERITED_TEXT_MAX;
    buf[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        hf_bytes name = { held[i].name, held[i].name_len };
        (void)inherited_add(buf, most, held[i].fence, hf_str(c->prefix), name);
        mem_free(held[i].name);
    }
    for (size_t i = 0; in && i + n < INHERITED_MAX && i < in->n; i++)
        (void)inherited_add(buf, most, in->lock[i].fence, hf_str(""), in->lock[i].key);
    return HF_OK;
}
