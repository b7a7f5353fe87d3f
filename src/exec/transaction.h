/* SPDX-License-Identifier: MIT
 * transaction.h - what the files of the protocol `transaction` share.
 */
#ifndef EXEC_TRANSACTION_H
#define EXEC_TRANSACTION_H

#include "exec/tx.h"

/* The operations, one for each script: transaction.c, transaction_take.c, transaction_shared.c,
 * transaction_look.c. */
enum outcome transaction_acquire(struct tx *x);
enum outcome transaction_release(struct tx *x);
enum outcome transaction_cancel(struct tx *x);
enum outcome transaction_keep(struct tx *x);
enum outcome transaction_by_owner(struct tx *x);
enum outcome transaction_acquire_all(struct tx *x);
enum outcome transaction_share(struct tx *x);
enum outcome transaction_unshare(struct tx *x);
enum outcome transaction_downgrade(struct tx *x);
enum outcome transaction_resize(struct tx *x);
enum outcome transaction_inspect(struct tx *x);
enum outcome transaction_record(struct tx *x);
enum outcome transaction_recall(struct tx *x);
enum outcome transaction_scan(struct tx *x);
enum outcome transaction_guard(struct tx *x);
enum outcome transaction_sequence(struct tx *x);
enum outcome transaction_store(struct tx *x);
enum outcome transaction_value(struct tx *x);
enum outcome transaction_resolve(struct tx *x);
/* timestamp.c */
enum outcome timestamp_acquire(struct tx *x);
enum outcome timestamp_release(struct tx *x);
enum outcome timestamp_cancel(struct tx *x);
enum outcome timestamp_keep(struct tx *x);
enum outcome timestamp_by_owner(struct tx *x);

#define TRANSACTION_KEEP_MAX 50 /* leases in one EXEC */

/* The keys of a lock, with those of its shares:
 *     AUTO(place_clear) struct queue_place k = place_of(keys); */
struct queue_place {
    hf_bytes lock, own, tombs, queue, marks;
    hf_bytes holders, details, settings; /* companions that only shares have */
    char    *memory; /* of the companions; NULL: there was none */
};
struct queue_place place_of(const struct lock_keys *keys);
void place_clear(struct queue_place *k);

/* How long a lock that was found without a ttl is given. */
int64_t transaction_repaired_ms(int64_t ttl_ms);

/* Whether the attempt may give it one: it has to be what can be a lock (part/mend.lua). value: its
 * first 513 bytes. */
bool transaction_may_mend(const struct op_take *t, const struct reply *value);

/* The number in "token:number...". */
long long fence_behind(const struct reply *record, const char *token);

/* Into a MULTI: remember for ms that a token was given up (part/entomb.lua). left_ms: the PTTL of
 * the tombstones, which are watched. */
void tx_entomb(struct tx *x, hf_bytes tombs, const char *token, int64_t now_ms, int64_t ms,
               int64_t left_ms);
/* Into a MULTI: the lock as acquire.lua writes it. */
void tx_put(struct tx *x, const struct op_take *t, long long fence);

/* ---- a lock that several hold (part/shared.lua): transaction_shared.c ------------------------ */

#define SHARE_SETTINGS_MS 604800000 /* a changed limit is remembered for a week */

struct share {
    long long limit, used;     /* used: without those whose leases are over */
    char      generation[24];  /* "": one that begins now */
    int64_t   now_ms;
    int64_t   others_until_ms; /* the latest deadline of all but the token; 0: no others */
    struct op_list ended;      /* tokens whose leases are over, still to be taken away */
    bool      wrong;           /* its keys hold something else */
    /* of the token that was asked for */
    bool      holds;           /* it is among the holders, and its lease has not ended */
    long long fence, weight;   /* fence 0: not known */
    int64_t   until_ms;
};

bool parse_share(const struct reply *value, struct share *ret);
/* Who holds it beside the token, as of now_ms. lock, holders and details are watched. */
enum outcome share_load(struct tx *x, const struct queue_place *k, struct share *s,
                        const char *token,
                        int64_t now_ms);
/* Into a MULTI: the token leaves, or holds until then. */
void share_leave(struct tx *x, const struct queue_place *k, struct share *s, const char *token);
void share_extend(struct tx *x, const struct queue_place *k, struct share *s, const char *token,
                  int64_t until_ms);
/* Nothing changes but that those whose leases are over go. */
void share_settle(struct tx *x, const struct queue_place *k, struct share *s);
/* A new holder; the first of a generation if there is none. */
void share_admit(struct tx *x, const struct queue_place *k, struct share *s, const char *token,
                 int64_t until_ms, long long fence, int64_t grace_ms, long long weight);
/* The whole of keep.lua for one holder of several. now_ms: by the server's clock. */
enum outcome share_keep(struct tx *x, const struct op_lease *l, int64_t now_ms,
                        enum verdict *ret_verdict);

#endif
