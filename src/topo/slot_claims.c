/* SPDX-License-Identifier: MIT
 * slot_claims.c - which slots a server of a cluster calls its own; see slot_claims.h.
 */
#include "topo/slot_claims.h"

#include <stdio.h>
#include <string.h>

#include "topo/node_lines.h"

static void set_slots(struct slot_claims *c, struct node_line *line, bool claimed)
{
    unsigned first, last;
    bool moves;
    while (node_line_slots(line, &first, &last, &moves))
        for (unsigned s = first; !moves && s <= last; s++) {
            unsigned char *of = &c->bits[s / 8];
            unsigned bit = 1U << s % 8;
            *of = (unsigned char)(claimed ? *of | bit : *of & ~bit);
        }
}

static void read_own(void *arg, struct node_line *line)
{
    struct slot_claims *c = arg;
    if (!node_line_is(line, "myself"))
        return;
    snprintf(c->id, sizeof c->id, "%s", line->id);
    c->epoch = line->epoch;
    set_slots(c, line, true);
}

hf_err slot_claims_read(struct slot_claims *c, const struct reply *rp)
{
    memset(c, 0, sizeof *c);
    return node_lines_read(rp, read_own, c) == HF_ENOMEM ? HF_ENOMEM : HF_OK;
}

void slot_claims_assume(struct slot_claims *c, const char *id)
{
    memset(c, 0, sizeof *c);
    snprintf(c->id, sizeof c->id, "%s", id);
    c->absent = true;
    c->epoch = UINT64_MAX;
    memset(c->bits, 0xff, sizeof c->bits);
}

struct settling {
    struct slot_claims *c;
    bool                alive; /* its line says so */
};

static void settle_line(void *arg, struct node_line *line)
{
    struct settling *s = arg;
    if (strcmp(line->id, s->c->id) == 0)
        s->alive = node_line_is(line, "master") && !node_line_is(line, "fail")
                   && !node_line_is(line, "fail?") && line->connected;
    else if (line->epoch >= s->c->epoch)
        set_slots(s->c, line, false);
}

hf_err slot_claims_settle(struct slot_claims *c, const struct reply *rp)
{
    struct settling s = { .c = c };
    hf_err e = node_lines_read(rp, settle_line, &s);
    if (e == HF_ENOMEM)
        return e;
    if (e || (c->absent && !s.alive))
        memset(c->bits, 0, sizeof c->bits);
    return HF_OK;
}

bool slot_claims_any(const struct slot_claims *c)
{
    for (size_t i = 0; i < sizeof c->bits; i++)
        if (c->bits[i])
            return true;
    return false;
}

bool slot_claims_has(const struct slot_claims *c, unsigned slot)
{
    return (c->bits[slot / 8] >> slot % 8 & 1) != 0;
}
