/* SPDX-License-Identifier: MIT
 * err.c - error codes, their texts, and filling a caller's hf_error.
 */
#include "base/err.h"

#include <stdarg.h>
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
