/* SPDX-License-Identifier: MIT
 * inbox.c - the session's subscription: where wake-ups arrive, and the proof that we live.
 */
#include "session/inbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/random.h"
#include "net/servererr.h"

#define CONNECT_MS     5000
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000
#define IDLE_PING_MS   20000 /* nobody holds anything: just to notice a dead connection */
#define HOPEFUL_MS     1000  /* down for longer: nobody is made to wait for it any more */
#define SILENCE_MS     5000  /* a ping unanswered for longer: the connection is dead */

struct inbox {
    struct topo        *topo;
    char               *channel;
    struct inbox_events events;
    const struct log   *log;
    pthread_t           thread;
    struct alarm        alarm;
    struct link         link;  /* this and the next: the thread's alone */
    unsigned            moves; /* of the topology, when the subscription was made */

    pthread_mutex_t     mu;
    pthread_cond_t      changed;
    bool                stopping, refused;
    int64_t             down_since_ms;
    unsigned            epoch;     /* of the subscription that stands; 0: none does */
    unsigned            last_epoch;
    int64_t             proof_ms;  /* within this epoch */
    int64_t             interval_ms;
    bool                ping_wanted;
};

/* ---- one subscription ---------------------------------------------------------------------- */

static bool is_push(const struct reply *rp, const char *kind, size_t len)
{
    return rp->type == REPLY_ARRAY && rp->len == len && rp->item[0]->str
           && strcmp(rp->item[0]->str, kind) == 0;
}

static hf_err subscribe(struct inbox *in, int64_t *ret_sent_ms, hf_error *reterr)
{
    int64_t deadline = clock_now_ms() + CONNECT_MS;
    hf_bytes argv[] = { hf_str("SUBSCRIBE"), hf_str(in->channel) };
    struct reply *rp;
    in->moves = topo_moves(in->topo);
    hf_err e = topo_link(in->topo, argv[1], &in->link, deadline, reterr);
    if (e)
        return e;
    *ret_sent_ms = clock_now_ms();
    e = link_exchange(&in->link, 2, argv, deadline, &rp, reterr);
    if (!e) {
        if (rp->type == REPLY_ERROR)
            e = server_refusal(rp, reterr);
        else if (!is_push(rp, "subscribe", 3))
            e = err_set(reterr, HF_EPROTO, "the answer to SUBSCRIBE makes no sense");
        reply_free(rp);
    }
    if (e)
        link_close(&in->link, false);
    return e;
}

static void set_proof(struct inbox *in, int64_t sent_ms)
{
    pthread_mutex_lock(&in->mu);
    unsigned epoch = in->epoch;
    in->proof_ms = sent_ms;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
    in->events.proved(in->events.arg, epoch, sent_ms);
}

/* Wait for bytes, a ring or the deadline. */
static bool wait_readable(struct inbox *in, int64_t until_ms)
{
    int64_t left = until_ms - clock_now_ms();
    struct pollfd p[2] = { { .fd = in->link.stream->fd, .events = POLLIN },
                           { .fd = in->alarm.ring_fd, .events = POLLIN } };
    poll(p, 2, left < 0 ? 0 : left > 1000 ? 1000 : (int)left);
    if (p[1].revents)
        alarm_wait(&in->alarm, 1); /* in the past: only reads the ring empty */
    return p[0].revents != 0;
}

/* Read what is there and hand it on. False: the connection is over. */
static bool take_in(struct inbox *in, int64_t *ping_sent_ms)
{
    ssize_t n = in->link.stream->ops->read(in->link.stream, in->link.buffer,
                                           sizeof in->link.buffer);
    if (n < 0 || (n > 0 && resp_feed(in->link.resp, in->link.buffer, (size_t)n)))
        return false;
    for (;;) {
        struct reply *rp;
        if (resp_next(in->link.resp, &rp))
            return false;
        if (!rp)
            return true;
        bool known = true;
        if (is_push(rp, "message", 3) && rp->item[2]->str)
            in->events.message(in->events.arg, rp->item[2]->str, rp->item[2]->len);
        else if (is_push(rp, "pong", 2) && *ping_sent_ms) {
            set_proof(in, *ping_sent_ms);
            *ping_sent_ms = 0;
        } else {
            known = false;
        }
        reply_free(rp);
        if (!known)
            return false;
    }
}

/* Until the connection is over or we shall stop. */
static void listen_on(struct inbox *in)
{
    int64_t ping_sent_ms = 0, last_ping_ms = clock_now_ms();
    hf_bytes ping[] = { hf_str("PING") };

    for (;;) {
        pthread_mutex_lock(&in->mu);
        bool stop = in->stopping, wanted = in->ping_wanted;
        int64_t due = clock_add(last_ping_ms, in->interval_ms);
        in->ping_wanted = wanted && ping_sent_ms;
        pthread_mutex_unlock(&in->mu);
        int64_t now = clock_now_ms();
        if (stop || (ping_sent_ms && now - ping_sent_ms > SILENCE_MS)
            || topo_moves(in->topo) != in->moves)
            return;
        if (!ping_sent_ms && (wanted || now >= due)) {
            ping_sent_ms = last_ping_ms = now;
            if (link_send(&in->link, 1, ping, now + SILENCE_MS, NULL))
                return;
        }
        int64_t until = ping_sent_ms ? ping_sent_ms + SILENCE_MS : due;
        if (wait_readable(in, until) && !take_in(in, &ping_sent_ms))
            return;
    }
}

