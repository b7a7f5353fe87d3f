/* SPDX-License-Identifier: MIT
 * handle.h - the handle through which a lock is held, alone or with others: what the files of the
 * mutex, the read-write lock, the semaphore and the multi-lock share.
 *
 * What talks to the server is done in steps, with a struct for what it needs between them: taking,
 * giving back, asking. A call (call.h) is one of them, or several, as an election's.
 */
#ifndef LOCK_HANDLE_H
#define LOCK_HANDLE_H

#include "base/thread.h"
#include "session/attempt.h"
#include "session/call.h"
#include "session/deadlock.h"
#include "session/record.h"
#include "session/waiter.h"

struct hf_lock {
    struct lease      lease;
    hf_client        *c;
    struct lock_keys *keys;
    hf_lock_opts      opts;
    char             *owner;      /* caller-chosen id, or NULL */
    atomic_uint       depth;      /* how often it was acquired; 0: not held */
    _Atomic uint64_t  fence;      /* of the last grant */
    unsigned          weight;     /* of the present take: 0 alone, else so many parts of a shared
                                     lock */
    bool              in_doubt;   /* copies of the acquire may still be under way */
    struct seat       seat;       /* where its calls wait, and are cancelled */
    atomic_int        event_fd;   /* -1 until somebody asks for it */
    atomic_bool       ended;      /* of this hold it was counted and noted that it is over */
    _Atomic int64_t   waited_ms;  /* for this hold */
    char              note[];     /* its holder's own words, for the history, LOCK_NOTE_SIZE bytes;
                                     under notes.mu. Without a history there is no room for them */
};
#define LOCK_NOTE_SIZE 100

/* ---- taking ------------------------------------------------------------------------------- */

struct taking {
    struct call  *call;       /* whose steps these are */
    struct waiter w;
    hf_lock      *m;
    int64_t       wait_ms, deadline_ms;
    hf_err        result;
    hf_error     *reterr;     /* may be NULL */
    step_at       at;
    int64_t       begun_ms;   /* when the waiter's step began */
    int64_t       reached_ms; /* when the server last answered */
    bool          answered;   /* it has, since we began */
    bool          told;       /* why a quorum does not grant it */
    bool          troubled;   /* it could not be reached, or refused, when there was time */
    bool          begun, granted;
    bool          contended;  /* it was held, or others wait for it */
    int64_t       started_ms;
    int64_t       ended_ms;   /* when there was nothing more to wait for */
    uint64_t      left;       /* of the first token that did not end well; 0: there is none */
    bool          unacked;    /* it was ours, but for the replicas or the disk */
    char         *why;        /* who did not acknowledge it; NULL: nobody knows */
    struct deadlock_of of;
    struct deadlock *watch;   /* NULL until it has waited for a while */
    int64_t       watch_at_ms;
    bool          stuck, over;
};

/* Begin to take m, which take_check() let pass, with a fresh token. When it has finished with HF_OK
 * the mutex is held. */
void take_begin(struct taking *t, struct call *call, hf_lock *m, int64_t wait_ms,
                hf_error *reterr);
bool take_step(struct taking *t); /* true: result */

/* For all ways to lock; weight 0: for oneself alone. HF_EINVAL, HF_ECANCELED ...; *ret_held: it was
 * a re-entry. */
hf_err take_check(hf_lock *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr);
/* The same from within a call, which has the handle already. */
hf_err take_admit(hf_lock *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr);
/* Who the caller is, for whoever looks for circles: its thread; 0: without blocking, nobody. */
static inline uint64_t take_thread(const struct call *call)
{
    return call->done ? 0 : thread_number();
}
/* Whose the lock will be. */
static inline void take_for(hf_lock *m, const struct call *call)
{
    m->lease.thread = m->opts.any_thread ? 0 : take_thread(call);
}

/* A fresh token for the handle, and an attempt with it. */
struct attempt take_token(hf_lock *m);
/* The grace that the lock shall carry if the server sees us. */
int64_t take_grace(const hf_lock *m);
/* The server said yes: it is held from now on, if the grant did not come too late. */
hf_err take_hold(hf_lock *m, const struct attempt *a, const struct lease_terms *terms,
                 hf_error *reterr);
/* Check, begin, and wait until it is finished. */
hf_err take(hf_lock *m, unsigned weight, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr);
/* What lock() of this handle takes. */
static inline unsigned lock_weight(const hf_lock *m)
{
    return m->opts.slots ? (m->opts.permits ? m->opts.permits : 1) : m->opts.shared ? 1 : 0;
}

/* ---- giving back -------------------------------------------------------------------------- */

struct giving_back {
    struct call *call;
    hf_lock    *m;
    int64_t     limit_ms;
    hf_err      result;
    hf_error   *reterr;
    step_at     at;
    hf_state    was;
    struct op   op;
};

/* Begin to give m back, whatever its depth. */
void give_back_begin(struct giving_back *g, struct call *call, hf_lock *m, hf_error *reterr);
bool give_back_step(struct giving_back *g); /* true: result */
/* Is there anything to be given back to the server? HF_OK and *ret_fully: yes. Else the result of
 * the unlock. */
