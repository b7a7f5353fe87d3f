/* SPDX-License-Identifier: MIT
 * quorum_sub.c - what a member of a quorum tells us without being asked: a subscription of our own
 * there.
 *
 * Nothing depends on it: who waits looks by itself now and then. It is never given up.
 */
#include "topo/quorum_sub.h"

#include <poll.h>
#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/forkguard.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/servererr.h"

#define CONNECT_MS   1000
#define PAUSE_MIN_MS 10
#define PAUSE_MAX_MS 1000
#define REFUSED_MIN_MS 1000  /* after a refusal by rights or configuration */
#define REFUSED_MAX_MS 30000
#define POLLING_MS   5000 /* without it for longer: it is said */
#define PING_MS      10000
#define SILENCE_MS   5000 /* a ping unanswered for longer */
#define POLL_MAX_MS  1000 /* poll's clock stops in suspend */

struct quorum_sub {
    struct member *m;
    struct link    link;
    int            bell_fd; /* what wakes the member's thread meanwhile */
    int64_t        try_at_ms, pause_ms;
    int64_t        lacking_ms; /* since when it does not stand */
    bool           polling;    /* that was said */
    int64_t        ping_at_ms;
    bool           pinged;
};

struct quorum_sub *quorum_sub_new(struct member *m)
{
    struct quorum_sub *e = mem_zalloc(sizeof *e);
    if (!e || link_init(&e->link) < 0) {
        mem_free(e);
        return NULL;
    }
    e->m = m;
    e->pause_ms = PAUSE_MIN_MS;
    e->lacking_ms = clock_now_ms();
    e->bell_fd = bell_open();
    return e->bell_fd < 0 ? quorum_sub_forget(e) : e;
}

struct quorum_sub *quorum_sub_free(struct quorum_sub *e)
{
    if (e)
        forkguard_close(e->bell_fd);
    return quorum_sub_forget(e);
}

struct quorum_sub *quorum_sub_forget(struct quorum_sub *e)
{
    if (!e)
        return NULL;
    link_clear(&e->link);
    mem_free(e);
    return NULL;
}

static bool is_push(const struct reply *rp, const char *kind, size_t len)
{
    return rp->type == REPLY_ARRAY && rp->len == len && rp->item[0]->str
           && strcmp(rp->item[0]->str, kind) == 0;
}

static void set_hears(struct quorum_sub *e, bool hears)
{
    if (atomic_exchange(&e->m->hears, hears) != hears)
        atomic_fetch_add(&e->m->q->subscribed, hears ? 1 : -1);
}

static void shut(struct quorum_sub *e)
{
    if (atomic_load(&e->m->hears))
        e->lacking_ms = clock_now_ms();
    set_hears(e, false);
    link_close(&e->link, false);
    e->try_at_ms = clock_now_ms() + random_between(e->pause_ms / 2, e->pause_ms);
    e->pause_ms = clock_earlier(2 * e->pause_ms, PAUSE_MAX_MS);
}

/* As shut(), for what will not pass soon. */
static void shut_refused(struct quorum_sub *e)
{
    int64_t pause = e->pause_ms < REFUSED_MIN_MS ? REFUSED_MIN_MS
                                                 : clock_earlier(2 * e->pause_ms, REFUSED_MAX_MS);
    shut(e);
    e->pause_ms = pause;
    e->try_at_ms = clock_now_ms() + random_between(pause / 2, pause);
}

static hf_err subscribe(struct quorum_sub *e, hf_error *reterr)
{
    struct quorum *q = e->m->q;
    struct limit lim = { clock_now_ms() + CONNECT_MS, &q->stopping };
    hf_bytes argv[] = { hf_str("SUBSCRIBE"), hf_str(q->channel) };
    struct reply *rp;
    hf_err err = link_open(&e->link, q->url, &q->url->hosts[e->m->index], &lim, reterr);
    if (!err)
        err = link_exchange(&e->link, 2, argv, &lim, &rp, reterr);
    if (err)
        return err;
    if (rp->type == REPLY_ERROR)
        err = server_refusal(rp, reterr);
    else if (!is_push(rp, "subscribe", 3))
        err = err_set(reterr, HF_EPROTO, "the answer to SUBSCRIBE makes no sense");
    reply_free(rp);
    return err;
}

