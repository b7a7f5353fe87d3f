/* SPDX-License-Identifier: MIT
 * renew.c - renewing leases, many in one operation; in a cluster many operations at once.
 */
#include "session/renew.h"

#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/keeper_impl.h"

#define PARTS_MAX      64   /* operations at once */
#define PLANNED_MAX    1000 /* renewals looked at for how long the others may be kept waiting */
#define MOVING_MS      100
#define SILENT_WAIT_MS 50   /* at least, for a server that may be silent */

/* What one operation renews: all on one server, or in a cluster in one slot. */
struct part {
    size_t       from, n; /* of the round's leases */
    struct keyspace     *keyspace;
    const void  *server;
    unsigned     epoch;   /* of the subscription that stood when it was sent */
    unsigned     moves;   /* of the topology by then */
    hf_err       result;
    int64_t      sent_ms;
    bool         settles; /* some of them are to be seen by this server from now on */
    bool         by_key;  /* while its slot moves: marks of absence stay as they are */
    bool         unacked; /* done on the server, but too few replicas have it: it does not count */
};

/* What is sent together. There is one for all rounds: it is too large for a thread's stack. */
struct round {
    size_t          n, parts;
    bool            several;  /* servers: one of them may be silent while the others are not */
    int64_t         begun_ms, deadline_ms;
    const atomic_int *stop; /* keeper_hurry() */
    struct lease   *lease[KEEP_MAX];
    struct op_lease ask[KEEP_MAX];
    enum verdict    verdict[KEEP_MAX];
    char           *note[KEEP_MAX];
    struct part     part[PARTS_MAX];
    struct op       op[PARTS_MAX];
    hf_error        err[PARTS_MAX];
};

/* Each round fills in what it reads: so the pages that no round needs are never touched. */
struct round *renew_new(void)
{
    return mem_alloc(sizeof(struct round));
}

static hf_loss loss_of(enum verdict v)
{
    return v == VERDICT_OURS       ? HF_LOSS_NONE
           : v == VERDICT_RELEASED ? HF_LOSS_RELEASED
           : v == VERDICT_BROKEN   ? HF_LOSS_BROKEN
                                   : HF_LOSS_TAKEN;
}

static struct lease *of_renewal(struct heap_node *n)
{
    return (struct lease *)((char *)n - offsetof(struct lease, renewal));
}

/* ---- for its holder -------------------------------------------------------------------------- */

void renew_op(struct op *op, enum keep_mode mode, const struct op_lease *one, enum verdict *verdict,
              int64_t deadline_ms)
{
    *op = (struct op){ .id = OP_keep,
                       .keep = { .mode = mode, .n = 1, .each = one, .verdicts = verdict },
                       .deadline_ms = deadline_ms,
                       .lane = mode == KEEP_CHECK ? LANE_PLAIN : LANE_KEEP };
}

hf_err renew_outcome(const struct op *op, hf_err e, struct renewed *ret, hf_error *reterr)
{
    *ret = (struct renewed){ .loss = HF_LOSS_NONE, .in_doubt = op->in_doubt > 0 };
    if (e)
        return e;
    enum verdict v = op->keep.verdicts[0];
    if (v == VERDICT_UNKNOWN)
        return err_set(reterr, HF_ENOQUORUM,
                       "too few servers can tell whether the lock still is ours");
    ret->loss = loss_of(v);
    ret->sent_ms = op->sent_ms;
    if (ret->loss != HF_LOSS_NONE || !op_unacked(op))
        return HF_OK;
    ret->in_doubt = true;
    return op_too_few(op, "the new lease", reterr);
}

/* ---- what is due ----------------------------------------------------------------------------- */

/* Name the lease in the record if it has been held long enough. */
static void publish_if_due_locked(struct keeper *k, struct lease *l, int64_t now)
{
    mutex_assert_held(&k->mu);
    if (l->naming.at || now < l->granted_ms + KEEPER_PUBLISH_AFTER_MS)
        return;
    keeper_name_locked(k, l);
    k->record_due = true;
}

static const void *server_of(const struct keeper *k, const struct lease *l)
{
    return topo_server(k->c->topo, l->grant.keys->key[KEY_LOCK]);
}

static int64_t until_due(const struct heap_node *n, int64_t now)
{
    return n->due_ms > now ? n->due_ms - now : 0;
}

