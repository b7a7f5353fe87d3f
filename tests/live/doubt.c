/* SPDX-License-Identifier: MIT
 * doubt.c - P8: replies that are lost, requests that arrive late, releases nobody confirmed.
 */
#define LIVE_SCRIPTS
#include <stdatomic.h>

#include "harness/history.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

/* What a copy of the acquire that was under way all the time does when it arrives: the reply. */
static const char *late_acquire(struct server *s, const char *token)
{
    return server_ask(s, "EVAL %s 5 lock:a " FENCE_KEY " {lock:a}:q {lock:a}:t {lock:a}:own %s "
                      "30000 0 1000 0", lua_text[LUA_acquire], token);
}

static long long counter(struct server *s)
{
    return atoll(server_ask(s, "GET " FENCE_KEY));
}

TEST(P8_reply_lost_and_request_repeated_gives_the_same_grant_and_number)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    unlock_now(m);
    for (int i = 0; i < 20; i++) {
        long cuts = proxy_cuts(p);
        long long before = counter(s);
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_cut_after(p, 0);
        uint64_t f = lock_now(m);
        CHECK_INT(proxy_cuts(p), cuts + 1); /* the fault did happen */
        CHECK_INT((long long)f, before + 1); /* one grant, one number */
        CHECK_INT(counter(s), before + 1);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        /* B1: its acquire was sent twice, so the release leaves a tombstone. */
        char token[64];
        snprintf(token, sizeof token, "%s", hf_lock_owner(m));
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        CHECK_STR(late_acquire(s, token), "-2");
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    }
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:t"), 1, 600000);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P8_the_connection_cut_at_every_byte_of_the_reply_gives_the_right_verdict)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 20000), *busy = lock_of(other, "a", 20000);
    lock_now(m);
    unlock_now(m);
    /* ":1763000000000000\r\n" has 19 bytes. */
    for (size_t k = 0; k <= 19; k++) {
        long cuts = proxy_cuts(p);
        long long before = counter(s);
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_cut_after(p, k);
        uint64_t f = lock_now(m);
        CHECK_INT(proxy_cuts(p), cuts + 1);
        CHECK_INT((long long)f, before + 1);
        CHECK_INT(counter(s), before + 1);
        CHECK_HF(hf_lock_try(busy, NULL, &err), HF_EBUSY);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    }
    /* And of a refusal: "*3\r\n:-1\r\n:19999\r\n$..." */
    lock_now(busy);
    for (size_t k = 0; k <= 70; k += k < 20 ? 1 : 10) {
        long cuts = proxy_cuts(p);
        long long before = counter(s);
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_cut_after(p, k);
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
        CHECK_INT(err.known, HF_KNOWN_UNCHANGED);
        CHECK_INT(proxy_cuts(p), cuts + 1);
        CHECK_INT(counter(s), before);
        CHECK_HF(hf_lock_verify(busy, &err), HF_OK);
    }
    hf_lock_free(m);
    hf_lock_free(busy);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P8_a_given_up_request_that_arrives_late_takes_nothing)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(other, "a", 20000);
    for (int i = 0; i < 5; i++) {
        proxy_hold(p);
        CHECK_HF(hf_lock_acquire(m, 150, NULL, &err), HF_EUNSURE);
        CHECK_INT(err.known, HF_KNOWN_NOTHING);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
        CHECK(proxy_held(p) > 0); /* the request is on the wire */
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        /* All of it arrives now, the acquire before or after its cancellation. */
        proxy_pass(p);
        CHECK_EVENTUALLY(proxy_held(p) == 0, 2000);
        CHECK_HF(hf_lock_acquire(o, 5000, NULL, &err), HF_OK); /* not after 30 s */
        unlock_now(o);
        uint64_t f = lock_now(m); /* and the handle can be used again */
        CHECK(f > 0);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(P8_replies_dropped_until_the_deadline_end_in_unsure_and_a_free_lock)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1000), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(other, "a", 20000);
    proxy_drop_replies(p);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EUNSURE);
    CHECK_CONTAINS(err.message, strstr(proxy_url(p), ":///") + 3); /* which server it was */
    CHECK_CONTAINS(err.message, "did not answer a request");
    CHECK_TOOK(t_now_ms() - start, 900, 3500);
    CHECK(proxy_dropped(p) > 0);
    CHECK_INT(hf_lock_is_held(m), 0);
    proxy_pass(p);
    CHECK_HF(hf_lock_acquire(o, 5000, NULL, &err), HF_OK);
    unlock_now(o);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P8_the_reply_of_a_release_is_lost_and_the_request_repeated)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(other, "a", 30000);
    lock_now(m);
    unlock_now(m); /* the script is known to the server now */
    for (size_t k = 0; k <= 4; k++) { /* ":1\r\n" */
        long cuts = proxy_cuts(p);
        lock_now(m);
        proxy_when(p, lua_sha[LUA_release]);
        proxy_cut_after(p, k);
        CHECK_HF(hf_lock_release(m, &err), HF_OK);
        if (k < 4)
            CHECK_INT(proxy_cuts(p), cuts + 1);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
        /* The next owner is not disturbed by a repeated release. */
        lock_now(o);
        CHECK_HF(hf_lock_verify(o, &err), HF_OK);
        unlock_now(o);
    }
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(P8_a_release_nobody_answers_is_unsure_and_leaves_the_handle_free)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1200), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *o = lock_of(other, "a", 30000);

    lock_now(m);
    unlock_now(m); /* the script is known to the server now */

    /* Executed, but the answer is lost. */
    lock_now(m);
    proxy_drop_replies(p);
    CHECK_HF(hf_lock_release(m, &err), HF_EUNSURE);
    CHECK_CONTAINS(err.message, "the release of \"a\" was not confirmed, and it is free in 30.");
    CHECK(proxy_dropped(p) > 0);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
    CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
    uint64_t f = lock_now(o); /* it had been released */
    proxy_pass(p);
    t_sleep_ms(600); /* the background tries again: o must not feel it (P2) */
    CHECK_HF(hf_lock_verify(o, &err), HF_OK);
    CHECK(hf_lock_fence(o) == f);
    unlock_now(o);

    /* Never arrived in time: still free long before the ttl of 30 s. */
    lock_now(m);
    proxy_hold(p);
    CHECK_HF(hf_lock_release(m, &err), HF_EUNSURE);
    CHECK(proxy_held(p) > 0);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 1);
    proxy_pass(p);
    CHECK_HF(hf_lock_acquire(o, 8000, NULL, &err), HF_OK);
    unlock_now(o);

    /* The server is gone: no request left, and it says so. */
    lock_now(m);
    proxy_refuse(p);
    proxy_break(p);
    hf_err e = hf_lock_release(m, &err);
    CHECK(e == HF_ECONN || e == HF_EUNSURE);
    CHECK(proxy_refused(p) > 0);
    CHECK_INT(hf_lock_is_held(m), 0);
    proxy_pass(p);
    CHECK_HF(hf_lock_acquire(o, 8000, NULL, &err), HF_OK);
    unlock_now(o);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(other);
}

