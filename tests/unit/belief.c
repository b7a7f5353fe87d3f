/* SPDX-License-Identifier: MIT
 * belief.c - P5, without a server: what makes the end of a lease later, and what does not; when its
 * end is told.
 */
#include "harness/keeping.h"

#define HOUR_MS INT64_C(3600000)

static atomic_int   tellings;
static atomic_llong lost_at_ms;

static void on_change(struct lease *l, hf_state state)
{
    (void)l;
    if (state == HF_STATE_LOST)
        atomic_store(&lost_at_ms, clock_now_ms());
    atomic_fetch_add(&tellings, 1);
}

/* Granted in an hour, and not renewed: so nothing is asked of a server, nor told to it. Its lease
 * counts from now on. Returns that moment. */
static int64_t keep(struct scene *s, struct lease *l, int64_t ttl_ms, int64_t grace_ms)
{
    int64_t now = clock_now_ms();
    struct lease_terms terms = { .sent_ms = now + HOUR_MS, .ttl_ms = HOUR_MS, .present_ms = now,
                                 .epoch = 1 };
    *l = (struct lease){ .changed = on_change, .hold_until_ms = CLOCK_NEVER,
                         .grant = { .keys = &s->keys, .sequence = 1, .grace_ms = grace_ms } };
    CHECK_INT(keeper_reserve(s->k, NULL), HF_OK);
    keeper_add(s->k, l, &terms, ttl_ms);
    keeper_lock(s->k);
    keeper_mark_proved_locked(s->k, l, now, ttl_ms);
    keeper_unlock(s->k);
    return now;
}

/* Proofs are compared by the millisecond. */
static void let_time_pass(void)
{
    int64_t now = clock_now_ms();
    CHECK_EVENTUALLY(clock_now_ms() > now + 2, 5000);
}

static void drop(struct scene *s, struct lease *l)
{
    struct park park = { 0 };
    struct task t = { .park = &park };
    hf_state was;
    while (!keeper_remove(s->k, l, &t, &was))
        task_wait(&t, CLOCK_NEVER);
}

/* ---- pings --------------------------------------------------------------------------------- */

/* Between the end of one subscription and the next the server may have given the lock to another:
 * the pings on the new one prove nothing until it has found the lock ours. */
TEST(P5_a_ping_on_a_new_subscription_proves_nothing_before_the_lock_was_found_ours)
{
    struct scene *s = open_scene();
    struct lease l;
    keep(s, &l, HOUR_MS, 60000);
    int64_t until = atomic_load(&l.until_ms);
    let_time_pass();
    prove(s); /* on the one in which it was granted */
    CHECK(atomic_load(&l.until_ms) > until);
    until = atomic_load(&l.until_ms);

    atomic_store(&s->keyspace.sub.epoch, 2);
    let_time_pass();
    prove(s);
    CHECK_INT(atomic_load(&l.until_ms), until);

    s->keyspace.kept_epoch = 2;
    keeper_lock(s->k);
    lease_mark_back_locked(&l, 2, clock_now_ms()); /* the answer to a renewal */
    keeper_unlock(s->k);
    prove(s);
    CHECK(atomic_load(&l.until_ms) > until);
    drop(s, &l);
    close_scene(s);
}

TEST(P5_a_ping_on_another_connection_proves_nothing)
{
    struct scene *s = open_scene();
    struct lease l;
    char elsewhere;
    keep(s, &l, HOUR_MS, 60000);
    int64_t until = atomic_load(&l.until_ms);
    let_time_pass();
    keeper_present(s->k, (struct inbox *)&elsewhere, clock_now_ms());
    CHECK_INT(atomic_load(&l.until_ms), until);
    drop(s, &l);
    close_scene(s);
}

/* ---- a shortening that got no answer --------------------------------------------------------- */

