/* SPDX-License-Identifier: MIT
 * home.c - what the locks of one place have in common.
 */
#include "session/home.h"

#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "topo/keys.h"
#include "topo/slot.h"

struct homes {
    char           *prefix;
    char            session[33];
    bool            slotted;
    pthread_mutex_t mu;
    void           *tree; /* tsearch(3) of struct home, by slot */
};

static int compare(const void *a, const void *b)
{
    unsigned x = ((const struct home *)a)->slot, y = ((const struct home *)b)->slot;
    return x < y ? -1 : x > y;
}

struct homes *homes_new(const char *prefix, const char *session, bool slotted)
{
    struct homes *hs = mem_zalloc(sizeof *hs);
    if (!hs || !(hs->prefix = mem_copy(prefix, strlen(prefix)))) {
        mem_free(hs);
        return NULL;
    }
    snprintf(hs->session, sizeof hs->session, "%s", session);
    hs->slotted = slotted;
    pthread_mutex_init(&hs->mu, NULL);
    return hs;
}

static void free_home(void *home)
{
    struct home *h = home;
    mem_free((char *)h->greeting.counter);
    mem_free((char *)h->greeting.reign);
    mem_free((char *)h->greeting.nothing);
    mem_free((char *)h->sub.channel);
    mem_free(h);
}

struct homes *homes_free(struct homes *hs)
{
    if (!hs)
        return NULL;
    tdestroy(hs->tree, free_home);
    mem_free(hs->prefix);
    mem_free(hs);
    return NULL;
}

/* <prefix>holdfast:what, or <prefix>holdfast:{tag}:what. A prefix that has a tag of its own decides
 * the slot by that. */
static char *name(const struct homes *hs, const char *tag, const char *what)
{
    char tail[96];
    snprintf(tail, sizeof tail, "%s%s%s%s", hs->slotted ? "{" : "", tag, hs->slotted ? "}:" : "",
             what);
    return keys_reserved(hs->prefix, tail);
}

static struct home *new_home(const struct homes *hs, unsigned slot)
{
    char tag[SLOT_TEXT_SIZE] = "", channel[48];
    struct home *h = mem_zalloc(sizeof *h);
    if (!h)
        return NULL;
    if (hs->slotted)
        slot_text(slot, tag);
    snprintf(channel, sizeof channel, "s:%s", hs->session);
    h->slot = slot;
    h->greeting.counter = name(hs, tag, "fence");
    h->greeting.reign = name(hs, tag, "reign");
    h->greeting.nothing = hs->slotted ? name(hs, tag, "nothing") : NULL;
    h->sub.channel = name(hs, tag, channel);
    h->sub.arg = h;
    if (h->greeting.counter && h->greeting.reign && h->sub.channel
        && (h->greeting.nothing || !hs->slotted))
        return h;
    free_home(h);
    return NULL;
}

struct home *homes_of(struct homes *hs, hf_bytes key)
{
    struct home probe = { .slot = hs->slotted ? slot_of(key.data, key.len) : 0 };
    pthread_mutex_lock(&hs->mu);
    struct home **found = tfind(&probe, &hs->tree, compare), *h = found ? *found : NULL;
    if (!h && (h = new_home(hs, probe.slot)) && !tsearch(h, &hs->tree, compare)) {
        free_home(h);
        h = NULL;
    }
    pthread_mutex_unlock(&hs->mu);
    return h;
}

/* twalk(3) hands nothing on: this is who is being called. */
static _Thread_local struct {
    void (*each)(struct home *h, void *arg);
    void *arg;
} walk;

static void visit_home(const void *node, VISIT visit, int depth)
{
    (void)depth;
    if (visit == preorder || visit == leaf)
        walk.each(*(struct home *const *)node, walk.arg);
}

void homes_each(struct homes *hs, void (*each)(struct home *h, void *arg), void *arg)
{
    pthread_mutex_lock(&hs->mu);
    walk.each = each;
    walk.arg = arg;
    twalk(hs->tree, visit_home);
    pthread_mutex_unlock(&hs->mu);
}
