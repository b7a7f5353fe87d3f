/* SPDX-License-Identifier: MIT
 * late.h - a library that one command needs, loaded when that runs: all others start without it. */
#ifndef CLI_LATE_H
#define CLI_LATE_H

#include <stddef.h>

struct late {
    const char *name;
    void     (**place)(void);
};

/* Load it, and find its functions. It stays loaded. 0, or an exit status after a message: that cmd
 * needs the library, and by which Debian package it comes. */
int late_load(const char *cmd, const char *library, const char *package, const struct late *fn,
              size_t n);

#endif
