/* SPDX-License-Identifier: MIT
 * inbox_read.c - what comes in through an inbox, and who reads it.
 */
#include <poll.h>
#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/epoch.h"
#include "base/err.h"
#include "net/servererr.h"
#include "session/inbox_impl.h"

#define UNWATCHED_MS 200  /* after a guest has left */
#define RETRY_MIN_MS 50   /* between two questions for a channel whose slot moves, at first */
#define RETRY_MAX_MS 500

/* ---- what comes ------------------------------------------------------------------------------ */

static bool is_push(const struct reply *rp, const char *kind, size_t len)
{
    return rp->type == REPLY_ARRAY && rp->len == len && rp->item[0]->str
           && (strcmp(rp->item[0]->str, kind) == 0
               || (rp->item[0]->str[0] == 's' && strcmp(rp->item[0]->str + 1, kind) == 0));
}

static bool is_named(const struct subscription *s, const struct reply *channel)
{
    return channel->str && strlen(s->channel) == channel->len
           && memcmp(s->channel, channel->str, channel->len) == 0;
}

/* The subscription that a push is about; NULL: none of ours. */
static struct subscription *named_locked(const struct inbox *in, const struct reply *channel)
{
    mutex_assert_held(&in->mu);
    for (struct subscription *s = in->subs; s; s = s->next)
        if (is_named(s, channel))
            return s;
    return NULL;
}

/* Whose question an answer belongs to: the server answers in the order in which it was asked. */
struct asker {
    uint64_t             turn; /* 0: nobody's */
    struct subscription *sub;  /* NULL: the ping's, or of a channel that has gone elsewhere */
    bool                 ping;
};

static struct asker first_asked_locked(const struct inbox *in)
{
    mutex_assert_held(&in->mu);
    struct asker first = { 0 };
    if (in->asked)
        first = (struct asker){ in->asked->turn, in->asked, false };
    if (in->ping_sent_ms && (!first.turn || in->ping_turn < first.turn))
        first = (struct asker){ in->ping_turn, NULL, true };
    if (in->nghosts && (!first.turn || in->ghosts[0] < first.turn))
        first = (struct asker){ in->ghosts[0], NULL, false };
    return first;
}

static bool is_ghost(const struct asker *a)
{
    return a->turn && !a->sub && !a->ping;
}

/* The first of them has its answer. */
static void forget_ghost_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    memmove(in->ghosts, in->ghosts + 1, --in->nghosts * sizeof *in->ghosts);
}

/* False: nobody asked for it. */
static bool subscribed(struct inbox *in, const struct reply *channel)
{
    unsigned epoch = 0;
    mutex_lock(&in->mu);
    struct asker a = first_asked_locked(in);
    struct subscription *s = a.sub && is_named(a.sub, channel) ? a.sub : NULL;
    if (is_ghost(&a))
        forget_ghost_locked(in);
    if (s) {
        inbox_answered_locked(in, s);
        s->state = SUB_STANDS;
        s->pause_ms = 0;
        s->refused = false;
        in->stood = true;
        in->why[0] = '\0';
        atomic_store(&s->epoch, epoch = epoch_next());
        inbox_changed_locked(in);
        if (in->polling)
            alarm_ring(&in->alarm);
    }
    mutex_unlock(&in->mu);
    if (epoch)
        in->events.up(in->events.arg, s, epoch);
    return epoch || is_ghost(&a);
}

/* It has to be asked for again, here or elsewhere. */
static void want_again_locked(struct inbox *in, struct subscription *s, int64_t pause_ms)
{
    mutex_assert_held(&in->mu);
    int64_t now = clock_now_ms();
    atomic_store(&s->epoch, 0);
    if (s->state == SUB_ASKED)
        inbox_answered_locked(in, s);
    if (s->state == SUB_STANDS)
        s->wanted_ms = now;
    s->state = SUB_WANTED;
    s->retry_at_ms = now + pause_ms;
    alarm_ring(&in->alarm);
}

/* Nobody asked for it, or it is the end of a channel that has gone elsewhere: the server drops the
 * channels of a slot that it gives away. */
