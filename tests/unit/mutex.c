/* SPDX-License-Identifier: MIT
 * mutex.c - the order of locks: what is right passes, and what is wrong is noticed at once.
 */
#include "base/mutex.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/t.h"

static struct mutex keeper = MUTEX_INITIALIZER(MUTEX_KEEPER);
static struct mutex session = MUTEX_INITIALIZER(MUTEX_SESSION);
static struct mutex waiters = MUTEX_INITIALIZER(MUTEX_WAITERS); /* of the same rank as session */
static struct mutex inbox;

/* A process that does this ends by itself, and says why. */
static void check_noticed(void (*wrong)(void), const char *why)
{
    char said[500] = "";
    size_t len = 0;
    ssize_t n;
    int fds[2], status;
#ifndef LOCK_ORDER
    LEFT_OUT("this build does not check the order of locks");
#endif
    CHECK_INT(pipe(fds), 0);
    int pid = t_fork();
    if (pid == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
        dup2(fds[1], STDERR_FILENO);
        close(fds[1]);
        wrong();
        _exit(0);
    }
    close(fds[1]);
    while (len < sizeof said - 1 && (n = read(fds[0], said + len, sizeof said - 1 - len)) > 0)
        len += (size_t)n;
    close(fds[0]);
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_CONTAINS(said, why);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

TEST(locks_in_their_order_whichever_goes_first)
{
    mutex_init(&inbox, MUTEX_INBOX);
    for (int i = 0; i < 3; i++) {
        mutex_lock(&keeper);
        mutex_lock(&session);
        mutex_assert_held(&keeper);
        mutex_unlock(&keeper); /* not the last one that was taken */
        mutex_lock(&inbox);
        mutex_assert_held(&session);
        mutex_unlock(&inbox);
        mutex_unlock(&session);
        mutex_lock(&waiters); /* what was held before does not count */
        mutex_unlock(&waiters);
        CHECK(mutex_trylock(&keeper));
        mutex_unlock(&keeper);
    }
    mutex_destroy(&inbox);
}

static void *hold(void *arg)
{
    mutex_lock(&session);
    CHECK_INT(write(*(int *)arg, "x", 1), 1);
    t_sleep_ms(20);
    mutex_unlock(&session);
    return NULL;
}

TEST(what_another_thread_holds_is_its_own_affair)
{
    pthread_t thread;
    int fds[2];
    char c;
    CHECK_INT(pipe(fds), 0);
    CHECK_INT(pthread_create(&thread, NULL, hold, &fds[1]), 0);
    CHECK_INT(read(fds[0], &c, 1), 1);
    mutex_lock(&keeper);
    CHECK(!mutex_trylock(&session));
    mutex_lock(&session); /* waits for it */
    mutex_unlock(&session);
    mutex_unlock(&keeper);
    pthread_join(thread, NULL);
}

static void lower(void)
{
    mutex_lock(&session);
    mutex_lock(&keeper);
}

static void equal(void)
{
    mutex_lock(&session);
    mutex_lock(&waiters);
}

static void twice(void)
{
    mutex_lock(&keeper);
    mutex_lock(&keeper);
}

static void lower_at_once(void)
{
    mutex_lock(&session);
    mutex_trylock(&keeper);
}

TEST(a_wrong_order_is_noticed_though_nobody_is_in_the_way)
{
    check_noticed(lower, "a thread takes keeper.mu while it holds client.session_mu");
    check_noticed(equal, "a thread takes waiters.mu while it holds client.session_mu");
    check_noticed(twice, "a thread takes keeper.mu while it holds keeper.mu");
    check_noticed(lower_at_once, "a thread takes keeper.mu while it holds client.session_mu");
}

static void not_held(void)
{
    mutex_lock(&keeper);
    mutex_assert_held(&session);
}

static void unlock_twice(void)
{
    mutex_lock(&keeper);
    mutex_unlock(&keeper);
    mutex_unlock(&keeper);
}

TEST(what_is_not_held_is_noticed)
{
    check_noticed(not_held, "a thread does not hold client.session_mu");
    check_noticed(unlock_twice, "a thread does not hold keeper.mu");
}
