/* SPDX-License-Identifier: MIT
 * semaphore.c - SEM1 to SEM7 of src/lock/semaphore.c: so many at once.
 */
#include <signal.h>

#include "harness/proc.h"
#include "harness/sharing.h"

static int soak(int normal, int long_one)
{
    return getenv("HF_SOAK") ? long_one : normal;
}

TEST(SEM1_no_more_permits_than_slots)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[4];
    uint64_t last = 0;
    for (int i = 0; i < 4; i++)
        m[i] = permit_of(c, 3, 1);
    for (int i = 0; i < 3; i++) {
        uint64_t fence = lock_now(m[i]);
        CHECK(fence > last);
        last = fence;
    }
    CHECK_HF(hf_lock_try(m[3], NULL, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "permits");
    unlock_now(m[1]);
    lock_now(m[3]);
    CHECK_HF(hf_lock_try(m[1], NULL, &err), HF_EBUSY);
    for (int i = 0; i < 4; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM2_who_wants_many_is_not_starved_by_those_who_want_few)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *one = permit_of(c, 3, 1);
    struct locker many = { .m = permit_of(c, 3, 3), .wait_ms = 20000 };
    struct locker few[2];
    lock_now(one);
    locker_start(&many);
    CHECK_QUEUE(s, "a", 1);
    for (int i = 0; i < 2; i++) {
        few[i] = (struct locker){ .m = permit_of(c, 3, 1), .wait_ms = 20000 };
        locker_start(&few[i]);
        CHECK_QUEUE(s, "a", 2 + i);
    }
    unlock_now(one);
    locker_join(&many, HF_OK);
    CHECK_INT(queue_of(s, "a"), 2);
    unlock_now(many.m);
    for (int i = 0; i < 2; i++) {
        locker_join(&few[i], HF_OK);
        CHECK(few[i].fence > many.fence);
    }
    for (int i = 0; i < 2; i++)
        hf_lock_free(few[i].m);
    hf_lock_free(many.m);
    hf_lock_free(one);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM3_another_number_of_slots_is_told_so)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *five = permit_of(c, 5, 1), *four = permit_of(c, 4, 1),
             *reader = lock_of(c, "a", 30000);
    lock_now(five);
    CHECK_HF(hf_lock_acquire(four, 5000, NULL, &err), HF_ELIMIT);
    CHECK_CONTAINS(err.message, "semaphore of 5");
    CHECK_CONTAINS(err.message, "4 was asked for");
    CHECK_HF(hf_lock_acquire_shared(reader, 5000, NULL, &err), HF_ELIMIT);
    CHECK_HF(hf_lock_try(reader, NULL, &err), HF_EBUSY);
    unlock_now(five);
    lock_now(four); /* free: who comes first decides */
    CHECK_HF(hf_lock_try(five, NULL, &err), HF_ELIMIT);
    hf_lock_free(four);
    hf_lock_free(five);
    hf_lock_free(reader);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM4_a_resize_is_for_all_and_tears_nothing_away)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m[3];
    unsigned old = 99;
    for (int i = 0; i < 3; i++)
        m[i] = permit_of(c, 3, 1);
    for (int i = 0; i < 3; i++)
        lock_now(m[i]);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 1, &old, &err), HF_OK);
    CHECK_INT(old, 3);
    for (int i = 0; i < 3; i++)
        CHECK_HF(hf_lock_verify(m[i], &err), HF_OK);
    unlock_now(m[0]);
    unlock_now(m[1]);
    CHECK_HF(hf_lock_try(m[0], NULL, &err), HF_EBUSY);
    struct locker l = { .m = m[1], .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_OK);
    CHECK_INT(old, 1);
    locker_join(&l, HF_OK); /* a wider one lets in who waits */
    unlock_now(m[1]);
    unlock_now(m[2]);
    lock_now(m[0]); /* remembered while nobody used it, for those who name the old number too */
    lock_now(m[1]);
    CHECK_HF(hf_lock_try(m[2], NULL, &err), HF_EBUSY);
    hf_lock *two = permit_of(c, 2, 1), *four = permit_of(c, 4, 1);
    CHECK_HF(hf_lock_try(two, NULL, &err), HF_EBUSY);
    CHECK_HF(hf_lock_try(four, NULL, &err), HF_ELIMIT);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 3, &old, &err), HF_OK);
    lock_now(m[2]);
    CHECK_INT(server_int(s, "EXISTS {lock:a}:s"), 0);
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_lock_free(two);
    hf_lock_free(four);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM2_who_gives_up_at_the_head_lets_in_those_behind_at_once)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *d = client_at(server_url(s), 0);
    hf_lock *one = permit_of(c, 3, 1);
    struct locker many = { .m = permit_of(c, 3, 3), .wait_ms = 20000 };
    struct locker few[3];
    lock_now(one);
    locker_start(&many);
    CHECK_QUEUE(s, "a", 1);
    for (int i = 0; i < 3; i++) {
        few[i] = (struct locker){ .m = permit_of(d, 3, 1), .wait_ms = 20000 };
        locker_start(&few[i]);
        CHECK_QUEUE(s, "a", 2 + i);
    }
    hf_lock_cancel(many.m);
    locker_join(&many, HF_ECANCELED);
    CHECK_INT(queue_of(s, "a"), 1); /* in the same step, not at the next look */
    CHECK_INT(holders_of(s), 3);
    check_sums(s);
    locker_join(&few[0], HF_OK);
    locker_join(&few[1], HF_OK);
    CHECK(few[1].fence > few[0].fence);
    CHECK_INT(atomic_load(&few[2].done), 0);
    unlock_now(one);
    locker_join(&few[2], HF_OK);
    for (int i = 0; i < 3; i++) {
        unlock_now(few[i].m);
        hf_lock_free(few[i].m);
    }
    hf_lock_free(many.m);
    hf_lock_free(one);
    hf_client_free(c);
    hf_client_free(d);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM4_SEM7_a_changed_limit_is_remembered_while_it_is_used)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *a = permit_of(c, 3, 1), *b = permit_of(c, 3, 1);
    struct locker l = { .m = permit_of(c, 3, 2), .wait_ms = 20000 };
    unsigned old = 99;
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_OK);
    CHECK_INT(old, 0); /* nobody had used it */
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:s"), 604000000, 604800000);
    lock_now(a);
    CHECK_INT(server_int(s, "PEXPIRE {lock:a}:s 60000"), 1); /* almost a week later */
    lock_now(b);
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:s"), 604000000, 604800000);
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    CHECK_INT(server_int(s, "PEXPIRE {lock:a}:s 60000"), 1);
    unlock_now(a);
    CHECK_INT(atomic_load(&l.done), 0);
    unlock_now(b); /* handed on: that is a use too */
    locker_join(&l, HF_OK);
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:s"), 604000000, 604800000);
    unlock_now(l.m);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 5, &old, &err), HF_OK);
    CHECK_INT(old, 2);
    hf_lock_free(a);
    hf_lock_free(b);
    hf_lock_free(l.m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), FENCE_KEY "\n" REIGN_KEY "\n{lock:a}:s");
}

