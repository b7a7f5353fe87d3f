/* SPDX-License-Identifier: MIT
 * feed.c - hearing which keys of our prefix change, for who watches.
 */
#include "session/feed.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "topo/cluster.h"
#include "topo/slot.h"

#define SOURCES_MAX  256
#define CONNECT_MS   2000
#define RETRY_MS     500
#define PING_MS      5000 /* and so long is waited for the answer */
#define FOLLOW_MS    2000 /* how often it is looked whether there are other masters now */
#define POLL_MAX_MS  1000
#define INVALIDATED  "__redis__:invalidate"

/* One master. */
struct source {
    int         place;          /* in a cluster: which server, as cluster_place() counts */
    unsigned    moves;          /* of the topology, when it was connected */
    char        key[SLOT_TEXT_SIZE + 2]; /* one that it has; elsewhere any */
    struct link hear, ask;
    bool        up, pinged; /* pinged: and not answered yet */
    int64_t     try_at_ms, ping_at_ms;
};

struct feed {
    hf_client        *c;
    struct feed_hooks hooks;
    size_t            n;
    struct source    *source[SOURCES_MAX];
    int64_t           follow_at_ms;
};

/* ---- one master ------------------------------------------------------------------------------ */

static struct source *source_free(struct source *s)
{
    if (!s)
        return NULL;
    link_clear(&s->hear);
    link_clear(&s->ask);
    mem_free(s);
    return NULL;
}

/* A key that it has. */
static void set_key(struct source *s, unsigned slot)
{
    char text[SLOT_TEXT_SIZE];
    slot_text(slot, text);
    snprintf(s->key, sizeof s->key, "{%s}", text);
}

static struct source *source_new(int place, unsigned slot)
{
    struct source *s = mem_zalloc(sizeof *s);
    if (!s)
        return NULL;
    s->place = place;
    set_key(s, slot);
    if (link_init(&s->hear) == 0 && link_init(&s->ask) == 0)
        return s;
    return source_free(s);
}

static void shut(struct source *s)
{
    link_close(&s->hear, false);
    link_close(&s->ask, false);
    s->up = false;
    s->try_at_ms = clock_now_ms() + RETRY_MS;
}

/* One command whose reply is of this type; anything else is an error. */
static hf_err command(struct link *l, int argc, const hf_bytes *argv, enum reply_type type,
                      const struct limit *lim, struct reply **ret, hf_error *reterr)
{
    hf_err e = link_exchange(l, argc, argv, lim, ret, reterr);
    if (e)
        return e;
    if ((*ret)->type == REPLY_ERROR)
        e = server_refusal(*ret, reterr);
    else if ((*ret)->type != type)
        e = err_set(reterr, HF_EPROTO, "the answer to %.*s makes no sense", (int)argv[0].len,
                    (const char *)argv[0].data);
    if (e)
        *ret = reply_free(*ret);
    return e;
}

/* The connection that hears; *ret_id is how the other one names it. */
static hf_err begin_to_hear(struct feed *f, struct source *s, const struct limit *lim,
                            char id[24], hf_error *reterr)
{
    struct reply *rp = NULL;
    bool first = s == f->source[0]; /* what clients publish is heard at every node of a cluster */
    hf_bytes ask_id[] = { hf_str("CLIENT"), hf_str("ID") };
    hf_bytes subscribe[] = { hf_str("SUBSCRIBE"), hf_str(INVALIDATED), hf_str(f->c->events) };
    hf_err e = topo_link(f->c->topo, hf_str(s->key), &s->hear, lim, reterr);
    if (!e)
        e = command(&s->hear, 2, ask_id, REPLY_INT, lim, &rp, reterr);
    if (e)
        return e;
    snprintf(id, 24, "%lld", rp->num);
    reply_free(rp);
    e = command(&s->hear, first ? 3 : 2, subscribe, REPLY_ARRAY, lim, &rp, reterr);
    if (!e)
        reply_free(rp); /* a second channel is confirmed like a message, and passed over */
    return e;
}

