/* SPDX-License-Identifier: MIT
 * signals.c - signals as events: blocked everywhere, read from a descriptor.
 *
 * No handler is installed, so nothing runs at an awkward moment, and what must be put back for
 * the child is the mask and two dispositions. */
#include "signals.h"

#include "ending.h"
#include "platform.h"

#include <pthread.h>

const int signals_ending[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, 0 };
const int signals_running[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,  SIGUSR1, SIGUSR2,
                                SIGCHLD, SIGCONT, SIGTSTP, SIGWINCH, 0 };

static void set_disposition(int sig, void (*to)(int), struct sigaction *old)
{
    struct sigaction sa = { .sa_handler = to };
    sigemptyset(&sa.sa_mask);
    sigaction(sig, &sa, old);
}

void signals_block(struct signals *s)
{
    sigset_t block;
    sigemptyset(&s->wanted);
    for (const int *sig = signals_running; *sig; sig++) {
        struct sigaction now;
        if (sigaction(*sig, NULL, &now) == 0 && now.sa_handler == SIG_IGN && *sig != SIGCHLD)
            continue; /* blocked and ignored, it would still be queued for the descriptor */
        sigaddset(&s->wanted, *sig);
    }
    block = s->wanted;
    sigaddset(&block, SIGTTIN);
    sigaddset(&block, SIGTTOU); /* tcsetpgrp() from the background works only so */
    pthread_sigmask(SIG_BLOCK, &block, &s->original);
    set_disposition(SIGPIPE, SIG_IGN, &s->sigpipe);
    set_disposition(SIGCHLD, SIG_DFL, &s->sigchld); /* ignored, children could not be waited for */
    ending_use(s);
}

static sigset_t wanted_of(const struct signals *s, const int *which)
{
    sigset_t set;
    sigemptyset(&set);
    for (; *which; which++)
        if (sigismember(&s->wanted, *which))
            sigaddset(&set, *which);
    return set;
}

int signals_fd(const struct signals *s, const int *which)
{
    sigset_t set = wanted_of(s, which);
    return platform_signal_fd(-1, &set);
}

void signals_fd_set(int fd, const struct signals *s, const int *which)
{
    sigset_t set = wanted_of(s, which);
    platform_signal_fd(fd, &set);
}

void signals_restore(const struct signals *s)
{
    sigaction(SIGPIPE, &s->sigpipe, NULL);
    sigaction(SIGCHLD, &s->sigchld, NULL);
    pthread_sigmask(SIG_SETMASK, &s->original, NULL);
}

void signals_stop(int sig, int group)
{
    sigset_t set;
    if (group)
        kill(0, sig);
    else
        raise(sig);
    if (sig == SIGSTOP)
        return; /* cannot be blocked: it has already been */
    sigemptyset(&set);
    sigaddset(&set, sig);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL); /* stops here */
    pthread_sigmask(SIG_BLOCK, &set, NULL);
}
