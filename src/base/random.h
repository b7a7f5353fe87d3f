/* SPDX-License-Identifier: MIT
 * random.h - identities from the kernel, jitter from a cheap generator.
 */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* 32 lower-case hex digits (128 bits of getrandom(2)) and a NUL; 0, or -1 with errno set. */
int random_id(char ret[33]);
/* The same for 16 digits that nobody can guess: made in bulk, for what is asked for often. */
int random_nonce(char ret[17]);

/* Uniform in [low, high]; for spreading retries, never for secrets. Any thread. */
int64_t random_between(int64_t low, int64_t high);

#endif
