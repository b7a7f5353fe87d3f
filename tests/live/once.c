/* SPDX-License-Identifier: MIT
 * once.c - one computation for many callers: O1 to O5 of src/lock/once.c.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/live.h"
#include "harness/proc.h"
#include "harness/proxy.h"

#define VALUE "{lock:v}:c"

/* A computation that counts itself on the server. */
struct work {
    struct server *s;
    struct proxy  *p;
    const char    *makes;
    hf_err         fails;
    const char    *says;
    long long      until_waiters; /* goes on until so many stand in the queue */
    void         (*during)(struct work *w, hf_lock *m);
    hf_client     *other;
};

static hf_err compute(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    struct work *w = arg;
    CHECK(hf_lock_is_held(m) && hf_lock_fence(m) > 0);
    server_ask(w->s, "INCR computations");
    if (w->until_waiters)
        CHECK_EVENTUALLY(server_int(w->s, "ZCARD {lock:v}:q") >= w->until_waiters, 40000);
    if (w->during)
        w->during(w, m);
    if (w->fails && w->says)
        snprintf(reterr->message, sizeof reterr->message, "%s", w->says);
    *ret = hf_str(w->makes);
    return w->fails;
}

static long long computations(struct server *s)
{
    return server_int(s, "INCRBY computations 0");
}

static hf_once_opts opts(int64_t ttl_ms)
{
    return (hf_once_opts){ .size = sizeof(hf_once_opts), .ttl_ms = ttl_ms };
}

/* The value as text, until the next call in this thread. */
static const char *once(hf_client *c, struct work *w, hf_once_opts o, hf_value **ret)
{
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 30000, compute, w, &v, &err), HF_OK);
    CHECK(v && ((char *)v->data)[v->len] == '\0');
    static __thread char text[64];
    snprintf(text, sizeof text, "%s", (char *)v->data);
    if (ret)
        *ret = v;
    else
        hf_value_free(v);
    return text;
}

TEST(O1_the_first_computes_the_next_finds_it_and_it_ends_with_its_ttl)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "one" };
    hf_value *v;
    CHECK_STR(once(c, &w, opts(300), &v), "one");
    CHECK_INT(v->computed, 1);
    CHECK_INT(v->cached, 1);
    CHECK_INT(v->fresh_ms, 300);
    hf_value_free(v);
    w.makes = "two";
    CHECK_STR(once(c2, &w, opts(60000), &v), "one");
    CHECK_INT(v->computed, 0);
    CHECK_INT(v->cached, 1);
    CHECK_RANGE(v->fresh_ms, 1, 300);
    CHECK_RANGE(v->age_ms, 0, 300);
    hf_value_free(v);
    CHECK_INT(server_int(s, "EXISTS lock:v"), 0);
    CHECK_EVENTUALLY(server_int(s, "EXISTS " VALUE) == 0, 5000);
    CHECK_STR(once(c2, &w, opts(60000), NULL), "two");
    CHECK_INT(computations(s), 2);
    CHECK_RANGE(server_int(s, "PTTL " VALUE), 50000, 60000);
    hf_client_free(c);
    hf_client_free(c2);
}

static void call_once(int index, void *arg)
{
    (void)index;
    struct server *s = arg;
    hf_client *c = client_at(server_url(s), 20000);
    char text[32];
    snprintf(text, sizeof text, "made by %d", (int)getpid());
    struct work w = { .s = s, .makes = text, .until_waiters = 49 };
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 50000, compute, &w, &v, &err), HF_OK);
    server_ask(s, "SADD values %b", v->data, v->len);
    server_ask(s, "INCR got");
    hf_value_free(v);
    hf_client_free(c);
}

TEST(O1_fifty_callers_at_the_same_moment_cause_one_computation)
{
    struct server *s = server_start(NULL);
    workers_run(50, call_once, s, 55000);
    CHECK_INT(computations(s), 1);
    CHECK_INT(server_int(s, "SCARD values"), 1);
    CHECK_INT(server_int(s, "INCRBY got 0"), 50);
    CHECK_INT(server_int(s, "EXISTS lock:v {lock:v}:q"), 0);
}