static int64_t proved_for(struct scene *s, struct lease *l, int64_t ttl_ms)
{
    keeper_lock(s->k);
    keeper_mark_proved_locked(s->k, l, clock_now_ms(), ttl_ms);
    int64_t left = atomic_load(&l->until_ms) - clock_now_ms();
    keeper_unlock(s->k);
    return left;
}

/* A copy of it may arrive after any renewal: so nobody believes in more than it asked for, whatever
 * the server says to renewals. */
TEST(P5_after_a_doubtful_shortening_no_renewal_gives_more_than_it_asked_for)
{
    struct scene *s = open_scene();
    struct lease l;
    keep(s, &l, HOUR_MS, 0);
    CHECK(atomic_load(&l.until_ms) > clock_now_ms() + HOUR_MS / 2);
    keeper_unsure(s->k, &l, 600000, true);
    CHECK(atomic_load(&l.until_ms) <= clock_now_ms() + 600000);
    CHECK(proved_for(s, &l, HOUR_MS) <= 600000);

    /* One that was repeated and answered may be under way a second time. */
    keeper_proved(s->k, &l, clock_now_ms(), 300000, true);
    CHECK(proved_for(s, &l, HOUR_MS) <= 300000);
    keeper_proved(s->k, &l, clock_now_ms(), HOUR_MS, false);
    CHECK(proved_for(s, &l, HOUR_MS) <= 300000);

    l.cap_until_ms = clock_now_ms(); /* none can arrive any more */
    CHECK(proved_for(s, &l, HOUR_MS) > HOUR_MS / 2);
    drop(s, &l);
    close_scene(s);
}

/* ---- how much ------------------------------------------------------------------------------- */

/* Clocks may run at different speeds, and both sides round. */
TEST(P5_belief_ends_before_the_ttl_and_before_the_grace)
{
    struct scene *s = open_scene();
    struct lease l;
    int64_t granted = keep(s, &l, 1000000, 0);
    CHECK_INT(atomic_load(&l.until_ms), granted + 1000000 - 10000 - 2);
    drop(s, &l);
    granted = keep(s, &l, HOUR_MS, 1000000);
    CHECK_INT(atomic_load(&l.until_ms), granted + 1000000 - 10000 - 2);
    drop(s, &l);
    close_scene(s);
}

TEST(P5_what_was_lost_is_not_believed_in_again)
{
    struct scene *s = open_scene();
    struct lease l;
    keep(s, &l, HOUR_MS, 60000);
    keeper_denied(s->k, &l, HF_LOSS_TAKEN);
    CHECK(proved_for(s, &l, HOUR_MS) <= 0);
    prove(s);
    keeper_proved(s->k, &l, clock_now_ms(), HOUR_MS, false);
    CHECK_INT(lease_state(&l), HF_STATE_LOST);
    CHECK(!lease_believed(&l, clock_now_ms()));
    CHECK_INT(atomic_load(&l.loss), HF_LOSS_TAKEN);
    drop(s, &l);
    close_scene(s);
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Its holder may hear it late only because the machine is: the soonest of several counts. */
TEST(P5_the_end_of_a_lease_that_nobody_takes_over_is_told_when_it_comes)
{
    struct scene *s = open_scene();
    int64_t soonest = HOUR_MS;
    for (int i = 0; i < 10 && soonest > 100; i++) {
        struct lease l;
        int before = atomic_load(&tellings);
        int64_t until = keep(s, &l, 100, 0) + 97; /* 1 % and 2 ms less than the ttl */
        CHECK_EVENTUALLY(atomic_load(&tellings) > before, 20000);
        int64_t late = atomic_load(&lost_at_ms) - until;
        CHECK_INT(lease_state(&l), HF_STATE_LOST);
        CHECK(late >= 0);
        soonest = late < soonest ? late : soonest;
        drop(s, &l);
    }
    t_note("told %lld ms after the end", (long long)soonest);
    CHECK(soonest < 500);
    close_scene(s);
}
