/* SPDX-License-Identifier: MIT
 * script.c - running the embedded Lua scripts, whatever the connection does meanwhile.
 */
#include "script/script.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/random.h"
#include "net/servererr.h"
#include "script/cluster.h"
#include "script/plain.h"
#include "script/quorum.h"

#define RETRY_MIN_MS 5
#define RETRY_MAX_MS 200
#define SERVER_PATIENCE_MS 2000 /* for one server of a cluster */
#define REDIRECTIONS_MAX   5    /* without a pause */

static const struct {
    const char *name, *sha, *text;
} scripts[SCRIPT_COUNT] = {
#define HF_SCRIPT(name, sha, text) { #name, sha, text },
#include "scripts.inc"
#undef HF_SCRIPT
};

int script_fill(hf_bytes *argv, const struct script_call *sc, bool text, char count[16])
{
    int n = 0;
    const char *nothing = sc->greeting ? sc->greeting->nothing : NULL;
    snprintf(count, 16, "%zu", sc->nkeys + (nothing != NULL));
    argv[n++] = hf_str(text ? "EVAL" : "EVALSHA");
    argv[n++] = hf_str(text ? scripts[sc->id].text : scripts[sc->id].sha);
    argv[n++] = hf_str(count);
    for (size_t i = 0; i < sc->nkeys; i++)
        argv[n++] = sc->keys[i];
    if (nothing)
        argv[n++] = hf_str(nothing);
    for (size_t i = 0; i < sc->nargs; i++)
        argv[n++] = sc->args[i];
    return n;
}

static bool stopped(const struct script_call *sc)
{
    return sc->stop && atomic_load(sc->stop);
}

/* False when there is no time left for another attempt. */
static bool back_off(const struct script_call *sc, int64_t *step_ms)
{
    int64_t now = clock_now_ms();
    int64_t until = now + random_between(*step_ms / 2, *step_ms);
    if (until >= sc->deadline_ms || stopped(sc))
        return false;
    clock_sleep_until(until);
    *step_ms = 2 * *step_ms < RETRY_MAX_MS ? 2 * *step_ms : RETRY_MAX_MS;
    return true;
}

/* A request on its way. */
struct journey {
    struct topo    *t;
    struct cluster *cluster; /* NULL: one server has everything */
    struct conn    *cn;
    bool            text;    /* the server may not know the script */
    bool            asking;  /* this once, where an ASK sent us */
    unsigned        redirections;
    int64_t         step_ms, moving_since_ms;
};

/* One sending. HF_OK with sc->reply set, which may be an error of the server. */
static hf_err send_once(struct journey *j, struct script_call *sc, hf_error *reterr)
{
    hf_bytes small[24], *argv = small;
    char count[16];
    size_t need = sc->nkeys + sc->nargs + 4;

    if (need > sizeof small / sizeof small[0] && !(argv = mem_alloc(need * sizeof *argv)))
        return err_set(reterr, HF_ENOMEM, "out of memory");
    struct call call = { .deadline_ms = sc->deadline_ms, .stop = sc->stop, .urgent = sc->urgent,
                         .asking = j->asking };
    if (j->cluster) { /* the server may have lost the slot, or be dead: not all the time for it */
        call.impatient = true;
        call.deadline_ms = clock_earlier(call.deadline_ms, clock_now_ms() + SERVER_PATIENCE_MS);
        if (sc->greeting && !j->asking)
            call.epoch = greeting_epoch(atomic_load(&sc->greeting->done[sc->lane]));
    }
    hf_err e = conn_call(j->cn, script_fill(argv, sc, j->text, count), argv, &call, reterr);
    if (argv != small)
        mem_free(argv);
    sc->reply = call.reply;
    sc->sent_ms = call.sent_ms;
    sc->epoch = call.epoch;
    sc->acked = call.acked; /* 0 where nobody was asked */
    return e;
}

/* The first request for this slot on this connection: hello.lua has to go before it. An error of
 * the server is in sc->reply, as if it were the answer to the request itself. */
