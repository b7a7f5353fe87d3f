/* SPDX-License-Identifier: MIT
 * scrape.h - the locks of a server as metrics, in the text format of Prometheus. */
#ifndef CLI_SCRAPE_H
#define CLI_SCRAPE_H

#include <holdfast.h>
#include <stddef.h>

#define SCRAPE_LOCKS_DEFAULT 100
#define SCRAPE_LOCKS_MAX     10000

/* Look at every lock that matches pattern (NULL: all) and describe them; at most max_locks by name.
 * Returns malloc()ed text, *ret_len bytes and a NUL; NULL: no memory. That the server does not
 * answer is told in it. */
char *scrape(hf_client *c, const char *pattern, size_t max_locks, size_t *ret_len);

#endif
