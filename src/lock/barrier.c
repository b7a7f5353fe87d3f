/* SPDX-License-Identifier: MIT
 * barrier.c - so many parties meet.
 *
 *  B1  A meeting is complete only when as many parties as agreed have arrived and each of them
 *      still was there; all of them are told, each with an index of its own.
 *  B2  An arrival counts once, however often its request had to be sent. (P8)
 *  B3  Who dies, falls silent, gives up or runs out of time breaks the meeting: the others get
 *      HF_EBROKEN, with who it was, within about the grace. A short break of a session's
 *      connection, or a restart of the server, breaks nothing.
 *  B4  After it was complete or broken the next arrival begins a new generation.
 *  B5  Nobody arrives where another number of parties was agreed on.
 *  B6  What else stands on the key is not touched (P10), and nothing stays. (P9)
 *  B7  Who leaves together: nobody is through before all want to leave, and nobody enters before.
 *
 * One meeting is in barrier_meet.c.
 */
#include "lock/barrier.h"

#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/opts.h"

#define GRACE_MIN_MS 200

static hf_err check_opts(const hf_client *c, uint32_t parties, const hf_barrier_opts *opts,
                         hf_barrier_opts *ret, hf_error *reterr)
{
    hf_err e = opts_copy(ret, sizeof *ret, opts, "hf_barrier_opts", reterr);
    if (e)
        return e;
    if (parties < 1 || parties > HF_PARTIES_MAX)
        return err_set(reterr, HF_EINVAL, "a barrier of %u parties: give 1 to %d", parties,
                       HF_PARTIES_MAX);
    if (ret->grace_ms < HF_NO_TAKEOVER || ret->grace_ms > HF_TTL_MAX_MS)
        return err_set(reterr, HF_EINVAL, "a grace of %lld ms is out of range",
                       (long long)ret->grace_ms);
    if (ret->grace_ms == HF_NO_TAKEOVER)
        ret->grace_ms = 0;
    else if (ret->grace_ms == 0)
        ret->grace_ms = client_default_grace(c);
    else if (ret->grace_ms < GRACE_MIN_MS)
        ret->grace_ms = GRACE_MIN_MS;
    return HF_OK;
}

/* The companions of a barrier's key. */
enum { LISTENERS, DONE, BROKEN, PARTIES, ABSENT, OUT, OUT_PARTIES, OUT_ABSENT };
_Static_assert(OUT_ABSENT + 1 == BESIDE, "barrier.h has room for them all");

/* The keys of both meetings. -1: no memory. */
static int make_keys(hf_barrier *b)
{
    static const char *const suffix[BESIDE] = {
        [LISTENERS] = ":l", [DONE] = ":d", [BROKEN] = ":b", /* of both */
        [PARTIES] = ":h", [ABSENT] = ":absent",
        [OUT] = ":o", [OUT_PARTIES] = ":oh", [OUT_ABSENT] = ":oa",
    };
    hf_bytes k[BESIDE];
    for (int i = 0; i < BESIDE; i++) {
        size_t len;
        b->beside[i] = keys_companion(b->keys->key[KEY_LOCK], suffix[i], &len);
        if (!b->beside[i])
            return -1;
        k[i] = (hf_bytes){ b->beside[i], len };
    }
    struct meeting_keys both = { .keys = b->keys, .listeners = k[LISTENERS], .done = k[DONE],
                                 .broken = k[BROKEN] };
    struct meeting_keys *enter = &b->at[ENTER], *leave = &b->at[LEAVE];
    *enter = *leave = both;
    enter->phase = "full:";
    enter->meeting = b->keys->key[KEY_LOCK];
    enter->parties = k[PARTIES];
    enter->absent = k[ABSENT];
    if (b->together) {
        enter->leaving = k[OUT];
        enter->leaving_parties = k[OUT_PARTIES];
    }
    leave->phase = "left:";
    leave->meeting = k[OUT];
    leave->parties = k[OUT_PARTIES];
    leave->absent = k[OUT_ABSENT];
    return 0;
}

static void free_keys(hf_barrier *b)
{
    for (int i = 0; i < BESIDE; i++)
        mem_free(b->beside[i]);
}

hf_err hf_barrier_open(hf_client *c, hf_bytes name, uint32_t parties, const hf_barrier_opts *opts,
                       hf_barrier **ret, hf_error *reterr)
{
    CALL_GUARD;
    hf_barrier_opts o;
    struct lock_keys *keys;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "a barrier", reterr);
    if (!e)
        e = check_opts(c, parties, opts, &o, reterr);
    if (!e)
        e = names_use(c->names, name, &keys, reterr);
    if (e)
        return e;

    hf_barrier *b = mem_zalloc(sizeof *b);
    if (b) {
        b->c = c;
        b->keys = keys;
        b->parties = parties;
        b->grace_ms = o.grace_ms;
        b->together = o.leave != 0;
        if (make_keys(b) == 0) {
            client_use(c);
            *ret = b;
            return HF_OK;
        }
        free_keys(b);
        mem_free(b);
    }
    names_leave(c->names, keys, 0);
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_barrier *hf_barrier_free(hf_barrier *b)
{
    CALL_GUARD;
    if (!b)
        return NULL;
    if ((b->inside || b->unheard.generation) && handle_enter(b, NULL) == HF_OK)
        barrier_desert(b);
    names_leave(b->c->names, b->keys, b->c->generation != forkguard_generation());
    client_leave(b->c);
    free_keys(b);
    mem_free(b);
    return NULL;
}

