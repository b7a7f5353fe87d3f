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

static hf_err check_sharable(const hf_lock *m, hf_error *reterr)
{
    hf_err e = client_enter(CLIENT_OF(m), reterr);
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
    hf_err e = check_sharable(m, reterr);
    return e ? e : take(m, 1, wait_ms, ret_fence, reterr);
}

struct downgrading {
    struct task      task;
    hf_lock         *m;
    hf_err           result;
    hf_error        *reterr;
    step_at          at;
    int64_t          limit_ms;
    enum keeper_turn turn;
    struct grant     alone; /* what stands in the lock while it is not shared */
    struct op        op;
};

static void ask(struct downgrading *d)
{
    hf_lock *m = d->m;
    d->alone = m->lease.grant;
    d->alone.shared = false;
    d->op = (struct op){ .id = OP_downgrade, .downgrade = { &d->alone, m->lease.ttl_ms },
                         .deadline_ms = d->limit_ms, .task = &d->task,
                         .reterr = d->reterr };
    exec_begin(m->c->exec, &d->op);
}

static hf_err asked(struct downgrading *d)
{
    hf_lock *m = d->m;
    struct keeper *k = m->c->keeper;
    bool in_doubt = d->op.in_doubt > 0, done = d->op.got.held;
    hf_err e = d->op.result;
    op_clear(&d->op);
    if (e) {
        /* Perhaps done: every later request for a shared lease finds it, whichever it is. */
        m->lease.grant.shared = m->lease.grant.shared || in_doubt;
        keeper_unsure(k, &m->lease, 0, in_doubt);
        return e;
    }
    if (!done) {
        keeper_denied(k, &m->lease, HF_LOSS_TAKEN);
        return lock_lost(m, d->reterr);
    }
    m->lease.grant.shared = true;
    m->weight = 1;
    keeper_proved(k, &m->lease, d->op.sent_ms, 0, in_doubt);
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, d->reterr);
}

static bool step(struct task *t)
{
    struct downgrading *d = (struct downgrading *)((char *)t - offsetof(struct downgrading, task));
    hf_lock *m = d->m;
    STEP_BEGIN(d->at);
    STEP_UNTIL(d->at, lock_turn(m, 0, t, d->limit_ms, &d->turn));
    if (d->turn == TURN_LOST) {
        d->result = lock_lost(m, d->reterr);
        STEP_RETURN(d->at);
    }
    ask(d);
    STEP_UNTIL(d->at, exec_step(m->c->exec, &d->op));
    d->result = asked(d);
    STEP_END(d->at);
}

hf_err hf_lock_downgrade(hf_lock *m, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(CLIENT_OF(m), reterr);
    if (!e)
        e = check_sharable(m, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return lock_not_held(m, reterr);
    if (m->weight > 0) /* shared already */
        return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lock_lost(m, reterr);
    struct downgrading d = { .task = { .step = step, .park = &m->turn }, .m = m,
                             .limit_ms = lock_deadline(m), .reterr = reterr };
    task_run(&d.task);
    return d.result;
}
