/* SPDX-License-Identifier: MIT
 * record.h - who a session is, for people who look.
 *
 * One hash per session, <prefix>holdfast:session:<id>, with a TTL of its own. It decides nothing:
 * a lock works without it, and a lie in it can only mislead a reader.
 */
#ifndef SESSION_RECORD_H
#define SESSION_RECORD_H

#include "base/err.h"
#include "exec/exec.h"

struct identity {
    char *host, *user, *program, *info;
    char  pid[24], start[24], boot[40];
};

/* program and info may be NULL. 0, or -1 when memory is short. */
int identity_init(struct identity *id, const char *program, const char *info);
void identity_clear(struct identity *id);

/* One lock that the record names: held, or waited for, since then. */
struct record_entry {
    uint64_t sequence;
    int64_t  age_ms;
    bool     waits;
};
#define RECORD_ENTRIES_MAX 200

/* Write the whole record anew; stop may be NULL. */
hf_err record_write(struct exec *x, const char *key, const struct identity *id,
                    const struct record_entry *entry, size_t n, int64_t ttl_ms,
                    int64_t deadline_ms, const atomic_int *stop, hf_error *reterr);
/* On all servers that have it. */
hf_err record_delete(struct exec *x, const char *key, int64_t deadline_ms);

/* Fill in what another session's record says about one lock that it holds, or waits for; leaves
 * *party alone when there is none. now_ms is the server's time. */
/* Free a party and its texts; NULL is fine. */
void record_party_free(hf_party *p);

hf_err record_read(struct exec *x, const char *key, uint64_t sequence, bool waits, int64_t now_ms,
                   hf_party *party, int64_t deadline_ms, hf_error *reterr);

#endif
