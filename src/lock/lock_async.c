/* SPDX-License-Identifier: MIT
 * lock_async.c - lock, unlock and extend for programs with an event loop of their own.
 *
 * The same tasks as those of the blocking calls, stepped by the client's loop: the first time in
 * the caller's thread, then by hf_client_dispatch().
 */
#include "lock/handle.h"

#include "base/err.h"
#include "base/mem.h"
#include "net/loop.h"

struct async_call {
    union {
        struct task        task; /* the first member of each of the others */
        struct taking      taking;
        struct giving_back giving_back;
        struct asking      asking;
    };
    hf_err   (*result)(const struct async_call *call);
    hf_lock   *m;
    hf_done_fn done;
    void      *arg;
    hf_error   err;
};

static hf_err taking_result(const struct async_call *call)
{
    return call->taking.result;
}
static hf_err giving_back_result(const struct async_call *call)
{
    return call->giving_back.result;
}
static hf_err asking_result(const struct async_call *call)
{
    return call->asking.result;
}

/* Thread: the dispatcher's. */
static void finished(struct task *t)
{
    struct async_call *call = (struct async_call *)t;
    hf_lock *m = call->m;
    hf_err result = call->result(call);
    mutex_lock(&m->c->session_mu); /* a cancel may be looking at it */
    if (m->async)
        atomic_store(&m->cancelled, 0);
    m->async = NULL;
    mutex_unlock(&m->c->session_mu);
    m->busy = false;
    call->done(m, result, result ? &call->err : NULL, call->arg); /* may free m */
    mem_free(call);
}

static hf_err begin(hf_lock *m, hf_done_fn done, void *arg, struct async_call **ret,
                    hf_error *reterr)
{
    hf_err e = client_enter(CLIENT_OF(m), reterr);
    if (!e && !done)
        e = err_set(reterr, HF_EINVAL, "nothing to call when it is done was given");
    if (!e && m->busy)
        e = err_set(reterr, HF_EINVAL, "a request without blocking is under way on this handle");
    if (e)
        return e;
    struct async_call *call = mem_alloc(sizeof *call);
    if (!call)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    call->task = (struct task){ .finished = finished };
    call->m = m;
    call->done = done;
    call->arg = arg;
    call->err.message[0] = '\0';
    *ret = call;
    return HF_OK;
}

/* From the first step on the call is the loop's. */
static hf_err submit(struct async_call *call, hf_error *reterr)
{
    hf_lock *m = call->m;
    struct loop *lp;
    hf_err e = client_loop(m->c, &lp, reterr);
    if (!e) {
        m->busy = true;
        e = loop_add(lp, &call->task, reterr);
    }
    if (e) {
        m->busy = false;
        mutex_lock(&m->c->session_mu);
        m->async = NULL;
        mutex_unlock(&m->c->session_mu);
        mem_free(call);
    }
    return e;
}

/* Its result is known: say so as every other result is said. */
static bool known_step(struct task *t)
{
    (void)t;
    return true;
}

hf_err hf_lock_acquire_async(hf_lock *m, int64_t wait_ms, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    CALL_GUARD;
    struct async_call *call;
    bool held = false;
    hf_err e = begin(m, done, arg, &call, reterr);
    if (e)
        return e;
    e = take_check(m, lock_weight(m), wait_ms, &held, reterr);
    if (e) {
        mem_free(call);
        return e;
    }
    call->result = taking_result;
    if (held) {
        call->taking.result = HF_OK;
        call->task.step = known_step;
    } else {
        take_begin(&call->taking, m, wait_ms, &call->err);
        mutex_lock(&m->c->session_mu);
        m->async = &call->task;
        mutex_unlock(&m->c->session_mu);
    }
    e = submit(call, reterr);
    if (e && held)
        m->depth--;
    return e;
}

hf_err hf_lock_release_async(hf_lock *m, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct async_call *call;
    bool fully;
    hf_err e = begin(m, done, arg, &call, reterr);
    if (e)
        return e;
    unsigned depth = m->depth;
    e = give_back_check(m, &fully, &call->err);
    call->result = giving_back_result;
    if (e || !fully) {
        call->giving_back.result = e;
        call->task.step = known_step;
    } else {
        give_back_begin(&call->giving_back, m, &call->err);
    }
    e = submit(call, reterr);
    if (e)
        m->depth = depth;
    return e;
}

hf_err hf_lock_extend_async(hf_lock *m, int64_t ttl_ms, hf_done_fn done, void *arg,
                            hf_error *reterr)
{
    CALL_GUARD;
    struct async_call *call;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    if (!e)
        e = begin(m, done, arg, &call, reterr);
    if (e)
        return e;
    call->result = asking_result;
    ask_begin(&call->asking, m, KEEP_SET, ttl_ms, &call->err);
    return submit(call, reterr);
}

void lock_async_cancel(hf_lock *m)
{
    mutex_lock(&m->c->session_mu);
    if (m->async)
        task_wake(m->async);
    mutex_unlock(&m->c->session_mu);
}
