/* SPDX-License-Identifier: MIT
 * embedded_one.c - one user, one machine, one embedded server, whatever each of its processes sees
 * of the file system; or a refusal, never a silent second one.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/t.h"
#include "holdfast.h"

enum { HELD = 10, BUSY = 11, FAILED = 12 };

static char dir[128], url[160];

static void place(void)
{
    const char *program = getenv("HF_TEST_SERVER");
    if (program && !getenv("HOLDFAST_SERVER"))
        setenv("HOLDFAST_SERVER", program, 1);
    snprintf(dir, sizeof dir, "%s/e", t_dir());
    snprintf(url, sizeof url, "embedded:%s", dir);
}

/* A mount namespace in which a fresh file system covers path. */
static void hide(const char *path, unsigned long flags)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)
        || mount("none", path, "tmpfs", flags, NULL)) {
        fprintf(stderr, "# cannot hide %s: %s\n", path, strerror(errno));
        _exit(FAILED);
    }
}

/* Try the lock "one"; hold it until stdin says so. Exit code: what came of it. */
static void try_lock(const char *where, int hold_fd, int tell_fd)
{
    hf_client *c = NULL;
    hf_lock *lock = NULL;
    hf_error err = { 0 };
    char byte = 0;
    hf_err e = hf_client_open(where, NULL, &c, &err);
    if (!e)
        e = hf_lock_open(c, hf_str("one"), NULL, &lock, &err);
    if (!e)
        e = hf_lock_try(lock, NULL, &err);
    int result = e == HF_OK ? HELD : e == HF_EBUSY ? BUSY : FAILED;
    if (result == FAILED)
        fprintf(stderr, "# %s: %s\n", hf_err_name(e), err.message);
    if (tell_fd >= 0)
        (void)!write(tell_fd, &byte, 1);
    if (hold_fd >= 0)
        (void)!read(hold_fd, &byte, 1);
    hf_lock_free(lock);
    hf_client_free(c);
    _exit(result);
}

static int exit_of(pid_t pid)
{
    int st;
    CHECK_INT(waitpid(pid, &st, 0), pid);
    return WIFEXITED(st) ? WEXITSTATUS(st) : -1;
}

static int try_hidden(const char *hidden, const char *where)
{
    pid_t pid = t_fork_among_threads();
    CHECK(pid >= 0);
    if (pid == 0) {
        hide(hidden, 0);
        try_lock(where, -1, -1);
    }
    return exit_of(pid);
}

static hf_server_info status(void)
{
    hf_error err = { 0 };
    hf_server_info info = { .size = sizeof info };
    if (hf_server_status(dir, &info, &err))
        FAIL("%s", err.message);
    return info;
}

static hf_client *client(void)
{
    hf_client *c = NULL;
    hf_error err = { 0 };
    if (hf_client_open(url, NULL, &c, &err))
        FAIL("%s", err.message);
    return c;
}

static hf_lock *held(hf_client *c)
{
    hf_lock *lock = NULL;
    hf_error err = { 0 };
    if (hf_lock_open(c, hf_str("one"), NULL, &lock, &err) || hf_lock_try(lock, NULL, &err))
        FAIL("%s", err.message);
    return lock;
}

static void stop(void)
{
    hf_error err = { 0 };
    if (hf_server_stop(dir, &err))
        FAIL("%s", err.message);
    CHECK_INT(status().running, 0);
}

TEST(a_process_that_does_not_see_the_folder_uses_the_same_server)
{
    if (geteuid() != 0)
        SKIP("needs root");
    place();
    hf_client *c = client();
    hf_lock *lock = held(c);
    CHECK_INT(try_hidden(t_dir(), url), BUSY);
    hf_lock_free(lock);
    CHECK_INT(try_hidden(t_dir(), url), HELD);
    hf_client_free(c);
    stop();
}

