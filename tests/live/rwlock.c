/* SPDX-License-Identifier: MIT
 * rwlock.c - R1 to R7 of src/lock/rwlock.c: many readers, or one writer.
 */
#include <signal.h>

#include "harness/proc.h"
#include "harness/proxy.h"
#include "harness/sharing.h"

static uint64_t share_now(hf_lock *m)
{
    uint64_t fence = 0;
    CHECK_HF(hf_lock_acquire_shared(m, 10000, &fence, &err), HF_OK);
    CHECK(fence > 0);
    return fence;
}

TEST(R1_R2_readers_hold_it_together_and_nobody_has_it_alone_meanwhile)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = lock_of(c, "a", 30000), *b = lock_of(d, "a", 30000),
             *w = lock_of(d, "a", 30000);
    uint64_t first = share_now(a), second = share_now(b);
    CHECK(second > first);
    CHECK_HF(hf_lock_try(w, NULL, &err), HF_EBUSY);
    CHECK_STR(server_ask(s, "SET lock:a foreign NX PX 1000"), NULL); /* another library's client */
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    unlock_now(a);
    CHECK_HF(hf_lock_try(w, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
    unlock_now(b);
    CHECK(lock_now(w) > second);
    CHECK_HF(hf_lock_acquire_shared(a, 0, NULL, &err), HF_EBUSY);
    unlock_now(w);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(w);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(R3_a_waiting_writer_stops_later_readers_who_then_go_together)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *first = lock_of(c, "a", 30000);
    struct locker writer = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    struct locker reader[3];
    share_now(first);
    locker_start(&writer);
    CHECK_QUEUE(s, "a", 1);
    hf_lock *late = lock_of(c, "a", 30000);
    /* It would fit, but not overtake. */
    CHECK_HF(hf_lock_acquire_shared(late, 0, NULL, &err), HF_EBUSY);
    for (int i = 0; i < 3; i++) {
        reader[i] = (struct locker){ .m = lock_with(c, "a", (hf_lock_opts){ .shared = 1 }),
                                     .wait_ms = 20000 };
        locker_start(&reader[i]);
        CHECK_QUEUE(s, "a", 2 + i);
    }
    unlock_now(first);
    locker_join(&writer, HF_OK);
    CHECK_INT(queue_of(s, "a"), 3);
    unlock_now(writer.m);
    for (int i = 0; i < 3; i++)
        locker_join(&reader[i], HF_OK);
    CHECK_INT(queue_of(s, "a"), 0);
    for (int i = 0; i < 3; i++) {
        CHECK(reader[i].fence > writer.fence);
        unlock_now(reader[i].m);
        hf_lock_free(reader[i].m);
    }
    hf_lock_free(writer.m);
    hf_lock_free(first);
    hf_lock_free(late);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(R4_downgrade_lets_waiting_readers_in_and_no_writer_between)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *other = lock_of(c, "a", 30000);
    struct locker reader = { .m = lock_with(c, "a", (hf_lock_opts){ .shared = 1 }),
                             .wait_ms = 20000 };
    struct locker writer = { .m = lock_of(c, "a", 30000), .wait_ms = 20000 };
    uint64_t fence = lock_now(m);
    locker_start(&reader);
    CHECK_QUEUE(s, "a", 1);
    locker_start(&writer);
    CHECK_QUEUE(s, "a", 2);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_OK);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_OK); /* once more changes nothing */
    CHECK_INT((long long)hf_lock_fence(m), (long long)fence);
    locker_join(&reader, HF_OK);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(atomic_load(&writer.done), 0);
    CHECK_HF(hf_lock_acquire(m, 0, NULL, &err), HF_EDEADLK);
    CHECK_CONTAINS(err.message, "release it first");
    CHECK_INT(hf_lock_is_held(m), 1);
    unlock_now(reader.m);
    unlock_now(m);
    locker_join(&writer, HF_OK);
    unlock_now(writer.m);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_ENOTHELD);
    hf_lock_free(other);
    hf_lock_free(m);
    hf_lock_free(reader.m);
    hf_lock_free(writer.m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

/* ---- neither starves the other ---- */

struct stream {
    struct server *s;
    int            alone; /* the stream is of writers */
    struct {
        atomic_int ready, stop, inside_shared, inside_alone;
        atomic_long got; /* grants of the stream */
    } *mem;
};

/* Nobody beside a writer; counted between the grant and the release. */
static void come_in(struct stream *st, int alone)
{
    if (alone) {
        CHECK_INT(atomic_fetch_add(&st->mem->inside_alone, 1), 0);
        CHECK_INT(atomic_load(&st->mem->inside_shared), 0);
    } else {
        atomic_fetch_add(&st->mem->inside_shared, 1);
        CHECK_INT(atomic_load(&st->mem->inside_alone), 0);
    }
}

static void go_out(struct stream *st, int alone)
{
    atomic_fetch_sub(alone ? &st->mem->inside_alone : &st->mem->inside_shared, 1);
}

static void streams(int index, void *arg)
{
    struct stream *st = arg;
    hf_client *c = client_at(server_url(st->s), 20000);
    hf_lock *m = st->alone ? lock_of(c, "a", 30000) : reader_of(c, 30000, HF_NO_TAKEOVER);
    (void)index;
    atomic_fetch_add(&st->mem->ready, 1);
    while (!atomic_load(&st->mem->stop)) {
        CHECK_HF(hf_lock_acquire(m, 50000, NULL, &err), HF_OK);
        come_in(st, st->alone);
        atomic_fetch_add(&st->mem->got, 1);
        /* Out of step: without the queue it would never be free. */
        t_sleep_ms((int64_t)t_random(5));
        go_out(st, st->alone);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(c);
}

/* While a stream of one kind goes on, one of the other kind comes in after few of them. */
static void against_the_stream(int stream_alone)
{
    enum { N = 6, TIMES = 40 };
    struct stream st = { .s = server_start(NULL), .alone = stream_alone,
                         .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(N, streams, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->ready) == N, 20000);
    hf_client *c = client_at(server_url(st.s), 20000);
    hf_lock *m = stream_alone ? reader_of(c, 30000, HF_NO_TAKEOVER) : lock_of(c, "a", 30000);
    long worst = 0, all = atomic_load(&st.mem->got);
    for (int i = 0; i < TIMES; i++) {
        long before = atomic_load(&st.mem->got);
        CHECK_HF(hf_lock_acquire(m, 50000, NULL, &err), HF_OK);
        come_in(&st, !stream_alone);
        long passed = atomic_load(&st.mem->got) - before;
        worst = passed > worst ? passed : worst;
        go_out(&st, !stream_alone);
        unlock_now(m);
        /* The stream goes on. */
        CHECK_EVENTUALLY(atomic_load(&st.mem->got) > before + passed, 20000);
    }
    atomic_store(&st.mem->stop, 1);
    workers_join(w, 20000);
    t_note("%d times; at most %ld of the stream went before, of %ld in all", TIMES, worst,
           atomic_load(&st.mem->got) - all);
    CHECK(worst <= 20 * N); /* those who stood before it, and who came while it asked */
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

TEST(R3_a_stream_of_readers_does_not_starve_a_writer)
{
    against_the_stream(0);
}

TEST(R3_a_stream_of_writers_does_not_starve_a_reader)
{
    against_the_stream(1);
}

/* ---- contention ---- */

#define PROCESSES 32

static void reads_and_writes(int index, void *arg)
{
    struct stream *st = arg;
    hf_client *c = client_at(server_url(st->s), 20000);
    hf_lock *alone = lock_of(c, "a", 30000), *reader = reader_of(c, 30000, HF_NO_TAKEOVER);
    uint64_t last = 0, fence;
    (void)index;
    while (!atomic_load(&st->mem->stop)) {
        int write = t_random(4) == 0, downgrade = write && t_random(2) == 0;
        hf_lock *m = write ? alone : reader;
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        CHECK(fence > last);
        last = fence;
        come_in(st, write);
        if (downgrade) {
            go_out(st, 1);
            CHECK_HF(hf_lock_downgrade(m, &err), HF_OK);
            come_in(st, 0);
        }
        atomic_fetch_add(&st->mem->got, 1);
        go_out(st, write && !downgrade);
        unlock_now(m);
    }
    hf_lock_free(alone);
    hf_lock_free(reader);
    hf_client_free(c);
}

TEST_TIMEOUT(R1_32_processes_that_read_write_and_downgrade_never_overlap, 300)
{
    struct stream st = { .s = server_start(NULL), .mem = shared_memory(sizeof *st.mem) };
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(PROCESSES, reads_and_writes, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->got) >= (getenv("HF_SOAK") ? 300000 : 5000), 250000);
    atomic_store(&st.mem->stop, 1);
    workers_join(w, 20000);
    t_note("%ld grants", atomic_load(&st.mem->got));
    CHECK_INT(atomic_load(&st.mem->inside_alone) + atomic_load(&st.mem->inside_shared), 0);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

/* ---- death ---- */

static void reads_until_killed(int index, void *arg)
{
    struct stream *st = arg;
    hf_client *c = client_at(server_url(st->s), 0);
    hf_lock *m = reader_of(c, 60000, 1500);
    (void)index;
    lock_now(m);
    atomic_fetch_add(&st->mem->ready, 1);
    for (;;)
        pause();
}

TEST(R5_a_writer_behind_readers_who_died_gets_in_after_their_grace)
{
    struct stream st = { .s = server_start(NULL), .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(3, reads_until_killed, &st);
    CHECK_EVENTUALLY(atomic_load(&st.mem->ready) == 3, 20000);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *alive = reader_of(c, 60000, 1500);
    struct locker writer = { .m = lock_of(c, "a", 30000), .wait_ms = 30000 };
    struct locker behind = { .m = reader_of(c, 30000, HF_NO_TAKEOVER), .wait_ms = 30000 };
    lock_now(alive);
    locker_start(&writer);
    CHECK_QUEUE(st.s, "a", 1);
    locker_start(&behind);
    CHECK_QUEUE(st.s, "a", 2);
    int64_t start = t_now_ms();
    for (int i = 0; i < 3; i++)
        workers_signal(w, i, SIGKILL);
    CHECK_EVENTUALLY(holders_of(st.s) == 1, 20000);
    CHECK(t_now_ms() - start >= 1450);
    CHECK_INT(atomic_load(&writer.done), 0); /* one reader is alive */
    CHECK_HF(hf_lock_verify(alive, &err), HF_OK);
    unlock_now(alive);
    locker_join(&writer, HF_OK);
    CHECK_INT(atomic_load(&behind.done), 0);
    unlock_now(writer.m);
    locker_join(&behind, HF_OK);
    unlock_now(behind.m);
    workers_join(w, 20000);
    hf_lock_free(alive);
    hf_lock_free(writer.m);
    hf_lock_free(behind.m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

static void waits_until_killed(int index, void *arg)
{
    struct stream *st = arg;
    hf_client *c = client_at(server_url(st->s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    (void)index;
    CHECK_EVENTUALLY(atomic_load(&st->mem->stop), 20000);
    lock_now(m);
}

TEST(R3_a_writer_who_died_while_it_waited_stops_no_reader)
{
    struct stream st = { .s = server_start(NULL), .mem = shared_memory(sizeof *st.mem) };
    struct workers *w = workers_start(1, waits_until_killed, &st);
    hf_client *c = client_at(server_url(st.s), 0);
    hf_lock *first = reader_of(c, 30000, HF_NO_TAKEOVER),
             *late = reader_of(c, 30000, HF_NO_TAKEOVER);
    struct locker behind = { .m = reader_of(c, 30000, HF_NO_TAKEOVER), .wait_ms = 20000 };
    lock_now(first);
    atomic_store(&st.mem->stop, 1);
    CHECK_QUEUE(st.s, "a", 1);
    CHECK_HF(hf_lock_try(late, NULL, &err), HF_EBUSY);
    locker_start(&behind);
    CHECK_QUEUE(st.s, "a", 2);
    workers_signal(w, 0, SIGKILL);
    CHECK_EVENTUALLY(hf_lock_try(late, NULL, &err) == HF_OK, 10000);
    locker_join(&behind, HF_OK);
    CHECK_HF(hf_lock_verify(first, &err), HF_OK);
    CHECK_INT(holders_of(st.s), 3);
    check_sums(st.s);
    workers_join(w, 20000);
    hf_lock_free(first);
    hf_lock_free(late);
    hf_lock_free(behind.m);
    hf_client_free(c);
    CHECK_INT(server_int(st.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(st.s);
}

/* A2, A3: a reader whose session breaks comes back; one whose session cannot is gone, and knew
 * it. */
TEST(R5_a_reader_whose_session_breaks_comes_back_and_keeps_its_part)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *a = reader_of(c, 60000, 2000), *b = reader_of(d, 60000, 2000);
    struct locker w = { .m = lock_of(d, "a", 30000), .wait_ms = 30000 };
    lock_now(a);
    lock_now(b);
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    long long killed = 0;
    for (int i = 0; i < 20; i++) {
        killed += kill_inboxes(s);
        CHECK_EVENTUALLY(is_present(s, hf_lock_owner(a)) && is_present(s, hf_lock_owner(b)),
                         5000);
        CHECK_INT(hf_lock_is_held(a) && hf_lock_is_held(b), 1);
    }
    CHECK(killed >= 40);
    CHECK_HF(hf_lock_verify(a, &err), HF_OK);
    CHECK_HF(hf_lock_verify(b, &err), HF_OK);
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

TEST(R5_A2_a_reader_that_is_cut_off_knows_it_before_a_writer_gets_in)
{
    struct server *s = server_start(NULL);
    struct proxy *p = proxy_start(s);
    hf_client *c = client_at(proxy_url(p), 500), *d = client_at(server_url(s), 0);
    hf_lock *cut = reader_of(c, 60000, 2000), *alive = reader_of(d, 60000, 3000);
    struct locker w = { .m = lock_of(d, "a", 30000), .wait_ms = 30000 };
    lock_now(cut);
    lock_now(alive);
    locker_start(&w);
    CHECK_QUEUE(s, "a", 1);
    proxy_refuse(p);
    proxy_break(p);
    CHECK_EVENTUALLY(holders_of(s) == 1, 20000);
    CHECK_INT(hf_lock_is_held(cut), 0);
    CHECK(proxy_refused(p) > 0);
    CHECK_HF(hf_lock_verify(alive, &err), HF_OK);
    proxy_pass(p);
    CHECK_HF(hf_lock_release(cut, &err), HF_ELOST);
    unlock_now(alive);
    locker_join(&w, HF_OK);
    unlock_now(w.m);
    hf_lock_free(w.m);
    hf_lock_free(cut);
    hf_lock_free(alive);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* ---- numbers, and what is left ---- */

TEST(R6_R7_numbers_rise_over_readers_and_writers_and_nothing_stays)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m[4] = { lock_of(c, "a", 30000), lock_of(d, "a", 30000),
                       reader_of(c, 30000, HF_NO_TAKEOVER), reader_of(d, 30000, 1000) };
    uint64_t last = 0;
    for (int i = 0; i < 200; i++) {
        int k = (int)t_random(4);
        uint64_t fence = lock_now(m[k]);
        CHECK(fence > last);
        last = fence;
        if (k >= 2) {
            hf_lock *other = m[5 - k];
            fence = lock_now(other);
            CHECK(fence > last);
            last = fence;
            /* A re-entry: its own number. */
            CHECK_HF(hf_lock_acquire_shared(m[k], 0, &fence, &err), HF_OK);
            CHECK_INT((long long)fence, (long long)hf_lock_fence(m[k]));
            CHECK(fence < last);
            unlock_now(m[k]);
            unlock_now(other);
        } else if (t_random(2)) {
            CHECK_HF(hf_lock_downgrade(m[k], &err), HF_OK);
        }
        unlock_now(m[k]);
        CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
        CHECK_INT(server_int(s, "EXISTS {lock:a}:absent {lock:a}:own"), 0);
    }
    for (int i = 0; i < 4; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:t {lock:a}:s"), 0);
    check_only_ttls(s);
}

static void never_called(hf_err result, const hf_error *e, void *arg)
{
    (void)e;
    (void)arg;
    FAIL("called with %s", hf_err_name(result));
}

TEST(R4_an_upgrade_is_refused_at_once_and_changes_nothing)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *owned, *other = reader_of(c, 30000, HF_NO_TAKEOVER);
    owned = lock_with(c, "a", (hf_lock_opts){ .owner = hf_str("me") });
    share_now(m);
    lock_now(other);
    int64_t start = t_now_ms();
    CHECK_HF(hf_lock_acquire(m, 30000, NULL, &err), HF_EDEADLK);
    CHECK_HF(hf_lock_acquire_async(m, 30000, never_called, NULL, &err), HF_EDEADLK);
    CHECK_TOOK(t_now_ms() - start, 0, 10000);
    CHECK_INT(queue_of(s, "a"), 0);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    CHECK_INT(holders_of(s), 2);
    unlock_now(other);
    unlock_now(m);
    uint64_t alone = lock_now(m), again = 0; /* unlocked first, it may */
    CHECK_HF(hf_lock_acquire_shared(m, 0, &again, &err), HF_OK); /* who has all has a part */
    CHECK_INT((long long)again, (long long)alone);
    unlock_now(m);
    unlock_now(m);
    CHECK_HF(hf_lock_acquire_shared(owned, 0, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_lock_downgrade(owned, &err), HF_EINVAL);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_lock_free(owned);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(R4_a_downgrade_of_a_lock_that_was_lost_says_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000), *other = lock_of(d, "a", 30000);
    lock_now(m);
    server_ask(s, "DEL lock:a");
    lock_now(other);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_ELOST);
    CHECK_INT(hf_lock_is_held(m), 0);
    CHECK_HF(hf_lock_verify(other, &err), HF_OK);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    unlock_now(other);
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}
