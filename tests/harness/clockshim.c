/* SPDX-License-Identifier: MIT
 * clockshim.c - LD_PRELOAD library that shifts the clocks of one process.
 *
 * $CLOCKSHIM names a file of at least 24 bytes, mapped here: three int64_t offsets in nanoseconds,
 * for CLOCK_REALTIME, CLOCK_MONOTONIC and CLOCK_BOOTTIME. Whoever maps the same file moves the
 * clocks while the process runs. It allocates nothing, because redis-server's allocator asks for
 * the time before it can serve.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { REAL, MONO, BOOT, CLOCKS };
static const int64_t no_shift[CLOCKS];
static _Atomic(const volatile int64_t *) offsets;

static const volatile int64_t *map_offsets(void)
{
    const volatile int64_t *p = offsets;
    if (p)
        return p;
    const char *path = getenv("CLOCKSHIM");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *m = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof no_shift, PROT_READ, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    offsets = p = m == MAP_FAILED ? no_shift : m;
    return p;
}

static int64_t offset_of(clockid_t id)
{
    switch (id) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
        return map_offsets()[REAL];
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_MONOTONIC_RAW:
        return map_offsets()[MONO];
    case CLOCK_BOOTTIME:
        return map_offsets()[BOOT];
    default:
        return 0;
    }
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
    if (syscall(SYS_clock_gettime, id, ts) != 0)
        return -1;
    int64_t ns = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec + offset_of(id);
    ts->tv_sec = ns / 1000000000;
    ts->tv_nsec = ns % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict tv, void *restrict zone)
{
    struct timespec ts;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    tv->tv_sec = ts.tv_sec;
    tv->tv_usec = ts.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *ret)
{
    struct timespec ts;
    if (clock_gettime(CLOCK_REALTIME, &ts) != 0)
        return -1;
    if (ret)
        *ret = ts.tv_sec;
    return ts.tv_sec;
}
