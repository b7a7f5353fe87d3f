/* SPDX-License-Identifier: MIT
 * judge.c - what the history of a cell shows.
 *
 * The fencing numbers give the order of all grants, so sorting is enough: see harness/history.h.
 */
#include "faults/lib/matrix.h"

enum {
    STALL_MS = 10000, /* I4: longer than any fault here lasts, where no master is replaced */
    LATER_MS = 500,  /* who came so much later than another came later, however slow both were */
    PASSED_MAX = 16, /* twice by everybody */
};

static int by_fence(const void *pa, const void *pb)
{
    const struct grant *a = pa, *b = pb;
    if (a->lock != b->lock)
        return a->lock < b->lock ? -1 : 1;
    return a->fence < b->fence ? -1 : a->fence > b->fence;
}

static int by_return(const void *pa, const void *pb)
{
    const struct grant *a = pa, *b = pb;
    if (a->lock != b->lock)
        return a->lock < b->lock ? -1 : 1;
    return a->returned < b->returned ? -1 : a->returned > b->returned;
}

static int by_number(const void *pa, const void *pb)
{
    int64_t a = *(const int64_t *)pa, b = *(const int64_t *)pb;
    return a < b ? -1 : a > b;
}

static int64_t end_of(const struct grant *g)
{
    return g->release && g->release < g->deadline ? g->release : g->deadline;
}

/* From the end of one hold to the next grant; or from when the first came of all that were still
 * without it then. */
static void measure(const struct run *r, const struct grant *g, size_t n, struct verdict *v)
{
    int64_t stall_ms = r->row->stall_ms ? r->row->stall_ms : STALL_MS;
    int64_t *x = calloc(n + 1, sizeof *x), *came = calloc(n + 1, sizeof *came), most = 0;
    size_t k = 0, at = 0;
    CHECK(x && came);
    if (r->quick || v->deposed > 0)
        stall_ms = REPLACED_MS;
    for (size_t i = n; i-- > 0;)
        came[i] = i + 1 < n && g[i + 1].lock == g[i].lock && came[i + 1] < g[i].invoke
                      ? came[i + 1] : g[i].invoke;
    for (size_t i = 1; i < n; i++) {
        if (g[i].lock != g[i - 1].lock)
            continue;
        int64_t from = end_of(&g[i - 1]);
        if (came[i] > from)
            from = came[i];
        x[k] = g[i].returned > from ? g[i].returned - from : 0;
        if (x[k] > most) {
            most = x[k];
            at = i;
        }
        v->i4 += x[k++] > stall_ms * 1000000;
    }
    qsort(x, k, sizeof *x, by_number);
    if (k > 0) {
        v->x50_us = x[k / 2] / 1000;
        v->x99_us = x[k - 1 - k / 100] / 1000;
        v->max_us = x[k - 1] / 1000;
    }
    if (most > 0)
        t_note("the longest: lock %u, %lld ms after client %u %s it, to client %u, who came %lld "
               "ms before", g[at].lock, (long long)most / 1000000, g[at - 1].client,
               g[at - 1].lost_at ? "lost" : g[at - 1].stopped ? "was stopped with" : "released",
               g[at].client, (long long)(g[at].returned - g[at].invoke) / 1000000);
    free(x);
    free(came);
}

/* How often somebody was granted the lock who had come later. */
static void count_passed(const struct grant *g, size_t n, struct verdict *v)
{
    for (size_t i = 0; i < n; i++) {
        size_t passed = 0;
        for (size_t k = i; k-- > 0 && g[k].lock == g[i].lock && g[k].returned > g[i].invoke;)
            passed += g[k].invoke > g[i].invoke + LATER_MS * INT64_C(1000000);
        if (passed > v->passed && !g[i].stopped)
            v->passed = passed;
    }
}

/* Whom the file showed in the section: one that relied on the lock, as the one who looked did; or
 * one of both had overslept. A command that a tool runs relies on it until its end. */
static void judge_witnesses(const struct run *r, const struct grant *g, size_t n, struct verdict *v)
{
    int seen = atomic_load(&r->b->witnesses);
    if (seen > WITNESSES)
        FAIL("the file was locked %d times by another: more than can be judged", seen);
    for (int w = 0; w < seen && w < WITNESSES; w++) {
        int64_t at = r->b->witness[w].at;
        int holders = 0, looker = 0;
        for (size_t i = 0; i < n; i++) {
            if ((int)g[i].lock != r->b->witness[w].lock || g[i].returned > at
                || end_of(&g[i]) <= at)
                continue;
            if (g[i].client == r->b->witness[w].client)
                looker = 1;
            else
                holders = 1;
        }
        *((holders && looker) || r->row->turn ? &v->witness : &v->overslept) += 1;
    }
}

