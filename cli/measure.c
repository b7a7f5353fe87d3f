/* SPDX-License-Identifier: MIT
 * measure.c - how long locks take on a user's own server, with a bounded load. */
#include "measure.h"

#include "clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SAMPLES_MAX 100000
#define PATIENCE_MS 10000 /* for one lock that nobody else wants */
#define TTL_MS      10000 /* what is left behind if we are killed ends then */
#define HANDOVERS   500

/* ---- times -------------------------------------------------------------------------------- */

struct samples {
    double *us;
    size_t  n;
};

struct span {
    double  began_us, cpu_us;
    int64_t end_ms;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double cpu_us(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return ((double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec) * 1e6
           + (double)u.ru_utime.tv_usec + (double)u.ru_stime.tv_usec;
}

static struct span span_begin(int64_t ms)
{
    return (struct span){ now_us(), cpu_us(), clock_now_ms() + ms };
}

static int span_over(const struct span *s)
{
    return clock_now_ms() >= s->end_ms;
}

static void note(struct samples *s, double us)
{
    if (s->us && s->n < SAMPLES_MAX)
        s->us[s->n++] = us;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Frees the samples. */
static void sum_up(const struct span *span, struct samples *s, size_t count, struct measured *ret)
{
    double took = now_us() - span->began_us;
    *ret = (struct measured){ .count = count, .per_second = (double)count * 1e6 / took,
                              .cpu = (cpu_us() - span->cpu_us) / took };
    if (s && s->n) {
        qsort(s->us, s->n, sizeof *s->us, by_value);
        ret->p50 = s->us[s->n / 2];
        ret->p99 = s->us[s->n * 99 / 100];
        ret->max = s->us[s->n - 1];
    }
    if (s)
        free(s->us);
}

static struct samples samples_new(void)
{
    return (struct samples){ malloc(SAMPLES_MAX * sizeof(double)), 0 };
}

static hf_err open_lock(hf_client *c, const char *prefix, int i, hf_lock **ret, hf_error *err)
{
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = TTL_MS };
    char name[200];
    snprintf(name, sizeof name, "%s.%d", prefix, i);
    return hf_lock_open(c, hf_str(name), &o, ret, err);
}

/* ---- one caller --------------------------------------------------------------------------- */

static hf_err look_once(hf_client *c, const char *name, hf_error *err)
{
    hf_inspect_info *info = NULL;
    hf_err e = hf_inspect_lock(c, hf_str(name), PATIENCE_MS, &info, err);
    hf_inspect_free(info);
    return e;
}

hf_err measure_look(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                    hf_error *err)
{
    hf_err e = look_once(c, prefix, err); /* the first one brings the script */
    struct samples s = samples_new();
    struct span span = span_begin(ms);
    while (!e && !span_over(&span)) {
        double t = now_us();
        e = look_once(c, prefix, err);
        note(&s, now_us() - t);
    }
    sum_up(&span, &s, s.n, ret);
    return e;
}

static hf_err pair(hf_lock *lock, hf_error *err)
{
    hf_err e = hf_lock_acquire(lock, PATIENCE_MS, NULL, err);
    return e ? e : hf_lock_release(lock, err);
}

hf_err measure_pairs(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                     hf_error *err)
{
    hf_lock *lock = NULL;
    hf_err e = open_lock(c, prefix, 0, &lock, err);
    if (!e)
        e = pair(lock, err);
    struct samples s = samples_new();
    struct span span = span_begin(ms);
    size_t n = 0;
    for (; !e && !span_over(&span); n++) {
        double t = now_us();
        e = pair(lock, err);
        note(&s, now_us() - t);
    }
    sum_up(&span, &s, n, ret);
    hf_lock_free(lock);
    return e;
}

/* ---- several at once ---------------------------------------------------------------------- */

struct worker {
    pthread_t      thread;
    hf_lock       *lock;
    const struct span *span;
    struct samples s;
    size_t         n;
    hf_err         e;
    hf_error       err;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    while (!w->e && !span_over(w->span)) {
        double t = now_us();
        w->e = pair(w->lock, &w->err);
        note(&w->s, now_us() - t);
        w->n += !w->e;
    }
    return NULL;
}

/* What each of them had becomes one. */
static void join_all(struct worker *w, struct samples *all, size_t *count, hf_err *e, hf_error *err)
{
    for (int i = 0; i < MEASURE_THREADS; i++) {
        for (size_t k = 0; k < w[i].s.n; k++)
            note(all, w[i].s.us[k]);
        *count += w[i].n;
        if (w[i].e && !*e) {
            *e = w[i].e;
            *err = w[i].err;
        }
        free(w[i].s.us);
        hf_lock_free(w[i].lock);
    }
}

hf_err measure_threads(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                       hf_error *err)
{
    struct worker w[MEASURE_THREADS];
    struct samples all = samples_new();
    size_t count = 0;
    hf_err e = HF_OK;
    int started = 0;
    memset(w, 0, sizeof w);
    for (int i = 0; i < MEASURE_THREADS && !e; i++)
        e = open_lock(c, prefix, i, &w[i].lock, err);
    struct span span = span_begin(ms);
    for (; started < MEASURE_THREADS && !e; started++) {
        w[started].span = &span;
        w[started].s = samples_new();
        if (pthread_create(&w[started].thread, NULL, work, &w[started]))
            break; /* with as many as there are */
    }
    for (int i = 0; i < started; i++)
        pthread_join(w[i].thread, NULL);
    join_all(w, &all, &count, &e, err);
    sum_up(&span, &all, count, ret);
    return e;
}

/* ---- without blocking --------------------------------------------------------------------- */

struct crowd {
    const struct span *span;
    size_t             done, under_way;
    hf_err             e;
    hf_error          *err;
};

struct one {
    struct crowd *crowd;
    hf_lock      *lock;
};

static void released(hf_err result, const hf_error *err, void *arg);

static void failed(struct crowd *c, hf_err e, const hf_error *err)
{
    c->under_way--;
    if (!c->e) {
        c->e = e;
        *c->err = *err;
    }
}

static void acquired(hf_err result, const hf_error *err, void *arg)
{
    struct one *o = arg;
    hf_error why;
    if (result)
        failed(o->crowd, result, err);
    else if ((result = hf_lock_release_async(o->lock, released, o, &why)))
        failed(o->crowd, result, &why);
}

static void begin(struct one *o)
{
    hf_error why;
    hf_err e = hf_lock_acquire_async(o->lock, PATIENCE_MS, acquired, o, &why);
    if (e)
        failed(o->crowd, e, &why);
}

static void released(hf_err result, const hf_error *err, void *arg)
{
    struct one *o = arg;
    if (result) {
        failed(o->crowd, result, err);
        return;
    }
    o->crowd->done++;
    if (o->crowd->e || span_over(o->crowd->span))
        o->crowd->under_way--;
    else
        begin(o);
}

hf_err measure_async(hf_client *c, const char *prefix, int64_t ms, struct measured *ret,
                     hf_error *err)
{
    struct one one[MEASURE_ASYNC] = { { NULL, NULL } };
    struct span span = span_begin(ms);
    struct crowd crowd = { .span = &span, .err = err };
    int fd = -1;
    hf_err e = hf_client_fd(c, &fd, err);
    for (int i = 0; i < MEASURE_ASYNC && !e; i++) {
        one[i].crowd = &crowd;
        e = open_lock(c, prefix, i, &one[i].lock, err);
    }
    for (int i = 0; i < MEASURE_ASYNC && !e; i++) {
        crowd.under_way++;
        begin(&one[i]);
    }
    while (crowd.under_way) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        poll(&p, 1, 100);
        hf_client_dispatch(c);
    }
    sum_up(&span, NULL, crowd.done, ret);
    for (int i = 0; i < MEASURE_ASYNC; i++)
        hf_lock_free(one[i].lock);
    return e ? e : crowd.e;
}

/* ---- handing over ------------------------------------------------------------------------- */

/* Two take turns: whoever has it waits until the other one waits for it, then gives it back. */
struct turns {
    hf_lock        *lock;
    const struct span *span;
    _Atomic double *given_us; /* when it was given back last; shared */
    double          pause_us;
    struct samples  s;
    hf_err          e;
    hf_error        err;
};

static void take_turns(struct turns *t)
{
    while (!t->e && !span_over(t->span) && t->s.n < HANDOVERS) {
        t->e = hf_lock_acquire(t->lock, PATIENCE_MS, NULL, &t->err);
        if (t->e)
            return;
        double given = atomic_load(t->given_us);
        if (given > 0)
            note(&t->s, now_us() - given);
        struct timespec pause = { 0, (long)(t->pause_us * 1e3) };
        nanosleep(&pause, NULL);
        atomic_store(t->given_us, now_us());
        t->e = hf_lock_release(t->lock, &t->err);
    }
}

static void *take_turns_thread(void *arg)
{
    take_turns(arg);
    return NULL;
}

hf_err measure_handover(hf_client *const pair_of[2], const char *prefix, int64_t ms,
                        double round_trip_us, struct measured *ret, hf_error *err)
{
    struct span span = span_begin(ms);
    _Atomic double given = 0;
    /* Long enough for the other one to be waiting; not so long that it has to look. */
    double pause = 2000 + 3 * round_trip_us;
    struct turns t[2];
    pthread_t thread;
    hf_err e = HF_OK;
    memset(t, 0, sizeof t);
    for (int i = 0; i < 2 && !e; i++) {
        e = open_lock(pair_of[i], prefix, 0, &t[i].lock, err);
        t[i].span = &span;
        t[i].given_us = &given;
        t[i].pause_us = pause < 100000 ? pause : 100000;
        t[i].s = samples_new();
    }
    if (!e && pthread_create(&thread, NULL, take_turns_thread, &t[1]) == 0) {
        take_turns(&t[0]);
        pthread_join(thread, NULL);
    } else if (!e) {
        e = HF_ESYS;
        *err = (hf_error){ .code = e };
        snprintf(err->message, sizeof err->message, "cannot start a second thread");
    }
    for (size_t k = 0; k < t[1].s.n; k++)
        note(&t[0].s, t[1].s.us[k]);
    for (int i = 0; i < 2; i++) {
        if (t[i].e && !e) {
            e = t[i].e;
            *err = t[i].err;
        }
        hf_lock_free(t[i].lock);
    }
    free(t[1].s.us);
    sum_up(&span, &t[0].s, t[0].s.n, ret);
    return e;
}
