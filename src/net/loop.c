/* SPDX-License-Identifier: MIT
 * loop.c - many tasks in somebody else's event loop, without a thread of ours.
 */
#include "net/loop.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "base/bell.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/poller.h"
#include "net/conn_impl.h"
#include "net/loop_impl.h"

#define DRAIN_TICK_MS 100

struct row {
    struct task *head, **tail;
};

struct loop {
    struct poller   poller;
    struct mutex    mu; /* guards the rest */
    struct heap     timers;
    size_t          tasks;     /* that have not finished: room in the heap */
    struct task    *all;       /* that have not finished */
    struct row      ready, done;
    int64_t         timer_ms;  /* what the timer is set to; CLOCK_NEVER: it is off */
    bool            closed;
    bool            rung;      /* the ring was rung and nobody has come */
    bool            dispatching;
    pthread_t       dispatcher;
    struct conn    *unflushed; /* what was submitted while dispatching; the dispatcher's alone */
    struct conn    *simulated; /* those without a descriptor: one thread runs at a time then */
};

static void append(struct row *row, struct task *t)
{
    t->next = NULL;
    *row->tail = t;
    row->tail = &t->next;
}

static struct task *take(struct row *row)
{
    struct task *t = row->head;
    if (t && !(row->head = t->next))
        row->tail = &row->head;
    return t;
}

static struct task *of_timer(struct heap_node *n)
{
    return (struct task *)((char *)n - offsetof(struct task, timer));
}

/* ---- the descriptor ----------------------------------------------------------------------- */

static bool by_dispatcher_locked(const struct loop *lp)
{
    mutex_assert_held(&lp->mu);
    return lp->dispatching && pthread_equal(lp->dispatcher, pthread_self());
}

/* Whoever polls the descriptor shall come; the dispatcher is there. */
static void ring_locked(struct loop *lp)
{
    mutex_assert_held(&lp->mu);
    if (lp->rung || by_dispatcher_locked(lp))
        return;
    lp->rung = true;
    poller_ring(&lp->poller);
}

/* A timer that is set for earlier stays: it costs a wake-up, and setting it anew for
 * each task that is done in time would cost more. */
static void set_timer_locked(struct loop *lp)
{
    mutex_assert_held(&lp->mu);
    const struct heap_node *n = heap_first(&lp->timers);
    if (!n || n->due_ms >= lp->timer_ms)
        return;
    int64_t at = lp->timer_ms = n->due_ms > 0 ? n->due_ms : 1;
    poller_set_timer(&lp->poller, at);
}

hf_err loop_open(struct loop **ret, hf_error *reterr)
{
    struct loop *lp = mem_zalloc(sizeof *lp);
    if (!lp)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    lp->ready.tail = &lp->ready.head;
    lp->done.tail = &lp->done.head;
    lp->timer_ms = CLOCK_NEVER;
    mutex_init(&lp->mu, MUTEX_LOOP);
    if (poller_open(&lp->poller) < 0) {
        int e = errno;
        loop_free(lp);
        return err_set(reterr, e == ENOMEM ? HF_ENOMEM : HF_ESYS,
                       "no descriptors for requests without blocking: %s", strerror(e));
    }
    *ret = lp;
    return HF_OK;
}

struct loop *loop_free(struct loop *lp)
{
    if (!lp)
        return NULL;
    poller_close(&lp->poller);
    mutex_destroy(&lp->mu);
    return loop_forget(lp);
}

struct loop *loop_forget(struct loop *lp)
{
    if (!lp)
        return NULL;
    heap_clear(&lp->timers);
    mem_free(lp);
    return NULL;
}

int loop_fd(const struct loop *lp)
{
    return lp->poller.fd;
}

/* ---- connections -------------------------------------------------------------------------- */

void loop_watch(struct loop *lp, struct conn *cn, int fd, bool writable, bool again)
{
    if (fd >= 0 && again) {
        poller_change(&lp->poller, fd, writable, cn);
    } else if (fd >= 0) {
        poller_add(&lp->poller, fd, writable, cn);
    } else if (!again) {
        cn->next_simulated = lp->simulated;
        lp->simulated = cn;
    }
}

