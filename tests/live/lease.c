/* SPDX-License-Identifier: MIT
 * lease.c - P5: renewal, and that no loss goes unnoticed: by the server's word, or by our own
 * clock.
 */
#define LIVE_SCRIPTS
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/live.h"
#include "harness/proc.h"
#include "harness/proxy.h"

/* ---- events ---- */

struct events {
    pthread_mutex_t mu;
    int             n;
    hf_state        state[32];
    int64_t         at_ms[32];
    int             held[32]; /* what hf_lock_is_held() said inside */
};
#define EVENTS { .mu = PTHREAD_MUTEX_INITIALIZER }

static void on_event(hf_lock *m, hf_state state, void *arg)
{
    struct events *ev = arg;
    pthread_mutex_lock(&ev->mu);
    if (ev->n < 32) {
        ev->state[ev->n] = state;
        ev->at_ms[ev->n] = t_now_ms();
        ev->held[ev->n++] = hf_lock_is_held(m);
    }
    pthread_mutex_unlock(&ev->mu);
}

/* When the state was told first; -1: not yet. */
static int64_t told(struct events *ev, hf_state state)
{
    int64_t at = -1;
    pthread_mutex_lock(&ev->mu);
    for (int i = 0; i < ev->n && at < 0; i++)
        if (ev->state[i] == state)
            at = ev->at_ms[i];
    pthread_mutex_unlock(&ev->mu);
    return at;
}

static int readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    return poll(&p, 1, 0) == 1;
}

/* ---- renewal ---- */

