/* SPDX-License-Identifier: MIT
 * sentinel.c - the master that the Sentinels name, followed through failover.
 *
 *  SEN1  A connection is made only to the server that a majority of the configured Sentinels names,
 *      asked after the attempt began, and used only if that server itself says that it is a master.
 *  SEN2  No request leaves more than CONFIRMED_MS after a majority has last named that server;
 *      while something is held or waited for they are asked every POLL_MS. When they name another
 *      one, or no majority has answered for UNCONFIRMED_MS, every connection is closed.
 *  SEN3  A master that keeps nothing on disk and has just started may have come back empty: it is
 *      not used before every lease of its former life has ended.
 *  SEN4  Who is told of a move proves anew, on the new master, what it holds.
 *
 * In a planned failover the old master goes on saying OK for many seconds, and ROLE says master all
 * that time; after a crash it may be back, empty, before anybody has noticed. So neither the
 * connection nor the server can be asked whether it is the right one, and one Sentinel may be out
 * of date.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/thread.h"
#include "net/servererr.h"
#include "topo/sentinels.h"
#include "topo/topo_impl.h"

#define POLL_MS        500
#define CONFIRMED_MS   1000
#define UNCONFIRMED_MS 2000
#define ROUND_MS       500  /* one question to all of them */
#define RESTLESS_MS    3000 /* after news of a switch: until all Sentinels have heard of it */
#define RESTLESS_STEP  100
#define QUARANTINE_MS  HF_TTL_DEFAULT_MS

struct sentinel {
    struct topo            t;
    struct mutex           mu; /* guards the next three; one asks at a time */
    struct sentinels        *sentinels;
    const struct url_host *master;    /* that a majority named last; NULL: never yet */
    bool                   lost;      /* no majority for a while: nothing is used */
    _Atomic int64_t        confirmed_ms;
    atomic_bool            heard;     /* some Sentinel answered the last time */
    atomic_bool            young;     /* the master was refused for its age the last time: SEN3 */
    atomic_bool            warned_info;
    bool                   attended;
    atomic_int             stopping;
    pthread_t              lookout;
    struct alarm           alarm;
};

/* ---- asking ---------------------------------------------------------------------------------- */

/* Every connection that does not lead to the master has to go. */
static void move_locked(struct sentinel *s, const struct url_host *to)
{
    mutex_assert_held(&s->mu);
    char address[300];
    bool first = !s->master;
    if (s->master == to && !s->lost) {
        for (int i = 0; i < LANES; i++) {
            const struct url_host *host = atomic_load(&s->t.lane[i].host);
            if (s->t.lane[i].conn && host && host != to)
                conn_drop(s->t.lane[i].conn, "it is not the master any more");
        }
        return;
    }
    s->master = to;
    s->lost = false;
    if (first)
        return;
    log_to(s->t.log, HF_LOG_INFO, "the Sentinels name a master: %s",
           stream_address(to, address, sizeof address));
    topo_moved(&s->t, "it is not the master any more");
}

/* Ask once; patient: and once more if nobody was heard, for as long as there is time. */
static hf_err ask_locked(struct sentinel *s, const struct limit *lim, bool patient,
                         int64_t *ret_asked_ms, hf_error *reterr)
{
    mutex_assert_held(&s->mu);
    struct sentinels_word word;
    struct limit round = limit_earlier(lim, clock_now_ms() + ROUND_MS);
    hf_err e = sentinels_ask(s->sentinels, &round, &word, reterr);
    if (e == HF_ECONN && !word.answered && patient)
        e = sentinels_ask_patiently(s->sentinels, lim, &word, reterr);
    atomic_store(&s->heard, word.answered > 0);
    if (!e) {
        atomic_store(&s->confirmed_ms, word.asked_ms);
        *ret_asked_ms = word.asked_ms;
        move_locked(s, word.master);
        return HF_OK;
    }
    if (!s->lost && s->master && clock_now_ms() - atomic_load(&s->confirmed_ms) > UNCONFIRMED_MS) {
        log_to(s->t.log, HF_LOG_WARNING, "no majority of the Sentinels names a master: nothing is "
               "used until one does");
        s->lost = true;
        topo_moved(&s->t, "no majority of the Sentinels names it any more");
    }
    return e;
}

/* Ask, unless another has done so not longer ago than age_ms. */
static void confirm(struct sentinel *s, int64_t age_ms, const atomic_int *stop)
{
    struct limit lim = { CLOCK_NEVER, stop }; /* a round has its own */
    int64_t asked;
    if (!limit_lock(&lim, &s->mu))
        return;
    if (clock_now_ms() - atomic_load(&s->confirmed_ms) > age_ms)
        (void)!ask_locked(s, &lim, false, &asked, NULL);
    mutex_unlock(&s->mu);
}

