/* SPDX-License-Identifier: MIT
 * ending.c - the process ends in time, whatever blocks it.
 *
 *   OFF -> ON_SIGNAL   [ending_on_signal]  nothing is held yet
 *   ON_SIGNAL -> OFF   [ending_off]
 *   any -> LEAVING     [ending_in]         there is no way back
 *   any -> STOPPED     [ending_stop]
 * The time limit of ending_at() goes with any of them. */
#include "ending.h"

#include "clock.h"
#include "exitcode.h"
#include "message.h"
#include "platform.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Some send a signal twice, to us and to our group: a server that answers has done its part by
 * then, and the lock is released. */
#define FIRST_MS 150

enum mode { OFF, ON_SIGNAL, LEAVING, STOPPED };

static struct {
    pthread_mutex_t mu;
    enum mode       mode;
    pthread_t       thread;
    int             started;
    int             wake_fd, timer_fd, signal_fd;
    int64_t         since_ms; /* LEAVING */
    int64_t         at_ms;    /* NEVER: none */
    int             code;
    char            words[2048];
    void          (*last)(int code);
    const struct signals *signals;
} my = { .mu = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1, .timer_fd = -1, .signal_fd = -1,
         .at_ms = NEVER };

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
    } else if (clock_now_ms() >= my.since_ms + FIRST_MS) {
        leave();
    } else if (my.at_ms > my.since_ms + FIRST_MS) {
        my.at_ms = my.since_ms + FIRST_MS;
    }
}

static void *ending_main(void *arg)
{
    (void)arg;
    for (;;) {
        pthread_mutex_lock(&my.mu);
        clock_timer_set(my.timer_fd, my.at_ms);
        struct pollfd p[] = { { .fd = my.wake_fd, .events = POLLIN },
                              { .fd = my.timer_fd, .events = POLLIN },
                              { .fd = my.mode == OFF ? -1 : my.signal_fd, .events = POLLIN } };
        pthread_mutex_unlock(&my.mu);
        poll(p, 3, -1);
        uint64_t n;
        ssize_t got = p[0].revents ? read(my.wake_fd, &n, sizeof n) : 0;
        (void)got;
        pthread_mutex_lock(&my.mu);
        if (my.mode != STOPPED && clock_now_ms() >= my.at_ms)
            leave();
        int stopped = my.mode == STOPPED;
        if (p[2].revents && !stopped)
            read_signal();
        pthread_mutex_unlock(&my.mu);
        if (stopped)
            return NULL;
    }
}

/* Holds: mu. Without the thread everything takes as long as it takes. */
static void enter(enum mode mode)
{
    my.mode = mode;
    if (!my.started) {
        my.wake_fd = platform_bell();
        my.timer_fd = clock_timer();
        my.signal_fd = my.signals ? signals_fd(my.signals, signals_ending) : -1;
        my.started = my.wake_fd >= 0 && pthread_create(&my.thread, NULL, ending_main, NULL) == 0;
    }
    if (my.started)
        platform_bell_ring(my.wake_fd);
}

void ending_on_signal(void)
{
    pthread_mutex_lock(&my.mu);
    if (my.signals && my.mode == OFF)
        enter(ON_SIGNAL);
    pthread_mutex_unlock(&my.mu);
}

/* Holds: mu. */
static void set_end(int64_t at_ms, int code, const char *words)
{
    my.at_ms = at_ms;
    my.code = code;
    snprintf(my.words, sizeof my.words, "%s", words ? words : "");
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
    int started = my.started;
    my.started = 0;
    my.mode = STOPPED;
    if (started)
        platform_bell_ring(my.wake_fd);
    pthread_mutex_unlock(&my.mu);
    if (started)
        pthread_join(my.thread, NULL);
}
