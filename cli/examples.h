/* SPDX-License-Identifier: MIT
 * examples.h - lines to try, one list for each command. */
#ifndef CLI_EXAMPLES_H
#define CLI_EXAMPLES_H

/* At most 78 columns each, ended by NULL. NULL: there are none. */
const char *const *examples_of(const char *command);

#endif
