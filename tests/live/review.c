/* SPDX-License-Identifier: MIT
 * review.c - what adversarial reviews of waiting and presence found, each hole kept shut.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/holder.h"
#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/waiting.h"

static hf_lock *lock_graced(hf_client *c, const char *name, int64_t ttl_ms, int64_t grace_ms)
{
    return lock_with(c, name, (hf_lock_opts){ .ttl_ms = ttl_ms, .grace_ms = grace_ms });
}

/* The same address, for the user "u" whose password is "pw". */
static const char *as_user(const char *url)
{
    static char with[300];
    CHECK(strncmp(url, "unix://", 7) == 0);
    snprintf(with, sizeof with, "unix://u:pw@%s", url + 7);
    return with;
}

/* Close the command connections of everybody but the harness. */
static void kill_commands(struct server *s)
{
    CHECK(server_int(s, "CLIENT KILL TYPE normal") > 0);
}

/* ---- replies that are lost ---- */

/* The reply of the request that joined is lost, the lock is handed over meanwhile, and the repeat
 * is told so: that is no refusal, and the lease did not begin with it. */
TEST(P1_named_is_not_refused)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(proxy_url(p), 5000);
    hf_lock *m = lock_of(holder, "a", 20000);
    struct locker l = { .m = lock_of(c, "a", 20000), .wait_ms = 20000 };
    lock_now(l.m);
    unlock_now(l.m); /* the scripts are known, the inbox is open */
    lock_now(m);
    proxy_when(p, lua_sha[LUA_acquire]);
    proxy_drop_replies(p);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 5000);
    proxy_pass(p); /* for all but that connection */
    proxy_when(p, lua_sha[LUA_keep]);
    proxy_hold(p); /* nothing is confirmed for now */
    unlock_now(m);
    CHECK_INT(queue_of(s, "a"), 0);
    CHECK_EVENTUALLY(server_int(s, "PTTL lock:a") < 500, 2000); /* half of the claim window */
    kill_commands(s);                                           /* so it asks again */
    CHECK_EVENTUALLY(proxy_held(p) > 0 || atomic_load(&l.done), 2000);
    int looked = 0;
    for (long long left; (left = server_int(s, "PTTL lock:a")) > 50; looked++) {
        int64_t believed = hf_lock_time_left_ms(l.m);
        if (believed > left + 5)
            FAIL("believed for %lld ms, the key lasts %lld", (long long)believed, left);
        t_sleep_ms(5);
    }
    CHECK(looked > 0);
    proxy_pass(p);
    locker_join(&l, HF_OK);
    CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

static void tell_of_earlier_turn(struct server *s, struct locker *l, const char *place)
{
    char token[64], nonce[40], text[300];
    const char *ticket = strchr(place, '\n');
    CHECK(sscanf(place, "%63[^:]:%*[^:]:%*[^:]:%39[0-9a-f]:", token, nonce) == 2 && ticket);
    snprintf(text, sizeof text, "granted %s %.0f %s lock:a", token, strtod(ticket, NULL) + 1,
             nonce);
    CHECK_INT(server_int(s, "PUBLISH lock:holdfast:s:%b %s", token, (size_t)32, text), 1);
    for (int64_t until = t_now_ms() + 150; t_now_ms() < until; t_sleep_ms(5))
        if (atomic_load(&l->done) || hf_lock_is_held(l->m))
            FAIL("\"%s\" was believed, and another holds the lock", text);
    CHECK_QUEUE(s, "a", 1);
}

/* It was its turn, and it did not hear of it in time: now it stands in the queue again, in its old
 * place. The message of that turn, as late as this, must not be believed before it is confirmed. */
