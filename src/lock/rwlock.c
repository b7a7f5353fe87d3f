/* SPDX-License-Identifier: MIT
 * rwlock.c - many readers, or one writer.
 *
 *  R1  While one holds the lock alone nobody else holds it; while readers do, nobody has it alone,
 *      clients of other libraries included: the lock's own key is taken as well.
 *  R2  Readers hold it together.
 *  R3  First come, first served: a waiting writer stops later readers, so no stream of readers
 *      starves it; readers who wait behind it go in together before the writer after them.
 *  R4  A downgrade lets nobody in between; an upgrade is refused, at once.
 *  R5  A reader that died is gone after its grace, one whose lease ended after that; the others keep
 *      what they hold.
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

static hf_err check_sharable(const hf_mutex *m, hf_error *reterr)
{
    hf_err e = client_can(m->c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a shared lock", reterr);
    if (e)
        return e;
    if (m->opts.slots)
        return err_set(reterr, HF_EINVAL, "this handle is a semaphore's: lock it with hf_mutex_lock()");
    if (m->owner)
        return err_set(reterr, HF_EINVAL,
                       "a lock with a caller-chosen owner id is held alone: open a handle without it");
    return HF_OK;
}

hf_err hf_mutex_lock_shared(hf_mutex *m, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check_sharable(m, reterr);
    return e ? e : take(m, 1, wait_ms, ret_fence, reterr);
}

/* Ask the server. *ret_done: it is shared now. */
static hf_err ask(hf_mutex *m, struct script_call *sc, bool *ret_done, hf_error *reterr)
{
    char ttl[24], text[LEASE_TEXT_SIZE];
    hf_bytes own;
    struct lease alone = { .fence = m->lease.fence, .grace_ms = m->lease.grace_ms };
    struct greeting *g = &m->keys->home->greeting;
    hf_bytes keys[] = { m->keys->key[KEY_LOCK], hf_str(g->counter), m->keys->key[KEY_QUEUE] };
    hf_bytes args[3] = { hf_str(m->lease.token) };
    snprintf(ttl, sizeof ttl, "%lld", (long long)m->lease.ttl_ms);
    snprintf(alone.token, sizeof alone.token, "%s", m->lease.token);
    lease_values(&alone, text, &args[1], &own);
    args[2] = hf_str(ttl);
    *sc = (struct script_call){ .id = SCRIPT_downgrade, .nkeys = 3, .keys = keys, .nargs = 3,
                                .args = args, .deadline_ms = client_deadline(m->c), .greeting = g };
    hf_err e = script_run(m->c->topo, sc, reterr);
    if (e)
        return e;
    *ret_done = sc->reply->type == REPLY_INT && sc->reply->num == 1;
    sc->reply = reply_free(sc->reply);
    return HF_OK;
}

hf_err hf_mutex_downgrade(hf_mutex *m, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(m->c, reterr);
    if (!e)
        e = check_sharable(m, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return mutex_not_held(m, reterr);
    struct keeper *k = m->c->keeper;
    if (!keeper_begin(k, &m->lease, 0))
        return mutex_lost(m, reterr);

    struct script_call sc = { 0 };
    bool done = m->weight > 0;
    if (!done)
        e = ask(m, &sc, &done, reterr);
    if (e) {
        /* Perhaps done: every later request for a shared lease finds it, whichever it is. */
        m->lease.shared = m->lease.shared || sc.in_doubt > 0;
        keeper_unsure(k, &m->lease, 0, sc.in_doubt > 0);
        return e;
    }
    if (!done) {
        keeper_denied(k, &m->lease, HF_LOSS_TAKEN);
        return mutex_lost(m, reterr);
    }
    m->lease.shared = true;
    m->weight = 1;
    keeper_proved(k, &m->lease, sc.sent_ms, 0, sc.in_doubt > 0);
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : mutex_lost(m, reterr);
}