TEST(P5_a_held_lock_is_renewed_and_stays_for_many_ttls)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .on_event = on_event,
                                                      .event_arg = &ev });
    uint64_t f = lock_now(m);
    for (int64_t until = t_now_ms() + 6000; t_now_ms() < until; t_sleep_ms(20))
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 4000);
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK(hf_lock_fence(m) == f);
    CHECK_INT(told(&ev, HF_STATE_LOST), -1);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(renewals_of_many_locks_travel_in_one_command)
{
    enum { N = 150 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[N];
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 4000);
        lock_now(m[i]);
    }
    server_monitor_start(s);
    t_sleep_ms(4000);
    /* One ttl: three rounds of renewal, each of all locks. */
    int commands = server_monitor_count(s, "\"renew\"");
    CHECK_RANGE(commands, 2, 25);
    for (int i = 0; i < N; i++)
        CHECK_INT(hf_lock_is_held(m[i]), 1);
    CHECK_HF(hf_client_release_all(c, NULL, &err), HF_OK);
    for (int i = 0; i < N; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* Whatever lies between them: what is due for one must not keep the keeper from the others. */
TEST(P5_locks_taken_one_after_the_other_are_all_renewed)
{
    enum { N = 60 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[N];
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 4000);
        lock_now(m[i]);
        t_sleep_ms((int64_t)t_random(15));
    }
    for (int64_t until = t_now_ms() + 5000; t_now_ms() < until; t_sleep_ms(5))
        for (int i = 0; i < N; i++)
            CHECK_INT(hf_lock_is_held(m[i]), 1);
    for (int i = 0; i < N; i++) {
        unlock_now(m[i]);
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
}

TEST(P9_nothing_with_the_token_is_seen_after_unlock)
{
    enum { N = 12, TTL = 4500, APART_MS = 150 };
    struct server *s = server_start(NULL);
    hf_client *c[N]; /* of its own for each: else one renewal would be for many, and early */
    hf_lock *m[N];
    int64_t taken[N];
    char name[16];
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "n%d", i);
        c[i] = client_at(server_url(s), 0);
        m[i] = lock_of(c[i], name, TTL);
    }
    server_monitor_start(s);
    int64_t begun = t_now_ms();
    for (int i = 0; i < N; i++) {
        t_sleep_ms(begun + i * APART_MS - t_now_ms());
        taken[i] = t_now_ms();
        lock_now(m[i]);
    }
    for (int i = 0; i < N; i++) {
        char quoted[80];
        snprintf(quoted, sizeof quoted, "\"%s", hf_lock_owner(m[i]));
        /* About when a renewal is due. */
        t_sleep_ms(taken[i] + TTL / 3 - 15 + (int64_t)t_random(30) - t_now_ms());
        unlock_now(m[i]);
        server_monitor_clear(s);
        t_sleep_ms(60);
        CHECK_INT(server_monitor_count(s, quoted), 0);
        CHECK_INT(server_int(s, "EXISTS lock:n%d", i), 0);
    }
    for (int i = 0; i < N; i++) {
        hf_lock_free(m[i]);
        hf_client_free(c[i]);
    }
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(P5_a_deleted_lock_is_lost_within_a_third_of_the_ttl_and_not_recreated)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .on_event = on_event,
                                                      .event_arg = &ev });
    int fd;
    CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
    for (int i = 0; i < 2; i++) {
        lock_now(m);
        CHECK_INT(readable(fd), 0);
        server_ask(s, "DEL lock:a");
        int64_t start = t_now_ms();
        CHECK_EVENTUALLY(readable(fd), 10000);
        CHECK_TOOK(t_now_ms() - start, 0, 1600);
        CHECK_INT(hf_lock_poll(m), HF_STATE_LOST);
        CHECK_INT(readable(fd), 0); /* read empty */
        CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
        CHECK_INT(hf_lock_is_held(m), 0);
        CHECK_INT(hf_lock_time_left_ms(m), 0);
        CHECK_EVENTUALLY(told(&ev, HF_STATE_LOST) >= 0, 1000);
        t_sleep_ms(500);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        CHECK_HF(hf_lock_acquire(m, 0, NULL, &err), HF_ELOST); /* unlock it first */
        CHECK_INT(err.known, HF_KNOWN_NOT_HELD);
        CHECK_HF(hf_lock_extend(m, 5000, &err), HF_ELOST);
        CHECK_HF(hf_lock_verify(m, &err), HF_ELOST);
        CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
        CHECK_CONTAINS(err.message, "gone or has another owner");
        CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
        CHECK_INT(hf_lock_state(m), HF_STATE_FREE);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P2_a_stolen_lock_is_lost_and_its_thief_is_left_alone)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 4000);
    static const char *const thief[] = { "SET lock:a thief PX 60000",
                                         "SET lock:a x PX 60000", "LPUSH lock:a x" };
    for (size_t i = 0; i < sizeof thief / sizeof *thief; i++) {
        lock_now(m);
        char token[64];
        snprintf(token, sizeof token, "%s", hf_lock_owner(m));
        if (i == 1) /* our value with one byte more is not ours */
            server_ask(s, "SET lock:a %s:%llu:00 PX 60000", token,
                       (unsigned long long)hf_lock_fence(m));
        else if (i == 2)
            server_ask(s, "DEL lock:a");
        if (i != 1)
            server_ask(s, thief[i]);
        const char *before = server_ask(s, "DUMP lock:a");
        if (i == 0) {
            CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
            CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
        }
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST); /* or it learns it here */
        CHECK_INT(err.known, HF_KNOWN_NOT_HELD);
        t_sleep_ms(250);
        CHECK_STR(server_ask(s, "DUMP lock:a"), before);
        server_ask(s, "DEL lock:a");
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P2_late_calls_after_expiry_change_nothing_of_the_present_owners)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 800, .no_renew = 1 };
    hf_lock *late = lock_with(c1, "a", o), *now = lock_of(c2, "a", 30000);
    for (int i = 0; i < 3; i++) {
        lock_now(late);
        lock_now(now);
        const char *before = server_ask(s, "GET lock:a");
        CHECK_INT(hf_lock_is_held(late), 0);
        CHECK_INT(hf_lock_state(late), HF_STATE_LOST);
        CHECK_INT(hf_lock_loss(late), HF_LOSS_EXPIRED);
        if (i == 0)
            CHECK_HF(hf_lock_extend(late, 60000, &err), HF_ELOST);
        if (i == 1)
            CHECK_HF(hf_lock_detach(late, 60000, &err), HF_ELOST);
        CHECK_HF(hf_lock_release(late, &err), HF_ELOST);
        CHECK_HF(hf_lock_verify(now, &err), HF_OK);
        CHECK_STR(server_ask(s, "GET lock:a"), before);
        /* Handed over with the claim window, and soon confirmed. */
        CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") > 20000, 1000);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 20000, 30000);
        unlock_now(now);
    }
    hf_lock_free(late);
    hf_lock_free(now);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(P5_a_release_by_owner_id_elsewhere_is_told_as_such)
{
    struct server *s = server_start(NULL);
    hf_client *c1 = client_at(server_url(s), 0), *c2 = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c1, "a", 6000);
    hf_lock *own = lock_with(c1, "b", (hf_lock_opts){ .ttl_ms = 6000, .owner = hf_str("me") });
    lock_now(m);
    lock_now(own);
    CHECK_HF(hf_owner_release(c2, hf_str("a"), hf_str(hf_lock_owner(m)), &err), HF_OK);
    CHECK_HF(hf_owner_release(c2, hf_str("b"), hf_str("me"), &err), HF_OK);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST && hf_lock_state(own) == HF_STATE_LOST,
                     3000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_RELEASED);
    CHECK_INT(hf_lock_loss(own), HF_LOSS_RELEASED);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_CONTAINS(err.message, "on purpose");
    hf_lock_free(m);
    hf_lock_free(own);
    hf_client_free(c1);
    hf_client_free(c2);
}

