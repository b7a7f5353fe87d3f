/* SPDX-License-Identifier: MIT
 * waiters.c - all waiters of a client: whom a message is for, and who looks after the queue.
 */
#include "session/waiters_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

/* ---- who waits, and who looks ------------------------------------------------------------- */

static struct waiter *waiter_of(const struct tree_node *n)
{
    return TREE_ITEM(n, struct waiter, by_sequence);
}

static int compare_sequence(const struct tree_node *a, const struct tree_node *b)
{
    const struct waiter *x = waiter_of(a), *y = waiter_of(b); /* no node is NULL */
    return !x || !y ? 0 : x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

static int compare_key(const struct tree_node *a, const struct tree_node *b)
{
    const struct group *p = TREE_ITEM(a, struct group, by_key);
    const struct group *q = TREE_ITEM(b, struct group, by_key);
    if (!p || !q) /* no node is NULL */
        return 0;
    hf_bytes x = p->key, y = q->key;
    int d = memcmp(x.data, y.data, x.len < y.len ? x.len : y.len);
    return d ? d : x.len < y.len ? -1 : x.len > y.len;
}

struct waiters *waiters_new(hf_client *c)
{
    struct waiters *ws = mem_zalloc(sizeof *ws);
    if (ws) {
        ws->c = c;
        ws->by_sequence.compare = compare_sequence;
        ws->by_key.compare = compare_key;
        mutex_init(&ws->mu, MUTEX_WAITERS);
    }
    return ws;
}

static void forget_left(struct left *l)
{
    absences_free(l->absent);
    mem_free(l->key);
    *l = (struct left){ 0 };
}

struct waiters *waiters_free(struct waiters *ws)
{
    for (int i = 0; ws && i < LEFT; i++)
        forget_left(&ws->left[i]);
    mem_free(ws); /* whoever waits must be gone: nothing is in the trees */
    return NULL;
}

static hf_bytes key_of(const struct waiter *w)
{
    return w->a.take.keys->key[KEY_LOCK];
}

static struct group *find_group_locked(struct waiters *ws, const struct waiter *w)
{
    mutex_assert_held(&ws->mu);
    struct group like = { .key = key_of(w) };
    return TREE_ITEM(tree_find(&ws->by_key, &like.by_key), struct group, by_key);
}

/* NULL: there is none. */
static struct waiter *find_waiter_locked(struct waiters *ws, uint64_t sequence)
{
    mutex_assert_held(&ws->mu);
    struct waiter like = { .sequence = sequence };
    return waiter_of(tree_find(&ws->by_sequence, &like.by_sequence));
}

/* ---- what they have seen of holders that are absent -------------------------------------- */

static void leave_absent_locked(struct waiters *ws, struct group *g)
{
    mutex_assert_held(&ws->mu);
    struct left *oldest = ws->left;
    for (int i = 1; i < LEFT; i++)
        if (ws->left[i].at_ms < oldest->at_ms)
            oldest = &ws->left[i];
    if (!g->absent)
        return;
    forget_left(oldest);
    *oldest = (struct left){ mem_copy(g->key.data, g->key.len), g->key.len, g->absent,
                             clock_now_ms() };
    g->absent = NULL;
    if (!oldest->key)
        forget_left(oldest);
}

static struct absences *find_absent_locked(struct waiters *ws, hf_bytes key)
{
    mutex_assert_held(&ws->mu);
    for (int i = 0; i < LEFT; i++) {
        struct left *l = &ws->left[i];
        if (l->key && l->len == key.len && memcmp(l->key, key.data, key.len) == 0) {
            bool old = clock_now_ms() - l->at_ms > LEFT_MS;
            struct absences *found = old ? NULL : l->absent;
            l->absent = old ? l->absent : NULL;
            forget_left(l);
            return found;
        }
    }
    return NULL;
}

void waiters_take_absent(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    struct group *g = w->registered ? find_group_locked(ws, w) : NULL;
    if (g) {
        w->absent = absences_longer(w->absent, g->absent);
        g->absent = NULL;
    }
    mutex_unlock(&ws->mu);
}

void waiters_put_absent(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    struct group *g = w->registered ? find_group_locked(ws, w) : NULL;
    if (g)
        g->absent = absences_longer(g->absent, w->absent);
    else
        absences_free(w->absent);
    w->absent = NULL;
    mutex_unlock(&ws->mu);
}

/* ---- groups ------------------------------------------------------------------------------ */

/* NULL: no memory. */
static struct group *get_group_locked(struct waiters *ws, const struct waiter *w)
{
    mutex_assert_held(&ws->mu);
    struct group *g = find_group_locked(ws, w);
    if (g || !(g = mem_zalloc(sizeof *g)))
        return g;
    g->key = key_of(w);
    g->absent = find_absent_locked(ws, g->key);
    tree_insert(&ws->by_key, &g->by_key);
    atomic_fetch_add(&ws->groups, 1);
    return g;
}

static void drop_group_locked(struct waiters *ws, struct group *g)
{
    mutex_assert_held(&ws->mu);
    tree_remove(&ws->by_key, &g->by_key);
    atomic_fetch_sub(&ws->groups, 1);
    leave_absent_locked(ws, g);
    mem_free(g);
}

bool waiters_add(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    struct group *g = get_group_locked(ws, w);
    if (g) {
        tree_insert(&ws->by_sequence, &w->by_sequence);
        w->older = g->youngest;
        if (w->older)
            w->older->younger = w;
        g->youngest = w;
        w->since_ms = clock_now_ms();
        w->registered = true;
    }
    mutex_unlock(&ws->mu);
    if (g && !w->reads)
        client_expect(ws->c, true);
    return g != NULL;
}

/* FNV-1a: enough to tell one's own lock from others. */
static uint64_t hash(hf_bytes b)
{
    const unsigned char *p = b.data;
    uint64_t h = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < b.len; i++)
        h = (h ^ p[i]) * UINT64_C(1099511628211);
    return h;
}

