/* SPDX-License-Identifier: MIT
 * renew.c - renewing leases, many in one command; in a cluster many commands at once.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "session/keeper_impl.h"
#include "session/renew.h"

#define LEASES_MAX 200 /* a longer script would keep the server from others */
#define PARTS_MAX  CONN_ASKS_MAX /* as many as can be waited for together */
#define MOVING_MS  100

/* In a cluster who asks a server that may be silent waits for a part of a lease only. From a third
 * of it, when it is due, to a half, when it is in doubt, there are three such parts. */
#define SILENT_PART    18
#define SILENT_WAIT_MS 50

/* What one script renews: all on one server, or in a cluster in one slot. */
struct part {
    size_t       from, n; /* of the round's leases */
    struct home *home;
    const void  *server;  /* of a cluster; else NULL */
    unsigned     epoch;   /* of the subscription that stood when it was sent */
    unsigned     moves;   /* of the topology by then */
    hf_err       result;
    int64_t      sent_ms;
    bool         by_key;  /* while its slot moves: marks of absence stay as they are */
    bool         unacked; /* done on the server, but too few replicas have it: it lengthens nothing */
};

/* What is sent together. */
struct round {
    size_t        n, parts;
    struct lease *lease[LEASES_MAX];
    int64_t       ttl_ms[LEASES_MAX];
    long long     verdict[LEASES_MAX];
    struct part   part[PARTS_MAX];
    int64_t       begun_ms, deadline_ms;
};

/* On a quorum: about this lock too few servers could answer. */
#define NOBODY_KNOWS (-1)

/* What keep.lua's verdict means. */
static hf_loss loss_of(long long verdict)
{
    return verdict == 1 ? HF_LOSS_NONE : verdict == 2 ? HF_LOSS_RELEASED : HF_LOSS_TAKEN;
}

static struct lease *of_renewal(struct heap_node *n)
{
    return (struct lease *)((char *)n - offsetof(struct lease, renewal));
}

/* Holds: mu. Name the lease in the record if it has been held long enough. */
static void publish_if_due(struct keeper *k, struct lease *l, int64_t now)
{
    if (l->published || now < l->granted_ms + KEEPER_PUBLISH_AFTER_MS)
        return;
    l->published = true;
    k->published++;
    k->record_due = true;
}

/* ---- what is due ----------------------------------------------------------------------------- */

static const void *server_of(const struct keeper *k, const struct lease *l)
{
    struct topo *t = k->c->topo;
    return topo_cluster(t) ? topo_server(t, l->keys->key[KEY_LOCK]) : NULL;
}

/* Holds: mu. Until when a round in a cluster may be waited for: no lease at a server that answers
 * is to be in doubt for one that does not. */
static int64_t cluster_deadline(struct keeper *k, const struct round *r, int64_t now)
{
    int64_t wait = INT64_MAX / 4;
    for (size_t i = 0; i < r->n; i++)
        wait = clock_earlier(wait, r->lease[i]->lease_ms / SILENT_PART);
    for (size_t i = 0; i < k->renewals.len; i++) {
        const struct heap_node *n = k->renewals.node[i];
        int64_t due = n->due_ms > now ? n->due_ms - now : 0;
        wait = clock_earlier(wait, due + of_renewal((struct heap_node *)n)->lease_ms / SILENT_PART);
    }
    for (size_t i = 0; i < r->parts; i++) {
        if (peer_of(&k->peers, r->part[i].server)->silent_until_ms) {
            wait /= 2;
            break;
        }
    }
    return now + (wait > SILENT_WAIT_MS ? wait : SILENT_WAIT_MS);
}

/* What to ask for when the maximum hold ends before the ttl: a little more than is left, so that
 * lease_end() is not before it and this renewal is the last. Asked for what is left exactly, each
 * would fall short of it by 1 % and the next one follow, the sooner the less there is, and in the
 * end a delay of milliseconds would be a doubt. */
static int64_t last_ttl(int64_t left_ms, int64_t ttl_ms)
{
    int64_t ask = left_ms < HF_TTL_MIN_MS ? HF_TTL_MIN_MS : left_ms + left_ms / 98 + 4;
    return clock_earlier(ask, ttl_ms);
}

/* Holds: mu. 0: it may be asked now. Else when: it has been silent, and nobody is to ask it before,
 * and then one at a time. */
static int64_t not_before(struct keeper *k, const struct round *r, const void *server, int64_t now)
{
    int64_t silent = server ? peer_of(&k->peers, server)->silent_until_ms : 0;
    if (!silent || silent > now)
        return silent;
    for (size_t i = 0; i < r->parts; i++)
        if (r->part[i].server == server)
            return now + SILENT_WAIT_MS;
    return 0;
}