TEST(max_hold_ends_the_lease_and_frees_the_lock)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .max_hold_ms = 6500,
                                                      .grace_ms = HF_NO_TAKEOVER,
                                                      .on_event = on_event, .event_arg = &ev });
    hf_lock *other = lock_of(c, "a", 5000);
    int64_t start = t_now_ms();
    lock_now(m);
    server_monitor_start(s);
    t_sleep_ms(4400);
    CHECK_INT(hf_lock_is_held(m), 1); /* renewed until then */
    CHECK_EVENTUALLY(told(&ev, HF_STATE_LOST) >= 0, 10000);
    CHECK_TOOK(told(&ev, HF_STATE_LOST) - start, 5900, 10500);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_MAX_HOLD);
    CHECK_INT(told(&ev, HF_STATE_IN_DOUBT), -1); /* it is known, not doubtful */
    CHECK_RANGE(server_monitor_count(s, lua_sha[LUA_keep]), 1, 6); /* none that adds nothing */
    CHECK_HF(hf_lock_acquire(other, 5000, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_CONTAINS(err.message, "maximum hold");
    CHECK_HF(hf_lock_verify(other, &err), HF_OK);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
}

/* With a ttl much longer than max_hold the key outlives the hold: unlock must free it. */
TEST(max_hold_with_a_long_ttl_is_free_after_unlock)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .max_hold_ms = 300 });
    lock_now(m);
    CHECK(hf_lock_time_left_ms(m) <= 300);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
    CHECK_EVENTUALLY(hf_lock_loss(m) == HF_LOSS_MAX_HOLD, 1000);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 3000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Our own clock says that it is over before the watchdog has taken notice: for the same reason. */
