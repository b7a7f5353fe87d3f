/* SPDX-License-Identifier: MIT
 * random.c - identities from the kernel, jitter from a cheap generator.
 */
#include "base/random.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/forkguard.h"
#include "base/seam.h"

#define POOL_SIZE 256

/* 0, or -1 with errno. */
static int from_kernel(unsigned char *buf, size_t size)
{
    size_t have = 0;
    while (have < size) {
        ssize_t n = getrandom(buf + have, size - have, 0);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            have += (size_t)n;
    }
    return 0;
}

/* A system call for each nonce would be a fifth of those that a lock takes: they are fetched for
 * many at once. None is used twice, nor in a forked child, which has a copy of them. Copies of a
 * whole machine would share them, so ids are not made of these. */
static int from_pool(unsigned char *buf, size_t size)
{
    static _Thread_local struct {
        unsigned char bytes[POOL_SIZE];
        size_t        left;
        unsigned      generation;
    } pool;
    if (pool.left < size || pool.generation != forkguard_generation()) {
        pool.left = 0;
        if (from_kernel(pool.bytes, sizeof pool.bytes) < 0)
            return -1;
        pool.left = sizeof pool.bytes;
        pool.generation = forkguard_generation();
    }
    pool.left -= size;
    memcpy(buf, pool.bytes + pool.left, size);
    explicit_bzero(pool.bytes + pool.left, size);
    return 0;
}

static void to_hex(const unsigned char *raw, size_t n, char *ret)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        ret[2 * i] = hex[raw[i] >> 4];
        ret[2 * i + 1] = hex[raw[i] & 15];
    }
    ret[2 * n] = '\0';
}

int random_id(char ret[33])
{
    const struct seam *seam = seam_get();
    unsigned char raw[16];

    if ((seam ? seam->random(raw, sizeof raw) : from_kernel(raw, sizeof raw)) < 0)
        return -1;
    to_hex(raw, sizeof raw, ret);
    return 0;
}

int random_nonce(char ret[17])
{
    const struct seam *seam = seam_get();
    unsigned char raw[8];

    if ((seam ? seam->random(raw, sizeof raw) : from_pool(raw, sizeof raw)) < 0)
        return -1;
    to_hex(raw, sizeof raw, ret);
    return 0;
}

/* Never 0, and another one for each thread. */
static uint64_t seed(const void *where)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return ((uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)where) | 1;
}

static uint64_t next(void)
{
    static _Thread_local uint64_t state;
    const struct seam *seam = seam_get();
    uint64_t n = 0;

    if (seam) {
        (void)!seam->random(&n, sizeof n); /* without any it is 0 each time: still a number */
        return n;
    }
    if (!state)
        state = seed(&state);
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

int64_t random_between(int64_t low, int64_t high)
{
    if (high <= low)
        return low;
    uint64_t span = (uint64_t)high - (uint64_t)low + 1; /* 0: all that there are */
    return (int64_t)((uint64_t)low + (span ? next() % span : next()));
}