/* Holds: mu. The part of the round that a lease belongs to; NULL: there is no room for another. */
static struct part *part_for(struct keeper *k, struct round *r, const struct lease *l)
{
    hf_bytes key = l->keys->key[KEY_LOCK];
    struct part *p = r->parts ? &r->part[r->parts - 1] : NULL;
    if (p && p->home == l->keys->home)
        return p;
    if (r->parts == PARTS_MAX || (p && topo_replicas(k->c->topo, key) >= 0))
        return NULL; /* who waits for replicas does so alone */
    p = &r->part[r->parts++];
    *p = (struct part){ .from = r->n, .home = l->keys->home, .server = server_of(k, l),
                        .epoch = l->keys->home->kept_epoch,
                        .moves = topo_moves_of(k->c->topo, key) };
    return p;
}

/* Holds: mu. Take what is due, and what soon will be: it may as well travel along. */
static void collect(struct keeper *k, struct round *r, int64_t now)
{
    struct heap_node *n;
    int64_t patience = k->c->timeout_ms;

    while (r->n < LEASES_MAX && (n = heap_first(&k->renewals))) {
        struct lease *l = of_renewal(n);
        bool renew = keeper_unverified(k, l)
                     || (keeper_renewable(l)
                         && (now >= l->proven_ms + l->lease_ms / 4 || n->due_ms == 0));
        int64_t later = renew ? not_before(k, r, server_of(k, l), now) : now + 1;
        bool early = r->n > 0 && !later && n->due_ms <= now + l->lease_ms / 12;
        if (n->due_ms > now && !early)
            break;
        struct part *p = later ? NULL : part_for(k, r, l);
        if (!p && !later)
            break; /* the round is full */
        heap_remove(&k->renewals, n);
        publish_if_due(k, l, now);
        if (later) { /* it was here only to be published; or has to wait */
            keeper_plan_renewal(k, l, later);
            continue;
        }
        int64_t ttl = keeper_ttl(l, now), left = l->hold_until_ms - now;
        l->in_use++;
        p->n++;
        r->ttl_ms[r->n] = !l->renew ? HF_TTL_MIN_MS : left < ttl ? last_ttl(left, ttl) : ttl;
        r->lease[r->n++] = l;
        if (l->lease_ms / 3 < patience)
            patience = l->lease_ms / 3;
    }
    /* A third of the lease, then a fresh connection: a dead one must not cost the lease, nor that
     * of a shorter one which comes due meanwhile. */
    r->begun_ms = now;
    if (r->n)
        r->deadline_ms = r->part[0].server ? cluster_deadline(k, r, now)
                                           : keeper_deadline(k, now, now + patience);
}

/* ---- renewing -------------------------------------------------------------------------------- */

static void fill(const struct lease *l, const char *ttl, char text[LEASE_TEXT_SIZE],
                 hf_bytes keys[4], hf_bytes args[4])
{
    keys[0] = l->keys->key[KEY_LOCK];
    keys[1] = l->keys->key[KEY_OWN];
    keys[2] = l->keys->key[KEY_TOMB];
    keys[3] = l->keys->key[KEY_ABSENT];
    args[0] = hf_str(l->token);
    lease_values(l, text, &args[1], &args[2]);
    if (l->follower.len) {
        keys[1] = l->follower;
        args[2] = hf_str("+");
    }
    args[3] = hf_str(ttl);
}

/* HF_OK: sc->reply has the server's time and n verdicts. e: what became of it. */
static hf_err check_answer(struct script_call *sc, size_t n, hf_err e, hf_error *reterr)
{
    if (e)
        return e;
    bool sense = sc->reply->type == REPLY_ARRAY && sc->reply->len == n + 1;
    for (size_t i = 0; sense && i <= n; i++)
        sense = sc->reply->item[i]->type == REPLY_INT;
    if (sense)
        return HF_OK;
    sc->reply = reply_free(sc->reply);
    return err_set(reterr, HF_EPROTO, "the answer to a renewal makes no sense");
}

/* Thread: keeper. What became of one part, which is e. */
static void take_answer(struct keeper *k, struct round *r, struct part *p, struct script_call *sc,
                        hf_err e, hf_error *err)
{
    p->result = check_answer(sc, p->n, e, err);
    if (p->result) {
        log_to(&k->c->log, HF_LOG_WARNING, "renewal of %zu lock(s) failed, trying again: %s", p->n,
               err->message);
        return;
    }
    p->sent_ms = sc->sent_ms;
    p->by_key = sc->by_key;
    p->unacked = script_unacked(sc);
    if (p->unacked) {
        script_too_few(sc, "a renewal", err);
        log_to(&k->c->log, HF_LOG_WARNING, "%s: it does not count, and is tried again", err->message);
    }
    for (size_t i = 0; i < p->n; i++)
        r->verdict[p->from + i] = sc->reply->item[i + 1]->num;
    peer_time(peer_of(&k->peers, p->server), sc->reply->item[0]->num, sc->sent_ms,
              r->ttl_ms[p->from], p->moves, &k->c->log);
    reply_free(sc->reply);
}

