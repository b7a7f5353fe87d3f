/* SPDX-License-Identifier: MIT
 * node_lines.h - the lines of CLUSTER NODES: what one server of a cluster knows about all of them.
 */
#ifndef TOPO_NODE_LINES_H
#define TOPO_NODE_LINES_H

#include <stdbool.h>
#include <stdint.h>

#include "net/resp.h"

struct node_line {
    const char *id, *address, *master;
    const char *flags; /* for node_line_is() */
    uint64_t    epoch; /* of two servers that claim a slot, the one with the higher number has it */
    bool        connected;
    char       *rest;  /* for node_line_slots() */
};

/* Call each(arg, line) for all of them that make sense. HF_EPROTO: it is no text. HF_ENOMEM. */
hf_err node_lines_read(const struct reply *rp, void (*each)(void *arg, struct node_line *line),
                       void *arg);

bool node_line_is(const struct node_line *line, const char *flag);

/* The next of its slots; false: there are no more. *ret_moves: it is only told that this one is
 * going or coming. */
bool node_line_slots(struct node_line *line, unsigned *ret_first, unsigned *ret_last,
                     bool *ret_moves);

#endif
