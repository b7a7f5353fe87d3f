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
#include "session/kind.h"
#include "session/listener.h"

struct hf_latch {
    hf_client        *c;
    struct lock_keys *keys;
    hf_bytes          listeners, done; /* companions of the key, to be freed */
    int64_t           ttl_ms;
    atomic_int        cancelled;
    struct park       seat; /* where wait() sleeps */

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

/* ---- setting and counting -------------------------------------------------------------------- */

static hf_err still_counting(const hf_latch *lt, const struct op_latched *got, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_EBUSY,
                   "%s is still counting down, %llu of %llu left: wait for it, or reset it",
                   shown(lt, name, sizeof name), (unsigned long long)got->left,
                   (unsigned long long)got->total);
}

static hf_err set(hf_latch *lt, uint32_t count, bool force, hf_error *reterr)
{
    char token[TOKEN_SIZE];
    hf_err e = client_enter(CLIENT_OF(lt), reterr);
    if (e)
        return e;
    if (count < 1 || count > HF_LATCH_MAX)
        return err_set(reterr, HF_EINVAL, "a latch of %u: give 1 to %d", count, HF_LATCH_MAX);
    client_token(lt->c, token, sizeof token);
    AUTO(op_clear) struct op op = { .id = OP_latch_set, .deadline_ms = client_deadline(lt->c),
                                    .latch = question(lt, token) };
    op.latch.count = count;
    op.latch.reset = force;
    e = exec_run(lt->c->exec, &op, reterr);
    const struct op_latched *got = &op.got.latched;
    if (e || got->code == ANSWER_YES)
        return e;
    return got->code == ANSWER_BUSY ? still_counting(lt, got, reterr) : refused(lt, got, reterr);
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

hf_err hf_latch_count_down(hf_latch *lt, uint32_t n, uint32_t *ret_left, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(CLIENT_OF(lt), reterr);
    if (e)
        return e;
    if (n < 1 || n > HF_LATCH_MAX)
        return err_set(reterr, HF_EINVAL, "a count-down by %u: give 1 to %d", n, HF_LATCH_MAX);
    choose_token(lt, n);
    AUTO(op_clear) struct op op = { .id = OP_latch_down, .deadline_ms = client_deadline(lt->c),
                                    .latch = question(lt, lt->pending) };
    op.latch.count = n;
    e = exec_run(lt->c->exec, &op, reterr);
    if (e && op.in_doubt)
        return e == HF_EUNSURE ? e : err_known(reterr, e, HF_KNOWN_NOTHING);
    lt->pending[0] = '\0';
    if (e)
        return e;
    if (op.got.latched.code != ANSWER_YES)
        return refused(lt, &op.got.latched, reterr);
    if (ret_left)
        *ret_left = (uint32_t)op.got.latched.left;
    return HF_OK;
}

/* ---- looking and waiting --------------------------------------------------------------------- */

struct look {
    uint64_t left, total, generation;
};

static hf_err broken(const hf_latch *lt, bool reset, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_EBROKEN, "the latch %s %s while it was waited for",
                   shown(lt, name, sizeof name),
                   reset ? "was reset"
                         : "went from the server (its ttl passed, it was deleted, or the server "
                           "lost it)");
}

/* HF_OK with *ret; HF_ENOTSET; HF_EBROKEN: the generation waited for is over. */
static hf_err look(hf_latch *lt, const char *token, uint64_t wanted, int64_t deadline_ms,
                   struct look *ret, hf_error *reterr)
{
    AUTO(op_clear) struct op op = { .id = OP_latch_look, .deadline_ms = deadline_ms,
                                    .stop = *token ? &lt->cancelled : NULL,
                                    .latch = question(lt, token) };
    op.latch.generation = wanted;
    hf_err e = exec_run(lt->c->exec, &op, reterr);
    const struct op_latched *got = &op.got.latched;
    if (e)
        return e;
    if (got->code == ANSWER_GIVEN_UP)
        return broken(lt, got->generation != 0, reterr);
    if (got->code != ANSWER_YES)
        return refused(lt, got, reterr);
    *ret = (struct look){ got->left, got->total, got->generation };
    return HF_OK;
}

