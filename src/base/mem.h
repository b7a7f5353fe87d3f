/* SPDX-License-Identifier: MIT
 * mem.h - the one allocator hook, and cleanup by scope.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

/* As malloc, calloc, realloc and free, through hf_allocator_set(). NULL when memory is short. */
void *mem_alloc(size_t n);
void *mem_zalloc(size_t n);
void *mem_resize(void *p, size_t n);
void mem_free(void *p);

/* A NUL-terminated copy of len bytes. */
char *mem_copy(const void *data, size_t len);

/* AUTO(mem_freep) char *s = ...;  freed when s goes out of scope. */
#define AUTO(fn) __attribute__((cleanup(fn)))

static inline void mem_freep(void *pp)
{
    mem_free(*(void **)pp);
}

#endif
