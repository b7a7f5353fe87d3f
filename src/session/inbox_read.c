/* SPDX-License-Identifier: MIT
 * inbox_read.c - what comes in through an inbox.
 */
#include <string.h>

#include "base/clock.h"
#include "base/epoch.h"
#include "base/err.h"
#include "net/servererr.h"
#include "session/inbox_impl.h"

#define RETRY_MIN_MS 50   /* between two questions for a channel whose slot moves, at first */
#define RETRY_MAX_MS 500

/* ---- what comes ------------------------------------------------------------------------------ */

static bool is_push(const struct reply *rp, const char *kind, size_t len)
{
    return rp->type == REPLY_ARRAY && rp->len == len && rp->item[0]->str
           && (strcmp(rp->item[0]->str, kind) == 0
               || (rp->item[0]->str[0] == 's' && strcmp(rp->item[0]->str + 1, kind) == 0));
}

static bool is_named(const struct subscription *s, const struct reply *channel)
{
    return channel->str && strlen(s->channel) == channel->len
           && memcmp(s->channel, channel->str, channel->len) == 0;
}

/* The subscription that a push is about; NULL: none of ours. */
static struct subscription *named_locked(const struct inbox *in, const struct reply *channel)
{
    mutex_assert_held(&in->mu);
    for (struct subscription *s = in->subs; s; s = s->next)
        if (is_named(s, channel))
            return s;
    return NULL;
}

/* Whose question an answer belongs to: the server answers in the order in which it was asked. */
struct asker {
    uint64_t             turn; /* 0: nobody's */
    struct subscription *sub;  /* NULL: the ping's, or of a channel that has gone elsewhere */
    bool                 ping;
};

static struct asker first_asked_locked(const struct inbox *in)
{
    mutex_assert_held(&in->mu);
    struct asker first = { 0 };
    if (in->asked)
        first = (struct asker){ in->asked->turn, in->asked, false };
    if (in->ping_sent_ms && (!first.turn || in->ping_turn < first.turn))
        first = (struct asker){ in->ping_turn, NULL, true };
    if (in->nghosts && (!first.turn || in->ghosts[0] < first.turn))
        first = (struct asker){ in->ghosts[0], NULL, false };
    return first;
}

static bool is_ghost(const struct asker *a)
{
    return a->turn && !a->sub && !a->ping;
}

/* The first of them has its answer. */
static void forget_ghost_locked(struct inbox *in)
{
    mutex_assert_held(&in->mu);
    memmove(in->ghosts, in->ghosts + 1, --in->nghosts * sizeof *in->ghosts);
}

/* False: nobody asked for it. */
static bool subscribed(struct inbox *in, const struct reply *channel)
{
    unsigned epoch = 0;
    mutex_lock(&in->mu);
    struct asker a = first_asked_locked(in);
    struct subscription *s = a.sub && is_named(a.sub, channel) ? a.sub : NULL;
    if (is_ghost(&a))
        forget_ghost_locked(in);
    if (s) {
        inbox_answered_locked(in, s);
        s->state = SUB_STANDS;
        s->pause_ms = 0;
        s->refused = false;
        in->stood = true;
        in->why[0] = '\0';
        atomic_store(&s->epoch, epoch = epoch_next());
        inbox_changed_locked(in);
        if (in->polling)
            alarm_ring(&in->alarm);
    }
    mutex_unlock(&in->mu);
    if (epoch)
        in->events.up(in->events.arg, s, epoch);
    return epoch || is_ghost(&a);
}

/* It has to be asked for again, here or elsewhere. */
static void want_again_locked(struct inbox *in, struct subscription *s, int64_t pause_ms)
{
    mutex_assert_held(&in->mu);
    int64_t now = clock_now_ms();
    atomic_store(&s->epoch, 0);
    if (s->state == SUB_ASKED)
        inbox_answered_locked(in, s);
    if (s->state == SUB_STANDS)
        s->wanted_ms = now;
    s->state = SUB_WANTED;
    s->retry_at_ms = now + pause_ms;
    alarm_ring(&in->alarm);
}

/* Nobody asked for it, or it is the end of a channel that has gone elsewhere: the server drops the
 * channels of a slot that it gives away. */
static void unsubscribed(struct inbox *in, const struct reply *channel)
{
    mutex_lock(&in->mu);
    struct subscription *s = named_locked(in, channel);
    bool dropped = s && s->state == SUB_STANDS;
    if (dropped)
        want_again_locked(in, s, 0);
    mutex_unlock(&in->mu);
    if (dropped)
        topo_doubt(in->topo);
}

