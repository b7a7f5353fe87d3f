/* SPDX-License-Identifier: MIT
 * mutex.c - one owner at a time.
 *
 *  M1  While one handle holds the lock, judged by the server's clock, no other is granted it. (P1)
 *  M2  Unlock, extend and verify act only if the lock still is this grant's. (P2)
 *  M3  Each grant's number is larger than those of all earlier grants of the name. (P4)
 *  M4  is_held is false, and the loss told, before anybody else can be granted the lock. (P5)
 *  M5  A lost reply never makes two grants of one, nor a lock that nobody holds. (P8)
 *  M6  Nothing of an unlocked mutex is renewed, and no key of it stays. (P9)
 *
 * Taking it is in mutex_lock.c, without blocking in mutex_async.c. The same handle shares a lock
 * with others: rwlock.c, semaphore.c.
 */
#include "lock/handle.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "session/giveup.h"
#include "session/renew.h"

static hf_mutex *of_lease(struct lease *l)
{
    return (hf_mutex *)((char *)l - offsetof(hf_mutex, lease));
}

const char *mutex_shown(const hf_mutex *m, char *buf, size_t size)
{
    return err_quote(buf, size, m->keys->name.data, m->keys->name.len);
}

/* ---- making and freeing ------------------------------------------------------------------- */

/* Thread: watchdog. */
static void changed(struct lease *l, hf_state state)
{
    hf_mutex *m = of_lease(l);
    int fd = atomic_load(&m->event_fd);
    uint64_t one = 1;
    if (fd >= 0)
        (void)!write(fd, &one, sizeof one);
    if (m->opts.on_event)
        m->opts.on_event(m, state, m->opts.event_arg);
}

static hf_err unlock_fully(struct lease *l, hf_error *reterr);

static hf_err check_opts(const hf_mutex_opts *opts, hf_mutex_opts *ret, hf_error *reterr)
{
    memset(ret, 0, sizeof *ret);
    if (opts) {
        if (opts->size < sizeof opts->size || opts->size > 4096)
            return err_set(reterr, HF_EINVAL,
                           "hf_mutex_opts.size is %zu: set it to sizeof(hf_mutex_opts)",
                           opts->size);
        memcpy(ret, opts, opts->size < sizeof *ret ? opts->size : sizeof *ret);
    }
    if (ret->ttl_ms == 0)
        ret->ttl_ms = HF_TTL_DEFAULT_MS;
    hf_err e = attempt_check_ttl(ret->ttl_ms, reterr);
    if (!e && (ret->grace_ms < HF_NO_TAKEOVER || ret->grace_ms > HF_TTL_MAX_MS))
        e = err_set(reterr, HF_EINVAL, "a grace of %lld ms is out of range",
                    (long long)ret->grace_ms);
    if (!e && (ret->max_hold_ms < 0 || ret->max_hold_ms > HF_TTL_MAX_MS))
        e = err_set(reterr, HF_EINVAL, "a max_hold of %lld ms is out of range",
                    (long long)ret->max_hold_ms);
    if (!e && (ret->owner.len > 0 || ret->owner.data))
        e = attempt_check_owner(ret->owner, reterr);
    if (!e && ret->owner.len && (ret->shared || ret->slots))
        e = err_set(reterr, HF_EINVAL,
                    "a caller-chosen owner id is for a lock that one holds alone: leave it out");
    if (!e)
        e = semaphore_check(ret, reterr);
    return e;
}

/* What the client's protocol cannot promise is refused, not faked. */
static hf_err check_protocol(const hf_client *c, const hf_mutex_opts *o, hf_error *reterr)
{
    const unsigned both = CLIENT_SCRIPT | CLIENT_TRANSACTION;
    int64_t skew = plain_skew_ms(c->plain);
    hf_err e = HF_OK;
    if (o->grace_ms > 0)
        e = client_can(c, CLIENT_SCRIPT, "a grace, and with it takeover,", reterr);
    if (!e && o->owner.len)
        e = client_can(c, both, "a caller-chosen owner id", reterr);
    if (!e && (o->shared || o->slots))
        e = client_can(c, both, "a shared lock or a semaphore", reterr);
    if (!e && o->ttl_ms <= 2 * skew)
        e = err_set(reterr, HF_EINVAL,
                    "a ttl of %lld ms with a skew of %lld ms: give more than twice as much",
                    (long long)o->ttl_ms, (long long)skew);
    return e;
}

