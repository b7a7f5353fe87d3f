/* SPDX-License-Identifier: MIT
 * latch.c - LA1 to LA6 of src/lock/latch.c: count down, wait for zero.
 */
#include <signal.h>
#include <sys/wait.h>

#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_latch *latch_with(hf_client *c, const char *name, int64_t ttl_ms)
{
    hf_latch *lt = NULL;
    hf_latch_opts o = { .size = sizeof o, .ttl_ms = ttl_ms };
    CHECK_HF(hf_latch_open(c, hf_str(name), &o, &lt, &err), HF_OK);
    CHECK(lt);
    return lt;
}

static hf_latch *latch_of(hf_client *c, const char *name)
{
    return latch_with(c, name, 0);
}

static uint32_t down(hf_latch *lt, uint32_t n)
{
    uint32_t left = 12345;
    CHECK_HF(hf_latch_count_down(lt, n, &left, &err), HF_OK);
    return left;
}

static uint32_t left_of(hf_latch *lt)
{
    uint32_t left = 12345;
    CHECK_HF(hf_latch_count(lt, &left, NULL, &err), HF_OK);
    return left;
}

/* A thread that waits, on a handle of its own. */
struct latch_waiter {
    hf_latch  *lt;
    int64_t    wait_ms;
    hf_err     result;
    hf_error   error;
    atomic_int done;
    pthread_t  thread;
};

static void *waiter_main(void *arg)
{
    struct latch_waiter *w = arg;
    w->result = hf_latch_wait(w->lt, w->wait_ms, &w->error);
    atomic_store(&w->done, 1);
    return NULL;
}

static void waiter_start(struct latch_waiter *w)
{
    atomic_store(&w->done, 0);
    CHECK_INT(pthread_create(&w->thread, NULL, waiter_main, w), 0);
}

static void waiter_join(struct latch_waiter *w, hf_err want)
{
    CHECK_INT(pthread_join(w->thread, NULL), 0);
    if (w->result != want)
        FAIL("the waiter got %s (%s), not %s", hf_err_name(w->result), w->error.message,
             hf_err_name(want));
}

static long long listeners_of(struct server *s, const char *name)
{
    return server_int(s, "ZCARD {lock:%s}:l", name);
}

#define CHECK_LISTENERS(s, name, n) CHECK_EVENTUALLY(listeners_of(s, name) == (n), 10000)

/* ---- LA1 ---- */

TEST(LA1_a_wait_ends_at_zero_and_not_before)
{
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(b, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 3, &err), HF_OK);
    CHECK_INT(left_of(setter), 3);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    CHECK_INT(down(setter, 1), 2);
    CHECK_INT(down(setter, 1), 1);
    CHECK_INT(atomic_load(&w.done), 0);
    CHECK_INT(listeners_of(s, "a"), 1); /* nobody was told for nothing */
    CHECK_INT(down(setter, 1), 0);
    waiter_join(&w, HF_OK);
    CHECK_HF(hf_latch_wait(w.lt, 0, &err), HF_OK); /* it stays open */
    CHECK_HF(hf_latch_wait(setter, HF_WAIT_FOREVER, &err), HF_OK);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
    hf_client_free(b);
    CHECK_INT(listeners_of(s, "a"), 0);
    check_only_ttls(s);
}

