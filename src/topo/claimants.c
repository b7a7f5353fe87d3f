/* SPDX-License-Identifier: MIT
 * claimants.c - who loses slots by what a server answers, and does not agree; see claimants.h.
 */
#include "topo/claimants.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "topo/slotmap.h"

/* That long a server that does not answer keeps its slots if another one sees it alive: it may be
 * far away or busy. After that it may as well be that only we do not reach it any more. */
#define ABSENT_MS 5000
/* Who was not asked for so long may have answered since, if anybody had asked. */
#define FORGET_MS 30000

/* ---- who ------------------------------------------------------------------------------------- */

struct search {
    struct claimants  *cs;
    struct nodes      *ns;
    const struct node *teacher;
};

static void add(struct claimants *cs, struct node *nd)
{
    for (unsigned i = 0; i < cs->n; i++)
        if (cs->each[i].nd == nd)
            return;
    if (cs->n < CLAIMANTS_MAX)
        cs->each[cs->n++].nd = nd;
}

static void find_losers(void *arg, const struct slot_place *p)
{
    struct search *f = arg;
    const char *host = *p->host ? p->host : f->teacher->host.host;
    const struct node *before = NULL;
    for (unsigned s = p->first; s <= p->last; s++) {
        struct node *nd = nodes_owner(f->ns, s);
        if (nd == before)
            continue;
        before = nd;
        /* Who has no connection was not used: nobody listens there. */
        if (nd && nd != f->teacher && atomic_load(&nd->open)
            && (nd->host.port != p->port || strcmp(nd->name, host) != 0))
            add(f->cs, nd);
    }
}

void claimants_find(struct claimants *cs, struct nodes *ns, const struct node *teacher,
                    const struct reply *answer)
{
    struct search f = { .cs = cs, .ns = ns, .teacher = teacher };
    cs->n = 0;
    (void)!slotmap_read(answer, find_losers, &f);
}

/* ---- what they say --------------------------------------------------------------------------- */

static hf_err ask(struct node *nd, int64_t round_ms, const struct limit *lim, struct reply **ret,
                  hf_error *reterr)
{
    struct exchange call = { 0 };
    hf_err e = node_ask(nd, "NODES", round_ms, lim, &call, reterr);
    *ret = call.reply;
    return e;
}

/* Where no time is left to ask it, nothing is known of it that was not known before. */
static hf_err ask_claimant(struct claimant *c, int64_t round_ms, const struct limit *lim)
{
    struct node *nd = c->nd;
    AUTO(reply_freep) struct reply *rp = NULL;
    int64_t now = clock_now_ms();
    bool asked = !limit_over(lim);
    if (nd->silent_ms && now - nd->unanswered_ms > FORGET_MS)
        nd->silent_ms = 0;
    if (asked && !ask(nd, round_ms, lim, &rp, NULL)) {
        nd->silent_ms = 0;
        return slot_claims_read(&c->claims, rp);
    }
    if (asked) {
        nd->silent_ms = nd->silent_ms ? nd->silent_ms : now;
        nd->unanswered_ms = now;
    }
    if (!nd->silent_ms || now - nd->silent_ms < ABSENT_MS)
        slot_claims_assume(&c->claims, nd->id);
    else
        memset(&c->claims, 0, sizeof c->claims);
    return HF_OK;
}

/* The teacher first: without its word nothing is decided, and those who do not answer may use up
 * all the time. */
hf_err claimants_ask(struct claimants *cs, struct node *teacher, int64_t round_ms,
                     const struct limit *lim, hf_error *reterr)
{
    AUTO(reply_freep) struct reply *rp = NULL;
    hf_err e = HF_OK;
    if (cs->n && ask(teacher, round_ms, lim, &rp, reterr))
        return err_set(reterr, HF_ECONN, "%s:%d did not answer CLUSTER NODES in time",
                       teacher->host.host, teacher->host.port);
    for (unsigned i = 0; i < cs->n && !e; i++) {
        e = ask_claimant(&cs->each[i], round_ms, lim);
        if (!e)
            e = slot_claims_settle(&cs->each[i].claims, rp);
    }
    return e ? err_set(reterr, e, "out of memory") : HF_OK;
}

bool claimants_keep(const struct claimants *cs, const struct node *nd, unsigned slot)
{
    for (unsigned i = 0; i < cs->n; i++)
        if (cs->each[i].nd == nd)
            return slot_claims_has(&cs->each[i].claims, slot);
    return false;
}
