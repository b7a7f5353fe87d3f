/* SPDX-License-Identifier: MIT
 * break.c - breaking a lock: never two believers, the next in line gets it, and only who was named
 * loses it.
 */
#define LIVE_SCRIPTS
#include "harness/breaking.h"
#include "harness/keep.h"
#include "harness/proxy.h"

/* ---- who holds it ---- */

TEST(BR1_a_living_holder_lets_go_and_the_next_in_line_has_it)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    struct locker next = next_in_line((hf_lock_opts){ .ttl_ms = 60000 });
    locker_start(&next);
    CHECK_QUEUE(s, "a", 1);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 30000, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_RELEASED);
    CHECK_INT(got.told, 1);
    CHECK_RANGE(got.after_ms, 0, 20000); /* far from the ttl */
    locker_join(&next, HF_OK);
    CHECK(next.fence > atomic_load(&b->fence));
    believer_check(b, next.done_ns);
    believer_end(b);
    CHECK_INT(atomic_load(&b->loss), HF_LOSS_BROKEN);
    CHECK_INT(atomic_load(&b->released), HF_ELOST);
    CHECK_CONTAINS(b->text, "broken by ");
    CHECK_CONTAINS(b->text, "@");
    CHECK_CONTAINS(b->text, ": " REASON);
    CHECK(hf_lock_is_held(next.m));
    check_only_ttls(s);
}

TEST(BR1_a_holder_that_does_not_let_go_keeps_it_from_others_until_its_lease_ends)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 6000 });
    atomic_store(&b->stubborn, 1);
    struct locker next = next_in_line((hf_lock_opts){ .ttl_ms = 60000 });
    locker_start(&next);
    CHECK_QUEUE(s, "a", 1);
    int64_t begun = t_now_ms();
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 2000, &got), HF_ETIMEDOUT);
    CHECK_INT(got.how, HF_BROKEN_MARKED);
    CHECK_INT(got.told, 1);
    CHECK_RANGE(got.left_ms, 0, 6000);
    CHECK_CONTAINS(err.message, "its holder knows");
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), HF_WAIT_FOREVER, &got), HF_OK);
    locker_join(&next, HF_OK);
    CHECK(t_now_ms() - begun >= 2000);
    believer_check(b, next.done_ns);
    believer_end(b);
}

TEST(BR1_of_a_frozen_holder_it_passes_when_its_lease_has_ended)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 6000 });
    struct locker next = next_in_line((hf_lock_opts){ .ttl_ms = 60000 });
    locker_start(&next);
    CHECK_QUEUE(s, "a", 1);
    believer_signal(b, SIGSTOP);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 300, &got), HF_ETIMEDOUT);
    CHECK_INT(got.how, HF_BROKEN_MARKED);
    CHECK_INT(got.told, 0);
    CHECK_INT(got.present, 1); /* its connection stands: nobody may take over */
    CHECK(!atomic_load(&next.done));
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), HF_WAIT_FOREVER, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_EXPIRED);
    locker_join(&next, HF_OK);
    believer_signal(b, SIGCONT);
    believer_check(b, next.done_ns);
    believer_end(b);
    CHECK_INT(atomic_load(&b->lost), 1);
    CHECK(hf_lock_is_held(next.m));
}

struct breaker {
    hf_client    *by;
    uint64_t      fence;
    hf_err        e;
    hf_break_info got;
};

static void *break_main(void *arg)
{
    struct breaker *k = arg;
    k->e = broken(k->by, "a", k->fence, HF_WAIT_FOREVER, &k->got);
    return NULL;
}

/* The answer to the mark comes late, and all later ones at once: the end of the lease is seen
 * before the time that the late answer seems to say. */
TEST(of_a_frozen_holder_nobody_says_that_it_let_go_however_late_an_answer_was)
{
    begin();
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 8000 });
    struct proxy *p = proxy_start(s);
    struct breaker k = { .by = client_at(proxy_url(p), 20000), .fence = atomic_load(&b->fence) };
    pthread_t thread;
    believer_signal(b, SIGSTOP);
    CHECK_HF(broken(k.by, "a", k.fence, 0, NULL), HF_ETIMEDOUT); /* connected, and marked */
    server_monitor_start(s);
    proxy_delay(p, 700);
    CHECK_INT(pthread_create(&thread, NULL, break_main, &k), 0);
    CHECK_EVENTUALLY(server_monitor_count(s, "\"look\"") > 0, 8000); /* it has read that answer */
    proxy_pass(p);
    CHECK(server_int(s, "PTTL lock:a") > 700);
    pthread_join(thread, NULL);
    CHECK_HF(k.e, HF_OK);
    CHECK_INT(k.got.told, 0);
    CHECK_INT(k.got.how, HF_BROKEN_EXPIRED);
    believer_signal(b, SIGCONT);
    believer_end(b);
}

