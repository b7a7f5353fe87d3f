/* SPDX-License-Identifier: MIT
 * exam_counters.c - the fencing counters of a cluster: each slot has one.
 *
 * Their names are known (session/keyspace.h), so nobody has to search for them among all keys.
 */
#include "doctor/exam.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "net/servererr.h"
#include "net/stream.h"
#include "topo/cluster.h"
#include "topo/keys.h"

#define BATCH    128 /* counters in one round trip */
#define NAMED    5   /* so many are named, and the others counted */
#define AHEAD_MS 120000

enum counter_state {
    COUNTER_NONE,
    COUNTER_FINE,
    COUNTER_BROKEN,
    COUNTER_SECRET, /* this user may not read it */
    COUNTER_AWAY    /* its slot is being moved */
};

struct counter {
    unsigned           slot;
    const char        *key;
    enum counter_state state;
    const char        *text;  /* of a fine one: the number */
    const struct reply *refusal; /* of a secret one */
};

/* Who looks at them, one master after the other. */
struct counters {
    struct exam *e;
    struct topo *t;
    char       (*text)[SLOT_TEXT_SIZE];
    void       (*each)(struct counters *cs, const struct counter *c);
    /* of the doctor */
    unsigned     n, broken, secret, ahead;
    char         newest[40], furthest[40];
    /* of the repair */
    struct exec *x;
    size_t      *repaired;
    hf_err       code; /* the first that went wrong */
    hf_error    *reterr;
};

/* <prefix>holdfast:{tag}:what, to be freed. */
static char *name_in(const struct counters *cs, unsigned slot, const char *what)
{
    char tail[48];
    snprintf(tail, sizeof tail, "{%s}:%s", cs->text[slot], what);
    return keys_reserved(cs->e->prefix, tail);
}

/* ---- asking for many at once ----------------------------------------------------------------- */

struct batch {
    size_t              n;
    unsigned            slot[BATCH];
    char               *key[BATCH];
    hf_bytes            type[BATCH][2], range[BATCH][4];
    struct link_command cmd[2 * BATCH];
};

static void clear_batch(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        mem_free(b->key[i]);
    b->n = 0;
}

/* False: no memory. */
static bool add_slot(const struct counters *cs, struct batch *b, unsigned slot)
{
    char *key = name_in(cs, slot, "fence");
    if (!key)
        return false;
    size_t i = b->n++;
    b->slot[i] = slot;
    b->key[i] = key;
    b->type[i][0] = hf_str("TYPE");
    b->range[i][0] = hf_str("GETRANGE");
    b->type[i][1] = b->range[i][1] = hf_str(key);
    b->range[i][2] = hf_str("0");
    b->range[i][3] = hf_str("31");
    b->cmd[2 * i] = (struct link_command){ 2, b->type[i] };
    b->cmd[2 * i + 1] = (struct link_command){ 4, b->range[i] };
    return true;
}

static struct counter classify(const struct reply *type, const struct reply *text)
{
    struct counter c = { .state = COUNTER_AWAY };
    const struct reply *refused = type->type == REPLY_ERROR ? type : text;
    if (type->type == REPLY_STATUS && strcmp(type->str, "none") == 0)
        c.state = COUNTER_NONE;
    else if (type->type == REPLY_STATUS && strcmp(type->str, "string") != 0)
        c.state = COUNTER_BROKEN;
    else if (refused->type == REPLY_ERROR && strncmp(refused->str, "NOPERM", 6) == 0)
        c = (struct counter){ .state = COUNTER_SECRET, .refusal = refused };
    else if (text->type == REPLY_BULK)
        c = (struct counter){ .state = exam_is_counter(text->str) ? COUNTER_FINE : COUNTER_BROKEN,
                              .text = text->str };
    return c;
}

