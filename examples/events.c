/* SPDX-License-Identifier: MIT
 * events.c - hold a lock, work, and learn at once when it is in doubt or lost.
 *
 *   events SECONDS
 *
 * Try it: run it for 60 seconds; meanwhile delete the key, or stop the server with SIGSTOP.
 * Exit 0: held to the end. 3: lost. 1: an error.
 */
#include <errno.h>
#include <holdfast.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Work until end_ms, 50 ms at a time, and check the lock's descriptor in between. Returns 1 if the
 * lock was lost: then another owner may already work on the same thing. */
static int work(hf_lock *lock, int fd, int64_t end_ms)
{
    while (now_ms() < end_ms) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        int r = poll(&p, 1, 50); /* a real program also polls its own descriptors here */
        if (r < 0 && errno != EINTR)
            return 1;
        if (r <= 0)
            continue;
        switch (hf_lock_poll(lock)) {
        case HF_STATE_IN_DOUBT:
            printf("in doubt: the server does not answer, %lld ms are left\n",
                   (long long)hf_lock_time_left_ms(lock));
            break;
        case HF_STATE_SAFE:
            printf("safe again\n");
            break;
        case HF_STATE_LOST:
            printf("stop: %s\n", hf_loss_text(hf_lock_loss(lock)));
            return 1;
        case HF_STATE_FREE:
            break;
        }
        fflush(stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err;
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 4000 }; /* short, for this example */
    uint64_t fence;
    int fd, lost = 0, failed;

    failed = hf_client_open(NULL, NULL, &c, &err)
             || hf_lock_open(c, hf_str("events"), &o, &lock, &err)
             || hf_lock_fd(lock, &fd, &err) /* before the acquire, so that no event is missed */
             || hf_lock_acquire(lock, 0, &fence, &err);
    if (!failed) {
        printf("holding, number %llu\n", (unsigned long long)fence);
        fflush(stdout);
        lost = work(lock, fd, now_ms() + 1000 * (argc > 1 ? atoi(argv[1]) : 1));
        failed = !lost && hf_lock_release(lock, &err);
    }
    if (failed)
        fprintf(stderr, "%s: %s\n", hf_err_name(err.code), err.message);
    hf_lock_free(lock);
    hf_client_free(c);
    return failed ? 1 : lost ? 3 : 0;
}
