/* SPDX-License-Identifier: MIT
 * resp.c - bytes to replies (RESP2).
 *
 * What has come lies in one buffer; an item is taken out of it when all of it is there. Arrays that
 * still lack items stand on a small stack. One allocation per item, refused before it is made when
 * the reply is deeper, longer or larger than the limits of resp.h.
 */
#include "net/resp.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

#define HEADER_MAX  32          /* the longest number is -9223372036854775808 */
#define BUFFER_MIN  4096
#define KEEP_BUFFER (64 * 1024) /* what an idle parser may keep */

/* An array and how many of its items are there. */
struct unfinished {
    struct reply *array;
    size_t        have;
};

struct resp {
    char             *buffer;
    size_t            size, pos, len; /* what is in it: from pos to len */
    size_t            scanned;        /* so much behind pos holds no line end */
    size_t            taken;          /* bytes of the present reply that are behind us */
    struct unfinished open[RESP_MAX_DEPTH];
    size_t            depth;
    hf_err            err; /* sticky */
    char              why[96];
};

static bool refuse(struct resp *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Always false. */
static bool refuse(struct resp *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof r->why, fmt, ap);
    va_end(ap);
    r->err = HF_EPROTO;
    return false;
}

/* ---- the buffer --------------------------------------------------------------------------- */

struct resp *resp_new(void)
{
    return mem_zalloc(sizeof(struct resp));
}

static void forget_unfinished(struct resp *r)
{
    if (r->depth)
        reply_free(r->open[0].array); /* the others hang in it */
    r->depth = 0;
}

struct resp *resp_free(struct resp *r)
{
    if (r) {
        forget_unfinished(r);
        mem_free(r->buffer);
        mem_free(r);
    }
    return NULL;
}

void resp_reset(struct resp *r)
{
    forget_unfinished(r);
    r->pos = r->len = r->scanned = r->taken = 0;
    r->err = HF_OK;
    r->why[0] = '\0';
}

/* Room for n more bytes. */
static hf_err make_room(struct resp *r, size_t n)
{
    size_t kept = r->len - r->pos, size = BUFFER_MIN;
    if (kept == 0 && r->size > KEEP_BUFFER) {
        mem_free(r->buffer);
        r->buffer = NULL;
        r->size = r->pos = r->len = 0;
    }
    if (r->size - r->len >= n)
        return HF_OK;
    if (kept)
        memmove(r->buffer, r->buffer + r->pos, kept);
    r->pos = 0;
    r->len = kept;
    while (size < kept + n)
        size *= 2;
    if (size <= r->size)
        return HF_OK;
    char *grown = mem_resize(r->buffer, size);
    if (!grown)
        return HF_ENOMEM;
    r->buffer = grown;
    r->size = size;
    return HF_OK;
}

hf_err resp_feed(struct resp *r, const void *data, size_t n)
{
    if (r->err)
        return r->err;
    if (n == 0)
        return HF_OK;
    /* Whoever takes the replies between feeds never has this much here. */
    if (r->len - r->pos > RESP_MAX_BYTES) {
        refuse(r, "more than %d bytes not taken", RESP_MAX_BYTES);
        return r->err;
    }
    if (make_room(r, n))
        return r->err = HF_ENOMEM;
    memcpy(r->buffer + r->len, data, n);
    r->len += n;
    return HF_OK;
}

/* ---- one item ----------------------------------------------------------------------------- */

/* Where the item that begins at pos lies in the buffer, as far as it is there. */
struct item {
    char        type;
    const char *line; /* behind the type */
    size_t      line_len;
    bool        ended; /* CR and LF are there, not the CR alone */
    long long   number;
    size_t      whole; /* all its bytes; of an array those of its header */
};

