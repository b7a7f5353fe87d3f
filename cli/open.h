/* SPDX-License-Identifier: MIT
 * open.h - a client from the options. */
#ifndef CLI_OPEN_H
#define CLI_OPEN_H

#include "options.h"

#include <holdfast.h>

/* Open the client that the options and the environment ask for, then hide the passwords.
 * program (NULL: ours) is what others see as the holder's command. Returns 0, or an exit status
 * after a message. A signal that is blocked ends the process meanwhile. */
int client_open(const struct opts *o, const char *program, hf_client **ret);

/* The same without a message. */
hf_err client_try(const struct opts *o, hf_client **ret, hf_error *reterr);

/* The same for a command that waits, as -n and -w say: also for a server that is away. */
int client_await(const struct opts *o, const char *program, hf_client **ret);

/* Whether e says that the server is away, and -n and -w that it is waited for. Then a moment has
 * passed. */
int client_again(const struct opts *o, hf_err e);

/* A wait for what begins: with -w D the process ends half a second after D at the latest, with 69
 * and a message that nobody answers, unless ending_off() comes first. */
void client_limit(const struct opts *o, const hf_client *c, const char *what);

/* The time for a wait is over (e, *err). Was it that nobody answered? Then that, instead of e. */
hf_err client_answers(hf_client *c, const char *name, hf_err e, hf_error *err);

/* A wait has ended with code: with -w it takes half a second more at the latest, otherwise a
 * second. */
void client_leave(const struct opts *o, int code);

/* Close it, in a second at the latest. Whatever is held is released. Always returns NULL. */
hf_client *client_close(hf_client *c);

/* At a terminal: say that no server was named, if so, and that a lock is this machine's only. */
void client_tell_default(const struct opts *o);

#endif
