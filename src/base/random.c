/* SPDX-License-Identifier: MIT
 * random.c - identities from the kernel, jitter from a cheap generator.
 */
#include "base/random.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

int random_id(char ret[33])
{
    static const char hex[] = "0123456789abcdef";
    unsigned char raw[16];
    size_t have = 0;

    while (have < sizeof raw) {
        ssize_t n = getrandom(raw + have, sizeof raw - have, 0);
        if (n < 0 && errno != EINTR)
            return -1;
        if (n > 0)
            have += (size_t)n;
    }
    for (size_t i = 0; i < sizeof raw; i++) {
        ret[2 * i] = hex[raw[i] >> 4];
        ret[2 * i + 1] = hex[raw[i] & 15];
    }
    ret[32] = '\0';
    return 0;
}

int64_t random_between(int64_t low, int64_t high)
{
    static _Thread_local uint64_t state;

    if (high <= low)
        return low;
    if (!state) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        state = (uint64_t)t.tv_nsec * 0x9e3779b97f4a7c15u ^ (uint64_t)(uintptr_t)&state ^ 1;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + (int64_t)(state % (uint64_t)(high - low + 1));
}
