/* SPDX-License-Identifier: MIT
 * party.h - a holder or waiter in words; what others wrote is made harmless. */
#ifndef CLI_PARTY_H
#define CLI_PARTY_H

#include <holdfast.h>
#include <stddef.h>

enum { PARTY_WORDS = 1200 };

/* "ann@web3, pid 812, backup.sh (nightly)", or the owner id when nothing else is known. Returns
 * buf. */
char *party_words(char *buf, size_t size, const hf_party *p);

/* "ann@web3:812" */
char *party_short(char *buf, size_t size, const hf_party *p);

/* "mutex", "semaphore 2/5", ... */
char *party_kind(char *buf, size_t size, const hf_inspect_info *info);

#endif
