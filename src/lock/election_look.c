/* SPDX-License-Identifier: MIT
 * election_look.c - who leads, and waiting for another.
 */
#include "lock/election.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "session/call.h"
#include "session/listener.h"

#define SESSION_DIGITS 32
#define SHOWN_DIGITS   8

hf_leader *hf_leader_free(hf_leader *leader)
{
    if (!leader)
        return NULL;
    mem_free(leader->value);
    record_party_free(leader->party);
    mem_free(leader);
    return NULL;
}

/* What one look found. */
struct sight {
    hf_leader *leader;
    int64_t    server_ms;
    char       session[SESSION_DIGITS + 1]; /* "": a foreign client's lock */
    uint64_t   sequence;
};

/* "<32 digits>.<sequence>:<term>:<grace>" */
static void parse_lock(const char *text, struct sight *s)
{
    if (strspn(text, "0123456789abcdef") != SESSION_DIGITS || text[SESSION_DIGITS] != '.')
        return;
    char *end;
    uint64_t sequence = strtoull(text + SESSION_DIGITS + 1, &end, 10);
    if (*end != ':')
        return;
    s->leader->term = s->leader->party->fence = strtoull(end + 1, NULL, 10);
    s->sequence = sequence;
    memcpy(s->session, text, SESSION_DIGITS);
}

/* Somebody leads. False: no memory. */
static bool describe(const struct op_led *got, struct sight *s)
{
    hf_leader *l = s->leader;
    l->leads = 1;
    l->ttl_ms = got->left_ms;
    s->server_ms = got->server_ms;
    parse_lock(got->lock.data, s);
    l->party->owner = mem_copy(got->lock.data, s->session[0] ? SHOWN_DIGITS : got->lock.len);
    if (got->has_value) {
        l->value = mem_copy(got->value.data, got->value.len);
        l->value_len = got->value.len;
    }
    return l->party->owner && (l->value || !got->has_value);
}

