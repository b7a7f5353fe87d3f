/* SPDX-License-Identifier: MIT
 * thread_async.c - every kind of request without blocking among threads: asked in one, cancelled in
 * another, dispatched in two, computed and opened in those of the library.
 */
#include "harness/waiting.h"

enum { EACH = 4, SLOTS = 5 * EACH };

struct all {
    hf_client  *c;
    atomic_int  stop;
    atomic_long asked, answered, good, computed;
};

/* One handle of some kind, with one request at a time. */
struct slot {
    struct all  *all;
    atomic_int   free;
    hf_lock     *m[2];
    hf_latch    *lt;
    hf_barrier  *b;
    hf_election *el;
    hf_value    *value;
    uint32_t     index;
    uint64_t     number;
};

static void ended(hf_err result, const hf_error *e, void *arg)
{
    struct slot *sl = arg;
    if (result != HF_OK && result != HF_ECANCELED && result != HF_ETIMEDOUT && result != HF_EBUSY
        && result != HF_EBROKEN && result != HF_ENOTHELD && result != HF_ENOTSET
        && result != HF_ECONN && result != HF_EUNSURE) /* there was no time for an answer */
        FAIL("%s: %s", hf_err_name(result), e ? e->message : "");
    atomic_fetch_add(&sl->all->good, result == HF_OK);
    atomic_fetch_add(&sl->all->answered, 1);
    sl->value = hf_value_free(sl->value);
    atomic_store(&sl->free, 1);
}

static hf_err compute(void *arg, hf_lock *m, hf_bytes *ret_value, hf_error *reterr)
{
    struct slot *sl = arg;
    (void)m, (void)reterr;
    atomic_fetch_add(&sl->all->computed, 1);
    *ret_value = hf_str("x");
    return HF_OK;
}

static hf_err ask(struct slot *sl)
{
    hf_client *c = sl->all->c;
    int64_t wait = (int64_t)t_random(30);
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 1, .lease_ms = 30000 };
    if (sl->m[0] && hf_lock_is_held(sl->m[0]))
        return hf_multi_release_async(sl->m, 2, ended, sl, &err);
    if (sl->m[0])
        return hf_multi_acquire_async(sl->m, 2, wait, ended, sl, &err);
    if (sl->lt && t_random(3) == 0)
        return hf_latch_count_down_async(sl->lt, 1, &sl->index, ended, sl, &err);
    if (sl->lt)
        return t_random(3) ? hf_latch_wait_async(sl->lt, wait, ended, sl, &err)
                           : hf_latch_set_async(sl->lt, 2, ended, sl, &err);
    if (sl->b)
        return hf_barrier_wait_async(sl->b, wait, &sl->index, &sl->number, ended, sl, &err);
    if (sl->el && hf_election_term(sl->el))
        return hf_election_resign_async(sl->el, ended, sl, &err);
    if (sl->el)
        return hf_election_campaign_async(sl->el, hf_str("v"), wait, &sl->number, ended, sl, &err);
    return hf_once_compute_async(c, hf_str("once"), &o, wait, compute, sl, &sl->value, ended, sl,
                                 &err);
}

static void cancel(struct slot *sl)
{
    if (sl->m[0])
        hf_multi_cancel(sl->m, 2);
    else if (sl->lt)
        hf_latch_cancel(sl->lt);
    else if (sl->b)
        hf_barrier_cancel(sl->b);
    else if (sl->el)
        hf_lock_cancel(hf_election_lock(sl->el));
}

static void *dispatches(void *arg)
{
    struct all *all = arg;
    int fd;
    CHECK_HF(hf_client_fd(all->c, &fd, &err), HF_OK);
    while (!atomic_load(&all->stop) || atomic_load(&all->answered) < atomic_load(&all->asked)) {
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, 20) == 1)
            hf_client_dispatch(all->c);
    }
    return NULL;
}

