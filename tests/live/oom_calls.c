/* SPDX-License-Identifier: MIT
 * oom_calls.c - every public call, one by one, while one of its allocations fails: it says so or
 * does without, in words, and nothing leaks. HF_SOAK=1: each allocation in turn.
 *
 * The header says which calls there are: one that is neither in the table nor excused here fails
 * the test. Calls together, and memory that is gone for good: oom.c.
 */
#include <stdatomic.h>

#include "harness/doctor.h"
#include "harness/failing.h"

/* ---- what the calls are made on ---- */

struct world {
    const char  *url, *dir;
    hf_client   *c;
    hf_lock     *m, *other, *slots, *pair[2];
    hf_latch    *latch;
    hf_barrier  *barrier;
    hf_election *el;
    hf_sequence *q;
    uint64_t     fence;
    atomic_int   calls;
    hf_err       result;
};

static hf_lock_opts three_slots = { .size = sizeof three_slots, .slots = 3 };
static hf_barrier_opts leaving = { .size = sizeof leaving, .leave = 1 };
static hf_once_opts fresh = { .size = sizeof fresh, .ttl_ms = 60000, .refresh = 1 };
static hf_break_opts why_broken = { .size = sizeof why_broken, .reason = "why" };

static void world_open(struct world *w, const char *url)
{
    hf_client_opts o = { .size = sizeof o, .timeout_ms = 5000, .history = 3, .info = "info" };
    *w = (struct world){ .url = url, .dir = keep_text("%s/own", t_dir()) };
    CHECK_HF(hf_client_open(url, &o, &w->c, &err), HF_OK);
    CHECK_HF(hf_lock_open(w->c, hf_str("a"), NULL, &w->m, &err), HF_OK);
    CHECK_HF(hf_lock_open(w->c, hf_str("b"), NULL, &w->other, &err), HF_OK);
    CHECK_HF(hf_lock_open(w->c, hf_str("s"), &three_slots, &w->slots, &err), HF_OK);
    CHECK_HF(hf_latch_open(w->c, hf_str("l"), NULL, &w->latch, &err), HF_OK);
    CHECK_HF(hf_barrier_open(w->c, hf_str("r"), 1, &leaving, &w->barrier, &err), HF_OK);
    CHECK_HF(hf_election_open(w->c, hf_str("e"), NULL, &w->el, &err), HF_OK);
    CHECK_HF(hf_sequence_open(w->c, hf_str("q"), NULL, &w->q, &err), HF_OK);
    w->pair[0] = w->m;
    w->pair[1] = w->other;
}

static void world_close(struct world *w)
{
    hf_lock_free(w->m);
    hf_lock_free(w->other);
    hf_lock_free(w->slots);
    hf_latch_free(w->latch);
    hf_barrier_free(w->barrier);
    hf_election_free(w->el);
    hf_sequence_free(w->q);
    hf_client_free(w->c);
}

/* ---- what comes before a call ---- */

static void idle(struct world *w)
{
    (void)w;
}

static void held(struct world *w)
{
    CHECK_HF(hf_lock_acquire(w->m, 10000, &w->fence, &err), HF_OK);
}

static void held_shared(struct world *w)
{
    CHECK_HF(hf_lock_acquire_shared(w->m, 10000, &w->fence, &err), HF_OK);
}

static void held_slot(struct world *w)
{
    CHECK_HF(hf_lock_acquire(w->slots, 10000, NULL, &err), HF_OK);
}

static void held_both(struct world *w)
{
    CHECK_HF(hf_multi_acquire(w->pair, 2, 10000, &err), HF_OK);
}

static void owned(struct world *w)
{
    CHECK_HF(hf_owner_acquire(w->c, hf_str("o"), 20000, hf_str("id"), NULL, &err), HF_OK);
}

static void counting(struct world *w)
{
    CHECK_HF(hf_latch_set(w->latch, 2, &err), HF_OK);
}

static void at_zero(struct world *w)
{
    counting(w);
    CHECK_HF(hf_latch_count_down(w->latch, 2, NULL, &err), HF_OK);
}

