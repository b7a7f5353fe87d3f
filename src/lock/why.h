/* SPDX-License-Identifier: MIT
 * why.h - why a lock cannot be taken: the words for it.
 */
#ifndef LOCK_WHY_H
#define LOCK_WHY_H

#include <stddef.h>
#include <stdint.h>

#include "holdfast.h"

/* The words of hf_inspect_cause() and hf_why(). */
#define CAUSE_FREE       "free"
#define CAUSE_HELD       "held"
#define CAUSE_SILENT     "silent"
#define CAUSE_LEFT       "left"
#define CAUSE_ABSENT     "absent"
#define CAUSE_CLAIM      "claim"
#define CAUSE_FOREIGN    "foreign"
#define CAUSE_NO_TTL     "no-ttl"
#define CAUSE_NOT_A_LOCK "not-a-lock"
#define CAUSE_UNKNOWN    "unknown"
#define CAUSE_DEADLOCK   "deadlock"
#define CAUSE_READ_ONLY  "read-only"
#define CAUSE_MEMORY     "out-of-memory"
#define CAUSE_MOVING     "moving"
#define CAUSE_LOADING    "loading"
#define CAUSE_QUARANTINE "quarantine"
#define CAUSE_NO_QUORUM  "no-quorum"
#define CAUSE_AWAY       "away"

/* A text that grows as far as there is room. */
struct words {
    char  *buf;
    size_t size, used;
};
void words_add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void words_time(struct words *w, int64_t ms); /* "2.1s" */
void words_party(struct words *w, const hf_party *p); /* "ann@web3" */
void words_inspected(struct words *w, const hf_inspect_info *info, const char *cause);

/* When it is free at the latest, for this cause; -1: not known. */
int64_t why_free_ms(const hf_inspect_info *info, const char *cause);

#endif
