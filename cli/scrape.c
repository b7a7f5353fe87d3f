/* SPDX-License-Identifier: MIT
 * scrape.c - the locks of a server as metrics, in the text format of Prometheus.
 *
 * However many locks there are, the number of time series is bounded: those with the most waiters,
 * and of those the ones held longest, get a label, and the rest are added up. */
#include "scrape.h"

#include "clock.h"
#include "message.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_MS 8000 /* Prometheus gives up after 10 s, if nobody says otherwise */

/* What is told of one lock, or of several together. */
struct sums {
    size_t   holders, waiters, absent;
    int64_t  hold_ms, wait_ms; /* the oldest; -1: not known */
    int64_t  ttl_ms;           /* -1: for ever, or not known */
    uint64_t fence;
};

struct labelled {
    char       *name; /* escaped */
    struct sums is;
};

struct scrape {
    size_t           n, most;
    struct labelled *lock;
    size_t           locks, held, left_out; /* left_out: without a label, */
    struct sums      all, rest;             /* and what these add up to */
    int64_t          until_ms;
    int              cut_short; /* there was no memory, or no time, for all of them */
};

/* ---- looking ------------------------------------------------------------------------------ */

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct sums sums_of(const hf_inspect_info *i)
{
    struct sums s = { .holders = i->holders_total, .waiters = i->waiters_total, .hold_ms = -1,
                      .wait_ms = -1, .ttl_ms = i->ttl_ms };
    for (size_t k = 0; k < i->holders; k++) {
        const hf_party *p = i->holder[k];
        s.hold_ms = later(s.hold_ms, p->age_ms);
        s.absent += p->present == 0;
        s.fence = p->fence > s.fence ? p->fence : s.fence;
    }
    for (size_t k = 0; k < i->waiters; k++)
        s.wait_ms = later(s.wait_ms, i->waiter[k]->age_ms);
    return s;
}

static void add_up(struct sums *to, const struct sums *s)
{
    to->holders += s->holders;
    to->waiters += s->waiters;
    to->absent += s->absent;
    to->hold_ms = later(to->hold_ms, s->hold_ms);
    to->wait_ms = later(to->wait_ms, s->wait_ms);
    to->fence = s->fence > to->fence ? s->fence : to->fence;
}

/* Which of both is worth a label. */
static int hotter(const struct sums *a, const struct sums *b)
{
    return a->waiters != b->waiters ? a->waiters > b->waiters : a->hold_ms > b->hold_ms;
}

/* In a label a backslash, a quote and a newline are escaped; what is not text is escaped before. */
static char *label_of(const char *name, size_t len)
{
    size_t n = 0;
    char *plain = malloc(TEXT_ESCAPED(len) + 8), *label = malloc(2 * TEXT_ESCAPED(len) + 16);
    if (plain && label) {
        text_escape(plain, TEXT_ESCAPED(len) + 8, name, len);
        for (const char *p = plain; *p; p++) {
            if (*p == '\\' || *p == '"')
                label[n++] = '\\';
            label[n++] = *p;
        }
        label[n] = '\0';
    } else {
        free(label);
        label = NULL;
    }
    free(plain);
    return label;
}

/* The one that is least worth its label. */
static struct labelled *coldest(const struct scrape *s)
{
    struct labelled *least = &s->lock[0];
    for (size_t i = 1; i < s->n; i++)
        if (hotter(&least->is, &s->lock[i].is))
            least = &s->lock[i];
    return least;
}

static void leave_out(struct scrape *s, const struct sums *is)
{
    s->left_out++;
    add_up(&s->rest, is);
}

static int each(const hf_inspect_info *info, void *arg)
{
    struct scrape *s = arg;
    struct sums is = sums_of(info);
    if (clock_now_ms() >= s->until_ms) {
        msg_error("looking at all locks takes longer than %d s: give the exporter a pattern",
                  LIMIT_MS / 1000);
        s->cut_short = 1;
        return 1;
    }
    struct labelled *place = s->n < s->most ? &s->lock[s->n] : s->n ? coldest(s) : NULL;
    s->locks++;
    s->held += is.holders > 0;
    add_up(&s->all, &is);
    int full = s->n == s->most;
    if (!place || (full && !hotter(&is, &place->is))) {
        leave_out(s, &is);
        return 0;
    }
    char *name = label_of(info->name, info->name_len);
    if (!name) {
        msg_error("out of memory");
        s->cut_short = 1;
        return 1;
    }
    if (full) {
        leave_out(s, &place->is);
        free(place->name);
    } else {
        s->n++;
    }
    *place = (struct labelled){ name, is };
    return 0;
}

/* ---- telling ------------------------------------------------------------------------------ */

