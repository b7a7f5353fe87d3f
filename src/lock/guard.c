/* SPDX-License-Identifier: MIT
 * guard.c - the resource's side of fencing: older numbers are refused.
 *
 *  G1  What is accepted never goes back: after a number was accepted no smaller one is.
 *  G2  A refused write changes nothing.
 *  G3  The same number is accepted again: a holder may write as often as it likes.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"

#define RESOURCE_MAX 1024
#define NUMBER_MAX   20 /* digits */

static hf_err refuse(const struct op_guarded *got, hf_bytes what, uint64_t fence, hf_error *reterr)
{
    char shown[120];
    int digits = got->newest.len < NUMBER_MAX ? (int)got->newest.len : NUMBER_MAX;
    err_quote(shown, sizeof shown, what.data, what.len);
    if (got->code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ETYPE, "%s: its guard key holds something else", shown);
    return err_set(reterr, HF_ESTALE,
                   "%s: number %llu was refused, %.*s has been seen: the lock had passed to "
                   "somebody else; nothing was written", shown, (unsigned long long)fence,
                   digits, (const char *)got->newest.data);
}

/* One call: all that lives between its steps. */
struct guard_call {
    struct call call;
    char       *guard_key;
    hf_bytes    what;   /* the name for messages, and of a write the key */
    hf_bytes    value;
    bool        writes; /* else only the check */
    uint64_t    fence;
    char        number[24];
    char       *copy_what, *copy_value; /* of a call without blocking */
    struct op   op;
};

static bool step(struct task *t)
{
    struct guard_call *k = (struct guard_call *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    exec_begin(call->c->exec, &k->op);
    STEP_UNTIL(call->at, exec_step(call->c->exec, &k->op));
    call->result = k->op.result;
    if (!call->result && k->op.got.guarded.code != ANSWER_YES)
        call->result = refuse(&k->op.got.guarded, k->what, k->fence, call->reterr);
    op_clear(&k->op);
    STEP_END(call->at);
}

static void over(struct call *call)
{
    struct guard_call *k = (struct guard_call *)call;
    mem_free(k->guard_key);
    mem_free(k->copy_what);
    mem_free(k->copy_value);
}

static hf_err check(const hf_client *c, hf_bytes what, const hf_bytes *value, uint64_t fence,
                    hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && (what.len == 0 || what.len > RESOURCE_MAX || !what.data))
        e = err_set(reterr, HF_EINVAL, "a resource's name has 1 to %d bytes", RESOURCE_MAX);
    if (!e && value && value->len && !value->data)
        e = err_set(reterr, HF_EINVAL, "no value was given, but a length");
    if (!e && fence == 0)
        e = err_set(reterr, HF_EINVAL, "0 is not a fencing number: the lock was not held");
    return e;
}

/* Of a resource that is no key: to be freed. NULL: no memory. */
static char *resource_key(const hf_client *c, hf_bytes resource, size_t *ret_len)
{
    AUTO(mem_freep) char *base = keys_reserved(c->prefix, "guard:");
    char *key = base ? mem_alloc(strlen(base) + resource.len) : NULL;
    if (!key)
        return NULL;
    memcpy(key, base, strlen(base));
    memcpy(key + strlen(base), resource.data, resource.len);
    *ret_len = strlen(base) + resource.len;
    return key;
}

/* what, value and fence are there: the question. */
static hf_err prepare(struct guard_call *k)
{
    hf_client *c = k->call.c;
    size_t len;
    k->guard_key = k->writes ? keys_companion(k->what, ":guard", &len)
                             : resource_key(c, k->what, &len);
    if (!k->guard_key)
        return HF_ENOMEM;
    snprintf(k->number, sizeof k->number, "%llu", (unsigned long long)k->fence);
    k->op = (struct op){ .id = OP_guard, .deadline_ms = client_deadline(c),
                         .task = &k->call.task, .reterr = k->call.reterr,
                         .guard = { .guard = { k->guard_key, len }, .fence = k->number } };
    if (k->writes) {
        k->op.guard.key = k->what;
        k->op.guard.value = &k->value;
    }
    return HF_OK;
}

static hf_err guard(hf_client *c, hf_bytes what, const hf_bytes *value, uint64_t fence,
                    hf_error *reterr)
{
    hf_err e = check(c, what, value, fence, reterr);
    if (e)
        return e;
    struct guard_call k = { .call = call_blocking(c, step, NULL, reterr), .what = what,
                            .writes = value != NULL, .fence = fence };
    if (value)
        k.value = *value;
    k.call.over = over;
    if (prepare(&k))
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return call_run(&k.call);
}

/* What the caller gave, as our own. False: no memory. */
static bool copy(struct guard_call *k, hf_bytes what, const hf_bytes *value)
{
    k->copy_what = mem_copy(what.data, what.len);
    k->what = (hf_bytes){ k->copy_what, what.len };
    k->writes = value != NULL;
    if (value) {
        k->copy_value = mem_copy(value->len ? value->data : "", value->len);
        k->value = (hf_bytes){ k->copy_value, value->len };
    }
    return k->copy_what && (k->copy_value || !value);
}

static hf_err guard_async(hf_client *c, hf_bytes what, const hf_bytes *value, uint64_t fence,
                          hf_done_fn done, void *arg, hf_error *reterr)
{
    struct guard_call *k;
    hf_err e = check(c, what, value, fence, reterr);
    if (!e)
        e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    k->call.over = over;
    k->fence = fence;
    if (!copy(k, what, value) || prepare(k)) {
        over(&k->call);
        call_drop(&k->call);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    return call_submit(&k->call, step, reterr);
}

hf_err hf_guard_check(hf_client *c, hf_bytes resource, uint64_t fence, hf_error *reterr)
{
    CALL_GUARD;
    return guard(c, resource, NULL, fence, reterr);
}

hf_err hf_guard_check_async(hf_client *c, hf_bytes resource, uint64_t fence, hf_done_fn done,
                            void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return guard_async(c, resource, NULL, fence, done, arg, reterr);
}

hf_err hf_guard_set(hf_client *c, hf_bytes key, hf_bytes value, uint64_t fence, hf_error *reterr)
{
    CALL_GUARD;
    return guard(c, key, &value, fence, reterr);
}

hf_err hf_guard_set_async(hf_client *c, hf_bytes key, hf_bytes value, uint64_t fence,
                          hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return guard_async(c, key, &value, fence, done, arg, reterr);
}