/* Nobody comes or goes for longer than a week: that is use, too. */
TEST(SEM4_and_remembered_while_it_is_held)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = permit_of(c, 3, 1);
    unsigned old;
    lock_now(m);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 5, &old, &err), HF_OK);
    CHECK_INT(server_int(s, "PEXPIRE {lock:a}:s 60000"), 1);
    CHECK_HF(hf_lock_extend(m, 30000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL {lock:a}:s"), 604000000, 604800000);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
}

TEST(SEM4_a_lock_that_is_no_semaphore_is_not_resized)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *alone = lock_of(c, "a", 30000), *reader = reader_of(c, 30000, HF_NO_TAKEOVER);
    unsigned old = 99;
    lock_now(alone);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_EBUSY);
    CHECK_CONTAINS(err.message, "not a semaphore now");
    unlock_now(alone);
    lock_now(reader);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_EBUSY);
    unlock_now(reader);
    server_ask(s, "RPUSH lock:a x");
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 2, &old, &err), HF_ETYPE);
    server_ask(s, "DEL lock:a");
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 0, &old, &err), HF_EINVAL);
    CHECK_HF(hf_semaphore_resize(c, hf_str("a"), 1000001, &old, &err), HF_EINVAL);
    CHECK_INT(old, 99);
    hf_lock_free(alone);
    hf_lock_free(reader);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM3_options_that_make_no_sense_are_refused)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = NULL;
    static const hf_lock_opts bad[] = {
        { .permits = 1 }, { .slots = 2, .permits = 3 }, { .slots = 1000001 },
        { .slots = 2, .shared = 1 }, { .slots = 2, .owner = { "me", 2 } },
        { .shared = 1, .owner = { "me", 2 } },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        hf_lock_opts o = bad[i];
        o.size = sizeof o;
        CHECK_HF(hf_lock_open(c, hf_str("a"), &o, &m, &err), HF_EINVAL);
        CHECK(err.message[0] && !m);
    }
    m = permit_of(c, 2, 1);
    CHECK_HF(hf_lock_acquire_shared(m, 0, NULL, &err), HF_EINVAL);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_EINVAL);
    lock_now(m);
    CHECK_HF(hf_lock_downgrade(m, &err), HF_EINVAL);
    lock_now(m); /* a re-entry takes no more */
    CHECK_INT(holders_of(s), 1);
    unlock_now(m);
    unlock_now(m);
    CHECK_HF(hf_lock_release(m, &err), HF_ENOTHELD);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_STR(server_keys(s), ONLY_OURS);
}

