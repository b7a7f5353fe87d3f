/* SPDX-License-Identifier: MIT
 * resp.c - bytes to replies; the only file that knows hiredis.
 *
 * redisReader cuts the bytes into items and calls the create functions below, which build our own
 * tree: one allocation per item, refused before it is made when the reply is deeper, longer or
 * larger than the limits of resp.h. What hiredis 0.14 leaves open is closed here:
 *   - a bulk's length is believed until its bytes came: pending_ok() looks at it first;
 *   - the two bytes after a bulk are skipped unseen: create_string() looks at them;
 *   - a create function can only say NULL, which hiredis calls "out of memory": r->refused tells
 *     a refusal from a real shortage;
 *   - its own shrinking of the buffer asserts that memory is there: maxbuf 0 turns it off, and
 *     trim() does it without the assert.
 */
#include "net/resp.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <hiredis/hiredis.h>
#include <hiredis/sds.h>

#include "base/mem.h"

#if HIREDIS_MAJOR != 0
#error "written for hiredis 0.14: later ones have create functions that this file must fill"
#endif

#define HEADER_MAX  32          /* the longest number is -9223372036854775808 */
#define KEEP_BUFFER (64 * 1024) /* what an idle parser may keep */

struct resp {
    redisReader *reader;
    size_t       fed;     /* bytes given since the reset */
    size_t       start;   /* where in them the present reply begins */
    hf_err       err;     /* sticky */
    char         refused[96];
};

static void refuse(struct resp *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void refuse(struct resp *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->refused, sizeof r->refused, fmt, ap);
    va_end(ap);
    r->err = HF_EPROTO;
}

/* ---- hiredis calls these ------------------------------------------------------------------ */

/* A reply with room for extra bytes behind it, hung into its parent's place. */
static struct reply *create(const redisReadTask *task, enum reply_type type, size_t extra)
{
    struct reply *rp = mem_alloc(sizeof *rp + extra);
    if (!rp)
        return NULL;
    *rp = (struct reply){ .type = type };
    if (task->parent) {
        struct reply *parent = task->parent->obj;
        parent->item[task->idx] = rp;
    }
    return rp;
}

static void *create_string(const redisReadTask *task, char *str, size_t len)
{
    enum reply_type type = task->type == REDIS_REPLY_ERROR    ? REPLY_ERROR
                           : task->type == REDIS_REPLY_STATUS ? REPLY_STATUS
                                                              : REPLY_BULK;
    /* Lines end where CRLF was found; of a bulk hiredis only knows that two bytes follow. */
    if (str[len] != '\r' || str[len + 1] != '\n') {
        refuse(task->privdata, "no line end after a bulk of %zu bytes", len);
        return NULL;
    }
    if (type != REPLY_BULK && len > RESP_MAX_LINE) {
        refuse(task->privdata, "a line of %zu bytes (at most %d)", len, RESP_MAX_LINE);
        return NULL;
    }
    struct reply *rp = create(task, type, len + 1);
    if (!rp)
        return NULL;
    rp->len = len;
    rp->str = (char *)(rp + 1);
    memcpy(rp->str, str, len);
    rp->str[len] = '\0';
    return rp;
}

static void *create_array(const redisReadTask *task, int elements)
{
    int depth = 1;
    for (const redisReadTask *t = task->parent; t; t = t->parent)
        depth++;
    if (depth > RESP_MAX_DEPTH) {
        refuse(task->privdata, "arrays more than %d deep", RESP_MAX_DEPTH);
        return NULL;
    }
    if (elements < 0 || elements > RESP_MAX_ELEMENTS) {
        refuse(task->privdata, "an array of %d elements (at most %d)", elements, RESP_MAX_ELEMENTS);
        return NULL;
    }
    size_t bytes = (size_t)elements * sizeof(struct reply *);
    struct reply *rp = create(task, REPLY_ARRAY, bytes);
    if (!rp)
        return NULL;
    rp->len = (size_t)elements;
    rp->item = (struct reply **)(rp + 1);
    memset(rp->item, 0, bytes); /* hiredis may free it half filled */
    return rp;
}

static void *create_integer(const redisReadTask *task, long long value)
{
    struct reply *rp = create(task, REPLY_INT, 0);
    if (rp)
        rp->num = value;
    return rp;
}

static void *create_nil(const redisReadTask *task)
{
    return create(task, REPLY_NIL, 0);
}

static void free_object(void *rp)
{
    reply_free(rp);
}

static redisReplyObjectFunctions functions = {
    create_string, create_array, create_integer, create_nil, free_object,
};

/* ---- the parser ---------------------------------------------------------------------------- */

