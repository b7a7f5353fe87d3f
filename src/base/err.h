/* SPDX-License-Identifier: MIT
 * err.h - filling a caller's hf_error.
 */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include "holdfast.h"

/* Set *e (which may be NULL) to code, the code's own knowledge about the lock and a message; the
 * value is code: `return err_set(reterr, HF_EINVAL, "ttl of %lld ms is ...", ttl);`
 * The message says what went wrong, with what, and what to do next. Bytes that come from outside
 * go through err_quote() first. (A macro, so that readers and analyzers see the code.) */
#define err_set(e, code, ...)                      \
    __extension__({                                \
        const hf_err err_code_ = (code);           \
        err_fill((e), err_code_, __VA_ARGS__);     \
        err_code_;                                 \
    })
void err_fill(hf_error *e, hf_err code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Say better what is known about the lock than the code alone does. */
hf_err err_known(hf_error *e, hf_err code, hf_known known);

/* Put "context: " in front of the message. */
void err_prefix(hf_error *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* data as printable text in quotes: control and non-ASCII bytes as \xNN, cut with "..." to fit.
 * Returns buf. */
const char *err_quote(char *buf, size_t size, const void *data, size_t len);

/* The same without quotes, and with letters of all languages as they are, if they are UTF-8: for
 * sentences that people wrote. Nothing in it moves a cursor or turns the direction of writing. */
const char *err_plain(char *buf, size_t size, const void *data, size_t len);

#endif
