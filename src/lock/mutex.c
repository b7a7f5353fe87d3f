/* SPDX-License-Identifier: MIT
 * mutex.c - one owner at a time.
 *
 *  M1  While one handle holds the lock, judged by the server's clock, no other is granted it. (P1)
 *  M2  Unlock, extend and verify act only if the lock still is this grant's. (P2)
 *  M3  Each grant's number is larger than those of all earlier grants of the name. (P4)
 *  M4  is_held is false, and the loss told, before anybody else can be granted the lock. (P5)
 *  M5  A lost reply never makes two grants of one, nor a lock that nobody holds. (P8)
 *  M6  Nothing of an unlocked mutex is renewed, and no key of it stays. (P9)
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "session/attempt.h"
#include "session/giveup.h"
#include "session/renew.h"

/* How long a waiter puts up with a server that cannot be reached before it says so. */
#define UNREACHABLE_MS 30000

struct hf_mutex {
    struct lease      lease;
    hf_client        *c;
    struct lock_keys *keys;
    hf_mutex_opts     opts;
    char             *owner;      /* caller-chosen id, or NULL */
    unsigned          depth;      /* re-entries; 0: not locked */
    bool              in_doubt;   /* copies of the acquire may still be under way */
    atomic_int        cancelled;
    struct park       turn;       /* where lock() waits */
    atomic_int        event_fd;   /* -1 until somebody asks for it */
};

static hf_mutex *of_lease(struct lease *l)
{
    return (hf_mutex *)((char *)l - offsetof(hf_mutex, lease));
}

static const char *shown(const hf_mutex *m, char *buf, size_t size)
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
        e = keys_new(c->prefix, name, &keys, reterr);
    if (e)
        return e;

    hf_mutex *m = mem_zalloc(sizeof *m);
    char *owner = o.owner.len ? mem_copy(o.owner.data, o.owner.len) : NULL;
    if (!m || (o.owner.len && !owner))
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    else
        e = keeper_reserve(c->keeper, reterr);
    if (e) {
        keys_free(keys);
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
    client_leave(m->c);
    keys_free(m->keys);
    mem_free(m->owner);
    mem_free(m);
    return NULL;
}

/* ---- lock --------------------------------------------------------------------------------- */

/* The server said yes: what it holds now, exactly as it is there, and from when on we count. */
static hf_err begin_hold(hf_mutex *m, const struct attempt *a, hf_error *reterr)
{
    struct lease *l = &m->lease;
    if (clock_now_ms() >= lease_end(a->sent_ms, a->ttl_ms)) {
        keeper_give_up(m->c->keeper, m->keys, a->token, a->owner, a->ttl_ms);
        return err_set(reterr, HF_ETIMEDOUT,
                       "the grant came %lld ms after its request, when its lease of %lld ms was "
                       "over: choose a longer ttl", (long long)(clock_now_ms() - a->sent_ms),
                       (long long)a->ttl_ms);
    }
    if (m->owner) {
        memcpy(l->value, m->owner, m->opts.owner.len);
        l->value[m->opts.owner.len] = '\0';
        l->value_len = m->opts.owner.len;
        snprintf(l->own, sizeof l->own, "%s:%llu", l->token, (unsigned long long)a->fence);
    } else {
        l->value_len = (size_t)snprintf(l->value, sizeof l->value, "%s:%llu:%lld", l->token,
                                        (unsigned long long)a->fence, (long long)a->grace_ms);
        l->own[0] = '\0';
    }
    l->fence = a->fence;
    l->renew = !m->opts.no_renew;
    l->hold_until_ms = m->opts.max_hold_ms ? a->sent_ms + m->opts.max_hold_ms : CLOCK_NEVER;
    m->in_doubt = a->in_doubt > 0;
    m->depth = 1;
    keeper_add(m->c->keeper, l, a->sent_ms, a->ttl_ms);
    return HF_OK;
}

static hf_err reenter(hf_mutex *m, uint64_t *ret_fence, hf_error *reterr)
{
    if (!lease_believed(&m->lease, clock_now_ms()))
        return err_set(reterr, HF_ELOST,
                       "the lock was lost while this handle held it: unlock it before you lock it "
                       "again");
    m->depth++;
    if (ret_fence)
        *ret_fence = m->lease.fence;
    return HF_OK;
}