static struct served *slot_locked(struct waiters *ws, uint64_t sequence)
{
    mutex_assert_held(&ws->mu);
    return &ws->served[sequence % SERVED];
}

static void remember_served_locked(struct waiters *ws, const struct waiter *w, bool granted)
{
    mutex_assert_held(&ws->mu);
    struct served *s = slot_locked(ws, w->sequence);
    *s = (struct served){ .sequence = w->sequence, .number = w->a.fence, .key = hash(key_of(w)),
                          .done = !granted };
    memcpy(s->nonce, w->a.nonce, sizeof s->nonce);
}

void waiters_done(struct waiters *ws, uint64_t sequence)
{
    mutex_lock(&ws->mu);
    struct served *s = slot_locked(ws, sequence);
    s->done |= s->sequence == sequence;
    mutex_unlock(&ws->mu);
}

void waiters_forget(struct waiters *ws, uint64_t sequence)
{
    mutex_lock(&ws->mu);
    struct served *s = slot_locked(ws, sequence);
    if (s->sequence == sequence)
        *s = (struct served){ 0 };
    mutex_unlock(&ws->mu);
}

static void leave_group_locked(struct waiters *ws, struct waiter *w)
{
    mutex_assert_held(&ws->mu);
    struct group *g = find_group_locked(ws, w);
    struct waiter *next = NULL;
    if (w->older)
        w->older->younger = w->younger;
    if (w->younger)
        w->younger->older = w->older;
    else if ((g->youngest = next = w->older))
        next->look_now = true; /* it looks for all of them from now on */
    if (!g->youngest)
        drop_group_locked(ws, g);
    else if (g->key.data == key_of(w).data)
        g->key = key_of(g->youngest); /* the same bytes, of one who stays */
    if (next)
        task_wake(next->task);
}

void waiters_remove(struct waiters *ws, struct waiter *w, bool granted)
{
    mutex_lock(&ws->mu);
    bool was = w->registered;
    if (was) {
        tree_remove(&ws->by_sequence, &w->by_sequence);
        leave_group_locked(ws, w);
        w->registered = false;
        remember_served_locked(ws, w, granted);
    }
    mutex_unlock(&ws->mu);
    if (was && !w->reads)
        client_expect(ws->c, false);
}

/* Under mu. From the first to the last. */
#define EACH_WAITER(ws, w)                                                                 \
    for (struct waiter *w = waiter_of(tree_first(&(ws)->by_sequence)); w;                  \
         w = waiter_of(tree_next(&(ws)->by_sequence, &w->by_sequence)))

size_t waiters_list(struct waiters *ws, int64_t age_ms, struct record_entry *ret, size_t max,
                    size_t *ret_young)
{
    int64_t now = clock_now_ms();
    size_t n = 0;
    *ret_young = 0;
    mutex_lock(&ws->mu);
    EACH_WAITER(ws, w) {
        int64_t age = now - w->since_ms;
        if (age < age_ms)
            ++*ret_young;
        else if (n < max)
            ret[n++] = (struct record_entry){ .sequence = w->sequence, .age_ms = age,
                                              .waits = true };
    }
    mutex_unlock(&ws->mu);
    return n;
}

bool waiters_any(struct waiters *ws)
{
    mutex_lock(&ws->mu);
    bool any = ws->by_sequence.root != NULL;
    mutex_unlock(&ws->mu);
    return any;
}

bool waiters_is_youngest(struct waiters *ws, const struct waiter *w)
{
    mutex_lock(&ws->mu);
    bool youngest = !w->younger;
    mutex_unlock(&ws->mu);
    return youngest;
}

void waiters_rejoin(struct waiters *ws, struct keyspace *h, unsigned epoch)
{
    mutex_lock(&ws->mu);
    EACH_WAITER(ws, w) {
        if (keyspace_of(w->a.take.keys) != h)
            continue;
        w->rejoin = true;
        w->new_epoch = epoch;
        task_wake(w->task);
    }
    mutex_unlock(&ws->mu);
}