TEST(P1_refused_in_its_old_place_is_no_fresh_refusal)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 60000);
    struct locker l = { .m = lock_of(c, "a", 60000), .wait_ms = 50000 };
    lock_now(l.m);
    unlock_now(l.m);
    lock_now(m);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    int told = 0;
    for (int i = 0; i < 3; i++) {
        char *place = strdup(server_ask(s, "ZRANGE {lock:a}:q 0 0 WITHSCORES"));
        CHECK_INT(server_int(s, "ZREMRANGEBYRANK {lock:a}:q 0 0"), 1);
        CHECK_QUEUE(s, "a", 1); /* its look found that, and it asked again */
        /* Who had been lied to and not looked yet takes a new place. */
        int old = strcmp(server_ask(s, "ZRANGE {lock:a}:q 0 0 WITHSCORES"), place) == 0;
        if (old)
            tell_of_earlier_turn(s, &l, place);
        told += old;
        free(place);
    }
    CHECK(told > 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    locker_join(&l, HF_OK);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
}

struct extender {
    hf_lock   *m;
    hf_err     result;
    atomic_int done;
};

static void *extend_to_600(void *arg)
{
    struct extender *e = arg;
    e->result = hf_lock_extend(e->m, 600, NULL);
    atomic_store(&e->done, 1);
    return NULL;
}

/* The reply of the extend is lost on its connection while the inbox goes on being answered. */
TEST(P5_a_pong_does_not_undo_a_shortening_under_way)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 2000);
    struct extender e = { .m = lock_graced(c, "a", 30000, 1000) };
    pthread_t thread;
    char owner[64];
    int64_t most = 0;
    lock_now(e.m);
    snprintf(owner, sizeof owner, "%s", hf_lock_owner(e.m));
    CHECK_HF(hf_lock_extend(e.m, 30000, &err), HF_OK); /* the script is known */
    CHECK_EVENTUALLY(hf_lock_time_left_ms(e.m) > 700, 2000);
    server_monitor_start(s);
    proxy_when(p, "\r\n600\r\n");
    proxy_drop_replies(p);
    int64_t start = t_now_ms();
    CHECK_INT(pthread_create(&thread, NULL, extend_to_600, &e), 0);
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 5000);
    proxy_pass(p); /* for all but that connection */
    int64_t sent_by = t_now_ms(); /* at the latest */
    while (!atomic_load(&e.done)) {
        int64_t passed = t_now_ms() - sent_by, left = hf_lock_time_left_ms(e.m);
        if (left > 0 && left > 600 - passed)
            FAIL("%lld ms after extend(600) was sent %lld ms are believed", (long long)passed,
                 (long long)left);
        most = left > most ? left : most;
        if (passed > 650)
            CHECK_INT(server_int(s, "EXISTS lock:a"), 0); /* it did arrive */
        t_sleep_ms(5);
    }
    CHECK_INT(pthread_join(thread, NULL), 0);
    t_note("%s after %lld ms; at most %lld ms believed; %d pings", hf_err_name(e.result),
           (long long)(t_now_ms() - start), (long long)most, server_monitor_count(s, "\"PING\""));
    /* The inbox was not cut off; what is told of it may come late. */
    CHECK_EVENTUALLY(server_monitor_count(s, "\"PING\"") >= 2, 10000);
    CHECK(is_present(s, owner));
    CHECK(e.result != HF_OK);
    CHECK_INT(hf_lock_is_held(e.m), 0);
    hf_lock_release(e.m, NULL);
    hf_lock_free(e.m);
    hf_client_free(c);
}

/* ---- messages that anybody can publish ---- */

