/* SPDX-License-Identifier: MIT
 * quorum_words.h - why servers of a quorum count for nothing, in few words.
 */
#ifndef TOPO_QUORUM_WORDS_H
#define TOPO_QUORUM_WORDS_H

#include <stddef.h>

/* One reason of one server; why NULL: it has none. */
struct quorum_reason {
    const char *shown; /* host:port */
    const char *why;
};

/* "; a:1, b:1: Connection refused; c:1: ...": servers with the same reason together, and what does
 * not fit is counted, never cut in the middle of a word. Returns buf. */
const char *quorum_words(const struct quorum_reason *r, size_t n, char *buf, size_t size);

#endif
