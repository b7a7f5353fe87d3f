/* SPDX-License-Identifier: MIT
 * keeper.c - what is kept while locks are held, without a server: many leases, turns, what is given
 * up.
 */
#include "session/keeper.h"
#include "session/keeper_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "harness/keeping.h"
#include "net/task.h"
#include "session/cancel_queue.h"
#include "session/lease_set.h"
#include "session/renew.h"
#include "session/server_health.h"

#define HOUR_MS  INT64_C(3600000)
#define GRACE_MS 60000

static atomic_size_t told[HF_STATE_LOST + 1];

static void count_event(struct lease *l, hf_state state)
{
    (void)l;
    atomic_fetch_add(&told[state], 1);
}

/* Kept, and in doubt at once: half of its grace is over. The lease itself begins in an hour, so
 * nothing is to be asked of a server. */
static void keep_doubtful(struct scene *s, struct lease *l, uint64_t sequence)
{
    int64_t now = clock_now_ms();
    struct lease_terms terms = { .sent_ms = now + HOUR_MS, .ttl_ms = HOUR_MS,
                                 .present_ms = now - GRACE_MS / 2, .epoch = 1 };
    l->grant = (struct grant){ .keys = &s->keys, .sequence = sequence, .grace_ms = GRACE_MS };
    l->renew = true;
    l->hold_until_ms = CLOCK_NEVER;
    if (!l->changed)
        l->changed = count_event;
    CHECK_INT(keeper_reserve(s->k, NULL), HF_OK);
    keeper_add(s->k, l, &terms, HOUR_MS);
}

static void drop(struct scene *s, struct lease *l)
{
    struct park park = { 0 };
    struct task t = { .park = &park };
    hf_state was;
    while (!keeper_remove(s->k, l, &t, &was)) /* its event is being told */
        task_wait(&t, CLOCK_NEVER);
}

/* ---- many leases --------------------------------------------------------------------- */

enum { MANY = 100000 };

static struct lease *keep_many(struct scene *s)
{
    struct lease *l = calloc(MANY, sizeof *l);
    for (size_t i = 0; i < MANY; i++)
        keep_doubtful(s, &l[i], i + 1);
    CHECK_EVENTUALLY(atomic_load(&told[HF_STATE_IN_DOUBT]) == MANY, 20000);
    return l;
}

TEST(a_hundred_thousand_leases_come_out_of_doubt_within_a_second)
{
    struct scene *s = open_scene();
    struct lease *l = keep_many(s);
    CHECK_INT(lease_state(&l[MANY / 2]), HF_STATE_IN_DOUBT);
    int64_t began = t_now_ms();
    prove(s);
    int64_t proved = t_now_ms();
    CHECK_EVENTUALLY(atomic_load(&told[HF_STATE_SAFE]) == MANY, 20000);
    t_note("proved in %lld ms, told in %lld ms", (long long)(proved - began),
           (long long)(t_now_ms() - began));
    CHECK_TOOK(t_now_ms() - began, 0, 1000);
    for (size_t i = 0; i < MANY; i++)
        CHECK(lease_state(&l[i]) == HF_STATE_SAFE);

    began = t_now_ms();
    for (size_t i = 1; i <= MANY; i++)
        CHECK(keeper_holds(s->k, i));
    CHECK(!keeper_holds(s->k, MANY + 1));
    CHECK_TOOK(t_now_ms() - began, 0, 1000);
    close_scene(s);
    free(l);
}

/* Another thread. */
struct visitor {
    struct keeper *k;
    struct inbox  *in;
    struct lease  *l;
    atomic_bool    stop;
    atomic_int     visits; /* begun and ended while all leases were gone through */
};

/* They are gone through from the last to the first. */
static bool in_the_middle(const struct lease *l)
{
    return atomic_load(&l[MANY - 1].until_ms) != atomic_load(&l[0].until_ms);
}

static void *visit(void *arg)
{
    struct visitor *v = arg;
    while (!atomic_load(&v->stop)) {
        bool before = in_the_middle(v->l);
        (void)keeper_any(v->k);
        if (before && in_the_middle(v->l))
            atomic_fetch_add(&v->visits, 1);
    }
    return NULL;
}

