/* SPDX-License-Identifier: MIT
 * inbox_guest.c - who reads an inbox: its thread, or a guest.
 *
 *      thread -> guest     [inbox_wait]     somebody waits alone: it watches the link itself
 *      guest -> next guest [hand_on_locked] it leaves: of those who wait, the first in line reads
 *      guest -> thread     [hand_on_locked] it leaves, and the thread is needed
 *      guest -> nobody     [hand_on_locked] it leaves, and nobody waits: it may soon be back
 *      nobody -> thread    [inbox_plan_locked]  it did not come back, or a ping is to be answered
 *      nobody -> guest     [inbox_wait]
 * Whoever is next in line, by its ticket, will get the next message as a rule: when it reads the
 * inbox itself, no other thread has to wake it. The thread is not told when a guest comes: if it
 * still watches the link as well, it finds out at the first message. Only it pings, opens and
 * closes.
 */
#include <poll.h>

#include "base/bell.h"
#include "base/clock.h"
#include "session/inbox_impl.h"

#define UNWATCHED_MS 200 /* after a guest has left */

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

static struct inbox_news simulated_poll(struct stream *s, int bell_fd, int64_t until_ms)
{
    struct inbox_news news = { .bell = bell_drain(bell_fd) };
    if (!news.bell) {
        news.link = stream_simulated_waiter()(s, until_ms, bell_on(bell_fd));
        news.bell = bell_drain(bell_fd);
    }
    return news;
}

struct inbox_news inbox_poll(struct inbox *in, bool link, int bell_fd, int64_t until_ms)
{
    int64_t left = until_ms - clock_now_ms();
    int ms = left < 0 ? 0 : left > 1000 ? 1000 : (int)left; /* poll's clock stops in suspend */
    if (stream_simulated())
        return simulated_poll(link ? in->link.stream : NULL, bell_fd, until_ms);
    struct pollfd fd[2] = { { .fd = bell_fd, .events = POLLIN },
                            { .fd = in->link.stream->fd, .events = POLLIN } };
    poll(fd, link ? 2 : 1, ms);
    if (fd[0].revents)
        (void)bell_drain(bell_fd);
    return (struct inbox_news){ .link = link && fd[1].revents, .bell = fd[0].revents };
}

/* Thread: a guest. Until p is woken, the time has come, or it is not to watch any more. */
static void watch(struct inbox *in, struct park *p, int64_t until_ms)
{
    while (park_listen(p, in->bell_fd)) {
        struct inbox_news news = inbox_poll(in, true, in->bell_fd, until_ms);
        bool woken = !park_unlisten(p);
        if (news.link || news.bell) {
            if (!begin_reading(in, true))
                return;
            bool over = news.link && !inbox_take_in(in);
            end_reading(in, over);
            if (over)
                return;
        }
        if (woken || clock_now_ms() >= until_ms)
            return;
    }
}

/* ---- the line ------------------------------------------------------------------------------ */

static void stand_in_line_locked(struct inbox *in, struct sleeper *s)
{
    mutex_assert_held(&in->mu);
    struct sleeper *before = in->last_in_line; /* as a rule the last one has come last */
    while (before && before->ticket > s->ticket)
        before = before->prev;
    s->prev = before;
    s->next = before ? before->next : in->line;
    *(s->prev ? &s->prev->next : &in->line) = s;
    *(s->next ? &s->next->prev : &in->last_in_line) = s;
}

static void leave_line_locked(struct inbox *in, struct sleeper *s)
{
    mutex_assert_held(&in->mu);
    *(s->prev ? &s->prev->next : &in->line) = s->next;
    *(s->next ? &s->next->prev : &in->last_in_line) = s->prev;
}

/* The first in line shall read from now on. False: there is none, or the thread has to. */
static bool promise_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    if (!in->line || in->over || !in->listening || atomic_load(in->events.expectant) > 0)
        return false;
    in->promised = in->line;
    park_nudge(in->line->park);
    return true;
}

/* Nobody watches the link now, or will of itself. */
static void hand_on_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    int64_t now = clock_now_ms();
    in->guest_ms = now;
    inbox_changed_locked(in);
    if (promise_locked(in))
        return;
    if (in->over || in->away_until_ms > (expected_locked(in) ? 0 : now + unwatched_ms_locked(in)))
        alarm_ring(&in->alarm);
}

/* May s read? Whoever is alone may, and whoever was promised it. */
static bool becomes_guest_locked(struct inbox *in, const struct sleeper *s)
{
    mutex_assert_held(&in->mu);
    bool promised = in->promised == s;
    if (promised)
        in->promised = NULL;
    if (!in->listening || in->reading || in->guest || in->over)
        return false;
    if (!promised && (in->promised || expected_locked(in)))
        return false;
    in->guest = true;
    in->guest_ms = clock_now_ms();
    return true;
}

/* Holds: mu, released meanwhile. */
static void read_as_guest_locked(struct inbox *in, struct park *p, int64_t until_ms)
{
    mutex_assert_held(&in->mu);
    mutex_unlock(&in->mu);
    watch(in, p, until_ms);
    mutex_lock(&in->mu);
    in->guest = in->evicted = false;
}

/* Holds: mu, released meanwhile. True: it is to read now. */
static bool sleep_in_line_locked(struct inbox *in, struct sleeper *s, int64_t until_ms)
{
    mutex_assert_held(&in->mu);
    stand_in_line_locked(in, s);
    mutex_unlock(&in->mu);
    bool woken = park_wait(s->park, until_ms);
    mutex_lock(&in->mu);
    leave_line_locked(in, s);
    return in->promised == s && !woken && clock_now_ms() < until_ms;
}

void inbox_wait(struct inbox *in, struct park *p, uint64_t ticket, int64_t until_ms)
{
    struct sleeper me = { .park = p, .ticket = ticket };
    mutex_lock(&in->mu);
    bool guest = becomes_guest_locked(in, &me);
    in->sleepers++;
    if (!guest && sleep_in_line_locked(in, &me, until_ms))
        guest = becomes_guest_locked(in, &me);
    if (guest)
        read_as_guest_locked(in, p, until_ms);
    in->sleepers--;
    bool promised = in->promised == &me;
    if (promised)
        in->promised = NULL;
    if (guest || promised)
        hand_on_locked(in);
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
    if ((in->guest && !in->evicted) || in->promised) {
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
    if (!begin_reading(in, false))
        return;
    end_reading(in, !inbox_take_in(in));
    mutex_lock(&in->mu);
    if (!in->guest && !in->promised)
        (void)promise_locked(in); /* who waits longest reads the next one itself */
    mutex_unlock(&in->mu);
}
