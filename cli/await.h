/* SPDX-License-Identifier: MIT
 * await.h - a wait of the library that signals can end. */
#ifndef CLI_AWAIT_H
#define CLI_AWAIT_H

#include "signals.h"

#include <pthread.h>
#include <stdatomic.h>

struct await {
    pthread_t  thread;
    int        signal_fd, end_fd;
    void     (*cancel)(void *arg);
    void      *arg;
    atomic_int signal; /* the one that ended the wait; 0: none */
};

/* From here on a signal that ends a wait calls cancel(arg), in a thread of its own. Signals are
 * blocked (signals_block()). 0, or an exit status after a message. */
int await_start(struct await *a, const struct signals *s, void (*cancel)(void *arg), void *arg);
/* The signal that came meanwhile, or 0. */
int await_end(struct await *a);

#endif
