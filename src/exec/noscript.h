/* SPDX-License-Identifier: MIT
 * noscript.h - carrying operations out without scripts: by WATCH, MULTI and EXEC.
 *
 * The protocols `transaction` and `timestamp`. Each operation has a function that does the same as
 * its script by plain commands and gives the same answer, so that nothing above knows the
 * difference. WATCH belongs to a connection, so none of this goes over the shared, pipelined one.
 */
#ifndef EXEC_NOSCRIPT_H
#define EXEC_NOSCRIPT_H

#include "exec/exec.h"

struct noscript;

/* scope: of all locks, for the greeting of each connection; NULL: nobody greets. Topology and scope
 * must outlive it. NULL: no memory. */
struct noscript *noscript_new(struct topo *t, struct scope *scope);
/* Nobody is in a call; also in a forked child. */
struct noscript *noscript_free(struct noscript *n);

/* As exec_run(): waits until it is done, but not past its deadline nor for long after *op->stop.
 * skew_ms counts with the protocol timestamp only. HF_ECONFLICT: others changed the lock at every
 * try; HF_ENOTSUP: not without scripts. */
hf_err noscript_run(struct noscript *n, enum protocol protocol, int64_t skew_ms, struct op *op,
                    hf_error *reterr);

/* What hello.lua does, on a fresh connection (noscript_hello.c). look: write nothing. *ret_code:
 * YES, a new reign began, or is to begin; NO, BAD_COUNTER, NO_INFO. */
hf_err noscript_hello(struct link *l, const struct scope *s, bool look, const struct limit *lim,
                      enum answer *ret_code, hf_error *reterr);

#endif
