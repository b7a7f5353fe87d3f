/* SPDX-License-Identifier: MIT
 * hand_round.c - handing it round, and to all who wait; see hand.h.
 */
#include <math.h>

#include "harness/proc.h"
#include "harness/t.h"
#include "lib/hand.h"

enum { WARM_MS = 500, DRAINS = 3 };

/* ---- round and round ---- */

static void go_round(int index, void *arg)
{
    struct board *b = arg;
    board_open(b);
    board_await(&b->go, 1);
    while (!atomic_load(&b->stop)) {
        board_take(b, index);
        hand_sleep_ns((int64_t)t_random((uint64_t)b->hold_ns + 1));
        board_give(b);
        hand_sleep_ns(b->away_ns);
    }
    board_close(b);
}

/* The most turns of one worker to the fewest. */
static double fairness(const struct board *b)
{
    int least = b->taken[0], most = b->taken[0];
    for (int i = 1; i < b->workers; i++) {
        least = b->taken[i] < least ? b->taken[i] : least;
        most = b->taken[i] > most ? b->taken[i] : most;
    }
    return (double)most / (least > 0 ? least : 0.5);
}

struct cost hand_round(struct board *b, const struct hand_kind *k)
{
    struct samples us = { 0 };
    struct meter meter;
    int total = 0;
    board_reset(b, k);
    struct workers *w = workers_start(b->workers, go_round, b);
    board_await(&b->ready, b->workers);
    board_allow(&b->go, b->workers);
    t_sleep_ms(WARM_MS);
    meter_begin(&meter, b->s, k->sent);
    atomic_store(&b->counting, 1);
    t_sleep_ms(b->run_ms);
    atomic_store(&b->counting, 0);
    for (int i = 0; i < b->workers; i++)
        total += b->taken[i];
    struct cost c = meter_end(&meter, total, NULL);
    atomic_store(&b->stop, 1);
    workers_join(w, 60000);
    for (int i = 0; i < b->samples; i++)
        samples_add(&us, b->us[i]);
    c.is[COST_P50] = samples_at(&us, 50);
    c.is[COST_P99] = samples_at(&us, 99);
    c.is[COST_MAX] = samples_at(&us, 100);
    c.is[COST_FAIRNESS] = fairness(b);
    /* of the workers' whole lives, and their openings with them: they are few */
    double turns = (double)atomic_load(&b->turns);
    c.is[COST_CLIENT] = (double)atomic_load(&b->client_us) / turns;
    c.is[COST_SWITCHES] = (double)atomic_load(&b->switches) / turns;
    samples_free(&us);
    return c;
}

/* ---- to all who wait, one after the other ---- */

static void meet(struct board *b)
{
    int e = pthread_barrier_wait(&b->all);
    CHECK(e == 0 || e == PTHREAD_BARRIER_SERIAL_THREAD);
}

/* Number 0 is the holder. */
static void wait_and_pass(int index, void *arg)
{
    struct board *b = arg;
    board_open(b);
    for (int turn = 0; turn < DRAINS; turn++) {
        if (index == 0)
            board_take(b, 0);
        meet(b); /* it is held */
        if (index == 0)
            board_await(&b->go, 1);
        else
            board_take(b, index);
        hand_sleep_ns(index == 0 ? 0 : b->hold_ns);
        board_give(b);
        meet(b); /* all had it */
    }
    board_close(b);
}

struct cost hand_drain(struct board *b, const struct hand_kind *k)
{
    struct cost c = cost_none();
    struct samples us = { 0 };
    double sent = 0;
    board_reset(b, k);
    struct workers *w = workers_start(b->workers + 1, wait_and_pass, b);
    board_await(&b->ready, b->workers + 1);
    for (int turn = 0; turn < DRAINS; turn++) {
        meet(b);
        t_sleep_ms(b->settle_ms);
        double before = meter_commands(b->s, k->sent);
        int64_t start = t_now_ns();
        board_allow(&b->go, 1);
        meet(b);
        samples_add(&us, (double)(atomic_load(&b->taken_ns) - start) / 1000);
        sent += meter_commands(b->s, k->sent) - before;
    }
    workers_join(w, 60000);
    c.is[COST_P50] = samples_at(&us, 50);
    c.is[COST_MAX] = samples_at(&us, 100);
    c.is[COST_COMMANDS] = sent / DRAINS / b->workers;
    samples_free(&us);
    return c;
}
