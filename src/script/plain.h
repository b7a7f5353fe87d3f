/* SPDX-License-Identifier: MIT
 * plain.h - the protocols that need no script: the same operations with WATCH, MULTI and EXEC.
 *
 * script_run() comes here when a client does not use scripts. Each script has a function that does
 * the same by plain commands and gives the same answer, so that nothing above knows the difference.
 * WATCH belongs to a connection, so none of this goes over the shared, pipelined one.
 */
#ifndef SCRIPT_PLAIN_H
#define SCRIPT_PLAIN_H

#include <stdbool.h>

#include "net/servererr.h"
#include "script/script.h"

struct plain;

/* keys: the counter and the reign, for the greeting of each connection; they must outlive it. */
struct plain *plain_new(struct topo *t, const char *fence_key, const char *reign_key,
                        int64_t skew_ms);
struct plain *plain_free(struct plain *p); /* nobody is in a call; also in a forked child */

void plain_choose(struct plain *p, enum protocol protocol);
enum protocol plain_protocol(const struct plain *p);
int64_t plain_skew_ms(const struct plain *p); /* of protocol timestamp, else 0 */

/* As script_run(). HF_ECONFLICT: others changed the lock at every try; HF_ENOTSUP: not without
 * scripts. */
hf_err plain_run(struct plain *p, struct script_call *sc, hf_error *reterr);

/* What hello.lua does, on a fresh connection. *ret_code: 0, 1 a new reign, -4, -5. */
hf_err plain_hello(struct link *l, const char *fence_key, const char *reign_key,
                   int64_t deadline_ms, long long *ret_code, hf_error *reterr);

/* ---- for the functions that stand for a script: one attempt on one connection ---------------- */

enum outcome {
    TX_ANSWERED, /* sc->reply is set */
    TX_AGAIN,    /* something was put right: from the beginning */
    TX_CONFLICT, /* others changed what was watched: nothing was done */
    TX_FAILED    /* x->e */
};

struct tx {
    struct link        *l;
    struct script_call *sc;
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
    struct reply       *exec;      /* the reply of the last EXEC */
    struct reply      **kept;      /* replies that outlive their round */
    size_t              nkept;
};

/* Send a command: tx_ask(x, S("GETRANGE"), key, S("0"), S("9")). Its place among the replies. */
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
/* MULTI; the commands follow by tx_ask(); then EXEC. TX_ANSWERED: all of it was done. */
void tx_multi(struct tx *x);
enum outcome tx_exec(struct tx *x);
enum outcome tx_fail(struct tx *x, hf_err e, const char *text);

static inline bool is_error(const struct reply *rp)
{
    return rp->type == REPLY_ERROR;
}
bool is_bytes(const struct reply *rp, hf_bytes want);       /* a string, exactly this */
bool begins_with(const struct reply *rp, const char *text, char then); /* text and then a byte */
long long number_in(const struct reply *rp); /* an integer, or the one that a string begins with */
int64_t time_us(const struct reply *rp);     /* the reply to TIME */

/* The next fencing number: TX_ANSWERED and *ret > 0; or *ret 0, and the counter holds something else.
 * What shall be granted must have been watched before. */
enum outcome tx_number(struct tx *x, hf_bytes counter, long long *ret);

/* Answers. All give TX_ANSWERED, or TX_FAILED without memory. */
enum outcome answer_int(struct tx *x, long long n);
/* An array of integers. */
enum outcome answer_ints(struct tx *x, size_t n, const long long *number);
struct reply *reply_int(long long n);
struct reply *reply_bytes(const void *data, size_t len);
struct reply *reply_array(size_t n); /* its items are NULL and must be filled before it is freed */
/* Give rp, or fail when it or one of its items is missing. */
enum outcome answer(struct tx *x, struct reply *rp);

/* A decimal number as an argument. */
struct text { char s[24]; };
struct text text_of(long long n);
#define N(n) hf_str(text_of(n).s)

/* The operations, one for each script: transaction.c, transaction_shared.c, transaction_look.c. */
enum outcome transaction_acquire(struct tx *x);
enum outcome transaction_release(struct tx *x);
enum outcome transaction_cancel(struct tx *x);
enum outcome transaction_keep(struct tx *x);
enum outcome transaction_by_owner(struct tx *x);
enum outcome transaction_acquire_all(struct tx *x);
enum outcome transaction_share(struct tx *x);
enum outcome transaction_unshare(struct tx *x);
enum outcome transaction_downgrade(struct tx *x);
enum outcome transaction_resize(struct tx *x);
enum outcome transaction_inspect(struct tx *x);
enum outcome transaction_record(struct tx *x);
enum outcome transaction_recall(struct tx *x);
enum outcome transaction_scan(struct tx *x);
enum outcome transaction_guard(struct tx *x);
enum outcome transaction_sequence(struct tx *x);
/* timestamp.c */
enum outcome timestamp_acquire(struct tx *x);
enum outcome timestamp_release(struct tx *x);
enum outcome timestamp_cancel(struct tx *x);
enum outcome timestamp_keep(struct tx *x);
enum outcome timestamp_by_owner(struct tx *x);

#endif
