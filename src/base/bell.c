/* SPDX-License-Identifier: MIT
 * bell.c - a descriptor by which one thread wakes another that sleeps in poll(2): an eventfd.
 */
#include "base/bell.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/forkguard.h"
#include "base/seam.h"

/* A simulation has no descriptors: its bells are numbers behind all of them. Of so many, the oldest
 * is used again. */
#define SIMULATED_FIRST (1 << 20)
#define SIMULATED_MAX   65536
static bool simulated_rung[SIMULATED_MAX];

/* A process may have descriptors with such numbers too: only a simulation has none. */
static bool *simulated(int fd)
{
    return seam_get() && fd >= SIMULATED_FIRST ? &simulated_rung[fd - SIMULATED_FIRST] : NULL;
}

static int simulated_open(void)
{
    static unsigned next;
    int at = (int)(next++ % SIMULATED_MAX);
    simulated_rung[at] = false;
    return SIMULATED_FIRST + at;
}

int bell_open(void)
{
    if (seam_get())
        return simulated_open();
    return forkguard_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void bell_ring(int fd)
{
    uint64_t one = 1;
    bool *rung = simulated(fd);
    if (rung) {
        *rung = true;
        seam_wake(seam_get(), bell_on(fd));
    } else {
        (void)!write(fd, &one, sizeof one);
    }
}

bool bell_drain(int fd)
{
    uint64_t times;
    bool *rung = simulated(fd), was = rung && *rung;
    if (!rung)
        return read(fd, &times, sizeof times) > 0;
    *rung = false;
    return was;
}
