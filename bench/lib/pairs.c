/* SPDX-License-Identifier: MIT
 * pairs.c - lock and unlock by threads, in several ways; see pairs.h.
 */
#include "lib/pairs.h"

#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/t.h"
#include "lib/bare.h"
#include "lib/locks.h"

enum { WARM_MS = 200 };

/* ---- ours ---- */

static void *holdfast_open(const struct pairs *p, int index)
{
    char name[40];
    hf_lock_opts o = { .size = sizeof o, .ttl_ms = 10000 };
    snprintf(name, sizeof name, "bench%d", index);
    return bench_lock(p->client, name, &o);
}

static void holdfast_pair(void *worker)
{
    bench_pair(worker);
}

static void holdfast_close(void *worker)
{
    hf_lock_free(worker);
}

const struct pairs_kind pairs_holdfast = {
    SENT_BY_HOLDFAST, holdfast_open, holdfast_pair, holdfast_close,
};

/* ---- what a C programmer would write instead ---- */

struct plain {
    redisContext      *r;
    char               key[40], sha[41];
    unsigned long long turn;
};

static void *hiredis_open(const struct pairs *p, int index)
{
    static const char script[] = "if redis.call('get', KEYS[1]) == ARGV[1] then "
                                 "return redis.call('del', KEYS[1]) else return 0 end";
    struct plain *w = calloc(1, sizeof *w);
    int one = 1;
    CHECK(w);
    w->r = redisConnect("127.0.0.1", server_port(p->s));
    if (!w->r || w->r->err)
        FAIL("hiredis: %s", w->r ? w->r->errstr : "no memory");
    setsockopt(w->r->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    snprintf(w->key, sizeof w->key, "lock:plain%d", index);
    redisReply *reply = redisCommand(w->r, "SCRIPT LOAD %s", script);
    CHECK(reply && reply->type == REDIS_REPLY_STRING && reply->len == 40);
    memcpy(w->sha, reply->str, 41);
    freeReplyObject(reply);
    return w;
}

static void hiredis_pair(void *worker)
{
    struct plain *w = worker;
    char token[48];
    snprintf(token, sizeof token, "%016lx%016llx", (unsigned long)(uintptr_t)w, ++w->turn);
    redisReply *reply = redisCommand(w->r, "SET %s %s NX PX 10000", w->key, token);
    CHECK(reply && reply->type == REDIS_REPLY_STATUS);
    freeReplyObject(reply);
    reply = redisCommand(w->r, "EVALSHA %s 1 %s %s", w->sha, w->key, token);
    CHECK(reply && reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
    freeReplyObject(reply);
}

static void hiredis_close(void *worker)
{
    struct plain *w = worker;
    redisFree(w->r);
    free(w);
}

const struct pairs_kind pairs_hiredis = {
    SENT_BY_HIREDIS, hiredis_open, hiredis_pair, hiredis_close,
};

/* ---- bare sockets ---- */

struct socket_worker {
    int                 fd;
    struct replay_lock *l;
};

static void *socket_open(const struct pairs *p, int index)
{
    struct socket_worker *w = calloc(1, sizeof *w);
    CHECK(w);
    w->fd = bare_dial(p->s);
    if (p->replay)
        w->l = replay_lock_new(p->replay, index);
    return w;
}

static void socket_close(void *worker)
{
    struct socket_worker *w = worker;
    close(w->fd);
    if (w->l)
        replay_lock_free(w->l);
    free(w);
}

static void replay_once(void *worker)
{
    struct socket_worker *w = worker;
    replay_pair(w->l, w->fd);
}

static void ping_twice(void *worker)
{
    struct socket_worker *w = worker;
    for (int i = 0; i < 2; i++)
        bare_exchange(w->fd, "*1\r\n$4\r\nPING\r\n", "+PONG\r\n");
}

const struct pairs_kind pairs_replay = {
    SENT_BY_HOLDFAST, socket_open, replay_once, socket_close,
};
const struct pairs_kind pairs_pings = {
    SENT_BY_HOLDFAST, socket_open, ping_twice, socket_close,
};

/* ---- threads ---- */

struct team {
    const struct pairs      *p;
    const struct pairs_kind *k;
    pthread_barrier_t        opened;
    atomic_int               counting, stop;
};

struct member {
    struct team   *team;
    pthread_t      thread;
    int            index;
    struct samples us;
};

static void meet(struct team *t)
{
    int e = pthread_barrier_wait(&t->opened);
    CHECK(e == 0 || e == PTHREAD_BARRIER_SERIAL_THREAD);
}

static void *member_main(void *arg)
{
    struct member *m = arg;
    struct team *t = m->team;
    void *worker = t->k->open(t->p, m->index);
    meet(t);
    while (!atomic_load_explicit(&t->stop, memory_order_relaxed)) {
        int64_t begun = t_now_ns();
        t->k->pair(worker);
        if (atomic_load_explicit(&t->counting, memory_order_relaxed))
            samples_add(&m->us, (double)(t_now_ns() - begun) / 1000);
    }
    t->k->close(worker);
    return NULL;
}

struct cost pairs_measure(const struct pairs *p, const struct pairs_kind *k)
{
    struct team t = { .p = p, .k = k };
    struct member *m = calloc((size_t)p->threads, sizeof *m);
    struct samples all = { 0 };
    struct meter meter;
    CHECK(m);
    CHECK_INT(pthread_barrier_init(&t.opened, NULL, (unsigned)p->threads + 1), 0);
    for (int i = 0; i < p->threads; i++) {
        m[i] = (struct member){ .team = &t, .index = i };
        CHECK_INT(pthread_create(&m[i].thread, NULL, member_main, &m[i]), 0);
    }
    meet(&t);
    t_sleep_ms(WARM_MS);
    meter_begin(&meter, p->s, k->sent);
    atomic_store(&t.counting, 1);
    t_sleep_ms(p->run_ms);
    atomic_store(&t.counting, 0);
    struct cost c = meter_end(&meter, 1, NULL); /* divided below: the samples are still theirs */
    atomic_store(&t.stop, 1);
    for (int i = 0; i < p->threads; i++) {
        CHECK_INT(pthread_join(m[i].thread, NULL), 0);
        samples_append(&all, &m[i].us);
        samples_free(&m[i].us);
    }
    CHECK(all.n > 0);
    for (int f = COST_COMMANDS; f <= COST_SWITCHES; f++)
        c.is[f] /= (double)all.n;
    c.is[COST_RATE] *= (double)all.n;
    c.is[COST_P50] = samples_at(&all, 50);
    c.is[COST_P99] = samples_at(&all, 99);
    c.is[COST_MAX] = samples_at(&all, 100);
    samples_free(&all);
    pthread_barrier_destroy(&t.opened);
    free(m);
    return c;
}

struct cost pairs_by_holdfast(void *arg)
{
    return pairs_measure(arg, &pairs_holdfast);
}

struct cost pairs_by_hiredis(void *arg)
{
    return pairs_measure(arg, &pairs_hiredis);
}

struct cost pairs_by_replay(void *arg)
{
    return pairs_measure(arg, &pairs_replay);
}

struct cost pairs_by_pings(void *arg)
{
    return pairs_measure(arg, &pairs_pings);
}