hf_err give_back_check(hf_lock *m, bool *ret_fully, hf_error *reterr);
/* Several of one client at once, which are held; together they have until deadline_ms. What gets no
 * answer is tried again in the background. */
struct giving_back_all {
    struct call *call;
    hf_lock   **m;   /* their order changes */
    size_t       n, i, asked;
    int64_t      deadline_ms;
    hf_state     was;
    hf_err       first;    /* the first error */
    size_t       released; /* how many were */
    hf_error    *reterr;   /* of the first error; may be NULL */
    hf_error    *err;      /* of each */
    struct op   *op; /* of each that is asked for */
    step_at      at;
};
/* Its first call: all zero but for call, m, n, deadline_ms and reterr. */
bool give_back_all_step(struct giving_back_all *g);
/* Blocking, for handles of one client. The first error, or HF_OK; *ret_count (may be NULL) grows by
 * how many were released. */
hf_err give_back_all(hf_lock **m, size_t n, int64_t deadline_ms, size_t *ret_count,
                     hf_error *reterr);

/* ---- while it is held --------------------------------------------------------------------- */

struct asking {
    struct call    *call;
    hf_lock        *m;
    enum keep_mode  mode;   /* set, check or leave */
    int64_t         ttl_ms; /* 0: it changes no lease */
    int64_t         limit_ms;
    hf_err          result;
    hf_error       *reterr;
    step_at         at;
    enum keeper_turn turn;
    struct op       op;
    struct op_lease lease;
    enum verdict    verdict;
    char           *note; /* keeper_note() */
};

void ask_begin(struct asking *a, struct call *call, hf_lock *m, enum keep_mode mode,
               int64_t ttl_ms, hf_error *reterr);
bool ask_step(struct asking *a); /* true: result */

/* Begin a request about a lock that is held, when no renewal is under way: keeper_begin(). False:
 * not yet, and past limit_ms the renewal is ended. */
bool lock_turn(hf_lock *m, int64_t ttl_ms, struct task *t, int64_t limit_ms,
               enum keeper_turn *ret);
/* At the beginning of a call with a handle that no request without blocking may be using. */
static inline hf_err lock_enter(const hf_lock *m, hf_error *reterr)
{
    hf_err e = handle_enter(m, reterr);
    return e ? e : seat_check(&m->seat, reterr);
}

/* Until when a request about a lock that is held may take. */
static inline int64_t lock_deadline(const hf_lock *m)
{
    return client_deadline_in(m->c, m->opts.timeout_ms);
}

/* To leave it behind: it is asked to last so long, then not kept any more, then made known. */
struct detaching {
    struct asking          asking;
    int64_t                ttl_ms; /* 0: what is left of it */
    hf_state               was;
    struct record_writing *record;
    step_at                at;
};

struct downgrading {
    step_at          at;
    int64_t          limit_ms;
    enum keeper_turn turn;
    struct grant     alone; /* what stands in the lock while it is not shared */
    char            *note;  /* who broke it */
    struct op        op;
};

/* ---- one of them as a call ------------------------------------------------------------------ */

struct lock_call {
    struct call call;
    hf_lock    *m;
    union {
        struct taking      taking;
        struct giving_back giving_back;
        struct asking      asking;
        struct detaching   detaching;
        struct downgrading downgrading;
    };
};

/* Their steps, for blocking calls and others. */
bool take_call(struct task *t);
bool give_back_call(struct task *t);
bool ask_call(struct task *t);
bool detach_call(struct task *t);
bool downgrade_call(struct task *t);

hf_err detach_check(const hf_lock *m, int64_t ttl_ms, hf_error *reterr);
void detach_begin(struct lock_call *lc, int64_t ttl_ms);
/* *ret_known: there is nothing to ask the server, and this is the result. */
hf_err downgrade_check(const hf_lock *m, bool *ret_known, hf_error *reterr);
/* May this handle share its lock? */
hf_err share_check(const hf_lock *m, hf_error *reterr);

/* lock_end.c: a hold has begun, after a wait of so long; it is over, once, for whatever reason (why
 * may be ""); its state has changed, or a wait for it was ended. */
void lock_begun(hf_lock *m, int64_t waited_ms);
void lock_ended(hf_lock *m, const char *end, const char *why);
void lock_tell(hf_lock *m, hf_state state);
void lock_tell_deadlock(hf_lock *m, const hf_error *err);

/* semaphore.c: are slots and permits in order? */
hf_err semaphore_check(const hf_lock_opts *opts, hf_error *reterr);
hf_err lock_lost(const hf_lock *m, hf_error *reterr);     /* HF_ELOST, and why */
hf_err lock_cancelled(const hf_lock *m, hf_error *reterr); /* HF_ECANCELED */
hf_err lock_not_held(const hf_lock *m, hf_error *reterr); /* HF_ENOTHELD */
/* "name" for messages. */
const char *lock_shown(const hf_lock *m, char *buf, size_t size);
/* The present token: to be cancelled. */
struct op_cancel lock_cancel_of(const hf_lock *m);
/* Cancel it in the background; nothing of it may stay. */
void lock_give_up(hf_lock *m, int64_t ttl_ms);

#endif
