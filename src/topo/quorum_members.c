/* SPDX-License-Identifier: MIT
 * quorum_members.c - several independent servers, of which a majority decides: staying connected to
 * them.
 *
 *      down -> up      [tend]   its thread connects; it is greeted, looked at, and undoes what
 *                               it owes
 *      up -> down      [conn.c] it closed the connection, or was silent for too long
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/thread.h"
#include "topo/quorum_sub.h"
#include "topo/quorum_words.h"

#define CONNECT_MS    3000 /* one attempt, if the URL says nothing else */
#define SILENCE_MS    1000 /* a reply overdue by that: a fresh connection may do better */
#define PAUSE_MIN_MS  10
#define PAUSE_MAX_MS  1000
#define QUORUM_MOST   64   /* hosts in a URL */
#define STRAGGLERS_MS 50   /* for those that answer after a majority has */

static void tried(struct member *m, hf_err e, const hf_error *why)
{
    mutex_lock(&m->mu);
    bool news = e && strcmp(m->why.message, why->message) != 0;
    m->tried = true;
    m->why = *why;
    m->why.code = e;
    mutex_unlock(&m->mu);
    if (news) /* while it is opened, all of them are told in one line */
        log_to(m->q->log, atomic_load(&m->q->opened) ? HF_LOG_WARNING : HF_LOG_INFO,
               "%s does not vote: %s", m->shown, why->message);
    park_wake(&m->q->news);
}

/* Thread: the member's. Sleep, and hear what it says meanwhile. */
static void listen_until(struct member *m, int64_t until_ms)
{
    if (!m->sub && atomic_load(&m->q->listening))
        m->sub = quorum_sub_new(m);
    int64_t due = m->sub ? quorum_sub_tend(m->sub) : CLOCK_NEVER;
    if (!m->sub || !quorum_sub_listen(m->sub, clock_earlier(until_ms, due)))
        park_wait(&m->park, clock_earlier(until_ms, due));
}

/* Thread: the member's. */
static void *tend(void *arg)
{
    struct member *m = arg;
    int64_t pause = PAUSE_MIN_MS, not_before = 0;
    while (!atomic_load(&m->q->stopping)) {
        int64_t now = clock_now_ms();
        if (!conn_epoch(m->conn) && now >= not_before) {
            hf_error why = { 0 };
            struct limit lim = { CLOCK_NEVER, &m->q->stopping };
            hf_err e = conn_connect(m->conn, &lim, &why);
            bool up = conn_epoch(m->conn) != 0;
            if (up)
                atomic_fetch_add(&m->q->ups, 1);
            if ((e || up) && !limit_stopped(&lim))
                tried(m, e, &why);
            not_before = clock_now_ms() + random_between(pause / 2, pause);
            pause = up ? PAUSE_MIN_MS : 2 * pause < PAUSE_MAX_MS ? 2 * pause : PAUSE_MAX_MS;
        } else if (!conn_epoch(m->conn)) {
            park_wait(&m->park, not_before);
        } else {
            hf_err e = undos_by_conn(m);
            member_ask_time(m);
            listen_until(m, e ? now + PAUSE_MAX_MS : CLOCK_NEVER);
        }
    }
    return NULL;
}

bool quorum_knows(struct quorum *q, size_t i, unsigned script)
{
    uint64_t bit = UINT64_C(1) << script % 64;
    return atomic_fetch_or(&q->member[i].scripts, bit) & bit;
}

bool quorum_reign_due(struct quorum *q, size_t i)
{
    return atomic_load(&q->member[i].reign_due);
}

void quorum_reign_begins(struct quorum *q, size_t i)
{
    atomic_store(&q->member[i].reign_due, false);
}

void quorum_mend(struct quorum *q, size_t i)
{
    park_wake(&q->member[i].park);
}

void quorum_want_time(struct quorum *q, size_t i)
{
    atomic_store(&q->member[i].ask_time, true);
    park_wake(&q->member[i].park);
}

bool quorum_connecting(struct quorum *q, size_t i)
{
    struct member *m = &q->member[i];
    mutex_lock(&m->mu);
    bool failed = m->why.code != HF_OK;
    mutex_unlock(&m->mu);
    return !failed && !conn_epoch(m->conn);
}

void quorum_why(struct quorum *q, size_t i, char *buf, size_t size)
{
    struct member *m = &q->member[i];
    mutex_lock(&m->mu);
    snprintf(buf, size, "%s", m->why.code ? m->why.message : "not connected yet");
    mutex_unlock(&m->mu);
}

