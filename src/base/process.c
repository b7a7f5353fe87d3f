/* SPDX-License-Identifier: MIT
 * process.c - what the system knows about this process: /proc, and what only Linux has.
 */
#include "base/process.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* By its number where the C library is too old to know it, or has no function for it (musl). */
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* The first line of a file of /proc, or "". */
static void read_line(const char *path, char *ret, size_t size)
{
    ret[0] = '\0';
    FILE *f = fopen(path, "re");
    if (!f)
        return;
    if (fgets(ret, (int)size, f))
        ret[strcspn(ret, "\n")] = '\0';
    fclose(f);
}

/* Field 22 of its stat. */
void process_start_time(char *ret, size_t size)
{
    char line[1024];
    read_line("/proc/self/stat", line, sizeof line);
    char *p = strrchr(line, ')'); /* the program's name may hold anything */
    for (int field = 2; p && field < 22; field++)
        p = strchr(p + 1, ' ');
    snprintf(ret, size, "%llu", p ? strtoull(p, NULL, 10) : 0);
}

void process_boot_id(char *ret, size_t size)
{
    read_line("/proc/sys/kernel/random/boot_id", ret, size);
}

const char *process_name(void)
{
    return program_invocation_short_name;
}

const char *process_getenv(const char *name)
{
    return secure_getenv(name);
}

int process_cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

void process_close_from(unsigned first)
{
    struct rlimit limit;

    if (syscall(SYS_close_range, first, ~0U, 0) == 0)
        return;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > 65536)
        limit.rlim_cur = 65536;
    for (unsigned fd = first; fd < limit.rlim_cur; fd++)
        close((int)fd);
}