TEST(P10_a_forged_wake_up_is_not_believed)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    lock_now(l.m);
    unlock_now(l.m);
    lock_now(m);
    char *value = strdup(server_ask(s, "GET lock:a"));
    for (int form = 0; form < 10; form++) {
        char token[64], nonce[40] = "", next[24], text[300];
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        CHECK(sscanf(server_ask(s, "ZRANGE {lock:a}:q 0 0"), "%63[^:]:%*[^:]:%*[^:]:%39[0-9a-f]:",
                     token, nonce) >= 1);
        const char *ticket = strrchr(server_ask(s, "ZRANGE {lock:a}:q 0 0 WITHSCORES"), '\n');
        CHECK(ticket);
        snprintf(next, sizeof next, "%.0f", strtod(ticket, NULL) + 1); /* it could be this one */
        char *seq = strchr(token, '.') + 1;
        const char *zeros = "0000000000000000", *big = "9000000000000000";
        switch (form) {
        case 0: snprintf(text, sizeof text, "granted %s %s lock:a", token, big); break;
        case 1: snprintf(text, sizeof text, "granted x.%s %s foo", seq, big); break;
        case 2: snprintf(text, sizeof text, "granted %s %s %s lock:a", token, big, zeros); break;
        case 3: snprintf(text, sizeof text, "granted %s %s %s lock:b", token, big, nonce); break;
        case 4: snprintf(text, sizeof text, "granted %s %s %s ", token, big, nonce); break;
        case 5: snprintf(text, sizeof text, "granted x.%s %s %s lock:a", seq, big, nonce); break;
        case 6: snprintf(text, sizeof text, "granted %s %s %.8s lock:a", token, big, nonce); break;
        case 7: snprintf(text, sizeof text, "granted %s %s %s lock:a", token, next, zeros); break;
        case 8: snprintf(text, sizeof text, "granted %s %s %.8s lock:a", token, next, nonce); break;
        default:
            snprintf(text, sizeof text, "granted %s 99999999999999999999999 %s lock:a", token,
                     zeros);
        }
        CHECK_INT(server_int(s, "PUBLISH lock:holdfast:s:%b %s", token, (size_t)32, text), 1);
        for (int64_t until = t_now_ms() + 150; t_now_ms() < until; t_sleep_ms(5))
            if (atomic_load(&l.done) || hf_lock_is_held(l.m))
                FAIL("\"%s\" was believed", text);
        CHECK_STR(server_ask(s, "GET lock:a"), value);
        CHECK_INT(queue_of(s, "a"), 1);
        hf_lock_cancel(l.m);
        locker_join(&l, HF_ECANCELED);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    free(value);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
}

TEST(P2_a_message_makes_nobody_cancel_others_locks)
{
    struct server *s = server_start(NULL);
    hf_client *victim = client_at(server_url(s), 0), *deputy = client_at(server_url(s), 0);
    hf_lock *first = lock_of(victim, "first", 30000), *m = lock_of(victim, "a", 30000);
    hf_lock *other = lock_of(deputy, "other", 30000);
    char token[64], session[33];
    lock_now(first); /* so that m's number is none of the deputy's */
    lock_now(m);
    lock_now(other);
    snprintf(token, sizeof token, "%s", hf_lock_owner(m));
    snprintf(session, sizeof session, "%s", hf_lock_owner(other));
    char *value = strdup(server_ask(s, "GET lock:a"));
    for (int form = 0; form < 4; form++) {
        char text[300];
        switch (form) {
        case 0: snprintf(text, sizeof text, "granted %s 5 lock:a", token); break;
        case 1: snprintf(text, sizeof text, "granted %s 5 0123456789abcdef lock:a", token); break;
        case 2:
            snprintf(text, sizeof text, "granted %s.9 5 0123456789abcdef lock:a", session);
            break;
        default: snprintf(text, sizeof text, "granted %s 5 0123456789abcdef lock:other",
                          hf_lock_owner(other));
        }
        CHECK_INT(server_int(s, "PUBLISH lock:holdfast:s:%s %s", session, text), 1);
        for (int64_t until = t_now_ms() + 150; t_now_ms() < until; t_sleep_ms(5))
            CHECK_STR(server_ask(s, "GET lock:a"), value);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:t {lock:other}:t"), 0);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_HF(hf_lock_verify(other, &err), HF_OK);
    unlock_now(m);
    unlock_now(first);
    unlock_now(other);
    free(value);
    hf_lock_free(m);
    hf_lock_free(first);
    hf_lock_free(other);
    hf_client_free(victim);
    hf_client_free(deputy);
}

/* ---- handovers ---- */

TEST(a_lock_that_is_not_renewed_lasts_its_whole_ttl_also_after_a_handover)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    for (int kind = 0; kind < 2; kind++) {
        hf_lock *m = lock_of(holder, "a", 30000);
        hf_lock_opts o = { .ttl_ms = 30000, .grace_ms = HF_NO_TAKEOVER };
        if (kind == 0)
            o.no_renew = 1;
        else
            o.max_hold_ms = 20000;
        struct locker l = { .m = lock_with(c, "a", o), .wait_ms = 20000 };
        int64_t whole = kind == 0 ? 30000 : 20000;
        lock_now(m);
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        unlock_now(m); /* at once: its refusal is fresh */
        locker_join(&l, HF_OK);
        CHECK_RANGE(hf_lock_time_left_ms(l.m), whole - 2000, whole);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), hf_lock_time_left_ms(l.m), 30000);
        t_sleep_ms(1100); /* the claim window is over */
        CHECK_INT(hf_lock_is_held(l.m), 1);
        CHECK_INT(hf_lock_state(l.m), HF_STATE_SAFE);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), whole - 4000, 30000);
        unlock_now(l.m);
        hf_lock_free(l.m);
        hf_lock_free(m);
    }
    hf_client_free(c);
    hf_client_free(holder);
}

