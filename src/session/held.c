/* SPDX-License-Identifier: MIT
 * held.c - a look, once a second, at the keys of what is held: deleted, evicted or overwritten by
 * others, they are noticed long before the next renewal.
 *
 * It proves nothing and prolongs nothing. A key that is not what it should be makes its lease
 * suspect, and a renewal at once says what has become of it: so nothing is called lost by this.
 *
 * What is asked is a copy: nobody who lets go of a lock, or prolongs it, waits for a look.
 *
 *   sweep   all that are held, from the last of the row to the first; then again, a second later
 *   round   a part of that: what is sent together. Of many, the rounds are spread over the second
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "session/keeper_impl.h"

#define EVERY_MS     1000
#define WAIT_MS      1000 /* for an answer: a busy machine may take that long */
#define SILENT_MS    250  /* the same where there are others to look at, which answer */
#define PARTS_MAX    64   /* operations at once */
#define LEASES_IN_MS 10   /* what it may cost a server: so many leases in a millisecond, */
#define PARTS_IN_MS  1    /* and so many operations */

/* What one operation asks about: all on one server, or in a cluster in one slot. */
struct held_part {
    const struct keyspace *keyspace;
    size_t                 from, n;
};

struct sweep {
    int64_t             next_ms;  /* the next round; 0: as soon as there is something to look at */
    size_t              left;     /* of this sweep, in the row; 0: the next one begins */
    bool                refused;  /* for good */

    size_t              n, parts, passed;
    struct lease       *lease[KEEP_MAX];
    size_t              part_of[KEEP_MAX];
    struct copy {
        struct grant     grant;
        struct lock_keys keys; /* the lock's and its own */
    } copy[KEEP_MAX];          /* by part, as the two below */
    const struct grant *grant[KEEP_MAX];
    bool                odd[KEEP_MAX];
    char               *bytes; /* of the copies; NULL between rounds */
    struct held_part    part[PARTS_MAX];
    struct op           op[PARTS_MAX];
    hf_error            err[PARTS_MAX];
};

/* Each round fills in the arrays: so the pages that no round needs are never touched. */
struct sweep *held_new(void)
{
    struct sweep *s = mem_alloc(sizeof *s);
    if (!s)
        return NULL;
    s->next_ms = 0;
    s->left = s->n = s->parts = s->passed = 0;
    s->refused = false;
    s->bytes = NULL;
    return s;
}

/* On a quorum one key that is gone says nothing: there it is only looked whether a server has come
 * back. */
static bool wanted(const struct keeper *k)
{
    bool quorum = topo_quorum(k->c->topo) != NULL;
    return quorum || (exec_can(k->c->exec, EXEC_HELD) && !k->sweep->refused);
}

int64_t held_next_ms(const struct keeper *k)
{
    return k->leases.n && wanted(k) ? k->sweep->next_ms : CLOCK_NEVER;
}

/* ---- what is asked about (all hold mu) ------------------------------------------------------- */

/* Not those that a renewal, or their holder, has just asked about, or does now. */
static bool to_look_at(const struct lease *l, int64_t now)
{
    return lease_state(l) != HF_STATE_LOST && !l->exclusive && !l->leaving && !l->suspect
           && !l->in_use && now - l->proven_ms >= EVERY_MS / 2;
}

/* The part that a lease belongs to; PARTS_MAX: there is no room for another. */
static size_t part_for(struct sweep *s, const struct lease *l)
{
    const struct keyspace *keyspace = keyspace_of(l->grant.keys);
    for (size_t i = 0; i < s->parts; i++)
        if (s->part[i].keyspace == keyspace)
            return i;
    if (s->parts < PARTS_MAX)
        s->part[s->parts++] = (struct held_part){ .keyspace = keyspace };
    else
        return PARTS_MAX;
    return s->parts - 1;
}

static void collect_locked(struct keeper *k, struct sweep *s, int64_t now)
{
    mutex_assert_held(&k->mu);
    s->n = s->parts = s->passed = 0;
    if (!s->left || s->left > k->leases.n)
        s->left = k->leases.n;
    while (s->left > 0 && s->n < KEEP_MAX && s->passed < KEEPER_SLICE) {
        struct lease *l = k->leases.row[s->left - 1];
        if (to_look_at(l, now)) {
            size_t part = part_for(s, l);
            if (part == PARTS_MAX)
                break;
            s->part[part].n++;
            s->part_of[s->n] = part;
            s->lease[s->n++] = l;
        }
        s->left--;
        s->passed++;
    }
}

static size_t size_of(const struct grant *g)
{
    return g->keys->key[KEY_LOCK].len + g->keys->key[KEY_OWN].len + g->owner.len;
}

static hf_bytes put(char **at, hf_bytes from)
{
    hf_bytes copy = { *at, from.len };
    if (from.len)
        memcpy(*at, from.data, from.len);
    *at += from.len;
    return copy;
}

