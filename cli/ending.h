/* SPDX-License-Identifier: MIT
 * ending.h - the process ends in time, whatever blocks it.
 *
 * A call of the library may wait for a server as long as its time limit says. A thread of ours
 * watches the clock and the signals meanwhile, and ends the wait or, if need be, the process. That
 * costs nothing but a clean good-bye: the server sees our connection close, and a lock that was not
 * released passes on as that of any process that died. As long as nothing of that happens the
 * thread sleeps: whoever has news for it sets the timer and the signals that it looks at. */
#ifndef CLI_ENDING_H
#define CLI_ENDING_H

#include "signals.h"

#include <stdint.h>

struct waiting;

/* What is still to be written before the process ends, such as the line of --sh. Once, by
 * main(). */
void ending_last(void (*fn)(int code));

/* These are blocked, and may be read here. */
void ending_use(const struct signals *s);

/* When fd becomes readable, nobody waits for us any more: like a signal that asks for the end, as
 * long as nothing is held. -1: that is over. */
void ending_on_hangup(int fd);

/* Nothing is held, nothing was begun: a signal ends the process at once, with 128+N, until
 * ending_off(). Nothing happens if signals are not blocked: then they do so anyway. */
void ending_on_signal(void);

/* A call of the library waits for what others do. From here to ending_waited() a signal that asks
 * for the end, or a hang-up, calls cancel(arg), by which the call ends soon; the process does so
 * after 400 ms at the latest, and at once when another signal comes. */
struct ending_wait {
    void  (*cancel)(void *arg);
    void   *arg;
    void  (*slow)(struct waiting *w); /* called once, when it has taken slow_ms */
    struct waiting *waiting;
    int64_t slow_ms;   /* NEVER */
};
/* 0, or an exit status after a message. *w must live until ending_waited(), and neither of its
 * functions may block. */
int ending_wait(const struct ending_wait *w);
/* The signal that came meanwhile, 0: none, -1: a hang-up. */
int ending_waited(void);

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

/* Nothing is left that could take long: no signal is read here any more, and nothing is ended. */
void ending_stop(void);

#endif
