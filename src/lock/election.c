/* SPDX-License-Identifier: MIT
 * election.c - one leader at a time, known to everybody, with a value of its own.
 *
 *  EL1  At any time at most one candidate leads; it learns that it leads no more before another
 *      does. (P1, P5: an election is a mutex)
 *  EL2  Terms rise: each leader's is larger than those of all earlier ones. (P4)
 *  EL3  Who has campaigned with success has its value known: whoever asks from then on sees it.
 *  EL4  A value is never seen without its leader, nor another term's under this one.
 *  EL5  An observer learns of every change that lasts: at once of one that somebody made, at the
 *      end of its lease of a leader that is gone and has no successor.
 *  EL6  A lost reply makes neither two leaders nor a value that nobody wrote.
 *  EL7  Nothing of a leader that is gone stays for longer than its ttl; of one that resigned,
 *      nothing.
 *
 * The lock is an hf_lock. The value stands beside it, as
 * "term:n:value", n counting the values of the term, written by a script that finds the lock still
 * this grant's and no later value there, and read together with the lock by one that ignores other
 * terms: so it needs no deleting to be right. Its TTL is what the lock has left, and every renewal
 * of the lock prolongs it too (keeper_follow()). models/election.pml.
 *
 * Who leads is asked in election_look.c. Tests: tests/live/election.c.
 */
#include "lock/election.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opts.h"
#include "lock/handle.h"

struct hf_election {
    hf_client           *c;
    hf_lock             *m;
    struct election_keys keys;
    /* The grant whose value may stand on the server; term 0: none. */
    uint64_t             term, values; /* how many it has written */
    char                 token[TOKEN_SIZE];
};

/* ---- keys --------------------------------------------------------------------------------- */

void election_keys_clear(struct election_keys *k)
{
    keys_free(k->lock);
    mem_free((void *)k->value.data);
    mem_free((void *)k->listeners.data);
    *k = (struct election_keys){ 0 };
}

hf_err election_keys_make(const hf_client *c, hf_bytes name, struct election_keys *ret,
                          hf_error *reterr)
{
    struct election_keys k = { 0 };
    hf_err e = client_keys(c, name, &k.lock, reterr);
    if (e)
        return e;
    k.value.data = keys_companion(k.lock->key[KEY_LOCK], ":v", &k.value.len);
    k.listeners.data = keys_companion(k.lock->key[KEY_LOCK], ":l", &k.listeners.len);
    if (!k.value.data || !k.listeners.data) {
        election_keys_clear(&k);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    *ret = k;
    return HF_OK;
}

const char *election_shown(const struct election_keys *k, char *buf, size_t size)
{
    return err_quote(buf, size, k->lock->name.data, k->lock->name.len);
}

/* ---- making and freeing ------------------------------------------------------------------- */

static hf_err check_opts(const hf_election_opts *opts, hf_lock_opts *ret, hf_error *reterr)
{
    hf_election_opts o;
    hf_err e = opts_copy(&o, sizeof o, opts, "hf_election_opts", reterr);
    if (e)
        return e;
    /* A whole lease: the value is to be written under it. */
    *ret = (hf_lock_opts){ .size = sizeof *ret, .ttl_ms = o.ttl_ms, .grace_ms = o.grace_ms,
                            .on_event = o.on_event, .event_arg = o.event_arg, .whole_lease = 1 };
    return HF_OK;
}

hf_err hf_election_open(hf_client *c, hf_bytes name, const hf_election_opts *opts,
                        hf_election **ret, hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_lock_opts mo;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "an election", reterr);
    if (!e)
        e = check_opts(opts, &mo, reterr);
    if (e)
        return e;
    hf_election *el = mem_zalloc(sizeof *el);
    if (!el)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    e = election_keys_make(c, name, &el->keys, reterr);
    if (!e)
        e = hf_lock_open(c, name, &mo, &el->m, reterr);
    if (e) {
        election_keys_clear(&el->keys);
        mem_free(el);
        return e;
    }
    client_use(c);
    el->c = c;
    *ret = el;
    return HF_OK;
}

static void resign_now(hf_election *el);

hf_election *hf_election_free(hf_election *el)
{
    CALL_GUARD;
    if (!el)
        return NULL;
    if (el->term && handle_enter(el, NULL) == HF_OK)
        resign_now(el);
    hf_lock_free(el->m); /* before the value's key goes, of which the keeper may know */
    client_leave(el->c);
    election_keys_clear(&el->keys);
    mem_free(el);
    return NULL;
}

