/* SPDX-License-Identifier: MIT
 * semaphore.c - so many at once.
 *
 *  SEM1  Never more permits are out than there are slots, judged by the server's clock, whatever
 *      the clocks of the clients say; after a resize below what is out, none is given until it
 *      fits.
 *  SEM2  Permits are given in the order in which they were asked for: who wants many is not starved
 *      by those who want few.
 *  SEM3  All agree on the number of slots: who names another one is told so.
 *  SEM4  A resize is for all, and tears no permit away.
 *  SEM5  A permit comes back at once when it is released, after the grace when its holder died,
 *      after the ttl whatever happened.
 *  SEM6  Each grant has its number, larger than all before; a lost reply never makes two grants.
 *  SEM7  Nothing stays on the server when all permits are back, but a changed limit for a week.
 *
 * Taking and giving back are the mutex's own calls: see share.lua and part/shared.lua.
 */
#include "base/err.h"
#include "base/mem.h"
#include "lock/handle.h"

#define SLOTS_MAX 1000000

static hf_err check_slots(unsigned slots, hf_error *reterr)
{
    if (slots >= 1 && slots <= SLOTS_MAX)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "a semaphore of %u slots: give 1 to %d", slots, SLOTS_MAX);
}

hf_err semaphore_check(const hf_lock_opts *opts, hf_error *reterr)
{
    if (!opts->slots && opts->permits)
        return err_set(reterr, HF_EINVAL, "permits without slots: say of how many they are");
    if (!opts->slots)
        return HF_OK;
    hf_err e = check_slots(opts->slots, reterr);
    if (!e && opts->shared)
        e = err_set(reterr, HF_EINVAL, "a semaphore is shared by itself: leave one of both out");
    if (!e && opts->permits > opts->slots)
        e = err_set(reterr, HF_EINVAL, "%u permits of a semaphore of %u slots", opts->permits,
                    opts->slots);
    return e;
}

/* ---- resizing ----------------------------------------------------------------------------- */

struct resize_call {
    struct call       call;
    struct lock_keys *keys;
    unsigned          slots;
    unsigned          old;
    unsigned         *ret_old; /* may be NULL */
    struct op         op;
};

static hf_err not_resized(const struct resize_call *k)
{
    char shown[120];
    hf_bytes name = k->keys->name;
    err_quote(shown, sizeof shown, name.data, name.len);
    if (k->op.got.resized.code == ANSWER_BUSY)
        return err_set(k->call.reterr, HF_EBUSY,
                       "%s is held by one owner or by readers: it is not a semaphore now", shown);
    return err_set(k->call.reterr, HF_ETYPE,
                   "%s cannot be resized: its key holds data of another type than a lock; nothing "
                   "was changed", shown);
}

static bool resize_step(struct task *t)
{
    struct resize_call *k = (struct resize_call *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    k->op = (struct op){ .id = OP_resize, .deadline_ms = client_deadline(call->c), .task = t,
                         .reterr = call->reterr,
                         .resize = { .keys = k->keys, .limit = k->slots } };
    exec_begin(call->c->exec, &k->op);
    STEP_UNTIL(call->at, exec_step(call->c->exec, &k->op));
    call->result = k->op.result;
    if (!call->result && k->op.got.resized.code != ANSWER_YES)
        call->result = not_resized(k);
    k->old = k->op.got.resized.old;
    op_clear(&k->op);
    STEP_END(call->at);
}

static void resize_over(struct call *call)
{
    struct resize_call *k = (struct resize_call *)call;
    if (!call->result && k->ret_old)
        *k->ret_old = k->old;
    keys_free(k->keys);
}

static hf_err check_resize(const hf_client *c, unsigned slots, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a semaphore", reterr);
    return e ? e : check_slots(slots, reterr);
}

hf_err hf_semaphore_resize(hf_client *c, hf_bytes name, unsigned slots, unsigned *ret_old,
                           hf_error *reterr)
{
    CALL_GUARD;
    struct resize_call k = { .slots = slots, .ret_old = ret_old };
    hf_err e = check_resize(c, slots, reterr);
    if (!e)
        e = client_keys(c, name, &k.keys, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, resize_step, NULL, reterr);
    k.call.over = resize_over;
    return call_run(&k.call);
}

hf_err hf_semaphore_resize_async(hf_client *c, hf_bytes name, unsigned slots, unsigned *ret_old,
                                 hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct resize_call *k;
    hf_err e = check_resize(c, slots, reterr);
    if (!e)
        e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = client_keys(c, name, &k->keys, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->slots = slots;
    k->ret_old = ret_old;
    k->call.over = resize_over;
    return call_submit(&k->call, resize_step, reterr);
}
