/* SPDX-License-Identifier: MIT
 * await.c - a wait of the library that signals can end. */
#include "await.h"

#include "ending.h"
#include "exitcode.h"
#include "message.h"
#include "platform.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define CANCEL_MS 400 /* what a signal leaves to a wait */

static void read_signal(struct await *a)
{
    int sig = platform_signal_read(a->signal_fd);
    if (!sig)
        return;
    if (sig == SIGTSTP) {
        signals_stop(SIGTSTP, 0);
        return;
    }
    int code = EX_SIGNAL + sig;
    if (atomic_exchange(&a->signal, sig))
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
    a->end_fd = platform_bell();
    if (a->signal_fd >= 0 && a->end_fd >= 0
        && pthread_create(&a->thread, NULL, await_main, a) == 0)
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
    platform_bell_ring(a->end_fd);
    pthread_join(a->thread, NULL);
    close(a->signal_fd);
    close(a->end_fd);
    return atomic_load(&a->signal);
}