static void unsubscribed(struct inbox *in, const struct reply *channel)
{
    mutex_lock(&in->mu);
    struct subscription *s = named_locked(in, channel);
    bool dropped = s && s->state == SUB_STANDS;
    if (dropped)
        want_again_locked(in, s, 0);
    mutex_unlock(&in->mu);
    if (dropped)
        topo_doubt(in->topo);
}

/* The server does not give us this channel: why, and when it is asked for again. In a
 * cluster it may be elsewhere by now, and that is never a refusal. */
static void deny_locked(struct inbox *in, struct subscription *s, const struct reply *rp)
{
    mutex_assert_held(&in->mu);
    hf_err code;
    hf_error why;
    enum server_verdict v = server_judge(rp, &code);
    bool elsewhere = topo_cluster(in->topo) && (v == SERVER_REDIRECT || v == SERVER_RETRY);
    if (inbox_sharded(in) && strstr(rp->str, "unknown command")) {
        in->plain = true;
        want_again_locked(in, s, 0);
        return;
    }
    char words[80];
    if (elsewhere)
        err_set(&why, HF_ECONN, "the servers of the cluster do not agree on who has its slot (%s)",
                err_quote(words, sizeof words, rp->str, rp->len));
    else
        server_error(rp, code, &why);
    inbox_why_locked(in, why.message);
    s->refused = !elsewhere && (v == SERVER_REFUSED || inbox_is_refusal(code));
    s->pause_ms = s->refused
        ? inbox_next_pause(s->pause_ms, INBOX_REFUSED_MIN_MS, INBOX_REFUSED_MAX_MS)
        : inbox_next_pause(s->pause_ms, RETRY_MIN_MS, RETRY_MAX_MS);
    want_again_locked(in, s, s->pause_ms);
    inbox_changed_locked(in);
}

/* A question was refused. False: the connection is of no use. */
static bool refused(struct inbox *in, const struct reply *rp)
{
    hf_err code;
    hf_error why;
    (void)server_judge(rp, &code);
    mutex_lock(&in->mu);
    struct asker a = first_asked_locked(in);
    if (is_ghost(&a)) {
        forget_ghost_locked(in);
    } else if (a.sub) {
        deny_locked(in, a.sub, rp);
    } else if (a.ping && code == HF_EAUTH) {
        server_error(rp, code, &why);
        inbox_why_locked(in, why.message);
        in->refused = in->mute = true;
        inbox_changed_locked(in);
    }
    mutex_unlock(&in->mu);
    if (a.sub) {
        topo_doubt(in->topo);
        (void)inbox_tell_polling(in);
    }
    return a.turn && !a.ping && strncmp(rp->str, "NOAUTH", 6) != 0;
}

/* A pong. False: nobody asked for it. */
static bool set_proof(struct inbox *in)
{
    mutex_lock(&in->mu);
    int64_t sent_ms = first_asked_locked(in).ping ? in->ping_sent_ms : 0;
    if (sent_ms) {
        in->proof_ms = sent_ms;
        in->ping_sent_ms = 0;
        inbox_changed_locked(in);
    }
    mutex_unlock(&in->mu);
    if (sent_ms)
        in->events.proved(in->events.arg, in, sent_ms);
    return sent_ms != 0;
}

/* False: it makes no sense. */
static bool take(struct inbox *in, const struct reply *rp)
{
    if (is_push(rp, "message", 3) && rp->item[2]->str) {
        in->events.message(in->events.arg, rp->item[2]->str, rp->item[2]->len);
        return true;
    }
    if (is_push(rp, "subscribe", 3))
        return subscribed(in, rp->item[1]);
    if (is_push(rp, "unsubscribe", 3)) {
        unsubscribed(in, rp->item[1]);
        return true;
    }
    if (rp->type == REPLY_ERROR)
        return refused(in, rp);
    /* Without any channel left it is an ordinary connection, and answers like one. */
    bool pong = is_push(rp, "pong", 2)
        || (rp->type == REPLY_STATUS && strcmp(rp->str, "PONG") == 0);
    return pong && set_proof(in);
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
        bool known = take(in, rp);
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
 *      nobody -> thread    [inbox_plan_locked]    it did not come back, or a ping is to be answered
 *      nobody -> guest     [inbox_wait]
 * The thread is not told when a guest comes: if it still watches the link as well, it finds out at
 * the first message. Only it pings, opens and closes.
 */

/* How long nobody may watch the link while nobody waits for a message. A connection that
 * ends meanwhile is noticed that much later, which must be little beside a grace. */
static int64_t unwatched_ms_locked(const struct inbox *in)
{
    mutex_assert_held(&in->mu);
    return clock_earlier(UNWATCHED_MS, in->interval_ms / 2);
}

/* Whether the thread has to read, unless there is a guest. */
static bool expected_locked(const struct inbox *in)
{
    mutex_assert_held(&in->mu);
    return in->sleepers > 0 || in->ping_sent_ms || in->over
        || atomic_load(in->events.expectant) > 0;
}

void inbox_evict_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    in->evicted = true;
    bell_ring(in->bell_fd);
}

