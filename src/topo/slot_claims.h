/* SPDX-License-Identifier: MIT
 * slot_claims.h - which slots a server of a cluster calls its own, and who else knows better.
 *
 * A slot that has moved is claimed by two servers until the one that had it hears of the move. The
 * servers settle that by their epochs: who got the slot last has the higher one. So do we.
 */
#ifndef TOPO_SLOT_CLAIMS_H
#define TOPO_SLOT_CLAIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/resp.h"
#include "topo/slot.h"
#include "topo/slotmap.h"

struct slot_claims {
    char          id[SLOTMAP_ID_SIZE]; /* whose they are */
    uint64_t      epoch;
    bool          absent;              /* it does not answer: what it would say is not known */
    unsigned char bits[SLOT_COUNT / 8];
};

/* What the server claims that answered CLUSTER NODES so. Nothing, if it makes no sense, or it may
 * not be asked. HF_ENOMEM. */
hf_err slot_claims_read(struct slot_claims *c, const struct reply *rp);
/* Somebody who does not answer may claim anything. */
void slot_claims_assume(struct slot_claims *c, const char *id);

/* Take away what another server, which answered CLUSTER NODES so, gives to somebody with as high an
 * epoch. Of one that is absent: everything, unless this server sees it alive. Nothing is left if
 * the answer is a refusal. HF_ENOMEM. */
hf_err slot_claims_settle(struct slot_claims *c, const struct reply *rp);

bool slot_claims_any(const struct slot_claims *c);
bool slot_claims_has(const struct slot_claims *c, unsigned slot);

#endif
