/* SPDX-License-Identifier: MIT
 * lock_async.c - the calls of a lock for programs with an event loop of their own.
 *
 * The same steps as those of the blocking calls, taken by the client's loop: the first time in
 * the caller's thread, then by hf_client_dispatch().
 */
#include "lock/handle.h"

#include "base/err.h"
#include "base/mem.h"

static void over(struct call *call)
{
    struct lock_call *lc = (struct lock_call *)call;
    seat_leave(&lc->m->seat, call->c);
}

static hf_err begin(hf_lock *m, hf_done_fn done, void *arg, struct lock_call **ret,
                    hf_error *reterr)
{
    struct lock_call *lc;
    hf_err e = lock_enter(m, reterr);
    if (!e)
        e = call_new(sizeof *lc, m->c, done, arg, &lc, reterr);
    if (e)
        return e;
    lc->m = m;
    *ret = lc;
    return HF_OK;
}

/* From the first step on the call is the loop's. */
static hf_err submit(struct lock_call *lc, bool (*step)(struct task *t), bool waits,
                     hf_error *reterr)
{
    seat_take(&lc->m->seat, &lc->call, waits);
    lc->call.over = over;
    return call_submit(&lc->call, step, reterr);
}

static hf_err submit_known(struct lock_call *lc, hf_err result, hf_error *reterr)
{
    seat_take(&lc->m->seat, &lc->call, false);
    lc->call.over = over;
    return call_submit_known(&lc->call, result, reterr);
}

static hf_err acquire(hf_lock *m, unsigned weight, int64_t wait_ms, hf_done_fn done, void *arg,
                      hf_error *reterr)
{
    struct lock_call *lc;
    bool held = false;
    hf_err e = begin(m, done, arg, &lc, reterr);
    if (e)
        return e;
    e = take_check(m, weight, wait_ms, &held, reterr);
    if (e) {
        call_drop(&lc->call);
        return e;
    }
    if (held) {
        e = submit_known(lc, HF_OK, reterr);
        if (e) /* else the handle may be another's by now */
            m->depth--;
        return e;
    }
    take_begin(&lc->taking, &lc->call, m, wait_ms, lc->call.reterr);
    return submit(lc, take_call, true, reterr);
}

hf_err hf_lock_acquire_async(hf_lock *m, int64_t wait_ms, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    CALL_GUARD;
    return acquire(m, m ? lock_weight(m) : 0, wait_ms, done, arg, reterr);
}

hf_err hf_lock_acquire_shared_async(hf_lock *m, int64_t wait_ms, hf_done_fn done, void *arg,
                                    hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = share_check(m, reterr);
    return e ? e : acquire(m, 1, wait_ms, done, arg, reterr);
}

hf_err hf_lock_release_async(hf_lock *m, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct lock_call *lc;
    bool fully;
    hf_err e = begin(m, done, arg, &lc, reterr);
    if (e)
        return e;
    unsigned depth = m->depth;
    e = give_back_check(m, &fully, lc->call.reterr);
    if (e || !fully) {
        e = submit_known(lc, e, reterr);
    } else {
        give_back_begin(&lc->giving_back, &lc->call, m, lc->call.reterr);
        e = submit(lc, give_back_call, false, reterr);
    }
    if (e)
        m->depth = depth;
    return e;
}

static hf_err submit_keep(hf_lock *m, enum keep_mode mode, int64_t ttl_ms, hf_done_fn done,
                          void *arg,
                          hf_error *reterr)
{
    struct lock_call *lc;
    hf_err e = begin(m, done, arg, &lc, reterr);
    if (e)
        return e;
    ask_begin(&lc->asking, &lc->call, m, mode, ttl_ms, lc->call.reterr);
    return submit(lc, ask_call, false, reterr);
}

hf_err hf_lock_extend_async(hf_lock *m, int64_t ttl_ms, hf_done_fn done, void *arg,
                            hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : submit_keep(m, KEEP_SET, ttl_ms, done, arg, reterr);
}

hf_err hf_lock_verify_async(hf_lock *m, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return submit_keep(m, KEEP_CHECK, 0, done, arg, reterr);
}

hf_err hf_lock_detach_async(hf_lock *m, int64_t ttl_ms, hf_done_fn done, void *arg,
                            hf_error *reterr)
{
    CALL_GUARD;
    struct lock_call *lc;
    hf_err e = detach_check(m, ttl_ms, reterr);
    if (!e)
        e = begin(m, done, arg, &lc, reterr);
    if (e)
        return e;
    detach_begin(lc, ttl_ms);
    return submit(lc, detach_call, false, reterr);
}

hf_err hf_lock_downgrade_async(hf_lock *m, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct lock_call *lc;
    bool known;
    hf_err e = handle_enter(m, reterr);
    if (!e)
        e = share_check(m, reterr);
    if (!e)
        e = begin(m, done, arg, &lc, reterr);
    if (e)
        return e;
    lc->downgrading.limit_ms = lock_deadline(m);
    e = downgrade_check(m, &known, lc->call.reterr);
    return known ? submit_known(lc, e, reterr) : submit(lc, downgrade_call, false, reterr);
}
