/* SPDX-License-Identifier: MIT
 * thread.c - starting and joining a background thread of the library.
 */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>

#include "holdfast.h"

#include "base/mem.h"
#include "base/seam.h"

struct start {
    const char *name;
    void     *(*main_fn)(void *);
    void       *arg;
};

/* By the thread itself: to name another one costs a file of /proc. */
static void *run(void *arg)
{
    struct start s = *(struct start *)arg;
    mem_free(arg);
    (void)pthread_setname_np(pthread_self(), s.name);
    return s.main_fn(s.arg);
}

int thread_start(pthread_t *ret, const char *name, void *(*main_fn)(void *), void *arg)
{
    const struct seam *seam = seam_get();
    sigset_t all, before;
    if (seam && seam->start)
        return seam->start(ret, main_fn, arg);
    struct start *s = mem_alloc(sizeof *s);
    if (!s)
        return ENOMEM;
    *s = (struct start){ name, main_fn, arg };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int e = pthread_create(ret, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (e)
        mem_free(s);
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

static _Thread_local uint64_t acts_for; /* the number of another thread; 0: nobody's */

uint64_t thread_number(void)
{
    static _Atomic uint64_t last;
    static _Thread_local uint64_t mine;
    const struct seam *seam = seam_get();
    if (acts_for)
        return acts_for;
    if (seam && seam->self)
        return seam->self();
    if (!mine)
        mine = atomic_fetch_add(&last, 1) + 1;
    return mine;
}

uint64_t hf_thread_number(void)
{
    return thread_number();
}

void hf_thread_act_for(uint64_t number)
{
    acts_for = number;
}
