/* SPDX-License-Identifier: MIT
 * waitgraph.c - who waits for whom: is it a circle that nobody will leave?
 */
#include "session/waitgraph.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct lock {
    char     *key;
    size_t    len;
    long long limit;
    size_t    edge, edges;     /* the first one, and how many */
    size_t    waiter, waiters; /* the same */
    size_t    stuck_from;      /* the first of its waiters that does not go on; NONE */
};

struct place {
    char     token[TOKEN_SIZE];
    unsigned weight;
};

/* A holder of a lock, and the wait that it is in. */
struct edge {
    size_t   lock, target; /* target: what it waits for */
    char     holder[TOKEN_SIZE], waiter[TOKEN_SIZE];
    unsigned weight;
    int64_t  since_ms;
    size_t   node; /* NONE: it does not stand there */
    bool     stuck;
};

/* A wait of somebody who holds something. */
struct node {
    size_t      lock, place; /* in its queue */
    const char *token;
    int64_t     since_ms;
    bool        allowed, reached, reaches;
    size_t      from, by; /* on the way from the first: the node before, and the edge or NONE */
};

struct waitgraph {
    struct lock      *lock;
    struct edge      *edge;
    struct place     *place;
    struct node      *node;
    size_t           *row; /* of nodes, to be looked at */
    size_t            nlocks, nedges, nplaces, nnodes;
    size_t            locks_room, edges_room, places_room;
    struct waitgraph_hop *hop;
};

struct waitgraph *waitgraph_new(void)
{
    return mem_zalloc(sizeof(struct waitgraph));
}

struct waitgraph *waitgraph_free(struct waitgraph *g)
{
    if (!g)
        return NULL;
    for (size_t i = 0; i < g->nlocks; i++)
        mem_free(g->lock[i].key);
    mem_free(g->lock);
    mem_free(g->edge);
    mem_free(g->place);
    mem_free(g->node);
    mem_free(g->row);
    mem_free(g->hop);
    mem_free(g);
    return NULL;
}

/* ---- what is told ------------------------------------------------------------------------- */

/* Room for one more of a list, which may move. False: there is none. */
#define DEFINE_ROOM(list, n, room, max)                                 \
    static bool room_for_##list(struct waitgraph *g)                    \
    {                                                                   \
        size_t more = g->room ? 2 * g->room : 16;                       \
        if (g->n < g->room)                                             \
            return g->n < (max);                                        \
        struct list *copy = mem_alloc(more * sizeof *copy);             \
        if (!copy)                                                      \
            return false;                                               \
        for (size_t i = 0; i < g->n; i++)                               \
            copy[i] = g->list[i];                                       \
        mem_free(g->list);                                              \
        g->list = copy;                                                 \
        g->room = more;                                                 \
        return true;                                                    \
    }
DEFINE_ROOM(lock, nlocks, locks_room, WAITGRAPH_LOCKS_MAX)
DEFINE_ROOM(edge, nedges, edges_room, WAITGRAPH_EDGES_MAX)
DEFINE_ROOM(place, nplaces, places_room, WAITGRAPH_WAITERS_MAX)
#undef DEFINE_ROOM

size_t waitgraph_lock(struct waitgraph *g, hf_bytes key)
{
    for (size_t i = 0; i < g->nlocks; i++)
        if (g->lock[i].len == key.len && memcmp(g->lock[i].key, key.data, key.len) == 0)
            return i;
    char *copy = room_for_lock(g) ? mem_copy(key.data, key.len) : NULL;
    if (!copy)
        return WAITGRAPH_NONE;
    g->lock[g->nlocks] = (struct lock){ .key = copy, .len = key.len, .limit = EDGES_NOBODY,
                                        .stuck_from = WAITGRAPH_NONE };
    return g->nlocks++;
}

size_t waitgraph_locks(const struct waitgraph *g)
{
    return g->nlocks;
}

hf_bytes waitgraph_key(const struct waitgraph *g, size_t lock)
{
    return (hf_bytes){ g->lock[lock].key, g->lock[lock].len };
}

