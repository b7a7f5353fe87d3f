/* SPDX-License-Identifier: MIT
 * keeper.c - the thread that talks to the server in the background while locks are held.
 *
 * It renews leases (renew.c), gives up tokens, and makes known who we are; renewals always go
 * first. What its results mean for a holder is decided in belief.c.
 */
#include "session/keeper.h"

#include <errno.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/thread.h"
#include "session/keeper_impl.h"
#include "session/waiter.h"

#define RECORD_TTL_MS     60000
#define GIVEUP_ATTEMPT_MS 1000
#define GIVEUP_PAUSE_MS   200
#define GIVEUP_MAX        1000
#define RELEASED_MS       3000 /* longer than it takes to notice a move */
#define RELEASED_MAX      1000

/* ---- the keeper -------------------------------------------------------------------------- */

/* Holds: mu. */
static size_t list_published(struct keeper *k, struct record_entry *entry, int64_t *ret_ttl_ms)
{
    size_t n = 0;
    int64_t now = clock_now_ms();
    *ret_ttl_ms = RECORD_TTL_MS;
    for (size_t i = 0; i < k->watches.len; i++) {
        const struct lease *l = keeper_lease_of(k->watches.node[i]);
        if (2 * l->ttl_ms > *ret_ttl_ms)
            *ret_ttl_ms = 2 * l->ttl_ms;
        if (l->published && n < RECORD_ENTRIES_MAX)
            entry[n++] = (struct record_entry){ l->sequence, now - l->granted_ms, false };
    }
    return n;
}

/* Holds: mu, released while it talks. */
static bool refresh_record(struct keeper *k, int64_t now)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    hf_error err;
    int64_t ttl_ms;

    bool due = k->record_due || now >= k->announce_at_ms
               || (k->published > 0 && now >= k->record_fresh_until_ms);
    if (!due)
        return false;
    k->record_due = false;
    size_t n = list_published(k, entry, &ttl_ms);
    size_t young, named = waiters_list(k->c->waiters, KEEPER_PUBLISH_AFTER_MS, entry + n,
                                       RECORD_ENTRIES_MAX - n, &young);
    n += named;
    k->announce_at_ms = young   ? now + KEEPER_PUBLISH_AFTER_MS
                        : named ? now + ttl_ms / 3
                                : CLOCK_NEVER;
    if (n == 0)
        return true; /* whoever waited waits no more */
    k->record_fresh_until_ms = now + ttl_ms / 3;
    int64_t deadline = keeper_deadline(k, now, client_deadline(k->c));
    pthread_mutex_unlock(&k->mu);
    if (record_write(k->c->topo, k->c->record_key, &k->c->identity, entry, n, ttl_ms, deadline,
                     &err))
        log_to(&k->c->log, HF_LOG_INFO, "session record not written: %s", err.message);
    pthread_mutex_lock(&k->mu);
    return true;
}

/* Holds: mu, released while it talks. Try one token that was given up; false: none is due. */
static bool finish_given_up(struct keeper *k, int64_t now)
{
    for (struct giveup **p = &k->given_up; *p; p = &(*p)->next) {
        struct giveup *g = *p;
        if (g->try_at_ms > now)
            continue;
        *p = g->next;
        int64_t deadline = keeper_deadline(k, now, now + GIVEUP_ATTEMPT_MS);
        pthread_mutex_unlock(&k->mu);
        hf_err e = giveup_cancel(k->c, &g->what, deadline, NULL, NULL);
        pthread_mutex_lock(&k->mu);
        if (!e || e == HF_EAUTH || clock_now_ms() >= g->until_ms) {
            giveup_free(g);
        } else {
            g->try_at_ms = clock_now_ms() + GIVEUP_PAUSE_MS;
            g->next = k->given_up;
            k->given_up = g;
        }
        return true;
    }
    return false;
}

/* Holds: mu. */
static int64_t next_due(const struct keeper *k)
{
    const struct heap_node *n = heap_first(&k->renewals);
    int64_t due = n ? n->due_ms : CLOCK_NEVER;
    for (const struct giveup *g = k->given_up; g; g = g->next)
        due = clock_earlier(due, g->try_at_ms);
    if (k->published)
        due = clock_earlier(due, k->record_fresh_until_ms);
    return clock_earlier(due, k->announce_at_ms);
}

