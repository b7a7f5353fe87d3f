/* SPDX-License-Identifier: MIT
 * metrics.c - what a client counts: every number is made to move by what it is about.
 */
#include "harness/holder.h"

static hf_metrics counted(hf_client *c)
{
    hf_metrics m = { .size = sizeof m };
    CHECK_HF(hf_metrics_get(c, &m, &err), HF_OK);
    return m;
}

static uint64_t lost(hf_client *c)
{
    hf_metrics m = counted(c);
    uint64_t n = 0;
    for (int i = 0; i < HF_LOSSES_MAX; i++)
        n += m.lost[i];
    return n;
}

TEST(a_lone_lock_is_an_acquire_and_a_release)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    for (int i = 0; i < 10; i++) {
        lock_now(m);
        lock_now(m); /* once more: no grant */
        unlock_now(m);
        unlock_now(m);
    }
    hf_metrics got = counted(c);
    CHECK_INT((long long)got.acquires, 10);
    CHECK_INT((long long)got.releases, 10);
    CHECK_INT((long long)got.contended, 0);
    CHECK_INT((long long)got.busy, 0);
    CHECK_INT((long long)got.wait.count, 10);
    CHECK_INT((long long)got.hold.count, 10);
    CHECK(got.connects >= 1);
    CHECK_INT((long long)got.reconnects, 0);
}

TEST(who_is_refused_and_who_waits_is_contended)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0), *other = client_at(server_url(s), 0);
    hf_lock *held = lock_of(other, "a", 30000), *m = lock_of(c, "a", 30000);
    lock_now(held);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    /* Who has heard nothing when its time is over was not refused: a busy machine takes a while. */
    CHECK_HF(hf_lock_acquire(m, 700, NULL, &err), HF_ETIMEDOUT);
    hf_metrics got = counted(c);
    CHECK_INT((long long)got.busy, 2);
    CHECK_INT((long long)got.contended, 2);
    CHECK_INT((long long)got.acquires, 0);
    struct locker l = { .m = m, .wait_ms = 20000 };
    locker_start(&l);
    CHECK_QUEUE(s, "a", 1);
    t_sleep_ms(120);
    unlock_now(held);
    locker_join(&l, HF_OK);
    got = counted(c);
    CHECK_INT((long long)got.acquires, 1);
    CHECK_INT((long long)got.contended, 3);
    CHECK_INT((long long)got.wait.count, 1);
    CHECK(got.wait.sum_ms >= 100);
    for (unsigned i = 0; hf_bucket_ms(i) < 100; i++)
        CHECK_INT((long long)got.wait.bucket[i], 0);
}

TEST(what_is_held_is_renewed_and_its_time_is_counted)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    CHECK_EVENTUALLY(counted(c).renewals >= 2, 10000);
    unlock_now(m);
    hf_metrics got = counted(c);
    CHECK_INT((long long)got.hold.count, 1);
    CHECK(got.hold.sum_ms >= 300);
    CHECK_INT((long long)lost(c), 0);
}

TEST(a_lock_that_others_deleted_is_lost_by_that_cause)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    CHECK_INT(server_int(s, "DEL lock:a"), 1);
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 10000);
    CHECK_INT((long long)counted(c).lost[HF_LOSS_TAKEN], 1);
    CHECK_HF(hf_lock_release(m, &err), HF_ELOST);
    hf_metrics got = counted(c);
    CHECK_INT((long long)lost(c), 1);
    CHECK_INT((long long)got.hold.count, 1);
    CHECK_INT((long long)got.releases, 0);
}

TEST(a_silent_server_makes_doubt_a_loss_and_a_reconnect)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 300);
    hf_lock *m = lock_of(c, "a", 4000);
    lock_now(m);
    server_freeze(s);
    CHECK(server_is_frozen(s));
    CHECK_EVENTUALLY(hf_lock_state(m) == HF_STATE_LOST, 10000);
    CHECK(counted(c).in_doubt >= 1);
    CHECK_INT((long long)lost(c), 1);
    CHECK(counted(c).renewals_failed >= 1);
    server_thaw(s);
    (void)hf_lock_release(m, &err);
    CHECK_EVENTUALLY(hf_lock_acquire(m, 0, NULL, &err) == HF_OK, 10000);
    CHECK(counted(c).reconnects >= 1);
}

TEST(a_dead_holder_is_taken_over)
{
    struct server *s = server_start(NULL);
    struct workers *w = holder_start(server_url(s), "a", (hf_lock_opts){ .ttl_ms = 60000,
                                                                         .grace_ms = 2000 });
    hf_client *c = client_at(server_url(s), 0); /* no threads before the fork */
    hf_lock *m = lock_with(c, "a", (hf_lock_opts){ .ttl_ms = 60000 });
    workers_signal(w, 0, SIGKILL);
    CHECK_HF(hf_lock_acquire(m, 20000, NULL, &err), HF_OK);
    CHECK_INT((long long)counted(c).takeovers, 1);
    workers_join(w, 5000);
}

static void add_up(const hf_metric *m, void *arg)
{
    char *names = arg;
    CHECK(m->name && m->kind && m->help);
    CHECK(strncmp(m->name, "holdfast_client_", 16) == 0);
    CHECK_INT(strcmp(m->kind, "histogram") == 0, m->times != NULL);
    strcat(names, m->name);
    strcat(names, m->label ? m->label_value : "");
    strcat(names, " ");
}

TEST(a_visitor_hears_of_all_of_them)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_metrics got = counted(c);
    char names[4096] = "";
    CHECK_HF(hf_metrics_each(&got, add_up, names, &err), HF_OK);
    CHECK(strstr(names, "holdfast_client_acquires_total "));
    CHECK(strstr(names, "holdfast_client_lost_totalgrace "));
    CHECK(strstr(names, "holdfast_client_hold_seconds "));
    CHECK_HF(hf_metrics_each(NULL, add_up, names, &err), HF_EINVAL);
    CHECK_HF(hf_metrics_get(NULL, &got, &err), HF_EINVAL);
    CHECK_HF(hf_metrics_get(c, NULL, &err), HF_EINVAL);
}

TEST(an_older_program_gets_what_it_knows)
{
    struct server *s = server_start(NULL);
    hf_client *c = client_at(server_url(s), 0);
    hf_lock *m = lock_of(c, "a", 30000);
    lock_now(m);
    hf_metrics got = { .contended = 77 };
    got.size = offsetof(hf_metrics, contended);
    CHECK_HF(hf_metrics_get(c, &got, &err), HF_OK);
    CHECK_INT((long long)got.acquires, 1);
    CHECK_INT((long long)got.contended, 77);
}

TEST(the_buckets_rise)
{
    for (unsigned i = 1; i < HF_BUCKETS; i++)
        CHECK(hf_bucket_ms(i) > hf_bucket_ms(i - 1));
    CHECK(hf_bucket_ms(HF_BUCKETS - 1) == INT64_MAX);
    CHECK(hf_bucket_ms(9999) == INT64_MAX);
}
