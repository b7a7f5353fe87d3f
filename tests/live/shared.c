/* SPDX-License-Identifier: MIT
 * shared.c - what read-write locks and semaphores have in common: several holders, each with its
 * own lease and presence, when replies are lost, turns are missed, processes die and keys are not
 * ours.
 */
#define LIVE_SCRIPTS
#include <signal.h>

#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/sharing.h"

#define SHORT_MS 300 /* the limit of a client whose requests are held up */

/* ---- turns that are missed ---- */

struct stage {
    struct server *s;
    struct bell    go;
    struct {
        atomic_int ready, granted;
    } *mem;
};

static void waits_for_a_permit(int index, void *arg)
{
    struct stage *st = arg;
    (void)index;
    hf_client *c = client_at(server_url(st->s), 0);
    hf_lock *m = permit_of(c, 2, 1);
    bell_wait(st->go);
    lock_now(m);
    atomic_store(&st->mem->granted, 1);
    bell_wait(st->go);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

/* Handed over to one who sleeps too long, and kept by others meanwhile: it asks anew, once. */
TEST(SEM5_a_turn_that_was_slept_through_is_asked_for_again_and_not_in_a_loop)
{
    struct stage st = { .s = server_start(NULL), .go = bell_new(),
                        .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(1, waits_for_a_permit, &st);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *a = permit_of(c, 2, 1), *b = permit_of(c, 2, 1);
    CHECK_HF(hf_lock_try(a, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_try(b, NULL, &err), HF_OK);
    bell_ring(st.go);
    CHECK_QUEUE(st.s, "a", 1);
    workers_signal(w, 0, SIGSTOP);
    unlock_now(a);
    CHECK_INT(queue_of(st.s, "a"), 0);
    CHECK_EVENTUALLY(ended_of(st.s) == 1, 10000);
    CHECK_INT(atomic_load(&st.mem->granted), 0);
    long before = atol(server_info(st.s, "total_commands_processed"));
    workers_signal(w, 0, SIGCONT);
    CHECK_EVENTUALLY(atomic_load(&st.mem->granted) == 1, 5000);
    long took = atol(server_info(st.s, "total_commands_processed")) - before;
    t_note("%ld commands", took);
    CHECK(took < 200);
    check_sums(st.s);
    bell_ring(st.go);
    workers_join(w, 20000);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

/* ---- a crowd of holders ---- */

#define MANY 250

static void reads_until_killed(int index, void *arg)
{
    struct stage *st = arg;
    (void)index;
    hf_client *c = client_at(server_url(st->s), 0);
    hf_lock *m = reader_of(c, 60000, 1000);
    lock_now(m);
    atomic_fetch_add(&st->mem->ready, 1);
    bell_wait(st->go);
}

TEST(R5_A6_two_dead_readers_among_hundreds_are_gone_after_their_grace)
{
    struct stage st = { .s = server_start(NULL), .go = bell_new(),
                        .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(2, reads_until_killed, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->ready) == 2, 20000);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *m[MANY];
    for (int i = 0; i < MANY; i++) {
        m[i] = reader_of(c, 60000, 1000);
        lock_now(m[i]);
    }
    struct locker writer = { .m = lock_of(c, "a", 30000), .wait_ms = 30000 };
    locker_start(&writer);
    CHECK_QUEUE(st.s, "a", 1);
    CHECK_INT(holders_of(st.s), MANY + 2);
    int64_t start = t_now_ms();
    for (int i = 0; i < 2; i++)
        workers_signal(w, i, SIGKILL);
    CHECK_EVENTUALLY(holders_of(st.s) == MANY, 15000);
    t_note("gone after %lld ms", (long long)(t_now_ms() - start));
    CHECK(t_now_ms() - start >= 900);
    check_sums(st.s);
    for (int i = 0; i < MANY; i++) {
        CHECK(hf_lock_is_held(m[i]));
        unlock_now(m[i]);
        hf_lock_free(m[i]);
    }
    locker_join(&writer, HF_OK);
    workers_join(w, 20000);
    hf_lock_free(writer.m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

static void reads_much_until_killed(int index, void *arg)
{
    struct stage *st = arg;
    (void)index;
    hf_client *c = client_at(server_url(st->s), 0);
    for (int i = 0; i < MANY; i++)
        lock_now(reader_of(c, 60000, 800));
    atomic_fetch_add(&st->mem->ready, 1);
    bell_wait(st->go);
}

/* A look sees a hundred holders at a time: so it takes some graces, and not the ttl. */
TEST(R5_hundreds_of_parts_of_one_dead_process_are_gone_before_their_ttl)
{
    struct stage st = { .s = server_start(NULL), .go = bell_new(),
                        .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(1, reads_much_until_killed, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->ready) == 1, 20000);
    hf_client *c = client_at(server_url(st.s), 0);
    struct locker writer = { .m = lock_of(c, "a", 30000), .wait_ms = 40000 };
    locker_start(&writer);
    CHECK_QUEUE(st.s, "a", 1);
    CHECK_INT(holders_of(st.s), MANY);
    int64_t start = t_now_ms();
    workers_signal(w, 0, SIGKILL);
    locker_join(&writer, HF_OK);
    t_note("%d parts were gone after %lld ms", MANY, (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 700, 25000);
    unlock_now(writer.m);
    workers_join(w, 20000);
    hf_lock_free(writer.m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

static void count_grant(hf_err result, const hf_error *e, void *arg)
{
    if (result)
        FAIL("%s: %s", hf_err_name(result), e ? e->message : "");
    ++*(int *)arg;
}

static void dispatch_until(hf_client *c, const int *count, int want, int64_t limit_ms)
{
    int fd;
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    for (int64_t until = t_now_ms() + limit_ms; *count < want;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (t_now_ms() > until)
            FAIL("%d of %d answered in %lld ms", *count, want, (long long)limit_ms);
        if (poll(&p, 1, 20) == 1)
            hf_client_dispatch(c);
    }
}

/* One script lets in a hundred; the next in line is told to go on, and nobody waits for a look. */
TEST(R3_a_thousand_readers_behind_a_writer_go_in_together)
{
    enum { N = 1500 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *writer = lock_of(c, "a", 60000), **m = calloc(N, sizeof *m);
    int granted = 0;
    lock_now(writer);
    for (int i = 0; i < N; i++) {
        m[i] = reader_of(d, 60000, HF_NO_TAKEOVER);
        CHECK_HF(hf_lock_acquire_async(m[i], 40000, count_grant, &granted, &err), HF_OK);
    }
    LOOP_EVENTUALLY(d, queue_of(s, "a") == N, 20000);
    int64_t start = t_now_ms();
    unlock_now(writer);
    dispatch_until(d, &granted, N, 20000);
    t_note("%lld ms", (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 0, 3000); /* by looks alone: 250 ms for each hundred */
    CHECK_INT(holders_of(s), N);
    check_sums(s);
    int64_t took = t_now_ms() - start;
    int calm = t_calm_ms(start) > took * 9 / 10, lost = 0;
    for (int i = 0; i < N; i++) {
        /* What was handed over is confirmed within a second, or lost: all of it at once is much for
         * a machine that has other work. */
        hf_err e = hf_lock_release(m[i], &err);
        if (e != HF_ELOST || calm)
            CHECK_HF(e, HF_OK);
        lost += e == HF_ELOST;
        hf_lock_free(m[i]);
    }
    t_note("%d of them were lost", lost);
    free(m);
    hf_lock_free(writer);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_EVENTUALLY(strcmp(server_keys(s), ONLY_OURS) == 0, 5000);
}

/* ---- those who can never fit ---- */

TEST(SEM3_one_who_waits_for_another_kind_of_lock_is_told_though_others_of_its_client_wait_on)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *first = lock_of(c, "a", 30000);
    struct locker l[3] = { { .m = reader_of(d, 30000, HF_NO_TAKEOVER), .wait_ms = 20000 },
                           { .m = permit_of(d, 3, 1), .wait_ms = 20000 },
                           { .m = lock_of(d, "a", 30000), .wait_ms = 20000 } };
    lock_now(first);
    for (int i = 0; i < 3; i++) {
        locker_start(&l[i]);
        CHECK_QUEUE(s, "a", i + 1);
    }
    unlock_now(first);
    locker_join(&l[0], HF_OK);
    locker_join(&l[1], HF_ELIMIT);
    CHECK_CONTAINS(l[1].error.message, "readers");
    CHECK_INT(atomic_load(&l[2].done), 0);
    unlock_now(l[0].m);
    locker_join(&l[2], HF_OK);
    for (int i = 0; i < 3; i++)
        hf_lock_free(l[i].m);
    hf_lock_free(first);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM4_one_who_waits_for_more_than_a_resize_left_is_told_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *one = permit_of(c, 5, 1);
    struct locker many = { .m = permit_of(c, 5, 4), .wait_ms = 20000 };
    struct locker all = { .m = permit_of(c, 5, 5), .wait_ms = 20000 };
    struct locker two = { .m = permit_of(c, 5, 2), .wait_ms = 20000 };
    lock_now(one);
    locker_start(&all);
    CHECK_QUEUE(s, "a", 1);
    locker_start(&many);
    CHECK_QUEUE(s, "a", 2);
    locker_start(&two);
    CHECK_QUEUE(s, "a", 3);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 3, NULL, &err), HF_OK);
    locker_join(&all, HF_ELIMIT);
    CHECK_CONTAINS(all.error.message, "3 in all");
    locker_join(&many, HF_ELIMIT);
    locker_join(&two, HF_OK); /* who stood behind them fits in */
    check_sums(s);
    unlock_now(two.m);
    unlock_now(one);
    hf_lock_free(one);
    hf_lock_free(many.m);
    hf_lock_free(all.m);
    hf_lock_free(two.m);
    hf_client_free(c);
    CHECK_INT(server_int(s, "DEL {lock:a}:s"), 1);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- a downgrade in doubt ---- */

/* How a downgrade ends of which the holder heard nothing. */
struct unheard {
    struct server *s;
    struct proxy  *p;
    hf_client     *c, *other;
    hf_lock       *m, *reader;
    uint64_t       fence;
};

static void downgrade_unheard(struct unheard *u, int arrives, int64_t grace_ms)
{
    u->s = server_prepared();
    u->p = proxy_start(u->s);
    u->c = client_at(proxy_url(u->p), SHORT_MS);
    u->other = client_at(server_url(u->s), 0);
    u->m = lock_with(u->c, "a", (hf_lock_opts){ .ttl_ms = 30000, .grace_ms = grace_ms });
    u->reader = reader_of(u->other, 30000, HF_NO_TAKEOVER);
    u->fence = lock_now(u->m);
    proxy_when(u->p, lua_sha[LUA_downgrade]);
    if (arrives)
        proxy_drop_replies(u->p);
    else
        proxy_hold(u->p);
    CHECK_HF(hf_lock_downgrade(u->m, &err), HF_EUNSURE);
    if (arrives)
        CHECK(proxy_dropped(u->p) > 0);
    else
        CHECK(proxy_held(u->p) > 0);
    CHECK_INT(hf_lock_is_held(u->m), 1);
    proxy_break(u->p);
    proxy_pass(u->p);
    int shared = strncmp(server_ask(u->s, "GET lock:a"), "shared.", 7) == 0;
    CHECK_INT(shared, arrives);
}

static void unheard_end(struct unheard *u)
{
    hf_lock_free(u->m);
    hf_lock_free(u->reader);
    hf_client_free(u->c);
    hf_client_free(u->other);
    CHECK_STR(server_keys(u->s), ONLY_OURS);
}

static void asks_on(int arrives)
{
    struct unheard u;
    downgrade_unheard(&u, arrives, HF_NO_TAKEOVER);
    server_ask(u.s, "HSET {lock:a}:absent x y");
    CHECK_HF(hf_lock_verify(u.m, &err), HF_OK);
    CHECK_INT(server_int(u.s, "HEXISTS {lock:a}:absent %s", arrives ? hf_lock_owner(u.m) : "x"),
              0);
    server_ask(u.s, "DEL {lock:a}:absent");
    CHECK_HF(hf_lock_extend(u.m, 40000, &err), HF_OK);
    CHECK_RANGE(server_int(u.s, "PTTL lock:a"), 30001, 40000);
    CHECK_HF(hf_lock_acquire(u.m, 0, NULL, &err), HF_EDEADLK); /* count on no more than a part */
    CHECK_HF(hf_lock_try(u.reader, NULL, &err), arrives ? HF_OK : HF_EBUSY);
    if (arrives)
        unlock_now(u.reader);
    CHECK_HF(hf_lock_downgrade(u.m, &err), HF_OK); /* now it surely is done */
    CHECK_INT((long long)hf_lock_fence(u.m), (long long)u.fence);
    CHECK_HF(hf_lock_try(u.reader, NULL, &err), HF_OK);
    CHECK_INT(holders_of(u.s), 2);
    check_sums(u.s);
    unlock_now(u.m);
    CHECK_HF(hf_lock_verify(u.reader, &err), HF_OK);
    unlock_now(u.reader);
    unheard_end(&u);
}

TEST(R4_R6_a_downgrade_whose_reply_was_lost_is_found_by_every_later_request)
{
    asks_on(1);
}

TEST(R4_R6_a_downgrade_that_never_arrived_can_be_asked_for_again)
{
    asks_on(0);
}

static void unlocks(int arrives)
{
    struct unheard u;
    downgrade_unheard(&u, arrives, HF_NO_TAKEOVER);
    unlock_now(u.m);
    CHECK_INT(server_int(u.s, "EXISTS lock:a {lock:a}:h {lock:a}:d"), 0);
    CHECK_HF(hf_lock_try(u.reader, NULL, &err), HF_OK);
    unheard_end(&u);
}

TEST(R6_a_lock_whose_downgrade_is_in_doubt_is_unlocked_whichever_it_is)
{
    unlocks(1);
    unlocks(0);
}

/* Left behind, it is nobody's to take over, whichever it is. */
static void leaves(int arrives)
{
    struct unheard u;
    char owner[64];
    downgrade_unheard(&u, arrives, 2000);
    CHECK_EVENTUALLY(hf_lock_verify(u.m, &err) == HF_OK, 5000);
    snprintf(owner, sizeof owner, "%s", hf_lock_owner(u.m));
    CHECK_HF(hf_lock_detach(u.m, 20000, &err), HF_OK);
    if (arrives) {
        CHECK_CONTAINS(server_ask(u.s, "HGET {lock:a}:d %s", owner), ":0:1");
    } else {
        const char *value = server_ask(u.s, "GET lock:a");
        CHECK_STR(value + strlen(value) - 2, ":0");
    }
    CHECK_RANGE(server_int(u.s, "PTTL lock:a"), 1, 20000);
    CHECK_HF(hf_owner_release(u.other, hf_str("a"), hf_str(owner), &err), HF_OK);
    hf_lock_free(u.m);
    hf_lock_free(u.reader);
    hf_client_free(u.c);
    hf_client_free(u.other);
    CHECK_INT(server_int(u.s, "EXISTS lock:a {lock:a}:h {lock:a}:d"), 0);
    check_only_ttls(u.s);
}

TEST(R6_a_lock_whose_downgrade_is_in_doubt_is_left_behind_whichever_it_is)
{
    leaves(1);
    leaves(0);
}

/* A copy of it that arrives when the lock has gone to another changes nothing. */
TEST(R6_a_late_copy_of_a_downgrade_changes_nothing)
{
    struct server *s = server_prepared();
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), SHORT_MS), *other = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 1000), *w = lock_of(other, "a", 30000);
    lock_now(m);
    proxy_when(p, lua_sha[LUA_downgrade]);
    proxy_hold(p);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_EUNSURE);
    lock_now(w); /* its ttl ended */
    CHECK(proxy_held(p) > 0);
    proxy_pass(p);
    CHECK_EVENTUALLY(proxy_held(p) == 0, 5000);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(w, &err), HF_OK);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:h {lock:a}:d"), 0);
    unlock_now(w);
    hf_lock_free(m);
    hf_lock_free(w);
    hf_client_free(c);
    hf_client_free(other);
    check_only_ttls(s);
}

/* ---- requests whose replies are lost ---- */

/* A copy of its request, which was under way all the time. */
static const char *late_share(struct server *s, const char *token, int claim_ms)
{
    return server_ask(s, "EVALSHA %s 4 lock:a " FENCE_KEY " {lock:a}:q {lock:a}:t %s 30000 0 %d "
                      "0 3 1 %s",
                      lua_sha[LUA_share], token, claim_ms, "0123456789abcdef");
}

TEST(SEM6_R6_a_grant_whose_reply_was_lost_is_granted_once)
{
    struct server *s = server_prepared();
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 20000);
    hf_lock *m[2] = { permit_of(c, 3, 2), permit_of(c, 3, 1) };
    for (int i = 0; i < 2; i++) {
        long cuts = proxy_cuts(p);
        proxy_when(p, lua_sha[LUA_share]);
        proxy_cut_after(p, 1);
        uint64_t fence = lock_now(m[i]);
        CHECK_INT(proxy_cuts(p) - cuts, 1);
        CHECK_INT(holders_of(s), i + 1);
        check_sums(s);
        CHECK_CONTAINS(server_ask(s, "HGET {lock:a}:d %s", hf_lock_owner(m[i])), ":");
        CHECK_INT(atoll(server_ask(s, "HGET {lock:a}:d %s", hf_lock_owner(m[i]))),
                  (long long)fence);
    }
    CHECK_INT(server_int(s, "ZCARD {lock:a}:q"), 0);
    for (int i = 0; i < 2; i++) {
        char token[64];
        snprintf(token, sizeof token, "%s", hf_lock_owner(m[i]));
        unlock_now(m[i]);
        CHECK_STR(late_share(s, token, 0), "-2");
        CHECK_STR(late_share(s, token, 1000), "-2");
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d"), 0);
    CHECK_INT(server_int(s, "ZCARD {lock:a}:t"), 2); /* copies may still be under way */
    check_only_ttls(s);
}

TEST(SEM6_a_release_whose_reply_was_lost_gives_back_one_permit)
{
    struct server *s = server_prepared();
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 20000), *d = client_at(server_url(s), 0);
    hf_lock *m = permit_of(c, 3, 2), *o = permit_of(d, 3, 1), *more = permit_of(d, 3, 3);
    lock_now(o);
    lock_now(m);
    proxy_when(p, lua_sha[LUA_unshare]);
    proxy_cut_after(p, 1);
    unlock_now(m);
    CHECK_INT(proxy_cuts(p), 1);
    CHECK_INT(holders_of(s), 1);
    check_sums(s);
    CHECK_HF(hf_lock_try(more, NULL, &err), HF_EBUSY);
    unlock_now(o);
    CHECK_HF(hf_lock_try(more, NULL, &err), HF_OK);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_lock_free(more);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM6_a_given_up_request_that_arrives_late_takes_nothing)
{
    struct server *s = server_prepared();
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), SHORT_MS), *d = client_at(server_url(s), 0);
    hf_lock *m = permit_of(c, 2, 1), *o = permit_of(d, 2, 1);
    lock_now(o);
    proxy_when(p, lua_sha[LUA_share]);
    proxy_hold(p);
    hf_err e = hf_lock_try(m, NULL, &err);
    CHECK(e == HF_EUNSURE || e == HF_ETIMEDOUT);
    CHECK(proxy_held(p) > 0);
    proxy_pass(p); /* all of it arrives now, the request before or after its cancellation */
    CHECK_EVENTUALLY(server_int(s, "ZCARD {lock:a}:t") == 1, 10000);
    CHECK_EVENTUALLY(holders_of(s) == 1 && queue_of(s, "a") == 0, 10000);
    CHECK_STR(late_share(s, server_ask(s, "ZRANGE {lock:a}:t 0 0"), 0), "-2"); /* and once more */
    CHECK_STR(late_share(s, server_ask(s, "ZRANGE {lock:a}:t 0 0"), 1000), "-2");
    check_sums(s);
    unlock_now(o);
    hf_lock_free(m);
    hf_lock_free(o);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}