TEST(the_reason_of_a_loss_is_known_the_moment_it_is_lost)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000, .max_hold_ms = 120 });
    for (int i = 0; i < 10; i++) {
        lock_now(m);
        while (hf_lock_is_held(m))
            ;
        CHECK_INT(hf_lock_loss(m), HF_LOSS_MAX_HOLD);
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
        CHECK_CONTAINS(err.message, hf_loss_text(HF_LOSS_MAX_HOLD));
    }
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(no_renew_ends_with_its_ttl_unless_extended)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .no_renew = 1,
                                                      .on_event = on_event, .event_arg = &ev });
    lock_now(m);
    server_monitor_start(s);
    for (int i = 0; i < 4; i++) {
        t_sleep_ms(1100);
        CHECK_HF(hf_lock_extend(m, 4000, &err), HF_OK);
    }
    CHECK_INT(hf_lock_is_held(m), 1);
    CHECK_INT(server_monitor_count(s, "\"renew\""), 0);
    CHECK_HF(hf_lock_extend(m, 2000, &err), HF_OK); /* else it would take longer */
    CHECK_EVENTUALLY(told(&ev, HF_STATE_LOST) >= 0, 3000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    CHECK_INT(told(&ev, HF_STATE_IN_DOUBT), -1);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 2000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- the server does not answer ---- */

TEST(P5_a_frozen_server_is_in_doubt_then_lost_by_the_own_clock_before_the_ttl)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 500);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .on_event = on_event,
                                                      .event_arg = &ev });
    int fd;
    lock_now(m);
    CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
    t_sleep_ms(100);
    server_freeze(s);
    int64_t frozen = t_now_ms();
    CHECK_EVENTUALLY(told(&ev, HF_STATE_IN_DOUBT) >= 0, 5000);
    CHECK_INT(hf_lock_state(m) == HF_STATE_SAFE, 0);
    CHECK_EVENTUALLY(readable(fd), 2000); /* after the callback, as holdfast.h says */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 5000);
    int64_t lost = t_now_ms();
    CHECK_INT(hf_lock_is_held(m), 0); /* at once, watchdog or not */
    CHECK_INT(hf_lock_time_left_ms(m), 0);
    CHECK_EVENTUALLY(told(&ev, HF_STATE_LOST) >= 0, 2000);
    CHECK(told(&ev, HF_STATE_IN_DOUBT) <= told(&ev, HF_STATE_LOST));
    /* The last proof was sent before the freeze: the belief ended less than a ttl after it. */
    CHECK_TOOK(lost - frozen, 0, 4000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_GRACE);
    CHECK_INT(hf_lock_poll(m), HF_STATE_LOST);
    for (int i = 0; i < ev.n; i++)
        if (ev.state[i] == HF_STATE_LOST)
            CHECK_INT(ev.held[i], 0);

    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_CONTAINS(err.message, "has not answered for");
    hf_err e = hf_lock_try(m, NULL, &err);
    CHECK(e == HF_EUNSURE || e == HF_ECONN);
    CHECK_TOOK(t_now_ms() - start, 0, 5000);
    server_thaw(s);
    uint64_t f = lock_now(m); /* thawed: works again */
    CHECK(f > 0);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_in_doubt_and_safe_again_when_the_server_comes_back_in_time)
{
    struct server *s = server_start(NULL);
    struct events ev = EVENTS;
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 10000, .grace_ms = 5000,
                                                      .on_event = on_event, .event_arg = &ev });
    uint64_t f = lock_now(m);
    server_freeze(s);
    CHECK_EVENTUALLY(told(&ev, HF_STATE_IN_DOUBT) >= 0, 8000);
    CHECK_INT(hf_lock_state(m), HF_STATE_IN_DOUBT);
    CHECK_INT(hf_lock_is_held(m), 1); /* still surely ours */
    server_thaw(s);
    CHECK_EVENTUALLY(told(&ev, HF_STATE_SAFE) >= 0, 5000);
    CHECK_INT(hf_lock_state(m), HF_STATE_SAFE);
    CHECK_INT(told(&ev, HF_STATE_LOST), -1);
    CHECK(hf_lock_fence(m) == f);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_extend_that_shortens_and_gets_no_answer_counts_as_the_shorter)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 300);
    hf_lock *m = lock_of(c, "a", 60000);
    lock_now(m);
    proxy_drop_replies(p);
    CHECK_HF(hf_lock_extend(m, 1000, &err), HF_EUNSURE);
    CHECK(proxy_dropped(p) > 0);
    CHECK_RANGE(hf_lock_time_left_ms(m), 0, 988);
    CHECK_EVENTUALLY(!hf_lock_is_held(m), 3000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_EXPIRED);
    hf_lock_free(m);
    proxy_pass(p);
    hf_client_free(c);
}

/* One connection that swallows replies must not cost a lease: a new one is made in time. Whatever
 * the request was that got stuck on it. */
static void swallow_one(const char *text, int64_t ttl_ms)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", ttl_ms);
    proxy_when(p, text);
    proxy_drop_replies(p);
    lock_now(m);
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 5000);
    proxy_pass(p); /* the reply is gone for good; the connection looks alive */
    int64_t until = t_now_ms() + ttl_ms + 1000; /* longer than any lease */
    while (t_now_ms() < until) {
        if (!hf_lock_is_held(m))
            FAIL("the lease was lost (%s) though the server answers",
                 hf_loss_text(hf_lock_loss(m)));
        t_sleep_ms(5);
    }
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_a_renewal_whose_reply_is_swallowed_does_not_cost_the_lease)
{
    swallow_one("renew", 4000);
}

