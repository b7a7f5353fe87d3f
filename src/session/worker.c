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

#define HANDS_MAX 64 /* of more servers, the others share the last one */

struct jobs {
    struct job *head, **tail;
};

/* A thread, and whose steps it takes. */
struct hand {
    struct worker *w;
    const void    *server;
    pthread_t      thread;
    struct alarm   alarm;
    struct heap    due;   /* who has something to do later */
    size_t         jobs;  /* under way: room in the heap */
    struct jobs    ready; /* who has something to do now, in the order in which they came */
};

struct worker {
    int             done_fd;
    pthread_mutex_t mu;
    bool            stopping;
    size_t          n;
    struct hand    *hand[HANDS_MAX];
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
static struct job *next_ready(struct hand *h, int64_t now_ms)
{
    struct heap_node *n;
    while ((n = heap_first(&h->due)) && n->due_ms <= now_ms) {
        heap_remove(&h->due, n);
        append(&h->ready, of_due(n));
    }
    return take(&h->ready);
}

/* Holds: mu. */
static void finish(struct hand *h, struct job *j, hf_err result, const hf_error *err)
{
    uint64_t one = 1;
    j->result = result;
    j->err = NULL;
    if (result && (j->err = mem_alloc(sizeof *err)))
        *j->err = *err;
    append(&h->w->done, j);
    h->jobs--;
    (void)!write(h->w->done_fd, &one, sizeof one);
}

/* Holds: mu, released while the job works. */
static void step(struct hand *h, struct job *j)
{
    struct worker *w = h->w;
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
        finish(h, j, result, &err);
    else if (j->woken)
        append(&h->ready, j);
    else
        heap_put(&h->due, &j->due, until);
}

static void *hand_main(void *arg)
{
    struct hand *h = arg;
    struct worker *w = h->w;
    pthread_mutex_lock(&w->mu);
    while (!w->stopping) {
        struct job *j = next_ready(h, clock_now_ms());
        if (j) {
            step(h, j);
            continue;
        }
        struct heap_node *n = heap_first(&h->due);
        int64_t until = n ? n->due_ms : CLOCK_NEVER;
        pthread_mutex_unlock(&w->mu);
        alarm_wait(&h->alarm, until);
        pthread_mutex_lock(&w->mu);
    }
    pthread_mutex_unlock(&w->mu);
    return NULL;
}

/* ---- hands ----------------------------------------------------------------------------------- */

/* Holds: mu. 0, or an errno. */
static int add_hand(struct worker *w, const void *server)
{
    struct hand *h = mem_zalloc(sizeof *h);
    if (!h)
        return ENOMEM;
    h->w = w;
    h->server = server;
    h->ready.tail = &h->ready.head;
    if (alarm_open(&h->alarm) < 0) {
        int e = errno;
        mem_free(h);
        return e;
    }
    int e = thread_start(&h->thread, hand_main, h);
    if (e) {
        alarm_close(&h->alarm);
        mem_free(h);
        return e;
    }
    w->hand[w->n++] = h;
    return 0;
}

/* Holds: mu. NULL: there is none, and *ret_e. */
static struct hand *hand_for(struct worker *w, const void *server, int *ret_e)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->hand[i]->server == server)
            return w->hand[i];
    *ret_e = w->n < HANDS_MAX ? add_hand(w, server) : 0;
    return *ret_e ? NULL : w->hand[w->n - 1];
}

static hf_err no_thread(int e, hf_error *reterr)
{
    if (e == ENOMEM)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    return err_set(reterr, HF_ESYS, "cannot start the thread for requests without blocking: %s",
                   strerror(e));
}

/* ---- open and close -------------------------------------------------------------------------- */

hf_err worker_open(struct worker **ret, hf_error *reterr)
{
    struct worker *w = mem_zalloc(sizeof *w);
    if (!w)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    w->done.tail = &w->done.head;
    pthread_mutex_init(&w->mu, NULL);
    int e = 0;
    w->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->done_fd < 0)
        e = errno;
    else if (forkguard_add(w->done_fd) < 0) {
        close(w->done_fd);
        e = ENOMEM;
    }
    if (e) {
        worker_forget(w);
        return no_thread(e, reterr);
    }
    *ret = w;
    return HF_OK;
}

struct worker *worker_free(struct worker *w)
{
    if (!w)
        return NULL;
    pthread_mutex_lock(&w->mu);
    w->stopping = true; /* no hand is added any more */
    for (size_t i = 0; i < w->n; i++)
        alarm_ring(&w->hand[i]->alarm);
    pthread_mutex_unlock(&w->mu);
    for (size_t i = 0; i < w->n; i++)
        pthread_join(w->hand[i]->thread, NULL);
    pthread_mutex_lock(&w->mu);
    struct job *j;
    for (size_t i = 0; i < w->n; i++)
        while ((j = next_ready(w->hand[i], CLOCK_NEVER)))
            step(w->hand[i], j);
    pthread_mutex_unlock(&w->mu);
    worker_dispatch(w);
    for (size_t i = 0; i < w->n; i++)
        alarm_close(&w->hand[i]->alarm);
    forkguard_close(w->done_fd);
    pthread_mutex_destroy(&w->mu);
    return worker_forget(w);
}

struct worker *worker_forget(struct worker *w)
{
    if (!w)
        return NULL;
    for (size_t i = 0; i < w->n; i++) {
        heap_clear(&w->hand[i]->due);
        mem_free(w->hand[i]);
    }
    mem_free(w);
    return NULL;
}

hf_err worker_add(struct worker *w, struct job *j, const void *server, hf_error *reterr)
{
    int e = 0;
    pthread_mutex_lock(&w->mu);
    bool stopping = w->stopping;
    struct hand *h = stopping ? NULL : hand_for(w, server, &e);
    if (h && heap_reserve(&h->due, h->jobs + 1) < 0)
        e = ENOMEM;
    if (h && !e) {
        h->jobs++;
        j->hand = h;
        append(&h->ready, j);
    }
    pthread_mutex_unlock(&w->mu);
    if (stopping)
        return err_set(reterr, HF_ECANCELED, "the client is being freed");
    if (e)
        return no_thread(e, reterr);
    alarm_ring(&h->alarm);
    return HF_OK;
}

void worker_wake(struct worker *w, struct job *j)
{
    pthread_mutex_lock(&w->mu);
    struct hand *h = j->hand;
    j->woken = true;
    if (j->due.at) {
        heap_remove(&h->due, &j->due);
        append(&h->ready, j);
    }
    pthread_mutex_unlock(&w->mu);
    if (h)
        alarm_ring(&h->alarm);
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
