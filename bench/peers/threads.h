/* SPDX-License-Identifier: MIT
 * threads.h - the work of bench-peers by threads, for locks in C. The protocol is in README.md.
 *
 * A program brings lock_open(), lock_take(), lock_give(), lock_watch() and calls threads_main(). A
 * lock_open() of its own is made for each thread.
 */
#ifndef BENCH_PEERS_THREADS_H
#define BENCH_PEERS_THREADS_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LEASE_MS    10000
#define WORKERS_MAX 1024
#define EVENTS_MAX  200000
#define SAMPLES_MAX 500000

struct lock;
static struct lock *lock_open(const char *name);
static void lock_take(struct lock *l);
static void lock_give(struct lock *l);
static void lock_watch(struct lock *l); /* held by a thread that does nothing else */

/* What the command line says: KIND PORT MODE WORKERS WARM SECONDS RETRY KEY. */
static struct {
    const char *kind, *port, *mode, *key;
    int         workers, retry_ms;
    double      warm, seconds;
} arg;

static struct {
    int64_t begin, end; /* what is counted, ns */
    long    pairs[WORKERS_MAX];
    double  us[SAMPLES_MAX];
} work;

/* Asked, got, about to give it back. 0: not yet. */
struct event {
    int     worker;
    int64_t asked, got, given;
};

static struct event events[EVENTS_MAX];
static size_t events_used;
static pthread_mutex_t events_mu = PTHREAD_MUTEX_INITIALIZER;

static inline void die(const char *what)
{
    fprintf(stderr, "peer: %s\n", what);
    exit(1);
}

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void sleep_ns(int64_t ns)
{
    struct timespec t = { ns / 1000000000, ns % 1000000000 };
    nanosleep(&t, NULL);
}

static inline int64_t hold_ns(unsigned *seed)
{
    return (int64_t)(rand_r(seed) % 1000000);
}

static inline int64_t away_ns(void)
{
    return (int64_t)arg.workers * 250000;
}

static inline void window_set(void)
{
    work.begin = now_ns() + (int64_t)(arg.warm * 1e9);
    work.end = work.begin + (int64_t)(arg.seconds * 1e9);
}

static inline void pair_note(int worker, int64_t before, int64_t after)
{
    if (before < work.begin || after > work.end)
        return;
    if (arg.workers == 1 && work.pairs[0] < SAMPLES_MAX)
        work.us[work.pairs[0]] = (double)(after - before) / 1000;
    work.pairs[worker]++;
}

static inline void pairs_say(void)
{
    long all = 0;
    for (int i = 0; i < arg.workers; i++)
        all += work.pairs[i];
    printf("{\"pairs\": %ld, \"seconds\": %f, \"us\": [", all, arg.seconds);
    for (long i = 0; arg.workers == 1 && i < all && i < SAMPLES_MAX; i++)
        printf("%s%.1f", i ? "," : "", work.us[i]);
    printf("]}\n");
}

static inline struct event *event_new(int worker)
{
    pthread_mutex_lock(&events_mu);
    struct event *e = &events[events_used];
    if (events_used + 1 < EVENTS_MAX)
        events_used++;
    *e = (struct event) { .worker = worker, .asked = now_ns() };
    pthread_mutex_unlock(&events_mu);
    return e;
}

static inline void event_note(int64_t *when)
{
    int64_t now = now_ns();
    pthread_mutex_lock(&events_mu);
    *when = now;
    pthread_mutex_unlock(&events_mu);
}

/* Ends the program: others may wait yet. */
static inline void events_say(void)
{
    pthread_mutex_lock(&events_mu);
    printf("{\"begin\": %lld, \"end\": %lld, \"events\": [", (long long)work.begin,
           (long long)now_ns());
    for (size_t i = 0; i < events_used; i++)
        printf("%s[%d,%lld,%lld,%lld]", i ? "," : "", events[i].worker, (long long)events[i].asked,
               (long long)events[i].got, (long long)events[i].given);
    printf("]}\n");
    fflush(stdout);
    _exit(0);
}

static inline void say(const char *what, int n)
{
    printf("{\"%s\": %d}\n", what, n);
    fflush(stdout);
}

static inline void *pairs_thread(void *p)
{
    int i = (int)(intptr_t)p;
    char name[300];
    snprintf(name, sizeof name, "%s:%d", arg.key, i);
    struct lock *l = lock_open(name);
    for (int64_t before = now_ns(), after; before < work.end; before = after) {
        lock_take(l);
        lock_give(l);
        after = now_ns();
        pair_note(i, before, after);
    }
    return NULL;
}

static inline void *contended_thread(void *p)
{
    int i = (int)(intptr_t)p;
    unsigned seed = (unsigned)i + 1;
    struct lock *l = lock_open(arg.key);
    while (now_ns() < work.end) {
        struct event *e = event_new(i);
        lock_take(l);
        event_note(&e->got);
        sleep_ns(hold_ns(&seed));
        event_note(&e->given);
        lock_give(l);
        sleep_ns(away_ns());
    }
    return NULL;
}

static inline void *idle_thread(void *p)
{
    (void)p;
    lock_take(lock_open(arg.key));
    return NULL;
}

static inline void start_all(pthread_t *t, void *(*run)(void *))
{
    for (int i = 0; i < arg.workers; i++) {
        if (pthread_create(&t[i], NULL, run, (void *)(intptr_t)i))
            die("no thread");
    }
}

static inline void args_read(int argc, char **argv)
{
    if (argc != 9)
        die("KIND PORT MODE WORKERS WARM SECONDS RETRY KEY");
    arg.kind = argv[1];
    arg.port = argv[2];
    arg.mode = argv[3];
    arg.workers = atoi(argv[4]);
    arg.warm = atof(argv[5]);
    arg.seconds = atof(argv[6]);
    arg.retry_ms = atoi(argv[7]);
    arg.key = argv[8];
    if (arg.workers < 1 || arg.workers > WORKERS_MAX)
        die("WORKERS");
}

static inline void hold_or_wait(void)
{
    struct lock *l = lock_open(arg.key);
    if (!strcmp(arg.mode, "wait"))
        say("waiting", 1);
    lock_take(l);
    if (!strcmp(arg.mode, "wait")) {
        say("got", 1);
        lock_give(l);
        return;
    }
    say("held", 1);
    lock_watch(l);
}

static inline int threads_main(void)
{
    pthread_t t[WORKERS_MAX];
    window_set();
    if (!strcmp(arg.mode, "pairs")) {
        start_all(t, pairs_thread);
        for (int i = 0; i < arg.workers; i++)
            pthread_join(t[i], NULL);
        pairs_say();
    } else if (!strcmp(arg.mode, "contended")) {
        start_all(t, contended_thread);
        sleep_ns(work.end - now_ns());
        events_say();
    } else if (!strcmp(arg.mode, "idle")) {
        lock_take(lock_open(arg.key));
        say("held", 1);
        start_all(t, idle_thread);
        say("waiting", arg.workers);
        sleep(600);
    } else {
        hold_or_wait();
    }
    fflush(stdout);
    _exit(0); /* as those that wait end, too */
}

#endif
