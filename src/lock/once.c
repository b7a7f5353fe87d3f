/* SPDX-License-Identifier: MIT
 * once.c - a value that one caller at a time computes, cached beside the lock of its name.
 *
 *  O1  Callers that come together cause one computation; all of them get its value.
 *  O2  A computation that failed, was killed or lost its lock is not cached, and the next caller's
 *      turn has come.
 *  O3  What a computation that lost its lock made never replaces a newer value.
 *  O4  An old value is given only where it was asked for, and only while somebody computes a new one.
 *  O5  A value is bytes, of any content, up to max_size; a larger one is given back and not cached.
 *
 * The lock is an ordinary mutex: all that it promises (takeover after a crash, order, renewal) is
 * promised here. The value is a hash in the lock's companion {key}:c, with a ttl.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/client.h"

struct once {
    hf_client    *c;
    hf_bytes      name;
    hf_once_opts  o;
    hf_compute_fn compute;
    void         *arg;
};

/* The keys that a value has to do with. */
struct place {
    struct lock_keys *lock;
    char             *value;
    size_t            value_len;
};

static void place_clear(struct place *p)
{
    keys_free(p->lock);
    mem_free(p->value);
}

static hf_err place_open(struct place *p, hf_client *c, hf_bytes name, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_keys(c, name, &p->lock, reterr);
    if (e)
        return e;
    p->value = keys_companion(p->lock->key[KEY_LOCK], KEYS_VALUE, &p->value_len);
    return p->value ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
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

/* Run value.lua; *ret is NULL when nothing is cached. */
static hf_err ask(hf_client *c, hf_bytes name, const char *what, hf_value **ret, hf_error *reterr)
{
    AUTO(place_clear) struct place p = { 0 };
    char most[24];
    snprintf(most, sizeof most, "%d", HF_VALUE_MAX);
    hf_err e = place_open(&p, c, name, reterr);
    if (e)
        return e;
    hf_bytes keys[] = { { p.value, p.value_len } }, args[] = { hf_str(what), hf_str(most) };
    struct script_call sc = { .id = SCRIPT_value, .nkeys = 1, .keys = keys, .nargs = 2,
                              .args = args, .deadline_ms = client_deadline(c) };
    e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    const struct reply *rp = sc.reply;
    long long code = rp->type == REPLY_ARRAY && rp->len > 0 ? rp->item[0]->num : -1;
    hf_value *v = NULL;
    if (code == 1 && rp->len == 4 && rp->item[1]->type == REPLY_BULK) {
        v = value_new(rp->item[1]->str, rp->item[1]->len);
        if (!v) {
            e = err_set(reterr, HF_ENOMEM, "out of memory");
        } else {
            v->age_ms = rp->item[2]->num;
            v->fresh_ms = rp->item[3]->num;
            v->cached = 1;
        }
    } else if (code == -3) {
        e = wrong_kind(name, reterr);
    } else if (code != 0) {
        e = err_set(reterr, HF_EPROTO, "the answer to a question for a value makes no sense");
    }
    reply_free(sc.reply);
    if (!e)
        *ret = v;
    return e;
}

hf_err hf_once_get(hf_client *c, hf_bytes name, hf_value **ret, hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the value, was given");
    return ask(c, name, "get", ret, reterr);
}

hf_err hf_once_drop(hf_client *c, hf_bytes name, hf_error *reterr)
{
    CALL_GUARD;
    hf_value *none;
    if (!c)
        return err_set(reterr, HF_EINVAL, "no client was given");
    return ask(c, name, "drop", &none, reterr);
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

hf_err hf_once_put(hf_client *c, hf_bytes name, const hf_mutex *m, hf_bytes value, int64_t ttl_ms,
                   int64_t stale_ms, hf_error *reterr)
{
    CALL_GUARD;
    AUTO(place_clear) struct place p = { 0 };
    char shown[120], number[24], fresh[24], kept[24];
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
    if (hf_mutex_fence(m) == 0)
        return err_set(reterr, HF_ENOTHELD, "%s is not locked: only its holder caches", shown);
    snprintf(number, sizeof number, "%llu", (unsigned long long)hf_mutex_fence(m));
    snprintf(fresh, sizeof fresh, "%lld", (long long)ttl_ms);
    snprintf(kept, sizeof kept, "%lld", (long long)ttl_ms + (long long)stale_ms);
    hf_bytes keys[] = { p.lock->key[KEY_LOCK], p.lock->key[KEY_OWN], { p.value, p.value_len } };
    hf_bytes args[] = { hf_str(hf_mutex_owner(m)), hf_str(number), hf_str(fresh), hf_str(kept),
                        { value.len ? value.data : "", value.len } };
    struct script_call sc = { .id = SCRIPT_store, .nkeys = 3, .keys = keys, .nargs = 5,
                              .args = args, .deadline_ms = client_deadline(c) };
    e = script_run(c->topo, &sc, reterr);
    if (e)
        return e;
    if (sc.reply->type == REPLY_ARRAY)
        e = wrong_kind(name, reterr);
    else if (sc.reply->num != 1)
        e = err_set(reterr, HF_ELOST, "the lock %s was lost before its value was cached: it is not",
                    shown);
    reply_free(sc.reply);
    return e;
}

/* ---- once --------------------------------------------------------------------------------- */

/* Somebody else's, if it is fresh. */
static hf_err find(const struct once *w, hf_value **ret, hf_error *reterr)
{
    hf_value *v = NULL;
    hf_err e = ask(w->c, w->name, "get", &v, reterr);
    if (!e && v && v->fresh_ms <= 0)
        v = hf_value_free(v);
    if (!e)
        *ret = v;
    return e;
}

/* compute() said yes: cache what it made. Only a lost lock takes the value from its own caller. */
static hf_err keep(const struct once *w, hf_mutex *m, hf_bytes bytes, hf_value **ret,
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
static hf_err with_lock(const struct once *w, hf_mutex *m, hf_value **ret, hf_error *reterr)
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

static hf_err take_and_compute(const struct once *w, hf_mutex *m, int64_t wait_ms, hf_value **old,
                               hf_value **ret, hf_error *reterr)
{
    bool old_will_do = *old && w->o.stale_ms > 0 && -(*old)->fresh_ms < w->o.stale_ms;
    hf_err e = hf_mutex_lock(m, old_will_do ? 0 : wait_ms, NULL, reterr);
    if (old_will_do && e == HF_EBUSY) {
        *ret = *old;
        *old = NULL;
        return HF_OK;
    }
    if (!e) {
        e = with_lock(w, m, ret, reterr);
        (void)hf_mutex_unlock(m, NULL); /* lost or not, the value is what matters */
    } else if ((e == HF_EBUSY || e == HF_ETIMEDOUT) && !w->o.refresh) {
        hf_value *v = NULL; /* done just now, while others still stand before us? */
        if (ask(w->c, w->name, "get", &v, NULL) == HF_OK && v && v->fresh_ms > 0) {
            *ret = v;
            return HF_OK;
        }
        hf_value_free(v);
    }
    return e;
}

static hf_err check_opts(const hf_once_opts *opts, hf_once_opts *ret, hf_error *reterr)
{
    memset(ret, 0, sizeof *ret);
    if (!opts || opts->size < sizeof opts->size || opts->size > 4096)
        return err_set(reterr, HF_EINVAL,
                       "hf_once_opts are needed, for the ttl, with their size set to "
                       "sizeof(hf_once_opts)");
    memcpy(ret, opts, opts->size < sizeof *ret ? opts->size : sizeof *ret);
    if (ret->max_size > HF_VALUE_MAX)
        return err_set(reterr, HF_EINVAL, "a max_size of %zu bytes: at most %d are allowed",
                       ret->max_size, HF_VALUE_MAX);
    ret->max_size = ret->max_size ? ret->max_size : HF_VALUE_MAX;
    return check_times(ret->ttl_ms, ret->stale_ms, reterr);
}

hf_err hf_once(hf_client *c, hf_bytes name, const hf_once_opts *opts, int64_t wait_ms,
               hf_compute_fn compute, void *arg, hf_value **ret, hf_error *reterr)
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
        e = ask(c, name, "get", &found, reterr);
    if (e)
        return e;
    if (found && found->fresh_ms > 0) {
        *ret = found;
        return HF_OK;
    }
    hf_mutex_opts mo = { .size = sizeof mo, .ttl_ms = w.o.lease_ms, .grace_ms = w.o.grace_ms,
                         .whole_lease = 1 };
    hf_mutex *m = NULL;
    e = hf_mutex_open(c, name, &mo, &m, reterr);
    if (!e)
        e = take_and_compute(&w, m, wait_ms, &found, ret, reterr);
    hf_mutex_free(m);
    hf_value_free(found);
    return e;
}
