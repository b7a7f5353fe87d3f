/* SPDX-License-Identifier: MIT
 * noscript_steps.c - operations by plain commands as steps.
 *
 * WATCH belongs to a connection, so such an operation has one of its own, and waits on it. A
 * blocking caller does that itself; for an event loop a thread does.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "exec/exec_impl.h"
#include "net/offload.h"

struct errand {
    struct offload_job job;
    struct exec       *x;
    struct op         *op;
};

static hf_err run(struct exec *x, struct op *op)
{
    return noscript_run(x->noscript, exec_protocol(x), exec_skew_ms(x), op, op->reterr);
}

static void work(struct offload_job *j)
{
    struct errand *e = (struct errand *)((char *)j - offsetof(struct errand, job));
    e->op->result = run(e->x, e->op);
}

static hf_err send_out(struct exec *x, struct op *op)
{
    struct errand *e = op->run.more = mem_zalloc(sizeof *e);
    if (!e)
        return err_set(op->reterr, HF_ENOMEM, "out of memory");
    *e = (struct errand){ .job = { .work = work, .task = op->task }, .x = x, .op = op };
    int why = offload_start(x->offload, &e->job);
    if (!why)
        return HF_OK;
    mem_free(e);
    op->run.more = NULL;
    return err_set(op->reterr, HF_ESYS, "cannot start a thread for a transaction: %s",
                   strerror(why));
}

static bool step(struct exec *x, struct op *op)
{
    struct errand *e = op->run.more;
    if (!e)
        op->moves = topo_moves_of(x->topo, op_route(op));
    if (op->lane != LANE_PLAIN && topo_replicas(x->topo, op_route(op)) >= 0)
        return exec_done(op, err_set(op->reterr, HF_ENOTSUP,
                                     "replicas= and fsync= need scripts: use protocol=script, or "
                                     "leave them out"));
    if (!op->task->loop)
        return exec_done(op, run(x, op));
    if (!e) {
        hf_err why = send_out(x, op);
        return why ? exec_done(op, why) : false;
    }
    if (!offload_done(&e->job))
        return false;
    mem_free(e);
    op->run.more = NULL;
    return true;
}

const struct executor exec_noscript = {
    .step = step,
    .abilities = EXEC_BIT(EXEC_QUEUE) | EXEC_BIT(EXEC_SEVERAL),
};