TEST(SEM5_a_permit_ends_with_its_ttl_and_the_others_keep_theirs)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *brief = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 800, .no_renew = 1,
                                                          .slots = 2 });
    hf_lock *held = permit_of(c, 2, 1), *next = permit_of(c, 2, 1);
    struct locker l = { .m = permit_of(c, 2, 1), .wait_ms = 20000 };
    lock_now(brief);
    lock_now(held);
    check_sums(s);
    CHECK_HF(hf_lock_try(next, NULL, &err), HF_EBUSY);
    CHECK_EVENTUALLY(hf_lock_try(next, NULL, &err) == HF_OK, 5000); /* no look was needed */
    CHECK_INT(hf_lock_is_held(brief), 0);
    CHECK_HF(hf_lock_release(brief, &err), HF_ELOST);
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);
    CHECK_INT(holders_of(s), 2);
    unlock_now(next);
    lock_now(brief);
    locker_start(&l); /* and one who waits gets it too */
    CHECK_QUEUE(s, "a", 1);
    locker_join(&l, HF_OK);
    CHECK_HF(hf_lock_verify(held, &err), HF_OK);
    check_sums(s);
    unlock_now(l.m);
    CHECK_HF(hf_lock_release(brief, &err), HF_ELOST);
    CHECK_HF(hf_lock_extend(held, 5000, &err), HF_OK);
    CHECK_RANGE(server_int(s, "PTTL lock:a"), 1, 5000);
    unlock_now(held);
    hf_lock_free(l.m);
    hf_lock_free(brief);
    hf_lock_free(held);
    hf_lock_free(next);
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

