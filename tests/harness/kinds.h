/* SPDX-License-Identifier: MIT
 * kinds.h - every kind of lock used once between two clients: does it work here at all?
 *
 *     kind_try_all(c, d, hf_str("some name"));
 *
 * What each kind promises is tested in a file of its own; this is for places where all of them have
 * to get along, such as another topology. Each name is used up: it is for one such call.
 */
#ifndef HARNESS_KINDS_H
#define HARNESS_KINDS_H

#include "harness/waiting.h"

#define KIND_KEPT ((hf_lock_opts){ .ttl_ms = 20000 })

static inline hf_lock *kind_handle(hf_client *c, hf_bytes name, hf_lock_opts o)
{
    hf_lock *m = NULL;
    o.size = sizeof o;
    CHECK_HF(hf_lock_open(c, name, &o, &m, &err), HF_OK);
    return m;
}

struct kind_name {
    char bytes[1100];
    hf_bytes name;
};

/* One name for each kind, so that none finds what another has left. */
static inline hf_bytes kind_name_for(struct kind_name *n, char kind, hf_bytes base)
{
    CHECK(base.len < sizeof n->bytes - 1);
    memcpy(n->bytes, base.data, base.len);
    n->bytes[base.len] = kind;
    return n->name = (hf_bytes){ n->bytes, base.len + 1 };
}

static inline void kind_try_mutex(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_lock *m = kind_handle(c, name, KIND_KEPT);
    struct locker w = { .m = kind_handle(d, name, KIND_KEPT), .wait_ms = 20000 };
    uint64_t fence = lock_now(m);
    CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_EBUSY);
    locker_start(&w);
    t_sleep_ms(20); /* so that it most likely waits; it is right either way */
    CHECK_HF(hf_lock_extend(m, 30000, &err), HF_OK);
    CHECK_HF(hf_lock_verify(m, &err), HF_OK);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK(w.fence > fence);
    hf_inspect_info *info = NULL;
    CHECK_HF(hf_inspect_lock(c, name, 0, &info, &err), HF_OK);
    CHECK_INT(info->holders, 1);
    CHECK_MEM(info->name, info->name_len, name.data, name.len);
    hf_inspect_free(info);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
}

static inline void kind_try_shared(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_lock *m = kind_handle(c, name, KIND_KEPT);
    struct locker w = { .m = kind_handle(d, name, KIND_KEPT), .wait_ms = 20000 };
    CHECK_HF(hf_lock_acquire_shared(m, 5000, NULL, &err), HF_OK);
    CHECK_HF(hf_lock_acquire_shared(w.m, 5000, NULL, &err), HF_OK);
    unlock_now(w.m);
    CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_EBUSY);
    locker_start(&w);
    t_sleep_ms(20);
    unlock_now(m);
    locker_join(&w, HF_OK);
    CHECK_HF(hf_lock_downgrade(w.m, &err), HF_OK);
    CHECK_HF(hf_lock_acquire_shared(m, 5000, NULL, &err), HF_OK);
    unlock_now(m);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(w.m);
}

static inline void kind_try_semaphore(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_lock_opts two = { .ttl_ms = 20000, .slots = 3, .permits = 2 };
    hf_lock_opts one = { .ttl_ms = 20000, .slots = 3 };
    hf_lock *m = kind_handle(c, name, two), *n = kind_handle(c, name, one);
    struct locker w = { .m = kind_handle(d, name, two), .wait_ms = 20000 };
    lock_now(m);
    lock_now(n);
    CHECK_HF(hf_lock_try(w.m, NULL, &err), HF_EBUSY);
    locker_start(&w);
    t_sleep_ms(20);
    unlock_now(m);
    locker_join(&w, HF_OK);
    unsigned old = 0;
    CHECK_HF(hf_semaphore_resize(c, name, 4, &old, &err), HF_OK);
    CHECK_INT(old, 3);
    unlock_now(n);
    unlock_now(w.m);
    hf_lock_free(m);
    hf_lock_free(n);
    hf_lock_free(w.m);
}

struct kind_latch {
    hf_latch *lt;
    hf_err result;
};

static inline void *kind_wait_for_latch(void *arg)
{
    struct kind_latch *w = arg;
    w->result = hf_latch_wait(w->lt, 20000, NULL);
    return NULL;
}

