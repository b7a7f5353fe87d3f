/* SPDX-License-Identifier: MIT
 * mem.c - the one allocator hook.
 */
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

#include "holdfast.h"

static void *(*do_alloc)(size_t) = malloc;
static void *(*do_resize)(void *, size_t) = realloc;
static void (*do_free)(void *) = free;

void hf_allocator_set(void *(*alloc)(size_t), void *(*resize)(void *, size_t),
                      void (*release)(void *))
{
    do_alloc = alloc;
    do_resize = resize;
    do_free = release;
}

void *mem_alloc(size_t n)
{
    return do_alloc(n ? n : 1);
}

void *mem_zalloc(size_t n)
{
    void *p = mem_alloc(n);
    if (p)
        memset(p, 0, n);
    return p;
}

void *mem_resize(void *p, size_t n)
{
    return do_resize(p, n ? n : 1);
}

void mem_free(void *p)
{
    if (p)
        do_free(p);
}

char *mem_copy(const void *data, size_t len)
{
    char *p = mem_alloc(len + 1);
    if (p) {
        if (len)
            memcpy(p, data, len);
        p[len] = '\0';
    }
    return p;
}
