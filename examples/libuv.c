/* SPDX-License-Identifier: MIT
 * libuv.c - a lock in a program that runs on libuv. Other event loops work the same way: they need
 * a descriptor to watch and a function to call.
 *
 *   libuv [NAME [MILLISECONDS]]
 *
 * Waits for the lock, holds it for MILLISECONDS (default 300), releases it. Ctrl-C ends the wait.
 * Exit 0: had the lock. 2: interrupted. 1: an error.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

static hf_client *client;
static hf_lock *lock;
static uv_poll_t inbox;
static uv_timer_t work;
static uv_signal_t interrupt;
static int status;

/* Nothing more to wait for: uv_run() returns when the handles are closed. */
static void end(int code)
{
    status = code;
    uv_close((uv_handle_t *)&inbox, NULL);
    uv_close((uv_handle_t *)&work, NULL);
    uv_close((uv_handle_t *)&interrupt, NULL);
}

static void fail(const char *what, hf_err e, const hf_error *err)
{
    fprintf(stderr, "%s: %s\n", what, err && err->message[0] ? err->message : hf_err_text(e));
    end(1);
}

static void released(hf_err e, const hf_error *err, void *arg)
{
    (void)arg;
    if (e != HF_OK) {
        fail("release", e, err);
        return;
    }
    printf("given back\n");
    end(0);
}

static void work_done(uv_timer_t *t)
{
    hf_error err = { 0 };
    (void)t;
    hf_err e = hf_lock_release_async(lock, released, NULL, &err);
    if (e != HF_OK)
        fail("release", e, &err);
}

static void acquired(hf_err e, const hf_error *err, void *arg)
{
    const uint64_t *ms = arg;
    if (e == HF_ECANCELED) {
        printf("interrupted\n");
        end(2);
    } else if (e != HF_OK) {
        fail("acquire", e, err);
    } else {
        printf("holding, number %llu\n", (unsigned long long)hf_lock_fence(lock));
        fflush(stdout);
        uv_timer_start(&work, work_done, *ms, 0); /* the work */
    }
}

static void readable(uv_poll_t *p, int uv_status, int events)
{
    (void)p, (void)uv_status, (void)events;
    hf_client_dispatch(client); /* calls acquired() and released() */
}

static void interrupted(uv_signal_t *s, int number)
{
    (void)s, (void)number;
    hf_lock_cancel(lock);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "loop";
    uint64_t ms = argc > 2 ? (uint64_t)atoi(argv[2]) : 300;
    uv_loop_t *loop = uv_default_loop();
    hf_error err = { 0 };
    int fd;

    if (hf_client_open(NULL, NULL, &client, &err) || hf_client_fd(client, &fd, &err)
        || hf_lock_open(client, hf_str(name), NULL, &lock, &err)) {
        fprintf(stderr, "%s: %s\n", hf_err_name(err.code), err.message);
        hf_client_free(client);
        return 1;
    }
    uv_poll_init(loop, &inbox, fd);
    uv_poll_start(&inbox, UV_READABLE, readable);
    uv_timer_init(loop, &work);
    uv_signal_init(loop, &interrupt);
    uv_signal_start(&interrupt, interrupted, SIGINT);
    hf_err e = hf_lock_acquire_async(lock, HF_WAIT_FOREVER, acquired, &ms, &err);
    if (e != HF_OK)
        fail("acquire", e, &err);
    uv_run(loop, UV_RUN_DEFAULT);
    uv_loop_close(loop);
    hf_lock_free(lock);
    hf_client_free(client);
    return status;
}
