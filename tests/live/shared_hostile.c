/* SPDX-License-Identifier: MIT
 * shared_hostile.c - locks that several hold when others touch their keys, the server restarts or
 * forgets, its clock jumps, or whoever knows an owner id acts from elsewhere.
 */
#include <signal.h>

#include "harness/proc.h"
#include "harness/sharing.h"

/* ---- keys that hold something else ---- */

struct strange {
    struct server *s;
    hf_client     *c;
    hf_lock       *held[2], *more, *alone;
    const char    *key;
    long           before;
};

/* Two permits of three are out, and {lock:a}:SUFFIX is somebody's list. */
static void strange_begin(struct strange *x, const char *key)
{
    x->s = server_start(NULL);
    x->c = client_at(server_url(x->s), 0);
    x->key = key;
    for (int i = 0; i < 2; i++) {
        x->held[i] = permit_of(x->c, 3, 1);
        lock_now(x->held[i]);
    }
    x->more = permit_of(x->c, 3, 1);
    x->alone = lock_of(x->c, "a", 30000);
    server_ask(x->s, "DEL %s", key);
    CHECK_INT(server_int(x->s, "RPUSH %s foreign", key), 1);
    x->before = atol(server_info(x->s, "total_commands_processed"));
}

static void strange_end(struct strange *x)
{
    CHECK_STR(server_ask(x->s, "LRANGE %s 0 -1", x->key), "foreign");
    long took = atol(server_info(x->s, "total_commands_processed")) - x->before;
    t_note("%s: %ld commands", x->key, took);
    CHECK(took < 300); /* nobody tried again and again */
    CHECK_INT(server_int(x->s, "DEL %s", x->key), 1);
    for (int i = 0; i < 2; i++)
        hf_lock_free(x->held[i]);
    hf_lock_free(x->more);
    hf_lock_free(x->alone);
    hf_client_free(x->c);
}

