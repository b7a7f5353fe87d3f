/* SPDX-License-Identifier: MIT
 * slots.h - a cluster of two model servers: who has which slot, as each of them thinks, and a slot
 * that moves from one to the other.
 *
 *      slots_send       the one begins to send it, the other to take it
 *      slots_send_key   one key after the other
 *      slots_arrive     it has arrived, and whoever took it knows; the other one still sends
 *      slots_let_go     that one knows, too
 * Meanwhile either refuses what it cannot do, and says where else it may be done.
 */
#ifndef SIM_SLOTS_H
#define SIM_SLOTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "holdfast.h"

#define SLOTS_RANGES_MAX 40

struct slots_counts {
    uint64_t moves, keys, moved, ask, tryagain;
};
extern struct slots_counts slots_counts;

void slots_begin(void); /* half of them each, and nothing moves */

/* Who can grant what lies there. */
int slots_owner(unsigned slot);
/* NULL: node does this command. Else the word of its refusal, and who else does it; *ret_to -1:
 * nobody now. */
const char *slots_refuse(int node, bool asking, int argc, const hf_bytes *argv, unsigned *ret_slot,
                         int *ret_to);

/* Who has what, as node thinks. How many. */
struct slots_range {
    unsigned first, last;
    int      node;
};
size_t slots_ranges(int node, struct slots_range ret[SLOTS_RANGES_MAX]);

/* Of what node claims, as another one knows it: of two claims to a slot the higher one counts. */
int slots_epoch(int by, int node);

bool slots_moving(void);
void slots_send(unsigned slot);
/* Any of them, by chance; NULL: the first. False: there is none left. */
bool slots_send_key(uint64_t *chance);
void slots_arrive(void);
void slots_let_go(void);

#endif