TEST(nobody_waits_until_all_leases_were_gone_through)
{
    struct scene *s = open_scene();
    struct visitor v = { .k = s->k, .in = scene_inbox(s), .l = keep_many(s) };
    pthread_t thread;
    prove(s);
    CHECK(!in_the_middle(v.l));
    CHECK_INT(pthread_create(&thread, NULL, visit, &v), 0);
    for (int i = 0; i < 200 && atomic_load(&v.visits) < 100; i++)
        prove(s); /* more than once: a busy machine may not let the visitor run at all */
    CHECK_RANGE(atomic_load(&v.visits), 100, 1000000000);
    atomic_store(&v.stop, true);
    pthread_join(thread, NULL);
    close_scene(s);
    free(v.l);
}

static void *prove_always(void *arg)
{
    struct visitor *v = arg;
    while (!atomic_load(&v->stop))
        keeper_present(v->k, v->in, clock_now_ms());
    return NULL;
}

TEST(leases_come_and_go_while_all_are_gone_through)
{
    enum { SOME = 5000, ROUNDS = 100000 };
    struct scene *s = open_scene();
    struct lease *l = calloc(SOME, sizeof *l);
    struct visitor v = { .k = s->k, .in = scene_inbox(s) };
    struct park park = { 0 };
    struct task t = { .park = &park };
    hf_state was;
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, prove_always, &v), 0);
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        struct lease *x = &l[t_random(SOME)];
        if (!x->grant.sequence) {
            keep_doubtful(s, x, i);
            continue;
        }
        CHECK(keeper_holds(s->k, x->grant.sequence));
        while (!keeper_remove(s->k, x, &t, &was)) /* its event is being told */
            task_wait(&t, CLOCK_NEVER);
        CHECK(was != HF_STATE_LOST && lease_state(x) == HF_STATE_FREE);
        CHECK(!keeper_holds(s->k, x->grant.sequence));
        keeper_unreserve(s->k);
        x->grant.sequence = 0;
    }
    atomic_store(&v.stop, true);
    pthread_join(thread, NULL);
    prove(s);
    for (size_t i = 0; i < SOME; i++)
        CHECK(lease_state(&l[i]) == (l[i].grant.sequence ? HF_STATE_SAFE : HF_STATE_FREE));
    close_scene(s);
    free(l);
}

/* ---- the set ------------------------------------------------------------------------- */

TEST(a_walk_from_the_end_meets_all_that_stay_whatever_comes_and_goes)
{
    enum { N = 300 };
    static struct lease l[N];
    static bool there_at_first[N], gone[N], met[N];
    struct lease_set s = { 0 };
    CHECK(!lease_set_find(&s, 7));
    CHECK_INT(lease_set_reserve(&s, N), 0);
    for (size_t i = 0; i < N; i++)
        l[i].grant.sequence = 1 + i * (1 + t_random(40));
    for (int round = 0; round < 500; round++) {
        for (size_t i = 0; i < N; i++) {
            there_at_first[i] = l[i].at;
            gone[i] = met[i] = false;
        }
        for (size_t left = s.n; left > 0;) {
            met[s.row[--left] - l] = true;
            for (size_t i = t_random(4); i > 0; i--) {
                struct lease *x = &l[t_random(N)];
                gone[x - l] |= x->at;
                if (x->at)
                    lease_set_remove(&s, x);
                else
                    lease_set_add(&s, x);
            }
            left = left < s.n ? left : s.n;
        }
        for (size_t i = 0; i < N; i++)
            CHECK(!there_at_first[i] || gone[i] || met[i]);
        for (size_t i = 0; i < N; i++)
            if (t_random(2) && !l[i].at)
                lease_set_add(&s, &l[i]);
    }
    lease_set_clear(&s);
}

TEST(leases_are_found_by_their_number_while_the_set_grows)
{
    enum { N = 3000 };
    struct lease_set s = { 0 };
    static struct lease l[N];
    for (size_t i = 0; i < N; i++) {
        CHECK_INT(lease_set_reserve(&s, s.n + 1), 0);
        l[i].grant.sequence = 5 * i + 3;
        lease_set_add(&s, &l[i]);
        if (i % 3 == 0)
            lease_set_remove(&s, &l[i]);
    }
    for (size_t i = 0; i < 5 * N + 5; i++) {
        bool kept = i % 5 == 3 && i / 5 < N && (i / 5) % 3;
        CHECK(lease_set_find(&s, i) == (kept ? &l[i / 5] : NULL));
    }
    lease_set_clear(&s);
}

