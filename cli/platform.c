/* SPDX-License-Identifier: MIT
 * platform.c - what holdfast(1) asks of Linux alone. */
#define _LARGEFILE64_SOURCE /* struct dirent64, which musl hides otherwise */
#include "platform.h"

#include "clock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* By their numbers where the C library is too old to know them: Debian 11, RHEL 8. */
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* ---- the clock --------------------------------------------------------------------------- */

int64_t clock_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int clock_timer(void)
{
    return timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
}

void clock_timer_set(int fd, int64_t at_ms)
{
    struct itimerspec it = { 0 };
    if (at_ms != NEVER) {
        if (at_ms < 1)
            at_ms = 1; /* 0 would disarm it */
        it.it_value.tv_sec = at_ms / 1000;
        it.it_value.tv_nsec = at_ms % 1000 * 1000000;
    }
    timerfd_settime(fd, TFD_TIMER_ABSTIME, &it, NULL);
}

/* ---- descriptors to poll ----------------------------------------------------------------- */

int platform_bell(void)
{
    return eventfd(0, EFD_CLOEXEC);
}

void platform_bell_ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n;
}

int platform_signal_fd(int fd, const sigset_t *set)
{
    return signalfd(fd, set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int platform_signal_read(int fd)
{
    struct signalfd_siginfo si;
    return read(fd, &si, sizeof si) == (ssize_t)sizeof si ? (int)si.ssi_signo : 0;
}

/* ---- this process ------------------------------------------------------------------------ */

void platform_name(const char *name)
{
    prctl(PR_SET_NAME, name);
}

void platform_die_with_parent(void)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

void platform_one_heap(void)
{
    mallopt(M_ARENA_MAX, 1);
}

void platform_no_core(void)
{
    prctl(PR_SET_DUMPABLE, 0);
}

void platform_close_range(unsigned first, unsigned last)
{
    struct rlimit limit;

    if (syscall(SYS_close_range, first, last, 0) == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 65536)
        limit.rlim_cur = 65536;
    for (unsigned fd = first; fd <= last && fd < limit.rlim_cur; fd++)
        close((int)fd);
}

/* ---- others ------------------------------------------------------------------------------ */

int platform_process(int64_t pid)
{
    return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
}

void platform_process_signal(int fd, int sig)
{
    syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0);
}

/* The first line of a file of /proc, in buf; NULL: it cannot be read. */
static char *read_line(const char *path, char *buf, size_t size)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return NULL;
    char *got = fgets(buf, (int)size, f);
    fclose(f);
    return got;
}

const char *platform_program(int64_t pid, char *buf, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/comm", pid);
    if (!read_line(path, buf, size))
        return NULL;
    buf[strcspn(buf, "\n")] = '\0';
    return buf;
}

/* ---- a process group: async-signal-safe calls only, because the guardian asks, too ---- */

#define DEAD    "ZX"
#define STOPPED "ZXTt"

/* Is it of this group, and in none of these states? "STATE PPID PGRP ..." is behind the name, which
 * is in parentheses and may hold anything. */
static int says_member(const char *stat, pid_t group, const char *but)
{
    const char *p = strrchr(stat, ')');
    if (!p || p[1] != ' ')
        return 0;
    char state = p[2];
    p = state ? strchr(p + 3, ' ') : NULL; /* behind it the parent */
    p = p ? strchr(p + 1, ' ') : NULL;
    long of = 0;
    for (p = p ? p + 1 : ""; *p >= '0' && *p <= '9'; p++)
        of = 10 * of + (*p - '0');
    return of == group && !strchr(but, state);
}

static int is_member(int proc, const char *pid, pid_t group, const char *but)
{
    char path[64], text[512];
    size_t len = strlen(pid);
    if (len > 20)
        return 0;
    memcpy(path, pid, len);
    memcpy(path + len, "/stat", sizeof "/stat");
    int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return says_member(text, group, but);
}

/* readdir(3) takes memory. */
static int any_listed(int proc, pid_t group, const char *but)
{
    _Alignas(struct dirent64) char buf[4096];
    for (;;) {
        long n = syscall(SYS_getdents64, proc, buf, sizeof buf);
        if (n <= 0)
            return n < 0;
        for (long at = 0; at < n;) {
            const struct dirent64 *e = (const struct dirent64 *)(buf + at);
            if (e->d_name[0] >= '1' && e->d_name[0] <= '9'
                && is_member(proc, e->d_name, group, but))
                return 1;
            at += e->d_reclen;
        }
    }
}

/* It may hide the processes of others (hidepid=): then also the first one. */
static int shows_all(int proc)
{
    int fd = openat(proc, "1/stat", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

/* Not even one that is dead. */
static int none_is_shown(int proc, pid_t group)
{
    return lseek(proc, 0, SEEK_SET) == 0 && !any_listed(proc, group, "");
}

/* hidden: the answer if there are members, none of them is seen, and some may be hidden. */
static int any_member(pid_t group, const char *but, int hidden)
{
    int why = kill(-group, 0) == 0 ? 0 : errno;
    if (why == ESRCH)
        return 0;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return 1;
    int any = any_listed(proc, group, but);
    if (!any && hidden)
        any = !shows_all(proc) || (why == EPERM && none_is_shown(proc, group));
    close(proc);
    return any;
}

int platform_group_alive(pid_t group)
{
    return any_member(group, DEAD, 1);
}

int platform_group_stopped(pid_t group)
{
    return !any_member(group, STOPPED, 0);
}

#define PF_KTHREAD_FLAG 0x00200000 /* PF_KTHREAD of the kernel, in /proc/PID/stat */

int platform_is_kernel_thread(int64_t pid)
{
    char path[40], text[400];
    unsigned flags = 0;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && sscanf(name_end + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1
           && (flags & PF_KTHREAD_FLAG);
}

const char *platform_getenv(const char *name)
{
    return secure_getenv(name);
}

void platform_run_self(char *const argv[], char *const env[])
{
    execve("/proc/self/exe", argv, env);
}