void waitgraph_limit(struct waitgraph *g, size_t lock, long long limit)
{
    g->lock[lock].limit = limit;
}

/* A word that ends with a space or a NUL. False: it is too long. */
static bool copy_token(const char *text, char ret[TOKEN_SIZE])
{
    size_t n = strcspn(text, " ");
    if (n == 0 || n >= TOKEN_SIZE)
        return false;
    memcpy(ret, text, n);
    ret[n] = '\0';
    return true;
}

/* "UNTIL SINCE TOKEN KEY". */
static bool parse_entry(hf_bytes entry, struct edge *e, hf_bytes *ret_key)
{
    const char *text = entry.data;
    char *rest;
    (void)strtoll(text, &rest, 10); /* the script has looked at that */
    if (*rest != ' ')
        return false;
    e->since_ms = strtoll(rest + 1, &rest, 10);
    if (*rest != ' ' || !copy_token(rest + 1, e->waiter))
        return false;
    const char *key = rest + 1 + strlen(e->waiter);
    size_t before = (size_t)(key - text) + 1;
    if (*key != ' ' || before >= entry.len)
        return false;
    *ret_key = (hf_bytes){ key + 1, entry.len - before };
    return true;
}

void waitgraph_edge(struct waitgraph *g, size_t lock, const char *holder, const char *weight,
                    hf_bytes entry)
{
    struct edge e = { .lock = lock, .weight = (unsigned)strtoul(weight, NULL, 10) };
    hf_bytes key;
    if (!copy_token(holder, e.holder) || !parse_entry(entry, &e, &key)
        || !room_for_edge(g))
        return;
    e.target = waitgraph_lock(g, key);
    if (e.target == WAITGRAPH_NONE)
        return;
    struct lock *l = &g->lock[lock];
    if (l->edges++ == 0)
        l->edge = g->nedges;
    g->edge[g->nedges++] = e;
}

void waitgraph_waiter(struct waitgraph *g, size_t lock, const char *text)
{
    struct place w;
    if (!copy_token(text, w.token) || !room_for_place(g))
        return;
    w.weight = (unsigned)strtoul(text + strlen(w.token), NULL, 10);
    struct lock *l = &g->lock[lock];
    if (l->waiters++ == 0)
        l->waiter = g->nplaces;
    g->place[g->nplaces++] = w;
}

/* ---- nodes -------------------------------------------------------------------------------- */

static size_t place_of(const struct waitgraph *g, size_t lock, const char *token)
{
    const struct lock *l = &g->lock[lock];
    for (size_t i = 0; i < l->waiters; i++)
        if (strcmp(g->place[l->waiter + i].token, token) == 0)
            return i;
    return WAITGRAPH_NONE;
}

static size_t find_node(const struct waitgraph *g, size_t lock, const char *token)
{
    for (size_t i = 0; i < g->nnodes; i++)
        if (g->node[i].lock == lock && strcmp(g->node[i].token, token) == 0)
            return i;
    return WAITGRAPH_NONE;
}

static bool make_nodes(struct waitgraph *g)
{
    g->nnodes = 0;
    mem_free(g->node);
    mem_free(g->row);
    mem_free(g->hop);
    g->node = mem_alloc((g->nedges + 1) * sizeof *g->node);
    g->row = mem_alloc((g->nedges + 1) * sizeof *g->row);
    g->hop = mem_alloc((g->nedges + 1) * sizeof *g->hop);
    if (!g->node || !g->row || !g->hop)
        return false;
    for (size_t i = 0; i < g->nedges; i++) {
        struct edge *e = &g->edge[i];
        size_t place = place_of(g, e->target, e->waiter);
        e->node = place == WAITGRAPH_NONE ? WAITGRAPH_NONE
                                          : find_node(g, e->target, e->waiter);
        if (place == WAITGRAPH_NONE || e->node != WAITGRAPH_NONE)
            continue;
        e->node = g->nnodes;
        g->node[g->nnodes++] = (struct node){ .lock = e->target, .place = place,
                                              .token = e->waiter, .since_ms = e->since_ms,
                                              .allowed = true };
    }
    return true;
}

