/* SPDX-License-Identifier: MIT
 * cmd_top.c - holdfast top [PATTERN]: the terminal, signals, and what moves the screen.
 *
 * One thread draws and reads keys, another looks at the locks (gather.c): a server that is slow, or
 * away, never holds up a key. Signals are read as events, so the terminal is given back on every
 * way out. */
#include "clock.h"
#include "commands.h"
#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "open.h"
#include "platform.h"
#include "top.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVERY_MS 1000
#define LEAST_MS 100
#define TICK_MS  1000 /* for what changes by itself: how long the server has been away */

static const int heeded[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGCONT, SIGWINCH, 0 };

struct events {
    struct signals signals;
    int            signal_fd;
    int            code; /* of the signal that ended it; 0: none */
};

/* Thread: the gatherer's. */
static void looked(void *arg)
{
    const struct top *t = arg;
    platform_bell_ring(t->bell_fd);
}

/* Stop as any job does. Continued in the background, stop again: the terminal is another's. */
static void suspend(void)
{
    screen_leave();
    for (int tries = 0; tries < 3; tries++) {
        signals_stop(SIGTSTP, 0);
        if (tcgetpgrp(STDIN_FILENO) == getpgrp())
            break;
    }
    screen_return();
}

static void take_signals(struct top *t, struct events *ev)
{
    int sig;
    while ((sig = platform_signal_read(ev->signal_fd)) != 0) {
        if (sig == SIGTSTP) {
            suspend();
        } else if (sig == SIGWINCH) {
            screen_resize();
        } else if (sig != SIGCONT) {
            ev->code = EX_SIGNAL + sig;
            t->quit = 1;
        }
    }
}

static void take_look(struct top *t)
{
    uint64_t rung;
    ssize_t n = read(t->bell_fd, &rung, sizeof rung);
    (void)n;
    if (t->gather.looks == 0)
        return;
    if (t->gather.result == HF_OK || t->gather.result == HF_ECANCELED)
        t->away_since_ms = 0;
    else if (!t->away_since_ms) /* or a part of it */
        t->away_since_ms = clock_now_ms();
}

/* Until it is quit; the exit status. */
static int loop(struct top *t, struct events *ev)
{
    struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                            { .fd = t->bell_fd, .events = POLLIN },
                            { .fd = ev->signal_fd, .events = POLLIN } };
    int code = 0;
    while (!t->quit && !code) {
        pthread_mutex_lock(&t->gather.mu);
        if (top_refresh(t) != 0)
            code = msg_failed(HF_ENOMEM, NULL);
        else
            top_draw(t);
        pthread_mutex_unlock(&t->gather.mu);
        if (poll(fds, 3, TICK_MS) < 0 && errno != EINTR)
            return EX_SYSTEM;
        take_signals(t, ev);
        pthread_mutex_lock(&t->gather.mu);
        if (fds[1].revents)
            take_look(t);
        top_break_look(t);
        for (int key; fds[0].revents && (key = screen_key()) != SKEY_NONE;)
            if (!t->quit) {
                top_refresh(t);
                top_key(t, key);
            }
        pthread_mutex_unlock(&t->gather.mu);
        if (fds[0].revents & (POLLHUP | POLLERR | POLLNVAL)) /* the terminal is gone */
            return EX_SIGNAL + SIGHUP;
    }
    return code ? code : ev->code;
}

/* With the screen open; the exit status. */
static int show(struct top *t, struct events *ev)
{
    int code = gather_start(&t->gather);
    if (code)
        return code;
    gather_watch(&t->gather, 1);
    int verbosity = msg_verbosity();
    msg_level(1, 0); /* what the library logs would be written across the screen */
    code = screen_open();
    if (!code)
        code = loop(t, ev);
    screen_close();
    msg_level(verbosity < 0, verbosity > 0 ? verbosity : 0);
    /* A server that is silent does not keep us. */
    ending_in(1000, code, NULL);
    if (t->breaking.started) {
        msg_note("the break is under way: see holdfast status");
        ending_now(code);
    }
    gather_join(&t->gather);
    return code;
}

static int check(const struct cmd *cmd, const struct opts *o, int argc)
{
    if (argc > 1)
        return usage_error(cmd, "one pattern at most: quote it, so that the shell does not "
                                "expand it");
    if (o->every_ms != GIVEN_NOT && o->every_ms < LEAST_MS)
        return usage_error(cmd, "--every must be 100ms or more");
    if (o->output != OUT_TABLE)
        return usage_error(cmd, "it draws on a terminal: for programs there is holdfast ls -o "
                                "json");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return usage_error(cmd, "it needs a terminal; holdfast ls prints the same once");
    return screen_load(cmd->name);
}

int cmd_top(const struct cmd *cmd, struct opts *o, int argc, char **argv)
{
    static struct top t;
    static struct events ev;
    int code = check(cmd, o, argc);
    if (code)
        return code;
    signals_block(&ev.signals);
    t.gather.pattern = argc ? argv[0] : NULL;
    t.gather.every_ms = o->every_ms != GIVEN_NOT ? o->every_ms : EVERY_MS;
    t.gather.told = looked;
    t.gather.arg = &t;
    code = client_open(o, NULL, &t.gather.c);
    if (code)
        return code;
    t.server = hf_client_url(t.gather.c);
    t.bell_fd = platform_bell();
    ev.signal_fd = signals_fd(&ev.signals, heeded);
    if (t.bell_fd < 0 || ev.signal_fd < 0) {
        msg_error("%s", strerror(errno));
        code = EX_SYSTEM;
    } else {
        code = show(&t, &ev);
    }
    free(t.row);
    free(t.line);
    client_close(t.gather.c);
    return code;
}
