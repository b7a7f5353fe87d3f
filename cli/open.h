/* SPDX-License-Identifier: MIT
 * open.h - a client from the options. */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "options.h"

#include <holdfast.h>

/* Open the client that the options and the environment ask for, then hide the passwords.
 * program (NULL: ours) is what others see as the holder's command. Returns 0, or an exit status
 * after a message. */
int client_open(const struct opts *o, const char *program, hf_client **ret);

/* At a terminal: say that no server was named, if so, and that a lock is this machine's only. */
void client_tell_default(const struct opts *o);

#endif