/* ---- the calls ------------------------------------------------------------------------------- */

struct barrier_call {
    struct call  call;
    struct party p;
    uint32_t    *ret_index;      /* may be NULL, as the next */
    uint64_t    *ret_generation;
};

static hf_err check_call(hf_barrier *b, hf_error *reterr)
{
    hf_err e = handle_enter(b, reterr);
    return e ? e : seat_check(&b->seat, reterr);
}

/* A cancel that came before it began concerns nobody else. */
static hf_err check_wait(hf_barrier *b, int64_t wait_ms, hf_error *reterr)
{
    hf_err e = check_call(b, reterr);
    if (!e)
        e = seat_begin_wait(&b->seat, wait_ms, reterr);
    if (!e && b->inside)
        e = err_set(reterr, HF_EINVAL, "this handle is inside: call hf_barrier_leave() first");
    return e;
}

static hf_err check_leave(hf_barrier *b, int64_t wait_ms, hf_error *reterr)
{
    char name[120];
    hf_err e = check_call(b, reterr);
    if (!e)
        e = seat_begin_wait(&b->seat, wait_ms, reterr);
    if (!e && b->together && !b->inside)
        e = err_set(reterr, HF_ENOTHELD, "this handle is not inside the barrier %s",
                    err_quote(name, sizeof name, b->keys->name.data, b->keys->name.len));
    return e;
}

static bool wait_step(struct task *t)
{
    struct barrier_call *k = (struct barrier_call *)t;
    if (!party_step(&k->p))
        return false;
    k->call.result = k->p.e;
    if (!k->p.e && k->p.b->together)
        k->p.b->inside = k->p.generation;
    return true;
}

static bool leave_step(struct task *t)
{
    struct barrier_call *k = (struct barrier_call *)t;
    if (!party_step(&k->p))
        return false;
    k->call.result = k->p.e;
    if (k->p.e != HF_EBUSY)
        k->p.b->inside = 0; /* through, or the leaving is broken */
    return true;
}

static void over(struct call *call)
{
    struct barrier_call *k = (struct barrier_call *)call;
    if (call->done)
        seat_leave(&k->p.b->seat, call->c);
    if (!call->result && k->ret_index)
        *k->ret_index = (uint32_t)k->p.index;
    if (!call->result && k->ret_generation)
        *k->ret_generation = k->p.generation;
}

static void begin(struct barrier_call *k, hf_barrier *b, int which, int64_t wait_ms)
{
    k->call.over = over;
    party_begin(&k->p, &k->call, b, &b->at[which], which == LEAVE && b->together, wait_ms);
}

static hf_err submit(struct barrier_call *k, bool (*step)(struct task *t), hf_error *reterr)
{
    seat_take(&k->p.b->seat, &k->call, true);
    return call_submit(&k->call, step, reterr);
}

hf_err hf_barrier_wait(hf_barrier *b, int64_t wait_ms, uint32_t *ret_index,
                       uint64_t *ret_generation, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check_wait(b, wait_ms, reterr);
    if (e)
        return e;
    struct barrier_call k = { .call = call_blocking(b->c, wait_step, &b->seat, reterr),
                              .ret_index = ret_index, .ret_generation = ret_generation };
    begin(&k, b, ENTER, wait_ms);
    e = call_run(&k.call);
    atomic_store(&b->seat.cancelled, 0);
    return e;
}

hf_err hf_barrier_wait_async(hf_barrier *b, int64_t wait_ms, uint32_t *ret_index,
                             uint64_t *ret_generation, hf_done_fn done, void *arg,
                             hf_error *reterr)
{
    CALL_GUARD;
    struct barrier_call *k;
    hf_err e = call_new(sizeof *k, b->c, done, arg, &k, reterr);
    if (e)
        return e;
    e = check_wait(b, wait_ms, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->ret_index = ret_index;
    k->ret_generation = ret_generation;
    begin(k, b, ENTER, wait_ms);
    return submit(k, wait_step, reterr);
}

hf_err hf_barrier_leave(hf_barrier *b, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check_leave(b, wait_ms, reterr);
    if (e)
        return e;
    struct barrier_call k = { .call = call_blocking(b->c, leave_step, &b->seat, reterr) };
    begin(&k, b, LEAVE, wait_ms);
    e = call_run(&k.call);
    atomic_store(&b->seat.cancelled, 0);
    return e;
}

hf_err hf_barrier_leave_async(hf_barrier *b, int64_t wait_ms, hf_done_fn done, void *arg,
                              hf_error *reterr)
{
    CALL_GUARD;
    struct barrier_call *k;
    hf_err e = call_new(sizeof *k, b->c, done, arg, &k, reterr);
    if (e)
        return e;
    e = check_leave(b, wait_ms, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    begin(k, b, LEAVE, wait_ms);
    return submit(k, leave_step, reterr);
}

void hf_barrier_cancel(hf_barrier *b)
{
    if (b)
        seat_cancel(&b->seat, b->c);
}
