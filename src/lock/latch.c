/* SPDX-License-Identifier: MIT
 * latch.c - count down, wait for zero.
 *
 *  LA1  A wait returns HF_OK only when the latch that it waited for has reached zero.
 *  LA2  Each count-down counts once, however often its request had to be sent, and the count never
 *      goes below zero. (P8)
 *  LA3  A latch is set only when there is none or it is at zero; a forced reset ends the waits for
 *      the old one with HF_EBROKEN.
 *  LA4  Everybody who waits is told at zero, however many they are; nobody waits on for one that is
 *      gone.
 *  LA5  What else stands on the key is not touched. (P10)
 *  LA6  Nothing stays for ever: the latch ends with its ttl, what is beside it in a minute or so.
 *      (P9)
 */
#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/opts.h"
#include "session/attempt.h"
#include "session/call.h"
#include "session/kind.h"
#include "session/listener.h"

struct hf_latch {
    hf_client        *c;
    struct lock_keys *keys;
    hf_bytes          listeners, done; /* companions of the key, to be freed */
    int64_t           ttl_ms;
    struct seat       seat;

    /* A count-down that got no answer: the next one of the same size is its repetition. */
    char              pending[TOKEN_SIZE];
    uint32_t          pending_n;
    int64_t           pending_until_ms;
};

/* ---- making and freeing ---------------------------------------------------------------------- */

static hf_err check_opts(const hf_latch_opts *opts, int64_t *ret_ttl_ms, hf_error *reterr)
{
    hf_latch_opts o;
    hf_err e = opts_copy(&o, sizeof o, opts, "hf_latch_opts", reterr);
    if (e)
        return e;
    *ret_ttl_ms = o.ttl_ms ? o.ttl_ms : HF_LATCH_TTL_DEFAULT_MS;
    return attempt_check_ttl(*ret_ttl_ms, reterr);
}

/* False: no memory. */
static bool make_companion(const struct lock_keys *keys, const char *suffix, hf_bytes *ret)
{
    ret->data = keys_companion(keys->key[KEY_LOCK], suffix, &ret->len);
    return ret->data != NULL;
}

static void free_latch(hf_latch *lt)
{
    if (!lt)
        return;
    mem_free((void *)lt->listeners.data);
    mem_free((void *)lt->done.data);
    mem_free(lt);
}

hf_err hf_latch_open(hf_client *c, hf_bytes name, const hf_latch_opts *opts, hf_latch **ret,
                     hf_error *reterr)
{
    CALL_GUARD;
    int64_t ttl_ms = 0;
    struct lock_keys *keys;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "a latch", reterr);
    if (!e)
        e = check_opts(opts, &ttl_ms, reterr);
    if (!e)
        e = names_use(c->names, name, &keys, reterr);
    if (e)
        return e;

    hf_latch *lt = mem_zalloc(sizeof *lt);
    if (!lt || !make_companion(keys, ":l", &lt->listeners)
        || !make_companion(keys, ":d", &lt->done)) {
        free_latch(lt);
        names_leave(c->names, keys, 0);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    lt->c = c;
    lt->keys = keys;
    lt->ttl_ms = ttl_ms;
    client_use(c);
    *ret = lt;
    return HF_OK;
}

hf_latch *hf_latch_free(hf_latch *lt)
{
    CALL_GUARD;
    if (!lt)
        return NULL;
    names_leave(lt->c->names, lt->keys, lt->c->generation != forkguard_generation());
    client_leave(lt->c);
    free_latch(lt);
    return NULL;
}

/* ---- asking the server ----------------------------------------------------------------------- */

static const char *shown(const hf_latch *lt, char *buf, size_t size)
{
    return err_quote(buf, size, lt->keys->name.data, lt->keys->name.len);
}

/* How long the server has to know a request of ours again: longer than we repeat it, and than a
 * copy of it can linger. */
static int64_t remember_ms(const hf_latch *lt)
{
    return lt->c->timeout_ms + CLIENT_TOMBSTONE_MS;
}

/* What all requests for it have in common. */
static struct op_latch question(const hf_latch *lt, const char *token)
{
    return (struct op_latch){ .keys = lt->keys, .listeners = lt->listeners, .done = lt->done,
                              .token = token, .ttl_ms = lt->ttl_ms,
                              .remember_ms = remember_ms(lt) };
}

static hf_err not_set(const hf_latch *lt, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTSET, "there is no latch %s: it was not set yet, or its ttl has "
                   "passed", shown(lt, name, sizeof name));
}

/* What is refused for any request. */
static hf_err refused(const hf_latch *lt, const struct op_latched *got, hf_error *reterr)
{
    if (got->code == ANSWER_WRONG_TYPE)
        return kind_refuse(lt->keys, got->value, "a latch", reterr);
    if (got->code == ANSWER_BAD_COUNTER)
        return op_bad_counter(lt->keys->scope, reterr);
    return not_set(lt, reterr);
}

