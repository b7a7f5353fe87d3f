/* SPDX-License-Identifier: MIT
 * message.c - lines on stderr, and bytes made safe to look at.
 *
 * Every line passes through line(): a lock's name, an owner's info or a server's error text
 * comes from others and must not be able to move the cursor or to forge a second line, and no
 * message may carry a password. */
#include "message.h"

#include "exitcode.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int level; /* -1: -q, 0, 1: -v, 2: -v -v */

/* A status line stands at the cursor. The library's threads print lines too. */
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static int status_shown;

void msg_level(int quiet, int verbose)
{
    level = verbose ? verbose : quiet ? -1 : 0;
}

int msg_verbosity(void)
{
    return level;
}

/* The length of a well-formed UTF-8 sequence, its code point in *ret_cp; 0: none. */
static size_t utf8_decode(const unsigned char *p, size_t n, uint32_t *ret_cp)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    size_t len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3
               : p[0] < 0xf5 ? 4 : 0;
    if (len == 0 || len > n)
        return 0;
    uint32_t cp = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (p[i] & 0x3fu);
    }
    if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
        return 0;
    *ret_cp = cp;
    return len;
}

size_t text_char(const unsigned char *p, size_t n)
{
    uint32_t cp = 0;
    size_t len = utf8_decode(p, n, &cp);
    if (len == 0 || cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
        return 0;
    /* Line separators and bidirectional overrides: they make a line read as another one. */
    if (cp == 0x2028 || cp == 0x2029 || (cp >= 0x202a && cp <= 0x202e)
        || (cp >= 0x2066 && cp <= 0x2069) || cp == 0x200e || cp == 0x200f)
        return 0;
    if ((cp & 0xfffe) == 0xfffe) /* no character, and forbidden in XML */
        return 0;
    return len;
}

static char *escape(char *buf, size_t size, const unsigned char *p, size_t n, int backslash)
{
    size_t out = 0;
    for (size_t i = 0; i < n && out + 5 < size;) {
        size_t len = text_char(p + i, n - i);
        if (backslash && p[i] == '\\') {
            buf[out++] = '\\';
            buf[out++] = '\\';
            i++;
        } else if (len > 0) {
            memcpy(buf + out, p + i, len);
            out += len;
            i += len;
        } else {
            out += (size_t)snprintf(buf + out, 5, "\\x%02x", p[i++]);
        }
    }
    buf[out] = '\0';
    return buf;
}

char *text_escape(char *buf, size_t size, const void *data, size_t len)
{
    return escape(buf, size, data, len, 1);
}

/* "//user:secret@" becomes "//user:***@", also in what we were given by mistake. cut: there was no
 * room for all of it, so the end of a password may be missing. */
static void hide_passwords(char *s, bool cut)
{
    for (char *p = strstr(s, "//"); p; p = strstr(p + 2, "//")) {
        char *colon = NULL, *at = NULL, *q = p + 2;
        for (; *q && *q != ' ' && *q != '\'' && *q != '"'; q++) {
            if (*q == ':' && !colon)
                colon = q;
            if (*q == '@')
                at = q;
        }
        if (!at && cut && !*q)
            at = q;
        if (!colon || !at || at < colon)
            continue;
        char mask[] = "***";
        size_t room = (size_t)(at - colon) - 1;
        memcpy(colon + 1, mask, room < 3 ? room : 3);
        if (room > 3)
            memmove(colon + 4, at, strlen(at) + 1);
    }
}

/* Nobody can be told when stderr itself fails. */
static void put(const char *text, size_t len)
{
    ssize_t done = write(STDERR_FILENO, text, len);
    (void)done;
}

/* "holdfast: " and the text, harmless; one byte of room is left behind it. */
__attribute__((format(printf, 3, 0)))
static void compose(char *clean, size_t size, const char *fmt, va_list ap)
{
    char raw[2048];
    size_t head = (size_t)snprintf(clean, size, "holdfast: ");
    bool cut = vsnprintf(raw, sizeof raw, fmt, ap) >= (int)sizeof raw;
    hide_passwords(raw, cut);
    escape(clean + head, size - head - 1, (const unsigned char *)raw, strlen(raw), 0);
}

/* ---- the status line --------------------------------------------------------------------- */

enum { WIDEST = 500 };

static size_t terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) != 0 || w.ws_col < 2)
        return 79;
    return w.ws_col - 1u < WIDEST ? w.ws_col - 1u : WIDEST; /* the last column would wrap */
}

/* Cut text so that it fits into so many columns. What may be wide counts twice. */
static size_t cut(const char *text, size_t columns)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = strlen(text), at = 0, used = 0;
    while (at < n) {
        uint32_t cp = 0;
        size_t len = utf8_decode(p + at, n - at, &cp);
        used += cp >= 0x1100 ? 2 : 1;
        if (used > columns)
            break;
        at += len ? len : 1;
    }
    return at;
}