static hf_err ask_batch(struct counters *cs, struct batch *b, struct link *l, hf_error *reterr)
{
    struct limit lim = { .at_ms = clock_now_ms() + cs->e->timeout_ms };
    hf_err code = b->n ? link_send_many(l, b->cmd, 2 * b->n, &lim, reterr) : HF_OK;
    for (size_t i = 0; i < b->n && !code; i++) {
        AUTO(reply_freep) struct reply *type = NULL;
        AUTO(reply_freep) struct reply *text = NULL;
        code = link_receive(l, &lim, &type, reterr);
        if (!code)
            code = link_receive(l, &lim, &text, reterr);
        if (code)
            break;
        struct counter c = classify(type, text);
        c.slot = b->slot[i];
        c.key = b->key[i];
        cs->each(cs, &c);
    }
    clear_batch(b);
    return code;
}

/* Has this master a counter in this slot? A prefix with a tag of its own has all its keys in
 * one. */
static bool concerns(const struct counters *cs, int number, unsigned slot)
{
    const char *prefix = cs->e->prefix;
    const struct url_host *host;
    size_t begin, end;
    if (cluster_place(topo_cluster(cs->t), slot, &host) != number)
        return false;
    return !slot_tag(prefix, strlen(prefix), &begin, &end)
        || slot_of(prefix, strlen(prefix)) == slot;
}

/* All at one master. */
static hf_err ask_master(struct counters *cs, int number, struct link *l, hf_error *reterr)
{
    AUTO(mem_freep) struct batch *b = mem_zalloc(sizeof *b);
    hf_err code = b ? HF_OK : HF_ENOMEM;
    for (unsigned slot = 0; slot < SLOT_COUNT && !code; slot++) {
        if (concerns(cs, number, slot) && !add_slot(cs, b, slot))
            code = HF_ENOMEM;
        else if (b->n == BATCH)
            code = ask_batch(cs, b, l, reterr);
    }
    if (!code)
        code = ask_batch(cs, b, l, reterr);
    else if (b)
        clear_batch(b);
    return code == HF_ENOMEM ? err_set(reterr, code, "out of memory") : code;
}

/* ---- the doctor ------------------------------------------------------------------------------ */

static bool is_larger(const char *a, const char *b)
{
    return strtod(a, NULL) > strtod(b, NULL);
}

static void report(struct counters *cs, const struct counter *c)
{
    struct exam *e = cs->e;
    cs->n += c->state == COUNTER_FINE;
    cs->secret += c->state == COUNTER_SECRET;
    if (c->state == COUNTER_BROKEN && cs->broken++ < NAMED)
        exam_tell(e, HF_GRADE_FAULT, "fence", "holdfast doctor --repair-fence puts it aside",
                  "the fencing counter %s of slot %u holds something else: no lock can be granted "
                  "there", c->key, c->slot);
    if (c->state != COUNTER_FINE)
        return;
    if (is_larger(c->text, cs->newest))
        snprintf(cs->newest, sizeof cs->newest, "%s", c->text);
    if (exam_ahead_ms(e, c->text) <= AHEAD_MS)
        return;
    cs->ahead++;
    if (is_larger(c->text, cs->furthest))
        snprintf(cs->furthest, sizeof cs->furthest, "%s", c->text);
}

static void tell(const struct counters *cs)
{
    struct exam *e = cs->e;
    if (cs->broken > NAMED)
        exam_tell(e, HF_GRADE_FAULT, "fence", "holdfast doctor --repair-fence puts them aside",
                  "%u more fencing counters hold something else", cs->broken - NAMED);
    if (cs->secret)
        exam_tell(e, HF_GRADE_NOTE, "fence", NULL,
                  "the fencing counters cannot be read by this user");
    if (cs->ahead)
        exam_tell(e, HF_GRADE_RISK, "fence", "do not lose the data; let NTP keep the clocks",
                  "the numbers of %u slot(s) are ahead of this server's clock, by up to %lld s: it "
                  "was set back, or they came from another master; should a counter be lost, "
                  "numbers would repeat (P4)", cs->ahead,
                  (long long)(exam_ahead_ms(e, cs->furthest) / 1000));
    if (cs->n)
        exam_tell(e, HF_GRADE_FINE, "fence", NULL,
                  "%u slot(s) have a fencing counter; the newest number is %s", cs->n, cs->newest);
    else if (!cs->broken && !cs->secret)
        exam_tell(e, HF_GRADE_FINE, "fence", NULL, "no number was given under this prefix yet");
}

