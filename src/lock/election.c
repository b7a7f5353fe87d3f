/* SPDX-License-Identifier: MIT
 * election.c - one leader at a time, known to everybody, with a value of its own.
 *
 *  EL1  At any time at most one candidate leads; it learns that it leads no more before another
 *      does. (P1, P5: an election is a mutex)
 *  EL2  Terms rise: each leader's is larger than those of all earlier ones. (P4)
 *  EL3  Who has campaigned with success has its value known: whoever asks from then on sees it.
 *  EL4  A value is never seen without its leader, nor another term's under this one.
 *  EL5  An observer learns of every change that lasts: at once of one that somebody made, at the
 *      end of its lease of a leader that is gone and has no successor.
 *  EL6  A lost reply makes neither two leaders nor a value that nobody wrote.
 *  EL7  Nothing of a leader that is gone stays for longer than its ttl; of one that resigned,
 *      nothing.
 *
 * The lock is an hf_lock, used through its public calls alone. The value stands beside it, as
 * "term:n:value", n counting the values of the term, written by a script that finds the lock still
 * this grant's and no later value there, and read together with the lock by one that ignores other
 * terms: so it needs no deleting to be right. Its TTL is what the lock has left, and every renewal
 * of the lock prolongs it too (keeper_follow()). models/election.pml.
 *
 * Tests: tests/live/election.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/opts.h"
#include "session/client.h"
#include "session/listener.h"

#define SESSION_DIGITS 32
#define SHOWN_DIGITS   8

struct election_keys {
    struct lock_keys *lock;
    hf_bytes          value, listeners; /* companions, to be freed */
};

struct hf_election {
    hf_client           *c;
    hf_lock             *m;
    struct election_keys keys;
    /* The grant whose value may stand on the server; term 0: none. */
    uint64_t             term, values; /* how many it has written */
    char                 token[TOKEN_SIZE];
};

/* ---- keys --------------------------------------------------------------------------------- */

static void keys_clear(struct election_keys *k)
{
    keys_free(k->lock);
    mem_free((void *)k->value.data);
    mem_free((void *)k->listeners.data);
    *k = (struct election_keys){ 0 };
}

