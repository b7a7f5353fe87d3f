/* SPDX-License-Identifier: MIT
 * lock_names.h - the names of the locks that a server knows, quickly or not at all. */
#ifndef CLI_LOCK_NAMES_H
#define CLI_LOCK_NAMES_H

#include "options.h"

/* Print the names that begin with `begins`, one on a line, with `front` before each and a tab and a
 * few words behind it: as the command in bit can use them. Starts no server, says nothing when
 * something goes wrong, and ends the process with 0 if it takes longer than a moment. */
void lock_names_print(const struct opts *o, unsigned bit, const char *front, const char *begins);

#endif
