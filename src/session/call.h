/* SPDX-License-Identifier: MIT
 * call.h - one public call as a task: run by the caller's own thread, or stepped by the client's
 * loop.
 *
 * The struct of each call has a struct call as its first member, and in it all that has to live
 * between two steps. The blocking form has it on its stack and runs it; the form without blocking
 * makes it by call_new() and gives it away by call_submit(). The steps are the same.
 *
 *     struct opening { struct call call; ... };
 *     struct opening o = { .call = call_blocking(c, step, &h->seat, reterr) };
 *     return call_run(&o.call);
 */
#ifndef SESSION_CALL_H
#define SESSION_CALL_H

#include <pthread.h>

#include "session/client.h"

struct waiter;

/* What a handle knows of the call that is made with it. */
struct seat {
    struct park  park;      /* where a blocking call sleeps */
    atomic_int   cancelled; /* the wait, or the next one */
    bool         busy;      /* a request without blocking is under way */
    struct task *task;      /* a wait that is not in park; under the client's session_mu */
};

struct call {
    struct task    task;    /* the first */
    hf_client     *c;
    hf_err         result;
    hf_error      *reterr;  /* may be NULL */
    step_at        at;
    const struct waiter *waiter; /* who waits for a turn just now: its thread may read the inbox */
    /* It has ended with result: give out what it found, free what it has. May be NULL. */
    void         (*over)(struct call *call);

    /* Without blocking. */
    hf_done_fn     done;
    void          *arg;
    hf_error      *err;     /* where reterr points; NULL: nothing is to be said */
};

/* ---- blocking ----------------------------------------------------------------------------- */

static inline struct call call_blocking(hf_client *c, bool (*step)(struct task *t), struct seat *s,
                                        hf_error *reterr)
{
    return (struct call){ .task = { .step = step, .park = s ? &s->park : NULL }, .c = c,
                          .reterr = reterr };
}

/* Step it until it has ended: its result. */
hf_err call_run(struct call *call);

/* ---- without blocking ---------------------------------------------------------------------- */

/* Room for a call, zeroed, with a struct call at its beginning. HF_EINVAL, HF_EFORK, HF_ENOMEM,
 * HF_ESYS: the caller is told at once, and done() is not called. */
hf_err call_new(size_t size, hf_client *c, hf_done_fn done, void *arg, void *ret,
                hf_error *reterr);
/* Nothing came of it. NULL is fine. */
void call_drop(struct call *call);
/* It will sleep for long, and what was said until now is of no interest: give back the room for
 * it. And before its next step: the room for messages; NULL: there is no memory, so its result will
 * have to do. Of a blocking call: the caller's. */
void call_sleeps(struct call *call);
hf_error *call_wakes(struct call *call);
/* Take its first step. From here on it is the loop's, which frees it. Not HF_OK: nothing was done,
 * over() was called, and it is gone. */
hf_err call_submit(struct call *call, bool (*step)(struct task *t), hf_error *reterr);
/* The same, where the result is known: it is told as every other. */
hf_err call_submit_known(struct call *call, hf_err result, hf_error *reterr);

/* ---- seats --------------------------------------------------------------------------------- */

/* HF_EINVAL while a request without blocking is under way. */
hf_err seat_check(const struct seat *s, hf_error *reterr);
/* A request without blocking begins with this handle. waits: cancelling it wakes the call. */
void seat_take(struct seat *s, struct call *call, bool waits);
/* It has ended; a cancel that came in time is used up. Also of a call that never took it. */
void seat_leave(struct seat *s, hf_client *c);
/* Whoever waits with this handle shall look whether it was cancelled. Any thread. */
void seat_wake(struct seat *s, hf_client *c);
static inline void seat_cancel(struct seat *s, hf_client *c)
{
    atomic_store(&s->cancelled, 1);
    seat_wake(s, c);
}
/* HF_ECANCELED: it had been cancelled before it began. */
hf_err seat_begin_wait(struct seat *s, int64_t wait_ms, hf_error *reterr);

/* ---- what may wait ------------------------------------------------------------------------- */

/* A thread for what cannot be done in steps; it lives as long as that. */
struct call_thread {
    void       (*work)(void *arg); /* Thread: its own */
    void        *arg;
    struct task *task; /* woken when it is done */
    struct park  park;
    pthread_t    thread;
};

/* HF_ESYS, HF_ENOMEM: no thread could be started. Else what work() uses is its own from here on,
 * perhaps before this returns. */
hf_err call_thread_start(struct call_thread *ct, const char *name, hf_error *reterr);
/* False: it is under way. True, once: its thread has gone. */
bool call_thread_done(struct call_thread *ct);

#endif
