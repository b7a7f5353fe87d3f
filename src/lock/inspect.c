/* SPDX-License-Identifier: MIT
 * inspect.c - who holds what, for people and programs that look.
 *
 * What a looker gets never lets it release a lock: of a random owner id only the beginning is
 * shown.
 */
#include "lock/inspect.h"

#include "base/err.h"
#include "session/call.h"

static hf_err no_memory(hf_error *reterr)
{
    return err_set(reterr, HF_ENOMEM, "out of memory");
}

/* One call: all that lives between its steps. */
struct inspection {
    struct call       call;
    struct lock_keys *keys;
    hf_inspect_info **ret;
    struct sights     sights;
    int64_t           until_ms; /* CLOCK_NEVER: each request as long as the client allows */
    struct op         op;
    struct record_reading record;
    size_t            next; /* of the sessions that are to be asked about */
};

static hf_err describe(struct inspection *k)
{
    if (k->op.result)
        return k->op.result;
    bool presence = exec_can(k->call.c->exec, EXEC_PRESENCE);
    return sights_fill(&k->sights, k->call.c->prefix, k->keys->name, &k->op.got.inspected, presence)
               ? HF_OK
               : no_memory(k->call.reterr);
}

static int64_t deadline(const struct inspection *k)
{
    return k->until_ms == CLOCK_NEVER ? client_deadline(k->call.c) : k->until_ms;
}

/* ---- who they are ------------------------------------------------------------------------- */

/* The record of the next session. */
static hf_err ask_record(struct inspection *k)
{
    const struct sight *s = &k->sights.sight[k->next];
    hf_client *c = k->call.c;
    int64_t until = clock_earlier(deadline(k), clock_now_ms() + SIGHT_RECORD_MS);
    hf_err e = record_read_begin(&k->record, c->prefix, s->session, s->sequence, s->waits,
                                 k->op.got.inspected.server_ms, s->party, until, NULL);
    if (e)
        return no_memory(k->call.reterr);
    k->record.op.task = &k->call.task;
    exec_begin(c->exec, &k->record.op);
    return HF_OK;
}

/* What could not be learnt of a session is left unknown: the lock has been seen. */
static void take_record(struct inspection *k)
{
    const struct sight *s = &k->sights.sight[k->next++];
    (void)record_read_end(&k->record);
    sight_complete(s);
}

static bool inspect_step(struct task *t)
{
    struct inspection *k = (struct inspection *)t;
    struct call *call = &k->call;
    struct exec *x = call->c->exec;
    STEP_BEGIN(call->at);
    k->op = (struct op){ .id = OP_inspect, .deadline_ms = deadline(k), .task = t,
                         .reterr = call->reterr,
                         .inspect = { .keys = k->keys, .max = SIGHTS_MAX } };
    exec_begin(x, &k->op);
    STEP_UNTIL(call->at, exec_step(x, &k->op));
    call->result = describe(k);
    while (!call->result && k->next < k->sights.n) {
        call->result = ask_record(k);
        if (call->result)
            break;
        STEP_UNTIL(call->at, exec_step(x, &k->record.op));
        take_record(k);
    }
    op_clear(&k->op);
    STEP_END(call->at);
}

static void over(struct call *call)
{
    struct inspection *k = (struct inspection *)call;
    if (!call->result) {
        *k->ret = k->sights.info;
        k->sights.info = NULL;
    }
    sights_clear(&k->sights);
    keys_free(k->keys);
}

int64_t inspect_until(int64_t timeout_ms)
{
    return timeout_ms > 0 ? clock_add(clock_now_ms(), timeout_ms) : CLOCK_NEVER;
}

hf_err inspect_check(const hf_client *c, int64_t timeout_ms, bool complete, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && timeout_ms < 0)
        e = err_set(reterr, HF_EINVAL, "a negative time limit: give 0 for the client's own");
    if (!e && !complete)
        e = err_set(reterr, HF_EINVAL, "no place for the result was given");
    return e;
}

hf_err hf_inspect_lock(hf_client *c, hf_bytes name, int64_t timeout_ms, hf_inspect_info **ret,
                       hf_error *reterr)
{
    CALL_GUARD;
    struct inspection k = { .ret = ret, .until_ms = inspect_until(timeout_ms) };
    hf_err e = inspect_check(c, timeout_ms, ret, reterr);
    if (!e)
        e = client_keys(c, name, &k.keys, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, inspect_step, NULL, reterr);
    k.call.over = over;
    return call_run(&k.call);
}

hf_err hf_inspect_lock_async(hf_client *c, hf_bytes name, int64_t timeout_ms,
                             hf_inspect_info **ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct inspection *k;
    hf_err e = inspect_check(c, timeout_ms, ret, reterr);
    if (!e)
        e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = client_keys(c, name, &k->keys, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->ret = ret;
    k->until_ms = inspect_until(timeout_ms);
    k->call.over = over;
    return call_submit(&k->call, inspect_step, reterr);
}
