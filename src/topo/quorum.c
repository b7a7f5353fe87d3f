/* SPDX-License-Identifier: MIT
 * quorum.c - several independent servers, of which a majority decides.
 *
 *      down -> up      [tend]   its thread connects; it is greeted, looked at, and does its chores
 *      up -> down      [conn.c] it closed the connection, or was silent for too long
 *
 * A member may vote when it is up and not young: one that restarted without an append-only file has
 * forgotten what it had granted, and counts as a refusal until that cannot matter any more.
 */
#include "topo/quorum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/park.h"
#include "base/random.h"
#include "base/thread.h"

#define CONNECT_MS    3000 /* one attempt, if the URL says nothing else */
#define SILENCE_MS    1000 /* a reply overdue by that: a fresh connection may do better */
#define PAUSE_MIN_MS  10
#define PAUSE_MAX_MS  1000
#define CHORE_MS      1000
#define CHORES_MAX    1000 /* beyond that the ttl has to do */
#define STRAGGLERS_MS 50   /* for those that answer after a majority has */

struct member {
    struct quorum         *q;
    size_t                 index;
    struct conn           *conn;
    char                   shown[300];
    pthread_t              thread;
    bool                   started;
    struct park            park;
    char                   run_id[64]; /* under the quorum's lock */
    _Atomic uint64_t       scripts; /* bit n: number n was sent as text on this connection */

    pthread_mutex_t        mu; /* guards the rest; no lock is taken under it */
    bool                   tried;
    hf_error               why; /* of the last failed attempt to connect */
    bool                   keeps; /* it has an append-only file */
    int64_t                born_ms; /* at the latest, by our own clock */
    int64_t                offset_ms; /* its clock less ours */
    bool                   offset_known;
    struct chore          *chores;
    size_t                 nchores;
};

struct quorum {
    const struct log *log;
    topo_greet        greet;
    void             *arg;
    int64_t           quarantine_ms;
    atomic_int        stopping;
    struct conn_bells bells;
    _Atomic int64_t   longest_ttl_ms;
    _Atomic(char *)   fence_key;
    pthread_mutex_t   mu;   /* guards every run_id */
    struct park       news; /* for quorum_connect(): a member was tried */
    size_t            n;
    struct member     member[];
};

/* ---- chores -------------------------------------------------------------------------------- */

/* Thread: any. Holds: the connection. */
static void chore_over(struct conn_keepsake *k, bool settled)
{
    struct chore *ch = (struct chore *)((char *)k - offsetof(struct chore, keepsake));
    if (settled)
        mem_free(ch);
    else
        quorum_owe(ch);
}

struct chore *quorum_chore(struct quorum *q, size_t i, int argc, const hf_bytes *argv,
                           int64_t until_ms)
{
    size_t size = 0;
    for (int a = 2; a < argc; a++)
        size += argv[a].len + 1;
    struct chore *ch = mem_zalloc(sizeof *ch + size);
    if (!ch)
        return NULL;
    ch->keepsake.over = chore_over;
    ch->q = q;
    ch->member = i;
    ch->until_ms = until_ms;
    ch->argc = argc;
    char *p = ch->bytes;
    for (int a = 0; a < argc; a++) {
        ch->argv[a] = argv[a];
        if (a < 2)
            continue;
        if (argv[a].len)
            memcpy(p, argv[a].data, argv[a].len);
        ch->argv[a].data = p;
        p += argv[a].len + 1;
    }
    return ch;
}

void quorum_owe(struct chore *ch)
{
    if (!ch)
        return;
    struct member *m = &ch->q->member[ch->member];
    pthread_mutex_lock(&m->mu);
    bool room = m->nchores < CHORES_MAX;
    if (room) {
        struct chore **p = &m->chores;
        while (*p)
            p = &(*p)->next;
        ch->next = NULL;
        *p = ch;
        m->nchores++;
    }
    pthread_mutex_unlock(&m->mu);
    if (!room)
        mem_free(ch);
    park_wake(&m->park);
}