TEST(LA1_a_wait_for_a_latch_that_is_not_set_yet)
{
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(b, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_wait(setter, 0, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "not set yet");
    CHECK_HF(hf_latch_wait(setter, 50, &err), HF_ETIMEDOUT);
    CHECK_CONTAINS(err.message, "not set yet after 50 ms");
    CHECK_HF(hf_latch_count(setter, NULL, NULL, &err), HF_ENOTSET);
    CHECK_HF(hf_latch_count_down(setter, 1, NULL, &err), HF_ENOTSET);
    CHECK_CONTAINS(err.message, "there is no latch \"a\"");
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    CHECK_LISTENERS(s, "a", 1); /* rung, and back on the list */
    CHECK_INT(atomic_load(&w.done), 0);
    CHECK_INT(down(setter, 1), 0);
    waiter_join(&w, HF_OK);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
    hf_client_free(b);
}

TEST(LA1_a_wait_in_vain_says_how_much_is_left_and_leaves_the_list)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    CHECK_HF(hf_latch_set(lt, 5, &err), HF_OK);
    CHECK_INT(down(lt, 2), 3);
    CHECK_HF(hf_latch_wait(lt, 0, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "3 of 5 left");
    CHECK_HF(hf_latch_wait(lt, 60, &err), HF_ETIMEDOUT);
    CHECK_CONTAINS(err.message, "still counting down after 60 ms: 3 of 5 left");
    CHECK_INT(listeners_of(s, "a"), 0);
    CHECK_HF(hf_latch_wait(lt, -2, &err), HF_EINVAL);
    CHECK_HF(hf_latch_set(lt, 0, &err), HF_EINVAL);
    CHECK_HF(hf_latch_set(lt, HF_LATCH_MAX + 1, &err), HF_EINVAL);
    CHECK_HF(hf_latch_count_down(lt, 0, NULL, &err), HF_EINVAL);
    hf_latch_free(lt);
    hf_client_free(c);
}

/* Without a subscription there are no rings: by polling. */
TEST(LA1_a_wait_without_the_right_to_subscribe)
{
    struct server *s = server_start(NULL);
    server_ask(s, "ACL SETUSER poor on nopass ~* &* +@all -subscribe");
    char url[300];
    snprintf(url, sizeof url, "unix://poor:x@%s", server_socket(s));
    hf_client *a = client_at(server_url(s), 0), *b = client_at(url, 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(b, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    CHECK_STR(server_ask(s, "PUBSUB CHANNELS"), ""); /* the fault is real */
    CHECK_INT(down(setter, 1), 0);
    waiter_join(&w, HF_OK);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
    hf_client_free(b);
}

/* ---- LA2 ---- */

TEST(LA2_never_below_zero)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    uint32_t total = 0;
    CHECK_HF(hf_latch_set(lt, 3, &err), HF_OK);
    CHECK_INT(down(lt, HF_LATCH_MAX), 0);
    CHECK_INT(down(lt, 1), 0);
    CHECK_HF(hf_latch_count(lt, NULL, &total, &err), HF_OK);
    CHECK_INT(total, 3);
    CHECK_CONTAINS(server_ask(s, "GET lock:a"), "latch.0.3:");
    hf_latch_free(lt);
    hf_client_free(c);
}

TEST(LA2_a_count_down_whose_reply_is_lost_counts_once)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 10000), *slow = client_at(proxy_url(p), 1200);
    hf_latch *lt = latch_of(c, "a"), *unsure = latch_of(slow, "a");
    CHECK_HF(hf_latch_set(lt, 100, &err), HF_OK);
    uint32_t want = 100;
    for (int i = 0; i < 20; i++) { /* sent again by itself */
        proxy_cut_after(p, (size_t)i % 4);
        CHECK_INT(down(lt, 1), --want);
    }
    CHECK(proxy_cuts(p) >= 10);
    CHECK_INT(left_of(lt), want);
    long dropped = proxy_dropped(p);
    proxy_drop_replies(p);
    CHECK_HF(hf_latch_count_down(unsure, 5, NULL, &err), HF_EUNSURE);
    CHECK(proxy_dropped(p) > dropped);
    proxy_pass(p);
    CHECK_INT(down(unsure, 5), want - 5); /* the same request */
    CHECK_INT(left_of(lt), want - 5);
    CHECK_INT(down(unsure, 5), want - 10); /* another one */
    hf_latch_free(lt);
    hf_latch_free(unsure);
    hf_client_free(c);
    hf_client_free(slow);
    check_only_ttls(s);
}

TEST(LA2_a_setting_whose_reply_is_lost_sets_once)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 10000);
    hf_latch *lt = latch_of(c, "a");
    for (int i = 0; i < 10; i++) {
        proxy_cut_after(p, 0);
        CHECK_HF(hf_latch_set(lt, 2, &err), HF_OK); /* else: busy with itself */
        CHECK_INT(down(lt, 2), 0);
    }
    CHECK(proxy_cuts(p) >= 10);
    hf_latch_free(lt);
    hf_client_free(c);
}

/* ---- LA3 ---- */

TEST(LA3_a_latch_is_set_again_only_at_zero)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    CHECK_HF(hf_latch_set(lt, 2, &err), HF_OK);
    const char *before = server_ask(s, "GET lock:a");
    CHECK_HF(hf_latch_set(lt, 9, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "still counting down, 2 of 2 left");
    CHECK_STR(server_ask(s, "GET lock:a"), before);
    CHECK_INT(down(lt, 2), 0);
    CHECK_HF(hf_latch_set(lt, 9, &err), HF_OK);
    CHECK_CONTAINS(server_ask(s, "GET lock:a"), "latch.9.9:");
    CHECK(strcmp(strchr(server_ask(s, "GET lock:a"), ':'), strchr(before, ':')) > 0);
    CHECK_HF(hf_latch_reset(lt, 4, &err), HF_OK);
    CHECK_INT(left_of(lt), 4);
    hf_latch_free(lt);
    hf_client_free(c);
}

