/* SPDX-License-Identifier: MIT
 * bell.c - a descriptor by which one thread wakes another that sleeps in poll(2): an eventfd.
 */
#include "base/bell.h"

#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/forkguard.h"

int bell_open(void)
{
    return forkguard_keep(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
}

void bell_ring(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one);
}

bool bell_drain(int fd)
{
    uint64_t rung;
    return read(fd, &rung, sizeof rung) > 0;
}
