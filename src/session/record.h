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
    char *host, *program, *info;
    char  pid[24];
    bool  complete; /* what follows is known */
    char  user[208], start[24], boot[40];
};

/* program and info may be NULL. 0, or -1 when memory is short. */
int identity_init(struct identity *id, const char *program, const char *info);
/* The rest, for which files are read and the system's user database is asked, which may take its
 * time. By the thread that opens the client, before anybody else uses it. */
void identity_complete(struct identity *id);
/* The name of its connections, as CLIENT LIST shows it: holdfast:PROGRAM@HOST:PID. */
void identity_client_name(const struct identity *id, char *ret, size_t size);
void identity_clear(struct identity *id);

/* One lock that the record names: held, or waited for, since then. */
struct record_entry {
    uint64_t sequence;
    int64_t  age_ms;
    bool     waits;
    int64_t  lease_ms; /* how long it lasts; of one that is held */
    bool     left;     /* nobody renews it in the background */
};
#define RECORD_ENTRIES_MAX 200

/* Writing the whole record anew: the operation, and where its fields lie. */
enum { RECORD_FIELDS = 7 };
struct record_writing {
    struct op       op;
    struct op_field field[RECORD_FIELDS];
    struct op_entry named[RECORD_ENTRIES_MAX];
};

/* Begun: the op is to be stepped by t. NULL: no memory. */
struct record_writing *record_writing_new(struct exec *x, const char *key,
                                          const struct identity *id,
                                          const struct record_entry *entry, size_t n,
                                          int64_t ttl_ms, int64_t deadline_ms, struct task *t);
void record_writing_free(struct record_writing *w); /* NULL is fine */
/* Blocking; stop may be NULL. */
hf_err record_write(struct exec *x, const char *key, const struct identity *id,
                    const struct record_entry *entry, size_t n, int64_t ttl_ms,
                    int64_t deadline_ms, const atomic_int *stop, hf_error *reterr);
/* On all servers that have it. */
hf_err record_delete(struct exec *x, const char *key, int64_t deadline_ms);

/* Of which nothing is known yet. NULL: no memory. */
hf_party *record_party_new(void);
/* Free a party and its texts; NULL is fine. The texts alone. */
void record_party_free(hf_party *p);
void record_party_clear(hf_party *p);

/* Filling in what another session's record says about one lock that it holds, or waits for; party
 * is left alone when there is none. now_ms is the server's time. */
struct record_reading {
    struct op   op;
    char       *key;
    const char *field[8];
    char        since[32], waits[32], lease[32];
    int64_t     now_ms;
    hf_party   *party;
};

/* session: its 32 digits. HF_ENOMEM. The op is to be carried out, by exec_run() or in steps. */
hf_err record_read_begin(struct record_reading *r, const char *prefix, const char *session,
                         uint64_t sequence, bool waits, int64_t now_ms, hf_party *party,
                         int64_t deadline_ms, hf_error *reterr);
/* It is complete: its result. Clears op. */
hf_err record_read_end(struct record_reading *r);

#endif
