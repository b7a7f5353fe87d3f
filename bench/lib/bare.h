/* SPDX-License-Identifier: MIT
 * bare.h - a bare socket to a server: what the machine costs without any library.
 */
#ifndef BENCH_BARE_H
#define BENCH_BARE_H

#include <stddef.h>

#include "harness/server.h"

int bare_dial(const struct server *s); /* its TCP port, TCP_NODELAY */
void bare_send(int fd, const char *data, size_t len);
/* Send, and read until as many bytes have come as want has, which they must be. */
void bare_exchange(int fd, const char *ask, const char *want);

#endif
