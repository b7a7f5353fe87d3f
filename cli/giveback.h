/* SPDX-License-Identifier: MIT
 * giveback.h - giving the locks back when we cannot any more: we prepare it, the guardian does. */
#ifndef CLI_GIVEBACK_H
#define CLI_GIVEBACK_H

#include "take.h"

struct giveback;

/* Prepare it. NULL: nothing is to be given back, or memory is short, and the grace has to do. */
struct giveback *giveback_new(const struct taken *t, const struct opts *o);
struct giveback *giveback_free(struct giveback *g);

/* Run holdfast(1) for each lock, and again where the server did not answer, until all are released
 * or ten seconds are over. Async-signal-safe calls only. */
void giveback_run(const struct giveback *g);

#endif
