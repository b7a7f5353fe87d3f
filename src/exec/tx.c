/* SPDX-License-Identifier: MIT
 * tx.c - one attempt at an operation by plain commands: sending, reading, EXEC, answers.
 */
#include "exec/tx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/command.h"

static void set_error(struct tx *x, hf_err e)
{
    if (!x->e)
        x->e = e;
}

enum outcome tx_fail(struct tx *x, hf_err e, const char *text)
{
    x->e = err_set(x->reterr, e, "%s", text);
    return TX_FAILED;
}

enum outcome tx_no_memory(struct tx *x)
{
    return tx_fail(x, HF_ENOMEM, "out of memory");
}

void tx_next(struct tx *x)
{
    x->stale += x->n - x->read;
    for (size_t i = 0; i < x->n; i++)
        reply_free(x->r[i]);
    mem_free(x->r);
    x->r = NULL;
    x->n = x->read = 0;
    x->exec = NULL;
}

struct reply *tx_take(struct tx *x, size_t at)
{
    struct reply *rp = x->r[at];
    x->r[at] = NULL;
    return rp;
}

struct reply *tx_keep(struct tx *x, size_t at)
{
    struct reply **grown = mem_resize(x->kept, (x->nkept + 1) * sizeof(struct reply *));
    if (!grown) {
        tx_no_memory(x);
        return NULL;
    }
    x->kept = grown;
    return grown[x->nkept++] = tx_take(x, at);
}

void tx_end(struct tx *x)
{
    tx_next(x);
    for (size_t i = 0; i < x->nkept; i++)
        reply_free(x->kept[i]);
    mem_free(x->kept);
    mem_free(x->out);
}

static bool is_word(hf_bytes b, const char *word)
{
    return b.len == strlen(word) && memcmp(b.data, word, b.len) == 0;
}

/* Behind what has not left yet. */
static bool put_out(struct tx *x, int argc, const hf_bytes *argv)
{
    struct command cmd;
    if (command_make(&cmd, argc, argv))
        return false;
    char *grown = mem_resize(x->out, x->out_len + cmd.len);
    if (grown) {
        x->out = grown;
        memcpy(x->out + x->out_len, cmd.bytes + cmd.begin, cmd.len);
        x->out_len += cmd.len;
    }
    command_free(&cmd);
    return grown != NULL;
}

size_t tx_send(struct tx *x, int argc, const hf_bytes *argv)
{
    size_t at = x->n;
    if (x->e)
        return at;
    if (at % 16 == 0) {
        struct reply **grown = mem_resize(x->r, (at + 16) * sizeof(struct reply *));
        if (!grown) {
            tx_no_memory(x);
            return at;
        }
        x->r = grown;
    }
    if (!put_out(x, argc, argv)) {
        tx_no_memory(x);
        return at;
    }
    if (is_word(argv[0], "WATCH"))
        x->used = true;
    x->r[x->n++] = NULL;
    return at;
}

/* To a link that is told to stop it is as if the server had been too slow. */
static hf_err told_to_stop(const struct tx *x, hf_err e)
{
    if (e != HF_ECONN || !op_stopped(x->op))
        return e;
    return err_set(x->reterr, HF_ECANCELED, "cancelled before the request was sent");
}

/* What was asked leaves now. */
static void write_out(struct tx *x)
{
    if (!x->out_len || x->e)
        return;
    if (!x->began_ms)
        x->began_ms = clock_now_ms();
    struct limit lim = tx_limit(x->op);
    set_error(x, told_to_stop(x, link_write(x->l, x->out, x->out_len, &lim, x->reterr)));
    x->out_len = 0;
}

static hf_err receive(struct tx *x, struct reply **ret)
{
    struct limit lim = tx_limit(x->op);
    return told_to_stop(x, link_receive(x->l, &lim, ret, x->reterr));
}

bool tx_read(struct tx *x)
{
    write_out(x);
    while (x->stale && !x->e) {
        struct reply *rp = NULL;
        set_error(x, receive(x, &rp));
        reply_free(rp);
        x->stale--;
    }
    while (x->read < x->n && !x->e) {
        set_error(x, receive(x, &x->r[x->read]));
        x->read += !x->e;
    }
    return !x->e;
}

void tx_refuse(struct tx *x, const struct reply *rp)
{
    hf_err code;
    x->verdict = server_judge(rp, &code);
    x->answered = true;
    set_error(x, server_error(rp, code, x->reterr));
}

bool tx_flush(struct tx *x)
{
    if (!tx_read(x))
        return false;
    for (size_t i = 0; i < x->n && !x->e; i++)
        if (is_error(x->r[i]) && !is_wrong_type(x->r[i]))
            tx_refuse(x, x->r[i]);
    return !x->e;
}

void tx_multi(struct tx *x)
{
    tx_next(x);
    tx_ask(x, S("MULTI"));
}

enum outcome tx_exec(struct tx *x)
{
    tx_ask(x, S("EXEC"));
    x->committing = !x->e;
    if (!tx_read(x))
        return TX_FAILED;
    x->committing = false;
    x->used = false; /* whatever became of it, nothing is watched any more */
    for (size_t i = 0; i < x->n; i++) {
        if (is_error(x->r[i])) { /* not even put in line: then EXEC did nothing */
            tx_refuse(x, x->r[i]);
            return TX_FAILED;
        }
    }
    x->exec = x->r[x->n - 1];
    if (x->exec->type == REPLY_NIL)
        return TX_CONFLICT;
    for (size_t i = 0; x->exec->type == REPLY_ARRAY && i < x->exec->len; i++) {
        if (is_error(x->exec->item[i])) { /* the others were carried out all the same */
            tx_refuse(x, x->exec->item[i]);
            x->verdict = SERVER_UNKNOWN;
            return TX_FAILED;
        }
    }
    return x->exec->type == REPLY_ARRAY
               ? TX_ANSWERED
               : tx_fail(x, HF_EPROTO, "the answer to EXEC makes no sense");
}

