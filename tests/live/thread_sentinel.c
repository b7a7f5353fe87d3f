/* SPDX-License-Identifier: MIT
 * thread_sentinel.c - many threads of one client while the master moves: the lookout drops
 * connections, the inbox and the keeper follow, and every thread goes on.
 */
#include <sys/wait.h>

#include "harness/fleet.h"
#include "harness/waiting.h"

enum { THREADS = 6 };

struct crowd {
    hf_client       *c;
    atomic_int       stop, next;
    atomic_long      grants, failures;
    _Atomic uint64_t newest[2];
};

static void *lock_on(void *arg)
{
    struct crowd *cr = arg;
    int index = atomic_fetch_add(&cr->next, 1), which = index % 2;
    hf_lock *m = lock_with(cr->c, which ? "a" : "b", (hf_lock_opts){ .ttl_ms = 20000 });
    while (!atomic_load(&cr->stop)) {
        uint64_t fence;
        if (hf_lock_acquire(m, 30000, &fence, &err)) {
            atomic_fetch_add(&cr->failures, 1);
            continue;
        }
        atomic_store(&cr->newest[which], fence);
        atomic_fetch_add(&cr->grants, 1);
        (void)!hf_lock_release(m, NULL);
    }
    hf_lock_free(m);
    return NULL;
}

TEST(threads_go_on_while_the_master_moves)
{
    struct fleet *f = fleet_start(NULL);
    struct crowd cr = { .c = client_at(f->url, 0) };
    hf_lock *held = lock_with(cr.c, "held", (hf_lock_opts){ .ttl_ms = 20000 });
    pthread_t thread[THREADS];
    uint64_t fence = lock_now(held);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, lock_on, &cr), 0);
    CHECK_EVENTUALLY(atomic_load(&cr.grants) > 100, 20000);
    struct server *old = fleet_master(f);
    CHECK_STR(server_ask(f->sentinel[0], "SENTINEL FAILOVER m"), "OK");
    struct server *now = fleet_wait_switch(f, old);
    long before = atomic_load(&cr.grants);
    CHECK_EVENTUALLY(atomic_load(&cr.grants) > before + 100, 20000);
    CHECK_EVENTUALLY(is_present(now, hf_lock_owner(held)), 5000);
    CHECK_EVENTUALLY(hf_lock_verify(held, NULL) == HF_OK, 5000);
    CHECK(hf_lock_fence(held) == fence);

    /* A forked child has nothing of it, and takes nothing away. */
    int pid = t_fork(), status;
    if (pid == 0) {
        int dead = hf_lock_try(held, NULL, NULL) == HF_EFORK;
        hf_client_free(cr.c);
        _exit(dead ? 0 : 1);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);

    atomic_store(&cr.stop, 1);
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(pthread_join(thread[i], NULL), 0);
    CHECK_INT(atomic_load(&cr.failures), 0);
    unlock_now(held);
    hf_lock_free(held);
    hf_client_free(cr.c);
}
