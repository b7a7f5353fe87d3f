/* SPDX-License-Identifier: MIT
 * oom.c - memory runs out at every single allocation in turn: no crash, no leak, an honest verdict.
 */
#include <stdatomic.h>
#include <stdbool.h>

#include "harness/cluster.h"
#include "harness/doctor.h"
#include "harness/answered.h"
#include "harness/failing.h"
#include "harness/fleet.h"
#include "harness/quorum.h"

static int mute; /* errors without a message */

/* What a call may answer when an allocation failed in or beside it. */
static void judge(hf_err e, const char *what)
{
    /* Its time ended, as a slow machine lets it: honest. */
    int ended = e == HF_ELOST && strstr(err.message, " ended: ");
    if (e != HF_OK && e != HF_ENOMEM && e != HF_EUNSURE && e != HF_ECONN && e != HF_ETIMEDOUT
        && e != HF_ESYS && !ended)
        FAIL("%s: %s: %s", what, hf_err_name(e), err.message);
    /* Counted, so that one mute error does not hide a worse one. */
    if (e && !err.message[0] && mute++ == 0)
        t_note("%s fails with %s and no message", what, hf_err_name(e));
    err.message[0] = '\0';
}

static int look(const hf_inspect_info *info, void *arg)
{
    *(size_t *)arg += info->holders;
    return 0;
}

static hf_change set_x(void *arg, hf_bytes old, hf_bytes *ret)
{
    (void)arg;
    (void)old;
    *ret = hf_str("x");
    return HF_CHANGE_SET;
}

static hf_err compute_x(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    (void)arg;
    (void)m;
    (void)reterr;
    *ret = hf_str("x");
    return HF_OK;
}

static void update_and_once(hf_client *c)
{
    hf_once_opts oo = { .size = sizeof oo, .ttl_ms = 60000, .refresh = 1 };
    hf_value *v = NULL;
    judge(hf_update_run(c, hf_str("u"), NULL, set_x, NULL, &err), "update");
    hf_err e = hf_once_compute(c, hf_str("o"), &oo, 0, compute_x, NULL, &v, &err);
    if (e != HF_EBUSY)
        judge(e, "once");
    CHECK(!e == (v != NULL));
    hf_value_free(v);
    v = NULL;
    judge(hf_once_get(c, hf_str("o"), &v, &err), "value");
    hf_value_free(v);
}

/* What cannot be remembered of who it was is left out. */
static void breaking(hf_client *c)
{
    hf_break_opts o = { .size = sizeof o, .reason = "why" };
    hf_lock *m = NULL;
    if (hf_lock_open(c, hf_str("x"), NULL, &m, &err))
        return;
    uint64_t fence = 0;
    if (hf_lock_try(m, &fence, &err) == HF_OK && hf_lock_is_held(m)) {
        judge(hf_ask(c, hf_str("x"), fence, "what", NULL, NULL, &err), "ask");
        judge(hf_break(c, hf_str("x"), fence, &o, NULL, &err), "break");
        hf_err e = hf_lock_verify(m, &err);
        if (e != HF_ELOST)
            judge(e, "verify");
    }
    hf_lock_free(m);
}

static void scenario_election(hf_client *c)
{
    hf_election *el = NULL;
    hf_leader *l = NULL, *changed = NULL;
    hf_election_opts o = { .size = sizeof o, .ttl_ms = 2000 };
    hf_err e = hf_election_open(c, hf_str("d"), &o, &el, &err);
    judge(e, "election");
    CHECK(!e == (el != NULL));
    if (el) {
        judge(e = hf_election_campaign(el, hf_str("value"), 0, NULL, &err), "campaign");
        CHECK_INT(hf_election_is_leader(el), e == HF_OK);
        if (!e)
            judge(hf_election_set_value(el, hf_str("another"), &err), "set_value");
    }
    e = hf_election_leader(c, hf_str("d"), &l, &err);
    judge(e, "leader");
    CHECK(!e == (l != NULL));
    if (l) {
        e = hf_election_observe(c, hf_str("d"), l, 5, &changed, &err);
        judge(e, "observe");
        CHECK(!e == (changed != NULL));
    }
    hf_leader_free(l);
    hf_leader_free(changed);
    if (el && hf_election_term(el)) {
        e = hf_election_resign(el, &err);
        if (e != HF_ELOST)
            judge(e, "resign");
    }
    hf_election_free(el);
}

