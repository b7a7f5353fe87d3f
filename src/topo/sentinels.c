/* SPDX-License-Identifier: MIT
 * sentinels.c - the Sentinels of one URL, asked together.
 */
#include "topo/sentinels.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/link.h"
#include "net/servererr.h"
#include "topo/sentinel_words.h"

#define SEATS_MAX      64
#define CONNECT_MS     250  /* for one of them: the others wait meanwhile */
#define SLOW_MS        400  /* ... when that was not enough: it is far away, or has a lot to do */
#define PATIENT_MS     1000 /* ... when there is nobody else to ask */
#define SILENT_MS      1000 /* a question without an answer: the connection is dead */
#define SETTLE_MS      100
#define BACKOFF_MIN_MS 200
#define BACKOFF_MAX_MS 5000

/* A connection to a Sentinel that is made again by itself, ever more rarely. */
struct wire {
    struct link link;
    int64_t     retry_at_ms, backoff_ms;
};

struct sentinel_seat {
    const struct url_host *host;
    struct wire            ask, news;
    bool                   asked;    /* an answer is still to come */
    int64_t                asked_ms;
    struct reply          *answer;   /* to the present question */
    hf_err                 trouble;  /* why there is none */
    char                   why[160];
};

/* Addresses that a majority named; never many, and never forgotten: connections point to them. */
struct master_address {
    struct master_address   *next;
    struct url_host host;
    char            name[];
};

struct sentinels {
    struct url        login; /* the URL with the Sentinels' credentials; borrows all its text */
    const char       *master;
    const struct log *log;
    struct master_address     *places;
    bool              patient;
    size_t            n;
    struct sentinel_seat       seat[];
};

/* ---- open and close -------------------------------------------------------------------------- */

struct sentinels *sentinels_free(struct sentinels *co)
{
    if (!co)
        return NULL;
    for (size_t i = 0; i < co->n; i++) {
        reply_free(co->seat[i].answer);
        link_clear(&co->seat[i].ask.link);
        link_clear(&co->seat[i].news.link);
    }
    while (co->places) {
        struct master_address *p = co->places;
        co->places = p->next;
        mem_free(p);
    }
    mem_free(co);
    return NULL;
}

struct url sentinels_login(const struct url *u)
{
    struct url login = *u;
    login.user = u->sentinel_user;
    login.password = u->sentinel_password;
    login.db = 0;
    return login;
}

struct sentinels *sentinels_new(const struct url *u, const struct log *log)
{
    struct sentinels *co = mem_zalloc(sizeof *co + u->nhosts * sizeof co->seat[0]);
    if (!co)
        return NULL;
    co->login = sentinels_login(u);
    co->master = u->master;
    co->log = log;
    for (; co->n < u->nhosts; co->n++) {
        struct sentinel_seat *st = &co->seat[co->n];
        st->host = &u->hosts[co->n];
        int bad = link_init(&st->ask.link) < 0;
        bad |= link_init(&st->news.link) < 0;
        if (bad) {
            co->n++;
            return sentinels_free(co);
        }
    }
    return co;
}

/* ---- one Sentinel ---------------------------------------------------------------------------- */

static int64_t connect_until(const struct wire *w)
{
    return clock_now_ms() + (w->backoff_ms ? SLOW_MS : CONNECT_MS);
}

static void hang_up(struct wire *w)
{
    link_close(&w->link, false);
    w->backoff_ms = w->backoff_ms ? 2 * w->backoff_ms : BACKOFF_MIN_MS;
    if (w->backoff_ms > BACKOFF_MAX_MS)
        w->backoff_ms = BACKOFF_MAX_MS;
    w->retry_at_ms = clock_now_ms() + w->backoff_ms;
}

/* Connect if it is time to; HF_EBUSY: not yet. */
static hf_err dial(struct sentinels *co, struct sentinel_seat *st, struct wire *w,
                   const struct limit *lim,
                   hf_error *reterr)
{
    if (w->link.stream)
        return HF_OK;
    if (clock_now_ms() < w->retry_at_ms)
        return HF_EBUSY;
    hf_err e = link_open(&w->link, &co->login, st->host, lim, reterr);
    if (e && !limit_stopped(lim))
        hang_up(w);
    return e;
}

static void fail(struct sentinel_seat *st, hf_err e, const char *why)
{
    hang_up(&st->ask);
    st->asked = false;
    st->trouble = e;
    snprintf(st->why, sizeof st->why, "%s", why);
}

