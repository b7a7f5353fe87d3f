/* SPDX-License-Identifier: MIT
 * exec.h - carrying operations out: by scripts, by plain commands, or on a majority of servers.
 *
 * A client has one executor. An operation is begun, and stepped until it is complete; no step
 * waits. It is given up by its deadline or by *stop: then the next step completes it.
 * What is asked and answered is the same for all executors (op.h), so nothing above knows which one
 * it is, but for what the topology itself means to a caller.
 *
 *   HF_OK       op->got, op->sent_ms; op->in_doubt says whether copies may still be under way
 *   HF_EUNSURE  sent (in_doubt times), never answered
 *   HF_ECANCELED  *op->stop
 *   HF_ENOTSUP  not with this executor
 *   others      the last attempt was not executed; if in_doubt is not 0, an earlier one may be
 */
#ifndef EXEC_EXEC_H
#define EXEC_EXEC_H

#include "op/op.h"

enum protocol { PROTOCOL_SCRIPT, PROTOCOL_TRANSACTION, PROTOCOL_TIMESTAMP };

struct exec;

/* One executor for a topology, which outlives it. scope: of all locks; NULL in a cluster. NULL: no
 * memory. */
struct exec *exec_new(struct topo *t, struct scope *scope, int64_t skew_ms);
struct exec *exec_free(struct exec *x); /* nobody is in a call; also in a forked child */

/* Scripts at first. Only before locks are used. */
void exec_choose(struct exec *x, enum protocol protocol);
enum protocol exec_protocol(const struct exec *x);
int64_t exec_skew_ms(const struct exec *x); /* of protocol timestamp, else 0 */

/* What differs between executors for those above. */
enum exec_ability {
    EXEC_PRESENCE, /* the server can be seen to see our session: a lock may carry a grace */
    EXEC_QUEUE,    /* waiters stand in one queue, or poll; else in a line on each server */
    EXEC_SEVERAL,  /* several locks can be taken in one step */
    EXEC_EDGES,    /* it can be seen which holders wait, and for what */
    EXEC_HELD,     /* what is held can be looked at in passing */
    EXEC_NOTES     /* it can be told what has happened */
};
bool exec_can(const struct exec *x, enum exec_ability ability);

/* Begin it: op->task is who steps it. */
void exec_begin(struct exec *x, struct op *op);
/* True: complete, with op->result. */
bool exec_step(struct exec *x, struct op *op);

/* Several at once, stepped by one task; op[i].result tells what became of each. */
void exec_begin_all(struct exec *x, struct op *op, size_t n, struct task *t);
bool exec_step_all(struct exec *x, struct op *op, size_t n); /* true: all are complete */

/* Blocking: begin it, and wait. */
hf_err exec_run(struct exec *x, struct op *op, hf_error *reterr);
/* Several at once; op[i].result tells what became of each. */
void exec_run_all(struct exec *x, struct op *op, size_t n);

#endif