TEST(O1_refresh_computes_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "one" };
    once(c, &w, opts(60000), NULL);
    hf_once_opts o = opts(60000);
    o.refresh = 1;
    w.makes = "two";
    CHECK_STR(once(c, &w, o, NULL), "two");
    CHECK_STR(once(c, &w, opts(60000), NULL), "two");
    CHECK_HF(hf_once_drop(c, hf_str("v"), &err), HF_OK);
    CHECK_HF(hf_once_drop(c, hf_str("v"), &err), HF_OK);
    w.makes = "three";
    CHECK_STR(once(c, &w, opts(60000), NULL), "three");
    CHECK_INT(computations(s), 3);
    hf_client_free(c);
}

/* ---- computations that come to nothing ---- */

TEST(O2_a_failed_computation_is_told_and_not_cached)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "half", .fails = HF_ENOTSUP,
                      .says = "the database is away" };
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ENOTSUP);
    CHECK_STR(err.message, "the database is away");
    CHECK(!v);
    w.says = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ENOTSUP);
    CHECK_STR(err.message, "the computation failed");
    CHECK_INT(server_int(s, "EXISTS lock:v " VALUE), 0);
    w.fails = HF_OK;
    CHECK_STR(once(c, &w, o, NULL), "half");
    CHECK_INT(computations(s), 3);
    hf_client_free(c);
}

static void fail_or_make(int index, void *arg)
{
    struct server *s = arg;
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "made", .fails = index == 0 ? HF_ENOTSUP : HF_OK };
    if (index == 0)
        w.until_waiters = 4;
    else
        CHECK_EVENTUALLY(computations(s) == 1, 10000);
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 20000, compute, &w, &v, &err), index
             ? HF_OK : HF_ENOTSUP);
    hf_value_free(v);
    hf_client_free(c);
}

TEST(O2_a_failure_passes_the_turn_on_to_the_next_waiter)
{
    struct server *s = server_start(NULL);
    workers_run(5, fail_or_make, s, 40000);
    CHECK_INT(computations(s), 2);
}

static void compute_for_ever(int index, void *arg)
{
    struct server *s = arg;
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "made" };
    if (index == 0)
        w.until_waiters = 1000;
    else
        CHECK_EVENTUALLY(computations(s) == 1, 10000);
    hf_once_opts o = opts(60000);
    o.grace_ms = 2000;
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 20000, compute, &w, &v, &err), HF_OK);
    CHECK_STR(v->data, "made");
    hf_value_free(v);
    hf_client_free(c);
}

TEST(O2_a_killed_computation_passes_the_turn_on_long_before_its_ttl)
{
    struct server *s = server_start(NULL);
    struct workers *w = workers_start(4, compute_for_ever, s);
    CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:v}:q") == 3, 10000);
    int64_t start = t_now_ms();
    workers_signal(w, 0, SIGKILL);
    workers_join(w, 20000);
    CHECK_TOOK(t_now_ms() - start, 0, 15000); /* the lease is 30 s */
    CHECK_INT(computations(s), 2);
}

static void lose_the_lock(struct work *w, hf_lock *m)
{
    (void)m;
    CHECK_INT(server_int(w->s, "DEL lock:v"), 1);
}

static void lose_it_to_another(struct work *w, hf_lock *m)
{
    lose_the_lock(w, m);
    struct work newer = { .s = w->s, .makes = "newer" };
    hf_value *v = NULL;
    hf_once_opts o = opts(60000);
    CHECK_HF(hf_once_compute(w->other, hf_str("v"), &o, 20000, compute, &newer, &v, &err), HF_OK);
    CHECK_INT(v->computed, 1);
    hf_value_free(v);
}