static bool begin_reading(struct inbox *in, bool guest)
{
    mutex_lock(&in->mu);
    while (in->reading && !guest)
        mutex_cond_wait(&in->mu, &in->changed);
    bool ours = !in->reading && (guest ? !in->evicted : !in->guest || in->evicted);
    if (ours)
        in->reading = true;
    mutex_unlock(&in->mu);
    return ours;
}

static void end_reading(struct inbox *in, bool over)
{
    mutex_lock(&in->mu);
    in->reading = false;
    in->over |= over;
    inbox_changed_locked(in);
    mutex_unlock(&in->mu);
}

int inbox_poll_ms(int64_t until_ms)
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
        poll(fd, 2, inbox_poll_ms(until_ms));
        bool woken = !park_unlisten(p);
        if (fd[1].revents)
            (void)bell_drain(in->bell_fd);
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

/* The guest goes. */
static void leave_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    int64_t now = clock_now_ms();
    in->guest = in->evicted = false;
    in->guest_ms = now;
    inbox_changed_locked(in);
    if (in->over || in->away_until_ms > (expected_locked(in) ? 0 : now + unwatched_ms_locked(in)))
        alarm_ring(&in->alarm);
}

void inbox_wait(struct inbox *in, struct park *p, int64_t until_ms)
{
    mutex_lock(&in->mu);
    bool guest = in->listening && !in->reading && !expected_locked(in);
    in->sleepers++;
    if (guest) {
        in->guest = true;
        in->guest_ms = clock_now_ms();
    }
    mutex_unlock(&in->mu);

    if (guest)
        watch(in, p, until_ms);
    else
        park_wait(p, until_ms);

    mutex_lock(&in->mu);
    in->sleepers--;
    if (guest)
        leave_locked(in);
    mutex_unlock(&in->mu);
}

void inbox_expect(struct inbox *in)
{
    mutex_lock(&in->mu);
    if (in->away_until_ms && !in->guest)
        alarm_ring(&in->alarm);
    mutex_unlock(&in->mu);
}

int64_t inbox_plan_locked(struct inbox *in, int64_t now, int64_t due_ms)
{
    mutex_assert_held(&in->mu);
    int64_t until = in->ping_sent_ms ? in->ping_sent_ms + INBOX_SILENCE_MS : due_ms;
    int64_t back = in->guest_ms + unwatched_ms_locked(in);
    in->away_until_ms = 0;
    if (in->guest && in->ping_sent_ms && now >= in->ping_sent_ms + in->interval_ms)
        inbox_evict_locked(in); /* whatever keeps it: a proof must not wait for it */
    if (in->guest && !in->evicted) {
        if (in->ping_sent_ms)
            until = clock_earlier(until, in->ping_sent_ms + in->interval_ms);
        if (now < back) /* handed round quickly, perhaps: then it need not ring when it goes */
            until = clock_earlier(until, now + unwatched_ms_locked(in));
        in->away_until_ms = until;
    } else if (!in->guest && now < back && !expected_locked(in)) {
        until = in->away_until_ms = clock_earlier(until, back);
    }
    return until;
}

void inbox_read(struct inbox *in)
{
    if (begin_reading(in, false))
        end_reading(in, !take_in(in));
}