static void scenario_sequence(hf_client *c)
{
    hf_sequence *q = NULL;
    uint64_t id = 0;
    hf_err e = hf_sequence_open(c, hf_str("e"), NULL, &q, &err);
    judge(e, "sequence");
    CHECK(!e == (q != NULL));
    if (q) {
        judge(e = hf_sequence_next(q, &id, &err), "next");
        CHECK(!e == (id > 0));
    }
    hf_sequence_free(q);
}

/* One pass through the library. Stops at nothing: every call must cope with what came before. */
static void scenario(struct server *s, hf_lock_opts o)
{
    hf_client *c = NULL;
    hf_lock *m = NULL, *other = NULL;
    hf_inspect_info *info = NULL;
    hf_why_info *why = NULL;
    size_t n = 0;
    int fd;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300, .info = "info" };
    o.size = sizeof o;
    hf_err e = hf_client_open(server_url(s), &co, &c, &err);
    judge(e, "open");
    CHECK(!e == (c != NULL));
    if (!c)
        return;
    judge(e = hf_lock_open(c, hf_str("a"), &o, &m, &err), "mutex");
    CHECK(!e == (m != NULL));
    judge(e = hf_lock_open(c, hf_str("b"), NULL, &other, &err), "mutex");
    CHECK(!e == (other != NULL));
    if (m) {
        judge(e = hf_lock_try(m, NULL, &err), "lock");
        CHECK_INT(hf_lock_is_held(m), e == HF_OK);
        judge(hf_lock_fd(m, &fd, &err), "fd");
        if (!e) {
            judge(hf_lock_extend(m, 5000, &err), "extend");
            judge(hf_lock_verify(m, &err), "verify");
        }
    }
    if (hf_inspect_lock(c, hf_str("a"), 0, &info, &err) == HF_OK)
        hf_inspect_free(info);
    if (hf_why(c, hf_str("a"), 0, &why, &err) == HF_OK)
        hf_why_free(why);
    judge(hf_inspect_list(c, NULL, 0, look, &n, &err), "list");
    e = hf_owner_acquire(c, hf_str("c"), 1000, hf_str("id"), NULL, &err);
    if (e != HF_EBUSY)
        judge(e, "acquire");
    e = hf_owner_release(c, hf_str("c"), hf_str("id"), &err);
    if (e != HF_ENOTOWNER)
        judge(e, "release");
    if (!atomic_load(&failing.after_it)) { /* else it takes minutes: each wait runs to its limit */
        scenario_election(c);
        breaking(c);
    }
    scenario_sequence(c);
    judge(hf_guard_check(c, hf_str("r"), 1, &err), "guard");
    judge(hf_guard_set(c, hf_str("k"), hf_str("v"), 1, &err), "guard");
    update_and_once(c);
    if (other && hf_lock_try(other, NULL, &err) == HF_OK)
        judge(hf_client_release_all(c, &n, &err), "unlock_all");
    if (m && hf_lock_is_held(m))
        judge(hf_lock_release(m, &err), "unlock");
    hf_lock_free(m);
    hf_lock_free(other);
    hf_client_free(c);
}

/* A latch that is not set, or a meeting that was broken, because an earlier call failed. */
static void judge_meeting(hf_err e, const char *what)
{
    if (e != HF_EBUSY && e != HF_ENOTSET && e != HF_EBROKEN)
        judge(e, what);
}

/* The same for latches and barriers. */
static void meetings(struct server *s, hf_lock_opts unused)
{
    (void)unused;
    hf_client *c = NULL;
    hf_latch *lt = NULL;
    hf_barrier *b = NULL;
    uint32_t left = 77;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300 };
    hf_barrier_opts bo = { .size = sizeof bo, .grace_ms = 200, .leave = 1 };
    judge(hf_client_open(server_url(s), &co, &c, &err), "open");
    if (!c)
        return;
    hf_err e = hf_latch_open(c, hf_str("a"), NULL, &lt, &err);
    judge(e, "latch");
    CHECK(!e == (lt != NULL));
    judge(e = hf_barrier_open(c, hf_str("b"), 1, &bo, &b, &err), "barrier");
    CHECK(!e == (b != NULL));
    if (lt) {
        judge_meeting(hf_latch_reset(lt, 2, &err), "reset");
        judge_meeting(hf_latch_wait(lt, 5, &err), "wait");
        e = hf_latch_count_down(lt, 2, &left, &err);
        judge_meeting(e, "count_down");
        CHECK_INT(left, e ? 77 : 0);
        judge_meeting(hf_latch_count(lt, NULL, NULL, &err), "count");
        judge_meeting(hf_latch_wait(lt, 50, &err), "wait");
    }
    if (b) {
        e = hf_barrier_wait(b, 50, NULL, NULL, &err);
        judge_meeting(e, "barrier");
        if (!e)
            judge_meeting(hf_barrier_leave(b, 50, &err), "leave");
    }
    hf_latch_free(lt);
    hf_barrier_free(b);
    hf_client_free(c);
}