/* ---- turns --------------------------------------------------------------------------- */

static atomic_bool inside, go_on;

/* Thread: watchdog. */
static void linger(struct lease *l, hf_state state)
{
    atomic_store(&inside, true);
    while (!atomic_load(&go_on))
        t_sleep_ms(1);
    count_event(l, state);
}

static void begin_event(struct scene *s, struct lease *l, uint64_t sequence)
{
    l->changed = linger;
    atomic_store(&inside, false);
    atomic_store(&go_on, false);
    keep_doubtful(s, l, sequence);
    CHECK_EVENTUALLY(atomic_load(&inside), 5000);
}

TEST(begin_says_that_it_has_to_wait_and_wakes_its_task)
{
    struct scene *s = open_scene();
    struct lease l = { 0 };
    struct park park = { 0 };
    struct task t = { .park = &park };
    begin_event(s, &l, 1);
    CHECK_INT(keeper_begin(s->k, &l, 0, &t), TURN_WAIT);
    CHECK_INT(keeper_begin(s->k, &l, 0, &t), TURN_WAIT);
    atomic_store(&go_on, true);
    enum keeper_turn turn;
    while ((turn = keeper_begin(s->k, &l, 0, &t)) == TURN_WAIT)
        task_wait(&t, CLOCK_NEVER);
    CHECK_INT(turn, TURN_HELD);
    CHECK(!l.waits);
    keeper_denied(s->k, &l, HF_LOSS_TAKEN);
    CHECK_EVENTUALLY(atomic_load(&told[HF_STATE_LOST]) == 1, 5000);
    while ((turn = keeper_begin(s->k, &l, 0, &t)) == TURN_WAIT)
        task_wait(&t, CLOCK_NEVER);
    CHECK_INT(turn, TURN_LOST);
    close_scene(s);
}

TEST(remove_waits_for_the_event_under_way_and_lets_no_other_begin)
{
    struct scene *s = open_scene();
    struct lease l = { 0 };
    struct park park = { 0 };
    struct task t = { .park = &park };
    hf_state was = HF_STATE_FREE;
    begin_event(s, &l, 1);
    CHECK(!keeper_remove(s->k, &l, &t, &was));
    CHECK_INT(was, HF_STATE_FREE);
    prove(s); /* would be told: it is safe again */
    atomic_store(&go_on, true);
    while (!keeper_remove(s->k, &l, &t, &was))
        task_wait(&t, CLOCK_NEVER);
    CHECK_INT(was, HF_STATE_SAFE);
    CHECK_INT(lease_state(&l), HF_STATE_FREE);
    CHECK(!keeper_any(s->k) && !l.waits);
    t_sleep_ms(50);
    CHECK_INT(atomic_load(&told[HF_STATE_IN_DOUBT]), 1);
    CHECK_INT(atomic_load(&told[HF_STATE_SAFE]), 0);
    close_scene(s);
}

/* ---- cancellations ------------------------------------------------------------------- */

static struct cancel_entry *new_entry(void)
{
    struct cancel_entry *en = mem_zalloc(sizeof *en);
    en->until_ms = CLOCK_NEVER;
    return en;
}

TEST(what_was_given_up_is_tried_before_what_has_failed)
{
    struct cancel_queue q;
    struct cancel_entry *some[CANCELS_AT_ONCE];
    cancel_queue_init(&q);
    CHECK(cancel_queue_due(&q) == CLOCK_NEVER);
    for (size_t i = 0; i < CANCELS_AT_ONCE + 2; i++)
        CHECK(cancel_queue_add(&q, new_entry()));
    CHECK_INT(cancel_queue_take(&q, 1000, some, CANCELS_AT_ONCE), CANCELS_AT_ONCE);
    CHECK_INT(q.pending, CANCELS_AT_ONCE + 2);
    for (size_t i = 0; i < CANCELS_AT_ONCE; i++) {
        some[i]->result = i == 0 ? HF_OK : i == 1 ? HF_EAUTH : HF_ECONN;
        cancel_queue_settle(&q, some[i], 1000, 0);
    }
    CHECK_INT(q.pending, CANCELS_AT_ONCE);
    CHECK_INT(cancel_queue_take(&q, 1000, some, CANCELS_AT_ONCE), 2); /* the others have to wait */
    for (size_t i = 0; i < 2; i++)
        cancel_queue_settle(&q, some[i], 1000, 0);
    CHECK_RANGE(cancel_queue_due(&q), 1001, 2000);
    struct cancel_entry *fresh = new_entry();
    CHECK(cancel_queue_add(&q, fresh));
    CHECK_INT(cancel_queue_take(&q, 5000, some, 1), 1);
    CHECK(some[0] == fresh);
    fresh->result = HF_ECONN;
    fresh->until_ms = 4000; /* nothing can be left of it */
    cancel_queue_settle(&q, fresh, 5000, 0);
    CHECK_INT(q.pending, CANCELS_AT_ONCE - 2);
    cancel_queue_clear(&q);
}

