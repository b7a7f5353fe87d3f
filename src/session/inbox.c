/* SPDX-License-Identifier: MIT
 * inbox.c - the session's subscriptions at one server: its thread connects, asks, and pings.
 */
#include "session/inbox.h"

#include <errno.h>
#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/thread.h"
#include "net/servererr.h"
#include "session/inbox_impl.h"
#include "session/lease.h"

#define CONNECT_MS     5000
#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000
#define IDLE_PING_MS   20000 /* nobody holds anything: just to notice a dead connection */

bool inbox_sharded(const struct inbox *in)
{
    return topo_cluster(in->topo) && !atomic_load(&in->plain);
}

const void *inbox_server(const struct inbox *in)
{
    return in->server;
}

/* ---- the channels ---------------------------------------------------------------------------- */

void inbox_add(struct inbox *in, struct subscription *sub)
{
    mutex_lock(&in->mu);
    sub->state = SUB_WANTED;
    sub->refused = false;
    sub->retry_at_ms = sub->pause_ms = 0;
    sub->wanted_ms = clock_now_ms();
    sub->next = in->subs;
    in->subs = sub;
    in->recheck = true; /* it may have gone on while it came here */
    if (!in->up) /* from now on somebody wants it */
        in->down_since_ms = clock_now_ms();
    atomic_store(&sub->at, in);
    mutex_unlock(&in->mu);
    alarm_ring(&in->alarm);
}

void inbox_moved(struct inbox *in)
{
    mutex_lock(&in->mu);
    in->recheck = true;
    atomic_store(&in->hurried, 1);
    mutex_unlock(&in->mu);
    alarm_ring(&in->alarm);
}

static void forget_asked_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    in->asked = NULL;
    in->last_asked = &in->asked;
}

static void note_asked_locked(struct inbox *in, struct subscription *s)
{
    mutex_assert_held(&in->mu);
    s->state = SUB_ASKED;
    s->turn = ++in->turns;
    s->next_asked = NULL;
    *in->last_asked = s;
    in->last_asked = &s->next_asked;
}

/* Most often it is the first of them. */
void inbox_answered_locked(struct inbox *in, struct subscription *s)
{
    mutex_assert_held(&in->mu);
    struct subscription **p = &in->asked;
    while (*p && *p != s)
        p = &(*p)->next_asked;
    if (*p && !(*p = s->next_asked))
        in->last_asked = p;
}

/* Its question, if there is one, will be answered all the same. */
static void leave_ghost_locked(struct inbox *in, struct subscription *s)
{
    mutex_assert_held(&in->mu);
    if (s->state != SUB_ASKED)
        return;
    inbox_answered_locked(in, s);
    if (in->nghosts < INBOX_GHOSTS)
        in->ghosts[in->nghosts++] = s->turn;
    else
        in->over = true; /* on a fresh connection nothing is outstanding */
}

/* Thread: the inbox's. Take one out that belongs to another server; NULL: none does. Nobody tells
 * the server: a channel there that nobody uses harms nobody, in a cluster the server drops it by
 * itself, and one question more would be one answer more to be told from the others. *at is where
 * to go on: only we take one out, and others come in front. */
static struct subscription *take_astray(struct inbox *in, struct subscription ***at)
{
    struct subscription *found = NULL;
    mutex_lock(&in->mu);
    for (struct subscription **p = *at; *p; *at = p = &(*p)->next) {
        if (topo_server(in->topo, hf_str((*p)->channel)) == in->server)
            continue;
        found = *p;
        *p = found->next;
        leave_ghost_locked(in, found);
        atomic_store(&found->epoch, 0);
        atomic_store(&found->at, NULL);
        inbox_changed_locked(in);
        break;
    }
    mutex_unlock(&in->mu);
    return found;
}

/* Thread: the inbox's. False: the connection is over. */
static bool say(struct inbox *in, int argc, const hf_bytes *argv)
{
    struct limit lim = { .at_ms = clock_now_ms() + INBOX_SILENCE_MS };
    return !link_send(&in->link, argc, argv, &lim, NULL);
}

