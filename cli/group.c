/* SPDX-License-Identifier: MIT
 * group.c - is anybody of a process group alive? By /proc, with async-signal-safe calls only: the
 * guardian asks, too. */
#include "group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* "STATE PPID PGRP ..." behind the name, which is in parentheses and may hold anything. */
static int says_alive_in(const char *stat, pid_t group)
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
    return of == group && state != 'Z' && state != 'X';
}

static int alive_in(int proc, const char *pid, pid_t group)
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
    return says_alive_in(text, group);
}

/* readdir(3) takes memory. */
static int any_listed(int proc, pid_t group)
{
    _Alignas(struct dirent64) char buf[4096];
    for (;;) {
        long n = syscall(SYS_getdents64, proc, buf, sizeof buf);
        if (n <= 0)
            return n < 0;
        for (long at = 0; at < n;) {
            const struct dirent64 *e = (const struct dirent64 *)(buf + at);
            if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && alive_in(proc, e->d_name, group))
                return 1;
            at += e->d_reclen;
        }
    }
}

int group_alive(pid_t group)
{
    if (kill(-group, 0) != 0 && errno == ESRCH)
        return 0;
    int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (proc < 0)
        return 1;
    int alive = any_listed(proc, group);
    close(proc);
    return alive;
}