static hf_err greet(struct journey *j, struct script_call *sc, hf_error *reterr)
{
    struct greeting *g = sc->greeting;
    hf_bytes keys[] = { hf_str(g->counter), hf_str(g->reign) }, args[] = { hf_str("") };
    struct script_call hello = { .id = SCRIPT_hello, .nkeys = 2, .keys = keys, .nargs = 1,
                                 .args = args, .deadline_ms = sc->deadline_ms, .stop = sc->stop,
                                 .urgent = sc->urgent, .lane = sc->lane };
    unsigned moves = topo_moves_of(j->t, keys[0]);
    hf_err e = send_once(j, &hello, reterr);
    sc->reply = hello.reply;
    if (e || sc->reply->type == REPLY_ERROR)
        return e;
    long long code = sc->reply->type == REPLY_ARRAY && sc->reply->len > 0 ? sc->reply->item[0]->num : 0;
    sc->reply = reply_free(sc->reply);
    if (code == -4)
        return err_set(reterr, HF_ECOUNTER,
                       "the key %s, the fencing counter, holds something else: look at it, and "
                       "delete it if nobody else needs it", g->counter);
    atomic_store(&g->done[sc->lane], greeting_mark(hello.epoch, moves));
    return HF_OK;
}

static bool greeted(const struct journey *j, const struct script_call *sc)
{
    unsigned epoch = conn_epoch(j->cn), moves = topo_moves_of(j->t, sc->keys[0]);
    return epoch && greeting_mark(epoch, moves) == atomic_load(&sc->greeting->done[sc->lane]);
}

/* The slot is on its way to another server. What can be done key by key is; the rest waits for the
 * end of it. */
static hf_err in_motion(struct journey *j, struct script_call *sc, hf_err code, hf_error *reterr)
{
    int64_t now = clock_now_ms();
    if (!j->moving_since_ms)
        j->moving_since_ms = now;
    if (cluster_can_part(sc, now - j->moving_since_ms))
        return cluster_part(j->t, sc, reterr);
    return back_off(sc, &j->step_ms) ? HF_OK : code;
}

/* MOVED and ASK: at once, unless it goes in a circle. What takes numbers is not run in two
 * places: it waits until the slot has arrived, and then goes there as everything does, behind a
 * greeting. */
static hf_err redirected(struct journey *j, struct script_call *sc, const struct reply *rp,
                         hf_error *reterr)
{
    struct conn *asked;
    char words[80];
    hf_err e = cluster_redirected(j->cluster, rp, j->cn, sc->lane, &asked, reterr);
    if (e)
        return e;
    err_set(reterr, HF_ECONN,
            "a slot is being moved, or the servers of the cluster do not agree on who has it (%s)",
            err_quote(words, sizeof words, rp->str, rp->len));
    if (asked && sc->greeting)
        return in_motion(j, sc, HF_ECONN, reterr);
    j->asking = asked != NULL;
    if (asked)
        j->cn = asked;
    bool on = ++j->redirections % REDIRECTIONS_MAX || back_off(sc, &j->step_ms);
    return on ? HF_OK : HF_ECONN;
}

/* It will pass. In a cluster it may have passed already, elsewhere. */
static hf_err wait_for_it(struct journey *j, struct script_call *sc, const struct reply *rp, hf_err code,
                          hf_error *reterr)
{
    int64_t now = clock_now_ms();
    if (j->cluster && strncmp(rp->str, "TRYAGAIN", 8) == 0)
        return in_motion(j, sc, code, reterr);
    if (j->cluster)
        cluster_trouble(j->cluster, now, clock_earlier(sc->deadline_ms, now + SERVER_PATIENCE_MS));
    return back_off(sc, &j->step_ms) ? HF_OK : code;
}

/* Judge the error reply in sc and free it. HF_OK: try again; or, with a reply, it is done. */
static hf_err judge(struct journey *j, struct script_call *sc, hf_error *reterr)
{
    hf_err code;
    AUTO(reply_freep) struct reply *rp = sc->reply;
    enum server_verdict v = server_judge(rp, &code);
    server_error(rp, code, reterr);
    sc->reply = NULL;

    switch (v) {
    case SERVER_NOSCRIPT:
        j->text = true;
        return HF_OK;
    case SERVER_RECONNECT:
        topo_wrong(j->t, j->cn, "it answered READONLY");
        return back_off(sc, &j->step_ms) ? HF_OK : code;
    case SERVER_RETRY:
        return wait_for_it(j, sc, rp, code, reterr);
    case SERVER_REDIRECT:
        return j->cluster ? redirected(j, sc, rp, reterr) : code;
    case SERVER_UNKNOWN:
        sc->in_doubt++; /* it may have done half of its work */
        return err_known(reterr, code, HF_UNKNOWN);
    case SERVER_REFUSED:
        break;
    }
    return code;
}

/* No reply. HF_OK: try again. */
static hf_err unanswered(struct journey *j, struct script_call *sc, hf_err e)
{
    int64_t now = clock_now_ms();
    bool again = e == HF_EUNSURE || (j->cluster && (e == HF_ECONN || e == HF_EBUSY));
    if (!again)
        return e;
    if (j->cluster)
        cluster_trouble(j->cluster, now, clock_earlier(sc->deadline_ms, now + SERVER_PATIENCE_MS));
    if (back_off(sc, &j->step_ms))
        return HF_OK;
    return e == HF_EBUSY ? HF_ECONN : e;
}

