/* SPDX-License-Identifier: MIT
 * supervise.h - CMD runs, the lock is held: the event loop of `run`. */
#ifndef CLI_SUPERVISE_H
#define CLI_SUPERVISE_H

#include "capture.h"
#include "child.h"
#include "options.h"
#include "take.h"

/* Start argv with the environment env in *c and wait until it has ended, or end it. Returns the
 * exit status of `run`. */
int supervise(struct child *c, struct taken *t, const struct opts *o, const struct signals *s,
              char **argv, char **env);

/* The same, and all that it writes to stdout goes through cap, which is open. */
int supervise_captured(struct child *c, struct taken *t, const struct opts *o,
                       const struct signals *s, char **argv, char **env, struct capture *cap);

#endif
