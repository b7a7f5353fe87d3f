/* SPDX-License-Identifier: MIT
 * thread_election.c - candidates and observers among threads. Runs under ThreadSanitizer too.
 */
#include <stdatomic.h>

#include "harness/live.h"

enum { CANDIDATES = 6, OBSERVERS = 4, TERMS = 4 };

struct all {
    hf_client       *c;
    atomic_int       leading, done, events;
    _Atomic uint64_t term;
};

struct one {
    struct all *all;
    int         index;
    pthread_t   thread;
};

static void happened(hf_lock *m, hf_state state, void *arg)
{
    (void)m;
    (void)state;
    atomic_fetch_add((atomic_int *)arg, 1);
}

/* Each leads for longer than its ttl, changing its value beside the renewals. */
static void *campaign(void *arg)
{
    struct one *o = arg;
    struct all *a = o->all;
    hf_election *el = NULL;
    hf_election_opts eo = { .size = sizeof eo, .ttl_ms = 6000, .on_event = happened,
                            .event_arg = &a->events };
    CHECK_HF(hf_election_open(a->c, hf_str("a"), &eo, &el, &err), HF_OK);
    for (int i = 0; i < TERMS; i++) {
        char value[40];
        uint64_t term;
        CHECK_HF(hf_election_campaign(el, hf_str("begin"), 50000, &term, &err), HF_OK);
        CHECK_INT(atomic_fetch_add(&a->leading, 1), 0);
        CHECK(term > atomic_exchange(&a->term, term));
        for (int k = 0; k < 8; k++) {
            snprintf(value, sizeof value, "%d.%d.%d", o->index, i, k);
            hf_err e = hf_election_set_value(el, hf_str(value), &err);
            if (e == HF_ELOST)
                break; /* a slow machine */
            CHECK_HF(e, HF_OK);
            t_sleep_ms(i == 0 && k < 4 ? 60 : 1);
        }
        atomic_fetch_sub(&a->leading, 1);
        hf_err e = hf_election_resign(el, &err);
        CHECK(e == HF_OK || e == HF_ELOST);
    }
    hf_election_free(el);
    return NULL;
}

static void *observe(void *arg)
{
    struct one *o = arg;
    struct all *a = o->all;
    hf_leader *seen = NULL;
    uint64_t last = 0;
    while (!atomic_load(&a->done)) {
        hf_leader *now = NULL;
        hf_err e = hf_election_observe(a->c, hf_str("a"), seen, 200, &now, &err);
        if (e == HF_ETIMEDOUT)
            continue;
        CHECK_HF(e, HF_OK);
        CHECK(!now->leads || now->term >= last);
        if (now->leads)
            last = now->term;
        hf_leader_free(seen);
        seen = now;
    }
    CHECK(last > 0);
    hf_leader_free(seen);
    return NULL;
}

static void start(struct one *o, struct all *a, int n, void *(*fn)(void *))
{
    for (int i = 0; i < n; i++) {
        o[i] = (struct one){ .all = a, .index = i };
        CHECK_INT(pthread_create(&o[i].thread, NULL, fn, &o[i]), 0);
    }
}

static void join(struct one *o, int n)
{
    for (int i = 0; i < n; i++)
        CHECK_INT(pthread_join(o[i].thread, NULL), 0);
}

TEST(EL1_EL2_EL5_candidates_and_observers_share_a_client)
{
    struct server *s = server_start(NULL);
    struct all a = { .c = client_at(server_url(s), 0) };
    struct one candidate[CANDIDATES], observer[OBSERVERS];
    start(observer, &a, OBSERVERS, observe);
    start(candidate, &a, CANDIDATES, campaign);
    join(candidate, CANDIDATES);
    atomic_store(&a.done, 1);
    join(observer, OBSERVERS);
    hf_client_free(a.c);
    CHECK_EVENTUALLY(strcmp(server_keys(s), ONLY_OURS) == 0, 5000);
}

static void *cancel_me(void *arg)
{
    struct one *o = arg;
    hf_election *el = NULL;
    CHECK_HF(hf_election_open(o->all->c, hf_str("a"), NULL, &el, &err), HF_OK);
    hf_lock_cancel(hf_election_lock(el)); /* before it waits: the next wait ends */
    CHECK_HF(hf_election_campaign(el, hf_str("x"), 50000, NULL, &err), HF_ECANCELED);
    CHECK(!hf_election_is_leader(el));
    hf_election_free(el);
    return NULL;
}

TEST(a_campaign_can_be_cancelled)
{
    struct server *s = server_start(NULL);
    struct all a = { .c = client_at(server_url(s), 0) };
    struct one o[2];
    hf_election *el = NULL;
    CHECK_HF(hf_election_open(a.c, hf_str("a"), NULL, &el, &err), HF_OK);
    CHECK_HF(hf_election_campaign(el, hf_str("leads"), 0, NULL, &err), HF_OK);
    start(o, &a, 2, cancel_me);
    join(o, 2);
    hf_election_free(el);
    hf_client_free(a.c);
}
