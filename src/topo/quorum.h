/* SPDX-License-Identifier: MIT
 * quorum.h - several independent servers, of which a majority decides.
 *
 * Here is what each of them is and whether it may vote; what is asked and how votes are counted is
 * in exec/quorum_exec.c. A thread for each member keeps it connected, so that one that is dead or
 * slow costs nobody any time.
 */
#ifndef TOPO_QUORUM_H
#define TOPO_QUORUM_H

#include "topo/topo.h"

#define QUORUM_MAX           64    /* as many hosts as a URL may have */
#define QUORUM_QUARANTINE_MS 60000 /* ?quarantine= when it is not given */
#define QUORUM_TOGETHER_MS   5000  /* counters that began within that began at the same time */

struct quorum;

/* The URL must outlive it. Talks to nobody yet. HF_ENOMEM. */
hf_err quorum_open(const struct url *u, int64_t timeout_ms, topo_greet greet, void *arg,
                   const struct log *log, struct quorum **ret, hf_error *reterr);
struct quorum *quorum_free(struct quorum *q);
struct quorum *quorum_forget(struct quorum *q); /* in a forked child */

/* Connect to all of them, and wait for a majority. HF_ENOQUORUM; or what all that failed agree on,
 * such as HF_EAUTH. */
hf_err quorum_connect(struct quorum *q, const struct limit *lim, hf_error *reterr);

size_t quorum_size(const struct quorum *q);
size_t quorum_majority(const struct quorum *q);
/* How often one of them was connected to: it may have missed what was done without it. */
unsigned quorum_ups(const struct quorum *q);
struct conn *quorum_conn(const struct quorum *q, size_t i);
const char *quorum_shown(const struct quorum *q, size_t i); /* "host:6379" */
const struct log *quorum_log(const struct quorum *q);

/* A lock of this ttl is asked for. What was the longest. */
void quorum_used(struct quorum *q, int64_t ttl_ms);
int64_t quorum_longest_ttl_ms(const struct quorum *q);

/* From now on hear what is published to the channel, on each of them, as far as it can be
 * subscribed to. Thread: the member's, nothing locked. Only the first call counts. HF_ENOMEM. */
typedef void (*quorum_heard)(void *arg, size_t i, const char *text);
hf_err quorum_listen(struct quorum *q, const char *channel, quorum_heard heard, void *arg);
/* Whether that stands on a majority. */
bool quorum_hears(const struct quorum *q);

/* When a number was last written to all of them; 0: never. */
void quorum_set_agreed(struct quorum *q);
int64_t quorum_agreed_ms(const struct quorum *q);

/* A server that restarted without its data has forgotten what it had granted. For how long it still
 * may not vote on a lock of this ttl; 0: it may. *ret_lost: it keeps an append-only file, but that
 * is gone. */
int64_t quorum_young_ms(struct quorum *q, size_t i, int64_t ttl_ms, bool *ret_lost);
/* It gave a number: it has a counter from now on at the latest. */
void quorum_gave_number(struct quorum *q, size_t i);

/* Whether the script of this number was sent as text on this connection; from now on it counts as
 * sent. A refusal for want of the text would come when nobody waits for it any more. */
bool quorum_knows(struct quorum *q, size_t i, unsigned script);

/* When its present connection was greeted, nobody had taken a number: its reign is to begin before
 * one is. quorum_reign_begins(): it does. */
bool quorum_reign_due(struct quorum *q, size_t i);
void quorum_reign_begins(struct quorum *q, size_t i);

/* A request found the member without a connection, or was the last on it: mend it. */
void quorum_mend(struct quorum *q, size_t i);
/* It has no connection, but may have one soon: the last attempt did not fail, or the first has not
 * ended yet. */
bool quorum_connecting(struct quorum *q, size_t i);
/* Why it has no connection. */
void quorum_why(struct quorum *q, size_t i, char *buf, size_t size);

/* Compare a member's clock with ours, and report a jump: expiry follows it. */
void quorum_compare_clocks(struct quorum *q, size_t i, int64_t server_ms, int64_t sent_ms,
                           int64_t ttl_ms);

/* It was too late to tell its time: its thread asks for it. */
void quorum_want_time(struct quorum *q, size_t i);

/* What undoes a request, ready to be sent: the same bytes for all members. Takes over the command.
 * NULL: no memory. */
struct undo;
struct undo *quorum_undo(struct command *cmd);
struct undo *quorum_undo_free(struct undo *u); /*those that are pending keep it */

/* A command that a member owes us: done on its next connection before anything else, or now if it
 * has one. Given up at until_ms. NULL: no memory. */
struct pending_undo {
    struct on_settled on_settled; /* of a request that this undoes: due unless that is settled */
    struct pending_undo *next;
    struct quorum    *q;
    size_t            member;
    int64_t           until_ms;
    struct undo      *undo;
};
struct pending_undo *quorum_undo_for(struct quorum *q, size_t i, struct undo *u, int64_t until_ms);
/* It is due. Takes it over; NULL is fine. */
void quorum_undo_owe(struct pending_undo *ch);

#endif