static struct chore *take_chore(struct member *m)
{
    pthread_mutex_lock(&m->mu);
    struct chore *ch = m->chores;
    if (ch) {
        m->chores = ch->next;
        m->nchores--;
    }
    pthread_mutex_unlock(&m->mu);
    return ch;
}

/* Do them in order, by do_one(); one that got no answer is due again. */
static hf_err do_chores(struct member *m, hf_err (*do_one)(void *how, const struct chore *ch),
                        void *how)
{
    struct chore *ch;
    while ((ch = take_chore(m))) {
        hf_err e = clock_now_ms() < ch->until_ms ? do_one(how, ch) : HF_OK;
        if (e) {
            pthread_mutex_lock(&m->mu);
            ch->next = m->chores;
            m->chores = ch;
            m->nchores++;
            pthread_mutex_unlock(&m->mu);
            return e;
        }
        mem_free(ch);
    }
    return HF_OK;
}

struct greeting {
    struct link *link;
    int64_t      deadline_ms;
    hf_error    *reterr;
};

static hf_err chore_by_link(void *how, const struct chore *ch)
{
    struct greeting *g = how;
    struct reply *rp = NULL;
    hf_err e = link_exchange(g->link, ch->argc, ch->argv, g->deadline_ms, &rp, g->reterr);
    if (!e)
        reply_free(rp);
    return e;
}

static bool never_enough(void *arg, size_t i)
{
    struct conn_ask *ask = arg;
    ask[i].reply = reply_free(ask[i].reply);
    return false;
}

/* On this connection or none: on a fresh one they go before everything else. */
static hf_err chore_by_conn(void *how, const struct chore *ch)
{
    struct conn_ask ask = { .conn = how };
    hf_err e = conn_begin(how, ch->argc, ch->argv, NULL, &ask.request);
    if (e)
        return e;
    conn_gather(&ask, 1, &ch->q->bells, clock_now_ms() + CHORE_MS, NULL, never_enough, &ask);
    if (!ask.request)
        return ask.result;
    conn_abandon(ask.conn, ask.request);
    return HF_EUNSURE;
}

/* ---- who a member is ------------------------------------------------------------------------ */

/* A field of INFO; HF_EAUTH when this user may not ask. */
static hf_err info(struct greeting *g, const char *section, const char *const *field, size_t n,
                   char value[][64])
{
    struct reply *rp;
    hf_bytes argv[] = { hf_str("INFO"), hf_str(section) };
    hf_err e = link_exchange(g->link, 2, argv, g->deadline_ms, &rp, g->reterr);
    if (e)
        return e;
    for (size_t i = 0; i < n && !e; i++) {
        const char *at = rp->type == REPLY_BULK ? strstr(rp->str, field[i]) : NULL;
        if (!at) {
            e = err_set(g->reterr, HF_EAUTH,
                        "INFO does not tell %s: a quorum must know whether a member restarted (see "
                        "docs/acl.md)", field[i]);
            break;
        }
        at += strlen(field[i]);
        snprintf(value[i], 64, "%.*s", (int)(at[0] == ':' ? strcspn(at + 1, "\r\n") : 0), at + 1);
    }
    reply_free(rp);
    return e;
}

/* One server under two names would vote twice. *ret_another: it is not the one that it was. */
static hf_err set_run_id(struct member *m, const char *run_id, bool *ret_another, hf_error *reterr)
{
    struct quorum *q = m->q;
    const struct member *twin = NULL;
    pthread_mutex_lock(&q->mu);
    for (size_t i = 0; i < q->n; i++)
        if (&q->member[i] != m && strcmp(q->member[i].run_id, run_id) == 0)
            twin = &q->member[i];
    *ret_another = m->run_id[0] && strcmp(m->run_id, run_id) != 0;
    if (!twin)
        snprintf(m->run_id, sizeof m->run_id, "%s", run_id);
    pthread_mutex_unlock(&q->mu);
    if (twin)
        return err_set(reterr, HF_ECONFIG, "it is the same server as %s: name each once",
                       twin->shown);
    return HF_OK;
}

