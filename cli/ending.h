/* SPDX-License-Identifier: MIT
 * ending.h - the process ends in time, whatever blocks it.
 *
 * A call of the library may wait for a server as long as its time limit says. A thread of ours
 * watches the clock and the signals meanwhile, and ends the process if need be. That costs nothing
 * but a clean good-bye: the server sees our connection close, and a lock that was not released
 * passes on as that of any process that died. */
#ifndef CLI_ENDING_H
#define CLI_ENDING_H

#include "signals.h"

#include <stdint.h>

/* What is still to be written before the process ends, such as the line of --sh. Once, by
 * main(). */
void ending_last(void (*fn)(int code));

/* These are blocked, and may be read here. */
void ending_use(const struct signals *s);

/* Nothing is held, nothing was begun: a signal ends the process at once, with 128+N, until
 * ending_off(). Nothing happens if signals are not blocked: then they do so anyway. */
void ending_on_signal(void);

/* A wait must be over at at_ms: then the process ends with code, and words are said. Until
 * ending_off(). */
void ending_at(int64_t at_ms, int code, const char *words);
void ending_off(void);

/* The way out has begun: the process ends in ms at the latest, with code, and at once when a signal
 * comes. If it has to be cut short, words (NULL: none) are said. ending_said(): they are not needed
 * any more, and code is known better. Called again, the earlier time counts. Any thread. */
void ending_in(int64_t ms, int code, const char *words);
void ending_said(int code);

/* At once. */
_Noreturn void ending_now(int code);

/* Nothing is left that could take long: the thread ends, and reads no signal any more. */
void ending_stop(void);

#endif
