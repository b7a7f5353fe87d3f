/* SPDX-License-Identifier: MIT
 * keep.c - what lasts until the test ends; see keep.h.
 */
#include "harness/keep.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/t.h"

static struct kept {
    struct kept *next;
    void *p;
} *all;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

void *keep_block(void *p)
{
    struct kept *k = malloc(sizeof *k);
    CHECK(p && k);
    pthread_mutex_lock(&mu);
    *k = (struct kept){ all, p };
    all = k;
    pthread_mutex_unlock(&mu);
    return p;
}

char *keep_text(const char *fmt, ...)
{
    char *s = NULL;
    va_list ap;
    va_start(ap, fmt);
    CHECK(vasprintf(&s, fmt, ap) >= 0);
    va_end(ap);
    return keep_block(s);
}