TEST(O2_O3_a_computation_that_lost_its_lock_caches_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "late", .during = lose_the_lock, .other = other };
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ELOST);
    CHECK_CONTAINS(err.message, "lost");
    CHECK_INT(err.known, HF_KNOWN_NOT_HELD);
    CHECK(!v);
    CHECK_INT(server_int(s, "EXISTS " VALUE), 0);
    /* Another has computed meanwhile, and holds the lock no more; or still does. */
    w.during = lose_it_to_another;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ELOST);
    CHECK_STR(server_ask(s, "HGET " VALUE " v"), "newer");
    hf_lock *m = lock_of(c, "v", 5000), *taken = lock_of(other, "v", 5000);
    lock_now(m);
    server_ask(s, "DEL lock:v");
    lock_now(taken);
    CHECK_HF(hf_once_put(c, hf_str("v"), m, hf_str("late"), 60000, 0, &err), HF_ELOST);
    CHECK_STR(server_ask(s, "HGET " VALUE " v"), "newer");
    CHECK_HF(hf_once_put(other, hf_str("v"), taken, hf_str("newest"), 60000, 0, &err), HF_OK);
    CHECK_STR(server_ask(s, "HGET " VALUE " v"), "newest");
    unlock_now(taken);
    CHECK_HF(hf_once_put(other, hf_str("v"), taken, hf_str("x"), 60000, 0, &err), HF_ENOTHELD);
    hf_lock_free(m);
    hf_lock_free(taken);
    hf_client_free(c);
    hf_client_free(other);
}

static void lose_it_by_silence(struct work *w, hf_lock *m)
{
    proxy_refuse(w->p);
    proxy_break(w->p);
    CHECK_EVENTUALLY(!hf_lock_is_held(m), 20000);
}

static void lose_it_and_notice(struct work *w, hf_lock *m)
{
    lose_the_lock(w, m);
    CHECK_EVENTUALLY(!hf_lock_is_held(m), 20000);
}

/* Whoever has lost it does not get the value either, also where nothing was to be stored, or nobody
 * can be asked: others may have computed it by now. */
TEST(O3_a_lost_lock_takes_a_value_that_is_not_stored_too)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 1000);
    struct work w = { .s = s, .p = p, .makes = "large", .during = lose_it_and_notice };
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    o.max_size = 2;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 5000, compute, &w, &v, &err), HF_ELOST);
    CHECK(!v);
    w.during = lose_it_by_silence;
    o = opts(60000);
    o.grace_ms = 1000;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 5000, compute, &w, &v, &err), HF_ELOST);
    CHECK(!v);
    CHECK(proxy_refused(p) > 0);
    hf_client_free(c);
}

TEST(O3_the_grant_counts_and_not_the_owner_id)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 5000, .owner = hf_str("job 7") };
    hf_lock *m = lock_with(c, "v", o), *again = lock_with(other, "v", o);
    lock_now(m);
    CHECK_HF(hf_once_put(c, hf_str("v"), m, hf_str("first"), 60000, 0, &err), HF_OK);
    server_ask(s, "DEL lock:v {lock:v}:own");
    lock_now(again); /* the same id, another grant */
    CHECK_HF(hf_once_put(other, hf_str("v"), again, hf_str("second"), 60000, 0, &err), HF_OK);
    CHECK_HF(hf_once_put(c, hf_str("v"), m, hf_str("late"), 60000, 0, &err), HF_ELOST);
    CHECK_STR(server_ask(s, "HGET " VALUE " v"), "second");
    hf_lock_free(m);
    hf_lock_free(again);
    hf_client_free(c);
    hf_client_free(other);
}

/* ---- old values ---- */

static int64_t fresh_ms(hf_client *c)
{
    hf_value *v = NULL;
    CHECK_HF(hf_once_get(c, hf_str("v"), &v, &err), HF_OK);
    int64_t ms = v->fresh_ms;
    hf_value_free(v);
    return ms;
}

struct slow {
    struct server *s;
    char           made[16];
};

static void *slow_compute(void *arg)
{
    struct slow *sl = arg;
    hf_client *c = client_at(server_url(sl->s), 0);
    struct work w = { .s = sl->s, .makes = "new", .until_waiters = 1 };
    hf_once_opts o = opts(60000);
    o.stale_ms = 60000;
    snprintf(sl->made, sizeof sl->made, "%s", once(c, &w, o, NULL));
    hf_client_free(c);
    return NULL;
}