static hf_err keys_make(const hf_client *c, hf_bytes name, struct election_keys *ret,
                        hf_error *reterr)
{
    struct election_keys k = { 0 };
    hf_err e = client_keys(c, name, &k.lock, reterr);
    if (e)
        return e;
    k.value.data = keys_companion(k.lock->key[KEY_LOCK], ":v", &k.value.len);
    k.listeners.data = keys_companion(k.lock->key[KEY_LOCK], ":l", &k.listeners.len);
    if (!k.value.data || !k.listeners.data) {
        keys_clear(&k);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    *ret = k;
    return HF_OK;
}

static const char *shown(const struct election_keys *k, char *buf, size_t size)
{
    return err_quote(buf, size, k->lock->name.data, k->lock->name.len);
}

/* ---- making and freeing ------------------------------------------------------------------- */

static hf_err check_opts(const hf_election_opts *opts, hf_lock_opts *ret, hf_error *reterr)
{
    hf_election_opts o;
    hf_err e = opts_copy(&o, sizeof o, opts, "hf_election_opts", reterr);
    if (e)
        return e;
    /* A whole lease: the value is to be written under it. */
    *ret = (hf_lock_opts){ .size = sizeof *ret, .ttl_ms = o.ttl_ms, .grace_ms = o.grace_ms,
                            .on_event = o.on_event, .event_arg = o.event_arg, .whole_lease = 1 };
    return HF_OK;
}

hf_err hf_election_open(hf_client *c, hf_bytes name, const hf_election_opts *opts,
                        hf_election **ret, hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_lock_opts mo;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = client_can(c, CLIENT_SCRIPT, "an election", reterr);
    if (!e)
        e = check_opts(opts, &mo, reterr);
    if (e)
        return e;
    hf_election *el = mem_zalloc(sizeof *el);
    if (!el)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    e = keys_make(c, name, &el->keys, reterr);
    if (!e)
        e = hf_lock_open(c, name, &mo, &el->m, reterr);
    if (e) {
        keys_clear(&el->keys);
        mem_free(el);
        return e;
    }
    client_use(c);
    el->c = c;
    *ret = el;
    return HF_OK;
}

static hf_err step_down(hf_election *el, hf_error *reterr);

hf_election *hf_election_free(hf_election *el)
{
    CALL_GUARD;
    if (!el)
        return NULL;
    if (el->term && client_enter(CLIENT_OF(el), NULL) == HF_OK)
        (void)step_down(el, NULL);
    hf_lock_free(el->m); /* before the value's key goes, of which the keeper may know */
    client_leave(el->c);
    keys_clear(&el->keys);
    mem_free(el);
    return NULL;
}

/* ---- leading ------------------------------------------------------------------------------ */

/* Write the value (NULL: take it away). *ret_done: it still was our term. */
static hf_err proclaim(hf_election *el, const hf_bytes *value, bool *ret_done, hf_error *reterr)
{
    const struct election_keys *k = &el->keys;
    char name[120];
    AUTO(op_clear) struct op op = {
        .id = OP_proclaim, .deadline_ms = client_deadline(el->c),
        .proclaim = { .keys = k->lock, .value_key = k->value, .listeners = k->listeners,
                      .token = el->token, .term = el->term, .nth = value ? ++el->values : 0,
                      .value = value },
    };
    hf_err e = exec_run(el->c->exec, &op, reterr);
    if (e)
        return e;
    if (op.got.done.code == ANSWER_WRONG_TYPE)
        return err_set(reterr, HF_ETYPE,
                       "the key {...}:v of the election %s holds something that is no leader's "
                       "value; it was not changed", shown(k, name, sizeof name));
    *ret_done = op.got.done.code == ANSWER_YES;
    return HF_OK;
}

static hf_err lost(const hf_election *el, hf_error *reterr)
{
    char name[120];
    hf_loss loss = hf_lock_loss(el->m);
    return err_set(reterr, HF_ELOST, "the election %s: this candidate leads no more: %s",
                   shown(&el->keys, name, sizeof name),
                   hf_loss_text(loss ? loss : HF_LOSS_TAKEN));
}

static hf_err check_value(hf_bytes value, hf_error *reterr)
{
    if (value.len > HF_LEADER_VALUE_MAX || (value.len && !value.data))
        return err_set(reterr, HF_EINVAL, "a value of %zu bytes: at most %d are allowed", value.len,
                       HF_LEADER_VALUE_MAX);
    return HF_OK;
}

/* Give the lock back, then take the value away: a reader in between sees no leader, or the next,
 * whose term is another. */
static hf_err step_down(hf_election *el, hf_error *reterr)
{
    bool done;
    hf_err e = hf_lock_release(el->m, reterr);
    (void)proclaim(el, NULL, &done, NULL); /* else it ends with its ttl */
    el->term = 0;
    return e;
}

static hf_err set_value(hf_election *el, hf_bytes value, hf_error *reterr)
{
    bool done = false;
    hf_err e = proclaim(el, &value, &done, reterr);
    if (e)
        return e;
    if (!done && hf_lock_verify(el->m, NULL) == HF_OK) /* else the handle knows it now as well */
        return err_set(reterr, HF_EPROTO, "the server says both that this candidate leads and not");
    return done && hf_lock_is_held(el->m) ? HF_OK : lost(el, reterr);
}

/* The lock is ours: let it be known. */
static hf_err take_office(hf_election *el, uint64_t term, hf_bytes value, hf_error *reterr)
{
    const char *token = hf_lock_owner(el->m);
    el->term = term;
    el->values = 0;
    snprintf(el->token, sizeof el->token, "%s", token);
    hf_err e = keeper_follow(el->c->keeper, token, el->keys.value) ? set_value(el, value, reterr)
                                                                    : lost(el, reterr);
    if (!e)
        return HF_OK;
    (void)step_down(el, NULL);
    return err_known(reterr, e, HF_KNOWN_NOT_HELD);
}

hf_err hf_election_campaign(hf_election *el, hf_bytes value, int64_t wait_ms, uint64_t *ret_term,
                            hf_error *reterr)
{
    CALL_GUARD;
    uint64_t term = 0;
    hf_err e = client_enter(CLIENT_OF(el), reterr);
    if (!e)
        e = check_value(value, reterr);
    if (e)
        return e;
    if (el->term && hf_lock_is_held(el->m)) {
        e = set_value(el, value, reterr);
    } else {
        if (el->term)
            (void)step_down(el, NULL); /* lost before */
        e = hf_lock_acquire(el->m, wait_ms, &term, reterr);
        if (!e)
            e = take_office(el, term, value, reterr);
    }
    if (!e && ret_term)
        *ret_term = el->term;
    return e;
}

static hf_err not_leading(const hf_election *el, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTHELD, "the election %s: this candidate does not lead",
                   shown(&el->keys, name, sizeof name));
}

hf_err hf_election_set_value(hf_election *el, hf_bytes value, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(CLIENT_OF(el), reterr);
    if (!e)
        e = check_value(value, reterr);
    if (!e && !el->term)
        e = not_leading(el, reterr);
    if (!e && !hf_lock_is_held(el->m))
        e = lost(el, reterr);
    return e ? e : set_value(el, value, reterr);
}

hf_err hf_election_resign(hf_election *el, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(CLIENT_OF(el), reterr);
    if (!e && !el->term)
        e = not_leading(el, reterr);
    return e ? e : step_down(el, reterr);
}

int hf_election_is_leader(const hf_election *el)
{
    return el && hf_lock_is_held(el->m);
}

uint64_t hf_election_term(const hf_election *el)
{
    return el ? el->term : 0;
}

hf_lock *hf_election_lock(hf_election *el)
{
    return el ? el->m : NULL;
}

