/* SPDX-License-Identifier: MIT
 * listener.c - waiting for news about a key.
 */
#include "session/listener.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/mutex.h"
#include "base/random.h"

#define RECENTLY_MS    500
#define LOOK_MIN_MS    1000  /* between two questions of one whom rings reach */
#define LOOK_MAX_MS    10000
#define POLL_MIN_MS    10    /* of one whom none can reach */
#define POLL_MAX_MS    250
#define LEAVE_MS       300   /* what a call may take past its own deadline */

/* ---- the registry: whom a ring is for -------------------------------------------------------- */

struct listeners {
    struct mutex    mu;
    struct tree     tree; /* by sequence */
};

static struct listener *listener_at(const struct tree_node *n)
{
    return TREE_ITEM(n, struct listener, node);
}

static int by_sequence(const struct tree_node *a, const struct tree_node *b)
{
    const struct listener *x = listener_at(a), *y = listener_at(b);
    if (!x || !y)
        return 0; /* never: a tree compares what is in it */
    return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

struct listeners *listeners_new(void)
{
    struct listeners *ls = mem_zalloc(sizeof *ls);
    if (ls) {
        ls->tree.compare = by_sequence;
        mutex_init(&ls->mu, MUTEX_LISTENERS);
    }
    return ls;
}

struct listeners *listeners_free(struct listeners *ls)
{
    mem_free(ls); /* whoever listens must be gone: nothing is in the tree */
    return NULL;
}

bool listeners_any(struct listeners *ls)
{
    mutex_lock(&ls->mu);
    bool any = ls->tree.root != NULL;
    mutex_unlock(&ls->mu);
    return any;
}

static void ring_locked(struct listener *ln)
{
    mutex_assert_held(&ln->c->listeners->mu);
    ln->rung = true;
    task_wake(ln->task);
}

void listeners_ring_all(struct listeners *ls)
{
    mutex_lock(&ls->mu);
    for (struct tree_node *n = tree_first(&ls->tree); n; n = tree_next(&ls->tree, n))
        ring_locked(listener_at(n));
    mutex_unlock(&ls->mu);
}

/* "ring TOKEN". Anybody may publish to our channel: it only makes us ask. */
void listeners_message(hf_client *c, const char *text)
{
    struct listeners *ls = c->listeners;
    char token[TOKEN_SIZE];
    if (sscanf(text, "ring %55s", token) != 1)
        return;
    struct listener probe = { .sequence = client_sequence_of(c, token) };
    if (!probe.sequence)
        return;
    mutex_lock(&ls->mu);
    struct listener *found = listener_at(tree_find(&ls->tree, &probe.node));
    if (found)
        ring_locked(found);
    mutex_unlock(&ls->mu);
}

/* ---- one listener ---------------------------------------------------------------------------- */

void listener_begin(struct listener *ln)
{
    struct listeners *ls = ln->c->listeners;
    ln->sequence = client_token(ln->c, ln->token, sizeof ln->token);
    ln->heard = ln->listed = ln->answered = ln->rung = false;
    ln->round = 0;
    ln->reached_ms = clock_now_ms();
    mutex_lock(&ls->mu);
    tree_insert(&ls->tree, &ln->node);
    ln->registered = true;
    mutex_unlock(&ls->mu);
    client_expect(ln->c, true);
}

/* Whether there was news; from here on, what comes is newer than the next question. */
static bool take_ring(struct listener *ln)
{
    mutex_lock(&ln->c->listeners->mu);
    bool rung = ln->rung;
    ln->rung = false;
    mutex_unlock(&ln->c->listeners->mu);
    return rung;
}

bool listener_ready(struct listener *ln)
{
    STEP_BEGIN(ln->at);
    if (take_ring(ln))
        ln->round = 0;
    ln->present = (struct presence){ .c = ln->c, .keyspace = ln->keyspace,
                                     .deadline_ms = ln->deadline_ms, .stop = ln->stop,
                                     .task = ln->task, .op = &ln->op };
    STEP_UNTIL(ln->at, present_step(&ln->present));
    ln->heard = ln->present.answer == INBOX_READY;
    ln->listed = true;
    STEP_END(ln->at);
}

int64_t listener_limit(const struct listener *ln)
{
    return clock_earlier(ln->deadline_ms, client_deadline(ln->c));
}

/* Finding out where the key is may take a while, which an event loop does not have. */
static struct conn *conn_of(const struct listener *ln)
{
    return ln->task->loop ? topo_lane_now(ln->c->topo, ln->key, LANE_PLAIN)
                          : topo_conn(ln->c->topo, ln->key);
}

hf_err listener_judge(struct listener *ln, hf_err e, hf_error *reterr)
{
    int64_t now = clock_now_ms();
    if (e == HF_EBUSY) {
        ln->reached_ms = now;
        ln->answered = true;
    }
    if ((ln->stop && atomic_load(ln->stop)) || atomic_load(&ln->c->stopping))
        return err_set(reterr, HF_ECANCELED, "the wait was cancelled");
    bool passes = e == HF_EBUSY
                  || ((e == HF_ECONN || e == HF_EUNSURE)
                      && now - ln->reached_ms < topo_outage_ms(ln->c->topo));
    if (!passes)
        return e;
    if (now < ln->deadline_ms)
        return HF_EBUSY;
    /* A last question for which there was no time left says nothing about the server. */
    bool in_time = e == HF_EBUSY || (ln->answered && now - ln->reached_ms < RECENTLY_MS);
    if (e == HF_EUNSURE)
        in_time = now - ln->reached_ms < ln->c->timeout_ms;
    else if (e == HF_ECONN)
        in_time = in_time || conn_epoch(conn_of(ln));
    return in_time ? HF_ETIMEDOUT : e;
}

/* How long to the next question if nobody rings. */
static int64_t pause_ms(const struct listener *ln)
{
    int64_t least = ln->heard ? LOOK_MIN_MS : POLL_MIN_MS;
    int64_t most = ln->heard ? LOOK_MAX_MS : POLL_MAX_MS;
    int64_t step = ln->round < 8 ? least << ln->round : most;
    if (step > most)
        step = most;
    return random_between(step / 2, step);
}

static void plan_sleep(struct listener *ln, int64_t at_most_ms)
{
    int64_t now = clock_now_ms();
    ln->until_ms = now + pause_ms(ln);
    if (at_most_ms < CLOCK_NEVER)
        ln->until_ms = clock_earlier(ln->until_ms, now + at_most_ms);
    ln->until_ms = clock_earlier(ln->until_ms, ln->deadline_ms);
    ln->round++;
}

static bool awake(struct listener *ln)
{
    mutex_lock(&ln->c->listeners->mu);
    bool rung = ln->rung;
    mutex_unlock(&ln->c->listeners->mu);
    task_due(ln->task, ln->until_ms);
    return rung || clock_now_ms() >= ln->until_ms || (ln->stop && atomic_load(ln->stop))
           || atomic_load(&ln->c->stopping);
}

bool listener_wait(struct listener *ln, int64_t at_most_ms)
{
    STEP_BEGIN(ln->at);
    plan_sleep(ln, at_most_ms);
    STEP_UNTIL(ln->at, awake(ln));
    STEP_END(ln->at);
}

static void leave(struct listener *ln)
{
    struct listeners *ls = ln->c->listeners;
    mutex_lock(&ls->mu);
    tree_remove(&ls->tree, &ln->node);
    ln->registered = false;
    mutex_unlock(&ls->mu);
    client_expect(ln->c, false);
}

bool listener_end(struct listener *ln)
{
    STEP_BEGIN(ln->at);
    if (!ln->registered)
        STEP_RETURN(ln->at);
    leave(ln);
    if (!ln->listed)
        STEP_RETURN(ln->at);
    ln->op = (struct op){ .id = OP_unlisten, .deadline_ms = clock_now_ms() + LEAVE_MS,
                          .unlisten = { .listeners = ln->key, .token = ln->token },
                          .task = ln->task };
    exec_begin(ln->c->exec, &ln->op);
    STEP_UNTIL(ln->at, exec_step(ln->c->exec, &ln->op));
    op_clear(&ln->op);
    STEP_END(ln->at);
}
