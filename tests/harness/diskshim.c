/* SPDX-License-Identifier: MIT
 * diskshim.c - LD_PRELOAD library that makes the disk of one process slow, or lets it hang.
 *
 * $DISKSHIM names a file of at least 16 bytes, mapped here: two int64_t, how many ms fdatasync()
 * takes longer (-1: until this is 0 again), and how many calls did so far. Whoever maps the same
 * file decides and counts. Only fdatasync(): that is how servers bring an append-only file to the
 * disk.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DELAY, COUNT, WORDS };

static _Atomic int64_t *map_words(void)
{
    static _Atomic int64_t none[WORDS];
    static _Atomic(_Atomic int64_t *) words;
    _Atomic int64_t *p = words;
    if (p)
        return p;
    const char *path = getenv("DISKSHIM");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *m = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    words = p = m == MAP_FAILED ? none : m;
    return p;
}

int fdatasync(int fd)
{
    _Atomic int64_t *w = map_words();
    if (w[DELAY])
        atomic_fetch_add(&w[COUNT], 1);
    for (int64_t ms = 0; w[DELAY] < 0 || ms < w[DELAY]; ms++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    return (int)syscall(SYS_fdatasync, fd);
}
