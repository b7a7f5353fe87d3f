/* SPDX-License-Identifier: MIT
 * exam_nodes.c - what the nodes of a cluster say about one another and about the slots.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <string.h>

#include "topo/node_lines.h"

const char *exam_slots(const unsigned char *slots, unsigned char kind, char *buf, size_t size,
                       unsigned *ret_count)
{
    unsigned n = 0, left_out = 0;
    size_t used = 0;
    buf[0] = '\0';
    for (unsigned first = 0, last; first < SLOT_COUNT; first = last + 1) {
        last = first;
        if (slots[first] != kind)
            continue;
        while (last + 1 < SLOT_COUNT && slots[last + 1] == kind)
            last++;
        n += last - first + 1;
        if (used + 40 > size) { /* room for one more, and for the end */
            left_out += last - first + 1;
            continue;
        }
        used += (size_t)snprintf(buf + used, size - used, "%s%u", used ? ", " : "", first);
        if (last > first)
            used += (size_t)snprintf(buf + used, size - used, "-%u", last);
    }
    if (left_out)
        snprintf(buf + used, size - used, " and %u more", left_out);
    *ret_count = n;
    return buf;
}

/* ---- CLUSTER NODES --------------------------------------------------------------------------- */

/* What one node says, while it is read. */
struct view {
    struct exam_nodes *ns;
    char               self[48];
    uint64_t           owners;
};

static void suspect(struct exam_nodes *ns, const char *id, const char *address, bool failed)
{
    unsigned i = 0;
    while (i < ns->suspects && strcmp(ns->suspect[i].id, id) != 0)
        i++;
    if (i == EXAM_SUSPECTS_MAX)
        return;
    struct suspect *s = &ns->suspect[i];
    if (i == ns->suspects) {
        ns->suspects++;
        snprintf(s->id, sizeof s->id, "%s", id);
        /* 127.0.0.1:7000@17000,name: without the bus, and what follows it */
        snprintf(s->address, sizeof s->address, "%.*s", (int)strcspn(address, "@,"), address);
    }
    s->failed |= failed;
    s->by++;
}

/* The same for the same owners, in whatever order and pieces they are told. */
static uint64_t owner_sum(const char *id, unsigned slot)
{
    uint64_t h = UINT64_C(14695981039346656037) + slot;
    for (; *id; id++)
        h = (h ^ (unsigned char)*id) * UINT64_C(1099511628211);
    return h ^ h >> 29;
}

static void read_slots(struct view *v, struct node_line *line)
{
    unsigned first, last;
    bool moves;
    while (node_line_slots(line, &first, &last, &moves)) {
        if (moves)
            v->ns->moving[first] = 1;
        for (unsigned slot = first; !moves && slot <= last; slot++)
            v->owners += owner_sum(line->id, slot);
    }
}

static void read_line(void *arg, struct node_line *line)
{
    struct view *v = arg;
    bool failed = node_line_is(line, "fail");
    if (node_line_is(line, "myself"))
        snprintf(v->self, sizeof v->self, "%s", line->id);
    else if (failed || node_line_is(line, "fail?"))
        suspect(v->ns, line->id, line->address, failed);
    read_slots(v, line);
}

/* How many lines name it as their master. */
static int replicas_of(const char *text, const char *id)
{
    int n = 0;
    char pattern[64];
    snprintf(pattern, sizeof pattern, " %s ", id);
    for (const char *p = *id ? text : NULL; p && (p = strstr(p, pattern)); p++)
        n++;
    return n;
}

static void read_nodes(struct exam *e, struct exam_nodes *ns, const struct reply *rp)
{
    struct view v = { .ns = ns };
    if (node_lines_read(rp, read_line, &v))
        return;
    e->replicas_known = replicas_of(rp->str, v.self);
    if (!ns->asked++)
        ns->owners = v.owners;
    ns->differ |= v.owners != ns->owners;
}

void exam_nodes(struct exam *e, struct link *l, struct exam_nodes *ns, bool *ret_down)
{
    char state[16];
    bool refused, refused_too;
    e->replicas_known = -1;
    struct reply *nodes = exam_ask(e, l, (const char *[]){ "CLUSTER", "NODES" }, 2, &refused);
    if (nodes)
        read_nodes(e, ns, nodes);
    reply_free(nodes);
    struct reply *info = exam_ask(e, l, (const char *[]){ "CLUSTER", "INFO" }, 2, &refused_too);
    exam_field(info && info->type == REPLY_BULK ? info : NULL, "cluster_state", state,
               sizeof state);
    *ret_down = strcmp(state, "fail") == 0;
    ns->silent |= refused || refused_too;
    reply_free(info);
}

/* ---- the sum --------------------------------------------------------------------------------- */

void exam_nodes_tell(struct exam *e, const struct exam_nodes *ns)
{
    char list[200];
    unsigned n;
    exam_slots(ns->moving, 1, list, sizeof list, &n);
    if (n)
        exam_tell(e, HF_GRADE_RISK, "cluster",
                  "let the move end; if nobody moves them any more: redis-cli --cluster fix",
                  "%u slot(s) are being moved: %s. Until they have arrived none of their locks is "
                  "taken or waited for (P3)", n, list);
    for (unsigned i = 0; i < ns->suspects; i++)
        exam_tell(e, HF_GRADE_RISK, "cluster",
                  "bring it back; if it is gone for good: CLUSTER FORGET",
                  "the node %s %s by %u of %u masters", ns->suspect[i].address,
                  ns->suspect[i].failed ? "is called failed" : "is suspected to have failed",
                  ns->suspect[i].by, ns->asked);
    if (ns->differ)
        exam_tell(e, HF_GRADE_RISK, "cluster",
                  "wait for a failover or a move to end; else redis-cli --cluster check",
                  "the masters do not all name the same owners of the slots");
    if (ns->silent)
        exam_tell(e, HF_GRADE_NOTE, "cluster",
                  "allow CLUSTER NODES and CLUSTER INFO: see docs/acl.md",
                  "this user may not ask for the nodes and the state of the cluster: moves, failed "
                  "nodes and missing replicas cannot be told");
}