/* The connection that asks for it. Keys are under the prefix, or beside such a key: {KEY}:q. */
static hf_err ask_for_it(struct feed *f, struct source *s, const char *id, const struct limit *lim,
                         hf_error *reterr)
{
    char braced[300];
    struct reply *rp = NULL;
    const char *prefix = f->c->prefix;
    snprintf(braced, sizeof braced, "{%s", prefix);
    /* Prefixes must not begin alike: an empty one covers all. */
    int argc = !*prefix ? 6 : prefix[0] == '{' ? 8 : 10;
    hf_bytes argv[] = { hf_str("CLIENT"), hf_str("TRACKING"), hf_str("ON"), hf_str("REDIRECT"),
                        hf_str(id), hf_str("BCAST"), hf_str("PREFIX"), hf_str(prefix),
                        hf_str("PREFIX"), hf_str(braced) };
    hf_err e = topo_link(f->c->topo, hf_str(s->key), &s->ask, lim, reterr);
    if (!e)
        e = command(&s->ask, argc, argv, REPLY_STATUS, lim, &rp, reterr);
    reply_free(rp);
    return e;
}

static hf_err source_connect(struct feed *f, struct source *s, int64_t deadline_ms,
                             hf_error *reterr)
{
    char id[24];
    struct limit lim = { deadline_ms, NULL };
    s->moves = topo_moves(f->c->topo);
    hf_err e = begin_to_hear(f, s, &lim, id, reterr);
    if (!e)
        e = ask_for_it(f, s, id, &lim, reterr);
    if (e) {
        shut(s);
        return e;
    }
    s->up = true;
    s->pinged = false;
    s->ping_at_ms = clock_now_ms() + PING_MS;
    f->hooks.unknown(f->hooks.arg);
    return HF_OK;
}

/* ---- hearing --------------------------------------------------------------------------------- */

static bool is_word(const struct reply *rp, const char *word)
{
    return rp->str && strcmp(rp->str, word) == 0;
}

static void keys_changed(struct feed *f, const struct reply *keys)
{
    if (keys->type == REPLY_NIL)
        f->hooks.unknown(f->hooks.arg);
    for (size_t i = 0; keys->type == REPLY_ARRAY && i < keys->len; i++)
        if (keys->item[i]->type == REPLY_BULK)
            f->hooks.changed(f->hooks.arg, (hf_bytes){ keys->item[i]->str, keys->item[i]->len });
}

static void heard(struct feed *f, struct source *s, const struct reply *rp)
{
    if (rp->type != REPLY_ARRAY || rp->len < 2)
        return;
    if (is_word(rp->item[0], "pong"))
        s->pinged = false;
    if (rp->len != 3 || !is_word(rp->item[0], "message"))
        return;
    if (is_word(rp->item[1], INVALIDATED))
        keys_changed(f, rp->item[2]);
    else if (rp->item[2]->type == REPLY_BULK)
        f->hooks.told(f->hooks.arg, (hf_bytes){ rp->item[2]->str, rp->item[2]->len });
}

/* What is there; false: the connection is over. */
static bool take_in(struct feed *f, struct source *s, struct link *l)
{
    struct reply *rp;
    ssize_t n;
    do {
        n = l->stream->ops->read_now(l->stream, l->buffer, sizeof l->buffer);
        if (n < 0 || (n > 0 && resp_feed(l->resp, l->buffer, (size_t)n)))
            return false;
        for (;;) {
            if (link_next(l, &rp))
                return false;
            if (!rp)
                break;
            if (l == &s->hear)
                heard(f, s, rp);
            reply_free(rp);
        }
    } while (n > 0);
    return true;
}

/* A connection on which nothing is heard may be dead, and that which asks has nothing to say. */
static void ping(struct source *s, int64_t now)
{
    hf_bytes argv[] = { hf_str("PING") };
    struct limit lim = { now + PING_MS, NULL };
    bool dead = s->pinged || link_send(&s->hear, 1, argv, &lim, NULL)
                || link_send(&s->ask, 1, argv, &lim, NULL);
    s->pinged = true;
    s->ping_at_ms = now + PING_MS;
    if (dead)
        shut(s);
}

static void tend(struct feed *f, struct source *s, int64_t now)
{
    bool moved = s->moves != topo_moves(f->c->topo);
    if (s->up && moved)
        shut(s);
    if (!s->up && (now >= s->try_at_ms || moved))
        (void)source_connect(f, s, now + CONNECT_MS, NULL);
    else if (s->up && now >= s->ping_at_ms)
        ping(s, now);
}

