/* SPDX-License-Identifier: MIT
 * mutex_async.c - lock, unlock and extend for programs with an event loop of their own.
 */
#include "lock/handle.h"

#include "base/err.h"
#include "base/mem.h"
#include "session/worker.h"

struct request {
    struct job     job;
    hf_mutex      *m;
    struct worker *worker;
    hf_done_fn     done;
    void          *arg;
    int64_t        ttl_ms;
    struct taking  taking; /* of a lock */
};

static struct request *of_job(struct job *j)
{
    return (struct request *)((char *)j - offsetof(struct request, job));
}

static struct request *of_taking(struct taking *t)
{
    return (struct request *)((char *)t - offsetof(struct request, taking));
}

/* ---- Thread: worker -------------------------------------------------------------------------- */

static bool step_lock(struct job *j, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr)
{
    return take_step(&of_job(j)->taking, ret, ret_until_ms, reterr);
}

static bool step_unlock(struct job *j, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr)
{
    (void)ret_until_ms;
    *ret = hf_mutex_unlock(of_job(j)->m, reterr);
    return true;
}

static bool step_extend(struct job *j, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr)
{
    (void)ret_until_ms;
    *ret = hf_mutex_extend(of_job(j)->m, of_job(j)->ttl_ms, reterr);
    return true;
}

/* Thread: any. */
static void wake_job(struct taking *t)
{
    struct request *r = of_taking(t);
    worker_wake(r->worker, &r->job);
}

/* ---- Thread: the caller's -------------------------------------------------------------------- */

static void finished(struct job *j, hf_err result, const hf_error *err)
{
    struct request *r = of_job(j);
    hf_mutex *m = r->m;
    hf_done_fn done = r->done;
    void *arg = r->arg;

    pthread_mutex_lock(&m->c->session_mu); /* a cancel may be looking at it */
    if (m->async)
        atomic_store(&m->cancelled, 0);
    m->async = NULL;
    pthread_mutex_unlock(&m->c->session_mu);
    m->busy = false;
    mem_free(r);
    done(m, result, err, arg); /* may free m */
}

static hf_err begin(hf_mutex *m, hf_done_fn done, void *arg, struct request **ret, hf_error *reterr)
{
    struct worker *w;
    hf_err e = client_enter(m->c, reterr);
    if (!e && !done)
        e = err_set(reterr, HF_EINVAL, "nothing to call when it is done was given");
    if (!e && m->busy)
        e = err_set(reterr, HF_EINVAL, "a request without blocking is under way on this handle");
    if (!e)
        e = client_worker(m->c, &w, reterr);
    if (e)
        return e;
    struct request *r = mem_zalloc(sizeof *r);
    if (!r)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    r->m = m;
    r->worker = w;
    r->done = done;
    r->arg = arg;
    r->job.finished = finished;
    *ret = r;
    return HF_OK;
}

static hf_err submit(struct request *r, hf_error *reterr)
{
    r->m->busy = true;
    const void *server = topo_server(r->m->c->topo, r->m->keys->key[KEY_LOCK]);
    hf_err e = worker_add(r->worker, &r->job, server, reterr);
    if (e) {
        pthread_mutex_lock(&r->m->c->session_mu);
        r->m->async = NULL;
        pthread_mutex_unlock(&r->m->c->session_mu);
        r->m->busy = false;
        mem_free(r);
    }
    return e;
}

/* Already ours: say so as every other result is said. */
static bool step_held(struct job *j, hf_err *ret, int64_t *ret_until_ms, hf_error *reterr)
{
    (void)j;
    (void)ret_until_ms;
    (void)reterr;
    *ret = HF_OK;
    return true;
}

hf_err hf_mutex_lock_async(hf_mutex *m, int64_t wait_ms, hf_done_fn done, void *arg,
                           hf_error *reterr)
{
    CALL_GUARD;
    struct request *r;
    bool held = false;
    hf_err e = begin(m, done, arg, &r, reterr);
    if (e)
        return e;
    e = take_check(m, mutex_weight(m), wait_ms, &held, reterr);
    if (e) {
        mem_free(r);
        return e;
    }
    r->job.step = held ? step_held : step_lock;
    if (!held) {
        take_begin(&r->taking, m, wait_ms, wake_job);
        pthread_mutex_lock(&m->c->session_mu);
        m->async = &r->taking;
        pthread_mutex_unlock(&m->c->session_mu);
    }
    return submit(r, reterr);
}

hf_err hf_mutex_unlock_async(hf_mutex *m, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct request *r;
    hf_err e = begin(m, done, arg, &r, reterr);
    if (e)
        return e;
    r->job.step = step_unlock;
    return submit(r, reterr);
}

hf_err hf_mutex_extend_async(hf_mutex *m, int64_t ttl_ms, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    CALL_GUARD;
    struct request *r;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    if (!e)
        e = begin(m, done, arg, &r, reterr);
    if (e)
        return e;
    r->ttl_ms = ttl_ms;
    r->job.step = step_extend;
    return submit(r, reterr);
}

void mutex_async_cancel(hf_mutex *m)
{
    pthread_mutex_lock(&m->c->session_mu);
    if (m->async)
        wake_job(m->async);
    pthread_mutex_unlock(&m->c->session_mu);
}