/* B1: a token whose acquire was sent twice is never left without a tombstone, also when the lock
 * was lost meanwhile: the first copy may still be under way. */
TEST(P8_B1_unlock_of_a_lost_lock_whose_acquire_was_in_doubt_leaves_a_tombstone)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", 4000);
    char token[64];
    lock_now(m);
    unlock_now(m);
    proxy_when(p, lua_sha[LUA_acquire]);
    proxy_cut_after(p, 0);
    lock_now(m);
    CHECK_INT(proxy_cuts(p), 1);
    snprintf(token, sizeof token, "%s", hf_lock_owner(m));
    server_ask(s, "DEL lock:a"); /* an operator breaks it */
    CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    hf_lock_free(m);
    hf_client_free(c); /* also waits for what was left to the background */
    CHECK_STR(late_acquire(s, token), "-2");
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(P8_a_handle_with_an_owner_id_repeats_safely_too)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000), *c2 = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 20000, .owner = hf_str("worker-7") };
    hf_lock *m = lock_with(c, "a", o), *twin = lock_with(c2, "a", o);
    lock_now(m);
    unlock_now(m);
    for (int i = 0; i < 5; i++) {
        long long before = counter(s);
        long cuts = proxy_cuts(p);
        proxy_when(p, lua_sha[LUA_acquire]);
        proxy_cut_after(p, 0);
        uint64_t f = lock_now(m);
        CHECK_INT(proxy_cuts(p), cuts + 1);
        CHECK_INT((long long)f, before + 1);
        CHECK_STR(server_ask(s, "GET lock:a"), "worker-7");
        /* B3: the same id elsewhere is another hold, not a repetition. */
        CHECK_HF(hf_lock_try(twin, NULL, &err), HF_EBUSY);
        unlock_now(m);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
    }
    /* hf_owner_acquire: the reply lost, the request repeated. */
    proxy_when(p, lua_sha[LUA_acquire]);
    proxy_cut_after(p, 0);
    long long before = counter(s);
    long cuts = proxy_cuts(p);
    uint64_t f = 0;
    CHECK_HF(hf_owner_acquire(c, hf_str("a"), 5000, hf_str("id"), &f, &err), HF_OK);
    CHECK_INT(proxy_cuts(p), cuts + 1);
    CHECK_INT((long long)f, before + 1);
    proxy_when(p, "release");
    proxy_cut_after(p, 0);
    CHECK_HF(hf_owner_release(c, hf_str("a"), hf_str("id"), &err), HF_OK);
    CHECK_INT(proxy_cuts(p), cuts + 2);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:own"), 0);
    hf_lock_free(m);
    hf_lock_free(twin);
    hf_client_free(c);
    hf_client_free(c2);
}

