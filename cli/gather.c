/* SPDX-License-Identifier: MIT
 * gather.c - looks at all locks, one after the other, in a thread of its own. */
#include "gather.h"

#include "clock.h"
#include "exitcode.h"
#include "message.h"

#include <string.h>
#include <time.h>

struct looking {
    struct lock_list  list;
    const atomic_int *stop;
    atomic_llong     *heard_ms; /* NULL: nobody asks */
    int               out_of_memory;
};

static int each(const hf_inspect_info *info, void *arg)
{
    struct looking *l = arg;
    l->out_of_memory = lock_list_add(&l->list, info) != 0;
    if (l->heard_ms)
        atomic_store(l->heard_ms, clock_now_ms());
    return l->out_of_memory || (l->stop && atomic_load(l->stop));
}

/* If some servers are away, the locks of the others are told of, and the error comes behind. */
static int is_partial(hf_err e, const struct looking *l)
{
    return e == HF_ECONN && l->list.n > 0;
}

static hf_err look(hf_client *c, const char *pattern, struct looking *l, hf_error *reterr)
{
    hf_err e = hf_inspect_list(c, pattern, 0, each, l, reterr);
    if (l->out_of_memory || (e == HF_OK && l->stop && atomic_load(l->stop))) {
        e = l->out_of_memory ? HF_ENOMEM : HF_ECANCELED;
        memset(reterr, 0, sizeof *reterr);
    }
    if (e && !is_partial(e, l))
        lock_list_free(&l->list);
    return e;
}

static hf_err take(struct scene *s, struct looking *l, hf_err e, hf_error *reterr)
{
    if (e && !is_partial(e, l))
        return e;
    if (scene_look(s, &l->list, e != HF_OK, clock_now_ms()) == 0)
        return e;
    memset(reterr, 0, sizeof *reterr);
    return HF_ENOMEM;
}

hf_err gather_look(hf_client *c, const char *pattern, struct scene *s, const atomic_int *stop,
                   hf_error *reterr)
{
    struct looking l = { .stop = stop };
    hf_err e = look(c, pattern, &l, reterr);
    return take(s, &l, e, reterr);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* When the next look is due. Where a look takes long, the server gets as much time to itself. */
static int64_t due_ms(const struct gather *g, int64_t began_ms, int64_t ended_ms)
{
    int64_t due = began_ms + g->every_ms, rested = ended_ms + (ended_ms - began_ms);
    return due > rested ? due : rested;
}

/* Holds: mu, released while it waits. Until the next look is due, or it ends. */
static void await_turn(struct gather *g, int64_t began_ms, int64_t ended_ms)
{
    while (!atomic_load(&g->stop) && !g->once) {
        int idle = g->watchers == 0 || g->paused;
        int64_t left = due_ms(g, began_ms, ended_ms) - clock_now_ms();
        if (!idle && left <= 0)
            return;
        if (idle) {
            pthread_cond_wait(&g->news, &g->mu);
            continue;
        }
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += left / 1000;
        until.tv_nsec += left % 1000 * 1000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_nsec -= 1000000000;
            until.tv_sec++;
        }
        pthread_cond_timedwait(&g->news, &g->mu, &until);
    }
    g->once = 0;
}

/* Thread: the gatherer's. */
static void *run(void *arg)
{
    struct gather *g = arg;
    int64_t began_ms = clock_now_ms() - g->every_ms, ended_ms = began_ms;
    pthread_mutex_lock(&g->mu);
    for (;;) {
        await_turn(g, began_ms, ended_ms);
        if (atomic_load(&g->stop))
            break;
        struct looking l = { .stop = &g->stop, .heard_ms = &g->heard_ms };
        hf_error err;
        pthread_mutex_unlock(&g->mu);
        began_ms = clock_now_ms();
        atomic_store(&g->heard_ms, began_ms);
        hf_err e = look(g->c, g->pattern, &l, &err);
        atomic_store(&g->heard_ms, 0);
        ended_ms = clock_now_ms();
        pthread_mutex_lock(&g->mu);
        e = take(&g->scene, &l, e, &err);
        g->result = e;
        if (e)
            g->error = err;
        g->looks++;
        pthread_cond_broadcast(&g->news);
        pthread_mutex_unlock(&g->mu);
        if (g->told)
            g->told(g->arg);
        pthread_mutex_lock(&g->mu);
    }
    pthread_mutex_unlock(&g->mu);
    return NULL;
}

int gather_start(struct gather *g)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&g->mu, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&g->news, &attr);
    pthread_condattr_destroy(&attr);
    int failed = pthread_create(&g->thread, NULL, run, g);
    g->started = !failed;
    if (!failed)
        return 0;
    msg_error("cannot start a thread: %s", strerror(failed));
    return EX_SYSTEM;
}

void gather_stop(struct gather *g)
{
    if (!g->started)
        return;
    pthread_mutex_lock(&g->mu);
    atomic_store(&g->stop, 1);
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->mu);
}

void gather_join(struct gather *g)
{
    if (!g->started)
        return;
    gather_stop(g);
    pthread_join(g->thread, NULL);
    g->started = 0;
    scene_free(&g->scene);
}

int64_t gather_silence_ms(struct gather *g)
{
    int64_t heard_ms = atomic_load(&g->heard_ms);
    return heard_ms ? clock_now_ms() - heard_ms : 0;
}

void gather_watch(struct gather *g, int more)
{
    pthread_mutex_lock(&g->mu);
    g->watchers += more;
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->mu);
}

void gather_pause(struct gather *g, int paused)
{
    pthread_mutex_lock(&g->mu);
    g->paused = paused;
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->mu);
}

void gather_every(struct gather *g, int64_t every_ms)
{
    pthread_mutex_lock(&g->mu);
    g->every_ms = every_ms;
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->mu);
}

void gather_now(struct gather *g)
{
    pthread_mutex_lock(&g->mu);
    g->once = 1;
    pthread_cond_broadcast(&g->news);
    pthread_mutex_unlock(&g->mu);
}
