/* SPDX-License-Identifier: MIT
 * break.c - taking a lock from its holder, and asking for it: for operators.
 *
 *  BR1 Nobody else is granted the lock before its holder no longer believes in it: it has let go,
 *      its lease has ended, or its process was gone for its grace. (P1, P5)
 *  BR2 Only the grant with that number is concerned. (P2)
 *  BR3 A message alone changes nothing: the holder asks the server.
 *
 * What the server does is in break.lua; keep.lua tells the holder. models/break.pml.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/opts.h"
#include "session/absence.h"
#include "session/call.h"

#define LOOK_MIN_MS 5
#define LOOK_MAX_MS 250
#define BY_SIZE     280
#define LATE_MS     1000 /* longer than the last renewal before the mark can be under way */

/* One call: all that lives between its steps. */
struct breaking {
    struct call       call;
    struct lock_keys *keys;
    uint64_t          fence;
    hf_break_opts     o;
    hf_break_info    *ret;  /* may be NULL */
    char              by[BY_SIZE], token[TOKEN_SIZE];
    enum break_mode   mode;
    struct op         op;
    struct absences  *absent;
    struct op_broken  got;
    int64_t           begun_ms, deadline_ms, next_ms;
    int64_t           ends_ms; /* when its lease has ended if nobody renews; 0: not known yet */
    int64_t           lasts_ms; /* the lease surely lasts until then; before ends_ms */
    int               looks;
    bool              told;
    bool              unheard; /* a copy of the request was sent, and not answered */
    char             *reason, *value; /* copies, of a call without blocking */
};

/* USER@HOST, in one word. */
static void name_caller(const hf_client *c, char by[BY_SIZE])
{
    snprintf(by, BY_SIZE, "%s@%s", c->identity.user[0] ? c->identity.user : "?",
             c->identity.host ? c->identity.host : "?");
    for (char *p = by; *p; p++)
        if (*p <= ' ' || *p == 0x7f)
            *p = '_';
}

static hf_err check_text(const char *text, const char *what, hf_error *reterr)
{
    size_t n = text ? strlen(text) : 0;
    if (n <= HF_REASON_MAX)
        return HF_OK;
    return err_set(reterr, HF_EINVAL, "%s has %zu bytes, and may have %d", what, n, HF_REASON_MAX);
}

static const char *name_shown(const struct lock_keys *keys, char *buf, size_t size)
{
    return err_quote(buf, size, keys->name.data, keys->name.len);
}

static hf_err not_a_lock(const struct lock_keys *keys, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ETYPE, "%s is no lock that somebody holds: its key has something "
                   "else", name_shown(keys, name, sizeof name));
}

static hf_err unnumbered(const struct lock_keys *keys, const char *todo, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTSUP, "%s is held by a program of another library, which has no "
                   "fencing number and cannot be told: %s", name_shown(keys, name, sizeof name),
                   todo);
}

static hf_err other_number(const struct lock_keys *keys, uint64_t wanted, uint64_t found,
                           hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTOWNER, "%s is not held under the number %llu but under %llu: "
                   "nothing was done; look again who has it", name_shown(keys, name, sizeof name),
                   (unsigned long long)wanted, (unsigned long long)found);
}

/* ---- breaking ------------------------------------------------------------------------------ */

static void ask_break(struct breaking *k)
{
    hf_client *c = k->call.c;
    int64_t now = clock_now_ms();
    struct op_break b = { .keys = k->keys, .mode = k->mode, .fence = k->fence, .by = k->by,
                          .why = k->o.reason ? k->o.reason : "", .value = k->o.value,
                          .token = k->token, .remember_ms = CLIENT_TOMBSTONE_MS };
    b.n = absences_list(k->absent, now, &b.absences);
    k->op = (struct op){ .id = OP_break, .breaking = b, .deadline_ms = client_deadline(c),
                         .task = &k->call.task, .reterr = k->call.reterr };
    exec_begin(c->exec, &k->op);
}

/* Until when the lease lasts that it had when it was marked. The server said so between the sending
 * and now, and its clock and ours may differ a little. */
