/* SPDX-License-Identifier: MIT
 * quorum.h - several independent servers, of which a majority decides.
 *
 * Here is what each of them is and whether it may vote; what is asked and how votes are counted is
 * in script/quorum.c. A thread for each member keeps it connected, so that one that is dead or slow
 * costs nobody any time.
 */
#ifndef TOPO_QUORUM_H
#define TOPO_QUORUM_H

#include "topo/topo.h"

#define QUORUM_MAX              CONN_ASKS_MAX
#define QUORUM_QUARANTINE_MS    60000 /* ?quarantine= when it is not given */

struct quorum;

/* The URL must outlive it. Talks to nobody yet. HF_ENOMEM. */
hf_err quorum_open(const struct url *u, int64_t timeout_ms, topo_greet greet, void *arg,
                   const struct log *log, struct quorum **ret, hf_error *reterr);
struct quorum *quorum_free(struct quorum *q);
struct quorum *quorum_forget(struct quorum *q); /* in a forked child */

/* Connect to all of them, and wait for a majority. HF_ENOQUORUM; or what all that failed agree on,
 * such as HF_EAUTH. */
hf_err quorum_connect(struct quorum *q, int64_t deadline_ms, hf_error *reterr);

size_t quorum_size(const struct quorum *q);
size_t quorum_majority(const struct quorum *q);
struct conn *quorum_conn(const struct quorum *q, size_t i);
const char *quorum_shown(const struct quorum *q, size_t i); /* "host:6379" */
struct conn_bells *quorum_bells(struct quorum *q);
const struct log *quorum_log(const struct quorum *q);

/* A lock of this ttl is asked for, and numbered by this key. What was the longest, and the key;
 * NULL: none was asked for yet. */
void quorum_used(struct quorum *q, int64_t ttl_ms, hf_bytes fence_key);
int64_t quorum_longest_ttl_ms(const struct quorum *q);
const char *quorum_fence_key(const struct quorum *q);

/* From now on hear what is published to the channel, on each of them, as far as it can be
 * subscribed to. Thread: the member's, nothing locked. Only the first call counts. HF_ENOMEM. */
typedef void (*quorum_heard)(void *arg, size_t i, const char *text);
hf_err quorum_listen(struct quorum *q, const char *channel, quorum_heard heard, void *arg);
/* Whether that stands on a majority. */
bool quorum_hears(const struct quorum *q);

/* When a number was last written to all of them; 0: never. */
void quorum_set_agreed(struct quorum *q);
int64_t quorum_agreed_ms(const struct quorum *q);

/* A server that restarted without an append-only file has forgotten what it had granted. For how
 * long it still may not vote on a lock of this ttl; 0: it may. */
int64_t quorum_young_ms(struct quorum *q, size_t i, int64_t ttl_ms);

/* Whether the script of this number was sent as text on this connection; from now on it counts as
 * sent. A refusal for want of the text would come when nobody waits for it any more. */
bool quorum_knows(struct quorum *q, size_t i, unsigned script);

/* A request found the member without a connection, or was the last on it: mend it. */
void quorum_mend(struct quorum *q, size_t i);
/* Why it has no connection. */
void quorum_why(struct quorum *q, size_t i, char *buf, size_t size);

/* Compare a member's clock with ours, and report a jump: expiry follows it. */
void quorum_compare_clocks(struct quorum *q, size_t i, int64_t server_ms, int64_t sent_ms,
                           int64_t ttl_ms);

/* It was too late to tell its time: its thread asks for it. */
void quorum_want_time(struct quorum *q, size_t i);

/* A command that a member owes us: done on its next connection before anything else, or now if it
 * has one. The first two arguments are not copied. Given up at until_ms. NULL: no memory. */
struct chore {
    struct conn_keepsake keepsake; /* of a request that this undoes: due unless that is settled */
    struct chore        *next;
    struct quorum       *q;
    size_t               member;
    int64_t              until_ms;
    int                  argc;
    hf_bytes             argv[16];
    char                 bytes[];
};
struct chore *quorum_chore(struct quorum *q, size_t i, int argc, const hf_bytes *argv,
                           int64_t until_ms);
/* It is due. Takes it over; NULL is fine. */
void quorum_owe(struct chore *ch);

#endif
