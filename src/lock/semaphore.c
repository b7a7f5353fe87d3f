/* SPDX-License-Identifier: MIT
 * semaphore.c - so many at once.
 *
 *  S1  Never more permits are out than there are slots, judged by the server's clock, whatever the
 *      clocks of the clients say; after a resize below what is out, none is given until it fits.
 *  S2  Permits are given in the order in which they were asked for: who wants many is not starved
 *      by those who want few.
 *  S3  All agree on the number of slots: who names another one is told so.
 *  S4  A resize is for all, and tears no permit away.
 *  S5  A permit comes back at once when it is released, after the grace when its holder died,
 *      after the ttl whatever happened.
 *  S6  Each grant has its number, larger than all before; a lost reply never makes two grants.
 *  S7  Nothing stays on the server when all permits are back, but a changed limit for a week.
 *
 * Taking and giving back are the mutex's own calls: see share.lua and part/shared.lua.
 */
#include <stdio.h>

#include "base/err.h"
#include "base/forkguard.h"
#include "lock/handle.h"

#define SLOTS_MAX 1000000

static hf_err check_slots(unsigned slots, hf_error *reterr)
{
    if (slots >= 1 && slots <= SLOTS_MAX)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "a semaphore of %u slots: give 1 to %d", slots, SLOTS_MAX);
}

hf_err semaphore_check(const hf_mutex_opts *opts, hf_error *reterr)
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

hf_err hf_semaphore_resize(hf_client *c, hf_bytes name, unsigned slots, unsigned *ret_old,
                           hf_error *reterr)
{
    CALL_GUARD;
    char shown[120], text[16];
    struct lock_keys *keys;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT | CLIENT_TRANSACTION, "a semaphore", reterr);
    if (!e)
        e = check_slots(slots, reterr);
    if (!e)
        e = client_keys(c, name, &keys, reterr);
    if (e)
        return e;
    snprintf(text, sizeof text, "%u", slots);
    struct greeting *g = &keys->home->greeting;
    hf_bytes key[] = { keys->key[KEY_LOCK], hf_str(g->counter), keys->key[KEY_QUEUE] };
    hf_bytes arg = hf_str(text);
    struct script_call sc = { .id = SCRIPT_resize, .nkeys = 3, .keys = key, .nargs = 1,
                              .args = &arg, .deadline_ms = client_deadline(c), .greeting = g };
    e = script_run(c->topo, &sc, reterr);
    keys_free(keys);
    if (e)
        return e;
    const struct reply *rp = sc.reply;
    long long what = rp->type == REPLY_ARRAY && rp->len ? rp->item[0]->num : 0;
    err_quote(shown, sizeof shown, name.data, name.len);
    if (what == 1 && rp->len == 2) {
        if (ret_old)
            *ret_old = (unsigned)rp->item[1]->num;
    } else if (what == -1) {
        e = err_set(reterr, HF_EBUSY, "%s is held by one owner or by readers: it is no semaphore now",
                    shown);
    } else if (what == -3) {
        e = err_set(reterr, HF_ETYPE, "%s cannot be resized: its key holds data of another type than "
                    "a lock; nothing was changed", shown);
    } else {
        e = err_set(reterr, HF_EPROTO, "the answer to a resize makes no sense");
    }
    reply_free(sc.reply);
    return e;
}
