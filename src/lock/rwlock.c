/* SPDX-License-Identifier: MIT
 * rwlock.c - many readers, or one writer.
 *
 *  R1  While one holds the lock alone nobody else holds it; while readers do, nobody has it alone,
 *      clients of other libraries included: the lock's own key is taken as well.
 *  R2  Readers hold it together.
 *  R3  First come, first served: a waiting writer stops later readers, so no stream of readers
 *      starves it; readers who wait behind it go in together before the writer after them.
 *  R4  A downgrade lets nobody in between; an upgrade is refused, at once.
 *  R5  A reader that died is gone after its grace, one whose lease ended after that; the others
 *      keep what they hold.
 *  R6  Each grant has its number, larger than all before; a lost reply never makes two grants.
 *  R7  Nothing stays on the server when the last one has left.
 *
 * A writer is a mutex: whoever locks the name alone. Readers are in part/shared.lua.
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "lock/handle.h"

hf_err share_check(const hf_lock *m, hf_error *reterr)
{
    hf_err e = handle_enter(m, reterr);
    if (!e)
        e = client_can(m->c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a shared lock", reterr);
    if (e)
        return e;
    if (m->opts.slots)
        return err_set(reterr, HF_EINVAL,
                       "this handle is a semaphore's: lock it with hf_lock_acquire()");
    if (m->owner)
        return err_set(reterr, HF_EINVAL,
                       "a lock with a caller-chosen owner id is held alone: "
                       "open a handle without it");
    return HF_OK;
}

hf_err hf_lock_acquire_shared(hf_lock *m, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = share_check(m, reterr);
    return e ? e : take(m, 1, wait_ms, ret_fence, reterr);
}

static void request_downgrade(struct lock_call *lc)
{
    struct downgrading *d = &lc->downgrading;
    hf_lock *m = lc->m;
    d->alone = m->lease.grant;
    d->alone.shared = false;
    d->op = (struct op){ .id = OP_downgrade,
                         .downgrade = { &d->alone, m->lease.ttl_ms, &d->note },
                         .deadline_ms = lc->downgrading.limit_ms, .task = &lc->call.task,
                         .reterr = lc->call.reterr };
    exec_begin(m->c->exec, &d->op);
}

static hf_err asked(struct lock_call *lc)
{
    struct op *op = &lc->downgrading.op;
    hf_lock *m = lc->m;
    struct keeper *k = m->c->keeper;
    bool in_doubt = op->in_doubt > 0, done = op->got.held, broken = lc->downgrading.note;
    hf_err e = op->result;
    op_clear(op);
    keeper_note(k, &m->lease, lc->downgrading.note, !e && broken);
    lc->downgrading.note = NULL;
    if (e) {
        /* Perhaps done: every later request for a shared lease finds it, whichever it is. */
        m->lease.grant.shared = m->lease.grant.shared || in_doubt;
        keeper_unsure(k, &m->lease, 0, in_doubt);
        return e;
    }
    if (!done) {
        keeper_denied(k, &m->lease, broken ? HF_LOSS_BROKEN : HF_LOSS_TAKEN);
        return lock_lost(m, lc->call.reterr);
    }
    m->lease.grant.shared = true;
    m->weight = 1;
    keeper_proved(k, &m->lease, op->sent_ms, 0, in_doubt);
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, lc->call.reterr);
}

bool downgrade_call(struct task *t)
{
    struct lock_call *lc = (struct lock_call *)t;
    struct downgrading *d = &lc->downgrading;
    hf_lock *m = lc->m;
    STEP_BEGIN(d->at);
    STEP_UNTIL(d->at, lock_turn(m, 0, t, d->limit_ms, &d->turn));
    if (d->turn == TURN_LOST) {
        lc->call.result = lock_lost(m, lc->call.reterr);
        STEP_RETURN(d->at);
    }
    request_downgrade(lc);
    STEP_UNTIL(d->at, exec_step(m->c->exec, &d->op));
    lc->call.result = asked(lc);
    STEP_END(d->at);
}

hf_err downgrade_check(const hf_lock *m, bool *ret_known, hf_error *reterr)
{
    *ret_known = false;
    if (m->depth > 0 && m->weight == 0)
        return HF_OK;
    *ret_known = true;
    if (m->depth == 0)
        return lock_not_held(m, reterr);
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, reterr);
}

hf_err hf_lock_downgrade(hf_lock *m, hf_error *reterr)
{
    CALL_GUARD;
    bool known;
    hf_err e = lock_enter(m, reterr);
    if (!e)
        e = share_check(m, reterr);
    if (e)
        return e;
    e = downgrade_check(m, &known, reterr);
    if (known)
        return e;
    struct lock_call lc;
    lc.call = call_blocking(m->c, downgrade_call, &m->seat, reterr);
    lc.m = m;
    lc.downgrading = (struct downgrading){ .limit_ms = lock_deadline(m) };
    return call_run(&lc.call);
}