TEST(and_so_do_all_others_when_the_server_was_started_there)
{
    if (geteuid() != 0)
        SKIP("needs root");
    place();
    int hold[2], tell[2];
    char byte;
    CHECK(pipe(hold) == 0 && pipe(tell) == 0);
    pid_t first = fork();
    if (first == 0) {
        hide(t_dir(), 0);
        try_lock(url, hold[0], tell[1]);
    }
    CHECK_INT(read(tell[0], &byte, 1), 1);
    hf_server_info info = status();
    CHECK_INT(info.running, 1);
    CHECK_CONTAINS(info.dir, "/proc/");
    pid_t second = fork();
    if (second == 0)
        try_lock(url, -1, -1);
    CHECK_INT(exit_of(second), BUSY);
    CHECK_INT(write(hold[1], "x", 1), 1);
    CHECK_INT(exit_of(first), HELD);
    stop(); /* though its folder cannot be seen */
}

TEST(many_first_starts_in_mixed_mount_namespaces_give_one_server_and_one_holder)
{
    enum { MANY = 100 };
    int n = MANY, hold[2], tell[2], got[3] = { 0 };
    pid_t pid[MANY];
    char byte, patient[200];
    if (geteuid() != 0)
        SKIP("needs root");
    place();
    snprintf(patient, sizeof patient, "%s?timeout=30s", url);
    CHECK(pipe(hold) == 0 && pipe(tell) == 0);
    for (int i = 0; i < n; i++) {
        pid[i] = fork();
        CHECK(pid[i] >= 0);
        if (pid[i] == 0) {
            close(hold[1]);
            if (i % 2)
                hide(t_dir(), 0);
            try_lock(patient, hold[0], tell[1]);
        }
    }
    for (int i = 0; i < n; i++) /* all have tried, and who holds still does */
        CHECK_INT(read(tell[0], &byte, 1), 1);
    close(hold[1]);
    for (int i = 0; i < n; i++) {
        int result = exit_of(pid[i]);
        CHECK_RANGE(result, HELD, FAILED);
        got[result - HELD]++;
    }
    t_note("%d tried: %d held, %d busy, %d failed", n, got[0], got[1], got[2]);
    CHECK_INT(got[0], 1);
    CHECK_INT(got[1], n - 1);
    stop();
}

/* A server program that takes two seconds to start. */
static void slow_program(void)
{
    const char *program = getenv("HOLDFAST_SERVER");
    char path[160];
    snprintf(path, sizeof path, "%s/slow", t_dir());
    FILE *f = fopen(path, "w");
    CHECK(f && fprintf(f, "#!/bin/sh\n: > begun\nsleep 2\nexec %s \"$@\"\n",
                       program ? program : "redis-server") > 0 && fclose(f) == 0);
    CHECK_INT(chmod(path, 0700), 0);
    setenv("HOLDFAST_SERVER", path, 1);
}

/* How often one who opens a client sleeps until it has it. */
static long sleeps_of_a_waiter(int hidden)
{
    long slept = -1;
    int tell[2];
    CHECK(pipe(tell) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        struct rusage used;
        hf_client *c = NULL;
        if (hidden)
            hide(t_dir(), 0);
        hf_err e = hf_client_open(url, NULL, &c, NULL);
        if (!e && getrusage(RUSAGE_SELF, &used) == 0)
            (void)!write(tell[1], &used.ru_nvcsw, sizeof used.ru_nvcsw);
        hf_client_free(c);
        _exit(e ? FAILED : HELD);
    }
    CHECK_INT(exit_of(pid), HELD);
    CHECK_INT(read(tell[0], &slept, sizeof slept), sizeof slept);
    return slept;
}

/* A hundred who look every few ms leave nobody the time to start it. */
TEST(who_waits_until_another_has_started_the_server_looks_less_and_less_often)
{
    char begun[160];
    place();
    slow_program();
    snprintf(begun, sizeof begun, "%s/begun", dir);
    for (int hidden = 0; hidden <= (geteuid() == 0); hidden++) {
        pid_t first = fork();
        if (first == 0)
            try_lock(url, -1, -1);
        CHECK_EVENTUALLY(access(begun, F_OK) == 0, 5000);
        long slept = sleeps_of_a_waiter(hidden);
        t_note("slept %ld times", slept);
        CHECK_RANGE(slept, 1, 150); /* every 5 ms would be 400 times */
        CHECK_INT(exit_of(first), HELD);
        stop();
        CHECK_INT(unlink(begun), 0);
    }
}

