/* SPDX-License-Identifier: MIT
 * history.c - the checker of grants; see history.h.
 *
 * No search for a linearization is needed: the fencing numbers give the order, so one sort and one
 * pass decide whether it agrees with real time, and a second sort by start finds overlaps.
 */
#include "harness/history.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "harness/t.h"

struct history {
    atomic_size_t used;
    size_t max;
    struct grant grants[];
};

struct history *history_new(size_t max)
{
    size_t size = sizeof(struct history) + max * sizeof(struct grant);
    struct history *h = mmap(NULL, size, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(h != MAP_FAILED);
    h->max = max;
    return h;
}

struct grant *history_grant(struct history *h, uint32_t lock, uint32_t client, uint64_t fence,
                            int64_t invoke, int64_t deadline)
{
    return history_share(h, lock, client, fence, invoke, deadline, 0);
}

struct grant *history_share(struct history *h, uint32_t lock, uint32_t client, uint64_t fence,
                            int64_t invoke, int64_t deadline, uint32_t weight)
{
    int64_t now = t_now_ns();
    size_t i = atomic_fetch_add(&h->used, 1);
    CHECK(i < h->max);
    h->grants[i] = (struct grant){ .lock = lock, .client = client, .fence = fence,
                                   .weight = weight, .invoke = invoke, .returned = now,
                                   .deadline = deadline };
    atomic_store(&h->grants[i].written, 1);
    return &h->grants[i];
}

void history_deadline(struct grant *g, int64_t deadline)
{
    g->deadline = deadline;
}

void history_release(struct grant *g)
{
    g->release = t_now_ns();
}

static int by_fence(const void *pa, const void *pb)
{
    const struct grant *a = pa, *b = pb;
    if (a->lock != b->lock)
        return a->lock < b->lock ? -1 : 1;
    return a->fence < b->fence ? -1 : a->fence > b->fence;
}

static int by_start(const void *pa, const void *pb)
{
    const struct grant *a = pa, *b = pb;
    if (a->lock != b->lock)
        return a->lock < b->lock ? -1 : 1;
    return a->returned < b->returned ? -1 : a->returned > b->returned;
}

static int64_t belief_end(const struct grant *g)
{
    return g->release && g->release < g->deadline ? g->release : g->deadline;
}

static void complain(const char *what, const struct grant *a, const struct grant *b, size_t nth)
{
    if (nth > 5)
        return;
    t_note("%s on lock %u:", what, a->lock);
    for (int i = 0; i < 2; i++) {
        const struct grant *g = i ? b : a;
        t_note("  client %u fence %llu invoke %lld returned %lld release %lld deadline %lld",
               g->client, (unsigned long long)g->fence, (long long)g->invoke,
               (long long)g->returned, (long long)g->release, (long long)g->deadline);
    }
}

static int downgraded(const struct grant *a, const struct grant *b)
{
    return a->client == b->client && !a->weight != !b->weight;
}

static void check_order(struct grant *g, size_t n, struct history_report *r)
{
    qsort(g, n, sizeof *g, by_fence);
    for (size_t i = 1, latest = 0; i < n; i++) {
        if (g[i].lock != g[latest].lock) {
            latest = i;
            continue;
        }
        if (downgraded(&g[i - 1], &g[i]) && g[i].fence == g[i - 1].fence)
            continue;
        if (g[i].fence == g[i - 1].fence)
            complain("duplicate number", &g[i - 1], &g[i], ++r->duplicates);
        else if (g[i].returned < g[latest].invoke)
            complain("order against real time", &g[latest], &g[i], ++r->disorder);
        if (g[i].invoke > g[latest].invoke)
            latest = i;
    }
}

static void check_overlap(struct grant *g, size_t n, struct history_report *r)
{
    qsort(g, n, sizeof *g, by_start);
    for (size_t i = 1, longest = 0; i < n; i++) {
        if (g[i].lock != g[longest].lock) {
            longest = i;
            continue;
        }
        int64_t end = belief_end(&g[longest]), own = belief_end(&g[i]);
        int64_t overlap = (end < own ? end : own) - g[i].returned;
        if (overlap > 0) {
            complain("overlapping belief", &g[longest], &g[i], ++r->overlaps);
            if (overlap > r->worst_ns)
                r->worst_ns = overlap;
            r->sum_ns += overlap;
        }
        if (own > end)
            longest = i;
    }
}

/* A grant begins or ends. */
struct moment {
    const struct grant *g;
    int64_t             at;
    int64_t             change;
};

static int by_moment(const void *pa, const void *pb)
{
    const struct moment *a = pa, *b = pb;
    if (a->g->lock != b->g->lock)
        return a->g->lock < b->g->lock ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->change < b->change ? -1 : a->change > b->change; /* who leaves leaves first */
}

static void check_sum(const struct grant *g, size_t n, uint32_t limit, struct history_report *r)
{
    struct moment *m = calloc(2 * n + 1, sizeof *m);
    size_t k = 0;
    CHECK(m);
    for (size_t i = 0; i < n; i++) {
        if (belief_end(&g[i]) <= g[i].returned)
            continue;
        int64_t weight = g[i].weight ? g[i].weight : limit;
        m[k++] = (struct moment){ &g[i], g[i].returned, weight };
        m[k++] = (struct moment){ &g[i], belief_end(&g[i]), -weight };
    }
    qsort(m, k, sizeof *m, by_moment);
    int64_t sum = 0;
    for (size_t i = 0; i < k; i++) {
        if (i > 0 && m[i].g->lock != m[i - 1].g->lock)
            sum = 0;
        sum += m[i].change;
        if (sum <= limit)
            continue;
        complain("more than the limit", m[i ? i - 1 : 0].g, m[i].g, ++r->overlaps);
        if (i + 1 < k && m[i + 1].at - m[i].at > r->worst_ns)
            r->worst_ns = m[i + 1].at - m[i].at;
    }
    free(m);
}

size_t history_copy(struct history *h, struct grant **ret)
{
    size_t used = atomic_load(&h->used), n = 0;
    CHECK(used <= h->max);
    struct grant *g = calloc(used + 1, sizeof *g);
    CHECK(g);
    for (size_t i = 0; i < used; i++)
        if (h->grants[i].written)
            g[n++] = h->grants[i];
    *ret = g;
    return n;
}

static size_t check(struct history *h, uint32_t limit, struct history_report *ret)
{
    struct history_report r = { 0 };
    struct grant *g;
    size_t n = r.grants = history_copy(h, &g);
    check_order(g, n, &r);
    if (limit)
        check_sum(g, n, limit, &r);
    else
        check_overlap(g, n, &r);
    free(g);
    t_note("%zu grants: %zu duplicate numbers, %zu out of order, %zu overlaps (worst %lld ns)",
           r.grants, r.duplicates, r.disorder, r.overlaps, (long long)r.worst_ns);
    if (ret)
        *ret = r;
    return r.duplicates + r.disorder + r.overlaps;
}

size_t history_check(struct history *h, struct history_report *ret)
{
    return check(h, 0, ret);
}

size_t history_check_shared(struct history *h, uint32_t limit, struct history_report *ret)
{
    CHECK(limit > 0);
    return check(h, limit, ret);
}
