/* SPDX-License-Identifier: MIT
 * conn_up.c - how a connection comes up: by whoever leads it, or by a thread for an event loop.
 *
 * A blocking caller connects itself, within its own limit. An event loop must not wait: when only
 * its requests are there, a thread is started that connects, and ends.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/epoch.h"
#include "base/err.h"
#include "base/random.h"
#include "base/thread.h"
#include "net/conn_impl.h"
#include "net/loop.h"

#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000

/* Thread: the leader. Holds: nothing. */
static hf_err bring_up(struct conn *cn, const struct limit *lim, hf_error *reterr)
{
    struct limit own = limit_earlier(lim, clock_add(clock_now_ms(), cn->connect_timeout_ms));
    const struct url_host *host = cn->host;
    hf_err e = cn->hooks.prepare ? cn->hooks.prepare(cn->hooks.arg, &own, &host, reterr) : HF_OK;
    if (!e)
        e = link_open(&cn->link, cn->url, host, &own, reterr);
    if (!e && cn->hooks.greet) {
        e = cn->hooks.greet(cn->hooks.arg, &cn->link, &own, reterr);
        struct reply *stray = NULL;
        if (!e && (link_next(&cn->link, &stray) || stray))
            e = err_set(reterr, HF_EPROTO, "the server said more than it was asked");
        reply_free(stray);
        if (!e)
            e = link_flush(&cn->link, &own, reterr);
        if (e)
            link_close(&cn->link, false);
    }
    return e;
}

static void is_up_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    cn->retry_at_ms = cn->backoff_ms = 0;
    snprintf(cn->where, sizeof cn->where, "%s", cn->link.shown);
    cn->up = true;
    cn->epoch = epoch_next();
    atomic_store(&cn->stands, cn->epoch);
    atomic_store(&cn->notes, 0);
    cn->watches_out = false;
    if (cn->loop)
        loop_watch(cn->loop, cn, cn->link.stream->fd, false, false);
}

/* Holds: mu, released meanwhile. Caller leads. One attempt. */
static hf_err connect_locked(struct conn *cn, const struct limit *lim, hf_error *reterr)
{
    mutex_assert_held(&cn->mu);
    hf_error reason = { 0 };

    mutex_unlock(&cn->mu);
    hf_err e = bring_up(cn, lim, &reason);
    mutex_lock(&cn->mu);

    if (e) {
        if (reterr)
            *reterr = reason;
        snprintf(cn->why, sizeof cn->why, "%s", reason.message);
        int64_t step = cn->backoff_ms ? cn->backoff_ms : BACKOFF_MIN_MS;
        cn->retry_at_ms = clock_now_ms() + random_between(step / 2, step);
        cn->backoff_ms = 2 * step < BACKOFF_MAX_MS ? 2 * step : BACKOFF_MAX_MS;
    } else {
        is_up_locked(cn);
    }
    return e;
}

hf_err conn_connect(struct conn *cn, const struct limit *lim, hf_error *reterr)
{
    hf_err e = HF_OK;
    mutex_lock(&cn->mu);
    if (!cn->up && !cn->led) {
        cn->led = true;
        e = connect_locked(cn, lim, reterr);
        cn->led = false;
        conn_pass_lead_locked(cn);
    }
    mutex_unlock(&cn->mu);
    return e;
}

/* An attempt has failed with e, or is not made now: who does not want to wait for
 * another need not. */
static void fail_impatient_locked(struct conn *cn, hf_err e)
{
    mutex_assert_held(&cn->mu);
    bool final = e != HF_ECONN && e != HF_EBUSY; /* trying again would not help */
    struct request *next;
    for (struct request *r = cn->unsent.head; r; r = next) {
        next = r->next;
        if ((final || r->impatient) && !r->orphan && queue_unlink(&cn->unsent, r))
            request_finish(r, e, NULL);
    }
}

void conn_come_up_locked(struct conn *cn, const struct request *r, const struct limit *lim)
{
    mutex_assert_held(&cn->mu);
    int64_t now = clock_now_ms();
    if (now < cn->retry_at_ms) {
        fail_impatient_locked(cn, HF_ECONN);
        if (r && request_done(r))
            return;
        int64_t until = clock_earlier(now + STREAM_TICK_MS, cn->retry_at_ms);
        mutex_unlock(&cn->mu);
        clock_sleep_until(until);
        mutex_lock(&cn->mu);
        return;
    }
    hf_err e = connect_locked(cn, lim, NULL);
    /* An attempt that was given up says nothing about the server. */
    if (e && !limit_over(lim))
        fail_impatient_locked(cn, e);
}

/* ---- for an event loop -------------------------------------------------------------------- */

static bool anybody_waits_locked(const struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    for (const struct request *r = cn->unsent.head; r; r = r->next)
        if (!r->orphan)
            return true;
    return false;
}

/* Somebody has to connect, and nobody does. */
static bool wanted_locked(const struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    return !cn->up && !cn->led && anybody_waits_locked(cn) && !atomic_load(&cn->closing);
}

static void *connector_main(void *arg)
{
    struct conn *cn = arg;
    struct limit lim = { .stop = &cn->unwanted };
    mutex_lock(&cn->mu);
    do {
        while (wanted_locked(cn)) {
            cn->led = true;
            atomic_store(&cn->unwanted, 0);
            lim.at_ms = clock_add(clock_now_ms(), cn->connect_timeout_ms);
            conn_come_up_locked(cn, NULL, &lim);
            cn->led = false;
            if (cn->up)
                conn_flush_locked(cn);
        }
        conn_pass_lead_locked(cn); /* it starts no other thread as long as we are connecting */
    } while (wanted_locked(cn));
    cn->connecting = false;
    mutex_unlock(&cn->mu);
    return NULL;
}

void conn_connect_in_background_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (cn->connecting || !wanted_locked(cn))
        return;
    if (cn->connector_started) /* it has let go of mu, or is about to */
        thread_join(cn->connector);
    int e = thread_start(&cn->connector, "hf-connect", connector_main, cn);
    cn->connecting = cn->connector_started = e == 0;
    if (e) {
        snprintf(cn->why, sizeof cn->why, "cannot start a thread to connect: %s", strerror(e));
        fail_impatient_locked(cn, HF_ESYS);
    }
}

void conn_unwanted_locked(struct conn *cn)
{
    mutex_assert_held(&cn->mu);
    if (cn->connecting && !anybody_waits_locked(cn))
        atomic_store(&cn->unwanted, 1);
}

void conn_stop_connecting(struct conn *cn)
{
    mutex_lock(&cn->mu);
    atomic_store(&cn->closing, 1);
    atomic_store(&cn->unwanted, 1);
    bool started = cn->connector_started;
    cn->connector_started = false;
    mutex_unlock(&cn->mu);
    if (started)
        thread_join(cn->connector);
}