TEST(SEM5_a_permit_that_ended_can_be_had_among_several_locks_too)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *brief = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 800, .no_renew = 1,
                                                          .slots = 2 });
    hf_lock *held = permit_of(c, 2, 1), *both[] = { permit_of(c, 2, 1), lock_of(c, "b", 30000) };
    lock_now(brief);
    lock_now(held);
    CHECK_HF(hf_multi_acquire(both, 2, 0, &err), HF_EBUSY);
    CHECK_EVENTUALLY(ended_of(s) == 1, 5000); /* nobody waits, so nobody looks */
    CHECK_HF(hf_multi_acquire(both, 2, 0, &err), HF_OK);
    CHECK_INT(holders_of(s), 2);
    check_sums(s);
    CHECK_HF(hf_multi_release(both, 2, &err), HF_OK);
    CHECK_HF(hf_lock_release(brief, &err), HF_ELOST);
    unlock_now(held);
    hf_lock_free(brief);
    hf_lock_free(held);
    hf_lock_free(both[0]);
    hf_lock_free(both[1]);
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a lock:b {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* ---- many processes ---- */

#define PROCESSES 32

struct crowd {
    struct server *s;
    int            rounds;
    struct bell    bell[PROCESSES];
    struct {
        atomic_int      ready, got, inside, most;
        atomic_ullong   fence[PROCESSES];
        atomic_long     done;
    } *mem;
};

static void in_turn(int index, void *arg)
{
    struct crowd *cr = arg;
    hf_client *c = client_at(server_url(cr->s), 20000);
    hf_lock *m[3];
    for (unsigned i = 0; i < 3; i++)
        m[i] = permit_of(c, 3, i + 1);
    atomic_fetch_add(&cr->mem->ready, 1);
    for (int i = 0; i < cr->rounds; i++) {
        hf_lock *one = m[t_random(3)];
        bell_wait(cr->bell[index]);
        atomic_store(&cr->mem->fence[index], lock_now(one));
        unlock_now(one);
        atomic_fetch_add(&cr->mem->got, 1);
    }
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    hf_client_free(c);
}

/* The numbers are given in the order of the grants: they are the order in which all came. */
TEST_TIMEOUT(SEM2_32_processes_are_granted_in_the_order_in_which_they_came, 300)
{
    struct crowd cr = { .s = server_start(NULL), .rounds = soak(10, 200) };
    int seat[PROCESSES], overtaken = 0;
    cr.mem = shared_memory(sizeof *cr.mem);
    for (int i = 0; i < PROCESSES; i++) {
        cr.bell[i] = bell_new();
        seat[i] = i;
    }
    t_note("seed %llu", (unsigned long long)t_seed());
    struct workers *w = workers_start(PROCESSES, in_turn, &cr);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == PROCESSES, 30000);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_lock *m = permit_of(c, 3, 3);
    for (int round = 0; round < cr.rounds; round++) {
        lock_now(m);
        atomic_store(&cr.mem->got, 0);
        for (int i = PROCESSES - 1; i > 0; i--) {
            int k = (int)t_random((uint64_t)i + 1), swap = seat[i];
            seat[i] = seat[k];
            seat[k] = swap;
        }
        for (int i = 0; i < PROCESSES; i++) {
            bell_ring(cr.bell[seat[i]]);
            CHECK_EVENTUALLY(queue_of(cr.s, "a") == i + 1, 10000);
        }
        unlock_now(m);
        CHECK_EVENTUALLY(atomic_load(&cr.mem->got) == PROCESSES, 20000);
        for (int i = 1; i < PROCESSES; i++)
            overtaken += atomic_load(&cr.mem->fence[seat[i]])
                         < atomic_load(&cr.mem->fence[seat[i - 1]]);
    }
    workers_join(w, 20000);
    t_note("%d grants, %d out of turn", PROCESSES * cr.rounds, overtaken);
    CHECK_INT(overtaken, 0);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(cr.s);
}

/* ---- many operations ---- */

#define SLOTS 12

/* Counted up after each grant, down before each release: what is out, as its owners believe it. */
static void count_in(struct crowd *cr, int weight)
{
    int now = atomic_fetch_add(&cr->mem->inside, weight) + weight;
    if (now > SLOTS)
        FAIL("%d permits are out, of %d", now, SLOTS);
    for (int most = atomic_load(&cr->mem->most);
         now > most && !atomic_compare_exchange_weak(&cr->mem->most, &most, now);)
        ;
}

struct hand {
    struct crowd *cr;
    hf_lock      *m[3];
    pthread_t     thread;
};

static void *works(void *arg)
{
    struct hand *h = arg;
    struct crowd *cr = h->cr;
    while (atomic_fetch_add(&cr->mem->done, 1) < cr->rounds) {
        int weight = 1 + (int)t_random(3);
        CHECK_HF(hf_lock_acquire(h->m[weight - 1], 60000, NULL, &err), HF_OK);
        count_in(cr, weight);
        if (t_random(4) == 0) /* else it would be given back before the others know of theirs */
            t_sleep_ms(1 + (int64_t)t_random(3));
        atomic_fetch_sub(&cr->mem->inside, weight);
        unlock_now(h->m[weight - 1]);
    }
    return NULL;
}

