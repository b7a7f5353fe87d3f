/* SPDX-License-Identifier: MIT
 * metrics.c - what a client counts, and telling it.
 */
#include "session/metrics.h"

#include <stdbool.h>
#include <string.h>

#include "base/err.h"
#include "session/client.h"

static const int64_t bound_ms[HF_BUCKETS] = {
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 30000, 60000, 300000, 3600000,
    INT64_MAX,
};

int64_t hf_bucket_ms(unsigned i)
{
    return bound_ms[i < HF_BUCKETS ? i : HF_BUCKETS - 1];
}

static void note_time(struct metrics_times *t, int64_t ms)
{
    unsigned i = 0;
    while (ms > bound_ms[i])
        i++;
    metrics_add(&t->bucket[i], 1);
    if (ms > 0)
        metrics_add(&t->sum_ms, (uint64_t)ms);
}

void metrics_take(struct metrics *m, hf_err result, bool contended, int64_t waited_ms)
{
    if (contended)
        metrics_add(&m->contended, 1);
    if (result == HF_OK) {
        metrics_add(&m->acquires, 1);
        note_time(&m->wait, waited_ms);
    } else if (result == HF_EDEADLK) {
        metrics_add(&m->deadlocks, 1);
    } else if (result == HF_EBUSY || result == HF_ETIMEDOUT) {
        metrics_add(&m->busy, 1);
    } else if (result != HF_ECANCELED) {
        metrics_add(&m->failed, 1);
    }
}

void metrics_hold(struct metrics *m, int64_t held_ms)
{
    note_time(&m->hold, held_ms);
}

/* ---- telling it ------------------------------------------------------------------------------ */

static uint64_t load(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static hf_histogram times_of(const struct metrics_times *t)
{
    hf_histogram h = { .sum_ms = load(&t->sum_ms) };
    for (unsigned i = 0; i < HF_BUCKETS; i++) {
        h.bucket[i] = load(&t->bucket[i]);
        h.count += h.bucket[i];
    }
    return h;
}

static hf_metrics snapshot(const struct metrics *m)
{
    hf_metrics all = {
        .acquires = load(&m->acquires), .contended = load(&m->contended), .busy = load(&m->busy),
        .failed = load(&m->failed), .deadlocks = load(&m->deadlocks),
        .releases = load(&m->releases), .renewals = load(&m->renewals),
        .renewals_failed = load(&m->renewals_failed), .in_doubt = load(&m->in_doubt),
        .takeovers = load(&m->takeovers), .connects = load(&m->connects),
        .reconnects = load(&m->reconnects), .notes_dropped = load(&m->notes_dropped),
        .wait = times_of(&m->wait), .hold = times_of(&m->hold),
    };
    for (unsigned i = 0; i < HF_LOSSES_MAX; i++)
        all.lost[i] = load(&m->lost[i]);
    return all;
}

hf_err hf_metrics_get(hf_client *c, hf_metrics *ret, hf_error *reterr)
{
    hf_err e = client_enter(c, reterr);
    if (!e && (!ret || ret->size < sizeof ret->size))
        e = err_set(reterr, HF_EINVAL,
                    "set the size field of hf_metrics to sizeof(hf_metrics) first");
    if (e)
        return e;
    hf_metrics all = snapshot(&c->metrics);
    size_t size = ret->size;
    all.size = size;
    if (size > sizeof all) /* of a newer header: what we do not know is 0 */
        memset((char *)ret + sizeof all, 0, size - sizeof all);
    memcpy(ret, &all, size < sizeof all ? size : sizeof all);
    return HF_OK;
}

/* What has one number: its name, and where it is. */
static const struct {
    const char *name, *help;
    size_t      at;
} counter[] = {
#define COUNTER(field, help) \
    { "holdfast_client_" #field "_total", help, offsetof(hf_metrics, field) }
    COUNTER(acquires, "Locks that this client was granted."),
    COUNTER(contended, "Calls that found the lock held, or others waiting for it."),
    COUNTER(busy, "Calls that did not get the lock in their time."),
    COUNTER(failed, "Calls that ended with another error, except cancelled ones."),
    COUNTER(deadlocks, "Waits that were ended because they would never end."),
    COUNTER(releases, "Locks that were given back and confirmed by the server."),
    COUNTER(renewals, "Leases renewed in the background."),
    COUNTER(renewals_failed, "Leases that could not be renewed at the first attempt."),
    COUNTER(in_doubt, "Times a held lock became in doubt."),
    COUNTER(takeovers, "Dead holders whose lock this client handed on before its ttl ended."),
    COUNTER(connects, "Connections made, the first ones included."),
    COUNTER(reconnects, "Connections made again after they had broken."),
    COUNTER(notes_dropped, "Events and history entries that could not be written."),
#undef COUNTER
};

static uint64_t number_at(const hf_metrics *m, size_t at)
{
    uint64_t n = 0;
    if (at + sizeof n <= m->size)
        memcpy(&n, (const char *)m + at, sizeof n);
    return n;
}

static void tell_losses(const hf_metrics *m, hf_metric_fn each, void *arg)
{
    static const char *const cause[] = { NULL, "taken", "expired", "max_hold", "released", "grace",
                                         "paused", "broken" };
    for (unsigned i = 1; i < HF_LOSSES_MAX; i++) {
        bool known = i < sizeof cause / sizeof cause[0];
        if (!known && !m->lost[i])
            continue;
        hf_metric one = { .name = "holdfast_client_lost_total", .kind = "counter",
                          .help = "Locks that were lost, by cause.", .label = "cause",
                          .label_value = known ? cause[i] : "other", .value = m->lost[i] };
        each(&one, arg);
    }
}

hf_err hf_metrics_each(const hf_metrics *m, hf_metric_fn each, void *arg, hf_error *reterr)
{
    if (!m || !each || m->size < sizeof *m)
        return err_set(reterr, HF_EINVAL, "give a struct that hf_metrics_get() has filled in");
    for (size_t i = 0; i < sizeof counter / sizeof counter[0]; i++) {
        hf_metric one = { .name = counter[i].name, .kind = "counter", .help = counter[i].help,
                          .value = number_at(m, counter[i].at) };
        each(&one, arg);
    }
    tell_losses(m, each, arg);
    hf_metric wait = { .name = "holdfast_client_wait_seconds", .kind = "histogram",
                       .help = "How long a lock was waited for until it was granted.",
                       .value = m->wait.count, .times = &m->wait };
    hf_metric hold = { .name = "holdfast_client_hold_seconds", .kind = "histogram",
                       .help = "How long a lock was held.",
                       .value = m->hold.count, .times = &m->hold };
    each(&wait, arg);
    each(&hold, arg);
    return HF_OK;
}