void loop_unwatch(struct loop *lp, struct conn *cn, int fd)
{
    if (fd >= 0) {
        poller_remove(&lp->poller, fd);
        return;
    }
    struct conn **p = &lp->simulated;
    while (*p && *p != cn)
        p = &(*p)->next_simulated;
    if (*p)
        *p = cn->next_simulated;
}

/* Thread: the dispatcher's. Each may go down while it is served. */
static void serve_simulated(struct loop *lp)
{
    for (struct conn *cn = lp->simulated, *next; cn; cn = next) {
        next = cn->next_simulated;
        conn_serve(cn);
    }
}

bool loop_defers(struct loop *lp, struct conn *cn)
{
    mutex_lock(&lp->mu);
    bool defers = by_dispatcher_locked(lp);
    mutex_unlock(&lp->mu);
    if (defers && !cn->unflushed) {
        cn->unflushed = true;
        cn->next_unflushed = lp->unflushed;
        lp->unflushed = cn;
    }
    return defers;
}

/* Thread: the dispatcher's. Holds: nothing. */
static void flush(struct loop *lp)
{
    struct conn *cn;
    while ((cn = lp->unflushed)) {
        lp->unflushed = cn->next_unflushed;
        cn->unflushed = false;
        conn_flush(cn);
    }
}

/* ---- tasks -------------------------------------------------------------------------------- */

static void make_ready_locked(struct loop *lp, struct task *t)
{
    mutex_assert_held(&lp->mu);
    if (t->stepping) {
        t->woken = true;
    } else if (!t->ready) {
        t->ready = true;
        append(&lp->ready, t);
    }
}

void loop_wake(struct task *t, struct park *p)
{
    struct loop *lp = t->loop;
    mutex_lock(&lp->mu);
    if (p)
        park_finish(p);
    make_ready_locked(lp, t);
    if (lp->ready.head)
        ring_locked(lp);
    mutex_unlock(&lp->mu);
}

void loop_close(struct loop *lp)
{
    mutex_lock(&lp->mu);
    lp->closed = true;
    for (struct task *t = lp->all; t; t = t->next_in_loop)
        make_ready_locked(lp, t);
    if (lp->ready.head)
        ring_locked(lp);
    mutex_unlock(&lp->mu);
}

/* Holds: mu, released while it works. */
static void step_locked(struct loop *lp, struct task *t)
{
    mutex_assert_held(&lp->mu);
    t->ready = t->woken = false;
    t->stepping = true;
    t->due_ms = CLOCK_NEVER;
    mutex_unlock(&lp->mu);
    bool finished = t->step(t);
    mutex_lock(&lp->mu);
    t->stepping = false;
    if (finished) {
        heap_remove(&lp->timers, &t->timer);
        t->ready = true; /* nobody wakes it any more */
        append(&lp->done, t);
        ring_locked(lp);
    } else if (t->woken) {
        t->ready = true;
        append(&lp->ready, t);
        ring_locked(lp);
    } else if (t->due_ms == CLOCK_NEVER) {
        heap_remove(&lp->timers, &t->timer);
    } else if (!t->timer.at || t->timer.due_ms != t->due_ms) {
        heap_put(&lp->timers, &t->timer, t->due_ms);
        set_timer_locked(lp);
    }
}

static void list_locked(struct loop *lp, struct task *t)
{
    mutex_assert_held(&lp->mu);
    t->prev_in_loop = NULL;
    t->next_in_loop = lp->all;
    if (lp->all)
        lp->all->prev_in_loop = t;
    lp->all = t;
    lp->tasks++;
}

static void unlist_locked(struct loop *lp, struct task *t)
{
    mutex_assert_held(&lp->mu);
    if (t->prev_in_loop)
        t->prev_in_loop->next_in_loop = t->next_in_loop;
    else
        lp->all = t->next_in_loop;
    if (t->next_in_loop)
        t->next_in_loop->prev_in_loop = t->prev_in_loop;
    lp->tasks--;
}