static void works_in_threads(int index, void *arg)
{
    enum { THREADS = 4 };
    struct crowd *cr = arg;
    struct hand h[THREADS];
    (void)index;
    hf_client *c = client_at(server_url(cr->s), 20000);
    for (int i = 0; i < THREADS; i++) {
        h[i] = (struct hand){ .cr = cr };
        for (unsigned k = 0; k < 3; k++)
            h[i].m[k] = permit_of(c, SLOTS, k + 1);
        CHECK_INT(pthread_create(&h[i].thread, NULL, works, &h[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_INT(pthread_join(h[i].thread, NULL), 0);
        for (int k = 0; k < 3; k++)
            hf_lock_free(h[i].m[k]);
    }
    hf_client_free(c);
}

static void works_alone(int index, void *arg)
{
    struct crowd *cr = arg;
    struct hand h = { .cr = cr };
    (void)index;
    hf_client *c = client_at(server_url(cr->s), 20000);
    for (unsigned k = 0; k < 3; k++)
        h.m[k] = permit_of(c, SLOTS, k + 1);
    works(&h);
    for (int k = 0; k < 3; k++)
        hf_lock_free(h.m[k]);
    hf_client_free(c);
}

static void many_operations(int processes, void (*fn)(int, void *), int operations,
                            int64_t limit_ms)
{
    struct crowd cr = { .s = server_start(NULL), .rounds = operations,
                        .mem = shared_memory(sizeof *cr.mem) };
    int64_t start = t_now_ms();
    workers_run(processes, fn, &cr, limit_ms);
    t_note("%d operations in %lld ms, at most %d permits of %d out at once", operations,
           (long long)(t_now_ms() - start), atomic_load(&cr.mem->most), SLOTS);
    CHECK_INT(atomic_load(&cr.mem->inside), 0);
    CHECK(atomic_load(&cr.mem->most) > SLOTS / 2); /* and they did crowd */
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(cr.s);
}

TEST_TIMEOUT(SEM1_a_million_operations_never_exceed_the_limit, 1800)
{
    many_operations(8, works_in_threads, soak(20000, 1000000), soak(100000, 1700000));
}

TEST_TIMEOUT(SEM1_32_processes_that_all_want_it_never_exceed_the_limit, 300)
{
    many_operations(PROCESSES, works_alone, soak(8000, 200000), soak(100000, 280000));
}

/* ---- without blocking ---- */

struct flock {
    int asked, granted, cancelled, released, inside, most;
};

struct one {
    struct flock *f;
    hf_lock      *m;
};

static void given_back(hf_err result, const hf_error *e, void *arg)
{
    struct flock *f = arg;
    (void)e;
    CHECK_INT(result, HF_OK);
    f->released++;
}

static void given(hf_err result, const hf_error *e, void *arg)
{
    const struct one *o = arg;
    struct flock *f = o->f;
    if (result == HF_ECANCELED) {
        f->cancelled++;
        return;
    }
    if (result)
        FAIL("%s: %s", hf_err_name(result), e ? e->message : "");
    f->granted++;
    f->inside++;
    f->most = f->inside > f->most ? f->inside : f->most;
    CHECK(f->inside <= 7);
    f->inside--;
    CHECK_HF(hf_lock_release_async(o->m, given_back, f, &err), HF_OK);
}

TEST(SEM2_five_hundred_wait_without_blocking_and_some_give_up)
{
    enum { N = 500 };
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    struct flock f = { 0 };
    struct one *o = calloc(N, sizeof *o);
    hf_lock *all = permit_of(c, 7, 7);
    int fd;
    lock_now(all);
    CHECK_HF(hf_client_fd(c, &fd, &err), HF_OK);
    for (int i = 0; i < N; i++) {
        o[i] = (struct one){ &f, permit_of(c, 7, 1 + (unsigned)i % 3) };
        CHECK_HF(hf_lock_acquire_async(o[i].m, 60000, given, &o[i], &err), HF_OK);
    }
    CHECK_EVENTUALLY(queue_of(s, "a") == N, 20000);
    for (int i = 0; i < N; i += 5)
        hf_lock_cancel(o[i].m);
    unlock_now(all);
    for (int64_t until = t_now_ms() + 30000; f.released + f.cancelled < N;) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (t_now_ms() > until)
            FAIL("%d granted, %d released, %d cancelled of %d", f.granted, f.released, f.cancelled,
                 N);
        if (poll(&p, 1, 20) == 1)
            hf_client_dispatch(c);
    }
    t_note("%d granted, %d cancelled", f.granted, f.cancelled);
    CHECK(f.cancelled > 0 && f.granted >= N - N / 5);
    for (int i = 0; i < N; i++)
        hf_lock_free(o[i].m);
    free(o);
    hf_lock_free(all);
    hf_client_free(c);
    CHECK_INT(server_int(s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(s);
}

/* ---- death ---- */

static void holds_until_killed(int index, void *arg)
{
    struct crowd *cr = arg;
    (void)index;
    hf_client *c = client_at(server_url(cr->s), 0);
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = 2000,
                                                      .slots = 4 });
    lock_now(m);
    atomic_fetch_add(&cr->mem->ready, 1);
    bell_wait(cr->bell[0]);
}

TEST(SEM5_permits_of_the_dead_come_back_after_their_grace)
{
    struct crowd cr = { .s = server_start(NULL), .bell = { bell_new() },
                        .mem = shared_memory(sizeof *cr.mem) };
    struct workers *w = workers_start(3, holds_until_killed, &cr);
    CHECK_EVENTUALLY(atomic_load(&cr.mem->ready) == 3, 20000);
    hf_client *c = client_at(server_url(cr.s), 0);
    hf_lock *alive = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000, .grace_ms = 2000,
                                                          .slots = 4 });
    struct locker l = { .m = permit_of(c, 4, 3), .wait_ms = 30000 };
    lock_now(alive);
    locker_start(&l);
    CHECK_QUEUE(cr.s, "a", 1);
    int64_t start = t_now_ms();
    for (int i = 0; i < 3; i++)
        workers_signal(w, i, SIGKILL);
    locker_join(&l, HF_OK);
    t_note("after %lld ms", (long long)(t_now_ms() - start));
    CHECK_TOOK(t_now_ms() - start, 1950, 20000);
    CHECK_HF(hf_lock_verify(alive, &err), HF_OK);
    CHECK_INT(holders_of(cr.s), 2);
    check_sums(cr.s);
    workers_join(w, 20000);
    unlock_now(l.m);
    unlock_now(alive);
    hf_lock_free(l.m);
    hf_lock_free(alive);
    hf_client_free(c);
    CHECK_INT(server_int(cr.s, "EXISTS lock:a {lock:a}:h {lock:a}:d {lock:a}:q"), 0);
    check_only_ttls(cr.s);
}

TEST(ready_made_options)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock_opts two = hf_semaphore(2), reader = hf_reader();
    hf_lock *m[3], *r[2];
    two.slots = 0; /* a number that somebody forgot: no mutex in its place */
    CHECK_HF(hf_lock_open(c, hf_str("sem"), &two, &m[0], &err), HF_EINVAL);
    two = hf_semaphore(2);
    for (int i = 0; i < 3; i++)
        CHECK_HF(hf_lock_open(c, hf_str("sem"), &two, &m[i], &err), HF_OK);
    for (int i = 0; i < 2; i++)
        CHECK_HF(hf_lock_open(c, hf_str("rw"), &reader, &r[i], &err), HF_OK);
    lock_now(m[0]);
    lock_now(m[1]);
    CHECK_HF(hf_lock_try(m[2], NULL, &err), HF_EBUSY);
    lock_now(r[0]);
    lock_now(r[1]);
    for (int i = 0; i < 3; i++)
        hf_lock_free(m[i]);
    for (int i = 0; i < 2; i++)
        hf_lock_free(r[i]);
    hf_client_free(c);
}
