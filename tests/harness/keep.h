/* SPDX-License-Identifier: MIT
 * keep.h - what lasts until the test ends: nobody frees it, and it is no leak.
 */
#ifndef HARNESS_KEEP_H
#define HARNESS_KEEP_H

/* Stays reachable from now on; p, which must not be NULL. Any thread. */
void *keep_block(void *p);
/* The same for a text. */
__attribute__((format(printf, 1, 2))) char *keep_text(const char *fmt, ...);

#endif