/* Lost although nobody else got it in the meantime, and not for having been stopped. */
static void count_losses(const struct grant *g, size_t n, struct verdict *v)
{
    for (size_t i = 0; i < n; i++) {
        if (!g[i].lost_at)
            continue;
        v->lost++;
        int other = g[i].stopped;
        for (size_t k = i + 1; k < n && g[k].lock == g[i].lock && !other; k++)
            other = g[k].returned <= g[i].lost_at;
        v->spurious += !other;
    }
}

void judge(struct run *r, struct verdict *v)
{
    struct history_report rep;
    struct grant *g;
    const struct board *b = r->b;
    history_check(r->h, &rep);
    size_t n = v->grants = history_copy(r->h, &g);
    v->disorder = rep.disorder;
    v->i1 = rep.duplicates + rep.disorder;
    v->i2 = rep.overlaps;
    v->overlap_ms = rep.sum_ns / 1000000;
    v->worst_ms = rep.worst_ns / 1000000;
    qsort(g, n, sizeof *g, by_fence);
    measure(r, g, n, v);
    qsort(g, n, sizeof *g, by_return);
    count_passed(g, n, v);
    count_losses(g, n, v);
    judge_witnesses(r, g, n, v);
    free(g);
    v->i2 += v->witness;
    v->i3 = r->row->may & MAY_LOSE ? 0 : (size_t)atomic_load(&b->taken_early);
    /* `make test` has to hold on machines where a process waits for seconds to be run. */
    unsigned may = r->row->may | (r->quick ? MAY_PASS | MAY_FAIL | MAY_LATE : 0);
    v->i5 = may & MAY_PASS || r->topo == 'Q' ? 0 : v->passed > PASSED_MAX;
    v->calls = atomic_load(&b->calls);
    v->refused = atomic_load(&b->refused);
    for (int e = 1; e < ERRORS; e++)
        v->failed += atomic_load(&b->failed[e]);
    v->late_ms = atomic_load(&b->latest_ns) / 1000000;
    v->i7 = (may & MAY_FAIL ? 0 : (size_t)v->failed)
            + (may & MAY_LATE ? 0 : (size_t)atomic_load(&b->late))
            + (size_t)atomic_load(&b->wrong);
    v->i6 += (size_t)atomic_load(&b->leaks);
}

/* ---- I6 ---- */

static size_t without_ttl(struct server *s)
{
    size_t bad = 0;
    char *all = strdup(server_keys(s)), *save = NULL;
    for (char *k = strtok_r(all, "\n", &save); k; k = strtok_r(NULL, "\n", &save))
        if (strncmp(k, "lock:", 5) == 0 || strncmp(k, "{lock:", 6) == 0) {
            size_t len = strlen(k);
            int stays = len > 6 && (strcmp(k + len - 6, ":fence") == 0
                                    || strcmp(k + len - 6, ":reign") == 0);
            if (!stays && server_int(s, "PTTL %s", k) == -1) {
                t_note("I6: %s has no ttl", k);
                bad++;
            }
        }
    free(all);
    return bad;
}

static int is_free(struct run *r, int lock)
{
    for (int i = 0; i < r->n; i++) {
        struct server *s = r->topo == 'S' || r->topo == 'Q' ? r->s[i] : run_server(r, lock);
        if (server_int(s, "EXISTS lock:%s {lock:%s}:q", r->name[lock], r->name[lock]) != 0)
            return 0;
    }
    return 1;
}

size_t judge_leftovers(struct run *r)
{
    size_t bad = 0;
    int64_t until = t_now_ms() + r->want.ttl_ms + 20000;
    for (int lock = 0; lock < LOCKS; lock++) {
        while (!is_free(r, lock) && t_now_ms() < until)
            t_sleep_ms(20);
        if (!is_free(r, lock)) {
            t_note("I6: %s is not free", r->name[lock]);
            bad++;
        }
    }
    for (int i = 0; i < r->n; i++)
        if (r->topo == 'S' || r->topo == 'Q')
            bad += without_ttl(r->s[i]);
    if (r->topo == 'F')
        bad += without_ttl(run_server(r, 0));
    for (int lock = 0; r->topo == 'C' && lock < LOCKS; lock++)
        bad += without_ttl(run_server(r, lock));
    return bad;
}
