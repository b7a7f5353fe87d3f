/* SPDX-License-Identifier: MIT
 * protocols.h - shorthands of the tests of the protocols without scripts.
 */
#ifndef HARNESS_PROTOCOLS_H
#define HARNESS_PROTOCOLS_H

#include <fcntl.h>
#include <unistd.h>

#include "harness/history.h"
#include "harness/holder.h"
#include "harness/proxy.h"

static inline hf_client *client_by(const char *url, const char *protocol)
{
    return client_with(url, (hf_client_opts){ .protocol = protocol });
}

static inline hf_client *client_in(const char *url, const char *protocol, int64_t timeout_ms)
{
    return client_with(url, (hf_client_opts){ .protocol = protocol, .timeout_ms = timeout_ms });
}

/* ---- n processes that count in one file ---- */

struct counting {
    const char     *url;
    const char     *protocol[4]; /* of process i: i % 4 */
    char           *file;
    int             rounds;
    int64_t         ttl_ms;
    struct history *history;
};

static inline long long file_number(const char *path)
{
    char text[32] = "0";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!read(fd, text, sizeof text - 1);
        close(fd);
    }
    return atoll(text);
}

/* Not atomic in any way: only the lock makes it right. */
static inline void file_increment(const char *path)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld\n", file_number(path) + 1);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    CHECK(write(fd, text, (size_t)n) == n);
    close(fd);
}

static inline void count_in_file(int index, void *arg)
{
    struct counting *c = arg;
    hf_client *cl = client_by(c->url, c->protocol[index % 4]);
    hf_lock *m = lock_of(cl, "a", c->ttl_ms);
    for (int i = 0; i < c->rounds; i++) {
        uint64_t fence;
        int64_t invoke = t_now_ns();
        CHECK_HF(hf_lock_acquire(m, 50000, &fence, &err), HF_OK);
        struct grant *g = history_grant(c->history, 0, (uint32_t)index, fence, invoke,
                                        t_now_ns() + hf_lock_time_left_ms(m) * 1000000);
        file_increment(c->file);
        history_release(g);
        unlock_now(m);
    }
    hf_lock_free(m);
    hf_client_free(cl);
}

/* All of them counted, and no two at a time. */
static inline void check_counting(struct counting *c, int workers)
{
    struct history_report rep;
    c->history = history_new((size_t)(workers * c->rounds));
    c->file = t_path("number");
    workers_run(workers, count_in_file, c, 55000);
    CHECK_INT(file_number(c->file), workers * c->rounds);
    CHECK_INT(history_check(c->history, &rep), 0);
    CHECK_INT(rep.grants, workers * c->rounds);
    free(c->file);
}

/* ---- a holder that is killed ---- */

/* The next one has the lock after so long at the latest; its ttl was 1.5 s. */
static inline void check_killed_holder(const char *protocol, int64_t limit_ms)
{
    struct server *s = server_start(NULL);
    const char *url = keep_text("%s?protocol=%s", server_url(s), protocol);
    hf_lock_opts o = { .ttl_ms = 1500, .grace_ms = HF_NO_TAKEOVER };
    struct workers *w = holder_start(url, "a", o);
    hf_client *c = client_by(server_url(s), protocol);
    hf_lock *m = lock_of(c, "a", 5000);
    CHECK_HF(hf_lock_try(m, NULL, &err), HF_EBUSY);
    workers_signal(w, 0, SIGKILL);
    int64_t start = t_now_ms();
    lock_now(m);
    CHECK_TOOK(t_now_ms() - start, 0, limit_ms);
    unlock_now(m);
    hf_lock_free(m);
    hf_client_free(c);
    workers_join(w, 5000);
}

/* ---- two that see an expired lock at the same moment (document 001) ---- */

struct race {
    hf_lock          *m;
    pthread_barrier_t *start, *end;
    int               rounds;
    int              *won; /* of each round */
    atomic_int       *winners;
};

static inline void *race_main(void *arg)
{
    struct race *r = arg;
    for (int i = 0; i < r->rounds; i++) {
        pthread_barrier_wait(r->start);
        /* Until one of us has it: it may be that neither was quick enough at first. */
        for (;;) {
            hf_err e = hf_lock_try(r->m, NULL, &err);
            if (e == HF_OK)
                atomic_fetch_add(&r->winners[i], 1);
            else if (e != HF_EBUSY && e != HF_ECONFLICT)
                FAIL("%s: %s", hf_err_name(e), err.message);
            if (e == HF_OK || atomic_load(&r->winners[i]))
                break;
        }
        pthread_barrier_wait(r->end);
        if (hf_lock_state(r->m) != HF_STATE_FREE) {
            CHECK_HF(hf_lock_verify(r->m, &err), HF_OK);
            unlock_now(r->m);
        }
        pthread_barrier_wait(r->end);
    }
    return NULL;
}

/* expire: puts a lock there that has just ended. Exactly one wins each round. */
static inline void check_race(const char *url, const char *protocol, int rounds,
                              void (*expire)(struct server *s), struct server *s)
{
    enum { RUNNERS = 3 };
    pthread_barrier_t start, end;
    pthread_t thread[RUNNERS];
    struct race r[RUNNERS];
    hf_client *c[RUNNERS];
    atomic_int *winners = calloc((size_t)rounds, sizeof *winners);
    pthread_barrier_init(&start, NULL, RUNNERS + 1);
    pthread_barrier_init(&end, NULL, RUNNERS + 1);
    for (int i = 0; i < RUNNERS; i++) {
        c[i] = client_by(url, protocol);
        r[i] = (struct race){ lock_of(c[i], "a", 20000), &start, &end, rounds, NULL, winners };
        CHECK_INT(pthread_create(&thread[i], NULL, race_main, &r[i]), 0);
    }
    for (int i = 0; i < rounds; i++) {
        expire(s);
        pthread_barrier_wait(&start);
        pthread_barrier_wait(&end);
        CHECK_INT(atomic_load(&winners[i]), 1);
        pthread_barrier_wait(&end);
    }
    for (int i = 0; i < RUNNERS; i++) {
        CHECK_INT(pthread_join(thread[i], NULL), 0);
        hf_lock_free(r[i].m);
        hf_client_free(c[i]);
    }
    free(winners);
}

#endif
