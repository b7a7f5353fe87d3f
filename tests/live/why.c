/* SPDX-License-Identifier: MIT
 * why.c - hf_why(), hf_inspect_cause(): what holders and waiters do, each brought about for real.
 */
#include <signal.h>

#include "harness/holder.h"
#include "harness/why.h"

TEST(free_and_held)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .info = "nightly",
                                                                .program = "prog" });
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    hf_why_info *why = why_of(c, "a");
    CHECK_STR(why->cause, "free");
    CHECK_INT(why->free_ms, 0);
    CHECK(why->lock && !why->cycle);
    hf_why_free(why);
    lock_now(m);
    check_why(c, "a", "held", "held by owner "); /* at once, before it has said who it is */
    t_sleep_ms(400);
    why = why_of(c, "a");
    CHECK_STR(why->cause, "held");
    CHECK_INT(why->free_ms, -1);
    const char *words[] = { "held by ", "@", " for ", "(nightly)", "renewed ", ", pid ", "prog" };
    const char *at = why->text; /* in this order */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!(at = strstr(at, words[i])))
            FAIL("%s is not where it should be in %s", words[i], why->text);
    hf_why_free(why);
    unlock_now(m);
    /* A semaphore with room is free. */
    hf_lock_opts two = hf_semaphore(2);
    hf_lock *p = lock_with(c, "s", two), *q = lock_with(c, "s", two);
    lock_now(p);
    check_why(c, "s", "free", "1 of 2 slots are free");
    lock_now(q);
    check_why(c, "s", "held", " and 1 more");
    hf_lock_free(p);
    hf_lock_free(q);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_holder_that_is_stopped_then_killed)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 8000,
                                                                         .grace_ms = 3000 });
    hf_client *c = client_at(server_url(s), 0);
    CHECK_EVENTUALLY(is_cause(c, "a", "held"), 5000);
    t_sleep_ms(400);
    workers_signal(w, 0, SIGSTOP);
    CHECK_EVENTUALLY(is_cause(c, "a", "silent"), 8000);
    hf_why_info *why = why_of(c, "a");
    if (strcmp(why->cause, "silent") == 0) {
        CHECK(strstr(why->text, "is silent: not renewed for "));
        CHECK_RANGE(why->free_ms, 1, 4000);
    }
    hf_why_free(why);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 5000);
    hf_client_free(c);
}

TEST(a_holder_that_is_gone_and_its_grace)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                         .grace_ms = 3000 });
    hf_client *c = client_at(server_url(s), 0);
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 5000);
    CHECK_EVENTUALLY(is_cause(c, "a", "absent"), 5000);
    hf_why_info *why = why_of(c, "a");
    CHECK(strstr(why->text, "is gone: free in ") && strstr(why->text, "or 3.0s after somebody"));
    CHECK_RANGE(why->free_ms, 30000, 60000);
    hf_why_free(why);
    struct locker l = { .m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 }),
                        .wait_ms = 30000 };
    locker_start(&l);
    int64_t least = 60000;
    for (int k = 0; !atomic_load(&l.done) && k < 1000; k++) {
        why = why_of(c, "a");
        if (strcmp(why->cause, "absent") == 0 && why->free_ms < least)
            least = why->free_ms;
        hf_why_free(why);
        t_sleep_ms(10);
    }
    CHECK(least <= 3000); /* of the grace, not of the ttl */
    locker_join(&l, HF_OK);
    hf_lock_free(l.m);
    hf_client_free(c);
}

TEST(what_was_left_behind)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 20000 });
    lock_now(m);
    CHECK_HF(hf_lock_detach(m, 15000, &err), HF_OK);
    hf_why_info *why = why_of(c, "a");
    CHECK_STR(why->cause, "left");
    CHECK(strstr(why->text, "left behind by ") && strstr(why->text, "nobody renews it"));
    CHECK_RANGE(why->free_ms, 1, 15000);
    hf_why_free(why);
    hf_lock_free(m);
    hf_client_free(c);
}

struct pair {
    const char *url;
    atomic_int  held, release;
};

/* The first holds the lock until it is told to release it; the second waits for it. */
static void pair_main(int index, void *arg)
{
    struct pair *p = arg;
    while (index == 1 && !atomic_load(&p->held))
        t_sleep_ms(5);
    hf_lock *m = lock_with(client_at(p->url, 0), "a", (hf_lock_opts){ .ttl_ms = 30000 });
    CHECK_HF(hf_lock_acquire(m, 60000, NULL, &err), HF_OK);
    atomic_store(&p->held, 1);
    while (!atomic_load(&p->release))
        t_sleep_ms(5);
    unlock_now(m);
    for (;;)
        pause();
}