TEST(BR1_of_a_dead_holder_it_passes_after_its_grace_though_nobody_waits)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 600000,
                                                                           .grace_ms = 2000 });
    CHECK(is_present(s, server_ask(s, "GET lock:a")));
    believer_signal(b, SIGKILL);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 60000, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_GONE);
    CHECK_RANGE(got.after_ms, 1900, 60000);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
    workers_join(b->w, 5000);
}

TEST(BR1_a_holder_without_a_session_hears_of_it_at_its_next_renewal)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a",
                                        (hf_lock_opts){ .ttl_ms = 6000,
                                                        .grace_ms = HF_NO_TAKEOVER });
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 30000, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_RELEASED);
    believer_end(b);
    CHECK_INT(atomic_load(&b->loss), HF_LOSS_BROKEN);
}

/* ---- nobody else ---- */

TEST(BR2_with_a_wrong_number_nothing_is_done)
{
    begin();
    hf_break_info got = { .how = 77 };
    hf_lock *m = lock_with(c, "a", KEPT);
    uint64_t fence = lock_now(m);
    char number[32];
    snprintf(number, sizeof number, "%llu", (unsigned long long)fence);
    CHECK_HF(broken(c, "a", fence - 1, 1000, &got), HF_ENOTOWNER);
    CHECK_CONTAINS(err.message, number);
    CHECK_INT((int)got.how, 77);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:x"), 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    CHECK_HF(broken(c, "a", fence, 1000, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_FREE);
    CHECK_HF(broken(c, "a", 0, 1000, &got), HF_EINVAL);
    CHECK_HF(hf_break(c, hf_str("a"), fence, NULL, NULL, &err), HF_OK);
}

/* What renewals write there ("told") is not counted by them. */
TEST(very_many_notes_beside_a_lock_are_dropped)
{
    begin();
    hf_break_info got;
    hf_lock *m = lock_with(c, "a", KEPT);
    uint64_t fence = lock_now(m);
    for (int i = 0; i < 1001; i++)
        CHECK_INT(server_int(s, "HSET {lock:a}:x told:%d 1", i), 1);
    CHECK_HF(broken(c, "a", fence, 0, &got), HF_ETIMEDOUT);
    CHECK_RANGE(server_int(s, "HLEN {lock:a}:x"), 1, 10);
    CHECK_INT(server_int(s, "HEXISTS {lock:a}:x break:%llu", (unsigned long long)fence), 1);
}

TEST(BR2_the_next_holder_is_not_concerned)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    uint64_t fence = atomic_load(&b->fence);
    CHECK_HF(broken(c, "a", fence, 30000, &got), HF_OK);
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    CHECK_INT(server_int(s, "HEXISTS {lock:a}:x break:%llu", (unsigned long long)fence), 1);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_HF(hf_lock_extend(m, 20000, &err), HF_OK);
    CHECK_HF(broken(c, "a", fence, 1000, &got), HF_ENOTOWNER);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    believer_end(b);
}

/* No answer came to who was granted it, so it asks again. It was broken meanwhile. */
/* The scripts that take a lock, and what they answer to a token that has it, but must not. */
static const struct {
    int         id;
    const char *form;
    const char *refusal; /* how its answer begins then */
} by[] = {
    { LUA_acquire, "EVAL %s 5 lock:a lock:holdfast:fence {lock:a}:q {lock:a}:t {lock:a}:own "
                   "%s %d 0", "-6\n" },
    { LUA_share, "EVAL %s 4 lock:a lock:holdfast:fence {lock:a}:q {lock:a}:t %s %d 0 0 0 0 1 -",
      "-6\n" },
    { LUA_acquire_all, "EVAL %s 4 lock:holdfast:fence lock:a {lock:a}:q {lock:a}:t %s %d 0 %b 0 0",
      "-1\n1" },
};

