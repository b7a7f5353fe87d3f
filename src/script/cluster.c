/* SPDX-License-Identifier: MIT
 * cluster.c - what is different about scripts in a cluster.
 */
#include "script/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"

#define FREE_AFTER_MS 100 /* the next one in the queue then has to find out by itself */
#define SERVERS_MAX   1024

/* ---- key by key ------------------------------------------------------------------------------ */

static bool is(hf_bytes b, const char *text)
{
    return b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

bool cluster_can_part(const struct script_call *sc, int64_t for_ms)
{
    if (sc->id == SCRIPT_keep)
        return is(sc->args[0], "renew") || is(sc->args[0], "check");
    return sc->id == SCRIPT_release && for_ms >= FREE_AFTER_MS;
}

struct part {
    struct topo              *t;
    const struct script_call *whole;
    const char               *mode; /* of hold_key.lua */
    int64_t                   sent_ms; /* of the first */
    long long                 server_ms;
    unsigned                  in_doubt;
    int                       acked, wanted;
    hf_err                    e;
    hf_error                 *reterr;
};

/* True: the key was what it must be. False: it was not; or p->e. */
static bool hold(struct part *p, hf_bytes key, const char *what, hf_bytes text, hf_bytes ttl)
{
    if (p->e)
        return false;
    hf_bytes args[] = { hf_str(p->mode), hf_str(what), text, ttl };
    struct script_call sc = { .id = SCRIPT_hold_key, .nkeys = 1, .keys = &key, .nargs = 4,
                              .args = args, .deadline_ms = p->whole->deadline_ms,
                              .stop = p->whole->stop, .urgent = p->whole->urgent,
                              .lane = p->whole->lane };
    p->e = script_run(p->t, &sc, p->reterr);
    p->in_doubt += sc.in_doubt;
    if (p->e)
        return false;
    const struct reply *rp = sc.reply;
    bool sense = rp->type == REPLY_ARRAY && rp->len == 2 && rp->item[0]->type == REPLY_INT
                 && rp->item[1]->type == REPLY_INT;
    bool held = sense && rp->item[1]->num == 1;
    if (!p->sent_ms)
        p->sent_ms = sc.sent_ms;
    if (sense)
        p->server_ms = rp->item[0]->num;
    else
        p->e = err_set(p->reterr, HF_EPROTO, "the answer to a renewal makes no sense");
    if (held && sc.wanted && sc.acked - sc.wanted < p->acked - p->wanted) {
        p->acked = sc.acked;
        p->wanted = sc.wanted;
    }
    reply_free(sc.reply);
    return held;
}

/* The owner is there, as it has just been found: its mark of absence goes. */
static bool unmark(struct part *p, hf_bytes marks, hf_bytes of)
{
    const char *mode = p->mode;
    p->mode = "unmark";
    bool done = hold(p, marks, "any", of, hf_str("0"));
    p->mode = mode;
    return done;
}

/* One of several holders. A lock that ended meanwhile, and began anew, began without us: so we look
 * at the holders once more when the lock has its time. */
static bool hold_share(struct part *p, hf_bytes lock, hf_bytes own, hf_bytes token, hf_bytes ttl)
{
    AUTO(mem_freep) char *name = mem_alloc(own.len);
    size_t base = own.len - strlen("own");
    if (!name) {
        p->e = err_set(p->reterr, HF_ENOMEM, "out of memory");
        return false;
    }
    memcpy(name, own.data, own.len);
    hf_bytes key = { name, base + 1 };
    name[base] = 'd';
    hold(p, key, "any", hf_str(""), ttl);
    name[base] = 'h';
    return hold(p, key, "member", token, ttl) && hold(p, lock, "kind", hf_str("shared."), ttl)
           && hold(p, key, "member", token, ttl);
}

/* The keys and arguments of one lock, as keep.lua has them. */
static bool hold_lock(struct part *p, const hf_bytes *keys, const hf_bytes *args)
{
    hf_bytes token = args[0], value = args[1], nonce = args[2], ttl = args[3];
    if (is(value, "shared") && !nonce.len)
        return hold_share(p, keys[0], keys[1], token, ttl) && unmark(p, keys[3], token);
    if (is(nonce, "+"))
        hold(p, keys[1], "any", hf_str(""), ttl);
    else if (nonce.len && !hold(p, keys[1], "value", nonce, ttl))
        return false;
    return hold(p, keys[0], "value", value, ttl) && unmark(p, keys[3], value);
}

static struct reply *verdicts(const struct part *p, const bool *held, size_t n)
{
    struct reply *rp = reply_array(n + 1);
    bool whole = rp != NULL;
    for (size_t i = 0; whole && i <= n; i++)
        whole = (rp->item[i] = reply_int(i ? held[i - 1] : p->server_ms)) != NULL;
    return whole ? rp : reply_free(rp);
}

static void keep_parts(struct part *p, struct script_call *sc)
{
    size_t n = sc->nkeys / 4;
    AUTO(mem_freep) bool *held = mem_zalloc(n * sizeof *held);
    for (size_t i = 0; held && i < n && !p->e; i++)
        held[i] = hold_lock(p, sc->keys + 4 * i, sc->args + 1 + 4 * i);
    if (!p->e && (!held || !(sc->reply = verdicts(p, held, n))))
        p->e = err_set(p->reterr, HF_ENOMEM, "out of memory");
}

/* What stands beside a caller-chosen id goes last: broken off before, the release can be done again. */
static void free_parts(struct part *p, struct script_call *sc)
{
    bool own = sc->nargs > 1, held = true;
    if (own) {
        p->mode = "check";
        held = hold(p, sc->keys[3], "value", sc->args[1], hf_str("0"));
    }
    p->mode = "free";
    held = held && hold(p, sc->keys[0], "value", sc->args[0], hf_str("0"));
    if (held && own)
        hold(p, sc->keys[3], "value", sc->args[1], hf_str("0"));
    if (!p->e && !(sc->reply = reply_int(held)))
        p->e = err_set(p->reterr, HF_ENOMEM, "out of memory");
}

hf_err cluster_part(struct topo *t, struct script_call *sc, hf_error *reterr)
{
    struct part p = { .t = t, .whole = sc, .reterr = reterr };
    if (sc->id == SCRIPT_keep) {
        p.mode = is(sc->args[0], "renew") ? "renew" : "check";
        keep_parts(&p, sc);
    } else {
        free_parts(&p, sc);
    }
    sc->by_key = true;
    sc->sent_ms = p.sent_ms;
    sc->in_doubt += p.in_doubt;
    sc->acked = p.acked;
    sc->wanted = p.wanted;
    return p.e;
}

/* ---- many at once ---------------------------------------------------------------------------- */

struct crowd {
    struct topo        *t;
    struct conn_ask     ask[CONN_ASKS_MAX];
    bool                text[CONN_ASKS_MAX]; /* the server did not know the script */
    struct script_call *sc;
    enum sent          *sent;
    hf_err             *ret;
};

static void begin(struct crowd *cr, size_t i)
{
    struct script_call *sc = &cr->sc[i];
    size_t need = sc->nkeys + sc->nargs + 4;
    AUTO(mem_freep) hf_bytes *argv = mem_alloc(need * sizeof *argv);
    char count[16];
    sc->reply = NULL;
    sc->in_doubt = 0;
    sc->by_key = false;
    sc->acked = sc->wanted = 0;
    sc->sent_ms = clock_now_ms();
    cr->ask[i].conn = topo_lane(cr->t, sc->keys[0], sc->lane);
    if (!argv || conn_begin(cr->ask[i].conn, script_fill(argv, sc, cr->text[i], count), argv, NULL,
                            &cr->ask[i].request))
        cr->ask[i].request = NULL;
}

/* What is no answer, but says where to go or what to do, is left to who sends it once more. */
static bool answered(void *arg, size_t i)
{
    struct crowd *cr = arg;
    struct conn_ask *a = &cr->ask[i];
    AUTO(reply_freep) struct reply *rp = a->reply;
    hf_err code;
    a->reply = NULL;
    if (a->result)
        return false;
    if (rp->type != REPLY_ERROR) {
        cr->sent[i] = SENT_DONE;
        cr->ret[i] = HF_OK;
        cr->sc[i].reply = rp;
        rp = NULL;
        return false;
    }
    cr->sent[i] = SENT_VAIN;
    if (server_judge(rp, &code) == SERVER_NOSCRIPT && !cr->text[i]) {
        cr->text[i] = true;
        begin(cr, i);
    }
    return false;
}

void cluster_send_all(struct topo *t, struct script_call *sc, size_t n, enum sent *sent, hf_err *ret,
                      hf_error *err)
{
    struct crowd cr = { .t = t, .sc = sc, .sent = sent, .ret = ret };
    for (size_t i = 0; i < n; i++)
        begin(&cr, i);
    conn_gather(cr.ask, n, cluster_bells(topo_cluster(t)), sc[0].deadline_ms, sc[0].stop, answered,
                &cr);
    for (size_t i = 0; i < n; i++) {
        struct conn_ask *a = &cr.ask[i];
        if (!a->request)
            continue;
        conn_abandon(a->conn, a->request);
        if (sc[i].urgent)
            conn_drop(a->conn, "no reply in time");
        sc[i].in_doubt = 1;
        sent[i] = SENT_DONE;
        ret[i] = err_set(&err[i], HF_EUNSURE, "a request was sent and no reply came in time");
    }
}

/* ---- all servers ----------------------------------------------------------------------------- */

/* "which server:its own cursor"; "0" at the beginning and at the end. */
static hf_err scan_one(struct conn *cn, const struct script_call *sc, const char *cursor,
                       struct reply **ret, hf_error *reterr)
{
    hf_bytes args[3] = { hf_str(cursor), sc->args[1], sc->args[2] }, argv[8];
    struct script_call one = *sc;
    char count[16];
    one.nkeys = 0; /* whatever slots it has */
    one.args = args;
    struct call call = { .deadline_ms = sc->deadline_ms, .impatient = true };
    hf_err e = conn_call(cn, script_fill(argv, &one, true, count), argv, &call, reterr);
    if (e)
        return e;
    if (call.reply->type == REPLY_ERROR) {
        e = server_refusal(call.reply, reterr);
    } else if (call.reply->type != REPLY_ARRAY || call.reply->len != 2
               || call.reply->item[0]->type != REPLY_BULK) {
        e = err_set(reterr, HF_EPROTO, "the answer to SCAN makes no sense");
    }
    *ret = e ? reply_free(call.reply) : call.reply;
    return e;
}

hf_err cluster_scan(struct topo *t, struct script_call *sc, hf_error *reterr)
{
    struct conn *server[SERVERS_MAX];
    char text[64], next[64];
    snprintf(text, sizeof text, "%.*s", (int)sc->args[0].len, (const char *)sc->args[0].data);
    size_t n = cluster_servers(topo_cluster(t), server, SERVERS_MAX), at = strtoul(text, NULL, 10);
    const char *colon = strchr(text, ':'), *cursor = colon ? colon + 1 : "0";
    if (n > SERVERS_MAX)
        n = SERVERS_MAX;
    if (at >= n) {
        struct reply *end = reply_array(2);
        bool whole = end && (end->item[0] = reply_bytes("0", 1)) && (end->item[1] = reply_array(0));
        sc->reply = whole ? end : reply_free(end);
        return whole ? HF_OK : err_set(reterr, HF_ENOMEM, "out of memory");
    }
    hf_err e = scan_one(server[at], sc, cursor, &sc->reply, reterr);
    if (e)
        return e;
    struct reply *was = sc->reply->item[0];
    if (strcmp(was->str, "0") != 0)
        snprintf(next, sizeof next, "%zu:%.30s", at, was->str);
    else if (at + 1 < n)
        snprintf(next, sizeof next, "%zu:0", at + 1);
    else
        snprintf(next, sizeof next, "0");
    if (!(sc->reply->item[0] = reply_bytes(next, strlen(next)))) {
        sc->reply->item[0] = was;
        sc->reply = reply_free(sc->reply);
        return err_set(reterr, HF_ENOMEM, "out of memory");
    }
    reply_free(was);
    return HF_OK;
}
