/* SPDX-License-Identifier: MIT
 * operate.h - an operator in the simulated world, who breaks locks, asks for them, and looks who
 * leads.
 */
#ifndef SIM_OPERATE_H
#define SIM_OPERATE_H

#include <stdbool.h>

#include "sim/lib/world.h"

struct operate_order {
    hf_client         *c;
    struct world_proc *proc;
    int                lock; /* the judge's */
    const char        *name;
    uint64_t           fence; /* of the holder that is meant; 0: all, of whom one is asked */
    bool               ask, now;
    bool               leads; /* ask who leads: it is an election */
    int64_t            wait_ms;
    int               *threads; /* one more, until it is done */
};

struct operate_counts {
    uint64_t asked, broken; /* calls that were answered; locks that had passed then */
    uint64_t led;           /* leaders that were seen, with their values */
};
extern struct operate_counts operate_counts;

/* In a thread of that process. */
void operate(const struct operate_order *o);

#endif