TEST(P10_a_queue_of_another_type_stops_those_who_wait_and_nobody_who_leaves)
{
    struct strange x;
    strange_begin(&x, "{lock:a}:q");
    CHECK_HF(hf_lock_try(x.more, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_lock_acquire(x.more, 300, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_lock_acquire(x.alone, 300, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_lock_verify(x.held[0], &err), HF_OK);
    CHECK_HF(hf_semaphore_resize(x.c, hf_str("a"), 4, NULL, &err), HF_OK);
    CHECK_HF(hf_semaphore_resize(x.c, hf_str("a"), 3, NULL, &err), HF_OK);
    unlock_now(x.held[0]);
    check_sums(x.s);
    unlock_now(x.held[1]);
    CHECK_INT(server_int(x.s, "EXISTS lock:a {lock:a}:h {lock:a}:d"), 0);
    strange_end(&x);
    CHECK_STR(server_keys(x.s), ONLY_OURS);
}

static void strange_holders(const char *key, hf_err verified, hf_err unlocked)
{
    struct strange x;
    strange_begin(&x, key);
    CHECK_HF(hf_lock_try(x.more, NULL, &err), HF_ETYPE);
    CHECK_CONTAINS(err.message, "another type");
    CHECK_HF(hf_lock_acquire(x.more, 300, NULL, &err), HF_ETYPE);
    CHECK_HF(hf_lock_try(x.alone, NULL, &err), HF_EBUSY); /* nothing is stolen */
    hf_err e = hf_lock_acquire(x.alone, 2000, NULL, &err);
    if (e != HF_ETYPE)
        FAIL("%s: %s", hf_err_name(e), err.message);
    CHECK_HF(hf_semaphore_resize(x.c, hf_str("a"), 4, NULL, &err), HF_ETYPE);
    CHECK_INT(server_int(x.s, "EXISTS {lock:a}:s"), 0);
    CHECK_HF(hf_lock_verify(x.held[0], &err), verified);
    CHECK_HF(hf_lock_release(x.held[0], &err), unlocked);
    CHECK_INT(server_int(x.s, "EXISTS lock:a"), 1);
    strange_end(&x);
    check_only_ttls(x.s);
}

TEST(P10_holders_of_another_type_are_an_error_and_nothing_is_stolen)
{
    strange_holders("{lock:a}:h", HF_ELOST, HF_ELOST);
    strange_holders("{lock:a}:d", HF_OK, HF_ETYPE);
}

TEST(P10_a_changed_limit_of_another_type_counts_for_none)
{
    struct strange x;
    strange_begin(&x, "{lock:a}:s");
    hf_lock *four = permit_of(x.c, 4, 1);
    CHECK_HF(hf_semaphore_resize(x.c, hf_str("a"), 4, NULL, &err), HF_ETYPE);
    lock_now(x.more);
    CHECK_HF(hf_lock_try(four, NULL, &err), HF_ELIMIT);
    struct locker l = { .m = four, .wait_ms = 20000 };
    for (int i = 0; i < 2; i++)
        unlock_now(x.held[i]);
    unlock_now(x.more);
    lock_now(x.alone);
    locker_start(&l);
    CHECK_QUEUE(x.s, "a", 1);
    unlock_now(x.alone); /* one who has it alone is not kept from handing it on */
    locker_join(&l, HF_OK);
    check_sums(x.s);
    unlock_now(four);
    hf_lock_free(four);
    strange_end(&x);
    CHECK_STR(server_keys(x.s), ONLY_OURS);
}

TEST(P10_an_absent_mark_of_another_type_is_replaced)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = reader_of(c, 30000, 1000), *b = reader_of(c, 30000, 1000);
    lock_now(a);
    lock_now(b);
    server_ask(s, "RPUSH {lock:a}:absent x");
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    CHECK_HF(hf_lock_extend(a, 20000, &err), HF_OK);
    unlock_now(a);
    struct locker w = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    unlock_now(b);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    server_ask(s, "DEL {lock:a}:absent");
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- a lock key that others touch ---- */

TEST(R1_a_lock_that_others_deleted_begins_anew_without_those_who_had_it)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 2, 2), *b = permit_of(d, 2, 2), *w = lock_of(d, "a", 30000);
    lock_now(a);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    lock_now(b);
    check_sums(s);
    CHECK_INT(holders_of(s), 1);
    CHECK_HF(hf_lock_verify(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
    unlock_now(b);
    lock_now(a);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    lock_now(w); /* alone, with the old ones' traces beside it */
    CHECK_HF(hf_lock_extend(a, 20000, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(w, &err), HF_OK);
    CHECK_HF(hf_lock_downgrade(w, &err), HF_OK);
    CHECK_INT(holders_of(s), 1);
    check_sums(s);
    unlock_now(w);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(w);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

TEST(R1_a_lock_that_another_librarys_client_overwrote_is_its_own)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 3, 1), *b = permit_of(c, 3, 1);
    lock_now(a);
    server_ask(s, "SET lock:a foreign PX 1500");
    CHECK_HF(hf_lock_verify(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_try(b, NULL, &err), HF_EBUSY);
    CHECK_STR(server_ask(s, "GET lock:a"), "foreign");
    lock_now(b); /* when its ttl has ended */
    CHECK_INT(holders_of(s), 1);
    check_sums(s);
    unlock_now(b);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    check_only_ttls(s);
}

TEST(P10_a_shared_lock_without_a_ttl_gets_that_of_its_last_holder)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 2, 2);
    hf_lock *b = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 500, .slots = 2 });
    lock_now(a);
    CHECK_INT(server_int(s, "PERSIST lock:a"), 1);
    CHECK_HF(hf_lock_try(b, NULL, &err), HF_EBUSY);
    CHECK_INT(server_int(s, "PTTL lock:a"), -1); /* who only tries changes nothing */
    CHECK_HF(hf_lock_acquire(b, 100, NULL, &err), HF_ETIMEDOUT);
    check_sums(s);
    hf_lock *five = permit_of(c, 5, 1);
    CHECK_INT(server_int(s, "PERSIST lock:a"), 1);
    CHECK_HF(hf_lock_extend(a, 90000, &err), HF_OK);
    CHECK_INT(server_int(s, "PERSIST lock:a"), 1);
    CHECK_HF(hf_lock_acquire(five, 100, NULL, &err), HF_ELIMIT); /* nor by one who is sent away */
    check_sums(s);
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    unlock_now(a);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(five);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- a server that restarts, forgets, or whose clock jumps ---- */

TEST(R5_A4_a_restart_takes_no_reader_for_dead_and_no_writer_gets_in)
{
    struct server *s = server_start_opts(&(struct server_opts){ .aof = 1 });
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = reader_of(c, 60000, 3000), *b = reader_of(d, 60000, 3000);
    struct locker w = { .m = lock_of(d, "a", 30000), .wait_ms = 40000 };
    lock_now(a);
    lock_now(b);
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    for (int i = 0; i < 3; i++) {
        server_kill(s);
        server_restart(s);
        CHECK_EVENTUALLY(is_present(s, hf_lock_owner(a)) && is_present(s, hf_lock_owner(b)),
                         10000);
        CHECK_EVENTUALLY(hf_lock_verify(a, &err) == HF_OK && hf_lock_verify(b, &err) == HF_OK,
                         10000);
        CHECK_EVENTUALLY(queue_of(s, "a") == 1, 10000);
        CHECK_INT(holders_of(s), 2);
        check_sums(s);
    }
    CHECK_INT(atomic_load(&w.done), 0);
    unlock_now(a);
    unlock_now(b);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

TEST(SEM1_a_server_that_forgot_everything_begins_anew)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 2, 2), *b = permit_of(d, 2, 2);
    uint64_t first = lock_now(a);
    server_ask(s, "FLUSHALL");
    CHECK_HF(hf_lock_verify(a, &err), HF_ELOST);
    CHECK(lock_now(b) > first);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
    check_sums(s);
    unlock_now(b);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
}

