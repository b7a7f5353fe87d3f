/* SPDX-License-Identifier: MIT
 * once.c - a value that one caller at a time computes, cached beside the lock of its name.
 *
 *  O1  Callers that come together cause one computation; all of them get its value.
 *  O2  A computation that failed, was killed or lost its lock is not cached, and the next caller's
 *      turn has come.
 *  O3  What a computation that lost its lock made never replaces a newer value.
 *  O4  An old value is given only where it was asked for, and only while somebody computes a new
 *      one.
 *  O5  A value is bytes, of any content, up to max_size; a larger one is given back and not cached.
 *
 * The lock is an ordinary mutex: all that it promises (takeover after a crash, order, renewal) is
 * promised here. The value is a hash in the lock's companion {key}:c, with a ttl.
 */
#include "base/err.h"
#include "base/mem.h"
#include "base/opts.h"
#include "session/client.h"

struct once {
    hf_client    *c;
    hf_bytes      name;
    hf_once_opts  o;
    hf_once_fn compute;
    void         *arg;
};

/* The keys that a value has to do with. */
struct place {
    struct lock_keys *lock;
    hf_bytes          value;
};

static void place_clear(struct place *p)
{
    keys_free(p->lock);
    mem_free((void *)p->value.data);
}

static hf_err place_open(struct place *p, hf_client *c, hf_bytes name, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_keys(c, name, &p->lock, reterr);
    if (e)
        return e;
    p->value.data = keys_companion(p->lock->key[KEY_LOCK], KEYS_VALUE, &p->value.len);
    return p->value.data ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static hf_err wrong_kind(hf_bytes name, hf_error *reterr)
{
    char shown[120];
    return err_set(reterr, HF_ETYPE,
                   "what is cached as %s is no value of ours, or too large: look at its key (the "
                   "lock's, with " KEYS_VALUE "), and delete it if nobody needs it",
                   err_quote(shown, sizeof shown, name.data, name.len));
}

/* ---- values ------------------------------------------------------------------------------- */

hf_value *hf_value_free(hf_value *v)
{
    if (v)
        mem_free(v->data);
    mem_free(v);
    return NULL;
}

static hf_value *value_new(const void *data, size_t len)
{
    hf_value *v = mem_zalloc(sizeof *v);
    if (v && !(v->data = mem_copy(data, len)))
        v = hf_value_free(v);
    if (v)
        v->len = len;
    return v;
}

/* What is cached; NULL: nothing. */
static hf_err take_found(const struct op_found *got, hf_bytes name, hf_value **ret,
                         hf_error *reterr)
{
    *ret = NULL;
    if (got->code == ANSWER_WRONG_TYPE)
        return wrong_kind(name, reterr);
    if (got->code == ANSWER_NO)
        return HF_OK;
    hf_value *v = value_new(got->value.data, got->value.len);
    if (!v)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    v->age_ms = got->age_ms;
    v->fresh_ms = got->fresh_ms;
    v->cached = 1;
    *ret = v;
    return HF_OK;
}

/* Look, or forget it; *ret is NULL when nothing is cached. */
static hf_err ask(hf_client *c, hf_bytes name, bool drop, hf_value **ret, hf_error *reterr)
{
    AUTO(place_clear) struct place p = { 0 };
    hf_value *v = NULL;
    hf_err e = place_open(&p, c, name, reterr);
    if (e)
        return e;
    AUTO(op_clear) struct op op = {
        .id = OP_value, .deadline_ms = client_deadline(c),
        .value = { .key = p.value, .drop = drop, .longest = HF_VALUE_MAX },
    };
    e = exec_run(c->exec, &op, reterr);
    if (!e)
        e = take_found(&op.got.found, name, &v, reterr);
    if (!e)
        *ret = v;
    return e;
}

hf_err hf_once_get(hf_client *c, hf_bytes name, hf_value **ret, hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the value, was given");
    return ask(c, name, false, ret, reterr);
}

hf_err hf_once_drop(hf_client *c, hf_bytes name, hf_error *reterr)
{
    CALL_GUARD;
    hf_value *none;
    if (!c)
        return err_set(reterr, HF_EINVAL, "no client was given");
    return ask(c, name, true, &none, reterr);
}

static hf_err check_times(int64_t ttl_ms, int64_t stale_ms, hf_error *reterr)
{
    if (ttl_ms < 1 || ttl_ms > HF_TTL_MAX_MS)
        return err_set(reterr, HF_EINVAL,
                       "a value that is fresh for %lld ms: give 1 ms to a year", (long long)ttl_ms);
    if (stale_ms < 0 || stale_ms > HF_TTL_MAX_MS)
        return err_set(reterr, HF_EINVAL, "an old value for %lld ms: give 0 ms to a year",
                       (long long)stale_ms);
    return HF_OK;
}

/* The holder's value, under its grant. */
static hf_err store(hf_client *c, const struct place *p, const hf_lock *m, hf_bytes value,
                    int64_t ttl_ms, int64_t stale_ms, enum answer *ret, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_store, .deadline_ms = client_deadline(c),
        .store = { .keys = p->lock, .value_key = p->value, .id = hf_str(hf_lock_owner(m)),
                   .fence = hf_lock_fence(m), .fresh_ms = ttl_ms, .keep_ms = ttl_ms + stale_ms,
                   .value = { value.len ? value.data : "", value.len } },
    };
    hf_err e = exec_run(c->exec, &op, reterr);
    if (!e)
        *ret = op.got.done.code;
    return e;
}

