/* SPDX-License-Identifier: MIT
 * noscript_hello.c - the greeting of a fresh connection without scripts: what hello.lua does.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/random.h"
#include "exec/noscript.h"
#include "exec/tx.h"

#define TRIES_MAX 64
#define PAUSE_MS  32

/* A field of INFO, appended to text behind a separator; false when it is not there. */
static bool add_field(const struct reply *info, const char *name, const char *separator, char *text,
                      size_t size)
{
    const char *at = info->type == REPLY_BULK ? strstr(info->str, name) : NULL;
    if (!at)
        return false;
    at += strlen(name);
    int n = 0;
    while (isalnum((unsigned char)at[n]))
        n++;
    size_t used = strlen(text);
    int wrote = snprintf(text + used, size - used, "%s%.*s", separator, n, at);
    return n > 0 && (size_t)wrote < size - used;
}

/* What the stored reign begins with is its name. */
static bool reigns(const struct reply *stored, const char *reign)
{
    return begins_with(stored, reign, ' ');
}

/* The number in the third place of a stored reign: the counter when that itself began; 0: nobody
 * knows. */
static long long first_in(const struct reply *stored)
{
    const char *at = stored->type == REPLY_BULK ? strchr(stored->str, ' ') : NULL;
    at = at ? strchr(at + 1, ' ') : NULL;
    size_t digits = at ? strspn(at + 1, "0123456789") : 0;
    return digits > 0 && digits <= 16 && !at[1 + digits] ? strtoll(at + 1, NULL, 10) : 0;
}

/* A whole number, or nothing at all. */
static bool is_counter(const struct reply *rp)
{
    if (rp->type != REPLY_BULK)
        return false;
    size_t sign = rp->len > 1 && rp->str[0] == '-';
    return sign + strspn(rp->str + sign, "0123456789") == rp->len;
}

/* Store the new reign, and lift the counter past all that the last one can have given. */
static enum outcome begin_reign(struct tx *x, const struct scope *s, const char *reign, bool look,
                                enum answer *ret_code)
{
    hf_bytes fence = hf_str(s->counter), key = hf_str(s->reign);
    tx_next(x);
    if (!look)
        tx_ask(x, S("WATCH"), fence, key);
    size_t stored = tx_ask(x, S("GETRANGE"), key, S("0"), S("199"));
    size_t count = tx_ask(x, S("GETRANGE"), fence, S("0"), S("31"));
    size_t now = tx_ask(x, S("TIME"));
    if (!tx_flush(x))
        return TX_FAILED;
    *ret_code = ANSWER_NO;
    if (reigns(x->r[stored], reign))
        return TX_ANSWERED;
    const struct reply *c = x->r[count];
    *ret_code = ANSWER_BAD_COUNTER;
    if (!is_counter(c) || number_in(c) >= NUMBER_MAX)
        return TX_ANSWERED;
    *ret_code = ANSWER_YES;
    if (look)
        return TX_ANSWERED;
    long long n = time_us(x->r[now]) + NUMBER_AHEAD_US;
    if (number_in(c) > n)
        n = number_in(c);
    char value[200];
    struct tx_text lifted = text_of(n);
    snprintf(value, sizeof value, "%s %lld %lld", reign, n, c->len ? first_in(x->r[stored]) : n);
    tx_multi(x);
    tx_ask(x, S("SET"), fence, S(lifted.s));
    tx_ask(x, S("SET"), key, S(value));
    return tx_exec(x);
}

static enum outcome hello(struct tx *x, const struct scope *s, bool look, enum answer *ret_code)
{
    char reign[128] = "";
    size_t server = tx_ask(x, S("INFO"), S("server"));
    size_t replication = tx_ask(x, S("INFO"), S("replication"));
    size_t stored = tx_ask(x, S("GETRANGE"), hf_str(s->reign), S("0"), S("199"));
    if (!tx_read(x))
        return TX_FAILED;
    *ret_code = ANSWER_NO_INFO;
    if (!add_field(x->r[server], "run_id:", "", reign, sizeof reign)
        || !add_field(x->r[replication], "master_replid:", ".", reign, sizeof reign))
        return TX_ANSWERED;
    if (is_error(x->r[stored]) && !is_wrong_type(x->r[stored])) {
        tx_refuse(x, x->r[stored]);
        return TX_FAILED;
    }
    *ret_code = ANSWER_NO;
    if (reigns(x->r[stored], reign))
        return TX_ANSWERED;
    return begin_reign(x, s, reign, look, ret_code);
}

hf_err noscript_hello(struct link *l, const struct scope *s, bool look, const struct limit *lim,
                      enum answer *ret_code, hf_error *reterr)
{
    struct op op = { .id = OP_hello, .deadline_ms = lim->at_ms, .stop = lim->stop };
    int tries = 0;
    do {
        struct tx x = { .l = l, .op = &op, .reterr = reterr };
        enum outcome o = hello(&x, s, look, ret_code);
        tx_end(&x);
        if (o == TX_ANSWERED)
            return HF_OK;
        if (o == TX_FAILED)
            return x.answered && x.verdict == SERVER_RETRY ? HF_EBUSY : x.e;
    } while (++tries < TRIES_MAX && tx_pause(&op, random_between(0, PAUSE_MS)));
    return err_set(reterr, HF_EBUSY, "others change the fencing counter all the time");
}