/* How many are up, and how many are neither up nor known to fail; the failures' common code. */
static size_t count(struct quorum *q, size_t *ret_open, hf_err *ret_code)
{
    size_t up = 0;
    *ret_open = 0;
    *ret_code = HF_OK;
    for (size_t i = 0; i < q->n; i++) {
        struct member *m = &q->member[i];
        bool connected = conn_epoch(m->conn) != 0;
        mutex_lock(&m->mu);
        up += connected;
        *ret_open += !connected && !m->tried;
        if (!connected && m->tried)
            *ret_code = !*ret_code || *ret_code == m->why.code ? m->why.code : HF_ECONN;
        mutex_unlock(&m->mu);
    }
    return up;
}

/* Why those that are not up are not; how many they are. */
static size_t who_is_down(struct quorum *q, char *buf, size_t size)
{
    struct quorum_reason r[QUORUM_MOST] = { { 0 } };
    char why[QUORUM_MOST][200];
    size_t down = 0;
    for (size_t i = 0; i < q->n && i < QUORUM_MOST; i++) {
        if (conn_epoch(q->member[i].conn))
            continue;
        quorum_why(q, i, why[i], sizeof why[i]);
        r[i] = (struct quorum_reason){ q->member[i].shown, why[i] };
        down++;
    }
    quorum_words(r, q->n, buf, size);
    return down;
}

static hf_err too_few(struct quorum *q, size_t up, hf_err code, hf_error *reterr)
{
    char said[400];
    who_is_down(q, said, sizeof said);
    /* What no waiting mends keeps its own code. */
    if (code != HF_EAUTH && code != HF_ECONFIG && code != HF_ECOUNTER)
        code = HF_ENOQUORUM;
    return err_set(reterr, code, "%zu of %zu servers answer%s, %zu are needed%s", up, q->n,
                   up == 1 ? "s" : "", quorum_majority(q), said);
}

/* Enough are up; the others are told, once. */
static hf_err enough(struct quorum *q)
{
    char said[400];
    bool before = atomic_exchange(&q->opened, true);
    size_t down = before ? 0 : who_is_down(q, said, sizeof said);
    if (down)
        log_to(q->log, HF_LOG_WARNING, "%zu of %zu servers do%s not vote, the others are enough%s",
               down, q->n, down == 1 ? "es" : "", said);
    return HF_OK;
}

