/* SPDX-License-Identifier: MIT
 * thread_quorum.c - one client of a quorum, used by many threads while its servers come and go.
 */
#include "harness/quorum.h"
#include "harness/waiting.h"

struct party {
    hf_client *c;
    int        index;
    int64_t    until_ms;
    atomic_int *inside; /* who is in the place that all want */
    atomic_int grants;
    pthread_t  thread;
};

static void *work(void *arg)
{
    struct party *p = arg;
    char name[16];
    snprintf(name, sizeof name, "own-%d", p->index);
    hf_lock *own = lock_of(p->c, name, 4000), *shared = lock_of(p->c, "a", 4000);
    while (t_now_ms() < p->until_ms) {
        if (hf_lock_try(own, NULL, NULL) == HF_OK) {
            CHECK(hf_lock_is_held(own));
            (void)hf_lock_release(own, NULL);
            atomic_fetch_add(&p->grants, 1);
        }
        if (hf_lock_acquire(shared, 50, NULL, NULL) == HF_OK) {
            CHECK_INT(atomic_fetch_add(p->inside, 1), 0);
            atomic_fetch_sub(p->inside, 1);
            (void)hf_lock_release(shared, NULL);
        }
    }
    hf_lock_free(own);
    hf_lock_free(shared);
    return NULL;
}

static void many(struct members *q, int chaos)
{
    hf_client *c = client_at(q->url, 1000);
    atomic_int inside = 0;
    struct party p[8];
    int grants = 0;
    for (int i = 0; i < 8; i++) {
        p[i] = (struct party){ .c = c, .index = i, .until_ms = t_now_ms() + 3000,
                               .inside = &inside };
        CHECK_INT(pthread_create(&p[i].thread, NULL, work, &p[i]), 0);
    }
    int faults = 0;
    while (chaos && t_now_ms() < p[0].until_ms) {
        struct server *s = q->s[t_random((uint64_t)q->n)];
        if (t_random(2)) {
            server_freeze(s);
            t_sleep_ms((int64_t)t_random(200));
            server_thaw(s);
        } else {
            server_kill(s);
            server_restart(s);
        }
        t_sleep_ms(50);
        faults++;
    }
    for (int i = 0; i < 8; i++) {
        CHECK_INT(pthread_join(p[i].thread, NULL), 0);
        CHECK(p[i].grants > 0);
        grants += p[i].grants;
    }
    t_note("%d grants, %d faults", grants, faults);
    CHECK(!chaos || faults > 3);
    hf_client_free(c);
}

TEST(many_threads_one_client)
{
    struct members q = members_start(3, kept);
    many(&q, 0);
}

TEST(many_threads_and_failing_servers)
{
    struct members q = members_start(5, kept);
    many(&q, 1);
}

TEST(renewed_while_servers_come_and_go)
{
    struct members q = members_start(3, kept);
    hf_client *c = client_at(q.url, 1000);
    hf_lock *m[20];
    char name[16];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "m-%d", i);
        m[i] = lock_of(c, name, 4000);
        lock_now(m[i]);
    }
    for (int round = 0; round < 8; round++) { /* one at a time, and back */
        struct server *s = q.s[round % 3];
        server_kill(s);
        t_sleep_ms(200);
        server_restart(s);
        t_sleep_ms(500);
    }
    for (int i = 0; i < 20; i++) {
        CHECK(hf_lock_is_held(m[i]));
        CHECK_HF(hf_lock_verify(m[i], &err), HF_OK);
        hf_lock_free(m[i]);
    }
    hf_client_free(c);
}
