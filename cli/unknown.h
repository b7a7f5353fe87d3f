/* SPDX-License-Identifier: MIT
 * unknown.h - a word that is no command or no option of the command, and what was meant by it. */
#ifndef CLI_UNKNOWN_H
#define CLI_UNKNOWN_H

#include "options.h"

/* All return the exit status after a message. */
int unknown_command(const char *word);

/* Of word only the first len bytes are shown. cmd NULL: in front of the command. */
int unknown_option(const struct cmd *cmd, const char *word, int len);
int unknown_letter(const struct cmd *cmd, char letter);

#endif
