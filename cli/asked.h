/* SPDX-License-Identifier: MIT
 * asked.h - run --on-ask: what happens when somebody asks for the lock. */
#ifndef CLI_ASKED_H
#define CLI_ASKED_H

#include "take.h"

enum asked_what { ASKED_NOTHING, ASKED_SIGNAL, ASKED_RELEASE };

struct asked {
    unsigned heard; /* of all locks, so far */
};

/* Has anybody asked since the last look? A line is printed then. *ret_signal: what CMD gets. */
enum asked_what asked_check(struct asked *a, const struct taken *t, const struct opts *o,
                            int *ret_signal);

/* --on-ask SIG|release: the signal's number, ASK_RELEASE, or -1: neither. */
#define ASK_RELEASE 1000
int asked_parse(const char *text);

#endif