hf_err hf_mutex_open(hf_client *c, hf_bytes name, const hf_mutex_opts *opts, hf_mutex **ret,
                     hf_error *reterr)
{
    CALL_GUARD;
    if (!c || !ret)
        return err_set(reterr, HF_EINVAL, "no client, or no place for the new handle, was given");
    hf_mutex_opts o;
    struct lock_keys *keys;
    hf_err e = client_enter(c, reterr);
    if (!e)
        e = check_opts(opts, &o, reterr);
    if (!e)
        e = check_protocol(c, &o, reterr);
    if (!e)
        e = names_use(c->names, name, &keys, reterr);
    if (e)
        return e;

    hf_mutex *m = mem_zalloc(sizeof *m);
    char *owner = o.owner.len ? mem_copy(o.owner.data, o.owner.len) : NULL;
    if (!m || (o.owner.len && !owner))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    else
        e = keeper_reserve(c->keeper, reterr);
    if (e) {
        names_leave(c->names, keys, 0);
        mem_free(owner);
        mem_free(m);
        return e;
    }
    client_use(c);
    m->c = c;
    m->opts = o;
    m->opts.owner.data = m->owner = owner;
    m->keys = keys;
    m->lease.keys = keys;
    m->lease.changed = changed;
    m->lease.release = unlock_fully;
    atomic_init(&m->event_fd, -1);
    *ret = m;
    return HF_OK;
}

hf_mutex *hf_mutex_free(hf_mutex *m)
{
    CALL_GUARD;
    if (!m)
        return NULL;
    if (client_enter(m->c, NULL) == HF_OK) {
        if (m->depth)
            (void)unlock_fully(&m->lease, NULL);
        keeper_unreserve(m->c->keeper);
    }
    if (atomic_load(&m->event_fd) >= 0)
        forkguard_close(atomic_load(&m->event_fd)); /* in a forked child it does nothing */
    names_leave(m->c->names, m->keys, m->c->generation != forkguard_generation());
    client_leave(m->c);
    mem_free(m->owner);
    mem_free(m);
    return NULL;
}

void mutex_give_up(hf_mutex *m, int64_t ttl_ms)
{
    struct cancel what = { .keys = m->keys, .token = m->lease.token, .owner = m->opts.owner,
                           .remember = true };
    keeper_give_up(m->c->keeper, &what, ttl_ms);
}

/* ---- unlock ------------------------------------------------------------------------------- */

hf_err mutex_lost(const hf_mutex *m, hf_error *reterr)
{
    char name[120];
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    return err_set(reterr, HF_ELOST, "the lock %s was lost: %s", mutex_shown(m, name, sizeof name),
                   hf_loss_text(loss ? loss : HF_LOSS_EXPIRED));
}

/* Ask the server; *ret_held tells whether it still was ours. */
static hf_err release(hf_mutex *m, bool *ret_held, hf_error *reterr)
{
    const struct lease *l = &m->lease;
    int64_t deadline = client_deadline(m->c);
    if (m->in_doubt) {
        struct cancel what = { .keys = m->keys, .token = l->token, .owner = m->opts.owner,
                               .remember = true };
        return giveup_cancel(m->c, &what, deadline, ret_held, reterr);
    }
    struct greeting *g = &m->keys->home->greeting;
    hf_bytes keys[] = { m->keys->key[KEY_LOCK], hf_str(g->counter), m->keys->key[KEY_QUEUE],
                        m->keys->key[KEY_OWN] };
    char text[LEASE_TEXT_SIZE];
    hf_bytes args[2];
    lease_values(l, text, &args[0], &args[1]);
    struct script_call sc = { .id = SCRIPT_release, .nkeys = 4, .keys = keys,
                              .nargs = m->owner ? 2 : 1, .args = args, .deadline_ms = deadline,
                              .greeting = g };
    if (l->shared) {
        sc.id = SCRIPT_unshare;
        sc.nkeys = 3;
        args[0] = hf_str(l->token);
    }
    hf_err e = script_run(m->c->topo, &sc, reterr);
    if (e)
        return e;
    /* An earlier sending that got no answer may have been the one that released it. */
    *ret_held = sc.in_doubt > 0 || (sc.reply->type == REPLY_INT && sc.reply->num == 1);
    reply_free(sc.reply);
    return HF_OK;
}

static hf_err unlock_fully(struct lease *l, hf_error *reterr)
{
    hf_mutex *m = of_lease(l);
    m->depth = 0;
    if (keeper_remove(m->c->keeper, l) == HF_LOST) {
        hf_loss loss = (hf_loss)atomic_load(&l->loss);
        if (loss == HF_LOSS_EXPIRED || loss == HF_LOSS_MAX_HOLD || m->in_doubt)
            mutex_give_up(m, l->ttl_ms);
        return mutex_lost(m, reterr);
    }
    bool held = false;
    hf_err e = release(m, &held, reterr);
    struct cancel what = { .keys = m->keys, .token = l->token, .owner = m->opts.owner };
    if (!e)
        keeper_released(m->c->keeper, &what);
    if (e) {
        mutex_give_up(m, l->ttl_ms);
        err_prefix(reterr, "not released now, tried again in the background, free at the latest in "
                   "%lld ms", (long long)l->ttl_ms);
        return err_known(reterr, e, HF_NOT_HELD);
    }
    if (held)
        return HF_OK;
    atomic_store(&l->loss, HF_LOSS_TAKEN);
    return mutex_lost(m, reterr);
}

hf_err mutex_not_held(const hf_mutex *m, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTHELD, "%s is not locked by this handle",
                   mutex_shown(m, name, sizeof name));
}

hf_err hf_mutex_unlock(hf_mutex *m, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return mutex_not_held(m, reterr);
    if (m->depth == 1)
        return unlock_fully(&m->lease, reterr);
    m->depth--;
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : mutex_lost(m, reterr);
}