static hf_err look(struct member *m, struct greeting *g)
{
    static const char *const life[] = { "run_id", "uptime_in_seconds" };
    static const char *const memory[] = { "aof_enabled" };
    char value[3][64];
    bool another = false;
    hf_err e = info(g, "server", life, 2, value);
    if (!e)
        e = info(g, "persistence", memory, 1, value + 2);
    if (!e)
        e = set_run_id(m, value[0], &another, g->reterr);
    if (e)
        return e;
    int64_t now = clock_now_ms(), uptime = strtoll(value[1], NULL, 10) * 1000;
    pthread_mutex_lock(&m->mu);
    m->keeps = strcmp(value[2], "1") == 0;
    /* Its uptime is a difference of wall clocks; what we saw ourselves is surer. */
    m->born_ms = another || uptime < 0 ? now : uptime < now ? now - uptime : 0;
    m->offset_known = m->offset_known && !another;
    atomic_store(&m->scripts, 0);
    bool keeps = m->keeps;
    pthread_mutex_unlock(&m->mu);
    if (another)
        log_to(m->q->log, HF_LOG_WARNING, "%s restarted%s", m->shown,
               keeps ? "" : " without an append-only file: it does not vote until what it forgot "
                            "cannot matter any more");
    return HF_OK;
}

static hf_err greet(void *arg, struct link *l, int64_t deadline_ms, hf_error *reterr)
{
    struct member *m = arg;
    struct greeting g = { l, deadline_ms, reterr };
    hf_err e = m->q->greet(m->q->arg, l, deadline_ms, reterr);
    if (!e)
        e = look(m, &g);
    /* Before anybody hears of the connection: what is cancelled must not be found and counted. */
    return e ? e : do_chores(m, chore_by_link, &g);
}

int64_t quorum_young_ms(struct quorum *q, size_t i, int64_t ttl_ms)
{
    struct member *m = &q->member[i];
    int64_t needed = q->quarantine_ms && ttl_ms > q->quarantine_ms ? ttl_ms : q->quarantine_ms;
    pthread_mutex_lock(&m->mu);
    int64_t left = m->keeps ? 0 : m->born_ms + needed - clock_now_ms();
    pthread_mutex_unlock(&m->mu);
    return left > 0 ? left : 0;
}

void quorum_compare_clocks(struct quorum *q, size_t i, int64_t server_ms, int64_t sent_ms,
                           int64_t ttl_ms)
{
    struct member *m = &q->member[i];
    int64_t now = clock_now_ms();
    if (server_ms <= 0 || server_ms > INT64_MAX / 4)
        return; /* no time at all */
    int64_t offset = server_ms - (sent_ms + now) / 2, allowed = ttl_ms / 100 + (now - sent_ms) + 10;
    pthread_mutex_lock(&m->mu);
    int64_t moved = offset - m->offset_ms;
    bool jumped = m->offset_known && (moved > allowed || moved < -allowed);
    m->offset_ms = offset;
    m->offset_known = true;
    pthread_mutex_unlock(&m->mu);
    if (jumped)
        log_to(q->log, HF_LOG_WARNING,
               "the clock of %s moved by %+lld ms against ours: leases end that much %s there, and "
               "its vote is worth less meanwhile", m->shown, (long long)moved,
               moved > 0 ? "earlier" : "later");
}

/* ---- staying connected ------------------------------------------------------------------------ */