/* ---- leading ------------------------------------------------------------------------------ */

/* One call of a candidate: all that lives between its steps. */
struct election_call {
    struct call  call;
    hf_election *el;
    hf_bytes     value;
    char        *copy;     /* its bytes, of a call without blocking */
    int64_t      wait_ms;
    uint64_t    *ret_term; /* may be NULL */

    hf_err       e, why;   /* of the present part; of the one before it */
    bool         done;     /* it still was our term */
    bool         held, took; /* took: the lock was asked for */
    enum keeper_turn turn;
    struct op    op;
    struct record_writing *record;
    step_at      proclaim_at, down_at, value_at, office_at;
    union {
        struct taking      taking;
        struct giving_back giving_back;
        struct asking      asking;
    };
};

static void ask_proclaim(struct election_call *k, const hf_bytes *value, hf_error *reterr)
{
    hf_election *el = k->el;
    k->op = (struct op){
        .id = OP_proclaim, .deadline_ms = client_deadline(el->c), .task = &k->call.task,
        .reterr = reterr,
        .proclaim = { .keys = el->keys.lock, .value_key = el->keys.value,
                      .listeners = el->keys.listeners, .token = el->token, .term = el->term,
                      .nth = value ? ++el->values : 0, .value = value },
    };
    exec_begin(el->c->exec, &k->op);
}

static hf_err proclaimed(struct election_call *k, hf_error *reterr)
{
    char name[120];
    enum answer code = k->op.got.done.code;
    hf_err e = k->op.result;
    op_clear(&k->op);
    if (e)
        return e;
    if (code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ETYPE,
                       "the key {...}:v of the election %s holds something that is not a leader's "
                       "value; it was not changed",
                       election_shown(&k->el->keys, name, sizeof name));
    k->done = code == ANSWER_YES;
    return HF_OK;
}

/* Write the value (NULL: take it away). */
static bool proclaim(struct election_call *k, const hf_bytes *value, hf_error *reterr)
{
    STEP_BEGIN(k->proclaim_at);
    k->done = false;
    ask_proclaim(k, value, reterr);
    STEP_UNTIL(k->proclaim_at, exec_step(k->el->c->exec, &k->op));
    k->e = proclaimed(k, reterr);
    STEP_END(k->proclaim_at);
}

static hf_err lost(const hf_election *el, hf_error *reterr)
{
    char name[120];
    hf_loss loss = hf_lock_loss(el->m);
    return err_set(reterr, HF_ELOST, "the election %s: this candidate leads no more: %s",
                   election_shown(&el->keys, name, sizeof name),
                   hf_loss_text(loss ? loss : HF_LOSS_TAKEN));
}

/* Give the lock back, then take the value away: a reader in between sees no leader, or the next,
 * whose term is another. */
static bool step_down(struct election_call *k, hf_error *reterr)
{
    hf_election *el = k->el;
    STEP_BEGIN(k->down_at);
    k->why = give_back_check(el->m, &k->held, reterr);
    if (!k->why && k->held) {
        give_back_begin(&k->giving_back, &k->call, el->m, reterr);
        STEP_UNTIL(k->down_at, give_back_step(&k->giving_back));
        k->why = k->giving_back.result;
    }
    STEP_UNTIL(k->down_at, proclaim(k, NULL, NULL)); /* else it ends with its ttl */
    el->term = 0;
    k->e = k->why;
    STEP_END(k->down_at);
}

static bool set_value(struct election_call *k)
{
    hf_election *el = k->el;
    hf_error *reterr = k->call.reterr;
    STEP_BEGIN(k->value_at);
    STEP_UNTIL(k->value_at, proclaim(k, &k->value, reterr));
    if (k->e)
        STEP_RETURN(k->value_at);
    if (!k->done) { /* the handle shall know it as well */
        ask_begin(&k->asking, &k->call, el->m, KEEP_CHECK, 0, NULL);
        STEP_UNTIL(k->value_at, ask_step(&k->asking));
        if (k->asking.result == HF_OK) {
            k->e = err_set(reterr, HF_EPROTO,
                           "the server says both that this candidate leads and not");
            STEP_RETURN(k->value_at);
        }
    }
    k->e = k->done && hf_lock_is_held(el->m) ? HF_OK : lost(el, reterr);
    STEP_END(k->value_at);
}

