/* SPDX-License-Identifier: MIT
 * ballot.c - one script, asked of all servers of a quorum at the same moment.
 */
#include "script/ballot.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/servererr.h"

#define TOMBSTONE_MS "60000" /* as CLIENT_TOMBSTONE_MS: longer than any copy of a request can linger */
#define TOMBSTONE    60000
#define PATIENCE_MS  5

void ballot_init(struct ballot *b, struct quorum *q, const struct script_call *sc,
                 const struct claim *claim, bool (*decided)(const struct ballot *b))
{
    b->q = q;
    b->n = quorum_size(q);
    b->majority = quorum_majority(q);
    b->sc = sc;
    b->claim = claim;
    b->decided = decided;
    b->begun_ms = clock_now_ms();
    b->lost = 0;
    b->argv = mem_alloc((sc->nkeys + sc->nargs + 3) * sizeof *b->argv);
    memset(b->ask, 0, b->n * sizeof b->ask[0]);
    memset(b->vote, 0, b->n * sizeof b->vote[0]);
    for (size_t i = 0; i < b->n; i++)
        b->ask[i].conn = quorum_conn(q, i);
}

/* What undoes it on this member, for good: also a copy that comes later takes nothing then. */
static struct chore *undoing(const struct ballot *b, size_t i)
{
    const struct claim *cl = b->claim;
    hf_bytes argv[12], keys[] = { cl->lock, cl->own, cl->tomb };
    hf_bytes args[] = { cl->token, hf_str(TOMBSTONE_MS), cl->owner };
    char count[16];
    struct script_call sc = { .id = SCRIPT_let_go, .nkeys = 3, .keys = keys, .nargs = 3,
                              .args = args };
    int argc = script_fill(argv, &sc, true, count);
    int64_t until = clock_add(clock_now_ms(), quorum_longest_ttl_ms(b->q) + TOMBSTONE);
    return quorum_chore(b->q, i, argc, argv, until);
}

static void fail(struct ballot *b, size_t i, enum vote_state state, hf_err code, const char *why)
{
    struct vote *v = &b->vote[i];
    v->state = state;
    v->code = code;
    snprintf(v->why, sizeof v->why, "%.*s", (int)sizeof v->why - 1, why);
}

void ballot_ask(struct ballot *b, size_t i)
{
    struct vote *v = &b->vote[i];
    char count[16], why[sizeof v->why];
    if (!b->argv) {
        fail(b, i, VOTE_FAILED, HF_ENOMEM, "out of memory");
        return;
    }
    v->text = v->text || !quorum_knows(b->q, i, (unsigned)b->sc->id);
    b->argc = script_fill(b->argv, b->sc, v->text, count);
    struct chore *ch = b->claim ? undoing(b, i) : NULL;
    hf_err e = b->claim && !ch ? HF_ENOMEM
               : conn_begin(b->ask[i].conn, b->argc, b->argv, ch ? &ch->keepsake : NULL,
                            &b->ask[i].request);
    v->state = VOTE_OPEN;
    if (!e)
        return;
    b->ask[i].request = NULL;
    if (e == HF_ECONN) {
        quorum_why(b->q, i, why, sizeof why);
        quorum_mend(b->q, i);
    }
    fail(b, i, VOTE_FAILED, e, e == HF_ECONN ? why : hf_err_text(e));
}

/* The server refused to run it, or failed in the middle of it. */
static void refused(struct ballot *b, size_t i, const struct reply *rp)
{
    hf_error err;
    hf_err code;
    enum server_verdict verdict = server_judge(rp, &code);
    server_error(rp, code, &err);
    if (verdict == SERVER_NOSCRIPT && !b->vote[i].text) { /* SCRIPT FLUSH */
        b->vote[i].text = true;
        ballot_ask(b, i);
        return;
    }
    fail(b, i, verdict == SERVER_UNKNOWN ? VOTE_LOST : VOTE_FAILED, code, err.message);
    if (verdict == SERVER_UNKNOWN && b->claim) {
        b->lost++;
        quorum_owe(undoing(b, i)); /* done before anything else on the next connection */
    }
    if (verdict == SERVER_UNKNOWN || verdict == SERVER_RECONNECT)
        conn_drop(b->ask[i].conn, "its answer cannot be counted on");
}

static bool got(void *arg, size_t i)
{
    struct ballot *b = arg;
    struct conn_ask *a = &b->ask[i];
    struct vote *v = &b->vote[i];
    if (a->result == HF_EUNSURE) {
        b->lost++;
        fail(b, i, VOTE_LOST, HF_EUNSURE, "the connection broke before it answered");
        quorum_mend(b->q, i);
    } else if (a->result) {
        fail(b, i, VOTE_FAILED, a->result, "the connection broke");
        quorum_mend(b->q, i);
    } else if (a->reply->type == REPLY_ERROR) {
        refused(b, i, a->reply);
        reply_free(a->reply);
    } else {
        v->state = VOTE_GIVEN;
        v->reply = a->reply;
    }
    a->reply = NULL;
    return b->decided(b);
}

void ballot_wait(struct ballot *b, int64_t deadline_ms)
{
    if (!b->decided(b))
        conn_gather(b->ask, b->n, quorum_bells(b->q), deadline_ms, b->sc->stop, got, b);
}

static bool never(const struct ballot *b)
{
    (void)b;
    return false;
}

void ballot_wait_for_stragglers(struct ballot *b)
{
    bool (*decided)(const struct ballot *) = b->decided;
    int64_t now = clock_now_ms(), until = now + 2 * (now - b->begun_ms) + PATIENCE_MS;
    b->decided = never;
    conn_gather(b->ask, b->n, quorum_bells(b->q), clock_earlier(until, b->sc->deadline_ms), NULL, got, b);
    b->decided = decided;
}

void ballot_end(struct ballot *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (b->ask[i].request)
            conn_abandon(b->ask[i].conn, b->ask[i].request);
        b->ask[i].request = NULL;
        b->vote[i].reply = reply_free(b->vote[i].reply);
    }
    mem_free(b->argv);
    b->argv = NULL;
}

void ballot_owe(const struct ballot *b, size_t i)
{
    quorum_owe(undoing(b, i));
}

size_t ballot_count(const struct ballot *b, enum vote_state state)
{
    size_t count = 0;
    for (size_t i = 0; i < b->n; i++)
        count += b->vote[i].state == state;
    return count;
}

/* "host: why", as it is known now. */
static const char *said(const struct vote *v)
{
    if (v->state == VOTE_OPEN)
        return "no answer yet";
    if (v->state == VOTE_GIVEN)
        return NULL;
    return v->why[0] ? v->why : "not asked";
}

hf_err ballot_fail(const struct ballot *b, size_t yes, hf_error *reterr)
{
    char text[400] = "";
    size_t used = 0;
    hf_err code = HF_OK;
    for (size_t i = 0; i < b->n; i++) {
        const char *why = said(&b->vote[i]);
        if (!why)
            continue;
        hf_err own = b->vote[i].code ? b->vote[i].code : HF_ENOQUORUM;
        code = !code || code == own ? own : HF_ENOQUORUM;
        if (used < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used, "; %s: %s",
                                     quorum_shown(b->q, i), why);
    }
    /* What no waiting mends keeps its own code. */
    if (code != HF_EAUTH && code != HF_ECONFIG && code != HF_ENOMEM)
        code = HF_ENOQUORUM;
    err_set(reterr, code, "%zu of %zu servers agreed, %zu are needed%s", yes, b->n, b->majority, text);
    return code;
}