static hf_err read_sight(const struct op_led *got, struct sight *s, hf_error *reterr)
{
    if (got->code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ETYPE, "the key of this election holds data that is not a lock");
    s->leader = mem_zalloc(sizeof *s->leader);
    if (s->leader && !(s->leader->party = record_party_new()))
        s->leader = hf_leader_free(s->leader);
    if (s->leader && got->code == ANSWER_YES && !describe(got, s))
        s->leader = hf_leader_free(s->leader);
    return s->leader ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

static bool same(const hf_leader *a, const hf_leader *b)
{
    if (a->leads != b->leads || a->term != b->term || !a->value != !b->value
        || a->value_len != b->value_len)
        return false;
    if (a->value && memcmp(a->value, b->value, a->value_len) != 0)
        return false;
    return !a->leads || a->term || strcmp(a->party->owner, b->party->owner) == 0;
}

/* ---- one call ----------------------------------------------------------------------------- */

struct look_call {
    struct call          call;
    struct seat          own;   /* where a blocking call sleeps */
    struct election_keys keys;
    const hf_leader     *seen;  /* NULL: do not wait */
    hf_leader           *copy;  /* of it, without blocking */
    int64_t              wait_ms, deadline_ms;
    hf_leader          **ret;

    struct sight         sight;
    int64_t              left_ms; /* of the leader's lease; CLOCK_NEVER: nothing ends by itself */
    struct op            op;
    struct listener      ln;
    struct record_reading record;
    step_at              look_at, known_at;
};

/* token NULL: do not listen. */
static void request_leader(struct look_call *k, const char *token, int64_t deadline_ms)
{
    k->sight = (struct sight){ 0 };
    k->op = (struct op){
        .id = OP_leader, .deadline_ms = deadline_ms, .task = &k->call.task,
        .reterr = k->call.reterr,
        .leader = { .keys = k->keys.lock, .value_key = k->keys.value,
                    .listeners = k->keys.listeners, .longest = HF_LEADER_VALUE_MAX,
                    .token = token },
    };
    exec_begin(k->call.c->exec, &k->op);
}

static bool answered(struct look_call *k)
{
    if (!exec_step(k->call.c->exec, &k->op))
        return false;
    k->call.result = k->op.result ? k->op.result
                                  : read_sight(&k->op.got.led, &k->sight, k->call.reterr);
    op_clear(&k->op);
    return true;
}

/* Is it still as it was? Its end comes without a ring if nobody follows. */
static hf_err compare(struct look_call *k)
{
    hf_leader *l = k->sight.leader;
    k->left_ms = CLOCK_NEVER;
    if (!same(l, k->seen))
        return HF_OK;
    if (l->leads && l->ttl_ms >= 0)
        k->left_ms = l->ttl_ms + 1;
    k->sight.leader = hf_leader_free(l);
    return HF_EBUSY;
}

/* There is no time left for a question; or it had none, which says nothing of the server. */
static bool out_of_time(const struct look_call *k)
{
    hf_err e = k->call.result;
    return (e == HF_EBUSY || (e == HF_EUNSURE && k->ln.answered))
           && clock_now_ms() >= k->deadline_ms;
}

/* Ask until it is not what was seen. */
static bool look_until_changed(struct look_call *k)
{
    struct call *call = &k->call;
    STEP_BEGIN(k->look_at);
    listener_begin(&k->ln);
    for (;;) {
        STEP_UNTIL(k->look_at, listener_ready(&k->ln));
        request_leader(k, k->ln.token, listener_limit(&k->ln));
        STEP_UNTIL(k->look_at, answered(k));
        k->left_ms = CLOCK_NEVER;
        if (!call->result)
            call->result = compare(k);
        if (!call->result)
            break;
        call->result = listener_judge(&k->ln, call->result, call->reterr);
        if (call->result == HF_EBUSY)
            STEP_UNTIL(k->look_at, listener_wait(&k->ln, k->left_ms));
        if (out_of_time(k))
            call->result = HF_ETIMEDOUT;
        if (call->result != HF_EBUSY)
            break;
    }
    STEP_UNTIL(k->look_at, listener_end(&k->ln));
    STEP_END(k->look_at);
}

/* Fill in who the leader is. */
static bool identify(struct look_call *k)
{
    struct sight *s = &k->sight;
    struct call *call = &k->call;
    STEP_BEGIN(k->known_at);
    if (!s->session[0])
        STEP_RETURN(k->known_at);
    call->result = record_read_begin(&k->record, call->c->prefix, s->session, s->sequence, false,
                                     s->server_ms, s->leader->party, client_deadline(call->c),
                                     call->reterr);
    if (call->result)
        STEP_RETURN(k->known_at);
    k->record.op.task = &call->task;
    exec_begin(call->c->exec, &k->record.op);
    STEP_UNTIL(k->known_at, exec_step(call->c->exec, &k->record.op));
    call->result = record_read_end(&k->record);
    STEP_END(k->known_at);
}

static hf_err nothing_changed(const struct look_call *k)
{
    char text[120];
    return err_set(k->call.reterr, HF_ETIMEDOUT, "nothing changed in the election %s in %lld ms",
                   election_shown(&k->keys, text, sizeof text), (long long)k->wait_ms);
}

static bool step(struct task *t)
{
    struct look_call *k = (struct look_call *)t;
    struct call *call = &k->call;
    STEP_BEGIN(call->at);
    if (!k->seen || k->wait_ms == 0) {
        request_leader(k, NULL, client_deadline(call->c));
        STEP_UNTIL(call->at, answered(k));
        if (!call->result && k->seen && same(k->sight.leader, k->seen))
            call->result = HF_ETIMEDOUT;
    } else {
        STEP_UNTIL(call->at, look_until_changed(k));
    }
    if (call->result == HF_ETIMEDOUT)
        call->result = nothing_changed(k);
    if (!call->result)
        STEP_UNTIL(call->at, identify(k));
    STEP_END(call->at);
}

static void over(struct call *call)
{
    struct look_call *k = (struct look_call *)call;
    if (call->result)
        hf_leader_free(k->sight.leader);
    else
        *k->ret = k->sight.leader;
    election_keys_clear(&k->keys);
    hf_leader_free(k->copy);
}

/* As much of it as is compared. NULL: no memory. */
static hf_leader *copy_of(const hf_leader *seen)
{
    hf_leader *l = mem_zalloc(sizeof *l);
    if (!l)
        return NULL;
    const char *owner = seen->party && seen->party->owner ? seen->party->owner : "";
    *l = (hf_leader){ .leads = seen->leads, .term = seen->term, .value_len = seen->value_len,
                      .party = record_party_new() };
    if (l->party)
        l->party->owner = mem_copy(owner, strlen(owner));
    if (seen->value)
        l->value = mem_copy(seen->value, seen->value_len);
    bool complete = l->party && l->party->owner && (l->value || !seen->value);
    return complete ? l : hf_leader_free(l);
}

static hf_err check(hf_client *c, int64_t wait_ms, hf_leader **ret, hf_error *reterr)
{
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the answer, was given");
    hf_err e = client_enter(c, reterr);
    if (!e && wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                    (long long)wait_ms);
    return e;
}

static void begin(struct look_call *k, const hf_leader *seen, int64_t wait_ms, hf_leader **ret)
{
    k->call.over = over;
    k->seen = seen;
    k->wait_ms = wait_ms;
    k->deadline_ms = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms);
    k->ret = ret;
    k->ln = (struct listener){ .c = k->call.c, .keyspace = keyspace_of(k->keys.lock),
                               .key = k->keys.listeners, .task = &k->call.task,
                               .deadline_ms = k->deadline_ms };
}

