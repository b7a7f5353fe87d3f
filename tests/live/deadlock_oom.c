/* SPDX-License-Identifier: MIT
 * deadlock_oom.c - memory runs out while a circle is looked for: no crash, no leak, and it is found
 * a little later.
 */
#include "harness/failing.h"
#include "harness/live.h"

TEST_TIMEOUT(every_allocation_of_a_look_fails_in_turn, 120)
{
    struct server *s = server_start(NULL);
    char held[8192];
    int found = 0;
    long k = 0, injected = 1, step = getenv("HF_SOAK") ? 1 : 3;
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    hf_client *outer = client_at(server_url(s), 0);
    hf_lock *a = lock_of(outer, "a", 30000);
    lock_now(a);
    CHECK_HF(hf_client_held(outer, held, sizeof held, &err), HF_OK);
    setenv("HOLDFAST_HELD", held, 1);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *own = lock_of(c, "own", 30000), *again = lock_of(c, "a", 30000);
    lock_now(own);
    CHECK_HF(hf_lock_acquire(again, 20000, NULL, &err), HF_EDEADLK);
    while (injected) {
        failing_arm(k += step, 0);
        hf_err e = hf_lock_acquire(again, 20000, NULL, &err);
        injected = failing_count();
        failing_arm(0, 0);
        if (e != HF_EDEADLK && e != HF_ENOMEM && e != HF_EUNSURE && e != HF_ECONN)
            FAIL("allocation %ld: %s: %s", k, hf_err_name(e), err.message);
        found += e == HF_EDEADLK;
    }
    t_note("%ld allocations, and in %d of %ld tries it was found all the same", k, found, k / step);
    CHECK(k > 10 && found > k / step / 2);
    hf_lock_free(again);
    hf_lock_free(own);
    hf_client_free(c);
    hf_lock_free(a);
    hf_client_free(outer);
    CHECK_INT(failing_live(), 0);
}
