/* SPDX-License-Identifier: MIT
 * async.c - lock and unlock without blocking; see async.h.
 */
#include "lib/async.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/t.h"
#include "lib/locks.h"

enum { WARM_MS = 200 };

struct loop {
    struct samples us;
    int            counting, stopping, active;
};

struct worker {
    struct loop *loop;
    hf_lock     *m;
    int64_t      begun_ns;
};

static void taken(hf_err result, const hf_error *err, void *arg);

static void take(struct worker *w)
{
    w->begun_ns = t_now_ns();
    CHECK_INT(hf_lock_acquire_async(w->m, HF_WAIT_FOREVER, taken, w, NULL), HF_OK);
}

static void given(hf_err result, const hf_error *err, void *arg)
{
    struct worker *w = arg;
    if (result)
        FAIL("%s", err->message);
    if (w->loop->counting)
        samples_add(&w->loop->us, (double)(t_now_ns() - w->begun_ns) / 1000);
    if (w->loop->stopping)
        w->loop->active--;
    else
        take(w);
}

static void taken(hf_err result, const hf_error *err, void *arg)
{
    struct worker *w = arg;
    if (result)
        FAIL("%s", err->message);
    CHECK_INT(hf_lock_release_async(w->m, given, w, NULL), HF_OK);
}

struct cost async_measure(struct server *s, hf_client *c, int under_way, int run_ms)
{
    struct loop loop = { .active = under_way };
    struct worker *w = calloc((size_t)under_way, sizeof *w);
    struct pollfd p = { .events = POLLIN };
    struct meter meter;
    struct cost cost = cost_none();
    CHECK(w);
    CHECK_INT(hf_client_fd(c, &p.fd, NULL), HF_OK);
    for (int i = 0; i < under_way; i++) {
        char name[32];
        hf_lock_opts o = { .size = sizeof o, .ttl_ms = 10000 };
        snprintf(name, sizeof name, "async%05d", i);
        w[i] = (struct worker){ .loop = &loop, .m = bench_lock(c, name, &o) };
    }
    int64_t start_ns = t_now_ns();
    for (int i = 0; i < under_way; i++)
        take(&w[i]);
    while (loop.active > 0) {
        CHECK(poll(&p, 1, 1000) >= 0);
        hf_client_dispatch(c);
        int64_t ms = (t_now_ns() - start_ns) / 1000000;
        if (!loop.counting && !loop.stopping && ms >= WARM_MS) {
            meter_begin(&meter, s, SENT_BY_HOLDFAST);
            loop.counting = 1;
        } else if (loop.counting && ms >= WARM_MS + run_ms) {
            cost = meter_end(&meter, (double)loop.us.n, &loop.us);
            loop.counting = 0;
            loop.stopping = 1;
        }
    }
    for (int i = 0; i < under_way; i++)
        hf_lock_free(w[i].m);
    free(w);
    samples_free(&loop.us);
    return cost;
}
