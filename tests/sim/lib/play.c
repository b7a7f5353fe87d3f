/* SPDX-License-Identifier: MIT
 * play.c - one schedule: its plan, its clients, its faults.
 */
#include "sim/lib/play.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/t.h"
#include "lock/handle.h"
#include "sim/lib/judge.h"
#include "sim/lib/model.h"
#include "sim/lib/operate.h"
#include "sim/lib/pool.h"
#include "sim/lib/slots.h"
#include "sim/lib/world.h"
#include "topo/slot.h"

#define CLIENTS_MAX 4
#define LOCKS_MAX   3
#define TIMEOUT_MS  2000
#define UNDO_MS     500    /* what a call may take past its deadline to undo its request */
#define CALM_MS     12000  /* by then nothing is left of a fault */
#define TAKEN_MS    6000   /* a grace is shorter, and what the judge gives them */
#define MOVED_MS    4000   /* by then a slot that has moved is where everybody looks for it */
#define END_MS      60000 /* so long after the last fault all calls have ended */
#define LATE_MS     5        /* clocks of different speed, rounded */
#define TICKS_MS    40       /* two ticks: what is given up while a request is under way */
#define CIRCLE_MS   4500     /* then a circle of waits has been found, when nothing disturbs */
#define SAID_MS     6000     /* for so long it is believed that a holder waits, who said so */
#define LAST_MS     50       /* since when somebody waits, the others know as exactly as this */

const char *const play_fault_name[FAULTS] = {
    "pause", "crash", "stall", "cut", "outage", "restart", "script flush", "break", "ask",
    "clock back", "clock forward", "restart loses", "failover", "flushall", "evict", "delete",
    "break now", "move",
};

struct fault {
    enum play_fault kind;
    int64_t         at_ms, ms; /* when; for how long, or how much */
    int             client;
    bool            out;       /* left out */
};

struct plan {
    int              nclients, nlocks, nfaults;
    enum judge_kind  kind[LOCKS_MAX];
    unsigned         slots[LOCKS_MAX];
    bool             named[LOCKS_MAX]; /* each client has an owner id of its own */
    bool             elects[LOCKS_MAX]; /* it is an election */
    int64_t          ttl_ms[LOCKS_MAX], grace_ms[LOCKS_MAX];
    int64_t          run_ms, calm_ms; /* with faults, and after them */
    struct world_net net;
    struct fault     fault[PLAY_FAULTS];
    bool             blocking[CLIENTS_MAX];
    int64_t          ppm[CLIENTS_MAX];
    bool             confirm, whole_lease;
    bool             hasty;   /* freed in the middle of it */
    bool             patient; /* they wait long enough for whoever is gone */
    bool             nested;  /* who has one lock takes another one, too: all block then */
    bool             returns; /* slots go, and come back: plan_returns() */
    bool             dies_late; /* when all is calm again, a holder dies */
    bool             cluster; /* two servers; slots move instead of what loses something */
};

enum state { IDLE, TAKING, HOLDING, EXTENDING, GIVING_BACK };

/* One handle, and what is done with it. */
struct job {
    struct client *cl;
    hf_lock       *m;
    hf_election   *el;          /* NULL: it is an ordinary lock */
    int            lock;
    unsigned       weight;      /* 0: alone */
    bool           downgraded;
    enum state     state;
    int64_t        next_ms;     /* its client's clock, as all of these: when something is to be
                                   done */
    int64_t        cancel_ms;   /* when the take is given up */
    int64_t        deadline_ms; /* when the call that is under way has to be over */
    int64_t        begun_ms;    /* true time: when that began */
    uint64_t       first;       /* of the numbers of its tokens */
    int64_t        lost_ms;     /* since when it is not held any more */
    int64_t        gave_ms;     /* when it was given back */
    bool           told;        /* of that */
};

struct client {
    hf_client         *c;
    struct world_proc *proc;
    struct job         job[LOCKS_MAX];
    int                number, threads;
    bool               blocking, open;
    /* The last circle of waits that it was in: which, from when to when (true time). */
    uint64_t           circle;
    int64_t            circle_from_ms, circle_ms, died_ms;
    int64_t            closed_ms; /* when the last of those in it began to wait */
};

static struct {
    struct plan   plan;
    struct client client[CLIENTS_MAX];
    bool          ending, calm;
    uint64_t      calls, losses, heard;
    unsigned      breaks, strikes;
    uint64_t      elections, circles, deadlocks;
    uint64_t      ended; /* the last circle that a verdict ended */
    uint64_t      chance;
    struct store  snapshot; /* what a replica has, or the disk */
    unsigned      lives;
} all;

static const char *const name_of[LOCKS_MAX] = { "a", "b", "c" };