TEST(P8_NOSCRIPT_and_SCRIPT_FLUSH_in_a_loop_are_invisible)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 6000); /* a machine that stands still for two seconds loses none */
    uint64_t last = 0;
    int flushed = 0;
    for (int64_t until = t_now_ms() + 1500; t_now_ms() < until; flushed++) {
        server_ask(s, "SCRIPT FLUSH");
        uint64_t f = lock_now(m);
        CHECK(f > last);
        last = f;
        server_ask(s, "SCRIPT FLUSH");
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
        CHECK_HF(hf_lock_extend(m, 2500, &err), HF_OK);
        server_ask(s, "SCRIPT FLUSH");
        unlock_now(m);
        CHECK_HF(hf_owner_check(c, hf_str("a"), hf_str("x"), NULL, &err), HF_ENOTOWNER);
    }
    lock_now(m);
    for (int64_t until = t_now_ms() + 3000; t_now_ms() < until; t_sleep_ms(20))
        server_ask(s, "SCRIPT FLUSH"); /* renewals meet it too */
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK(flushed > 10);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(a_request_is_delayed_but_answered_within_the_limit)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", 4000);
    proxy_delay(p, 100);
    int64_t start = t_now_ms();
    lock_now(m);
    /* Counted from before the sending: 200 ms under way have already been taken off. */
    CHECK(hf_lock_time_left_ms(m) <= 4000 - 40 - 2 - 190);
    CHECK(t_now_ms() - start >= 190);
    CHECK(proxy_delayed(p) > 0);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- requests that are larger than what a socket takes ---- */

static char large[HF_VALUE_MAX];

struct putter {
    hf_client *c;
    hf_lock   *m;
    hf_err     result;
    hf_error   error;
    pthread_t  thread;
};

static void *put_large(void *arg)
{
    struct putter *p = arg;
    p->result = hf_once_put(p->c, hf_str("v"), p->m, (hf_bytes){ large, sizeof large }, 60000, 0,
                            &p->error);
    return NULL;
}

/* It is there as a whole, or not at all. */
static void check_large(hf_client *c)
{
    hf_value *v = NULL;
    CHECK_HF(hf_once_get(c, hf_str("v"), &v, &err), HF_OK);
    if (v && v->data) {
        t_note("%zu bytes", v->len);
        CHECK_MEM(v->data, v->len, large, sizeof large);
    }
    hf_value_free(v);
}

/* Its time is up when a part of it has left: the rest follows, or nobody could be understood. */
TEST(P8_a_request_is_given_up_when_a_part_of_it_was_written)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 120000);
    memset(large, 'x', sizeof large);
    lock_now(m);
    struct putter p = { .c = client_at(server_url(s), 1000) };
    p.m = lock_of(p.c, "v", 120000);
    lock_now(p.m);
    server_freeze(s);
    put_large(&p);
    CHECK(p.result == HF_EUNSURE || p.result == HF_ECONN);
    server_thaw(s);
    CHECK_EVENTUALLY(hf_lock_verify(p.m, &err) == HF_OK, 30000);
    CHECK_EVENTUALLY(hf_lock_verify(m, &err) == HF_OK, 30000);
    check_large(c);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(p.m);
    hf_client_free(p.c);
    hf_client_free(c);
}