/* The queue is gone, or we were dropped from it: so were the others of this client. */
void waiters_rejoin_group(struct waiters *ws, const struct waiter *w)
{
    mutex_lock(&ws->mu);
    for (struct waiter *other = w->older; other; other = other->older) {
        other->dropped = true;
        task_wake(other->task);
    }
    mutex_unlock(&ws->mu);
}

/* ---- what is heard ------------------------------------------------------------------------ */

/* "granted TOKEN NUMBER NONCE KEY" or "watch TOKEN". */
struct heard {
    bool        grant;
    char        token[TOKEN_SIZE];
    uint64_t    sequence, number;
    char        nonce[17];
    hf_bytes    key;
};

/* Cut the next word off *text. sscanf() would do, in several times the time, on every handover. */
static bool word(const char **text, char *ret, size_t size)
{
    size_t n = strcspn(*text, " ");
    if (n == 0 || n >= size)
        return false;
    memcpy(ret, *text, n);
    ret[n] = '\0';
    *text += n + ((*text)[n] == ' ');
    return true;
}

/* False: it is nothing for a waiter of ours. */
static bool parse(const struct waiters *ws, const char *text, size_t len, struct heard *ret)
{
    char kind[8], number[24];
    const char *rest = text;
    if (!word(&rest, kind, sizeof kind) || !word(&rest, ret->token, sizeof ret->token))
        return false;
    ret->sequence = client_sequence_of(ws->c, ret->token);
    ret->grant = strcmp(kind, "granted") == 0;
    if (!ret->sequence || !ret->grant)
        return ret->sequence && strcmp(kind, "watch") == 0;
    if (!word(&rest, number, sizeof number) || !word(&rest, ret->nonce, sizeof ret->nonce))
        return false;
    ret->number = strtoull(number, NULL, 10);
    ret->key = (hf_bytes){ rest, len - (size_t)(rest - text) };
    return true;
}

/* A grant for a token that has gone, which must not stay with us: under a number that is
 * larger than that of its own grant, by a server that does not know that the token was served (a
 * failover). Anybody may publish to our channel: so the message has to name the place in the queue,
 * by its nonce, and that very lock. Tokens that never stood in a queue, that are held or being
 * given back, or that were left behind are nobody's to give up. */
static bool gone_astray_locked(struct waiters *ws, const struct heard *h)
{
    mutex_assert_held(&ws->mu);
    const struct served *s = slot_locked(ws, h->sequence);
    return s->sequence == h->sequence && s->done && s->nonce[0] && strcmp(s->nonce, h->nonce) == 0
           && s->key == hash(h->key) && h->number > s->number;
}

static void refuse_grant(struct waiters *ws, const struct heard *h)
{
    size_t skip = strlen(ws->c->prefix);
    struct lock_keys *keys;
    if (h->key.len <= skip
        || client_keys(ws->c, (hf_bytes){ (const char *)h->key.data + skip, h->key.len - skip },
                       &keys, NULL))
        return;
    struct op_cancel what = { .keys = keys, .token = h->token, .remember_ms = CLIENT_TOMBSTONE_MS };
    keeper_give_up(ws->c->keeper, &what, CLAIM_MAX_MS);
    keys_free(keys);
}

/* Whoever listens on our channel knows the nonce as soon as the server has told it: of several
 * messages the first counts. */
static void told_locked(struct waiters *ws, struct waiter *w, const struct heard *h)
{
    mutex_assert_held(&ws->mu);
    hf_bytes ours = key_of(w);
    if (h->grant && !w->granted && strcmp(h->nonce, w->a.nonce) == 0 && h->key.len == ours.len
        && memcmp(h->key.data, ours.data, ours.len) == 0)
        w->granted = h->number;
    else
        w->look_now = true;
    task_wake(w->task);
}

/* Only who knows the nonce of our place is believed; anything else makes us look. */
void waiters_message(struct waiters *ws, const char *text, size_t len)
{
    struct heard h = { 0 };
    if (!parse(ws, text, len, &h))
        return;
    mutex_lock(&ws->mu);
    struct waiter *w = find_waiter_locked(ws, h.sequence);
    if (w)
        told_locked(ws, w, &h);
    bool astray = !w && h.grant && gone_astray_locked(ws, &h);
    mutex_unlock(&ws->mu);
    if (astray)
        refuse_grant(ws, &h);
}

void waiters_told(struct waiters *ws, uint64_t sequence, size_t member)
{
    mutex_lock(&ws->mu);
    struct waiter *w = find_waiter_locked(ws, sequence);
    if (w) {
        w->told |= UINT64_C(1) << member;
        task_wake(w->task);
    }
    mutex_unlock(&ws->mu);
}

uint64_t waiters_take_told(struct waiters *ws, struct waiter *w)
{
    mutex_lock(&ws->mu);
    uint64_t hints = w->told;
    w->told = 0;
    mutex_unlock(&ws->mu);
    return hints;
}
