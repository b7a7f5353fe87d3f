/* SPDX-License-Identifier: MIT
 * quorum.h - the operations on several independent servers, of which a majority decides.
 */
#ifndef SCRIPT_QUORUM_H
#define SCRIPT_QUORUM_H

#include "script/script.h"
#include "topo/quorum.h"

/* As script_run(). The reply is one that a single server could have given. A lock is granted when a
 * majority has agreed on its number; in keep's reply a lock about which too few answered is -1.
 *
 *   HF_ENOQUORUM  too few servers answered, or may vote; the message says what the others said. Of an
 *                 acquire nothing stays on those that can be reached
 *   HF_ENOTSUP    what no majority can do soundly */
hf_err quorum_run(struct quorum *q, struct script_call *sc, hf_error *reterr);

/* SCRIPT_stand, with the lock and its queue as keys, is answered with {the members where the lock
 * is free as bits, ms until it will be on a majority, how many stand before us on most}. */

/* A place in line is not needed any more. Not waited for: where it stays, it does no harm for
 * long. */
struct line_place {
    hf_bytes lock, own, tomb, queue, counter; /* keys */
    hf_bytes token, owner;
    bool     granted; /* else the next in line is told, where the lock is free */
};
void quorum_leave_line(struct quorum *q, const struct line_place *p);

#endif