static void tried(struct member *m, hf_err e, const hf_error *why)
{
    pthread_mutex_lock(&m->mu);
    bool news = e && strcmp(m->why.message, why->message) != 0;
    m->tried = true;
    m->why = *why;
    m->why.code = e;
    pthread_mutex_unlock(&m->mu);
    if (news)
        log_to(m->q->log, HF_LOG_WARNING, "%s does not vote: %s", m->shown, why->message);
    park_wake(&m->q->news);
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
            hf_err e = conn_connect(m->conn, CLOCK_NEVER, &why);
            bool up = conn_epoch(m->conn) != 0;
            if (e || up)
                tried(m, e, &why);
            not_before = clock_now_ms() + random_between(pause / 2, pause);
            pause = up ? PAUSE_MIN_MS : 2 * pause < PAUSE_MAX_MS ? 2 * pause : PAUSE_MAX_MS;
        } else if (!conn_epoch(m->conn)) {
            park_wait(&m->park, not_before);
        } else {
            hf_err e = do_chores(m, chore_by_conn, m->conn);
            park_wait(&m->park, e ? now + PAUSE_MAX_MS : CLOCK_NEVER);
        }
    }
    return NULL;
}

bool quorum_knows(struct quorum *q, size_t i, unsigned script)
{
    uint64_t bit = UINT64_C(1) << script % 64;
    return atomic_fetch_or(&q->member[i].scripts, bit) & bit;
}

void quorum_mend(struct quorum *q, size_t i)
{
    park_wake(&q->member[i].park);
}

void quorum_why(struct quorum *q, size_t i, char *buf, size_t size)
{
    struct member *m = &q->member[i];
    pthread_mutex_lock(&m->mu);
    snprintf(buf, size, "%s", m->why.code ? m->why.message : "not connected yet");
    pthread_mutex_unlock(&m->mu);
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
        pthread_mutex_lock(&m->mu);
        up += connected;
        *ret_open += !connected && !m->tried;
        if (!connected && m->tried)
            *ret_code = !*ret_code || *ret_code == m->why.code ? m->why.code : HF_ECONN;
        pthread_mutex_unlock(&m->mu);
    }
    return up;
}

static hf_err too_few(struct quorum *q, size_t up, hf_err code, hf_error *reterr)
{
    char said[420] = "", why[200];
    size_t used = 0;
    for (size_t i = 0; i < q->n && used < sizeof said; i++) {
        if (conn_epoch(q->member[i].conn))
            continue;
        quorum_why(q, i, why, sizeof why);
        used += (size_t)snprintf(said + used, sizeof said - used, "; %s: %.90s", q->member[i].shown,
                                 why);
    }
    /* What no waiting mends keeps its own code. */
    if (code != HF_EAUTH && code != HF_ECONFIG && code != HF_ECOUNTER)
        code = HF_ENOQUORUM;
    return err_set(reterr, code, "%zu of %zu servers answer, %zu are needed%s", up, q->n,
                   quorum_majority(q), said);
}

hf_err quorum_connect(struct quorum *q, int64_t deadline_ms, hf_error *reterr)
{
    int64_t begun = clock_now_ms(), limit = deadline_ms;
    for (size_t i = 0; i < q->n; i++) {
        struct member *m = &q->member[i];
        int why = m->started ? 0 : thread_start(&m->thread, tend, m);
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
            limit = clock_earlier(limit, now + 2 * (now - begun) + STRAGGLERS_MS);
        if (open == 0 && up >= quorum_majority(q))
            return HF_OK;
        if (open == 0 || now >= limit)
            return up >= quorum_majority(q) ? HF_OK : too_few(q, up, code, reterr);
        park_wait(&q->news, limit);
    }
}

/* ---- opening and closing ------------------------------------------------------------------------ */