static void *inbox_main(void *arg)
{
    struct inbox *in = arg;
    int64_t backoff = BACKOFF_MIN_MS, sent_ms;
    hf_error err;

    pthread_mutex_lock(&in->mu);
    while (!in->stopping) {
        pthread_mutex_unlock(&in->mu);
        hf_err e = subscribe(in, &sent_ms, &err);
        pthread_mutex_lock(&in->mu);
        if (e == HF_EAUTH || e == HF_ECONFIG) {
            log_to(in->log, HF_LOG_WARNING,
                   "no subscription: %s; waiting is by polling, and a crash costs the ttl",
                   err.message);
            in->refused = true;
            pthread_cond_broadcast(&in->changed);
            break;
        }
        if (!e) {
            in->epoch = ++in->last_epoch;
            in->proof_ms = sent_ms;
            pthread_cond_broadcast(&in->changed);
            backoff = BACKOFF_MIN_MS;
            unsigned epoch = in->epoch;
            pthread_mutex_unlock(&in->mu);
            in->events.up(in->events.arg, epoch);
            listen_on(in);
            link_close(&in->link, false);
            pthread_mutex_lock(&in->mu);
            in->epoch = 0;
            in->down_since_ms = clock_now_ms();
        }
        if (!in->stopping) {
            int64_t until = clock_now_ms() + random_between(backoff / 2, backoff);
            backoff = 2 * backoff < BACKOFF_MAX_MS ? 2 * backoff : BACKOFF_MAX_MS;
            pthread_mutex_unlock(&in->mu);
            alarm_wait(&in->alarm, until);
            pthread_mutex_lock(&in->mu);
        }
    }
    pthread_mutex_unlock(&in->mu);
    return NULL;
}

/* ---- for the others ------------------------------------------------------------------------- */

hf_err inbox_open(struct topo *t, const char *channel, const struct inbox_events *events,
                  const struct log *log, struct inbox **ret, hf_error *reterr)
{
    struct inbox *in = mem_zalloc(sizeof *in);
    if (!in || !(in->channel = mem_copy(channel, strlen(channel))) || link_init(&in->link) < 0) {
        if (in)
            mem_free(in->channel);
        mem_free(in);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    in->topo = t;
    in->events = *events;
    in->log = log;
    in->interval_ms = IDLE_PING_MS;
    in->down_since_ms = clock_now_ms();
    pthread_mutex_init(&in->mu, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&in->changed, &attr);
    pthread_condattr_destroy(&attr);

    int e = alarm_open(&in->alarm) < 0 ? errno : 0;
    if (!e) {
        e = thread_start(&in->thread, inbox_main, in);
        if (e)
            alarm_close(&in->alarm);
    }
    if (e) {
        inbox_forget(in);
        return err_set(reterr, HF_ESYS, "cannot start the session's thread: %s", strerror(e));
    }
    *ret = in;
    return HF_OK;
}

struct inbox *inbox_free(struct inbox *in)
{
    if (!in)
        return NULL;
    pthread_mutex_lock(&in->mu);
    in->stopping = true;
    pthread_mutex_unlock(&in->mu);
    alarm_ring(&in->alarm);
    pthread_join(in->thread, NULL);
    alarm_close(&in->alarm);
    pthread_mutex_destroy(&in->mu);
    pthread_cond_destroy(&in->changed);
    return inbox_forget(in);
}

struct inbox *inbox_forget(struct inbox *in)
{
    if (!in)
        return NULL;
    link_clear(&in->link);
    mem_free(in->channel);
    mem_free(in);
    return NULL;
}

void inbox_moved(struct inbox *in)
{
    alarm_ring(&in->alarm);
}

void inbox_prove_for(struct inbox *in, int64_t grace_ms)
{
    int64_t interval = grace_ms == CLOCK_NEVER ? IDLE_PING_MS : grace_ms / 4;
    pthread_mutex_lock(&in->mu);
    bool sooner = interval < in->interval_ms;
    in->interval_ms = interval;
    pthread_mutex_unlock(&in->mu);
    if (sooner)
        alarm_ring(&in->alarm);
}

enum inbox_answer inbox_ready(struct inbox *in, int64_t age_ms, int64_t deadline_ms,
                              const atomic_int *stop, unsigned *ret_epoch, int64_t *ret_proof_ms)
{
    bool asked = false, ready = false;
    pthread_mutex_lock(&in->mu);
    for (;;) {
        int64_t now = clock_now_ms(), left = deadline_ms - now;
        ready = in->epoch && now - in->proof_ms <= age_ms;
        bool hopeless = in->refused || (!in->epoch && now - in->down_since_ms > HOPEFUL_MS);
        if (ready || left <= 0 || hopeless || (stop && atomic_load(stop)))
            break;
        if (left > STREAM_TICK_MS)
            left = STREAM_TICK_MS; /* to look at *stop, and because our clocks differ in suspend */
        if (in->epoch && !asked) {
            asked = in->ping_wanted = true;
            alarm_ring(&in->alarm);
        }
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        t.tv_nsec += left * 1000000;
        t.tv_sec += t.tv_nsec / 1000000000;
        t.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&in->changed, &in->mu, &t);
    }
    *ret_epoch = in->epoch;
    *ret_proof_ms = in->proof_ms;
    enum inbox_answer answer = ready ? INBOX_READY : in->refused ? INBOX_REFUSED : INBOX_NOT_YET;
    pthread_mutex_unlock(&in->mu);
    return answer;
}
