/* SPDX-License-Identifier: MIT
 * fork.c - a forked child never touches its parent's locks nor its connection.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/cluster.h"
#include "harness/fleet.h"
#include "harness/live.h"
#include "harness/proc.h"
#include "harness/quorum.h"

/* What libcrypto keeps for each thread is lost in a child that has none of these threads. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:libcrypto";
}

/* What a thread had in its hands when the process forked is nobody's in the child. Where many
 * threads ask many servers, one of them always has something: then leaks are not looked for. */
static int threads_have_some;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return threads_have_some;
}

/* Run fn in a forked child; it must end well. */
static void in_child(void (*fn)(void *), void *arg)
{
    pid_t pid = t_fork_among_threads();
    CHECK(pid >= 0);
    if (pid == 0) {
        fn(arg);
        exit(0); /* atexit handlers and the leak check too */
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        FAIL("the child ended with status %#x", (unsigned)status);
}

static void free_client(void *arg)
{
    hf_client_free(arg);
}

/* Its renewal is under way, and waits for an answer, when the process forks. */
TEST(a_child_frees_a_client_that_was_renewing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 6000);
    lock_now(m);
    server_freeze(s);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_IN_DOUBT, 10000);
    in_child(free_client, c);
    server_thaw(s);
    hf_lock_free(m);
    hf_client_free(c);
}

struct both {
    struct server *s;
    hf_client     *c;
    hf_lock       *m;
};

static void every_call_says_fork(void *arg)
{
    struct both *b = arg;
    hf_lock *m = NULL;
    hf_inspect_info *info = NULL;
    size_t n = 0;
    int fd;
    CHECK_HF(hf_lock_acquire(b->m, 0, NULL, &err), HF_EFORK);
    CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
    CHECK_HF(hf_lock_try(b->m, NULL, &err), HF_EFORK);
    CHECK_HF(hf_lock_release(b->m, &err), HF_EFORK);
    CHECK_HF(hf_lock_extend(b->m, 5000, &err), HF_EFORK);
    CHECK_HF(hf_lock_verify(b->m, &err), HF_EFORK);
    CHECK_HF(hf_lock_detach(b->m, 0, &err), HF_EFORK);
    CHECK_HF(hf_lock_fd(b->m, &fd, &err), HF_EFORK);
    CHECK_INT(hf_lock_is_held(b->m), 0); /* the child does not hold it */
    CHECK_INT(hf_lock_time_left_ms(b->m), 0);
    hf_lock_poll(b->m);
    CHECK_HF(hf_lock_open(b->c, hf_str("x"), NULL, &m, &err), HF_EFORK);
    CHECK_HF(hf_client_release_all(b->c, &n, &err), HF_EFORK);
    CHECK_HF(hf_owner_acquire(b->c, hf_str("x"), 1000, hf_str("i"), NULL, &err), HF_EFORK);
    CHECK_HF(hf_owner_release(b->c, hf_str("a"), hf_str("i"), &err), HF_EFORK);
    CHECK_HF(hf_owner_check(b->c, hf_str("a"), hf_str("i"), NULL, &err), HF_EFORK);
    CHECK_HF(hf_owner_release_all(b->c, hf_str("i"), &n, &err), HF_EFORK);
    CHECK_HF(hf_inspect_lock(b->c, hf_str("a"), 0, &info, &err), HF_EFORK);
    CHECK_HF(hf_break(b->c, hf_str("a"), 1, NULL, NULL, &err), HF_EFORK);
    CHECK_HF(hf_ask(b->c, hf_str("a"), 1, NULL, NULL, NULL, &err), HF_EFORK);
    CHECK_HF(hf_guard_check(b->c, hf_str("a"), 1, &err), HF_EFORK);
    CHECK_HF(hf_guard_set(b->c, hf_str("a"), hf_str("v"), 1, &err), HF_EFORK);
}

static void frees(void *arg)
{
    struct both *b = arg;
    hf_lock_free(b->m);
    hf_client_free(b->c);
}

static void just_exits(void *arg)
{
    (void)arg;
}

static void opens_its_own(void *arg)
{
    struct both *b = arg;
    hf_client *c = client_at(server_url(b->s), 0);
    hf_lock *m = lock_of(c, "a", 5000), *n = lock_of(c, "child", 5000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY); /* the parent has it */
    lock_now(n);
    CHECK_INT(hf_lock_is_held(n), 1);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_client_free(c);
    frees(b);
}

