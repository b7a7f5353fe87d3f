/* SPDX-License-Identifier: MIT
 * inbox.c - the session's subscription: where wake-ups arrive, and the proof that we live.
 */
#include "session/inbox.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
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
#define UNWATCHED_MS   200   /* after a guest has left */

struct inbox {
    struct topo        *topo;
    char               *channel;
    struct inbox_events events;
    const struct log   *log;
    pthread_t           thread;
    struct alarm        alarm;
    int                 bell_fd; /* wakes the guest */
    struct link         link;    /* read by whoever has set reading; the rest is the thread's alone */
    unsigned            moves;   /* of the topology, when the subscription was made */

    pthread_mutex_t     mu;
    pthread_cond_t      changed;
    bool                stopping, refused;
    int64_t             down_since_ms;
    unsigned            epoch;     /* of the subscription that stands; 0: none does */
    unsigned            last_epoch;
    int64_t             proof_ms;  /* within this epoch */
    int64_t             interval_ms;
    bool                ping_wanted;
    int64_t             ping_sent_ms;  /* 0: all were answered */
    bool                listening;     /* the link stands, and may be read */
    bool                over;          /* whoever read it found that it has ended */
    bool                reading;       /* somebody reads it and hands on what came */
    bool                guest;         /* a waiting thread watches it */
    bool                evicted;       /* ... and shall leave */
    int64_t             guest_ms;      /* when the last one came or left */
    unsigned            sleepers;      /* threads in inbox_wait() */
    int64_t             away_until_ms; /* until when the thread does not watch it; 0: it does */
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

/* A pong. False: nobody asked for it. */
static bool set_proof(struct inbox *in)
{
    pthread_mutex_lock(&in->mu);
    unsigned epoch = in->epoch;
    int64_t sent_ms = in->ping_sent_ms;
    if (sent_ms)
        in->proof_ms = sent_ms;
    in->ping_sent_ms = 0;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
    if (sent_ms)
        in->events.proved(in->events.arg, epoch, sent_ms);
    return sent_ms != 0;
}

/* Read what is there and hand it on. False: the connection is over. Thread: who began to read. */
static bool take_in(struct inbox *in)
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
        else
            known = is_push(rp, "pong", 2) && set_proof(in);
        reply_free(rp);
        if (!known)
            return false;
    }
}

/* ---- who reads: the thread, or a guest ------------------------------------------------------
 *
 *      thread -> guest     [inbox_wait]     somebody waits alone: it watches the link itself
 *      guest -> thread     [leave_locked]   it leaves, and others wait for messages
 *      guest -> nobody     [leave_locked]   it leaves, and nobody does: it may soon be back
 *      nobody -> thread    [plan_locked]    it did not come back, or a ping is to be answered
 *      nobody -> guest     [inbox_wait]
 * The thread is not told when a guest comes: if it still watches the link as well, it finds out at
 * the first message. Only it pings, opens and closes.
 */

/* Holds: mu. How long nobody may watch the link while nobody waits for a message. A connection that
 * ends meanwhile is noticed that much later, which must be little beside a grace. */
static int64_t unwatched_ms(const struct inbox *in)
{
    return clock_earlier(UNWATCHED_MS, in->interval_ms / 2);
}

/* Holds: mu. Whether the thread has to read, unless there is a guest. */
static bool expected_locked(const struct inbox *in)
{
    return in->sleepers > 0 || in->ping_sent_ms || in->over || atomic_load(in->events.expectant) > 0;
}

/* Holds: mu. */
static void evict_locked(struct inbox *in)
{
    uint64_t one = 1;
    in->evicted = true;
    (void)!write(in->bell_fd, &one, sizeof one);
}

static bool begin_reading(struct inbox *in, bool guest)
{
    pthread_mutex_lock(&in->mu);
    while (in->reading && !guest)
        pthread_cond_wait(&in->changed, &in->mu);
    bool ours = !in->reading && (guest ? !in->evicted : !in->guest || in->evicted);
    if (ours)
        in->reading = true;
    pthread_mutex_unlock(&in->mu);
    return ours;
}

static void end_reading(struct inbox *in, bool over)
{
    pthread_mutex_lock(&in->mu);
    in->reading = false;
    in->over |= over;
    pthread_cond_broadcast(&in->changed);
    pthread_mutex_unlock(&in->mu);
}

static int poll_ms(int64_t until_ms)
{
    int64_t left = until_ms - clock_now_ms();
    return left < 0 ? 0 : left > 1000 ? 1000 : (int)left; /* poll's clock stops in suspend */
}

/* Thread: a guest. Until p is woken, the time has come, or it is not to watch any more. */
static void watch(struct inbox *in, struct park *p, int64_t until_ms)
{
    while (park_listen(p, in->bell_fd)) {
        struct pollfd fd[2] = { { .fd = in->link.stream->fd, .events = POLLIN },
                                { .fd = in->bell_fd, .events = POLLIN } };
        poll(fd, 2, poll_ms(until_ms));
        bool woken = !park_unlisten(p);
        uint64_t drained;
        if (fd[1].revents)
            (void)!read(in->bell_fd, &drained, sizeof drained);
        if (fd[0].revents || fd[1].revents) {
            if (!begin_reading(in, true))
                return;
            bool over = fd[0].revents && !take_in(in);
            end_reading(in, over);
            if (over)
                return;
        }
        if (woken || clock_now_ms() >= until_ms)
            return;
    }
}