TEST(cancellations_are_bounded_and_always_find_their_place_again)
{
    struct cancel_queue q;
    struct cancel_entry *some[CANCELS_AT_ONCE];
    cancel_queue_init(&q);
    size_t added = 0;
    struct cancel_entry *en = new_entry();
    for (; cancel_queue_add(&q, en); en = new_entry())
        added++;
    CHECK_RANGE(added, 100, 100000);
    size_t n = cancel_queue_take(&q, 1000, some, CANCELS_AT_ONCE);
    CHECK(!cancel_queue_add(&q, en)); /* those under way count */
    cancel_entry_free(en);
    for (size_t i = 0; i < 3000; i++) {
        en = new_entry();
        en->until_ms = 2000;
        CHECK(cancel_queue_released(&q, en, 1000));
    }
    CHECK_RANGE(q.nreleased, 100, 2999);
    for (size_t i = 0; i < n; i++) {
        some[i]->result = HF_EUNSURE;
        cancel_queue_settle(&q, some[i], 1000, 0);
    }
    CHECK_INT(q.turns.len, added);
    cancel_queue_clear(&q);
}

TEST(releases_are_repeated_where_their_keys_have_moved)
{
    struct cancel_queue q;
    struct cancel_entry *some[CANCELS_AT_ONCE], *en[4];
    struct topo_ops ops = { 0 };
    struct topo topo = { .ops = &ops };
    cancel_queue_init(&q);
    for (size_t i = 0; i < 4; i++) {
        en[i] = new_entry();
        en[i]->keys = mem_zalloc(sizeof *en[i]->keys);
        en[i]->moves = i % 2; /* of these two were released after it */
        en[i]->until_ms = i == 0 ? 900 : 2000;
        CHECK(cancel_queue_released(&q, en[i], 500));
    }
    atomic_store(&topo.moves, 1);
    CHECK(cancel_queue_repeat(&q, &topo, 1000)); /* the first was released too long ago */
    CHECK_INT(q.pending, 1);
    CHECK_INT(q.nreleased, 2);
    CHECK_INT(cancel_queue_take(&q, 1000, some, CANCELS_AT_ONCE), 1);
    CHECK(some[0] == en[2] && en[2]->until_ms > 2000);
    en[2]->result = HF_OK;
    en[2]->moves = 1;
    cancel_queue_settle(&q, en[2], 1000, 3000);
    CHECK(!cancel_queue_repeat(&q, &topo, 1000));
    CHECK_INT(q.pending, 0);
    CHECK_INT(q.nreleased, 3);
    atomic_store(&topo.moves, 2);
    CHECK(cancel_queue_repeat(&q, &topo, 1000));
    CHECK_INT(q.pending, 3); /* the repeated one once more */
    CHECK_INT(q.nreleased, 0);
    CHECK_INT(cancel_queue_take(&q, 1000, some, CANCELS_AT_ONCE), 3);
    for (size_t i = 0; i < 3; i++) {
        some[i]->result = HF_OK;
        cancel_queue_settle(&q, some[i], 1000, 0); /* there is no other server */
    }
    CHECK_INT(q.pending + q.nreleased, 0);
    CHECK(cancel_queue_released(&q, new_entry(), 1000)); /* behind none */
    cancel_queue_clear(&q);
}

/* ---- one renewal for its holder ------------------------------------------------------ */