static void *keeper_main(void *arg)
{
    struct keeper *k = arg;
    pthread_mutex_lock(&k->mu);
    while (!k->stopping) {
        int64_t now = clock_now_ms();
        if (renew_due(k, now) || finish_given_up(k, now) || refresh_record(k, now))
            continue; /* renewals always go first */
        int64_t until = k->keeper_wakes_ms = keeper_next_wake(k->keeper_wakes_ms, next_due(k), now);
        pthread_mutex_unlock(&k->mu);
        alarm_wait(&k->keeper_alarm, until);
        pthread_mutex_lock(&k->mu);
    }
    pthread_mutex_unlock(&k->mu);
    return NULL;
}

/* ---- open and close ---------------------------------------------------------------------- */

static void stop(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    k->stopping = true;
    pthread_mutex_unlock(&k->mu);
    alarm_ring(&k->keeper_alarm);
    alarm_ring(&k->watch_alarm);
}

hf_err keeper_open(struct hf_client *c, struct keeper **ret, hf_error *reterr)
{
    struct keeper *k = mem_zalloc(sizeof *k);
    if (!k)
        return err_set(reterr, HF_ENOMEM, "out of memory");
    k->c = c;
    k->keeper_wakes_ms = k->watch_wakes_ms = k->min_grace_ms = CLOCK_NEVER;
    k->announce_at_ms = CLOCK_NEVER;
    k->released_end = &k->released;
    k->keeper_alarm = k->watch_alarm = (struct alarm){ -1, -1 };
    pthread_mutex_init(&k->mu, NULL);
    pthread_cond_init(&k->unused, NULL);

    int e = 0;
    if (alarm_open(&k->keeper_alarm) < 0 || alarm_open(&k->watch_alarm) < 0)
        e = errno;
    else if ((e = thread_start(&k->watch_thread, keeper_watchdog, k)) == 0
             && (e = thread_start(&k->keeper_thread, keeper_main, k)) != 0) {
        stop(k);
        pthread_join(k->watch_thread, NULL);
    }
    if (e) {
        keeper_forget(k);
        return err_set(reterr, e == ENOMEM ? HF_ENOMEM : HF_ESYS,
                       "cannot start the background threads: %s", strerror(e));
    }
    *ret = k;
    return HF_OK;
}

struct keeper *keeper_forget(struct keeper *k)
{
    if (!k)
        return NULL;
    *k->released_end = k->given_up;
    while (k->released) {
        struct giveup *g = k->released;
        k->released = g->next;
        giveup_free(g);
    }
    heap_clear(&k->renewals);
    heap_clear(&k->watches);
    if (k->c->generation == forkguard_generation()) {
        alarm_close(&k->keeper_alarm);
        alarm_close(&k->watch_alarm);
        pthread_mutex_destroy(&k->mu);
        pthread_cond_destroy(&k->unused);
    }
    mem_free(k);
    return NULL;
}

struct keeper *keeper_free(struct keeper *k, int64_t deadline_ms)
{
    if (!k)
        return NULL;
    stop(k);
    pthread_join(k->keeper_thread, NULL);
    pthread_join(k->watch_thread, NULL);
    for (struct giveup *g = k->given_up; g; g = g->next)
        if (giveup_cancel(k->c, &g->what, deadline_ms, NULL, NULL))
            break; /* the others would fare no better */
    if (k->record_fresh_until_ms && !k->record_stays)
        (void)record_delete(k->c->topo, k->c->record_key, deadline_ms);
    return keeper_forget(k);
}

/* ---- leases ------------------------------------------------------------------------------ */

hf_err keeper_reserve(struct keeper *k, hf_error *reterr)
{
    pthread_mutex_lock(&k->mu);
    int short_of_memory = heap_reserve(&k->renewals, k->reserved + 1) < 0
                          || heap_reserve(&k->watches, k->reserved + 1) < 0;
    if (!short_of_memory)
        k->reserved++;
    pthread_mutex_unlock(&k->mu);
    return short_of_memory ? err_set(reterr, HF_ENOMEM, "out of memory") : HF_OK;
}

void keeper_unreserve(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    k->reserved--;
    pthread_mutex_unlock(&k->mu);
}

void keeper_give_up(struct keeper *k, const struct cancel *what, int64_t ttl_ms)
{
    int64_t until = clock_add(clock_now_ms(), ttl_ms + CLIENT_TOMBSTONE_MS);
    struct giveup *g = giveup_new(k->c, what, until);
    if (!g)
        return;
    pthread_mutex_lock(&k->mu);
    size_t pending = 0;
    for (const struct giveup *other = k->given_up; other; other = other->next)
        pending++;
    if (pending < GIVEUP_MAX) { /* beyond that the ttl has to do */
        g->next = k->given_up;
        k->given_up = g;
        keeper_wake(k, g->try_at_ms);
        g = NULL;
    }
    pthread_mutex_unlock(&k->mu);
    giveup_free(g);
}

