/* SPDX-License-Identifier: MIT
 * cluster.h - what is different about scripts in a cluster.
 *
 * While a slot is being moved, its keys are here or there, and a script that names several is not
 * run (TRYAGAIN). Taking and waiting have to wait for the end of that. Holding cannot: what is held
 * is renewed, and given back, key by key.
 */
#ifndef SCRIPT_CLUSTER_H
#define SCRIPT_CLUSTER_H

#include "script/script.h"
#include "topo/cluster.h"

/* May this request be done key by key, now that it was answered TRYAGAIN for so long? */
bool cluster_can_part(const struct script_call *sc, int64_t for_ms);
/* Do so; as script_run(). */
hf_err cluster_part(struct topo *t, struct script_call *sc, hf_error *reterr);

/* Send those to whose servers there are connections, and wait for the answers until the first one's
 * deadline. What became of each: */
enum sent {
    SENT_NOT,  /* it could not be: as usual then, by script_run(); its server may be dead */
    SENT_VAIN, /* the same, but its server answered: it lives, and refused it for now */
    SENT_DONE  /* it was answered, or no answer came: ret[i] and err[i] tell */
};
void cluster_send_all(struct topo *t, struct script_call *sc, size_t n, enum sent *sent, hf_err *ret,
                      hf_error *err);

/* One page of SCAN over all servers; the cursor tells which one it is at. */
hf_err cluster_scan(struct topo *t, struct script_call *sc, hf_error *reterr);

#endif