static void begin_term(hf_election *el)
{
    el->term = el->m->lease.grant.fence;
    el->values = 0;
    snprintf(el->token, sizeof el->token, "%s", hf_lock_owner(el->m));
}

static void record_written(struct election_call *k)
{
    if (!k->record || k->record->op.result)
        log_to(&k->el->c->log, HF_LOG_INFO, "session record not written: %s",
               hf_err_text(k->record ? k->record->op.result : HF_ENOMEM));
    record_writing_free(k->record);
    k->record = NULL;
}

/* The lock is ours: let it be known. */
static bool take_office(struct election_call *k)
{
    hf_election *el = k->el;
    struct call *call = &k->call;
    STEP_BEGIN(k->office_at);
    begin_term(el);
    STEP_UNTIL(k->office_at, (k->turn = keeper_follow(el->c->keeper, el->token, el->keys.value,
                                                      &call->task, &k->record)) != TURN_WAIT);
    k->e = HF_OK;
    if (k->turn == TURN_HELD) {
        STEP_UNTIL(k->office_at, !k->record || exec_step(el->c->exec, &k->record->op));
        record_written(k);
        STEP_UNTIL(k->office_at, set_value(k));
    } else {
        k->e = lost(el, call->reterr);
    }
    call->result = k->e;
    if (call->result) {
        STEP_UNTIL(k->office_at, step_down(k, NULL));
        (void)err_known(call->reterr, call->result, HF_KNOWN_NOT_HELD);
    }
    STEP_END(k->office_at);
}

static bool campaign_step(struct task *t)
{
    struct election_call *k = (struct election_call *)t;
    hf_election *el = k->el;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    if (el->term && hf_lock_is_held(el->m)) {
        STEP_UNTIL(call->at, set_value(k));
        call->result = k->e;
        STEP_RETURN(call->at);
    }
    if (el->term)
        STEP_UNTIL(call->at, step_down(k, NULL)); /* lost before */
    call->result = take_admit(el->m, lock_weight(el->m), k->wait_ms, &k->held, call->reterr);
    if (call->result)
        STEP_RETURN(call->at);
    k->took = true;
    take_begin(&k->taking, call, el->m, k->wait_ms, call->reterr);
    STEP_UNTIL(call->at, take_step(&k->taking));
    call->result = k->taking.result;
    if (!call->result)
        STEP_UNTIL(call->at, take_office(k));
    STEP_END(call->at);
}

static bool set_value_step(struct task *t)
{
    struct election_call *k = (struct election_call *)t;
    if (!set_value(k))
        return false;
    k->call.result = k->e;
    return true;
}

static bool resign_step(struct task *t)
{
    struct election_call *k = (struct election_call *)t;
    if (!step_down(k, k->call.reterr))
        return false;
    k->call.result = k->e;
    return true;
}

/* ---- the calls ---------------------------------------------------------------------------- */

static void over(struct call *call)
{
    struct election_call *k = (struct election_call *)call;
    if (call->done)
        seat_leave(&k->el->m->seat, call->c);
    mem_free(k->copy);
    if (!call->result && k->ret_term)
        *k->ret_term = k->el->term;
}

static struct election_call blocking(hf_election *el, bool (*step)(struct task *t),
                                     hf_error *reterr)
{
    struct election_call k = { .call = call_blocking(el->c, step, &el->m->seat, reterr),
                               .el = el };
    k.call.over = over;
    return k;
}

