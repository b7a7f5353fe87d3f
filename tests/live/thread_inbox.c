/* SPDX-License-Identifier: MIT
 * thread_inbox.c - a thread that waits alone reads the session's messages itself. Whatever becomes
 * of it, nobody else is left without them. Runs under ThreadSanitizer too.
 */
#include <stdbool.h>

#include "harness/proxy.h"
#include "harness/waiting.h"

#if T_THREAD_SANITIZER
#define FEWER(n) ((n) / 3)
#else
#define FEWER(n) (n)
#endif

/* A waiter whom no message reaches finds out by itself, when it looks: every 250 ms. */
#define SLOW_NS 150000000

static void spin_us(uint64_t us)
{
    for (int64_t until = t_now_ns() + (int64_t)us * 1000; t_now_ns() < until;)
        ;
}

/* Two clients: other holds both locks for which threads of c wait. */
struct pair {
    struct server *s;
    hf_client     *c, *other;
    hf_lock       *a, *b;     /* other's */
    struct locker  la, lb;    /* c's */
};

static struct pair pair_new(struct server *s, const char *url)
{
    struct pair p = { .s = s, .c = client_at(url, 0), .other = client_at(server_url(s), 0) };
    p.a = lock_of(p.other, "a", 30000);
    p.b = lock_of(p.other, "b", 30000);
    p.la.m = lock_of(p.c, "a", 30000);
    p.lb.m = lock_of(p.c, "b", 30000);
    p.la.wait_ms = p.lb.wait_ms = HF_WAIT_FOREVER;
    return p;
}

static void pair_free(struct pair *p)
{
    hf_lock_free(p->a);
    hf_lock_free(p->b);
    hf_lock_free(p->la.m);
    hf_lock_free(p->lb.m);
    hf_client_free(p->c);
    hf_client_free(p->other);
}

/* The first waits, alone, then the second. */
static void pair_wait(struct pair *p)
{
    lock_now(p->a);
    lock_now(p->b);
    locker_start(&p->la);
    CHECK_QUEUE(p->s, "a", 1);
    locker_start(&p->lb);
    CHECK_QUEUE(p->s, "b", 1);
}

enum { GRANTED, CANCELLED, TIMED_OUT, WAYS };

/* The first leaves, unless by itself, and the second is granted its lock; or the other way
 * round. */
static void part(struct pair *p, int way, int first, uint64_t lead_us)
{
    for (int i = 0; i < 2; i++) {
        if (i != first)
            unlock_now(p->b);
        else if (way == GRANTED)
            unlock_now(p->a);
        else if (way == CANCELLED)
            hf_lock_cancel(p->la.m);
        if (i == 0)
            spin_us(lead_us);
    }
}

/* Who gives up has to cancel its request; a server that is slow then leaves it unsure. */
static bool join_first(struct pair *p, int way)
{
    CHECK_INT(pthread_join(p->la.thread, NULL), 0);
    hf_err e = p->la.result;
    bool unsure = way != GRANTED && (e == HF_EUNSURE || e == HF_ECONN);
    if (!unsure && e != (way == GRANTED ? HF_OK : way == CANCELLED ? HF_ECANCELED : HF_ETIMEDOUT))
        FAIL("the first got %s (%s)", hf_err_name(e), p->la.error.message);
    return unsure;
}

TEST_TIMEOUT(who_reads_may_leave_while_a_message_for_another_comes, 120)
{
    struct server *s = server_start(NULL);
    struct pair p = pair_new(s, server_url(s));
    int rounds = FEWER(90), slow = 0, unsure = 0;
    t_note("seed %llu", (unsigned long long)t_seed());
    for (int i = 0; i < rounds; i++) {
        int way = i % WAYS;
        p.la.wait_ms = way == TIMED_OUT ? 20 + (int64_t)t_random(20) : HF_WAIT_FOREVER;
        lock_now(p.a);
        lock_now(p.b);
        locker_start(&p.la);
        CHECK_EVENTUALLY(queue_of(s, "a") == 1 || atomic_load(&p.la.done), 10000);
        locker_start(&p.lb);
        CHECK_QUEUE(s, "b", 1);
        if (way == TIMED_OUT) /* at about the same time */
            CHECK_EVENTUALLY(atomic_load(&p.la.done) || t_random(20) == 0, 10000);
        int64_t start = t_now_ns();
        part(&p, way, (int)t_random(2), t_random(200));
        unsure += join_first(&p, way);
        locker_join(&p.lb, HF_OK);
        slow += p.lb.done_ns - start > SLOW_NS || p.la.done_ns - start > SLOW_NS;
        unlock_now(way == GRANTED ? p.la.m : p.a);
        unlock_now(p.lb.m);
    }
    t_note("%d of %d waited for a look, %d unsure", slow, rounds, unsure);
    CHECK(slow <= rounds / 15);
    pair_free(&p);
    if (unsure)
        check_only_ttls(s); /* the cancellation that goes on left its mark */
    else
        CHECK_STR(server_keys(s), ONLY_OURS);
}

/* The same, and the subscription breaks at that moment. Messages are lost then; no waiter is. */
TEST_TIMEOUT(who_reads_may_leave_while_the_connection_breaks, 120)
{
    struct server *s = server_start(NULL);
    struct proxy *x = proxy_start(s);
    struct pair p = pair_new(s, proxy_url(x));
    int rounds = FEWER(45);
    t_note("seed %llu", (unsigned long long)t_seed());
    for (int i = 0; i < rounds; i++) {
        int way = i % 2 ? GRANTED : CANCELLED;
        long before = proxy_connections(x);
        pair_wait(&p);
        if (t_random(2))
            CHECK(kill_inboxes(s) >= 1);
        else
            proxy_break(x);
        spin_us(t_random(400));
        part(&p, way, (int)t_random(2), t_random(200));
        join_first(&p, way);
        locker_join(&p.lb, HF_OK);
        CHECK_EVENTUALLY(proxy_connections(x) > before, 10000);
        if (way == GRANTED)
            unlock_now(p.la.m);
        else
            unlock_now(p.a);
        unlock_now(p.lb.m);
    }
    pair_free(&p);
    check_only_ttls(s);
}

