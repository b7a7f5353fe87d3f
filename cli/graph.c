/* SPDX-License-Identifier: MIT
 * graph.c - who waits for whom: locks and parties (clients), and lines between them. */
#include "graph.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- who is who ---------------------------------------------------------------------------- */

/* A party, as it holds or waits for one lock. */
struct role {
    char    *who; /* the same for all roles of one client */
    size_t   lock;
    const hf_party *party;
    size_t   place;
    int      holds;
    size_t   group; /* of the client */
};

struct builder {
    struct graph       *g;
    const struct scene *s;
    struct role *role;
    size_t       roles;
    size_t       groups;
    uint8_t     *waits, *holds; /* of each group */
    size_t      *node_of_group, *node_of_lock;
    size_t       room, line_room;
    int          bad; /* out of memory */
};

/* A session is one client. Without it host and process are the next best; an owner id may be
 * anybody's, but of one name here. */
static char *who_is(const hf_party *p, size_t lock)
{
    char *text = NULL;
    int n;
    if (p->session)
        n = asprintf(&text, "s%s", p->session);
    else if (p->host && p->pid > 0)
        n = asprintf(&text, "h%s %" PRId64, p->host, p->pid);
    else
        n = asprintf(&text, "o%s %zu", p->owner ? p->owner : "", lock);
    return n < 0 ? NULL : text;
}

static void add_roles(struct builder *b, size_t lock, hf_party *const *party, size_t n, int holds)
{
    for (size_t i = 0; i < n && !b->bad; i++) {
        struct role *r = &b->role[b->roles];
        *r = (struct role){ .who = who_is(party[i], lock), .lock = lock, .party = party[i],
                            .place = i + 1, .holds = holds };
        b->bad |= !r->who;
        b->roles += r->who != NULL;
    }
}