static void *cancels(void *arg)
{
    struct slot *slot = arg;
    while (!atomic_load(&slot->all->stop)) {
        cancel(&slot[t_random(SLOTS)]);
        t_sleep_ms(2);
    }
    return NULL;
}

static void open_slot(struct slot *sl, struct all *all, int kind)
{
    *sl = (struct slot){ .all = all, .free = 1 };
    if (kind == 0) {
        sl->m[0] = lock_of(all->c, "a", 30000);
        sl->m[1] = lock_of(all->c, "b", 30000);
    } else if (kind == 1) {
        CHECK_HF(hf_latch_open(all->c, hf_str("latch"), NULL, &sl->lt, &err), HF_OK);
    } else if (kind == 2) {
        CHECK_HF(hf_barrier_open(all->c, hf_str("barrier"), 2, NULL, &sl->b, &err), HF_OK);
    } else if (kind == 3) {
        CHECK_HF(hf_election_open(all->c, hf_str("election"), NULL, &sl->el, &err), HF_OK);
    }
}

static void free_slot(struct slot *sl)
{
    hf_lock_free(sl->m[0]);
    hf_lock_free(sl->m[1]);
    hf_latch_free(sl->lt);
    hf_barrier_free(sl->b);
    hf_election_free(sl->el);
}

TEST(every_kind_is_asked_in_one_thread_cancelled_in_another_and_dispatched_in_two)
{
    struct server *s = server_start(NULL);
    struct all all = { .c = client_at(server_url(s), 0) };
    struct slot slot[SLOTS];
    pthread_t t[3];
    for (int i = 0; i < SLOTS; i++)
        open_slot(&slot[i], &all, i % 5);
    for (int i = 0; i < 2; i++)
        CHECK_INT(pthread_create(&t[i], NULL, dispatches, &all), 0);
    CHECK_INT(pthread_create(&t[2], NULL, cancels, slot), 0);
    for (int64_t until = t_now_ms() + 3000; t_now_ms() < until;) {
        struct slot *sl = &slot[t_random(SLOTS)];
        int yes = 1;
        if (!atomic_compare_exchange_strong(&sl->free, &yes, 0))
            continue;
        atomic_fetch_add(&all.asked, 1);
        hf_err e = ask(sl);
        if (e) { /* a cancel was left over */
            CHECK_HF(e, HF_ECANCELED);
            atomic_fetch_add(&all.answered, 1);
            atomic_store(&sl->free, 1);
        }
    }
    atomic_store(&all.stop, 1);
    for (int i = 0; i < 3; i++)
        CHECK_INT(pthread_join(t[i], NULL), 0);
    t_note("%ld asked, %ld with success, %ld computed", atomic_load(&all.asked),
           atomic_load(&all.good), atomic_load(&all.computed));
    CHECK_INT(atomic_load(&all.asked), atomic_load(&all.answered));
    CHECK(atomic_load(&all.good) > 50);
    CHECK(atomic_load(&all.computed) > 5);
    for (int i = 0; i < SLOTS; i++)
        free_slot(&slot[i]);
    hf_client_free(all.c);
    check_only_ttls(s);
}

static void note(hf_err result, const hf_error *e, void *arg)
{
    (void)e;
    *(hf_err *)arg = result;
}

TEST(clients_are_opened_by_threads_of_the_library_and_freed_at_any_moment)
{
    struct server *s = server_start(NULL);
    for (int i = 0; i < 60; i++) {
        hf_client *c = NULL;
        hf_err result = HF_ERR_FORCE_INT;
        CHECK_HF(hf_client_open_async(server_url(s), NULL, &c, note, &result, &err), HF_OK);
        if (i % 3 == 0)
            LOOP_EVENTUALLY(c, result == HF_OK, 10000);
        else if (i % 3 == 1)
            usleep((useconds_t)t_random(4000));
        hf_client_free(c);
        CHECK(result == HF_OK || result == HF_ECANCELED);
    }
}