static void met(struct world *w)
{
    CHECK_HF(hf_barrier_wait(w->barrier, 10000, NULL, NULL, &err), HF_OK);
}

static void leads(struct world *w)
{
    CHECK_HF(hf_election_campaign(w->el, hf_str("v"), 10000, NULL, &err), HF_OK);
}

static void noted(struct world *w)
{
    held(w);
    CHECK_HF(hf_lock_note(w->m, "note", &err), HF_OK);
    CHECK_HF(hf_lock_release(w->m, &err), HF_OK);
}

static void serving(struct world *w)
{
    CHECK_HF(hf_server_start(w->dir, NULL, &err), HF_OK);
}

/* ---- callbacks ---- */

static int each_lock(const hf_inspect_info *info, void *arg)
{
    (void)info;
    (void)arg;
    return 0;
}

static int each_news(const hf_news *n, void *arg)
{
    (void)n;
    (void)arg;
    return 1;
}

static int each_past(const hf_past *p, void *arg)
{
    (void)p;
    (void)arg;
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

static void done(hf_err result, const hf_error *e, void *arg)
{
    struct world *w = arg;
    w->result = result;
    if (e)
        err = *e;
    atomic_fetch_add(&w->calls, 1);
}

/* A request that was begun: its answer, which comes exactly once. */
static hf_err answer(struct world *w, hf_err begun)
{
    if (begun) {
        CHECK_INT(w->calls, 0);
        return begun;
    }
    for (int64_t until = t_now_ms() + 60000; !atomic_load(&w->calls); t_sleep_ms(1)) {
        if (t_now_ms() > until)
            FAIL("no answer within 60 s");
        hf_client_dispatch(w->c);
    }
    CHECK_INT(w->calls, 1);
    return w->result;
}

/* ---- the calls ---- */

/* A result is there exactly when the call has succeeded; it is freed. */
#define GIVES(type, free_it, call)          \
    type *got = NULL;                       \
    hf_err e = (call);                      \
    CHECK((e == HF_OK) == (got != NULL));   \
    free_it(got);                           \
    return e

#define N(text) hf_str(text)
#define THEN(call) return answer(w, (call))

/* X(name, what comes before, what it does): `return` gives its result. */
#define CALLS_OF_LOCKS(X)                                                                         \
    X(hf_client_open, idle,                                                                       \
      GIVES(hf_client, hf_client_free, hf_client_open(w->url, NULL, &got, &err)))                 \
    X(hf_client_close, held, hf_client *c = w->c; w->c = NULL;                                    \
      return hf_client_close(c, 1000, &err))                                                      \
    X(hf_client_release_all, held, return hf_client_release_all(w->c, NULL, &err))                \
    X(hf_client_held, held, char b[4000]; return hf_client_held(w->c, b, sizeof b, &err))         \
    X(hf_client_fd, idle, int fd; return hf_client_fd(w->c, &fd, &err))                           \
    X(hf_lock_open, idle,                                                                         \
      GIVES(hf_lock, hf_lock_free, hf_lock_open(w->c, N("z"), NULL, &got, &err)))                 \
    X(hf_lock_acquire, idle, return hf_lock_acquire(w->m, 5000, NULL, &err))                      \
    X(hf_lock_try, idle, return hf_lock_try(w->m, NULL, &err))                                    \
    X(hf_lock_release, held, return hf_lock_release(w->m, &err))                                  \
    X(hf_lock_extend, held, return hf_lock_extend(w->m, 20000, &err))                             \
    X(hf_lock_verify, held, return hf_lock_verify(w->m, &err))                                    \
    X(hf_lock_detach, held, return hf_lock_detach(w->m, 1000, &err))                              \
    X(hf_lock_note, held, return hf_lock_note(w->m, "note", &err))                                \
    X(hf_lock_fd, held, int fd; return hf_lock_fd(w->m, &fd, &err))                               \
    X(hf_lock_acquire_shared, idle, return hf_lock_acquire_shared(w->m, 5000, NULL, &err))        \
    X(hf_lock_downgrade, held, return hf_lock_downgrade(w->m, &err))                              \
    X(hf_semaphore_resize, held_slot, return hf_semaphore_resize(w->c, N("s"), 5, NULL, &err))    \
    X(hf_multi_acquire, idle, return hf_multi_acquire(w->pair, 2, 5000, &err))                    \
    X(hf_multi_release, held_both, return hf_multi_release(w->pair, 2, &err))                     \
    X(hf_inspect_lock, held_shared,                                                               \
      GIVES(hf_inspect_info, hf_inspect_free, hf_inspect_lock(w->c, N("a"), 0, &got, &err)))      \
    X(hf_inspect_list, held, return hf_inspect_list(w->c, NULL, 0, each_lock, NULL, &err))        \
    X(hf_why, held, GIVES(hf_why_info, hf_why_free, hf_why(w->c, N("a"), 0, &got, &err)))         \
    X(hf_watch, held, return hf_watch(w->c, NULL, 50, each_news, NULL, &err))                     \
    X(hf_history_read, noted, return hf_history_read(w->c, N("a"), each_past, NULL, &err))        \
    X(hf_owner_acquire, idle, return hf_owner_acquire(w->c, N("o"), 9000, N("id"), NULL, &err))   \
    X(hf_owner_release, owned, return hf_owner_release(w->c, N("o"), N("id"), &err))              \
    X(hf_owner_extend, owned, return hf_owner_extend(w->c, N("o"), N("id"), 30000, &err))         \
    X(hf_owner_check, owned, return hf_owner_check(w->c, N("o"), N("id"), NULL, &err))            \
    X(hf_owner_release_all, owned, return hf_owner_release_all(w->c, N("id"), NULL, &err))        \
    X(hf_break, held, return hf_break(w->c, N("a"), w->fence, &why_broken, NULL, &err))           \
    X(hf_ask, held, return hf_ask(w->c, N("a"), w->fence, "text", NULL, NULL, &err))              \
    X(hf_guard_check, idle, return hf_guard_check(w->c, N("g"), 5, &err))                         \
    X(hf_guard_set, idle, return hf_guard_set(w->c, N("g"), N("v"), 5, &err))                     \
    X(hf_doctor_examine, idle, return hf_doctor_examine(w->url, NULL, ignore_finding, NULL, &err)) \
    X(hf_doctor_repair_fence, idle, return hf_doctor_repair_fence(w->url, NULL, NULL, &err))

#define CALLS_OF_OTHERS(X)                                                                        \
    X(hf_election_open, idle, GIVES(hf_election, hf_election_free,                                \
                                    hf_election_open(w->c, N("z"), NULL, &got, &err)))            \
    X(hf_election_campaign, idle, return hf_election_campaign(w->el, N("v"), 5000, NULL, &err))   \
    X(hf_election_set_value, leads, return hf_election_set_value(w->el, N("v2"), &err))           \
    X(hf_election_resign, leads, return hf_election_resign(w->el, &err))                          \
    X(hf_election_leader, leads, GIVES(hf_leader, hf_leader_free,                                 \
                                       hf_election_leader(w->c, N("e"), &got, &err)))             \
    X(hf_election_observe, leads,                                                                 \
      GIVES(hf_leader, hf_leader_free, hf_election_observe(w->c, N("e"), NULL, 5000, &got, &err))) \
    X(hf_latch_open, idle, GIVES(hf_latch, hf_latch_free,                                         \
                                 hf_latch_open(w->c, N("z"), NULL, &got, &err)))                  \
    X(hf_latch_set, idle, return hf_latch_set(w->latch, 2, &err))                                 \
    X(hf_latch_reset, counting, return hf_latch_reset(w->latch, 3, &err))                         \
    X(hf_latch_count_down, counting, return hf_latch_count_down(w->latch, 1, NULL, &err))         \
    X(hf_latch_count, counting, return hf_latch_count(w->latch, NULL, NULL, &err))                \
    X(hf_latch_wait, at_zero, return hf_latch_wait(w->latch, 5000, &err))                         \
    X(hf_barrier_open, idle, GIVES(hf_barrier, hf_barrier_free,                                   \
                                   hf_barrier_open(w->c, N("z"), 1, NULL, &got, &err)))           \
    X(hf_barrier_wait, idle, return hf_barrier_wait(w->barrier, 5000, NULL, NULL, &err))          \
    X(hf_barrier_leave, met, return hf_barrier_leave(w->barrier, 5000, &err))                     \
    X(hf_once_compute, idle, GIVES(hf_value, hf_value_free,                                       \
                                   hf_once_compute(w->c, N("v"), &fresh, 5000, compute_x, NULL,   \
                                                   &got, &err)))                                  \
    X(hf_once_get, idle, hf_value *v = NULL; hf_err e = hf_once_get(w->c, N("v"), &v, &err);      \
      hf_value_free(v); return e)                                                                 \
    X(hf_once_put, held, return hf_once_put(w->c, N("a"), w->m, N("x"), 5000, 0, &err))           \
    X(hf_once_drop, idle, return hf_once_drop(w->c, N("v"), &err))                                \
    X(hf_update_run, idle, return hf_update_run(w->c, N("u"), NULL, set_x, NULL, &err))           \
    X(hf_sequence_open, idle, GIVES(hf_sequence, hf_sequence_free,                                \
                                    hf_sequence_open(w->c, N("z"), NULL, &got, &err)))            \
    X(hf_sequence_next, idle, uint64_t id; return hf_sequence_next(w->q, &id, &err))              \
    X(hf_server_start, idle, return hf_server_start(w->dir, NULL, &err))                          \
    X(hf_server_stop, serving, return hf_server_stop(w->dir, &err))                               \
    X(hf_server_status, serving, hf_server_info i = { .size = sizeof i };                         \
      return hf_server_status(w->dir, &i, &err))

#define CALLS_THAT_RETURN_AT_ONCE(X)                                                              \
    X(hf_lock_acquire_async, idle, THEN(hf_lock_acquire_async(w->m, 5000, done, w, &err)))        \
    X(hf_lock_acquire_shared_async, idle,                                                         \
      THEN(hf_lock_acquire_shared_async(w->m, 5000, done, w, &err)))                              \
    X(hf_lock_release_async, held, THEN(hf_lock_release_async(w->m, done, w, &err)))              \
    X(hf_lock_extend_async, held, THEN(hf_lock_extend_async(w->m, 9000, done, w, &err)))          \
    X(hf_lock_verify_async, held, THEN(hf_lock_verify_async(w->m, done, w, &err)))                \
    X(hf_lock_downgrade_async, held, THEN(hf_lock_downgrade_async(w->m, done, w, &err)))          \
    X(hf_lock_detach_async, held, THEN(hf_lock_detach_async(w->m, 1000, done, w, &err)))          \
    X(hf_semaphore_resize_async, held_slot,                                                       \
      THEN(hf_semaphore_resize_async(w->c, N("s"), 5, NULL, done, w, &err)))                      \
    X(hf_multi_acquire_async, idle, THEN(hf_multi_acquire_async(w->pair, 2, 5000, done, w, &err))) \
    X(hf_multi_release_async, held_both, THEN(hf_multi_release_async(w->pair, 2, done, w, &err))) \
    X(hf_latch_set_async, idle, THEN(hf_latch_set_async(w->latch, 2, done, w, &err)))             \
    X(hf_latch_reset_async, counting, THEN(hf_latch_reset_async(w->latch, 3, done, w, &err)))     \
    X(hf_latch_count_down_async, counting,                                                        \
      THEN(hf_latch_count_down_async(w->latch, 1, NULL, done, w, &err)))                          \
    X(hf_latch_count_async, counting,                                                             \
      THEN(hf_latch_count_async(w->latch, NULL, NULL, done, w, &err)))                            \
    X(hf_latch_wait_async, at_zero, THEN(hf_latch_wait_async(w->latch, 5000, done, w, &err)))     \
    X(hf_barrier_wait_async, idle,                                                                \
      THEN(hf_barrier_wait_async(w->barrier, 5000, NULL, NULL, done, w, &err)))                   \
    X(hf_barrier_leave_async, met, THEN(hf_barrier_leave_async(w->barrier, 5000, done, w, &err))) \
    X(hf_election_campaign_async, idle,                                                           \
      THEN(hf_election_campaign_async(w->el, N("v"), 5000, NULL, done, w, &err)))                 \
    X(hf_election_set_value_async, leads,                                                         \
      THEN(hf_election_set_value_async(w->el, N("v2"), done, w, &err)))                           \
    X(hf_election_resign_async, leads, THEN(hf_election_resign_async(w->el, done, w, &err)))      \
    X(hf_election_leader_async, leads, GIVES(hf_leader, hf_leader_free, answer(w,                 \
      hf_election_leader_async(w->c, N("e"), &got, done, w, &err))))                              \
    X(hf_election_observe_async, leads, GIVES(hf_leader, hf_leader_free, answer(w,                \
      hf_election_observe_async(w->c, N("e"), NULL, 5000, &got, done, w, &err))))                 \
    X(hf_once_get_async, idle, hf_value *v = NULL;                                                \
      hf_err e = answer(w, hf_once_get_async(w->c, N("v"), &v, done, w, &err));                   \
      hf_value_free(v); return e)                                                                 \
    X(hf_once_put_async, held,                                                                    \
      THEN(hf_once_put_async(w->c, N("a"), w->m, N("x"), 5000, 0, done, w, &err)))                \
    X(hf_once_drop_async, idle, THEN(hf_once_drop_async(w->c, N("v"), done, w, &err)))            \
    X(hf_once_compute_async, idle, GIVES(hf_value, hf_value_free, answer(w,                       \
      hf_once_compute_async(w->c, N("v"), &fresh, 5000, compute_x, NULL, &got, done, w, &err))))  \
    X(hf_owner_acquire_async, idle,                                                               \
      THEN(hf_owner_acquire_async(w->c, N("o"), 9000, N("id"), NULL, done, w, &err)))             \
    X(hf_owner_release_async, owned,                                                              \
      THEN(hf_owner_release_async(w->c, N("o"), N("id"), done, w, &err)))                         \
    X(hf_owner_extend_async, owned,                                                               \
      THEN(hf_owner_extend_async(w->c, N("o"), N("id"), 30000, done, w, &err)))                   \
    X(hf_owner_check_async, owned,                                                                \
      THEN(hf_owner_check_async(w->c, N("o"), N("id"), NULL, done, w, &err)))                     \
    X(hf_inspect_lock_async, held, GIVES(hf_inspect_info, hf_inspect_free, answer(w,              \
      hf_inspect_lock_async(w->c, N("a"), 0, &got, done, w, &err))))                              \
    X(hf_break_async, held,                                                                       \
      THEN(hf_break_async(w->c, N("a"), w->fence, &why_broken, NULL, done, w, &err)))             \
    X(hf_ask_async, held,                                                                         \
      THEN(hf_ask_async(w->c, N("a"), w->fence, "text", NULL, NULL, done, w, &err)))              \
    X(hf_guard_check_async, idle, THEN(hf_guard_check_async(w->c, N("g"), 5, done, w, &err)))     \
    X(hf_guard_set_async, idle, THEN(hf_guard_set_async(w->c, N("g"), N("v"), 5, done, w, &err)))

#define FUNCTION(name, before, ...) static hf_err call_##name(struct world *w) { __VA_ARGS__; }
CALLS_OF_LOCKS(FUNCTION)
CALLS_OF_OTHERS(FUNCTION)
CALLS_THAT_RETURN_AT_ONCE(FUNCTION)
/* It has to be asked until it is open: nothing can be dispatched before its client is there. */
static hf_err call_hf_client_open_async(struct world *w)
{
    struct world of_its_own = { 0 };
    hf_err e = hf_client_open_async(w->url, NULL, &of_its_own.c, done, &of_its_own, &err);
    CHECK((e == HF_OK) == (of_its_own.c != NULL));
    e = answer(&of_its_own, e);
    hf_client_free(of_its_own.c);
    return e;
}

struct call {
    const char *name;
    void      (*before)(struct world *w);
    hf_err    (*run)(struct world *w);
};
#define ROW(name, before, ...) { #name, before, call_##name },
static const struct call of_locks[] = { CALLS_OF_LOCKS(ROW) };
static const struct call of_others[] = { CALLS_OF_OTHERS(ROW) };
static const struct call at_once[] = { CALLS_THAT_RETURN_AT_ONCE(ROW)
                                       { "hf_client_open_async", idle,
                                         call_hf_client_open_async } };
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- each of them ---- */

/* What an allocation that fails in or beside a call may lead to. Never a wrong "it is done". */
static void judge(const struct call *call, long k, hf_err e)
{
    switch ((int)e) {
    case HF_OK:
    case HF_ENOMEM:
    case HF_EUNSURE:
    case HF_ECONN:
    case HF_ETIMEDOUT:
    case HF_ESYS:
    case HF_ESERVER: break;
    default:
        FAIL("%s, allocation %ld: %s: %s", call->name, k, hf_err_name(e), err.message);
    }
    if (e && !err.message[0])
        FAIL("%s, allocation %ld: %s and no message", call->name, k, hf_err_name(e));
}

static void forget(struct server *s, const struct world *w)
{
    (void)!hf_server_stop(w->dir, NULL);
    server_ask(s, "FLUSHALL");
}

/* k 0: nothing fails. Returns how many allocations failed; *ret_asked: how many there were. */
static long run_once(struct server *s, const struct call *call, long k, long *ret_asked)
{
    struct world w;
    world_open(&w, server_url(s));
    call->before(&w);
    err.message[0] = '\0';
    failing_arm(k, 0);
    hf_err e = call->run(&w);
    long failed = failing_count(), asked = atomic_load(&failing.asked);
    failing_stop();
    if (ret_asked)
        *ret_asked = asked;
    if (k == 0 && e != HF_OK && e != HF_ETIMEDOUT) /* so a break says that it is not free yet */
        FAIL("%s: %s: %s", call->name, hf_err_name(e), err.message);
    judge(call, k, e);
    if (strncmp(call->name, "hf_lock_acquire", 15) == 0 || strcmp(call->name, "hf_lock_try") == 0)
        CHECK_INT(hf_lock_is_held(w.m), e == HF_OK);
    world_close(&w);
    if (failing_live() != 0)
        FAIL("%s, allocation %ld: %ld blocks leaked", call->name, k, failing_live());
    forget(s, &w);
    return failed;
}

/* One allocation of it by chance, or each of them. What is reached depends on threads beside the
 * call, so one that nothing failed in is tried again. */
static long fail_one(struct server *s, const struct call *call)
{
    long asked = 0, failed = 0;
    run_once(s, call, 0, &asked);
    if (getenv("HF_SOAK")) {
        long now = 1;
        for (long k = 1; now > 0 && k < 3000; k++)
            failed += now = run_once(s, call, k, NULL);
    } else if (asked > 0) {
        failed = run_once(s, call, 1 + (long)t_random((uint64_t)asked), NULL);
    }
    for (int i = 0; asked > 0 && failed == 0 && i < 20; i++)
        failed = run_once(s, call, 1, NULL);
    if (asked > 0 && failed == 0)
        FAIL("%s: none of its %ld allocations has failed", call->name, asked);
    return failed;
}

static void fail_each(const struct call *call, size_t n)
{
    struct server *s = server_start(NULL);
    long failed = 0, allocate = 0;
    hf_allocator_set(failing_alloc, failing_resize, failing_free);
    for (size_t i = 0; i < n; i++) {
        long now = fail_one(s, &call[i]);
        failed += now;
        allocate += now > 0;
    }
    t_note("%ld allocations failed, in %ld of %zu calls; the others made none", failed, allocate,
           n);
    CHECK(allocate * 2 > (long)n);
}

TEST_TIMEOUT(an_allocation_of_each_call_of_locks_fails, 600)
{
    fail_each(of_locks, COUNT(of_locks));
}

TEST_TIMEOUT(an_allocation_of_each_call_of_other_primitives_fails, 600)
{
    fail_each(of_others, COUNT(of_others));
}

TEST_TIMEOUT(an_allocation_of_each_call_without_blocking_fails, 600)
{
    fail_each(at_once, COUNT(at_once));
}

/* ---- all of them ---- */

static const struct {
    const char *name, *why;
} excused[] = {
    { "hf_err_text", "a table" },
    { "hf_err_name", "a table" },
    { "hf_err_known", "a table" },
    { "hf_known_text", "a table" },
    { "hf_version", "a constant" },
    { "hf_thread_number", "counts" },
    { "hf_thread_act_for", "sets a number" },
    { "hf_name_join", "writes to the caller's memory" },
    { "hf_duration_parse", "pure arithmetic" },
    { "hf_client_free", "ends each run here" },
    { "hf_url_default", "with a file: tests/unit/url.c; with the variable it copies" },
    { "hf_client_url", "a text that the client has" },
    { "hf_lock_free", "ends each run here" },
    { "hf_lock_cancel", "sets a flag; nothing to answer" },
    { "hf_lock_is_held", "reads the lease" },
    { "hf_lock_time_left_ms", "reads the lease" },
    { "hf_lock_full_time_ms", "reads the lease" },
    { "hf_lock_state", "reads the lease" },
    { "hf_state_text", "a table" },
    { "hf_lock_loss", "reads the lease" },
    { "hf_loss_text", "a table" },
    { "hf_lock_loss_text", "writes to the caller's memory" },
    { "hf_lock_asked", "writes to the caller's memory" },
    { "hf_lock_fence", "reads the lease" },
    { "hf_lock_owner", "a text that the lock has" },
    { "hf_lock_poll", "reads the lease and its descriptor" },
    { "hf_multi_cancel", "sets flags; nothing to answer" },
    { "hf_inspect_free", "frees what a call here gave" },
    { "hf_inspect_cause", "a table" },
    { "hf_inspect_words", "writes to the caller's memory" },
    { "hf_why_free", "frees what a call here gave" },
    { "hf_why_error", "a table" },
    { "hf_election_free", "ends each run here" },
    { "hf_election_is_leader", "reads the lease" },
    { "hf_election_term", "reads the lease" },
    { "hf_election_lock", "a pointer that the election has" },
    { "hf_leader_free", "frees what a call here gave" },
    { "hf_latch_free", "ends each run here" },
    { "hf_latch_cancel", "sets a flag; nothing to answer" },
    { "hf_barrier_free", "ends each run here" },
    { "hf_barrier_cancel", "sets a flag; nothing to answer" },
    { "hf_value_free", "frees what a call here gave" },
    { "hf_sequence_free", "ends each run here" },
    { "hf_client_dispatch", "in every run without blocking here" },
    { "hf_metrics_get", "copies counters" },
    { "hf_bucket_ms", "a table" },
    { "hf_metrics_each", "calls back with what it was given" },
    { "hf_allocator_set", "is how they are made to fail" },
};

static int in_table(const char *name, const struct call *call, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(call[i].name, name) == 0)
            return 1;
    return 0;
}

