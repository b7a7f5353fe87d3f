/* SPDX-License-Identifier: MIT
 * contest.c - by turns with a yardstick, and the reports; see contest.h.
 */
#include "lib/contest.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/t.h"

/* ---- lines of JSON ---- */

struct line {
    char   text[2000];
    size_t len;
};

__attribute__((format(printf, 2, 3))) static void put(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->len, sizeof l->text - l->len, fmt, ap);
    va_end(ap);
    CHECK(n >= 0 && l->len + (size_t)n < sizeof l->text);
    l->len += (size_t)n;
}

/* Our own words: none needs to be escaped. */
static void put_text(struct line *l, const char *name, const char *value)
{
    CHECK(!value || !strpbrk(value, "\"\\"));
    if (value)
        put(l, ",\"%s\":\"%s\"", name, value);
}

static void put_number(struct line *l, const char *name, double value)
{
    if (!isnan(value))
        put(l, ",\"%s\":%.6g", name, value);
}

static void write_line(struct line *l)
{
    const char *path = getenv("BENCH_OUT");
    put(l, "}\n");
    if (!path || !*path)
        return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, l->text, l->len) != (ssize_t)l->len)
        FAIL("cannot write to %s", path);
    close(fd);
}

/* ---- reports ---- */

static void aim(const char *work, const char *measure, const char *yardstick, double ours,
                double theirs, double low, double middle, double high, const char *op,
                double limit)
{
    struct line l = { 0 };
    int met = !isnan(limit) && (*op == '<' ? middle <= limit : middle >= limit);
    put(&l, "{\"kind\":\"aim\"");
    put_text(&l, "work", work);
    put_text(&l, "measure", measure);
    put_text(&l, "yardstick", yardstick);
    put_number(&l, "ours", ours);
    put_number(&l, "theirs", theirs);
    if (yardstick)
        put_number(&l, "ratio", middle);
    put_number(&l, "low", low);
    put_number(&l, "high", high);
    put_number(&l, "limit", limit);
    if (!isnan(limit)) {
        put_text(&l, "op", op);
        put(&l, ",\"met\":%s", met ? "true" : "false");
    }
    write_line(&l);
    printf("# %-36s %-10s %10.1f", work, measure, ours);
    if (yardstick)
        printf("   %s %.1f   ratio %.2f [%.2f-%.2f]", yardstick, theirs, middle, low, high);
    if (!isnan(limit))
        printf("   (aim %s %g: %s)", op, limit, met ? "met" : "missed");
    printf("\n");
}

void report_aim(const char *work, const char *measure, double ours, const char *yardstick,
                double theirs, const char *op, double limit)
{
    double is = yardstick ? ours / theirs : ours;
    aim(work, measure, yardstick, ours, theirs, is, is, is, op, limit);
}

void report_cost(const char *work, const char *who, const struct cost *c)
{
    struct line l = { 0 };
    put(&l, "{\"kind\":\"cost\"");
    put_text(&l, "work", work);
    put_text(&l, "who", who);
    printf("#   %-10s", who);
    for (int i = 0; i < COST_FIELDS; i++) {
        put_number(&l, cost_names[i], c->is[i]);
        if (!isnan(c->is[i]))
            printf("  %s %.*f", cost_names[i], c->is[i] < 20 ? 2 : 0, c->is[i]);
    }
    printf("\n");
    write_line(&l);
}

void report_growth(const char *what, double size, const char *measure, double value)
{
    struct line l = { 0 };
    put(&l, "{\"kind\":\"growth\"");
    put_text(&l, "what", what);
    put_number(&l, "size", size);
    put_text(&l, "measure", measure);
    put_number(&l, "value", value);
    write_line(&l);
    printf("# %-10s %7.0f   %-36s %10.2f\n", what, size, measure, value);
}

/* ---- by turns ---- */

void contest_run(struct contest *c, int rounds, measure_fn ours, measure_fn theirs, void *arg)
{
    CHECK(rounds > 0 && rounds <= ROUNDS_MAX);
    for (c->rounds = 0; c->rounds < rounds; c->rounds++)
        for (int i = 0; i < 2; i++) {
            if ((c->rounds + i) % 2)
                c->ours[c->rounds] = ours(arg);
            else
                c->theirs[c->rounds] = theirs ? theirs(arg) : cost_none();
        }
}

static double middle_of(const struct cost *c, int n, enum cost_field f)
{
    double v[ROUNDS_MAX];
    for (int i = 0; i < n; i++)
        v[i] = c[i].is[f];
    return median(v, (size_t)n);
}

static void lowest_and_highest(const double *v, int n, double *low, double *high)
{
    *low = INFINITY;
    *high = -INFINITY;
    for (int i = 0; i < n; i++) {
        *low = fmin(*low, v[i]);
        *high = fmax(*high, v[i]);
    }
}

void contest_ratio(const struct contest *c, enum cost_field f, const char *op, double limit)
{
    double r[ROUNDS_MAX], low, high;
    for (int i = 0; i < c->rounds; i++)
        r[i] = c->ours[i].is[f] / c->theirs[i].is[f];
    lowest_and_highest(r, c->rounds, &low, &high);
    aim(c->work, cost_names[f], c->yardstick, middle_of(c->ours, c->rounds, f),
        middle_of(c->theirs, c->rounds, f), low, median(r, (size_t)c->rounds), high, op, limit);
}

void contest_value(const struct contest *c, enum cost_field f, const char *op, double limit)
{
    double v[ROUNDS_MAX], low, high;
    for (int i = 0; i < c->rounds; i++)
        v[i] = c->ours[i].is[f];
    lowest_and_highest(v, c->rounds, &low, &high);
    double middle = median(v, (size_t)c->rounds);
    aim(c->work, cost_names[f], NULL, middle, NAN, low, middle, high, op, limit);
}

static struct cost summary(const struct cost *c, int n)
{
    struct cost ret;
    for (int f = 0; f < COST_FIELDS; f++)
        ret.is[f] = middle_of(c, n, (enum cost_field)f);
    for (int i = 0; i < n; i++)
        ret.is[COST_MAX] = fmax(ret.is[COST_MAX], c[i].is[COST_MAX]);
    return ret;
}

void contest_costs(const struct contest *c)
{
    struct cost ours = summary(c->ours, c->rounds), theirs = summary(c->theirs, c->rounds);
    report_cost(c->work, "holdfast", &ours);
    if (c->yardstick)
        report_cost(c->work, c->yardstick, &theirs);
}
