/* SPDX-License-Identifier: MIT
 * exec_impl.h - what an executor has to bring; only files of src/exec include it.
 */
#ifndef EXEC_EXEC_IMPL_H
#define EXEC_EXEC_IMPL_H

#include "exec/exec.h"
#include "exec/noscript.h"

struct executor {
    /* True: complete, with op->result and *op->reterr. The first call finds op->run all zero. */
    bool (*step)(struct exec *x, struct op *op);
    unsigned abilities; /* bits of enum exec_ability */
};
#define EXEC_BIT(ability) (1u << (ability))

extern const struct executor exec_script, exec_noscript, exec_quorum;

struct exec {
    struct topo     *topo;
    struct cluster  *cluster;  /* the topology's; NULL: it is none */
    struct quorum   *quorum;   /* the same */
    struct scope    *scope;    /* of all locks; NULL: in a cluster each slot has one */
    struct noscript *noscript; /* always there: which protocol it is may turn out later */
    int64_t          skew_ms;
    atomic_int       protocol;
    struct offload  *offload;  /* threads for what blocks; see noscript */
};

/* The operation is complete: for executors. */
static inline bool exec_done(struct op *op, hf_err result)
{
    op->result = result;
    op->run.at = 0;
    return true;
}

/* slot_moves.c: what is different while a slot of a cluster is being moved. May this one be done
 * key by key, now that it was answered TRYAGAIN for so long? */
bool slot_moves_can_part(const struct op *op, int64_t for_ms);
/* Do so: true: complete. */
bool slot_moves_step(struct exec *x, struct op *op);

/* cluster_scan.c: one page of SCAN over all servers; the cursor tells which one it is at. */
bool cluster_scan_step(struct exec *x, struct op *op);

#endif
