/* SPDX-License-Identifier: MIT
 * lockjson.h - a lock as JSON: docs/json.md. */
#ifndef CLI_LOCKJSON_H
#define CLI_LOCKJSON_H

#include <holdfast.h>
#include <jansson.h>

/* What each object says that it is. A field may be added without a new number. */
#define SCHEMA_LOCK "holdfast.lock/1"
#define SCHEMA_BUSY "holdfast.busy/1"
#define SCHEMA_HELD "holdfast.held/1"
#define SCHEMA_WHY  "holdfast.why/1"

json_t *json_lock(const hf_inspect_info *info);

json_t *json_text(const char *s); /* NULL: null */
json_t *json_number(int64_t n, int known); /* else null */
/* A moment of the server's clock, "2026-11-16T05:55:04Z"; null: not known. */
json_t *json_moment(int64_t unix_ms);

#endif