TEST(P5_a_session_record_whose_reply_is_swallowed_does_not_cost_the_lease)
{
    swallow_one(lua_sha[LUA_record], 4000);
}

TEST(P5_a_cancellation_whose_reply_is_swallowed_does_not_cost_the_lease_of_another_lock)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(c, "a", 4000), *x = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 400,
                                                      .no_renew = 1 });
    lock_now(m);
    lock_now(x);
    CHECK_EVENTUALLY(!hf_lock_is_held(x), 3000);
    proxy_when(p, lua_sha[LUA_cancel]);
    proxy_drop_replies(p);
    CHECK_HF(hf_lock_release(x, &err), HF_ELOST); /* cancelled in the background */
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 3000);
    proxy_pass(p);
    for (int64_t until = t_now_ms() + 5000; t_now_ms() < until; t_sleep_ms(5))
        if (!hf_lock_is_held(m))
            FAIL("the lease was lost (%s) though the server answers",
                 hf_loss_text(hf_lock_loss(m)));
    hf_lock_free(m);
    hf_lock_free(x);
    hf_client_free(c);
}

/* holdfast.h: "Locks still held are released first (within timeout_ms)". */
TEST_TIMEOUT(client_free_on_a_frozen_server_ends_within_its_time_limit, 20)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 300);
    hf_lock *m[12];
    char name[8];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "n%d", i);
        m[i] = lock_of(c, name, 30000);
        lock_now(m[i]);
    }
    server_freeze(s);
    int64_t start = t_now_ms();
    hf_client_free(c);
    int64_t took = t_now_ms() - start;
    server_thaw(s);
    t_note("%lld ms for 12 locks and a time limit of 300 ms", (long long)took);
    CHECK_TOOK(took, 0, 1500);
    for (int i = 0; i < 12; i++)
        hf_lock_free(m[i]);
}

/* ---- the holder itself stands still ---- */

struct stopped {
    struct server *s;
    int            ready, go, result[2]; /* pipes */
};

static void sleeper(int index, void *arg)
{
    struct stopped *st = arg;
    (void)index;
    hf_client *c = client_at(server_url(st->s), 0);
    hf_lock *m = lock_of(c, "a", 500);
    lock_now(m);
    CHECK(write(st->ready, "x", 1) == 1);
    char byte;
    CHECK(read(st->go, &byte, 1) == 1); /* stopped in here, and continued */
    CHECK_INT(hf_lock_is_held(m), 0);  /* the first thing it asks */
    /* Who noticed that it stood still reads what has arrived before it says so. */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 5000);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(P5_a_holder_stopped_past_its_ttl_says_lost_in_the_first_call_after_it)
{
    int ready[2], go[2];
    CHECK(pipe(ready) == 0 && pipe(go) == 0);
    struct stopped st = { .s = server_start(NULL), .ready = ready[1], .go = go[0] };
    struct workers *w = workers_start(1, sleeper, &st);
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *next = lock_of(c, "a", 30000);
    workers_signal(w, 0, SIGSTOP);
    uint64_t f = lock_now(next); /* its ttl is over for the server */
    CHECK(write(go[1], "x", 1) == 1);
    workers_signal(w, 0, SIGCONT);
    workers_join(w, 10000);
    CHECK_HF(hf_lock_verify(next, &err), HF_OK); /* P2 */
    CHECK(hf_lock_fence(next) == f);
    unlock_now(next);
    hf_lock_free(next);
    hf_client_free(c);
}

/* ---- clocks ---- */