static hf_bytes key_of(int lock)
{
    static const char *const key[LOCKS_MAX] = { "lock:a", "lock:b", "lock:c" };
    return hf_str(key[lock]);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static int64_t pick(int64_t low, int64_t high)
{
    return world_between(&all.chance, low, high);
}

static bool one_in(unsigned n)
{
    return world_random(&all.chance, n) == 0;
}

static void plan_locks(struct plan *p)
{
    p->nlocks = p->nested ? (int)pick(2, 3) : one_in(3) ? 2 : 1;
    for (int i = 0; i < p->nlocks; i++) {
        p->kind[i] = p->nested || one_in(2) ? JUDGE_ALONE : one_in(2) ? JUDGE_READERS : JUDGE_SLOTS;
        p->slots[i] = p->kind[i] == JUDGE_SLOTS ? (unsigned)pick(2, 3) : 0;
        p->named[i] = p->kind[i] == JUDGE_ALONE && !p->nested && one_in(5);
        p->elects[i] = p->kind[i] == JUDGE_ALONE && !p->nested && !p->named[i] && one_in(4);
        p->ttl_ms[i] = one_in(2) && !p->patient ? pick(600, 2000) : pick(2000, 8000);
        p->grace_ms[i] = one_in(4) ? HF_NO_TAKEOVER
                                   : pick(200, p->ttl_ms[i] / (p->patient ? 4 : 2));
    }
}

static void plan_net(struct plan *p)
{
    p->net.usual_ms = one_in(2) ? 1 : pick(0, 8);
    p->net.slow_ms = pick(20, 3000);
    if (one_in(3))
        return;
    if (one_in(2))
        p->net.slow = (unsigned)pick(10, 60);
    if (one_in(2))
        p->net.cut = (unsigned)pick(15, 100);
    if (one_in(2))
        p->net.lose = (unsigned)pick(15, 100);
    if (one_in(3))
        p->net.silence = (unsigned)pick(40, 200);
}

static enum play_fault plan_kind(bool lossy, bool back)
{
    if (lossy && one_in(2)) {
        enum play_fault k = (enum play_fault)pick(FAULT_FIRST_LOSS, FAULT_LAST_LOSS);
        if (!back)
            return k;
    }
    if (one_in(8))
        return FAULT_BREAK;
    enum play_fault k = (enum play_fault)pick(0, FAULT_FIRST_LOSS - 1);
    return k == FAULT_CLOCK_BACK && !back ? FAULT_PAUSE : k;
}

/* A clock that is set back and data that are lost are never in one schedule: numbers may fall
 * then (docs/guarantees.md, P4). */
static void plan_faults(struct plan *p)
{
    bool lossy = one_in(3), back = !lossy && one_in(3);
    p->nfaults = (int)pick(0, one_in(4) ? PLAY_FAULTS : 3);
    for (int i = 0; i < p->nfaults; i++) {
        struct fault *f = &p->fault[i];
        f->kind = i == 0 && p->patient && one_in(2) ? FAULT_CRASH : plan_kind(lossy, back);
        f->at_ms = pick(20, p->run_ms);
        f->ms = one_in(2) ? pick(1, 300) : pick(300, 5000);
        f->client = (int)pick(0, p->nclients - 1);
    }
}

/* In some of them the slot of a lock goes and comes back, somebody dies, and those who are left are
 * watched until the end: so locks are taken over. Drawn apart from all the rest. */
static void plan_returns(struct plan *p, uint64_t seed)
{
    uint64_t chance = seed * 0x9e3779b97f4a7c15u ^ 0x2e7d0a11;
    if (world_random(&chance, 3) != 0)
        return;
    p->returns = true;
    p->patient = true;
    p->calm_ms = world_between(&chance, 5000, 16000);
    for (int i = 0; i + 1 < p->nfaults; i += 2) {
        struct fault *go = &p->fault[i], *back = go + 1;
        *go = (struct fault){ .kind = FAULT_MOVE, .at_ms = world_between(&chance, 1, p->run_ms),
                              .client = go->client, .ms = world_between(&chance, 1, 600) };
        *back = *go;
        back->at_ms = go->at_ms + world_between(&chance, 0, 1500);
    }
    if (p->nfaults < PLAY_FAULTS)
        p->fault[p->nfaults++] = (struct fault){
            .kind = world_random(&chance, 2) ? FAULT_CRASH : FAULT_PAUSE,
            .at_ms = world_between(&chance, 1, p->run_ms),
            .client = (int)world_random(&chance, CLIENTS_MAX),
            .ms = world_between(&chance, 100, 3000) };
}

/* Drawn apart from the rest, which stays the same. */
static void plan_cluster(struct plan *p, uint64_t seed)
{
    uint64_t chance = seed * 0xd1342543de82ef95u ^ 0x5c1057e6;
    p->cluster = world_random(&chance, 8) == 0;
    if (!p->cluster)
        return;
    for (int i = 0; i < p->nfaults; i++)
        if (p->fault[i].kind >= FAULT_FIRST_LOSS || world_random(&chance, 3) == 0)
            p->fault[i].kind = FAULT_MOVE;
    int64_t more = world_between(&chance, 1, 3);
    while (more-- > 0 && p->nfaults < PLAY_FAULTS) {
        struct fault *f = &p->fault[p->nfaults++];
        *f = (struct fault){ .kind = FAULT_MOVE, .at_ms = world_between(&chance, 1, p->run_ms),
                             .client = (int)world_random(&chance, CLIENTS_MAX) };
        f->ms = world_random(&chance, 2) ? world_between(&chance, 1, 300)
                                         : world_between(&chance, 300, 5000);
    }
    plan_returns(p, seed);
}

/* Drawn apart from the rest, too. */
static void plan_late_death(struct plan *p, uint64_t seed)
{
    uint64_t chance = seed * 0x9fb21c651e98df25u ^ 0x71f3a9c5;
    p->dies_late = p->patient && !p->nested && !p->cluster && world_random(&chance, 4) == 0;
}

static void make_plan(struct plan *p, uint64_t seed, const struct play_without *without)
{
    memset(p, 0, sizeof *p);
    all.chance = seed * 0x9e3779b97f4a7c15u ^ 0x51ed2701;
    p->nclients = one_in(3) ? (int)pick(2, CLIENTS_MAX) : one_in(3) ? 3 : 2;
    p->nested = one_in(16);
    p->patient = p->nested || one_in(4);
    p->run_ms = p->nested    ? pick(1000, 6000)
                : one_in(12) ? pick(1500, 5000)
                : one_in(4)  ? pick(400, 1200)
                             : pick(60, 400);
    p->calm_ms = p->patient ? pick(1000, 6000) : pick(20, 200);
    plan_locks(p);
    plan_net(p);
    plan_faults(p);
    for (int i = 0; i < CLIENTS_MAX; i++) {
        p->blocking[i] = p->nested || one_in(4);
        p->ppm[i] = one_in(2) ? 0 : pick(-4000, 4000);
    }
    p->confirm = one_in(5);
    p->whole_lease = one_in(5);
    p->hasty = one_in(4);
    plan_cluster(p, seed);
    plan_late_death(p, seed);
    for (int i = 0; without && i < p->nfaults; i++)
        p->fault[i].out = (without->faults >> i & 1) != 0;
    if (without && without->network)
        p->net.slow = p->net.cut = p->net.lose = p->net.silence = 0;
}

unsigned play_kinds(uint64_t seed)
{
    struct plan p;
    make_plan(&p, seed, NULL);
    return (p.cluster ? PLAY_CLUSTER : 0) | (p.nested ? PLAY_NESTED : 0);
}

static const char *kind_text(const struct plan *p, int i)
{
    if (p->kind[i] == JUDGE_ALONE)
        return p->named[i] ? "alone, by owner id" : p->elects[i] ? "election" : "alone";
    return p->kind[i] == JUDGE_READERS ? "shared" : "slots";
}

void play_plan(uint64_t seed, const struct play_without *without, int *ret_faults,
               int *ret_clients, char *ret_plan, size_t size)
{
    struct plan p;
    size_t n = 0;
    make_plan(&p, seed, without);
    *ret_faults = p.nfaults;
    *ret_clients = p.nclients;
    n += (size_t)snprintf(ret_plan + n, size - n, "%sclients:", p.cluster ? "cluster; " : "");
    for (int i = 0; i < p.nclients && n < size; i++)
        if (!(without && without->clients >> i & 1))
            n += (size_t)snprintf(ret_plan + n, size - n, " %d%s", i,
                                  p.blocking[i] ? " (blocking)" : "");
    for (int i = 0; i < p.nlocks && n < size; i++)
        n += (size_t)snprintf(ret_plan + n, size - n, "; lock %s: %s %u, ttl %lld, grace %lld",
                              name_of[i], kind_text(&p, i), p.slots[i], (long long)p.ttl_ms[i],
                              (long long)p.grace_ms[i]);
    if (n < size)
        n += (size_t)snprintf(ret_plan + n, size - n,
                              "; one packet in so many is slow %u, cut %u, loses its answer %u, "
                              "silences %u; faults:", p.net.slow, p.net.cut, p.net.lose,
                              p.net.silence);
    for (int i = 0; i < p.nfaults && n < size; i++)
        if (!p.fault[i].out)
            n += (size_t)snprintf(ret_plan + n, size - n, " %s at %lld (%lld ms, client %d)",
                                  play_fault_name[p.fault[i].kind], (long long)p.fault[i].at_ms,
                                  (long long)p.fault[i].ms, p.fault[i].client);
}

/* ---- what a client does ---------------------------------------------------------------------- */

static int64_t now_of(const struct client *cl)
{
    return world_local(cl->proc, world_now());
}

static uint64_t draw(struct client *cl, uint64_t n)
{
    return world_random(&cl->proc->chance, n);
}

static int64_t between(struct client *cl, int64_t low, int64_t high)
{
    return world_between(&cl->proc->chance, low, high);
}

static void on_event(hf_lock *m, hf_state state, void *arg)
{
    struct job *j = arg;
    (void)m;
    j->told |= state == HF_STATE_LOST;
    world_tell("client %d is told about %s: %s", j->cl->number, name_of[j->lock],
               state == HF_STATE_LOST ? "lost" : state == HF_STATE_SAFE ? "safe" : "in doubt");
}

static void on_ask(hf_lock *m, void *arg)
{
    const struct job *j = arg;
    (void)m;
    all.heard++;
    world_tell("client %d is asked for %s", j->cl->number, name_of[j->lock]);
}

static void begin_call(struct job *j, enum state state, int64_t ms)
{
    all.calls++;
    if (state == TAKING)
        j->told = false;
    j->state = state;
    j->begun_ms = world_now();
    j->first = atomic_load(&j->cl->c->sequence) + 1;
    j->deadline_ms = now_of(j->cl) + ms;
}

static void over(struct job *j, enum state state, int64_t next_ms)
{
    j->state = state;
    j->next_ms = next_ms;
    j->cancel_ms = WORLD_NEVER;
}

static int64_t later(struct job *j)
{
    return now_of(j->cl) + (draw(j->cl, 3) ? between(j->cl, 0, 60) : between(j->cl, 60, 1000));
}

static void granted(struct job *j)
{
    all.elections += j->el != NULL;
    j->lost_ms = 0;
    over(j, HOLDING, now_of(j->cl) + between(j->cl, 0, draw(j->cl, 4) ? 150 : 3000));
}

/* All that has one owner id counts as one that holds and waits: two threads of a client, too. From
 * seeing a circle to saying so it takes a while. */
static bool may_deadlock(const struct job *j)
{
    bool holds = false;
    for (int i = 0; i < all.plan.nlocks; i++)
        holds |= all.plan.named[i] && &j->cl->job[i] != j
                 && (j->cl->job[i].state != IDLE
                     || now_of(j->cl) - j->cl->job[i].gave_ms < SAID_MS);
    return all.plan.named[j->lock] && holds;
}

/* ---- circles of waits ------------------------------------------------------------------------ */

static struct job *in_state(struct client *cl, enum state state)
{
    for (int i = 0; i < all.plan.nlocks; i++)
        if (cl->job[i].state == state)
            return &cl->job[i];
    return NULL;
}

/* Who lost it a moment ago, and waits on for another one, or died, may have said so before: that is
 * believed for some seconds, if the server still has the lock for it. */
static bool has(struct client *cl, int lock, bool or_had)
{
    const struct job *j = &cl->job[lock];
    int64_t now = now_of(cl);
    if (!cl->open || j->state != HOLDING)
        return false;
    if (!cl->proc->dead && lease_believed(&j->m->lease, now))
        return true;
    int64_t since = cl->proc->dead ? world_now() - cl->died_ms : now - j->lost_ms;
    return or_had && since < SAID_MS && judge_has(lock, j->m->lease.grant.token, false);
}

static struct client *who_has(int lock, bool or_had)
{
    for (int i = 0; i < all.plan.nclients; i++) {
        struct client *cl = &all.client[i];
        if (has(cl, lock, or_had))
            return cl;
    }
    return NULL;
}

/* Its wait ends only when it itself has released something: a name for that, and when the last of
 * them began to wait. 0: it is not so. */
static uint64_t circle_of(struct client *first, bool or_had, int64_t *ret_closed_ms)
{
    uint64_t name = 0;
    struct client *cl = first;
    *ret_closed_ms = 0;
    for (int hops = 0; hops < CLIENTS_MAX; hops++) {
        const struct job *wait = cl ? in_state(cl, TAKING) : NULL;
        if (!wait || !in_state(cl, HOLDING))
            return 0;
        if (!or_had && !judge_waits(wait->lock, cl->proc->id))
            return 0; /* it polls, and so nobody sees it (docs/deadlock.md) */
        name += ((uint64_t)wait->begun_ms * CLIENTS_MAX + (uint64_t)cl->number)
                * 0x9e3779b97f4a7c15u;
        if (wait->begun_ms > *ret_closed_ms)
            *ret_closed_ms = wait->begun_ms;
        cl = who_has(wait->lock, or_had);
        if (cl == first)
            return name | 1;
    }
    return 0;
}

static void watch_circles(void)
{
    for (int i = 0; i < all.plan.nclients; i++) {
        struct client *cl = &all.client[i];
        int64_t closed_ms, now_ms;
        uint64_t name = cl->open && !cl->proc->dead ? circle_of(cl, true, &closed_ms) : 0;
        if (!name || !judge_calm() || !circle_of(cl, false, &now_ms))
            cl->circle_from_ms = world_now();
        if (!name)
            continue;
        if (name != cl->circle) {
            all.circles++;
            world_tell("client %d is in a circle of waits", cl->number);
            cl->circle_from_ms = world_now();
        }
        cl->circle = name;
        cl->circle_ms = world_now();
        cl->closed_ms = closed_ms;
        if (cl->circle_from_ms + CIRCLE_MS < world_now() && !cl->proc->frozen_until)
            judge_wrong(4, "client %d has been in a circle of waits for %d ms", cl->number,
                        CIRCLE_MS);
    }
}

/* It takes a while from seeing a circle to saying so. What one has said who was cut off since then,
 * died, or gave up without being heard, is believed for some seconds: not judged. */
static void check_deadlock(const struct job *j)
{
    struct client *cl = j->cl;
    bool there = cl->circle && world_now() - cl->circle_ms <= 2500;
    all.deadlocks++;
    if (!there && !cl->proc->frozen_until && judge_calm_for(2 * SAID_MS))
        judge_wrong(7, "client %d: a deadlock, but there was no circle", cl->number);
    else if (all.ended == cl->circle && judge_calm() && !all.strikes)
        judge_wrong(7, "client %d: a second one gives up in the same circle", cl->number);
    else if (there && j->begun_ms + LAST_MS < cl->closed_ms && judge_calm_for(2 * SAID_MS))
        judge_wrong(7, "client %d gives up, but it was not the last to wait", cl->number);
    all.ended = cl->circle;
}

static void taken(struct job *j, hf_err e, const hf_error *err)
{
    const char *token = j->m->lease.grant.token;
    world_tell("client %d: acquire %s: %s", j->cl->number, name_of[j->lock], hf_err_name(e));
    if (!e) {
        granted(j);
        return;
    }
    if (e != HF_EBUSY && e != HF_ETIMEDOUT && e != HF_ECONN && e != HF_EUNSURE
        && e != HF_ECANCELED && !(e == HF_EDEADLK && (may_deadlock(j) || all.plan.nested))
        && !(e == HF_ELOST && (all.breaks || j->el)))
        judge_wrong(7, "acquire: %s", hf_err_name(e));
    if (e == HF_EDEADLK && all.plan.nested)
        check_deadlock(j);
    const char *left = judge_has_any(j->lock, j->cl->c->session, j->first);
    if (err->known == HF_KNOWN_UNCHANGED && left && !j->cl->proc->dead)
        judge_wrong(7, "client %d: acquire ended with %s, but the server has %s", j->cl->number,
                    hf_err_name(e), left);
    if (err->known == HF_KNOWN_UNCHANGED)
        judge_gone(token, j->begun_ms);
    over(j, IDLE, later(j));
}

static void given_back(struct job *j, hf_err e)
{
    const char *token = j->m->lease.grant.token;
    j->gave_ms = now_of(j->cl);
    world_tell("client %d: release %s: %s", j->cl->number, name_of[j->lock], hf_err_name(e));
    if (e == HF_ELOST)
        all.losses++;
    else if (e && e != HF_ECONN && e != HF_EUNSURE)
        judge_wrong(7, "release: %s", hf_err_name(e));
    if (!e && judge_has_hold(j->lock, token, atomic_load(&j->m->fence)))
        judge_wrong(7, "client %d: release is done, but the server has %s", j->cl->number, token);
    if (!e)
        judge_gone(token, j->begun_ms);
    over(j, IDLE, later(j));
}

static int64_t wait_ms(struct client *cl)
{
    if (all.plan.nested)
        return between(cl, 3000, 9000);
    return draw(cl, 4) == 0 ? 0 : between(cl, 50, all.plan.patient ? 5000 : 600);
}

/* Who is elected makes its value known, and resigns if it cannot. */
static int64_t take_limit(const struct job *j, int64_t wait)
{
    return (wait ? wait : TIMEOUT_MS) + UNDO_MS + (j->el ? 3 * TIMEOUT_MS : 0);
}

/* What others see of a leader. */
static hf_bytes value_of(const struct job *j)
{
    static const char *const text[CLIENTS_MAX] = { "0 leads", "1 leads", "2 leads", "3 leads" };
    return hf_str(text[j->cl->number]);
}

/* A renewal may be under way before it, of a thread that sees its deadline a tick late. */
static int64_t ask_limit(const struct job *j)
{
    int64_t third = all.plan.ttl_ms[j->lock] / 3;
    int64_t more = j->el ? 2 * TIMEOUT_MS : 0; /* its value is taken away as well */
    return TIMEOUT_MS + (third < TIMEOUT_MS ? third : TIMEOUT_MS) + STREAM_TICK_MS + more;
}

/* ---- with an event loop ---------------------------------------------------------------------- */

static void done(hf_err e, const hf_error *err, void *arg)
{
    struct job *j = arg;
    if (j->state == TAKING)
        taken(j, e, err);
    else if (j->state == GIVING_BACK)
        given_back(j, e);
    else
        over(j, HOLDING, now_of(j->cl) + between(j->cl, 0, 500));
}

static void take_async(struct job *j)
{
    int64_t wait = wait_ms(j->cl);
    begin_call(j, TAKING, take_limit(j, wait));
    j->downgraded = false;
    judge_weigh(j->m, j->weight);
    j->cancel_ms = draw(j->cl, 10) ? WORLD_NEVER : now_of(j->cl) + between(j->cl, 0, 400);
    world_tell("client %d: acquire %s, waiting up to %lld ms", j->cl->number, name_of[j->lock],
               (long long)wait);
    if (j->el)
        CHECK_INT(hf_election_campaign_async(j->el, value_of(j), wait, NULL, done, j, NULL),
                  HF_OK);
    else
        CHECK_INT(hf_lock_acquire_async(j->m, wait, done, j, NULL), HF_OK);
}

static void act(struct job *j)
{
    int64_t now = now_of(j->cl);
    if (j->state == TAKING && now >= j->cancel_ms) {
        j->cancel_ms = WORLD_NEVER;
        if (now + UNDO_MS < j->deadline_ms && !j->el)
            j->deadline_ms = now + UNDO_MS;
        world_tell("client %d: cancel %s", j->cl->number, name_of[j->lock]);
        hf_lock_cancel(j->m);
    }
    if (now < j->next_ms || (j->state == IDLE && all.ending))
        return;
    if (j->state == IDLE) {
        take_async(j);
    } else if (j->state == HOLDING && all.plan.kind[j->lock] == JUDGE_READERS && !j->weight
               && !j->downgraded && draw(j->cl, 2) == 0) {
        j->downgraded = true;
        judge_weigh(j->m, 1); /* from now on it does not rely on being alone */
        world_tell("client %d: downgrade %s", j->cl->number, name_of[j->lock]);
        begin_call(j, EXTENDING, ask_limit(j));
        CHECK_INT(hf_lock_downgrade_async(j->m, done, j, NULL), HF_OK);
    } else if (j->state == HOLDING && j->el && draw(j->cl, 3) == 0) {
        begin_call(j, EXTENDING, ask_limit(j));
        CHECK_INT(hf_election_set_value_async(j->el, value_of(j), done, j, NULL), HF_OK);
    } else if (j->state == HOLDING && draw(j->cl, 8) == 0) {
        begin_call(j, EXTENDING, ask_limit(j));
        CHECK_INT(hf_lock_extend_async(j->m, all.plan.ttl_ms[j->lock], done, j, NULL), HF_OK);
    } else if (j->state == HOLDING) {
        begin_call(j, GIVING_BACK, ask_limit(j));
        CHECK_INT(j->el ? hf_election_resign_async(j->el, done, j, NULL)
                        : hf_lock_release_async(j->m, done, j, NULL), HF_OK);
    }
}

static int64_t due(void *arg)
{
    const struct client *cl = arg;
    int64_t at = cl->c->loop ? loop_next_due(cl->c->loop) : WORLD_NEVER;
    bool idle = true;
    for (int i = 0; i < all.plan.nlocks; i++) {
        const struct job *j = &cl->job[i];
        if (j->state == HOLDING || (j->state == IDLE && !all.ending))
            at = clock_earlier(at, j->next_ms);
        if (j->state == TAKING)
            at = clock_earlier(at, j->cancel_ms);
        idle &= j->state == IDLE;
    }
    if (all.ending && cl->threads)
        return clock_earlier(at, now_of(cl) + 50);
    return all.ending && (idle || all.plan.hasty) ? 0 : at;
}

static bool all_idle(const struct client *cl)
{
    for (int i = 0; i < all.plan.nlocks; i++)
        if (cl->job[i].state != IDLE)
            return false;
    return true;
}

static void run_loop(struct client *cl)
{
    while (cl->threads || !(all.ending && (all_idle(cl) || all.plan.hasty || cl->proc->dead))) {
        hf_client_dispatch(cl->c);
        for (int i = 0; i < all.plan.nlocks; i++)
            act(&cl->job[i]);
        world_sleep_due(due, cl);
    }
}

/* ---- with blocking calls --------------------------------------------------------------------- */

static void block(void *arg)
{
    struct job *j = arg;
    while (!all.ending) {
        int64_t wait = wait_ms(j->cl);
        begin_call(j, TAKING, take_limit(j, wait) + 2 * STREAM_TICK_MS);
        world_tell("client %d: acquire %s, waiting up to %lld ms", j->cl->number,
                   name_of[j->lock], (long long)wait);
        hf_error err;
        taken(j, j->el ? hf_election_campaign(j->el, value_of(j), wait, NULL, &err)
                       : hf_lock_acquire(j->m, wait, NULL, &err), &err);
        clock_sleep_until(j->next_ms);
        if (j->state != HOLDING)
            continue;
        begin_call(j, GIVING_BACK, ask_limit(j) + 2 * STREAM_TICK_MS);
        given_back(j, j->el ? hf_election_resign(j->el, NULL) : hf_lock_release(j->m, NULL));
        clock_sleep_until(j->next_ms);
    }
    j->cl->threads--;
}

static bool take_one(struct job *j)
{
    int64_t wait = wait_ms(j->cl);
    hf_error err;
    begin_call(j, TAKING, take_limit(j, wait) + 2 * STREAM_TICK_MS);
    world_tell("client %d: acquire %s, waiting up to %lld ms", j->cl->number, name_of[j->lock],
               (long long)wait);
    taken(j, hf_lock_acquire(j->m, wait, NULL, &err), &err);
    return j->state == HOLDING;
}

static void give_one_back(struct job *j)
{
    begin_call(j, GIVING_BACK, ask_limit(j) + 2 * STREAM_TICK_MS);
    given_back(j, hf_lock_release(j->m, NULL));
}

/* One lock, and while it is held another one, in whatever order. */
static void nest(void *arg)
{
    struct client *cl = arg;
    int n = all.plan.nlocks;
    while (!all.ending) {
        int first = (int)draw(cl, (uint64_t)n);
        int second = (first + 1 + (int)draw(cl, (uint64_t)n - 1)) % n;
        if (!take_one(&cl->job[first])) {
            clock_sleep_until(cl->job[first].next_ms);
            continue;
        }
        clock_sleep_until(now_of(cl) + between(cl, 0, 60));
        if (take_one(&cl->job[second])) {
            clock_sleep_until(now_of(cl) + between(cl, 0, 100));
            give_one_back(&cl->job[second]);
        }
        give_one_back(&cl->job[first]);
        clock_sleep_until(cl->job[first].next_ms);
    }
    cl->threads--;
}

static void run_blocking(struct client *cl)
{
    cl->threads += all.plan.nested ? 1 : all.plan.nlocks;
    if (all.plan.nested)
        world_start(cl->proc, nest, cl);
    for (int i = 0; i < all.plan.nlocks && !all.plan.nested; i++)
        world_start(cl->proc, block, &cl->job[i]);
    while (cl->threads)
        world_sleep(50);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void open_handles(struct client *cl)
{
    const struct plan *p = &all.plan;
    for (int i = 0; i < p->nlocks; i++) {
        struct job *j = &cl->job[i];
        hf_lock_opts o = { .size = sizeof o, .ttl_ms = p->ttl_ms[i], .grace_ms = p->grace_ms[i],
                           .whole_lease = p->whole_lease, .on_event = on_event, .event_arg = j,
                           .on_ask = on_ask };
        char owner[20];
        snprintf(owner, sizeof owner, "owner%d", cl->number);
        o.owner = p->named[i] ? hf_str(owner) : (hf_bytes){ 0 };
        o.slots = p->slots[i];
        o.permits = o.slots ? (unsigned)between(cl, 1, 2) : 0;
        o.shared = p->kind[i] == JUDGE_READERS && draw(cl, 2);
        unsigned weight = o.slots ? o.permits : o.shared ? 1 : 0;
        *j = (struct job){ .cl = cl, .lock = i, .weight = weight };
        hf_election_opts eo = { .size = sizeof eo, .ttl_ms = o.ttl_ms, .grace_ms = o.grace_ms,
                                .on_event = on_event, .event_arg = j };
        if (p->elects[i]) {
            CHECK_INT(hf_election_open(cl->c, hf_str(name_of[i]), &eo, &j->el, NULL), HF_OK);
            j->m = hf_election_lock(j->el);
        } else {
            CHECK_INT(hf_lock_open(cl->c, hf_str(name_of[i]), &o, &j->m, NULL), HF_OK);
        }
        over(j, IDLE, later(j));
        judge_add_channel(cl->proc, i, keyspaces_of(cl->c->keyspaces, key_of(i))->sub.channel);
        judge_add_handle(j->m, cl->proc, i, weight);
    }
}

static bool open_client(struct client *cl)
{
    char url[WORLD_URL_SIZE];
    (void)world_url(cl->proc, url);
    hf_client_opts o = { .size = sizeof o, .timeout_ms = TIMEOUT_MS,
                         .confirm = all.plan.confirm };
    while (!all.ending && hf_client_open(url, &o, &cl->c, NULL))
        world_sleep(20);
    return cl->c != NULL;
}

static void close_client(struct client *cl)
{
    bool early = !all.plan.hasty && all_idle(cl);
    cl->open = false;
    judge_close_session(cl->proc);
    for (int i = 0; i < all.plan.nlocks; i++) {
        struct job *j = &cl->job[i];
        judge_forget(j->m);
        if (j->el) { /* before its client, when it is at nothing */
            for (; j->state != IDLE && j->state != HOLDING; world_sleep(1)) {
                hf_lock_cancel(j->m);
                hf_client_dispatch(cl->c);
            }
            j->el = hf_election_free(j->el);
            j->m = NULL;
        } else if (early) {
            j->m = hf_lock_free(j->m);
        }
    }
    hf_lock *left[LOCKS_MAX];
    for (int i = 0; i < all.plan.nlocks; i++)
        left[i] = cl->job[i].m;
    cl->c = hf_client_free(cl->c);
    for (int i = 0; i < all.plan.nlocks; i++)
        hf_lock_free(left[i]);
}

static void live(void *arg)
{
    struct client *cl = arg;
    if (!open_client(cl))
        return;
    judge_add_session(cl->proc, cl->c->session);
    open_handles(cl);
    cl->open = true;
    if (cl->blocking)
        run_blocking(cl);
    else
        run_loop(cl);
    world_tell("client %d is closed", cl->number);
    close_client(cl);
}

/* ---- what is watched of the calls ------------------------------------------------------------ */

static void watch_job(struct job *j)
{
    int64_t now = now_of(j->cl), slack = LATE_MS;
    bool calls = j->state == TAKING || j->state == GIVING_BACK || j->state == EXTENDING;
    if (j->cl->proc->frozen_until) { /* whatever it does after a pause is late by that */
        if (world_now() < j->cl->proc->frozen_until + 300)
            return;
        slack += 6000;
    }
    if (calls && now > j->deadline_ms + slack + TICKS_MS)
        judge_wrong(7, "call %d of client %d for %s is %lld ms late", (int)j->state,
                    j->cl->number, name_of[j->lock], (long long)(now - j->deadline_ms));
    if (j->state == HOLDING && j->el && lease_believed(&j->m->lease, now) && !judge_lossy()
        && !all.breaks && judge_value_term(j->lock) != j->m->lease.grant.fence)
        judge_wrong(7, "client %d leads %s, and its value is not there", j->cl->number,
                    name_of[j->lock]);
    if (j->state != HOLDING)
        return;
    if (lease_believed(&j->m->lease, now)) {
        j->lost_ms = 0; /* it was late, and has caught up */
        return;
    }
    if (!j->lost_ms)
        j->lost_ms = now;
    if (!j->told && now > j->lost_ms + slack)
        judge_wrong(7, "client %d was not told in time that it lost %s", j->cl->number,
                    name_of[j->lock]);
}

static void watch_jobs(void)
{
    if (all.plan.nested)
        watch_circles();
    for (int i = 0; i < all.plan.nclients; i++) {
        struct client *cl = &all.client[i];
        for (int k = 0; cl->open && !cl->proc->dead && k < all.plan.nlocks; k++)
            watch_job(&cl->job[k]);
    }
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void new_life(int server, bool replica)
{
    char run[41], repl[41];
    all.lives++;
    snprintf(run, sizeof run, "r%u", all.lives);
    snprintf(repl, sizeof repl, "p%u", all.lives);
    world_replace_server(server);
    model = &model_node[server];
    model_restart(run, replica ? repl : NULL);
    judge_new_life(server);
}

static void go_back(void)
{
    judge_before_fault();
    store_copy(&model->store, &all.snapshot);
    store_expire(&model->store, model_now_ms());
    judge_after_fault();
}

static void evict(void)
{
    struct store *s = &model->store;
    judge_before_fault();
    store_expire(s, model_now_ms());
    size_t n = 0, at;
    for (size_t i = 0; i < s->n; i++)
        n += s->entry[i]->ends_ms != STORE_NO_TTL;
    if (n) {
        at = (size_t)pick(0, (int64_t)n - 1);
        for (size_t i = 0; i < s->n; i++)
            if (s->entry[i]->ends_ms != STORE_NO_TTL && at-- == 0) {
                world_tell("the server evicts %s", s->entry[i]->key.p);
                store_remove(s, s->entry[i]);
                break;
            }
    }
    judge_shake();
    judge_after_fault();
}

static void delete_lock(int which)
{
    judge_before_fault();
    struct entry *e = model_find(key_of(which));
    if (e)
        store_remove(&model->store, e);
    judge_after_fault();
}

/* Rather one that holds something. */
static struct client *victim(const struct fault *f)
{
    for (int i = 0; i < all.plan.nclients && f->ms % 3; i++) {
        struct client *cl = &all.client[(f->client + i) % all.plan.nclients];
        for (int k = 0; cl->open && !cl->proc->dead && k < all.plan.nlocks; k++)
            if (cl->job[k].state == HOLDING)
                return cl;
    }
    return &all.client[f->client];
}

static void send_operator(const struct fault *f)
{
    struct client *cl = &all.client[f->client];
    int lock = (int)(f->ms % all.plan.nlocks);
    uint64_t fence = judge_fence(lock, (uint64_t)f->ms / 3);
    struct operate_order o = { .c = cl->c, .proc = cl->proc, .lock = lock, .name = name_of[lock],
                               .fence = f->ms % 11 ? fence : fence / 2, .threads = &cl->threads,
                               .ask = f->kind == FAULT_ASK, .now = f->kind == FAULT_BREAK_NOW,
                               .leads = all.plan.elects[lock]
                                        && (f->kind == FAULT_ASK || f->ms % 4 > 1),
                               .wait_ms = f->ms };
    if (!cl->open || all.ending || cl->proc->dead || (!o.fence && !o.ask))
        return;
    if (o.now && !o.leads)
        judge_excuse(lock, o.fence);
    all.breaks += !o.ask && !o.leads;
    operate(&o);
}

/* ---- slots that move ------------------------------------------------------------------------- */

/* Key by key, in about so much time; whoever sent it learns at last that it has arrived. */
static void move_slot(void *arg)
{
    struct fault f = *(struct fault *)arg;
    hf_bytes key = key_of(f.client % all.plan.nlocks);
    unsigned slot = slot_of(key.data, key.len);
    uint64_t chance = (uint64_t)f.at_ms << 20 ^ (uint64_t)f.ms;
    pool_free(arg);
    while (slots_moving())
        world_sleep(5);
    slots_send(slot);
    world_tell("slot %u begins to move", slot);
    do
        world_sleep(all.ending ? 0 : world_between(&chance, 0, f.ms / 4));
    while (slots_send_key(all.plan.returns ? &chance : NULL));
    slots_arrive();
    world_tell("slot %u has arrived at server %s", slot, slots_owner(slot) ? "B" : "A");
    world_sleep(all.ending ? 0 : world_between(&chance, 0, f.ms));
    slots_let_go();
    world_tell("slot %u: both servers know", slot);
    judge_disturbed(MOVED_MS);
}

static bool is_operator(enum play_fault k)
{
    return k == FAULT_BREAK || k == FAULT_ASK || k == FAULT_BREAK_NOW;
}

static void strike(const struct fault *f)
{
    struct client *cl = victim(f);
    struct world_proc *proc = cl->proc;
    int server = all.plan.cluster ? (int)(f->ms % 2) : 0;
    world_tell("FAULT: %s, %lld ms, client %d", play_fault_name[f->kind], (long long)f->ms,
               cl->number);
    all.strikes++;
    /* A move says itself when it is over. Who died is waited for as long as its grace. */
    if (all.plan.returns && f->kind == FAULT_CRASH)
        judge_disturbed(1000);
    else if (!is_operator(f->kind) && f->kind != FAULT_MOVE)
        judge_disturbed(f->ms + CALM_MS);
    switch (f->kind) {
    case FAULT_BREAK:
    case FAULT_ASK:
    case FAULT_BREAK_NOW: send_operator(f); break;
    case FAULT_PAUSE:
        if (proc)
            world_freeze(proc, f->ms);
        break;
    case FAULT_CRASH:
        if (proc)
            world_kill(proc);
        cl->died_ms = world_now();
        break;
    case FAULT_STALL: world_stall(server, f->ms); break;
    case FAULT_CUT: world_cut_all(); break;
    case FAULT_OUTAGE: world_outage(server, f->ms); break;
    case FAULT_RESTART:
        new_life(server, false);
        world_outage(server, f->ms / 4);
        break;
    case FAULT_SCRIPT_FLUSH:
        memset(model_node[server].knows, 0, sizeof model->knows);
        break;
    case FAULT_CLOCK_BACK: world_shift_clock(-f->ms); break;
    case FAULT_CLOCK_FORWARD:
        judge_before_fault();
        judge_shake();
        world_shift_clock(f->ms);
        judge_after_fault();
        break;
    case FAULT_RESTART_LOSES:
    case FAULT_FAILOVER:
        new_life(0, f->kind == FAULT_FAILOVER);
        world_outage(0, f->ms / 4);
        go_back();
        break;
    case FAULT_FLUSHALL:
        judge_before_fault();
        store_clear(&model->store);
        judge_after_fault();
        break;
    case FAULT_EVICT: evict(); break;
    case FAULT_DELETE: delete_lock(f->client % all.plan.nlocks); break;
    case FAULT_MOVE: {
        struct fault *copy = pool_get(sizeof *copy);
        *copy = *f;
        world_start(NULL, move_slot, copy);
        break;
    }
    case FAULTS: break;
    }
}

static int by_time(const void *a, const void *b)
{
    const struct fault *x = a, *y = b;
    return (x->at_ms > y->at_ms) - (x->at_ms < y->at_ms);
}

/* The snapshot is taken at some moment between the last fault and the next one. */
static void run_faults(struct play_counts *counts)
{
    struct fault sorted[PLAY_FAULTS];
    int64_t begun = world_now(), at = 0;
    memcpy(sorted, all.plan.fault, sizeof sorted);
    qsort(sorted, (size_t)all.plan.nfaults, sizeof *sorted, by_time);
    for (int i = 0; i < all.plan.nfaults; i++) {
        const struct fault *f = &sorted[i];
        if (f->out)
            continue;
        int64_t snap = f->at_ms - (f->at_ms - at) * (f->ms % 100) / 100;
        if (f->kind == FAULT_RESTART_LOSES || f->kind == FAULT_FAILOVER) {
            clock_sleep_until(begun + snap);
            store_copy(&all.snapshot, &model->store);
        }
        clock_sleep_until(begun + f->at_ms);
        at = f->at_ms;
        strike(f);
        counts->faults[f->kind]++;
    }
    clock_sleep_until(begun + all.plan.run_ms);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void begin_locks(void)
{
    for (int i = 0; i < all.plan.nlocks; i++)
        judge_add_lock(key_of(i).data, all.plan.kind[i], all.plan.slots[i]);
}

static void begin_clients(const struct play_without *without)
{
    for (int i = 0; i < all.plan.nclients; i++) {
        struct client *cl = &all.client[i];
        cl->number = i;
        cl->blocking = all.plan.blocking[i];
        cl->proc = world_add_proc(all.plan.ppm[i]);
        if (!(without && without->clients >> i & 1))
            world_start(cl->proc, live, cl);
    }
}

/* On a quiet server with a quiet network, so that it is judged when its locks are taken over. */
static void die_late(struct play_counts *counts)
{
    struct fault crash = { .kind = FAULT_CRASH, .ms = 1 };
    uint64_t before = judge_counts.takeovers;
    world_sleep(CALM_MS + 1);
    struct client *cl = victim(&crash);
    if (cl->proc->dead)
        return;
    world_tell("FAULT: all is calm, and client %d dies", cl->number);
    world_kill(cl->proc);
    cl->died_ms = world_now();
    world_sleep(TAKEN_MS);
    counts->late_deaths++;
    counts->late_takeovers += judge_counts.takeovers - before;
}

/* Without faults, until all have ended what they were at; then nothing may be left. */
static void end_all(struct play_counts *counts)
{
    int64_t max_ttl = 0, until;
    world_net = (struct world_net){ .usual_ms = 2 };
    judge_disturbed(all.plan.cluster ? MOVED_MS : CALM_MS);
    world_sleep(all.plan.calm_ms);
    if (all.plan.dies_late)
        die_late(counts);
    all.ending = true;
    for (int i = 0; i < all.plan.nclients; i++)
        if (all.client[i].proc->dead)
            world_bury(all.client[i].proc);
    for (until = world_now() + END_MS; !world_alone() && world_now() < until;)
        world_sleep(200);
    if (!world_alone())
        FAIL("clients that do not come to an end");
    for (int i = 0; i < all.plan.nlocks; i++)
        max_ttl = all.plan.ttl_ms[i] > max_ttl ? all.plan.ttl_ms[i] : max_ttl;
    world_sleep(max_ttl + 25000); /* copies of requests are still under way */
    world_sleep(300000);
    judge_end();
}

static void add_counts(struct play_counts *c, int64_t began)
{
    c->schedules++;
    c->events += world_counts.events;
    c->switches += world_counts.switches;
    c->commands += world_counts.commands;
    c->connections += world_counts.connections;
    c->calls += all.calls;
    c->cuts += world_counts.cuts;
    c->lost_replies += world_counts.lost;
    c->silences += world_counts.silences;
    c->late_copies += world_counts.late_copies;
    c->slow += world_counts.slow;
    c->losses += all.losses;
    c->heard += all.heard;
    c->circles += all.circles;
    c->elections += all.elections;
    c->led += operate_counts.led;
    c->deadlocks += all.deadlocks;
    c->broken += operate_counts.broken;
    c->asked += operate_counts.asked;
    c->grants += judge_counts.grants;
    if (all.plan.cluster)
        c->could_be_handed += judge_counts.could_be_handed;
    c->handovers += judge_counts.handovers;
    c->takeovers += judge_counts.takeovers;
    c->excused_beliefs += judge_counts.excused_beliefs;
    c->excused_grants += judge_counts.excused_grants;
    c->clusters += all.plan.cluster;
    c->keys_moved += slots_counts.keys;
    c->moved += slots_counts.moved;
    c->ask += slots_counts.ask;
    c->tryagain += slots_counts.tryagain;
    c->virtual_ms += world_now() - began;
}

bool play(uint64_t seed, const struct play_without *without, struct play_counts *counts)
{
    static bool begun;
    if (!begun)
        hf_allocator_set(pool_get, pool_resize, pool_free);
    begun = true;
    struct store kept = all.snapshot;
    memset(&all, 0, sizeof all);
    all.snapshot = kept;
    store_clear(&all.snapshot);
    make_plan(&all.plan, seed, without);
    memset(&judge_counts, 0, sizeof judge_counts);
    memset(&operate_counts, 0, sizeof operate_counts);
    world_begin(seed, all.plan.cluster ? 2 : 1);
    judge_begin();
    judge_watch(watch_jobs);
    int64_t began = world_now();
    world_net = all.plan.net;
    begin_locks();
    begin_clients(without);
    run_faults(counts);
    end_all(counts);
    add_counts(counts, began);
    world_end();
    return judge_verdict.times == 0;
}

uint64_t play_trace(void)
{
    return world_counts.trace;
}