TEST(O4_an_old_value_is_given_while_somebody_computes_if_asked_for)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "old" };
    hf_once_opts o = opts(50);
    o.stale_ms = 60000;
    once(c, &w, o, NULL);
    hf_value *v = NULL;
    CHECK_EVENTUALLY(fresh_ms(c) <= 0, 3000);
    CHECK_RANGE(server_int(s, "PTTL " VALUE), 30000, 60050);
    struct slow sl = { .s = s };
    pthread_t t;
    CHECK_INT(pthread_create(&t, NULL, slow_compute, &sl), 0);
    CHECK_EVENTUALLY(computations(s) == 2, 5000);
    w.makes = "never";
    for (int i = 0; i < 3; i++) {
        CHECK_STR(once(c, &w, o, &v), "old");
        CHECK_INT(v->computed, 0);
        CHECK(v->fresh_ms <= 0 && v->age_ms >= 50);
        hf_value_free(v);
    }
    /* Who asked for none, or for a younger one, waits (and so lets the computation end). */
    o.stale_ms = 1;
    CHECK_STR(once(c, &w, o, NULL), "new");
    pthread_join(t, NULL);
    CHECK_STR(sl.made, "new");
    CHECK_INT(computations(s), 2);
    hf_client_free(c);
}

/* ---- bytes ---- */

static hf_err give(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    (void)m;
    (void)reterr;
    *ret = *(hf_bytes *)arg;
    return HF_OK;
}

TEST(O5_values_are_bytes_of_any_content_and_any_allowed_size)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_once_opts o = opts(60000);
    char *big = malloc(HF_VALUE_MAX + 1);
    for (size_t i = 0; i <= HF_VALUE_MAX; i++)
        big[i] = (char)t_random(256);
    static const size_t sizes[] = { 0, 1, 255, 256, 65536, HF_VALUE_MAX };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        hf_bytes in = { big, sizes[i] };
        hf_value *v = NULL;
        CHECK_HF(hf_once_drop(c, hf_str("v"), &err), HF_OK);
        CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, give, &in, &v, &err), HF_OK);
        CHECK_INT(v->cached, 1);
        hf_value_free(v);
        v = NULL;
        CHECK_HF(hf_once_get(c, hf_str("v"), &v, &err), HF_OK);
        CHECK_MEM(v->data, v->len, big, sizes[i]);
        hf_value_free(v);
    }
    free(big);
    hf_client_free(c);
}

TEST(O5_what_is_larger_is_given_back_and_not_cached)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_once_opts o = opts(60000);
    o.max_size = 5;
    hf_bytes in = hf_str("123456");
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, give, &in, &v, &err), HF_OK);
    CHECK_STR(v->data, "123456");
    CHECK_INT(v->cached, 0);
    CHECK_INT(v->computed, 1);
    hf_value_free(v);
    CHECK_INT(server_int(s, "EXISTS " VALUE), 0);
    in.len = 5;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, give, &in, &v, &err), HF_OK);
    CHECK_INT(v->cached, 1);
    hf_value_free(v);
    hf_client_free(c);
}

/* ---- what else can be wrong ---- */

TEST(waiting_has_the_limits_of_the_lock)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(other, "v", 20000);
    lock_now(m);
    struct work w = { .s = s, .makes = "x" };
    hf_once_opts o = opts(60000);
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, &v, &err), HF_EBUSY);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 100, compute, &w, &v, &err), HF_ETIMEDOUT);
    CHECK_INT(computations(s), 0);
    /* The value came, though others still hold the lock. */
    CHECK_HF(hf_once_put(other, hf_str("v"), m, hf_str("theirs"), 60000, 0, &err), HF_OK);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, &v, &err), HF_OK);
    CHECK_STR(v->data, "theirs");
    hf_value_free(v);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(other);
}

