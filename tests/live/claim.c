/* SPDX-License-Identifier: MIT
 * claim.c - a lock that was handed over and is held before the server has confirmed it: for how
 * long its new holder may believe in it.
 */
#include "harness/proxy.h"
#include "harness/waiting.h"

enum { LATER_MS = 120 }; /* after the refusal, and before the waiter looks by itself */

/* A waiter is refused; a moment later the lock is handed to it, and the confirmation that it asks
 * for is held up. Returns whether it held the lock at once. */
static int hand_over(struct server *s, struct proxy *p, hf_lock *first, hf_lock *second)
{
    struct locker l = { .m = second, .wait_ms = 60000 };
    lock_now(first);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    int64_t refused = t_now_ms(); /* or before */
    t_sleep_ms(LATER_MS);
    proxy_hold(p);
    unlock_now(first);
    for (int64_t until = t_now_ms() + 2000; !atomic_load(&l.done) && t_now_ms() < until;)
        t_sleep_ms(2);
    int at_once = atomic_load(&l.done);
    int64_t now = t_now_ms(), left = hf_lock_time_left_ms(second);
    proxy_pass(p);
    locker_join(&l, HF_OK);
    (void)hf_lock_release(second, &err); /* it may be over by now */
    if (at_once) {
        t_note("refused %lld ms ago or more: %lld ms left", (long long)(now - refused),
               (long long)left);
        CHECK(now + left <= refused + 1000);
    }
    return at_once;
}

/* The hand-over may be as old as the refusal: it lasts for the claim window from then on, however
 * late its message is. */
TEST(P1_what_is_held_at_once_counts_from_the_refusal_not_from_the_message)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(proxy_url(p), 30000);
    hf_lock *first = lock_of(a, "a", 60000), *second = lock_of(b, "a", 60000);
    int at_once = 0;
    int64_t begun = t_now_ms();
    for (int i = 0; i < 10 && !at_once; i++)
        at_once = hand_over(s, p, first, second);
    if (!at_once) { /* each time it was confirmed first */
        CHECK(t_calm_ms(begun) < (t_now_ms() - begun) * 9 / 10);
        LEFT_OUT("this machine is too slow for a lock that is held before it is confirmed");
    }
    hf_lock_free(first);
    hf_lock_free(second);
    hf_client_free(a);
    hf_client_free(b);
}
