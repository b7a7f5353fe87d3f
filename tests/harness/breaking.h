/* SPDX-License-Identifier: MIT
 * breaking.h - shorthands of the tests about breaking a lock.
 */
#ifndef HARNESS_BREAKING_H
#define HARNESS_BREAKING_H

#include "harness/believer.h"

#define REASON "the database moves"

static struct server *s;

/* Processes are forked first, and clients opened then. */
static hf_client *opened;
#define c (opened ? opened : (opened = client_at(server_url(s), 0)))

static inline void begin(void)
{
    s = server_start(NULL);
    opened = NULL;
}

static inline hf_err broken(hf_client *by, const char *name, uint64_t fence, int64_t wait_ms,
                     hf_break_info *ret)
{
    hf_break_opts o = { .size = sizeof o, .reason = REASON, .wait_ms = wait_ms };
    return hf_break(by, hf_str(name), fence, &o, ret, &err);
}

/* Somebody waits for lock:a. */
static inline struct locker next_in_line(hf_lock_opts o)
{
    return (struct locker){ .m = lock_with(client_at(server_url(s), 0), "a", o),
                            .wait_ms = 60000 };
}

#endif