TEST(SEM1_a_server_whose_clock_jumps_loses_permits_and_never_gives_too_many)
{
    enum { HOUR = 3600 * 1000 };
    struct server *s = server_start_opts(&(struct server_opts){ .clockshim = 1 });
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 2, 1), *b = permit_of(c, 2, 1), *more = permit_of(c, 2, 1);
    const char *time = "return tonumber(redis.call('TIME')[1])";
    long long real = server_int(s, "EVAL %s 0", time);
    lock_now(a);
    server_clock_shift(s, -HOUR);
    CHECK_EVENTUALLY(server_int(s, "EVAL %s 0", time) < real - 3000, 5000);
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    lock_now(b);
    CHECK_HF(hf_lock_try(more, NULL, &err), HF_EBUSY);
    unlock_now(a); /* the one that would have lasted for an hour */
    check_sums(s);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 30000);
    lock_now(more);
    unlock_now(more);
    unlock_now(b);
    lock_now(a);
    lock_now(b);
    server_clock_shift(s, HOUR);
    CHECK_EVENTUALLY(hf_lock_verify(a, &err) == HF_ELOST, 5000);
    CHECK_HF(hf_lock_verify(b, &err), HF_ELOST);
    lock_now(more);
    check_sums(s);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(b, &err), HF_ELOST);
    lock_now(a);
    CHECK_HF(hf_lock_try(b, NULL, &err), HF_EBUSY);
    unlock_now(a);
    unlock_now(more);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(more);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* A server whose memory is used up gives nothing more, but what is held is renewed and taken
 * back. */
