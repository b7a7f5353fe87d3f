/* SPDX-License-Identifier: MIT
 * log.h - the library never prints; it tells whoever asked.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "holdfast.h"

struct log {
    void (*fn)(void *arg, hf_log level, const char *message); /* NULL: nobody listens */
    void *arg;
};

void log_to(const struct log *l, hf_log level, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
