/* SPDX-License-Identifier: MIT
 * cluster_scan.c - one page of SCAN over all servers of a cluster.
 *
 * The cursor is "which server:its own cursor"; "0" at the beginning and at the end. A server that
 * does not answer is passed over: what the others have is worth seeing, and the caller is told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "exec/exec_impl.h"
#include "net/servererr.h"
#include "topo/cluster.h"

#define SERVERS_MAX 1024

struct scan_place {
    size_t at, n; /* which server, of how many */
    char   cursor[64];
};

static struct conn *find_server(struct exec *x, const struct op *op, struct scan_place *ret)
{
    struct conn *server[SERVERS_MAX];
    const char *colon = strchr(op->scan.cursor, ':');
    ret->n = cluster_servers(x->cluster, server, SERVERS_MAX);
    if (ret->n > SERVERS_MAX)
        ret->n = SERVERS_MAX;
    ret->at = strtoul(op->scan.cursor, NULL, 10);
    snprintf(ret->cursor, sizeof ret->cursor, "%.30s", colon ? colon + 1 : "0");
    return ret->at < ret->n ? server[ret->at] : NULL;
}

/* A page without keys. */
static hf_err no_keys(struct op *op)
{
    struct reply *rp = reply_array(2);
    if (rp && (rp->item[0] = reply_bytes("0", 1)) && (rp->item[1] = reply_array(0)))
        return op_read(op, rp, op->reterr);
    reply_free(rp);
    return err_set(op->reterr, HF_ENOMEM, "out of memory");
}

static void send(struct op *op, struct conn *cn, const struct scan_place *p)
{
    struct command cmd = { 0 };
    struct op one = *op;
    one.scan.any_server = true; /* whatever slots it has */
    one.scan.cursor = p->cursor;
    op->run.request = (struct request){ .deadline_ms = op->deadline_ms, .stop = op->stop,
                                        .impatient = true };
    (void)!op_pack(&one, true, &cmd); /* without bytes the request fails at once */
    conn_submit(cn, &op->run.request, &cmd, op->task);
}

static bool answered(struct op *op)
{
    struct request *r = &op->run.request;
    if (!request_done(r) && (op_stopped(op) || clock_now_ms() >= op->deadline_ms))
        conn_withdraw(r, op_stopped(op) ? HF_ECANCELED : HF_ECONN);
    task_due(op->task, op->deadline_ms);
    return request_done(r);
}

/* Our cursor instead of the server's. */
static hf_err move_on(struct exec *x, struct op *op)
{
    char next[64];
    struct scan_place p;
    (void)find_server(x, op, &p);
    bool whole = strcmp(op->got.page.cursor.data, "0") == 0;
    if (!whole)
        snprintf(next, sizeof next, "%zu:%.30s", p.at, (const char *)op->got.page.cursor.data);
    else
        snprintf(next, sizeof next, p.at + 1 < p.n ? "%zu:0" : "0", p.at + 1);
    struct reply *text = reply_bytes(next, strlen(next));
    if (!text) {
        op_clear(op);
        return err_set(op->reterr, HF_ENOMEM, "out of memory");
    }
    reply_free(op->reply->item[0]);
    op->reply->item[0] = text;
    op->got.page.cursor = (hf_bytes){ text->str, text->len };
    return HF_OK;
}

/* It told nothing: on with the next. */
static hf_err pass_over(struct exec *x, struct op *op)
{
    struct scan_place p;
    char shown[300], why[200];
    const struct conn *cn = find_server(x, op, &p);
    snprintf(why, sizeof why, "%s", op->reterr ? op->reterr->message : "");
    hf_err e = no_keys(op);
    if (!e)
        e = move_on(x, op);
    if (e)
        return e;
    op->got.page.missing = true;
    err_set(op->reterr, HF_ECONN, "%s of the cluster told nothing, so its locks are missing (%s)",
            cn ? cluster_shown(x->cluster, cn, shown, sizeof shown) : "a server", why);
    return HF_OK;
}

static hf_err take(struct exec *x, struct op *op)
{
    struct request *r = &op->run.request;
    hf_err e = conn_take(r, op->reterr);
    struct reply *rp = r->reply;
    r->reply = NULL;
    if (!e && rp->type == REPLY_ERROR) {
        e = server_refusal(rp, op->reterr);
        reply_free(rp);
    } else if (!e) {
        e = op_read(op, rp, op->reterr);
        return e ? e : move_on(x, op);
    }
    bool away = e == HF_ECONN || e == HF_EUNSURE || e == HF_EBUSY;
    return away && !op_stopped(op) ? pass_over(x, op) : e;
}

bool cluster_scan_step(struct exec *x, struct op *op)
{
    STEP_BEGIN(op->run.at);
    {
        struct scan_place p;
        struct conn *cn = find_server(x, op, &p);
        if (!cn)
            return exec_done(op, no_keys(op));
        send(op, cn, &p);
    }
    STEP_UNTIL(op->run.at, answered(op));
    op->result = take(x, op);
    STEP_END(op->run.at);
}