/* ---- while it is held --------------------------------------------------------------------- */

/* Extend ("set", ttl_ms) or verify ("check", 0). */
static hf_err ask(hf_mutex *m, const char *mode, int64_t ttl_ms, hf_error *reterr)
{
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return mutex_not_held(m, reterr);
    struct keeper *k = m->c->keeper;
    if (!keeper_begin(k, &m->lease, ttl_ms))
        return mutex_lost(m, reterr);

    struct renew_answer got;
    e = renew_ask(m->c, &m->lease, mode, ttl_ms, &got, reterr);
    if (e) {
        keeper_unsure(k, &m->lease, ttl_ms, got.in_doubt);
        return e;
    }
    if (got.loss == HF_LOSS_NONE) {
        keeper_proved(k, &m->lease, got.sent_ms, ttl_ms, got.in_doubt);
        return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : mutex_lost(m, reterr);
    }
    keeper_denied(k, &m->lease, got.loss);
    return mutex_lost(m, reterr);
}

hf_err hf_mutex_extend(hf_mutex *m, int64_t ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = attempt_check_ttl(ttl_ms, reterr);
    return e ? e : ask(m, "set", ttl_ms, reterr);
}

hf_err hf_mutex_verify(hf_mutex *m, hf_error *reterr)
{
    CALL_GUARD;
    return ask(m, "check", 0, reterr);
}

hf_err hf_mutex_leave(hf_mutex *m, int64_t ttl_ms, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = ttl_ms ? attempt_check_ttl(ttl_ms, reterr) : HF_OK;
    if (!e)
        e = ask(m, "leave", ttl_ms ? ttl_ms : hf_mutex_time_left_ms(m) + 1, reterr);
    if (e)
        return e;
    keeper_remove(m->c->keeper, &m->lease); /* its value has changed: a renewal would not find it */
    m->depth = 0;
    if (keeper_publish(m->c->keeper, &m->lease, ttl_ms ? ttl_ms : m->lease.ttl_ms, NULL))
        log_to(&m->c->log, HF_LOG_INFO, "a lock is left behind without a record of who held it");
    return HF_OK;
}

int hf_mutex_is_held(const hf_mutex *m)
{
    return client_enter(m->c, NULL) == HF_OK && lease_believed(&m->lease, clock_now_ms());
}

int64_t hf_mutex_time_left_ms(const hf_mutex *m)
{
    int64_t left = atomic_load(&m->lease.until_ms) - clock_now_ms();
    return left > 0 && hf_mutex_is_held(m) ? left : 0;
}

int64_t hf_mutex_full_time_ms(const hf_mutex *m)
{
    int64_t grace = m->lease.grace_ms, ttl = m->opts.ttl_ms;
    return !m->depth ? 0 : grace > 0 && grace < ttl ? grace : ttl;
}

hf_state hf_mutex_state(const hf_mutex *m)
{
    hf_state s = (hf_state)atomic_load(&m->lease.state);
    return s != HF_FREE && !hf_mutex_is_held(m) ? HF_LOST : s;
}

hf_loss hf_mutex_loss(const hf_mutex *m)
{
    if (hf_mutex_state(m) != HF_LOST)
        return HF_LOSS_NONE;
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    /* Our clock says so before the watchdog does. */
    return loss ? loss : lease_why_ended(&m->lease, clock_now_ms());
}

const char *hf_loss_text(hf_loss loss)
{
    switch (loss) {
    case HF_LOSS_NONE: return "not lost";
    case HF_LOSS_TAKEN: return "the server says that it is gone or another's";
    case HF_LOSS_EXPIRED: return "its lease or its grace ended without an answer from the server";
    case HF_LOSS_MAX_HOLD: return "its maximum hold time has passed";
    case HF_LOSS_RELEASED: return "it was released on purpose, by its owner id, elsewhere";
    }
    return "unknown";
}

uint64_t hf_mutex_fence(const hf_mutex *m)
{
    return m->depth ? m->lease.fence : 0;
}

const char *hf_mutex_owner(const hf_mutex *m)
{
    return !m->depth ? "" : m->owner ? m->owner : m->lease.token;
}

hf_err hf_mutex_fd(hf_mutex *m, int *ret_fd, hf_error *reterr)
{
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    int fd = atomic_load(&m->event_fd);
    if (fd < 0) {
        fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (fd >= 0 && forkguard_add(fd) < 0) {
            close(fd);
            return err_set(reterr, HF_ENOMEM, "out of memory");
        }
        if (fd < 0)
            return err_set(reterr, HF_ESYS, "no descriptor for events: %s", strerror(errno));
        atomic_store(&m->event_fd, fd);
    }
    *ret_fd = fd;
    return HF_OK;
}

hf_state hf_mutex_poll(hf_mutex *m)
{
    int fd = atomic_load(&m->event_fd);
    uint64_t drained;
    if (fd >= 0 && m->c->generation == forkguard_generation())
        (void)!read(fd, &drained, sizeof drained);
    return hf_mutex_state(m);
}
