/* SPDX-License-Identifier: MIT
 * find.h - many schedules; and of one that fails, the smallest that does, in words.
 */
#ifndef SIM_FIND_H
#define SIM_FIND_H

#include "sim/lib/play.h"

struct finding {
    uint64_t            seed;
    int                 rule;
    struct play_without without;
    char                text[300];
};

struct search {
    uint64_t next;  /* seed */
    uint64_t most;  /* schedules */
    unsigned kinds; /* only those that are all of this; 0: any */
};
/* Play the next ones, until one fails or the time is over. False: none did. */
bool find_wrong(struct search *s, int64_t ms, struct play_counts *counts, struct finding *ret);
/* Leave out what it does not need. */
void find_smallest(struct finding *f);
/* Its timeline. */
void find_tell(const struct finding *f);
/* What happened, in words. */
void find_counts(const struct play_counts *c, int64_t ms);

#endif