static void head(FILE *f, const char *name, const char *help)
{
    fprintf(f, "# HELP holdfast_%s %s\n# TYPE holdfast_%s gauge\n", name, help, name);
}

static void one(FILE *f, const char *name, const char *help, double value)
{
    head(f, name, help);
    fprintf(f, "holdfast_%s %.17g\n", name, value);
}

static double seconds(int64_t ms)
{
    return ms > 0 ? (double)ms / 1000 : 0;
}

/* What each lock with a label is told of. */
static double value_of(const struct sums *s, int which)
{
    switch (which) {
    case 0: return (double)s->holders;
    case 1: return (double)s->waiters;
    case 2: return seconds(s->hold_ms);
    case 3: return seconds(s->wait_ms);
    case 4: return s->ttl_ms < 0 ? -1 : seconds(s->ttl_ms);
    case 5: return (double)s->fence;
    default: return (double)s->absent;
    }
}

static void tell_each(FILE *f, const struct scrape *s)
{
    static const char *const metric[][2] = {
        { "lock_holders", "Who holds this lock: how many." },
        { "lock_waiters", "Who waits for this lock: how many." },
        { "lock_hold_seconds", "How long its oldest holder has held it." },
        { "lock_wait_seconds", "How long the oldest of its waiters has waited." },
        { "lock_ttl_seconds", "What the server still gives it if it is not renewed; -1: no end." },
        { "lock_fence", "The largest fencing number of its holders." },
        { "lock_holders_absent", "Holders whose session the server does not see." },
    };
    for (int m = 0; m < (int)(sizeof metric / sizeof metric[0]) && s->n; m++) {
        head(f, metric[m][0], metric[m][1]);
        for (size_t i = 0; i < s->n; i++)
            fprintf(f, "holdfast_%s{lock=\"%s\"} %.17g\n", metric[m][0], s->lock[i].name,
                    value_of(&s->lock[i].is, m));
    }
}

static void tell_sums(FILE *f, const struct scrape *s)
{
    one(f, "locks", "Locks that are held, and other kinds such as latches and barriers.",
        (double)s->locks);
    one(f, "locks_held", "Locks that are held.", (double)s->held);
    one(f, "holders", "Holders of all locks.", (double)s->all.holders);
    one(f, "waiters", "Waiters for all locks.", (double)s->all.waiters);
    one(f, "holders_absent", "Holders whose session the server does not see.",
        (double)s->all.absent);
    one(f, "oldest_hold_seconds", "The longest that any holder has held its lock.",
        seconds(s->all.hold_ms));
    one(f, "oldest_wait_seconds", "The longest that any waiter has waited.",
        seconds(s->all.wait_ms));
    one(f, "newest_fence", "The largest fencing number of all holders.", (double)s->all.fence);
    one(f, "unlabelled_locks", "Locks that are not told of one by one (--max-locks).",
        (double)s->left_out);
    one(f, "unlabelled_holders", "Their holders.", (double)s->rest.holders);
    one(f, "unlabelled_waiters", "Their waiters.", (double)s->rest.waiters);
}

static void tell(FILE *f, const struct scrape *s, hf_err e, int64_t took_ms)
{
    int whole = e == HF_OK && !s->cut_short;
    one(f, "up", "1: the server answered and all locks were looked at; 0: not.", whole);
    one(f, "scrape_duration_seconds", "How long it took to look at all locks.", seconds(took_ms));
    head(f, "build_info", "The version of the exporter.");
    fprintf(f, "holdfast_build_info{version=\"%s\"} 1\n", hf_version());
    if (!whole)
        return; /* a part of the truth would look like an end of the trouble */
    tell_sums(f, s);
    tell_each(f, s);
}

char *scrape(hf_client *c, const char *pattern, size_t max_locks, size_t *ret_len)
{
    struct scrape s = { .most = max_locks, .all = { .hold_ms = -1, .wait_ms = -1 },
                        .rest = { .hold_ms = -1, .wait_ms = -1 } };
    char *text = NULL;
    hf_error err;
    int64_t begun = clock_now_ms();
    s.until_ms = begun + LIMIT_MS;
    s.lock = calloc(max_locks, sizeof *s.lock);
    FILE *f = s.lock ? open_memstream(&text, ret_len) : NULL;
    if (f) {
        hf_err e = hf_inspect_list(c, pattern, LIMIT_MS, each, &s, &err);
        if (e)
            msg_failed(e, &err);
        tell(f, &s, e, clock_now_ms() - begun);
        if (fclose(f) != 0) {
            free(text);
            text = NULL;
        }
    }
    for (size_t i = 0; i < s.n; i++)
        free(s.lock[i].name);
    free(s.lock);
    return text;
}