/* SEN2, for a client that did nothing for a while. Without a connection whoever makes one asks. */
static bool unsure(const struct topo *t)
{
    const struct sentinel *s = (const struct sentinel *)t;
    bool up = false;
    if (clock_now_ms() - atomic_load(&s->confirmed_ms) <= CONFIRMED_MS)
        return false;
    for (int i = 0; i < LANES; i++)
        up |= t->lane[i].conn && conn_epoch(t->lane[i].conn);
    return up;
}

static void use(struct topo *t)
{
    if (unsure(t))
        confirm((struct sentinel *)t, CONFIRMED_MS, NULL);
}

static hf_err count_replicas(struct sentinel *s, const struct limit *lim, hf_error *reterr)
{
    int n;
    hf_err e = sentinels_replicas(s->sentinels, lim, &n, reterr);
    if (!e) /* with the master itself more than half of n + 1 */
        atomic_store(&s->t.replicas, (n + 1) / 2);
    return e;
}

/* Whoever asks them keeps the lock meanwhile: nobody waits for that longer than it has time. */
static hf_err lock_in_time(struct sentinel *s, const struct limit *lim, hf_error *reterr)
{
    return limit_lock(lim, &s->mu)
               ? HF_OK : err_set(reterr, HF_ECONN, "the Sentinels did not answer in time");
}

static hf_err locate(struct topo *t, hf_bytes key, const struct limit *lim,
                     const struct url_host **ret, hf_error *reterr)
{
    (void)key;
    struct sentinel *s = (struct sentinel *)t;
    int64_t begun = clock_now_ms(), asked = 0;
    hf_err e = lock_in_time(s, lim, reterr);
    if (e)
        return e;
    while (!e && asked < begun)
        e = ask_locked(s, lim, !s->master, &asked, reterr);
    *ret = s->master;
    if (!e && t->url->replicas == URL_MAJORITY)
        e = count_replicas(s, lim, reterr);
    mutex_unlock(&s->mu);
    return e;
}

static bool try_again(struct topo *t, int tries)
{
    (void)tries;
    const struct sentinel *s = (const struct sentinel *)t;
    /* They are there: a failover may be under way. A quarantine takes longer than one. */
    return atomic_load(&s->heard) && !atomic_load(&s->young);
}

/* ---- is it the right server? ----------------------------------------------------------------- */

static hf_err check_role(struct link *l, const struct url_host *host, const struct limit *lim,
                         hf_error *reterr)
{
    struct reply *rp;
    char address[300];
    hf_bytes role[] = { hf_str("ROLE") };
    hf_err e = link_exchange(l, 1, role, lim, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR)
        e = server_refusal(rp, reterr);
    else if (rp->type != REPLY_ARRAY || rp->len < 1 || rp->item[0]->type != REPLY_BULK)
        e = err_set(reterr, HF_EPROTO, "the answer to ROLE makes no sense");
    else if (strcmp(rp->item[0]->str, "master") != 0)
        e = err_set(reterr, HF_ECONN,
                    "the Sentinels name %s, which is not a master now: a failover may be under way",
                    stream_address(host, address, sizeof address));
    reply_free(rp);
    return e;
}

#define NOT_THERE (-2)
#define NO_NUMBER (-3)

/* The number behind "name:" in the text of INFO; or one of the above. */
static long long info_number(const char *info, const char *name)
{
    const char *at = strstr(info, name);
    if (!at)
        return NOT_THERE;
    at += strlen(name);
    size_t minus = *at == '-', digits = strspn(at + minus, "0123456789");
    bool ends = strchr("\r\n", at[minus + digits]) != NULL; /* or the text does */
    return digits > 0 && digits < 16 && ends ? strtoll(at, NULL, 10) : NO_NUMBER;
}

/* SEN3. A replica that was promoted has its data from its master, however young it is: it has a
 * second replication id. */
static hf_err check_age(struct sentinel *s, struct link *l, const struct url_host *host,
                        const struct limit *lim, hf_error *reterr)
{
    static const char *const section[] = { "server", "replication", "persistence" };
    static const char *const field[] = { "uptime_in_seconds:", "second_repl_offset:",
                                         "aof_enabled:" };
    long long value[3];
    int64_t quarantine = s->t.url->quarantine_ms >= 0 ? s->t.url->quarantine_ms : QUARANTINE_MS;
    char address[300];
    for (int i = 0; i < 3; i++) {
        struct reply *rp;
        hf_bytes info[] = { hf_str("INFO"), hf_str(section[i]) };
        hf_err e = link_exchange(l, 2, info, lim, &rp, reterr);
        if (e)
            return e;
        value[i] = rp->type == REPLY_BULK ? info_number(rp->str, field[i]) : NOT_THERE;
        reply_free(rp);
        if (value[i] == NO_NUMBER)
            return err_set(reterr, HF_EPROTO, "what %s says of %s makes no sense: look at INFO %s "
                           "there", stream_address(host, address, sizeof address), field[i],
                           section[i]);
        if (value[i] == NOT_THERE && !atomic_exchange(&s->warned_info, true))
            log_to(s->t.log, HF_LOG_WARNING, "this user may not run INFO: a master that came back "
                   "empty cannot be told from another (see docs/acl.md)");
        if (value[i] == NOT_THERE)
            return HF_OK;
    }
    /* Whole seconds of the clock, the last one of which may have just begun. */
    int64_t age_ms = value[0] > 0 ? (value[0] - 1) * 1000 : 0;
    bool young = value[1] < 0 && value[2] != 1 && age_ms < quarantine;
    atomic_store(&s->young, young);
    if (!young)
        return HF_OK;
    return err_set(reterr, HF_ECONN,
                   "the master %s started %lld s ago and keeps nothing on disk, so it may have "
                   "come back empty: it is not used for another %lld s, until the old leases have "
                   "ended; wait, or set appendonly yes there (docs/topologies.md)",
                   stream_address(host, address, sizeof address), value[0],
                   (long long)(quarantine - age_ms + 999) / 1000);
}

