/* SPDX-License-Identifier: MIT
 * worker.c - requests that somebody else's event loop waits for.
 */
#include "session/worker.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/alarm.h"
#include "base/clock.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/thread.h"

struct jobs {
    struct job *head, **tail;
};

struct worker {
    pthread_t       thread;
    struct alarm    alarm;
    int             done_fd;
    pthread_mutex_t mu;
    bool            stopping;
    struct heap     due;   /* who has something to do later */
    size_t          jobs;  /* under way: room in the heap */
    struct jobs     ready; /* who has something to do now, in the order in which they came */
    struct jobs     done;
};

static struct job *of_due(struct heap_node *n)
{
    return (struct job *)((char *)n - offsetof(struct job, due));
}

static void append(struct jobs *list, struct job *j)
{
    j->next = NULL;
    *list->tail = j;
    list->tail = &j->next;
}

static struct job *take(struct jobs *list)
{
    struct job *j = list->head;
    if (j && !(list->head = j->next))
        list->tail = &list->head;
    return j;
}

/* Holds: mu. Whoever is due goes to the end of the row; NULL: nobody has anything to do. */
static struct job *next_ready(struct worker *w, int64_t now_ms)
{
    struct heap_node *n;
    while ((n = heap_first(&w->due)) && n->due_ms <= now_ms) {
        heap_remove(&w->due, n);
        append(&w->ready, of_due(n));
    }
    return take(&w->ready);
}

/* Holds: mu. */
static void finish(struct worker *w, struct job *j, hf_err result, const hf_error *err)
{
    uint64_t one = 1;
    j->result = result;
    j->err = NULL;
    if (result && (j->err = mem_alloc(sizeof *err)))
        *j->err = *err;
    append(&w->done, j);
    w->jobs--;
    (void)!write(w->done_fd, &one, sizeof one);
}

/* Holds: mu, released while the job works. */
static void step(struct worker *w, struct job *j)
{
    hf_error err = { 0 };
    int64_t until = CLOCK_NEVER;
    j->woken = false;
    pthread_mutex_unlock(&w->mu);
    hf_err result = HF_OK;
    bool finished = j->step(j, &result, &until, &err);
    pthread_mutex_lock(&w->mu);
    if (!finished && w->stopping) /* nobody is there to wait for it */
        result = err_set(&err, HF_ECANCELED, "the client was freed");
    if (finished || w->stopping)
        finish(w, j, result, &err);
    else if (j->woken)
        append(&w->ready, j);
    else
        heap_put(&w->due, &j->due, until);
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    pthread_mutex_lock(&w->mu);
    while (!w->stopping) {
        struct job *j = next_ready(w, clock_now_ms());
        if (j) {
            step(w, j);
            continue;
        }
        struct heap_node *n = heap_first(&w->due);
        int64_t until = n ? n->due_ms : CLOCK_NEVER;
        pthread_mutex_unlock(&w->mu);
        alarm_wait(&w->alarm, until);
        pthread_mutex_lock(&w->mu);
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

hf_err worker_open(struct worker **ret, hf_error *reterr)
{
    struct worker *w = mem_zalloc(sizeof *w);
    if (!w)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    w->ready.tail = &w->ready.head;
    w->done.tail = &w->done.head;
    pthread_mutex_init(&w->mu, NULL);
    int e = 0;
    w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->done_fd < 0 || forkguard_add(w->done_fd) < 0)
        e = errno ? errno : ENOMEM;
    else if (alarm_open(&w->alarm) < 0)
        e = errno;
    if (!e) {
        e = thread_start(&w->thread, worker_main, w);
        if (e)
            alarm_close(&w->alarm);
    }
    if (e) {
        if (w->done_fd >= 0)
            forkguard_close(w->done_fd);
        worker_forget(w);
        return err_set(reterr, HF_ESYS, "cannot start the thread for requests without blocking: %s",
                       strerror(e));
    }
    *ret = w;
    return HF_OK;
}

struct worker *worker_free(struct worker *w)
{
    if (!w)
        return NULL;
    pthread_mutex_lock(&w->mu);
    w->stopping = true;
    pthread_mutex_unlock(&w->mu);
    alarm_ring(&w->alarm);
    pthread_join(w->thread, NULL);
    pthread_mutex_lock(&w->mu);
    struct job *j;
    while ((j = next_ready(w, CLOCK_NEVER)))
        step(w, j);
    pthread_mutex_unlock(&w->mu);
    worker_dispatch(w);
    alarm_close(&w->alarm);
    forkguard_close(w->done_fd);
    pthread_mutex_destroy(&w->mu);
    return worker_forget(w);
}

struct worker *worker_forget(struct worker *w)
{
    if (!w)
        return NULL;
    heap_clear(&w->due);
    mem_free(w);
    return NULL;
}

hf_err worker_add(struct worker *w, struct job *j, hf_error *reterr)
{
    pthread_mutex_lock(&w->mu);
    bool stopping = w->stopping, room = heap_reserve(&w->due, w->jobs + 1) == 0;
    if (room && !stopping) {
        w->jobs++;
        append(&w->ready, j);
    }
    pthread_mutex_unlock(&w->mu);
    if (stopping)
        return err_set(reterr, HF_ECANCELED, "the client is being freed");
    if (!room)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    alarm_ring(&w->alarm);
    return HF_OK;
}

void worker_wake(struct worker *w, struct job *j)
{
    pthread_mutex_lock(&w->mu);
    j->woken = true;
    if (j->due.at) {
        heap_remove(&w->due, &j->due);
        append(&w->ready, j);
    }
    pthread_mutex_unlock(&w->mu);
    alarm_ring(&w->alarm);
}

int worker_fd(const struct worker *w)
{
    return w->done_fd;
}

size_t worker_dispatch(struct worker *w)
{
    uint64_t drained;
    (void)!read(w->done_fd, &drained, sizeof drained);
    pthread_mutex_lock(&w->mu);
    struct job *j = w->done.head;
    w->done.head = NULL;
    w->done.tail = &w->done.head;
    pthread_mutex_unlock(&w->mu);
    size_t n = 0;
    for (struct job *next; j; j = next, n++) {
        next = j->next;
        hf_error *err = j->err;
        j->finished(j, j->result, err);
        mem_free(err);
    }
    return n;
}
