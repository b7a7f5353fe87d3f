/* SPDX-License-Identifier: MIT
 * inboxes.c - being seen by the servers: the inboxes of a client, and where each keyspace has its
 * own.
 */
#include "base/clock.h"
#include "base/err.h"
#include "session/client.h"
#include "session/listener.h"
#include "session/waiter.h"

#define PRESENT_MS     1000  /* to be subscribed and seen; else without */
#define NUMSUB_MIN_MS  1000  /* to the next question whether we are seen, where nobody may tell */
#define NUMSUB_MAX_MS  30000

/* ---- the inboxes ----------------------------------------------------------------------------- */

static void on_up(void *arg, struct subscription *sub, unsigned epoch)
{
    hf_client *c = arg;
    keeper_subscribed(c->keeper, sub->keyspace, epoch);
    waiters_rejoin(c->waiters, sub->keyspace, epoch);
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
    keeper_message(c->keeper, text);
    listeners_message(c, text);
}

static void on_astray(void *arg, struct subscription *sub);

/* Holds: session_mu. The inbox at a server: one that has become idle since its server lost its
 * slots, or a new one; NULL: there cannot be one. */
static struct inbox *inbox_at_locked(hf_client *c, const void *server)
{
    mutex_assert_held(&c->session_mu);
    struct inbox_events events = { on_up, on_proved, on_message, on_astray, c, &c->expectant };
    for (size_t i = 0; i < c->ninboxes; i++)
        if (inbox_server(c->inboxes[i]) == server)
            return c->inboxes[i];
    for (size_t i = 0; i < c->ninboxes; i++)
        if (inbox_turn_to(c->inboxes[i], server))
            return c->inboxes[i];
    if (c->inboxes_closed || c->ninboxes == CLIENT_INBOXES_MAX
        || inbox_open(c->topo, server, &events, &c->log, &c->inboxes[c->ninboxes], NULL))
        return NULL;
    if (c->prove_for_ms) /* what is held at other servers may be the first that is held here */
        inbox_prove_for(c->inboxes[c->ninboxes], c->prove_for_ms);
    return c->inboxes[c->ninboxes++];
}

/* Holds: session_mu. Subscribe to the channel of h where its keys are now. */
static void settle_in_locked(hf_client *c, struct keyspace *h)
{
    mutex_assert_held(&c->session_mu);
    h->inbox = inbox_at_locked(c, topo_server(c->topo, hf_str(h->sub.channel)));
    if (h->inbox)
        inbox_add(h->inbox, &h->sub);
}

static struct inbox *get_inbox(hf_client *c, struct keyspace *h)
{
    mutex_lock(&c->session_mu);
    if (!h->inbox)
        settle_in_locked(c, h);
    struct inbox *in = h->inbox;
    bool full = !in && c->ninboxes == CLIENT_INBOXES_MAX;
    mutex_unlock(&c->session_mu);
    if (full && !atomic_exchange(&c->warned_inboxes, true))
        log_to(&c->log, HF_LOG_WARNING,
               "%d servers are in use, more than one client can listen to: at the others waiting "
               "is by polling, and a crash costs the ttl", CLIENT_INBOXES_MAX);
    return in;
}

/* Thread: an inbox's. */
static void on_astray(void *arg, struct subscription *sub)
{
    hf_client *c = arg;
    mutex_lock(&c->session_mu);
    settle_in_locked(c, sub->keyspace);
    mutex_unlock(&c->session_mu);
}

void client_warn_of_info(hf_client *c)
{
    log_to(&c->log, HF_LOG_WARNING,
           "this user may not run INFO: a restart of the server cannot be noticed, fencing "
           "numbers rest on its clock and counter alone (see docs/acl.md)");
}

/* ---- does the server see us? -------------------------------------------------------------- */

/* Whether it has said so, over the command connection as it is now. A server of a cluster that
 * knows no sharded channels keeps ours when it gives the slot away, and nobody may notice that the
 * slot has been away: there it is asked each time. */
static bool known(struct presence *p, const struct inbox *in)
{
    struct keyspace *h = p->keyspace;
    if (topo_cluster(p->c->topo) && !inbox_sharded(in))
        return false;
    hf_bytes key = hf_str(h->scope.counter);
    p->conn = conn_epoch(p->task->loop ? topo_lane_now(p->c->topo, key, LANE_PLAIN)
                                       : topo_conn(p->c->topo, key));
    return p->conn && atomic_load(&h->seen) == keyspace_seen(p->conn, p->terms.epoch);
}

