/* SPDX-License-Identifier: MIT
 * pairs.h - lock and unlock by threads, each with a name of its own, in several ways.
 */
#ifndef BENCH_PAIRS_H
#define BENCH_PAIRS_H

#include <holdfast.h>

#include "harness/server.h"
#include "lib/meter.h"
#include "lib/replay.h"

/* What all threads share. */
struct pairs {
    struct server       *s;
    hf_client           *client; /* for pairs_holdfast */
    const struct replay *replay; /* for pairs_replay */
    int                  threads, run_ms;
};

/* One way to do a pair; each thread has one worker. */
struct pairs_kind {
    const char *sent; /* meter.h */
    void     *(*open)(const struct pairs *p, int index);
    void      (*pair)(void *worker);
    void      (*close)(void *worker);
};
extern const struct pairs_kind pairs_holdfast; /* all threads on one client */
extern const struct pairs_kind pairs_hiredis;  /* SET NX PX, EVALSHA compare-and-delete; one
                                                  connection for each thread */
extern const struct pairs_kind pairs_replay;   /* our commands from a bare socket for each */
extern const struct pairs_kind pairs_pings;    /* two raw PINGs */

struct cost pairs_measure(const struct pairs *p, const struct pairs_kind *k);

/* The same as a measure_fn of contest.h; arg is a struct pairs. */
struct cost pairs_by_holdfast(void *arg);
struct cost pairs_by_hiredis(void *arg);
struct cost pairs_by_replay(void *arg);
struct cost pairs_by_pings(void *arg);

#endif
