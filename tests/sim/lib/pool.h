/* SPDX-License-Identifier: MIT
 * pool.h - memory for one thread: what was freed is used again for the same size, at once. Half a
 * million small pieces are taken and given back in each second of a search.
 *
 * With the address sanitizer it is malloc(3), so that this sees all of them.
 */
#ifndef SIM_POOL_H
#define SIM_POOL_H

#include <stddef.h>

void *pool_get(size_t n);
void *pool_zero(size_t n); /* filled with zeros */
void *pool_resize(void *p, size_t n);
void pool_free(void *p);

#endif