TEST(P5_a_jump_of_the_servers_clock_is_reported)
{
    struct server *s = server_start_opts(&(struct server_opts){ .clockshim = 1 });
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .log = logbook_add,
                                                                .log_arg = &log });
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    t_sleep_ms(3300); /* two renewals to compare */
    CHECK_INT(logbook_has(&log, "clock moved"), 0);
    server_clock_shift(s, -7000);
    CHECK_EVENTUALLY(logbook_has(&log, "later there"), 3000);
    CHECK(logbook_has(&log, "clock moved by -7") || logbook_has(&log, "clock moved by -69"));
    CHECK_INT(hf_lock_is_held(m), 1);
    /* Forward: the server lets the lease end at once, and the holder learns it. */
    server_clock_shift(s, 3600000);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 3000);
    CHECK_INT(hf_lock_loss(m), HF_LOSS_TAKEN);
    CHECK_EVENTUALLY(logbook_has(&log, "earlier there"), 3000);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Runs this program again, with its clocks in our hand; body: the test's own name. */
static int again_with_shim(const char *test)
{
    static char self[4096], preload[4200], file[256], only[300], asan[300];
    if (getenv("HF_CLOCK_FILE"))
        return 0;
    struct server *s = server_start(NULL);
    char *path = t_path("clock");
    int64_t zero[3] = { 0 };
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, zero, sizeof zero) == sizeof zero);
    close(fd);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    CHECK(n > 0);
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s/../clockshim.so", t_program_dir());
    snprintf(file, sizeof file, "CLOCKSHIM=%s", path);
    snprintf(only, sizeof only, "HF_CLOCK_FILE=%s", path);
    const char *old = getenv("ASAN_OPTIONS");
    snprintf(asan, sizeof asan, "ASAN_OPTIONS=verify_asan_link_order=0:%s", old ? old : "");
    char url[300];
    snprintf(url, sizeof url, "HF_CLOCK_URL=%s", server_url(s));
    char pid[64];
    snprintf(pid, sizeof pid, "HF_CLOCK_SERVER=%d", (int)server_pid(s));
    const char *env[] = { preload, file, only, asan, url, pid, NULL };
    const char *argv[] = { self, test, NULL };
    struct proc *p = proc_spawn(argv, &(struct proc_opts){ .env = env });
    int status = proc_wait(p, 50000);
    if (status != 0 || !strstr(proc_out(p), "# passed 1 failed 0"))
        FAIL("status %d:\n%s%s", status, proc_out(p), proc_err(p));
    free(path);
    return 1;
}

static volatile int64_t *shim_offsets(void)
{
    int fd = open(getenv("HF_CLOCK_FILE"), O_RDWR | O_CLOEXEC);
    void *p = mmap(NULL, 24, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(fd >= 0 && p != MAP_FAILED);
    close(fd);
    return p;
}

static int64_t read_clock(clockid_t id)
{
    struct timespec t;
    CHECK_INT(clock_gettime(id, &t), 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

TEST(nobodys_wall_clock_matters_to_a_client)
{
    if (again_with_shim(__func__ + strlen("test_")))
        return;
    volatile int64_t *offset = shim_offsets();
    struct events ev = EVENTS;
    struct logbook log = LOGBOOK;
    hf_client *c = client_with(getenv("HF_CLOCK_URL"),
                               (hf_client_opts){ .log = logbook_add, .log_arg = &log });
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 6000, .on_event = on_event,
                                                      .event_arg = &ev });
    hf_lock *w = lock_of(c, "a", 600);
    uint64_t f = lock_now(m);
    static const int64_t hours[] = { 1, -1, 1000, -1000, 0, 24 };
    for (size_t i = 0; i < sizeof hours / sizeof *hours; i++) {
        int64_t before = read_clock(CLOCK_REALTIME);
        int64_t jump = hours[i] * 3600 * INT64_C(1000000000) - offset[0];
        offset[0] = hours[i] * 3600 * INT64_C(1000000000);
        if (jump)
            CHECK(llabs(read_clock(CLOCK_REALTIME) - before - jump) < INT64_C(60000000000));
        CHECK_INT(hf_lock_is_held(m), 1);
        int64_t start = read_clock(CLOCK_BOOTTIME);
        CHECK_HF(hf_lock_acquire(w, 900, NULL, &err), HF_ETIMEDOUT);
        CHECK_RANGE((read_clock(CLOCK_BOOTTIME) - start) / 1000000, 890, 30000);
        CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    }
    CHECK_INT(told(&ev, HF_STATE_IN_DOUBT), -1);
    CHECK_INT(told(&ev, HF_STATE_LOST), -1);
    CHECK_INT(logbook_has(&log, "clock moved"), 0);
    CHECK(hf_lock_fence(m) == f);
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(w);
    hf_client_free(c);
}

TEST(P5_after_a_suspend_longer_than_the_ttl_the_lock_is_lost_at_once)
{
    if (again_with_shim(__func__ + strlen("test_")))
        return;
    volatile int64_t *offset = shim_offsets();
    hf_client *c = client_at(getenv("HF_CLOCK_URL"), 0);
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    CHECK_INT(hf_lock_is_held(m), 1);
    /* The server's clock does not jump here, so it would go on to renew the lock for us: a request
     * that it answers after the jump proves that the lock is still ours. It answers none. */
    CHECK_INT(kill(atoi(getenv("HF_CLOCK_SERVER")), SIGSTOP), 0);
    offset[2] = INT64_C(30000000000); /* only CLOCK_BOOTTIME counts a suspend */
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_INT(hf_lock_time_left_ms(m), 0);
    /* With a request under way it is in doubt first: the answer may have come in the suspend. */
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 5000);
    CHECK_INT(kill(atoi(getenv("HF_CLOCK_SERVER")), SIGCONT), 0);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    hf_lock_free(m);
    hf_client_free(c);
}

