/* SPDX-License-Identifier: MIT
 * exec.c - carrying operations out: which executor, and waiting for it.
 */
#include "exec/exec.h"

#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "exec/exec_impl.h"
#include "net/offload.h"

struct exec *exec_new(struct topo *t, struct scope *scope, int64_t skew_ms)
{
    struct exec *x = mem_zalloc(sizeof *x);
    if (!x)
        return NULL;
    x->topo = t;
    x->cluster = topo_cluster(t);
    x->quorum = topo_quorum(t);
    x->scope = scope;
    x->skew_ms = skew_ms;
    x->noscript = noscript_new(t, scope);
    x->offload = offload_new();
    atomic_init(&x->protocol, PROTOCOL_SCRIPT);
    return x->noscript && x->offload ? x : exec_free(x);
}

struct exec *exec_free(struct exec *x)
{
    if (!x)
        return NULL;
    offload_free(x->offload);
    noscript_free(x->noscript);
    mem_free(x);
    return NULL;
}

void exec_choose(struct exec *x, enum protocol protocol)
{
    atomic_store(&x->protocol, (int)protocol);
}

enum protocol exec_protocol(const struct exec *x)
{
    return (enum protocol)atomic_load_explicit(&x->protocol, memory_order_relaxed);
}

int64_t exec_skew_ms(const struct exec *x)
{
    return exec_protocol(x) == PROTOCOL_TIMESTAMP ? x->skew_ms : 0;
}

static const struct executor *executor_of(const struct exec *x)
{
    if (x->quorum)
        return &exec_quorum;
    return exec_protocol(x) == PROTOCOL_SCRIPT ? &exec_script : &exec_noscript;
}

bool exec_can(const struct exec *x, enum exec_ability ability)
{
    return executor_of(x)->abilities & EXEC_BIT(ability);
}

void exec_begin(struct exec *x, struct op *op)
{
    (void)x;
    op_clear(op);
    op->result = HF_OK;
    op->sent_ms = 0;
    op->epoch = 0;
    op->by_key = false;
    op->in_doubt = 0;
    op->acked = op->wanted = 0;
    memset(&op->run, 0, sizeof op->run);
}

bool exec_step(struct exec *x, struct op *op)
{
    return executor_of(x)->step(x, op);
}

hf_err exec_run(struct exec *x, struct op *op, hf_error *reterr)
{
    struct task t = { .due_ms = CLOCK_NEVER };
    op->task = &t; /* cppcheck-suppress autoVariables ; it is complete when we return */
    op->reterr = reterr;
    exec_begin(x, op);
    while (!exec_step(x, op)) {
        task_wait(&t, t.due_ms);
        t.due_ms = CLOCK_NEVER;
    }
    return op->result;
}

void exec_begin_all(struct exec *x, struct op *op, size_t n, struct task *t)
{
    for (size_t i = 0; i < n; i++) {
        op[i].task = t;
        exec_begin(x, &op[i]);
    }
}

bool exec_step_all(struct exec *x, struct op *op, size_t n)
{
    bool complete = true;
    for (size_t i = 0; i < n; i++) {
        if (op[i].task && exec_step(x, &op[i]))
            op[i].task = NULL;
        complete &= !op[i].task;
    }
    return complete;
}

void exec_run_all(struct exec *x, struct op *op, size_t n)
{
    struct task t = { .due_ms = CLOCK_NEVER };
    exec_begin_all(x, op, n, &t);
    while (!exec_step_all(x, op, n)) {
        task_wait(&t, t.due_ms);
        t.due_ms = CLOCK_NEVER;
    }
}