/* ---- one call -------------------------------------------------------------------------------- */

struct look {
    uint64_t left, total, generation;
};

struct latch_call {
    struct call     call;
    hf_latch       *lt;
    struct op       op;
    hf_err        (*answered)(struct latch_call *k); /* what its answer means */
    char            token[TOKEN_SIZE];
    struct look     last;
    uint32_t       *ret_left, *ret_total; /* may be NULL */
    int64_t         wait_ms;
    struct listener ln;
};

/* The next question of the call. */
static void request_latch(struct latch_call *k, enum op_id id, const char *token,
                          hf_err (*answered)(struct latch_call *k))
{
    k->op = (struct op){ .id = id, .deadline_ms = client_deadline(k->lt->c),
                         .latch = question(k->lt, token), .task = &k->call.task,
                         .reterr = k->call.reterr };
    k->answered = answered;
    exec_begin(k->lt->c->exec, &k->op);
}

static bool question_answered(struct latch_call *k)
{
    if (!exec_step(k->lt->c->exec, &k->op))
        return false;
    k->call.result = k->answered(k);
    op_clear(&k->op);
    return true;
}

/* A call that is one question. */
static bool question_step(struct task *t)
{
    return question_answered((struct latch_call *)t);
}

static void over(struct call *call)
{
    struct latch_call *k = (struct latch_call *)call;
    if (call->done)
        seat_leave(&k->lt->seat, call->c);
    if (!call->result && k->ret_left)
        *k->ret_left = (uint32_t)k->last.left;
    if (!call->result && k->ret_total)
        *k->ret_total = (uint32_t)k->last.total;
}

static hf_err check_call(const hf_latch *lt, hf_error *reterr)
{
    hf_err e = handle_enter(lt, reterr);
    return e ? e : seat_check(&lt->seat, reterr);
}

static struct latch_call blocking(hf_latch *lt, hf_error *reterr)
{
    struct latch_call k = { .call = call_blocking(lt->c, question_step, &lt->seat, reterr),
                            .lt = lt };
    k.call.over = over;
    return k;
}

static hf_err new_call(hf_latch *lt, hf_done_fn done, void *arg, struct latch_call **ret,
                       hf_error *reterr)
{
    hf_err e = call_new(sizeof **ret, lt->c, done, arg, ret, reterr);
    if (!e)
        (*ret)->lt = lt;
    return e;
}

static hf_err submit(struct latch_call *k, bool (*step)(struct task *t), bool waits,
                     hf_error *reterr)
{
    k->call.over = over;
    seat_take(&k->lt->seat, &k->call, waits);
    return call_submit(&k->call, step, reterr);
}

/* ---- setting and counting -------------------------------------------------------------------- */

static hf_err still_counting(const hf_latch *lt, const struct op_latched *got, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_EBUSY,
                   "%s is still counting down, %llu of %llu left: wait for it, or reset it",
                   shown(lt, name, sizeof name), (unsigned long long)got->left,
                   (unsigned long long)got->total);
}

static hf_err set_answered(struct latch_call *k)
{
    const struct op_latched *got = &k->op.got.latched;
    if (k->op.result || got->code == ANSWER_YES)
        return k->op.result;
    return got->code == ANSWER_BUSY ? still_counting(k->lt, got, k->call.reterr)
                                    : refused(k->lt, got, k->call.reterr);
}

static hf_err check_set(const hf_latch *lt, uint32_t count, hf_error *reterr)
{
    hf_err e = check_call(lt, reterr);
    if (!e && (count < 1 || count > HF_LATCH_MAX))
        e = err_set(reterr, HF_EINVAL, "a latch of %u: give 1 to %d", count, HF_LATCH_MAX);
    return e;
}

static void begin_set(struct latch_call *k, uint32_t count, bool force)
{
    client_token(k->lt->c, k->token, sizeof k->token);
    request_latch(k, OP_latch_set, k->token, set_answered);
    k->op.latch.count = count;
    k->op.latch.reset = force;
}

static hf_err set(hf_latch *lt, uint32_t count, bool force, hf_error *reterr)
{
    struct latch_call k;
    hf_err e = check_set(lt, count, reterr);
    if (e)
        return e;
    k = blocking(lt, reterr);
    begin_set(&k, count, force);
    return call_run(&k.call);
}

static hf_err set_async(hf_latch *lt, uint32_t count, bool force, hf_done_fn done, void *arg,
                        hf_error *reterr)
{
    struct latch_call *k;
    hf_err e = check_set(lt, count, reterr);
    if (!e)
        e = new_call(lt, done, arg, &k, reterr);
    if (e)
        return e;
    begin_set(k, count, force);
    return submit(k, question_step, false, reterr);
}