static hf_err read_leader(hf_client *c, hf_bytes name, const hf_leader *seen, int64_t wait_ms,
                          hf_leader **ret, hf_error *reterr)
{
    struct look_call k = { .seen = NULL };
    hf_err e = check(c, wait_ms, ret, reterr);
    if (!e)
        e = election_keys_make(c, name, &k.keys, reterr);
    if (e)
        return e;
    k.call = call_blocking(c, step, &k.own, reterr);
    begin(&k, seen, wait_ms, ret);
    return call_run(&k.call);
}

static hf_err look_async(hf_client *c, hf_bytes name, const hf_leader *seen, int64_t wait_ms,
                         hf_leader **ret, hf_done_fn done, void *arg, hf_error *reterr)
{
    struct look_call *k;
    hf_err e = check(c, wait_ms, ret, reterr);
    if (!e)
        e = call_new(sizeof *k, c, done, arg, &k, reterr);
    if (e)
        return e;
    e = election_keys_make(c, name, &k->keys, reterr);
    if (!e && seen && !(k->copy = copy_of(seen))) {
        election_keys_clear(&k->keys);
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    }
    if (e) {
        call_drop(&k->call);
        return e;
    }
    begin(k, k->copy, wait_ms, ret);
    return call_submit(&k->call, step, reterr);
}

hf_err hf_election_leader(hf_client *c, hf_bytes name, hf_leader **ret, hf_error *reterr)
{
    CALL_GUARD;
    return read_leader(c, name, NULL, 0, ret, reterr);
}

hf_err hf_election_leader_async(hf_client *c, hf_bytes name, hf_leader **ret, hf_done_fn done,
                                void *arg, hf_error *reterr)
{
    CALL_GUARD;
    return look_async(c, name, NULL, 0, ret, done, arg, reterr);
}

hf_err hf_election_observe(hf_client *c, hf_bytes name, const hf_leader *seen, int64_t wait_ms,
                           hf_leader **ret, hf_error *reterr)
{
    CALL_GUARD;
    return read_leader(c, name, seen, wait_ms, ret, reterr);
}

hf_err hf_election_observe_async(hf_client *c, hf_bytes name, const hf_leader *seen,
                                 int64_t wait_ms, hf_leader **ret, hf_done_fn done, void *arg,
                                 hf_error *reterr)
{
    CALL_GUARD;
    return look_async(c, name, seen, wait_ms, ret, done, arg, reterr);
}