/* As a rule all of it is known, and nothing has to be locked to see that. */
static bool known_at_once(struct presence *p)
{
    struct subscription *sub = &p->keyspace->sub;
    struct inbox *in = atomic_load(&sub->at);
    p->terms.epoch = atomic_load(&sub->epoch);
    if (!in || !p->terms.epoch || !known(p, in))
        return false;
    if (p->in_line && p->task->loop && inbox_watched(in))
        return false;
    p->terms.present_ms = inbox_proof_ms(in, sub);
    p->in = in;
    p->answer = INBOX_READY;
    return (p->grace_ms <= 0 || clock_now_ms() - p->terms.present_ms <= p->grace_ms / 3)
           && atomic_load(&sub->epoch) == p->terms.epoch;
}

static void request_count(struct presence *p)
{
    struct keyspace *h = p->keyspace;
    bool slotted = !p->c->keyspace; /* elsewhere whoever takes a number lets the reign begin */
    *p->op = (struct op){ .id = OP_hello, .hello = { &h->scope, h->sub.channel, !slotted },
                          .deadline_ms = p->limit_ms, .stop = p->stop, .task = p->task };
    exec_begin(p->c->exec, p->op);
    p->moves = topo_moves_of(p->c->topo, op_route(p->op));
}

static void warn(hf_client *c, const struct op_greeted *got)
{
    bool cluster = !c->keyspace; /* elsewhere the greeting has said so */
    if (cluster && got->code == ANSWER_NO_INFO && !atomic_exchange(&c->warned_info, true))
        client_warn_of_info(c);
    const char *command = cluster ? "SHARDNUMSUB" : "NUMSUB";
    if (got->listeners < 0 && !atomic_exchange(&c->warned_numsub, true))
        log_to(&c->log, HF_LOG_WARNING,
               "this user may not run PUBSUB %s: waiting is by polling, and a crash costs the "
               "ttl (see docs/acl.md)", command);
    if (got->listeners >= 0 && got->code != ANSWER_BAD_COUNTER
        && atomic_exchange(&c->warned_numsub, false))
        log_to(&c->log, HF_LOG_INFO,
               "this user may run PUBSUB %s again: waiting is in a queue, and a crash costs the "
               "grace", command);
}

/* Holds: session_mu. Nobody may tell whether we are seen: ask ever more rarely, as for a channel
 * that is refused. */
static void ask_later_locked(const hf_client *c, struct keyspace *h, bool refused)
{
    mutex_assert_held(&c->session_mu);
    h->ask_pause_ms = !refused ? 0 : !h->ask_pause_ms ? NUMSUB_MIN_MS
                      : clock_earlier(2 * h->ask_pause_ms, NUMSUB_MAX_MS);
    h->ask_at_ms = refused ? clock_now_ms() + h->ask_pause_ms : 0;
}

static bool may_ask(const struct presence *p)
{
    mutex_lock(&p->c->session_mu);
    bool may = clock_now_ms() >= p->keyspace->ask_at_ms;
    mutex_unlock(&p->c->session_mu);
    return may;
}

static enum inbox_answer take_answer(struct presence *p)
{
    struct keyspace *h = p->keyspace;
    const struct op_greeted got = p->op->got.greeted;
    op_clear(p->op);
    if (p->op->result)
        return INBOX_NOT_YET;
    if (got.code != ANSWER_BAD_COUNTER)
        atomic_store(&h->scope.greeted[LANE_PLAIN], scope_mark(p->op->epoch, p->moves));
    if (p->c->keyspace && got.code == ANSWER_YES) /* lost since it was connected to */
        atomic_store(&h->scope.due, true);
    warn(p->c, &got);
    bool listening = got.code != ANSWER_BAD_COUNTER && got.listeners > 0;
    atomic_store(&h->seen, listening ? keyspace_seen(p->conn, p->terms.epoch) : 0);
    mutex_lock(&p->c->session_mu);
    ask_later_locked(p->c, h, got.code != ANSWER_BAD_COUNTER && got.listeners < 0);
    mutex_unlock(&p->c->session_mu);
    if (got.listeners == 0)
        topo_doubt(p->c->topo); /* in a cluster this server and our inbox may have parted */
    return listening ? INBOX_READY : got.listeners < 0 ? INBOX_REFUSED : INBOX_NOT_YET;
}

