/* SPDX-License-Identifier: MIT
 * quorum_refused.c - what no majority of servers can do soundly is refused, each with its reason.
 */
#include "harness/quorum.h"

/* HF_ENOTSUP, with this reason and with what to do; it says that nothing was done, and so it is. */
#define CHECK_REFUSED(call, reason)                    \
    do {                                               \
        CHECK_HF(call, HF_ENOTSUP);                    \
        CHECK_CONTAINS(err.message, "not on a quorum: "); \
        CHECK_CONTAINS(err.message, reason);           \
    } while (0)

TEST(shared_locks_and_semaphores)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *why = "permits counted by majorities can be given out twice";
    hf_lock *m = lock_of(c, "a", 4000), *sem = lock_with(c, "s", (hf_lock_opts){ .slots = 2 });
    hf_lock *shared = lock_with(c, "r", (hf_lock_opts){ .shared = 1 });
    CHECK_REFUSED(hf_lock_acquire_shared(m, 0, NULL, &err), why);
    CHECK_REFUSED(hf_lock_acquire_shared(m, 500, NULL, &err), why);
    CHECK_REFUSED(hf_lock_try(shared, NULL, &err), why);
    CHECK_REFUSED(hf_lock_acquire(sem, 500, NULL, &err), why);
    CHECK_REFUSED(hf_semaphore_resize(c, hf_str("s"), 3, NULL, &err), why);
    lock_now(m);
    CHECK_REFUSED(hf_lock_downgrade(m, &err), why);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK); /* it is held as before */
    unlock_now(m);
    hf_lock_free(m);
    hf_lock_free(sem);
    hf_lock_free(shared);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_idle(&q), 1000);
}

TEST(latches_and_barriers)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *why = "a count kept by majorities can be counted twice";
    hf_latch *lt = NULL;
    CHECK_HF(hf_latch_open(c, hf_str("l"), NULL, &lt, &err), HF_OK);
    CHECK_REFUSED(hf_latch_set(lt, 1, &err), why);
    CHECK_REFUSED(hf_latch_count_down(lt, 1, NULL, &err), why);
    CHECK_REFUSED(hf_latch_wait(lt, 500, &err), why);
    hf_barrier *br = NULL;
    CHECK_HF(hf_barrier_open(c, hf_str("b"), 2, NULL, &br, &err), HF_OK);
    CHECK_REFUSED(hf_barrier_wait(br, 500, NULL, NULL, &err), why);
    hf_latch_free(lt);
    hf_barrier_free(br);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_untouched(&q), 1000);
}

TEST(elections)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *why = "the value of a leader has no single place";
    hf_election *el = NULL;
    hf_leader *leader = NULL;
    CHECK_HF(hf_election_open(c, hf_str("e"), NULL, &el, &err), HF_OK);
    CHECK_REFUSED(hf_election_campaign(el, hf_str("me"), 500, NULL, &err), why);
    CHECK(!hf_election_is_leader(el));
    CHECK_REFUSED(hf_election_leader(c, hf_str("e"), &leader, &err), why);
    CHECK(!leader);
    hf_election_free(el);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_idle(&q), 1000);
}

TEST(sequences)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    hf_sequence *s = NULL;
    uint64_t id = 7;
    CHECK_HF(hf_sequence_open(c, hf_str("ids"), NULL, &s, &err), HF_OK);
    CHECK_REFUSED(hf_sequence_next(s, &id, &err), "numbers given by majorities can repeat");
    CHECK_INT(id, 7);
    hf_sequence_free(s);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_untouched(&q), 1000);
}

static int computed;

static hf_err compute(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    (void)arg;
    (void)m;
    (void)reterr;
    computed++;
    *ret = hf_str("x");
    return HF_OK;
}

TEST(once)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *why = "a value has no single place: once needs one server";
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 1000 };
    hf_value *v = NULL;
    CHECK_REFUSED(hf_once_compute(c, hf_str("page"), &o, 500, compute, NULL, &v, &err), why);
    CHECK_INT(computed, 0);
    CHECK_REFUSED(hf_once_get(c, hf_str("page"), &v, &err), why);
    CHECK_REFUSED(hf_once_drop(c, hf_str("page"), &err), why);
    CHECK(!v);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_untouched(&q), 1000);
}

static hf_change change(void *arg, hf_bytes old, hf_bytes *ret)
{
    (void)arg;
    (void)old;
    computed++;
    *ret = hf_str("x");
    return HF_CHANGE_SET;
}

TEST(updates)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    computed = 0;
    CHECK_REFUSED(hf_update_run(c, hf_str("k"), NULL, change, NULL, &err),
                  "a value kept by majorities can be changed twice");
    CHECK_INT(computed, 0);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_untouched(&q), 1000);
}

TEST(guards_and_repairs)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 0);
    const char *why = "a guard belongs to the resource";
    CHECK_REFUSED(hf_guard_check(c, hf_str("r"), 7, &err), why);
    CHECK_REFUSED(hf_guard_set(c, hf_str("k"), hf_str("v"), 7, &err), why);
    hf_client_free(c);
    CHECK_EVENTUALLY(members_untouched(&q), 1000);
}
