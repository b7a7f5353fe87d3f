/* SPDX-License-Identifier: MIT
 * holder.c - acquire --hold-pid: a process in the background that holds a lock for another one.
 *
 * It is forked first and opens its client then, since a client does not survive a fork. It keeps
 * nothing of the caller's open but, until the lock is held, stderr for messages: a shell that
 * reads our output in $(...) must see its end. */
#include "holder.h"

#include "clock.h"
#include "exitcode.h"
#include "deadline.h"
#include "ending.h"
#include "message.h"
#include "open.h"
#include "platform.h"
#include "take.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>


enum phase { HOLDS, TERM_SENT, KILL_SENT };

struct holder {
    const struct opts *o;
    struct taken       t;
    struct deadline       deadline;
    struct signals     s;
    int                target; /* descriptor of the process that we hold the lock for */
    int                signal_fd, timer_fd;
    enum phase         phase;
    int64_t            kill_at_ms, max_run_at_ms;
};

int holder_target(const struct cmd *cmd, const struct opts *o, int *ret_code)
{
    /* A lock that is lost would end the machine, or the container. */
    if (o->hold_pid == 1) {
        *ret_code = usage_error(cmd, "--hold-pid: process 1 is the init of this machine or "
                                "container and must not be ended with a lock: name the process "
                                "that needs it, or use holdfast run");
        return -1;
    }
    int fd = platform_process(o->hold_pid);
    if (fd >= 0 && platform_is_kernel_thread(o->hold_pid)) {
        close(fd);
        *ret_code = usage_error(cmd, "--hold-pid: %" PRId64 " is a thread of the kernel: name the "
                                "process that needs the lock", o->hold_pid);
        return -1;
    }
    if (fd >= 0)
        return fd;
    if (errno == ESRCH || errno == EINVAL)
        *ret_code = usage_error(cmd, "--hold-pid: there is no process %" PRId64, o->hold_pid);
    else {
        msg_error("cannot watch process %" PRId64 ": %s", o->hold_pid, strerror(errno));
        *ret_code = EX_SYSTEM;
    }
    return -1;
}

/* ---- holding ----------------------------------------------------------------------------- */

static void send_target(struct holder *k, int sig)
{
    platform_process_signal(k->target, sig);
}

/* The lock cannot be kept: as --on-lost says, and in time. */
static void stop_target(struct holder *k, int64_t kill_at_ms)
{
    int64_t now = clock_now_ms();
    k->kill_at_ms = k->phase == HOLDS || kill_at_ms < k->kill_at_ms ? kill_at_ms : k->kill_at_ms;
    if (k->o->on_lost == LOST_KILL || k->kill_at_ms <= now) {
        k->phase = KILL_SENT;
        send_target(k, SIGKILL);
    } else if (k->phase == HOLDS) {
        k->phase = TERM_SENT;
        send_target(k, SIGTERM);
        send_target(k, SIGCONT);
    }
}

/* 1 when there is nothing left to do here. */
static int check_times(struct holder *k)
{
    int64_t now = clock_now_ms();
    deadline_woke(&k->deadline);
    int lost = deadline_check(&k->deadline);
    if (k->deadline.lost && (k->deadline.loss == HF_LOSS_RELEASED || k->o->on_lost == LOST_IGNORE))
        return 1; /* released on purpose with our id; or nobody is to be told */
    if (lost)
        stop_target(k, deadline_kill_at_ms(&k->deadline, now, k->o->kill_after_ms));
    if (k->phase == HOLDS && now >= k->max_run_at_ms)
        stop_target(k, now + k->o->kill_after_ms);
    if (k->phase == TERM_SENT && now >= k->kill_at_ms) {
        k->phase = KILL_SENT;
        send_target(k, SIGKILL);
    }
    return 0;
}

/* Somebody ends the keeper: without it the lock will be lost. */
static int told_to_end(struct holder *k)
{
    int sig, told = 0;
    while ((sig = platform_signal_read(k->signal_fd)))
        told |= sig == SIGTERM;
    if (told && k->o->on_lost != LOST_IGNORE)
        stop_target(k, clock_now_ms() + k->o->kill_after_ms);
    return told && k->o->on_lost == LOST_IGNORE;
}

static void set_timer(struct holder *k)
{
    int64_t next = deadline_next_ms(&k->deadline);
    if (k->phase == HOLDS && k->max_run_at_ms < next)
        next = k->max_run_at_ms;
    if (k->phase == TERM_SENT && k->kill_at_ms < next)
        next = k->kill_at_ms;
    clock_timer_set(k->timer_fd, k->phase == KILL_SENT ? NEVER : next);
}