/* ---- does the subscription stand? --------------------------------------------------------- */

/* The other half of the time is for the lock itself. */
static void choose_limit(struct presence *p)
{
    int64_t now = clock_now_ms();
    p->limit_ms = now + PRESENT_MS;
    if (p->deadline_ms < CLOCK_NEVER && now + (p->deadline_ms - now) / 2 < p->limit_ms)
        p->limit_ms = now + (p->deadline_ms - now) / 2;
}

/* False: it may soon. */
static bool stands(struct presence *p)
{
    int64_t age = p->grace_ms > 0 ? p->grace_ms / 3 : CLOCK_NEVER, now = clock_now_ms();
    p->in = exec_can(p->c->exec, EXEC_PRESENCE) ? get_inbox(p->c, p->keyspace) : NULL;
    p->answer = !p->in ? INBOX_REFUSED
                       : inbox_check(p->in, &p->keyspace->sub, age, &p->watch, &p->terms.epoch,
                                     &p->terms.present_ms);
    if (p->answer != INBOX_WAIT && p->answer != INBOX_ASTRAY)
        return true;
    if (now >= p->limit_ms || (p->stop && atomic_load(p->stop))) {
        p->answer = INBOX_NOT_YET;
        return true;
    }
    /* On its way from one server to another it wakes nobody. */
    task_due(p->task, p->answer == INBOX_ASTRAY ? now + 1 : clock_earlier(p->limit_ms,
                                                                         now + STREAM_TICK_MS));
    return false;
}

bool present_step(struct presence *p)
{
    STEP_BEGIN(p->at);
    if (known_at_once(p))
        STEP_RETURN(p->at);
    choose_limit(p);
    p->watch.task = p->task;
    STEP_UNTIL(p->at, stands(p));
    p->unseen = p->answer == INBOX_READY && !known(p, p->in);
    if (p->unseen && !may_ask(p)) {
        p->answer = INBOX_REFUSED;
    } else if (p->unseen) {
        if (p->task->loop)
            inbox_watch(p->in, &p->watch); /* whoever comes meanwhile comes behind us */
        request_count(p);
        STEP_UNTIL(p->at, exec_step(p->c->exec, p->op));
        p->answer = take_answer(p);
    }
    inbox_unwatch(&p->watch);
    STEP_END(p->at);
}

/* ---- all inboxes -------------------------------------------------------------------------- */

/* Holds: session_mu. Call fn for each inbox that there is. */
static void each_inbox_locked(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    mutex_assert_held(&c->session_mu);
    /* None when the client is being freed: nobody asks then. */
    for (size_t i = 0; i < c->ninboxes; i++)
        fn(c->inboxes[i], arg);
}

static void each_inbox(hf_client *c, void (*fn)(struct inbox *in, int64_t arg), int64_t arg)
{
    mutex_lock(&c->session_mu);
    each_inbox_locked(c, fn, arg);
    mutex_unlock(&c->session_mu);
}

void client_prove_for(hf_client *c, int64_t grace_ms)
{
    mutex_lock(&c->session_mu);
    c->prove_for_ms = grace_ms;
    each_inbox_locked(c, inbox_prove_for, grace_ms);
    mutex_unlock(&c->session_mu);
}

void client_wait(hf_client *c, struct keyspace *h, struct park *p, uint64_t ticket,
                 int64_t until_ms)
{
    mutex_lock(&c->session_mu);
    struct inbox *in = h->inbox;
    mutex_unlock(&c->session_mu);
    if (in)
        inbox_wait(in, p, ticket, until_ms);
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

static void forget_inbox(struct keyspace *h, void *arg)
{
    (void)arg;
    h->inbox = NULL;
}

/* A move, noticed by who still talks, must not find them; nor may one that ends send its channels
 * to another. */
void client_absent(hf_client *c)
{
    mutex_lock(&c->session_mu);
    size_t n = c->ninboxes;
    c->ninboxes = 0;
    c->inboxes_closed = true;
    keyspaces_each(c->keyspaces, forget_inbox, NULL);
    mutex_unlock(&c->session_mu);
    for (size_t i = 0; i < n; i++)
        inbox_stop(c->inboxes[i]);
    for (size_t i = 0; i < n; i++)
        inbox_free(c->inboxes[i]);
}
