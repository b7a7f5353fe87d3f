/* SPDX-License-Identifier: MIT
 * sentinel_words.h - what one Sentinel answers: an address, how many replicas.
 */
#ifndef TOPO_SENTINEL_WORDS_H
#define TOPO_SENTINEL_WORDS_H

#include <stdbool.h>

#include "net/resp.h"

/* {host, port}; false: it makes no sense. rp may be NULL. *ret_host is rp's, with a NUL behind. */
bool sentinel_address(const struct reply *rp, hf_bytes *ret_host, int *ret_port);

/* SENTINEL MASTER answers names and values in turn. -1: no number of replicas is there. */
int sentinel_replicas(const struct reply *rp);

#endif