/* No more than wait: so long the leases that are planned can be kept waiting. Of thousands only the
 * first are looked at. The others are due no sooner than the very first, and no shorter than the
 * shortest of all: when there is none that is shorter than those in hand, nobody has to be looked
 * at. */
static int64_t planned_can_wait_locked(const struct keeper *k, int64_t wait, int64_t now)
{
    mutex_assert_held(&k->mu);
    const struct heap *planned = &k->renewals;
    const struct heap_node *shortest = heap_first(&k->lengths);
    int64_t least = shortest ? lease_silence_ms(shortest->due_ms) : wait;
    if (!planned->len || least >= wait)
        return wait;
    for (size_t i = 0; i < planned->len && i < PLANNED_MAX; i++) {
        const struct lease *l = of_renewal(planned->node[i]);
        wait = clock_earlier(wait, until_due(&l->renewal, now) + lease_silence_ms(l->lease_ms));
    }
    if (planned->len > PLANNED_MAX)
        wait = clock_earlier(wait, until_due(heap_first(planned), now) + least);
    return wait;
}

/* Until when a round may be waited for: no lease at a server that answers is to be in doubt for one
 * that does not. */
static int64_t several_deadline_locked(struct keeper *k, const struct round *r, int64_t now)
{
    mutex_assert_held(&k->mu);
    int64_t wait = lease_silence_ms(r->lease[0]->lease_ms);
    for (size_t i = 1; i < r->n; i++)
        wait = clock_earlier(wait, lease_silence_ms(r->lease[i]->lease_ms));
    wait = planned_can_wait_locked(k, wait, now);
    for (size_t i = 0; i < r->parts; i++) {
        if (health_of(&k->health, r->part[i].server)->silent_until_ms) {
            wait /= 2; /* it most likely still is: less is lost */
            break;
        }
    }
    return now + (wait > SILENT_WAIT_MS ? wait : SILENT_WAIT_MS);
}

/* A part of the lease, then a fresh connection: a dead one must not cost the lease, nor that of a
 * shorter one which comes due meanwhile. */
static int64_t only_deadline_locked(struct keeper *k, const struct round *r, int64_t now)
{
    mutex_assert_held(&k->mu);
    int64_t patience = k->c->timeout_ms;
    for (size_t i = 0; i < r->n; i++)
        patience = clock_earlier(patience, lease_patience_ms(r->lease[i]));
    return keeper_deadline_locked(k, now, now + patience);
}

/* 0: it may be asked now. Else when: it has been silent, and nobody is to ask it before, and then
 * one at a time. */
static int64_t not_before(struct keeper *k, const struct round *r, const void *server, int64_t now)
{
    int64_t silent = r->several ? health_of(&k->health, server)->silent_until_ms : 0;
    if (!silent || silent > now)
        return silent;
    for (size_t i = 0; i < r->parts; i++)
        if (r->part[i].server == server)
            return now + SILENT_WAIT_MS;
    return 0;
}

/* The part of the round that a lease belongs to; NULL: there is no room for another. */
static struct part *part_for_locked(struct keeper *k, struct round *r, const struct lease *l)
{
    mutex_assert_held(&k->mu);
    struct keyspace *keyspace = keyspace_of(l->grant.keys);
    struct part *p = r->parts ? &r->part[r->parts - 1] : NULL;
    if (p && p->keyspace == keyspace)
        return p;
    if (r->parts == PARTS_MAX)
        return NULL;
    p = &r->part[r->parts++];
    *p = (struct part){ .from = r->n, .keyspace = keyspace, .server = server_of(k, l),
                        .epoch = keyspace->kept_epoch,
                        .moves = topo_moves_of(k->c->topo, l->grant.keys->key[KEY_LOCK]) };
    return p;
}

/* What to ask for. When the maximum hold ends before the ttl, a little more than is left, so that
 * lease_end() is not before it and this renewal is the last. Asked for what is left exactly, each
 * would fall short of it by 1 % and the next one follow, the sooner the less there is, and in the
 * end a delay of milliseconds would be a doubt. */
static int64_t ttl_to_ask(const struct lease *l, int64_t now)
{
    int64_t ttl = lease_ttl(l, now), left = l->hold_until_ms - now;
    if (!l->renew)
        return HF_TTL_MIN_MS;
    if (left >= ttl)
        return ttl;
    return clock_earlier(left < HF_TTL_MIN_MS ? HF_TTL_MIN_MS : lease_ttl_to_last(left), ttl);
}

