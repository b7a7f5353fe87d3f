/* SPDX-License-Identifier: MIT
 * election.h - what the files of the election share; nobody else includes it.
 */
#ifndef LOCK_ELECTION_H
#define LOCK_ELECTION_H

#include "session/client.h"

struct election_keys {
    struct lock_keys *lock;
    hf_bytes          value, listeners; /* companions, to be freed */
};

hf_err election_keys_make(const hf_client *c, hf_bytes name, struct election_keys *ret,
                          hf_error *reterr);
void election_keys_clear(struct election_keys *k);
/* "name" for messages. */
const char *election_shown(const struct election_keys *k, char *buf, size_t size);

#endif
