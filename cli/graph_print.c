/* SPDX-License-Identifier: MIT
 * graph_print.c - who waits for whom, as text, for graphviz and as JSON. */
#include "graph.h"
#include "message.h"
#include "party.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { STEP = 2, WORDS = PARTY_WORDS + TEXT_ESCAPED(HF_NAME_MAX) + 200 };

/* ---- deadlocks ------------------------------------------------------------------------------ */

/* The lines of a deadlock lead round: the next one from a node. GRAPH_NONE: none. */
static size_t next_line(const struct graph *g, size_t node)
{
    for (size_t i = 0; i < g->lines; i++)
        if (g->line[i].from == node && g->line[i].deadlock)
            return i;
    return GRAPH_NONE;
}

typedef void (*round_fn)(const struct graph *g, const struct graph_line *line, int first,
                         void *arg);

/* Call each() for the lines of every deadlock, in the order in which they are waited through. */
static void each_deadlock(const struct graph *g, round_fn each, void *arg)
{
    uint8_t *seen = calloc(g->lines + 1, 1);
    for (size_t i = 0; seen && i < g->lines; i++) {
        size_t at = i;
        int first = 1;
        while (at != GRAPH_NONE && g->line[at].deadlock && !seen[at]) {
            if (first && g->line[at].kind != LINE_HELD)
                break; /* begin with a lock */
            seen[at] = 1;
            each(g, &g->line[at], first, arg);
            first = 0;
            at = next_line(g, g->line[at].to);
        }
    }
    free(seen);
}

/* ---- text ----------------------------------------------------------------------------------- */

static const char *lock_name(char *buf, size_t size, const struct scene_lock *l)
{
    return text_escape(buf, size, l->name, l->name_len);
}

static void print_round(const struct graph *g, const struct graph_line *line, int first, void *arg)
{
    char who[PARTY_WORDS], name[TEXT_ESCAPED(HF_NAME_MAX)];
    FILE *f = arg;
    if (first)
        fprintf(f, "deadlock:\n");
    if (line->kind == LINE_HELD)
        fprintf(f, "  %s holds %s\n", party_words(who, sizeof who, line->party),
                lock_name(name, sizeof name, g->node[line->from].lock));
    else
        fprintf(f, "    and waits for %s\n",
                lock_name(name, sizeof name, g->node[line->to].lock));
}

/* "deploy (mutex, for 3m12s)" */
static void lock_words(char *buf, size_t size, const struct scene_lock *l)
{
    char name[TEXT_ESCAPED(HF_NAME_MAX)], kind[80], t[32] = "";
    lock_name(name, sizeof name, l);
    if (!l->info || !l->info->holders)
        snprintf(buf, size, "%s (nobody holds it)", name);
    else if (l->hold_ms >= 0)
        snprintf(buf, size, "%s (%s, for %s)", name, party_kind(kind, sizeof kind, l->info),
                 text_duration(t, sizeof t, l->hold_ms));
    else
        snprintf(buf, size, "%s (%s)", name, party_kind(kind, sizeof kind, l->info));
}

/* What a line says: of a lock that is held, or of a place in its queue. */
static void line_words(char *buf, size_t size, const struct graph *g, const struct graph_line *line)
{
    char who[PARTY_WORDS], t[48] = "";
    const struct graph_node *from = &g->node[line->from];
    if (from->kind == NODE_MORE) {
        snprintf(buf, size, "and %zu more wait", from->more);
        return;
    }
    if (line->kind == LINE_HELD) {
        snprintf(buf, size, "holds ");
        lock_words(buf + 6, size - 6, from->lock);
        return;
    }
    party_words(who, sizeof who, line->party);
    if (line->kind == LINE_BELOW) {
        snprintf(buf, size, "-. %s: a process that it started waits", who);
        return;
    }
    if (line->party->age_ms >= 0) {
        char d[32];
        snprintf(t, sizeof t, " for %s", text_duration(d, sizeof d, line->party->age_ms));
    }
    snprintf(buf, size, "%zu. %s, waits%s", line->place, who, t);
}

static void print_line(const struct graph *g, size_t i, int depth, FILE *f)
{
    char words[WORDS];
    const struct graph_line *line = &g->line[i];
    const char *more = "";
    line_words(words, sizeof words, g, line);
    if (g->node[line->from].through != i)
        more = g->node[line->from].kind == NODE_LOCK ? ": see there" : ": see above";
    fprintf(f, "%*s%s%s%s\n", STEP * depth, "", words, line->deadlock ? " [deadlock]" : "", more);
}

/* As graph_build() arranged it: depth first, each node once. */
static void print_node(const struct graph *g, size_t at, FILE *f)
{
    char words[WORDS];
    const struct graph_node *node = &g->node[at];
    if (node->through == GRAPH_NONE) {
        if (node->kind == NODE_PARTY)
            party_words(words, sizeof words, node->party);
        else if (node->kind == NODE_LOCK)
            lock_words(words, sizeof words, node->lock);
        else
            snprintf(words, sizeof words, "%zu more wait", node->more);
        fprintf(f, "%*s%s\n", STEP * node->depth, "", words);
    }
    for (size_t i = node->lines; i < node->lines + node->nlines; i++) {
        print_line(g, i, node->depth + 1, f);
        if (g->node[g->line[i].from].through == i)
            print_node(g, g->line[i].from, f);
    }
}