/* Holds: the keeper's mu. */
static void take_locked(struct keeper *k, struct round *r, struct part *p, struct lease *l,
                        int64_t now)
{
    l->in_use++;
    p->n++;
    p->settles |= l->grant.grace_ms > 0 && keeper_unverified_locked(k, l);
    r->ask[r->n] = (struct op_lease){ .grant = &l->grant, .follower = l->follower,
                                      .ttl_ms = ttl_to_ask(l, now) };
    r->note[r->n] = NULL;
    lease_hint_sent_locked(l, now);
    r->lease[r->n++] = l;
}

/* Whether a lease whose turn has come is to be asked about; else it is here to be published. */
static bool to_renew_locked(const struct keeper *k, const struct lease *l, int64_t now)
{
    mutex_assert_held(&k->mu);
    return keeper_unverified_locked(k, l) || lease_suspect_locked(l)
           || lease_hinted_locked(l, now)
           || (lease_renewable(l) && (now >= lease_renew_from(l) || l->renewal.due_ms == 0));
}

/* Holds: mu, released in between. Take what is due, and what soon will be: it may as well travel
 * along. Those of a silent server may be thousands, all of which have to wait: so others are let
 * in. What is in hand stays as it is, and where it is sent, and for which subscription, was noted
 * when its part began: should that change meanwhile, the answer proves nothing, and it is asked
 * once more. */
static void collect_locked(struct keeper *k, struct round *r, int64_t now)
{
    mutex_assert_held(&k->mu);
    struct heap_node *n;
    size_t put_off = 0;

    while (r->n < KEEP_MAX && (n = heap_first(&k->renewals))) {
        struct lease *l = of_renewal(n);
        int64_t later = now + 1; /* it is here only to be published */
        if (to_renew_locked(k, l, now))
            later = not_before(k, r, server_of(k, l), now);
        bool early = r->n > 0 && !later && n->due_ms <= now + lease_early_ms(l);
        if (n->due_ms > now && !early)
            break;
        struct part *p = later ? NULL : part_for_locked(k, r, l);
        if (!p && !later)
            break; /* the round is full */
        heap_remove(&k->renewals, n);
        publish_if_due_locked(k, l, now);
        if (!later) {
            take_locked(k, r, p, l, now);
            continue;
        }
        keeper_plan_renewal_locked(k, l, later);
        if (++put_off % KEEPER_SLICE == 0)
            keeper_pause_locked(k);
    }
}

/* ---- when --------------------------------------------------------------------------------- */

void keeper_plan_renewal_locked(struct keeper *k, struct lease *l, int64_t not_before_ms)
{
    mutex_assert_held(&k->mu);
    int64_t due = CLOCK_NEVER;
    if (lease_renewable(l))
        due = lease_renew_at(l);
    if (keeper_unverified_locked(k, l) || lease_suspect_locked(l))
        due = 0; /* only when the server has found it ours again are we back */
    due = clock_earlier(due, lease_hint_due_locked(l));
    if (due < not_before_ms)
        due = not_before_ms;
    if (!l->naming.at && lease_state(l) != HF_STATE_LOST)
        due = clock_earlier(due, l->granted_ms + KEEPER_PUBLISH_AFTER_MS);
    if (due == CLOCK_NEVER) {
        heap_remove(&k->renewals, &l->renewal);
        return;
    }
    heap_put(&k->renewals, &l->renewal, due);
    keeper_wake_locked(k, due);
}

/* ---- renewing -------------------------------------------------------------------------------- */

static void request_part(struct round *r, size_t i)
{
    const struct part *p = &r->part[i];
    r->err[i].message[0] = '\0';
    r->op[i] = (struct op){ .id = OP_keep,
                            .keep = { .mode = KEEP_RENEW, .settles = p->settles, .n = p->n,
                                      .each = r->ask + p->from,
                                      .verdicts = r->verdict + p->from,
                                      .notes = r->note + p->from },
                            .deadline_ms = r->deadline_ms, .stop = r->stop, .urgent = true,
                            .lane = LANE_KEEP,
                            .reterr = &r->err[i] };
}

static void tell_not_renewed(struct keeper *k, const struct round *r, const struct part *p,
                             const char *why)
{
    char shown[120], others[48] = "";
    hf_bytes name = r->ask[p->from].grant->keys->name;
    if (p->n > 1)
        snprintf(others, sizeof others, " and %zu other%s", p->n - 1, p->n > 2 ? "s" : "");
    log_to(&k->c->log, HF_LOG_WARNING, "%s%s could not be renewed, trying again: %s",
           err_quote(shown, sizeof shown, name.data, name.len), others, why);
}