TEST(LA3_a_forced_reset_ends_the_waits_for_the_old_one)
{
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w[3];
    CHECK_HF(hf_latch_set(setter, 2, &err), HF_OK);
    for (int i = 0; i < 3; i++) {
        w[i] = (struct latch_waiter){ .lt = latch_of(b, "a"), .wait_ms = 30000 };
        waiter_start(&w[i]);
    }
    CHECK_LISTENERS(s, "a", 3);
    CHECK_HF(hf_latch_reset(setter, 2, &err), HF_OK);
    for (int i = 0; i < 3; i++) {
        waiter_join(&w[i], HF_EBROKEN);
        CHECK_CONTAINS(w[i].error.message, "was reset while it was waited for");
        hf_latch_free(w[i].lt);
    }
    CHECK_INT(left_of(setter), 2);
    hf_latch_free(setter);
    hf_client_free(a);
    hf_client_free(b);
}

/* The ring is lost, and the latch is set anew before the waiter asks: its own had reached zero. */
TEST(LA3_a_late_waiter_of_a_finished_latch_is_not_told_that_it_was_reset)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *a = client_at(server_url(s), 0), *b = client_at(proxy_url(p), 0);
    hf_latch *setter = latch_of(a, "a"), *probe = latch_of(b, "a");
    struct latch_waiter w = { .lt = latch_of(b, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    CHECK_INT(left_of(probe), 1); /* by now the waiter knows for what it waits, too */
    long dropped = proxy_dropped(p);
    proxy_drop_replies(p);
    CHECK_INT(down(setter, 1), 0);
    CHECK_HF(hf_latch_set(setter, 7, &err), HF_OK);
    CHECK_EVENTUALLY(proxy_dropped(p) > dropped, 10000);
    CHECK_INT(atomic_load(&w.done), 0);
    proxy_pass(p);
    proxy_break(p);
    waiter_join(&w, HF_OK);
    CHECK_INT(left_of(setter), 7);
    hf_latch_free(setter);
    hf_latch_free(probe);
    hf_latch_free(w.lt);
    hf_client_free(a);
    hf_client_free(b);
}

/* ---- LA4 ---- */

struct crowd {
    struct server *s;
    struct {
        atomic_int  ready, through, early;
        atomic_int  zero;
        atomic_long begun, counted;
    } *mem;
};

static void waits_and_passes(int index, void *arg)
{
    struct crowd *cr = arg;
    (void)index;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_latch *lt = latch_of(c, "a");
    atomic_fetch_add(&cr->mem->ready, 1);
    CHECK_HF(hf_latch_wait(lt, 40000, &err), HF_OK);
    if (!atomic_load(&cr->mem->zero))
        atomic_fetch_add(&cr->mem->early, 1);
    atomic_fetch_add(&cr->mem->through, 1);
    hf_latch_free(lt);
    hf_client_free(c);
}

TEST(LA4_100_processes_wait_and_all_are_told)
{
    enum { N = 100 };
    struct crowd cr = { .s = server_start(NULL) };
    cr.mem = shared_memory(sizeof *cr.mem);
    struct workers *w = workers_start(N, waits_and_passes, &cr);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_latch *lt = latch_of(c, "a");
    CHECK_HF(hf_latch_set(lt, 3, &err), HF_OK);
    CHECK_EVENTUALLY(listeners_of(cr.s, "a") == N, 30000);
    for (int i = 0; i < 10; i++) /* some die while they wait */
        workers_signal(w, i, SIGKILL);
    CHECK_INT(down(lt, 2), 1);
    CHECK_INT(atomic_load(&cr.mem->through), 0);
    int64_t start = t_now_ms();
    atomic_store(&cr.mem->zero, 1);
    CHECK_INT(down(lt, 1), 0);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->through) == N - 10, 20000);
    t_note("%d processes were through after %lld ms", N - 10, (long long)(t_now_ms() - start));
    workers_join(w, 20000);
    CHECK_INT(atomic_load(&cr.mem->early), 0);
    CHECK_INT(listeners_of(cr.s, "a"), 0);
    hf_latch_free(lt);
    hf_client_free(c);
    check_only_ttls(cr.s);
}