static hf_err member_init(struct quorum *q, size_t i, const struct url *u, int64_t timeout_ms,
                          hf_error *reterr)
{
    struct member *m = &q->member[i];
    struct conn_hooks hooks = { .greet = greet, .arg = m, .stop = &q->stopping };
    int64_t connect_ms = u->connect_timeout_ms > 0 ? u->connect_timeout_ms
                         : timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS;
    m->q = q;
    m->index = i;
    pthread_mutex_init(&m->mu, NULL);
    stream_address(&u->hosts[i], m->shown, sizeof m->shown);
    m->conn = conn_new(u, &u->hosts[i], connect_ms, timeout_ms < SILENCE_MS ? timeout_ms : SILENCE_MS,
                       &hooks, q->log);
    q->n = i + 1;
    return m->conn ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_err quorum_open(const struct url *u, int64_t timeout_ms, topo_greet greet_fn, void *arg,
                   const struct log *log, struct quorum **ret, hf_error *reterr)
{
    struct quorum *q = mem_zalloc(sizeof *q + u->nhosts * sizeof q->member[0]);
    if (!q)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    pthread_mutex_init(&q->mu, NULL);
    conn_bells_init(&q->bells);
    q->log = log;
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
    struct conn_ask ask[QUORUM_MAX] = { 0 };
    hf_bytes argv[] = { hf_str("PING") };
    for (size_t i = 0; i < q->n; i++) {
        ask[i].conn = q->member[i].conn;
        if (conn_begin(ask[i].conn, 1, argv, NULL, &ask[i].request))
            ask[i].request = NULL;
    }
    conn_gather(ask, q->n, &q->bells, clock_now_ms() + STRAGGLERS_MS, NULL, never_enough, ask);
    for (size_t i = 0; i < q->n; i++)
        if (ask[i].request)
            conn_abandon(ask[i].conn, ask[i].request);
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
            pthread_join(q->member[i].thread, NULL);
    }
    for (size_t i = 0; i < q->n; i++)
        conn_free(q->member[i].conn);
    for (size_t i = 0; i < q->n; i++) {
        for (struct chore *ch; (ch = take_chore(&q->member[i]));)
            mem_free(ch);
        pthread_mutex_destroy(&q->member[i].mu);
    }
    pthread_mutex_destroy(&q->mu);
    conn_bells_clear(&q->bells);
    mem_free(atomic_load(&q->fence_key));
    mem_free(q);
    return NULL;
}

struct quorum *quorum_forget(struct quorum *q)
{
    if (!q)
        return NULL;
    for (size_t i = 0; i < q->n; i++) {
        pthread_mutex_init(&q->member[i].mu, NULL); /* whoever held it is not here */
        conn_forget(q->member[i].conn);
        for (struct chore *ch; (ch = take_chore(&q->member[i]));)
            mem_free(ch);
    }
    mem_free(atomic_load(&q->fence_key));
    mem_free(q);
    return NULL;
}

/* ---- what others ask ---------------------------------------------------------------------------- */

size_t quorum_size(const struct quorum *q)
{
    return q->n;
}

size_t quorum_majority(const struct quorum *q)
{
    return q->n / 2 + 1;
}

struct conn *quorum_conn(const struct quorum *q, size_t i)
{
    return q->member[i].conn;
}

const char *quorum_shown(const struct quorum *q, size_t i)
{
    return q->member[i].shown;
}

struct conn_bells *quorum_bells(struct quorum *q)
{
    return &q->bells;
}

const struct log *quorum_log(const struct quorum *q)
{
    return q->log;
}

void quorum_used(struct quorum *q, int64_t ttl_ms, hf_bytes fence_key)
{
    int64_t longest = atomic_load(&q->longest_ttl_ms);
    while (ttl_ms > longest
           && !atomic_compare_exchange_weak(&q->longest_ttl_ms, &longest, ttl_ms))
        ;
    char *none = NULL, *copy;
    if (atomic_load(&q->fence_key) || !(copy = mem_copy(fence_key.data, fence_key.len)))
        return;
    if (!atomic_compare_exchange_strong(&q->fence_key, &none, copy))
        mem_free(copy);
}

int64_t quorum_longest_ttl_ms(const struct quorum *q)
{
    return atomic_load(&q->longest_ttl_ms);
}

const char *quorum_fence_key(const struct quorum *q)
{
    return atomic_load(&q->fence_key);
}
