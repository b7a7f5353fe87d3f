/* SPDX-License-Identifier: MIT
 * seam.h - where time and chance come from: the system, or a simulation that stands in for it.
 *
 * A test that sets one runs the library in virtual time, the same way each time: in one thread, on
 * streams of its own (stream_set_opener()).
 */
#ifndef BASE_SEAM_H
#define BASE_SEAM_H

#include <stddef.h>
#include <stdint.h>

struct seam {
    int64_t (*now_ms)(void);
    /* Let time pass until then, or until something happens before that: never none at all. */
    void (*sleep_until)(int64_t at_ms);
    int (*random)(void *buf, size_t n); /* 0, or -1 with errno */
};

/* For tests. Before anything else of the library is used; NULL: the system again. It must stay. */
void seam_set(const struct seam *s);

/* NULL: the system's. */
extern const struct seam *seam_present; /* for the next one only */
static inline const struct seam *seam_get(void)
{
    return __builtin_expect(!seam_present, 1) ? NULL : seam_present;
}

#endif