TEST(BR1_a_repeated_request_does_not_prolong_what_was_broken)
{
    begin();
    static const char token[] = "0123456789abcdef0123456789abcdef.1";
    for (size_t i = 0; i < sizeof by / sizeof by[0]; i++) {
        hf_break_info got;
        server_ask(s, "DEL lock:a {lock:a}:x {lock:a}:h {lock:a}:d");
        const char *text = lua_text[by[i].id];
        const char *fence = server_ask(s, by[i].form, text, token, 20000, "", (size_t)0);
        fence = keep_text("%s", fence);
        CHECK_STR(server_ask(s, by[i].form, text, token, 30000, "", (size_t)0), fence);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 20001, 30000);
        CHECK_HF(broken(c, "a", strtoull(fence, NULL, 10), 0, &got), HF_ETIMEDOUT);
        CHECK(strncmp(server_ask(s, by[i].form, text, token, 60000, "", (size_t)0), by[i].refusal,
                      strlen(by[i].refusal)) == 0);
        CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 30000);
    }
}

/* So does its mark of absence: else the next absence would seem to have begun long ago. */
TEST(P1_a_repeated_request_takes_the_mark_of_absence_away)
{
    begin();
    static const char token[] = "0123456789abcdef0123456789abcdef.1";
    lock_of(c, "other", 1000); /* the reign has begun */
    for (size_t i = 0; i < sizeof by / sizeof by[0]; i++) {
        server_ask(s, "DEL lock:a {lock:a}:absent {lock:a}:h {lock:a}:d");
        const char *text = lua_text[by[i].id];
        const char *fence = keep_text("%s", server_ask(s, by[i].form, text, token, 20000, "",
                                                       (size_t)0));
        const char *of = keep_text("%s", server_ask(s, "GET lock:a"));
        of = by[i].id == LUA_share ? token : of;
        CHECK_INT(server_int(s, "HSET {lock:a}:absent %s x", of), 1);
        CHECK_STR(server_ask(s, by[i].form, text, token, 20000, "", (size_t)0), fence);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:absent"), 0);
    }
}

TEST(BR2_of_several_that_share_only_the_one_who_was_named_loses)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                           .shared = 1 });
    struct believer *other = believer_start(server_url(s), "a", b->opts);
    hf_lock *reader = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .shared = 1 });
    lock_now(reader);
    CHECK_HF(broken(c, "a", 12345, 0, &got), HF_ENOTOWNER);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 30000, &got), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_RELEASED);
    CHECK_INT(server_int(s, "ZCARD {lock:a}:h"), 2);
    believer_end(b);
    CHECK_INT(atomic_load(&b->loss), HF_LOSS_BROKEN);
    CHECK_HF(hf_lock_verify(reader, &err), HF_OK);
    believer_end(other);
    CHECK_INT(atomic_load(&other->loss), HF_LOSS_NONE);
    CHECK_INT(atomic_load(&other->released), HF_OK);
    unlock_now(reader);
}

TEST(BR3_a_message_alone_takes_nothing)
{
    begin();
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    char *token = strdup(hf_lock_owner(m));
    CHECK(is_present(s, token));
    const char *lie = "return redis.call('PUBLISH', ARGV[1], 'break ' .. ARGV[2])"
                      " + redis.call('PUBLISH', ARGV[1], 'ask ' .. ARGV[2])";
    const char *channel = keep_text("lock:holdfast:s:%.32s", token);
    long long before = atoll(server_ask(s, "GET " FENCE_KEY));
    for (int i = 0; i < 300; i++) {
        CHECK_INT(server_int(s, "EVAL %s 0 %s %s", lie, channel, token), 2);
    }
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(hf_lock_asked(m, NULL, 0), 0);
    CHECK_INT(atoll(server_ask(s, "GET " FENCE_KEY)), before);
    unlock_now(m);
    free(token);
}

/* ---- those who ask by themselves ---- */

