/* SPDX-License-Identifier: MIT
 * nulls.c - what must be given and is not: HF_EINVAL and a message, or nothing at all, never a
 * crash.
 */
#include "harness/live.h"

#define REFUSED(call)                             \
    do {                                          \
        err = (hf_error){ 0 };                    \
        CHECK_HF(call, HF_EINVAL);                \
        CHECK(err.message[0]);                    \
        CHECK_INT(err.known, HF_KNOWN_UNCHANGED); \
    } while (0)

static const hf_bytes NAME = { "a", 1 };

static int each_lock(const hf_inspect_info *info, void *arg)
{
    (void)info;
    (void)arg;
    return 0;
}

static hf_change leave_it(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    (void)arg;
    (void)old;
    (void)ret_new;
    return HF_CHANGE_NOTHING;
}

static hf_change nonsense(void *arg, hf_bytes old, hf_bytes *ret_new)
{
    (void)arg;
    (void)old;
    (void)ret_new;
    return (hf_change)77;
}

static hf_err never(void *arg, hf_lock *lock, hf_bytes *ret_value, hf_error *reterr)
{
    (void)arg;
    (void)lock;
    (void)ret_value;
    (void)reterr;
    return HF_ESYS;
}

static void done(hf_err result, const hf_error *e, void *arg)
{
    (void)result;
    (void)e;
    (void)arg;
}

TEST(no_client)
{
    hf_lock *lock = NULL;
    hf_election *el = NULL;
    hf_latch *lt = NULL;
    hf_barrier *b = NULL;
    hf_sequence *s = NULL;
    hf_leader *leader = NULL;
    hf_value *value = NULL;
    hf_inspect_info *info = NULL;
    hf_why_info *why = NULL;
    hf_once_opts once = { .size = sizeof once, .ttl_ms = 1000 };
    uint64_t fence;
    int fd;
    REFUSED(hf_client_open("embedded:", NULL, NULL, &err));
    REFUSED(hf_client_close(NULL, 0, &err));
    REFUSED(hf_client_release_all(NULL, NULL, &err));
    REFUSED(hf_client_fd(NULL, &fd, &err));
    CHECK_INT(hf_client_dispatch(NULL), 0);
    CHECK_STR(hf_client_url(NULL), "");
    REFUSED(hf_lock_open(NULL, NAME, NULL, &lock, &err));
    REFUSED(hf_election_open(NULL, NAME, NULL, &el, &err));
    REFUSED(hf_latch_open(NULL, NAME, NULL, &lt, &err));
    REFUSED(hf_barrier_open(NULL, NAME, 2, NULL, &b, &err));
    REFUSED(hf_sequence_open(NULL, NAME, NULL, &s, &err));
    REFUSED(hf_semaphore_resize(NULL, NAME, 2, NULL, &err));
    REFUSED(hf_inspect_lock(NULL, NAME, 0, &info, &err));
    REFUSED(hf_inspect_list(NULL, NULL, 0, each_lock, NULL, &err));
    REFUSED(hf_why(NULL, NAME, 0, &why, &err));
    REFUSED(hf_owner_acquire(NULL, NAME, 1000, NAME, &fence, &err));
    REFUSED(hf_owner_release(NULL, NAME, NAME, &err));
    REFUSED(hf_owner_extend(NULL, NAME, NAME, 1000, &err));
    REFUSED(hf_owner_check(NULL, NAME, NAME, NULL, &err));
    REFUSED(hf_owner_release_all(NULL, NAME, NULL, &err));
    REFUSED(hf_break(NULL, NAME, 1, NULL, NULL, &err));
    REFUSED(hf_ask(NULL, NAME, 1, NULL, NULL, NULL, &err));
    REFUSED(hf_guard_check(NULL, NAME, 1, &err));
    REFUSED(hf_guard_set(NULL, NAME, NAME, 1, &err));
    REFUSED(hf_election_leader(NULL, NAME, &leader, &err));
    REFUSED(hf_election_observe(NULL, NAME, NULL, 0, &leader, &err));
    REFUSED(hf_once_compute(NULL, NAME, &once, 0, never, NULL, &value, &err));
    REFUSED(hf_once_get(NULL, NAME, &value, &err));
    REFUSED(hf_once_drop(NULL, NAME, &err));
    REFUSED(hf_update_run(NULL, NAME, NULL, leave_it, NULL, &err));
    CHECK(!hf_client_free(NULL));
}

