/* SPDX-License-Identifier: MIT
 * log.c - the library never prints; it tells whoever asked.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_to(const struct log *l, hf_log level, const char *fmt, ...)
{
    if (!l->fn)
        return;
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    l->fn(l->arg, level, message);
}