/* The server dies then: it has executed nothing of it. */
TEST(P8_the_connection_breaks_when_a_part_of_a_request_was_written)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    struct putter p = { .c = client_at(server_url(s), 5000) };
    p.m = lock_of(p.c, "v", 120000);
    memset(large, 'x', sizeof large);
    lock_now(p.m);
    server_freeze(s);
    CHECK_INT(pthread_create(&p.thread, NULL, put_large, &p), 0);
    t_sleep_ms(300); /* it has written what it can */
    server_kill(s);
    server_restart(s);
    CHECK_INT(pthread_join(p.thread, NULL), 0);
    t_note("%s: %s", hf_err_name(p.result), p.result ? p.error.message : "");
    hf_client *c = client_at(server_url(s), 0);
    check_large(c);
    hf_client_free(c);
    hf_lock_free(p.m);
    hf_client_free(p.c);
}

TEST(P1_a_grant_that_comes_when_its_lease_is_over_is_no_grant)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", 150);
    proxy_delay(p, 200);
    hf_err e = hf_lock_try(m, NULL, &err);
    CHECK(e != HF_OK);
    CHECK(proxy_delayed(p) > 0);
    CHECK_INT(hf_lock_is_held(m), 0);
    t_note("%s: %s", hf_err_name(e), err.message);
    CHECK_CONTAINS(err.message, "ttl");
    CHECK_INT(err.known, HF_KNOWN_NOT_HELD); /* nobody else has it, either, before it is back */
    proxy_pass(p);
    /* What is under way is late. */
    CHECK_EVENTUALLY(hf_lock_try(m, NULL, &err) == HF_OK, 5000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the same at random ---- */

struct chaos {
    struct server  *s;
    struct proxy   *p;
    struct history *h;
    struct {
        atomic_int go, stop, grants;
    } *mem;
};

enum { INJECTIONS = 20, GRANTS = 100 }; /* at least */

/* Whether each kind of trouble was felt, and often enough. */
static int troubled(const struct chaos *ch, int injected)
{
    return injected >= INJECTIONS && atomic_load(&ch->mem->grants) > GRANTS
           && proxy_cuts(ch->p) > 0 && proxy_dropped(ch->p) > 0;
}

static void chaotic(int index, void *arg)
{
    struct chaos *ch = arg;
    hf_client *c = NULL;
    /* ASan's allocator is not for forking while another thread, here the proxy's, is in it. */
    CHECK_EVENTUALLY(atomic_load(&ch->mem->go), 10000);
    /* The proxy may cut the connection while it is opened: then once more. */
    for (int i = 0; !c && i < 100; i++)
        (void)!hf_client_open(proxy_url(ch->p), &(hf_client_opts){ .size = sizeof(hf_client_opts),
                              .timeout_ms = 500 }, &c, &err);
    CHECK(c);
    hf_lock *m = lock_of(c, "a", 1000);
    while (!atomic_load(&ch->mem->stop)) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        hf_err e = hf_lock_acquire(m, (int64_t)t_random(400), &fence, &err);
        if (e && e != HF_EBUSY && e != HF_ETIMEDOUT && e != HF_EUNSURE && e != HF_ECONN)
            FAIL("lock: %s: %s", hf_err_name(e), err.message);
        if (e)
            continue;
        struct grant *g = history_grant(ch->h, 0, (uint32_t)index, fence, invoke,
                                        t_now_ns() + hf_lock_time_left_ms(m) * 1000000);
        t_sleep_ms((int64_t)t_random(3));
        history_release(g);
        atomic_fetch_add(&ch->mem->grants, 1);
        e = hf_lock_release(m, &err);
        CHECK(e == HF_OK || e == HF_EUNSURE || e == HF_ECONN || e == HF_ELOST);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P1_P4_P8_cuts_drops_holds_and_breaks_at_random)
{
    struct chaos ch = { .s = server_start(NULL), .h = history_new(100000) };
    struct history_report r;
    ch.p = proxy_start(ch.s);
    ch.mem = shared_memory(sizeof *ch.mem);
    int injected = 0;
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(5, chaotic, &ch);
    atomic_store(&ch.mem->go, 1);
    for (int64_t until = t_now_ms() + 4500; t_now_ms() < until || !troubled(&ch, injected);)
        proxy_trouble(ch.p), injected++;
    atomic_store(&ch.mem->stop, 1);
    workers_join(w, 20000);
    CHECK_INT((long long)history_check(ch.h, &r), 0);
    t_note("%d faults, %ld cuts, %ld bytes dropped", injected, proxy_cuts(ch.p),
           proxy_dropped(ch.p));
    CHECK(troubled(&ch, injected) && r.grants > GRANTS);
    CHECK_EVENTUALLY(server_int(ch.s, "EXISTS lock:a") == 0, 3000);
}