/* Its first line, or as much as tells that it will be refused. False: not there yet, or refused. */
static bool find_line(struct resp *r, struct item *it)
{
    bool text = it->type == '+' || it->type == '-';
    size_t n = r->len - r->pos - 1, max = text ? RESP_MAX_LINE : HEADER_MAX;
    size_t seen = r->scanned, look = n < max + 1 ? n : max + 1;
    const char *cr = look > seen ? memchr(it->line + seen, '\r', look - seen) : NULL;
    if (!cr) {
        r->scanned = look;
        return n > max ? refuse(r, "a line of more than %zu bytes", max) : false;
    }
    it->line_len = (size_t)(cr - it->line);
    it->ended = n > it->line_len + 1;
    if (it->ended && cr[1] != '\n')
        return refuse(r, "a line that ends with CR alone");
    r->scanned = it->line_len;
    it->whole = it->line_len + 3;
    return true;
}

/* Digits, with or without a minus, and nothing else. */
static bool read_number(const char *p, size_t n, long long *ret)
{
    bool minus = n > 0 && *p == '-';
    unsigned long long v = 0, most = (unsigned long long)INT64_MAX + minus;
    size_t i = minus;
    if (n == i)
        return false;
    for (; i < n; i++) {
        unsigned digit = (unsigned)(unsigned char)p[i] - '0';
        if (digit > 9 || v > (most - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *ret = minus ? (long long)(0 - v) : (long long)v;
    return true;
}

/* Can it be? Before all of it is there. */
static bool check_number(struct resp *r, struct item *it)
{
    const char *what = it->type == ':' ? "an integer" : it->type == '$' ? "the length of a bulk"
                                                                        : "a number of elements";
    char shown[60];
    if (!read_number(it->line, it->line_len, &it->number))
        return refuse(r, "%s that is none: %s", what,
                      err_quote(shown, sizeof shown, it->line, it->line_len));
    if (it->type == ':')
        return true;
    if (it->number < -1)
        return refuse(r, "%s is out of range: %lld", what, it->number);
    if (it->type == '$' && it->number > RESP_MAX_BYTES)
        return refuse(r, "a bulk of more than %d bytes", RESP_MAX_BYTES);
    if (it->type == '*' && it->number > RESP_MAX_ELEMENTS)
        return refuse(r, "an array of %lld elements (at most %d)", it->number, RESP_MAX_ELEMENTS);
    if (it->type == '*' && it->number >= 0 && r->depth == RESP_MAX_DEPTH)
        return refuse(r, "arrays more than %d deep", RESP_MAX_DEPTH);
    return true;
}

/* A bulk's bytes and the line end behind them. */
static bool find_bulk(struct resp *r, struct item *it)
{
    const char *bytes = it->line + it->line_len + 2;
    size_t len = (size_t)it->number, have = r->len - r->pos - it->whole;
    if (have > len && bytes[len] != '\r')
        return refuse(r, "no line end after a bulk of %zu bytes", len);
    if (have < len + 2)
        return false;
    if (bytes[len + 1] != '\n')
        return refuse(r, "no line end after a bulk of %zu bytes", len);
    it->line = bytes;
    it->line_len = len;
    it->whole += len + 2;
    return true;
}

/* The next item, if all of it is there. False: it is not, or was refused. */
static bool find_item(struct resp *r, struct item *it)
{
    char shown[24];
    if (r->pos == r->len)
        return false;
    it->line = r->buffer + r->pos;
    it->type = *it->line++;
    if (!it->type || !strchr("+-:$*", it->type))
        return refuse(r, "no reply begins with %s",
                      err_quote(shown, sizeof shown, &it->type, 1));
    if (!find_line(r, it))
        return false;
    if (it->type != '+' && it->type != '-' && !check_number(r, it))
        return false;
    if (!it->ended)
        return false;
    return it->type != '$' || it->number < 0 || find_bulk(r, it);
}

static struct reply *make_text(enum reply_type type, const struct item *it)
{
    struct reply *rp = mem_alloc(sizeof *rp + it->line_len + 1);
    if (!rp)
        return NULL;
    *rp = (struct reply){ .type = type, .len = it->line_len, .str = (char *)(rp + 1) };
    memcpy(rp->str, it->line, it->line_len);
    rp->str[it->line_len] = '\0';
    return rp;
}

static struct reply *make(const struct item *it)
{
    switch (it->type) {
    case '+': return make_text(REPLY_STATUS, it);
    case '-': return make_text(REPLY_ERROR, it);
    case ':': return reply_int(it->number);
    case '$': if (it->number >= 0) return make_text(REPLY_BULK, it);
        break;
    default: if (it->number >= 0) return reply_array((size_t)it->number);
        break;
    }
    struct reply *nil = mem_zalloc(sizeof *nil);
    if (nil)
        nil->type = REPLY_NIL;
    return nil;
}

/* ---- whole replies ------------------------------------------------------------------------ */

/* Put it where it belongs. The whole reply, if it was its last item; else NULL. */
static struct reply *place(struct resp *r, struct reply *rp)
{
    if (r->depth) {
        struct unfinished *last = &r->open[r->depth - 1];
        last->array->item[last->have++] = rp;
    }
    if (rp->type == REPLY_ARRAY && rp->len > 0) {
        r->open[r->depth++] = (struct unfinished){ rp, 0 };
        return NULL;
    }
    while (r->depth) {
        const struct unfinished *last = &r->open[r->depth - 1];
        if (last->have < last->array->len)
            return NULL;
        rp = last->array;
        r->depth--;
    }
    return rp;
}

static void pass_over(struct resp *r, size_t n)
{
    r->pos += n;
    r->taken += n;
    r->scanned = 0;
    if (r->pos == r->len)
        r->pos = r->len = 0;
}

hf_err resp_next(struct resp *r, struct reply **ret)
{
    struct item it = { 0 };
    *ret = NULL;
    if (r->err)
        return r->err;
    while (find_item(r, &it)) {
        if (r->taken + it.whole > RESP_MAX_BYTES)
            break;
        struct reply *rp = make(&it);
        if (!rp)
            return r->err = HF_ENOMEM;
        pass_over(r, it.whole);
        *ret = place(r, rp);
        if (*ret) {
            r->taken = 0;
            return HF_OK;
        }
        it = (struct item){ 0 };
    }
    /* Without a reply all that came belongs to the unfinished one. */
    if (!r->err && r->taken + (r->len - r->pos) > RESP_MAX_BYTES)
        refuse(r, "a reply of more than %d bytes", RESP_MAX_BYTES);
    return r->err;
}

const char *resp_error(const struct resp *r)
{
    return r->err == HF_ENOMEM ? "out of memory" : r->why;
}

/* ---- replies ------------------------------------------------------------------------------ */

struct reply *reply_free(struct reply *rp)
{
    if (rp && rp->type == REPLY_ARRAY) {
        for (size_t i = 0; i < rp->len; i++)
            reply_free(rp->item[i]); /* NULL: not there yet. Never deeper than RESP_MAX_DEPTH */
    }
    mem_free(rp);
    return NULL;
}

struct reply *reply_int(long long n)
{
    struct reply *rp = mem_zalloc(sizeof *rp);
    if (rp)
        *rp = (struct reply){ .type = REPLY_INT, .num = n };
    return rp;
}

struct reply *reply_bytes(const void *data, size_t len)
{
    struct reply *rp = mem_zalloc(sizeof *rp + len + 1);
    if (rp) {
        *rp = (struct reply){ .type = REPLY_BULK, .len = len, .str = (char *)(rp + 1) };
        if (len)
            memcpy(rp->str, data, len);
    }
    return rp;
}

struct reply *reply_array(size_t n)
{
    struct reply *rp = mem_zalloc(sizeof *rp + n * sizeof(struct reply *));
    if (rp)
        *rp = (struct reply){ .type = REPLY_ARRAY, .len = n, .item = (struct reply **)(rp + 1) };
    return rp;
}