/* The server does not give us this channel: why, and when it is asked for again. In a
 * cluster it may be elsewhere by now, and that is never a refusal. */
static void deny_locked(struct inbox *in, struct subscription *s, const struct reply *rp)
{
    mutex_assert_held(&in->mu);
    hf_err code;
    hf_error why;
    enum server_verdict v = server_judge(rp, &code);
    bool elsewhere = topo_cluster(in->topo) && (v == SERVER_REDIRECT || v == SERVER_RETRY);
    if (topo_cluster(in->topo) && strstr(rp->str, "unknown command")
        && strcasestr(rp->str, "ssubscribe")) {
        atomic_store(&in->plain, true);
        want_again_locked(in, s, 0);
        return;
    }
    char words[80];
    if (elsewhere)
        err_set(&why, HF_ECONN, "the servers of the cluster do not agree on who has its slot (%s)",
                err_quote(words, sizeof words, rp->str, rp->len));
    else
        server_error(rp, code, &why);
    inbox_why_locked(in, why.message);
    s->refused = !elsewhere && (v == SERVER_REFUSED || inbox_is_refusal(code));
    s->pause_ms = s->refused
        ? inbox_next_pause(s->pause_ms, INBOX_REFUSED_MIN_MS, INBOX_REFUSED_MAX_MS)
        : inbox_next_pause(s->pause_ms, RETRY_MIN_MS, RETRY_MAX_MS);
    want_again_locked(in, s, s->pause_ms);
    inbox_changed_locked(in);
}

/* A question was refused. False: the connection is of no use. */
static bool refused(struct inbox *in, const struct reply *rp)
{
    hf_err code;
    hf_error why;
    (void)server_judge(rp, &code);
    mutex_lock(&in->mu);
    struct asker a = first_asked_locked(in);
    if (is_ghost(&a)) {
        forget_ghost_locked(in);
    } else if (a.sub) {
        deny_locked(in, a.sub, rp);
    } else if (a.ping && code == HF_EAUTH) {
        server_error(rp, code, &why);
        inbox_why_locked(in, why.message);
        in->refused = in->mute = true;
        inbox_changed_locked(in);
    }
    mutex_unlock(&in->mu);
    if (a.sub) {
        topo_doubt(in->topo);
        (void)inbox_tell_polling(in);
    }
    return a.turn && !a.ping && strncmp(rp->str, "NOAUTH", 6) != 0;
}

/* A pong. False: nobody asked for it. */
static bool set_proof(struct inbox *in)
{
    mutex_lock(&in->mu);
    int64_t sent_ms = first_asked_locked(in).ping ? in->ping_sent_ms : 0;
    if (sent_ms) {
        in->proof_ms = sent_ms;
        in->ping_sent_ms = 0;
        inbox_changed_locked(in);
    }
    mutex_unlock(&in->mu);
    if (sent_ms)
        in->events.proved(in->events.arg, in, sent_ms);
    return sent_ms != 0;
}

/* False: it makes no sense. */
static bool take(struct inbox *in, const struct reply *rp)
{
    if (is_push(rp, "message", 3) && rp->item[2]->str) {
        in->events.message(in->events.arg, rp->item[2]->str, rp->item[2]->len);
        return true;
    }
    if (is_push(rp, "subscribe", 3))
        return subscribed(in, rp->item[1]);
    if (is_push(rp, "unsubscribe", 3)) {
        unsubscribed(in, rp->item[1]);
        return true;
    }
    if (rp->type == REPLY_ERROR)
        return refused(in, rp);
    /* Without any channel left it is an ordinary connection, and answers like one. */
    bool pong = is_push(rp, "pong", 2)
        || (rp->type == REPLY_STATUS && strcmp(rp->str, "PONG") == 0);
    return pong && set_proof(in);
}

bool inbox_take_in(struct inbox *in)
{
    ssize_t n = in->link.stream->ops->read(in->link.stream, in->link.buffer,
                                           sizeof in->link.buffer);
    if (n < 0 || (n > 0 && resp_feed(in->link.resp, in->link.buffer, (size_t)n)))
        return false;
    for (;;) {
        struct reply *rp;
        if (link_next(&in->link, &rp))
            return false;
        if (!rp)
            return true;
        bool known = take(in, rp);
        reply_free(rp);
        if (!known)
            return false;
    }
}
