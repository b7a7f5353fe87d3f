/* SPDX-License-Identifier: MIT
 * renew.c - renewing leases, many in one command.
 */
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "session/keeper_impl.h"
#include "session/renew.h"

#define BATCH_MAX 200 /* a longer script would keep the server from others */
#define MOVING_MS 100

/* In a cluster: after a server was silent it is left alone for so long at least, and one that asks
 * waits for a part of a lease. From a third of it, when it is due, to a half, when it is in doubt,
 * there are three such parts. */
#define SILENT_MS      250
#define SILENT_PART    18
#define SILENT_WAIT_MS 50

struct batch {
    size_t        n;
    struct lease *lease[BATCH_MAX];
    int64_t       ttl_ms[BATCH_MAX];
    long long     verdict[BATCH_MAX];
    int64_t       begun_ms, deadline_ms, sent_ms;
    const void   *server; /* of a cluster; else NULL */
    struct home  *home;  /* of all of them: on one server, and in a cluster in one slot */
    unsigned      epoch; /* of the subscription that stood when it was sent */
    unsigned      moves; /* of the topology by then */
    hf_err        result;
    bool          by_key;  /* while its slot moves: marks of absence stay as they are */
    bool          unacked; /* done on the server, but too few replicas have it: it lengthens nothing */
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

/* ---- servers that are silent --------------------------------------------------------------- */

static const void *server_of(const struct keeper *k, const struct lease *l)
{
    struct topo *t = k->c->topo;
    return topo_cluster(t) ? topo_server(t, l->keys->key[KEY_LOCK]) : NULL;
}

/* Thread: keeper. When the server may be asked again; 0: it was not silent. */
static int64_t silent_until(const struct keeper *k, const void *server)
{
    for (int i = 0; server && i < KEEPER_SILENT_MAX; i++)
        if (k->silent[i].server == server)
            return k->silent[i].until_ms;
    return 0;
}

/* Thread: keeper. Remember whether it was; of too many, those that have been waiting longest. */
static void note_silence(struct keeper *k, const struct batch *b, int64_t now)
{
    int at = 0;
    bool silent = b->result == HF_ECONN || b->result == HF_EUNSURE;
    for (int i = 1; i < KEEPER_SILENT_MAX && k->silent[at].server != b->server; i++)
        if (k->silent[i].server == b->server || k->silent[i].until_ms < k->silent[at].until_ms)
            at = i;
    if (silent) {
        int64_t took = now - b->begun_ms; /* the others get as much */
        k->silent[at].server = b->server;
        k->silent[at].until_ms = now + (took > SILENT_MS ? took : SILENT_MS);
    } else if (k->silent[at].server == b->server) {
        k->silent[at].server = NULL;
        k->silent[at].until_ms = 0;
    }
}

/* Holds: mu. Thread: keeper. Until when one renewal in a cluster may be waited for: no lease at
 * another server is to be in doubt for it. */
static int64_t cluster_deadline(const struct keeper *k, const struct batch *b, int64_t now)
{
    int64_t wait = INT64_MAX / 4;
    for (size_t i = 0; i < b->n; i++)
        wait = clock_earlier(wait, b->lease[i]->lease_ms / SILENT_PART);
    for (size_t i = 0; i < k->renewals.len; i++) {
        const struct heap_node *n = k->renewals.node[i];
        int64_t due = n->due_ms > now ? n->due_ms - now : 0;
        wait = clock_earlier(wait, due + of_renewal((struct heap_node *)n)->lease_ms / SILENT_PART);
    }
    if (silent_until(k, b->server))
        wait /= 2;
    return now + (wait > SILENT_WAIT_MS ? wait : SILENT_WAIT_MS);
}

/* ---- renewing -------------------------------------------------------------------------------- */

/* What to ask for when the maximum hold ends before the ttl: a little more than is left, so that
 * lease_end() is not before it and this renewal is the last. Asked for what is left exactly, each
 * would fall short of it by 1 % and the next one follow, the sooner the less there is, and in the
 * end a delay of milliseconds would be a doubt. */
static int64_t last_ttl(int64_t left_ms, int64_t ttl_ms)
{
    int64_t ask = left_ms < HF_TTL_MIN_MS ? HF_TTL_MIN_MS : left_ms + left_ms / 98 + 4;
    return clock_earlier(ask, ttl_ms);
}

/* Holds: mu. Take what is due, and what soon will be: it may as well travel along. */
static void collect(struct keeper *k, struct batch *b, int64_t now)
{
    struct heap_node *n;
    int64_t patience = k->c->timeout_ms;

    while (b->n < BATCH_MAX && (n = heap_first(&k->renewals))) {
        struct lease *l = of_renewal(n);
        bool renew = keeper_unverified(k, l)
                     || (keeper_renewable(l)
                         && (now >= l->proven_ms + l->lease_ms / 4 || n->due_ms == 0));
        bool early = b->n > 0 && renew && n->due_ms <= now + l->lease_ms / 12;
        if ((n->due_ms > now && !early) || (b->home && l->keys->home != b->home))
            break;
        heap_remove(&k->renewals, n);
        publish_if_due(k, l, now);
        int64_t silent = silent_until(k, server_of(k, l));
        if (!renew || silent > now) { /* it was here only to be published; or has to wait */
            keeper_plan_renewal(k, l, silent > now ? silent : now + 1);
            continue;
        }
        int64_t ttl = keeper_ttl(l, now), left = l->hold_until_ms - now;
        l->in_use++;
        b->ttl_ms[b->n] = !l->renew ? HF_TTL_MIN_MS : left < ttl ? last_ttl(left, ttl) : ttl;
        b->home = l->keys->home;
        b->lease[b->n++] = l;
        if (l->lease_ms / 3 < patience)
            patience = l->lease_ms / 3;
    }
    if (!b->n)
        return;
    b->epoch = b->home->kept_epoch;
    b->moves = topo_moves_of(k->c->topo, b->lease[0]->keys->key[KEY_LOCK]);
    /* A third of the lease, then a fresh connection: a dead one must not cost the lease, nor that
     * of a shorter one which comes due meanwhile. */
    b->begun_ms = now;
    b->server = server_of(k, b->lease[0]);
    b->deadline_ms = b->server ? cluster_deadline(k, b, now) : keeper_deadline(k, now, now + patience);
}

/* Thread: keeper. Report a server whose clock runs or jumps against ours: expiry follows it. */
static void compare_clocks(struct keeper *k, int64_t server_ms, int64_t sent_ms, int64_t ttl_ms)
{
    int64_t now = clock_now_ms();
    if (server_ms < 0 || server_ms > INT64_MAX / 4)
        return; /* no time at all */
    int64_t offset = server_ms - (sent_ms + now) / 2;
    int64_t moved = offset - k->server_offset_ms;
    int64_t allowed = ttl_ms / 100 + (now - sent_ms) + 10;

    if (k->offset_known && (moved > allowed || moved < -allowed))
        log_to(&k->c->log, HF_LOG_WARNING,
               "the server's clock moved by %+lld ms against ours since the last renewal: leases "
               "end that much %s there", (long long)moved, moved > 0 ? "earlier" : "later");
    k->server_offset_ms = offset;
    k->offset_known = true;
}

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

/* HF_OK: sc->reply has the server's time and n verdicts. */
static hf_err keep(hf_client *c, struct script_call *sc, size_t n, hf_error *reterr)
{
    hf_err e = script_run(c->topo, sc, reterr);
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

/* Thread: keeper. Holds: nothing; the leases are in use, so they do not change. */
static void send(struct keeper *k, struct batch *b)
{
    hf_bytes keys[4 * BATCH_MAX], args[1 + 4 * BATCH_MAX];
    char ttl[BATCH_MAX][24], text[BATCH_MAX][LEASE_TEXT_SIZE];
    hf_error err;

    args[0] = hf_str("renew");
    for (size_t i = 0; i < b->n; i++) {
        snprintf(ttl[i], sizeof ttl[i], "%lld", (long long)b->ttl_ms[i]);
        fill(b->lease[i], ttl[i], text[i], keys + 4 * i, args + 1 + 4 * i);
    }
    struct script_call sc = { .id = SCRIPT_keep, .nkeys = 4 * b->n, .keys = keys,
                              .nargs = 1 + 4 * b->n, .args = args,
                              .deadline_ms = b->deadline_ms, .urgent = true,
                              .lane = LANE_KEEP };
    b->result = keep(k->c, &sc, b->n, &err);
    if (b->result) {
        log_to(&k->c->log, HF_LOG_WARNING, "renewal of %zu lock(s) failed, trying again: %s", b->n,
               err.message);
        return;
    }
    b->sent_ms = sc.sent_ms;
    b->by_key = sc.by_key;
    b->unacked = script_unacked(&sc);
    if (b->unacked) {
        script_too_few(&sc, "a renewal", &err);
        log_to(&k->c->log, HF_LOG_WARNING, "%s: it does not count, and is tried again", err.message);
    }
    for (size_t i = 0; i < b->n; i++)
        b->verdict[i] = sc.reply->item[i + 1]->num;
    if (b->moves != k->offset_moves || b->server != k->offset_server)
        k->offset_known = false;
    k->offset_moves = b->moves;
    k->offset_server = b->server;
    compare_clocks(k, sc.reply->item[0]->num, sc.sent_ms, b->ttl_ms[0]);
    reply_free(sc.reply);
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
    hf_err e = keep(c, &sc, 1, reterr);
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

/* Holds: mu. */
static void settle(struct keeper *k, struct batch *b)
{
    int64_t now = clock_now_ms();
    if (b->server)
        note_silence(k, b, now);
    for (size_t i = 0; i < b->n; i++) {
        struct lease *l = b->lease[i];
        l->in_use--;
        bool lost = !b->result && loss_of(b->verdict[i]) != HF_LOSS_NONE;
        bool nothing = b->result || b->verdict[i] == NOBODY_KNOWS; /* was said about it */
        if (nothing || (b->unacked && !lost)) {
            int64_t pause = l->ttl_ms / 20;
            keeper_plan_renewal(k, l, now + (pause < 10 ? 10 : pause > 1000 ? 1000 : pause));
        } else if (!lost) {
            l->moves = b->moves;
            if (!l->renew) { /* it was only to be found ours: a renewal never shortens */
                keeper_plan_renewal(k, l, 0);
                continue;
            }
            if (!b->by_key)
                keeper_mark_back(l, b->epoch, b->sent_ms);
            keeper_mark_proved(k, l, b->sent_ms, b->ttl_ms[i]);
            if (keeper_unverified(k, l)) /* it will be back when its slot has arrived */
                keeper_plan_renewal(k, l, now + MOVING_MS);
        } else {
            keeper_mark_lost(k, l, loss_of(b->verdict[i]));
        }
    }
    pthread_cond_broadcast(&k->unused);
}

bool renew_due(struct keeper *k, int64_t now_ms)
{
    struct batch b = { 0 };
    collect(k, &b, now_ms);
    if (!b.n)
        return false;
    pthread_mutex_unlock(&k->mu);
    send(k, &b);
    pthread_mutex_lock(&k->mu);
    settle(k, &b);
    return true;
}