TEST(BR1_whoever_asks_under_that_number_is_told)
{
    begin();
    hf_break_info got;
    hf_client *holder = client_at(server_url(s), 0);
    hf_lock_opts o = { .ttl_ms = 60000, .grace_ms = HF_NO_TAKEOVER, .no_renew = 1 };
    for (int i = 0; i < 4; i++) {
        hf_lock *m = lock_with(holder, "a", o);
        uint64_t fence = lock_now(m);
        CHECK_HF(broken(c, "a", fence, 0, &got), HF_ETIMEDOUT);
        CHECK_INT(got.told, 0);
        /* Nobody has told it, and nobody else has it; it may have looked by itself meanwhile. */
        CHECK(hf_lock_is_held(m) || hf_lock_loss(m) == HF_LOSS_BROKEN);
        hf_err e = i == 0   ? hf_lock_verify(m, &err)
                   : i == 1 ? hf_lock_extend(m, 90000, &err)
                   : i == 2 ? hf_lock_downgrade(m, &err)
                            : hf_lock_detach(m, 90000, &err);
        CHECK_INT(e, HF_ELOST);
        CHECK_CONTAINS(err.message, "broken by ");
        CHECK_CONTAINS(err.message, REASON);
        CHECK(!hf_lock_is_held(m));
        CHECK(server_int(s, "PTTL lock:a") <= 60000);
        hf_lock_free(m);
        CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 10000); /* it was given back */
    }
    hf_client_free(holder);
}

TEST(BR1_a_lock_by_owner_id_is_not_extended_any_more)
{
    begin();
    hf_break_info got;
    uint64_t fence;
    hf_bytes name = hf_str("a"), id = hf_str("job-7");
    CHECK_HF(hf_owner_acquire(c, name, 60000, id, &fence, &err), HF_OK);
    CHECK_HF(broken(c, "a", fence, 0, &got), HF_ETIMEDOUT);
    CHECK_HF(hf_owner_extend(c, name, id, 90000, &err), HF_ENOTOWNER);
    CHECK_CONTAINS(err.message, "broken by ");
    CHECK_HF(hf_owner_check(c, name, id, NULL, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_release(c, name, id, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(c, name, 60000, id, &fence, &err), HF_OK);
    CHECK_HF(hf_owner_extend(c, name, id, 90000, &err), HF_OK);
    hf_lock *m = lock_with(c, "b", (hf_lock_opts){ .ttl_ms = 60000, .owner = hf_str("job-8") });
    CHECK_HF(broken(c, "b", lock_now(m), 0, &got), HF_ETIMEDOUT);
    CHECK_EVENTUALLY(hf_lock_loss(m) == HF_LOSS_BROKEN, 30000);
    hf_lock_free(m);
}

/* The mark is there before the waiter has claimed what was handed over. */
TEST(BR1_a_waiter_whose_turn_was_broken_before_it_came_gives_it_back)
{
    begin();
    hf_lock *m = lock_with(c, "a", KEPT);
    lock_now(m);
    hf_client *other = client_at(url_with(server_url(s), "confirm=1"), 0);
    struct locker next = { .m = lock_with(other, "a", KEPT), .wait_ms = 30000 };
    locker_start(&next);
    CHECK_QUEUE(s, "a", 1);
    long long mine = atoll(server_ask(s, "GET " FENCE_KEY)) + 1;
    CHECK_INT(server_int(s, "HSET {lock:a}:x break:%lld %s", mine, "1 ann@web3 no"), 1);
    unlock_now(m);
    locker_join(&next, HF_ELOST);
    CHECK_CONTAINS(next.error.message, "broken by ann@web3: no before");
    CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 10000);
    CHECK_INT(queue_of(s, "a"), 0);
    hf_lock_free(next.m);
    hf_lock_free(m);
}

/* ---- at once ---- */

TEST(BR2_at_once_hands_it_on_whatever_the_holder_believes)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 600000 });
    struct locker next = next_in_line((hf_lock_opts){ .ttl_ms = 60000 });
    locker_start(&next);
    CHECK_QUEUE(s, "a", 1);
    believer_signal(b, SIGSTOP);
    hf_break_opts o = { .size = sizeof o, .reason = REASON, .now = 1 };
    CHECK_HF(hf_break(c, hf_str("a"), atomic_load(&b->fence), &o, &got, &err), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_AT_ONCE);
    locker_join(&next, HF_OK);
    believer_signal(b, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&b->lost), 10000);
    believer_end(b);
    CHECK_INT(atomic_load(&b->loss), HF_LOSS_BROKEN);
    CHECK_CONTAINS(b->text, REASON);
    CHECK_HF(hf_lock_verify(next.m, &err), HF_OK);
}

/* The first request was done, and its reply lost. What the second one finds is no reason to say
 * that nothing was done: whoever believes that breaks the next holder's lock. */