/* Thread: keeper. Holds: nothing; the leases are in use, so they do not change. */
static void send(struct keeper *k, struct round *r)
{
    hf_bytes keys[4 * LEASES_MAX], args[PARTS_MAX + 4 * LEASES_MAX];
    char ttl[LEASES_MAX][24], text[LEASES_MAX][LEASE_TEXT_SIZE];
    struct script_call sc[PARTS_MAX];
    hf_err result[PARTS_MAX];
    hf_error err[PARTS_MAX];
    size_t at = 0;

    for (size_t i = 0; i < r->parts; i++) {
        const struct part *p = &r->part[i];
        sc[i] = (struct script_call){ .id = SCRIPT_keep, .nkeys = 4 * p->n,
                                      .keys = keys + 4 * p->from, .nargs = 1 + 4 * p->n,
                                      .args = args + at, .deadline_ms = r->deadline_ms,
                                      .urgent = true, .lane = LANE_KEEP };
        args[at++] = hf_str("renew");
        for (size_t j = p->from; j < p->from + p->n; j++, at += 4) {
            snprintf(ttl[j], sizeof ttl[j], "%lld", (long long)r->ttl_ms[j]);
            fill(r->lease[j], ttl[j], text[j], keys + 4 * j, args + at);
        }
    }
    script_run_all(k->c->topo, sc, r->parts, result, err);
    for (size_t i = 0; i < r->parts; i++)
        take_answer(k, r, &r->part[i], &sc[i], result[i], &err[i]);
}

hf_err renew_ask(hf_client *c, const struct lease *l, const char *mode, int64_t ttl_ms,
                 struct renew_answer *ret, hf_error *reterr)
{
    hf_bytes keys[4], args[5];
    char ttl[24], text[LEASE_TEXT_SIZE];

    snprintf(ttl, sizeof ttl, "%lld", (long long)ttl_ms);
    args[0] = hf_str(mode);
    fill(l, ttl, text, keys, args + 1);
    struct script_call sc = { .id = SCRIPT_keep, .nkeys = 4, .keys = keys, .nargs = 5,
                              .args = args, .deadline_ms = client_deadline(c),
                              .lane = strcmp(mode, "check") == 0 ? LANE_PLAIN : LANE_KEEP };
    hf_err e = check_answer(&sc, 1, script_run(c->topo, &sc, reterr), reterr);
    ret->in_doubt = sc.in_doubt > 0;
    if (e)
        return e;
    if (sc.reply->item[1]->num == NOBODY_KNOWS)
        e = err_set(reterr, HF_ENOQUORUM, "too few servers can tell whether the lock still is ours");
    ret->loss = loss_of(sc.reply->item[1]->num);
    ret->sent_ms = sc.sent_ms;
    reply_free(sc.reply);
    if (!e && ret->loss == HF_LOSS_NONE && script_unacked(&sc)) {
        ret->in_doubt = true;
        return script_too_few(&sc, "the new lease", reterr);
    }
    return e;
}

/* Holds: mu. What its part came to, for one lease. */
static void settle_one(struct keeper *k, const struct part *p, struct lease *l, long long verdict,
                       int64_t ttl_ms, int64_t now)
{
    bool lost = !p->result && loss_of(verdict) != HF_LOSS_NONE;
    bool nothing = p->result || verdict == NOBODY_KNOWS; /* was said about it */
    l->in_use--;
    if (nothing || (p->unacked && !lost)) {
        int64_t pause = l->ttl_ms / 20;
        keeper_plan_renewal(k, l, now + (pause < 10 ? 10 : pause > 1000 ? 1000 : pause));
        return;
    }
    if (lost) {
        keeper_mark_lost(k, l, loss_of(verdict));
        return;
    }
    l->moves = p->moves;
    if (!l->renew) { /* it was only to be found ours: a renewal never shortens */
        keeper_plan_renewal(k, l, 0);
        return;
    }
    if (!p->by_key)
        keeper_mark_back(l, p->epoch, p->sent_ms);
    keeper_mark_proved(k, l, p->sent_ms, ttl_ms);
    if (keeper_unverified(k, l)) /* it will be back when its slot has arrived */
        keeper_plan_renewal(k, l, now + MOVING_MS);
}

/* Holds: mu. */
static void settle(struct keeper *k, struct round *r)
{
    int64_t now = clock_now_ms();
    for (size_t i = 0; i < r->parts; i++) {
        const struct part *p = &r->part[i];
        if (p->server)
            peer_heard(peer_of(&k->peers, p->server),
                       p->result != HF_ECONN && p->result != HF_EUNSURE, r->begun_ms);
        for (size_t j = p->from; j < p->from + p->n; j++)
            settle_one(k, p, r->lease[j], r->verdict[j], r->ttl_ms[j], now);
    }
    pthread_cond_broadcast(&k->unused);
}

bool renew_due(struct keeper *k, int64_t now_ms)
{
    struct round r = { 0 };
    collect(k, &r, now_ms);
    if (!r.n)
        return false;
    pthread_mutex_unlock(&k->mu);
    send(k, &r);
    pthread_mutex_lock(&k->mu);
    settle(k, &r);
    return true;
}