/* ---- looking ------------------------------------------------------------------------------ */

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
    l->party->age_ms = -1;
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
    if (s->leader && !(s->leader->party = mem_zalloc(sizeof *s->leader->party)))
        s->leader = hf_leader_free(s->leader);
    if (s->leader && got->code == ANSWER_YES && !describe(got, s))
        s->leader = hf_leader_free(s->leader);
    return s->leader ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

/* Ask who leads. token NULL: do not listen. */
static hf_err look(hf_client *c, const struct election_keys *k, const char *token,
                   int64_t deadline_ms, struct sight *ret, hf_error *reterr)
{
    AUTO(op_clear) struct op op = {
        .id = OP_leader, .deadline_ms = deadline_ms,
        .leader = { .keys = k->lock, .value_key = k->value, .listeners = k->listeners,
                    .longest = HF_LEADER_VALUE_MAX, .token = token },
    };
    *ret = (struct sight){ 0 };
    hf_err e = exec_run(c->exec, &op, reterr);
    return e ? e : read_sight(&op.got.led, ret, reterr);
}

/* Fill in who the leader is. */
static hf_err identify(hf_client *c, struct sight *s, hf_error *reterr)
{
    char tail[64];
    if (!s->session[0])
        return HF_OK;
    snprintf(tail, sizeof tail, "session:%s", s->session);
    AUTO(mem_freep) char *key = keys_reserved(c->prefix, tail);
    if (!key)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return record_read(c->exec, key, s->sequence, false, s->server_ms, s->leader->party,
                       client_deadline(c), reterr);
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

/* Ask until it is not what was seen. */
static hf_err look_until_changed(hf_client *c, const struct election_keys *k, const hf_leader *seen,
                                 int64_t wait_ms, struct sight *ret, hf_error *reterr)
{
    struct park seat = { 0 };
    int64_t deadline = wait_ms < 0 ? CLOCK_NEVER : clock_add(clock_now_ms(), wait_ms);
    struct listener l = { .c = c, .keyspace = keyspace_of(k->lock), .key = k->listeners,
                          .seat = &seat, .deadline_ms = deadline };
    hf_err e = listener_begin(&l, reterr);
    if (e)
        return e;
    for (;;) {
        int64_t left = CLOCK_NEVER;
        listener_ready(&l);
        e = look(c, k, l.token, listener_limit(&l), ret, reterr);
        if (!e && !same(ret->leader, seen))
            break;
        if (!e) {
            /* Its end comes without a ring if nobody follows. */
            if (ret->leader->leads && ret->leader->ttl_ms >= 0)
                left = ret->leader->ttl_ms + 1;
            ret->leader = hf_leader_free(ret->leader);
            e = HF_EBUSY;
        }
        e = listener_judge(&l, e, reterr);
        if (e == HF_EBUSY)
            listener_wait(&l, left);
        /* There is no time left for a question; or it had none, which says nothing of the
         * server. */
        if ((e == HF_EBUSY || (e == HF_EUNSURE && l.answered)) && clock_now_ms() >= deadline)
            e = HF_ETIMEDOUT;
        if (e != HF_EBUSY)
            break;
    }
    listener_end(&l);
    return e;
}

static hf_err check_look(hf_client *c, hf_leader **ret, hf_error *reterr)
{
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the answer, was given");
    return client_enter(c, reterr);
}

static hf_err finish(hf_client *c, struct sight *s, hf_err e, hf_leader **ret, hf_error *reterr)
{
    if (!e)
        e = identify(c, s, reterr);
    if (e)
        hf_leader_free(s->leader);
    else
        *ret = s->leader;
    return e;
}

hf_err hf_election_leader(hf_client *c, hf_bytes name, hf_leader **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct election_keys k;
    struct sight s = { 0 };
    hf_err e = check_look(c, ret, reterr);
    if (!e)
        e = keys_make(c, name, &k, reterr);
    if (e)
        return e;
    e = look(c, &k, NULL, client_deadline(c), &s, reterr);
    e = finish(c, &s, e, ret, reterr);
    keys_clear(&k);
    return e;
}

hf_err hf_election_observe(hf_client *c, hf_bytes name, const hf_leader *seen, int64_t wait_ms,
                           hf_leader **ret, hf_error *reterr)
{
    CALL_GUARD;
    struct election_keys k;
    struct sight s = { 0 };
    hf_err e = check_look(c, ret, reterr);
    if (!e && wait_ms < HF_WAIT_FOREVER)
        e = err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                    (long long)wait_ms);
    if (!e)
        e = keys_make(c, name, &k, reterr);
    if (e)
        return e;
    if (!seen || wait_ms == 0) {
        e = look(c, &k, NULL, client_deadline(c), &s, reterr);
        if (!e && seen && same(s.leader, seen))
            e = HF_ETIMEDOUT;
    } else {
        e = look_until_changed(c, &k, seen, wait_ms, &s, reterr);
    }
    if (e == HF_ETIMEDOUT) {
        char text[120];
        err_set(reterr, e, "nothing changed in the election %s in %lld ms",
                shown(&k, text, sizeof text), (long long)wait_ms);
    }
    e = finish(c, &s, e, ret, reterr);
    keys_clear(&k);
    return e;
}
