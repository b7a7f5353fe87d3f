/* SPDX-License-Identifier: MIT
 * hand.h - one lock that goes from process to process, ours or the "bound": a list with one token,
 * BLPOP to take it and LPUSH to give it back, from bare sockets. It has no lease, no fencing and
 * no safety: nothing that is safe can be faster.
 */
#ifndef BENCH_HAND_H
#define BENCH_HAND_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>

#include "harness/server.h"
#include "lib/meter.h"

enum { HAND_WORKERS_MAX = 256, HAND_SAMPLES_MAX = 100000 };

/* One way to have it; one in each process. */
struct hand_kind {
    const char *sent; /* meter.h */
    void (*open)(const struct server *s);
    void (*take)(void);
    void (*give)(void);
    void (*close)(void);
};
extern const struct hand_kind hand_holdfast, hand_bound;

/* What all processes see. */
struct board {
    const struct hand_kind *kind;
    struct server          *s;
    int                     workers, run_ms;
    int64_t                 hold_ns, away_ns, settle_ms;
    sem_t                   ready, go;
    atomic_int              counting, stop, holders;
    _Atomic int64_t         released_ns; /* the last holder began to give it back; 0: not known */
    _Atomic int64_t         taken_ns;
    atomic_llong            client_us, switches, turns; /* of workers that have ended */
    pthread_barrier_t       all;
    int                     samples; /* this and below: whoever holds the lock */
    double                  us[HAND_SAMPLES_MAX]; /* from the release to the next owner */
    int                     taken[HAND_WORKERS_MAX];
};
struct board *board_new(struct server *s, int workers);
void board_reset(struct board *b, const struct hand_kind *k);

void board_await(sem_t *sem, int n);
void board_allow(sem_t *sem, int n);

/* In a worker: open and say so; take it; give it back; end. */
void board_open(struct board *b);
void board_take(struct board *b, int index);
void board_give(struct board *b);
void board_close(struct board *b);

void hand_sleep_ns(int64_t ns);

/* Each holds it for 0 to hold_ns, gives it back, and stays away for away_ns. */
struct cost hand_round(struct board *b, const struct hand_kind *k);
/* All wait for it; from its release until the last one has it: p50 of the drains in us. */
struct cost hand_drain(struct board *b, const struct hand_kind *k);

#endif