static void hold(struct holder *k)
{
    int fd = -1;
    hf_err e = hf_lock_fd(k->t.lock[0].m, &fd, NULL);
    (void)e; /* without it the timer alone makes us look */
    struct pollfd p[] = { { .fd = k->target, .events = POLLIN },
                          { .fd = k->signal_fd, .events = POLLIN },
                          { .fd = k->timer_fd, .events = POLLIN },
                          { .fd = fd, .events = POLLIN } };
    deadline_start(&k->deadline, &k->t, k->o);
    if (k->o->max_run_ms != GIVEN_NOT)
        k->max_run_at_ms = clock_now_ms() + k->o->max_run_ms;
    while (!check_times(k)) {
        set_timer(k);
        poll(p, 4, -1);
        if (p[0].revents || told_to_end(k))
            break;
    }
    int64_t rest = k->o->hold_min_ms == GIVEN_NOT
                       ? 0
                       : k->t.since_ms + k->o->hold_min_ms - clock_now_ms();
    if (rest > HF_TTL_MIN_MS)
        taken_leave(&k->t, rest);
    else
        taken_release(&k->t);
}

/* ---- starting ---------------------------------------------------------------------------- */

static void redirect(int fd)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, fd);
    if (null > 2)
        close(null);
}

/* Descriptors that the caller happens to have open are none of our business, and must not stay
 * open because of us. */
static void close_others(int a, int b)
{
    int low = a < b ? a : b, high = a < b ? b : a;
    if (low > 3)
        platform_close_range(3, (unsigned)low - 1);
    if (high > low + 1)
        platform_close_range((unsigned)low + 1, (unsigned)high - 1);
    platform_close_range((unsigned)high + 1, ~0u);
}

static int take(struct holder *k, const struct cmd *cmd, const struct opts *o, const char *name,
                int *ret_code)
{
    char program[64];
    hf_client *c = NULL;
    *ret_code = taken_names(&k->t, cmd, name, 0);
    /* What others see as the holder: the program of PID, not this one. */
    if (*ret_code == 0)
        *ret_code = client_await(o, platform_program(o->hold_pid, program, sizeof program), &c);
    if (*ret_code == 0)
        *ret_code = taken_open(&k->t, c, o, 0);
    return *ret_code == 0 && taken_wait(&k->t, o, ret_code);
}

/* We go to another folder, and the embedded server may have to be started again from there. Links
 * are kept: a server may be a program that goes by its name. */
static void server_by_its_whole_path(void)
{
    const char *named = platform_getenv("HOLDFAST_SERVER");
    char *here, *whole = NULL;
    if (!named || *named == '/' || !strchr(named, '/') || !(here = getcwd(NULL, 0)))
        return;
    if (asprintf(&whole, "%s/%s", here, named) > 0)
        setenv("HOLDFAST_SERVER", whole, 1);
    free(whole);
    free(here);
}

/* Thread: the keeper's only one. Never returns to the caller's code. */
static void keeper_main(const struct cmd *cmd, const struct opts *given, const char *name,
                        int target, int report_fd)
{
    struct opts o = *given;
    struct holder k = { .o = &o, .target = target, .max_run_at_ms = NEVER };
    struct holder_report r = { 0 };
    char heard, info[64];
    snprintf(info, sizeof info, "for pid %" PRId64, o.hold_pid);
    if (!o.info)
        o.info = info;
    redirect(STDIN_FILENO);
    redirect(STDOUT_FILENO);
    close_others(target, report_fd);
    platform_name("holdfast-keeper");
    signals_block(&k.s);
    k.signal_fd = signals_fd(&k.s, signals_running);
    k.timer_fd = clock_timer();
    if (k.signal_fd < 0 || k.timer_fd < 0)
        _exit(EX_SYSTEM);
    server_by_its_whole_path();
    ending_on_hangup(report_fd);
    r.held = take(&k, cmd, &o, name, &r.code);
    ending_on_hangup(-1);
    if (r.held) {
        r.fence = k.t.lock[0].fence;
        snprintf(r.owner, sizeof r.owner, "%s", hf_lock_owner(k.t.lock[0].m));
    }
    int told = send(report_fd, &r, sizeof r, MSG_NOSIGNAL) == (ssize_t)sizeof r;
    if (r.held && told && recv(report_fd, &heard, 1, 0) == 1) {
        redirect(STDERR_FILENO);
        close(report_fd);
        if (chdir("/") == 0)
            hold(&k);
    }
    hf_client *c = k.t.c;
    taken_free(&k.t);
    hf_client_free(c);
    _exit(0);
}

int holder_start(const struct cmd *cmd, const struct opts *o, const char *name, int target,
                 int *ret_code)
{
    int fds[2];
    *ret_code = EX_SYSTEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        msg_error("cannot start the keeper: %s", strerror(errno));
        return -1;
    }
    fflush(stdout);
    pid_t between = fork();
    if (between == 0) {
        /* Twice, so that it is nobody's child and belongs to no terminal. */
        close(fds[0]);
        setsid();
        pid_t pid = fork();
        if (pid == 0)
            keeper_main(cmd, o, name, target, fds[1]);
        _exit(pid < 0);
    }
    close(fds[1]);
    int status = 0;
    if (between > 0)
        while (waitpid(between, &status, 0) < 0 && errno == EINTR)
            ;
    if (between > 0 && status == 0)
        return fds[0];
    msg_error("cannot start the keeper process");
    close(fds[0]);
    return -1;
}