/* ---- without blocking ---- */

/* judge() what a request was answered; others: what an earlier one that failed may lead to. */
#define ASYNC(c, what, call)                                                              \
    do {                                                                                  \
        struct answer a_ = { 0 }, *a = &a_;                                               \
        hf_err e_ = answered((c), (call), a, 10000);                                      \
        if (e_ != HF_EBUSY && e_ != HF_ENOTSET && e_ != HF_EBROKEN && e_ != HF_ENOTHELD   \
            && e_ != HF_ELOST)                                                            \
            judge(e_, (what));                                                            \
    } while (0)

static void async_locks(hf_client *c)
{
    hf_lock *m[2] = { 0 };
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 2000 };
    hf_inspect_info *info = NULL;
    hf_value *v = NULL;
    hf_once_opts oo = { .size = sizeof oo, .ttl_ms = 60000, .refresh = 1 };
    judge(hf_lock_open(c, hf_str("a"), &o, &m[0], &err), "mutex");
    judge(hf_lock_open(c, hf_str("b"), &o, &m[1], &err), "mutex");
    if (m[0] && m[1]) {
        ASYNC(c, "shared", hf_lock_acquire_shared_async(m[0], 0, note, a, &err));
        ASYNC(c, "verify", hf_lock_verify_async(m[0], note, a, &err));
        ASYNC(c, "unlock", hf_lock_release_async(m[0], note, a, &err));
        if (!hf_lock_is_held(m[0]))
            ASYNC(c, "multi", hf_multi_acquire_async(m, 2, 0, note, a, &err));
        ASYNC(c, "downgrade", hf_lock_downgrade_async(m[0], note, a, &err));
        ASYNC(c, "detach", hf_lock_detach_async(m[0], 1000, note, a, &err));
        ASYNC(c, "multi_unlock", hf_multi_release_async(m, 2, note, a, &err));
    }
    ASYNC(c, "inspect", hf_inspect_lock_async(c, hf_str("a"), 0, &info, note, a, &err));
    hf_inspect_free(info);
    ASYNC(c, "once", hf_once_compute_async(c, hf_str("o"), &oo, 0, compute_x, NULL, &v, note, a,
                                           &err));
    hf_value_free(v);
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
}

static void async_meetings(hf_client *c)
{
    hf_latch *lt = NULL;
    hf_barrier *b = NULL;
    hf_election *el = NULL;
    hf_leader *l = NULL, *seen = NULL;
    judge(hf_latch_open(c, hf_str("c"), NULL, &lt, &err), "latch");
    judge(hf_barrier_open(c, hf_str("d"), 1, NULL, &b, &err), "barrier");
    judge(hf_election_open(c, hf_str("e"), NULL, &el, &err), "election");
    if (lt) {
        ASYNC(c, "reset", hf_latch_reset_async(lt, 1, note, a, &err));
        ASYNC(c, "wait", hf_latch_wait_async(lt, 5, note, a, &err));
        ASYNC(c, "count_down", hf_latch_count_down_async(lt, 1, NULL, note, a, &err));
    }
    if (b)
        ASYNC(c, "barrier", hf_barrier_wait_async(b, 50, NULL, NULL, note, a, &err));
    if (el) {
        ASYNC(c, "campaign", hf_election_campaign_async(el, hf_str("v"), 0, NULL, note, a, &err));
        ASYNC(c, "leader", hf_election_leader_async(c, hf_str("e"), &seen, note, a, &err));
        if (seen)
            ASYNC(c, "observe", hf_election_observe_async(c, hf_str("e"), seen, 5, &l, note, a,
                                                          &err));
        ASYNC(c, "resign", hf_election_resign_async(el, note, a, &err));
    }
    hf_leader_free(seen);
    hf_leader_free(l);
    hf_latch_free(lt);
    hf_barrier_free(b);
    hf_election_free(el);
}

