/* SPDX-License-Identifier: MIT
 * present.c - being seen by the servers: the inboxes of a client, and where each home has its own.
 */
#include "base/clock.h"
#include "session/client.h"
#include "session/listener.h"
#include "session/waiter.h"

#define PRESENT_MS 1000 /* to be subscribed and seen; else without */

/* ---- the inboxes ----------------------------------------------------------------------------- */

static void on_up(void *arg, struct subscription *sub, unsigned epoch)
{
    hf_client *c = arg;
    keeper_subscribed(c->keeper, sub->arg, epoch);
    waiters_rejoin(c->waiters, sub->arg, epoch);
    listeners_ring_all(c->listeners);
}

static void on_proved(void *arg, const struct inbox *in, int64_t sent_ms)
{
    keeper_present(((hf_client *)arg)->keeper, in, sent_ms);
}

static void on_message(void *arg, const char *text, size_t len)
{
    hf_client *c = arg;
    waiters_message(c->waiters, text, len);
    listeners_message(c, text);
}

static void on_astray(void *arg, struct subscription *sub);

/* Holds: session_mu. The inbox at a server, opened if there is none; NULL: it cannot be. */
static struct inbox *inbox_at(hf_client *c, const void *server)
{
    struct inbox_events events = { on_up, on_proved, on_message, on_astray, c, &c->expectant };
    for (size_t i = 0; i < c->ninboxes; i++)
        if (inbox_server(c->inboxes[i]) == server)
            return c->inboxes[i];
    if (c->inboxes_closed || c->ninboxes == CLIENT_INBOXES_MAX
        || inbox_open(c->topo, server, &events, &c->log, &c->inboxes[c->ninboxes], NULL))
        return NULL;
    if (c->prove_for_ms) /* what is held at other servers may be the first that is held here */
        inbox_prove_for(c->inboxes[c->ninboxes], c->prove_for_ms);
    return c->inboxes[c->ninboxes++];
}

/* Holds: session_mu. Subscribe to the channel of h where its keys are now. */
static void settle_in(hf_client *c, struct home *h)
{
    h->inbox = inbox_at(c, topo_server(c->topo, hf_str(h->sub.channel)));
    if (h->inbox)
        inbox_add(h->inbox, &h->sub);
}

static struct inbox *get_inbox(hf_client *c, struct home *h)
{
    pthread_mutex_lock(&c->session_mu);
    if (!h->inbox)
        settle_in(c, h);
    struct inbox *in = h->inbox;
    pthread_mutex_unlock(&c->session_mu);
    return in;
}

/* Thread: an inbox's. */
static void on_astray(void *arg, struct subscription *sub)
{
    hf_client *c = arg;
    pthread_mutex_lock(&c->session_mu);
    settle_in(c, sub->arg);
    pthread_mutex_unlock(&c->session_mu);
}

void client_warn_of_info(hf_client *c)
{
    log_to(&c->log, HF_LOG_WARNING,
           "this user may not run INFO: a restart of the server cannot be noticed, fencing "
           "numbers rest on its clock and counter alone (see docs/acl.md)");
}

/* Ask the server, over the command connection, whether it sees our subscription. */
static enum inbox_answer seen(hf_client *c, struct home *h, unsigned inbox_epoch, int64_t deadline_ms,
                              const atomic_int *stop)
{
    struct greeting *g = &h->greeting;
    unsigned conn = conn_epoch(topo_conn(c->topo, hf_str(g->counter)));
    pthread_mutex_lock(&c->session_mu);
    bool known = conn && conn == h->seen_conn && inbox_epoch == h->seen_epoch;
    pthread_mutex_unlock(&c->session_mu);
    if (known)
        return INBOX_READY;

    hf_bytes keys[] = { hf_str(g->counter), hf_str(g->reign) }, args[] = { hf_str(h->sub.channel) };
    struct script_call sc = { .id = SCRIPT_hello, .nkeys = 2, .keys = keys, .nargs = 1,
                              .args = args, .deadline_ms = deadline_ms, .stop = stop };
    unsigned moves = topo_moves_of(c->topo, keys[0]);
    if (script_run(c->topo, &sc, NULL))
        return INBOX_NOT_YET;
    const struct reply *rp = sc.reply;
    long long listeners = rp->type == REPLY_ARRAY && rp->len == 2 ? rp->item[1]->num : 0;
    bool listening = listeners > 0;
    if (rp->type == REPLY_ARRAY && rp->len == 2)
        atomic_store(&g->done[LANE_PLAIN], greeting_mark(sc.epoch, moves));
    if (topo_cluster(c->topo) && rp->type == REPLY_ARRAY && rp->len && rp->item[0]->num == -5
        && !atomic_exchange(&c->warned_info, true))
        client_warn_of_info(c);
    reply_free(sc.reply);
    if (listeners < 0 && !atomic_exchange(&c->warned_numsub, true))
        log_to(&c->log, HF_LOG_WARNING,
               "this user may not run PUBSUB %s: waiting is by polling, and a crash costs the "
               "ttl (see docs/acl.md)", topo_cluster(c->topo) ? "SHARDNUMSUB" : "NUMSUB");
    pthread_mutex_lock(&c->session_mu);
    h->seen_conn = listening ? conn : 0;
    h->seen_epoch = inbox_epoch;
    pthread_mutex_unlock(&c->session_mu);
    return listening ? INBOX_READY : listeners < 0 ? INBOX_REFUSED : INBOX_NOT_YET;
}

