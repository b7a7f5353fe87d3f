/* SPDX-License-Identifier: MIT
 * call.c - one public call as a task: run by the caller's own thread, or stepped by the client's
 * loop.
 */
#include "session/call.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "session/waiter.h"

/* ---- blocking ----------------------------------------------------------------------------- */

/* Who stands in line reads the inbox meanwhile, if nobody else has to. */
static void wait_between(struct call *call)
{
    const struct waiter *w = call->waiter;
    if (w && waiter_idle(w))
        client_wait(call->c, keyspace_of(w->a.take.keys), call->task.park, w->a.ticket,
                    call->task.due_ms);
    else
        task_wait(&call->task, call->task.due_ms);
}

hf_err call_run(struct call *call)
{
    for (;;) {
        call->task.due_ms = CLOCK_NEVER;
        if (call->task.step(&call->task))
            break;
        wait_between(call);
    }
    if (call->over)
        call->over(call);
    return call->result;
}

/* ---- without blocking ---------------------------------------------------------------------- */

/* Thread: the dispatcher's. */
static void finished(struct task *t)
{
    struct call *call = (struct call *)t;
    if (call->over)
        call->over(call);
    hf_err result = call->result;
    hf_error brief = { 0 }, *err = call->err ? call->err : &brief;
    if (result && !err->message[0])
        err_set(err, result, "%s", hf_err_text(result));
    call->done(result, result ? err : NULL, call->arg); /* may free the handle */
    call_drop(call);
}

hf_err call_new(size_t size, hf_client *c, hf_done_fn done, void *arg, void *ret,
                hf_error *reterr)
{
    struct loop *lp;
    hf_err e = client_enter(c, reterr);
    if (!e && !done)
        e = err_set(reterr, HF_EINVAL, "nothing to call when it is done was given");
    if (!e)
        e = client_loop(c, &lp, reterr);
    if (e)
        return e;
    struct call *call = mem_zalloc(size);
    if (!call)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    call->done = done;
    if (!call_wakes(call)) {
        call_drop(call);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    call->task.finished = finished;
    call->c = c;
    call->arg = arg;
    *(struct call **)ret = call;
    return HF_OK;
}

void call_drop(struct call *call)
{
    if (call)
        mem_free(call->err);
    mem_free(call);
}

void call_sleeps(struct call *call)
{
    if (!call->done)
        return;
    mem_free(call->err);
    call->reterr = call->err = NULL;
}

hf_error *call_wakes(struct call *call)
{
    if (call->done && !call->err)
        call->reterr = call->err = mem_zalloc(sizeof *call->err);
    return call->reterr;
}

hf_err call_submit(struct call *call, bool (*step)(struct task *t), hf_error *reterr)
{
    call->task.step = step;
    hf_err e = loop_add(call->c->loop, &call->task, reterr);
    if (e) {
        call->result = e;
        if (call->over)
            call->over(call);
        call_drop(call);
    }
    return e;
}

static bool known_step(struct task *t)
{
    (void)t;
    return true;
}

hf_err call_submit_known(struct call *call, hf_err result, hf_error *reterr)
{
    call->result = result;
    return call_submit(call, known_step, reterr);
}

/* ---- seats --------------------------------------------------------------------------------- */

hf_err seat_check(const struct seat *s, hf_error *reterr)
{
    if (!s->busy)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "a request without blocking is under way on this handle");
}

void seat_take(struct seat *s, struct call *call, bool waits)
{
    s->busy = call->done != NULL;
    if (!waits)
        return;
    mutex_lock(&call->c->session_mu);
    s->task = &call->task;
    mutex_unlock(&call->c->session_mu);
}

void seat_leave(struct seat *s, hf_client *c)
{
    mutex_lock(&c->session_mu); /* a cancel may be looking at it */
    if (s->task)
        atomic_store(&s->cancelled, 0);
    s->task = NULL;
    mutex_unlock(&c->session_mu);
    s->busy = false;
}

void seat_wake(struct seat *s, hf_client *c)
{
    if (client_enter(c, NULL))
        return; /* in a forked child what would be woken is its parent's */
    park_wake(&s->park);
    mutex_lock(&c->session_mu);
    if (s->task)
        task_wake(s->task);
    mutex_unlock(&c->session_mu);
}

hf_err seat_begin_wait(struct seat *s, int64_t wait_ms, hf_error *reterr)
{
    if (wait_ms < HF_WAIT_FOREVER)
        return err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                       (long long)wait_ms);
    if (atomic_exchange(&s->cancelled, 0))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
    return HF_OK;
}

/* ---- what may wait ------------------------------------------------------------------------- */

static void *thread_main(void *arg)
{
    struct call_thread *ct = arg;
    ct->work(ct->arg);
    task_finish(ct->task, &ct->park); /* it may be looked at from here on, and joined */
    return NULL;
}

hf_err call_thread_start(struct call_thread *ct, const char *name, hf_error *reterr)
{
    ct->park = (struct park){ 0 };
    int e = thread_start(&ct->thread, name, thread_main, ct);
    if (!e)
        return HF_OK;
    return err_set(reterr, e == ENOMEM ? HF_ENOMEM : HF_ESYS, "cannot start a thread: %s",
                   strerror(e));
}

bool call_thread_done(struct call_thread *ct)
{
    if (!park_finished(&ct->park))
        return false;
    thread_join(ct->thread);
    return true;
}
