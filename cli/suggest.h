/* SPDX-License-Identifier: MIT
 * suggest.h - what was probably meant by a word that we do not know. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

#include <stddef.h>

/* How many letters have to be added, removed, replaced or swapped with the next; at most 63 letters
 * of each word count. */
size_t suggest_distance(const char *a, const char *b);

/* Near enough to be a typing mistake. */
int suggest_near(const char *typed, const char *word);

#endif