/* Holds: mu. The guest goes. */
static void leave_locked(struct inbox *in)
{
    int64_t now = clock_now_ms();
    in->guest = in->evicted = false;
    in->guest_ms = now;
    pthread_cond_broadcast(&in->changed);
    if (in->over || in->away_until_ms > (expected_locked(in) ? 0 : now + unwatched_ms(in)))
        alarm_ring(&in->alarm);
}

void inbox_wait(struct inbox *in, struct park *p, int64_t until_ms)
{
    pthread_mutex_lock(&in->mu);
    bool guest = in->listening && !in->reading && !expected_locked(in);
    in->sleepers++;
    if (guest) {
        in->guest = true;
        in->guest_ms = clock_now_ms();
    }
    pthread_mutex_unlock(&in->mu);

    if (guest)
        watch(in, p, until_ms);
    else
        park_wait(p, until_ms);

    pthread_mutex_lock(&in->mu);
    in->sleepers--;
    if (guest)
        leave_locked(in);
    pthread_mutex_unlock(&in->mu);
}

void inbox_expect(struct inbox *in)
{
    pthread_mutex_lock(&in->mu);
    if (in->away_until_ms && !in->guest)
        alarm_ring(&in->alarm);
    pthread_mutex_unlock(&in->mu);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Holds: mu. Until when the thread sleeps, and in->away_until_ms: whether it leaves the link to
 * others meanwhile. */
static int64_t plan_locked(struct inbox *in, int64_t now, int64_t due_ms)
{
    int64_t until = in->ping_sent_ms ? in->ping_sent_ms + SILENCE_MS : due_ms;
    int64_t back = in->guest_ms + unwatched_ms(in);
    in->away_until_ms = 0;
    if (in->guest && in->ping_sent_ms && now >= in->ping_sent_ms + in->interval_ms)
        evict_locked(in); /* whatever keeps it: a proof must not wait for it */
    if (in->guest && !in->evicted) {
        if (in->ping_sent_ms)
            until = clock_earlier(until, in->ping_sent_ms + in->interval_ms);
        if (now < back) /* handed round quickly, perhaps: then it need not ring when it goes */
            until = clock_earlier(until, now + unwatched_ms(in));
        in->away_until_ms = until;
    } else if (!in->guest && now < back && !expected_locked(in)) {
        until = in->away_until_ms = clock_earlier(until, back);
    }
    return until;
}

/* Ping if it is time to. *ret_until_ms, or false: the connection is over, or we shall stop. */
static bool attend(struct inbox *in, int64_t *last_ping_ms, int64_t *ret_until_ms)
{
    hf_bytes ping[] = { hf_str("PING") };
    pthread_mutex_lock(&in->mu);
    int64_t now = clock_now_ms();
    bool over = in->stopping || in->over || topo_moves(in->topo) != in->moves
                || (in->ping_sent_ms && now - in->ping_sent_ms > SILENCE_MS);
    bool send = !in->ping_sent_ms
                && (in->ping_wanted || now >= clock_add(*last_ping_ms, in->interval_ms));
    if (send) {
        in->ping_sent_ms = *last_ping_ms = now;
        in->ping_wanted = false;
    }
    *ret_until_ms = plan_locked(in, now, clock_add(*last_ping_ms, in->interval_ms));
    pthread_mutex_unlock(&in->mu);
    return !over && (!send || !link_send(&in->link, 1, ping, now + SILENCE_MS, NULL));
}

/* Until the connection is over or we shall stop. */
static void listen_on(struct inbox *in)
{
    int64_t last_ping_ms = clock_now_ms(), until;

    pthread_mutex_lock(&in->mu);
    in->listening = true;
    in->over = false;
    in->ping_sent_ms = 0;
    pthread_mutex_unlock(&in->mu);
    while (attend(in, &last_ping_ms, &until)) {
        /* Only we write it, and who reads it holds mu: we may look at it without. */
        bool away = in->away_until_ms != 0;
        struct pollfd fd[2] = { { .fd = in->alarm.ring_fd, .events = POLLIN },
                                { .fd = in->link.stream->fd, .events = POLLIN } };
        poll(fd, away ? 1 : 2, poll_ms(until));
        if (fd[0].revents)
            alarm_wait(&in->alarm, 1); /* in the past: only reads the ring empty */
        if (!away && fd[1].revents && begin_reading(in, false))
            end_reading(in, !take_in(in));
    }
    pthread_mutex_lock(&in->mu);
    in->listening = false;
    in->away_until_ms = 0;
    if (in->guest)
        evict_locked(in);
    while (in->guest)
        pthread_cond_wait(&in->changed, &in->mu); /* it still looks at the descriptor */
    pthread_mutex_unlock(&in->mu);
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

/* 0, or an errno and nothing open. */
static int open_bells(struct inbox *in)
{
    if (alarm_open(&in->alarm) < 0)
        return errno;
    int e = 0;
    in->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (in->bell_fd < 0) {
        e = errno;
    } else if (forkguard_add(in->bell_fd) < 0) {
        close(in->bell_fd);
        e = ENOMEM;
    }
    if (e)
        alarm_close(&in->alarm);
    return e;
}

static void close_bells(struct inbox *in)
{
    alarm_close(&in->alarm);
    forkguard_close(in->bell_fd);
}

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

    int e = open_bells(in);
    if (!e) {
        e = thread_start(&in->thread, inbox_main, in);
        if (e)
            close_bells(in);
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
    close_bells(in);
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
