/* SPDX-License-Identifier: MIT
 * coroutine.cpp - co_await a lock: many jobs in one thread, each written top to bottom (C++20).
 *
 *   coroutine [COUNT]
 *
 * COUNT coroutines (default 5) want the same lock, and get it in the order in which they asked.
 * Exit 0: all of them had it. 1: an error.
 */
#include <holdfast.hpp>

#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <poll.h>

/* Awaits one asynchronous call; start(done, arg, err) makes it. It throws what the call reports. */
template <typename Start> class awaited {
public:
    explicit awaited(Start start) : start_(start) {}
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<> caller)
    {
        caller_ = caller;
        result_ = start_(&done, this, &err_);
        return result_ == HF_OK; /* otherwise done() is not called: go on at once */
    }
    void await_resume() const
    {
        if (result_ != HF_OK)
            throw holdfast::error(result_, err_);
    }

private:
    static void done(hf_err result, const hf_error *err, void *arg)
    {
        awaited *a = static_cast<awaited *>(arg);
        a->result_ = result;
        if (err)
            a->err_ = *err;
        a->caller_.resume(); /* in the thread that dispatches; `a` may be gone after it */
    }

    Start                   start_;
    hf_err                  result_ = HF_OK;
    hf_error                err_ = {};
    std::coroutine_handle<> caller_;
};

static auto acquire(holdfast::mutex &m)
{
    return awaited([lock = m.get()](auto done, void *arg, hf_error *err) {
        return hf_lock_acquire_async(lock, HF_WAIT_FOREVER, done, arg, err);
    });
}

static auto release(holdfast::mutex &m)
{
    return awaited([lock = m.get()](auto done, void *arg, hf_error *err) {
        return hf_lock_release_async(lock, done, arg, err);
    });
}

/* A coroutine that runs by itself and frees itself. */
struct job {
    struct promise_type {
        job get_return_object() { return {}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_never final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
    };
};

static int left, failed;

static job work(holdfast::client &c, int number)
{
    left++;
    try {
        holdfast::mutex m(c, "loop");
        co_await acquire(m);
        std::printf("job %d holds it, number %llu\n", number,
                    static_cast<unsigned long long>(m.fence()));
        co_await release(m); /* throws if the lock was lost meanwhile */
    } catch (const holdfast::error &e) {
        std::fprintf(stderr, "job %d: %s\n", number, e.what());
        failed = 1;
    }
    left--;
}

int main(int argc, char **argv)
try {
    holdfast::client c;
    hf_error         err;
    pollfd           p = { -1, POLLIN, 0 };
    if (hf_client_fd(c.get(), &p.fd, &err) != HF_OK)
        throw holdfast::error(err.code, err);
    for (int i = 1; i <= (argc > 1 ? std::atoi(argv[1]) : 5); i++)
        work(c, i); /* runs until it has to wait */
    while (left > 0)
        if (poll(&p, 1, -1) > 0)
            hf_client_dispatch(c.get());
    return failed;
} catch (const holdfast::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