/* Thread: the inbox's. What changes meanwhile is looked at the next time: whoever changes it
 * rings. */
static void send_astray(struct inbox *in)
{
    struct subscription *s, **at = &in->subs;
    mutex_lock(&in->mu);
    bool due = in->recheck;
    in->recheck = false;
    mutex_unlock(&in->mu);
    while (due && (s = take_astray(in, &at)))
        in->events.astray(in->events.arg, s);
}

/* The next one to be asked for, from this one on; *ret_due_ms: when there will be another. */
static struct subscription *next_wanted_locked(struct inbox *in, struct subscription *s,
                                               int64_t now, int64_t *ret_due_ms)
{
    mutex_assert_held(&in->mu);
    for (; s; s = s->next) {
        if (s->state == SUB_WANTED && s->retry_at_ms <= now)
            return s;
        if (s->state == SUB_WANTED)
            *ret_due_ms = clock_earlier(*ret_due_ms, s->retry_at_ms);
    }
    return NULL;
}

/* Thread: the inbox's. Ask for what is wanted. False: the connection is over. Who comes meanwhile
 * rings. */
static bool ask_for_channels(struct inbox *in, int64_t *ret_due_ms)
{
    struct subscription *s = NULL;
    *ret_due_ms = CLOCK_NEVER;
    for (;;) {
        int64_t now = clock_now_ms();
        mutex_lock(&in->mu);
        s = next_wanted_locked(in, s ? s->next : in->subs, now, ret_due_ms);
        if (s) {
            s->asked_ms = now;
            note_asked_locked(in, s);
        }
        mutex_unlock(&in->mu);
        if (!s)
            return true;
        /* Only we take it out: it stays what it is. */
        hf_bytes argv[] = { hf_str(inbox_sharded(in) ? "SSUBSCRIBE" : "SUBSCRIBE"),
                            hf_str(s->channel) };
        if (!say(in, 2, argv))
            return false;
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Ping if it is time to. *ret_until_ms, or false: the connection is over, or we shall stop. */
static bool attend(struct inbox *in, int64_t *last_ping_ms, int64_t *ret_until_ms)
{
    hf_bytes ping[] = { hf_str("PING") };
    int64_t retry;
    send_astray(in);
    if (!ask_for_channels(in, &retry))
        return false;
    retry = clock_earlier(retry, inbox_tell_polling(in));
    mutex_lock(&in->mu);
    int64_t now = clock_now_ms();
    bool over = in->stopping || in->over || !in->subs || topo_moves(in->topo) != in->moves
                || (in->ping_sent_ms && now - in->ping_sent_ms > INBOX_SILENCE_MS);
    bool due = !in->ping_sent_ms
               && (in->ping_wanted || now >= clock_add(*last_ping_ms, in->interval_ms));
    if (due) {
        in->ping_sent_ms = *last_ping_ms = now;
        in->ping_turn = ++in->turns;
        in->ping_wanted = false;
    }
    int64_t until = inbox_plan_locked(in, now, clock_add(*last_ping_ms, in->interval_ms));
    *ret_until_ms = clock_earlier(until, retry);
    mutex_unlock(&in->mu);
    return !over && (!due || say(in, 1, ping));
}

/* Until the connection is over or we shall stop. */
static void listen_on(struct inbox *in)
{
    int64_t last_ping_ms = clock_now_ms(), until;

    mutex_lock(&in->mu);
    in->listening = in->up = true;
    in->over = in->stood = in->refused = in->mute = false;
    in->ping_sent_ms = 0;
    atomic_store(&in->proof_ms, 0);
    atomic_store(&in->plain, false); /* it may be a newer one by now */
    in->up_since_ms = clock_now_ms();
    in->nghosts = 0;
    mutex_unlock(&in->mu);
    while (attend(in, &last_ping_ms, &until)) {
        /* Only we write it, and who reads it holds mu: we may look at it without. */
        bool away = in->away_until_ms != 0;
        if (inbox_poll(in, !away, in->alarm.ring_fd, until).link)
            inbox_read(in);
    }
    mutex_lock(&in->mu);
    in->listening = false;
    in->away_until_ms = 0;
    if (in->guest)
        inbox_evict_locked(in);
    while (in->guest)
        mutex_cond_wait(&in->mu, &in->changed); /* it still looks at the descriptor */
    mutex_unlock(&in->mu);
}

/* Thread: the inbox's. The first channel, by which the server is found; NULL: there is none. */
static const char *first_channel(struct inbox *in)
{
    mutex_lock(&in->mu);
    const char *channel = in->subs ? in->subs->channel : NULL;
    mutex_unlock(&in->mu);
    return channel;
}

/* Thread: the inbox's. The link is gone, and every subscription with it. */
static void close_link(struct inbox *in)
{
    link_close(&in->link, false);
    mutex_lock(&in->mu);
    int64_t now = clock_now_ms();
    if (in->stood || !in->down_since_ms) /* else it has been of no use since then */
        in->down_since_ms = now;
    in->up = false;
    forget_asked_locked(in);
    for (struct subscription *s = in->subs; s; s = s->next) {
        atomic_store(&s->epoch, 0);
        if (s->state == SUB_STANDS)
            s->wanted_ms = now;
        s->state = SUB_WANTED;
        s->retry_at_ms = 0;
    }
    mutex_unlock(&in->mu);
}

/* Thread: the inbox's. A ping was refused on an earlier connection: without it no lock may have a
 * grace, so nobody shall see us before it is allowed. */
static hf_err try_ping(struct inbox *in, const struct limit *lim, hf_error *reterr)
{
    hf_bytes ping[] = { hf_str("PING") };
    struct reply *rp;
    hf_err e = link_exchange(&in->link, 1, ping, lim, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR)
        e = server_refusal(rp, reterr);
    reply_free(rp);
    return e;
}

/* Connect, and listen as long as it lasts. */
static hf_err visit(struct inbox *in, const char *channel, hf_error *reterr)
{
    struct limit lim = { clock_now_ms() + CONNECT_MS, &in->hurried };
    in->moves = topo_moves(in->topo);
    unsigned moves = topo_moves_of(in->topo, hf_str(channel));
    hf_err e = topo_link(in->topo, hf_str(channel), &in->link, &lim, reterr);
    if (e)
        return e;
    if (in->mute)
        e = try_ping(in, &lim, reterr);
    /* If the channel has moved meanwhile, to and fro as well, this may be another server. */
    if (!e && topo_server(in->topo, hf_str(channel)) == in->server
        && topo_moves_of(in->topo, hf_str(channel)) == moves)
        listen_on(in);
    if (!e && in->mute)
        e = err_set(reterr, HF_EAUTH, "%s", in->why);
    close_link(in);
    return e;
}

/* How long to the next visit after one that ended with e. */
static int64_t visit_pause_locked(struct inbox *in, hf_err e, int64_t *pause_ms)
{
    mutex_assert_held(&in->mu);
    bool refused = inbox_is_refusal(e);
    if (refused != in->refused || (!e && in->stood)) /* what was of some use */
        *pause_ms = 0;
    in->refused = refused;
    if (refused)
        inbox_changed_locked(in);
    *pause_ms = refused ? inbox_next_pause(*pause_ms, INBOX_REFUSED_MIN_MS, INBOX_REFUSED_MAX_MS)
                        : inbox_next_pause(*pause_ms, BACKOFF_MIN_MS, BACKOFF_MAX_MS);
    return random_between(*pause_ms / 2, *pause_ms);
}

static void *inbox_main(void *arg)
{
    struct inbox *in = arg;
    int64_t pause = 0;
    hf_error err;

    mutex_lock(&in->mu);
    while (!in->stopping) {
        atomic_store(&in->hurried, 0);
        mutex_unlock(&in->mu);
        send_astray(in);
        const char *channel = first_channel(in);
        hf_err e = channel ? visit(in, channel, &err) : HF_OK;
        if (e)
            topo_doubt(in->topo); /* in a cluster a failover may be under way */
        mutex_lock(&in->mu);
        if (e)
            inbox_why_locked(in, err.message);
        int64_t until = clock_add(clock_now_ms(), visit_pause_locked(in, e, &pause));
        until = in->subs ? until : CLOCK_NEVER;
        bool stopping = in->stopping;
        mutex_unlock(&in->mu);
        if (!stopping)
            alarm_wait(&in->alarm, clock_earlier(until, inbox_tell_polling(in)));
        mutex_lock(&in->mu);
    }
    mutex_unlock(&in->mu);
    return NULL;
}

/* ---- for the others ------------------------------------------------------------------------- */

/* 0, or an errno and nothing open. */
static int open_bells(struct inbox *in)
{
    if (alarm_open(&in->alarm) < 0)
        return errno;
    int e = 0;
    in->bell_fd = bell_open();
    if (in->bell_fd < 0)
        e = errno;
    if (e)
        alarm_close(&in->alarm);
    return e;
}

static void close_bells(struct inbox *in)
{
    alarm_close(&in->alarm);
    forkguard_close(in->bell_fd);
}

hf_err inbox_open(struct topo *t, const void *server, const struct inbox_events *events,
                  const struct log *log, struct inbox **ret, hf_error *reterr)
{
    if (stream_simulated() && !stream_simulated_waiter()) /* it sleeps in poll(2) */
        return err_set(reterr, HF_ENOTSUP, "an inbox cannot be simulated");
    struct inbox *in = mem_zalloc(sizeof *in);
    if (!in || link_init(&in->link) < 0) {
        mem_free(in);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    in->topo = t;
    in->server = server;
    in->last_watch = &in->watches;
    in->last_asked = &in->asked;
    in->events = *events;
    in->log = log;
    in->interval_ms = IDLE_PING_MS;
    in->down_since_ms = clock_now_ms();
    mutex_init(&in->mu, MUTEX_INBOX);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&in->changed, &attr);
    pthread_condattr_destroy(&attr);

    int e = open_bells(in);
    if (!e) {
        e = thread_start(&in->thread, "hf-inbox", inbox_main, in);
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

bool inbox_turn_to(struct inbox *in, const void *server)
{
    mutex_lock(&in->mu);
    bool idle = !in->subs && !in->up && !in->watches && !in->stopping;
    if (idle) {
        in->server = server;
        in->refused = in->mute = in->polling = false;
        in->why[0] = '\0';
        in->down_since_ms = clock_now_ms();
    }
    mutex_unlock(&in->mu);
    return idle;
}

void inbox_stop(struct inbox *in)
{
    mutex_lock(&in->mu);
    in->stopping = true;
    atomic_store(&in->hurried, 1);
    mutex_unlock(&in->mu);
    alarm_ring(&in->alarm);
}

struct inbox *inbox_free(struct inbox *in)
{
    if (!in)
        return NULL;
    inbox_stop(in);
    thread_join(in->thread);
    close_bells(in);
    mutex_destroy(&in->mu);
    pthread_cond_destroy(&in->changed);
    return inbox_forget(in);
}

struct inbox *inbox_forget(struct inbox *in)
{
    if (!in)
        return NULL;
    link_clear(&in->link);
    mem_free(in);
    return NULL;
}

void inbox_prove_for(struct inbox *in, int64_t grace_ms)
{
    int64_t interval = grace_ms == CLOCK_NEVER ? IDLE_PING_MS : lease_ping_ms(grace_ms);
    mutex_lock(&in->mu);
    bool sooner = interval < in->interval_ms;
    in->interval_ms = interval;
    mutex_unlock(&in->mu);
    if (sooner)
        alarm_ring(&in->alarm);
}

void inbox_changed_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    mutex_cond_wake(&in->changed);
    for (struct inbox_watch *w = in->watches; w; w = w->next)
        task_wake(w->task);
}

static void watch_locked(struct inbox *in, struct inbox_watch *w)
{
    mutex_assert_held(&in->mu);
    if (w->in)
        return;
    w->in = in;
    w->next = NULL;
    *in->last_watch = w; /* woken in the order in which they came */
    in->last_watch = &w->next;
    atomic_fetch_add(&in->nwatches, 1);
}

bool inbox_watched(struct inbox *in)
{
    return atomic_load(&in->nwatches) > 0;
}

void inbox_watch(struct inbox *in, struct inbox_watch *w)
{
    mutex_lock(&in->mu);
    watch_locked(in, w);
    mutex_unlock(&in->mu);
}

/* The first task of this loop that waits here. */
static const struct inbox_watch *first_of_locked(const struct inbox *in, const struct loop *lp)
{
    mutex_assert_held(&in->mu);
    const struct inbox_watch *w = in->watches;
    while (w && w->task->loop != lp)
        w = w->next;
    return w;
}

static bool has_to_wait_locked(const struct inbox *in, const struct inbox_watch *w)
{
    mutex_assert_held(&in->mu);
    const struct loop *lp = w->task->loop;
    const struct inbox_watch *first = lp ? first_of_locked(in, lp) : NULL;
    return first && first != w;
}

void inbox_unwatch(struct inbox_watch *w)
{
    struct inbox *in = w->in;
    if (!in)
        return;
    mutex_lock(&in->mu);
    for (struct inbox_watch **p = &in->watches; *p; p = &(*p)->next) {
        if (*p == w) {
            if (!(*p = w->next))
                in->last_watch = p;
            atomic_fetch_sub(&in->nwatches, 1);
            break;
        }
    }
    const struct inbox_watch *next = w->task->loop ? first_of_locked(in, w->task->loop) : NULL;
    if (next)
        task_wake(next->task);
    mutex_unlock(&in->mu);
    w->in = NULL;
}

int64_t inbox_proof_ms(struct inbox *in, struct subscription *sub)
{
    /* When it was asked for, it began to stand; each ping since proves that it does. */
    int64_t asked = atomic_load(&sub->asked_ms), proof = atomic_load(&in->proof_ms);
    return asked > proof ? asked : proof;
}

static void want_ping_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    if (in->ping_wanted || in->ping_sent_ms)
        return;
    in->ping_wanted = true;
    alarm_ring(&in->alarm);
}

enum inbox_answer inbox_check(struct inbox *in, struct subscription *sub, int64_t age_ms,
                              struct inbox_watch *w, unsigned *ret_epoch, int64_t *ret_proof_ms)
{
    int64_t now = clock_now_ms();
    enum inbox_answer answer = INBOX_WAIT;
    if (w->in && w->in != in) /* its channel has gone to another server meanwhile */
        inbox_unwatch(w);
    mutex_lock(&in->mu);
    bool astray = atomic_load(&sub->at) != in;
    /* Astray, it is under another inbox's lock. */
    bool stands = !astray && sub->state == SUB_STANDS;
    *ret_proof_ms = stands ? inbox_proof_ms(in, sub) : atomic_load(&in->proof_ms);
    if (stands && now - *ret_proof_ms <= age_ms && !has_to_wait_locked(in, w))
        answer = INBOX_READY;
    else if (astray)
        answer = INBOX_ASTRAY;
    else if (!stands)
        answer = inbox_hope_locked(in, sub, now);
    *ret_epoch = answer == INBOX_READY ? atomic_load(&sub->epoch) : 0;
    if (answer == INBOX_WAIT)
        watch_locked(in, w);
    if ((answer == INBOX_WAIT && stands && now - *ret_proof_ms > age_ms)
        || (!astray && inbox_unheard_locked(in, sub, now)))
        want_ping_locked(in);
    mutex_unlock(&in->mu);
    return answer;
}