TEST(no_handle)
{
    uint64_t fence;
    int fd;
    hf_lock *none[] = { NULL };
    REFUSED(hf_lock_acquire(NULL, 0, &fence, &err));
    REFUSED(hf_lock_try(NULL, &fence, &err));
    REFUSED(hf_lock_acquire_shared(NULL, 0, &fence, &err));
    REFUSED(hf_lock_release(NULL, &err));
    REFUSED(hf_lock_extend(NULL, 1000, &err));
    REFUSED(hf_lock_verify(NULL, &err));
    REFUSED(hf_lock_detach(NULL, 0, &err));
    REFUSED(hf_lock_downgrade(NULL, &err));
    REFUSED(hf_lock_fd(NULL, &fd, &err));
    REFUSED(hf_lock_acquire_async(NULL, 0, done, NULL, &err));
    REFUSED(hf_lock_release_async(NULL, done, NULL, &err));
    REFUSED(hf_lock_extend_async(NULL, 1000, done, NULL, &err));
    REFUSED(hf_multi_acquire(NULL, 1, 0, &err));
    REFUSED(hf_multi_acquire(none, 1, 0, &err));
    REFUSED(hf_multi_release(NULL, 1, &err));
    REFUSED(hf_multi_release(none, 1, &err));
    hf_multi_cancel(NULL, 1);
    hf_multi_cancel(none, 1);
    hf_lock_cancel(NULL);
    CHECK_INT(hf_lock_is_held(NULL), 0);
    CHECK_INT(hf_lock_time_left_ms(NULL), 0);
    CHECK_INT(hf_lock_full_time_ms(NULL), 0);
    CHECK_INT(hf_lock_state(NULL), HF_STATE_FREE);
    CHECK_INT(hf_lock_poll(NULL), HF_STATE_FREE);
    CHECK_INT(hf_lock_loss(NULL), HF_LOSS_NONE);
    CHECK_INT(hf_lock_fence(NULL), 0);
    CHECK_STR(hf_lock_owner(NULL), "");
    CHECK(!hf_lock_free(NULL));
    REFUSED(hf_election_campaign(NULL, NAME, 0, NULL, &err));
    REFUSED(hf_election_set_value(NULL, NAME, &err));
    REFUSED(hf_election_resign(NULL, &err));
    CHECK_INT(hf_election_is_leader(NULL), 0);
    CHECK_INT(hf_election_term(NULL), 0);
    CHECK(!hf_election_lock(NULL));
    CHECK(!hf_election_free(NULL));
    CHECK(!hf_leader_free(NULL));
    REFUSED(hf_latch_set(NULL, 1, &err));
    REFUSED(hf_latch_reset(NULL, 1, &err));
    REFUSED(hf_latch_count_down(NULL, 1, NULL, &err));
    REFUSED(hf_latch_count(NULL, NULL, NULL, &err));
    REFUSED(hf_latch_wait(NULL, 0, &err));
    hf_latch_cancel(NULL);
    CHECK(!hf_latch_free(NULL));
    REFUSED(hf_barrier_wait(NULL, 0, NULL, NULL, &err));
    REFUSED(hf_barrier_leave(NULL, 0, &err));
    hf_barrier_cancel(NULL);
    CHECK(!hf_barrier_free(NULL));
    REFUSED(hf_sequence_next(NULL, &fence, &err));
    CHECK(!hf_sequence_free(NULL));
    CHECK(!hf_inspect_free(NULL));
    CHECK(!hf_why_free(NULL));
    CHECK(!hf_why_error(NULL, NULL));
    CHECK_STR(hf_inspect_cause(NULL), "unknown");
    CHECK(!hf_value_free(NULL));
}