static hf_err check(struct topo *t, const struct url_host *host, struct link *l,
                    const struct limit *lim, hf_error *reterr)
{
    struct sentinel *s = (struct sentinel *)t;
    hf_err e = check_role(l, host, lim, reterr);
    if (!e)
        e = check_age(s, l, host, lim, reterr);
    if (!e)
        e = lock_in_time(s, lim, reterr);
    if (e)
        return e;
    if (s->master != host || s->lost)
        e = err_set(reterr, HF_ECONN, "the master changed while we connected to it");
    mutex_unlock(&s->mu);
    return e;
}

/* ---- the lookout ----------------------------------------------------------------------------- */

/* Somebody may have made it a replica by hand: then no Sentinel tells, and our next write may be
 * far. */
static void look_at_role(struct sentinel *s)
{
    struct conn *cn = s->t.lane[LANE_PLAIN].conn;
    hf_bytes role[] = { hf_str("ROLE") };
    struct exchange call = { .deadline_ms = clock_now_ms() + POLL_MS, .stop = &s->stopping };
    if (!conn_epoch(cn) || conn_call(cn, 1, role, &call, NULL))
        return;
    const struct reply *rp = call.reply;
    bool demoted = rp->type == REPLY_ARRAY && rp->len > 0 && rp->item[0]->type == REPLY_BULK
                   && strcmp(rp->item[0]->str, "master") != 0;
    reply_free(call.reply);
    if (demoted)
        topo_moved(&s->t, "it is a replica now");
}

static void *lookout_main(void *arg)
{
    struct sentinel *s = arg;
    int64_t next = 0, restless_until = 0;
    while (!atomic_load(&s->stopping)) {
        int64_t now = clock_now_ms();
        enum topo_use busy = s->t.events.use(s->t.events.arg);
        bool restless = now < restless_until;
        if ((busy || restless) && now >= next) {
            confirm(s, RESTLESS_STEP / 2, &s->stopping);
            if (busy == TOPO_HOLDS)
                look_at_role(s);
            next = clock_now_ms() + (restless ? RESTLESS_STEP : POLL_MS);
        }
        int64_t until = busy || restless ? next : now + POLL_MS;
        if (sentinels_listen(s->sentinels, s->alarm.ring_fd, until, &s->stopping)) {
            restless_until = clock_now_ms() + RESTLESS_MS;
            next = 0;
        }
    }
    return NULL;
}

static hf_err attend(struct topo *t, hf_error *reterr)
{
    struct sentinel *s = (struct sentinel *)t;
    int e = alarm_open(&s->alarm) < 0 ? errno : 0;
    if (!e) {
        e = thread_start(&s->lookout, "hf-sentinel", lookout_main, s);
        if (e)
            alarm_close(&s->alarm);
    }
    s->attended = !e;
    return e ? err_set(reterr, HF_ESYS, "cannot start the thread that watches the Sentinels: %s",
                       strerror(e))
             : HF_OK;
}

static void unattend(struct topo *t)
{
    struct sentinel *s = (struct sentinel *)t;
    if (!s->attended)
        return;
    atomic_store(&s->stopping, 1);
    alarm_ring(&s->alarm);
    thread_join(s->lookout);
    alarm_close(&s->alarm);
    s->attended = false;
}

static void clear(struct topo *t)
{
    sentinels_free(((struct sentinel *)t)->sentinels);
}

/* The grace must outlast a failover, else locks are lost in one. */
static const struct topo_ops ops = {
    .locate = locate, .check = check, .use = use, .unsure = unsure, .try_again = try_again,
    .attend = attend, .unattend = unattend, .clear = clear, .grace_ms = 15000, .outage_ms = 90000,
};

hf_err sentinel_new(struct url *u, const struct log *log, struct topo **ret, hf_error *reterr)
{
    struct sentinel *s = mem_zalloc(sizeof *s);
    if (!s || !(s->sentinels = sentinels_new(u, log))) {
        mem_free(s);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    mutex_init(&s->mu, MUTEX_SENTINEL);
    s->t.ops = &ops;
    topo_show(&s->t, u, "sentinel");
    *ret = &s->t;
    return HF_OK;
}