TEST(arguments_that_are_wrong_are_told)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "x" };
    hf_value *v = NULL;
    hf_once_opts o = opts(0);
    CHECK_HF(hf_once_compute(c, hf_str("v"), NULL, 0, compute, &w, &v, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, &v, &err), HF_EINVAL);
    CHECK_CONTAINS(err.message, "fresh for 0 ms");
    o = opts(1000);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, NULL, &w, &v, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute(c, hf_str(""), &o, 0, compute, &w, &v, &err), HF_EINVAL);
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, -2, compute, &w, &v, &err), HF_EINVAL);
    o.stale_ms = -1;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, &v, &err), HF_EINVAL);
    o = opts(1000);
    o.max_size = HF_VALUE_MAX + 1;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 0, compute, &w, &v, &err), HF_EINVAL);
    /* Names that would be another lock's value. */
    CHECK_HF(hf_once_get(c, hf_str("{a}x:c"), &v, &err), HF_EINVAL);
    CHECK_INT(computations(s), 0);
    hf_client_free(c);
}

TEST(P10_a_hostile_value_is_told_and_left_alone)
{
    static const char *const bad[] = { "SET " VALUE " x", "LPUSH " VALUE " x", "HSET " VALUE " a b",
                                       "HSET " VALUE " v x made y fresh 1",
                                       "HSET " VALUE " v x made 1" };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct work w = { .s = s, .makes = "x" };
    hf_once_opts o = opts(1000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t len, len2;
        hf_value *v = NULL;
        server_ask(s, "DEL " VALUE);
        server_ask(s, bad[i]);
        const char *before = server_ask_bytes(s, &len, "DUMP " VALUE);
        CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ETYPE);
        CHECK_CONTAINS(err.message, "\"v\"");
        const char *after = server_ask_bytes(s, &len2, "DUMP " VALUE);
        CHECK_MEM(after, len2, before, len);
    }
    /* Fields that nobody asked for hurt nobody; nor does a lock of another kind. */
    server_ask(s, "DEL " VALUE);
    server_ask(s, "HSET lock:v a b");
    hf_value *v = NULL;
    CHECK_HF(hf_once_compute(c, hf_str("v"), &o, 1000, compute, &w, &v, &err), HF_ETYPE);
    CHECK_STR(server_ask(s, "HGETALL lock:v"), "a\nb");
    CHECK_INT(computations(s), 0);
    hf_client_free(c);
}

TEST(P8_a_lost_reply_stores_once_and_is_no_loss)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    struct work w = { .s = s, .makes = "x" };
    once(c, &w, opts(60000), NULL);
    for (int i = 0; i < 5; i++) {
        long cuts = proxy_cuts(p);
        hf_value *v;
        hf_once_opts o = opts(60000);
        o.refresh = 1;
        proxy_when(p, lua_sha[LUA_store]);
        proxy_cut_after(p, 0);
        once(c, &w, o, &v);
        CHECK_INT(v->cached, 1);
        CHECK_INT(proxy_cuts(p), cuts + 1);
        hf_value_free(v);
    }
    hf_client_free(c);
    /* The reply lost, the lock gone before it was sent again: it was stored all the same. */
    server_ask(s, "SET lock:z tok.1:77:0");
    CHECK_INT(server_int(s, "EVAL %s 3 lock:z o z tok.1 77 1000 1000 text", lua_text[LUA_store]),
              1);
    server_ask(s, "DEL lock:z");
    CHECK_INT(server_int(s, "EVAL %s 3 lock:z o z tok.1 77 1000 1000 text", lua_text[LUA_store]),
              1);
    CHECK_INT(server_int(s, "EVAL %s 3 lock:z o z tok.1 78 1000 1000 text", lua_text[LUA_store]),
              0);
}

static void stop_the_server(struct work *w, hf_lock *m)
{
    (void)m;
    server_freeze(w->s);
}

TEST(a_value_that_cannot_be_cached_is_given_back_with_a_warning)
{
    struct server *s = server_start(NULL);
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .timeout_ms = 1200,
                                                                .log = logbook_add,
                                                                .log_arg = &log });
    struct work w = { .s = s, .makes = "mine", .during = stop_the_server };
    hf_value *v;
    CHECK_STR(once(c, &w, opts(60000), &v), "mine");
    server_thaw(s);
    CHECK_INT(v->cached, 0);
    CHECK_LOGGED(&log, "was not cached");
    hf_value_free(v);
    hf_client_free(c);
}