static inline void kind_try_latch(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_latch *lt = NULL;
    struct kind_latch w = { 0 };
    pthread_t thread;
    uint32_t left = 9;
    CHECK_HF(hf_latch_open(c, name, NULL, &lt, &err), HF_OK);
    CHECK_HF(hf_latch_open(d, name, NULL, &w.lt, &err), HF_OK);
    CHECK_HF(hf_latch_set(lt, 2, &err), HF_OK);
    CHECK_INT(pthread_create(&thread, NULL, kind_wait_for_latch, &w), 0);
    CHECK_HF(hf_latch_count_down(lt, 1, &left, &err), HF_OK);
    CHECK_INT(left, 1);
    CHECK_HF(hf_latch_count_down(lt, 1, &left, &err), HF_OK);
    CHECK_INT(left, 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(w.result, HF_OK);
    hf_latch_free(lt);
    hf_latch_free(w.lt);
}

struct kind_meeting {
    hf_barrier *b;
    hf_err result;
    uint64_t generation;
};

static inline void *kind_meet(void *arg)
{
    struct kind_meeting *p = arg;
    p->result = hf_barrier_wait(p->b, 20000, NULL, &p->generation, NULL);
    return NULL;
}

static inline void kind_try_barrier(hf_client *c, hf_client *d, hf_bytes name)
{
    struct kind_meeting mine = { 0 }, other = { 0 };
    pthread_t thread;
    CHECK_HF(hf_barrier_open(c, name, 2, NULL, &mine.b, &err), HF_OK);
    CHECK_HF(hf_barrier_open(d, name, 2, NULL, &other.b, &err), HF_OK);
    for (int i = 0; i < 2; i++) {
        CHECK_INT(pthread_create(&thread, NULL, kind_meet, &other), 0);
        kind_meet(&mine);
        CHECK_INT(pthread_join(thread, NULL), 0);
        CHECK_INT(mine.result, HF_OK);
        CHECK_INT(other.result, HF_OK);
        CHECK(mine.generation == other.generation);
    }
    hf_barrier_free(mine.b);
    hf_barrier_free(other.b);
}

struct kind_candidate {
    hf_election *el;
    hf_err result;
    uint64_t term;
};

static inline void *kind_run_for_it(void *arg)
{
    struct kind_candidate *p = arg;
    p->result = hf_election_campaign(p->el, hf_str("second"), 20000, &p->term, NULL);
    return NULL;
}

static inline void kind_check_leader(hf_client *c, hf_bytes name, const char *value, uint64_t term)
{
    hf_leader *l = NULL;
    CHECK_HF(hf_election_leader(c, name, &l, &err), HF_OK);
    CHECK(l->leads && l->value && l->term == term);
    CHECK_STR(l->value, value);
    hf_leader_free(l);
}

static inline void kind_try_election(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_election *el = NULL;
    struct kind_candidate next = { 0 };
    hf_leader *seen = NULL, *changed = NULL;
    pthread_t thread;
    uint64_t term = 0;
    CHECK_HF(hf_election_open(c, name, NULL, &el, &err), HF_OK);
    CHECK_HF(hf_election_open(d, name, NULL, &next.el, &err), HF_OK);
    CHECK_HF(hf_election_campaign(el, hf_str("first"), 10000, &term, &err), HF_OK);
    kind_check_leader(d, name, "first", term);
    CHECK_HF(hf_election_observe(d, name, NULL, 0, &seen, &err), HF_OK);
    CHECK_INT(pthread_create(&thread, NULL, kind_run_for_it, &next), 0);
    t_sleep_ms(20);
    CHECK_HF(hf_election_resign(el, &err), HF_OK);
    CHECK_HF(hf_election_observe(c, name, seen, 10000, &changed, &err), HF_OK);
    CHECK_INT(pthread_join(thread, NULL), 0);
    CHECK_INT(next.result, HF_OK);
    CHECK(next.term > term);
    kind_check_leader(c, name, "second", next.term);
    CHECK_HF(hf_election_resign(next.el, &err), HF_OK);
    hf_leader_free(seen);
    hf_leader_free(changed);
    hf_election_free(el);
    hf_election_free(next.el);
}

static inline void kind_try_sequence(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_sequence_opts o = { .size = sizeof o, .block = 1 };
    hf_sequence *s = NULL, *t = NULL;
    uint64_t last = 0, id = 0;
    CHECK_HF(hf_sequence_open(c, name, &o, &s, &err), HF_OK);
    CHECK_HF(hf_sequence_open(d, name, &o, &t, &err), HF_OK);
    for (int i = 0; i < 6; i++) {
        CHECK_HF(hf_sequence_next(i % 2 ? s : t, &id, &err), HF_OK);
        CHECK(id > last);
        last = id;
    }
    hf_sequence_free(s);
    hf_sequence_free(t);
}

static inline hf_err kind_compute(void *arg, hf_lock *m, hf_bytes *ret, hf_error *reterr)
{
    (void)m, (void)reterr;
    ++*(int *)arg;
    *ret = hf_str("value");
    return HF_OK;
}

static inline void kind_try_once(hf_client *c, hf_client *d, hf_bytes name)
{
    hf_once_opts o = { .size = sizeof o, .ttl_ms = 60000 };
    int computed = 0;
    for (int i = 0; i < 4; i++) {
        hf_value *v = NULL;
        CHECK_HF(hf_once_compute(i % 2 ? c : d, name, &o, 10000, kind_compute, &computed, &v,
                                 &err), HF_OK);
        CHECK_MEM(v->data, v->len, "value", 5);
        hf_value_free(v);
    }
    CHECK_INT(computed, 1);
    CHECK_HF(hf_once_drop(c, name, &err), HF_OK);
}

static inline hf_change kind_lengthen(void *arg, hf_bytes old, hf_bytes *ret)
{
    char *buf = arg;
    memset(buf, 'x', old.len + 1);
    *ret = (hf_bytes){ buf, old.len + 1 };
    return HF_CHANGE_SET;
}

static inline hf_change kind_look_at(void *arg, hf_bytes old, hf_bytes *ret)
{
    (void)ret;
    *(size_t *)arg = old.len;
    return HF_CHANGE_NOTHING;
}

static inline void kind_try_update(hf_client *c, hf_client *d, hf_bytes key)
{
    char buf[16];
    size_t len = 0;
    for (int i = 0; i < 4; i++)
        CHECK_HF(hf_update_run(i % 2 ? c : d, key, NULL, kind_lengthen, buf, &err), HF_OK);
    CHECK_HF(hf_update_run(c, key, NULL, kind_look_at, &len, &err), HF_OK);
    CHECK_INT(len, 4);
}

static inline void kind_try_owner_and_guards(hf_client *c, hf_client *d, hf_bytes name)
{
    uint64_t fence = 0;
    int64_t left = 0;
    CHECK_HF(hf_owner_acquire(c, name, 20000, hf_str("me"), &fence, &err), HF_OK);
    CHECK_HF(hf_owner_acquire(d, name, 20000, hf_str("you"), NULL, &err), HF_EBUSY);
    CHECK_HF(hf_owner_extend(d, name, hf_str("me"), 30000, &err), HF_OK);
    CHECK_HF(hf_owner_check(d, name, hf_str("me"), &left, &err), HF_OK);
    CHECK_RANGE(left, 20000, 30000);
    CHECK_HF(hf_owner_release(d, name, hf_str("me"), &err), HF_OK);
    CHECK_HF(hf_owner_release(d, name, hf_str("me"), &err), HF_ENOTOWNER);
    CHECK_HF(hf_guard_check(c, name, fence, &err), HF_OK);
    CHECK_HF(hf_guard_check(d, name, fence - 1, &err), HF_ESTALE);
    CHECK_HF(hf_guard_set(c, name, hf_str("v"), fence, &err), HF_OK);
    CHECK_HF(hf_guard_set(d, name, hf_str("w"), fence - 1, &err), HF_ESTALE);
}

static inline void kind_try_all(hf_client *c, hf_client *d, hf_bytes base)
{
    struct kind_name n;
    kind_try_mutex(c, d, kind_name_for(&n, 'm', base));
    kind_try_shared(c, d, kind_name_for(&n, 'r', base));
    kind_try_semaphore(c, d, kind_name_for(&n, 's', base));
    kind_try_latch(c, d, kind_name_for(&n, 'l', base));
    kind_try_barrier(c, d, kind_name_for(&n, 'b', base));
    kind_try_election(c, d, kind_name_for(&n, 'e', base));
    kind_try_sequence(c, d, kind_name_for(&n, 'q', base));
    kind_try_once(c, d, kind_name_for(&n, 'o', base));
    kind_try_update(c, d, kind_name_for(&n, 'u', base));
    kind_try_owner_and_guards(c, d, kind_name_for(&n, 'w', base));
}

#endif