/* ---- who goes on -------------------------------------------------------------------------- */

/* Which of its waiters is the first that does not go on, when its stuck holders stay. */
static size_t stuck_from(const struct waitgraph *g, const struct lock *l)
{
    bool any = false;
    unsigned long long kept = 0;
    for (size_t i = l->edge; i < l->edge + l->edges; i++) {
        any |= g->edge[i].stuck;
        kept += g->edge[i].stuck ? g->edge[i].weight : 0;
    }
    if (!any || l->limit == EDGES_NOBODY)
        return WAITGRAPH_NONE;
    for (size_t i = 0; i < l->waiters; i++) {
        unsigned weight = g->place[l->waiter + i].weight;
        if (l->limit == EDGES_ALONE || weight == 0
            || (l->limit > 0 && kept + weight > (unsigned long long)l->limit))
            return i;
    }
    return WAITGRAPH_NONE;
}

static bool is_stuck(const struct waitgraph *g, const struct node *n)
{
    return n->place >= g->lock[n->lock].stuck_from;
}

/* Everybody goes on who can; those who are not allowed to be stuck always can. */
static void settle(struct waitgraph *g)
{
    bool changed = true;
    for (size_t i = 0; i < g->nedges; i++) {
        struct edge *e = &g->edge[i];
        e->stuck = e->node != WAITGRAPH_NONE && g->node[e->node].allowed;
    }
    while (changed) {
        changed = false;
        for (size_t i = 0; i < g->nlocks; i++)
            g->lock[i].stuck_from = stuck_from(g, &g->lock[i]);
        for (size_t i = 0; i < g->nedges; i++) {
            struct edge *e = &g->edge[i];
            if (e->stuck && !is_stuck(g, &g->node[e->node])) {
                e->stuck = false;
                changed = true;
            }
        }
    }
}

/* ---- the circle --------------------------------------------------------------------------- */

/* Does a wait depend on another one because that stands before it? */
static bool stands_before(const struct waitgraph *g, const struct node *n, const struct node *of)
{
    return n->lock == of->lock && n->place < of->place && n->allowed && is_stuck(g, n);
}

static bool depends_on(const struct waitgraph *g, const struct node *n, size_t on)
{
    const struct lock *l = &g->lock[n->lock];
    for (size_t i = l->edge; i < l->edge + l->edges; i++)
        if (g->edge[i].stuck && g->edge[i].node == on)
            return true;
    return stands_before(g, &g->node[on], n);
}

/* Whom it reaches, nearest first; how it got there is written down. True: itself. */
static bool reach(struct waitgraph *g, size_t me)
{
    size_t head = 0, tail = 0;
    bool round = false;
    for (size_t i = 0; i < g->nnodes; i++)
        g->node[i].reached = false;
    g->row[tail++] = me;
    while (head < tail) {
        size_t at = g->row[head++];
        const struct lock *l = &g->lock[g->node[at].lock];
        for (size_t i = 0; i < l->edges + g->nnodes; i++) {
            const struct edge *e = i < l->edges ? &g->edge[l->edge + i] : NULL;
            size_t next = e ? e->node : i - l->edges;
            if (e ? !e->stuck : !stands_before(g, &g->node[next], &g->node[at]))
                continue;
            struct node *n = &g->node[next];
            if (n->reached)
                continue;
            n->reached = true;
            n->from = at;
            n->by = e ? l->edge + i : WAITGRAPH_NONE;
            if (next == me)
                round = true;
            else
                g->row[tail++] = next;
        }
    }
    return round;
}

/* Of those whom it reaches: who reaches it. How many. */
static size_t reach_back(struct waitgraph *g, size_t me)
{
    size_t n = 1;
    bool changed = true;
    for (size_t i = 0; i < g->nnodes; i++)
        g->node[i].reaches = i == me;
    while (changed) {
        changed = false;
        for (size_t i = 0; i < g->nnodes; i++) {
            struct node *from = &g->node[i];
            for (size_t k = 0; from->reached && !from->reaches && k < g->nnodes; k++)
                from->reaches = g->node[k].reaches && depends_on(g, from, k);
            if (from->reached && from->reaches && i != me && !g->row[i]) {
                g->row[i] = 1;
                changed = true;
                n++;
            }
        }
    }
    return n;
}

