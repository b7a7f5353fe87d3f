/* SPDX-License-Identifier: MIT
 * quorum_undo.c - commands that a member of a quorum owes us: what undoes a request that got no
 * answer.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "base/clock.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "topo/quorum_member.h"

#define CHORE_MS   1000
#define CHORES_MAX 1000 /* beyond that the ttl has to do */

struct undo {
    atomic_uint    users; /* whoever made it, and each that is pending */
    struct command cmd;
};

struct undo *quorum_undo(struct command *cmd)
{
    struct undo *u = mem_zalloc(sizeof *u);
    if (!u) {
        command_free(cmd);
        return NULL;
    }
    atomic_init(&u->users, 1);
    u->cmd = *cmd;
    return u;
}

struct undo *quorum_undo_free(struct undo *u)
{
    if (u && atomic_fetch_sub(&u->users, 1) == 1) {
        command_free(&u->cmd);
        mem_free(u);
    }
    return NULL;
}

static void pending_free(struct pending_undo *ch)
{
    quorum_undo_free(ch->undo);
    mem_free(ch);
}

/* Thread: any. Holds: the connection. */
static void undo_over(struct on_settled *s, bool settled)
{
    struct pending_undo *ch = (struct pending_undo *)((char *)s
                                                      - offsetof(struct pending_undo, on_settled));
    if (settled)
        pending_free(ch);
    else
        quorum_undo_owe(ch);
}

struct pending_undo *quorum_undo_for(struct quorum *q, size_t i, struct undo *u, int64_t until_ms)
{
    struct pending_undo *ch = mem_zalloc(sizeof *ch);
    if (!ch)
        return NULL;
    ch->on_settled.over = undo_over;
    ch->q = q;
    ch->member = i;
    ch->until_ms = until_ms;
    ch->undo = u;
    atomic_fetch_add(&u->users, 1);
    return ch;
}

static void add_last(struct member *m, struct pending_undo *ch)
{
    mutex_lock(&m->mu);
    bool room = m->nundos < CHORES_MAX;
    if (room) {
        ch->next = NULL;
        *(m->undos ? &m->last_undo->next : &m->undos) = ch;
        m->last_undo = ch;
        m->nundos++;
    }
    mutex_unlock(&m->mu);
    if (!room)
        pending_free(ch);
}

void quorum_undo_owe(struct pending_undo *ch)
{
    if (!ch)
        return;
    struct member *m = &ch->q->member[ch->member];
    add_last(m, ch);
    park_wake(&m->park);
}

static struct pending_undo *take_pending(struct member *m)
{
    mutex_lock(&m->mu);
    struct pending_undo *ch = m->undos;
    if (ch) {
        m->undos = ch->next;
        m->nundos--;
    }
    mutex_unlock(&m->mu);
    return ch;
}

static void add_first(struct member *m, struct pending_undo *ch)
{
    mutex_lock(&m->mu);
    if (!m->undos)
        m->last_undo = ch;
    ch->next = m->undos;
    m->undos = ch;
    m->nundos++;
    mutex_unlock(&m->mu);
}

static size_t pending(struct member *m)
{
    mutex_lock(&m->mu);
    size_t n = m->nundos;
    mutex_unlock(&m->mu);
    return n;
}

/* By do_one(); one that got no answer is due again, with all behind it. One that was refused, which
 * is HF_EBUSY, is due again as well: a server that runs somebody's script does nothing that it is
 * asked for. */
static hf_err do_all(struct member *m, hf_err (*do_one)(void *how, const struct pending_undo *ch),
                     void *how)
{
    struct pending_undo *ch;
    hf_err refused = HF_OK;
    for (size_t n = pending(m); n-- && (ch = take_pending(m));) {
        hf_err e = clock_now_ms() < ch->until_ms ? do_one(how, ch) : HF_OK;
        if (e == HF_EBUSY) {
            refused = e;
            add_last(m, ch);
        } else if (e) {
            add_first(m, ch);
            return e;
        } else {
            pending_free(ch);
        }
    }
    return refused;
}

/* What will not be different the next time is as good as done. */
static hf_err refusal_of(const struct reply *rp)
{
    hf_err code = HF_OK;
    if (rp && rp->type == REPLY_ERROR)
        server_judge(rp, &code);
    return code == HF_ESERVER || code == HF_ECONN ? HF_EBUSY : HF_OK;
}

struct fresh {
    struct link        *link;
    const struct limit *lim;
    hf_error           *reterr;
};

static hf_err do_by_link(void *how, const struct pending_undo *ch)
{
    struct fresh *g = how;
    const struct command *cmd = &ch->undo->cmd;
    struct reply *rp = NULL;
    hf_err e = link_write(g->link, cmd->bytes + cmd->begin, cmd->len, g->lim, g->reterr);
    if (!e)
        e = link_receive(g->link, g->lim, &rp, g->reterr);
    if (!e)
        e = refusal_of(rp);
    reply_free(rp);
    return e;
}

/* Take those that are done; open: of which nobody has heard yet, as bits. */
static uint64_t take_done(struct request *r, size_t n, uint64_t open)
{
    for (size_t i = 0; i < n; i++) {
        if (!(open >> i & 1) || !request_done(&r[i]))
            continue;
        if (conn_take(&r[i], NULL) == HF_OK)
            r[i].result = refusal_of(r[i].reply);
        r[i].reply = reply_free(r[i].reply);
        open &= ~(UINT64_C(1) << i);
    }
    return open;
}

void undos_wait(struct task *t, struct request *r, size_t n, int64_t deadline_ms)
{
    uint64_t open = take_done(r, n, UINT64_MAX >> (QUORUM_MAX - n));
    while (open && clock_now_ms() < deadline_ms) {
        task_wait(t, deadline_ms);
        open = take_done(r, n, open);
    }
    for (size_t i = 0; i < n; i++)
        if (open >> i & 1)
            conn_withdraw(&r[i], HF_ECONN);
    take_done(r, n, open);
}

/* On this connection or none: on a fresh one they go before everything else. */
static hf_err do_by_conn(void *how, const struct pending_undo *ch)
{
    const struct command *undo = &ch->undo->cmd;
    struct command cmd = { .bytes = mem_copy(undo->bytes + undo->begin, undo->len),
                           .len = undo->len, .size = undo->len };
    struct park park = { 0 };
    struct task t = { .park = &park };
    struct request r = { .deadline_ms = clock_now_ms() + CHORE_MS, .only_up = true };
    if (!cmd.bytes)
        return HF_ENOMEM;
    conn_submit(how, &r, &cmd, &t);
    undos_wait(&t, &r, 1, r.deadline_ms);
    return r.result;
}

hf_err undos_by_link(struct member *m, struct link *l, const struct limit *lim, hf_error *reterr)
{
    struct fresh f = { l, lim, reterr };
    hf_err e = do_all(m, do_by_link, &f);
    return e == HF_EBUSY ? HF_OK : e; /* no fault of the connection */
}

hf_err undos_by_conn(struct member *m)
{
    return do_all(m, do_by_conn, m->conn);
}

void undos_clear(struct member *m)
{
    for (struct pending_undo *ch; (ch = take_pending(m));)
        pending_free(ch);
}
