/* SPDX-License-Identifier: MIT
 * slots.c - a cluster of two model servers. What is refused, and how, is what Redis 7.0 does:
 * tests/sim/slots.c compares.
 */
#include "sim/lib/slots.h"

#include <string.h>

#include "harness/t.h"
#include "sim/lib/commands.h"
#include "sim/lib/model.h"
#include "sim/lib/world.h"
#include "topo/slot.h"

#define HALF (SLOT_COUNT / 2)

struct slots_counts slots_counts;

/* Those that are not where they were at the beginning, as a node thinks. */
struct strays {
    unsigned slot[SLOTS_RANGES_MAX / 4];
    size_t   n;
};

static struct {
    struct strays strays[MODEL_NODES];
    int           epoch[MODEL_NODES][MODEL_NODES]; /* [by whom it is known][whose it is] */
    bool          moving, arrived;
    unsigned      slot;
    int           from, to;
} all;

void slots_begin(void)
{
    memset(&all, 0, sizeof all);
    memset(&slots_counts, 0, sizeof slots_counts);
    for (int by = 0; by < MODEL_NODES; by++)
        for (int node = 0; node < MODEL_NODES; node++)
            all.epoch[by][node] = node + 1;
}

int slots_epoch(int by, int node)
{
    return all.epoch[by][node];
}

static size_t stray(const struct strays *s, unsigned slot)
{
    size_t i = 0;
    while (i < s->n && s->slot[i] != slot)
        i++;
    return i;
}

static int owner_by(int node, unsigned slot)
{
    const struct strays *s = &all.strays[node];
    return (slot >= HALF) ^ (stray(s, slot) < s->n);
}

static void give(int node, unsigned slot)
{
    struct strays *s = &all.strays[node];
    size_t at = stray(s, slot);
    if (at < s->n) {
        s->slot[at] = s->slot[--s->n];
        return;
    }
    CHECK(s->n < sizeof s->slot / sizeof s->slot[0]);
    s->slot[s->n++] = slot;
}

int slots_owner(unsigned slot)
{
    return all.moving && slot == all.slot ? all.arrived ? all.to : all.from : owner_by(0, slot);
}

/* Where the range ends that begins there: before the next stray, or at the end of a half. */
static unsigned end_of(const struct strays *s, unsigned first)
{
    unsigned end = first < HALF ? HALF : SLOT_COUNT;
    if (stray(s, first) < s->n)
        return first + 1;
    for (size_t i = 0; i < s->n; i++)
        if (s->slot[i] > first && s->slot[i] < end)
            end = s->slot[i];
    return end;
}

size_t slots_ranges(int node, struct slots_range ret[SLOTS_RANGES_MAX])
{
    size_t n = 0;
    for (unsigned first = 0, end; first < SLOT_COUNT; first = end) {
        end = end_of(&all.strays[node], first);
        ret[n++] = (struct slots_range){ first, end - 1, owner_by(node, first) };
    }
    return n;
}

/* ---- what a node does ------------------------------------------------------------------------ */

/* The keys that a command names; a channel is one, but whether it exists is nobody's question. */
static int keys_of(int argc, const hf_bytes *argv, const hf_bytes **ret, bool *ret_channel)
{
    int64_t n = 0;
    *ret_channel = same_word(argv[0], "SSUBSCRIBE");
    if (*ret_channel) {
        *ret = argv + 1;
        return argc - 1;
    }
    if (!same_word(argv[0], "EVAL") && !same_word(argv[0], "EVALSHA"))
        return 0;
    CHECK(argc >= 3 && whole_number(argv[2], &n) && n <= argc - 3);
    *ret = argv + 3;
    return (int)n;
}

static const char *word(const char *text, int to, int *ret_to)
{
    slots_counts.moved += text[0] == 'M';
    slots_counts.ask += text[0] == 'A';
    slots_counts.tryagain += text[0] == 'T';
    *ret_to = to;
    return text;
}

const char *slots_refuse(int node, bool asking, int argc, const hf_bytes *argv, unsigned *ret_slot,
                         int *ret_to)
{
    const hf_bytes *key;
    bool channel, several = false;
    int n = keys_of(argc, argv, &key, &channel), there = 0;
    if (n == 0)
        return NULL;
    unsigned slot = *ret_slot = slot_of(key[0].data, key[0].len);
    int owner = owner_by(node, slot);
    for (int i = 0; i < n; i++) {
        CHECK_INT(slot_of(key[i].data, key[i].len), slot);
        several |= key[i].len != key[0].len || memcmp(key[i].data, key[0].data, key[0].len) != 0;
        there += channel || store_find(&model_node[node].store, key[i], model_now_ms()) != NULL;
    }
    bool moves = all.moving && slot == all.slot;
    if (moves && node == all.from && owner == node && there < n)
        return there ? word("TRYAGAIN", -1, ret_to) : word("ASK", all.to, ret_to);
    if (moves && node == all.to && !all.arrived && asking)
        return several && there < n ? word("TRYAGAIN", -1, ret_to) : NULL;
    return owner == node ? NULL : word("MOVED", owner, ret_to);
}

/* ---- a slot that moves ----------------------------------------------------------------------- */

bool slots_moving(void)
{
    return all.moving;
}

void slots_send(unsigned slot)
{
    CHECK(!all.moving);
    all.slot = slot;
    all.from = owner_by(0, slot);
    all.to = 1 - all.from;
    all.arrived = false;
    all.moving = true;
    slots_counts.moves++;
}

bool slots_send_key(uint64_t *chance)
{
    struct store *from = &model_node[all.from].store;
    size_t begin = chance && from->n ? (size_t)world_random(chance, from->n) : 0;
    for (size_t i = 0; i < from->n; i++) {
        struct entry *e = from->entry[(begin + i) % from->n];
        if (slot_of(e->key.p, e->key.len) != all.slot)
            continue;
        store_take(&model_node[all.to].store, from, e);
        slots_counts.keys++;
        return true;
    }
    return false;
}

void slots_arrive(void)
{
    int *epoch = all.epoch[all.to];
    all.arrived = true;
    give(all.to, all.slot);
    if (epoch[all.to] < epoch[all.from])
        epoch[all.to] = epoch[all.from] + 1;
}

void slots_let_go(void)
{
    struct model *was = model;
    give(all.from, all.slot);
    all.epoch[all.from][all.to] = all.epoch[all.to][all.to];
    all.moving = false;
    model = &model_node[all.from];
    model_unsubscribe(all.slot);
    model = was;
}
