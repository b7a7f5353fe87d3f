/* SPDX-License-Identifier: MIT
 * epoll.c - many waiting locks in one thread, in a plain epoll event loop.
 *
 *   epoll [COUNT]
 *
 * COUNT handles (default 5) want the same lock, and get it in the order in which they asked. None
 * of them blocks: the loop goes on with its other work, here a clock that ticks.
 * Exit 0: all of them had it. 1: an error.
 */
#include <holdfast.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

struct worker {
    int       number;
    hf_lock  *lock;
};

static int left;   /* workers that are not done yet */
static int failed;

static void finish(struct worker *w, const char *what, hf_err e, const hf_error *err)
{
    if (e != HF_OK) {
        fprintf(stderr, "worker %d: %s: %s\n", w->number, what,
                err ? err->message : hf_err_text(e));
        failed = 1;
    }
    left--;
}

/* Called by hf_client_dispatch(), in this thread. */
static void released(hf_err e, const hf_error *err, void *arg)
{
    finish(arg, "release", e, err);
}

static void acquired(hf_err e, const hf_error *err, void *arg)
{
    struct worker *w = arg;
    hf_error refused;
    if (e != HF_OK) {
        finish(w, "acquire", e, err);
        return;
    }
    printf("worker %d holds it, number %llu\n", w->number,
           (unsigned long long)hf_lock_fence(w->lock));
    /* A real program starts its work here and releases the lock when that is done. */
    e = hf_lock_release_async(w->lock, released, w, &refused);
    if (e != HF_OK) /* then released() is not called */
        finish(w, "release", e, &refused);
}

static int watch(int epoll, int fd)
{
    struct epoll_event ev = { .events = EPOLLIN, .data.fd = fd };
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &ev);
}

static void loop(hf_client *c, int epoll, int timer)
{
    uint64_t ticks;
    while (left > 0) {
        struct epoll_event ev;
        if (epoll_wait(epoll, &ev, 1, -1) != 1)
            continue;
        if (ev.data.fd != timer)
            hf_client_dispatch(c);
        else if (read(timer, &ticks, sizeof ticks) == (ssize_t)sizeof ticks)
            printf("tick\n");
    }
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? atoi(argv[1]) : 5, fd;
    struct itimerspec often = { { 0, 20000000 }, { 0, 20000000 } };
    struct worker *w = calloc(count > 0 ? (size_t)count : 1, sizeof *w);
    int epoll = epoll_create1(EPOLL_CLOEXEC), timer = timerfd_create(CLOCK_MONOTONIC, 0);
    hf_client *c = NULL;
    hf_error err = { 0 };

    if (!w || epoll < 0 || timer < 0 || timerfd_settime(timer, 0, &often, NULL) != 0)
        return 1;
    hf_err e = hf_client_open(NULL, NULL, &c, &err);
    if (e == HF_OK)
        e = hf_client_fd(c, &fd, &err);
    if (e == HF_OK && (watch(epoll, fd) != 0 || watch(epoll, timer) != 0))
        return 1;
    for (int i = 0; i < count && e == HF_OK; i++) {
        w[i].number = i + 1;
        e = hf_lock_open(c, hf_str("loop"), NULL, &w[i].lock, &err);
        if (e == HF_OK)
            e = hf_lock_acquire_async(w[i].lock, HF_WAIT_FOREVER, acquired, &w[i], &err);
        left += e == HF_OK;
    }
    if (e != HF_OK)
        fprintf(stderr, "%s: %s\n", hf_err_name(e), err.message);
    else
        loop(c, epoll, timer);
    hf_client_free(c); /* first: it ends requests that are under way, by their acquired() */
    for (int i = 0; i < count; i++)
        hf_lock_free(w[i].lock);
    close(epoll);
    close(timer);
    free(w);
    return e != HF_OK || failed;
}
