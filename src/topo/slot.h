/* SPDX-License-Identifier: MIT
 * slot.h - which of a cluster's 16384 slots a key lies in.
 */
#ifndef TOPO_SLOT_H
#define TOPO_SLOT_H

#include <stddef.h>

#define SLOT_COUNT 16384

/* The tag that decides the slot: what stands between the first { and the next }, if there is
 * anything. 1 and where it begins and ends, or 0: the whole key decides. */
int slot_tag(const void *key, size_t len, size_t *ret_begin, size_t *ret_end);

unsigned slot_of(const void *key, size_t len);

/* A short text without braces that lies in the slot: always the same one. */
#define SLOT_TEXT_SIZE 8
void slot_text(unsigned slot, char ret[SLOT_TEXT_SIZE]);
/* The same for all of them, in a small part of the time: ret[SLOT_COUNT]. */
void slot_texts(char (*ret)[SLOT_TEXT_SIZE]);

#endif