static void without_blocking(struct server *s, hf_lock_opts unused)
{
    (void)unused;
    hf_client *c = NULL;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300, .info = "mine" };
    struct answer a = { 0 };
    hf_err e = hf_client_open_async(server_url(s), &co, &c, note, &a, &err);
    CHECK(!e == (c != NULL));
    judge(e = answered(c, e, &a, 10000), "open");
    if (!e) {
        async_locks(c);
        async_meetings(c);
    }
    hf_client_free(c);
}

static const char *fleet_url;
static int stride = 1; /* more: only some of them, by chance */

/* The same through Sentinels, with replicas. */
static void through_sentinels(struct server *s, hf_lock_opts unused)
{
    (void)s;
    (void)unused;
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300, .replicas = HF_MAJORITY };
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 1000 };
    hf_err e = hf_client_open(fleet_url, &co, &c, &err);
    judge(e, "open");
    CHECK(!e == (c != NULL));
    if (c) {
        judge(e = hf_lock_open(c, hf_str("a"), &o, &m, &err), "mutex");
        if (m) {
            judge(e = hf_lock_acquire(m, 2000, NULL, &err), "lock");
            CHECK_INT(hf_lock_is_held(m), e == HF_OK);
            if (!e)
                judge(hf_lock_release(m, &err), "unlock");
        }
        hf_lock_free(m);
        hf_client_free(c);
    }
    judge(hf_doctor_examine(fleet_url, &co, ignore_finding, NULL, &err), "diagnose");
}

/* A part of several servers that has no memory is a server that is not there. */
static void judge_one_of_many(hf_err e, const char *what)
{
    if (e != HF_ENOQUORUM && e != HF_EBUSY)
        judge(e, what);
    err.message[0] = '\0';
}

static bool examines;

/* The same with several servers, each of which has threads of its own here. */
static void through_several(struct server *s, hf_lock_opts unused)
{
    (void)s;
    (void)unused;
    hf_client *c = NULL;
    hf_lock *m = NULL;
    hf_inspect_info *info = NULL;
    size_t n = 0;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300 };
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 1000 };
    hf_err e = hf_client_open(fleet_url, &co, &c, &err);
    judge_one_of_many(e, "open");
    CHECK(!e == (c != NULL));
    if (!c)
        return;
    judge(hf_lock_open(c, hf_str("a"), &o, &m, &err), "mutex");
    if (m) {
        judge_one_of_many(e = hf_lock_acquire(m, 2000, NULL, &err), "lock");
        if (!e) {
            e = hf_lock_verify(m, &err);
            if (e != HF_ELOST)
                judge_one_of_many(e, "verify");
            e = hf_lock_release(m, &err);
            if (e != HF_ELOST)
                judge_one_of_many(e, "unlock");
        }
    }
    if (hf_inspect_lock(c, hf_str("a"), 0, &info, &err) == HF_OK)
        hf_inspect_free(info);
    judge_one_of_many(hf_inspect_list(c, NULL, 0, look, &n, &err), "list");
    hf_lock_free(m);
    hf_client_free(c);
    if (examines)
        judge_one_of_many(hf_doctor_examine(fleet_url, &co, ignore_finding, NULL, &err), "examine");
}

