/* SPDX-License-Identifier: MIT
 * failing.h - allocations of the library that fail when they are told to, and that are counted.
 *
 *     hf_allocator_set(failing_alloc, failing_resize, failing_free);
 *     failing_arm(7, 0);                        // the seventh from now on
 *     ... calls ...
 *     CHECK(failing_count() > 0);               // it was reached
 *     CHECK_INT(failing_live(), 0);             // nothing leaked
 */
#ifndef HARNESS_FAILING_H
#define HARNESS_FAILING_H

#include <stdatomic.h>
#include <stdlib.h>

static struct {
    atomic_long asked, live, injected;
    atomic_long at;       /* the k-th allocation fails; 0: none */
    atomic_int  after_it; /* and all later ones */
} failing;

static inline int failing_now(void)
{
    long n = atomic_fetch_add(&failing.asked, 1) + 1, k = atomic_load(&failing.at);
    if (!k || (n != k && !(atomic_load(&failing.after_it) && n > k)))
        return 0;
    atomic_fetch_add(&failing.injected, 1);
    return 1;
}

static inline void *failing_alloc(size_t n)
{
    void *p = failing_now() ? NULL : malloc(n);
    atomic_fetch_add(&failing.live, p != NULL);
    return p;
}

static inline void *failing_resize(void *old, size_t n)
{
    void *p = failing_now() ? NULL : realloc(old, n);
    atomic_fetch_add(&failing.live, p && !old);
    return p;
}

static inline void failing_free(void *p)
{
    atomic_fetch_sub(&failing.live, p != NULL);
    free(p);
}

/* The k-th from now on fails, and those after it if after is set; 0: none. */
static inline void failing_arm(long k, int after)
{
    atomic_store(&failing.at, 0);
    atomic_store(&failing.asked, 0);
    atomic_store(&failing.injected, 0);
    atomic_store(&failing.after_it, after);
    atomic_store(&failing.at, k);
}

static inline void failing_stop(void)
{
    atomic_store(&failing.at, 0);
}

/* How many have failed since it was armed. */
static inline long failing_count(void)
{
    return atomic_load(&failing.injected);
}

/* How many blocks there are. */
static inline long failing_live(void)
{
    return atomic_load(&failing.live);
}

#endif