/* One script rings 1000; those who are rung see to the rest. */
TEST(LA4_more_than_one_script_may_ring_are_told_all_the_same)
{
    enum { DEAD = 2500 };
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(a, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    server_ask(s, "EVAL %s 1 {lock:a}:l %d",
               "local t = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')"
               "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', KEYS[1], t[2] + 1,"
               " string.format('%032x.%d', i, i)) end", DEAD);
    CHECK_INT(listeners_of(s, "a"), DEAD + 1);
    server_monitor_start(s);
    CHECK_INT(down(setter, 1), 0);
    waiter_join(&w, HF_OK);
    CHECK_INT(listeners_of(s, "a"), DEAD + 1 - 2000); /* the setter's thousand, and the waiter's */
    CHECK_INT(server_monitor_count(s, "\"ring "), 2000);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
    check_only_ttls(s);
}

TEST(LA4_nobody_waits_on_for_a_latch_that_is_gone)
{
    struct server *s = server_start(NULL);
    hf_client *a = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(a, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    server_ask(s, "DEL lock:a"); /* publishes nothing */
    waiter_join(&w, HF_EBROKEN);
    CHECK_CONTAINS(w.error.message, "went from the server");
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    CHECK_INT(left_of(setter), 1); /* behind the waiter's question: it knows what it waits for */
    server_kill(s);
    server_restart(s); /* without its data */
    waiter_join(&w, HF_EBROKEN);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
}

TEST(LA4_a_wait_goes_on_over_a_restart_that_keeps_the_data)
{
    struct server_opts o = { .aof = 1 };
    struct server *s = server_start_opts(&o);
    hf_client *a = client_at(server_url(s), 0);
    hf_latch *setter = latch_of(a, "a");
    struct latch_waiter w = { .lt = latch_of(a, "a"), .wait_ms = 30000 };
    CHECK_HF(hf_latch_set(setter, 1, &err), HF_OK);
    waiter_start(&w);
    CHECK_LISTENERS(s, "a", 1);
    server_kill(s);
    server_restart(s);
    CHECK_EVENTUALLY(strcmp(server_ask(s, "PUBSUB CHANNELS"), "") != 0, 10000);
    CHECK_INT(atomic_load(&w.done), 0);
    CHECK_INT(down(setter, 1), 0);
    waiter_join(&w, HF_OK);
    hf_latch_free(setter);
    hf_latch_free(w.lt);
    hf_client_free(a);
}

/* ---- LA5 ---- */

static void refuses(struct server *s, hf_latch *lt, const char *text)
{
    const char *before = server_ask(s, "DUMP lock:a");
    uint32_t left = 77;
    CHECK_HF(hf_latch_set(lt, 3, &err), HF_ETYPE);
    CHECK_CONTAINS(err.message, text);
    CHECK_HF(hf_latch_reset(lt, 3, &err), HF_ETYPE);
    CHECK_HF(hf_latch_count_down(lt, 1, &left, &err), HF_ETYPE);
    CHECK_HF(hf_latch_count(lt, &left, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_latch_wait(lt, 0, &err), HF_ETYPE);
    CHECK_HF(hf_latch_wait(lt, 5000, &err), HF_ETYPE);
    CHECK_CONTAINS(err.message, text);
    CHECK_INT(left, 77);
    CHECK_STR(server_ask(s, "DUMP lock:a"), before);
}

TEST(LA5_what_else_stands_on_the_key_is_not_touched)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    server_ask(s, "RPUSH lock:a x");
    refuses(s, lt, "data of another type");
    server_ask(s, "DEL lock:a");
    server_ask(s, "SET lock:a barrier.3.1:1800000000000000:0 PX 60000");
    refuses(s, lt, "\"a\" is a barrier, not a latch");
    server_ask(s, "SET lock:a whatever PX 60000");
    refuses(s, lt, "\"a\" is a lock that is held, not a latch");
    server_ask(s, "SET lock:a %b PX 60000", "", (size_t)0);
    refuses(s, lt, "\"a\" is a lock that is held");
    server_ask(s, "SET lock:a latch.x.3:1:0 PX 60000");
    refuses(s, lt, "not a latch");
    server_ask(s, "DEL lock:a");
    for (int i = 0; i < 2; i++) {
        server_ask(s, "SET {lock:a}:%s x", i ? "d" : "l");
        refuses(s, lt, "data of another type");
        server_ask(s, "DEL {lock:a}:%s", i ? "d" : "l");
    }
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    refuses(s, lt, "\"a\" is a lock that is held, not a latch");
    unlock_now(m);
    server_ask(s, "SET " FENCE_KEY " x");
    CHECK_HF(hf_latch_set(lt, 3, &err), HF_ECOUNTER);
    CHECK_CONTAINS(err.message, FENCE_KEY);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    hf_lock_free(m);
    hf_latch_free(lt);
    hf_client_free(c);
}

TEST(LA5_a_latch_is_no_lock_to_take)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    hf_lock *m = lock_of(c, "a", 30000);
    CHECK_HF(hf_latch_set(lt, 3, &err), HF_OK);
    CHECK(hf_lock_try(m, NULL, &err) != HF_OK);
    CHECK_INT(left_of(lt), 3);
    CHECK_INT(down(lt, 3), 0);
    CHECK(hf_lock_try(m, NULL, &err) != HF_OK);
    hf_lock_free(m);
    hf_latch_free(lt);
    hf_client_free(c);
}

/* ---- fork, and a client that is gone ---- */

TEST(a_handle_from_before_fork_or_of_a_freed_client_does_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *lt = latch_of(c, "a");
    hf_barrier *b = NULL;
    CHECK_HF(hf_barrier_open(c, hf_str("b"), 1, &(hf_barrier_opts){ sizeof(hf_barrier_opts), 0, 1 },
                             &b, &err), HF_OK);
    CHECK_HF(hf_latch_set(lt, 2, &err), HF_OK);
    CHECK_HF(hf_barrier_wait(b, 1000, NULL, NULL, &err), HF_OK); /* inside */
    int pid = t_fork_among_threads();
    if (pid == 0) {
        CHECK_HF(hf_latch_count_down(lt, 1, NULL, &err), HF_EFORK);
        CHECK_HF(hf_latch_set(lt, 1, &err), HF_EFORK);
        CHECK_HF(hf_latch_wait(lt, 1000, &err), HF_EFORK);
        CHECK_HF(hf_barrier_wait(b, 1000, NULL, NULL, &err), HF_EFORK);
        CHECK_HF(hf_barrier_leave(b, 1000, &err), HF_EFORK);
        hf_barrier_free(b); /* does not desert for its parent */
        hf_latch_free(lt);
        hf_client_free(c);
        _exit(0);
    }
    int status = -1;
    CHECK_INT(waitpid(pid, &status, 0), pid);
    CHECK_INT(status, 0);
    CHECK_INT(left_of(lt), 2);
    CHECK_HF(hf_barrier_leave(b, 1000, &err), HF_OK);
    hf_client_free(c);
    CHECK_HF(hf_latch_count_down(lt, 1, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_barrier_wait(b, 1000, NULL, NULL, &err), HF_EINVAL);
    hf_latch_free(lt);
    hf_barrier_free(b);
}

/* ---- LA6 ---- */

TEST(LA6_a_latch_ends_with_its_ttl_which_every_use_begins_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_latch *day = latch_of(c, "a"), *brief = latch_with(c, "b", 700);
    CHECK_HF(hf_latch_set(day, 1, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 86000000, 86400000);
    CHECK_HF(hf_latch_set(brief, 2, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:b"), 1, 700);
    CHECK_HF(hf_latch_wait(brief, 2000, &err), HF_ETIMEDOUT); /* who waits keeps it */
    server_ask(s, "PEXPIRE lock:b 50");
    CHECK_INT(down(brief, 1), 1);
    CHECK(server_int(s, "PTTL lock:b") > 50);
    server_ask(s, "PERSIST lock:b");
    CHECK_INT(down(brief, 1), 0);
    CHECK(server_int(s, "PTTL lock:b") > 0);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:b") == 0, 5000);
    CHECK_HF(hf_latch_count(brief, NULL, NULL, &err), HF_ENOTSET);
    hf_latch_free(day);
    hf_latch_free(brief);
    hf_client_free(c);
    check_only_ttls(s);
}

/* ---- random ---- */

struct model { /* what one latch must be like */
    int      set;
    uint32_t left, total;
};

/* Several clients, each behind a wire that breaks now and then, do what they like with a few
 * latches, one call after the other; a counting in memory says what each call has to answer. */
TEST(LA2_thousands_of_calls_answer_as_a_counter_in_memory_does)
{
    enum { CLIENTS = 4, NAMES = 3, CALLS = 4000 };
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    struct model model[NAMES] = { 0 };
    hf_client *c[CLIENTS];
    hf_latch *lt[CLIENTS][NAMES];
    int calls[5] = { 0 };
    t_note("seed %llu", (unsigned long long)t_seed());
    for (int i = 0; i < CLIENTS; i++) {
        c[i] = client_at(proxy_url(p), 20000);
        for (int k = 0; k < NAMES; k++)
            lt[i][k] = latch_of(c[i], k == 0 ? "a" : k == 1 ? "{tag}b" : "c}d");
    }
    for (int n = 0; n < CALLS; n++) {
        int k = (int)t_random(NAMES), what = (int)t_random(5);
        hf_latch *l = lt[t_random(CLIENTS)][k];
        struct model *m = &model[k];
        uint32_t by = (uint32_t)t_random(6) + 1, left = 0, total = 0;
        if (t_random(25) == 0)
            proxy_cut_after(p, t_random(40));
        if (t_random(200) == 0)
            kill_inboxes(s);
        calls[what]++;
        switch (what) {
        case 0:
            if (m->set && m->left) {
                CHECK_HF(hf_latch_set(l, by, &err), HF_EBUSY);
                break;
            }
            CHECK_HF(hf_latch_set(l, by, &err), HF_OK);
            *m = (struct model){ 1, by, by };
            break;
        case 1:
            if (t_random(10))
                break;
            CHECK_HF(hf_latch_reset(l, by, &err), HF_OK);
            *m = (struct model){ 1, by, by };
            break;
        case 2:
            CHECK_HF(hf_latch_count_down(l, by, &left, &err), m->set ? HF_OK : HF_ENOTSET);
            m->left = m->left > by ? m->left - by : 0;
            CHECK_INT(left, m->left);
            break;
        case 3:
            CHECK_HF(hf_latch_count(l, &left, &total, &err), m->set ? HF_OK : HF_ENOTSET);
            CHECK_INT(left, m->left);
            CHECK_INT(total, m->total);
            break;
        default:
            if (m->set && !m->left)
                CHECK_HF(hf_latch_wait(l, t_random(2) ? 0 : 20000, &err), HF_OK);
            else if (t_random(10))
                CHECK_HF(hf_latch_wait(l, 0, &err), HF_EBUSY);
            else
                CHECK(hf_latch_wait(l, 3, &err) != HF_OK);
        }
    }
    for (int i = 0; i < 5; i++)
        CHECK(calls[i] > CALLS / 10);
    CHECK(proxy_cuts(p) > 30);
    t_note("%ld connections were cut", proxy_cuts(p));
    for (int i = 0; i < CLIENTS; i++) {
        for (int k = 0; k < NAMES; k++)
            hf_latch_free(lt[i][k]);
        hf_client_free(c[i]);
    }
    check_only_ttls(s);
}

static void counts(int index, void *arg)
{
    struct crowd *cr = arg;
    (void)index;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_latch *lt = latch_of(c, "a");
    CHECK_EVENTUALLY(atomic_load(&cr->mem->ready), 20000);
    for (;;) {
        atomic_fetch_add(&cr->mem->begun, 1);
        (void)down(lt, 1);
        atomic_fetch_add(&cr->mem->counted, 1);
        if (atomic_load(&cr->mem->zero))
            break;
    }
    hf_latch_free(lt);
    hf_client_free(c);
}

TEST(LA2_processes_that_are_killed_while_they_count_count_what_they_counted)
{
    enum { N = 16, TOTAL = 1000000 };
    struct crowd cr = { .s = server_start(NULL) };
    cr.mem = shared_memory(sizeof *cr.mem);
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(N, counts, &cr);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_latch *lt = latch_of(c, "a");
    CHECK_HF(hf_latch_set(lt, TOTAL, &err), HF_OK);
    atomic_store(&cr.mem->ready, 1);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->counted) > 200, 20000);
    for (int i = 0; i < N / 2; i++) {
        long before = atomic_load(&cr.mem->counted);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->counted) > before + (long)t_random(60), 20000);
        workers_signal(w, 2 * i, SIGKILL);
    }
    atomic_store(&cr.mem->zero, 1);
    workers_join(w, 20000);
    long begun = atomic_load(&cr.mem->begun), counted = atomic_load(&cr.mem->counted);
    long taken = TOTAL - (long)left_of(lt);
    t_note("%ld begun, %ld came back, %ld counted", begun, counted, taken);
    CHECK_RANGE(taken, counted, begun);
    CHECK(begun - counted <= N / 2);
    CHECK_INT(down(lt, TOTAL), 0);
    hf_latch_free(lt);
    hf_client_free(c);
    check_only_ttls(cr.s);
}