static void note_end(struct breaking *k)
{
    if (k->ends_ms || k->got.what != BREAK_MARKED)
        return;
    k->ends_ms = clock_add(clock_now_ms(), k->got.left_ms);
    k->lasts_ms = clock_add(k->op.sent_ms, k->got.left_ms - k->got.left_ms / 100 - 2);
}

static void take_answer(struct breaking *k)
{
    int64_t now = clock_now_ms();
    k->got = k->op.got.broken;
    if (k->got.what == BREAK_MARKED) {
        snprintf(k->token, sizeof k->token, "%.*s", (int)k->got.token.len,
                 (const char *)k->got.token.data);
        k->absent = absences_update(k->absent, k->got.absences, now);
    }
    k->told |= k->got.told;
    note_end(k);
    k->got.absences = (struct op_list){ 0 };
    k->got.token = (hf_bytes){ 0 };
    op_clear(&k->op);
}

/* We, or a copy of our request of which nobody heard, have been there before: what is to be seen
 * now may be what has come of that. */
static bool been_there(const struct breaking *k)
{
    return k->looks > 0 || k->unheard;
}

/* It has passed since we marked it. */
static hf_broken how_passed(const struct breaking *k)
{
    if (k->got.what == BREAK_GONE)
        return HF_BROKEN_GONE;
    if (k->got.what == BREAK_DONE)
        return HF_BROKEN_AT_ONCE;
    if (k->looks == 0) /* that request of ours may have broken it, and may not */
        return k->unheard && k->o.now ? HF_BROKEN_AT_ONCE : HF_BROKEN_FREE;
    return clock_now_ms() < k->lasts_ms || k->told ? HF_BROKEN_RELEASED : HF_BROKEN_EXPIRED;
}

static void fill_in(struct breaking *k, hf_broken how)
{
    int64_t now = clock_now_ms(), left = k->ends_ms - now;
    if (!k->ret)
        return;
    *k->ret = (hf_break_info){ .how = how, .after_ms = now - k->begun_ms,
                               .left_ms = how == HF_BROKEN_MARKED && left > 0 ? left : 0,
                               .present = k->got.present, .told = k->told };
}

/* Its end has moved away since it was marked: by what the server said, and not by when we came to
 * read that. The server's clock and ours may differ a little. */
static bool goes_on(const struct breaking *k)
{
    return k->got.what == BREAK_MARKED
           && clock_add(k->op.sent_ms, k->got.left_ms) > k->ends_ms + LATE_MS;
}

static hf_err renews(struct breaking *k)
{
    char name[120];
    return err_set(k->call.reterr, HF_ENOTSUP, "the holder of %s goes on renewing: its version "
                   "does not know how to be told, or it uses no scripts; end it, or break the lock "
                   "at once", name_shown(k->keys, name, sizeof name));
}

static hf_err marked(struct breaking *k)
{
    char name[120];
    int64_t left = k->ends_ms - clock_now_ms();
    fill_in(k, HF_BROKEN_MARKED);
    return err_set(k->call.reterr, HF_ETIMEDOUT,
                   "%s is marked and not free yet: %s; it is free in %lld.%lld s at the latest",
                   name_shown(k->keys, name, sizeof name),
                   k->told ? "its holder knows, and has not let go"
                   : k->got.present == 0 ? "its holder's process is gone, or not connected"
                                         : "its holder does not answer",
                   (long long)(left > 0 ? left / 1000 : 0),
                   (long long)(left > 0 ? left % 1000 / 100 : 0));
}

/* What the last answer means; HF_EBUSY: it is to be waited for. */
static hf_err judge(struct breaking *k)
{
    if (k->op.result)
        return k->op.result;
    k->unheard |= k->op.in_doubt > 0;
    take_answer(k);
    switch (k->got.what) {
    case BREAK_NOT_A_LOCK: return not_a_lock(k->keys, k->call.reterr);
    case BREAK_UNNUMBERED:
        if (been_there(k))
            break;
        return unnumbered(k->keys,
                          k->o.now ? "its value is not the one that was given; nothing was done"
                                   : "only at once can it be broken, by the value of its key",
                          k->call.reterr);
    case BREAK_OTHER:
        if (been_there(k))
            break;
        return other_number(k->keys, k->fence, k->got.fence, k->call.reterr);
    case BREAK_MARKED:
        if (goes_on(k))
            return renews(k);
        return clock_now_ms() < k->deadline_ms ? HF_EBUSY : marked(k);
    case BREAK_FREE:
    case BREAK_DONE:
    case BREAK_GONE: break;
    }
    fill_in(k, how_passed(k));
    return HF_OK;
}