TEST(BR2_a_break_whose_answer_was_lost_is_not_denied)
{
    begin();
    struct proxy *p = proxy_start(s);
    hf_client *cut = client_at(proxy_url(p), 5000);
    hf_lock *known = lock_of(c, "known", 60000);
    for (int taken = 0; taken < 2; taken++) {
        hf_break_info got;
        hf_break_opts o = { .size = sizeof o, .reason = REASON, .now = 1 };
        lock_now(known); /* the server knows the script from now on */
        CHECK_HF(hf_break(c, hf_str("known"), hf_lock_fence(known), &o, &got, &err), HF_OK);
        CHECK_HF(hf_lock_release(known, &err), HF_ELOST);
        hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 600000 });
        uint64_t fence = lock_now(m);
        struct locker next = next_in_line((hf_lock_opts){ .ttl_ms = 60000 });
        if (taken) {
            locker_start(&next);
            CHECK_QUEUE(s, "a", 1);
        }
        long cuts = proxy_cuts(p);
        proxy_when(p, REASON);
        proxy_cut_after(p, 1);
        CHECK_HF(hf_break(cut, hf_str("a"), fence, &o, &got, &err), HF_OK);
        CHECK(proxy_cuts(p) > cuts);
        CHECK_INT(got.how, HF_BROKEN_AT_ONCE);
        if (taken) {
            locker_join(&next, HF_OK);
            unlock_now(next.m);
        }
        CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
        hf_lock_free(m);
    }
}

TEST(BR2_a_lock_of_another_library_only_at_once_and_by_its_value)
{
    begin();
    hf_break_info got;
    CHECK_STR(server_ask(s, "SET lock:a theirs PX 60000"), "OK");
    CHECK_HF(broken(c, "a", 1, 0, &got), HF_ENOTSUP);
    hf_break_opts o = { .size = sizeof o, .now = 1, .value = hf_str("their") };
    CHECK_HF(hf_break(c, hf_str("a"), 0, &o, &got, &err), HF_ENOTSUP);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 1);
    o.value = hf_str("theirs");
    CHECK_HF(hf_break(c, hf_str("a"), 0, &o, &got, &err), HF_OK);
    CHECK_INT(got.how, HF_BROKEN_AT_ONCE);
    CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
}

TEST(BR2_what_is_no_lock_is_left_alone)
{
    begin();
    hf_break_info got;
    server_ask(s, "SET lock:a latch.1.1:1600000000000001:0 PX 60000");
    CHECK_HF(broken(c, "a", 1600000000000001, 0, &got), HF_ETYPE);
    server_ask(s, "HSET lock:h a b");
    CHECK_HF(broken(c, "h", 1, 0, &got), HF_ETYPE);
    CHECK_HF(hf_ask(c, hf_str("h"), 0, NULL, NULL, NULL, &err), HF_ETYPE);
}

/* ---- two at once, and text of others ---- */

TEST(BR2_of_two_breaks_the_first_is_told)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    believer_signal(b, SIGSTOP);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 0, &got), HF_ETIMEDOUT);
    hf_break_opts o = { .size = sizeof o, .reason = "the second" };
    CHECK_HF(hf_break(c, hf_str("a"), atomic_load(&b->fence), &o, &got, &err), HF_ETIMEDOUT);
    believer_signal(b, SIGCONT);
    CHECK_HF(broken(c, "a", atomic_load(&b->fence), 30000, &got), HF_OK);
    believer_end(b);
    CHECK_CONTAINS(b->text, REASON);
}

TEST(text_of_others_moves_no_cursor)
{
    begin();
    hf_break_info got;
    struct believer *b = believer_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000 });
    hf_break_opts o = { .size = sizeof o, .wait_ms = 30000,
                        .reason = "\x1b[2J\r\nna\xc3\xafve \xe2\x80\xae \xc2\x9b \xff end" };
    CHECK_HF(hf_break(c, hf_str("a"), atomic_load(&b->fence), &o, &got, &err), HF_OK);
    believer_end(b);
    CHECK_CONTAINS(b->text, ": \\x1b[2J\\x0d\\x0ana\xc3\xafve ");
    CHECK_CONTAINS(b->text, " \\xe2\\x80\\xae \\xc2\\x9b \\xff end");
    char longer[HF_REASON_MAX + 2];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    o.reason = longer;
    CHECK_HF(hf_break(c, hf_str("a"), 7, &o, &got, &err), HF_EINVAL);
    longer[HF_REASON_MAX] = '\0';
    CHECK_HF(hf_break(c, hf_str("a"), 7, &o, &got, &err), HF_OK);
}
