/* SPDX-License-Identifier: MIT
 * help.h - the text of --help, in 80 columns. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "options.h"

void help_all(void);
void help_command(const struct cmd *cmd);

#endif
