/* SPDX-License-Identifier: MIT
 * stats.c - samples, and what they say; see stats.h.
 */
#include "lib/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"

void samples_add(struct samples *s, double value)
{
    if (s->n == s->room) {
        s->room = s->room ? s->room * 2 : 1024;
        s->v = realloc(s->v, s->room * sizeof *s->v);
        CHECK(s->v);
    }
    s->v[s->n++] = value;
}

void samples_append(struct samples *to, const struct samples *from)
{
    for (size_t i = 0; i < from->n; i++)
        samples_add(to, from->v[i]);
}

void samples_free(struct samples *s)
{
    free(s->v);
    *s = (struct samples){ 0 };
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double samples_at(struct samples *s, double percent)
{
    if (s->n == 0)
        return NAN;
    qsort(s->v, s->n, sizeof *s->v, by_value);
    size_t i = (size_t)((double)s->n * percent / 100);
    return s->v[i < s->n ? i : s->n - 1];
}

double median(const double *v, size_t n)
{
    struct samples s = { 0 };
    for (size_t i = 0; i < n; i++)
        if (!isnan(v[i]))
            samples_add(&s, v[i]);
    double m = samples_at(&s, 50);
    samples_free(&s);
    return m;
}