/* Put the question, unless an earlier one is still to be answered. */
static void question(struct sentinels *co, struct sentinel_seat *st, int argc, const hf_bytes *argv,
                     const struct limit *lim)
{
    hf_error err = { 0 };
    int64_t now = clock_now_ms();
    struct limit quick = limit_earlier(lim, co->patient ? now + PATIENT_MS
                                                        : connect_until(&st->ask));
    st->answer = reply_free(st->answer);
    if (st->asked && now - st->asked_ms > SILENT_MS)
        fail(st, HF_ECONN, "does not answer");
    if (st->asked)
        return;
    hf_err e = dial(co, st, &st->ask, &quick, &err);
    if (e == HF_EBUSY)
        return; /* the trouble is still the last one */
    if (!e) {
        st->asked_ms = clock_now_ms();
        e = link_send(&st->ask.link, argc, argv, &quick, &err);
    }
    st->asked = !e;
    if (e && limit_stopped(lim))
        link_close(&st->ask.link, false); /* that was not its fault */
    else if (e)
        fail(st, e, err.message);
}

/* Bytes are here: take the answer if it is whole. */
static void hear(struct sentinel_seat *st)
{
    struct link *l = &st->ask.link;
    struct reply *rp = NULL;
    ssize_t n = l->stream->ops->read_now(l->stream, l->buffer, sizeof l->buffer);
    if (n < 0 || (n > 0 && resp_feed(l->resp, l->buffer, (size_t)n)) || link_next(l, &rp)) {
        fail(st, HF_ECONN, "closed the connection");
        return;
    }
    if (!rp)
        return;
    st->asked = false;
    st->ask.backoff_ms = 0;
    st->trouble = HF_OK;
    if (rp->type == REPLY_ERROR) {
        hf_error err;
        st->trouble = server_refusal(rp, &err);
        snprintf(st->why, sizeof st->why, "%s", err.message);
        if (strstr(rp->str, "unknown command")) { /* the servers' own addresses were given */
            st->trouble = HF_ECONFIG;
            snprintf(st->why, sizeof st->why, "it is not a Sentinel: give the addresses of the "
                     "Sentinels, which listen on port 26379 as a rule");
        }
        reply_free(rp);
        return;
    }
    st->answer = rp;
}

/* ---- a round --------------------------------------------------------------------------------- */

/* Take answers until enough() says so, all have answered, or it is over. */
static void gather(struct sentinels *co, const struct limit *lim,
                   bool (*enough)(const struct sentinels *co))
{
    while (!enough(co)) {
        struct pollfd p[SEATS_MAX];
        size_t who[SEATS_MAX], n = 0;
        for (size_t i = 0; i < co->n && n < SEATS_MAX; i++) {
            if (co->seat[i].asked) {
                who[n] = i;
                p[n++] = (struct pollfd){ .fd = co->seat[i].ask.link.stream->fd, .events = POLLIN };
            }
        }
        if (n == 0 || limit_over(lim))
            return;
        poll(p, n, limit_tick_ms(lim));
        for (size_t k = 0; k < n; k++)
            if (p[k].revents)
                hear(&co->seat[who[k]]);
    }
}

static void ask_round(struct sentinels *co, int argc, const hf_bytes *argv, const struct limit *lim,
                      bool (*enough)(const struct sentinels *co))
{
    for (size_t i = 0; i < co->n; i++)
        question(co, &co->seat[i], argc, argv, lim);
    gather(co, lim, enough);
}

static bool never(const struct sentinels *co)
{
    (void)co;
    return false;
}

/* Nothing may be under way when another question is put: a late answer would be taken for one to
 * it. */
static void settle(struct sentinels *co, const struct limit *lim)
{
    struct limit quick = limit_earlier(lim, clock_now_ms() + SETTLE_MS);
    gather(co, &quick, never);
    for (size_t i = 0; i < co->n; i++)
        if (co->seat[i].asked)
            fail(&co->seat[i], HF_ECONN, "does not answer");
}

static bool is_address(const struct reply *rp)
{
    hf_bytes host;
    int port;
    return sentinel_address(rp, &host, &port);
}

static bool same(const struct reply *a, const struct reply *b)
{
    hf_bytes host[2];
    int port[2];
    return sentinel_address(a, &host[0], &port[0]) && sentinel_address(b, &host[1], &port[1])
           && port[0] == port[1] && strcasecmp(host[0].data, host[1].data) == 0;
}

/* The seat whose answer more than half of all share; -1: none. */
static int agreed(const struct sentinels *co)
{
    for (size_t i = 0; i < co->n; i++) {
        size_t votes = 0;
        for (size_t k = 0; k < co->n; k++)
            votes += same(co->seat[i].answer, co->seat[k].answer);
        if (2 * votes > co->n)
            return (int)i;
    }
    return -1;
}

