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
#include "session/client.h"

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

/* value is written to key; NULL: only the check. what: the name for messages. */
static hf_err guard(hf_client *c, hf_bytes guard_key, hf_bytes key, const hf_bytes *value,
                    hf_bytes what, uint64_t fence, hf_error *reterr)
{
    char number[24];
    snprintf(number, sizeof number, "%llu", (unsigned long long)fence);
    AUTO(op_clear) struct op op = {
        .id = OP_guard, .deadline_ms = client_deadline(c),
        .guard = { .guard = guard_key, .fence = number, .key = key, .value = value },
    };
    hf_err e = exec_run(c->exec, &op, reterr);
    if (e || op.got.guarded.code == ANSWER_YES)
        return e;
    return refuse(&op.got.guarded, what, fence, reterr);
}

static hf_err check(const hf_client *c, hf_bytes what, uint64_t fence, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && (what.len == 0 || what.len > RESOURCE_MAX || !what.data))
        e = err_set(reterr, HF_EINVAL, "a resource's name has 1 to %d bytes", RESOURCE_MAX);
    if (!e && fence == 0)
        e = err_set(reterr, HF_EINVAL, "0 is no fencing number: the lock was not held");
    return e;
}

hf_err hf_guard_check(hf_client *c, hf_bytes resource, uint64_t fence, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check(c, resource, fence, reterr);
    if (e)
        return e;
    AUTO(mem_freep) char *base = keys_reserved(c->prefix, "guard:");
    AUTO(mem_freep) char *key = base ? mem_alloc(strlen(base) + resource.len) : NULL;
    if (!key)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    size_t n = strlen(base);
    memcpy(key, base, n);
    memcpy(key + n, resource.data, resource.len);
    return guard(c, (hf_bytes){ key, n + resource.len }, (hf_bytes){ 0 }, NULL, resource, fence,
                 reterr);
}

hf_err hf_guard_set(hf_client *c, hf_bytes key, hf_bytes value, uint64_t fence, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check(c, key, fence, reterr);
    if (!e && value.len && !value.data)
        e = err_set(reterr, HF_EINVAL, "no value was given, but a length");
    if (e)
        return e;
    size_t len;
    AUTO(mem_freep) char *guard_key = keys_companion(key, ":guard", &len);
    if (!guard_key)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return guard(c, (hf_bytes){ guard_key, len }, key, &value, key, fence, reterr);
}
