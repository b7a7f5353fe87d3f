/* SPDX-License-Identifier: MIT
 * believer.h - a process that holds a lock and writes down, all the time, whether it believes in
 * it: the witness of tests in which a lock is taken from its holder.
 *
 *     struct believer *b = believer_start(url, "a", opts);
 *     ... somebody else is granted the lock, at granted_ns ...
 *     believer_check(b, granted_ns);
 */
#ifndef HARNESS_BELIEVER_H
#define HARNESS_BELIEVER_H

#include <signal.h>

#include "harness/proc.h"
#include "harness/waiting.h"

struct believer {
    const char      *url, *name;
    hf_lock_opts     opts;
    struct workers  *w;
    atomic_int       holding, finish, lost, stubborn; /* stubborn: it does not let go when told */
    atomic_llong     believed_ns; /* the last moment at which it did */
    atomic_llong     beat_ns;     /* its last sign of life */
    _Atomic uint64_t fence;
    atomic_int       loss, released, asks;
    char             text[400], asked[400];
};

static inline void believer_look(struct believer *b, const hf_lock *m)
{
    int64_t now = t_now_ns();
    if (hf_lock_is_held(m))
        atomic_store(&b->believed_ns, now);
    atomic_store(&b->beat_ns, now);
    atomic_store(&b->asks, (int)hf_lock_asked(m, b->asked, sizeof b->asked));
}

static inline void believer_main(int index, void *arg)
{
    struct believer *b = arg;
    (void)index;
    hf_client *c = client_at(b->url, 0);
    hf_lock *m = lock_with(c, b->name, b->opts);
    uint64_t fence;
    if (b->opts.grace_ms == HF_NO_TAKEOVER) /* who never waits has no session */
        CHECK_HF(hf_lock_try(m, &fence, &err), HF_OK);
    else
        fence = lock_with_grace(c, m, b->name);
    atomic_store(&b->fence, fence);
    atomic_store(&b->holding, 1);
    while (!atomic_load(&b->finish)
           && (atomic_load(&b->stubborn) || hf_lock_state(m) != HF_STATE_LOST)) {
        believer_look(b, m);
        t_sleep_ms(1);
    }
    believer_look(b, m);
    atomic_store(&b->loss, hf_lock_loss(m));
    hf_lock_loss_text(m, b->text, sizeof b->text);
    atomic_store(&b->lost, hf_lock_state(m) == HF_STATE_LOST);
    atomic_store(&b->released, hf_lock_release(m, &err));
    while (!atomic_load(&b->finish)) {
        believer_look(b, m);
        t_sleep_ms(1);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* It has the lock when this returns. */
static inline struct believer *believer_start(const char *url, const char *name, hf_lock_opts opts)
{
    struct believer *b = shared_memory(sizeof *b);
    b->url = url;
    b->name = name;
    b->opts = opts;
    static struct workers *known[8]; /* in ordinary memory: the next one forked has a copy */
    static int n;
    b->w = known[n++ % 8] = workers_start(1, believer_main, b);
    CHECK_EVENTUALLY(atomic_load(&b->holding), 20000);
    return b;
}

static inline void believer_signal(struct believer *b, int sig)
{
    workers_signal(b->w, 0, sig);
}

/* It has not believed in it since then, and lives. */
static inline void believer_check(struct believer *b, int64_t granted_ns)
{
    int64_t now = t_now_ns();
    CHECK_EVENTUALLY(atomic_load(&b->beat_ns) > now, 10000);
    if (atomic_load(&b->believed_ns) >= granted_ns)
        FAIL("two believers, for %lld ms",
             (long long)(atomic_load(&b->believed_ns) - granted_ns) / 1000000);
}

static inline void believer_end(struct believer *b)
{
    atomic_store(&b->finish, 1);
    workers_join(b->w, 20000);
}

#endif