enum outcome tx_exec_extending(struct tx *x)
{
    enum outcome o = tx_exec(x);
    for (size_t i = 0; o == TX_ANSWERED && i < x->exec->len; i++)
        if (number_in(x->exec->item[i]) == 0)
            return TX_CONFLICT;
    return o;
}

enum outcome tx_confirm(struct tx *x)
{
    tx_multi(x);
    enum outcome o = tx_exec(x);
    x->committing = false; /* it would have changed nothing */
    return o;
}

bool tx_pause(const struct op *op, int64_t ms)
{
    struct limit lim = tx_limit(op);
    if (clock_add(clock_now_ms(), ms) >= lim.at_ms)
        return false;
    limit_sleep(&lim, ms);
    return !limit_stopped(&lim);
}

/* ---- reading and giving answers -------------------------------------------------------------- */

bool is_bytes(const struct reply *rp, hf_bytes want)
{
    return rp->type == REPLY_BULK && rp->len == want.len
           && memcmp(rp->str, want.data ? want.data : "", want.len) == 0;
}

bool begins_with(const struct reply *rp, const char *text, char then)
{
    size_t n = strlen(text);
    return rp->type == REPLY_BULK && rp->len > n && memcmp(rp->str, text, n) == 0
           && rp->str[n] == then;
}

long long number_in(const struct reply *rp)
{
    if (rp->type == REPLY_INT)
        return rp->num;
    return rp->type == REPLY_BULK ? strtoll(rp->str, NULL, 10) : 0;
}

int64_t time_us(const struct reply *rp)
{
    if (rp->type != REPLY_ARRAY || rp->len != 2)
        return 0;
    return number_in(rp->item[0]) * INT64_C(1000000) + number_in(rp->item[1]);
}

struct tx_text text_of(long long n)
{
    struct tx_text t;
    snprintf(t.s, sizeof t.s, "%lld", n);
    return t;
}

enum outcome answer_granted(struct tx *x, long long fence)
{
    x->op->got.taken = (struct op_taken){ .code = ANSWER_YES, .fence = (uint64_t)fence };
    return TX_ANSWERED;
}

enum outcome answer_refused(struct tx *x, enum answer code)
{
    x->op->got.taken = (struct op_taken){ .code = code };
    return TX_ANSWERED;
}

enum outcome answer_busy(struct tx *x, int64_t left_ms, const struct reply *value)
{
    bool shown = value && value->type == REPLY_BULK;
    struct reply *rp = shown ? reply_bytes(value->str, value->len) : NULL;
    if (shown && !rp)
        return tx_no_memory(x);
    x->op->got.taken = (struct op_taken){ .code = ANSWER_BUSY, .left_ms = left_ms };
    x->op->got.taken.value = rp ? (hf_bytes){ rp->str, rp->len } : hf_str("");
    x->op->reply = rp;
    return TX_ANSWERED;
}

enum outcome answer_held(struct tx *x, bool held)
{
    x->op->got.held = held;
    return TX_ANSWERED;
}

enum outcome answer_done(struct tx *x, enum answer code)
{
    x->op->got.done.code = code;
    return TX_ANSWERED;
}

/* ---- the fencing counter --------------------------------------------------------------------- */

/* Missing or nonsense: a minute ahead of the server's time. Somebody else may do it meanwhile. */
static enum outcome mend_counter(struct tx *x, hf_bytes counter)
{
    tx_next(x);
    tx_ask(x, S("UNWATCH"));
    tx_ask(x, S("WATCH"), counter);
    size_t now = tx_ask(x, S("TIME")), stands = tx_ask(x, S("GETRANGE"), counter, S("0"), S("31"));
    if (!tx_flush(x))
        return TX_FAILED;
    if (number_in(x->r[stands]) >= NUMBER_MIN)
        return TX_AGAIN;
    struct tx_text n = text_of(time_us(x->r[now]) + NUMBER_AHEAD_US);
    if (time_us(x->r[now]) < NUMBER_MIN) /* no number from it would ever do */
        return tx_fail(x, HF_ECOUNTER, "the server's clock stands before September 2020: set it");
    tx_multi(x);
    tx_ask(x, S("SET"), counter, S(n.s));
    enum outcome o = tx_exec(x);
    x->committing = false; /* no grant is in doubt by this */
    return o == TX_FAILED ? o : TX_AGAIN;
}

enum outcome tx_number(struct tx *x, hf_bytes counter, long long *ret)
{
    tx_next(x);
    tx_ask(x, S("INCR"), counter);
    if (!tx_read(x) || !x->r)
        return TX_FAILED;
    const struct reply *rp = x->r[0];
    *ret = 0;
    if (is_error(rp) && !is_wrong_type(rp) && !strstr(rp->str, "integer")
        && !strstr(rp->str, "overflow")) {
        tx_refuse(x, rp);
        return TX_FAILED;
    }
    if (is_error(rp))
        return TX_ANSWERED;
    long long n = number_in(rp);
    if (n < NUMBER_MIN)
        return mend_counter(x, counter);
    if (n > NUMBER_MAX) {
        tx_ask(x, S("DECR"), counter);
        return tx_read(x) ? TX_ANSWERED : TX_FAILED;
    }
    *ret = n;
    return TX_ANSWERED;
}
