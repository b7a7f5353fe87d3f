/* SPDX-License-Identifier: MIT
 * seam.h - where time, chance and threads come from: the system, or a simulation that stands in for
 * it.
 *
 * A test that sets one runs the library in virtual time, the same way each time, on streams of its
 * own (stream_set_opener()). One thread runs at a time: another one may when it sleeps.
 */
#ifndef BASE_SEAM_H
#define BASE_SEAM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct seam {
    int64_t (*now_ms)(void);
    /* Let time pass until then, or until wake(on): never none at all. on may be NULL. */
    void (*sleep_until)(int64_t at_ms, const void *on);
    int (*random)(void *buf, size_t n); /* 0, or -1 with errno */

    /* NULL, all three: there is one thread, and whoever wakes it does so in sleep_until(). */
    void (*wake)(const void *on);
    int (*start)(pthread_t *ret, void *(*main_fn)(void *), void *arg); /* 0, or an errno */
    void (*join)(pthread_t thread);
    uint64_t (*self)(void); /* which thread runs; NULL: the system knows */
};

/* For tests. Before anything else of the library is used; NULL: the system again. It must stay. */
void seam_set(const struct seam *s);

/* NULL: the system's. */
extern const struct seam *seam_present; /* for the next one only */
static inline const struct seam *seam_get(void)
{
    return __builtin_expect(!seam_present, 1) ? NULL : seam_present;
}

static inline void seam_wake(const struct seam *s, const void *on)
{
    if (s->wake)
        s->wake(on);
}

#endif
