/* SPDX-License-Identifier: MIT
 * err.c - error codes, their texts, and filling a caller's hf_error.
 */
#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

const char *hf_err_text(hf_err code)
{
    switch (code) {
#define TEXT(name, value, known, text) \
    case HF_##name: return text;
        HF_ERR_MAP(TEXT)
#undef TEXT
    case HF_ERR_FORCE_INT: break;
    }
    return "unknown error";
}

const char *hf_err_name(hf_err code)
{
    switch (code) {
#define NAME(name, value, known, text) \
    case HF_##name: return "HF_" #name;
        HF_ERR_MAP(NAME)
#undef NAME
    case HF_ERR_FORCE_INT: break;
    }
    return "HF_?";
}

const char *hf_known_text(hf_known known)
{
    switch (known) {
    case HF_KNOWN_AS_ASKED: return "done as asked";
    case HF_KNOWN_UNCHANGED: return "nothing was changed";
    case HF_KNOWN_NOT_HELD: return "the lock is not held";
    case HF_KNOWN_NOTHING: return "not known: a request was sent and no answer came";
    }
    return "unknown";
}

hf_known hf_err_known(hf_err code)
{
    switch (code) {
#define KNOWN(name, value, known, text) \
    case HF_##name: return known;
        HF_ERR_MAP(KNOWN)
#undef KNOWN
    case HF_ERR_FORCE_INT: break;
    }
    return HF_KNOWN_NOTHING;
}

const char *hf_version(void)
{
    return HF_VERSION;
}

void err_fill(hf_error *e, hf_err code, const char *fmt, ...)
{
    if (!e)
        return;
    e->code = code;
    e->known = hf_err_known(code);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
}

hf_err err_known(hf_error *e, hf_err code, hf_known known)
{
    if (e)
        e->known = known;
    return code;
}

void err_prefix(hf_error *e, const char *fmt, ...)
{
    if (!e)
        return;
    char old[sizeof e->message];
    memcpy(old, e->message, sizeof old);
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(e->message, sizeof e->message, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof e->message)
        snprintf(e->message + n, sizeof e->message - (size_t)n, ": %s", old);
}

const char *err_quote(char *buf, size_t size, const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t used = 0;
    const size_t tail = sizeof "...\"";

    if (size < 16)
        return "";
    buf[used++] = '"';
    for (size_t i = 0; i < len; i++) {
        int plain = p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\';
        if (used + (plain ? 1 : 4) + tail > size) {
            memcpy(buf + used, "...", 3);
            used += 3;
            break;
        }
        if (plain)
            buf[used++] = (char)p[i];
        else
            used += (size_t)snprintf(buf + used, size - used, "\\x%02x", p[i]);
    }
    buf[used++] = '"';
    buf[used] = '\0';
    return buf;
}

/* A well-formed UTF-8 character of several bytes that is neither a control nor turns the direction
 * of writing: how many bytes; 0: not one. */
static size_t letter(const unsigned char *p, size_t n)
{
    size_t len = p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : p[0] >= 0xe0 && p[0] < 0xf0 ? 3
                 : p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : 0;
    if (!len || len > n)
        return 0;
    unsigned c = p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    bool least = c >= (len == 2 ? 0xa0u : len == 3 ? 0x800u : 0x10000u);
    bool turns = (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e)
                 || (c >= 0x2060 && c <= 0x206f) || c == 0x061c || c == 0xfeff;
    return least && !turns && (c < 0xd800 || c > 0xdfff) && c <= 0x10ffff ? len : 0;
}

const char *err_plain(char *buf, size_t size, const void *data, size_t len)
{
    const unsigned char *p = data;
    size_t used = 0;
    const size_t tail = sizeof "...";

    if (size < 16)
        return "";
    for (size_t i = 0, n; i < len; i += n) {
        bool ascii = p[i] >= 0x20 && p[i] < 0x7f;
        n = ascii ? 1 : letter(p + i, len - i);
        if (used + (n ? n : 4) + tail > size) {
            memcpy(buf + used, "...", 3);
            used += 3;
            break;
        }
        if (n)
            memcpy(buf + used, p + i, n);
        else
            snprintf(buf + used, size - used, "\\x%02x", p[i]);
        used += n ? n : 4;
        n = n ? n : 1;
    }
    buf[used] = '\0';
    return buf;
}
