/* SPDX-License-Identifier: MIT
 * secrets.h - passwords leave argv and the environment as soon as they have been read. */
#ifndef CLI_SECRETS_H
#define CLI_SECRETS_H

/* Overwrite the password in a URL that lies in argv: ps(1) shows that memory. */
void secrets_hide_arg(char *url);

/* Once the client is open: take $HOLDFAST_PASSWORD and the password inside $HOLDFAST_URL out of
 * our own environment, which is what the child of `run` inherits. */
void secrets_hide_env(void);

/* What that took out, as it stood in the environment: NAME=VALUE, the last one NULL. For our own
 * processes only. */
enum { SECRETS_MAX = 3 };
char *const *secrets_kept(void);

#endif