static int is_excused(const char *name)
{
    for (size_t i = 0; i < COUNT(excused); i++)
        if (strcmp(excused[i].name, name) == 0)
            return 1;
    return 0;
}

TEST(every_call_of_the_header_is_in_a_table_or_excused)
{
    char line[400], name[80];
    size_t found = 0, missing = 0;
    FILE *f = fopen("include/holdfast.h", "r");
    CHECK(f);
    while (fgets(line, sizeof line, f)) {
        const char *at = strncmp(line, "HF_API ", 7) == 0 ? strstr(line, "hf_") : NULL;
        while (at && at[strcspn(at, " (*")] != '(') /* a type comes first */
            at = strstr(at + 1, "hf_");
        if (!at || sscanf(at, "%79[a-z_0-9]", name) != 1)
            continue;
        int here = in_table(name, of_locks, COUNT(of_locks))
                   + in_table(name, of_others, COUNT(of_others))
                   + in_table(name, at_once, COUNT(at_once)) + is_excused(name);
        if (here != 1)
            t_note("%s is in %d of the tables", name, here);
        missing += here != 1;
        found++;
    }
    fclose(f);
    CHECK_INT(missing, 0);
    CHECK_INT(found, COUNT(of_locks) + COUNT(of_others) + COUNT(at_once) + COUNT(excused));
}
