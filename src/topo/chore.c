/* SPDX-License-Identifier: MIT
 * chore.c - commands that a member of a quorum owes us: what undoes a request that got no answer.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "topo/member.h"

#define CHORE_MS   1000
#define CHORES_MAX 1000 /* beyond that the ttl has to do */

/* Thread: any. Holds: the connection. */
static void chore_over(struct conn_keepsake *k, bool settled)
{
    struct chore *ch = (struct chore *)((char *)k - offsetof(struct chore, keepsake));
    if (settled)
        mem_free(ch);
    else
        quorum_owe(ch);
}

struct chore *quorum_chore(struct quorum *q, size_t i, int argc, const hf_bytes *argv,
                           int64_t until_ms)
{
    size_t size = 0;
    for (int a = 2; a < argc; a++)
        size += argv[a].len + 1;
    struct chore *ch = mem_zalloc(sizeof *ch + size);
    if (!ch)
        return NULL;
    ch->keepsake.over = chore_over;
    ch->q = q;
    ch->member = i;
    ch->until_ms = until_ms;
    ch->argc = argc;
    char *p = ch->bytes;
    for (int a = 0; a < argc; a++) {
        ch->argv[a] = argv[a];
        if (a < 2)
            continue;
        if (argv[a].len)
            memcpy(p, argv[a].data, argv[a].len);
        ch->argv[a].data = p;
        p += argv[a].len + 1;
    }
    return ch;
}

void quorum_owe(struct chore *ch)
{
    if (!ch)
        return;
    struct member *m = &ch->q->member[ch->member];
    pthread_mutex_lock(&m->mu);
    bool room = m->nchores < CHORES_MAX;
    if (room) {
        struct chore **p = &m->chores;
        while (*p)
            p = &(*p)->next;
        ch->next = NULL;
        *p = ch;
        m->nchores++;
    }
    pthread_mutex_unlock(&m->mu);
    if (!room)
        mem_free(ch);
    park_wake(&m->park);
}

static struct chore *take_chore(struct member *m)
{
    pthread_mutex_lock(&m->mu);
    struct chore *ch = m->chores;
    if (ch) {
        m->chores = ch->next;
        m->nchores--;
    }
    pthread_mutex_unlock(&m->mu);
    return ch;
}

/* By do_one(); one that got no answer is due again. */
static hf_err do_all(struct member *m, hf_err (*do_one)(void *how, const struct chore *ch),
                     void *how)
{
    struct chore *ch;
    while ((ch = take_chore(m))) {
        hf_err e = clock_now_ms() < ch->until_ms ? do_one(how, ch) : HF_OK;
        if (e) {
            pthread_mutex_lock(&m->mu);
            ch->next = m->chores;
            m->chores = ch;
            m->nchores++;
            pthread_mutex_unlock(&m->mu);
            return e;
        }
        mem_free(ch);
    }
    return HF_OK;
}

struct fresh {
    struct link *link;
    int64_t      deadline_ms;
    hf_error    *reterr;
};

static hf_err do_by_link(void *how, const struct chore *ch)
{
    struct fresh *g = how;
    struct reply *rp = NULL;
    hf_err e = link_exchange(g->link, ch->argc, ch->argv, g->deadline_ms, &rp, g->reterr);
    if (!e)
        reply_free(rp);
    return e;
}

bool chore_swallow(void *arg, size_t i)
{
    struct conn_ask *ask = arg;
    ask[i].reply = reply_free(ask[i].reply);
    return false;
}

/* On this connection or none: on a fresh one they go before everything else. */
static hf_err do_by_conn(void *how, const struct chore *ch)
{
    struct conn_ask ask = { .conn = how };
    hf_err e = conn_begin(how, ch->argc, ch->argv, NULL, &ask.request);
    if (e)
        return e;
    conn_gather(&ask, 1, &ch->q->bells, clock_now_ms() + CHORE_MS, NULL, chore_swallow, &ask);
    if (!ask.request)
        return ask.result;
    conn_abandon(ask.conn, ask.request);
    return HF_EUNSURE;
}

hf_err chores_by_link(struct member *m, struct link *l, int64_t deadline_ms, hf_error *reterr)
{
    struct fresh f = { l, deadline_ms, reterr };
    return do_all(m, do_by_link, &f);
}

hf_err chores_by_conn(struct member *m)
{
    return do_all(m, do_by_conn, m->conn);
}

void chores_clear(struct member *m)
{
    for (struct chore *ch; (ch = take_chore(m));)
        mem_free(ch);
}
