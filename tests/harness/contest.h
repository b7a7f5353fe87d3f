/* SPDX-License-Identifier: MIT
 * contest.h - processes that want one lock for as long as the test goes on, and write to a resource
 * that refuses numbers older than the newest it has seen.
 *
 *     struct contest *ct = contest_start(16, url, "r");
 *     contest_go_on(ct, 200);
 *     ... the fault ...
 *     contest_go_on(ct, 300);
 *     contest_end(ct);
 *     CHECK_INT(ct->rep.overlaps, 0);
 */
#ifndef HARNESS_CONTEST_H
#define HARNESS_CONTEST_H

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/waiting.h"

enum { CONTEST_MAX = 16 };

struct contest {
    const char      *url, *name;
    int              n;
    struct workers  *w;
    struct history  *h;
    atomic_int       stop, lost, failed;
    _Atomic uint64_t newest;          /* at the resource */
    atomic_long      written, refused;
    atomic_long      of[CONTEST_MAX]; /* grants of each */
    _Atomic int64_t  longest_ns;      /* that anybody waited */
    struct history_report rep;        /* after the end */
    int              switches;        /* of the master, as far as the test has said */
};

static inline void contest_write(struct contest *ct, uint64_t fence)
{
    uint64_t seen = atomic_load(&ct->newest);
    while (seen < fence && !atomic_compare_exchange_weak(&ct->newest, &seen, fence))
        ;
    atomic_fetch_add(seen > fence ? &ct->refused : &ct->written, 1);
}

static inline void contest_main(int index, void *arg)
{
    struct contest *ct = arg;
    hf_client *c = client_at(ct->url, 0);
    hf_lock *m = lock_with(c, ct->name, KEPT);
    while (!atomic_load(&ct->stop)) {
        uint64_t fence;
        int64_t begun = t_now_ns();
        if (hf_lock_acquire(m, 30000, &fence, &err)) {
            t_note("worker %d: %s", index, err.message);
            atomic_fetch_add(&ct->failed, 1);
            continue;
        }
        struct grant *g = history_grant(ct->h, 0, (uint32_t)index, fence, begun, BELIEVED_UNTIL(m));
        int64_t took = t_now_ns() - begun, most = atomic_load(&ct->longest_ns);
        while (took > most && !atomic_compare_exchange_weak(&ct->longest_ns, &most, took))
            ;
        contest_write(ct, fence);
        atomic_fetch_add(&ct->of[index], 1);
        t_sleep_ms(1);
        history_release(g);
        if (hf_lock_release(m, &err) == HF_ELOST)
            atomic_fetch_add(&ct->lost, 1);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

static inline struct contest *contest_start(int n, const char *url, const char *name)
{
    struct contest *ct = shared_memory(sizeof *ct);
    CHECK_RANGE(n, 1, CONTEST_MAX);
    ct->n = n;
    ct->url = url;
    ct->name = name;
    ct->h = history_new(200000);
    ct->w = workers_start(n, contest_main, ct);
    return ct;
}

/* Wait until more has been written since now. */
static inline void contest_go_on(struct contest *ct, long more)
{
    long before = atomic_load(&ct->written);
    CHECK_EVENTUALLY(atomic_load(&ct->written) > before + more, 30000);
}

/* Whatever happened: no number twice, and the resource has let none pass that was older than the
 * newest. What else may have gone wrong is for the test to judge. */
static inline void contest_end(struct contest *ct)
{
    atomic_store(&ct->stop, 1);
    workers_join(ct->w, 60000);
    history_check(ct->h, &ct->rep);
    t_note("%zu grants, %ld refused at the resource, %d lost, %d failed, %zu overlaps (%lld ms), "
           "the longest wait %lld ms", ct->rep.grants, atomic_load(&ct->refused),
           atomic_load(&ct->lost), atomic_load(&ct->failed), ct->rep.overlaps,
           (long long)(ct->rep.worst_ns / 1000000),
           (long long)(atomic_load(&ct->longest_ns) / 1000000));
    CHECK_INT(ct->rep.duplicates, 0);
    CHECK(atomic_load(&ct->refused) + atomic_load(&ct->written) == (long)ct->rep.grants);
}

/* So often has the master changed: by the fault, and on a busy machine a living one may be deposed,
 * too. */
static inline void contest_switched(struct contest *ct, int switches)
{
    CHECK(switches >= 1);
    ct->switches = switches;
    if (switches > 1)
        t_note("the master changed %d times: a living one was deposed", switches);
}

/* Nothing went wrong at all, though some calls may have failed. */
static inline void contest_check_clean(const struct contest *ct)
{
    CHECK_INT(ct->rep.disorder, 0);
    CHECK_INT(ct->rep.overlaps, 0);
    CHECK_INT(atomic_load(&ct->lost), 0);
    CHECK_INT(atomic_load(&ct->refused), 0);
}

#endif
