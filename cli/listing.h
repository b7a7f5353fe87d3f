/* SPDX-License-Identifier: MIT
 * listing.h - many locks, printed as they come: as a table, as JSON.
 *
 * In the order of their names nothing is kept but the lines of a table, a thousand at a time, whose
 * widest column is to be known before the first is printed. Any other order needs all of them. */
#ifndef CLI_LISTING_H
#define CLI_LISTING_H

#include "options.h"

#include <holdfast.h>

enum { LISTING_COLUMNS = 11 };

struct listing {
    const struct opts *o;
    int                one_array; /* JSON lines, too, as one array: of each look at a time */
    struct listing_line {
        int64_t key;   /* the smaller, the earlier */
        size_t  order; /* in which it came */
        char   *text;  /* JSON; or the cells, each behind a NUL but the first, then what follows */
    }                 *line;
    size_t             n, room, came, printed;
    int                wide[LISTING_COLUMNS];
};

void listing_begin(struct listing *l, const struct opts *o, int one_array);
/* One more, if the options ask for it; -1: out of memory. */
int  listing_add(struct listing *l, const hf_inspect_info *info);
/* All that is left, and the end of it. */
void listing_end(struct listing *l);

#endif