static void open_it(struct quorum_sub *e)
{
    hf_error why;
    hf_err err = subscribe(e, &why);
    bool refused = err == HF_EAUTH || err == HF_ECONFIG;
    bool told = e->polling;
    /* Of a server that cannot be reached others tell. */
    e->polling = err
        && (told || refused
            || (err != HF_ECONN && clock_now_ms() - e->lacking_ms >= POLLING_MS));
    if (e->polling && !told)
        log_to(e->m->q->log, HF_LOG_WARNING, "no hints from %s: %s; waiting is by polling",
               e->m->shown, why.message);
    if (!err && told)
        log_to(e->m->q->log, HF_LOG_INFO, "hints from %s again", e->m->shown);
    if (err) {
        if (refused)
            shut_refused(e);
        else
            shut(e);
        return;
    }
    e->pause_ms = PAUSE_MIN_MS;
    e->ping_at_ms = clock_now_ms() + PING_MS;
    e->pinged = false;
    set_hears(e, true);
}

int64_t quorum_sub_tend(struct quorum_sub *e)
{
    hf_bytes ping[] = { hf_str("PING") };
    int64_t now = clock_now_ms();
    struct limit lim = { now + SILENCE_MS, &e->m->q->stopping };
    if (!e->link.stream && now >= e->try_at_ms) {
        open_it(e);
    } else if (e->link.stream && now >= e->ping_at_ms) {
        if (e->pinged || link_send(&e->link, 1, ping, &lim, NULL))
            shut(e); /* the last one was not answered */
        e->pinged = true;
        e->ping_at_ms = now + SILENCE_MS;
    }
    return e->link.stream ? e->ping_at_ms : e->try_at_ms;
}

/* Read what is there and hand it on. False: the connection is over. */
static bool take_in(struct quorum_sub *e)
{
    const struct quorum *q = e->m->q;
    ssize_t n = e->link.stream->ops->read(e->link.stream, e->link.buffer, sizeof e->link.buffer);
    if (n < 0 || (n > 0 && resp_feed(e->link.resp, e->link.buffer, (size_t)n)))
        return false;
    for (;;) {
        struct reply *rp;
        if (link_next(&e->link, &rp))
            return false;
        if (!rp)
            return true;
        bool message = is_push(rp, "message", 3) && rp->item[2]->str;
        bool pong = e->pinged && is_push(rp, "pong", 2);
        if (message)
            q->heard(q->heard_arg, e->m->index, rp->item[2]->str);
        if (pong) {
            e->pinged = false;
            e->ping_at_ms = clock_now_ms() + PING_MS;
        }
        reply_free(rp);
        if (!message && !pong)
            return false;
    }
}

bool quorum_sub_listen(struct quorum_sub *e, int64_t until_ms)
{
    if (!e->link.stream)
        return false;
    bool woken = !park_listen(&e->m->park, e->bell_fd);
    while (!woken && clock_now_ms() < until_ms) {
        struct pollfd fd[2] = { { .fd = e->link.stream->fd, .events = POLLIN },
                                { .fd = e->bell_fd, .events = POLLIN } };
        int64_t left = until_ms - clock_now_ms();
        poll(fd, 2, left < 0 ? 0 : left > POLL_MAX_MS ? POLL_MAX_MS : (int)left);
        if (fd[1].revents)
            woken = bell_drain(e->bell_fd);
        if (fd[0].revents && !take_in(e)) {
            shut(e);
            break;
        }
    }
    park_unlisten(&e->m->park);
    return true;
}
