/* SPDX-License-Identifier: MIT
 * task.c - something that is done in steps: who waits between them.
 *
 * A thread that waits for one reply reads the connection itself, or sleeps until the one who reads
 * it has its reply (conn_wait()). With several under way, on several connections, it polls all that
 * nobody else reads; where others do, they ring a bell.
 */
#include "net/task.h"

#include <poll.h>
#include <pthread.h>

#include "base/bell.h"
#include "base/forkguard.h"
#include "base/mutex.h"
#include "net/conn_impl.h"
#include "net/loop_impl.h"

void task_wake(struct task *t)
{
    if (t->loop)
        loop_wake(t, NULL);
    else if (t->park)
        park_wake(t->park);
}

void task_finish(struct task *t, struct park *p)
{
    if (t->loop)
        loop_wake(t, p);
    else
        park_finish(p);
}

/* ---- bells for threads that wait for several connections ---------------------------------- */

/* Whoever was about to ring one may still do so when its user has gone: none is closed while there
 * are connections, and the next user wakes up once too often. */
#define BELLS_MAX 256
static struct {
    struct mutex    mu;
    unsigned        generation; /* of forkguard: those of a parent are closed */
    size_t          conns;
    size_t          made, idle;
    int             fd[BELLS_MAX];
} bells = { .mu = MUTEX_INITIALIZER(MUTEX_BELLS) };

static void before_fork(void)
{
    mutex_lock(&bells.mu);
}

static void after_fork(void)
{
    mutex_unlock(&bells.mu);
}

/* After forkguard's, so that a fork takes the two locks in the order in which we do. */
static void install(void)
{
    (void)forkguard_generation();
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* Before anybody has locked it, the fork is prepared for that: else the lock of a thread that the
 * child does not have would be locked in it for ever. */
static void lock_bells(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    mutex_lock(&bells.mu);
}

/* -1: without, looking more often. */
static int take_bell(void)
{
    int fd = -1;
    lock_bells();
    if (bells.generation != forkguard_generation()) {
        bells.generation = forkguard_generation();
        bells.made = bells.idle = 0;
    }
    if (bells.idle) {
        fd = bells.fd[--bells.idle];
    } else if (bells.made < BELLS_MAX) {
        fd = bell_open();
        bells.made += fd >= 0;
    }
    mutex_unlock(&bells.mu);
    return fd;
}

static void return_bell(int fd)
{
    if (fd < 0)
        return;
    lock_bells();
    bells.fd[bells.idle++] = fd;
    mutex_unlock(&bells.mu);
}

void task_conn_begins(void)
{
    lock_bells();
    bells.conns++;
    mutex_unlock(&bells.mu);
}

void task_conn_ends(void)
{
    lock_bells();
    if (--bells.conns == 0 && bells.generation == forkguard_generation())
        for (; bells.idle > 0; bells.made--)
            forkguard_close(bells.fd[--bells.idle]);
    mutex_unlock(&bells.mu);
}

/* ---- several under way -------------------------------------------------------------------- */

#define POLLED_MAX 72 /* more connections than that are looked at in turn */

struct polled {
    struct pollfd   fd[POLLED_MAX + 1];
    struct request *led[POLLED_MAX];
    size_t          n;
    bool            others, news;
};

/* Lead where nobody does; else ask for the bell. */
static void join_in(struct polled *p, struct request *r, int *bell)
{
    if (p->n < POLLED_MAX && conn_try_lead(r, &p->fd[p->n])) {
        p->led[p->n++] = r;
        return;
    }
    if (*bell < 0)
        *bell = take_bell();
    p->others = true;
    if (*bell >= 0 && !park_listen(&r->park, *bell))
        p->news = true;
}

/* Of streams without descriptors all are looked at: when there is something, or, where nobody tells
 * when, each millisecond. */
static int poll_all(struct polled *p, int64_t ms)
{
    if (!stream_simulated())
        return poll(p->fd, p->n + 1, (int)ms);
    stream_waiter waiter = stream_simulated_waiter();
    int bell = p->fd[p->n].fd;
    if (ms > 0 && waiter)
        (void)waiter(NULL, clock_now_ms() + ms, bell < 0 ? NULL : bell_on(bell));
    else if (ms > 0)
        clock_sleep_until(clock_now_ms() + 1);
    for (size_t i = 0; i < p->n; i++)
        p->fd[i].revents = POLLIN;
    return (int)p->n;
}

static void wait_for_several(struct task *t, int64_t until_ms)
{
    struct polled p = { .n = 0 };
    int bell = -1;
    for (struct request *r = t->flight; r; r = r->next_in_flight)
        if (!request_done(r))
            join_in(&p, r, &bell);
    p.fd[p.n] = (struct pollfd){ .fd = p.others ? bell : -1, .events = POLLIN };
    int64_t left = clock_earlier(until_ms - clock_now_ms(), STREAM_TICK_MS);
    left = p.news || left < 0 ? 0 : p.others && bell < 0 && left > 1 ? 1 : left;
    int ready = poll_all(&p, left);
    if (ready > 0 && p.fd[p.n].revents)
        (void)bell_drain(bell);
    for (struct request *r = t->flight; r; r = r->next_in_flight)
        if (!r->leads)
            park_unlisten(&r->park);
    for (size_t i = 0; i < p.n; i++)
        conn_lead_once(p.led[i], ready > 0 && p.fd[i].revents & (POLLIN | POLLERR | POLLHUP));
    return_bell(bell);
}

/* ---- blocking ----------------------------------------------------------------------------- */

void task_wait(struct task *t, int64_t until_ms)
{
    struct request *one = NULL;
    size_t n = 0;
    for (struct request *r = t->flight; r; r = r->next_in_flight) {
        if (request_done(r))
            return;
        one = r;
        n++;
    }
    if (n == 1 && !one->leads)
        conn_wait(one, until_ms);
    else if (n)
        wait_for_several(t, until_ms);
    else if (t->park)
        park_wait(t->park, until_ms);
    else
        clock_sleep_until(until_ms);
}