hf_err hf_once_put(hf_client *c, hf_bytes name, const hf_lock *m, hf_bytes value, int64_t ttl_ms,
                   int64_t stale_ms, hf_error *reterr)
{
    CALL_GUARD;
    AUTO(place_clear) struct place p = { 0 };
    enum answer stored = ANSWER_NO;
    char shown[120];
    if (!c || !m || (value.len && !value.data))
        return err_set(reterr, HF_EINVAL, "no client, lock or value was given");
    hf_err e = check_times(ttl_ms, stale_ms, reterr);
    if (!e && value.len > HF_VALUE_MAX)
        e = err_set(reterr, HF_EINVAL, "the value has %zu bytes: at most %d can be cached",
                    value.len, HF_VALUE_MAX);
    if (!e)
        e = place_open(&p, c, name, reterr);
    if (e)
        return e;
    err_quote(shown, sizeof shown, name.data, name.len);
    if (hf_lock_fence(m) == 0)
        return err_set(reterr, HF_ENOTHELD, "%s is not locked: only its holder caches", shown);
    e = store(c, &p, m, value, ttl_ms, stale_ms, &stored, reterr);
    if (!e && stored == ANSWER_WRONG_TYPE)
        e = wrong_kind(name, reterr);
    else if (!e && stored != ANSWER_YES)
        e = err_set(reterr, HF_ELOST, "the lock %s was lost before its value was cached: it is not",
                    shown);
    return e;
}

/* ---- once --------------------------------------------------------------------------------- */

/* Somebody else's, if it is fresh. */
static hf_err find(const struct once *w, hf_value **ret, hf_error *reterr)
{
    hf_value *v = NULL;
    hf_err e = ask(w->c, w->name, false, &v, reterr);
    if (!e && v && v->fresh_ms <= 0)
        v = hf_value_free(v);
    if (!e)
        *ret = v;
    return e;
}

/* compute() said yes: cache what it made. Only a lost lock takes the value from its own caller. */
static hf_err keep(const struct once *w, hf_lock *m, hf_bytes bytes, hf_value **ret,
                   hf_error *reterr)
{
    hf_error why;
    hf_value *v = value_new(bytes.len ? bytes.data : "", bytes.len);
    if (!v)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    v->computed = 1;
    v->fresh_ms = w->o.ttl_ms;
    hf_err e = HF_OK;
    if (bytes.len <= w->o.max_size) {
        e = hf_once_put(w->c, w->name, m, bytes, w->o.ttl_ms, w->o.stale_ms, &why);
        v->cached = e == HF_OK;
    }
    if (e == HF_ELOST) {
        hf_value_free(v);
        return err_set(reterr, e, "%s", why.message);
    }
    if (e)
        log_to(&w->c->log, HF_LOG_WARNING, "a computed value was not cached: %s", why.message);
    *ret = v;
    return HF_OK;
}

