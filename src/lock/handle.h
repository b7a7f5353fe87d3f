/* SPDX-License-Identifier: MIT
 * handle.h - the handle through which a lock is held, alone or with others: what the files of the
 * mutex, the read-write lock, the semaphore and the multi-lock share.
 */
#ifndef LOCK_HANDLE_H
#define LOCK_HANDLE_H

#include "session/attempt.h"
#include "session/waiter.h"

struct hf_mutex {
    struct lease      lease;
    hf_client        *c;
    struct lock_keys *keys;
    hf_mutex_opts     opts;
    char             *owner;      /* caller-chosen id, or NULL */
    unsigned          depth;      /* re-entries; 0: not locked */
    unsigned          weight;     /* of the present take: 0 alone, else so many parts of a shared lock */
    bool              in_doubt;   /* copies of the acquire may still be under way */
    bool              busy;       /* a request without blocking is under way */
    atomic_int        cancelled;
    struct park       turn;       /* where lock() waits */
    atomic_int        event_fd;   /* -1 until somebody asks for it */
    struct taking    *async;      /* a lock without blocking under way; under the session's mutex */
};

/* One hf_mutex_lock(), step by step. */
struct taking {
    struct waiter w;
    hf_mutex     *m;
    int64_t       wait_ms, deadline_ms;
    int64_t       reached_ms; /* when the server last answered */
    bool          answered;   /* it has, since we began */
    bool          troubled;   /* it could not be reached, or refused, when there was time */
    bool          begun;
    bool          unacked;    /* it was ours, but for the replicas or the disk */
    char          why[160];   /* who did not acknowledge it */
    void        (*wake)(struct taking *t); /* call take_step() soon; any thread */
};

/* Begin to take m with a fresh token. */
void take_begin(struct taking *t, hf_mutex *m, int64_t wait_ms, void (*wake)(struct taking *t));
/* True: finished with *ret, and on HF_OK the mutex is held. False: call again at *ret_until_ms, or
 * when woken. */
bool take_step(struct taking *t, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr);

/* For all ways to lock; weight 0: for oneself alone. HF_EINVAL, HF_ECANCELED ...; *ret_held: it was
 * a re-entry. */
hf_err take_check(hf_mutex *m, unsigned weight, int64_t wait_ms, bool *ret_held, hf_error *reterr);
/* A fresh token for the handle, and an attempt with it. */
struct attempt take_token(hf_mutex *m);
/* The grace that the lock shall carry if the server sees us. */
int64_t take_grace(const hf_mutex *m);
/* The server said yes: it is held from now on, if the grant did not come too late. */
hf_err take_hold(hf_mutex *m, const struct attempt *a, const struct lease_terms *terms,
                 hf_error *reterr);
/* Check, begin, and wait until it is finished. */
hf_err take(hf_mutex *m, unsigned weight, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr);
/* What lock() of this handle takes. */
static inline unsigned mutex_weight(const hf_mutex *m)
{
    return m->opts.slots ? (m->opts.permits ? m->opts.permits : 1) : m->opts.shared ? 1 : 0;
}

/* A cancelled request without blocking shall look at it now. */
void mutex_async_cancel(hf_mutex *m);

/* semaphore.c: are slots and permits in order? */
hf_err semaphore_check(const hf_mutex_opts *opts, hf_error *reterr);
hf_err mutex_lost(const hf_mutex *m, hf_error *reterr);     /* HF_ELOST, and why */
hf_err mutex_not_held(const hf_mutex *m, hf_error *reterr); /* HF_ENOTHELD */
/* "name" for messages. */
const char *mutex_shown(const hf_mutex *m, char *buf, size_t size);
/* Cancel the present token in the background; nothing of it may stay. */
void mutex_give_up(hf_mutex *m, int64_t ttl_ms);

#endif