static bool decided(const struct sentinels *co)
{
    return agreed(co) >= 0;
}

static const struct url_host *place_of(struct sentinels *co, const struct reply *rp)
{
    hf_bytes host;
    int port;
    if (!sentinel_address(rp, &host, &port))
        return NULL;
    for (struct master_address *p = co->places; p; p = p->next)
        if (p->host.port == port && strcasecmp(p->name, host.data) == 0)
            return &p->host;
    struct master_address *p = mem_zalloc(sizeof *p + host.len + 1);
    if (!p)
        return NULL;
    memcpy(p->name, host.data, host.len);
    p->host.host = p->name;
    p->host.port = port;
    p->next = co->places;
    co->places = p;
    return &p->host;
}

/* Why there is no majority. */
static hf_err explain(const struct sentinels *co, hf_error *reterr)
{
    char master[80], address[300], detail[420] = "";
    size_t answered = 0, unknown = 0, refused = 0, misled = 0;
    const struct sentinel_seat *senseless = NULL;
    err_quote(master, sizeof master, co->master, strlen(co->master));
    for (size_t i = 0; i < co->n; i++) {
        const struct sentinel_seat *st = &co->seat[i];
        bool nil = st->answer && st->answer->type == REPLY_NIL;
        answered += st->answer != NULL;
        unknown += nil;
        refused += !st->answer && st->trouble == HF_EAUTH;
        misled += !st->answer && st->trouble == HF_ECONFIG;
        if (st->answer && !nil && !is_address(st->answer))
            senseless = st;
        if (!st->trouble || detail[0])
            continue;
        stream_address(st->host, address, sizeof address);
        bool named = strstr(st->why, address) != NULL;
        snprintf(detail, sizeof detail, "; %s%s%s", named ? "" : address, named ? "" : ": ",
                 st->why);
    }
    if (2 * unknown > co->n)
        return err_set(reterr, HF_ECONFIG,
                       "the Sentinels know no master named %s: check the name in the URL", master);
    if (answered * 2 > co->n && senseless)
        return err_set(reterr, HF_ECONN,
                       "the Sentinels do not agree where the master %s is, and what %s says is no "
                       "address: look at SENTINEL GET-MASTER-ADDR-BY-NAME there",
                       master, stream_address(senseless->host, address, sizeof address));
    if (answered * 2 > co->n)
        return err_set(reterr, HF_ECONN,
                       "%zu of %zu Sentinels answered, but no %zu of them agree where the master "
                       "%s is: a failover may be under way",
                       answered, co->n, co->n / 2 + 1, master);
    /* Only if a majority refuses us is it for good: others may be back in a moment. */
    return err_set(reterr,
                   2 * refused > co->n ? HF_EAUTH : 2 * misled > co->n ? HF_ECONFIG : HF_ECONN,
                   "%zu of %zu Sentinels answered about the master %s, and %zu are needed%s",
                   answered, co->n, master, co->n / 2 + 1, detail);
}

hf_err sentinels_ask(struct sentinels *co, const struct limit *lim, struct sentinels_word *ret,
                   hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("SENTINEL"), hf_str("GET-MASTER-ADDR-BY-NAME"), hf_str(co->master) };
    ask_round(co, 3, argv, lim, decided);
    int who = agreed(co);
    ret->answered = 0;
    for (size_t i = 0; i < co->n; i++)
        ret->answered += co->seat[i].answer != NULL;
    if (who < 0)
        return explain(co, reterr);
    const struct reply *word = co->seat[who].answer;
    ret->asked_ms = CLOCK_NEVER;
    for (size_t i = 0; i < co->n; i++)
        if (same(word, co->seat[i].answer))
            ret->asked_ms = clock_earlier(ret->asked_ms, co->seat[i].asked_ms);
    ret->master = place_of(co, word);
    return ret->master ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
}

hf_err sentinels_ask_patiently(struct sentinels *co, const struct limit *lim,
                               struct sentinels_word *ret, hf_error *reterr)
{
    for (size_t i = 0; i < co->n; i++)
        co->seat[i].ask.retry_at_ms = 0;
    co->patient = true;
    hf_err e = sentinels_ask(co, lim, ret, reterr);
    co->patient = false;
    return e;
}

/* ---- how many replicas there should be ------------------------------------------------------- */

/* How many said anything about the master. */
static size_t tellers(const struct sentinels *co)
{
    size_t n = 0;
    for (size_t i = 0; i < co->n; i++)
        n += co->seat[i].answer && co->seat[i].answer->type == REPLY_ARRAY;
    return n;
}