static int by_who(const void *a, const void *b)
{
    const struct role *x = a, *y = b;
    int order = strcmp(x->who, y->who);
    if (order == 0)
        order = (x->lock > y->lock) - (x->lock < y->lock);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

static void find_roles(struct builder *b)
{
    size_t n = 0;
    for (size_t i = 0; i < b->s->n; i++)
        if (b->s->lock[i].info)
            n += b->s->lock[i].info->holders + b->s->lock[i].info->waiters;
    b->role = calloc(n + 1, sizeof *b->role);
    b->waits = calloc(n + 1, 1);
    b->holds = calloc(n + 1, 1);
    b->node_of_group = malloc((n + 1) * sizeof *b->node_of_group);
    b->node_of_lock = malloc((b->s->n + 1) * sizeof *b->node_of_lock);
    b->bad = !b->role || !b->waits || !b->holds || !b->node_of_group || !b->node_of_lock;
    for (size_t i = 0; i < b->s->n && !b->bad; i++) {
        const hf_inspect_info *info = b->s->lock[i].info;
        if (info) {
            add_roles(b, i, info->holder, info->holders, 1);
            add_roles(b, i, info->waiter, info->waiters, 0);
        }
    }
    if (b->bad)
        return;
    if (b->roles)
        qsort(b->role, b->roles, sizeof *b->role, by_who);
    for (size_t i = 0; i < b->roles; i++) {
        struct role *r = &b->role[i];
        if (i == 0 || strcmp(r[-1].who, r->who) != 0)
            b->groups++;
        r->group = b->groups - 1;
        b->waits[r->group] |= !r->holds;
        b->holds[r->group] |= r->holds;
    }
}

/* ---- nodes and lines ----------------------------------------------------------------------- */

static size_t add_node(struct builder *b, struct graph_node node)
{
    struct graph *g = b->g;
    if (g->n == b->room) {
        size_t room = b->room ? 2 * b->room : 64;
        struct graph_node *grown = reallocarray(g->node, room, sizeof *grown);
        b->bad |= !grown;
        if (!grown)
            return 0;
        g->node = grown;
        b->room = room;
    }
    node.through = GRAPH_NONE;
    node.depth = -1;
    g->node[g->n] = node;
    return g->n++;
}

static void add_line(struct builder *b, struct graph_line line)
{
    struct graph *g = b->g;
    if (b->bad)
        return;
    if (g->lines == b->line_room) {
        size_t room = b->line_room ? 2 * b->line_room : 64;
        struct graph_line *grown = reallocarray(g->line, room, sizeof *grown);
        b->bad |= !grown;
        if (!grown)
            return;
        g->line = grown;
        b->line_room = room;
    }
    g->node[line.from].deadlock |= line.deadlock;
    g->node[line.to].deadlock |= line.deadlock;
    g->node[line.from].leaves = 1;
    g->line[g->lines++] = line;
}

static size_t lock_node(struct builder *b, size_t lock)
{
    if (b->node_of_lock[lock] == GRAPH_NONE)
        b->node_of_lock[lock] =
            add_node(b, (struct graph_node){ .kind = NODE_LOCK, .lock = &b->s->lock[lock] });
    return b->node_of_lock[lock];
}

static size_t party_node(struct builder *b, const struct role *r)
{
    if (b->node_of_group[r->group] == GRAPH_NONE)
        b->node_of_group[r->group] =
            add_node(b, (struct graph_node){ .kind = NODE_PARTY, .party = r->party });
    struct graph_node *node = &b->g->node[b->node_of_group[r->group]];
    if (!b->bad && !node->party->host && r->party->host) /* the one that says more */
        node->party = r->party;
    return b->node_of_group[r->group];
}

static struct scene_lock *target(const struct builder *b, const struct role *r)
{
    const char *name = r->holds ? r->party->waits_for : NULL;
    return name ? scene_find(b->s, name, strlen(name)) : NULL;
}

/* Somebody waits for this lock, or its holder waits for another. */
static int matters(const struct builder *b, const struct role *r)
{
    const struct scene_lock *l = &b->s->lock[r->lock];
    return l->info->waiters_total > 0 || (r->holds && (b->waits[r->group] || target(b, r)));
}

/* Whether this client, in the roles from first to last, holds a lock of a deadlock by waiting for
 * that one. */
static int closes(const struct builder *b, size_t first, size_t last, const struct scene_lock *l)
{
    for (size_t i = first; i < last; i++)
        if (b->s->lock[b->role[i].lock].stuck == STUCK_CYCLE && target(b, &b->role[i]) == l)
            return l->stuck == STUCK_CYCLE;
    return 0;
}

static int is_waiter(const struct builder *b, size_t first, size_t last, size_t lock)
{
    for (size_t i = first; i < last; i++)
        if (!b->role[i].holds && b->role[i].lock == lock)
            return 1;
    return 0;
}

static void add_holder(struct builder *b, size_t first, size_t last, const struct role *r)
{
    const struct scene_lock *to = target(b, r);
    size_t party = party_node(b, r), lock = lock_node(b, r->lock);
    int deadlock = to && to->stuck == STUCK_CYCLE && b->s->lock[r->lock].stuck == STUCK_CYCLE;
    add_line(b, (struct graph_line){ LINE_HELD, lock, party, r->party, r->place, deadlock, 0 });
    if (!to || is_waiter(b, first, last, (size_t)(to - b->s->lock)))
        return;
    lock = lock_node(b, (size_t)(to - b->s->lock));
    add_line(b, (struct graph_line){ LINE_BELOW, party, lock, r->party, 0, deadlock, 0 });
}

/* All that one client does. */
static void add_group(struct builder *b, size_t first, size_t last)
{
    for (size_t i = first; i < last && !b->bad; i++) {
        const struct role *r = &b->role[i];
        const struct scene_lock *l = &b->s->lock[r->lock];
        if (!matters(b, r))
            continue;
        if (r->holds) {
            add_holder(b, first, last, r);
        } else if (r->place <= GRAPH_WAITERS || b->holds[r->group]) {
            size_t party = party_node(b, r), lock = lock_node(b, r->lock);
            add_line(b, (struct graph_line){ LINE_WAITS, party, lock, r->party, r->place,
                                             closes(b, first, last, l), 0 });
        }
    }
}

static void add_rest(struct builder *b)
{
    struct graph *g = b->g;
    for (size_t lock = 0; lock < b->s->n && !b->bad; lock++) {
        const hf_inspect_info *info = b->s->lock[lock].info;
        if (!info || !info->waiters_total)
            continue;
        size_t at = lock_node(b, lock), shown = 0;
        for (size_t i = 0; i < info->waiters && i < GRAPH_WAITERS; i++)
            shown++;
        for (size_t i = 0; i < g->lines && info->waiters > GRAPH_WAITERS; i++)
            shown += g->line[i].to == at && g->line[i].kind == LINE_WAITS
                     && g->line[i].place > GRAPH_WAITERS;
        if (b->bad || shown >= info->waiters_total)
            continue;
        size_t more = add_node(b, (struct graph_node){ .kind = NODE_MORE,
                                                       .lock = &b->s->lock[lock],
                                                       .more = info->waiters_total - shown });
        add_line(b, (struct graph_line){ LINE_WAITS, more, at, NULL, SIZE_MAX, 0, 0 });
    }
}

/* ---- where they stand ---------------------------------------------------------------------- */

static int by_end(const void *a, const void *b)
{
    const struct graph_line *x = a, *y = b;
    int order = (x->to > y->to) - (x->to < y->to);
    if (order == 0)
        order = (x->place > y->place) - (x->place < y->place);
    return order ? order : (x->from > y->from) - (x->from < y->from);
}

static void index_lines(struct graph *g)
{
    if (g->lines)
        qsort(g->line, g->lines, sizeof *g->line, by_end);
    for (size_t i = g->lines; i-- > 0;) {
        g->node[g->line[i].to].lines = i;
        g->node[g->line[i].to].nlines++;
    }
}

/* Depth first; the graph may have cycles, and a node stands where it was met first. */
static void place(struct graph *g, size_t at, int depth, size_t *placed)
{
    struct graph_node *node = &g->node[at];
    double first = -1, last = -1;
    node->depth = depth;
    g->order[(*placed)++] = at;
    if (depth >= g->depth)
        g->depth = depth + 1;
    for (size_t i = node->lines; i < node->lines + node->nlines && depth < GRAPH_DEPTH; i++) {
        size_t child = g->line[i].from;
        if (g->node[child].depth >= 0)
            continue;
        g->node[child].through = i;
        place(g, child, depth + 1, placed);
        last = g->node[child].row;
        if (first < 0)
            first = last;
    }
    node->row = first < 0 ? g->rows++ : (first + last) / 2;
}

/* The lines that are not the ones by which a tree was made go round it, below. */
static void add_lanes(struct graph *g, size_t from, size_t to)
{
    double lanes = 0;
    for (size_t k = from; k < to; k++) {
        const struct graph_node *node = &g->node[g->order[k]];
        for (size_t i = node->lines; i < node->lines + node->nlines; i++)
            if (g->node[g->line[i].from].through != i) {
                g->line[i].lane = g->rows + lanes;
                lanes += 0.12;
            }
    }
    g->rows += lanes > 0 ? lanes + 0.2 : 0;
}

static int arrange(struct graph *g)
{
    size_t placed = 0;
    g->order = calloc(g->n + 1, sizeof *g->order);
    if (!g->order)
        return -1;
    index_lines(g);
    /* Deadlocks first, from one of their parties; then what waits for nothing; then the rest. */
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < g->n; i++) {
            const struct graph_node *node = &g->node[i];
            if (node->depth >= 0 || (turn == 0 && !(node->deadlock && node->kind == NODE_PARTY))
                || (turn == 1 && node->leaves))
                continue;
            size_t before = placed;
            place(g, i, 0, &placed);
            add_lanes(g, before, placed);
        }
    return 0;
}

int graph_build(struct graph *g, const struct scene *s)
{
    struct builder b = { .g = g, .s = s };
    *g = (struct graph){ 0 };
    find_roles(&b);
    for (size_t i = 0; !b.bad && i < b.groups; i++)
        b.node_of_group[i] = GRAPH_NONE;
    for (size_t i = 0; !b.bad && i < s->n; i++)
        b.node_of_lock[i] = GRAPH_NONE;
    for (size_t first = 0, last; first < b.roles && !b.bad; first = last) {
        for (last = first + 1; last < b.roles && b.role[last].group == b.role[first].group;)
            last++;
        add_group(&b, first, last);
    }
    if (!b.bad)
        add_rest(&b);
    if (!b.bad)
        b.bad = arrange(g) != 0;
    for (size_t i = 0; i < b.roles; i++)
        free(b.role[i].who);
    free(b.role);
    free(b.waits);
    free(b.holds);
    free(b.node_of_group);
    free(b.node_of_lock);
    if (b.bad)
        graph_free(g);
    return b.bad ? -1 : 0;
}

void graph_free(struct graph *g)
{
    free(g->node);
    free(g->line);
    free(g->order);
    *g = (struct graph){ 0 };
}