/* Blanks, not an escape sequence: every terminal knows them. Holds: mu. */
static size_t wipe(char *buf, size_t columns)
{
    buf[0] = '\r';
    memset(buf + 1, ' ', columns);
    buf[columns + 1] = '\r';
    return columns + 2;
}

void msg_status(const char *fmt, ...)
{
    char text[4096 + 64], out[2 * WIDEST * 4 + 8];
    va_list ap;
    va_start(ap, fmt);
    compose(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t columns = terminal_width(), keep = cut(text, columns);
    pthread_mutex_lock(&mu);
    size_t n = wipe(out, columns);
    memcpy(out + n, text, keep);
    put(out, n + keep);
    status_shown = 1;
    pthread_mutex_unlock(&mu);
}

/* Holds: mu. */
static void clear_status(void)
{
    char out[WIDEST + 8];
    if (status_shown)
        put(out, wipe(out, terminal_width()));
    status_shown = 0;
}

void msg_status_clear(void)
{
    pthread_mutex_lock(&mu);
    clear_status();
    pthread_mutex_unlock(&mu);
}

/* ---- lines ------------------------------------------------------------------------------- */

__attribute__((format(printf, 1, 0)))
static void line(const char *fmt, va_list ap)
{
    char clean[4096 + 64];
    compose(clean, sizeof clean, fmt, ap);
    size_t len = strlen(clean);
    clean[len++] = '\n';
    pthread_mutex_lock(&mu);
    clear_status();
    put(clean, len);
    pthread_mutex_unlock(&mu);
}

#define LINE_IF(condition)        \
    do {                          \
        va_list ap;               \
        if (!(condition))         \
            return;               \
        va_start(ap, fmt);        \
        line(fmt, ap);            \
        va_end(ap);               \
    } while (0)

void msg_error(const char *fmt, ...)
{
    LINE_IF(1);
}

void msg_note(const char *fmt, ...)
{
    LINE_IF(level >= 0);
}

void msg_verbose(const char *fmt, ...)
{
    LINE_IF(level > 0);
}

/* ---- what it is about -------------------------------------------------------------------- */

static char about[TEXT_ESCAPED(512)]; /* "": nothing was said */
static char server[600];

void msg_about(const char *name)
{
    text_escape(about, sizeof about, name, strlen(name));
}

void msg_server(const char *url)
{
    snprintf(server, sizeof server, "%s", url);
}

void msg_error_about(const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    msg_error("%s%s%s", about, about[0] ? ": " : "", text);
}

void msg_note_about(const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    msg_note("%s%s%s", about, about[0] ? ": " : "", text);
}

/* One of the addresses in the URL stands in text. */
static int names_server(const char *text)
{
    const char *p = strstr(server, "://"), *at;
    char one[sizeof server];
    p = p ? p + 3 : server;
    size_t all = strcspn(p, "?");
    if ((at = memchr(p, '@', all))) {
        all -= (size_t)(at + 1 - p);
        p = at + 1;
    }
    if (*p != '/') /* else it is a path */
        all = strcspn(p, "/?");
    for (const char *end = p + all; p < end; p += strcspn(p, ",") + 1) {
        size_t len = strcspn(p, ",");
        snprintf(one, sizeof one, "%.*s", (int)(len < (size_t)(end - p) ? len : (size_t)(end - p)),
                 p);
        if (strstr(text, one))
            return 1;
    }
    return 0;
}

static int names_lock(const char *text)
{
    char quoted[sizeof about + 2];
    snprintf(quoted, sizeof quoted, "\"%s\"", about);
    return strstr(text, quoted) != NULL;
}

static int of_the_server(hf_err e)
{
    return e == HF_ECONN || e == HF_EUNSURE || e == HF_EPROTO || e == HF_ESERVER || e == HF_EAUTH
           || e == HF_ENOQUORUM || e == HF_EREPLICAS;
}

int msg_failed(hf_err e, const hf_error *err)
{
    const char *text = err && err->message[0] ? err->message : hf_err_text(e);
    int far = of_the_server(e);
    int name = about[0] && (far || e == HF_ECANCELED) && !names_lock(text);
    int where = server[0] && far && e != HF_ENOQUORUM && !names_server(text); /* it is all */
    msg_error("%s%s%s%s%s%s", name ? about : "", name ? ": " : "", text, where ? " (" : "",
              where ? server : "", where ? ")" : "");
    return exit_code_of(e);
}

/* ---- time -------------------------------------------------------------------------------- */

char *text_duration(char *buf, size_t size, int64_t ms)
{
    int64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(buf, size, "%" PRId64 "ms", ms < 0 ? 0 : ms);
    else if (s < 60)
        snprintf(buf, size, "%" PRId64 ".%" PRId64 "s", s, ms % 1000 / 100);
    else if (s < 3600)
        snprintf(buf, size, "%" PRId64 "m%02" PRId64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, size, "%" PRId64 "h%02" PRId64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(buf, size, "%" PRId64 "d%02" PRId64 "h", s / 86400, s / 3600 % 24);
    return buf;
}
