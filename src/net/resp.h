/* SPDX-License-Identifier: MIT
 * resp.h - bytes to replies; never touches a socket. (The other way: command.h.)
 *
 * It refuses what a lock client never has a reason to accept: deep, huge or unexpected replies.
 */
#ifndef NET_RESP_H
#define NET_RESP_H

#include <stddef.h>

#include "holdfast.h"

enum reply_type { REPLY_STATUS, REPLY_ERROR, REPLY_INT, REPLY_BULK, REPLY_NIL, REPLY_ARRAY };

struct reply {
    enum reply_type type;
    long long       num;   /* REPLY_INT */
    size_t          len;   /* bytes of str, or elements of item */
    char           *str;   /* STATUS, ERROR, BULK: NUL-terminated for convenience */
    struct reply  **item;  /* ARRAY */
};

#define RESP_MAX_DEPTH    4
#define RESP_MAX_ELEMENTS 16384 /* a cluster has so many slots */
#define RESP_MAX_BYTES    (HF_VALUE_MAX + 64 * 1024) /* of one whole reply, as it is on the wire */
#define RESP_MAX_LINE     (64 * 1024)   /* of one status or error */

struct resp; /* one parser */

struct resp *resp_new(void);           /* NULL: out of memory */
struct resp *resp_free(struct resp *r);
void resp_reset(struct resp *r);       /* forget everything: a new connection begins */

/* Give n bytes from the server. HF_OK, HF_ENOMEM, or HF_EPROTO when more than RESP_MAX_BYTES are
 * here that resp_next() has not taken: call it until it has no more before the next feed. After an
 * error only resp_reset() and resp_free() make sense. */
hf_err resp_feed(struct resp *r, const void *data, size_t n);

/* Take the next whole reply. HF_OK with *ret set (free it with reply_free()) or NULL when more
 * bytes are needed; HF_EPROTO with the reason in resp_error(), HF_ENOMEM. */
hf_err resp_next(struct resp *r, struct reply **ret);
const char *resp_error(const struct resp *r);

struct reply *reply_free(struct reply *rp);
static inline void reply_freep(struct reply **rp) /* AUTO(reply_freep) struct reply *rp = ...; */
{
    reply_free(*rp);
}

/* Replies that no server gave. NULL: no memory. */
struct reply *reply_int(long long n);
struct reply *reply_bytes(const void *data, size_t len);
struct reply *reply_array(size_t n); /* its items are NULL until you set them */

#endif
