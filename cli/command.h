/* SPDX-License-Identifier: MIT
 * command.h - CMD: where it begins on the command line, and what it is told. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "take.h"

/* CMD begins behind NAME, or behind "--", or is the line of -c. NULL after a message. */
char **command_find(const struct cmd *cmd, const struct opts *o, int argc, char **argv);

/* Its name, for others who look. */
const char *command_program(char **command);

/* Put into our own environment, from which the passwords are gone by now, what CMD may know. 0, or
 * an exit status after a message. */
int command_environment(const struct taken *t, const char *list, const struct opts *o);

#endif
