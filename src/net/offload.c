/* SPDX-License-Identifier: MIT
 * offload.c - a few threads for what cannot be done in steps.
 */
#include "net/offload.h"

#include "base/forkguard.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/thread.h"

#define THREADS_MAX 4

struct offload {
    unsigned            generation; /* of forkguard */
    struct mutex        mu;
    pthread_cond_t      news;
    bool                stopping;
    struct offload_job *head, **tail;
    size_t              threads, idle;
    pthread_t           thread[THREADS_MAX];
};

struct offload *offload_new(void)
{
    struct offload *o = mem_zalloc(sizeof *o);
    if (!o)
        return NULL;
    o->generation = forkguard_generation();
    o->tail = &o->head;
    mutex_init(&o->mu, MUTEX_OFFLOAD);
    pthread_cond_init(&o->news, NULL);
    return o;
}

struct offload *offload_free(struct offload *o)
{
    if (!o)
        return NULL;
    if (o->generation == forkguard_generation()) {
        mutex_lock(&o->mu);
        o->stopping = true;
        pthread_cond_broadcast(&o->news);
        mutex_unlock(&o->mu);
        for (size_t i = 0; i < o->threads; i++)
            thread_join(o->thread[i]);
        mutex_destroy(&o->mu);
        pthread_cond_destroy(&o->news);
    }
    mem_free(o);
    return NULL;
}

static void *offload_main(void *arg)
{
    struct offload *o = arg;
    mutex_lock(&o->mu);
    for (;;) {
        struct offload_job *j = o->head;
        if (j) {
            if (!(o->head = j->next))
                o->tail = &o->head;
            mutex_unlock(&o->mu);
            j->work(j);
            task_finish(j->task, &j->park);
            mutex_lock(&o->mu);
        } else if (o->stopping) {
            break;
        } else {
            o->idle++;
            mutex_cond_wait(&o->mu, &o->news);
            o->idle--;
        }
    }
    mutex_unlock(&o->mu);
    return NULL;
}

int offload_start(struct offload *o, struct offload_job *j)
{
    int e = 0;
    mutex_lock(&o->mu);
    if (!o->idle && o->threads < THREADS_MAX) {
        e = thread_start(&o->thread[o->threads], "hf-offload", offload_main, o);
        o->threads += e == 0;
    }
    if (o->threads) { /* one that is there has to do */
        e = 0;
        j->park = (struct park){ 0 };
        j->next = NULL;
        *o->tail = j;
        o->tail = &j->next;
        pthread_cond_signal(&o->news);
    }
    mutex_unlock(&o->mu);
    return e;
}
