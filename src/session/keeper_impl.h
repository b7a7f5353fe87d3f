/* SPDX-License-Identifier: MIT
 * keeper_impl.h - what the files of the keeper share: keeper.c, validity.c, watchdog.c,
 * renew.c, held.c and notes.c. Nobody else includes it.
 */
#ifndef SESSION_KEEPER_IMPL_H
#define SESSION_KEEPER_IMPL_H

#include <pthread.h>

#include "base/alarm.h"
#include "base/forkguard.h"
#include "base/mutex.h"
#include "session/cancel_queue.h"
#include "session/client.h"
#include "session/keeper.h"
#include "session/lease_set.h"
#include "session/server_health.h"

#define KEEPER_PUBLISH_AFTER_MS 150 /* shorter holds are nobody's business */
#define KEEPER_SLICE            500 /* leases: what one may do without letting others in */

struct round;
struct sweep;

struct keeper {
    hf_client      *c;
    pthread_t       keeper_thread, watch_thread;
    struct alarm    keeper_alarm, watch_alarm;

    struct mutex    turn; /* held while waiting for mu: see keeper_lock() */
    struct mutex    mu;   /* guards everything below, and every lease that is kept */
    bool            stopping;
    struct lease_set leases;
    struct heap     renewals, watches, lengths, named; /* some or all of them, by what is next */
    size_t          reserved; /* room in all of these */
    int64_t         min_grace_ms; /* the smallest among the leases kept; CLOCK_NEVER */
    uint64_t        graces; /* how many leases with a grace have come */
    int64_t         keeper_wakes_ms, watch_wakes_ms;
    int64_t         keeper_sleeps_ms, watch_sleeps_ms; /* until then, at the latest; CLOCK_NEVER:
                                                          it is awake, or nothing is due */
    int64_t         awake_ms; /* when one of our threads last was */
    int64_t         stood_from_ms, stood_to_ms; /* the last time that none was though it should */
    struct cancel_queue cancels;
    bool            verify_due; /* a subscription is new, or keys have moved */
    bool            record_due; /* somebody is to be named who is not */
    int64_t         announce_at_ms; /* when waiters are to be named; CLOCK_NEVER */
    int64_t         record_fresh_until_ms; /* 0: there is no record */
    bool            record_stays; /* a lock that outlives us needs it */
    atomic_int      hurry; /* 1: what the keeper asks the server is to end now */

    /* Thread: keeper. */
    struct round         *round; /* renew.c */
    struct sweep         *sweep; /* held.c */
    unsigned              moves; /* keeper_verify_moved_locked() */
    struct servers_health health;
};

/* Whoever waits for mu holds turn meanwhile: a thread that gives mu up for a moment, by
 * keeper_pause_locked(), comes after it, and does not get mu back at once, as it would without. */
static inline void keeper_lock(struct keeper *k)
{
    mutex_lock(&k->turn);
    mutex_lock(&k->mu);
    mutex_unlock(&k->turn);
}
static inline void keeper_unlock(struct keeper *k)
{
    mutex_unlock(&k->mu);
}

/* Holds: mu, released for a moment if somebody waits for it. The watchdog must never wait long:
 * what goes through all leases does this after each slice. */
static inline void keeper_pause_locked(struct keeper *k)
{
    mutex_assert_held(&k->mu);
    keeper_unlock(k);
    keeper_lock(k);
}

/* A wake-up that is planned already is kept though nothing may be due then: who locks and unlocks
 * all the time would otherwise have to ring for each lock anew. */
static inline int64_t keeper_next_wake(int64_t planned_ms, int64_t due_ms, int64_t now_ms)
{
    return planned_ms > now_ms ? clock_earlier(planned_ms, due_ms) : due_ms;
}

/* validity.c. */
bool lease_renewable(const struct lease *l);
int64_t lease_ttl(const struct lease *l, int64_t now_ms);
int64_t lease_safe_until(const struct lease *l);
int64_t lease_next_watch(const struct lease *l);
/* Holds: the keeper's mu. */
void lease_mark_back_locked(struct lease *l, unsigned epoch, int64_t sent_ms);
bool lease_idle_locked(struct lease *l, struct task *t);
void lease_unuse_locked(struct lease *l);
bool lease_suspect_locked(const struct lease *l);

void keeper_wake_locked(struct keeper *k, int64_t at_ms);
void keeper_awake_locked(struct keeper *k, int64_t now_ms); /* whoever runs says so */
/* It may have ended by our own clock: then it is lost, or first what has arrived is read. */
void keeper_judge_locked(struct keeper *k, struct lease *l, int64_t now_ms);
bool keeper_unverified_locked(const struct keeper *k, const struct lease *l);
int64_t keeper_deadline_locked(const struct keeper *k, int64_t now_ms, int64_t wanted_ms);
void keeper_mark_proved_locked(struct keeper *k, struct lease *l, int64_t sent_ms, int64_t ttl_ms);
void keeper_mark_lost_locked(struct keeper *k, struct lease *l, hf_loss loss);
void keeper_name_locked(struct keeper *k, struct lease *l);
/* Holds: mu, released in between. Whatever is not verified has to be, at once. */
void keeper_verify_locked(struct keeper *k);
void keeper_verify_moved_locked(struct keeper *k); /* on a quorum, where nobody else tells */

void keeper_watch_now_locked(struct keeper *k, struct lease *l); /* the watchdog looks at it */

/* notes.c. */
/* Somebody asks for it, and its holder is to be told. */
static inline bool lease_ask_due(const struct lease *l)
{
    return l->ask_due && !l->leaving && lease_state(l) != HF_STATE_LOST;
}
/* Holds: the keeper's mu. A message wants it to be asked about, and it is time to. */
bool lease_hinted_locked(const struct lease *l, int64_t now_ms);
/* When; CLOCK_NEVER. */
int64_t lease_hint_due_locked(const struct lease *l);
/* Its question leaves; it was answered, or not. */
void lease_hint_sent_locked(struct lease *l, int64_t now_ms);
void lease_hint_answered_locked(struct lease *l, bool answered, int64_t now_ms);
/* Nobody has told it anything yet. */
void lease_forget_notes_locked(struct lease *l);
/* What came with an answer of keep, which says that it is broken, or not: on a quorum one server
 * alone does not decide that. Takes note over; NULL is fine. */
void keeper_note_locked(struct keeper *k, struct lease *l, char *note, bool broken);

/* watchdog.c. */
void *keeper_watchdog(void *k); /* the thread */

/* renew.c. */
/* When it is renewed next; not before that. */
void keeper_plan_renewal_locked(struct keeper *k, struct lease *l, int64_t not_before_ms);
struct round *renew_new(void); /* NULL: no memory. mem_free() */
/* Holds: mu, released while it talks. Renew what is due; false when nothing was. */
bool renew_due_locked(struct keeper *k, int64_t now_ms);

/* held.c. */
struct sweep *held_new(void); /* NULL: no memory. mem_free() */
/* Holds: mu, released while it talks. Look at what is held, if it is time to; false: it was not. */
bool held_due_locked(struct keeper *k, int64_t now_ms);
int64_t held_next_ms(const struct keeper *k);

#endif
