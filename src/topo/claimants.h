/* SPDX-License-Identifier: MIT
 * claimants.h - who loses slots by what a server answers, and does not agree.
 *
 * Whoever has not heard of a move yet answers as if the slot had not moved. To believe it means to
 * leave the server that has the slot, which then sees a holder leave. So before a slot goes from a
 * server that we use, that server is asked, and of two that claim the slot the higher epoch wins
 * (slot_claims.h). A server that names another one as the owner of what was its own is believed.
 */
#ifndef TOPO_CLAIMANTS_H
#define TOPO_CLAIMANTS_H

#include "base/limit.h"
#include "topo/cluster_nodes.h"
#include "topo/slot_claims.h"

#define CLAIMANTS_MAX 8 /* if more lose slots at once, the others are not asked */

struct claimants {
    unsigned n;
    struct claimant {
        struct node       *nd;
        struct slot_claims claims;
    } each[CLAIMANTS_MAX];
};

/* Who loses slots if this answer of the teacher's to CLUSTER SLOTS counts. Guarded as struct
 * nodes is. */
void claimants_find(struct claimants *cs, struct nodes *ns, const struct node *teacher,
                    const struct reply *answer);

/* Ask them, and the teacher, each for round_ms at most. HF_ECONN: who is right is not known now,
 * and the answer does not count. HF_ENOMEM. */
hf_err claimants_ask(struct claimants *cs, struct node *teacher, int64_t round_ms,
                     const struct limit *lim, hf_error *reterr);

/* The slot stays with this server. */
bool claimants_keep(const struct claimants *cs, const struct node *nd, unsigned slot);

#endif
