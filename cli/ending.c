/* SPDX-License-Identifier: MIT
 * ending.c - the process ends in time, whatever blocks it.
 *
 *   OFF -> ON_SIGNAL   [ending_on_signal]  nothing is held yet
 *   OFF -> WAITING     [ending_wait]
 *   ON_SIGNAL -> OFF   [ending_off]
 *   WAITING -> OFF     [ending_waited]
 *   any -> LEAVING     [ending_in]         there is no way back
 *   any -> STOPPED     [ending_stop]
 * The time limit of ending_at() goes with any of them. */
#include "ending.h"

#include "clock.h"
#include "exitcode.h"
#include "message.h"
#include "platform.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Some send a signal twice, to us and to our group: a server that answers has done its part by
 * then, and the lock is released. */
#define FIRST_MS  150
#define CANCEL_MS 400 /* what a signal leaves to a wait */

enum mode { OFF, ON_SIGNAL, WAITING, LEAVING, STOPPED };

static struct {
    pthread_mutex_t mu;
    enum mode       mode;
    int             started;
    int             wake_fd, timer_fd, signal_fd;
    int             hangup_fd; /* -1: none */
    int64_t         since_ms; /* LEAVING */
    int64_t         at_ms;    /* NEVER: none */
    int             code;
    const struct ending_wait *wait; /* NULL: none is under way */
    int64_t         slow_at_ms; /* of the wait; NEVER */
    int             cancelled;  /* by which signal; -1: hang-up */
    int64_t         timer_ms;   /* what the thread looks at now */
    int             reads;
    char            words[2048];
    void          (*last)(int code);
    const struct signals *signals;
} my = { .mu = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1, .timer_fd = -1, .signal_fd = -1,
         .hangup_fd = -1, .at_ms = NEVER, .slow_at_ms = NEVER, .timer_ms = NEVER, .reads = 1 };

void ending_last(void (*fn)(int code))
{
    my.last = fn;
}

void ending_use(const struct signals *s)
{
    my.signals = s;
}

_Noreturn void ending_now(int code)
{
    if (my.last)
        my.last(code);
    fflush(stdout);
    _exit(code);
}

/* Holds: mu. */
static void leave(void)
{
    if (my.words[0])
        msg_error("%s", my.words);
    ending_now(my.code);
}

/* Holds: mu. The thread looks at these signals and at this time. It does not wake up for that. */
static void look_out(void)
{
    static const int none[] = { 0 };
    int64_t at = my.at_ms < my.slow_at_ms ? my.at_ms : my.slow_at_ms;
    int reads = my.mode != OFF && my.mode != STOPPED;
    if (my.mode == STOPPED)
        at = NEVER;
    if (!my.started)
        return;
    if (at != my.timer_ms)
        clock_timer_set(my.timer_fd, my.timer_ms = at);
    if (reads != my.reads && my.signal_fd >= 0)
        signals_fd_set(my.signal_fd, my.signals, reads ? signals_ending : none);
    my.reads = reads;
    if (my.hangup_fd >= 0)
        platform_bell_ring(my.wake_fd); /* whether it looks at that depends on the mode */
}

/* Holds: mu. */
static void set_end(int64_t at_ms, int code, const char *words)
{
    my.at_ms = at_ms;
    my.code = code;
    snprintf(my.words, sizeof my.words, "%s", words ? words : "");
}

/* Holds: mu. The library takes back what it has asked for. A server that is silent does not hear
 * of it, and will see by itself that we are gone. */
static void cancel(int sig)
{
    my.cancelled = sig;
    my.mode = LEAVING;
    my.since_ms = clock_now_ms();
    set_end(my.since_ms + CANCEL_MS, sig > 0 ? EX_SIGNAL + sig : EX_BUG, NULL);
    look_out();
    my.wait->cancel(my.wait->arg); /* the wait, or the next one if it has not begun yet */
}

/* Holds: mu. */
static void read_signal(void)
{
    int sig = my.mode == OFF ? 0 : platform_signal_read(my.signal_fd);
    if (!sig)
        return;
    if (sig == SIGTSTP) {
        msg_status_clear();
        signals_stop(SIGTSTP, 0);
    } else if (my.mode == ON_SIGNAL) {
        ending_now(EX_SIGNAL + sig);
    } else if (my.mode == WAITING) {
        cancel(sig);
    } else if (my.wait && my.cancelled) { /* for the second time */
        ending_now(my.code);
    } else if (clock_now_ms() >= my.since_ms + FIRST_MS) {
        leave();
    } else if (my.at_ms > my.since_ms + FIRST_MS) {
        my.at_ms = my.since_ms + FIRST_MS;
        look_out();
    }
}

/* Holds: mu. */
static void check_time(void)
{
    int64_t now = clock_now_ms();
    if (now >= my.at_ms)
        leave();
    if (now < my.slow_at_ms)
        return;
    my.slow_at_ms = NEVER;
    my.wait->slow(my.wait->waiting);
    look_out();
}

