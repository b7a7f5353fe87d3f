/* SPDX-License-Identifier: MIT
 * update_or_lock.c - the same counter, by optimistic update and under a lock.
 *
 *     update_or_lock WORKERS ROUNDS
 *
 * Each worker is a process and adds 1 ROUNDS times, both ways. An optimistic update computes in
 * vain if others were quicker; with the lock, workers wait for their turn. docs/update.md says
 * when to use which.
 */
#include <holdfast.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

struct adder {
    long tries;
    char text[32];
};

static hf_change add_one(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    struct adder *a = arg;
    char text[32] = "0";
    a->tries++;
    if (old.data)
        snprintf(text, sizeof text, "%.*s", (int)old.len, (const char *)old.data);
    ret_new->data = a->text;
    ret_new->len = (size_t)snprintf(a->text, sizeof a->text, "%ld", atol(text) + 1);
    return HF_CHANGE_SET;
}

static int optimistic(hf_client *c, int rounds, struct adder *a, hf_error *err)
{
    hf_update_opts o = { .size = sizeof o, .tries = 10000 };
    int e = 0;
    while (!e && rounds-- > 0)
        e = hf_update_run(c, hf_str("count:updated"), &o, add_one, a, err);
    return e;
}

/* Under the lock nobody else writes: one try is enough. Needing two would be a bug. */
static int locked(hf_client *c, int rounds, struct adder *a, hf_error *err)
{
    hf_update_opts o = { .size = sizeof o, .tries = 1 };
    hf_lock *lock = NULL;
    int e = hf_lock_open(c, hf_str("count"), NULL, &lock, err);
    while (!e && rounds-- > 0) {
        e = hf_lock_acquire(lock, 60000, NULL, err)
            || hf_update_run(c, hf_str("count:locked"), &o, add_one, a, err)
            || hf_lock_release(lock, err);
    }
    hf_lock_free(lock);
    return e;
}

static int work(int rounds)
{
    struct adder updated = { 0 }, under_lock = { 0 };
    hf_client *c = NULL;
    hf_error err;
    int e = hf_client_open(NULL, NULL, &c, &err) || optimistic(c, rounds, &updated, &err)
            || locked(c, rounds, &under_lock, &err);
    if (e)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("%d updates: %ld tries; %d under the lock: %ld tries\n", rounds, updated.tries,
               rounds, under_lock.tries);
    hf_client_free(c);
    return e;
}

int main(int argc, char **argv)
{
    int workers = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 100;
    int status, failed = 0;
    for (int i = 0; i < workers; i++) {
        pid_t pid = fork(); /* before a client is opened: handles do not survive a fork */
        if (pid == 0)
            return work(rounds);
        failed += pid < 0;
    }
    while (wait(&status) > 0)
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    return failed != 0;
}