hf_err hf_latch_count(hf_latch *lt, uint32_t *ret_left, uint32_t *ret_total, hf_error *reterr)
{
    CALL_GUARD;
    struct look got = { 0 };
    hf_err e = client_enter(CLIENT_OF(lt), reterr);
    if (!e)
        e = look(lt, "", 0, client_deadline(lt->c), &got, reterr);
    if (e)
        return e;
    if (ret_left)
        *ret_left = (uint32_t)got.left;
    if (ret_total)
        *ret_total = (uint32_t)got.total;
    return HF_OK;
}

/* "not yet", as an error of the kind that the caller's patience asks for. */
static hf_err not_yet(const hf_latch *lt, hf_err code, const struct look *last, int64_t wait_ms,
                      hf_error *reterr)
{
    char name[120], waited[48] = "";
    if (code == HF_ETIMEDOUT)
        snprintf(waited, sizeof waited, " after %lld ms", (long long)wait_ms);
    shown(lt, name, sizeof name);
    if (!last->generation)
        return err_set(reterr, code, "the latch %s is not set yet%s", name, waited);
    return err_set(reterr, code, "the latch %s is still counting down%s: %llu of %llu left", name,
                   waited, (unsigned long long)last->left, (unsigned long long)last->total);
}

/* One question of a waiter. HF_OK: at zero. HF_EBUSY: not yet, with *last. */
static hf_err step(hf_latch *lt, struct listener *ln, struct look *last, hf_error *reterr)
{
    struct look got = { 0 };
    listener_ready(ln);
    hf_err e = look(lt, ln->token, last->generation, listener_limit(ln), &got, reterr);
    if (e == HF_ENOTSET)
        return HF_EBUSY;
    if (e)
        return e;
    *last = got;
    if (got.left > 0)
        return HF_EBUSY;
    ln->listed = false;
    return HF_OK;
}

static hf_err wait_for_zero(hf_latch *lt, int64_t wait_ms, hf_error *reterr)
{
    struct look last = { 0 };
    struct listener ln = {
        .c = lt->c, .keyspace = keyspace_of(lt->keys), .key = lt->listeners, .seat = &lt->seat,
        .stop = &lt->cancelled,
        .deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms),
    };
    hf_err e = listener_begin(&ln, reterr);
    while (!e) {
        e = step(lt, &ln, &last, reterr);
        if (!e)
            break;
        e = listener_judge(&ln, e, reterr);
        if (e == HF_EBUSY) {
            listener_wait(&ln, lt->ttl_ms / 3);
            e = HF_OK;
        } else if (e == HF_ETIMEDOUT) {
            e = not_yet(lt, e, &last, wait_ms, reterr);
        }
    }
    listener_end(&ln);
    return e;
}

hf_err hf_latch_wait(hf_latch *lt, int64_t wait_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct look got = { 0 };
    hf_err e = client_enter(CLIENT_OF(lt), reterr);
    if (e)
        return e;
    if (wait_ms < HF_WAIT_FOREVER)
        return err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                       (long long)wait_ms);
    if (atomic_exchange(&lt->cancelled, 0))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
    if (wait_ms != 0) {
        e = wait_for_zero(lt, wait_ms, reterr);
        atomic_store(&lt->cancelled, 0);
        return e;
    }
    e = look(lt, "", 0, client_deadline(lt->c), &got, reterr);
    if (e == HF_ENOTSET || (!e && got.left > 0))
        return not_yet(lt, HF_EBUSY, &got, 0, reterr);
    return e;
}

void hf_latch_cancel(hf_latch *lt)
{
    if (!lt)
        return;
    atomic_store(&lt->cancelled, 1);
    park_wake(&lt->seat);
}