/* Holds: mu. */
static void hung_up(void)
{
    if (my.mode == ON_SIGNAL)
        ending_now(EX_BUG); /* nobody sees that */
    if (my.mode == WAITING)
        cancel(-1);
}

static int hangup_fd(void)
{
    pthread_mutex_lock(&my.mu);
    int fd = my.mode == WAITING || my.mode == ON_SIGNAL ? my.hangup_fd : -1;
    pthread_mutex_unlock(&my.mu);
    return fd;
}

static void *ending_main(void *arg)
{
    (void)arg;
    for (;;) {
        struct pollfd p[] = { { .fd = my.wake_fd, .events = POLLIN },
                              { .fd = my.timer_fd, .events = POLLIN },
                              { .fd = my.signal_fd, .events = POLLIN },
                              { .fd = hangup_fd(), .events = POLLIN } };
        poll(p, 4, -1);
        uint64_t n;
        ssize_t got = p[0].revents ? read(my.wake_fd, &n, sizeof n) : 0;
        (void)got;
        pthread_mutex_lock(&my.mu);
        int stopped = my.mode == STOPPED;
        if (!stopped)
            check_time();
        if (p[2].revents && !stopped)
            read_signal();
        if (p[3].fd >= 0 && p[3].revents && !stopped && my.hangup_fd == p[3].fd)
            hung_up();
        pthread_mutex_unlock(&my.mu);
        if (stopped)
            return NULL;
    }
}

/* Holds: mu. It lives as long as the process, so nobody has to wait for its end. */
static int start(void)
{
    pthread_t thread;
    if (my.started)
        return 1;
    if (my.wake_fd < 0)
        my.wake_fd = platform_bell();
    if (my.timer_fd < 0)
        my.timer_fd = clock_timer();
    if (my.signal_fd < 0 && my.signals)
        my.signal_fd = signals_fd(my.signals, signals_ending);
    int e = my.wake_fd < 0 || my.timer_fd < 0 || (my.signals && my.signal_fd < 0) ? errno : 0;
    if (!e && (e = pthread_create(&thread, NULL, ending_main, NULL)) == 0)
        pthread_detach(thread);
    my.started = !e;
    errno = e;
    return my.started;
}

/* Holds: mu. Without the thread everything takes as long as it takes. */
static void enter(enum mode mode)
{
    my.mode = mode;
    start();
    look_out();
}

int ending_wait(const struct ending_wait *w)
{
    pthread_mutex_lock(&my.mu);
    int ok = start(), why = errno;
    if (ok) {
        my.wait = w;
        my.cancelled = 0;
        my.slow_at_ms = w->slow_ms == NEVER ? NEVER : clock_now_ms() + w->slow_ms;
        if (my.mode != LEAVING)
            my.mode = WAITING;
        look_out();
    }
    pthread_mutex_unlock(&my.mu);
    if (ok)
        return 0;
    msg_error("cannot wait: %s", strerror(why));
    return EX_SYSTEM;
}

int ending_waited(void)
{
    pthread_mutex_lock(&my.mu);
    my.wait = NULL;
    my.slow_at_ms = NEVER;
    if (my.mode == WAITING)
        my.mode = OFF;
    look_out();
    int sig = my.cancelled;
    pthread_mutex_unlock(&my.mu);
    return sig;
}

void ending_on_hangup(int fd)
{
    pthread_mutex_lock(&my.mu);
    my.hangup_fd = fd;
    look_out();
    pthread_mutex_unlock(&my.mu);
}

void ending_on_signal(void)
{
    pthread_mutex_lock(&my.mu);
    if (my.signals && my.mode == OFF)
        enter(ON_SIGNAL);
    pthread_mutex_unlock(&my.mu);
}

void ending_at(int64_t at_ms, int code, const char *words)
{
    pthread_mutex_lock(&my.mu);
    if (my.mode != LEAVING) {
        set_end(at_ms, code, words);
        enter(my.mode);
    }
    pthread_mutex_unlock(&my.mu);
}

void ending_off(void)
{
    pthread_mutex_lock(&my.mu);
    if (my.mode != LEAVING) {
        my.mode = OFF;
        my.at_ms = NEVER;
        look_out();
    }
    pthread_mutex_unlock(&my.mu);
}

void ending_in(int64_t ms, int code, const char *words)
{
    int64_t now = clock_now_ms(), at = now + (ms > 0 ? ms : 0);
    pthread_mutex_lock(&my.mu);
    if (my.mode != LEAVING) {
        my.since_ms = now;
        set_end(at, code, words);
    } else if (at < my.at_ms) {
        my.at_ms = at;
    }
    enter(LEAVING);
    pthread_mutex_unlock(&my.mu);
}

void ending_said(int code)
{
    pthread_mutex_lock(&my.mu);
    my.code = code;
    my.words[0] = '\0';
    pthread_mutex_unlock(&my.mu);
}

void ending_stop(void)
{
    pthread_mutex_lock(&my.mu);
    my.mode = STOPPED;
    look_out();
    pthread_mutex_unlock(&my.mu);
}
