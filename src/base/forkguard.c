/* SPDX-License-Identifier: MIT
 * forkguard.c - a forked child must not touch its parent's connections.
 */
#include "base/forkguard.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/mutex.h"

static struct mutex mu = MUTEX_INITIALIZER(MUTEX_FORKGUARD);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint generation = 1;
static int *fds; /* guarded by mu, which fork() holds while it copies the process */
static size_t nfds, capacity;

static void before_fork(void)
{
    mutex_lock(&mu);
}

static void in_parent(void)
{
    mutex_unlock(&mu);
}

static void in_child(void)
{
    atomic_fetch_add(&generation, 1);
    for (size_t i = 0; i < nfds; i++)
        close(fds[i]);
    nfds = 0;
    mutex_unlock(&mu);
}

static void install(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

unsigned forkguard_generation(void)
{
    pthread_once(&once, install);
    return atomic_load_explicit(&generation, memory_order_relaxed);
}

int forkguard_add(int fd)
{
    int result = 0;

    pthread_once(&once, install);
    mutex_lock(&mu);
    if (nfds == capacity) {
        size_t grown = capacity ? 2 * capacity : 16;
        int *p = mem_resize(fds, grown * sizeof *p);
        if (p) {
            fds = p;
            capacity = grown;
        } else {
            result = -1;
        }
    }
    if (result == 0)
        fds[nfds++] = fd;
    mutex_unlock(&mu);
    return result;
}

int forkguard_keep(int fd)
{
    if (fd >= 0 && forkguard_add(fd) < 0) {
        close(fd);
        errno = ENOMEM;
        return -1;
    }
    return fd;
}

void forkguard_close(int fd)
{
    mutex_lock(&mu);
    for (size_t i = 0; i < nfds; i++) {
        if (fds[i] == fd) {
            fds[i] = fds[--nfds];
            close(fd);
            break;
        }
    }
    if (nfds == 0) { /* nothing of ours is left: keep no memory either */
        mem_free(fds);
        fds = NULL;
        capacity = 0;
    }
    mutex_unlock(&mu);
}
