/* SPDX-License-Identifier: MIT
 * parties.h - who holds a lock, in a few words. */
#ifndef CLI_PARTIES_H
#define CLI_PARTIES_H

#include <holdfast.h>

enum { PARTY_TEXT = 320 };

/* "process 812 on web3 (backup.sh)" for the holder with this number; 0: the only one. Safe to be
 * printed. Empty when it is not known. An error when the server does not answer. */
hf_err party_with_fence(hf_client *c, const char *name, uint64_t fence, char ret[PARTY_TEXT],
                        hf_error *reterr);

#endif