/* Holds: mu. Forget what was released before then. */
static void forget_released(struct keeper *k, int64_t now_ms, size_t max)
{
    while (k->released && (k->nreleased > max || k->released->until_ms <= now_ms)) {
        struct giveup *g = k->released;
        if (!(k->released = g->next))
            k->released_end = &k->released;
        k->nreleased--;
        giveup_free(g);
    }
}

void keeper_released(struct keeper *k, const struct cancel *what)
{
    int64_t now = clock_now_ms();
    if (!topo_can_move(k->c->topo))
        return;
    struct giveup *g = giveup_new(k->c, what, now + RELEASED_MS);
    if (!g)
        return; /* the ttl has to do */
    pthread_mutex_lock(&k->mu);
    forget_released(k, now, RELEASED_MAX - 1);
    g->next = NULL;
    *k->released_end = g;
    k->released_end = &g->next;
    k->nreleased++;
    pthread_mutex_unlock(&k->mu);
}

void keeper_repeat_releases(struct keeper *k)
{
    int64_t now = clock_now_ms();
    forget_released(k, now, RELEASED_MAX);
    struct giveup **p = &k->released;
    while (*p) {
        struct giveup *g = *p;
        if (g->moves == topo_moves_of(k->c->topo, g->keys->key[KEY_LOCK])) {
            p = &g->next;
            continue;
        }
        *p = g->next;
        k->nreleased--;
        g->until_ms = clock_add(now, CLIENT_TOMBSTONE_MS);
        g->try_at_ms = 0;
        g->next = k->given_up;
        k->given_up = g;
    }
    k->released_end = p;
    if (k->given_up)
        keeper_wake(k, now);
}

size_t keeper_list(struct keeper *k, struct lease **ret, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->watches.len && n < max; i++)
        ret[n++] = keeper_lease_of(k->watches.node[i]);
    pthread_mutex_unlock(&k->mu);
    return n;
}

bool keeper_any(struct keeper *k)
{
    pthread_mutex_lock(&k->mu);
    bool any = k->watches.len > 0;
    pthread_mutex_unlock(&k->mu);
    return any;
}

void keeper_announce(struct keeper *k)
{
    int64_t at = clock_now_ms() + KEEPER_PUBLISH_AFTER_MS;
    pthread_mutex_lock(&k->mu);
    if (at < k->announce_at_ms) {
        k->announce_at_ms = at;
        keeper_wake(k, at);
    }
    pthread_mutex_unlock(&k->mu);
}

bool keeper_holds(struct keeper *k, uint64_t sequence)
{
    bool held = false;
    pthread_mutex_lock(&k->mu);
    for (size_t i = 0; i < k->watches.len && !held; i++)
        held = keeper_lease_of(k->watches.node[i])->sequence == sequence;
    pthread_mutex_unlock(&k->mu);
    return held;
}

/* Holds: mu, released while it waits: until nobody reads the lease outside of it. */
static struct lease *find_idle(struct keeper *k, const char *token)
{
    for (;;) {
        struct lease *l = NULL;
        for (size_t i = 0; i < k->watches.len && !l; i++)
            if (strcmp(keeper_lease_of(k->watches.node[i])->token, token) == 0)
                l = keeper_lease_of(k->watches.node[i]);
        if (!l || !l->in_use)
            return l;
        pthread_cond_wait(&k->unused, &k->mu);
    }
}

bool keeper_follow(struct keeper *k, const char *token, hf_bytes key)
{
    pthread_mutex_lock(&k->mu);
    struct lease *l = find_idle(k, token);
    if (l) {
        l->follower = key;
        if (!l->published)
            k->published++;
        l->published = true;
        k->record_due = true;
        (void)refresh_record(k, clock_now_ms());
    }
    pthread_mutex_unlock(&k->mu);
    return l != NULL;
}

hf_err keeper_publish(struct keeper *k, const struct lease *l, int64_t ttl_ms, hf_error *reterr)
{
    struct record_entry entry[RECORD_ENTRIES_MAX];
    int64_t ttl;

    pthread_mutex_lock(&k->mu);
    size_t n = list_published(k, entry, &ttl);
    k->record_stays = true;
    if (!l->published && n < RECORD_ENTRIES_MAX)
        entry[n++] = (struct record_entry){ l->sequence, clock_now_ms() - l->granted_ms, false };
    pthread_mutex_unlock(&k->mu);
    return record_write(k->c->topo, k->c->record_key, &k->c->identity, entry, n,
                        ttl > 2 * ttl_ms ? ttl : 2 * ttl_ms, client_deadline(k->c), reterr);
}