hf_err hf_latch_set(hf_latch *lt, uint32_t count, hf_error *reterr)
{
    CALL_GUARD;
    return set(lt, count, false, reterr);
}

hf_err hf_latch_reset(hf_latch *lt, uint32_t count, hf_error *reterr)
{
    CALL_GUARD;
    return set(lt, count, true, reterr);
}

hf_err hf_latch_set_async(hf_latch *lt, uint32_t count, hf_done_fn done, void *arg,
                          hf_error *reterr)
{
    CALL_GUARD;
    return set_async(lt, count, false, done, arg, reterr);
}

hf_err hf_latch_reset_async(hf_latch *lt, uint32_t count, hf_done_fn done, void *arg,
                            hf_error *reterr)
{
    CALL_GUARD;
    return set_async(lt, count, true, done, arg, reterr);
}

/* The token of this count-down: that of the last one, if it is its repetition. */
static void choose_token(hf_latch *lt, uint32_t n)
{
    int64_t now = clock_now_ms();
    if (lt->pending[0] && lt->pending_n == n && now < lt->pending_until_ms)
        return;
    client_token(lt->c, lt->pending, sizeof lt->pending);
    lt->pending_n = n;
    lt->pending_until_ms = now + CLIENT_TOMBSTONE_MS; /* remembered for longer than that */
}

static hf_err counted(struct latch_call *k)
{
    const struct op_latched *got = &k->op.got.latched;
    hf_err e = k->op.result;
    if (e && k->op.in_doubt)
        return e == HF_EUNSURE ? e : err_known(k->call.reterr, e, HF_KNOWN_NOTHING);
    k->lt->pending[0] = '\0';
    if (e)
        return e;
    if (got->code != ANSWER_YES)
        return refused(k->lt, got, k->call.reterr);
    k->last.left = got->left;
    return HF_OK;
}

static hf_err check_count_down(const hf_latch *lt, uint32_t n, hf_error *reterr)
{
    hf_err e = check_call(lt, reterr);
    if (!e && (n < 1 || n > HF_LATCH_MAX))
        e = err_set(reterr, HF_EINVAL, "a count-down by %u: give 1 to %d", n, HF_LATCH_MAX);
    return e;
}

static void begin_count_down(struct latch_call *k, uint32_t n, uint32_t *ret_left)
{
    choose_token(k->lt, n);
    request_latch(k, OP_latch_down, k->lt->pending, counted);
    k->op.latch.count = n;
    k->ret_left = ret_left;
}

hf_err hf_latch_count_down(hf_latch *lt, uint32_t n, uint32_t *ret_left, hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call k;
    hf_err e = check_count_down(lt, n, reterr);
    if (e)
        return e;
    k = blocking(lt, reterr);
    begin_count_down(&k, n, ret_left);
    return call_run(&k.call);
}

hf_err hf_latch_count_down_async(hf_latch *lt, uint32_t n, uint32_t *ret_left, hf_done_fn done,
                                 void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call *k;
    hf_err e = check_count_down(lt, n, reterr);
    if (!e)
        e = new_call(lt, done, arg, &k, reterr);
    if (e)
        return e;
    begin_count_down(k, n, ret_left);
    return submit(k, question_step, false, reterr);
}

/* ---- looking and waiting --------------------------------------------------------------------- */

static hf_err broken(const hf_latch *lt, bool reset, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_EBROKEN, "the latch %s %s while it was waited for",
                   shown(lt, name, sizeof name),
                   reset ? "was reset"
                         : "went from the server (its ttl passed, it was deleted, or the server "
                           "lost it)");
}

/* HF_OK with k->last; HF_ENOTSET; HF_EBROKEN: the generation waited for is over. */
static hf_err looked(struct latch_call *k)
{
    const struct op_latched *got = &k->op.got.latched;
    if (k->op.result)
        return k->op.result;
    if (got->code == ANSWER_GIVEN_UP)
        return broken(k->lt, got->generation != 0, k->call.reterr);
    if (got->code != ANSWER_YES)
        return refused(k->lt, got, k->call.reterr);
    k->last = (struct look){ got->left, got->total, got->generation };
    return HF_OK;
}

static void begin_count(struct latch_call *k, uint32_t *ret_left, uint32_t *ret_total)
{
    request_latch(k, OP_latch_look, "", looked);
    k->ret_left = ret_left;
    k->ret_total = ret_total;
}

hf_err hf_latch_count(hf_latch *lt, uint32_t *ret_left, uint32_t *ret_total, hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call k;
    hf_err e = check_call(lt, reterr);
    if (e)
        return e;
    k = blocking(lt, reterr);
    begin_count(&k, ret_left, ret_total);
    return call_run(&k.call);
}