TEST(P2_a_forked_child_leaves_the_parents_lock_and_connection_alone)
{
    static void (*const children[])(void *) = { every_call_says_fork, just_exits, frees,
                                                opens_its_own };
    struct server *s = server_start_opts(&(struct server_opts){ .tls = 1 });
    const char *urls[] = { server_url(s), server_tls_url(s) };
    for (int k = 0; k < 2; k++) {
        struct both b = { .s = s, .c = client_at(urls[k], 0) };
        b.m = lock_of(b.c, "a", 4000);
        int fd;
        CHECK_HF(hf_lock_fd(b.m, &fd, &err), HF_OK);
        uint64_t f = lock_now(b.m);
        const char *value = server_ask(s, "GET lock:a");
        long long connections = atoll(server_info(s, "total_connections_received"));
        for (size_t i = 0; i < sizeof children / sizeof *children; i++) {
            in_child(children[i], &b);
            CHECK_STR(server_ask(s, "GET lock:a"), value);
            CHECK_HF(hf_lock_verify(b.m, &err), HF_OK);
            CHECK_INT(hf_lock_is_held(b.m), 1);
        }
        /* Only the child's own client connected, twice: ours was never broken. */
        CHECK_INT(atoll(server_info(s, "total_connections_received")), connections + 2);
        t_sleep_ms(4400); /* still renewed */
        CHECK_INT(hf_lock_is_held(b.m), 1);
        CHECK(hf_lock_fence(b.m) == f);
        unlock_now(b.m);
        hf_lock_free(b.m);
        hf_client_free(b.c);
    }
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* The child has none of the threads that watch the servers, and may not wait for them. */
static void leave_alone(const char *url)
{
    struct both b = { .c = client_at(url, 0) };
    b.m = lock_of(b.c, "a", 30000);
    uint64_t f = lock_now(b.m);
    threads_have_some = 1;
    in_child(every_call_says_fork, &b);
    in_child(frees, &b);
    in_child(just_exits, &b);
    threads_have_some = 0;
    CHECK_HF(hf_lock_verify(b.m, &err), HF_OK);
    CHECK(hf_lock_is_held(b.m) && hf_lock_fence(b.m) == f);
    unlock_now(b.m);
    hf_lock_free(b.m);
    hf_client_free(b.c);
}

TEST(P2_so_does_the_child_of_a_client_of_several_servers)
{
    struct members q = members_start(3, kept);
    leave_alone(q.url);
    leave_alone(fleet_start(NULL)->url);
    leave_alone(cluster_start(&(struct cluster_opts){ .no_replicas = 1 })->url);
}

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    CHECK(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void counts(void *arg)
{
    CHECK_INT(count_fds(), *(int *)arg);
}

TEST(a_forked_child_has_none_of_the_librarys_descriptors)
{
    struct server *s = server_start(NULL);
    server_ask(s, "PING"); /* the harness's own connection */
    int before = count_fds();
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 5000);
    int fd;
    CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
    CHECK(count_fds() > before);
    in_child(counts, &before);
    lock_now(m);
    in_child(counts, &before);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(count_fds(), before);
}

/* ---- fork while threads are in calls ---- */

struct busy {
    hf_client  *c;
    atomic_int  stop;
    atomic_long cycles;
};

static void *busy_main(void *arg)
{
    struct busy *b = arg;
    hf_lock *m = lock_of(b->c, "busy", 5000);
    while (!atomic_load(&b->stop)) {
        if (hf_lock_acquire(m, 5000, NULL, &err) == HF_OK) {
            atomic_fetch_add(&b->cycles, 1);
            unlock_now(m);
        }
    }
    hf_lock_free(m);
    return NULL;
}

TEST(forks_while_other_threads_are_in_calls_disturb_nobody)
{
    struct server *s = server_start(NULL);
    struct busy b = { .c = client_at(server_url(s), 0) };
    pthread_t t[4];
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_create(&t[i], NULL, busy_main, &b), 0);
    for (int i = 0; i < 60; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) { /* only what a child of a threaded process may do, and our promise */
            int ok = hf_client_release_all(b.c, NULL, NULL) == HF_EFORK;
            _exit(ok ? 0 : 1);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK_INT(status, 0);
    }
    long before = atomic_load(&b.cycles);
    CHECK_EVENTUALLY(atomic_load(&b.cycles) > before + 10, 10000);
    atomic_store(&b.stop, 1);
    for (int i = 0; i < 4; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    hf_client_free(b.c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- a thread of the parent waits, and is woken through a descriptor ---- */

/* In the child that number is another file's. */
static void cancel_in_child(void *arg)
{
    struct both *b = arg;
    int fd[40];
    for (int i = 0; i < 40; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/file%d", t_dir(), i);
        fd[i] = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        CHECK(fd[i] >= 0);
    }
    hf_lock_cancel(b->m);
    for (int i = 0; i < 40; i++) {
        CHECK_INT(lseek(fd[i], 0, SEEK_END), 0);
        close(fd[i]);
    }
}

static void *wait_for_it(void *arg)
{
    struct both *b = arg;
    CHECK_HF(hf_lock_acquire(b->m, 20000, NULL, &err), HF_OK);
    return NULL;
}

TEST(cancel_in_a_child_writes_to_no_file_and_the_parent_waits_on)
{
    struct both b = { .s = server_start(NULL) };
    b.c = client_at(server_url(b.s), 0);
    b.m = lock_of(b.c, "a", 30000);
    hf_client *other = client_at(server_url(b.s), 0);
    hf_lock *m = lock_of(other, "a", 30000);
    pthread_t t;
    lock_now(m);
    CHECK_INT(pthread_create(&t, NULL, wait_for_it, &b), 0);
    CHECK_EVENTUALLY(server_int(b.s, "ZCARD {lock:a}:q") == 1, 10000);
    in_child(cancel_in_child, &b);
    unlock_now(m);
    CHECK_INT(pthread_join(t, NULL), 0);
    unlock_now(b.m);
    hf_lock_free(m);
    hf_lock_free(b.m);
    hf_client_free(b.c);
    hf_client_free(other);
}
