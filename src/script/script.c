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
#include "script/plain.h"
#include "script/quorum.h"

#define RETRY_MIN_MS 5
#define RETRY_MAX_MS 200

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
    snprintf(count, 16, "%zu", sc->nkeys);
    argv[n++] = hf_str(text ? "EVAL" : "EVALSHA");
    argv[n++] = hf_str(text ? scripts[sc->id].text : scripts[sc->id].sha);
    argv[n++] = hf_str(count);
    for (size_t i = 0; i < sc->nkeys; i++)
        argv[n++] = sc->keys[i];
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

/* One sending. HF_OK with sc->reply set, which may be an error of the server. */
static hf_err send_once(struct conn *cn, struct script_call *sc, bool text, hf_error *reterr)
{
    hf_bytes small[24], *argv = small;
    char count[16];
    size_t need = sc->nkeys + sc->nargs + 3;

    if (need > sizeof small / sizeof small[0] && !(argv = mem_alloc(need * sizeof *argv)))
        return err_set(reterr, HF_ENOMEM, "out of memory");
    struct call call = { .deadline_ms = sc->deadline_ms, .stop = sc->stop,
                         .urgent = sc->urgent };
    hf_err e = conn_call(cn, script_fill(argv, sc, text, count), argv, &call, reterr);
    if (argv != small)
        mem_free(argv);
    sc->reply = call.reply;
    sc->sent_ms = call.sent_ms;
    sc->acked = call.acked; /* 0 where nobody was asked */
    return e;
}

/* Judge the error reply in sc and free it. HF_OK: try again. */
static hf_err judge(struct topo *t, struct conn *cn, struct script_call *sc, bool *text,
                    int64_t *step_ms, hf_error *reterr)
{
    hf_err code;
    enum server_verdict v = server_judge(sc->reply, &code);
    server_error(sc->reply, code, reterr);
    sc->reply = reply_free(sc->reply);

    switch (v) {
    case SERVER_NOSCRIPT:
        *text = true;
        return HF_OK;
    case SERVER_RECONNECT:
        topo_wrong(t, cn, "it answered READONLY");
        return back_off(sc, step_ms) ? HF_OK : code;
    case SERVER_RETRY:
        return back_off(sc, step_ms) ? HF_OK : code;
    case SERVER_UNKNOWN:
        sc->in_doubt++; /* it may have done half of its work */
        return err_known(reterr, code, HF_UNKNOWN);
    case SERVER_REFUSED:
        break;
    }
    return code;
}

hf_err script_run(struct topo *t, struct script_call *sc, hf_error *reterr)
{
    struct plain *p = topo_attached(t);
    bool acked = sc->lane != LANE_PLAIN && topo_replicas(t) >= 0;
    sc->acked = sc->wanted = 0;
    if (topo_quorum(t))
        return quorum_run(topo_quorum(t), sc, reterr);
    if (p && plain_protocol(p) != PROTOCOL_SCRIPT)
        return acked ? err_set(reterr, HF_ENOTSUP, "replicas= and fsync= need scripts: use "
                                                   "protocol=script, or leave them out")
                     : plain_run(p, sc, reterr);
    struct conn *cn = topo_lane(t, sc->keys[0], sc->lane);
    /* Where replicas are waited for, NOSCRIPT costs that wait once more: then the text goes along as
     * long as the server is not known to have it. */
    uint64_t bit = UINT64_C(1) << (sc->id % 64);
    bool text = acked && !(atomic_load(conn_notes(cn)) & bit);
    int64_t step_ms = RETRY_MIN_MS;

    sc->reply = NULL;
    sc->in_doubt = 0;
    for (;;) {
        hf_err e = send_once(cn, sc, text, reterr);
        if (e == HF_EUNSURE) {
            sc->in_doubt++;
            if (back_off(sc, &step_ms))
                continue;
            return e;
        }
        if (e)
            return e;
        if (!sc->reply || sc->reply->type != REPLY_ERROR) {
            sc->wanted = acked ? topo_replicas(t) : 0;
            if (acked)
                atomic_fetch_or(conn_notes(cn), bit);
            return HF_OK;
        }
        e = judge(t, cn, sc, &text, &step_ms, reterr);
        if (e)
            return e;
    }
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
