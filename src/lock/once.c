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
#include "lock/handle.h"

/* The keys that a value has to do with. */
struct value_keys {
    struct lock_keys *lock;
    hf_bytes          value;
};

/* One call: all that lives between its steps. */
struct once_call {
    struct call  call;
    struct seat  own;     /* where a blocking call sleeps */
    struct value_keys place;
    hf_value    *value;   /* the result; given out on HF_OK */
    hf_value   **ret;     /* NULL: nobody wants it */
    struct op    op;
    bool         drop;

    /* Of a value that is to be cached. */
    hf_bytes     bytes;
    char        *copy, *owner; /* of a call without blocking */
    hf_bytes     id;
    uint64_t     fence;
    int64_t      ttl_ms, stale_ms;

    /* Of a computation. */
    hf_once_opts o;
    hf_once_fn   compute;
    void        *compute_arg;
    int64_t      wait_ms;
    hf_lock     *m;
    hf_value    *old;     /* what was found at first, and is not fresh any more */
    bool         old_will_do, held;
    hf_err       e;
    hf_error     why;     /* what compute() said, or why its value was not cached */
    struct call_thread thread;
    step_at      ask_at, store_at, compute_at, keep_at, take_at;
    union {
        struct taking      taking;
        struct giving_back giving_back;
    };
};

static void place_clear(struct value_keys *p)
{
    keys_free(p->lock);
    mem_free((void *)p->value.data);
}