struct resp *resp_new(void)
{
    struct resp *r = mem_zalloc(sizeof *r);
    if (!r)
        return NULL;
    r->reader = redisReaderCreateWithFunctions(&functions);
    if (!r->reader) {
        mem_free(r);
        return NULL;
    }
    r->reader->privdata = r;
    r->reader->maxbuf = 0;
    return r;
}

struct resp *resp_free(struct resp *r)
{
    if (r) {
        redisReaderFree(r->reader);
        mem_free(r);
    }
    return NULL;
}

void resp_reset(struct resp *r)
{
    redisReader *rd = r->reader;

    reply_free(rd->reply);
    rd->reply = NULL;
    rd->ridx = -1;
    rd->err = 0;
    rd->errstr[0] = '\0';
    rd->pos = rd->len = 0;
    if (rd->buf)
        sdsclear(rd->buf);
    r->fed = r->start = 0;
    r->err = HF_OK;
    r->refused[0] = '\0';
}

/* Give a large buffer back once it is empty, and make one when an error took it away.
 * 0, or -1 when there is none. */
static int trim(redisReader *rd)
{
    if (rd->buf && (rd->len != 0 || sdsavail(rd->buf) <= KEEP_BUFFER))
        return 0;
    sds fresh = sdsempty();
    if (!fresh)
        return rd->buf ? 0 : -1;
    sdsfree(rd->buf);
    rd->buf = fresh;
    rd->pos = rd->len = 0;
    return 0;
}

hf_err resp_feed(struct resp *r, const void *data, size_t n)
{
    redisReader *rd = r->reader;

    if (r->err)
        return r->err;
    if (n == 0)
        return HF_OK;
    /* Whoever takes the replies between feeds never has this much here. */
    if (rd->len - rd->pos > RESP_MAX_BYTES) {
        refuse(r, "more than %d bytes not taken", RESP_MAX_BYTES);
        return r->err;
    }
    if (trim(rd) < 0 || redisReaderFeed(rd, data, n) != REDIS_OK)
        return r->err = HF_ENOMEM;
    r->fed += n;
    return HF_OK;
}

/* The item that waits for more bytes: will it be refused anyway when they have come? */
static int pending_ok(struct resp *r)
{
    const redisReader *rd = r->reader;

    if (rd->ridx < 0 || rd->rstack[rd->ridx].type < 0)
        return 1;
    int type = rd->rstack[rd->ridx].type;
    const char *p = rd->buf + rd->pos, *eol = NULL;
    size_t n = rd->len - rd->pos;
    size_t max = type == REDIS_REPLY_STATUS || type == REDIS_REPLY_ERROR ? RESP_MAX_LINE
                                                                         : HEADER_MAX;
    if (type == REDIS_REPLY_STRING)
        eol = memchr(p, '\r', n < max ? n : max);
    if (!eol) {
        if (n > max + 1) /* the last byte may be the CR */
            refuse(r, "a line of more than %zu bytes", max);
        return n <= max + 1;
    }
    /* Digits only here: hiredis has refused everything else, if the LF is there as well. */
    unsigned long long len = 0;
    for (; p < eol && len <= RESP_MAX_BYTES; p++)
        len = len * 10 + (unsigned)(*p - '0') % 10;
    if (len > RESP_MAX_BYTES)
        refuse(r, "a bulk of more than %d bytes", RESP_MAX_BYTES);
    return len <= RESP_MAX_BYTES;
}

hf_err resp_next(struct resp *r, struct reply **ret)
{
    redisReader *rd = r->reader;
    void *got = NULL;

    *ret = NULL;
    if (r->err)
        return r->err;
    if (redisReaderGetReply(rd, &got) != REDIS_OK) {
        if (!r->refused[0] && rd->err == REDIS_ERR_OOM)
            r->err = HF_ENOMEM;
        else
            r->err = HF_EPROTO;
        return r->err;
    }
    /* Without a reply all that came belongs to the unfinished one. */
    size_t end = got ? r->fed - (rd->len - rd->pos) : r->fed;
    if (end - r->start > RESP_MAX_BYTES)
        refuse(r, "a reply of more than %d bytes", RESP_MAX_BYTES);
    if (r->err || (!got && !pending_ok(r))) {
        reply_free(got);
        return r->err;
    }
    if (got)
        r->start = end;
    *ret = got;
    return HF_OK;
}

const char *resp_error(const struct resp *r)
{
    if (r->err == HF_ENOMEM)
        return "out of memory";
    return r->refused[0] ? r->refused : r->reader->errstr;
}

struct reply *reply_free(struct reply *rp)
{
    if (rp && rp->type == REPLY_ARRAY) {
        for (size_t i = 0; i < rp->len; i++)
            reply_free(rp->item[i]); /* never deeper than RESP_MAX_DEPTH */
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