TEST(no_place_for_the_result_and_no_function)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *lock = lock_of(c, "a", 30000);
    hf_value *value = NULL;
    hf_once_opts once = { .size = sizeof once, .ttl_ms = 1000 };
    char buf[8];
    hf_bytes ret;
    hf_why_info *why = NULL;
    hf_sequence *sequence = NULL;
    CHECK_HF(hf_sequence_open(c, NAME, NULL, &sequence, &err), HF_OK);
    REFUSED(hf_sequence_next(sequence, NULL, &err));
    hf_sequence_free(sequence);
    REFUSED(hf_client_fd(c, NULL, &err));
    REFUSED(hf_client_close(c, -1, &err));
    REFUSED(hf_lock_open(c, NAME, NULL, NULL, &err));
    REFUSED(hf_lock_fd(lock, NULL, &err));
    REFUSED(hf_lock_acquire_async(lock, 0, NULL, NULL, &err));
    REFUSED(hf_election_open(c, NAME, NULL, NULL, &err));
    REFUSED(hf_latch_open(c, NAME, NULL, NULL, &err));
    REFUSED(hf_barrier_open(c, NAME, 2, NULL, NULL, &err));
    REFUSED(hf_sequence_open(c, NAME, NULL, NULL, &err));
    REFUSED(hf_inspect_lock(c, NAME, 0, NULL, &err));
    REFUSED(hf_why(c, NAME, 0, NULL, &err));
    REFUSED(hf_why(c, NAME, -1, &why, &err));
    REFUSED(hf_inspect_list(c, NULL, 0, NULL, NULL, &err));
    REFUSED(hf_election_leader(c, NAME, NULL, &err));
    REFUSED(hf_election_observe(c, NAME, NULL, 0, NULL, &err));
    REFUSED(hf_once_compute(c, NAME, &once, 0, NULL, NULL, &value, &err));
    REFUSED(hf_once_compute(c, NAME, &once, 0, never, NULL, NULL, &err));
    REFUSED(hf_once_compute(c, NAME, NULL, 0, never, NULL, &value, &err));
    REFUSED(hf_once_get(c, NAME, NULL, &err));
    REFUSED(hf_once_put(c, NAME, NULL, NAME, 1000, 0, &err));
    REFUSED(hf_update_run(c, NAME, NULL, NULL, NULL, &err));
    REFUSED(hf_update_run(c, NAME, NULL, nonsense, NULL, &err));
    REFUSED(hf_doctor_examine(server_url(s), NULL, NULL, NULL, &err));
    REFUSED(hf_name_join(NULL, 1, buf, sizeof buf, &ret, &err));
    REFUSED(hf_name_join(&NAME, 1, NULL, 0, &ret, &err));
    REFUSED(hf_name_join(&NAME, 1, buf, sizeof buf, NULL, &err));
    REFUSED(hf_client_held(NULL, (char[8]){ 0 }, 8, &err));
    REFUSED(hf_url_default(NULL, 100, &err));
    REFUSED(hf_url_default((char[8]){ 0 }, 0, &err));
    REFUSED(hf_duration_parse(NULL, &(int64_t){ 0 }, &err));
    REFUSED(hf_duration_parse("1s", NULL, &err));
    hf_inspect_info *info = NULL;
    REFUSED(hf_inspect_lock(c, NAME, -1, &info, &err));
    REFUSED(hf_inspect_lock_async(c, NAME, 0, &info, NULL, NULL, &err));
    REFUSED(hf_history_read(c, NAME, NULL, NULL, &err));
    REFUSED(hf_client_held(c, NULL, 8, &err));
    REFUSED(hf_lock_acquire(lock, -2, NULL, &err));
    CHECK_STR(hf_lock_loss_text(lock, NULL, 8), "");
    CHECK_INT(hf_lock_asked(lock, NULL, 0), 0);
    REFUSED(hf_break(c, NAME, 1, &(hf_break_opts){ .size = sizeof(hf_break_opts), .wait_ms = -2 },
                     NULL, &err));
    CHECK_HF(hf_lock_try(lock, NULL, &err), HF_OK);
    REFUSED(hf_lock_note(lock, NULL, &err));
    CHECK_HF(hf_lock_release(lock, &err), HF_OK);
    /* Bytes that are not there. */
    hf_bytes nothing = { NULL, 5 };
    REFUSED(hf_lock_open(c, nothing, NULL, &lock, &err));
    REFUSED(hf_owner_acquire(c, NAME, 1000, nothing, NULL, &err));
    REFUSED(hf_guard_set(c, NAME, nothing, 1, &err));
    /* Where the fence belongs may be NULL, and the error too. */
    CHECK_HF(hf_lock_try(lock, NULL, NULL), HF_OK);
    CHECK_HF(hf_lock_release(lock, NULL), HF_OK);
    hf_lock_free(lock);
    hf_client_free(c);
}

TEST(times_that_cannot_be)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    static const int64_t odd[] = { -2, INT64_MIN, HF_TTL_MAX_MS + 1, INT64_MAX };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        hf_lock_opts lock[] = { { .ttl_ms = odd[i] }, { .grace_ms = odd[i] },
                                { .max_hold_ms = odd[i] }, { .timeout_ms = odd[i] } };
        hf_barrier_opts meet = { .size = sizeof meet, .grace_ms = odd[i] };
        hf_latch_opts latch = { .size = sizeof latch, .ttl_ms = odd[i] };
        hf_lock *m = NULL;
        hf_barrier *b = NULL;
        hf_latch *lt = NULL;
        for (size_t k = 0; k < sizeof lock / sizeof *lock; k++) {
            lock[k].size = sizeof *lock;
            REFUSED(hf_lock_open(c, NAME, &lock[k], &m, &err));
        }
        REFUSED(hf_barrier_open(c, NAME, 2, &meet, &b, &err));
        REFUSED(hf_latch_open(c, NAME, &latch, &lt, &err));
        CHECK(!m && !b && !lt);
    }
    /* What is shorter than any look, and what is never taken over. */
    static const int64_t least[] = { 1, HF_NO_TAKEOVER };
    for (size_t i = 0; i < 2; i++) {
        hf_barrier_opts meet = { .size = sizeof meet, .grace_ms = least[i] };
        hf_barrier *b = NULL;
        CHECK_HF(hf_barrier_open(c, NAME, 1, &meet, &b, &err), HF_OK);
        CHECK_HF(hf_barrier_wait(b, 10000, NULL, NULL, &err), HF_OK);
        hf_barrier_free(b);
    }
    hf_client_free(c);
}