static hf_err place_open(struct value_keys *p, hf_client *c, hf_bytes name, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_keys(c, name, &p->lock, reterr);
    if (e)
        return e;
    p->value.data = keys_companion(p->lock->key[KEY_LOCK], KEYS_VALUE, &p->value.len);
    return p->value.data ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static hf_err wrong_kind(const struct once_call *k, hf_error *reterr)
{
    char shown[120];
    hf_bytes name = k->place.lock->name;
    return err_set(reterr, HF_ETYPE,
                   "what is cached as %s is not a value of ours, or is too large: look at its key "
                   "(the lock's, with " KEYS_VALUE "), and delete it if nobody needs it",
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
static hf_err take_found(const struct once_call *k, hf_value **ret, hf_error *reterr)
{
    const struct op_found *got = &k->op.got.found;
    *ret = NULL;
    if (got->code == ANSWER_WRONG_TYPE)
        return wrong_kind(k, reterr);
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

/* ---- looking ------------------------------------------------------------------------------ */

/* Look, or forget it; *ret is NULL when nothing is cached. Its result is k->e. */
static bool request_value(struct once_call *k, hf_value **ret, hf_error *reterr)
{
    hf_client *c = k->call.c;
    STEP_BEGIN(k->ask_at);
    k->op = (struct op){
        .id = OP_value, .deadline_ms = client_deadline(c), .task = &k->call.task,
        .reterr = reterr,
        .value = { .key = k->place.value, .drop = k->drop, .longest = HF_VALUE_MAX },
    };
    exec_begin(c->exec, &k->op);
    STEP_UNTIL(k->ask_at, exec_step(c->exec, &k->op));
    k->e = k->op.result;
    if (!k->e)
        k->e = take_found(k, ret, reterr);
    op_clear(&k->op);
    STEP_END(k->ask_at);
}

/* The same; what is not fresh any more is nothing. */
static bool find(struct once_call *k, hf_value **ret, hf_error *reterr)
{
    if (!request_value(k, ret, reterr))
        return false;
    if (!k->e && *ret && (*ret)->fresh_ms <= 0)
        *ret = hf_value_free(*ret);
    return true;
}

static bool get_step(struct task *t)
{
    struct once_call *k = (struct once_call *)t;
    if (!request_value(k, &k->value, k->call.reterr))
        return false;
    k->call.result = k->e;
    return true;
}

static void over(struct call *call)
{
    struct once_call *k = (struct once_call *)call;
    if (!call->result && k->ret) {
        *k->ret = k->value;
        k->value = NULL;
    }
    hf_value_free(k->value);
    hf_value_free(k->old);
    hf_lock_free(k->m); /* it is not held any more */
    place_clear(&k->place);
    mem_free(k->copy);
    mem_free(k->owner);
}

/* Blocking: the call is on the stack of who runs it. */
static hf_err prepare(struct once_call *k, hf_client *c, hf_bytes name,
                      bool (*step)(struct task *t), hf_error *reterr)
{
    hf_err e = place_open(&k->place, c, name, reterr);
    if (e) {
        place_clear(&k->place);
        return e;
    }
    k->call = call_blocking(c, step, &k->own, reterr);
    k->call.over = over;
    return HF_OK;
}

static hf_err prepare_async(hf_client *c, hf_bytes name, hf_done_fn done, void *arg,
                            struct once_call **ret, hf_error *reterr)
{
    struct once_call *k;
    hf_err e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = place_open(&k->place, c, name, reterr);
    if (e) {
        place_clear(&k->place);
        call_drop(&k->call);
        return e;
    }
    k->call.over = over;
    *ret = k;
    return HF_OK;
}

static hf_err check_get(const hf_client *c, hf_value **ret, hf_error *reterr)
{
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the value, was given");
    return HF_OK;
}

hf_err hf_once_get(hf_client *c, hf_bytes name, hf_value **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct once_call k = { .ret = ret };
    hf_err e = check_get(c, ret, reterr);
    if (!e)
        e = prepare(&k, c, name, get_step, reterr);
    return e ? e : call_run(&k.call);
}

hf_err hf_once_get_async(hf_client *c, hf_bytes name, hf_value **ret, hf_done_fn done, void *arg,
                         hf_error *reterr)
{
    CALL_GUARD;
    struct once_call *k;
    hf_err e = check_get(c, ret, reterr);
    if (!e)
        e = prepare_async(c, name, done, arg, &k, reterr);
    if (e)
        return e;
    k->ret = ret;
    return call_submit(&k->call, get_step, reterr);
}

hf_err hf_once_drop(hf_client *c, hf_bytes name, hf_error *reterr)
{
    CALL_GUARD;
    struct once_call k = { .drop = true };
    if (!c)
        return err_set(reterr, HF_EINVAL, "no client was given");
    hf_err e = prepare(&k, c, name, get_step, reterr);
    return e ? e : call_run(&k.call);
}

hf_err hf_once_drop_async(hf_client *c, hf_bytes name, hf_done_fn done, void *arg,
                          hf_error *reterr)
{
    CALL_GUARD;
    struct once_call *k;
    if (!c)
        return err_set(reterr, HF_EINVAL, "no client was given");
    hf_err e = prepare_async(c, name, done, arg, &k, reterr);
    if (e)
        return e;
    k->drop = true;
    return call_submit(&k->call, get_step, reterr);
}

/* ---- caching ------------------------------------------------------------------------------ */

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

static void ask_store(struct once_call *k, hf_error *reterr)
{
    hf_client *c = k->call.c;
    k->op = (struct op){
        .id = OP_store, .deadline_ms = client_deadline(c), .task = &k->call.task,
        .reterr = reterr,
        .store = { .keys = k->place.lock, .value_key = k->place.value, .id = k->id,
                   .fence = k->fence, .fresh_ms = k->ttl_ms, .keep_ms = k->ttl_ms + k->stale_ms,
                   .value = { k->bytes.len ? k->bytes.data : "", k->bytes.len } },
    };
    exec_begin(c->exec, &k->op);
}

static hf_err stored(const struct once_call *k, hf_error *reterr)
{
    char shown[120];
    hf_bytes name = k->place.lock->name;
    if (k->op.result || k->op.got.done.code == ANSWER_YES)
        return k->op.result;
    if (k->op.got.done.code == ANSWER_WRONG_TYPE)
        return wrong_kind(k, reterr);
    return err_set(reterr, HF_ELOST, "the lock %s was lost before its value was cached: it is not",
                   err_quote(shown, sizeof shown, name.data, name.len));
}

/* The holder's value, under its grant. Its result is k->e. */
static bool store(struct once_call *k, hf_error *reterr)
{
    STEP_BEGIN(k->store_at);
    ask_store(k, reterr);
    STEP_UNTIL(k->store_at, exec_step(k->call.c->exec, &k->op));
    k->e = stored(k, reterr);
    op_clear(&k->op);
    STEP_END(k->store_at);
}

static bool store_step(struct task *t)
{
    struct once_call *k = (struct once_call *)t;
    if (!store(k, k->call.reterr))
        return false;
    k->call.result = k->e;
    return true;
}

static hf_err check_put(const hf_client *c, const hf_lock *m, hf_bytes value, int64_t ttl_ms,
                        int64_t stale_ms, hf_error *reterr)
{
    if (!c || !m || (value.len && !value.data))
        return err_set(reterr, HF_EINVAL, "no client, lock or value was given");
    hf_err e = check_times(ttl_ms, stale_ms, reterr);
    if (!e && value.len > HF_VALUE_MAX)
        e = err_set(reterr, HF_EINVAL, "the value has %zu bytes: at most %d can be cached",
                    value.len, HF_VALUE_MAX);
    return e;
}

/* What is to be cached, and by whom. */
static void fill_put(struct once_call *k, const hf_lock *m, hf_bytes value, int64_t ttl_ms,
                     int64_t stale_ms)
{
    k->bytes = value;
    k->id = hf_str(hf_lock_owner(m));
    k->fence = hf_lock_fence(m);
    k->ttl_ms = ttl_ms;
    k->stale_ms = stale_ms;
}

static hf_err not_held(hf_bytes name, hf_error *reterr)
{
    char shown[120];
    return err_set(reterr, HF_ENOTHELD, "%s is not held: only its holder caches",
                   err_quote(shown, sizeof shown, name.data, name.len));
}

hf_err hf_once_put(hf_client *c, hf_bytes name, const hf_lock *m, hf_bytes value, int64_t ttl_ms,
                   int64_t stale_ms, hf_error *reterr)
{
    CALL_GUARD;
    struct once_call k = { .ret = NULL };
    hf_err e = check_put(c, m, value, ttl_ms, stale_ms, reterr);
    if (!e)
        e = prepare(&k, c, name, store_step, reterr);
    if (e)
        return e;
    fill_put(&k, m, value, ttl_ms, stale_ms);
    if (k.fence)
        return call_run(&k.call);
    place_clear(&k.place);
    return not_held(name, reterr);
}

hf_err hf_once_put_async(hf_client *c, hf_bytes name, const hf_lock *m, hf_bytes value,
                         int64_t ttl_ms, int64_t stale_ms, hf_done_fn done, void *arg,
                         hf_error *reterr)
{
    CALL_GUARD;
    struct once_call *k;
    hf_err e = check_put(c, m, value, ttl_ms, stale_ms, reterr);
    if (!e)
        e = prepare_async(c, name, done, arg, &k, reterr);
    if (e)
        return e;
    fill_put(k, m, value, ttl_ms, stale_ms);
    k->copy = mem_copy(value.len ? value.data : "", value.len);
    k->owner = mem_copy(k->id.data, k->id.len);
    if (!k->copy || !k->owner) {
        over(&k->call);
        call_drop(&k->call);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    k->bytes.data = k->copy;
    k->id.data = k->owner;
    if (!k->fence)
        return call_submit_known(&k->call, not_held(name, k->call.reterr), reterr);
    return call_submit(&k->call, store_step, reterr);
}

/* ---- once --------------------------------------------------------------------------------- */

static void compute(void *arg)
{
    struct once_call *k = arg;
    k->e = k->compute(k->compute_arg, k->m, &k->bytes, &k->why);
}

/* In the caller's own thread; an event loop's is not to be kept waiting. k->e is what it said. */
static bool compute_value(struct once_call *k)
{
    hf_err e; /* k->e is the thread's from its start on */
    STEP_BEGIN(k->compute_at);
    k->bytes = (hf_bytes){ 0 };
    k->why.message[0] = '\0';
    if (!k->call.task.loop) {
        compute(k);
        STEP_RETURN(k->compute_at);
    }
    k->thread = (struct call_thread){ .work = compute, .arg = k, .task = &k->call.task };
    e = call_thread_start(&k->thread, "hf-compute", &k->why);
    if (e)
        k->e = e;
    else
        STEP_UNTIL(k->compute_at, call_thread_done(&k->thread));
    STEP_END(k->compute_at);
}

static hf_value *computed_value(const struct once_call *k)
{
    hf_value *v = value_new(k->bytes.len ? k->bytes.data : "", k->bytes.len);
    if (v) {
        v->computed = 1;
        v->fresh_ms = k->o.ttl_ms;
    }
    return v;
}

/* Only a lost lock takes the value from its own caller: the server says so when it is to store it,
 * or else we know. */
static hf_err judge_kept(struct once_call *k)
{
    k->value->cached = k->e == HF_OK;
    bool lost = k->e && !lease_believed(&k->m->lease, clock_now_ms());
    if (lost && k->e != HF_ELOST)
        lock_lost(k->m, &k->why);
    if (lost || k->e == HF_ELOST) {
        k->value = hf_value_free(k->value);
        return err_set(k->call.reterr, HF_ELOST, "%s", k->why.message);
    }
    if (k->e == HF_ELIMIT)
        return HF_OK; /* it is said so in the value */
    if (k->e)
        log_to(&k->call.c->log, HF_LOG_WARNING, "a computed value was not cached: %s",
               k->why.message);
    return HF_OK;
}

/* compute() said yes: cache what it made. */
static bool keep(struct once_call *k)
{
    struct call *call = &k->call;
    STEP_BEGIN(k->keep_at);
    k->value = computed_value(k);
    call->result = k->value ? HF_OK : err_set(call->reterr, HF_ENOMEM, "out of memory");
    if (call->result)
        STEP_RETURN(k->keep_at);
    k->e = HF_ELIMIT;
    if (k->bytes.len <= k->o.max_size) {
        fill_put(k, k->m, k->bytes, k->o.ttl_ms, k->o.stale_ms);
        STEP_UNTIL(k->keep_at, store(k, &k->why));
    }
    call->result = judge_kept(k);
    STEP_END(k->keep_at);
}

/* The lock is ours: somebody may have been quicker, else it is our turn. */
static bool with_lock(struct once_call *k)
{
    struct call *call = &k->call;
    STEP_BEGIN(k->take_at);
    call->result = HF_OK;
    if (!k->o.refresh) {
        STEP_UNTIL(k->take_at, find(k, &k->value, call->reterr));
        call->result = k->e;
    }
    if (!call->result && !k->value) {
        STEP_UNTIL(k->take_at, compute_value(k));
        if (k->e)
            call->result = err_set(call->reterr, k->e, "%s",
                                   k->why.message[0] ? k->why.message : "the computation failed");
        else
            STEP_UNTIL(k->take_at, keep(k));
    }
    give_back_begin(&k->giving_back, call, k->m, NULL);
    STEP_UNTIL(k->take_at, give_back_step(&k->giving_back)); /* lost or not: the value matters */
    STEP_END(k->take_at);
}

static hf_err begin_take(struct once_call *k)
{
    hf_lock_opts mo = { .size = sizeof mo, .ttl_ms = k->o.lease_ms, .grace_ms = k->o.grace_ms,
                        .whole_lease = 1 };
    hf_error *reterr = k->call.reterr;
    const hf_value *old = k->old;
    k->old_will_do = old && k->o.stale_ms > 0 && -old->fresh_ms < k->o.stale_ms;
    int64_t wait = k->old_will_do ? 0 : k->wait_ms;
    hf_err e = hf_lock_open(k->call.c, k->place.lock->name, &mo, &k->m, reterr);
    if (!e)
        e = take_admit(k->m, lock_weight(k->m), wait, &k->held, reterr);
    if (!e)
        take_begin(&k->taking, &k->call, k->m, wait, reterr);
    return e;
}

/* Others compute it. Is there something that will do? */
static bool while_busy(const struct once_call *k)
{
    return (k->call.result == HF_EBUSY || k->call.result == HF_ETIMEDOUT) && !k->o.refresh;
}

static void give(struct once_call *k, hf_value **v)
{
    k->value = *v;
    *v = NULL;
    k->call.result = HF_OK;
}

static bool once_step(struct task *t)
{
    struct once_call *k = (struct once_call *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    if (!k->o.refresh) {
        STEP_UNTIL(call->at, request_value(k, &k->old, call->reterr));
        call->result = k->e;
        if (!k->e && k->old && k->old->fresh_ms > 0)
            give(k, &k->old);
        if (call->result || k->value)
            STEP_RETURN(call->at);
    }
    call->result = begin_take(k);
    if (call->result)
        STEP_RETURN(call->at);
    STEP_UNTIL(call->at, take_step(&k->taking));
    call->result = k->taking.result;
    if (k->old_will_do && call->result == HF_EBUSY) {
        give(k, &k->old);
    } else if (!call->result) {
        STEP_UNTIL(call->at, with_lock(k));
    } else if (while_busy(k)) { /* done just now, while others still stand before us? */
        STEP_UNTIL(call->at, find(k, &k->value, NULL));
        if (!k->e && k->value)
            call->result = HF_OK;
    }
    STEP_END(call->at);
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

static hf_err check_compute(const hf_client *c, const hf_once_opts *opts, hf_once_fn fn,
                            hf_value **ret, hf_once_opts *ret_opts, hf_error *reterr)
{
    if (!c || !fn || !ret)
        return err_set(reterr, HF_EINVAL,
                       "no client, no function, or no place for the value, was given");
    hf_err e = client_enter(c, reterr);
    return e ? e : check_opts(opts, ret_opts, reterr);
}

hf_err hf_once_compute(hf_client *c, hf_bytes name, const hf_once_opts *opts, int64_t wait_ms,
                       hf_once_fn compute_fn, void *arg, hf_value **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct once_call k = { .compute = compute_fn, .compute_arg = arg, .wait_ms = wait_ms,
                           .ret = ret };
    hf_err e = check_compute(c, opts, compute_fn, ret, &k.o, reterr);
    if (!e)
        e = prepare(&k, c, name, once_step, reterr);
    return e ? e : call_run(&k.call);
}

hf_err hf_once_compute_async(hf_client *c, hf_bytes name, const hf_once_opts *opts,
                             int64_t wait_ms, hf_once_fn compute_fn, void *compute_arg,
                             hf_value **ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    CALL_GUARD;
    hf_once_opts o;
    struct once_call *k;
    hf_err e = check_compute(c, opts, compute_fn, ret, &o, reterr);
    if (!e && wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                    (long long)wait_ms);
    if (!e)
        e = prepare_async(c, name, done, arg, &k, reterr);
    if (e)
        return e;
    k->o = o;
    k->compute = compute_fn;
    k->compute_arg = compute_arg;
    k->wait_ms = wait_ms;
    k->ret = ret;
    return call_submit(&k->call, once_step, reterr);
}
