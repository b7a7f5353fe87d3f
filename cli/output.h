/* SPDX-License-Identifier: MIT
 * output.h - locks as sheets, or as JSON (docs/json.md); and in words. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "options.h"

#include <holdfast.h>
#include <jansson.h>

/* Locks that outlive the call of hf_inspect_list() that told of them. */
struct lock_list {
    size_t         n, room;
    hf_inspect_info **lock;
};

/* Append a deep copy; -1: out of memory. */
int  lock_list_add(struct lock_list *l, const hf_inspect_info *info);
void lock_list_sort(struct lock_list *l); /* by the bytes of the name */
void lock_list_free(struct lock_list *l);

/* Bytes as a JSON string: as they are when they are UTF-8, else escaped as on a terminal. */
json_t *json_bytes(const void *data, size_t len);
/* Set "name", and "name_hex" when the name is not UTF-8. */
void json_set_name(json_t *object, const void *name, size_t len);
/* One value on one line; takes over the reference. */
void json_line(json_t *value);

/* Print locks in the form asked for: one paragraph per lock, or JSON. */
void locks_print(const struct lock_list *l, const struct opts *o);

/* Who waits, in order: a line each. */
void waiters_text(char *buf, size_t size, const hf_inspect_info *info);

/* "held by ann@web3, pid 812, backup.sh (nightly), for 3m12s, ttl 8.1s", or "free now". */
void holder_text(char *buf, size_t size, const hf_inspect_info *info);
/* The same, asked from the server; empty when it does not answer. *ret, which may be NULL, is to be
 * freed. */
hf_err holder_ask(char *buf, size_t size, hf_client *c, const char *name, int64_t timeout_ms,
                  hf_inspect_info **ret, hf_error *reterr);
/* Who is in the way, for a program that could not have the lock; info may be NULL. */
void busy_print(const char *name, const hf_inspect_info *info);

#endif