/* ---- beside requests without blocking: nobody waits with those ---- */

static void count(hf_err result, const hf_error *e, void *arg)
{
    if (result)
        FAIL("%s (%s)", hf_err_name(result), e->message);
    ++*(int *)arg;
}

/* Within 20 s; how long it took. */
static int64_t dispatch(hf_client *c, const int *calls, int want)
{
    int fd;
    int64_t start = t_now_ns();
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    while (*calls < want) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        CHECK(t_now_ns() - start < 20000000000);
        if (poll(&p, 1, 1000) == 1)
            hf_client_dispatch(c);
    }
    return t_now_ns() - start;
}

/* A thread read and has gone, before or after the request came: the request is answered at once. */
TEST_TIMEOUT(who_reads_leaves_and_a_request_without_blocking_is_still_answered, 120)
{
    struct server *s = server_start(NULL);
    struct pair p = pair_new(s, server_url(s));
    int rounds = FEWER(60), calls = 0, slow = 0;
    for (int i = 0; i < rounds; i++) {
        lock_now(p.a);
        lock_now(p.b);
        locker_start(&p.la);
        CHECK_QUEUE(s, "a", 1);
        if (i % 2) {
            unlock_now(p.a);
            locker_join(&p.la, HF_OK);
        }
        CHECK_HF(hf_lock_acquire_async(p.lb.m, HF_WAIT_FOREVER, count, &calls, &err), HF_OK);
        LOOP_QUEUE(p.c, s, "b", 1);
        if (i % 2 == 0) {
            unlock_now(p.a);
            locker_join(&p.la, HF_OK);
        }
        unlock_now(p.b);
        slow += dispatch(p.c, &calls, i + 1) > SLOW_NS;
        unlock_now(p.lb.m);
        unlock_now(p.la.m);
    }
    t_note("%d of %d waited for a look", slow, rounds);
    CHECK(slow <= rounds / 15);
    pair_free(&p);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- proofs ---- */

static void count_event(hf_lock *m, hf_state state, void *arg)
{
    (void)m;
    (void)state;
    atomic_fetch_add((atomic_int *)arg, 1);
}

static long long pings(struct server *s)
{
    const char *p = strstr(server_ask(s, "INFO commandstats"), "cmdstat_ping:calls=");
    return p ? atoll(p + strlen("cmdstat_ping:calls=")) : 0;
}

/* What another lock of the client lives on is read by the thread that waits. */
TEST(P5_A2_a_held_lock_is_proven_while_another_thread_reads)
{
    struct server *s = server_start(NULL);
    struct pair p = pair_new(s, server_url(s));
    atomic_int events = 0;
    hf_lock *held = lock_with(p.c, "held", (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = 2000,
                                                              .on_event = count_event,
                                                              .event_arg = &events });
    lock_now(held);
    lock_now(p.a);
    locker_start(&p.la);
    CHECK_QUEUE(s, "a", 1);
    long long first = pings(s);
    CHECK_EVENTUALLY(pings(s) >= first + 6, 15000);
    CHECK_INT(hf_lock_state(held), HF_STATE_SAFE);
    CHECK_INT(atomic_load(&events), 0);
    CHECK(hf_lock_time_left_ms(held) > 500);
    unlock_now(p.a);
    locker_join(&p.la, HF_OK);
    unlock_now(p.la.m);
    unlock_now(held);
    hf_lock_free(held);
    pair_free(&p);
}

/* The thread that waits finds the end of the connection, and the session comes back at once. */
TEST(P5_a_held_lock_outlives_a_break_that_a_waiting_thread_finds)
{
    struct server *s = server_start(NULL);
    struct pair p = pair_new(s, server_url(s));
    hf_lock *held = lock_with(p.c, "held", (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = 5000 });
    lock_now(held);
    for (int i = 0; i < 5; i++) {
        lock_now(p.a);
        locker_start(&p.la);
        CHECK_QUEUE(s, "a", 1);
        CHECK(kill_inboxes(s) >= 1);
        CHECK_EVENTUALLY(is_present(s, hf_lock_owner(held)), 10000);
        unlock_now(p.a);
        locker_join(&p.la, HF_OK);
        unlock_now(p.la.m);
        CHECK_INT(hf_lock_is_held(held), 1);
    }
    unlock_now(held);
    hf_lock_free(held);
    pair_free(&p);
}

/* The last proof of presence may come while the client is being freed. */
TEST(a_client_can_be_freed_while_a_ping_is_answered)
{
    struct server *s = server_start(NULL);
    for (int i = 0; i < 50; i++) {
        hf_client *c = client_at(server_url(s), 0);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000, .grace_ms = 200 });
        lock_now(m);
        /* The next pong finds that nobody needs proofs any more. On a busy machine a grace as short
         * as this may be over by now. */
        hf_err e = hf_lock_release(m, &err);
        CHECK(e == HF_OK || e == HF_ELOST);
        hf_lock_free(m);
        usleep(48000 + (useconds_t)t_random(4000)); /* a ping every 50 ms */
        hf_client_free(c);
    }
}