/* Whether a failed attempt is no reason to stop waiting. */
static bool passes(hf_err e, int64_t now, int64_t reached_ms)
{
    return e == HF_EBUSY || ((e == HF_ECONN || e == HF_EUNSURE) && now - reached_ms < UNREACHABLE_MS);
}

static hf_err acquire(hf_mutex *m, struct attempt *a, int64_t wait_ms, hf_error *reterr)
{
    int64_t reached_ms = clock_now_ms();
    int64_t deadline = wait_ms < 0 ? CLOCK_NEVER : clock_add(reached_ms, wait_ms);

    for (unsigned round = 0;; round++) {
        int64_t limit = client_deadline(m->c);
        if (wait_ms != 0 && deadline < limit)
            limit = deadline;
        hf_err e = attempt_run(m->c, a, limit, reterr);
        int64_t now = clock_now_ms();
        if (e == HF_EBUSY)
            reached_ms = now;
        if (!e) {
            e = begin_hold(m, a, reterr);
            if (e != HF_ETIMEDOUT || wait_ms == 0 || now >= deadline)
                return e;
            /* Its lease was over before we knew of it: once more, as somebody else. */
            m->lease.sequence = client_token(m->c, m->lease.token, sizeof m->lease.token);
            a->in_doubt = 0;
            continue;
        }
        if (atomic_load(&m->cancelled))
            e = err_set(reterr, HF_ECANCELED, "the wait was cancelled");
        else if (wait_ms != 0 && passes(e, now, reached_ms) && now < deadline) {
            attempt_wait_turn(a, &m->turn, round, deadline);
            if (!atomic_load(&m->cancelled) && clock_now_ms() < deadline)
                continue;
            if (atomic_load(&m->cancelled))
                e = err_set(reterr, HF_ECANCELED, "the wait was cancelled");
        }
        if (e == HF_EBUSY && wait_ms != 0) {
            char name[120];
            e = err_set(reterr, HF_ETIMEDOUT,
                        "%s was not obtained in %lld ms: another owner holds it",
                        shown(m, name, sizeof name), (long long)wait_ms);
        }
        return attempt_abandon(m->c, a, e, reterr);
    }
}

hf_err hf_mutex_lock(hf_mutex *m, int64_t wait_ms, uint64_t *ret_fence, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (wait_ms < HF_WAIT_FOREVER)
        return err_set(reterr, HF_EINVAL, "a wait of %lld ms: give 0, more, or HF_WAIT_FOREVER",
                       (long long)wait_ms);
    if (m->depth)
        return reenter(m, ret_fence, reterr);
    if (atomic_exchange(&m->cancelled, 0))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");

    m->lease.sequence = client_token(m->c, m->lease.token, sizeof m->lease.token);
    struct attempt a = { .keys = m->keys, .token = m->lease.token, .owner = m->opts.owner,
                         .ttl_ms = m->opts.ttl_ms, .stop = &m->cancelled };
    e = acquire(m, &a, wait_ms, reterr);
    atomic_store(&m->cancelled, 0);
    if (!e && ret_fence)
        *ret_fence = a.fence;
    return e;
}

hf_err hf_mutex_trylock(hf_mutex *m, uint64_t *ret_fence, hf_error *reterr)
{
    return hf_mutex_lock(m, 0, ret_fence, reterr);
}

void hf_mutex_cancel(hf_mutex *m)
{
    atomic_store(&m->cancelled, 1);
    park_wake(&m->turn);
}

/* ---- unlock ------------------------------------------------------------------------------- */

static hf_err lost(const hf_mutex *m, hf_error *reterr)
{
    char name[120];
    hf_loss loss = (hf_loss)atomic_load(&m->lease.loss);
    return err_set(reterr, HF_ELOST, "%s: %s", shown(m, name, sizeof name),
                   hf_loss_text(loss ? loss : HF_LOSS_EXPIRED));
}

