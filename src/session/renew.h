/* SPDX-License-Identifier: MIT
 * renew.h - asking the server about one lease, for its holder; many in the background: renew.c.
 */
#ifndef SESSION_RENEW_H
#define SESSION_RENEW_H

#include "op/op.h"

/* Fill in op to ask about one lease, between keeper_begin() and the outcome. */
void renew_op(struct op *op, enum keep_mode mode, const struct op_lease *one, enum verdict *verdict,
              int64_t deadline_ms);

struct renewed {
    hf_loss loss;     /* HF_LOSS_NONE: still ours */
    int64_t sent_ms;
    bool    in_doubt; /* set also on failure: a copy of the request may still be under way */
};

/* What became of it, which is e. HF_OK: *ret tells the answer. */
hf_err renew_outcome(const struct op *op, hf_err e, struct renewed *ret, hf_error *reterr);

#endif
