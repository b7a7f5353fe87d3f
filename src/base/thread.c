/* SPDX-License-Identifier: MIT
 * thread.c - starting a background thread of the library.
 */
#include "base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*main_fn)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(ret, NULL, main_fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}
