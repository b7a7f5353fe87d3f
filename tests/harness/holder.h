/* SPDX-License-Identifier: MIT
 * holder.h - a process that holds a lock until it is killed.
 *
 *     struct workers *w = holder_start(url, "a", (hf_lock_opts){ .ttl_ms = 60000 });
 *     workers_signal(w, 0, SIGKILL);
 *     ... somebody else gets it ...
 *     workers_join(w, 5000);
 */
#ifndef HARNESS_HOLDER_H
#define HARNESS_HOLDER_H

#include <signal.h>

#include "harness/proc.h"
#include "harness/waiting.h"

struct holder {
    const char   *url, *name;
    hf_lock_opts opts;
    atomic_int    held;
};

static inline void holder_main(int index, void *arg)
{
    struct holder *h = arg;
    (void)index;
    hf_client *c = client_at(h->url, 0);
    hf_lock *m = lock_with(c, h->name, h->opts);
    if (h->opts.grace_ms == HF_NO_TAKEOVER)
        lock_now(m);
    else
        lock_with_grace(c, m, h->name);
    atomic_store(&h->held, 1);
    for (;;)
        pause();
}

/* It has the lock when this returns. */
static inline struct workers *holder_start(const char *url, const char *name, hf_lock_opts opts)
{
    struct holder *h = shared_memory(sizeof *h);
    h->url = url;
    h->name = name;
    h->opts = opts;
    struct workers *w = workers_start(1, holder_main, h);
    CHECK_EVENTUALLY(atomic_load(&h->held), 20000);
    return w;
}

#endif