/* Thread: keeper. What became of one part. */
static void take_answer(struct keeper *k, struct round *r, struct part *p, struct op *op)
{
    p->result = op->result;
    if (p->result && atomic_load(r->stop))
        return;
    if (p->result) {
        tell_not_renewed(k, r, p, op->reterr->message);
        return;
    }
    p->sent_ms = op->sent_ms;
    p->by_key = op->by_key;
    p->unacked = op_unacked(op);
    if (p->unacked) {
        op_too_few(op, "a renewal", op->reterr);
        log_to(&k->c->log, HF_LOG_WARNING, "%s: it does not count, and is tried again",
               op->reterr->message);
    }
    health_time(health_of(&k->health, p->server), op->got.kept.server_ms, op->sent_ms,
                r->ask[p->from].ttl_ms, p->moves, &k->c->log);
}

/* Thread: keeper. Holds: nothing; the leases are in use, so they do not change. */
static void send(struct keeper *k, struct round *r)
{
    for (size_t i = 0; i < r->parts; i++)
        request_part(r, i);
    exec_run_all(k->c->exec, r->op, r->parts);
    for (size_t i = 0; i < r->parts; i++) {
        take_answer(k, r, &r->part[i], &r->op[i]);
        op_clear(&r->op[i]);
    }
}

/* What its part came to, for one lease. */
static void settle_one_locked(struct keeper *k, const struct part *p, struct lease *l,
                              enum verdict verdict, int64_t ttl_ms, int64_t now)
{
    mutex_assert_held(&k->mu);
    bool nothing = p->result || verdict == VERDICT_UNKNOWN; /* was said about it */
    bool lost = !nothing && loss_of(verdict) != HF_LOSS_NONE;
    lease_hint_answered_locked(l, !nothing, now);
    lease_unuse_locked(l);
    metrics_add(nothing || (p->unacked && !lost) ? &k->c->metrics.renewals_failed
                                                 : &k->c->metrics.renewals, !lost);
    if (nothing || (p->unacked && !lost)) {
        keeper_plan_renewal_locked(k, l, now + lease_pause_ms(l));
        return;
    }
    l->suspect = false;
    if (lost) {
        keeper_mark_lost_locked(k, l, loss_of(verdict));
        return;
    }
    l->moves = p->moves;
    if (!l->renew) { /* it was only to be found ours: a renewal never shortens */
        keeper_plan_renewal_locked(k, l, 0);
        return;
    }
    if (!p->by_key)
        lease_mark_back_locked(l, p->epoch, p->sent_ms);
    keeper_mark_proved_locked(k, l, p->sent_ms, ttl_ms);
    if (keeper_unverified_locked(k, l)) /* it will be back when its slot has arrived */
        keeper_plan_renewal_locked(k, l, now + MOVING_MS);
}

static void settle_locked(struct keeper *k, struct round *r)
{
    mutex_assert_held(&k->mu);
    int64_t now = clock_now_ms();
    for (size_t i = 0; i < r->parts; i++) {
        const struct part *p = &r->part[i];
        if (r->several)
            health_heard(health_of(&k->health, p->server),
                         p->result != HF_ECONN && p->result != HF_EUNSURE, r->begun_ms);
        for (size_t j = p->from; j < p->from + p->n; j++) {
            keeper_note_locked(k, r->lease[j], r->note[j],
                               !p->result && r->verdict[j] == VERDICT_BROKEN);
            settle_one_locked(k, p, r->lease[j], r->verdict[j], r->ask[j].ttl_ms, now);
        }
    }
}

bool renew_due_locked(struct keeper *k, int64_t now_ms)
{
    mutex_assert_held(&k->mu);
    struct round *r = k->round;
    r->n = r->parts = 0;
    r->several = !k->c->keyspace; /* each slot is a keyspace of its own, at one server or another */
    collect_locked(k, r, now_ms);
    if (!r->n)
        return false;
    r->begun_ms = now_ms;
    r->deadline_ms = r->several ? several_deadline_locked(k, r, now_ms)
                                : only_deadline_locked(k, r, now_ms);
    r->stop = &k->hurry;
    atomic_store(&k->hurry, 0);
    keeper_unlock(k);
    send(k, r);
    keeper_lock(k);
    settle_locked(k, r);
    return true;
}