TEST(a_verdict_is_what_became_of_the_lease)
{
    struct grant g = { 0 };
    struct op_lease one = { .grant = &g, .ttl_ms = 1000 };
    enum verdict v = VERDICT_OURS;
    struct renewed got;
    struct op op;
    renew_op(&op, KEEP_CHECK, &one, &v, 5);
    CHECK(op.id == OP_keep && op.lane == LANE_PLAIN && op.deadline_ms == 5 && op.keep.n == 1);
    renew_op(&op, KEEP_SET, &one, &v, 5);
    CHECK(op.lane == LANE_KEEP && op.keep.each == &one);
    op.sent_ms = 77;
    CHECK_INT(renew_outcome(&op, HF_OK, &got, NULL), HF_OK);
    CHECK(got.loss == HF_LOSS_NONE && got.sent_ms == 77 && !got.in_doubt);
    v = VERDICT_RELEASED;
    CHECK_INT(renew_outcome(&op, HF_OK, &got, NULL), HF_OK);
    CHECK_INT(got.loss, HF_LOSS_RELEASED);
    v = VERDICT_NOT_OURS;
    op.wanted = 1; /* nobody has to acknowledge that it is lost */
    CHECK_INT(renew_outcome(&op, HF_OK, &got, NULL), HF_OK);
    CHECK(got.loss == HF_LOSS_TAKEN && !got.in_doubt);
    v = VERDICT_OURS;
    CHECK_INT(renew_outcome(&op, HF_OK, &got, NULL), HF_EREPLICAS);
    CHECK(got.in_doubt);
    v = VERDICT_UNKNOWN;
    CHECK_INT(renew_outcome(&op, HF_OK, &got, NULL), HF_ENOQUORUM);
    CHECK(!got.in_doubt);
    op.in_doubt = 2;
    CHECK_INT(renew_outcome(&op, HF_EUNSURE, &got, NULL), HF_EUNSURE);
    CHECK(got.in_doubt);
}

/* We stood still for 2.5 s with a lease of 2 s, and the first thing that is read then is the answer
 * of the server that others have it; or that it sees us, which says nothing of the lease. */
static void lose_by_pause(int64_t grace_ms, int64_t last_renewal_ms, hf_loss heard)
{
    struct scene *s = open_scene();
    struct lease l = { 0 };
    keep_doubtful(s, &l, 1);
    keeper_lock(s->k);
    int64_t now = clock_now_ms();
    l.grant.grace_ms = grace_ms;
    l.present_ms = now;
    l.proven_ms = now - 2500 - last_renewal_ms;
    l.lease_ms = l.ttl_ms = 2000;
    atomic_store(&l.until_ms, l.proven_ms + 1980);
    s->k->awake_ms = now - 2500;
    s->k->watch_sleeps_ms = now - 2400;
    if (heard)
        keeper_mark_lost_locked(s->k, &l, heard);
    else
        keeper_judge_locked(s->k, &l, now);
    keeper_unlock(s->k);
    CHECK_EVENTUALLY(lease_state(&l) == HF_STATE_LOST, 5000);
    CHECK_INT(atomic_load(&l.loss), HF_LOSS_PAUSED);
    CHECK_RANGE(atomic_load(&l.stood_ms), 2500, 2600);
    drop(s, &l);
    close_scene(s);
}

TEST(a_lock_that_is_gone_after_our_own_pause_was_lost_by_the_pause)
{
    lose_by_pause(0, 500, HF_LOSS_TAKEN);
}

TEST(a_session_that_stood_does_not_hide_our_own_pause)
{
    lose_by_pause(1000, 600, HF_LOSS_NONE);
}

/* ---- clocks --------------------------------------------------------------------------- */

static void count_warnings(void *arg, hf_log level, const char *message)
{
    (void)message;
    *(int *)arg += level == HF_LOG_WARNING;
}

TEST(a_quick_answer_after_a_slow_one_is_no_clock_that_moved)
{
    int warnings = 0;
    struct log log = { .fn = count_warnings, .arg = &warnings };
    struct server_health h = { 0 };
    int64_t now = clock_now_ms();
    /* It took 2 s, most of it on the way back: the offset seems to be 900 ms less than it is. */
    health_time(&h, now - 1900, now - 2000, 1000, 0, &log);
    now = clock_now_ms();
    health_time(&h, now, now, 1000, 0, &log);
    CHECK_INT(warnings, 0);
    now = clock_now_ms();
    health_time(&h, now + 500, now, 1000, 0, &log); /* this one did */
    CHECK_INT(warnings, 1);
}