/* ---- what an event may ask ------------------------------------------------------------------- */

struct asked {
    atomic_int       states;
    atomic_int       loss;
    _Atomic uint64_t fence;
    atomic_int       held;
};

static void ask_all(hf_lock *m, hf_state state, void *arg)
{
    struct asked *a = arg;
    if (state == HF_STATE_LOST) {
        atomic_store(&a->loss, hf_lock_loss(m));
        atomic_store(&a->fence, hf_lock_fence(m));
        atomic_store(&a->held, hf_lock_is_held(m));
    }
    atomic_fetch_or(&a->states, 1 << state);
}

TEST(an_event_may_ask_for_the_loss_and_the_fence)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct asked a = { .held = -1 };
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .on_event = ask_all,
                                                   .event_arg = &a });
    uint64_t fence = lock_now(m);
    CHECK_STR(server_ask(s, "SET lock:a another"), "OK");
    CHECK_EVENTUALLY(atomic_load(&a.states) & (1 << HF_STATE_LOST), 5000);
    CHECK_INT(atomic_load(&a.loss), HF_LOSS_TAKEN);
    CHECK(atomic_load(&a.fence) == fence);
    CHECK_INT(atomic_load(&a.held), 0);
    hf_lock_free(m);
    hf_client_free(c);
}

static void ask_late(hf_lock *m, hf_state state, void *arg)
{
    t_sleep_ms(50); /* time for whoever is woken to release it */
    ask_all(m, state, arg);
}

TEST(an_event_comes_before_its_descriptor)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct asked a = { .held = -1 };
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 4000, .on_event = ask_late,
                                                   .event_arg = &a });
    int fd;
    CHECK_HF(hf_lock_fd(m, &fd, &err), HF_OK);
    uint64_t fence = lock_now(m);
    CHECK_STR(server_ask(s, "SET lock:a another"), "OK");
    do {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        CHECK_INT(poll(&p, 1, 5000), 1);
    } while (hf_lock_poll(m) != HF_STATE_LOST);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK(atomic_load(&a.states) & (1 << HF_STATE_LOST));
    CHECK(atomic_load(&a.fence) == fence);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(the_full_time_follows_an_extension)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 5000, .grace_ms = HF_NO_TAKEOVER });
    CHECK_INT(hf_lock_full_time_ms(m), 0);
    lock_now(m);
    CHECK_INT(hf_lock_full_time_ms(m), 5000);
    CHECK_HF(hf_lock_extend(m, 60000, &err), HF_OK);
    CHECK_INT(hf_lock_full_time_ms(m), 60000);
    CHECK(hf_lock_time_left_ms(m) <= hf_lock_full_time_ms(m));
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}