/* Without scripts: the replies are built here, so there is more that can fail. */
static void plain(struct server *s, const char *protocol)
{
    bool stamps = protocol[1] == 'i';
    hf_client *c = NULL;
    hf_lock *m[2] = { 0 };
    hf_inspect_info *info = NULL;
    size_t n = 0;
    hf_client_opts co = { .size = sizeof co, .timeout_ms = 300, .protocol = protocol };
    hf_lock_opts o[2] = { { .size = sizeof *o, .ttl_ms = 2000 },
                           { .size = sizeof *o, .ttl_ms = 2000, .slots = stamps ? 0 : 3 } };
    judge(hf_client_open(server_url(s), &co, &c, &err), "open");
    if (!c)
        return;
    judge(hf_lock_open(c, hf_str("a"), &o[0], &m[0], &err), "mutex");
    judge(hf_lock_open(c, hf_str("b"), &o[1], &m[1], &err), "semaphore");
    for (int i = 0; i < 2 && m[i]; i++) {
        hf_err e = hf_lock_try(m[i], NULL, &err);
        if (e != HF_EBUSY)
            judge(e, "lock");
        CHECK_INT(hf_lock_is_held(m[i]), e == HF_OK);
        if (!e) {
            judge(hf_lock_extend(m[i], 5000, &err), "extend");
            judge(hf_lock_verify(m[i], &err), "verify");
            judge(hf_lock_release(m[i], &err), "unlock");
        }
    }
    if (!stamps && m[0] && m[1]) {
        hf_err e = hf_multi_acquire(m, 2, 0, &err);
        if (e != HF_EBUSY)
            judge(e, "multi");
        if (!e)
            judge(hf_multi_release(m, 2, &err), "multi_unlock");
        update_and_once(c);
    }
    if (hf_inspect_lock(c, hf_str("a"), 0, &info, &err) == HF_OK)
        hf_inspect_free(info);
    judge(hf_inspect_list(c, NULL, 0, look, &n, &err), "list");
    scenario_sequence(c);
    judge(hf_guard_check(c, hf_str("r"), 1, &err), "guard");
    hf_lock_free(m[0]);
    hf_lock_free(m[1]);
    hf_client_free(c);
}

static void transactions(struct server *s, hf_lock_opts unused)
{
    (void)unused;
    plain(s, "transaction");
}

static void timestamps(struct server *s, hf_lock_opts unused)
{
    (void)unused;
    plain(s, "timestamp");
}

static void every_allocation_of(void (*what)(struct server *s, hf_lock_opts o), hf_lock_opts o,
                                int after)
{
    struct server *s = server_start(NULL);
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    long total = 0, k;
    for (k = 1;; k += stride > 1 ? 1 + (long)t_random((uint64_t)stride) : 1) {
        failing_arm(k, after);
        what(s, o);
        failing_stop();
        if (failing_live() != 0)
            FAIL("allocation %ld failed: %ld blocks leaked", k, failing_live());
        if (failing_count() == 0)
            break; /* it came through without reaching k */
        total += failing_count();
        CHECK(k < 5000);
        /* Nothing that a failed call left may block others for longer than its ttl. */
        if (server_int(s, "EXISTS lock:a lock:b lock:c lock:d lock:e lock:o") != 0)
            server_ask(s, "DEL lock:a lock:b lock:c lock:d lock:e lock:o {lock:a}:own {lock:c}:own "
                          "{lock:b}:o");
    }
    t_note("%ld allocations failed in turn, %ld failures in all", k - 1, total);
    CHECK(k > 30); /* the fault was real */
    CHECK_INT(mute, 0);
}

static void every_allocation(hf_lock_opts o, int after)
{
    every_allocation_of(scenario, o, after);
}

TEST(every_single_allocation_of_a_latch_and_a_barrier_fails_in_turn)
{
    every_allocation_of(meetings, (hf_lock_opts){ 0 }, 0);
}

TEST(memory_runs_out_for_good_at_every_point_of_a_latch_and_a_barrier)
{
    every_allocation_of(meetings, (hf_lock_opts){ 0 }, 1);
}

TEST_TIMEOUT(allocations_through_sentinels_fail_in_turn, 180)
{
    stride = getenv("HF_SOAK") ? 1 : 15;
    fleet_url = fleet_start(NULL)->url;
    every_allocation_of(through_sentinels, (hf_lock_opts){ 0 }, 0);
}

TEST_TIMEOUT(every_single_allocation_on_a_quorum_fails_in_turn, 240)
{
    struct members q = members_start(3, kept);
    fleet_url = q.url;
    every_allocation_of(through_several, (hf_lock_opts){ 0 }, 0);
}

/* Of a cluster: cluster_repair.c. */
TEST_TIMEOUT(allocations_of_an_examination_of_a_quorum_fail_in_turn, 240)
{
    struct members q = members_start(3, kept);
    examines = true;
    stride = getenv("HF_SOAK") ? 1 : 30;
    fleet_url = q.url;
    every_allocation_of(through_several, (hf_lock_opts){ 0 }, 0);
}

TEST_TIMEOUT(memory_runs_out_for_good_on_a_quorum, 240)
{
    struct members q = members_start(3, kept);
    fleet_url = q.url;
    stride = getenv("HF_SOAK") ? 1 : 15;
    every_allocation_of(through_several, (hf_lock_opts){ 0 }, 1);
}