static void copy_grant(struct copy *c, const struct grant *g, char **at)
{
    c->grant = *g;
    c->keys = (struct lock_keys){ .scope = g->keys->scope };
    c->keys.key[KEY_LOCK] = put(at, g->keys->key[KEY_LOCK]);
    c->keys.key[KEY_OWN] = put(at, g->keys->key[KEY_OWN]);
    c->grant.owner = put(at, g->owner);
    c->grant.keys = &c->keys;
}

/* Copy them, part by part. False: no memory. */
static bool copy_all(struct sweep *s)
{
    size_t first[PARTS_MAX], from = 0, size = 1;
    for (size_t i = 0; i < s->n; i++)
        size += size_of(&s->lease[i]->grant);
    char *at = s->bytes = mem_alloc(size);
    if (!at)
        return false;
    for (size_t i = 0; i < s->parts; i++) {
        first[i] = s->part[i].from = from;
        from += s->part[i].n;
    }
    for (size_t i = 0; i < s->n; i++) {
        size_t to = first[s->part_of[i]]++;
        copy_grant(&s->copy[to], &s->lease[i]->grant, &at);
        s->grant[to] = &s->copy[to].grant;
        s->odd[to] = false;
    }
    return true;
}

/* When the next round is: all of them once a second, as long as that costs no more than it may. */
static int64_t pause_ms(const struct keeper *k, const struct sweep *s)
{
    int64_t even = k->leases.n ? (int64_t)(EVERY_MS * s->passed / k->leases.n) : EVERY_MS;
    int64_t by_leases = (int64_t)(s->n / LEASES_IN_MS);
    int64_t by_parts = s->parts > 1 ? (int64_t)(s->parts / PARTS_IN_MS) : 0;
    int64_t least = by_leases > by_parts ? by_leases : by_parts;
    return even > least ? even : least;
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Thread: keeper. Holds: nothing. */
static void request_parts(struct keeper *k, struct sweep *s, int64_t deadline_ms)
{
    for (size_t i = 0; i < s->parts; i++) {
        const struct held_part *p = &s->part[i];
        s->err[i].message[0] = '\0';
        s->op[i] = (struct op){ .id = OP_held,
                                .held = { .n = p->n, .each = s->grant + p->from,
                                          .odd = s->odd + p->from },
                                .deadline_ms = deadline_ms, .stop = &k->hurry, .once = true,
                                .reterr = &s->err[i] };
    }
    exec_run_all(k->c->exec, s->op, s->parts);
}

static void refuse(struct keeper *k, struct sweep *s, const hf_error *err)
{
    s->refused = true;
    log_to(&k->c->log, HF_LOG_WARNING,
           "what is held cannot be looked at: %s; a lock that others delete is missed only at its "
           "next renewal (see docs/acl.md)", err->message);
}

/* The lease of a copy, if it still is what it was then: let go of, prolonged or shared by now, it
 * is somebody else's business. */
static struct lease *still_held_locked(struct keeper *k, const struct grant *g)
{
    mutex_assert_held(&k->mu);
    struct lease *l = lease_set_find(&k->leases, g->sequence);
    bool same = l && to_look_at(l, CLOCK_NEVER) && l->grant.shared == g->shared
                && l->grant.fence == g->fence;
    return same ? l : NULL;
}

/* True: something was not as it should be. */
static bool settle_locked(struct keeper *k, struct sweep *s)
{
    mutex_assert_held(&k->mu);
    bool odd = false;
    for (size_t i = 0; i < s->parts; i++) {
        const struct held_part *p = &s->part[i];
        hf_err e = s->op[i].result;
        if ((e == HF_EAUTH || e == HF_ENOTSUP) && !s->refused)
            refuse(k, s, &s->err[i]);
        for (size_t j = p->from; j < p->from + p->n; j++) {
            struct lease *l = e || !s->odd[j] ? NULL : still_held_locked(k, s->grant[j]);
            if (!l)
                continue;
            l->suspect = odd = true;
            keeper_plan_renewal_locked(k, l, 0);
        }
        op_clear(&s->op[i]);
    }
    return odd;
}

bool held_due_locked(struct keeper *k, int64_t now_ms)
{
    mutex_assert_held(&k->mu);
    struct sweep *s = k->sweep;
    if (now_ms < held_next_ms(k))
        return false;
    s->next_ms = now_ms + EVERY_MS;
    keeper_verify_moved_locked(k);
    if (topo_quorum(k->c->topo))
        return true;
    collect_locked(k, s, now_ms);
    s->next_ms = now_ms + pause_ms(k, s);
    if (!s->n)
        return true;
    if (!copy_all(s))
        return true;
    int64_t deadline = keeper_deadline_locked(k, now_ms,
                                              now_ms + (k->c->keyspace ? WAIT_MS : SILENT_MS));
    atomic_store(&k->hurry, 0);
    keeper_unlock(k);
    request_parts(k, s, deadline);
    keeper_lock(k);
    if (settle_locked(k, s))
        s->next_ms = now_ms; /* where one is gone others may be: FLUSHALL takes them all */
    mem_free(s->bytes);
    s->bytes = NULL;
    return true;
}