/* Leave only those among whom there is a way from each to each, as long as they are stuck without
 * the others. */
static bool shrink(struct waitgraph *g, size_t me)
{
    size_t allowed = g->nnodes;
    for (;;) {
        settle(g);
        if (!is_stuck(g, &g->node[me]) || !reach(g, me))
            return false;
        memset(g->row, 0, (g->nedges + 1) * sizeof *g->row);
        size_t left = reach_back(g, me);
        if (left == allowed)
            return true;
        allowed = left;
        for (size_t i = 0; i < g->nnodes; i++)
            g->node[i].allowed = g->node[i].reached && g->node[i].reaches;
    }
}

/* Who began last; of two at once, the larger token. */
static bool is_last(const struct waitgraph *g, size_t me)
{
    const struct node *m = &g->node[me];
    for (size_t i = 0; i < g->nnodes; i++) {
        const struct node *n = &g->node[i];
        if (n->allowed && i != me
            && (n->since_ms > m->since_ms
                || (n->since_ms == m->since_ms && strcmp(n->token, m->token) > 0)))
            return false;
    }
    return true;
}

/* ---- what it is called -------------------------------------------------------------------- */

static uint64_t hash(uint64_t h, const char *p, size_t len) /* FNV-1a */
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)p[i]) * UINT64_C(1099511628211);
    return (h ^ 0xff) * UINT64_C(1099511628211);
}

static uint64_t hash_text(uint64_t h, const char *text)
{
    return hash(h, text, strlen(text));
}

/* Of everything that keeps those who are left; in whatever order it was told. */
static uint64_t sign(const struct waitgraph *g)
{
    const uint64_t begin = UINT64_C(14695981039346656037);
    uint64_t sum = 0;
    for (size_t i = 0; i < g->nedges; i++) {
        const struct edge *e = &g->edge[i];
        const struct lock *l = &g->lock[e->lock], *to = &g->lock[e->target];
        if (!e->stuck)
            continue;
        uint64_t h = hash_text(hash_text(begin, e->holder), e->waiter);
        h = hash(hash(h, l->key, l->len), to->key, to->len);
        h = hash(h, (const char *)&e->since_ms, sizeof e->since_ms);
        h = hash(h, (const char *)&l->limit, sizeof l->limit);
        if (l->stuck_from != WAITGRAPH_NONE)
            h = hash_text(h, g->place[l->waiter + l->stuck_from].token);
        sum += h;
    }
    return sum;
}

/* From me to me, as reach() went. */
static void tell_way(struct waitgraph *g, size_t me, struct waitgraph_verdict *v)
{
    size_t at = me;
    do {
        const struct node *n = &g->node[at], *from = &g->node[n->from];
        const struct lock *l = &g->lock[from->lock];
        const struct edge *e = n->by == WAITGRAPH_NONE ? NULL : &g->edge[n->by];
        g->hop[v->nhops++] = (struct waitgraph_hop){ .lock = from->lock, .waiter = n->token,
                                                     .holder = e ? e->holder : NULL,
                                                     .behind = from->place > l->stuck_from };
        at = n->from;
    } while (at != me);
    for (size_t i = 0; i < v->nhops / 2; i++) { /* it was walked backwards */
        struct waitgraph_hop h = g->hop[i];
        g->hop[i] = g->hop[v->nhops - 1 - i];
        g->hop[v->nhops - 1 - i] = h;
    }
    v->hop = g->hop;
}

bool waitgraph_judge(struct waitgraph *g, const char *token, struct waitgraph_verdict *ret)
{
    size_t me = g->nlocks && make_nodes(g) ? find_node(g, 0, token) : WAITGRAPH_NONE;
    *ret = (struct waitgraph_verdict){ 0 };
    if (me == WAITGRAPH_NONE || !shrink(g, me) || !is_last(g, me))
        return false;
    ret->signature = sign(g);
    tell_way(g, me, ret);
    return true;
}
