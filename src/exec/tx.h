/* SPDX-License-Identifier: MIT
 * tx.h - one attempt at an operation by plain commands, on a connection of its own.
 *
 *     tx_ask(x, S("WATCH"), key);                       send
 *     size_t v = tx_ask(x, S("GETRANGE"), key, S("0"), S("511"));
 *     if (!tx_flush(x)) return TX_FAILED;               read the replies: x->r[v]
 *     tx_multi(x);
 *     tx_ask(x, S("DEL"), key);
 *     enum outcome o = tx_exec(x);                      TX_ANSWERED: done; TX_CONFLICT: not
 */
#ifndef EXEC_TX_H
#define EXEC_TX_H

#include <stdbool.h>
#include <string.h>

#include "base/limit.h"
#include "net/servererr.h"
#include "op/op.h"

enum outcome {
    TX_ANSWERED, /* op->got is filled in */
    TX_AGAIN,    /* something was put right: from the beginning */
    TX_CONFLICT, /* others changed what was watched: nothing was done */
    TX_FAILED    /* x->e */
};

struct tx {
    struct link        *l;
    struct op          *op;        /* what is asked, and where the answer goes */
    int64_t             skew_ms;
    hf_error           *reterr;
    hf_err              e;         /* sticky; then nothing more is sent */
    enum server_verdict verdict;   /* of the server's error in e */
    bool                answered;  /* e is an error of the server, else the connection's */
    bool                used;      /* the connection has watched something */
    bool                committing; /* an EXEC has left and was not answered */
    int64_t             began_ms;  /* before the first command left */
    size_t              n, read;   /* commands asked; how many of their replies are here */
    struct reply      **r;
    size_t              stale;     /* replies to come that nobody wants any more */
    char               *out;       /* commands that have not left yet: they go together */
    size_t              out_len;
    struct reply       *exec;      /* the reply of the last EXEC */
    struct reply      **kept;      /* replies that outlive their round */
    size_t              nkept;
};

/* Ask something: tx_ask(x, S("GETRANGE"), key, S("0"), S("9")). Its place among the replies. */
#define S(text) hf_str(text)
#define tx_ask(x, ...)                                                                    \
    tx_send((x), (int)(sizeof((hf_bytes[]){ __VA_ARGS__ }) / sizeof(hf_bytes)),           \
            (hf_bytes[]){ __VA_ARGS__ })
size_t tx_send(struct tx *x, int argc, const hf_bytes *argv);
/* Read all replies. False: x->e. Data of another type is left in x->r as an error reply. */
bool tx_flush(struct tx *x);
/* Forget them: the next round begins. */
void tx_next(struct tx *x);
/* Keep one of them until the end of the attempt; NULL: no memory. */
struct reply *tx_keep(struct tx *x, size_t at);
/* Take one of them out: yours to free. */
struct reply *tx_take(struct tx *x, size_t at);
/* MULTI; the commands follow by tx_ask(); then EXEC. TX_ANSWERED: all of it was done. */
void tx_multi(struct tx *x);
enum outcome tx_exec(struct tx *x);
/* The same for a MULTI of PEXPIREs alone. TX_CONFLICT also when a key was gone: servers before
 * Redis 6.0.9 do not count it as a change that a watched key has ended by its ttl. */
enum outcome tx_exec_extending(struct tx *x);
/* Was all that was read true at one moment? TX_CONFLICT: something has changed since it was read.
 * For answers that change nothing and must not come from halves that never stood together. */
enum outcome tx_confirm(struct tx *x);
enum outcome tx_fail(struct tx *x, hf_err e, const char *text);
enum outcome tx_no_memory(struct tx *x);

/* Its two halves: read; and what an error of the server means. */
bool tx_read(struct tx *x);
void tx_refuse(struct tx *x, const struct reply *rp);
void tx_end(struct tx *x); /* the attempt is over: free its replies */

/* For how long anybody may wait for it. */
static inline struct limit tx_limit(const struct op *op)
{
    return (struct limit){ op->deadline_ms, op->stop };
}
/* Sleep before the next attempt. False: there is not so much time left, or it was stopped. */
bool tx_pause(const struct op *op, int64_t ms);

static inline bool is_error(const struct reply *rp)
{
    return rp->type == REPLY_ERROR;
}
static inline bool is_wrong_type(const struct reply *rp)
{
    return is_error(rp) && strncmp(rp->str, "WRONGTYPE", 9) == 0;
}
bool is_bytes(const struct reply *rp, hf_bytes want);       /* a string, exactly this */
bool begins_with(const struct reply *rp, const char *text, char then); /* text and then a byte */
long long number_in(const struct reply *rp); /* an integer, or the one that a string begins with */
int64_t time_us(const struct reply *rp);     /* the reply to TIME */

/* What the fencing counter may stand at, and where a new one begins: so far ahead of the time. */
#define NUMBER_MIN      INT64_C(1600000000000000)
#define NUMBER_MAX      INT64_C(9007199254740000)
#define NUMBER_AHEAD_US INT64_C(60000000)

/* The next fencing number: TX_ANSWERED and *ret > 0; or *ret 0: the counter holds something else.
 * What shall be granted must have been watched before. */
enum outcome tx_number(struct tx *x, hf_bytes counter, long long *ret);

/* Answers. All give TX_ANSWERED; answer_busy() TX_FAILED without memory. */
enum outcome answer_granted(struct tx *x, long long fence); /* take */
enum outcome answer_refused(struct tx *x, enum answer code);
/* Another's, and for how long. value: what stands in the lock, or NULL. */
enum outcome answer_busy(struct tx *x, int64_t left_ms, const struct reply *value);
enum outcome answer_held(struct tx *x, bool held);          /* release and the like */
enum outcome answer_done(struct tx *x, enum answer code);   /* record and the like */

/* A decimal number as an argument. */
struct tx_text { char s[24]; };
struct tx_text text_of(long long n);
#define N(n) hf_str(text_of(n).s)

#endif