static bool most_told(const struct sentinels *co)
{
    return 2 * tellers(co) > co->n;
}

/* The median of what makes sense: a minority can make it neither larger nor smaller than what one
 * of the others says. Of two in the middle the larger one. -1: no majority is left. */
static int median_told(const struct sentinels *co)
{
    int said[URL_REPLICAS_MAX + 1] = { 0 };
    size_t n = 0, at_most = 0;
    for (size_t i = 0; i < co->n; i++) {
        int k = sentinel_replicas(co->seat[i].answer);
        if (k >= 0) {
            said[k]++;
            n++;
        }
    }
    for (int k = 0; 2 * n > co->n && k <= URL_REPLICAS_MAX; k++) {
        at_most += (size_t)said[k];
        if (at_most > n / 2)
            return k;
    }
    return -1;
}

hf_err sentinels_replicas(struct sentinels *co, const struct limit *lim, int *ret, hf_error *reterr)
{
    hf_bytes argv[] = { hf_str("SENTINEL"), hf_str("MASTER"), hf_str(co->master) };
    settle(co, lim);
    ask_round(co, 3, argv, lim, most_told);
    if (!most_told(co))
        return explain(co, reterr);
    settle(co, lim); /* the more of them are heard, the less one of them can do */
    int n = median_told(co);
    if (n < 0)
        return err_set(reterr, HF_EPROTO,
                       "no majority of the Sentinels says how many replicas there are (num-slaves, "
                       "0 to %d): look at SENTINEL MASTER, or give a number with replicas=",
                       URL_REPLICAS_MAX);
    *ret = n;
    return HF_OK;
}

/* ---- news ------------------------------------------------------------------------------------ */

/* "NAME OLD-HOST OLD-PORT NEW-HOST NEW-PORT" */
static bool is_ours(const struct sentinels *co, const struct reply *rp)
{
    size_t len = strlen(co->master);
    return rp->type == REPLY_ARRAY && rp->len == 3 && rp->item[2]->type == REPLY_BULK
           && rp->item[2]->len > len && memcmp(rp->item[2]->str, co->master, len) == 0
           && rp->item[2]->str[len] == ' ';
}

static void subscribe(struct sentinels *co, struct sentinel_seat *st, const atomic_int *stop)
{
    hf_bytes argv[] = { hf_str("SUBSCRIBE"), hf_str("+switch-master") };
    struct wire *w = &st->news;
    struct limit quick = { connect_until(w), stop };
    struct reply *rp = NULL;
    if (w->link.stream || dial(co, st, w, &quick, NULL))
        return;
    hf_err e = link_exchange(&w->link, 2, argv, &quick, &rp, NULL);
    if (e || rp->type != REPLY_ARRAY)
        hang_up(w);
    else
        w->backoff_ms = 0;
    if (!e)
        reply_free(rp);
}

/* Read one Sentinel's news. True: of our master. */
static bool read_news(struct sentinels *co, struct wire *w)
{
    struct link *l = &w->link;
    bool ours = false;
    ssize_t n = l->stream->ops->read_now(l->stream, l->buffer, sizeof l->buffer);
    bool over = n < 0 || (n > 0 && resp_feed(l->resp, l->buffer, (size_t)n));
    struct reply *rp = NULL;
    while (!over && !(over = link_next(l, &rp) != HF_OK) && rp) {
        ours |= is_ours(co, rp);
        rp = reply_free(rp);
    }
    if (over)
        hang_up(w);
    return ours;
}

bool sentinels_listen(struct sentinels *co, int ring_fd, int64_t until_ms, const atomic_int *stop)
{
    struct pollfd p[SEATS_MAX + 1] = { { .fd = ring_fd, .events = POLLIN } };
    size_t who[SEATS_MAX], n = 0;
    for (size_t i = 0; i < co->n && n < SEATS_MAX; i++) {
        subscribe(co, &co->seat[i], stop);
        if (!co->seat[i].news.link.stream)
            continue;
        who[n++] = i;
        p[n] = (struct pollfd){ .fd = co->seat[i].news.link.stream->fd, .events = POLLIN };
    }
    int64_t left = until_ms - clock_now_ms();
    poll(p, n + 1, left < 0 ? 0 : left > 1000 ? 1000 : (int)left);
    bool ours = false;
    for (size_t k = 0; k < n; k++)
        if (p[k + 1].revents)
            ours |= read_news(co, &co->seat[who[k]].news);
    return ours;
}
