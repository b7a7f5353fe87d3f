/* SPDX-License-Identifier: MIT
 * holdfast.c - the work of bench-peers by Holdfast's public interface, with one client.
 *
 *   threads  the blocking calls, in a thread for each worker
 *   async    the calls without blocking, all workers in one thread
 */
#include <holdfast.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>

#include "threads.h"

static hf_client *client;

static void must(hf_err e, const hf_error *err)
{
    if (e != HF_OK)
        die(err ? err->message : hf_err_text(e));
}

/* ---- threads ------------------------------------------------------------------------------- */

struct lock {
    hf_lock *handle;
};

static hf_lock *handle_open(const char *name)
{
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = LEASE_MS };
    hf_lock *l;
    hf_error err;
    must(hf_lock_open(client, hf_str(name), &o, &l, &err), &err);
    return l;
}

static struct lock *lock_open(const char *name)
{
    struct lock *l = malloc(sizeof *l);
    if (!l)
        die("no memory");
    l->handle = handle_open(name);
    return l;
}

static void lock_take(struct lock *l)
{
    hf_error err;
    must(hf_lock_acquire(l->handle, HF_WAIT_FOREVER, NULL, &err), &err);
}

static void lock_give(struct lock *l)
{
    hf_error err;
    must(hf_lock_release(l->handle, &err), &err);
}

/* Until it is lost, which is said. */
static void lock_watch(struct lock *l)
{
    while (hf_lock_is_held(l->handle))
        sleep_ns(5000000);
    say("lost", 1);
    sleep(600);
}

/* ---- without blocking ---------------------------------------------------------------------- */

struct worker {
    int           index;
    unsigned      seed;
    hf_lock      *lock;
    int64_t       before;
    struct event *event;
    int64_t       due;        /* when to go on; 0: nothing to wait for but an answer */
    void        (*then)(struct worker *w);
};

static struct worker workers[WORKERS_MAX];
static int under_way;

static void pair_begin(struct worker *w);
static void contended_begin(struct worker *w);

static void pair_end(hf_err e, const hf_error *err, void *p)
{
    struct worker *w = p;
    must(e, err);
    int64_t after = now_ns();
    pair_note(w->index, w->before, after);
    under_way--;
    if (after < work.end)
        pair_begin(w);
}

static void pair_got(hf_err e, const hf_error *err, void *p)
{
    struct worker *w = p;
    hf_error refused;
    must(e, err);
    must(hf_lock_release_async(w->lock, pair_end, w, &refused), &refused);
}

static void pair_begin(struct worker *w)
{
    hf_error err;
    w->before = now_ns();
    under_way++;
    must(hf_lock_acquire_async(w->lock, HF_WAIT_FOREVER, pair_got, w, &err), &err);
}

static void go_on(struct worker *w, int64_t after, void (*then)(struct worker *w))
{
    w->due = now_ns() + after;
    w->then = then;
}

static void contended_end(hf_err e, const hf_error *err, void *p)
{
    must(e, err);
    go_on(p, away_ns(), contended_begin);
}

static void contended_give(struct worker *w)
{
    hf_error err;
    event_note(&w->event->given);
    must(hf_lock_release_async(w->lock, contended_end, w, &err), &err);
}

static void contended_got(hf_err e, const hf_error *err, void *p)
{
    struct worker *w = p;
    must(e, err);
    event_note(&w->event->got);
    go_on(w, hold_ns(&w->seed), contended_give);
}

static void contended_begin(struct worker *w)
{
    hf_error err;
    w->event = event_new(w->index);
    must(hf_lock_acquire_async(w->lock, HF_WAIT_FOREVER, contended_got, w, &err), &err);
}

static void idle_got(hf_err e, const hf_error *err, void *p)
{
    (void)p;
    must(e, err);
}

static void idle_begin(struct worker *w)
{
    hf_error err;
    must(hf_lock_acquire_async(w->lock, HF_WAIT_FOREVER, idle_got, w, &err), &err);
}

/* What is due goes on; how long until the next is. */
static int64_t timers_run(void)
{
    int64_t now = now_ns(), next = now + INT64_C(100000000);
    for (int i = 0; i < arg.workers; i++) {
        struct worker *w = &workers[i];
        if (w->due && w->due <= now) {
            w->due = 0;
            w->then(w);
        } else if (w->due && w->due < next) {
            next = w->due;
        }
    }
    return next - now;
}

static void loop(int fd, int timers)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    while (timers || under_way) {
        int64_t left = timers ? timers_run() : INT64_C(100000000);
        struct timespec t = { left / 1000000000, left % 1000000000 };
        if (timers == 1 && now_ns() >= work.end)
            events_say();
        if (ppoll(&p, 1, &t, NULL) > 0)
            hf_client_dispatch(client);
    }
}

static int async_main(void)
{
    int pairs = !strcmp(arg.mode, "pairs"), idle = !strcmp(arg.mode, "idle"), fd;
    hf_error err;
    must(hf_client_fd(client, &fd, &err), &err);
    if (idle) {
        lock_take(lock_open(arg.key));
        say("held", 1);
    }
    for (int i = 0; i < arg.workers; i++) {
        char name[300];
        snprintf(name, sizeof name, pairs ? "%s:%d" : "%s", arg.key, i);
        workers[i] = (struct worker) { .index = i, .seed = (unsigned)i + 1,
                                       .lock = handle_open(name) };
    }
    window_set();
    for (int i = 0; i < arg.workers; i++) {
        if (pairs)
            pair_begin(&workers[i]);
        else if (idle)
            idle_begin(&workers[i]);
        else
            contended_begin(&workers[i]);
    }
    if (idle)
        say("waiting", arg.workers);
    loop(fd, pairs ? 0 : idle ? 2 : 1);
    pairs_say();
    return 0;
}

int main(int argc, char **argv)
{
    char url[64];
    hf_error err;
    args_read(argc, argv);
    snprintf(url, sizeof url, "redis://127.0.0.1:%s", arg.port);
    must(hf_client_open(url, NULL, &client, &err), &err);
    if (!strcmp(arg.kind, "async") && strcmp(arg.mode, "hold") && strcmp(arg.mode, "wait"))
        return async_main();
    return threads_main();
}
