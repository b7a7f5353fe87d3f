/* SPDX-License-Identifier: MIT
 * inspect.c - who holds what, for people and programs that look.
 *
 * What a looker gets never lets it release a lock: of a random owner id only the beginning is
 * shown.
 */
#include "lock/inspect.h"

#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"
#include "session/scan.h"

#define RECORD_MS 2000 /* for who a session is: it may lie on another server, which is away */

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
    struct strangers *strangers; /* of the whole listing; NULL: it is about one lock */
    bool              once; /* an answer was waited for in vain before: not again */
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

/* Sessions whose records could not be read: in a cluster they may lie on a server that is away. Who
 * lists thousands of locks does not wait for it at each of them. */
struct strangers {
    size_t n;
    char   session[64][SIGHT_SESSION_DIGITS + 1];
    bool   any;
};

static bool is_stranger(const struct strangers *s, const char *session)
{
    for (size_t i = 0; s && i < s->n; i++)
        if (strcmp(s->session[i], session) == 0)
            return true;
    return false;
}

static void add_stranger(struct strangers *s, const char *session)
{
    if (!s)
        return;
    s->any = true;
    if (s->n < sizeof s->session / sizeof s->session[0])
        memcpy(s->session[s->n++], session, sizeof s->session[0]);
}

static bool next_known(struct inspection *k)
{
    while (k->next < k->sights.n
           && is_stranger(k->strangers, k->sights.sight[k->next].session))
        k->next++;
    return k->next < k->sights.n;
}

/* The record of the next session. */
static hf_err ask_record(struct inspection *k)
{
    const struct sight *s = &k->sights.sight[k->next];
    hf_client *c = k->call.c;
    int64_t patience = k->strangers && k->strangers->any ? RECORD_MS / 10 : RECORD_MS;
    int64_t until = clock_earlier(deadline(k), clock_now_ms() + patience);
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
    if (record_read_end(&k->record))
        add_stranger(k->strangers, s->session);
    sight_complete(s);
}

static bool inspect_step(struct task *t)
{
    struct inspection *k = (struct inspection *)t;
    struct call *call = &k->call;
    struct exec *x = call->c->exec;
    STEP_BEGIN(call->at);
    k->op = (struct op){ .id = OP_inspect, .deadline_ms = deadline(k), .task = t,
                         .reterr = call->reterr, .once = k->once,
                         .inspect = { .keys = k->keys, .max = SIGHTS_MAX } };
    exec_begin(x, &k->op);
    STEP_UNTIL(call->at, exec_step(x, &k->op));
    call->result = describe(k);
    while (!call->result && next_known(k)) {
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

static int64_t until_of(int64_t timeout_ms)
{
    return timeout_ms > 0 ? clock_add(clock_now_ms(), timeout_ms) : CLOCK_NEVER;
}

/* For every public call here. */
static hf_err check(hf_client *c, int64_t timeout_ms, bool complete, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && timeout_ms < 0)
        e = err_set(reterr, HF_EINVAL, "a negative time limit: give 0 for the client's own");
    if (!e && !complete)
        e = err_set(reterr, HF_EINVAL, "no place for the result was given");
    return e;
}

/* All locks under a pattern. */
struct listing {
    hf_client    *c;
    int64_t       until_ms;
    hf_inspect_fn each;
    void         *arg;
    bool          ended;
    struct strangers strangers;
    hf_error      failure; /* the first that left a lock unknown */
};

/* l NULL: only this one. */
static hf_err inspect(hf_client *c, hf_bytes name, int64_t until_ms, struct listing *l,
                      hf_inspect_info **ret, hf_error *reterr)
{
    struct inspection k = { .ret = ret, .until_ms = until_ms,
                            .strangers = l ? &l->strangers : NULL,
                            .once = l && l->failure.code };
    hf_err e = client_keys(c, name, &k.keys, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, inspect_step, NULL, reterr);
    k.call.over = over;
    return call_run(&k.call);
}

hf_err hf_inspect_lock(hf_client *c, hf_bytes name, int64_t timeout_ms, hf_inspect_info **ret,
                       hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = check(c, timeout_ms, ret, reterr);
    return e ? e : inspect(c, name, until_of(timeout_ms), NULL, ret, reterr);
}

hf_err hf_inspect_lock_async(hf_client *c, hf_bytes name, int64_t timeout_ms,
                             hf_inspect_info **ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct inspection *k;
    hf_err e = check(c, timeout_ms, ret, reterr);
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
    k->until_ms = until_of(timeout_ms);
    k->call.over = over;
    return call_submit(&k->call, inspect_step, reterr);
}

/* Its name is known, and no more. A cluster that is down shows the names of its keys and nothing
 * else. */
static hf_err list_name(struct listing *l, hf_bytes name, hf_error *reterr)
{
    AUTO(sights_clear) struct sights s = { 0 };
    if (!sights_name(&s, name))
        return no_memory(reterr);
    l->ended = l->each(s.info, l->arg) != 0;
    return HF_OK;
}

static hf_err list_one(hf_bytes name, void *arg, hf_error *reterr)
{
    struct listing *l = arg;
    hf_inspect_info *info;
    hf_error err;
    if (l->ended)
        return HF_OK;
    hf_err e = inspect(l->c, name, l->until_ms, l, &info, &err);
    if ((e == HF_ECONN || e == HF_EUNSURE) && !l->c->keyspace /* a cluster */) {
        if (!l->failure.code)
            l->failure = err;
        return list_name(l, name, reterr);
    }
    if (e) {
        if (reterr)
            *reterr = err;
        return e;
    }
    /* It may have ended since the scan: then it is not there to be listed. */
    if (info->holders || strcmp(info->kind, SIGHT_FREE) != 0)
        l->ended = l->each(info, l->arg) != 0;
    hf_inspect_free(info);
    return HF_OK;
}

hf_err hf_inspect_list(hf_client *c, const char *pattern, int64_t timeout_ms, hf_inspect_fn each,
                       void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct listing l = { .c = c, .until_ms = until_of(timeout_ms), .each = each, .arg = arg };
    hf_err e = check(c, timeout_ms, each, reterr);
    if (!e)
        e = scan_locks(c, pattern, l.until_ms, list_one, &l, reterr);
    if (!e && l.failure.code) {
        e = l.failure.code;
        if (reterr)
            *reterr = l.failure;
    }
    if (!e && l.strangers.any)
        e = err_set(reterr, HF_ECONN, "who holds some of these locks is not known: a server that "
                                      "would tell does not answer");
    return e;
}