TEST(P3_dead_waiters_behind_do_not_switch_off_the_takeover)
{
    struct server *s = server_start(NULL);
    hf_lock_opts o = { .ttl_ms = 60000, .grace_ms = 2000 };
    struct workers *w = holder_start(server_url(s), "a", o);
    hf_client *c = client_at(server_url(s), 0);
    struct locker l = { .m = lock_graced(c, "a", 60000, 3000), .wait_ms = 40000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    for (int i = 1; i <= 5; i++)
        CHECK_INT(server_int(s, "ZADD {lock:a}:q 900000000000000%d "
                             "0123456789abcdef0123456789abcdef.%d:1000:1000:0123456789abcdef:",
                             i, i), 1);
    server_monitor_start(s); /* a look that saw them: the next one is planned with them in mind */
    CHECK_EVENTUALLY(server_monitor_count(s, lua_sha[LUA_look]) > 0, 3000);
    workers_signal(w, 0, SIGKILL);
    int64_t start = t_now_ms();
    locker_join(&l, HF_OK);
    t_note("taken over after %lld ms", (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 1900, 4500);
    CHECK_INT(queue_of(s, "a"), 0); /* the dead ones were dropped */
    workers_join(w, 5000);
    unlock_now(l.m);
    hf_lock_free(l.m);
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

#define MANY 6

struct in_order {
    int  n;
    long order[MANY];
    hf_lock *m[MANY];
};
static struct in_order served;

static void ignored(hf_err result, const hf_error *e, void *arg)
{
    (void)e, (void)arg;
    CHECK_INT(result, HF_OK);
}

static void note_order(hf_err result, const hf_error *e, void *arg)
{
    (void)e;
    CHECK_INT(result, HF_OK);
    served.order[served.n++] = (long)(intptr_t)arg;
    CHECK_HF(hf_lock_release_async(served.m[(intptr_t)arg], ignored, NULL, &err), HF_OK);
}

TEST(P6_a_lost_queue_is_rejoined_by_all_and_in_order)
{
    struct server *s = server_start(NULL);
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(holder, "a", 30000);
    int fd;
    lock_now(m);
    for (int i = 0; i < MANY; i++) {
        served.m[i] = lock_of(c, "a", 30000);
        CHECK_HF(hf_lock_acquire_async(served.m[i], 20000, note_order, (void *)(intptr_t)i,
                                       &err), HF_OK);
        LOOP_QUEUE(c, s, "a", i + 1);
    }
    char *before = strdup(server_ask(s, "ZRANGE {lock:a}:q 0 -1 WITHSCORES"));
    for (int k = 0; k < 2; k++) {
        CHECK_INT(server_int(s, "DEL {lock:a}:q"), 1);
        LOOP_EVENTUALLY(c, queue_of(s, "a") == MANY, 1500);
        CHECK_STR(server_ask(s, "ZRANGE {lock:a}:q 0 -1 WITHSCORES"), before);
    }
    unlock_now(m);
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    size_t done = 0;
    for (int64_t until = t_now_ms() + 10000; done < 2 * MANY && t_now_ms() < until;) {
        struct pollfd pfd = { .fd = fd, .events = POLLIN };
        poll(&pfd, 1, 100);
        done += hf_client_dispatch(c);
    }
    CHECK_INT((long long)done, 2 * MANY);
    for (int i = 0; i < MANY; i++) {
        CHECK_INT(served.order[i], i);
        hf_lock_free(served.m[i]);
    }
    free(before);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
}

/* ---- rights that are missing, or taken away ---- */

TEST(P3_an_inbox_that_is_refused_for_good_does_not_leave_a_waiter_stuck)
{
    struct server *s = server_start(NULL);
    CHECK_STR(server_ask(s, "ACL SETUSER u reset on >pw ~* &* +@all"), "OK");
    hf_client *holder = client_at(server_url(s), 0), *c = client_at(as_user(server_url(s)), 2000);
    hf_lock *m = lock_of(holder, "a", 30000);
    struct locker l = { .m = lock_graced(c, "a", 30000, 2000), .wait_ms = 25000 };
    lock_now(m);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    char *member = strdup(server_ask(s, "ZRANGE {lock:a}:q 0 0"));
    CHECK(is_present(s, member));
    CHECK_STR(server_ask(s, "ACL SETUSER u resetchannels"), "OK");
    kill_inboxes(s);
    CHECK_EVENTUALLY(!is_present(s, member), 2000);
    unlock_now(m);
    int64_t start = t_now_ms();
    locker_join(&l, HF_OK);
    t_note("got it after %lld ms", (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 0, 5000);
    CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
    CHECK_INT(hf_lock_full_time_ms(l.m), 30000); /* nobody sees us: the ttl alone */
    CHECK_STR(strrchr(server_ask(s, "GET lock:a"), ':'), ":0");
    unlock_now(l.m);
    free(member);
    hf_lock_free(l.m);
    hf_lock_free(m);
    hf_client_free(c);
    hf_client_free(holder);
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 3000);
}

TEST(a_release_works_without_the_right_to_publish)
{
    static const char *const rights[] = {
        "ACL SETUSER u reset on >pw ~* &* +@all -publish",
        "ACL SETUSER u reset on >pw ~* resetchannels +@all",
        "ACL SETUSER u reset on >pw ~* resetchannels +@all -publish",
    };
    struct server *s = server_start(NULL);
    for (int i = 0; i < 3; i++) {
        CHECK_STR(server_ask(s, rights[i]), "OK");
        hf_client *holder = client_at(as_user(server_url(s)), 2000),
                  *c = client_at(server_url(s), 0);
        hf_lock *m = lock_of(holder, "a", 30000);
        struct locker l = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
        CHECK_HF(hf_lock_try(m, NULL, &err), HF_OK);
        locker_start(&l);
        CHECK_QUEUE(s, "a", 1);
        unlock_now(m);
        int64_t start = t_now_ms();
        locker_join(&l, HF_OK);
        CHECK_TOOK(t_now_ms() - start, 0, 3000);
        CHECK_HF(hf_lock_verify(l.m, &err), HF_OK);
        unlock_now(l.m);
        hf_lock_free(l.m);
        hf_lock_free(m);
        hf_client_free(c);
        hf_client_free(holder);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    }
}

/* ---- the end ---- */

static struct { int calls, never; hf_err first, unlock, lock, extend; } last;

static void never_called(hf_err result, const hf_error *e, void *arg)
{
    (void)result, (void)e, (void)arg;
    last.never++;
}

static void asks_for_more(hf_err result, const hf_error *e, void *arg)
{
    hf_lock *m = arg;
    (void)e;
    last.calls++;
    last.first = result;
    last.unlock = hf_lock_release_async(m, never_called, NULL, NULL);
    last.lock = hf_lock_acquire_async(m, 1000, never_called, NULL, NULL);
    last.extend = hf_lock_extend_async(m, 5000, never_called, NULL, NULL);
}

TEST(requests_made_while_the_client_is_freed_are_refused)
{
    struct server *s = server_start(NULL);
    for (int waiting = 0; waiting < 2; waiting++) {
        hf_client *holder = client_at(server_url(s), 0), *c = client_at(server_url(s), 2000);
        hf_lock *m = lock_of(holder, "a", 30000), *l = lock_of(c, "a", 30000);
        struct pollfd pfd = { .events = POLLIN };
        memset(&last, 0, sizeof last);
        if (waiting)
            lock_now(m);
        CHECK_HF(hf_client_fd(c, &pfd.fd, &err), HF_OK);
        CHECK_HF(hf_lock_acquire_async(l, 20000, asks_for_more, l, &err), HF_OK);
        if (waiting)
            LOOP_QUEUE(c, s, "a", 1);
        else
            CHECK_INT(poll(&pfd, 1, 5000), 1); /* there is something to do, and nobody does it */
        CHECK_INT(last.calls, 0);
        hf_client_free(c);
        t_note("%s, then %s, %s, %s", hf_err_name(last.first), hf_err_name(last.unlock),
               hf_err_name(last.lock), hf_err_name(last.extend));
        CHECK_INT(last.calls, 1);
        CHECK_INT(last.never, 0);
        CHECK(last.unlock != HF_OK && last.lock != HF_OK && last.extend != HF_OK);
        CHECK_INT(last.unlock, HF_ECANCELED);
        hf_lock_free(l);
        CHECK_INT(queue_of(s, "a"), 0);
        if (waiting)
            unlock_now(m);
        hf_lock_free(m);
        hf_client_free(holder);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:q"), 0);
    }
}

/* ---- one token, one set of terms ---- */

/* What the handle believes is what stands in the server. */
static void check_terms(struct server *s, hf_lock *m, int64_t ttl_ms)
{
    const char *value = server_ask(s, "GET lock:a");
    CHECK(value);
    long long grace = atoll(strrchr(value, ':') + 1);
    if (hf_lock_full_time_ms(m) != (grace ? grace : ttl_ms))
        FAIL("believes in terms of %lld ms, but the value is %s",
             (long long)hf_lock_full_time_ms(m), value);
    CHECK_INT(strncmp(value, hf_lock_owner(m), strlen(hf_lock_owner(m))), 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_is_held(m), 1);
}

/* Granted with a grace, the reply lost, and the inbox gone for good before the repeat. */
TEST(P1_one_token_one_grace)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    CHECK_STR(server_ask(s, "ACL SETUSER u reset on >pw ~* &* +@all"), "OK");
    hf_client *c = client_at(as_user(proxy_url(p)), 1500);
    struct locker l = { .m = lock_graced(c, "a", 30000, 3000), .wait_ms = 20000 };
    lock_now(l.m);
    unlock_now(l.m);
    proxy_when(p, lua_sha[LUA_acquire]);
    proxy_drop_replies(p);
    locker_start(&l);
    CHECK_EVENTUALLY(proxy_dropped(p) > 0, 5000);
    proxy_pass(p); /* for all but that connection */
    char *value = strdup(server_ask(s, "GET lock:a"));
    CHECK_STR(strrchr(value, ':'), ":3000");
    CHECK_STR(server_ask(s, "ACL SETUSER u resetchannels"), "OK");
    kill_inboxes(s);
    CHECK_EVENTUALLY(!is_present(s, value), 2000);
    CHECK_INT(pthread_join(l.thread, NULL), 0);
    t_note("%s (%s)", hf_err_name(l.result), l.error.message);
    if (l.result == HF_OK) {
        check_terms(s, l.m, 30000);
        unlock_now(l.m);
    }
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    free(value);
    hf_lock_free(l.m);
    hf_client_free(c);
}

TEST(P1_one_token_one_grace_when_the_server_stands_still)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 2000);
    struct locker l = { .m = lock_graced(c, "a", 9000, 3000), .wait_ms = 20000 };
    lock_now(l.m);
    unlock_now(l.m);
    server_freeze(s);
    locker_start(&l);
    t_sleep_ms(3500); /* longer than a request may take */
    server_thaw(s);
    CHECK_INT(pthread_join(l.thread, NULL), 0);
    t_note("%s (%s)", hf_err_name(l.result), l.error.message);
    if (l.result == HF_OK) {
        check_terms(s, l.m, 9000);
        unlock_now(l.m);
    }
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a {lock:a}:q") == 0, 5000);
    hf_lock_free(l.m);
    hf_client_free(c);
}
