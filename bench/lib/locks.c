/* SPDX-License-Identifier: MIT
 * locks.c - the library's calls, with every failure explained; see locks.h.
 */
#include "lib/locks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/t.h"

hf_client *bench_client(const char *url)
{
    hf_client *c = NULL;
    hf_error e;
    if (hf_client_open(url, NULL, &c, &e))
        FAIL("%s", e.message);
    return c;
}

hf_lock *bench_lock(hf_client *c, const char *name, const hf_lock_opts *o)
{
    hf_lock *m = NULL;
    hf_error e;
    if (hf_lock_open(c, hf_str(name), o, &m, &e))
        FAIL("%s", e.message);
    return m;
}

void bench_take(hf_lock *m)
{
    hf_error e;
    if (hf_lock_try(m, NULL, &e))
        FAIL("%s", e.message);
}

void bench_wait(hf_lock *m)
{
    hf_error e;
    if (hf_lock_acquire(m, HF_WAIT_FOREVER, NULL, &e))
        FAIL("%s", e.message);
}

void bench_give(hf_lock *m)
{
    hf_error e;
    if (hf_lock_release(m, &e))
        FAIL("%s", e.message);
}

void bench_pair(hf_lock *m)
{
    bench_wait(m);
    bench_give(m);
}

void bench_dispatch(hf_client *c, int ms)
{
    struct pollfd p = { .events = POLLIN };
    CHECK_INT(hf_client_fd(c, &p.fd, NULL), HF_OK);
    CHECK(poll(&p, 1, ms) >= 0);
    hf_client_dispatch(c);
}

static void counted(hf_err result, const hf_error *err, void *arg)
{
    if (result)
        FAIL("%s", err ? err->message : hf_err_text(result));
    --*(int *)arg;
}

hf_lock **bench_hold_many(hf_client *c, const char *prefix, int n, const hf_lock_opts *o)
{
    int under_way = 0;
    hf_lock **m = calloc((size_t)n, sizeof(*m));
    CHECK(m);
    for (int i = 0; i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%d", prefix, i);
        m[i] = bench_lock(c, name, o);
        under_way++;
        CHECK_INT(hf_lock_acquire_async(m[i], 0, counted, &under_way, NULL), HF_OK);
        while (under_way >= 256 || (i == n - 1 && under_way > 0))
            bench_dispatch(c, 1000);
    }
    return m;
}

void bench_free_many(hf_lock **m, int n)
{
    for (int i = 0; i < n; i++)
        hf_lock_free(m[i]);
    free(m);
}

int bench_count_lost(hf_lock *const *m, int n)
{
    int lost = 0;
    for (int i = 0; i < n; i++)
        lost += !hf_lock_is_held(m[i]);
    return lost;
}