TEST_TIMEOUT(every_single_allocation_in_a_cluster_fails_in_turn, 240)
{
    fleet_url = cluster_start(&(struct cluster_opts){ .no_replicas = 1 })->url;
    every_allocation_of(through_several, (hf_lock_opts){ 0 }, 0);
}

TEST_TIMEOUT(memory_runs_out_for_good_in_a_cluster, 240)
{
    fleet_url = cluster_start(&(struct cluster_opts){ .no_replicas = 1 })->url;
    stride = getenv("HF_SOAK") ? 1 : 15;
    every_allocation_of(through_several, (hf_lock_opts){ 0 }, 1);
}

TEST(every_single_allocation_without_blocking_fails_in_turn)
{
    every_allocation_of(without_blocking, (hf_lock_opts){ 0 }, 0);
}

TEST(memory_runs_out_for_good_at_every_point_without_blocking)
{
    stride = 7;
    every_allocation_of(without_blocking, (hf_lock_opts){ 0 }, 1);
    stride = 1;
}

TEST(every_single_allocation_of_a_transaction_fails_in_turn)
{
    every_allocation_of(transactions, (hf_lock_opts){ 0 }, 0);
}

TEST(every_single_allocation_of_a_timestamp_fails_in_turn)
{
    every_allocation_of(timestamps, (hf_lock_opts){ 0 }, 0);
}

TEST(memory_runs_out_for_good_at_every_point_of_a_transaction)
{
    every_allocation_of(transactions, (hf_lock_opts){ 0 }, 1);
}

/* A wait that looks again and again allocates as often: on a busy machine these are many more. */
TEST_TIMEOUT(every_single_allocation_fails_in_turn, 240)
{
    every_allocation((hf_lock_opts){ .ttl_ms = 2000 }, 0);
}

TEST_TIMEOUT(every_single_allocation_fails_in_turn_with_an_owner_id, 240)
{
    every_allocation((hf_lock_opts){ .ttl_ms = 2000, .owner = hf_str("me") }, 0);
}

TEST(memory_runs_out_for_good_at_every_point)
{
    every_allocation((hf_lock_opts){ .ttl_ms = 2000 }, 1);
}

/* A failed lock that says "unchanged" must have left nothing. */
static void lock_without_memory(const char *protocol)
{
    struct server *s = server_start(NULL);
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    hf_client *c = client_with(server_url(s), (hf_client_opts){ .timeout_ms = 1000,
                                                                .protocol = protocol });
    hf_lock *m = lock_of(c, "a", 20000);
    lock_now(m);
    unlock_now(m);
    int failures = 0, faults = 0;
    /* Once, which a second sending mends; then for good, which it does not. */
    for (long k = 1, after = 0; k < 200; k++) {
        failing_arm(k, (int)after);
        hf_err e = hf_lock_try(m, NULL, &err);
        failing_stop();
        faults += failing_count() > 0;
        failures += e != HF_OK;
        if (e == HF_OK) {
            CHECK_INT(server_int(s, "EXISTS lock:a"), 1);
            unlock_now(m);
        } else if (err.known == HF_KNOWN_UNCHANGED) {
            CHECK_INT(server_int(s, "EXISTS lock:a"), 0);
        } else if (after) { /* without memory nobody can remember to cancel it: the ttl ends it */
            CHECK_INT(err.known, HF_KNOWN_NOTHING);
            CHECK_RANGE(server_int(s, "PTTL lock:a"), -2, 22000); /* timestamps round it up */
            server_ask(s, "DEL lock:a");
        }
        CHECK_EVENTUALLY(server_int(s, "EXISTS lock:a") == 0, 3000);
        if (failing_count() == 0 && after++)
            break;
        if (failing_count() == 0)
            k = 0;
    }
    t_note("%d of the attempts failed, %d met a fault", failures, faults);
    CHECK(faults > 1 && failures > 0);
    hf_lock_free(m);
    hf_client_free(c);
    CHECK_INT(failing_live(), 0);
}

TEST(P8_a_lock_that_fails_for_want_of_memory_takes_nothing)
{
    lock_without_memory("script");
}

TEST(P8_so_it_is_without_scripts)
{
    lock_without_memory("transaction");
}

TEST(P8_so_it_is_with_timestamps)
{
    lock_without_memory("timestamp");
}