hf_err quorum_connect(struct quorum *q, const struct limit *lim, hf_error *reterr)
{
    int64_t begun = clock_now_ms();
    struct limit wait = *lim;
    for (size_t i = 0; i < q->n; i++) {
        struct member *m = &q->member[i];
        int why = m->started ? 0 : thread_start(&m->thread, "hf-member", tend, m);
        if (why)
            return err_set(reterr, HF_ESYS, "cannot start a thread for %s: %s", m->shown,
                           strerror(why));
        m->started = true;
    }
    for (;;) {
        hf_err code;
        size_t open, up = count(q, &open, &code);
        int64_t now = clock_now_ms();
        if (up >= quorum_majority(q))
            wait = limit_earlier(&wait, now + 2 * (now - begun) + STRAGGLERS_MS);
        if (open == 0 && up >= quorum_majority(q))
            return enough(q);
        if (open == 0 || limit_over(&wait))
            return up >= quorum_majority(q) ? enough(q) : too_few(q, up, code, reterr);
        park_wait(&q->news, now + limit_tick_ms(&wait));
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

static hf_err member_init(struct quorum *q, size_t i, const struct url *u, int64_t timeout_ms,
                          hf_error *reterr)
{
    struct member *m = &q->member[i];
    struct conn_hooks hooks = { .greet = member_greet, .arg = m, .stop = &q->stopping };
    int64_t connect_ms = u->connect_timeout_ms > 0 ? u->connect_timeout_ms
                         : timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS;
    m->q = q;
    m->index = i;
    mutex_init(&m->mu, MUTEX_MEMBER);
    atomic_store(&m->begun_ms, CLOCK_NEVER);
    stream_address(&u->hosts[i], m->shown, sizeof m->shown);
    m->conn = conn_new(u, &u->hosts[i], connect_ms,
                       timeout_ms < SILENCE_MS ? timeout_ms : SILENCE_MS, &hooks, q->log);
    q->n = i + 1;
    return m->conn ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_err quorum_open(const struct url *u, int64_t timeout_ms, topo_greet greet_fn, void *arg,
                   const struct log *log, struct quorum **ret, hf_error *reterr)
{
    struct quorum *q = mem_zalloc(sizeof *q + u->nhosts * sizeof q->member[0]);
    if (!q)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    mutex_init(&q->mu, MUTEX_QUORUM);
    q->log = log;
    q->url = u;
    q->greet = greet_fn;
    q->arg = arg;
    q->quarantine_ms = u->quarantine_ms >= 0 ? u->quarantine_ms : QUORUM_QUARANTINE_MS;
    for (size_t i = 0; i < u->nhosts; i++) {
        hf_err e = member_init(q, i, u, timeout_ms, reterr);
        if (e) {
            quorum_free(q);
            return e;
        }
    }
    *ret = q;
    return HF_OK;
}

/* What was sent and is not read yet would be lost with the connection: releases among it. */
static void drain(struct quorum *q)
{
    AUTO(mem_freep) struct request *r = mem_zalloc(q->n * sizeof *r);
    hf_bytes argv[] = { hf_str("PING") };
    struct park park = { 0 };
    struct task t = { .park = &park };
    int64_t deadline = clock_now_ms() + STRAGGLERS_MS;
    size_t n = 0;
    for (size_t i = 0; r && i < q->n; i++) {
        struct command ping;
        if (!q->member[i].conn || command_make(&ping, 1, argv)) /* not even opened */
            break;
        r[n] = (struct request){ .deadline_ms = deadline, .only_up = true };
        conn_submit(q->member[i].conn, &r[n++], &ping, &t);
    }
    if (n)
        undos_wait(&t, r, n, deadline);
}

struct quorum *quorum_free(struct quorum *q)
{
    if (!q)
        return NULL;
    drain(q);
    atomic_store(&q->stopping, 1);
    for (size_t i = 0; i < q->n; i++) {
        park_wake(&q->member[i].park);
        if (q->member[i].started)
            thread_join(q->member[i].thread);
    }
    for (size_t i = 0; i < q->n; i++)
        conn_free(q->member[i].conn);
    for (size_t i = 0; i < q->n; i++) {
        quorum_sub_free(q->member[i].sub);
        undos_clear(&q->member[i]);
        mutex_destroy(&q->member[i].mu);
    }
    mutex_destroy(&q->mu);
    mem_free(q->channel);
    mem_free(q);
    return NULL;
}

struct quorum *quorum_forget(struct quorum *q)
{
    if (!q)
        return NULL;
    for (size_t i = 0; i < q->n; i++) {
        mutex_init(&q->member[i].mu, MUTEX_MEMBER); /* whoever held it is not here */
        conn_forget(q->member[i].conn);
        quorum_sub_forget(q->member[i].sub);
        undos_clear(&q->member[i]);
    }
    mem_free(q->channel);
    mem_free(q);
    return NULL;
}

/* ---- what others ask ------------------------------------------------------------------------- */

size_t quorum_size(const struct quorum *q)
{
    return q->n;
}

size_t quorum_majority(const struct quorum *q)
{
    return q->n / 2 + 1;
}

unsigned quorum_ups(const struct quorum *q)
{
    return atomic_load(&q->ups);
}

struct conn *quorum_conn(const struct quorum *q, size_t i)
{
    return q->member[i].conn;
}

const char *quorum_shown(const struct quorum *q, size_t i)
{
    return q->member[i].shown;
}

const struct log *quorum_log(const struct quorum *q)
{
    return q->log;
}

void quorum_used(struct quorum *q, int64_t ttl_ms)
{
    int64_t longest = atomic_load(&q->longest_ttl_ms);
    while (ttl_ms > longest
           && !atomic_compare_exchange_weak(&q->longest_ttl_ms, &longest, ttl_ms))
        ;
}

int64_t quorum_longest_ttl_ms(const struct quorum *q)
{
    return atomic_load(&q->longest_ttl_ms);
}

void quorum_set_agreed(struct quorum *q)
{
    atomic_store(&q->agreed_ms, clock_now_ms());
}

int64_t quorum_agreed_ms(const struct quorum *q)
{
    return atomic_load(&q->agreed_ms);
}

hf_err quorum_listen(struct quorum *q, const char *channel, quorum_heard heard, void *arg)
{
    if (atomic_load(&q->listening))
        return HF_OK;
    mutex_lock(&q->mu);
    bool first = !q->channel && (q->channel = mem_copy(channel, strlen(channel)));
    if (first) {
        q->heard = heard;
        q->heard_arg = arg;
        atomic_store(&q->listening, true);
    }
    bool listening = q->channel != NULL;
    mutex_unlock(&q->mu);
    for (size_t i = 0; i < q->n && first; i++)
        park_wake(&q->member[i].park);
    return listening ? HF_OK : HF_ENOMEM;
}

bool quorum_hears(const struct quorum *q)
{
    return (size_t)atomic_load(&q->subscribed) >= quorum_majority(q);
}
