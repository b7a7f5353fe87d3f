/* SPDX-License-Identifier: MIT
 * answered.h - an asynchronous call that is waited for.
 */
#ifndef HARNESS_ANSWERED_H
#define HARNESS_ANSWERED_H

#include "harness/live.h"

struct answer {
    int    calls;
    hf_err result;
};

/* The done() of such a call; arg: its struct answer. */
static inline void note(hf_err result, const hf_error *e, void *arg)
{
    struct answer *a = arg;
    a->calls++;
    a->result = result;
    if (e)
        err = *e;
}

/* A request that was begun with e: what it was answered. */
static inline hf_err answered(hf_client *c, hf_err e, const struct answer *a, int64_t within_ms)
{
    for (int64_t until = t_now_ms() + within_ms; !e && !a->calls; t_sleep_ms(1)) {
        if (t_now_ms() > until)
            FAIL("no answer within %lld ms", (long long)within_ms);
        hf_client_dispatch(c);
    }
    CHECK_INT(a->calls, !e);
    return e ? e : a->result;
}

#endif