TEST(a_folder_that_was_removed_under_its_server_is_no_place_for_a_second_one)
{
    char command[200], want[40];
    place();
    hf_client *c = client(), *d = NULL;
    hf_lock *lock = held(c);
    hf_error err = { 0 };
    pid_t pid = (pid_t)status().pid;
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK_INT(system(command), 0);
    CHECK_INT(hf_client_open(url, NULL, &d, &err), HF_ECONN);
    snprintf(want, sizeof want, "kill %d", (int)pid);
    CHECK_CONTAINS(err.message, "was removed");
    CHECK_CONTAINS(err.message, want);
    CHECK_INT(hf_lock_is_held(lock), 1);
    CHECK_INT(kill(pid, SIGTERM), 0); /* as the message says */
    CHECK_EVENTUALLY(hf_client_open(url, NULL, &d, &err) == HF_OK, 5000);
    hf_client_free(d);
    hf_lock_free(lock);
    hf_client_free(c);
    stop();
}

TEST(a_folder_that_was_renamed_is_still_the_same_server)
{
    char moved[160];
    place();
    hf_client *c = client();
    hf_lock *lock = held(c);
    snprintf(moved, sizeof moved, "%s-moved", dir);
    CHECK_INT(rename(dir, moved), 0);
    pid_t pid = t_fork_among_threads();
    if (pid == 0)
        try_lock(url, -1, -1);
    CHECK_INT(exit_of(pid), BUSY);
    hf_lock_free(lock);
    hf_client_free(c);
    stop();
}

TEST(a_name_that_another_user_has_taken_is_refused)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    hf_client *c = NULL;
    hf_error err = { 0 };
    char quick[200];
    place();
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "holdfast:%lu:%s",
                     (unsigned long)geteuid(), dir);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK_INT(bind(fd, (struct sockaddr *)&at,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)), 0);
    snprintf(quick, sizeof quick, "%s?timeout=500ms", url);
    CHECK_INT(hf_client_open(quick, NULL, &c, &err), HF_ECONN);
    CHECK_CONTAINS(err.message, "cannot be reached from here");
    close(fd);
    CHECK_INT(hf_client_open(url, NULL, &c, &err), HF_OK);
    hf_client_free(c);
    stop();
}

/* In a network namespace of its own, which is a machine of its own: this user's real server, if
 * there is one, is not touched. */
static void on_a_machine_of_its_own(void)
{
    int hold[2], tell[2], status;
    char byte;
    if (unshare(CLONE_NEWNET))
        _exit(FAILED);
    hide("/run", 0);
    if (mount("none", "/tmp", "tmpfs", 0, NULL) || pipe(hold) || pipe(tell))
        _exit(FAILED);
    pid_t first = fork();
    if (first == 0)
        try_lock("embedded:", hold[0], tell[1]);
    if (read(tell[0], &byte, 1) != 1)
        _exit(FAILED);
    pid_t second = fork();
    if (second == 0) {
        hide("/run", MS_RDONLY);
        try_lock("embedded:", -1, -1);
    }
    if (waitpid(second, &status, 0) != second || !WIFEXITED(status))
        _exit(FAILED);
    int result = WEXITSTATUS(status);
    (void)!write(hold[1], "x", 1);
    waitpid(first, NULL, 0);
    hf_error err = { 0 };
    if (hf_server_stop(NULL, &err))
        fprintf(stderr, "# %s\n", err.message);
    _exit(result);
}

TEST(root_without_a_writable_run_folder_has_the_same_server)
{
    if (geteuid() != 0)
        SKIP("needs root");
    pid_t pid = fork();
    if (pid == 0)
        on_a_machine_of_its_own();
    CHECK_INT(exit_of(pid), BUSY);
}