hf_err exam_counters(struct exam *e, struct topo *t, int number, struct link *l)
{
    AUTO(mem_freep) char (*text)[SLOT_TEXT_SIZE] = mem_alloc((size_t)SLOT_COUNT * SLOT_TEXT_SIZE);
    struct counters cs = { .e = e, .t = t, .text = text, .each = report };
    hf_error err = { 0 };
    if (!text)
        return HF_ENOMEM;
    slot_texts(text);
    hf_err code = l->stream ? ask_master(&cs, number, l, &err)
                            : err_set(&err, HF_ECONN, "it ceased to answer");
    if (code)
        link_close(l, false); /* replies may still come */
    if (code == HF_ENOMEM)
        return code;
    if (code)
        exam_tell(e, HF_GRADE_FAULT, "reach", "look at it and at the way to it", "%s", err.message);
    else
        tell(&cs);
    return HF_OK;
}

/* ---- the repair ------------------------------------------------------------------------------ */

static void mend(struct counters *cs, const struct counter *c)
{
    hf_error *reterr = cs->code ? NULL : cs->reterr; /* of several the first is told */
    hf_err code = HF_OK;
    if (c->state == COUNTER_SECRET)
        code = server_refusal(c->refusal, reterr);
    if (c->state == COUNTER_BROKEN || c->state == COUNTER_AWAY) {
        AUTO(mem_freep) char *reign = name_in(cs, c->slot, "reign");
        AUTO(mem_freep) char *broken = name_in(cs, c->slot, "fence:broken");
        code = !reign || !broken ? err_set(reterr, HF_ENOMEM, "out of memory")
                                 : exam_repair(cs->x, c->key, reign, broken, cs->e->timeout_ms,
                                               cs->repaired, reterr);
    }
    if (!cs->code)
        cs->code = code;
}

static hf_err mend_master(struct counters *cs, int number, const struct url_host *host,
                          hf_error *reterr)
{
    AUTO(mem_freep) struct link *l = mem_zalloc(sizeof *l);
    if (!l || link_init(l) < 0)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    struct limit lim = { .at_ms = clock_now_ms() + cs->e->timeout_ms };
    hf_err code = link_open(l, cs->e->url, host, &lim, reterr);
    if (!code)
        code = ask_master(cs, number, l, reterr);
    link_clear(l);
    return code;
}

hf_err exam_counters_repair(struct exam *e, struct topo *t, struct exec *x, size_t *repaired,
                            hf_error *reterr)
{
    AUTO(mem_freep) char (*text)[SLOT_TEXT_SIZE] = mem_alloc((size_t)SLOT_COUNT * SLOT_TEXT_SIZE);
    AUTO(mem_freep) bool *done = mem_zalloc(EXAM_NODES_MAX * sizeof *done);
    struct counters cs = { .e = e, .t = t, .text = text, .each = mend, .x = x,
                           .repaired = repaired, .reterr = reterr };
    if (!text || !done)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    slot_texts(text);
    struct limit lim = { .at_ms = clock_now_ms() + e->timeout_ms };
    hf_err code = topo_connect(t, &lim, reterr);
    for (unsigned slot = 0; slot < SLOT_COUNT && !code; slot++) {
        const struct url_host *host;
        int number = cluster_place(topo_cluster(t), slot, &host);
        if (number < 0 || number >= EXAM_NODES_MAX || done[number])
            continue;
        done[number] = true;
        hf_err e1 = mend_master(&cs, number, host, cs.code ? NULL : reterr);
        if (!cs.code)
            cs.code = e1;
    }
    return code ? code : cs.code;
}