/* ---- all masters ----------------------------------------------------------------------------- */

static struct source *source_at(struct feed *f, int place)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->source[i]->place == place)
            return f->source[i];
    return NULL;
}

static void drop_others(struct feed *f, const bool *serves)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (serves[f->source[i]->place])
            f->source[n++] = f->source[i];
        else
            source_free(f->source[i]);
    }
    f->n = n;
}

/* Which masters there are now. */
static void follow(struct feed *f)
{
    struct cluster *cl = topo_cluster(f->c->topo);
    bool serves[SOURCES_MAX] = { false };
    if (!cl) {
        struct source *only = f->n ? NULL : source_new(0, 0);
        if (only)
            f->source[f->n++] = only;
        return;
    }
    for (unsigned slot = 0; slot < SLOT_COUNT; slot++) {
        const struct url_host *host;
        int place = cluster_place(cl, slot, &host);
        if (place < 0 || place >= SOURCES_MAX)
            continue;
        if (serves[place])
            continue;
        serves[place] = true;
        struct source *s = source_at(f, place);
        if (s)
            set_key(s, slot); /* it may have other slots than before */
        else if (f->n < SOURCES_MAX && (s = source_new(place, slot)))
            f->source[f->n++] = s;
    }
    drop_others(f, serves);
}

hf_err feed_open(hf_client *c, const struct feed_hooks *hooks, int64_t deadline_ms,
                 struct feed **ret, hf_error *reterr)
{
    if (topo_quorum(c->topo))
        return err_set(reterr, HF_ENOTSUP, "a quorum cannot be watched as one: watch one of its "
                                           "servers, with its own URL");
    struct feed *f = mem_zalloc(sizeof *f);
    if (!f)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    f->c = c;
    f->hooks = *hooks;
    follow(f);
    f->follow_at_ms = clock_now_ms() + FOLLOW_MS;
    hf_err e = f->n ? HF_OK : err_set(reterr, HF_ECONN, "no server is known that has the locks");
    for (size_t i = 0; i < f->n && !e; i++)
        e = source_connect(f, f->source[i], deadline_ms, reterr);
    if (e)
        feed_free(f);
    else
        *ret = f;
    return e;
}

struct feed *feed_free(struct feed *f)
{
    if (!f)
        return NULL;
    for (size_t i = 0; i < f->n; i++)
        source_free(f->source[i]);
    mem_free(f);
    return NULL;
}

static int64_t tend_all(struct feed *f, int64_t until_ms)
{
    int64_t now = clock_now_ms();
    if (now >= f->follow_at_ms) {
        follow(f);
        f->follow_at_ms = now + FOLLOW_MS;
    }
    until_ms = clock_earlier(until_ms, f->follow_at_ms);
    for (size_t i = 0; i < f->n; i++) {
        struct source *s = f->source[i];
        tend(f, s, now);
        until_ms = clock_earlier(until_ms, s->up ? s->ping_at_ms : s->try_at_ms);
    }
    return until_ms;
}

void feed_wait(struct feed *f, int64_t until_ms)
{
    struct pollfd fd[2 * SOURCES_MAX];
    until_ms = tend_all(f, until_ms);
    for (size_t i = 0; i < f->n; i++) {
        const struct source *s = f->source[i];
        fd[2 * i] = (struct pollfd){ .fd = s->up ? s->hear.stream->fd : -1, .events = POLLIN };
        fd[2 * i + 1] = (struct pollfd){ .fd = s->up ? s->ask.stream->fd : -1, .events = POLLIN };
    }
    int64_t left = until_ms - clock_now_ms();
    poll(fd, (nfds_t)(2 * f->n), left <= 0 ? 0 : left > POLL_MAX_MS ? POLL_MAX_MS : (int)left);
    for (size_t i = 0; i < f->n; i++) {
        struct source *s = f->source[i];
        if ((fd[2 * i].revents && !take_in(f, s, &s->hear))
            || (fd[2 * i + 1].revents && !take_in(f, s, &s->ask)))
            shut(s);
    }
}