/* With a copy of the value, which may be NULL. */
static hf_err new_call(hf_election *el, const hf_bytes *value, hf_done_fn done, void *arg,
                       struct election_call **ret, hf_error *reterr)
{
    struct election_call *k;
    hf_err e = call_new(sizeof *k, el->c, done, arg, &k, reterr);
    if (e)
        return e;
    k->el = el;
    k->call.over = over;
    if (value && !(k->copy = mem_copy(value->len ? value->data : "", value->len))) {
        call_drop(&k->call);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (value)
        k->value = (hf_bytes){ k->copy, value->len };
    *ret = k;
    return HF_OK;
}

static hf_err submit(struct election_call *k, bool (*step)(struct task *t), bool waits,
                     hf_error *reterr)
{
    seat_take(&k->el->m->seat, &k->call, waits);
    return call_submit(&k->call, step, reterr);
}

static hf_err check_value(hf_bytes value, hf_error *reterr)
{
    if (value.len > HF_LEADER_VALUE_MAX || (value.len && !value.data))
        return err_set(reterr, HF_EINVAL, "a value of %zu bytes: at most %d are allowed", value.len,
                       HF_LEADER_VALUE_MAX);
    return HF_OK;
}

static hf_err check_call(const hf_election *el, hf_error *reterr)
{
    hf_err e = handle_enter(el, reterr);
    return e ? e : seat_check(&el->m->seat, reterr);
}

hf_err hf_election_campaign(hf_election *el, hf_bytes value, int64_t wait_ms, uint64_t *ret_term,
                            hf_error *reterr)
{
    CALL_GUARD;
    struct election_call k;
    hf_err e = check_call(el, reterr);
    if (!e)
        e = check_value(value, reterr);
    if (e)
        return e;
    k = blocking(el, campaign_step, reterr);
    k.value = value;
    k.wait_ms = wait_ms;
    k.ret_term = ret_term;
    e = call_run(&k.call);
    if (k.took)
        atomic_store(&el->m->seat.cancelled, 0);
    return e;
}

hf_err hf_election_campaign_async(hf_election *el, hf_bytes value, int64_t wait_ms,
                                  uint64_t *ret_term, hf_done_fn done, void *arg,
                                  hf_error *reterr)
{
    CALL_GUARD;
    struct election_call *k;
    hf_err e = check_call(el, reterr);
    if (!e)
        e = check_value(value, reterr);
    if (!e && wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                    (long long)wait_ms);
    if (!e)
        e = new_call(el, &value, done, arg, &k, reterr);
    if (e)
        return e;
    k->wait_ms = wait_ms;
    k->ret_term = ret_term;
    return submit(k, campaign_step, true, reterr);
}

static hf_err not_leading(const hf_election *el, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTHELD, "the election %s: this candidate does not lead",
                   election_shown(&el->keys, name, sizeof name));
}

static hf_err check_set_value(const hf_election *el, hf_error *reterr)
{
    if (!el->term)
        return not_leading(el, reterr);
    return hf_lock_is_held(el->m) ? HF_OK : lost(el, reterr);
}

hf_err hf_election_set_value(hf_election *el, hf_bytes value, hf_error *reterr)
{
    CALL_GUARD;
    struct election_call k;
    hf_err e = check_call(el, reterr);
    if (!e)
        e = check_value(value, reterr);
    if (!e)
        e = check_set_value(el, reterr);
    if (e)
        return e;
    k = blocking(el, set_value_step, reterr);
    k.value = value;
    return call_run(&k.call);
}

hf_err hf_election_set_value_async(hf_election *el, hf_bytes value, hf_done_fn done, void *arg,
                                   hf_error *reterr)
{
    CALL_GUARD;
    struct election_call *k;
    hf_err e = check_call(el, reterr);
    if (!e)
        e = check_value(value, reterr);
    if (!e)
        e = new_call(el, &value, done, arg, &k, reterr);
    if (e)
        return e;
    e = check_set_value(el, k->call.reterr);
    if (!e)
        return submit(k, set_value_step, false, reterr);
    seat_take(&el->m->seat, &k->call, false);
    return call_submit_known(&k->call, e, reterr);
}

hf_err hf_election_resign(hf_election *el, hf_error *reterr)
{
    CALL_GUARD;
    struct election_call k;
    hf_err e = check_call(el, reterr);
    if (!e && !el->term)
        e = not_leading(el, reterr);
    if (e)
        return e;
    k = blocking(el, resign_step, reterr);
    return call_run(&k.call);
}

hf_err hf_election_resign_async(hf_election *el, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct election_call *k;
    hf_err e = check_call(el, reterr);
    if (!e)
        e = new_call(el, NULL, done, arg, &k, reterr);
    if (e)
        return e;
    if (el->term)
        return submit(k, resign_step, false, reterr);
    seat_take(&el->m->seat, &k->call, false);
    return call_submit_known(&k->call, not_leading(el, k->call.reterr), reterr);
}

/* Of a candidate that is freed. */
static void resign_now(hf_election *el)
{
    struct election_call k = blocking(el, resign_step, NULL);
    (void)call_run(&k.call);
}

int hf_election_is_leader(const hf_election *el)
{
    return el && hf_lock_is_held(el->m);
}

uint64_t hf_election_term(const hf_election *el)
{
    return el ? el->term : 0;
}

hf_lock *hf_election_lock(hf_election *el)
{
    return el ? el->m : NULL;
}
