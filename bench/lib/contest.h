/* SPDX-License-Identifier: MIT
 * contest.h - one work, done by us and by a yardstick, by turns in one run; and what is reported.
 *
 * Each report is a line "# ..." of the output; with $BENCH_OUT also a line of JSON at the end of
 * that file, from which bench/table.sh makes the table. Nothing here fails because it is slow.
 */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "lib/meter.h"

enum { ROUNDS_MAX = 9 };

struct contest {
    const char *work;
    const char *yardstick; /* what it is; NULL: there is none, aims are absolute */
    int         rounds;
    struct cost ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
};

typedef struct cost (*measure_fn)(void *arg);

/* So many rounds; in each both are measured, and each goes first by turns: noise comes in bursts.
 * theirs is NULL if there is no yardstick. */
void contest_run(struct contest *c, int rounds, measure_fn ours, measure_fn theirs, void *arg);

/* How the aim is put: "<=" or ">=". A limit that is NAN is none: shown only. */
/* The median of the ratios of the rounds, ours to theirs. */
void contest_ratio(const struct contest *c, enum cost_field f, const char *op, double limit);
/* Our median alone. */
void contest_value(const struct contest *c, enum cost_field f, const char *op, double limit);
/* All fields of both sides: their medians, but the largest of COST_MAX. */
void contest_costs(const struct contest *c);

/* ---- what does not fit a contest ---- */
/* One figure with its aim; theirs is NAN, or what it is divided by. */
void report_aim(const char *work, const char *measure, double ours, const char *yardstick,
                double theirs, const char *op, double limit);
void report_cost(const char *work, const char *who, const struct cost *c);
/* What one unit costs at this size, which should be the same at all. */
void report_growth(const char *what, double size, const char *measure, double value);

#endif