void graph_print_text(const struct graph *g, FILE *f)
{
    each_deadlock(g, print_round, f);
    for (size_t i = 0; i < g->n; i++)
        if (g->node[g->order[i]].through == GRAPH_NONE)
            print_node(g, g->order[i], f);
}

/* ---- graphviz ------------------------------------------------------------------------------- */

static void dot_text(FILE *f, const char *s)
{
    for (; *s; s++)
        fprintf(f, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
}

static void dot_node(const struct graph *g, size_t at, FILE *f)
{
    char words[WORDS];
    const struct graph_node *node = &g->node[at];
    fprintf(f, "  n%zu [shape=%s%s, label=\"", at, node->kind == NODE_LOCK ? "box" : "ellipse",
            node->deadlock ? ", color=red, fontcolor=red" : "");
    if (node->kind == NODE_LOCK)
        lock_words(words, sizeof words, node->lock);
    else if (node->kind == NODE_PARTY)
        party_words(words, sizeof words, node->party);
    else
        snprintf(words, sizeof words, "%zu more", node->more);
    dot_text(f, words);
    fprintf(f, "\"];\n");
}

void graph_print_dot(const struct graph *g, FILE *f)
{
    fprintf(f, "digraph holdfast {\n  rankdir=RL;\n  node [fontname=\"monospace\"];\n");
    for (size_t i = 0; i < g->n; i++)
        dot_node(g, i, f);
    for (size_t i = 0; i < g->lines; i++) {
        const struct graph_line *l = &g->line[i];
        fprintf(f, "  n%zu -> n%zu [label=\"", l->from, l->to);
        if (l->kind == LINE_HELD)
            fprintf(f, "held by");
        else if (l->kind == LINE_WAITS && l->place != SIZE_MAX)
            fprintf(f, "waits, %zu.", l->place);
        else
            fprintf(f, "waits");
        fprintf(f, "\"%s%s];\n", l->kind == LINE_WAITS ? "" : ", style=dashed",
                l->deadlock ? ", color=red, fontcolor=red" : "");
    }
    fprintf(f, "}\n");
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static json_t *json_text(const char *s)
{
    return s ? json_bytes(s, strlen(s)) : json_null();
}

static json_t *json_node(const struct graph_node *node, size_t id)
{
    json_t *o = json_object();
    json_object_set_new(o, "id", json_integer((json_int_t)id));
    json_object_set_new(o, "type", json_string(node->kind == NODE_LOCK    ? "lock"
                                               : node->kind == NODE_PARTY ? "party"
                                                                          : "more"));
    if (node->kind == NODE_LOCK)
        json_set_name(o, node->lock->name, node->lock->name_len);
    if (node->kind == NODE_LOCK && node->lock->info)
        json_object_set_new(o, "kind", json_text(node->lock->info->kind));
    if (node->kind == NODE_MORE)
        json_object_set_new(o, "count", json_integer((json_int_t)node->more));
    if (node->kind == NODE_PARTY) {
        const hf_party *p = node->party;
        json_object_set_new(o, "owner", json_text(p->owner));
        json_object_set_new(o, "host", json_text(p->host));
        json_object_set_new(o, "user", json_text(p->user));
        json_object_set_new(o, "pid", p->pid > 0 ? json_integer(p->pid) : json_null());
        json_object_set_new(o, "program", json_text(p->program));
        json_object_set_new(o, "info", json_text(p->info));
    }
    json_object_set_new(o, "deadlock", json_boolean(node->deadlock));
    return o;
}

static json_t *json_of_line(const struct graph_line *l)
{
    static const char *const types[] = { "held_by", "waits_for", "child_waits_for" };
    json_t *o = json_object();
    json_object_set_new(o, "from", json_integer((json_int_t)l->from));
    json_object_set_new(o, "to", json_integer((json_int_t)l->to));
    json_object_set_new(o, "type", json_string(types[l->kind]));
    if (l->kind == LINE_WAITS)
        json_object_set_new(o, "place", l->place == SIZE_MAX
                                            ? json_null() : json_integer((json_int_t)l->place));
    json_object_set_new(o, "age_ms", l->party && l->party->age_ms >= 0
                                         ? json_integer(l->party->age_ms) : json_null());
    json_object_set_new(o, "deadlock", json_boolean(l->deadlock));
    return o;
}

static void json_round(const struct graph *g, const struct graph_line *line, int first, void *arg)
{
    json_t *all = arg;
    if (first)
        json_array_append_new(all, json_array());
    const struct scene_lock *l = line->kind == LINE_HELD ? g->node[line->from].lock : NULL;
    if (l)
        json_array_append_new(json_array_get(all, json_array_size(all) - 1),
                              json_bytes(l->name, l->name_len));
}

json_t *graph_json(const struct graph *g)
{
    json_t *o = json_object(), *nodes = json_array(), *lines = json_array(), *rounds = json_array();
    for (size_t i = 0; i < g->n; i++)
        json_array_append_new(nodes, json_node(&g->node[i], i));
    for (size_t i = 0; i < g->lines; i++)
        json_array_append_new(lines, json_of_line(&g->line[i]));
    each_deadlock(g, json_round, rounds);
    json_object_set_new(o, "schema", json_string("holdfast.graph/1"));
    json_object_set_new(o, "nodes", nodes);
    json_object_set_new(o, "edges", lines);
    json_object_set_new(o, "deadlocks", rounds);
    return o;
}
