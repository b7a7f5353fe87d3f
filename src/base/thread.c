/* SPDX-License-Identifier: MIT
 * thread.c - starting and joining a background thread of the library.
 */
#include "base/thread.h"

#include <signal.h>

#include "base/seam.h"

int thread_start(pthread_t *ret, const char *name, void *(*main_fn)(void *), void *arg)
{
    const struct seam *seam = seam_get();
    sigset_t all, before;
    if (seam && seam->start)
        return seam->start(ret, main_fn, arg);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(ret, NULL, main_fn, arg);
    if (!e)
        (void)pthread_setname_np(*ret, name);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return e;
}

void thread_join(pthread_t thread)
{
    const struct seam *seam = seam_get();
    if (seam && seam->join)
        seam->join(thread);
    else
        pthread_join(thread, NULL);
}