/* Ask the server; *ret_held tells whether it still was ours. */
static hf_err release(hf_mutex *m, bool *ret_held, hf_error *reterr)
{
    const struct lease *l = &m->lease;
    int64_t deadline = client_deadline(m->c);
    if (m->in_doubt)
        return giveup_cancel(m->c->topo, m->keys, l->token, m->opts.owner, deadline, ret_held,
                             reterr);

    size_t n = m->owner ? 2 : 1;
    hf_bytes keys[] = { m->keys->key[KEY_LOCK], m->keys->key[KEY_OWN] };
    hf_bytes args[] = { { l->value, l->value_len }, hf_str(l->own) };
    struct script_call sc = { .id = SCRIPT_release, .nkeys = n, .keys = keys, .nargs = n,
                              .args = args, .deadline_ms = deadline };
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
            keeper_give_up(m->c->keeper, m->keys, l->token, m->opts.owner, l->ttl_ms);
        return lost(m, reterr);
    }
    bool held = false;
    hf_err e = release(m, &held, reterr);
    if (e) {
        keeper_give_up(m->c->keeper, m->keys, l->token, m->opts.owner, l->ttl_ms);
        err_prefix(reterr, "not released now, tried again in the background, free at the latest in "
                   "%lld ms", (long long)l->ttl_ms);
        return err_known(reterr, e, HF_NOT_HELD);
    }
    if (held)
        return HF_OK;
    atomic_store(&l->loss, HF_LOSS_TAKEN);
    return lost(m, reterr);
}

static hf_err not_held(const hf_mutex *m, hf_error *reterr)
{
    char name[120];
    return err_set(reterr, HF_ENOTHELD, "%s is not locked by this handle",
                   shown(m, name, sizeof name));
}

hf_err hf_mutex_unlock(hf_mutex *m, hf_error *reterr)
{
    CALL_GUARD;
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return not_held(m, reterr);
    if (m->depth == 1)
        return unlock_fully(&m->lease, reterr);
    m->depth--;
    return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lost(m, reterr);
}

/* ---- while it is held --------------------------------------------------------------------- */

/* Extend ("set", ttl_ms) or verify ("check", 0). */
static hf_err ask(hf_mutex *m, const char *mode, int64_t ttl_ms, hf_error *reterr)
{
    hf_err e = client_enter(m->c, reterr);
    if (e)
        return e;
    if (m->depth == 0)
        return not_held(m, reterr);
    struct keeper *k = m->c->keeper;
    if (!keeper_begin(k, &m->lease, ttl_ms))
        return lost(m, reterr);

    struct renew_answer got;
    e = renew_ask(m->c, &m->lease, mode, ttl_ms, &got, reterr);
    if (e) {
        keeper_unsure(k, &m->lease, ttl_ms, got.in_doubt);
        return e;
    }
    if (got.loss == HF_LOSS_NONE) {
        keeper_proved(k, &m->lease, got.sent_ms, ttl_ms, got.in_doubt);
        return lease_believed(&m->lease, clock_now_ms()) ? HF_OK : lost(m, reterr);
    }
    keeper_denied(k, &m->lease, got.loss);
    return lost(m, reterr);
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
        e = ask(m, ttl_ms ? "set" : "check", ttl_ms, reterr);
    if (e)
        return e;
    if (keeper_publish(m->c->keeper, &m->lease, ttl_ms ? ttl_ms : m->lease.ttl_ms, NULL))
        log_to(&m->c->log, HF_LOG_INFO, "a lock is left behind without a record of who held it");
    keeper_remove(m->c->keeper, &m->lease);
    m->depth = 0;
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
    return loss ? loss : HF_LOSS_EXPIRED; /* our clock says so before the watchdog does */
}

const char *hf_loss_text(hf_loss loss)
{
    switch (loss) {
    case HF_LOSS_NONE: return "not lost";
    case HF_LOSS_TAKEN: return "the lock was lost: the server says that it is gone or another's";
    case HF_LOSS_EXPIRED: return "the lock was lost: its lease ended without an answer from the server";
    case HF_LOSS_MAX_HOLD: return "the lock was given up: its maximum hold time has passed";
    case HF_LOSS_RELEASED: return "the lock was released on purpose, by its owner id, elsewhere";
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
