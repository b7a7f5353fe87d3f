/* SPDX-License-Identifier: MIT
 * keeper.h - what goes on in the background while locks are held.
 *
 * Two threads. The keeper talks to the server: it renews leases, several in one command, makes
 * known who we are, and finishes requests that were given up. The watchdog never talks to anybody:
 * it says "in doubt" and "lost" at the very moment, however long the keeper waits for a server.
 */
#ifndef SESSION_KEEPER_H
#define SESSION_KEEPER_H

#include "op/lock.h"
#include "session/lease.h"

struct hf_client;
struct keeper;
struct record_writing;
struct task;

hf_err keeper_open(struct hf_client *c, struct keeper **ret, hf_error *reterr);
/* Nothing new begins; its threads end soon. keeper_free() waits for that. */
void keeper_stop(struct keeper *k);
/* Stops both threads; nothing is renewed after it returns. Tokens that were given up get one last
 * attempt before the deadline. */
struct keeper *keeper_free(struct keeper *k, int64_t deadline_ms);
/* In a forked child: there are no threads to stop. */
struct keeper *keeper_forget(struct keeper *k);

/* Make room for one more lease, so that keeper_add() after a grant cannot fail; and give it
 * back. */
hf_err keeper_reserve(struct keeper *k, hf_error *reterr);
void keeper_unreserve(struct keeper *k);

/* Begin to keep a granted lease; ttl_ms is what renewals ask for. */
void keeper_add(struct keeper *k, struct lease *l, const struct lease_terms *terms,
                int64_t ttl_ms);

/* The session's inbox says: subscribed anew; proven present. Thread: inbox. */
struct keyspace;
struct inbox;
void keeper_subscribed(struct keeper *k, struct keyspace *h, unsigned epoch);
void keeper_present(struct keeper *k, const struct inbox *in, int64_t proof_ms);

/* The topology has moved: what is held has to be found ours on the server that has it now. Any
 * thread. */
void keeper_moved(struct keeper *k);
/* Whether anything is kept. */
bool keeper_any(struct keeper *k);

/* These two do not wait for a renewal or an event of the lease that is under way: they say so, and
 * wake t when it has ended. Then, or before, they have to be called again, until they say something
 * else: t must not be gone before. One task at a time for each lease. Not from an event. */

/* When one of them has said "not yet": t waits until limit_ms at the latest. Then the renewal under
 * way is ended, and made again later. */
void keeper_limit(struct keeper *k, struct task *t, int64_t limit_ms);

/* Stop keeping it, and begin nothing new for it. *ret_was is the state that it was in; it is
 * HF_STATE_FREE then. False: not yet. */
bool keeper_remove(struct keeper *k, struct lease *l, struct task *t, hf_state *ret_was);

enum keeper_turn { TURN_WAIT, TURN_HELD, TURN_LOST };

/* An explicit request of the holder, one at a time with renewals. TURN_HELD: no renewal begins
 * until exactly one of keeper_proved(), keeper_denied(), keeper_unsure() was called; and until then
 * the shorter of both leases counts. TURN_LOST: it is not held any more. ttl_ms is 0 for a request
 * that changes no lease; in_doubt: a copy of the request may still be under way. */
enum keeper_turn keeper_begin(struct keeper *k, struct lease *l, int64_t ttl_ms, struct task *t);
void keeper_proved(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms,
                   bool in_doubt);
void keeper_denied(struct keeper *k, struct lease *l, hf_loss loss);
void keeper_unsure(struct keeper *k, struct lease *l, int64_t ttl_ms, bool in_doubt);
/* What is left of the lease itself, ms, also where a grace ends before it. */
int64_t keeper_lease_left(struct keeper *k, const struct lease *l);

/* What came with the answer to such a request, before it is told to the three above. broken:
 * the answer says so. Takes note over; NULL is fine. */
void keeper_note(struct keeper *k, struct lease *l, char *note, bool broken);
/* A message of our channel: is it about something that we hold? Then the server is asked. Thread:
 * whoever reads the inbox. */
void keeper_message(struct keeper *k, const char *text);
/* Who broke it, and why; who asked for it, and what: as text for messages, in a lease that may be
 * kept or not. *ret_asks (may be NULL): how often. "": nobody. Returns buf. Any thread. */
enum note_kind { NOTE_BREAK, NOTE_ASK };
const char *keeper_told(struct keeper *k, const struct lease *l, enum note_kind kind, char *buf,
                        size_t size, unsigned *ret_asks);
/* "BY TEXT" as "BY: TEXT", whoever wrote it, safe to be printed. Returns buf, which has at least 16
 * bytes. */
const char *note_shown(const char *by_and_text, char *buf, size_t size);
/* The lease is not kept any more, and never will be. */
void keeper_forget_notes(struct lease *l);

/* Give a token up in the background, until the server has answered or nothing can be left of it; a
 * tombstone stays. Copies what it needs; when memory is short the ttl has to do. */
void keeper_give_up(struct keeper *k, const struct op_cancel *what, int64_t ttl_ms);
/* Is it still at that, with a token of this lock that has this sequence number, or a later one? */
bool keeper_gives_up(struct keeper *k, hf_bytes name, uint64_t first);

/* A token was released, when its key had moved so often (op.moves): should that move in the next
 * moments, or have moved since, the release may have been lost with the old server. It is then
 * repeated on the new one. Copies what it needs. */
void keeper_released(struct keeper *k, const struct op_cancel *what, unsigned moves);

/* Some of the leases that are kept now, at most max; how many. For hf_client_release_all(). */
size_t keeper_list(struct keeper *k, struct lease **ret, size_t max);

/* What is held now and kept until it is released, at most max of it, by a thread (0: by none in
 * particular) or under an owner id (empty: none); with all, everything that is held. How many. Each
 * name is to be freed. */
struct keeper_holding {
    char     token[TOKEN_SIZE];
    uint64_t fence;
    bool     shared;
    char    *name; /* of the lock */
    size_t   name_len;
};
size_t keeper_held(struct keeper *k, uint64_t thread, hf_bytes owner, bool all,
                   struct keeper_holding *ret, size_t max);

/* It has ended by our own clock: what state is it in? HF_STATE_IN_DOUBT: this process stood still,
 * and what has arrived meanwhile is being read. */
hf_state keeper_judge(struct keeper *k, struct lease *l);

/* Whether the lease of this sequence number is kept now. */
bool keeper_holds(struct keeper *k, uint64_t sequence);

/* From now on the renewals of the lease with this token, which has no caller-chosen owner, prolong
 * another key of its lock as well. The bytes of the key must outlive the hold. TURN_WAIT as above;
 * TURN_LOST: the lease is not kept. TURN_HELD: *ret, to be stepped by t and freed, makes known at
 * once who holds it; NULL: that has to do without. */
enum keeper_turn keeper_follow(struct keeper *k, const char *token, hf_bytes key, struct task *t,
                               struct record_writing **ret);

/* There is something to be told (notes.h). Any thread; nothing is locked. */
void keeper_nudge(struct keeper *k);

/* Somebody began to wait: others shall be able to see who it is, if it takes a while. */
void keeper_announce(struct keeper *k);

/* Make our record known, to last at least ttl_ms, for a lock that outlives the process: to be
 * stepped by t and freed. NULL: no memory. */
struct record_writing *keeper_publish(struct keeper *k, const struct lease *l, int64_t ttl_ms,
                                      struct task *t);

#endif