static int says_that_it_waits(hf_client *c)
{
    hf_inspect_info *i = NULL;
    CHECK_HF(hf_inspect_lock(c, hf_str("a"), 0, &i, &err), HF_OK);
    int says = i->waiters == 1 && i->waiter[0]->age_ms >= 0;
    hf_inspect_free(i);
    return says;
}

TEST(a_waiter_that_does_not_claim)
{
    struct server *s = server_start(NULL);
    struct pair *p = shared_memory(sizeof *p);
    p->url = server_url(s);
    struct workers *w = workers_start(2, pair_main, p);
    hf_client *c = client_at(server_url(s), 0);
    CHECK_EVENTUALLY(says_that_it_waits(c), 20000);
    workers_signal(w, 1, SIGSTOP);
    atomic_store(&p->release, 1);
    CHECK_EVENTUALLY(is_cause(c, "a", "claim"), 5000);
    hf_why_info *why = why_of(c, "a");
    if (strcmp(why->cause, "claim") == 0) {
        CHECK(strstr(why->text, "handed to ") && strstr(why->text, "passed on in "));
        CHECK_RANGE(why->free_ms, 0, 1000);
    }
    hf_why_free(why);
    CHECK_EVENTUALLY(is_cause(c, "a", "free"), 5000);
    workers_signal(w, 0, SIGKILL);
    workers_signal(w, 1, SIGKILL);
    workers_join(w, 5000);
    hf_client_free(c);
}

/* ---- deadlock ---- */

/* As a holder of a does that waits for b. */
static void wait_for(struct server *s, hf_lock *holder, const char *a, const char *b)
{
    long long now = atoll(server_ask(s, "TIME"));
    server_ask(s, "HSET {lock:%s}:wf %s %s", a, hf_lock_owner(holder),
               keep_text("%lld %lld %s lock:%s", (now + 60) * 1000, (now - 5) * 1000,
                         hf_lock_owner(holder), b));
}

TEST(a_deadlock_is_told_with_its_cycle)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 20000), *b = lock_of(d, "b", 20000), *x = lock_of(c, "x", 20000);
    lock_now(a);
    lock_now(b);
    lock_now(x);
    wait_for(s, a, "a", "b");
    check_why(c, "a", "held", "held by ");
    wait_for(s, x, "x", "a");
    check_why(c, "x", "held", "held by ");
    wait_for(s, b, "b", "a");
    hf_why_info *why = why_of(c, "a");
    CHECK_STR(why->cause, "deadlock");
    CHECK_INT((long long)why->cycle_len, 2);
    CHECK_STR(why->cycle[0], "a");
    CHECK_STR(why->cycle[1], "b");
    CHECK(strstr(why->text, "holds a and waits for b; ") && strstr(why->text, "holds b and waits"));
    hf_why_free(why);
    why = why_of(c, "x"); /* no part of it, and stuck all the same */
    CHECK_STR(why->cause, "deadlock");
    CHECK(strstr(why->text, "waits behind a deadlock"));
    CHECK_INT((long long)why->cycle_len, 2);
    hf_why_free(why);
    /* Whoever waits for a lock that is free will get it. */
    unlock_now(b);
    check_why(c, "a", "held", "held by ");
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(x);
    hf_client_free(c);
    hf_client_free(d);
}

TEST(a_semaphore_is_stuck_only_with_all_of_its_holders)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = lock_with(c, "a", hf_semaphore(2)), *other = lock_with(d, "a", hf_semaphore(2));
    hf_lock *b = lock_of(d, "b", 20000);
    lock_now(a);
    lock_now(other);
    lock_now(b);
    wait_for(s, a, "a", "b");
    wait_for(s, b, "b", "a");
    check_why(c, "a", "held", "held by ");
    check_why(c, "b", "held", "held by ");
    wait_for(s, other, "a", "b");
    check_why(c, "a", "deadlock", "deadlock: ");
    check_why(c, "b", "deadlock", "deadlock: ");
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
}

/* ---- keys of others ---- */

TEST(foreign_endless_and_other_data)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    server_ask(s, "SET lock:f token PX 40000");
    server_ask(s, "SET lock:t 1794734822.5 PX 40000");
    server_ask(s, "SET lock:e token");
    server_ask(s, "RPUSH lock:l x");
    server_ask(s, "SET lock:n latch.3.3:1794734822569451:0 PX 40000");
    hf_why_info *why = why_of(c, "f");
    CHECK_STR(why->cause, "foreign");
    CHECK(strstr(why->text, "another program (\"token\")"));
    CHECK_RANGE(why->free_ms, 1, 40000);
    hf_why_free(why);
    check_why(c, "t", "foreign", "another program");
    check_why(c, "e", "no-ttl", "no time to live");
    CHECK_INT(server_int(s, "PTTL lock:e"), -1); /* it only looks */
    check_why(c, "l", "not-a-lock", "another type");
    check_why(c, "n", "not-a-lock", "a latch");
    hf_client_free(c);
}
