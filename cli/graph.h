/* SPDX-License-Identifier: MIT
 * graph.h - who waits for whom: locks and parties (clients), and lines between them.
 *
 * A line leads from a party to the lock for which it waits, and from a lock to each party that
 * holds it. Only locks that somebody waits for are here, and what those who wait hold. */
#ifndef CLI_GRAPH_H
#define CLI_GRAPH_H

#include "scene.h"

enum {
    GRAPH_WAITERS = 20, /* of one lock, drawn one by one; the others are counted */
    GRAPH_DEPTH = 60
};
#define GRAPH_NONE ((size_t)-1)

enum graph_kind { NODE_LOCK, NODE_PARTY, NODE_MORE };

struct graph_node {
    enum graph_kind kind;
    const struct scene_lock *lock;  /* NODE_MORE: whose waiters */
    const hf_party          *party;
    size_t more;     /* NODE_MORE: how many they are */
    int    deadlock; /* part of one */
    size_t lines, nlines; /* that lead here: in graph.line, in order of the queue */
    int    leaves;   /* a line leads away from here */
    int    depth;    /* columns from what nobody waits behind; see graph_build() */
    double row;
    size_t through;  /* the line by which it stands where it stands; GRAPH_NONE: a root */
};

enum graph_line_kind {
    LINE_HELD,  /* lock -> party */
    LINE_WAITS, /* party -> lock */
    LINE_BELOW  /* the same, but another process waits for it: one that it has started */
};

struct graph_line {
    enum graph_line_kind kind;
    size_t  from, to;
    const hf_party *party; /* as it holds or waits; NULL: of NODE_MORE */
    size_t  place;         /* in the queue, from 1; of a holder: among the holders */
    int     deadlock;
    double  lane;          /* a row for a line that leads elsewhere than to the next column */
};

struct graph {
    struct graph_node *node;
    size_t             n;
    struct graph_line *line; /* by `to`, then by place */
    size_t             lines;
    size_t            *order; /* each root, and behind it those that wait for it */
    double             rows;
    int                depth; /* columns */
};

/* Draw it up: a tree from each party that waits for nothing, the lock that it holds one column to
 * the right, who waits for that one further, and so on. -1: out of memory. */
int  graph_build(struct graph *g, const struct scene *s);
void graph_free(struct graph *g);

/* Print it as text, for dot(1) of graphviz, as an SVG of its own, or as one line of JSON. */
void graph_print_text(const struct graph *g, FILE *f);
void graph_print_dot(const struct graph *g, FILE *f);
/* whole: with a style of its own, light or dark as the reader likes; else a part of a page. */
void graph_print_svg(const struct graph *g, FILE *f, int whole);
json_t *graph_json(const struct graph *g);

#endif