/* The lock is ours: somebody may have been quicker, else it is our turn. */
static hf_err with_lock(const struct once *w, hf_lock *m, hf_value **ret, hf_error *reterr)
{
    hf_bytes bytes = { 0 };
    hf_value *v = NULL;
    hf_error own = { .message = "" };
    hf_err e = w->o.refresh ? HF_OK : find(w, &v, reterr);
    if (e || v) {
        *ret = v;
        return e;
    }
    e = w->compute(w->arg, m, &bytes, &own);
    if (e)
        return err_set(reterr, e, "%s", own.message[0] ? own.message : "the computation failed");
    return keep(w, m, bytes, ret, reterr);
}

static hf_err take_and_compute(const struct once *w, hf_lock *m, int64_t wait_ms, hf_value **old,
                               hf_value **ret, hf_error *reterr)
{
    bool old_will_do = *old && w->o.stale_ms > 0 && -(*old)->fresh_ms < w->o.stale_ms;
    hf_err e = hf_lock_acquire(m, old_will_do ? 0 : wait_ms, NULL, reterr);
    if (old_will_do && e == HF_EBUSY) {
        *ret = *old;
        *old = NULL;
        return HF_OK;
    }
    if (!e) {
        e = with_lock(w, m, ret, reterr);
        (void)hf_lock_release(m, NULL); /* lost or not, the value is what matters */
    } else if ((e == HF_EBUSY || e == HF_ETIMEDOUT) && !w->o.refresh) {
        hf_value *v = NULL; /* done just now, while others still stand before us? */
        if (ask(w->c, w->name, false, &v, NULL) == HF_OK && v && v->fresh_ms > 0) {
            *ret = v;
            return HF_OK;
        }
        hf_value_free(v);
    }
    return e;
}

static hf_err check_opts(const hf_once_opts *opts, hf_once_opts *ret, hf_error *reterr)
{
    if (!opts)
        return err_set(reterr, HF_EINVAL,
                       "hf_once_opts are needed, for the ttl, with their size set to "
                       "sizeof(hf_once_opts)");
    hf_err e = opts_copy(ret, sizeof *ret, opts, "hf_once_opts", reterr);
    if (e)
        return e;
    if (ret->max_size > HF_VALUE_MAX)
        return err_set(reterr, HF_EINVAL, "a max_size of %zu bytes: at most %d are allowed",
                       ret->max_size, HF_VALUE_MAX);
    ret->max_size = ret->max_size ? ret->max_size : HF_VALUE_MAX;
    return check_times(ret->ttl_ms, ret->stale_ms, reterr);
}

hf_err hf_once_compute(hf_client *c, hf_bytes name, const hf_once_opts *opts, int64_t wait_ms,
                       hf_once_fn compute, void *arg, hf_value **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct once w = { .c = c, .name = name, .compute = compute, .arg = arg };
    if (!c || !compute || !ret)
        return err_set(reterr, HF_EINVAL,
                       "no client, no function, or no place for the value, was given");
    hf_value *found = NULL;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = check_opts(opts, &w.o, reterr);
    if (!e && !w.o.refresh)
        e = ask(c, name, false, &found, reterr);
    if (e)
        return e;
    if (found && found->fresh_ms > 0) {
        *ret = found;
        return HF_OK;
    }
    hf_lock_opts mo = { .size = sizeof mo, .ttl_ms = w.o.lease_ms, .grace_ms = w.o.grace_ms,
                         .whole_lease = 1 };
    hf_lock *m = NULL;
    e = hf_lock_open(c, name, &mo, &m, reterr);
    if (!e)
        e = take_and_compute(&w, m, wait_ms, &found, ret, reterr);
    hf_lock_free(m);
    hf_value_free(found);
    return e;
}