enum inbox_answer client_present(hf_client *c, struct home *h, int64_t grace_ms, int64_t deadline_ms,
                                 const atomic_int *stop, struct lease_terms *ret_terms)
{
    /* Without scripts nobody could prove that the server sees us; on a quorum there is no one
     * server to be seen by. */
    bool provable = plain_protocol(c->plain) == PROTOCOL_SCRIPT && !topo_quorum(c->topo);
    int64_t now = clock_now_ms(), limit = now + PRESENT_MS;
    if (deadline_ms < CLOCK_NEVER && now + (deadline_ms - now) / 2 < limit)
        limit = now + (deadline_ms - now) / 2; /* the other half is for the lock itself */
    int64_t age = grace_ms > 0 ? grace_ms / 3 : CLOCK_NEVER;
    enum inbox_answer a;
    do {
        struct inbox *in = provable ? get_inbox(c, h) : NULL;
        if (!in)
            return INBOX_REFUSED;
        a = inbox_ready(in, &h->sub, age, limit, stop, &ret_terms->epoch, &ret_terms->present_ms);
        if (a == INBOX_ASTRAY) /* on its way from one server to another */
            clock_sleep_until(clock_now_ms() + 1);
    } while (a == INBOX_ASTRAY && clock_now_ms() < limit);
    if (a == INBOX_ASTRAY)
        return INBOX_NOT_YET;
    return a == INBOX_READY ? seen(c, h, ret_terms->epoch, limit, stop) : a;
}

bool client_still_present(hf_client *c, struct home *h, int64_t grace_ms, int64_t deadline_ms,
                          const atomic_int *stop, struct lease_terms *terms)
{
    struct lease_terms now;
    if (client_present(c, h, grace_ms, deadline_ms, stop, &now) != INBOX_READY
        || now.epoch != terms->epoch)
        return false;
    terms->present_ms = now.present_ms;
    return true;
}

/* Holds: session_mu. Call fn for each inbox that there is. */
static void each_inbox_locked(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    for (size_t i = 0; i < c->ninboxes; i++) /* none when the client is being freed: nobody asks then */
        fn(c->inboxes[i], arg);
}

static void each_inbox(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    pthread_mutex_lock(&c->session_mu);
    each_inbox_locked(c, fn, arg);
    pthread_mutex_unlock(&c->session_mu);
}

void client_prove_for(hf_client *c, int64_t grace_ms)
{
    pthread_mutex_lock(&c->session_mu);
    c->prove_for_ms = grace_ms;
    each_inbox_locked(c, inbox_prove_for, grace_ms);
    pthread_mutex_unlock(&c->session_mu);
}

void client_wait(hf_client *c, struct home *h, struct park *p, int64_t until_ms)
{
    pthread_mutex_lock(&c->session_mu);
    struct inbox *in = h->inbox;
    pthread_mutex_unlock(&c->session_mu);
    if (in)
        inbox_wait(in, p, until_ms);
    else
        park_wait(p, until_ms);
}

static void expect(struct inbox *in, int64_t arg)
{
    (void)arg;
    inbox_expect(in);
}

void client_expect(hf_client *c, bool more)
{
    if (!more) {
        atomic_fetch_sub(&c->expectant, 1);
        return;
    }
    atomic_fetch_add(&c->expectant, 1);
    each_inbox(c, expect, 0);
}

static void moved(struct inbox *in, int64_t arg)
{
    (void)arg;
    inbox_moved(in);
}

void client_follow(hf_client *c)
{
    each_inbox(c, moved, 0);
}

static void forget_inbox(struct home *h, void *arg)
{
    (void)arg;
    h->inbox = NULL;
}

/* A move, noticed by who still talks, must not find them; nor may one that ends send its channels
 * to another. */
void client_absent(hf_client *c)
{
    pthread_mutex_lock(&c->session_mu);
    size_t n = c->ninboxes;
    c->ninboxes = 0;
    c->inboxes_closed = true;
    homes_each(c->homes, forget_inbox, NULL);
    pthread_mutex_unlock(&c->session_mu);
    for (size_t i = 0; i < n; i++)
        inbox_stop(c->inboxes[i]);
    for (size_t i = 0; i < n; i++)
        inbox_free(c->inboxes[i]);
}
