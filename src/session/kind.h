/* SPDX-License-Identifier: MIT
 * kind.h - what stands on a key, by its own words.
 */
#ifndef SESSION_KIND_H
#define SESSION_KIND_H

#include <stdbool.h>

#include "topo/keys.h"

/* A lock of another kind than the mutex says what it is: "KIND.NUMBER.NUMBER:...". */
struct kind {
    const char *name;        /* "shared" (readers), "semaphore", "latch", "barrier" */
    const char *text;        /* "a latch" */
    bool        lock;        /* it can be held, alone or with others */
    unsigned    total, used; /* slots and permits that are out; set to and left; parties and
                                there */
};

bool kind_parse(const char *value, struct kind *ret);

/* HF_ETYPE, because this stands there: "NAME is a barrier, not a latch ...". value ends with a NUL;
 * its data is NULL when it is data of another type. wanted: "a latch". */
hf_err kind_refuse(const struct lock_keys *keys, hf_bytes value, const char *wanted,
                   hf_error *reterr);

#endif