hf_err loop_add(struct loop *lp, struct task *t, hf_error *reterr)
{
    hf_err e = HF_OK;
    mutex_lock(&lp->mu);
    if (lp->closed)
        e = err_set(reterr, HF_ECANCELED, "the client is being freed");
    else if (heap_reserve(&lp->timers, lp->tasks + 1) < 0)
        e = err_set(reterr, HF_ENOMEM, "out of memory");
    if (e) {
        mutex_unlock(&lp->mu);
        return e;
    }
    t->loop = lp;
    list_locked(lp, t);
    step_locked(lp, t);
    mutex_unlock(&lp->mu);
    return HF_OK;
}

/* Thread: the dispatcher's. Read what has come. */
static void read_connections(struct loop *lp)
{
    struct poller_news news;
    poller_read(&lp->poller, &news);
    if (news.rung || news.timed_out) {
        mutex_lock(&lp->mu);
        lp->rung &= !news.rung;
        if (news.timed_out)
            lp->timer_ms = CLOCK_NEVER;
        mutex_unlock(&lp->mu);
    }
    for (size_t i = 0; i < news.n; i++)
        conn_serve(news.arg[i]);
    serve_simulated(lp);
}

/* Whose time has come stands in the row behind the others. */
static void ready_by_time_locked(struct loop *lp, int64_t now_ms)
{
    mutex_assert_held(&lp->mu);
    struct heap_node *n;
    while ((n = heap_first(&lp->timers)) && n->due_ms <= now_ms) {
        heap_remove(&lp->timers, n);
        make_ready_locked(lp, of_timer(n));
    }
    set_timer_locked(lp);
}

/* Holds: mu, released meanwhile. Those who have finished by now: whoever finishes in the meantime
 * is told the next time, so that nobody keeps us here for ever. */
static size_t tell_finished_locked(struct loop *lp)
{
    mutex_assert_held(&lp->mu);
    struct task *t = lp->done.head;
    size_t n = 0;
    lp->done.head = NULL;
    lp->done.tail = &lp->done.head;
    for (struct task *next; t; t = next, n++) {
        next = t->next;
        unlist_locked(lp, t);
        mutex_unlock(&lp->mu);
        t->finished(t);
        mutex_lock(&lp->mu);
    }
    return n;
}

size_t loop_dispatch(struct loop *lp)
{
    struct task *t;
    mutex_lock(&lp->mu);
    if (lp->dispatching) { /* another thread does, or we are called from finished() */
        mutex_unlock(&lp->mu);
        return 0;
    }
    lp->dispatching = true;
    lp->dispatcher = pthread_self();
    mutex_unlock(&lp->mu);
    read_connections(lp);
    mutex_lock(&lp->mu);
    ready_by_time_locked(lp, clock_now_ms());
    while ((t = take(&lp->ready)))
        step_locked(lp, t);
    mutex_unlock(&lp->mu);
    flush(lp); /* before anything of the caller's runs */
    mutex_lock(&lp->mu);
    size_t n = tell_finished_locked(lp);
    mutex_unlock(&lp->mu);
    flush(lp);
    mutex_lock(&lp->mu);
    lp->dispatching = false;
    if (lp->ready.head || lp->done.head)
        ring_locked(lp);
    mutex_unlock(&lp->mu);
    return n;
}

int64_t loop_next_due(struct loop *lp)
{
    mutex_lock(&lp->mu);
    const struct heap_node *n = heap_first(&lp->timers);
    int64_t due = lp->ready.head || lp->done.head ? 0 : n ? n->due_ms : CLOCK_NEVER;
    mutex_unlock(&lp->mu);
    return due;
}

/* Until there is something to do, or a tick has passed. */
static void await(struct loop *lp)
{
    struct pollfd p = { .fd = lp->poller.fd, .events = POLLIN };
    stream_waiter simulated = stream_simulated_waiter();
    int64_t now = clock_now_ms();
    if (simulated)
        (void)simulated(NULL, clock_earlier(loop_next_due(lp), now + DRAIN_TICK_MS),
                        bell_on(lp->poller.bell_fd));
    else if (stream_simulated())
        clock_sleep_until(now + 1);
    else
        poll(&p, 1, DRAIN_TICK_MS);
}

void loop_drain(struct loop *lp)
{
    for (;;) {
        loop_dispatch(lp);
        mutex_lock(&lp->mu);
        size_t left = lp->tasks;
        mutex_unlock(&lp->mu);
        if (!left)
            return;
        await(lp);
    }
}