/* Soon at first: who lives lets go within a round trip or two. */
static void plan_look(struct breaking *k)
{
    int64_t pause = k->looks < 6 ? (int64_t)LOOK_MIN_MS << k->looks : LOOK_MAX_MS;
    k->looks++;
    k->next_ms = clock_earlier(clock_now_ms() + pause, k->deadline_ms);
    k->mode = BREAK_LOOK;
}

static bool woke(struct breaking *k)
{
    task_due(&k->call.task, k->next_ms);
    return clock_now_ms() >= k->next_ms;
}

static bool break_step(struct task *t)
{
    struct breaking *k = (struct breaking *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    for (;;) {
        ask_break(k);
        STEP_UNTIL(call->at, exec_step(call->c->exec, &k->op));
        call->result = judge(k);
        if (call->result != HF_EBUSY)
            break;
        plan_look(k);
        STEP_UNTIL(call->at, woke(k));
    }
    STEP_END(call->at);
}

static void over(struct call *call)
{
    struct breaking *k = (struct breaking *)call;
    op_clear(&k->op);
    absences_free(k->absent);
    keys_free(k->keys);
    mem_free(k->reason);
    mem_free(k->value);
}

static hf_err check_break(const hf_client *c, const hf_break_opts *o, uint64_t fence,
                          hf_error *reterr)
{
    hf_err e = client_can(c, CLIENT_SCRIPT, "breaking a lock", reterr);
    if (!e)
        e = check_text(o->reason, "the reason", reterr);
    if (!e && o->wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms", (long long)o->wait_ms);
    if (!e && !fence && !(o->now && o->value.len))
        e = err_set(reterr, HF_EINVAL, "no fencing number was given: whoever holds the lock by "
                    "then would lose it");
    if (!e && (o->value.len > 511 || (o->value.len && !o->value.data)))
        e = err_set(reterr, HF_EINVAL, "the value has %zu bytes, and may have 511", o->value.len);
    return e;
}

/* All but the call itself. On failure nothing is to be freed. */
static hf_err prepare(struct breaking *k, hf_client *c, hf_bytes name, uint64_t fence,
                      const hf_break_opts *opts, hf_break_info *ret, hf_error *reterr)
{
    k->fence = fence;
    k->ret = ret;
    k->begun_ms = clock_now_ms();
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = opts_copy(&k->o, sizeof k->o, opts, "hf_break_opts", reterr);
    if (!e)
        e = check_break(c, &k->o, fence, reterr);
    if (!e)
        e = client_keys(c, name, &k->keys, reterr);
    if (e)
        return e;
    k->mode = k->o.now ? BREAK_NOW : BREAK_MARK;
    k->deadline_ms = k->o.wait_ms == HF_WAIT_FOREVER ? CLOCK_NEVER
                                                     : clock_add(k->begun_ms, k->o.wait_ms);
    name_caller(c, k->by);
    return HF_OK;
}

hf_err hf_break(hf_client *c, hf_bytes name, uint64_t fence, const hf_break_opts *opts,
                hf_break_info *ret, hf_error *reterr)
{
    CALL_GUARD;
    struct breaking k = { .fence = fence };
    hf_err e = prepare(&k, c, name, fence, opts, ret, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, break_step, NULL, reterr);
    k.call.over = over;
    return call_run(&k.call);
}

/* The caller's texts may be gone before it ends. */
static hf_err copy_texts(struct breaking *k, hf_error *reterr)
{
    const char *reason = k->o.reason ? k->o.reason : "";
    k->o.reason = k->reason = mem_copy(reason, strlen(reason));
    k->o.value.data = k->value = mem_copy(k->o.value.data, k->o.value.len);
    return k->reason && k->value ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_err hf_break_async(hf_client *c, hf_bytes name, uint64_t fence, const hf_break_opts *opts,
                      hf_break_info *ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct breaking *k;
    hf_err e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = prepare(k, c, name, fence, opts, ret, reterr);
    if (!e && (e = copy_texts(k, reterr)))
        over(&k->call);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->call.over = over;
    return call_submit(&k->call, break_step, reterr);
}

/* ---- asking -------------------------------------------------------------------------------- */

struct asking_for {
    struct call       call;
    struct lock_keys *keys;
    uint64_t          fence;
    const char       *text;
    char              by[BY_SIZE];
    size_t            asked, heard, *ret_asked, *ret_heard; /* may be NULL */
    char             *copy; /* of the text, of a call without blocking */
    struct op         op;
};

static hf_err answered(struct asking_for *k)
{
    const struct op_asked *got = &k->op.got.asked;
    hf_error *reterr = k->call.reterr;
    char name[120];
    name_shown(k->keys, name, sizeof name);
    if (k->op.result)
        return k->op.result;
    switch (got->what) {
    case BREAK_NOT_A_LOCK: return not_a_lock(k->keys, reterr);
    case BREAK_FREE: return err_set(reterr, HF_ENOTSET, "nobody holds %s: it is free", name);
    case BREAK_OTHER:
        return err_set(reterr, HF_ENOTOWNER, "%s is not held under the number %llu any more: "
                       "nobody was asked", name, (unsigned long long)k->fence);
    case BREAK_UNNUMBERED:
        return unnumbered(k->keys, "ask the people who run it", reterr);
    case BREAK_MARKED:
    case BREAK_DONE:
    case BREAK_GONE: break;
    }
    k->asked = (size_t)got->asked;
    k->heard = (size_t)got->heard;
    return HF_OK;
}

static bool ask_step(struct task *t)
{
    struct asking_for *k = (struct asking_for *)t;
    hf_client *c = k->call.c;
    STEP_BEGIN(k->call.at);
    k->op = (struct op){ .id = OP_ask, .deadline_ms = client_deadline(c), .task = t,
                         .reterr = k->call.reterr,
                         .ask = { .keys = k->keys, .fence = k->fence, .by = k->by,
                                  .text = k->text } };
    exec_begin(c->exec, &k->op);
    STEP_UNTIL(k->call.at, exec_step(c->exec, &k->op));
    k->call.result = answered(k);
    op_clear(&k->op);
    STEP_END(k->call.at);
}

static void ask_over(struct call *call)
{
    struct asking_for *k = (struct asking_for *)call;
    if (!call->result && k->ret_asked)
        *k->ret_asked = k->asked;
    if (!call->result && k->ret_heard)
        *k->ret_heard = k->heard;
    keys_free(k->keys);
    mem_free(k->copy);
}

static hf_err prepare_ask(struct asking_for *k, hf_client *c, hf_bytes name, const char *text,
                          hf_error *reterr)
{
    k->text = text ? text : "";
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "asking for a lock", reterr);
    if (!e)
        e = check_text(text, "the text", reterr);
    if (!e)
        e = client_keys(c, name, &k->keys, reterr);
    if (!e)
        name_caller(c, k->by);
    return e;
}

hf_err hf_ask(hf_client *c, hf_bytes name, uint64_t fence, const char *text, size_t *ret_asked,
              size_t *ret_heard, hf_error *reterr)
{
    CALL_GUARD;
    struct asking_for k = { .fence = fence, .ret_asked = ret_asked, .ret_heard = ret_heard };
    hf_err e = prepare_ask(&k, c, name, text, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, ask_step, NULL, reterr);
    k.call.over = ask_over;
    return call_run(&k.call);
}

hf_err hf_ask_async(hf_client *c, hf_bytes name, uint64_t fence, const char *text,
                    size_t *ret_asked, size_t *ret_heard, hf_done_fn done, void *arg,
                    hf_error *reterr)
{
    CALL_GUARD;
    struct asking_for *k;
    hf_err e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = prepare_ask(k, c, name, text, reterr);
    if (!e && !(k->copy = mem_copy(k->text, strlen(k->text)))) {
        keys_free(k->keys);
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (e) {
        call_drop(&k->call);
        return e;
    }
    k->text = k->copy;
    k->fence = fence;
    k->ret_asked = ret_asked;
    k->ret_heard = ret_heard;
    k->call.over = ask_over;
    return call_submit(&k->call, ask_step, reterr);
}
