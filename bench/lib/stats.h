/* SPDX-License-Identifier: MIT
 * stats.h - samples, and what they say: percentiles, the largest, medians of rounds.
 */
#ifndef BENCH_STATS_H
#define BENCH_STATS_H

#include <stddef.h>

struct samples {
    double *v;
    size_t  n, room;
};

void samples_add(struct samples *s, double value);
void samples_append(struct samples *to, const struct samples *from);
void samples_free(struct samples *s);

/* percent 100 is the largest; NAN if there are none. Sorts them. */
double samples_at(struct samples *s, double percent);

/* Of n values, those that are NAN left out; NAN if there are none. Keeps their order. */
double median(const double *v, size_t n);

#endif
