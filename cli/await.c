/* SPDX-License-Identifier: MIT
 * await.c - a wait of the library that signals can end. */
#include "await.h"

#include "ending.h"
#include "exitcode.h"
#include "message.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define CANCEL_MS 400 /* what a signal leaves to a wait */

static void read_signal(struct await *a)
{
    struct signalfd_siginfo si;
    if (read(a->signal_fd, &si, sizeof si) != (ssize_t)sizeof si)
        return;
    if (si.ssi_signo == SIGTSTP) {
        signals_stop(SIGTSTP, 0);
        return;
    }
    int code = EX_SIGNAL + (int)si.ssi_signo;
    if (atomic_exchange(&a->signal, (int)si.ssi_signo))
        ending_now(code); /* for the second time */
    ending_in(CANCEL_MS, code, NULL);
    a->cancel(a->arg);
}

static void *await_main(void *arg)
{
    struct await *a = arg;
    struct pollfd p[] = { { .fd = a->end_fd, .events = POLLIN },
                          { .fd = a->signal_fd, .events = POLLIN } };
    for (;;) {
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return NULL;
        if (p[0].revents)
            return NULL;
        if (p[1].revents)
            read_signal(a);
    }
}

int await_start(struct await *a, const struct signals *s, void (*cancel)(void *arg), void *arg)
{
    *a = (struct await){ .cancel = cancel, .arg = arg };
    a->signal_fd = signals_fd(s, signals_ending);
    a->end_fd = eventfd(0, EFD_CLOEXEC);
    if (a->signal_fd >= 0 && a->end_fd >= 0 &&
        pthread_create(&a->thread, NULL, await_main, a) == 0)
        return 0;
    msg_error("cannot wait: %s", strerror(errno));
    if (a->signal_fd >= 0)
        close(a->signal_fd);
    if (a->end_fd >= 0)
        close(a->end_fd);
    return EX_SYSTEM;
}

int await_end(struct await *a)
{
    uint64_t one = 1;
    ssize_t n = write(a->end_fd, &one, sizeof one);
    (void)n;
    pthread_join(a->thread, NULL);
    close(a->signal_fd);
    close(a->end_fd);
    return atomic_load(&a->signal);
}