/* By scripts, on the server that has the key. */
static hf_err travel(struct topo *t, struct script_call *sc, bool acked, hf_error *reterr)
{
    struct journey j = { .t = t, .cluster = topo_cluster(t), .step_ms = RETRY_MIN_MS };
    uint64_t bit = UINT64_C(1) << (sc->id % 64);
    for (;;) {
        if (!j.asking)
            j.cn = topo_lane(t, sc->keys[0], sc->lane);
        /* Where replicas are waited for, NOSCRIPT costs that wait once more: then the text goes
         * along as long as the server is not known to have it. */
        j.text |= acked && !(atomic_load(conn_notes(j.cn)) & bit);
        bool first = j.cluster && sc->greeting && !j.asking && !greeted(&j, sc);
        hf_err e = first ? greet(&j, sc, reterr) : send_once(&j, sc, reterr);
        j.asking = false;
        if (!e && first && !sc->reply)
            continue;
        if (e == HF_EUNSURE && !first)
            sc->in_doubt++;
        if (e)
            e = unanswered(&j, sc, e);
        else if (sc->reply->type == REPLY_ERROR)
            e = judge(&j, sc, reterr);
        else if (acked) {
            sc->wanted = topo_replicas(t, sc->keys[0]);
            atomic_fetch_or(conn_notes(j.cn), bit);
        }
        if (e || sc->reply)
            return e;
    }
}

hf_err script_run(struct topo *t, struct script_call *sc, hf_error *reterr)
{
    struct plain *p = topo_attached(t);
    bool acked = sc->lane != LANE_PLAIN && topo_replicas(t, sc->keys[0]) >= 0;
    sc->acked = sc->wanted = 0;
    sc->reply = NULL;
    sc->in_doubt = 0;
    sc->by_key = false;
    if (topo_quorum(t))
        return quorum_run(topo_quorum(t), sc, reterr);
    if (p && plain_protocol(p) != PROTOCOL_SCRIPT)
        return acked ? err_set(reterr, HF_ENOTSUP, "replicas= and fsync= need scripts: use "
                                                   "protocol=script, or leave them out")
                     : plain_run(p, sc, reterr);
    if (topo_cluster(t) && sc->id == SCRIPT_scan)
        return cluster_scan(t, sc, reterr);
    return travel(t, sc, acked, reterr);
}

void script_run_all(struct topo *t, struct script_call *sc, size_t n, hf_err *ret, hf_error *err)
{
    enum sent sent[CONN_ASKS_MAX] = { SENT_NOT };
    if (n > 1 && topo_cluster(t))
        cluster_send_all(t, sc, n, sent, ret, err);
    /* Those whose servers live before those that may use up the time. */
    for (int now = SENT_VAIN; now >= SENT_NOT; now--)
        for (size_t i = 0; i < n; i++)
            if (sent[i] == (enum sent)now)
                ret[i] = script_run(t, &sc[i], &err[i]);
}

hf_err script_too_few(const struct script_call *sc, const char *what, hf_error *reterr)
{
    if (sc->acked < 0)
        return err_set(reterr, HF_EREPLICAS, "%s is not known to be on the server's disk: is that "
                                              "slow, or appendfsync no there?", what);
    return err_set(reterr, HF_EREPLICAS,
                   "%s was acknowledged by %d of the %d replicas that were asked for", what,
                   sc->acked, sc->wanted);
}

/* Not allowed, renamed away, or unknown to a proxy. A right that is missing for a key, or for a
 * command inside the script, is something else: it would be missing without scripts as well. */
static bool no_scripts(const struct reply *rp)
{
    return strstr(rp->str, "unknown command") || strstr(rp->str, "unsupported command")
           || (strncmp(rp->str, "NOPERM", 6) == 0 && strcasestr(rp->str, "'eval'"));
}

hf_err script_greet(struct link *l, const struct script_call *sc, int64_t deadline_ms,
                    struct reply **ret, bool *ret_refused, hf_error *reterr)
{
    hf_bytes argv[24];
    char count[16];
    struct reply *rp;
    hf_err e = link_exchange(l, script_fill(argv, sc, true, count), argv, deadline_ms, &rp, reterr);
    if (e)
        return e;
    if (rp->type == REPLY_ERROR) {
        *ret_refused = no_scripts(rp);
        e = server_refusal(rp, reterr);
        reply_free(rp);
        return e;
    }
    *ret = rp;
    return HF_OK;
}