TEST(SEM5_a_full_server_renews_and_takes_back)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 3, 1), *b = permit_of(c, 3, 2), *w = lock_of(c, "b", 30000);
    struct locker l = { .m = permit_of(c, 3, 1), .wait_ms = 20000 };
    lock_now(a);
    lock_now(b);
    lock_now(w);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_STR(server_ask(s, "CONFIG SET maxmemory 1"), "OK");
    CHECK_CONTAINS(server_ask(s, "SET x y"), "OOM");
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    CHECK_HF(hf_lock_extend(a, 40000, &err), HF_OK);
    CHECK_HF(hf_lock_downgrade(w, &err), HF_OK);
    unlock_now(w);
    unlock_now(b);
    locker_join(&l, HF_OK); /* handed on all the same */
    check_sums(s);
    unlock_now(l.m);
    unlock_now(a);
    CHECK_INT(server_int(s, "EXISTS lock:a lock:b {lock:a}:h {lock:a}:d {lock:b}:h"), 0);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(w);
    hf_lock_free(l.m);
    hf_client_free(c);
}

/* ---- by owner id, from elsewhere ---- */

TEST(P2_whoever_knows_a_holders_id_acts_for_it_and_for_no_other)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 3, 2), *b = permit_of(c, 3, 1);
    int64_t left = 0;
    size_t count = 9;
    lock_now(a);
    lock_now(b);
    hf_bytes id = hf_str(hf_lock_owner(a));
    CHECK_HF(hf_owner_check(d, hf_str("a"), id, &left, &err), HF_OK);
    CHECK_RANGE(left, 1, 30000);
    CHECK_HF(hf_owner_extend(d, hf_str("a"), id, 90000, &err), HF_OK);
    CHECK_HF(hf_owner_extend(d, hf_str("a"), id, 1000, &err), HF_EINVAL); /* never shortens */
    CHECK_HF(hf_owner_check(d, hf_str("a"), id, &left, &err), HF_OK);
    CHECK_RANGE(left, 80000, 90000);
    check_sums(s);
    const char *value = server_ask(s, "GET lock:a"); /* no secret, and nobody's id */
    CHECK_HF(hf_owner_check(d, hf_str("a"), hf_str(value), NULL, &err), HF_ENOTOWNER);
    CHECK_HF(hf_owner_release(d, hf_str("a"), hf_str(value), &err), HF_ENOTOWNER);
    CHECK_INT(holders_of(s), 2);
    CHECK_HF(hf_owner_release(d, hf_str("a"), id, &err), HF_OK);
    CHECK_HF(hf_owner_release(d, hf_str("a"), id, &err), HF_ENOTOWNER);
    CHECK_HF(hf_lock_verify(a, &err), HF_ELOST);
    CHECK_INT(hf_lock_loss(a), HF_LOSS_RELEASED);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
    check_sums(s);
    CHECK_HF(hf_owner_release_all(d, hf_str(hf_lock_owner(b)), &count, &err), HF_OK);
    CHECK_INT((long long)count, 1);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    CHECK_HF(hf_lock_release(b, &err), HF_ELOST);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

TEST(SEM5_a_release_by_id_lets_in_who_waits)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 1, 1);
    struct locker l = { .m = permit_of(d, 1, 1), .wait_ms = 20000 };
    lock_now(a);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_HF(hf_owner_release(d, hf_str("a"), hf_str(hf_lock_owner(a)), &err), HF_OK);
    CHECK_INT(queue_of(s, "a"), 0);
    locker_join(&l, HF_OK);
    CHECK_HF(hf_lock_release(a, &err), HF_ELOST);
    unlock_now(l.m);
    hf_lock_free(a);
    hf_lock_free(l.m);
    hf_client_free(c);
    hf_client_free(d);
    check_only_ttls(s);
}

/* Left behind by its process, a reader's part lasts as long as it said, and nobody takes it
 * over. */
TEST(R5_a_part_that_is_left_behind_keeps_its_ttl_and_the_others_theirs)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = reader_of(c, 30000, 1000), *b = reader_of(d, 30000, 1000);
    struct locker w = { .m = lock_of(d, "a", 30000), .wait_ms = 20000 };
    lock_now(a);
    lock_now(b);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_detach(a, 2500, &err), HF_OK);
    hf_lock_free(a);
    hf_client_free(c);
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    unlock_now(b);
    check_sums(s);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 2500);
    locker_join(&w, HF_OK);
    CHECK(t_now_ms() - start >= 2450); /* not after its grace */
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(b);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}
