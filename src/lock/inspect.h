/* SPDX-License-Identifier: MIT
 * inspect.h - what one look at a lock found, in words.
 */
#ifndef LOCK_INSPECT_H
#define LOCK_INSPECT_H

#include "session/client.h"

#define SIGHT_SESSION_DIGITS 32
/* Holders, and waiters, that are described one by one; more are counted. */
#define SIGHTS_MAX           100
#define SIGHT_FREE           "mutex" /* the kind of what is not there */

#define SIGHT_RECORD_MS 2000 /* for who a session is: its record may lie on a server that is away */

/* Somebody whose session is to be asked who it is. */
struct sight {
    char      session[SIGHT_SESSION_DIGITS + 1];
    uint64_t  sequence;
    bool      waits;
    hf_party *party;
};

struct sights {
    hf_inspect_info *info;
    size_t           n;
    struct sight    *sight;
};

/* Describe what was answered. presence: sessions can be seen where this is. False: no memory;
 * sights_clear() all the same. */
bool sights_fill(struct sights *ret, const char *prefix, hf_bytes name,
                 const struct op_inspected *got, bool presence);
/* The name alone, of what could not be looked at. */
bool sights_name(struct sights *ret, hf_bytes name);
void sights_clear(struct sights *s);

/* For every public call here: HF_EINVAL, or as client_enter(). complete: all results have a
 * place. And until when it may take; CLOCK_NEVER: each request as long as the client allows. */
hf_err inspect_check(const hf_client *c, int64_t timeout_ms, bool complete, hf_error *reterr);
int64_t inspect_until(int64_t timeout_ms);

/* The session's record has been read, or could not be: what follows from both. */
void sight_complete(const struct sight *s);

#endif
