/* SPDX-License-Identifier: MIT
 * watch_oom.c - memory runs out at every third allocation of watching and of the history in turn,
 * with HF_SOAK=1 at each: no crash, no leak, an honest result; and a watcher that follows its
 * master.
 */
#include "harness/failing.h"
#include "harness/fleet.h"
#include "harness/waiting.h"

static void judge(hf_err e, const char *what)
{
    if (e != HF_OK && e != HF_ENOMEM && e != HF_EUNSURE && e != HF_ECONN && e != HF_ETIMEDOUT
        && e != HF_ESYS)
        FAIL("%s: %s: %s", what, hf_err_name(e), err.message);
}

struct inside {
    hf_lock *m;
    int      n;
};

/* Each event makes the next, a few of them. */
static int on_news(const hf_news *n, void *arg)
{
    struct inside *in = arg;
    (void)n;
    if (in->n == 0)
        judge(hf_lock_acquire(in->m, 0, NULL, &err), "acquire");
    if (in->n == 1 && hf_lock_fence(in->m))
        judge(hf_lock_release(in->m, &err), "release");
    return ++in->n >= 3;
}

static int on_past(const hf_past *p, void *arg)
{
    (void)p;
    ++*(int *)arg;
    return 0;
}

static void scenario(const char *url)
{
    hf_client *c = NULL;
    hf_client_opts o = { .size = sizeof o, .history = 5, .timeout_ms = 2000 };
    struct inside in = { 0 };
    int told = 0;
    judge(hf_client_open(url, &o, &c, &err), "open");
    if (!c)
        return;
    judge(hf_lock_open(c, hf_str("a"), NULL, &in.m, &err), "lock");
    if (in.m)
        judge(hf_watch(c, NULL, 60, on_news, &in, &err), "watch");
    hf_lock_free(in.m);
    judge(hf_history_read(c, hf_str("a"), on_past, &told, &err), "history");
    hf_client_free(c);
}

TEST(memory_runs_out_at_every_allocation)
{
    struct server *s = server_start(NULL);
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    scenario(server_url(s));
    CHECK_INT(failing_live(), 0);
    long step = getenv("HF_SOAK") ? 1 : 3;
    for (long k = 1 + (long)t_random((uint64_t)step); k < 2000; k += step) {
        failing_arm(k, 0);
        scenario(server_url(s));
        long injected = failing_count();
        failing_arm(0, 0);
        CHECK_INT(failing_live(), 0);
        if (!injected)
            break;
    }
    int told = 0;
    hf_client *c = client_at(server_url(s), 0);
    CHECK_HF(hf_history_read(c, hf_str("a"), on_past, &told, &err), HF_OK);
    CHECK(told > 0);
    hf_client_free(c);
}

struct follower {
    hf_client *c;
    atomic_int watching, granted, stop;
    hf_err     result;
    pthread_t  thread;
};

static int count(const hf_news *n, void *arg)
{
    struct follower *f = arg;
    atomic_fetch_add(&f->watching, strcmp(n->kind, "watching") == 0);
    atomic_fetch_add(&f->granted, strcmp(n->kind, "granted") == 0);
    return atomic_load(&f->stop);
}

static void *follow(void *arg)
{
    struct follower *f = arg;
    f->result = hf_watch(f->c, NULL, 120000, count, f, NULL);
    return NULL;
}

TEST(a_watcher_follows_the_master)
{
    struct fleet *fl = fleet_start(NULL);
    struct follower f = { .c = client_at(fl->url, 0) };
    hf_client *c = client_at(fl->url, 0);
    hf_lock *m = lock_with(c, "a", KEPT);
    CHECK_INT(pthread_create(&f.thread, NULL, follow, &f), 0);
    CHECK_EVENTUALLY(atomic_load(&f.watching) >= 1, 20000);
    struct server *old = fleet_master(fl);
    fleet_wait_replicas(fl, 2);
    server_kill(old);
    fleet_wait_switch(fl, old);
    CHECK_EVENTUALLY(atomic_load(&f.watching) >= 2, 30000);
    /* It may have begun anew more often than there was a failover, and miss a grant meanwhile. */
    CHECK_EVENTUALLY((lock_now(m), unlock_now(m), atomic_load(&f.granted) >= 1), 20000);
    atomic_store(&f.stop, 1);
    lock_now(m); /* it ends with the next news */
    unlock_now(m);
    CHECK_INT(pthread_join(f.thread, NULL), 0);
    CHECK_INT(f.result, HF_OK);
    hf_client_free(f.c);
}