hf_err hf_latch_count_async(hf_latch *lt, uint32_t *ret_left, uint32_t *ret_total, hf_done_fn done,
                            void *arg, hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call *k;
    hf_err e = check_call(lt, reterr);
    if (!e)
        e = new_call(lt, done, arg, &k, reterr);
    if (e)
        return e;
    begin_count(k, ret_left, ret_total);
    return submit(k, question_step, false, reterr);
}

/* "not yet", as an error of the kind that the caller's patience asks for. */
static hf_err not_yet(const struct latch_call *k, hf_err code)
{
    char name[120], waited[48] = "";
    const struct look *last = &k->last;
    if (code == HF_ETIMEDOUT)
        snprintf(waited, sizeof waited, " after %lld ms", (long long)k->wait_ms);
    shown(k->lt, name, sizeof name);
    if (!last->generation)
        return err_set(k->call.reterr, code, "the latch %s is not set yet%s", name, waited);
    return err_set(k->call.reterr, code, "the latch %s is still counting down%s: %llu of %llu left",
                   name, waited, (unsigned long long)last->left, (unsigned long long)last->total);
}

static hf_err looked_once(struct latch_call *k)
{
    hf_err e = looked(k);
    return e == HF_ENOTSET || (!e && k->last.left > 0) ? not_yet(k, HF_EBUSY) : e;
}

/* HF_EBUSY: not yet. */
static hf_err looked_waiting(struct latch_call *k)
{
    hf_err e = looked(k);
    if (e == HF_ENOTSET)
        return HF_EBUSY;
    if (!e)
        k->ln.listed = k->last.left > 0;
    return !e && k->last.left > 0 ? HF_EBUSY : e;
}

static void ask_waiting(struct latch_call *k)
{
    request_latch(k, OP_latch_look, k->ln.token, looked_waiting);
    k->op.latch.generation = k->last.generation;
    k->op.deadline_ms = listener_limit(&k->ln);
    k->op.stop = k->ln.stop;
}

static bool wait_step(struct task *t)
{
    struct latch_call *k = (struct latch_call *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    listener_begin(&k->ln);
    for (;;) {
        STEP_UNTIL(call->at, listener_ready(&k->ln));
        ask_waiting(k);
        STEP_UNTIL(call->at, question_answered(k));
        if (!call->result)
            break;
        call->result = listener_judge(&k->ln, call->result, call->reterr);
        if (call->result == HF_ETIMEDOUT)
            call->result = not_yet(k, HF_ETIMEDOUT);
        if (call->result != HF_EBUSY)
            break;
        STEP_UNTIL(call->at, listener_wait(&k->ln, k->lt->ttl_ms / 3));
    }
    STEP_UNTIL(call->at, listener_end(&k->ln));
    STEP_END(call->at);
}

static hf_err check_wait(hf_latch *lt, int64_t wait_ms, hf_error *reterr)
{
    hf_err e = check_call(lt, reterr);
    return e ? e : seat_begin_wait(&lt->seat, wait_ms, reterr);
}

/* Its step. */
static bool (*begin_wait(struct latch_call *k, int64_t wait_ms))(struct task *t)
{
    hf_latch *lt = k->lt;
    k->wait_ms = wait_ms;
    if (wait_ms == 0) {
        request_latch(k, OP_latch_look, "", looked_once);
        return question_step;
    }
    k->ln = (struct listener){
        .c = lt->c, .keyspace = keyspace_of(lt->keys), .key = lt->listeners,
        .task = &k->call.task, .stop = &lt->seat.cancelled,
        .deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms),
    };
    return wait_step;
}

hf_err hf_latch_wait(hf_latch *lt, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call k;
    hf_err e = check_wait(lt, wait_ms, reterr);
    if (e)
        return e;
    k = blocking(lt, reterr);
    k.call.task.step = begin_wait(&k, wait_ms);
    e = call_run(&k.call);
    if (wait_ms != 0)
        atomic_store(&lt->seat.cancelled, 0);
    return e;
}

hf_err hf_latch_wait_async(hf_latch *lt, int64_t wait_ms, hf_done_fn done, void *arg,
                           hf_error *reterr)
{
    CALL_GUARD;
    struct latch_call *k;
    hf_err e = check_call(lt, reterr);
    if (!e)
        e = new_call(lt, done, arg, &k, reterr);
    if (e)
        return e;
    e = check_wait(lt, wait_ms, reterr);
    if (e) {
        call_drop(&k->call);
        return e;
    }
    bool (*step)(struct task *t) = begin_wait(k, wait_ms);
    return submit(k, step, wait_ms != 0, reterr);
}

void hf_latch_cancel(hf_latch *lt)
{
    if (lt)
        seat_cancel(&lt->seat, lt->c);
}
