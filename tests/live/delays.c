/* SPDX-License-Identifier: MIT
 * delays.c - P1: requests and answers take long. A lease counts from the sending of the request, so
 * nobody believes in it for longer than the server has it; a grace from the sending of the ping.
 */
#include "harness/live.h"
#include "harness/proxy.h"

enum { TTL_MS = 6000, GRACE_MS = 6000, DELAY_MS = 400 };

/* Looks at both sides, the holder first: the server may only have got more meanwhile. Returns what
 * the server has left. */
static long long compare(struct server *s, hf_lock *m)
{
    int64_t before = t_now_ms(), left = hf_lock_time_left_ms(m);
    long long server = server_int(s, "PTTL lock:a");
    int64_t after = t_now_ms();
    if (left > 0 && before + left > after + server)
        FAIL("%lld ms are believed in, and the server has %lld, %lld ms later", (long long)left,
             server, (long long)(after - before));
    return server;
}

/* Until a renewal has been answered; false: the lock was lost before that. */
static int through_a_renewal(struct server *s, hf_lock *m)
{
    long long last = compare(s, m), left = last;
    for (; left <= last + 100; left = compare(s, m)) {
        last = left;
        if (!hf_lock_is_held(m))
            return 0;
        t_sleep_ms(10);
    }
    for (int64_t until = t_now_ms() + 3 * DELAY_MS; t_now_ms() < until; t_sleep_ms(10))
        compare(s, m); /* its answer comes */
    return 1;
}

TEST_TIMEOUT(P1_nobody_believes_for_longer_than_the_server_however_late_the_answers_are, 120)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 20000);
    hf_lock *m = lock_of(c, "a", TTL_MS);
    for (int renewed = 0; !renewed;) {
        CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
        proxy_delay(p, DELAY_MS);
        renewed = through_a_renewal(s, m); /* else this machine is too slow: once more */
        CHECK(proxy_delayed(p) > 0);
        proxy_pass(p);
        (void)hf_lock_release(m, &err);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* Until another proof of presence has come; false: the lock was lost before that. All of them are
 * as old as the round trip then, or sent before it took that long, which is longer ago. */
static int through_a_proof(hf_lock *m)
{
    int64_t last = GRACE_MS, left;
    t_sleep_ms(2 * DELAY_MS);
    for (;; last = left) {
        left = hf_lock_time_left_ms(m);
        if (left > GRACE_MS - GRACE_MS / 100 - 2 - 2 * DELAY_MS)
            FAIL("%lld ms are believed in, of a grace of %d ms and a round trip of %d ms",
                 (long long)left, GRACE_MS, 2 * DELAY_MS);
        if (left == 0 || left > last + 100)
            return left > 0;
        t_sleep_ms(5);
    }
}

TEST_TIMEOUT(P1_presence_counts_from_the_sending_of_the_ping, 120)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 20000);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 120000, .grace_ms = GRACE_MS });
    for (int proven = 0; !proven;) {
        CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
        proxy_delay(p, DELAY_MS);
        proven = through_a_proof(m);
        CHECK(proxy_delayed(p) > 0);
        proxy_pass(p);
        (void)hf_lock_release(m, &err);
    }
    hf_lock_free(m);
    hf_client_free(c);
}
